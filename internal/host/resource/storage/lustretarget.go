package storage

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/mortarhpc/mortar/internal/host/resource"
)

// LustreTarget is a formatted MGT, MDT or OST. It is made only on a device
// that carries nothing, and a target of another file system is refused.
type LustreTarget struct {
	// Name is "MGS", or the file system's name, a hyphen, MDT or OST, and the
	// index in hexadecimal: "home-OST000a".
	Name   string
	Device string
	Args   []string // of mkfs.lustre, without the device
	// Nodes that the target knows: NIDs of the MGS, and of the servers that may
	// mount it.
	MGSNIDs     []string `json:",omitempty"`
	ServiceNIDs []string
	Why         string `json:",omitempty"`
}

func (t *LustreTarget) Identity() (kind, id string) { return "lustre-target", t.Name }

// Diff looks at what the device carries, and at what the target knows. That
// only reads, and is done while the target is mounted, too.
func (t *LustreTarget) Diff(sys resource.Look) ([]resource.Action, error) {
	if sys.Kernel(t.Device) == "" {
		return t.mkfs(false), nil // its device is made first
	}
	at := sys.Node(t.Device)
	v := probe(sys, at)
	if v == nil {
		return t.mkfs(false), nil
	}
	if v["TYPE"] != "ext4" {
		return nil, foreign(t.Device, v)
	}
	got := readTarget(sys, at)
	switch {
	case got == nil && !t.labelled(v["LABEL"]):
		return nil, foreign(t.Device, v)
	case got == nil:
		return t.again(sys), nil
	case !t.same(got):
		return nil, resource.Refuse("target-other", resource.With{"device": t.Device, "target": got.name, "fs": got.fsname, "want": t.Name})
	}
	for _, n := range []struct {
		what      string
		got, want []string
	}{{"the MGS", got.mgs, t.MGSNIDs}, {"its servers", got.service, t.ServiceNIDs}} {
		if !resource.SameSet(n.got, n.want) {
			return nil, resource.Refuse("target-nids", resource.With{"target": t.Name, "device": t.Device, "node": n.what, "nids": resource.Named{ID: n.got, Words: resource.OrNone(strings.Join(n.got, ", "))}, "want": n.want})
		}
	}
	return nil, nil
}

// targetFacts is what a target says of itself.
type targetFacts struct {
	name, fsname string
	index        int // -1 for the MGS
	mgs, service []string
}

// same tells whether the facts are of this target.
func (t *LustreTarget) same(got *targetFacts) bool {
	if t.Name == "MGS" || got.name == "MGS" {
		return got.name == t.Name
	}
	fs, kind, index := splitTarget(t.Name)
	_, gotKind, _ := splitTarget(got.name)
	return got.fsname == fs && gotKind == kind && got.index == index
}

// splitTarget takes "home-OST000a" apart. What stands in place of the hyphen
// says where registration with the MGS is: ":" it has not registered, "=" its
// log is written anew, "+" it starts without a log of its own.
// Source: lustre-release, lustre/utils/mkfs_lustre.c, server_make_name.
func splitTarget(name string) (fs, kind string, index int) {
	if len(name) < 9 || !strings.ContainsAny(name[len(name)-8:len(name)-7], ":=+-") {
		return "", "", -1
	}
	i, err := strconv.ParseUint(name[len(name)-4:], 16, 16)
	if err != nil {
		return "", "", -1
	}
	return name[:len(name)-8], name[len(name)-7 : len(name)-4], int(i)
}

// labelled tells whether a file system's label is the target's name before it
// has registered: only mkfs.lustre gives that.
func (t *LustreTarget) labelled(label string) bool {
	if t.Name == "MGS" {
		return label == "MGS"
	}
	return len(t.Name) > 8 && label == t.Name[:len(t.Name)-8]+":"+t.Name[len(t.Name)-7:]
}

// again formats a file system of ours anew that has no Lustre in it yet: an
// mkfs.lustre that was killed left it. Nothing is in it but what mke2fs and
// mkfs.lustre put there.
func (t *LustreTarget) again(sys resource.Look) []resource.Action {
	argv := []string{"debugfs", "-c", "-R", "ls -p /", sys.Node(t.Device)}
	out, installed := sys.Command(argv...)
	if !installed {
		sys.Check(fmt.Errorf("debugfs is missing (package e2fsprogs)"))
	}
	sys.Succeeded(out, argv...)
	var names []string
	for line := range strings.Lines(out.Stdout) {
		// /inode/mode/uid/gid/name/size/
		if f := strings.Split(strings.TrimSpace(line), "/"); len(f) > 6 && !slices.Contains([]string{"", ".", ".."}, f[5]) {
			names = append(names, f[5])
		}
	}
	for _, n := range names {
		if n != "lost+found" && n != "CONFIGS" {
			sys.Check(resource.Refuse("target-not-lustre", resource.With{"device": t.Device, "target": t.Name, "files": names}))
		}
	}
	if len(names) == 0 {
		sys.Check(fmt.Errorf("%s: debugfs shows nothing, not even lost+found: %s", t.Device, strings.TrimSpace(out.Stderr)))
	}
	return t.mkfs(true)
}

func (t *LustreTarget) mkfs(again bool) []resource.Action {
	a := resource.Action{Title: "make Lustre target " + t.Name, Why: t.Why, Cmd: []string{"mkfs.lustre"}, Blank: []string{t.Device}, Seconds: 3600}
	if again {
		// Not blank, but empty: again has looked.
		a.Cmd, a.Blank, a.Why = append(a.Cmd, "--reformat"), nil, "an earlier mkfs.lustre of this brick was cut short"
	}
	a.Cmd = append(append(a.Cmd, t.Args...), t.Device)
	return []resource.Action{a}
}

// readTarget asks tunefs.lustre; nil if the device has no Lustre.
func readTarget(sys resource.Look, dev string) *targetFacts {
	argv := []string{"tunefs.lustre", "--dryrun", dev}
	out, err := sys.Query(sys.Ctx, argv...)
	sys.Check(err)
	if out.Code == notLustre {
		return nil
	}
	sys.Succeeded(out, argv...)
	f := parseTarget(out.Stdout)
	if f.name == "" {
		sys.Check(fmt.Errorf("%s: no target in its output: %s", strings.Join(argv, " "), strings.TrimSpace(out.Stdout)))
	}
	return f
}

// notLustre is tunefs.lustre's exit code for a device without Lustre: ENODEV.
// Source: lustre-release, lustre/utils/mkfs_lustre.c.
const notLustre = 19

// parseTarget reads the first block of `tunefs.lustre --dryrun`, "Read
// previous values": those on the disk.
func parseTarget(s string) *targetFacts {
	f := &targetFacts{index: -1}
	seen := false
	for line := range strings.Lines(s) {
		k, v, ok := strings.Cut(line, ":")
		if !ok {
			continue
		}
		v = strings.TrimSpace(v)
		switch strings.TrimSpace(k) {
		case "Read previous values", "Permanent disk data":
			if seen {
				return f
			}
			seen = true
		case "Target":
			f.name = v
		case "Index":
			if i, err := strconv.Atoi(v); err == nil {
				f.index = i
			}
		case "Lustre FS":
			f.fsname = v
		case "Parameters":
			for _, p := range strings.Fields(v) {
				k, nids, _ := strings.Cut(p, "=")
				switch k {
				case "mgsnode":
					f.mgs = append(f.mgs, splitNIDs(nids)...)
				case "failover.node":
					f.service = append(f.service, splitNIDs(nids)...)
				}
			}
		}
	}
	return f
}

// splitNIDs splits a list of NIDs: colons part nodes, commas the NIDs of one. An address
// of IPv6 has colons too: one that parts nodes follows the name of a network.
func splitNIDs(s string) (out []string) {
	for s != "" {
		at := strings.IndexByte(s, '@')
		if at < 0 {
			return append(out, strings.FieldsFunc(s, func(r rune) bool { return r == ':' || r == ',' })...)
		}
		nid, rest := s, ""
		if end := strings.IndexAny(s[at:], ":,"); end >= 0 {
			nid, rest = s[:at+end], s[at+end+1:]
		}
		out = append(out, strings.FieldsFunc(nid, func(r rune) bool { return r == ',' })...)
		s = rest
	}
	return out
}

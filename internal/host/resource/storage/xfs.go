package storage

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/base/md"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

// XFS is a file system on a device. It is made only where there is nothing.
type XFS struct {
	Device string
	UUID   string
	Args   []string // of mkfs.xfs, without the device
	// At is where fstab mounts it, on a server that has the storage for itself: fstab has that
	// only once the file system was made. "" on one of a pair.
	At string `json:",omitempty"`
	// Serial is what a person types to have a LUN wiped that carries the file
	// system without a volume group; it must be blank. "" for a volume.
	Serial string `json:",omitempty"`
}

func (x *XFS) Identity() (kind, id string) { return "xfs", x.Device }

// Diff looks whether it is mounted, then at what the device carries.
func (x *XFS) Diff(sys resource.Look) ([]resource.Action, error) {
	dev := sys.Kernel(x.Device)
	if dev == "" {
		return x.mkfs(false), nil // its volume is made first
	}
	ms := sys.Mounts()
	for _, m := range ms {
		// A mounted file system is known by its UUID's link, without a fork.
		if m.Type == "xfs" && sys.Kernel(m.Source) == dev && sys.Kernel("/dev/disk/by-uuid/"+x.UUID) == dev {
			return nil, nil
		}
	}
	at := sys.Node(x.Device)
	v := probe(sys, at)
	if v == nil && x.At != "" {
		if fstab, _ := sys.File("/etc/fstab"); slices.ContainsFunc(linux.ParseMounts(fstab), func(m linux.Mount) bool { return path.Clean(m.Target) == path.Clean(x.At) }) {
			return nil, resource.Refuse("fs-gone", resource.With{"device": x.Device, "path": x.At})
		}
	}
	if v == nil {
		return x.mkfs(false), nil
	}
	if v["TYPE"] != "xfs" || !md.SameUUID(v["UUID"], x.UUID) {
		return nil, foreign(x.Device, v)
	}
	// mkfs.xfs sets inprogress first and clears it last: one that was killed
	// left a superblock with our UUID and no file system.
	out := sys.Ask("xfsprogs", "xfs_db", "-r", "-c", "sb 0", "-c", "print inprogress", at)
	if strings.TrimSpace(out) == "inprogress = 1" {
		return x.mkfs(true), nil
	}
	return nil, nil
}

// probe asks blkid what a device carries, or a part of it (blkid's options); nil for nothing.
func probe(sys resource.Look, dev string, part ...string) map[string]string {
	out, installed := sys.Command(append(append([]string{"blkid", "--probe", "--output", "export"}, part...), dev)...)
	if !installed {
		sys.Check(fmt.Errorf("blkid is missing (package util-linux)"))
	}
	// 2: nothing found. 8: ambivalent, more than one signature.
	// Source: blkid(8), EXIT STATUS.
	if out.Code == 2 {
		return nil
	}
	if out.Code != 0 {
		sys.Check(resource.Refuse("fs-unclear", resource.With{"device": dev, "error": strings.TrimSpace(out.Stderr)}))
	}
	v := map[string]string{}
	for line := range strings.Lines(out.Stdout) {
		if k, val, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			v[k] = val
		}
	}
	if v["TYPE"] == "" && v["PTTYPE"] == "" {
		return nil
	}
	return v
}

// foreign refuses a device that carries what probe found.
func foreign(dev string, v map[string]string) error {
	what := v["TYPE"]
	if what == "" {
		what = "a partition table (" + v["PTTYPE"] + ")"
	}
	return resource.Refuse("fs-foreign", resource.With{"device": dev, "type": what, "uuid": v["UUID"]})
}

// mkfsSeconds bounds mkfs.xfs. One of 16 PiB, the most that LVM counts, takes 280,000 accesses, mostly
// one after the other: 94 minutes at 20 ms on disks that also compute their parity for the first time.
const mkfsSeconds = 7200

func (x *XFS) mkfs(again bool) []resource.Action {
	argv := []string{"mkfs.xfs"}
	why := ""
	if again {
		argv, why = append(argv, "-f"), "an earlier mkfs.xfs of this brick was cut short"
	}
	a := resource.Action{
		Title: "make the XFS file system on " + x.Device, Why: why,
		Cmd: append(append(argv, x.Args...), x.Device), Seconds: mkfsSeconds,
	}
	if x.Serial != "" && !again {
		a.Blank, a.Destroys = []string{x.Device}, []string{x.Serial}
	}
	return []resource.Action{a}
}

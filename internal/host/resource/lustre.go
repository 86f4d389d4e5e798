package resource

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"golang.org/x/sys/unix"

	"github.com/mortarhpc/mortar/internal/base/linux"
)

// mgsDir is there while the MGS runs.
const mgsDir = "/sys/fs/lustre/mgs/MGS"

// mgsHere tells whether the MGS runs on this host, and whether actions for it
// are this host's. Each server of the pair has the resources that only the MGS
// can see to. Before the cluster runs, home, the server on which the MGS runs
// as a rule, shows the actions.
func mgsHere(sys Look, home bool) (here, mine bool) {
	here = sys.Exists(mgsDir)
	return here, here || home && !clusterRuns(sys)
}

// LustreParam is a parameter that the MGS keeps and gives to all nodes: lctl
// set_param -P.
type LustreParam struct {
	Name  string // may have a * for any: "osc.*.max_dirty_mb"
	Value string
	// Home: the MGS runs on this server as a rule.
	Home bool
	Why  string `json:",omitempty"`
}

func (p *LustreParam) Identity() (kind, id string) { return "lustre-param", p.Name }

// Settle is how long nodes may take until they have the value: the MGS tells
// them at once, and they fetch it some ten seconds later (seen with Lustre 2.17.57).
func (p *LustreParam) Settle() time.Duration { return 30 * time.Second }

// Diff compares what the MGS keeps, and then the live value on this host
// where there is one.
func (p *LustreParam) Diff(sys Look) ([]Action, error) {
	keep := []Action{{
		Title: "set " + p.Name + "=" + p.Value + " for good, on every node", Why: p.Why,
		Cmd: []string{"lctl", "set_param", "-P", p.Name + "=" + p.Value},
	}}
	here, mine := mgsHere(sys, p.Home)
	switch {
	case !mine:
		return nil, nil
	case !here:
		return keep, nil
	}
	if v, ok := keptParams(sys)[p.Name]; !ok || v != p.Value {
		return keep, nil
	}
	return p.live(sys), nil
}

// live sets a value on this host that is not what the MGS keeps: an administrator set
// it by hand. Only whole numbers are compared, for lctl prints other values
// in other words than it takes them.
func (p *LustreParam) live(sys Look) []Action {
	want, err := strconv.ParseInt(p.Value, 10, 64)
	if err != nil {
		return nil
	}
	out, _ := sys.Command("lctl", "get_param", p.Name)
	var differ []string
	for line := range strings.Lines(out.Stdout) { // an error says that this host has none
		name, v, _ := strings.Cut(strings.TrimSpace(line), "=")
		if ok, _ := path.Match(p.Name, name); !ok {
			continue
		}
		if n, err := strconv.ParseInt(v, 10, 64); err == nil && n != want {
			differ = append(differ, name+" is "+v)
		}
	}
	if len(differ) == 0 {
		return nil
	}
	return []Action{{
		Title: "set " + p.Name + "=" + p.Value + " on this host", Why: strings.Join(differ, "; "),
		Cmd: []string{"lctl", "set_param", p.Name + "=" + p.Value},
	}}
}

// keptParams reads the MGS's log of parameters; the last record of a name
// holds.
func keptParams(sys Look) map[string]string {
	argv := []string{"lctl", "--device", "MGS", "llog_print", "params"}
	out, err := sys.Query(sys.Ctx, argv...)
	sys.Check(err)
	if out.Code != 0 && linux.ErrnoIn(out.Stderr) == unix.ENOENT {
		return nil // none was ever set
	}
	sys.Succeeded(out, argv...)
	return parseParams(out.Stdout)
}

// parseParams reads records like
// - { index: 2, event: set_param, device: general, parameter: timeout, value: 20 }
func parseParams(s string) map[string]string {
	kept := map[string]string{}
	for line := range strings.Lines(s) {
		line = strings.TrimSpace(line)
		_, rest, ok := strings.Cut(line, ", parameter: ")
		if !ok || !strings.Contains(line, "event: set_param,") {
			continue
		}
		name, v, _ := strings.Cut(strings.TrimSuffix(rest, " }"), ", value: ")
		kept[name] = v
	}
	return kept
}

// LustreRules is the udev rule by which a node takes up parameters that the MGS
// keeps. The kernel hands those of devices (osc, mdc, llite …) to udev, and
// Lustre's Debian packages lack the rule: without it they have no effect (seen
// with Lustre 2.17.57; with it a mounted client had the value within ten
// seconds). A parameter without a device in its name goes
// another way; of those the kernel takes timeout and a few more, and passes
// over others, such as debug, in silence.
// Source: lustre-release, lustre/conf/99-lustre.rules and
// lustre/obdclass/obd_config.c, process_param2_config.
func LustreRules() *TextFile {
	return &TextFile{Path: "/etc/udev/rules.d/99-lustre.rules", Content: []byte(Header +
		`SUBSYSTEM=="lustre", ACTION=="change", ENV{PARAM}=="?*", RUN+="/usr/sbin/lctl set_param '$env{PARAM}=$env{SETTING}'"` + "\n"),
		Why: "parameters that the MGS keeps reach the devices of this node"}
}

// LustrePool is a named set of OSTs, which directories and files can be put
// on.
type LustrePool struct {
	FSName, Name string
	OSTs         []int
	// Home: the MGS runs on this server as a rule.
	Home bool
}

func (p *LustrePool) Identity() (kind, id string) { return "lustre-pool", p.id() }

func (p *LustrePool) id() string { return p.FSName + "." + p.Name }

// Diff compares what pool_list shows. An OST that the spec does not have in
// the pool is taken out: files that are on it stay there.
func (p *LustrePool) Diff(sys Look) ([]Action, error) {
	here, mine := mgsHere(sys, p.Home)
	if !mine {
		return nil, nil
	}
	var have []string
	made := false
	if here {
		have, made = p.list(sys)
	}
	id := p.id()
	var want, add []string
	for _, i := range p.OSTs {
		ost := fmt.Sprintf("%s-OST%04x", p.FSName, i)
		want = append(want, ost)
		if !slices.Contains(have, ost) {
			add = append(add, ost)
		}
	}
	var as []Action
	if !made {
		as = append(as, Action{Title: "make pool " + id, Cmd: []string{"lctl", "pool_new", id}})
	}
	if len(add) > 0 {
		as = append(as, Action{Title: "add " + strings.Join(add, ", ") + " to pool " + id, Cmd: append([]string{"lctl", "pool_add", id}, add...)})
	}
	if extra := slices.DeleteFunc(have, func(o string) bool { return slices.Contains(want, o) }); len(extra) > 0 {
		as = append(as, Action{
			Title: "take " + strings.Join(extra, ", ") + " out of pool " + id, Why: "files that are on them stay there",
			Cmd: append([]string{"lctl", "pool_remove", id}, extra...),
		})
	}
	return as, nil
}

// noOSTs is the exit code of lctl pool_list while no OST has come to the MDT, as after
// an apply that was cut short before the OSS. Seen with Lustre 2.17.57.
const noOSTs = 12

// list gives the pool's OSTs, and whether there is such a pool.
func (p *LustrePool) list(sys Look) (osts []string, made bool) {
	argv := []string{"lctl", "pool_list", p.FSName}
	out, err := sys.Query(sys.Ctx, argv...)
	sys.Check(err)
	if out.Code == noOSTs {
		return nil, false
	}
	sys.Succeeded(out, argv...)
	if !slices.Contains(strings.Fields(out.Stdout), p.id()) {
		return nil, false
	}
	for line := range strings.Lines(sys.Ask("lustre-server-utils", "lctl", "pool_list", p.id())) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, p.FSName+"-OST") {
			osts = append(osts, strings.TrimSuffix(line, "_UUID"))
		}
	}
	return osts, true
}

// LustreStriping is how files of a directory are striped that say nothing
// else, on a client.
type LustreStriping struct {
	Path  string
	Count int    // OSTs; -1: all
	Size  int64  // bytes on one OST before the next one's turn
	Pool  string `json:",omitempty"`
}

func (l *LustreStriping) Identity() (kind, id string) { return "lustre-striping", l.Path }

// Diff asks lfs, where the file system is mounted.
func (l *LustreStriping) Diff(sys Look) ([]Action, error) {
	argv := []string{"lfs", "setstripe", "--stripe-count", strconv.Itoa(l.Count), "--stripe-size", strconv.FormatInt(l.Size, 10)}
	if l.Pool != "" {
		argv = append(argv, "--pool", l.Pool)
	}
	set := []Action{{
		Title: "set the default striping of " + l.Path, Why: "files below it are striped like this if nothing else is said",
		Cmd: append(argv, l.Path),
	}}
	if m, ok := linux.MountAt(sys.Mounts(), l.Path); !ok || m.Type != "lustre" {
		return set, nil // it is mounted first
	}
	ask := []string{"lfs", "getstripe", "--directory", "--yaml", l.Path}
	out, installed := sys.Command(ask...)
	if !installed {
		return set, nil
	}
	sys.Succeeded(out, ask...)
	got, err := parseStriping(out.Stdout)
	if err != nil {
		return nil, err
	}
	switch {
	case got.Count == l.Count && got.Size == l.Size && got.Pool == l.Pool:
		return nil, nil
	case l.Pool == "" && got.Pool != "":
		// lfs setstripe without a pool, or with pool "none", leaves the pool.
		return append([]Action{{
			Title: "delete the default striping of " + l.Path, Why: "it names pool " + got.Pool,
			Cmd: []string{"lfs", "setstripe", "--delete", l.Path},
		}}, set...), nil
	}
	return set, nil
}

// striping is what lfs getstripe says of a directory.
type striping struct {
	Count int    `yaml:"stripe_count"`
	Size  int64  `yaml:"stripe_size"`
	Pool  string `yaml:"pool"`
}

// parseStriping reads `lfs getstripe --directory --yaml`.
func parseStriping(s string) (striping, error) {
	var got striping
	if err := yaml.Unmarshal([]byte(s), &got); err != nil {
		return got, fmt.Errorf("lfs getstripe: %w", err)
	}
	return got, nil
}

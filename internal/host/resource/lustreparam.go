package resource

import (
	"path"
	"strconv"
	"strings"
	"time"
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
	if out.Code != 0 && strings.Contains(out.Stderr, "No such file or directory") {
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

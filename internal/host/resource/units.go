package resource

import (
	"slices"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/serve/nfs"
)

// Unit is the wanted state of one systemd unit.
type Unit struct {
	Name string
	// Enabled: starts at boot. Active: runs now. Masked: cannot be started,
	// which leaves no room for the other two.
	Enabled, Active, Masked bool
	// Keep leaves alone whether it runs now.
	Keep bool `json:",omitempty"`
	// Optional: a unit that does not exist on this release is no fault.
	Optional bool   `json:",omitempty"`
	Why      string `json:",omitempty"`
}

// Units are the systemd units of one step, observed by a single systemctl.
type Units struct {
	Name string
	List []Unit
	// NoWait: a started unit comes up while other steps go on; a later step
	// waits for what it needs of it.
	NoWait bool `json:",omitempty"`
}

func (u *Units) Identity() (kind, id string) { return "units", u.Name }

// Diff asks systemd once for all units.
func (u *Units) Diff(sys Look) ([]Action, error) {
	state := unitStates(sys, u.List)
	do := map[string][]string{} // units by verb
	var why []string
	for _, w := range u.List {
		s, known := state[w.Name]
		if (!known || s["LoadState"] == "not-found") && w.Optional {
			continue
		}
		verbs := w.verbs(s, u.NoWait)
		for _, v := range verbs {
			do[v] = append(do[v], w.Name)
		}
		if w.Why != "" && len(verbs) > 0 {
			why = append(why, w.Name+": "+w.Why)
		}
	}
	var as []Action
	for _, verb := range []string{"stop", "unmask", "mask", "disable", "enable", "start"} {
		if len(do[verb]) == 0 {
			continue
		}
		argv := []string{"systemctl", verb}
		if u.NoWait && verb == "start" {
			argv = append(argv, "--no-block")
		}
		as = append(as, Action{Title: verb + " " + strings.Join(do[verb], " "), Cmd: append(argv, do[verb]...), Seconds: 180})
	}
	if len(as) > 0 {
		as[0].Why = strings.Join(why, "; ")
	}
	return as, nil
}

// verbs are what systemctl is to do with a unit that has these properties.
func (w Unit) verbs(s map[string]string, noWait bool) (out []string) {
	active := slices.Contains([]string{"active", "activating", "reloading"}, s["ActiveState"])
	if noWait && s["Job"] != "" && s["Job"] != "0" {
		active = w.Active // it is on its way
	}
	masked := s["LoadState"] == "masked" || s["UnitFileState"] == "masked"
	enabled := s["UnitFileState"] == "enabled" && !masked
	for _, c := range []struct {
		verb string
		due  bool
	}{
		{"mask", w.Masked && !masked},
		{"unmask", !w.Masked && masked},
		{"enable", !w.Masked && w.Enabled && !enabled && s["UnitFileState"] != "static"},
		{"disable", !w.Masked && !w.Enabled && enabled},
		{"start", !w.Masked && !w.Keep && w.Active && !active},
		{"stop", !w.Keep && active && (w.Masked || !w.Active)},
	} {
		if c.due {
			out = append(out, c.verb)
		}
	}
	return out
}

// unitStates maps unit names to their properties.
func unitStates(sys Look, units []Unit) map[string]map[string]string {
	argv := []string{"systemctl", "show", "--property=Id,Names,LoadState,ActiveState,UnitFileState,Job"}
	for _, w := range units {
		argv = append(argv, w.Name)
	}
	return parseShow(sys.Ask("systemd", argv...))
}

// parseShow reads the blocks of `systemctl show`, by every name of a unit.
func parseShow(s string) map[string]map[string]string {
	m := map[string]map[string]string{}
	for block := range strings.SplitSeq(strings.TrimSpace(s), "\n\n") {
		p := map[string]string{}
		for line := range strings.Lines(block) {
			if k, v, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
				p[k] = v
			}
		}
		for _, n := range strings.Fields(p["Id"] + " " + p["Names"]) {
			m[n] = p
		}
	}
	return m
}

// timeUnits keep a clock right, by the names that distributions have for them.
//
// Source: packages chrony, systemd-timesyncd, ntpsec, openntpd, linuxptp of Debian 13; chrony of RHEL 9
var timeUnits = []string{"chrony.service", "chronyd.service", "systemd-timesyncd.service", "ntpsec.service", "ntp.service", "ntpd.service",
	"openntpd.service", "phc2sys.service", "timemaster.service"}

// TimeService keeps a host's clock right. Mortar leaves any time service that runs
// already as it is. A host without one gets chrony with the distribution's
// configuration.
//
// Locks, leases, logs of several hosts and the check of acknowledged writes all
// compare times.
type TimeService struct{}

func (t *TimeService) Identity() (kind, id string) { return "time", "service" }

// Diff asks systemd which time services run.
func (t *TimeService) Diff(sys Look) ([]Action, error) {
	d := sys.Distro()
	out, err := sys.Query(sys.Ctx, append([]string{"systemctl", "is-active"}, timeUnits...)...) // its code says that one is not
	sys.Check(err)
	for state := range strings.FieldsSeq(out.Stdout) {
		if slices.Contains([]string{"active", "activating", "reloading"}, state) {
			return nil, nil
		}
	}
	have := installed(sys, d.Manager)
	missing := slices.DeleteFunc(slices.Clone(d.Packages.Time), func(n string) bool { return have[n] })
	return append(install(sys, d.Manager, missing), Action{Title: "enable and start " + d.TimeUnit, Why: "no time service runs here",
		Cmd: []string{"systemctl", "enable", "--now", d.TimeUnit}}), nil
}

// Watchdog has systemd reset a server whose kernel hangs: systemd feeds the
// hardware's timer, which resets the server when systemd does not feed it.
//
// Source: systemd-system.conf(5), RuntimeWatchdogSec
type Watchdog struct {
	Timeout Setting // Value: seconds
}

const watchdogConf = "/etc/systemd/system.conf.d/90-mortar.conf"

func (w *Watchdog) Identity() (kind, id string) { return "watchdog", watchdogConf }

// Diff compares the file, and whether the timer runs. A server without a timer gets
// the file alone, for one whose driver is loaded later.
//
// Source: Linux, Documentation/ABI/testing/sysfs-class-watchdog
func (w *Watchdog) Diff(sys Look) ([]Action, error) {
	f := TextFile{Path: watchdogConf, Why: w.Timeout.Reason, Content: []byte(Header + Comment(w.Timeout.Reason) +
		"[Manager]\nRuntimeWatchdogSec=" + w.Timeout.Value + "\n")}
	as := sys.Want(&f)
	// A timer of which none runs.
	timers := sys.Files("/sys/class/watchdog/watchdog*/state")
	if len(timers) == 0 || slices.ContainsFunc(timers, func(p string) bool { return sys.Text(p) == "active" }) {
		return as, nil
	}
	return append(as, Action{Title: "start the watchdog: " + w.Timeout.Value + " s", Cmd: []string{"busctl", "set-property", "org.freedesktop.systemd1",
		"/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager", "RuntimeWatchdogUSec", "t", w.Timeout.Value + "000000"}}), nil
}

// UnitFiles are files that change a unit. One that runs takes them when it starts next.
type UnitFiles struct {
	Unit  string
	Files []TextFile
}

func (u *UnitFiles) Identity() (kind, id string) { return "unit files", u.Unit }

func (u *UnitFiles) Diff(sys Look) ([]Action, error) {
	var as []Action
	for _, f := range u.Files {
		as = append(as, sys.Want(&f)...)
	}
	return reloaded(sys, u.Unit, as), nil
}

// DropIn adds lines to a unit.
func DropIn(unit, lines string) TextFile {
	return TextFile{Path: linux.SystemdDir + unit + ".d/mortar.conf", Content: []byte(Header + lines)}
}

// reloaded are changes of files of a unit, and that systemd reads them: also those of an apply
// that ended in between.
func reloaded(sys Look, unit string, as []Action) []Action {
	if out, _ := sys.Command("systemctl", "show", "--property=NeedDaemonReload", "--value", unit); len(as) > 0 || strings.TrimSpace(out.Stdout) == "yes" {
		as = append(as, Action{Title: "tell systemd of the files", Cmd: []string{"systemctl", "daemon-reload"}})
	}
	return as
}

// ClusterSlice has Pacemaker, and the agents and daemons that it starts, compete for processors
// with the kernel's threads, and not as one of the services of system.slice. A Pacemaker that
// runs moves there when it starts next: a restart now would stop its services.
//
// Source: systemd.resource-control(5), CPUWeight; systemd.slice(5)
func ClusterSlice(weight Setting) *UnitFiles {
	return &UnitFiles{Unit: "pacemaker.service", Files: []TextFile{
		{Path: linux.SystemdDir + "cluster.slice", Why: weight.Reason,
			Content: []byte(Header + Comment(weight.Reason) + "[Slice]\nCPUWeight=" + weight.Value + "\n")},
		DropIn("pacemaker.service", "[Service]\nSlice=cluster.slice\n"),
	}}
}

// StatdNames says where rpc.statd looks up names. StatdUnit has a single server's unit see it in
// the place of nsswitch.conf(5); in a cluster the resource agent puts it there.
func StatdNames(hosts Setting) *TextFile {
	return &TextFile{Path: nfs.StatdNames, Why: hosts.Reason, Content: []byte(Header + Comment(hosts.Reason) + hosts.Name + ": " + hosts.Value + "\n")}
}

func StatdUnit() *UnitFiles {
	const unit = "rpc-statd.service"
	return &UnitFiles{Unit: unit, Files: []TextFile{DropIn(unit, "[Service]\nBindReadOnlyPaths=-"+nfs.StatdNames+":"+nfs.NSSwitch+"\n")}}
}

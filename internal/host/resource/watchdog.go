package resource

import "slices"

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

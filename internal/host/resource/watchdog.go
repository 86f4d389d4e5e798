package resource

import (
	"context"
	"strings"
)

// Watchdog has systemd reset a server whose kernel hangs: systemd feeds the
// hardware's timer, which resets the server when systemd does not feed it.
//
// Source: systemd-system.conf(5), RuntimeWatchdogSec
type Watchdog struct {
	Timeout Setting // Value: seconds
}

const watchdogConf = "/etc/systemd/system.conf.d/90-mortar.conf"

// Kind is "watchdog".
func (w *Watchdog) Kind() string { return "watchdog" }

// ID is the file's path.
func (w *Watchdog) ID() string { return watchdogConf }

// Diff compares the file, and whether the timer runs. A server without a timer gets
// the file alone, for one whose driver is loaded later.
//
// Source: Linux, Documentation/ABI/testing/sysfs-class-watchdog
func (w *Watchdog) Diff(ctx context.Context, sys Sys) ([]Action, error) {
	f := TextFile{Path: watchdogConf, Why: w.Timeout.Reason, Content: []byte(Header + comment(w.Timeout.Reason) +
		"[Manager]\nRuntimeWatchdogSec=" + w.Timeout.Value + "\n")}
	as, err := f.Diff(ctx, sys)
	if err != nil {
		return nil, err
	}
	idle, err := idleWatchdog(sys)
	if err != nil || !idle {
		return as, err
	}
	return append(as, Action{Title: "start the watchdog: " + w.Timeout.Value + " s", Cmd: []string{"busctl", "set-property", "org.freedesktop.systemd1",
		"/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager", "RuntimeWatchdogUSec", "t", w.Timeout.Value + "000000"}}), nil
}

// idleWatchdog says whether there is a timer and none runs.
func idleWatchdog(sys Sys) (bool, error) {
	states, err := sys.Glob("/sys/class/watchdog/watchdog*/state")
	if err != nil {
		return false, err
	}
	for _, p := range states {
		b, err := sys.ReadFile(p)
		if err != nil {
			return false, err
		}
		if strings.TrimSpace(string(b)) == "active" {
			return false, nil
		}
	}
	return len(states) > 0, nil
}

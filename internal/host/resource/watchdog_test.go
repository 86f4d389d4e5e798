package resource

import (
	"strings"
	"testing"
)

func TestWatchdog(t *testing.T) {
	const state = "/sys/class/watchdog/watchdog0/state"
	w := &Watchdog{Timeout: Setting{Name: "RuntimeWatchdogSec", Value: "60", Reason: "why"}}
	sys := &Paper{Files: map[string]string{}}
	titles := func() string {
		t.Helper()
		as, err := Diff(t.Context(), sys, w)
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, a := range as {
			out = append(out, a.Title)
			if a.File != nil {
				sys.Files[a.File.Path] = string(a.File.Content)
			}
		}
		return strings.Join(out, "; ")
	}
	for _, want := range []string{"write " + watchdogConf, ""} { // without a timer
		if got := titles(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	sys.Files[state] = "inactive\n"
	if got := titles(); got != "start the watchdog: 60 s" {
		t.Error(got)
	}
	sys.Files[state] = "active\n"
	if got := titles(); got != "" {
		t.Error(got)
	}
	if !strings.HasSuffix(sys.Files[watchdogConf], "# why\n[Manager]\nRuntimeWatchdogSec=60\n") {
		t.Errorf("%q", sys.Files[watchdogConf])
	}
}

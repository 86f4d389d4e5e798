package judge

import (
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/internal/prove/report"
)

func TestJudgeRecovery(t *testing.T) {
	const fault = int64(100e9)
	said := func(at float64, text string) report.Event {
		return report.Event{NS: fault + int64(at*1e9), Host: "oss02", Source: "kernel", Text: text}
	}
	const all = "Lustre: small-OST0000: Recovery over after 0:01, of 2 clients 2 recovered and 0 were evicted."
	const timer = "LustreError: 0:0:(ldlm_lockd.c:252:expired_lock_main()) ### lock callback timer expired after 100s: evicting client at 10.20.1.1@tcp"
	const uuid = "5e5a5b3a-8f6d-4e0a-9d0c-0b1f2a3c4d5e"
	const unheard = "Lustre: small-MDT0000: haven't heard from client " + uuid + " (at 10.20.1.1@tcp) in 101 seconds. I think it's dead, and I am evicting it. exp 0000000000000000, cur 1 expire 1 last 1"
	for name, c := range map[string]struct {
		events []report.Event
		ok     bool
		about  string // a value in the check; "": there is none, or no check
		dead   string
	}{
		"no target":   {nil, false, "", ""},
		"before":      {[]report.Event{said(-5, strings.Replace(all, "2 recovered and 0 were", "1 recovered and 1 was", 1))}, false, "", ""},
		"all":         {[]report.Event{said(41.2, all)}, true, "41.2 s", ""},
		"one too few": {[]report.Event{said(41.2, strings.Replace(all, "2 recovered and 0 were", "1 recovered and 1 was", 1))}, false, "small-OST0000", ""},
		"a lock": {[]report.Event{said(41.2, all), said(50, "LustreError: 0:0:(ldlm_lockd.c:252:expired_lock_main()) ### lock callback timer expired after 100s: evicting client at 10.20.1.1@tcp")},
			false, "50.0 s", ""},
		"the dead one, for a lock": {[]report.Event{said(100, timer)}, true, "oss02", "10.20.1.1"},
		"the dead one, unheard":    {[]report.Event{said(100, unheard)}, true, "oss02", "10.20.1.1"},
		"a live one, unheard":      {[]report.Event{said(100, unheard)}, false, "oss02", "10.20.1.11"},
		"a live one, for a lock":   {[]report.Event{said(100, unheard), said(101, strings.Replace(timer, "10.20.1.1@", "10.20.1.12@", 1))}, false, "10.20.1.12@tcp", "10.20.1.1"},
		// The connection of a server that died.
		"a server, unheard": {[]report.Event{said(100, strings.Replace(unheard, uuid, "small-MDT0000-lwp-OST0001_UUID", 1))}, false, "", ""},
	} {
		var checks checks
		(&Evidence{Events: c.events, Fault: fault, DeadAddress: c.dead}).recovery(&checks)
		if c.about == "" && len(checks) == 0 {
			continue
		}
		if len(checks) != 1 || checks[0].OK != c.ok || !strings.Contains(checks[0].Detail, c.about) {
			t.Errorf("%s: %+v", name, checks)
		}
	}
}

package drill

import (
	"fmt"
	"regexp"
	"strings"
	"sync"

	"github.com/mortarhpc/mortar/internal/prove/report"
)

// recoveryOver matches the kernel's message at the end of a Lustre target's recovery. It counts the clients that reconnected in time and those that did not.
//
// Source: Lustre 2.17.57; lustre-release, ldlm/ldlm_lib.c, target_finish_recovery
var recoveryOver = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^Lustre: (\S+): Recovery over after \S+ of (\d+) clients (\d+) recovered and (\d+) w(?:as|ere) evicted`)
})

// evicted matches the message of a server's kernel that evicts a client outside of a recovery.
var evicted = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^LustreError: .*\bevicting client (?:from|at) `)
})

// judgeRecovery checks that every client of a target reconnected after the fault. No client dies in a drill, so
// a server must not evict any: an evicted client loses its unwritten data. Without a recovering target there is
// no check.
func judgeRecovery(events []report.Event, fault int64) (checks []report.Check) {
	var over, lost []string
	for _, e := range events {
		if e.NS < fault || e.Source != "kernel" {
			continue
		}
		at := report.Seconds(float64(e.NS-fault) / 1e9)
		if evicted().MatchString(e.Text) {
			lost = append(lost, fmt.Sprintf("%s at %s: %s", e.Host, at, e.Text))
		}
		m := recoveryOver().FindStringSubmatch(e.Text)
		if m == nil {
			continue
		}
		over = append(over, fmt.Sprintf("%s %s after the fault: %s of %s", m[1], at, m[3], m[2]))
		if m[4] != "0" {
			lost = append(lost, fmt.Sprintf("%s evicted %s of %s clients", m[1], m[4], m[2]))
		}
	}
	switch {
	case len(lost) > 0:
		return []report.Check{{Name: "no client evicted", Detail: strings.Join(lost, "; ")}}
	case len(over) > 0:
		return []report.Check{{Name: "no client evicted", OK: true, Detail: "clients came back to " + strings.Join(over, ", ")}}
	}
	return nil
}

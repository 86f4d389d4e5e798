package drill

import (
	"fmt"
	"regexp"
	"strings"
	"sync"

	"github.com/mortarhpc/mortar/internal/prove/report"
)

// recoveryOver is what the kernel says of a target of Lustre whose clients came back, or did not in time.
//
// Source: Lustre 2.17.57; lustre-release, ldlm/ldlm_lib.c, target_finish_recovery
var recoveryOver = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^Lustre: (\S+): Recovery over after \S+ of (\d+) clients (\d+) recovered and (\d+) w(?:as|ere) evicted`)
})

// evicted is what the kernel of a server says when it evicts a client outside of a recovery.
var evicted = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^LustreError: .*\bevicting client (?:from|at) `)
})

// judgeRecovery says whether every client of a target came back after the fault. No client died in a drill, so
// none may be evicted: what it had not written yet is lost. There is nothing to say without such a target.
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

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

// evicted matches the messages of a server's kernel that evicts a client outside of a
// recovery: it does not give a lock back, or has not been heard of. Connections of servers
// have names in place of a UUID.
//
// Source: lustre-release, ldlm/ldlm_lockd.c and ptlrpc/pinger.c, ping_evictor_main
var evicted = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^LustreError: .*\bevicting client (?:from|at) |^Lustre: \S+-(?:MDT|OST)[0-9a-f]{4}: haven't heard from client [0-9a-f-]+ \(at `)
})

// evicts reports whether a message says that a server evicts the client with an address.
func evicts(text, address string) bool {
	return address != "" && evicted().MatchString(text) && strings.Contains(text, " "+address+"@")
}

// judgeRecovery checks that every client of a target reconnected after the fault, and that
// no server evicted a client that lives: an evicted client loses its unwritten data. dead is
// the address of the client that died; "": none did. Without a recovering target and an
// eviction there is no check.
func judgeRecovery(events []report.Event, fault int64, dead string) (checks []report.Check) {
	var over, lost, rightly []string
	for _, e := range events {
		if e.NS < fault || e.Source != "kernel" {
			continue
		}
		at := report.Seconds(float64(e.NS-fault) / 1e9)
		switch {
		case evicts(e.Text, dead):
			rightly = append(rightly, fmt.Sprintf("%s after %s", e.Host, at))
		case evicted().MatchString(e.Text):
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
	case len(rightly) > 0:
		return []report.Check{{Name: "no client evicted", OK: true, Detail: "but the dead one: " + strings.Join(rightly, ", ")}}
	case len(over) > 0:
		return []report.Check{{Name: "no client evicted", OK: true, Detail: "clients came back to " + strings.Join(over, ", ")}}
	}
	return nil
}

package judge

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mortarhpc/mortar/internal/prove/report"
	"github.com/mortarhpc/mortar/internal/prove/workload"
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

// evictsDead reports whether a message says that a server evicts the client that died.
func (e *Evidence) evictsDead(text string) bool {
	return e.DeadAddress != "" && evicted().MatchString(text) && strings.Contains(text, " "+e.DeadAddress+"@")
}

// recovery checks that every client of a target reconnected after the fault, and that
// no server evicted a client that lives: an evicted client loses its unwritten data. Without a
// recovering target and an eviction there is no check.
func (e *Evidence) recovery(c *checks) {
	const name = "no client evicted"
	var over, lost, rightly []string
	for _, ev := range e.Events {
		if ev.NS < e.Fault || ev.Source != "kernel" {
			continue
		}
		at := report.Seconds(float64(ev.NS-e.Fault) / 1e9)
		switch {
		case e.evictsDead(ev.Text):
			rightly = append(rightly, fmt.Sprintf("%s after %s", ev.Host, at))
		case evicted().MatchString(ev.Text):
			lost = append(lost, fmt.Sprintf("%s at %s: %s", ev.Host, at, ev.Text))
		}
		if m := recoveryOver().FindStringSubmatch(ev.Text); m != nil {
			over = append(over, fmt.Sprintf("%s %s after the fault: %s of %s", m[1], at, m[3], m[2]))
			if m[4] != "0" {
				lost = append(lost, fmt.Sprintf("%s evicted %s of %s clients", m[1], m[4], m[2]))
			}
		}
	}
	switch {
	case len(lost) > 0:
		c.add(false, name, "%s", strings.Join(lost, "; "))
	case len(rightly) > 0:
		c.add(true, name, "but the dead one: %s", strings.Join(rightly, ", "))
	case len(over) > 0:
		c.add(true, name, "clients came back to %s", strings.Join(over, ", "))
	}
}

// mmp checks that multiple mount protection never found a Lustre target in use on two
// servers. A server that wakes up after its partner has taken over must find that, and stop.
// Without a target that was mounted anew there is no check.
func (e *Evidence) mmp(c *checks) {
	const name = "MMP found no second server"
	found, twice := First(e.Events, report.EventMMP, e.Fault, nil)
	mounted := slices.ContainsFunc(e.Events, func(ev report.Event) bool {
		return ev.NS >= e.Fault && ev.Source == "kernel" && recoveryOver().MatchString(ev.Text)
	})
	switch wakes := e.Subjects[0].Expect.Wakes; {
	case twice && wakes:
	case twice:
		c.add(false, name, "%s, %s after the fault: %s", found.Host, report.Seconds(float64(found.NS-e.Fault)/1e9), found.Text)
	case mounted:
		c.add(true, name, "no server's kernel found a target in use on another one")
	}
}

// lockTake is the kind of a worker that takes the lock of a dead client.
const lockTake = "lock-" + string(workload.Take)

// logLag is how much later than the event its line may be in the journal, whose clock counts
// for the kernel's lines.
const logLag = int64(3 * time.Second)

// taken checks that each lock of the dead client went to another one, after the client
// had died, and after the server of the locks had evicted it.
func (e *Evidence) taken(c *checks) {
	const name = "lock of the dead client"
	before := len(*c)
	eviction, known := First(e.Events, report.EventFS, e.Fault, func(ev report.Event) bool {
		return ev.Source == "kernel" && strings.Contains(ev.Text, "MDT") && e.evictsDead(ev.Text)
	})
	for _, l := range e.Loads {
		for _, w := range l.Result.Workers {
			if w.Kind != lockTake {
				continue
			}
			who := w.Worker + " on " + l.Client
			i := slices.IndexFunc(w.Completions, func(c workload.Completion) bool { return c.Op == workload.OpTook })
			if i < 0 {
				c.add(false, name, "%s never got it", who)
				continue
			}
			at := w.Completions[i].DoneNs - l.Offset
			after := report.Seconds(float64(at-e.Fault) / 1e9)
			switch {
			case at < e.Fault:
				c.add(false, name, "%s got it while %s still held it", who, e.Dead)
			case e.Evicts && !known:
				c.add(false, name, "%s got it after %s, but no MDS evicted %s", who, after, e.Dead)
			case e.Evicts && at+logLag < eviction.NS:
				c.add(false, name, "%s got it after %s, before the MDS evicted %s after %s", who, after, e.Dead, report.Seconds(float64(eviction.NS-e.Fault)/1e9))
			default:
				c.add(true, name, "%s got it %s after the death of %s", who, after, e.Dead)
			}
		}
	}
	if len(*c) == before {
		c.add(false, name, "no other client tried to get it")
	}
}

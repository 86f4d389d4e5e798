package lustre

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/mortarhpc/mortar/internal/serve/kernel"
)

// silentAfter is how many pings in a row a server does not answer until the MGS
// forgets it. On a rack that took 19 s: a ping of a host without power takes longer than pingWait.
const silentAfter = 3

// pingEvery is the least time from one round of pings to the next.
const pingEvery = 2 * time.Second

// pingWait is how long one ping waits for an answer.
const pingWait = time.Second

// silentServers finds servers of a Lustre file system that crashed, and has the MGS
// evict them.
//
// A crashed server holds locks on the configuration. The MGS waits for them, up
// to 160 s (2.17.57): until then clients do not hear where its targets are now
// (imperative recovery), and lctl set_param -P hangs. An evicted server that
// was merely cut off connects to the MGS again. No target evicts anybody here.
type silentServers struct {
	missed map[string]int // by NID: pings in a row without an answer
}

// round pings each server once, all side by side. lctl ping is no use here: it failed with EIO for
// one of three servers that were well (2.17.57), lnetctl ping for none.
func (s *silentServers) round(ctx context.Context, k kernel.Host, nids []string, log func(string, ...any)) {
	if s.missed == nil {
		s.missed = map[string]int{}
	}
	answers := make([]bool, len(nids))
	var all sync.WaitGroup
	for i, nid := range nids {
		all.Go(func() {
			soon, cancel := context.WithTimeout(ctx, 5*pingWait)
			defer cancel()
			_, err := k.Run(soon, kernel.Command{Argv: []string{"lnetctl", "ping", "--timeout", strconv.Itoa(int(pingWait.Seconds())), nid}})
			answers[i] = err == nil
		})
	}
	all.Wait()
	for i, nid := range nids {
		if ctx.Err() != nil {
			return
		}
		if answers[i] {
			s.missed[nid] = 0
			continue
		}
		if s.missed[nid]++; s.missed[nid] != silentAfter {
			continue
		}
		log("%s does not answer: the MGS evicts it, so that clients hear where its targets are", nid)
		soon, cancel := context.WithTimeout(ctx, 5*pingWait)
		if _, err := k.Run(soon, kernel.Command{Argv: []string{"lctl", "set_param", "mgs.MGS.evict_client=nid:" + nid}}); err != nil {
			log("%v", err)
		}
		cancel()
	}
}

// hasMGS tells whether the MGS is one of the targets.
func (l *LustreService) hasMGS() bool {
	return slices.ContainsFunc(l.Targets, func(t Target) bool { return t.Kind == "mgs" })
}

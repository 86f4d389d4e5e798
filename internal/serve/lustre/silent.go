package lustre

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/mortarhpc/mortar/internal/serve/kernel"
)

// silentAfter is how many rounds in a row a server does not answer until the MGS forgets it.
const silentAfter = 3

// pingEvery is the least time from one round of pings to the next.
const pingEvery = 2 * time.Second

// pingWait is how long LNet waits for the answer to one ping.
const pingWait = time.Second

// silentServers finds servers of a Lustre file system that crashed, and has the MGS
// evict them.
//
// A crashed server holds locks on the configuration. The MGS waits for them, up
// to 160 s (2.17.57): until then clients do not hear where its targets are now
// (imperative recovery), and lctl set_param -P hangs. An evicted server that
// was merely cut off connects to the MGS again. No target evicts anybody here.
type silentServers struct {
	answers map[string]chan error // by NID: of pings that are under way, or have ended since the last round
	missed  map[string]int        // by NID: rounds in a row without an answer
}

// round looks at the pings of the round before, and pings each server whose ping has ended, all
// side by side. It waits for none: a ping of a host without power outlasts pingWait, and no signal
// ends it, until the network's driver gives the message up, after 10 s (ksocklnd.sock_timeout) or
// more. One that is under way is missed. lctl ping is no use here: it failed with EIO for one of
// three servers that were well (2.17.57), lnetctl ping for none.
//
// Source: Lustre 2.17.57, lnet/lnet/api-ni.c, lnet_ping: wait_for_completion after LNetMDUnlink
func (s *silentServers) round(ctx context.Context, k kernel.Host, nids []string, log func(string, ...any)) {
	if s.missed == nil {
		s.answers, s.missed = map[string]chan error{}, map[string]int{}
	}
	for _, nid := range nids {
		if ctx.Err() != nil {
			return
		}
		missed := s.answers[nid] != nil
		select {
		case err := <-s.answers[nid]:
			if delete(s.answers, nid); err == nil {
				s.missed[nid], missed = 0, false
			}
		default:
		}
		if missed {
			s.missed[nid]++
		}
		if missed && s.missed[nid] == silentAfter {
			log("%s does not answer: the MGS evicts it, so that clients hear where its targets are", nid)
			soon, cancel := context.WithTimeout(ctx, 5*pingWait)
			if _, err := k.Run(soon, kernel.Command{Argv: []string{"lctl", "set_param", "mgs.MGS.evict_client=nid:" + nid}}); err != nil {
				log("%v", err)
			}
			cancel()
		}
		if s.answers[nid] == nil {
			answer := make(chan error, 1)
			s.answers[nid] = answer
			go func() {
				_, err := k.Run(ctx, kernel.Command{Argv: []string{"lnetctl", "ping", "--timeout", strconv.Itoa(int(pingWait.Seconds())), nid}})
				answer <- err
			}()
		}
	}
}

// hasMGS tells whether the MGS is one of the targets.
func (l *LustreService) hasMGS() bool {
	return slices.ContainsFunc(l.Targets, func(t Target) bool { return t.Kind == "mgs" })
}

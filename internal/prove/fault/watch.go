package fault

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"path"
	"slices"
	"sync"
	"time"

	"github.com/mortarhpc/mortar/internal/base/journal"
	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/host/agent"
	"github.com/mortarhpc/mortar/internal/prove/judge"
	"github.com/mortarhpc/mortar/internal/prove/report"
	"github.com/mortarhpc/mortar/internal/prove/testbed"
)

// watcher collects events and the servers' mounts during a drill.
type watcher struct {
	say     func(string)
	excused *host.Excused

	mu     sync.Mutex
	fault  int64 // administrator's clock; 0: not yet
	events []report.Event
	known  map[string]bool
	seen   map[string]bool                    // kinds shown on the terminal, by host
	looks  map[string]map[string][]judge.Look // by mount point and host
	jumps  map[string][]clockJump             // of a clock, by host
	base   map[string]int64                   // how far a clock is ahead without jumps, ns, by host
	boots  map[string]string                  // the boot that was seen last, by host
	Wake   chan struct{}                      // signals a new event
}

func NewWatcher(say func(string), excused *host.Excused) *watcher {
	return &watcher{say: say, excused: excused, known: map[string]bool{}, seen: map[string]bool{}, looks: map[string]map[string][]judge.Look{}, jumps: map[string][]clockJump{}, base: map[string]int64{}, boots: map[string]string{}, Wake: make(chan struct{}, 1)}
}

// shownEvents has the kinds of events that the terminal shows, once for each host, and
// their texts.
var shownEvents = map[string]string{
	report.EventDetected: "fault detected", report.EventFencing: "fencing begins", report.EventFenced: "fenced", report.EventFenceFail: "FENCING FAILED",
	report.EventStarting: "service starting", report.EventStarted: "service started", report.EventStartFail: "START FAILED", report.EventStopped: "service stopped",
}

func (w *watcher) Add(e report.Event) {
	w.mu.Lock()
	// After a lost session the journal is read again, with the same events.
	key := fmt.Sprintf("%s %d %s", e.Host, e.NS/int64(time.Millisecond), e.Text)
	if w.known[key] {
		w.mu.Unlock()
		return
	}
	w.known[key] = true
	w.events = append(w.events, e)
	fault := w.fault
	word := shownEvents[e.Kind]
	first := !w.seen[e.Kind]
	if fault != 0 && e.NS >= fault {
		w.seen[e.Kind] = true
	}
	w.mu.Unlock()
	if word != "" && first && fault != 0 && e.NS >= fault {
		w.say(fmt.Sprintf("%+.2f s  %s: %s", float64(e.NS-fault)/1e9, e.Host, word))
	}
	w.WakeUp()
}

// WakeUp has who waits for an event look again.
func (w *watcher) WakeUp() {
	select {
	case w.Wake <- struct{}{}:
	default:
	}
}

func (w *watcher) SetFault(ns int64) {
	w.mu.Lock()
	w.fault = ns
	w.mu.Unlock()
}

func (w *watcher) FaultNS() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.fault
}

// clockJump is a time in which a fault has a host's clock so much ahead, ns.
type clockJump struct{ ahead, from, to int64 }

// shift notes that a fault sets a host's clock so much ahead from now on.
func (w *watcher) shift(host string, ahead time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now().UnixNano()
	all := w.jumps[host]
	if n := len(all); n > 0 && all[n-1].to > now {
		all[n-1].to = now
	}
	if ahead != 0 {
		all = append(all, clockJump{ahead.Nanoseconds(), now, math.MaxInt64})
	}
	w.jumps[host] = all
}

// moved is how far ahead a fault has set a host's clock.
func (w *watcher) moved(host string) int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	if all := w.jumps[host]; len(all) > 0 && all[len(all)-1].to == math.MaxInt64 {
		return all[len(all)-1].ahead
	}
	return 0
}

// based is how far a host's clock is ahead of ours without what faults do to it, ns.
func (w *watcher) based(host string) int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.base[host]
}

// when is the moment of an event by its host's clock, which faults may have moved before or
// after it. ns is corrected by what the clock is ahead without them.
func (w *watcher) when(host string, ns int64) int64 {
	const slack = int64(5 * time.Second)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, j := range w.jumps[host] {
		if t := ns - j.ahead; t >= j.from-slack && t <= min(j.to, time.Now().UnixNano())+slack {
			return t
		}
	}
	return ns
}

// First returns the earliest event of a kind at or after a time that match
// accepts.
func (w *watcher) First(kind string, afterNS int64, match func(report.Event) bool) (report.Event, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return judge.First(w.events, kind, afterNS, match)
}

// Snapshot returns the events so far in order of time, and the looks.
func (w *watcher) Snapshot() ([]report.Event, map[string]map[string][]judge.Look) {
	w.mu.Lock()
	defer w.mu.Unlock()
	ev := slices.Clone(w.events)
	for i := range ev {
		ev[i].Seconds = float64(ev[i].NS-w.fault) / 1e9
	}
	slices.SortStableFunc(ev, func(a, b report.Event) int { return cmp.Compare(a.NS, b.NS) })
	looks := map[string]map[string][]judge.Look{}
	for at, hosts := range w.looks {
		looks[at] = map[string][]judge.Look{}
		for h, l := range hosts {
			looks[at][h] = slices.Clone(l)
		}
	}
	return ev, looks
}

// Unseen are the servers at which no look has ended since a time.
func (w *watcher) Unseen(servers []string, since int64) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(servers), func(s string) bool {
		for _, byHost := range w.looks {
			if n := len(byHost[s]); n > 0 && byHost[s][n-1].Done > since {
				return true
			}
		}
		return false
	})
}

// lookInterval is the time between two looks at a server's mounts. A look costs
// an emulated server about 10 ms of CPU time.
const lookInterval = time.Second

// DialTime bounds one attempt to reconnect to a server: an attempt that began
// while the server was off must not outlast its boot.
const DialTime = 12 * time.Second

// Follow watches one server until ctx ends. After a lost session, as with a
// fenced server, it reconnects as soon as possible and reads the journal from the
// boot, so that it misses no event.
func (b *Site) Follow(ctx context.Context, name, service string, volumes [][]string) {
	for again := false; ; again = true {
		b.Watch.server(ctx, b.Hosts.Session(name), name, service, volumes, b.Hosts.Clock(name).Offset, again)
		for {
			if ctx.Err() != nil {
				return
			}
			dctx, cancel := context.WithTimeout(ctx, DialTime)
			_, err := b.Hosts.Connect(dctx, b.Env.Dial, name)
			cancel()
			if err == nil {
				break
			}
			if b.Sleep(ctx, time.Second) != nil {
				return
			}
		}
	}
}

// boot notes it if a server has booted since it was seen last.
func (w *watcher) boot(ctx context.Context, h *host.Session, name string) error {
	id, err := h.Read(ctx, "/proc/sys/kernel/random/boot_id")
	if err != nil {
		return err
	}
	text, err := h.Read(ctx, "/proc/uptime")
	if err != nil {
		return err
	}
	up, ok := linux.Uptime(text)
	if !ok {
		return fmt.Errorf("/proc/uptime says %q", text)
	}
	w.mu.Lock()
	last := w.boots[name]
	w.boots[name] = id
	if last != "" && last != id {
		delete(w.jumps, name) // its clock is that of its hardware now
	}
	w.mu.Unlock()
	if last != "" && last != id {
		w.Add(report.Event{NS: time.Now().Add(-up).UnixNano(), Host: name, Source: "drill", Kind: report.EventBooted, Text: name + " boots"})
	}
	return nil
}

// server watches one server until ctx ends or the session is lost. With again it
// reads the journal from the server's boot, otherwise from now. A log that can no longer
// be followed is read once more from its begin: no event may be missed.
func (w *watcher) server(ctx context.Context, h *host.Session, name, service string, volumes [][]string, offset int64, again bool) {
	ctx, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop() // the followers end with the looks
	if err := w.boot(ctx, h, name); err != nil {
		return
	}
	offset -= w.moved(name) // measured with the clock as it is
	w.mu.Lock()
	w.base[name] = offset
	w.mu.Unlock()
	// now is how many old lines are read at first, all how many later.
	follow := func(now, all string, argv func(n string) []string, read func(line []byte, host string) (report.Event, bool)) {
		wg.Go(func() {
			if again {
				now = all
			}
			for ; ; now = all {
				err := h.Follow(ctx, func(line string) {
					if e, ok := read([]byte(line), name); ok {
						e.NS = w.when(name, e.NS-offset)
						w.Add(e)
					}
				}, argv(now)...)
				if ctx.Err() != nil {
					return
				}
				// Normal for the broken server, worth a note for the other one.
				w.Add(report.Event{NS: time.Now().UnixNano(), Host: name, Source: "drill", Kind: report.EventNote, Text: fmt.Sprintf("no longer watched (%s): %v", argv(now)[0], err)})
				select {
				case <-time.After(lookInterval): // a lost session ends the looks as well
				case <-ctx.Done():
					return
				}
			}
		})
	}
	// The programs that log a failover, and the resource agent.
	follow("0", "2000", func(n string) []string { return journal.Argv(journal.DrillIdents, "-b", "-f", "-n", n) }, judge.JournalEvent)
	follow("0", "+1", func(n string) []string {
		return []string{"tail", "-n", n, "-F", path.Join("/run/mortar", "ocf-"+service+".log")}
	}, judge.AgentEvent)
	t := time.NewTicker(lookInterval)
	defer t.Stop()
	for {
		asked := time.Now().UnixNano()
		ms, err := testbed.Mounts(ctx, h)
		var silent *agent.SilentError
		switch {
		case err == nil:
		case errors.As(err, &silent) && w.excused.Has(name):
			continue // it is frozen, and is followed still
		default:
			return
		}
		w.mu.Lock()
		for _, all := range volumes {
			// A service moves as a whole, so any of its volumes counts.
			ok := slices.ContainsFunc(all, func(at string) bool { _, ok := linux.MountAt(ms, at); return ok })
			at := all[0]
			if w.looks[at] == nil {
				w.looks[at] = map[string][]judge.Look{}
			}
			w.looks[at][name] = append(w.looks[at][name], judge.Look{NS: asked, Done: time.Now().UnixNano(), Mounted: ok})
		}
		w.mu.Unlock()
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
	}
}

package drill

import (
	"context"
	"fmt"
	"path"
	"slices"
	"sync"
	"time"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/prove/report"
	"github.com/mortarhpc/mortar/internal/prove/testbed"
)

// watcher collects events and looks at mounts while a drill runs.
type watcher struct {
	say func(string)

	mu     sync.Mutex
	fault  int64 // administrator's clock; 0: not yet
	events []report.Event
	known  map[string]bool
	seen   map[string]bool              // kinds told on the terminal, by host
	looks  map[string]map[string][]look // by mount point and host
	wake   chan struct{}                // something came
}

func newWatcher(say func(string)) *watcher {
	return &watcher{say: say, known: map[string]bool{}, seen: map[string]bool{}, looks: map[string]map[string][]look{}, wake: make(chan struct{}, 1)}
}

// told kinds of events are shown on the terminal as they come, once each.
var told = map[string]string{
	report.EventDetected: "fault detected", report.EventFencing: "fencing begins", report.EventFenced: "fenced", report.EventFenceFail: "FENCING FAILED",
	report.EventStarting: "service starting", report.EventStarted: "service started", report.EventStartFail: "START FAILED", report.EventStopped: "service stopped",
}

func (w *watcher) add(e report.Event) {
	w.mu.Lock()
	// A journal that is read again after a session was lost says what it said.
	key := fmt.Sprintf("%s %d %s", e.Host, e.NS/int64(time.Millisecond), e.Text)
	if w.known[key] {
		w.mu.Unlock()
		return
	}
	w.known[key] = true
	w.events = append(w.events, e)
	fault := w.fault
	word := told[e.Kind]
	first := !w.seen[e.Kind]
	if fault != 0 && e.NS >= fault {
		w.seen[e.Kind] = true
	}
	w.mu.Unlock()
	if word != "" && first && fault != 0 && e.NS >= fault {
		w.say(fmt.Sprintf("%+.2f s  %s: %s", float64(e.NS-fault)/1e9, e.Host, word))
	}
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *watcher) setFault(ns int64) {
	w.mu.Lock()
	w.fault = ns
	w.mu.Unlock()
}

func (w *watcher) faultNS() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.fault
}

// first gives the earliest event of a kind at or after a time, on one of the
// hosts (none: any).
func (w *watcher) first(kind string, afterNS int64, match func(report.Event) bool) (report.Event, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return firstEvent(w.events, kind, afterNS, match)
}

func firstEvent(events []report.Event, kind string, afterNS int64, match func(report.Event) bool) (found report.Event, ok bool) {
	for _, e := range events {
		if e.Kind == kind && e.NS >= afterNS && (match == nil || match(e)) && (!ok || e.NS < found.NS) {
			found, ok = e, true
		}
	}
	return found, ok
}

// snapshot of everything seen so far, events in order of time.
func (w *watcher) snapshot() ([]report.Event, map[string]map[string][]look) {
	w.mu.Lock()
	defer w.mu.Unlock()
	ev := slices.Clone(w.events)
	for i := range ev {
		ev[i].Seconds = float64(ev[i].NS-w.fault) / 1e9
	}
	slices.SortStableFunc(ev, func(a, b report.Event) int {
		switch {
		case a.NS < b.NS:
			return -1
		case a.NS > b.NS:
			return 1
		}
		return 0
	})
	looks := map[string]map[string][]look{}
	for at, hosts := range w.looks {
		looks[at] = map[string][]look{}
		for h, l := range hosts {
			looks[at][h] = slices.Clone(l)
		}
	}
	return ev, looks
}

// lookInterval between two looks at a server's mounts. A look costs an
// emulated server about 10 ms of its processor.
const lookInterval = time.Second

// dialTime bounds one try to reach a server that was lost: a try that began
// while it was off must not outlast its boot.
const dialTime = 12 * time.Second

// follow watches one server until ctx ends. A session that is lost, as that
// of a server that is fenced, is made anew as soon as it can be: a server
// that comes back is watched again, and nothing that it logged since its boot
// is missed.
func (e *engine) follow(ctx context.Context, name string) {
	volumes := []string{e.service.MountPoints()[0]}
	for _, o := range e.others {
		volumes = append(volumes, o.service.MountPoints()[0])
	}
	for again := false; ; again = true {
		e.watch.server(ctx, e.hosts.Session(name), name, e.service.Name, volumes, e.hosts.Clock(name).Offset, again)
		for {
			if ctx.Err() != nil {
				return
			}
			dctx, cancel := context.WithTimeout(ctx, dialTime)
			_, err := e.hosts.Connect(dctx, e.env.Dial, name)
			cancel()
			if err == nil {
				break
			}
			if e.sleep(ctx, time.Second) != nil {
				return
			}
		}
	}
}

// server watches one server until ctx ends or its session is lost; again: from
// its boot, not from now.
func (w *watcher) server(ctx context.Context, h *host.Session, name, service string, volumes []string, offset int64, again bool) {
	ctx, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop() // what follows ends with the looks
	follow := func(argv []string, line func(string)) {
		wg.Go(func() {
			err := h.Follow(ctx, line, argv...)
			if ctx.Err() == nil {
				// Expected of the server that is broken, worth knowing of the other.
				w.add(report.Event{NS: time.Now().UnixNano(), Host: name, Source: "drill", Kind: report.EventNote, Text: fmt.Sprintf("no longer watched (%s): %v", argv[0], err)})
			}
		})
	}
	follow(journalArgv(again), func(line string) {
		if e, ok := journalEvent([]byte(line), name); ok {
			e.NS -= offset
			w.add(e)
		}
	})
	lines := "0"
	if again {
		lines = "+1"
	}
	follow([]string{"tail", "-n", lines, "-F", path.Join("/run/mortar", "ocf-"+service+".log")}, func(line string) {
		if e, ok := ocfEvent([]byte(line), name); ok {
			e.NS -= offset
			w.add(e)
		}
	})
	t := time.NewTicker(lookInterval)
	defer t.Stop()
	for {
		asked := time.Now().UnixNano()
		ms, err := testbed.Mounts(ctx, h)
		if err != nil {
			return
		}
		w.mu.Lock()
		for _, at := range volumes {
			_, ok := linux.MountAt(ms, at)
			if w.looks[at] == nil {
				w.looks[at] = map[string][]look{}
			}
			w.looks[at][name] = append(w.looks[at][name], look{asked, time.Now().UnixNano(), ok})
		}
		w.mu.Unlock()
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
	}
}

package ocf

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/mortarhpc/mortar/internal/serve/kernel"
	"github.com/mortarhpc/mortar/internal/serve/unit"
)

// The watcher sees at once what a monitor of Pacemaker would see seconds
// later: it waits for the kernel's own messages about links, disks and md arrays. It
// runs on both servers, as the clone ocf:mortar:watch, and decides nothing
// but what only this server can know:
//
//   - whether the public network has a link here (node attribute mortar-link)
//     and whether the arrays of a service can be reached from here
//     (mortar-storage-SERVICE). Pacemaker moves a service to a server that has
//     both, by rules in its configuration; where neither has, it stays.
//   - a server that serves arrays it has lost the paths to gives up the service
//     address before I/O fails, so that no error of a lost disk reaches a client (of
//     md arrays at once; I/O to LUNs waits, for as long as the design says), and
//     asks to be fenced (node attribute terminate) if its partner can reach
//     them: its I/O hangs, so it could not stop. If the paths come back first
//     it takes that back. A fencing that the cluster has begun by then is not
//     ended by that: no device can be told to. The server is reset, and the
//     service starts on the partner after it, as ever.
//   - a server without a link to any of the cluster's networks does not fence:
//     it has no way to tell whether its partner is well, and could serve
//     no client. Without that a passive server whose network card dies, but not
//     its way to the BMCs, would fence the active one.
//
// What the watcher does for a service besides is a table, see reflex.go and docs/ocf.md.

// Names of node attributes.
const (
	attrLink    = "mortar-link"
	attrStorage = "mortar-storage-" // and the service
	// attrFence makes Pacemaker fence the node that has it.
	// Source: Pacemaker's scheduler, PCMK_NODE_ATTR_TERMINATE.
	attrFence = "terminate"
)

// wishFile is there while this server may have asked to be fenced: another
// watcher takes the wish back if the one that expressed it is gone. Like the
// attribute it does not outlive a boot.
const wishFile = unit.RunDir + "/watch-terminate"

// The watcher tells the cluster of a change after it has seen the change for this long.
// What comes back must stay for longer than what goes, or a loose plug would move a
// service back and forth.
const (
	lostAfter = 500 * time.Millisecond // a link
	// An HBA may be reset; but multipath fails I/O of a disk without paths
	// after 3 s, and by then no client may be listening.
	storageLostAfter = 1500 * time.Millisecond
	foundAfter       = 10 * time.Second
	// A server that had lost all of its networks fences no other for this long after.
	fencesAfter = 15 * time.Second
	// Where I/O waits (queues), a server that serves lets so long pass before it
	// tells of a loss: an array that is off is lost to both servers, and the other
	// one must have told so before this one asks whether it can do better.
	queueLostAfter = 3 * time.Second
	// Clients must be off before their I/O fails.
	silenceBefore = 15 * time.Second
)

// Pacemaker holds a change back until this long after the last one. When a switch boots,
// both servers lose their links, and get them back, moments apart: Pacemaker then acts on
// both changes at once. If it acted on the first one, it would move a service for nothing.
// It acts on a loss of storage without delay.
//
// Whole seconds: Pacemaker's daemons tell each other no fraction.
// Source: attrd_updater(8), --delay; Pacemaker, daemons/attrd/attrd_attributes.c
const (
	lostTogether  = 1 * time.Second // a link
	foundTogether = 5 * time.Second
)

// patience is how long a change of an attribute to ok must be seen, and for how long
// Pacemaker then waits for the partner's.
func patience(attribute string, ok bool) (seen, together time.Duration) {
	switch {
	case ok:
		return foundAfter, foundTogether
	case attribute == attrLink:
		return lostAfter, lostTogether
	}
	return storageLostAfter, 0
}

const (
	// While clients reclaim their locks all others wait. An NFSv4 client that was refused
	// asks again after 6, 13 and 25 s in all: half a second can cost twelve.
	// Source: nfs4_delay() of the kernel.
	graceTick   = 500 * time.Millisecond
	watchSettle = 100 * time.Millisecond
	// Pacemaker forgets a node's attributes when its daemon for them is
	// restarted: they are told again.
	tellAgain = time.Minute
)

// observation is what the watcher sees at one moment, by name of an attribute: true is
// well.
type observation map[string]bool

// attribute is the value of one, and since when something else is seen.
type attribute struct {
	known   bool
	value   bool
	since   time.Time     // that the opposite is seen; zero: it is not
	wait    time.Duration // how long the opposite must be seen
	told    time.Time     // that the cluster has been told the value
	unheard bool          // telling failed
}

// attributes are the node attributes of a server, by name. A value changes only when
// observations have differed from it for long enough.
type attributes map[string]*attribute

// update takes an observation in and returns the attributes that the cluster must be
// told, sorted by name.
func (a attributes) update(now time.Time, seen observation) []string {
	var tell []string
	for name, ok := range seen {
		l := a[name]
		if l == nil {
			l = &attribute{}
			a[name] = l
		}
		switch {
		case !l.known:
			l.known, l.value, l.unheard = true, ok, true
		case ok == l.value:
			l.since = time.Time{}
		case l.since.IsZero():
			l.since = now
		}
		if !l.since.IsZero() {
			l.wait, _ = patience(name, ok)
			if now.Sub(l.since) >= l.wait {
				l.value, l.since, l.unheard = ok, time.Time{}, true
			}
		}
		if l.unheard || now.Sub(l.told) >= tellAgain {
			tell = append(tell, name)
		}
	}
	slices.Sort(tell)
	return tell
}

// next is when a change that is pending would count.
func (a attributes) next(now time.Time) time.Duration {
	d := unit.WatchTick
	for _, l := range a {
		if !l.since.IsZero() {
			d = min(d, max(l.wait-now.Sub(l.since), 10*time.Millisecond))
		}
	}
	return d
}

type watcher struct {
	k        kernel.Host
	services []*service // of the brick, whether they run here or not
	log      func(format string, a ...any)
	// record logs a change of the host, where the log has Mortar's changes.
	record func(format string, a ...any)
	// background runs what may take longer than a look.
	background func(func())
	// lock keeps a service's actions from running, or fails if one runs.
	lock func(service string) (func(), error)

	attributes     attributes
	known          map[*service]*watched
	failed         unit.Limit // by service: reported as failed
	reclaiming     bool       // the look found clients that reclaim their locks
	alone          time.Time  // when no network had a link, last seen
	fencingBlocked *bool      // from the fence devices; nil: not known
}

type watched struct {
	gone   time.Time // since when its devices are out of reach; zero: they are not
	doomed bool      // it has asked to be fenced
	// table has what the watcher does for the service, in groups; reached is done before
	// that, and only while its devices are in reach.
	table   [][]*unit.Reflex
	reached []*unit.Reflex
}

func (w *watcher) watched(s *service) *watched {
	if w.known[s] == nil {
		unstopped := &unit.Reflex{Name: "a service that could not be stopped", Sees: unit.Always(func(context.Context) { w.unstopped(s) })}
		w.known[s] = &watched{
			table:   [][]*unit.Reflex{{w.mends(s)}, s.kind.Reflexes(serviceWatch{w, s}), s.storage.Reflexes(serviceWatch{w, s}), w.forgives(s), {unstopped}},
			reached: w.watchCache(s),
		}
	}
	return w.known[s]
}

// lost says whether the devices of a service are out of reach: what reads them would hang.
func (w *watcher) lost(s *service) bool { return !w.watched(s).gone.IsZero() }

// serviceWatch is the watcher as the kinds of a service see it.
type serviceWatch struct {
	w *watcher
	s *service
}

func (x serviceWatch) Log(format string, a ...any)          { x.w.log(format, a...) }
func (x serviceWatch) Record(format string, a ...any)       { x.w.record(format, a...) }
func (x serviceWatch) Lock() (func(), error)                { return x.w.lock(x.s.cfg.Service) }
func (x serviceWatch) Lost() bool                           { return x.w.lost(x.s) }
func (x serviceWatch) Fail(ctx context.Context, why string) { x.w.fail(ctx, x.s, why) }
func (x serviceWatch) Hurry()                               { x.w.reclaiming = true }

func (w *watcher) run(ctx context.Context, events <-chan struct{}) {
	var wg sync.WaitGroup
	defer wg.Wait()
	defer func() { w.blockFencing(context.WithoutCancel(ctx), false) }()
	w.background = wg.Go
	for _, s := range w.services {
		if _, none := s.reserve.(noReservations); !none {
			wg.Go(func() { w.guardOf(s).run(ctx) })
		}
	}
	for ctx.Err() == nil {
		w.look(ctx)
		t := time.NewTimer(w.next())
		select {
		case <-ctx.Done():
		case <-t.C:
		case <-events:
			// They come in bunches.
			if w.k.Sleep(ctx, watchSettle) == nil {
				select {
				case <-events:
				default:
				}
			}
		}
		t.Stop()
	}
}

// next is how long to wait for a message before the next look.
func (w *watcher) next() time.Duration {
	d := w.attributes.next(w.k.Now())
	if w.reclaiming {
		d = min(d, graceTick)
	}
	return d
}

func (w *watcher) look(ctx context.Context) {
	w.watchFencing(ctx) // first: the partner takes a few seconds to be missed
	seen := observation{attrLink: w.link()}
	for _, s := range w.services {
		seen[attrStorage+s.cfg.Service] = w.reaches(s)
	}
	tell := w.attributes.update(w.k.Now(), seen)
	// Lost is what is not seen now; a value that has not proved itself again
	// does not count.
	lost := func(s *service) bool {
		name := attrStorage + s.cfg.Service
		return !seen[name] && !w.attributes[name].value
	}
	doomed := false
	for _, s := range w.services {
		if lost(s) {
			if s.up() && w.k.Now().Sub(w.watched(s).gone) >= s.storage.Queues()-silenceBefore {
				s.kind.Silence(ctx, w.log)
			}
			// Before the attribute, for which Pacemaker would try a stop first.
			doomed = w.giveUp(ctx, s) || doomed
		} else {
			w.watched(s).doomed = false
			w.react(ctx, s, w.watched(s).reached)
		}
	}
	if !doomed {
		w.withdraw(ctx)
	}
	for _, name := range tell {
		l := w.attributes[name]
		if err := w.tell(ctx, name, l.value, l.unheard); err != nil {
			l.unheard = true
			continue
		}
		if l.unheard {
			w.log("%s is %s", name, number(l.value))
		}
		l.unheard, l.told = false, w.k.Now()
	}
	w.reclaiming = false
	for _, s := range w.services {
		for _, rows := range w.watched(s).table {
			w.react(ctx, s, rows)
		}
	}
}

// reaches says whether a service's devices can be reached from here.
func (w *watcher) reaches(s *service) bool {
	known := w.watched(s)
	if s.storage.Reachable() {
		known.gone = time.Time{}
		return true
	}
	if known.gone.IsZero() {
		known.gone = w.k.Now()
	}
	return s.storage.Queues() > 0 && s.up() && w.k.Now().Sub(known.gone) < queueLostAfter
}

func number(ok bool) string {
	if ok {
		return "1"
	}
	return "0"
}

// tell sets one of this server's attributes in the cluster. Only a changed value sets the
// delay too: if the delay changes, Pacemaker writes at once what it holds back. A value
// that has not changed is set again because Pacemaker may have forgotten it.
func (w *watcher) tell(ctx context.Context, name string, ok, changed bool) error {
	_, together := patience(name, ok)
	how := "--update"
	if changed {
		how = "--update-both"
	}
	return w.attrd(ctx, name, how, number(ok), "--delay", strconv.Itoa(int(together/time.Second)))
}

// attrd has Pacemaker's daemon for attributes of nodes change one of this server's.
func (w *watcher) attrd(ctx context.Context, name string, change ...string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	_, err := w.k.Run(ctx, kernel.Command{Argv: append([]string{"attrd_updater", "--name", name}, change...)})
	if err != nil {
		w.log("%s was not told to the cluster (%s): %v", name, strings.Join(change, " "), err)
	}
	return err
}

// cutOff says whether none of the cluster's networks has a link here.
func (w *watcher) cutOff() bool {
	s := w.services[0]
	rings := s.cfg.Rings[s.Node]
	return len(rings) > 0 && !slices.ContainsFunc(rings, func(a string) bool {
		own, err := netip.ParseAddr(a)
		if err != nil {
			return false
		}
		ifc, err := s.K.Interface(own)
		return err == nil && s.Carrier(ifc.Name)
	})
}

// watchFencing bars this server from fencing while it is cut off, and until the two have had
// the time to find each other again: of two that were both cut off, as when their switches
// lose power, the one that tried again first would fence the other in the middle of that
// (seen; 90 s until all was well).
func (w *watcher) watchFencing(ctx context.Context) {
	if w.cutOff() {
		w.alone = w.k.Now()
	}
	w.blockFencing(ctx, w.k.Now().Sub(w.alone) < fencesAfter)
}

// blockFencing takes away this server's way to the fence devices, or gives it back. The
// fence agents fail at once then, and Pacemaker tries again whenever anything
// changes. It has no way to be told not to fence.
// Source: ip-route(8), unreachable
func (w *watcher) blockFencing(ctx context.Context, yes bool) {
	if w.fencingBlocked != nil && *w.fencingBlocked == yes {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	done := true
	for _, a := range w.services[0].cfg.Fences {
		device, err := netip.ParseAddr(a)
		if err != nil {
			continue
		}
		route := netip.PrefixFrom(device, device.BitLen()).String()
		argv := []string{"ip", "route", "replace", "unreachable", route}
		if !yes {
			argv[2] = "del"
		}
		// At its start the watcher does not know whether one before it was killed
		// and left routes behind.
		if _, err := w.k.Run(ctx, kernel.Command{Argv: argv}); err != nil && (yes || w.fencingBlocked != nil) {
			w.log("%v", err)
			done = false
		}
	}
	if yes && done {
		w.log("no network of the cluster has a link here: this server fences no other")
	} else if !yes && done && w.fencingBlocked != nil {
		w.log("this server may fence again")
	}
	if done {
		w.fencingBlocked = &yes
	}
}

// link says whether this server's public interface has a link.
func (w *watcher) link() bool {
	ifc, err := w.services[0].Iface()
	if err != nil {
		return false
	}
	return w.services[0].Carrier(ifc.Name)
}

// giveUp asks for this server to be fenced if it serves what it cannot reach
// and the partner can, and says whether that is so.
func (w *watcher) giveUp(ctx context.Context, s *service) bool {
	if w.watched(s).doomed {
		return true
	}
	if !s.up() {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	name := attrStorage + s.cfg.Service
	out, err := w.k.Run(ctx, kernel.Command{Argv: []string{"attrd_updater", "--query", "--all", "--name", name}})
	if err != nil {
		w.log("the partner's %s is not known: %v", name, err)
		return false
	}
	partner := slices.DeleteFunc(attributeOn(out, "1"), func(n string) bool { return n == s.Node })
	if len(partner) == 0 {
		return false // no server can do better
	}
	w.log("the disks of service %s can be reached from %s: asking to be fenced", s.cfg.Service, strings.Join(partner, ", "))
	if err := w.k.Save(wishFile, nil); err != nil {
		w.log("%v", err)
	}
	w.watched(s).doomed = w.attrd(ctx, attrFence, "--update", "true") == nil
	return true
}

// withdraw takes back this server's wish to be fenced, if it has one.
func (w *watcher) withdraw(ctx context.Context) {
	if _, err := w.k.ReadFile(wishFile); err != nil {
		return
	}
	err := w.attrd(ctx, attrFence, "--delete")
	if err == nil {
		err = w.k.Remove(wishFile)
	}
	if err != nil {
		w.log("the wish to be fenced is not taken back: %v", err)
		return
	}
	w.log("the disks are back: this server no longer asks to be fenced")
}

// attributeOn lists the nodes on which an attribute has a value, from the
// answer of `attrd_updater --query --all`: lines of
// name="mortar-link" host="nfs1" value="1".
func attributeOn(out, value string) []string {
	var nodes []string
	for line := range strings.Lines(out) {
		host, val := "", ""
		for _, f := range strings.Fields(line) {
			k, v, _ := strings.Cut(f, "=")
			switch k {
			case "host":
				host = strings.Trim(v, `"`)
			case "value":
				val = strings.Trim(v, `"`)
			}
		}
		if host != "" && val == value {
			nodes = append(nodes, host)
		}
	}
	return nodes
}

// fail tells Pacemaker that the service has failed here.
func (w *watcher) fail(ctx context.Context, s *service, why string) {
	if !w.failed.Allows(s.cfg.Service, w.k.Now(), 1, 30*time.Second) {
		return
	}
	w.log("%s: reporting service %s as failed", why, s.cfg.Service)
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if _, err := w.k.Run(ctx, kernel.Command{Argv: []string{"crm_resource", "--fail", "--resource", "service-" + s.cfg.Service, "--node", s.Node}}); err != nil {
		w.log("%v", err)
	}
}

func blankWatcher(k kernel.Host, log func(string, ...any)) *watcher {
	return &watcher{
		k: k, log: log, record: log, lock: tryLock, background: func(f func()) { f() },
		attributes: attributes{}, known: map[*service]*watched{},
	}
}

// newWatcher reads the files of the services.
func newWatcher(k kernel.Host, files []string, log func(string, ...any)) (*watcher, error) {
	w := blankWatcher(k, log)
	host, err := k.Hostname()
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		cfg, err := LoadKept(f)
		if cfg == nil {
			return nil, err
		}
		if err != nil {
			log("%v; the last good one since the boot counts", err)
		}
		if _, ok := cfg.Nodes[host]; !ok {
			return nil, fmt.Errorf("%s: host %s is not in nodes", f, host)
		}
		s, err := newService(cfg, k, host)
		if err != nil {
			return nil, err
		}
		s.Log = &unit.Steps{Action: "watch", Stderr: logWriter(log), Now: time.Now}
		s.hold = func(context.Context) (*Config, func(), error) {
			release, err := w.lock(cfg.Service)
			if err != nil {
				return nil, nil, err
			}
			fresh, err := Load(f) // apply may have written it since
			if err != nil {
				release()
				return nil, nil, err
			}
			return fresh, release, nil
		}
		w.services = append(w.services, s)
	}
	if len(w.services) == 0 {
		return nil, errors.New("no service to watch")
	}
	return w, nil
}

// logWriter gives each line to a logger.
type logWriter func(string, ...any)

func (l logWriter) Write(b []byte) (int, error) {
	l("%s", strings.TrimSpace(string(b)))
	return len(b), nil
}

// pidOf reads the process ID a file holds.
func pidOf(b []byte) int {
	n, _ := strconv.Atoi(strings.TrimSpace(string(b)))
	return n
}

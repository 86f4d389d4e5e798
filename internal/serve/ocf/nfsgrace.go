package ocf

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// NLM has no message that says "I have reclaimed all my locks", so lockd waits for its whole
// grace period, and the kernel refuses new locks of every NFS version meanwhile. The watcher
// ends the period earlier when all of this is true:
//
//   - each client that sm-notify had to tell has answered;
//   - each of them has a connection to lockd, or has had the time to make one;
//   - as many locks are held as a monitor counted last before the start;
//   - their number has not changed for reclaimQuiet.
//
// If one of these never comes true the period ends when the kernel ends it.

// endGraceFile ends lockd's grace period when "Y" is written to it. Its content is "N" during
// the period. It is the one of the reader's network namespace.
//
// Source: fs/lockd/procfs.c of the kernel.
const endGraceFile = "/proc/fs/lockd/nlm_end_grace"

// reclaimQuiet is how long the number of locks must stay the same. A client reclaims its locks
// one after the other, each as soon as the one before is granted.
const reclaimQuiet = 5 * time.Second

// reclaim is what the start of a service notes for the end of lockd's grace period.
type reclaim struct {
	// Clients are those that sm-notify has to tell, as rpc.statd names them: by host name,
	// or by address where none is known.
	Clients []string `json:"clients"`
	// Locks is how many locks a monitor of the former server counted last.
	Locks int `json:"locks"`
	// Connected is when each client must have tried to connect to lockd again.
	Connected time.Time `json:"connected"`
}

// reclaiming is what the watcher sees of the reclaim during the grace period.
type reclaiming struct {
	answered  bool // sm-notify has nobody left to tell
	connected bool // each client has a connection to lockd
	locks     int
	unchanged time.Duration // since the number of locks changed last
}

// done reports whether every client has reclaimed what it held.
func (r reclaim) done(now time.Time, seen reclaiming) bool {
	return len(r.Clients) > 0 && seen.answered && seen.locks >= r.Locks && seen.unchanged >= reclaimQuiet &&
		(seen.connected || !now.Before(r.Connected))
}

// reclaimFile has the note of the last start here.
func (s *nfsKind) reclaimFile() string { return runDir + "/reclaim-" + s.cfg.Service }

// locksFile, on the volume, has the number of locks that a monitor counted last.
func (s *nfsKind) locksFile() string { return s.cfg.StateDir + "/mortar/locks" }

// noteReclaim writes the note before sm-notify tells the clients.
//
// A client's lockd that has tried to connect during the outage tries again after twice the
// time that has passed since. Source: xprt_reconnect_backoff() of the kernel.
func (s *nfsKind) noteReclaim() error {
	clients, err := s.toNotify()
	if err != nil {
		return err
	}
	r := reclaim{Clients: clients}
	b, err := s.k.ReadFile(s.locksFile())
	if err == nil {
		r.Locks, err = strconv.Atoi(strings.TrimSpace(string(b)))
	}
	if was, ok := s.alive(); ok && err == nil {
		now := s.now()
		r.Connected = now.Add(max(now.Sub(was), 0) + lockTimeout*time.Second)
	} else {
		r.Clients = nil // the service has no record: the whole period
	}
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return s.k.Save(s.reclaimFile(), text)
}

// toNotify lists the clients that sm-notify has to tell and that have not answered.
func (s *nfsKind) toNotify() ([]string, error) {
	names, err := s.k.ReadDir(s.cfg.StateDir + notifyDir + "/sm.bak")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return names, err
}

// inGrace reports whether lockd runs, and whether its grace period lasts.
func (s *nfsKind) inGrace() (served, grace bool) {
	b, err := s.in.ReadFile(endGraceFile)
	return err == nil, err == nil && strings.TrimSpace(string(b)) == "N"
}

// saveLocks writes the number of locks to the volume when it has changed. During the grace
// period the former number stays: clients have not reclaimed everything yet.
func (s *nfsKind) saveLocks() error {
	if served, grace := s.inGrace(); !served || grace {
		return nil
	}
	n, err := s.locks()
	if err != nil {
		return err
	}
	text := strconv.Itoa(n) + "\n"
	if was, err := s.k.ReadFile(s.locksFile()); err == nil && string(was) == text {
		return nil
	}
	return s.k.Save(s.locksFile(), []byte(text))
}

// locks counts the locks that clients hold on the volume.
func (s *nfsKind) locks() (int, error) {
	_, devno, err := s.mounted()
	if err != nil {
		return 0, err
	}
	b, err := s.k.ReadFile("/proc/locks")
	if err != nil {
		return 0, err
	}
	return countLocks(string(b), devno), nil
}

// countLocks counts POSIX locks on a device, given as major:minor, in the text of /proc/locks.
// Requests that wait for a lock ("->") do not count.
//
// Source: proc_locks(5).
func countLocks(text, devno string) (n int) {
	major, minor, _ := strings.Cut(devno, ":")
	ma, err1 := strconv.ParseUint(major, 10, 32)
	mi, err2 := strconv.ParseUint(minor, 10, 32)
	if err1 != nil || err2 != nil {
		return 0
	}
	on := fmt.Sprintf("%02x:%02x:", ma, mi)
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) >= 6 && f[1] == "POSIX" && strings.HasPrefix(f[5], on) {
			n++
		}
	}
	return n
}

// settled is the number of locks that the watcher saw, and since when.
type settled struct {
	locks int
	since time.Time
}

// endGrace ends lockd's grace period once every client has reclaimed its locks.
func (s *nfsKind) endGrace(ctx context.Context, w *watcher) {
	name := s.cfg.Service
	if _, lost := w.gone[name]; lost {
		return // a look at the volume would hang
	}
	if _, grace := s.inGrace(); !grace {
		delete(w.settled, name)
		return
	}
	r, seen, err := s.reclaiming(ctx, w)
	if err != nil {
		w.log("%s: the grace period of NFSv3 locks lasts to its end: %v", name, err)
		return
	}
	if !r.done(w.now(), seen) {
		return
	}
	if err := s.in.Poke(endGraceFile, "Y\n"); err != nil && !errors.Is(err, unix.ENOENT) {
		w.log("%s: ending the grace period of NFSv3 locks: %v", name, err)
		return
	}
	w.log("%s: %d clients have reclaimed their NFSv3 locks (%d locks are held): the grace period is over", name, len(r.Clients), seen.locks)
}

// reclaiming looks how far the clients have come.
func (s *nfsKind) reclaiming(ctx context.Context, w *watcher) (r reclaim, seen reclaiming, err error) {
	text, err := s.k.ReadFile(s.reclaimFile())
	if errors.Is(err, fs.ErrNotExist) {
		return r, seen, nil // nfsd runs, and the start has not come to sm-notify
	}
	if err != nil {
		return r, seen, err
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return r, seen, fmt.Errorf("%s: %w", s.reclaimFile(), err)
	}
	if len(r.Clients) == 0 {
		return r, seen, nil
	}
	left, err := s.toNotify()
	if err != nil {
		return r, seen, err
	}
	if seen.locks, err = s.locks(); err != nil {
		return r, seen, err
	}
	last, ok := w.settled[s.cfg.Service]
	if !ok || last.locks != seen.locks || len(left) > 0 {
		last = settled{seen.locks, w.now()}
		w.settled[s.cfg.Service] = last
	}
	seen.answered, seen.unchanged = len(left) == 0, w.now().Sub(last.since)
	if seen.answered && seen.unchanged >= reclaimQuiet {
		seen.connected, err = s.connected(ctx, r.Clients)
	}
	return r, seen, err
}

// resolveTime bounds the resolution of all clients' names: the watcher has more urgent work.
const resolveTime = time.Second

// connected reports whether each client has a connection to lockd. A client whose name
// cannot be resolved in time counts as one without.
func (s *nfsKind) connected(ctx context.Context, clients []string) (bool, error) {
	peers, err := s.lockPeers(ctx)
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, resolveTime)
	defer cancel()
	for _, c := range clients {
		addrs, err := s.k.Resolve(ctx, c)
		if err != nil || !slices.ContainsFunc(addrs, func(a netip.Addr) bool { return peers[a.Unmap()] }) {
			return false, nil
		}
	}
	return true, nil
}

// lockPeers are the addresses of clients that have a connection to lockd.
func (s *nfsKind) lockPeers(ctx context.Context) (map[netip.Addr]bool, error) {
	ports, err := s.in.Ports(ctx, []rpcProgram{nlockmgr})
	if err != nil {
		return nil, fmt.Errorf("rpcbind does not answer: %w", err)
	}
	all, err := s.established(ports[0])
	if err != nil {
		return nil, err
	}
	peers := map[netip.Addr]bool{}
	for _, c := range all {
		peers[c.remote.Addr()] = true
	}
	return peers, nil
}

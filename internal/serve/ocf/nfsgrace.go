package ocf

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
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
//   - each of them has asked for a lock since: rpc.statd has written it down again;
//   - as many locks are held as the former server had: exactly after a stop, and at most in
//     the last minute before a crash;
//   - their number has not changed for reclaimQuiet.
//
// If one of these never comes true the period ends when the kernel ends it.

// endGraceFile ends lockd's grace period when "Y" is written to it. It reads "N", a newline
// and a NUL during the period, and "Y" likewise after it. It is the one of the reader's
// network namespace.
//
// Source: fs/lockd/procfs.c of the kernel.
const endGraceFile = "/proc/fs/lockd/nlm_end_grace"

// reclaimQuiet is how long the number of locks must stay the same. A client reclaims its locks
// one after the other, each as soon as the one before is granted, and repeats a call without
// an answer after lockTimeout.
const reclaimQuiet = 2 * lockTimeout * time.Second

// locksKept is how long the larger number of locks counts that a monitor has seen.
const locksKept = time.Minute

// reclaim is what the start of a service notes for the end of lockd's grace period.
type reclaim struct {
	// Clients are those that sm-notify has to tell, by the names of rpc.statd's files, each
	// with its record.
	Clients map[string]string `json:"clients"`
	// Locks is how many locks the former server had.
	Locks int `json:"locks"`
	// Started tells this start from others.
	Started time.Time `json:"started"`
}

// reclaiming is what the watcher sees of the reclaim during the grace period.
type reclaiming struct {
	answered  bool // sm-notify has nobody left to tell
	back      bool // each client has asked for a lock
	locks     int
	unchanged time.Duration // since the number of locks changed last
}

// done reports whether every client has reclaimed what it held.
func (r reclaim) done(seen reclaiming) bool {
	return len(r.Clients) > 0 && seen.answered && seen.back && seen.locks >= r.Locks && seen.unchanged >= reclaimQuiet
}

// reclaimFile has the note of the last start here.
func (s *nfsKind) reclaimFile() string { return runDir + "/reclaim-" + s.cfg.Service }

// reclaimNote reads it; without a note it has no clients.
func (s *nfsKind) reclaimNote() (r reclaim, err error) {
	text, err := s.k.ReadFile(s.reclaimFile())
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", s.reclaimFile(), err)
	}
	return r, err
}

// noteReclaim writes the note before sm-notify tells the clients. Without a record of the
// locks there is nothing to compare with: the period lasts to its end.
func (s *nfsKind) noteReclaim() error {
	r := reclaim{Clients: map[string]string{}, Started: s.now()}
	names, err := s.toNotify()
	if err != nil {
		return err
	}
	for _, n := range names {
		b, err := s.k.ReadFile(s.notifyFile(n))
		if err != nil {
			return err
		}
		r.Clients[n] = string(b)
	}
	n, _, err := s.savedLocks()
	if err != nil {
		r.Clients = nil
	}
	r.Locks = n
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return s.k.Save(s.reclaimFile(), text)
}

// notifyFile is the record by which sm-notify knows a client.
func (s *nfsKind) notifyFile(client string) string {
	return s.cfg.StateDir + notifyDir + "/sm.bak/" + client
}

// toNotify lists the clients that sm-notify has to tell and that have not answered.
func (s *nfsKind) toNotify() ([]string, error) {
	return s.statdList(notifyDir + "/sm.bak")
}

// statdList lists the clients of a directory of rpc.statd or sm-notify.
func (s *nfsKind) statdList(dir string) ([]string, error) {
	names, err := s.k.ReadDir(s.cfg.StateDir + dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return names, err
}

// keepReclaiming puts the clients back on the list of those to be notified that were to
// reclaim their locks in a grace period which the stop of the service cuts short. Those that
// have asked for a lock are on the list already.
func (s *nfsKind) keepReclaiming() {
	r, err := s.reclaimNote()
	if err != nil {
		s.log.note("NFSv3 locks: %v", err)
	}
	listed, err := s.toNotify()
	if err != nil {
		s.log.note("NFSv3 locks: %v", err)
	}
	for n, record := range r.Clients {
		if slices.Contains(listed, n) {
			continue
		}
		if err := s.k.Save(s.notifyFile(n), []byte(record)); err != nil {
			s.log.note("NFSv3 locks of %s: %v", n, err)
		}
	}
}

// inGrace reports whether lockd's grace period lasts.
func (s *nfsKind) inGrace() bool {
	b, err := s.in.ReadFile(endGraceFile)
	return err == nil && bytes.HasPrefix(b, []byte("N")) && s.threads() > 0
}

// locksCount reports whether nfsd with lockd runs, and clients have had the time to reclaim.
func (s *nfsKind) locksCount() bool {
	b, err := s.in.ReadFile(endGraceFile)
	return err == nil && bytes.HasPrefix(b, []byte("Y")) && s.threads() > 0
}

// locksFile, on the volume, has a number of locks and when it was true, in s since 1970.
func (s *nfsKind) locksFile() string { return s.cfg.StateDir + "/mortar/locks" }

func (s *nfsKind) savedLocks() (n int, at time.Time, err error) {
	b, err := s.k.ReadFile(s.locksFile())
	if err != nil {
		return 0, at, err
	}
	var sec int64
	if _, err := fmt.Sscan(string(b), &n, &sec); err != nil {
		return 0, at, fmt.Errorf("%s: %w", s.locksFile(), err)
	}
	return n, time.Unix(sec, 0), nil
}

// saveLocks writes the number of locks to the volume; a larger one of the last minute stays.
// During the grace period the former number stays: clients have not reclaimed everything yet.
func (s *nfsKind) saveLocks() error {
	if !s.locksCount() {
		return nil
	}
	n, err := s.locks()
	if err != nil {
		return err
	}
	if !s.locksCount() {
		return nil // nfsd has ended meanwhile, and its locks with it
	}
	was, at, err := s.savedLocks()
	age := s.now().Sub(at)
	if err == nil && (n == was && age < locksKept/2 || n < was && age < locksKept) {
		return nil
	}
	return s.writeLocks(n)
}

// countAtStop writes the exact number of locks when the address is gone and nfsd still runs.
func (s *nfsKind) countAtStop() {
	if !s.locksCount() {
		return
	}
	n, err := s.locks()
	if err == nil {
		err = s.writeLocks(n)
	}
	if err != nil {
		s.log.note("the number of NFSv3 locks: %v", err)
	}
}

// writeLocks writes a number; if it cannot, no number is better than an old one.
func (s *nfsKind) writeLocks(n int) error {
	err := s.k.Save(s.locksFile(), fmt.Appendf(nil, "%d %d\n", n, s.now().Unix()))
	if err != nil {
		err = errors.Join(err, s.k.Remove(s.locksFile()))
	}
	return err
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

// settled is the number of locks that the watcher saw in the grace period of a start, and
// since when.
type settled struct {
	started time.Time
	locks   int
	since   time.Time
}

// endGrace ends lockd's grace period once every client has reclaimed its locks.
func (s *nfsKind) endGrace(w *watcher) {
	name := s.cfg.Service
	if _, lost := w.gone[name]; lost {
		return // a look at the volume would hang
	}
	if !s.inGrace() {
		delete(w.settled, name)
		return
	}
	r, seen, err := s.reclaiming(w)
	if err != nil {
		w.log("%s: the grace period of NFSv3 locks lasts to its end: %v", name, err)
		return
	}
	if !r.done(seen) {
		return
	}
	if err := s.in.Poke(endGraceFile, "Y\n"); err != nil && !errors.Is(err, unix.ENOENT) {
		w.log("%s: ending the grace period of NFSv3 locks: %v", name, err)
		return
	}
	w.log("%s: %d clients have reclaimed their NFSv3 locks (%d locks are held): lockd's grace period is over", name, len(r.Clients), seen.locks)
}

// reclaiming looks how far the clients have come.
func (s *nfsKind) reclaiming(w *watcher) (r reclaim, seen reclaiming, err error) {
	if r, err = s.reclaimNote(); err != nil || len(r.Clients) == 0 {
		return r, seen, err // without clients: nfsd runs, and the start has not come to sm-notify
	}
	left, err := s.toNotify()
	if err != nil {
		return r, seen, err
	}
	back, err := s.statdList("/sm")
	if err != nil {
		return r, seen, err
	}
	if seen.locks, err = s.locks(); err != nil {
		return r, seen, err
	}
	seen.answered, seen.back = len(left) == 0, true
	for n := range r.Clients {
		seen.back = seen.back && slices.Contains(back, n)
	}
	last, ok := w.settled[s.cfg.Service]
	if !ok || !last.started.Equal(r.Started) || last.locks != seen.locks || !seen.answered || !seen.back {
		last = settled{r.Started, seen.locks, w.now()}
		w.settled[s.cfg.Service] = last
	}
	seen.unchanged = w.now().Sub(last.since)
	return r, seen, nil
}

package nfs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mortarhpc/mortar/internal/serve/unit"
)

// NLM has no message that says "I have reclaimed all my locks", so lockd waits for its whole
// grace period, and the kernel refuses new locks of every NFS version meanwhile. The watcher
// ends the period earlier when all of this is true:
//
//   - each client that sm-notify had to tell has answered;
//   - each of them has asked for a lock since: rpc.statd has written it down again;
//   - every lock is held that the former server had, by file and range: when it stopped, or
//     when monitor or watcher looked last before it crashed;
//   - after a crash, no lock has come for reclaimQuiet: there may be some that no look saw.
//
// No client gets a new lock during the period, so whatever is held was reclaimed. If one of
// these never comes true the period ends when the kernel ends it.

// endGraceFile ends lockd's grace period when "Y" is written to it. It reads "N", a newline
// and a NUL during the period, and "Y" likewise after it. It is the one of the reader's
// network namespace.
//
// Source: fs/lockd/procfs.c of the kernel.
const endGraceFile = "/proc/fs/lockd/nlm_end_grace"

// reclaimQuiet is how long the locks must stay the same after a crash. A client reclaims its
// locks one after the other, each as soon as the one before is granted.
const reclaimQuiet = lockTimeout * time.Second

// maxLocks bounds the record of locks: four of each of 10,000 clients. They are 0.9 MB, and a look
// at them took 0.4 s of two busy processors. With more of them the period lasts to its end.
const maxLocks = 40_000

// reclaim is what the start of a service notes for the end of lockd's grace period.
type reclaim struct {
	// Clients are those that sm-notify has to tell, by the names of rpc.statd's files, each
	// with its record.
	Clients map[string]string `json:"clients"`
	// Locks are those that the former server had.
	Locks lockList `json:"locks"`
	// Started tells this start from others.
	Started time.Time `json:"started"`
}

// reclaiming is what the watcher sees of the reclaim during the grace period.
type reclaiming struct {
	answered  bool // sm-notify has no client left to tell
	back      bool // each client has asked for a lock
	locks     lockList
	unchanged time.Duration // since a lock came or went
}

// lacks says what is missing until every client has reclaimed what it held; "": nothing.
func (r reclaim) lacks(seen reclaiming) string {
	switch lock := seen.locks.lacks(r.Locks); {
	case len(r.Clients) == 0:
		return "no record tells which clients had locks"
	case !seen.answered:
		return "sm-notify has reached not every client"
	case !seen.back:
		return "a client has asked for no lock"
	case lock != "":
		return "a lock of the former server is not held (" + lock + "): its client has not reclaimed it, or gave it back in the last moments"
	case !r.Locks.Exact && seen.unchanged < reclaimQuiet:
		return "locks came or went until the end"
	}
	return ""
}

// reclaimNote is of the last start here.
func (s *nlm) reclaimNote() unit.Note { return s.RunNote("reclaim", "") }

// ToReclaim reads it; without a note it has no clients.
func (s *nlm) ToReclaim() (r reclaim, err error) {
	err = s.reclaimNote().Load(&r)
	return r, err
}

// noteReclaim writes the note before sm-notify tells the clients. Without a record of the
// locks there is nothing to compare with: the period lasts to its end.
func (s *nlm) noteReclaim() error {
	r := reclaim{Clients: map[string]string{}, Started: s.K.Now()}
	names, err := s.toNotify()
	if err != nil {
		return err
	}
	for _, n := range names {
		b, err := s.K.ReadFile(s.notifyFile(n))
		if err != nil {
			return err
		}
		r.Clients[n] = string(b)
	}
	if r.Locks, err = s.SavedLocks(); err != nil {
		r.Clients = nil
	}
	if r.Locks.Exact {
		// Only for this start: locks that are granted after it are in no list until the next
		// look, and the server may crash before that.
		if err := s.writeLocks(lockList{Locks: r.Locks.Locks}); err != nil {
			return err
		}
	}
	return s.reclaimNote().Save(r)
}

// notifyFile is the record by which sm-notify knows a client.
func (s *nlm) notifyFile(client string) string {
	return s.cfg.StateDir + notifyDir + "/sm.bak/" + client
}

// toNotify lists the clients that sm-notify has to tell and that have not answered.
func (s *nlm) toNotify() ([]string, error) {
	return s.statdList(notifyDir + "/sm.bak")
}

// statdList lists the clients of a directory of rpc.statd or sm-notify.
func (s *nlm) statdList(dir string) ([]string, error) {
	names, err := s.K.ReadDir(s.cfg.StateDir + dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return names, err
}

// keepReclaiming puts the clients back on the list of those to be notified that were to
// reclaim their locks in a grace period which the stop of the service cuts short. Those that
// have asked for a lock are on the list already.
func (s *nlm) keepReclaiming() {
	r, err := s.ToReclaim()
	if err != nil {
		s.Log.Note("NFSv3 locks: %v", err)
	}
	listed, err := s.toNotify()
	if err != nil {
		s.Log.Note("NFSv3 locks: %v", err)
	}
	for n, record := range r.Clients {
		if slices.Contains(listed, n) {
			continue
		}
		s.Log.NoteErr(s.K.Save(s.notifyFile(n), []byte(record)), "NFSv3 locks of %s", n)
	}
}

// inGrace reports whether lockd's grace period lasts.
func (s *nlm) inGrace() bool { return s.lockdSays("N") }

// locksCount reports whether nfsd with lockd runs, and clients have had the time to reclaim.
func (s *nlm) locksCount() bool { return s.lockdSays("Y") }

// lockdSays reports whether nfsd runs and endGraceFile reads a letter.
func (s *nlm) lockdSays(letter string) bool {
	b, err := s.In.ReadFile(endGraceFile)
	return err == nil && bytes.HasPrefix(b, []byte(letter)) && s.threads() > 0
}

type lockList struct {
	// Exact: they were counted when no client could get or give back a lock any more.
	Exact bool `json:"exact"`
	// Locks are sorted: kind, inode, first and last byte of each.
	Locks []string `json:"locks"`
}

// lacks is the first lock of another list that is not in this one; "": all are.
func (l lockList) lacks(other lockList) string {
	i := 0
	for _, want := range other.Locks {
		for i < len(l.Locks) && l.Locks[i] < want {
			i++
		}
		if i == len(l.Locks) || l.Locks[i] != want {
			return want
		}
		i++
	}
	return ""
}

// locksFile, on the volume, has the locks as monitor, watcher or stop saw them.
func (s *nlm) locksFile() string { return s.cfg.StateDir + "/mortar/locks" }

func (s *nlm) SavedLocks() (l lockList, err error) {
	b, err := s.K.ReadFile(s.locksFile())
	if err != nil {
		return l, err
	}
	if err := json.Unmarshal(b, &l); err != nil {
		return l, fmt.Errorf("%s: %w", s.locksFile(), err)
	}
	return l, nil
}

// unlist takes the locks of some inodes off the volume's list: no client will reclaim them. An
// inode with several locks stays, because another client may have one of them.
func (s *nlm) unlist(inodes []string) error {
	l, err := s.SavedLocks()
	if errors.Is(err, fs.ErrNotExist) || len(inodes) == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	locks := map[string]int{}
	inode := func(lock string) string { return append(strings.Fields(lock), "", "")[1] }
	for _, lock := range l.Locks {
		locks[inode(lock)]++
	}
	l.Locks = slices.DeleteFunc(l.Locks, func(lock string) bool {
		return locks[inode(lock)] == 1 && slices.Contains(inodes, inode(lock))
	})
	return s.writeLocks(l)
}

// locksNow are the locks that clients hold; nil if the volume has them already. During the
// grace period the former ones stay: clients have not reclaimed everything yet. Only a start
// that has NFSv3 clients to tell reads the list.
func (s *nlm) locksNow(context.Context) (*list, error) {
	if !s.cfg.NFS.serves("3") || !s.locksCount() {
		return nil, nil
	}
	l, err := s.locks()
	if err != nil {
		return nil, err
	}
	if !s.locksCount() {
		return nil, nil // nfsd has ended meanwhile, and its locks with it
	}
	now, err := s.listOf(l)
	if err != nil {
		return nil, err
	}
	was, err := s.SavedLocks()
	if now.text == nil && errors.Is(err, fs.ErrNotExist) || err == nil && !was.Exact && slices.Equal(was.Locks, l.Locks) {
		return nil, nil
	}
	return &now, nil
}

// listAtStop writes the locks when the address is gone and nfsd still runs.
func (s *nlm) listAtStop() {
	if !s.locksCount() {
		return
	}
	l, err := s.locks()
	if err == nil {
		l.Exact = true
		err = s.writeLocks(l)
	}
	if err != nil {
		s.Log.Note("the list of NFSv3 locks: %v", err)
	}
}

// listOf is the file with a list of locks. If there are too many, there is none.
func (s *nlm) listOf(l lockList) (list, error) {
	if len(l.Locks) > maxLocks {
		return list{file: s.locksFile()}, nil
	}
	text, err := json.Marshal(l)
	return list{file: s.locksFile(), text: append(text, '\n'), current: true}, err
}

func (s *nlm) writeLocks(l lockList) error {
	to, err := s.listOf(l)
	if err != nil {
		return err
	}
	return s.put(to)
}

// locks lists the locks that clients hold on the volume.
func (s *nlm) locks() (lockList, error) {
	_, devno, err := s.Mounted()
	if err != nil {
		return lockList{}, err
	}
	b, err := s.K.ReadFile("/proc/locks")
	if err != nil {
		return lockList{}, err
	}
	return lockList{Locks: LocksOn(string(b), devno)}, nil
}

// LocksOn lists POSIX locks on a device, given as major:minor, in the text of /proc/locks.
// Requests that wait for a lock ("->") do not count.
//
// Source: proc_locks(5).
func LocksOn(text, devno string) (all []string) {
	major, minor, _ := strings.Cut(devno, ":")
	ma, err1 := strconv.ParseUint(major, 10, 32)
	mi, err2 := strconv.ParseUint(minor, 10, 32)
	if err1 != nil || err2 != nil {
		return nil
	}
	on := fmt.Sprintf("%02x:%02x:", ma, mi)
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 8 || f[1] != "POSIX" {
			continue
		}
		if inode, ok := strings.CutPrefix(f[5], on); ok {
			all = append(all, strings.Join([]string{f[3], inode, f[6], f[7]}, " "))
		}
	}
	slices.Sort(all)
	return all
}

// settled are the locks that the watcher saw in the grace period of a start, and since when.
type settled struct {
	started time.Time
	locks   []string
	since   time.Time
	// lacks is what was missing at the last look.
	lacks string
}

// EndGrace ends lockd's grace period once every client has reclaimed its locks.
func (s *nlm) EndGrace(w unit.Watch) {
	name := s.Service
	if w.Lost() {
		return // a look at the volume would hang
	}
	if !s.inGrace() {
		if s.settled != nil && s.settled.lacks != "" {
			w.Log("%s: the grace period of NFSv3 locks lasted to its end: %s", name, s.settled.lacks)
		}
		s.settled = nil
		return
	}
	r, seen, err := s.reclaiming(w)
	if err != nil {
		w.Log("%s: the grace period of NFSv3 locks lasts to its end: %v", name, err)
		return
	}
	lacks := r.lacks(seen)
	if s.settled != nil {
		s.settled.lacks = lacks
	}
	if lacks != "" {
		if len(r.Clients) > 0 {
			w.Hurry()
		}
		return
	}
	if err := s.In.Poke(endGraceFile, "Y\n"); err != nil && !errors.Is(err, unix.ENOENT) {
		w.Log("%s: ending the grace period of NFSv3 locks: %v", name, err)
		return
	}
	w.Log("%s: %d clients have reclaimed their NFSv3 locks (%d locks are held): lockd's grace period is over", name, len(r.Clients), len(seen.locks.Locks))
}

// reclaiming looks how far the clients have come.
func (s *nlm) reclaiming(w unit.Watch) (r reclaim, seen reclaiming, err error) {
	if r, err = s.ToReclaim(); err != nil || len(r.Clients) == 0 {
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
	last := s.settled
	if last == nil || !last.started.Equal(r.Started) || !slices.Equal(last.locks, seen.locks.Locks) || !seen.answered || !seen.back {
		last = &settled{started: r.Started, locks: seen.locks.Locks, since: s.K.Now()}
		s.settled = last
	}
	seen.unchanged = s.K.Now().Sub(last.since)
	return r, seen, nil
}

package workload

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/zeebo/xxh3"
	"golang.org/x/sys/unix"
)

// findWork is one thread's part of io500's find over all files of a run:
//
//	find RUN -newer MARK -size ITEM_BYTESc -name '*01*'
//
// Every entry that is no directory counts; find stats only those whose name
// matches. The threads divide the work without talking to each other: the hash
// of its name gives each entry at the top of a set to one thread, which walks a
// directory to its end. So the tree of a thread goes whole to one thread. All
// threads read a shared directory, and divide its entries among them.
// Source: pfind.c (find_do_readdir, find_do_lstat), phase_find.c of IO500
type findWork struct {
	t      *benchThread
	job    *BenchJob
	ranks  uint64
	rank   uint64
	newer  int64 // ns: entries changed before it do not match
	expect int64 // matches that this thread must find in the job's set; -1: unknown

	mu       sync.Mutex
	findings BenchVerify
}

func newFindWork(t *benchThread) *findWork {
	j := &t.run.job
	w := &findWork{t: t, job: j, ranks: uint64(j.Clients * j.Threads), rank: uint64(t.res.Rank), expect: -1}
	t.res.Path = filepath.Dir(t.run.dir)
	return w
}

// findPattern is the part of a name that matches.
const findPattern = "01"

func (w *findWork) open() error {
	// The marker is older than every other file of the run, by the server's
	// clock.
	st, err := os.Stat(filepath.Join(w.t.res.Path, benchMarker))
	if err != nil {
		return err
	}
	w.newer = st.ModTime().UnixNano()
	if !w.job.Shared {
		return nil
	}
	// The names in a shared directory are known, so count the matches.
	w.expect = 0
	for _, r := range w.job.Regions {
		for n := int64(0); len(r.Passes) > 0 && n < r.Passes[0].Acked; n++ {
			name := fmt.Sprintf("file.mdtest.%d.%d", r.Rank, n)
			if strings.Contains(name, findPattern) && w.mine(name) {
				w.expect++
			}
		}
	}
	return nil
}

func (w *findWork) mine(name string) bool { return xxh3.HashString(name)%w.ranks == w.rank }

// findState is one walk.
type findState struct {
	now   int64
	found int64 // in the job's set
}

func (w *findWork) loop() error {
	s := &findState{now: w.t.run.clock.now()}
	sets, err := os.ReadDir(w.t.res.Path)
	if err != nil {
		return err
	}
	for _, set := range sets {
		if !set.IsDir() {
			continue // the marker
		}
		dir := filepath.Join(w.t.res.Path, set.Name())
		if err := w.walk(s, dir, set.Name() == w.job.Set, w.mine); err != nil {
			if errors.Is(err, errEnough) {
				return nil
			}
			return err
		}
	}
	if w.expect >= 0 {
		w.mu.Lock()
		w.findings.Bytes = s.found * w.job.ItemBytes
		if s.found != w.expect {
			w.findings.BadBytes = max(w.job.ItemBytes, 1)
			w.findings.Findings = []string{fmt.Sprintf("%s: %d files of %d bytes with %s in their names were found, and %d were made", w.t.run.dir, s.found, w.job.ItemBytes, findPattern, w.expect)}
		}
		w.mu.Unlock()
	}
	w.t.set(func(r *BenchThread) { r.Finished = true })
	return nil
}

// walk visits the entries of dir that mine accepts, and all below them. counts
// means that dir belongs to the job's set.
func (w *findWork) walk(s *findState, dir string, counts bool, mine func(string) bool) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	for {
		entries, err := f.ReadDir(512)
		for _, e := range entries {
			if w.t.run.enough(s.now) {
				return errEnough
			}
			switch {
			case !mine(e.Name()):
			case e.IsDir():
				if err := w.walk(s, filepath.Join(dir, e.Name()), counts, func(string) bool { return true }); err != nil {
					return err
				}
			default:
				if err := w.look(s, f, dir, e, counts); err != nil {
					return err
				}
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (w *findWork) look(s *findState, f *os.File, dir string, e fs.DirEntry, counts bool) error {
	if strings.Contains(e.Name(), findPattern) {
		name, err := unix.BytePtrFromString(e.Name())
		if err != nil {
			return err
		}
		st, err := statat(int(f.Fd()), name)
		if err != nil {
			return pathError("stat", filepath.Join(dir, e.Name()), err)
		}
		changed := st.Ctime.Sec*1e9 + int64(st.Ctime.Nsec)
		if counts && changed >= w.newer && int64(st.Size) == w.job.ItemBytes {
			s.found++
		}
	}
	end := w.t.run.clock.now()
	w.t.record(s.now, s.now, end, 0)
	s.now = end
	return nil
}

func (w *findWork) verified() *BenchVerify {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.findings.orNil()
}

func (w *findWork) close() {}

package workload

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"sync"
	"time"
	"unsafe"

	"github.com/zeebo/xxh3"
	"golang.org/x/sys/unix"
)

// mdWork creates, stats or removes the files of one thread's tree, with the
// names and in the order of mdtest -z 1 -L -u -t: below the set's directory,
//
//	mdtest_tree.RANK.0/mdtest_tree.RANK.D/file.mdtest.RANK.N
//
// with D from 1 to Branch and N from D*Items on, Items files in each
// directory; if Shared, all in the set's directory, with N from 0 on. mdWork
// opens files with O_CREAT|O_RDWR and closes them; it fsyncs (-y) only after a
// write (-w). Each file has its own data, so that md-read proves whose data a
// file holds.
// Source: mdtest.c of IOR 4.1 (create_file, create_remove_items, mdtest_stat, mdtest_read)
type mdWork struct {
	t      *benchThread
	job    *BenchJob
	rank   int // whose tree
	root   string
	rootFD int
	files  int64 // that exist, or that md-create makes
	order  permutation
	data   []byte
	read   []byte // buffer of md-read: one byte longer than data, so that a longer file shows

	mu       sync.Mutex // guards the fields below
	making   float64
	findings BenchVerify
}

// mdShift says on whose files a phase works: those of the client this many
// times ReadShift further on. So no client has the files of a phase in its
// cache.
// Source: mdtest.c of IOR 4.1 (stat_name, read_name, rm_name)
var mdShift = map[BenchPhase]int{MDStat: 1, MDRead: 2, MDRemove: 3}

func newMDWork(t *benchThread) (*mdWork, error) {
	j := &t.run.job
	w := &mdWork{t: t, job: j, rank: t.res.Rank, rootFD: -1, files: int64(j.Branch) * int64(j.Items)}
	all := j.Clients * j.Threads
	w.rank = ((w.rank+mdShift[j.Phase]*j.ReadShift*j.Threads)%all + all) % all
	if j.Phase != MDCreate {
		// An md-create that ended early has made only the first files.
		for _, r := range j.Regions {
			if r.Rank == w.rank && len(r.Passes) > 0 {
				w.files = min(w.files, r.Passes[0].Acked)
			}
		}
	}
	if w.root = t.run.dir; !j.Shared {
		w.root = filepath.Join(t.run.dir, fmt.Sprintf("mdtest_tree.%d.0", w.rank))
	}
	w.order = newPermutation(fmt.Sprintf("%s/%s/%d/stat", j.RunID, j.Set, w.rank), w.files)
	w.data, w.read = make([]byte, j.ItemBytes), make([]byte, j.ItemBytes+1)
	t.res.Path = w.root
	return w, nil
}

func (w *mdWork) open() error {
	if w.job.Phase == MDCreate && !w.job.Shared {
		if err := w.makeTree(); err != nil {
			return err
		}
	}
	fd, err := open(w.root, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	w.rootFD = fd
	return nil
}

func (w *mdWork) makeTree() error {
	start := time.Now()
	mkdir := func(path string) error {
		_, err := again(func() (int, error) { return 0, unix.Mkdir(path, 0o755) })
		return pathError("mkdir", path, err)
	}
	if err := mkdir(w.root); err != nil {
		return err
	}
	for d := 1; d <= w.job.Branch; d++ {
		if err := mkdir(filepath.Join(w.root, w.leaf(d))); err != nil {
			return err
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.making = time.Since(start).Seconds()
	return nil
}

func (w *mdWork) makeSeconds() float64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.making
}

func (w *mdWork) leaf(d int) string { return fmt.Sprintf("mdtest_tree.%d.%d", w.rank, d) }

// path builds file names in one buffer, NUL-terminated for the kernel. A string
// for each of a million files would load the garbage collector.
type path struct {
	b    []byte
	head int
}

func newPath(head string) *path {
	return &path{b: append(make([]byte, 0, 256), head...), head: len(head)}
}

// with sets the part after the head and returns the whole name.
func (p *path) with(n int64, tail string, m int64) *byte {
	p.b = p.b[:p.head]
	if tail != "" {
		p.b = strconv.AppendInt(p.b, n, 10)
		p.b = append(p.b, tail...)
	}
	p.b = strconv.AppendInt(p.b, m, 10)
	p.b = append(p.b, 0)
	return &p.b[0]
}

func (p *path) String() string { return string(p.b[:max(0, len(p.b)-1)]) }

func (w *mdWork) loop() error {
	var err error
	if w.job.Phase == MDStat {
		err = w.statAll()
	} else {
		err = w.eachFile()
	}
	if errors.Is(err, errEnough) {
		return nil
	}
	if err == nil {
		w.t.set(func(r *BenchThread) { r.Finished = true })
	}
	return err
}

// errEnough ends a loop early without a fault.
var errEnough = errors.New("the time is over")

// eachFile creates, reads or removes directory by directory.
func (w *mdWork) eachFile() error {
	var v BenchVerify
	defer func() { w.found(v) }()
	do := w.create
	switch w.job.Phase {
	case MDRemove:
		do = func(dir int, name *byte, _ int64) (string, error) { return "unlink", unlinkat(dir, name) }
	case MDRead:
		do = func(dir int, name *byte, n int64) (string, error) { return w.readBack(dir, name, n, &v) }
	}
	name := newPath(fmt.Sprintf("file.mdtest.%d.", w.rank))
	now := w.t.run.clock.now()
	if w.job.Shared {
		_, err := w.inDir(w.rootFD, w.root, 0, w.files, name, do, now)
		return err
	}
	left := w.files
	for d := 1; d <= w.job.Branch && left > 0; d++ {
		dir := filepath.Join(w.root, w.leaf(d))
		fd, err := open(dir, unix.O_RDONLY|unix.O_DIRECTORY)
		if err != nil {
			return err
		}
		n := min(left, int64(w.job.Items))
		now, err = w.inDir(fd, dir, int64(d)*int64(w.job.Items), n, name, do, now)
		_ = unix.Close(fd)
		if err != nil {
			return err
		}
		left -= n
	}
	return nil
}

// inDir calls do for the n files of a directory, numbered from from on.
func (w *mdWork) inDir(fd int, dir string, from, n int64, name *path, do func(int, *byte, int64) (string, error), now int64) (int64, error) {
	clock, t := w.t.run.clock, w.t
	for i := from; i < from+n; i++ {
		if t.run.enough(now) {
			return now, errEnough
		}
		if op, err := do(fd, name.with(0, "", i), i); err != nil {
			return now, pathError(op, filepath.Join(dir, name.String()), err)
		}
		end := clock.now()
		t.record(now, now, end, 0)
		now = end
	}
	return now, nil
}

func (w *mdWork) create(dir int, name *byte, n int64) (string, error) {
	fd, err := openat(dir, name, unix.O_CREAT|unix.O_RDWR|unix.O_CLOEXEC, 0o664)
	if err != nil {
		return "create", err
	}
	op := "close"
	if len(w.data) > 0 {
		w.fillData(n)
		if err = pwrite(fd, w.data, 0); err != nil {
			op = "write"
		} else if w.job.ItemSync {
			if err = fsync(fd); err != nil {
				op = "fsync"
			}
		}
	}
	if cerr := unix.Close(fd); err == nil {
		err = cerr
	}
	return op, err
}

// fillData makes the data of file n.
func (w *mdWork) fillData(n int64) {
	fillPattern(w.data, xxh3.HashString(fmt.Sprintf("%s/%s/%d/%d", w.job.RunID, w.job.Set, w.rank, n)))
}

// fillPattern fills b with pseudo-random words of a seed.
// Source: SplitMix64, https://prng.di.unimi.it/splitmix64.c
func fillPattern(b []byte, seed uint64) {
	for ; len(b) >= 8; b = b[8:] {
		binary.LittleEndian.PutUint64(b, nextWord(&seed))
	}
	if len(b) > 0 {
		var word [8]byte
		binary.LittleEndian.PutUint64(word[:], nextWord(&seed))
		copy(b, word[:])
	}
}

func nextWord(seed *uint64) uint64 {
	*seed += 0x9e3779b97f4a7c15
	z := *seed
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// readBack reads a whole file and compares it with what was written.
func (w *mdWork) readBack(dir int, name *byte, n int64, v *BenchVerify) (string, error) {
	fd, err := openat(dir, name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "open", err
	}
	op := "close"
	got, err := pread(fd, w.read, 0)
	if err != nil {
		op = "read"
	}
	if cerr := unix.Close(fd); err == nil {
		err = cerr
	}
	if err != nil {
		return op, err
	}
	w.fillData(n)
	v.Bytes += w.job.ItemBytes
	if !bytes.Equal(w.read[:got], w.data) {
		v.BadBytes += max(w.job.ItemBytes, 1)
		if len(v.Findings) < MaxFindings {
			v.Findings = append(v.Findings, fmt.Sprintf("%s: file.mdtest.%d.%d: %d bytes, which are not the %d that were written", w.root, w.rank, n, got, w.job.ItemBytes))
		}
	}
	return "", nil
}

// found adds v to the findings.
func (w *mdWork) found(v BenchVerify) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.findings = v
}

// statAll stats each file once, in random order.
func (w *mdWork) statAll() error {
	clock, t := w.t.run.clock, w.t
	head := newPath(fmt.Sprintf("mdtest_tree.%d.", w.rank))
	if w.job.Shared {
		head = newPath(fmt.Sprintf("file.mdtest.%d.", w.rank))
	}
	tail := fmt.Sprintf("/file.mdtest.%d.", w.rank)
	items := int64(w.job.Items)
	var seen, wrong int64
	var findings []string
	defer func() {
		w.found(BenchVerify{Bytes: seen * w.job.ItemBytes, BadBytes: wrong * max(w.job.ItemBytes, 1), Findings: findings})
	}()
	now := clock.now()
	for i := range w.files {
		if t.run.enough(now) {
			return errEnough
		}
		n := w.order.at(i)
		var name *byte
		if w.job.Shared {
			name = head.with(0, "", n)
		} else {
			n += items
			name = head.with(n/items, tail, n)
		}
		st, err := statat(w.rootFD, name)
		if err != nil {
			return pathError("stat", filepath.Join(w.root, head.String()), err)
		}
		end := clock.now()
		t.record(now, now, end, 0)
		now = end
		seen++
		if st.Mode&unix.S_IFMT != unix.S_IFREG || int64(st.Size) != w.job.ItemBytes {
			wrong++
			if len(findings) < MaxFindings {
				findings = append(findings, fmt.Sprintf("%s: mode %o, %d bytes, where a file of %d was made", filepath.Join(w.root, head.String()), st.Mode, st.Size, w.job.ItemBytes))
			}
		}
	}
	return nil
}

// verified is nil unless md-stat or md-read compared something or found an error.
func (w *mdWork) verified() *BenchVerify {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.findings.orNil()
}

func (w *mdWork) close() {
	if w.rootFD >= 0 {
		_ = unix.Close(w.rootFD)
		w.rootFD = -1
	}
}

// removeTrees removes the directories of the threads that have removed all
// their files. It returns the time of the slowest thread in seconds.
func (r *benchRun) removeTrees() float64 {
	type outcome struct {
		t   *benchThread
		s   float64
		err error
	}
	outcomes := make(chan outcome, len(r.threads))
	n := 0
	for _, t := range r.threads {
		t.mu.Lock()
		whole := t.finished && t.res.Finished
		t.mu.Unlock()
		w, ok := t.work.(*mdWork)
		if !whole || !ok {
			continue
		}
		n++
		go func() {
			start := time.Now()
			err := w.removeTree()
			outcomes <- outcome{t, time.Since(start).Seconds(), err}
		}()
	}
	patience := time.After(time.Duration(r.job.GiveUpSeconds * 1e9))
	slowest := 0.0
	for range n {
		select {
		case o := <-outcomes:
			slowest = max(slowest, o.s)
			if o.err != nil {
				o.t.fail(o.err)
			}
		case <-patience:
			return slowest
		}
	}
	return slowest
}

func (w *mdWork) removeTree() error {
	if w.job.Shared {
		return nil // OpBenchCleanup removes the set's directory
	}
	for d := 1; d <= w.job.Branch; d++ {
		dir := filepath.Join(w.root, w.leaf(d))
		if err := unix.Rmdir(dir); err != nil {
			return pathError("rmdir", dir, err)
		}
	}
	return pathError("rmdir", w.root, unix.Rmdir(w.root))
}

// These system calls take a name in bytes: the functions of package unix copy
// each string.

func openat(dir int, name *byte, flags int, mode uint32) (int, error) {
	return again(func() (int, error) {
		fd, _, e := unix.Syscall6(unix.SYS_OPENAT, uintptr(dir), uintptr(unsafe.Pointer(name)), uintptr(flags), uintptr(mode), 0, 0)
		if e != 0 {
			return -1, e
		}
		return int(fd), nil
	})
}

func unlinkat(dir int, name *byte) error {
	_, err := again(func() (int, error) {
		_, _, e := unix.Syscall(unix.SYS_UNLINKAT, uintptr(dir), uintptr(unsafe.Pointer(name)), 0)
		if e != 0 {
			return 0, e
		}
		return 0, nil
	})
	return err
}

// statat gets the fields of stat(2) by statx, which has the same name on all
// architectures.
func statat(dir int, name *byte) (unix.Statx_t, error) {
	var st unix.Statx_t
	_, err := again(func() (int, error) {
		_, _, e := unix.Syscall6(unix.SYS_STATX, uintptr(dir), uintptr(unsafe.Pointer(name)), unix.AT_SYMLINK_NOFOLLOW, unix.STATX_BASIC_STATS, uintptr(unsafe.Pointer(&st)), 0)
		if e != 0 {
			return 0, e
		}
		return 0, nil
	})
	return st, err
}

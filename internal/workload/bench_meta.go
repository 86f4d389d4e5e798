package workload

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mdWork creates, stats or removes the files of one thread's tree, with the
// names and in the order of mdtest -z 1 -L -u -t: below the set's directory,
//
//	mdtest_tree.RANK.0/mdtest_tree.RANK.D/file.mdtest.RANK.N
//
// with D from 1 to Branch and N from D*Items on, Items of them in each
// directory. Files are opened with O_CREAT|O_RDWR and closed; -y is an fsync
// after -w has written something, and nothing without it.
// Source: mdtest.c of IOR 4.1 (create_file, create_remove_items, mdtest_stat)
type mdWork struct {
	t      *benchThread
	job    *BenchJob
	rank   int // whose tree
	root   string
	rootFD int
	files  int64 // there, or to be made
	order  permutation
	data   []byte

	mu       sync.Mutex // guards what follows
	making   float64
	findings BenchVerify
}

func newMDWork(t *benchThread) (*mdWork, error) {
	j := &t.run.job
	w := &mdWork{t: t, job: j, rank: t.res.Rank, rootFD: -1, files: int64(j.Branch) * int64(j.Items)}
	if j.Phase == MDStat {
		all := j.Clients * j.Threads
		w.rank = ((w.rank+j.ReadShift*j.Threads)%all + all) % all
	}
	if j.Phase != MDCreate {
		// A creation that was cut short has made the first ones alone.
		for _, r := range j.Regions {
			if r.Rank == w.rank && len(r.Passes) > 0 {
				w.files = min(w.files, r.Passes[0].Acked)
			}
		}
	}
	w.root = filepath.Join(t.run.dir, fmt.Sprintf("mdtest_tree.%d.0", w.rank))
	w.order = newPermutation(fmt.Sprintf("%s/%s/%d/stat", j.RunID, j.Set, w.rank), w.files)
	w.data = make([]byte, j.ItemBytes)
	t.res.Path = w.root
	return w, nil
}

func (w *mdWork) open() error {
	if w.job.Phase == MDCreate {
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

// path is a name under construction, NUL-terminated for the kernel: a string
// for each of a million files would be garbage for each.
type path struct {
	b    []byte
	head int
}

func newPath(head string) *path {
	return &path{b: append(make([]byte, 0, 256), head...), head: len(head)}
}

// with sets what follows the head and returns the whole.
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

// eachFile creates or removes directory by directory.
func (w *mdWork) eachFile() error {
	do := w.create
	if w.job.Phase == MDRemove {
		do = func(dir int, name *byte) (string, error) { return "unlink", unlinkat(dir, name) }
	}
	name := newPath(fmt.Sprintf("file.mdtest.%d.", w.rank))
	now := w.t.run.clock.now()
	left := w.files
	for d := 1; d <= w.job.Branch && left > 0; d++ {
		dir := filepath.Join(w.root, w.leaf(d))
		fd, err := open(dir, unix.O_RDONLY|unix.O_DIRECTORY)
		if err != nil {
			return err
		}
		n := min(left, int64(w.job.Items))
		now, err = w.inDir(fd, dir, d, n, name, do, now)
		_ = unix.Close(fd)
		if err != nil {
			return err
		}
		left -= n
	}
	return nil
}

func (w *mdWork) inDir(fd int, dir string, d int, n int64, name *path, do func(int, *byte) (string, error), now int64) (int64, error) {
	clock, t := w.t.run.clock, w.t
	for i := range n {
		if t.run.enough(now) {
			return now, errEnough
		}
		if op, err := do(fd, name.with(0, "", int64(d)*int64(w.job.Items)+i)); err != nil {
			return now, pathError(op, filepath.Join(dir, name.String()), err)
		}
		end := clock.now()
		t.record(now, now, end, 0)
		now = end
	}
	return now, nil
}

func (w *mdWork) create(dir int, name *byte) (string, error) {
	fd, err := openat(dir, name, unix.O_CREAT|unix.O_RDWR|unix.O_CLOEXEC, 0o664)
	if err != nil {
		return "create", err
	}
	op := "close"
	if len(w.data) > 0 {
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

// statAll looks at each file once, in random order.
func (w *mdWork) statAll() error {
	clock, t := w.t.run.clock, w.t
	head := newPath(fmt.Sprintf("mdtest_tree.%d.", w.rank))
	tail := fmt.Sprintf("/file.mdtest.%d.", w.rank)
	items := int64(w.job.Items)
	var seen, wrong int64
	var findings []string
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.findings = BenchVerify{Bytes: seen * w.job.ItemBytes, BadBytes: wrong * w.job.ItemBytes, Findings: findings}
	}()
	now := clock.now()
	for i := range w.files {
		if t.run.enough(now) {
			return errEnough
		}
		n := w.order.at(i) + items
		mode, size, err := statat(w.rootFD, head.with(n/items, tail, n))
		if err != nil {
			return pathError("stat", filepath.Join(w.root, head.String()), err)
		}
		end := clock.now()
		t.record(now, now, end, 0)
		now = end
		seen++
		if mode&unix.S_IFMT != unix.S_IFREG || size != w.job.ItemBytes {
			wrong++
			if len(findings) < MaxFindings {
				findings = append(findings, fmt.Sprintf("%s: mode %o, %d bytes, where a file of %d was made", filepath.Join(w.root, head.String()), mode, size, w.job.ItemBytes))
			}
		}
	}
	return nil
}

// verified is there only when something was amiss, or sizes could be compared.
func (w *mdWork) verified() *BenchVerify {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.job.Phase != MDStat || w.findings.Bytes == 0 && len(w.findings.Findings) == 0 {
		return nil
	}
	v := w.findings
	return &v
}

func (w *mdWork) close() {
	if w.rootFD >= 0 {
		_ = unix.Close(w.rootFD)
		w.rootFD = -1
	}
}

// removeTrees removes the emptied directories of the threads that have
// removed all their files, and tells how long the slowest took.
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
	for d := 1; d <= w.job.Branch; d++ {
		dir := filepath.Join(w.root, w.leaf(d))
		if err := unix.Rmdir(dir); err != nil {
			return pathError("rmdir", dir, err)
		}
	}
	return pathError("rmdir", w.root, unix.Rmdir(w.root))
}

// The system calls on names that are bytes already: package unix makes a new
// copy of each string.

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

// statat asks for what stat(2) tells; statx is the one call that all
// architectures know by one name.
func statat(dir int, name *byte) (mode uint32, size int64, err error) {
	var st unix.Statx_t
	_, err = again(func() (int, error) {
		_, _, e := unix.Syscall6(unix.SYS_STATX, uintptr(dir), uintptr(unsafe.Pointer(name)), 0, unix.STATX_BASIC_STATS, uintptr(unsafe.Pointer(&st)), 0)
		if e != 0 {
			return 0, e
		}
		return 0, nil
	})
	return uint32(st.Mode), int64(st.Size), err
}

package workload

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/prove/stream"
)

// span is a range of a file.
type span struct{ off, n int64 }

// writer is the goroutine of one Writer.
type writer struct {
	*worker
	cfg    Writer
	id     uint32 // of the stream, and in the blocks
	stream stream.Stream
	ledger *stream.Ledger
	path   string
	marks  *atomic.Int64 // of the run

	begun   int64  // the mark whose window pos is in
	pos     int64  // seq, append: where in the window the next write goes
	turn    bool   // the next write goes to the zone
	redo    []span // ranges in doubt, to be written again first
	pending []span // written since the last fsync
	last    uint64 // sequence of the last write that returned
	rng     *rand.Rand
}

var errStopped = errors.New("told to stop")

func (w *writer) run() error {
	err := w.loop()
	if cerr := w.ledger.Close(); cerr != nil {
		return fmt.Errorf("ledger: %w", cerr)
	}
	return err
}

func (w *writer) loop() error {
	if err := w.open(true); err != nil {
		return err
	}
	buf := linux.Aligned(int(w.cfg.BlockBytes))
	pace := newPacer(w.cfg.OpsPerSecond)
	var wait backoff
	for pace.wait(w.stop) {
		sp := w.next()
		block, n := uint64(sp.off/stream.BlockSize), uint32(sp.n/stream.BlockSize)
		gen, seq, err := w.ledger.Intent(block, n)
		if err != nil {
			return err
		}
		b := buf[:sp.n]
		for i := range uint64(n) {
			w.stream.Encode(b[i*stream.BlockSize:], block+i, gen, seq, w.id)
		}
		w.begin("write")
		if err := pwrite(w.fd, b, sp.off); err != nil {
			if lerr := w.ledger.Doubt(seq, errnoNumber(err)); lerr != nil {
				return lerr
			}
			w.fail(err)
			w.redo = append(w.redo, sp)
			if err := w.recover(&wait, err); err != nil {
				return err
			}
			continue
		}
		wait.reset()
		w.last = seq
		if w.cfg.Mode != Fsync {
			if err := w.ledger.Ack(seq); err != nil {
				return err
			}
			w.succeed(sp.n)
			continue
		}
		w.pending = append(w.pending, sp)
		w.succeed(0)
		if len(w.pending) >= w.cfg.FsyncEvery {
			if err := w.sync(&wait); err != nil {
				return err
			}
		}
	}
	if w.cfg.Mode == Fsync && len(w.pending) > 0 {
		return w.sync(&wait)
	}
	return nil
}

// next chooses the range to write.
func (w *writer) next() span {
	if n := len(w.redo); n > 0 {
		sp := w.redo[n-1]
		w.redo = w.redo[:n-1]
		return sp
	}
	// Each mark begins a new window behind the last one: writing to the old
	// window again would hide the data that it lost.
	base := w.marks.Load() * w.cfg.FileBytes
	if w.turn = !w.turn; w.turn && w.cfg.ZoneBytes > 0 {
		return span{w.rng.Int64N(w.cfg.ZoneBytes/w.cfg.BlockBytes) * w.cfg.BlockBytes, w.cfg.BlockBytes}
	}
	if w.cfg.Pattern == Random {
		return span{base + w.rng.Int64N(w.cfg.FileBytes/w.cfg.BlockBytes)*w.cfg.BlockBytes, w.cfg.BlockBytes}
	}
	if w.cfg.FileBytes > 0 && (w.pos+w.cfg.BlockBytes > w.cfg.FileBytes || base != w.begun) {
		w.pos, w.begun = 0, base
	}
	sp := span{base + w.pos, w.cfg.BlockBytes}
	w.pos += w.cfg.BlockBytes
	return sp
}

// sync fsyncs the pending writes. After a failure all of them are in doubt, and
// the writer writes them again.
func (w *writer) sync(wait *backoff) error {
	var bytes int64
	for _, sp := range w.pending {
		bytes += sp.n
	}
	w.begin("fsync")
	if err := fsync(w.fd); err != nil {
		w.fail(err)
		return w.recover(wait, err)
	}
	if err := w.ledger.Synced(w.last); err != nil {
		return err
	}
	w.pending = w.pending[:0]
	w.succeed(bytes)
	return nil
}

// recover follows a failed write or fsync. It opens the file again and puts all
// writes without an fsync in doubt: an fsync of the new descriptor may not
// report the pages that the old descriptor lost.
func (w *writer) recover(wait *backoff, cause error) error {
	if len(w.pending) > 0 {
		if err := w.ledger.SyncFailed(errnoNumber(cause)); err != nil {
			return err
		}
		w.redo = append(w.redo, w.pending...)
		w.pending = w.pending[:0]
	}
	if !wait.wait(w.stop) {
		return errStopped
	}
	w.shut()
	return w.open(false)
}

// open opens the file and retries until the run stops. It creates the file only at the
// begin: an empty new file would hide that the old file was lost.
func (w *writer) open(create bool) error {
	flags := unix.O_RDWR
	if w.cfg.Mode == OSync {
		flags |= unix.O_SYNC
	}
	return w.retry(func() (err error) {
		w.fd, err = w.openOnce(flags, create)
		return err
	}, func(err error) bool { return create && hopeless(err) })
}

func (w *writer) openOnce(flags int, create bool) (int, error) {
	if !create {
		w.begin("open")
		return open(w.path, flags)
	}
	// Make the directory of the run, never the mount point: without the mount
	// the writer would test the client's own disk.
	dir := filepath.Dir(w.path)
	if err := makeRunDir(w.worker, dir); err != nil {
		return -1, err
	}
	w.begin("create")
	fd, err := open(w.path, flags|unix.O_CREAT|unix.O_EXCL)
	if errors.Is(err, os.ErrExist) {
		// An empty file is ours: the server made it and its answer was lost.
		if fd, err = open(w.path, flags); err == nil {
			var st unix.Stat_t
			if err = unix.Fstat(fd, &st); err == nil && st.Size > 0 {
				err = fmt.Errorf("%s: %w, and no ledger knows it", w.path, errForeignFile)
			}
			if err != nil {
				_ = unix.Close(fd)
			}
		}
	}
	if err != nil {
		return -1, err
	}
	// An fsync of the file need not make its name durable (fsync(2)).
	if err := syncDir(dir); err != nil && !errors.Is(err, unix.EINVAL) {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

var errForeignFile = errors.New("the file exists")

// hopeless reports whether a retry cannot help.
func hopeless(err error) bool {
	for _, e := range []error{unix.EINVAL, unix.EOPNOTSUPP, unix.ENOENT, unix.ENOTDIR, unix.EACCES, unix.EPERM, unix.EROFS, unix.EISDIR, errForeignFile} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// makeRunDir makes <dir>/<run id>, durably.
func makeRunDir(w *worker, dir string) error {
	w.begin("mkdir")
	_, err := retryInterrupted(func() (int, error) { return 0, unix.Mkdir(dir, 0o755) })
	if errors.Is(err, unix.EEXIST) {
		return nil
	}
	if err != nil {
		return &os.PathError{Op: "mkdir", Path: dir, Err: err}
	}
	if err := syncDir(filepath.Dir(dir)); err != nil && !errors.Is(err, unix.EINVAL) {
		return err
	}
	return nil
}

package cache

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/mortarhpc/mortar/internal/base/linux"
)

// fillBlock is the size of a write: much shorter than any stream, and large enough to
// fill a mirror in reasonable time.
const fillBlock = 64 << 10

// Fill fills the mirror with dirty data, for a drill. It stops bcache's writes to the
// disks, and writes the blocks of a new file in random order until bcache takes no
// more. It returns the dirty share of the mirror in percent. Drain undoes it.
func (s *Stack) Fill(ctx context.Context, file string) (int64, error) {
	dirty, room, err := s.mirror()
	if err != nil {
		return 0, err
	}
	if err := s.sys.Poke("/sys/block/"+dirty+"/bcache/writeback_running", "0\n"); err != nil {
		return 0, err
	}
	f, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY|syscall.O_DIRECT|syscall.O_DSYNC, 0o600)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	blocks := int(room / fillBlock)
	if err := syscall.Fallocate(int(f.Fd()), 0, 0, int64(blocks)*fillBlock); err != nil {
		return 0, fmt.Errorf("%s: %w", file, err)
	}
	order := rand.Perm(blocks)
	var next atomic.Int64
	var full atomic.Bool
	var wg sync.WaitGroup
	errs := make([]error, 4)
	for i := range errs {
		wg.Go(func() {
			b := pattern(fillBlock)
			for n := next.Add(1) - 1; n < int64(blocks) && !full.Load() && ctx.Err() == nil; n = next.Add(1) - 1 {
				if _, errs[i] = f.WriteAt(b, int64(order[n])*fillBlock); errs[i] != nil {
					full.Store(true) // stops the other writers and the wait below
					return
				}
			}
		})
	}
	// The mirror is full when dirty data stops growing after it has grown. If it
	// has not grown at all, bcache itself waits, see docs/cache.md.
	for last, was := int64(-1), int64(0); ctx.Err() == nil && !full.Load(); {
		if err := s.sys.Sleep(ctx, 2*time.Second); err != nil {
			break
		}
		now, n := s.dirtyBytes(dirty), next.Load()
		if n == was && n < int64(blocks) {
			continue
		}
		if now <= last {
			break
		}
		last, was = now, n
	}
	full.Store(true)
	wg.Wait()
	return 100 * s.dirtyBytes(dirty) / room, errors.Join(append(errs, ctx.Err())...)
}

// Stall has the dirty layer take no dirty data, and write none to the disks, for a drill: a
// flush that begins waits until the next start. takeWrites, or a start, undoes it.
func (s *Stack) Stall(ctx context.Context) error {
	return s.Locked(ctx, func() error {
		dirty, _, err := s.mirror()
		if err != nil {
			return err
		}
		return s.enter(dirty, stalled)
	})
}

// Drain undoes Fill.
func (s *Stack) Drain(file string) error {
	dirty, _, err := s.mirror()
	if err == nil {
		err = s.sys.Poke("/sys/block/"+dirty+"/bcache/writeback_running", "1\n")
	}
	if e := os.Remove(file); e != nil && !os.IsNotExist(e) {
		err = errors.Join(err, e)
	}
	return err
}

// mirror returns the running dirty layer, and its size in bytes.
func (s *parts) mirror() (dev string, room int64, err error) {
	if err := s.readLabel(); err != nil {
		return "", 0, err
	}
	if _, dev = s.layers(); dev != "" && s.label != nil && s.label.Dirty != nil {
		if a := s.array(s.label.Dirty.Array); a != nil {
			return dev, s.sectors(a.Dev) * 512, nil
		}
	}
	return "", 0, errors.New("no mirror for dirty data is up here")
}

// pattern is a buffer for direct I/O that is not all zeros.
func pattern(n int) []byte {
	b := linux.Aligned(n)
	for i := range b {
		b[i] = byte(i)
	}
	return b
}

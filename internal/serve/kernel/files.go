package kernel

import (
	"context"
	"errors"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/mortarhpc/mortar/internal/base/flock"
	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/base/quick"
)

// files are the files and block devices of the running kernel, and its clock.
type files struct{}

func (files) ReadFile(p string) ([]byte, error) { return quick.ReadFile(p, 0) }

func (files) ReadDir(p string) ([]string, error) {
	f, err := os.Open(p)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := f.Readdirnames(-1) // unlike os.ReadDir no stat of each entry
	slices.Sort(names)
	return names, err
}

func (files) Realpath(p string) (string, error) { return quick.Resolve(p) }

func (files) Poke(p, data string) error {
	f, err := os.OpenFile(p, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(data)
	return errors.Join(err, f.Close())
}

// ReadBlocks reads part of a device, past the page cache: bcache and other servers write
// to the same disks through other devices.
func (files) ReadBlocks(dev string, offset int64, n int) ([]byte, error) {
	f, err := os.OpenFile(dev, os.O_RDONLY|syscall.O_DIRECT, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b := linux.Aligned(n)
	_, err = f.ReadAt(b, offset)
	return b, err
}

// Claimed asks for the device exclusively. bcache has its devices so.
// Source: open(2), O_EXCL on a block device; drivers/md/bcache/super.c, register_bcache
func (files) Claimed(dev string) bool {
	f, err := os.OpenFile(dev, os.O_RDONLY|os.O_EXCL, 0)
	if err != nil {
		return errors.Is(err, syscall.EBUSY)
	}
	f.Close()
	return false
}

// ReadPast reads n blocks of 4 KiB with O_DIRECT, one every step bytes.
func (files) ReadPast(ctx context.Context, dev string, offset, step int64, n int) error {
	f, err := os.OpenFile(dev, os.O_RDONLY|syscall.O_DIRECT, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	var next atomic.Int64
	var wg sync.WaitGroup
	errs := make([]error, 16)
	for w := range errs {
		wg.Go(func() {
			b := linux.Aligned(4096)
			for i := next.Add(1) - 1; i < int64(n) && ctx.Err() == nil && errs[w] == nil; i = next.Add(1) - 1 {
				_, errs[w] = f.ReadAt(b, offset+i*step)
			}
		})
	}
	wg.Wait()
	return errors.Join(append(errs, ctx.Err())...)
}

func (files) WriteBlocks(dev string, offset int64, data []byte) error {
	f, err := os.OpenFile(dev, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(data, offset)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// Lock waits until udev has finished with a whole device and its partitions, and keeps udev
// from opening them, and from making the kernel read the partition table again.
// Source: https://systemd.io/BLOCK_DEVICE_LOCKING
func (files) Lock(ctx context.Context, dev string) (func(), error) {
	f, err := os.Open(dev)
	if err != nil {
		return nil, err
	}
	if err := flock.Wait(ctx, f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() { f.Close() }, nil
}

func (files) Now() time.Time { return time.Now() }

func (files) Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

package cache

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/mortarhpc/mortar/internal/base/command"
	"github.com/mortarhpc/mortar/internal/base/durable"
	"github.com/mortarhpc/mortar/internal/base/flock"
	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/base/quick"
)

// system is the part of the host that the stack needs.
type system interface {
	ReadFile(path string) ([]byte, error)
	ReadDir(path string) ([]string, error)
	Realpath(path string) (string, error)
	// Poke writes to a file of sysfs.
	Poke(path, data string) error
	// WriteFile replaces a file of /run, and makes its directory.
	WriteFile(path string, data []byte) error
	Now() time.Time
	// ReadBlocks reads n bytes with O_DIRECT, a multiple of 4096 at such an offset.
	ReadBlocks(dev string, offset int64, n int) ([]byte, error)
	// Claimed reports whether a driver of the kernel, or a process, has a device for
	// itself.
	Claimed(dev string) bool
	// ReadPast reads n blocks of 4 KiB with O_DIRECT, one every step bytes.
	ReadPast(ctx context.Context, dev string, offset, step int64, n int) error
	// WriteBlocks returns when the data is on stable storage.
	WriteBlocks(dev string, offset int64, data []byte) error
	// Lock keeps udev from opening a whole device and its partitions, and from
	// making the kernel read the partition table again.
	Lock(ctx context.Context, dev string) (unlock func(), err error)
	// Run runs a command and returns its standard output.
	Run(ctx context.Context, stdin string, argv ...string) (string, error)
	Sleep(ctx context.Context, d time.Duration) error
	Hostname() string
}

// Linux is the running kernel.
type Linux struct{}

func (Linux) ReadFile(p string) ([]byte, error) { return quick.ReadFile(p, 0) }

func (Linux) ReadDir(p string) ([]string, error) {
	f, err := os.Open(p)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := f.Readdirnames(-1) // unlike os.ReadDir no stat of each entry
	slices.Sort(names)
	return names, err
}

func (Linux) Realpath(p string) (string, error) { return quick.Resolve(p) }

func (Linux) Poke(p, data string) error {
	f, err := os.OpenFile(p, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(data)
	return errors.Join(err, f.Close())
}

func (Linux) WriteFile(p string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		return err
	}
	return durable.Write(p, durable.File{Content: data, Mode: 0o600, UID: os.Geteuid(), GID: os.Getegid()})
}

func (Linux) Now() time.Time { return time.Now() }

// ReadBlocks reads part of a device, past the page cache: bcache and other servers write
// to the same disks through other devices.
func (Linux) ReadBlocks(dev string, offset int64, n int) ([]byte, error) {
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
func (Linux) Claimed(dev string) bool {
	f, err := os.OpenFile(dev, os.O_RDONLY|os.O_EXCL, 0)
	if err != nil {
		return errors.Is(err, syscall.EBUSY)
	}
	f.Close()
	return false
}

func (Linux) ReadPast(ctx context.Context, dev string, offset, step int64, n int) error {
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

func (Linux) WriteBlocks(dev string, offset int64, data []byte) error {
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

// Lock waits until udev has finished with the device, and keeps it away.
// Source: https://systemd.io/BLOCK_DEVICE_LOCKING
func (Linux) Lock(ctx context.Context, dev string) (func(), error) {
	f, err := os.Open(dev)
	if err != nil {
		return nil, err
	}
	if err := flock.Wait(ctx, f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() { f.Close() }, nil
}

// Run runs a command in this process' group, so that Pacemaker, or the agent of
// package host, kills the command together with this process.
func (Linux) Run(ctx context.Context, stdin string, argv ...string) (string, error) {
	// MDADM_NO_UDEV: mdadm makes its links itself and does not wait for udev, whose
	// queue the resource agent stops during a start. Source: mdadm(8).
	return command.Cmd{Argv: argv, Stdin: []byte(stdin), Env: []string{"MDADM_NO_UDEV=1"}, Group: command.ParentGroup}.Text(ctx)
}

func (Linux) Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// Hostname is the host's name, which is its node name in the cluster.
func (Linux) Hostname() string {
	n, _ := os.Hostname()
	return n
}

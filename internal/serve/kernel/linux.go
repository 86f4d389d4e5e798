package kernel

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	cmd "github.com/mortarhpc/mortar/internal/base/command"
	"github.com/mortarhpc/mortar/internal/base/durable"
	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/base/netns"
	"github.com/mortarhpc/mortar/internal/base/pr"
)

// Linux is the running kernel.
type Linux struct {
	netlink
	files
}

// New is the running kernel.
func New() *Linux { return &Linux{} }

func (*Linux) Readlink(p string) (string, error) { return os.Readlink(p) }

func (*Linux) Access(p string) error {
	var st unix.Statx_t
	// AT_STATX_FORCE_SYNC bypasses the inode cache: an XFS that has shut down
	// then returns an error.
	return unix.Statx(unix.AT_FDCWD, p, unix.AT_STATX_FORCE_SYNC, unix.STATX_BASIC_STATS, &st)
}

func (*Linux) Empty(p string) error { return os.WriteFile(p, nil, 0o644) }

func (*Linux) Symlink(target, p string) error { return durable.Symlink(target, p) }

func (*Linux) Remove(p string) error {
	if err := os.Remove(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (*Linux) Rename(from, to string) error { return os.Rename(from, to) }

func (*Linux) Save(p string, data []byte) error { return save(p, data, 0o644) }

func save(p string, data []byte, mode uint32) error {
	return durable.Write(p, durable.File{Content: data, Mode: mode, UID: os.Geteuid(), GID: os.Getegid()})
}

func (*Linux) Free(p string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(p, &st); err != nil {
		return 0, &os.PathError{Op: "statfs", Path: p, Err: err}
	}
	return int64(st.Bavail) * st.Bsize, nil
}

func (*Linux) Reserve(p string, size int64) error {
	f, err := os.OpenFile(p, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil || st.Size() >= size {
		return err
	}
	if err := unix.Fallocate(int(f.Fd()), 0, 0, size); err != nil {
		return &os.PathError{Op: "fallocate", Path: p, Err: err}
	}
	return nil
}

func (*Linux) Size(p string) (int64, error) {
	st, err := os.Stat(p)
	if err != nil {
		return 0, err
	}
	return st.Size(), nil
}

func (*Linux) Fill(p string, size int64) (err error) {
	f, err := os.OpenFile(p, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := unix.Fallocate(int(f.Fd()), 0, 0, size); err != nil {
		return err // before a full file system has taken a block
	}
	zeros := make([]byte, 1<<20)
	for left := size; left > 0; left -= int64(len(zeros)) {
		if _, err := f.Write(zeros[:min(left, int64(len(zeros)))]); err != nil {
			return err
		}
	}
	return f.Sync()
}

func (*Linux) SyncDir(p string) error { return durable.SyncDir(filepath.Dir(p)) }

func (k *Linux) Mkdir(p string, mode uint32, uid, gid int) error {
	if err := os.MkdirAll(p, 0o755); err != nil {
		return err
	}
	if mode != 0 {
		if err := os.Chmod(p, os.FileMode(mode)); err != nil {
			return err
		}
	}
	if uid < 0 {
		return nil
	}
	if err := k.Own(p, uid, gid); err != nil {
		return err
	}
	entries, err := os.ReadDir(p)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Type().IsRegular() {
			if err := k.Own(filepath.Join(p, e.Name()), uid, gid); err != nil {
				return err
			}
		}
	}
	return nil
}

func (*Linux) Own(p string, uid, gid int) error {
	var st unix.Stat_t
	if err := unix.Lstat(p, &st); err != nil {
		return &fs.PathError{Op: "lstat", Path: p, Err: err}
	}
	if int(st.Uid) == uid && int(st.Gid) == gid {
		return nil
	}
	return os.Lchown(p, uid, gid)
}

func (*Linux) Path(dev string) pr.Path { return pr.Device(dev) }

func (*Linux) Mount(source, target, fstype string, flags uintptr, data string) error {
	return unix.Mount(source, target, fstype, flags, data)
}

func (*Linux) MountImage(image, target, fstype string, flags uintptr, data string) error {
	f, err := os.OpenFile(image, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	dev, err := attach(f)
	if err != nil {
		return err
	}
	defer dev.Close() // the mount has it open, too, or it goes away
	return unix.Mount(dev.Name(), target, fstype, flags, data)
}

// attach makes a loop device of a file, which goes away when no process has it open.
//
// Source: loop(4)
func attach(image *os.File) (*os.File, error) {
	ctl, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer ctl.Close()
	for try := 0; ; try++ {
		n, err := unix.IoctlRetInt(int(ctl.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, os.NewSyscallError("LOOP_CTL_GET_FREE", err)
		}
		dev, err := os.OpenFile(fmt.Sprintf("/dev/loop%d", n), os.O_RDWR, 0)
		if err == nil {
			c := unix.LoopConfig{Fd: uint32(image.Fd()), Size: 4096, Info: unix.LoopInfo64{Flags: unix.LO_FLAGS_AUTOCLEAR | unix.LO_FLAGS_DIRECT_IO}}
			copy(c.Info.File_name[:], image.Name())
			if err = unix.IoctlLoopConfigure(int(dev.Fd()), &c); err == nil {
				err = os.WriteFile(fmt.Sprintf("/sys/block/loop%d/queue/discard_max_bytes", n), []byte("0"), 0)
			}
			if err == nil {
				return dev, nil
			}
			dev.Close()
		}
		if !errors.Is(err, unix.EBUSY) || try == 20 { // another process was faster
			return nil, fmt.Errorf("loop device of %s: %w", image.Name(), err)
		}
	}
}

func (*Linux) Unmount(target string) error { return unix.Unmount(target, unix.UMOUNT_NOFOLLOW) }

func (*Linux) Executable(name string) (string, error) { return cmd.LookPath(name) }

// process makes the command for package cmd, in a network namespace if one is
// named. It gets its own session unless it ends together with this process: Pacemaker
// kills the process group of a late agent, and daemons begin as children of this process.
func (c Command) process(namespace string) cmd.Cmd {
	p := cmd.Cmd{Argv: c.Argv, Stdin: []byte(c.Stdin), Env: c.Env, Group: cmd.OwnSession, Limit: cmp.Or(c.Limit, 64<<10)}
	if c.Together {
		p.Group = cmd.ParentGroup
	}
	if c.Nodename != "" || len(c.Binds) > 0 || namespace != "" {
		p.Launch = func(start func() error) error { return c.launch(start, namespace) }
	}
	return p
}

func (k *Linux) Run(ctx context.Context, c Command) (string, error) { return run(ctx, c, "") }

func run(ctx context.Context, c Command, namespace string) (string, error) {
	out, err := c.process(namespace).Text(ctx)
	return strings.TrimSpace(out), err
}

// launch starts a process from a thread that has the namespaces and mounts of
// the command.
func (c Command) launch(start func() error, namespace string) error {
	return netns.OnThread(func() error {
		if namespace != "" {
			if err := netns.Enter(namespace); err != nil {
				return err
			}
		}
		if len(c.Binds) > 0 {
			if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
				return fmt.Errorf("mount namespace: %w", err)
			}
			// An unmount on the host reaches the process, so that it keeps no
			// file system alive; mounts of the process do not reach the host.
			if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
				return fmt.Errorf("mount --make-rslave /: %w", err)
			}
			for _, b := range c.Binds {
				if err := unix.Mount(b.From, b.At, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
					return fmt.Errorf("mount --rbind %s %s: %w", b.From, b.At, err)
				}
			}
		}
		if c.Nodename != "" {
			if err := unix.Unshare(unix.CLONE_NEWUTS); err != nil {
				return fmt.Errorf("UTS namespace: %w", err)
			}
			if err := unix.Sethostname([]byte(c.Nodename)); err != nil {
				return err
			}
		}
		return start()
	})
}

func (k *Linux) Start(c Command) error { return start(c, "") }

func start(c Command, namespace string) error {
	p, err := c.process(namespace).Start()
	if err == nil {
		// A daemon that dies must not keep its name as a zombie.
		go p.Wait()
	}
	return err
}

func (*Linux) Ports(ctx context.Context, programs []Program) ([]uint16, error) {
	return portsOf(ctx, rpcbindAddr, programs)
}

func (*Linux) Null(ctx context.Context, at netip.AddrPort, p Program) error {
	return callNull(ctx, at, p)
}

func (*Linux) Kill(pid int, sig syscall.Signal) error { return unix.Kill(pid, sig) }

func (*Linux) Hostname() (string, error) { return os.Hostname() }

// writeRead writes a block to a file and reads it back, past all caches.
func writeRead(name string) error {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR|unix.O_DIRECT|unix.O_DSYNC, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	want, got := linux.Aligned(4096), linux.Aligned(4096)
	rand.Read(want)
	if _, err := f.WriteAt(want, 0); err != nil {
		return err
	}
	if _, err := f.ReadAt(got, 0); err != nil {
		return err
	}
	if !bytes.Equal(want, got) {
		return fmt.Errorf("%s: read back something else than was written", name)
	}
	return nil
}

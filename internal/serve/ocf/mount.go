package ocf

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mortarhpc/mortar/internal/base/linux"
)

func (s *Host) mounts() ([]linux.Mount, error) {
	b, err := s.k.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	return linux.ParseMountInfo(string(b)), nil
}

// mountedAt is the uppermost mount at a path; nil for none.
func mountedAt(all []linux.Mount, target string) *linux.Mount {
	if m, ok := linux.MountAt(all, target); ok {
		return &m
	}
	return nil
}

// volumePath is the name the volume is mounted by, which users then see. udev
// makes it too, the same, but later.
func (s *Host) volumePath(dev string) string {
	name := "/dev/mapper/" + s.line("/sys/block/"+dev+"/dm/name")
	if real, err := s.k.Realpath(name); err == nil && real == "/dev/"+dev {
		return name
	}
	if err := s.k.Symlink("../"+dev, name); err != nil {
		s.log.note("%s: %v", name, err)
		return "/dev/" + dev
	}
	return name
}

// mountOptions splits options as mount(8) does: flags of mount(2) and those
// the file system reads itself. What only mount(8) or systemd reads is left
// out.
func mountOptions(opts []string) (flags uintptr, data string) {
	set := map[string]uintptr{
		"noatime": unix.MS_NOATIME, "nodiratime": unix.MS_NODIRATIME, "relatime": unix.MS_RELATIME,
		"strictatime": unix.MS_STRICTATIME, "lazytime": unix.MS_LAZYTIME, "nosuid": unix.MS_NOSUID,
		"nodev": unix.MS_NODEV, "noexec": unix.MS_NOEXEC, "sync": unix.MS_SYNCHRONOUS, "dirsync": unix.MS_DIRSYNC,
	}
	var rest []string
	for _, o := range opts {
		switch {
		case set[o] != 0:
			flags |= set[o]
		case o == "defaults", o == "rw", o == "auto", o == "noauto", o == "nofail", o == "_netdev", strings.HasPrefix(o, "x-"), o == "":
		default:
			rest = append(rest, o)
		}
	}
	return flags, strings.Join(rest, ",")
}

// unmount unmounts what ours finds among the mounts, until it finds nothing.
// It asks the processes that still use it to end, then kills them. It spares the watcher: that
// ends its write by itself, or waits for a disk and obeys no signal. It never unmounts lazily:
// the file system would stay alive, and write, while the partner mounts it.
func (s *Host) unmount(ctx context.Context, at string, ours func([]linux.Mount) []string, users func() []user) error {
	start := s.k.Now()
	for {
		all, err := s.mounts()
		if err != nil {
			return err
		}
		targets := ours(all)
		if len(targets) == 0 {
			return nil
		}
		var last error
		progress := false
		for i := len(targets) - 1; i >= 0; i-- {
			if err := s.k.Unmount(targets[i]); err != nil {
				last = fmt.Errorf("umount %s: %w", targets[i], err)
			} else {
				progress = true
			}
		}
		if progress {
			continue
		}
		if !errors.Is(last, unix.EBUSY) {
			return last
		}
		waited := s.k.Now().Sub(start)
		by := users()
		if ctx.Err() != nil || waited > s.patience(ctx) {
			return fmt.Errorf("%w; used by %s", last, describe(by))
		}
		// One round of asking; from then on insist.
		sig := unix.SIGTERM
		if waited > 2*time.Second {
			sig = unix.SIGKILL
		}
		for _, u := range by {
			if s.watches(u.pid) {
				continue
			}
			s.log.note("%s is busy: signal %d to process %d (%s)", at, sig, u.pid, u.name)
			if err := s.k.Kill(u.pid, sig); err != nil {
				s.log.note("process %d: %v", u.pid, err)
			}
		}
		if s.k.Sleep(ctx, 500*time.Millisecond) != nil {
			return fmt.Errorf("%w; used by %s", last, describe(by))
		}
	}
}

// ended waits until the kernel has ended the file system on a device, which
// fstype's directory in /sys/fs lists. A mount in another namespace keeps the
// file system alive although it is gone from ours; and the kernel ends one, with
// what nfsd knew of it, some time after its last process.
func (s *Host) ended(ctx context.Context, fstype, dev, at string) error {
	for start := s.k.Now(); ; {
		if _, err := s.k.ReadDir("/sys/fs/" + fstype + "/" + dev); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if s.k.Now().Sub(start) > s.patience(ctx) || s.k.Sleep(ctx, 100*time.Millisecond) != nil {
			return fmt.Errorf("the file system of %s is still active on %s: mounted in another mount namespace?", at, dev)
		}
	}
}

// user is a process that uses a file system.
type user struct {
	pid  int
	name string
}

// watches says whether a process is the watcher.
func (s *Host) watches(pid int) bool {
	b, err := s.k.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	return err == nil && called(splitArgs(b), watchAction)
}

func describe(users []user) string {
	if len(users) == 0 {
		return "no process that can be found"
	}
	var out []string
	for _, u := range users {
		out = append(out, fmt.Sprintf("%d (%s)", u.pid, u.name))
	}
	return strings.Join(out, ", ")
}

// users finds the processes with a working directory, root, program, open or
// mapped file on a file system, as fuser -m does.
func (s *Host) users(devno string) []user {
	all, err := s.mounts()
	if err != nil {
		return nil
	}
	var roots []string
	for _, m := range all {
		if m.Dev == devno {
			roots = append(roots, m.Target)
		}
	}
	on := func(p string) bool {
		p = strings.TrimSuffix(p, " (deleted)")
		for _, r := range roots {
			if p == r || below(r, p) {
				return true
			}
		}
		return false
	}
	var out []user
	for _, pid := range s.pids() {
		if pid == s.self || pid == 1 {
			continue
		}
		dir := "/proc/" + strconv.Itoa(pid) + "/"
		used := false
		for _, l := range []string{"cwd", "root", "exe"} {
			if t, err := s.k.Readlink(dir + l); err == nil && on(t) {
				used = true
			}
		}
		if fds, err := s.k.ReadDir(dir + "fd"); err == nil && !used {
			for _, fd := range fds {
				if t, err := s.k.Readlink(dir + "fd/" + fd); err == nil && on(t) {
					used = true
					break
				}
			}
		}
		if !used {
			maps, _ := s.k.ReadFile(dir + "maps")
			for line := range strings.SplitSeq(string(maps), "\n") {
				if f := strings.Fields(line); len(f) >= 6 && on(strings.Join(f[5:], " ")) {
					used = true
					break
				}
			}
		}
		if used {
			out = append(out, user{pid, s.line(dir + "comm")})
		}
	}
	return out
}

// watchAction is the agent calling itself, as the process that stays.
const watchAction = "_watch"

// called says whether these are the arguments of a process that stays.
func called(args []string, action string) bool {
	return len(args) > 2 && args[1] == "ocf" && args[2] == action
}

// splitArgs splits the content of a process's file cmdline.
func splitArgs(cmdline []byte) []string {
	return strings.Split(strings.TrimSuffix(string(cmdline), "\x00"), "\x00")
}

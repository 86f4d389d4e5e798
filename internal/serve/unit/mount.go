package unit

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/base/lists"
)

func (s *Host) Mounts() ([]linux.Mount, error) {
	b, err := s.K.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	return linux.ParseMountInfo(string(b)), nil
}

// MountedAt is the uppermost mount at a path; nil for none.
func MountedAt(all []linux.Mount, target string) *linux.Mount {
	if m, ok := linux.MountAt(all, target); ok {
		return &m
	}
	return nil
}

// VolumePath is the name the volume is mounted by, which users then see. udev
// makes it too, the same, but later.
func (s *Host) VolumePath(dev string) string {
	name := "/dev/mapper/" + s.Line("/sys/block/"+dev+"/dm/name")
	if real, err := s.K.Realpath(name); err == nil && real == "/dev/"+dev {
		return name
	}
	if err := s.K.Symlink("../"+dev, name); err != nil {
		s.Log.Note("%s: %v", name, err)
		return "/dev/" + dev
	}
	return name
}

// MountOptions splits options as mount(8) does: flags of mount(2) and those
// the file system reads itself. What only mount(8) or systemd reads is left
// out.
func MountOptions(opts []string) (flags uintptr, data string) {
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

// Unmount unmounts what ours finds among the mounts, until it finds nothing.
// It asks the processes that still use it to end, then kills them. It spares the watcher: that
// ends its write by itself, or waits for a disk and obeys no signal. It never unmounts lazily:
// the file system would stay alive, and write, while the partner mounts it.
func (s *Host) Unmount(ctx context.Context, at string, ours func([]linux.Mount) []string, users func() []User) error {
	start := s.K.Now()
	for {
		all, err := s.Mounts()
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
			if err := s.K.Unmount(targets[i]); err != nil {
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
		waited := s.K.Now().Sub(start)
		by := users()
		if ctx.Err() != nil || waited > s.patience(ctx) {
			return fmt.Errorf("%w; used by %s", last, Describe(by))
		}
		// One round of asking; from then on insist.
		sig := unix.SIGTERM
		if waited > 2*time.Second {
			sig = unix.SIGKILL
		}
		for _, u := range by {
			if s.Watches(u.PID) {
				continue
			}
			s.Log.Note("%s is busy: signal %d to process %d (%s)", at, sig, u.PID, u.Name)
			s.Log.NoteErr(s.K.Kill(u.PID, sig), "process %d", u.PID)
		}
		if s.K.Sleep(ctx, 500*time.Millisecond) != nil {
			return fmt.Errorf("%w; used by %s", last, Describe(by))
		}
	}
}

// Ended waits until the kernel has ended the file system on a device, which
// fstype's directory in /sys/fs lists. A mount in another namespace keeps the
// file system alive although it is gone from ours; and the kernel ends one, with
// what nfsd knew of it, some time after its last process.
func (s *Host) Ended(ctx context.Context, fstype, dev, at string) error {
	for start := s.K.Now(); ; {
		if _, err := s.K.ReadDir("/sys/fs/" + fstype + "/" + dev); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if s.K.Now().Sub(start) > s.patience(ctx) || s.K.Sleep(ctx, 100*time.Millisecond) != nil {
			return fmt.Errorf("the file system of %s is still active on %s: mounted in another mount namespace?", at, dev)
		}
	}
}

// User is a process that uses a file system.
type User struct {
	PID  int
	Name string
}

func (s *Host) Watches(pid int) bool {
	b, err := s.K.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	return err == nil && Called(SplitArgs(b), WatchAction)
}

func Describe(users []User) string {
	if len(users) == 0 {
		return "no process that can be found"
	}
	out := lists.Map(users, func(u User) string { return fmt.Sprintf("%d (%s)", u.PID, u.Name) })
	return strings.Join(out, ", ")
}

// Users finds the processes with a working directory, root, program, open or
// mapped file on a file system, as fuser -m does.
func (s *Host) Users(devno string) []User {
	all, err := s.Mounts()
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
		return slices.ContainsFunc(roots, func(r string) bool { return p == r || Below(r, p) })
	}
	var out []User
	for _, pid := range s.Pids() {
		if pid == s.Self || pid == 1 {
			continue
		}
		dir := "/proc/" + strconv.Itoa(pid) + "/"
		used := false
		for _, l := range []string{"cwd", "root", "exe"} {
			if t, err := s.K.Readlink(dir + l); err == nil && on(t) {
				used = true
			}
		}
		if fds, err := s.K.ReadDir(dir + "fd"); err == nil && !used {
			for _, fd := range fds {
				if t, err := s.K.Readlink(dir + "fd/" + fd); err == nil && on(t) {
					used = true
					break
				}
			}
		}
		if !used {
			maps, _ := s.K.ReadFile(dir + "maps")
			for line := range strings.SplitSeq(string(maps), "\n") {
				if f := strings.Fields(line); len(f) >= 6 && on(strings.Join(f[5:], " ")) {
					used = true
					break
				}
			}
		}
		if used {
			out = append(out, User{pid, s.Line(dir + "comm")})
		}
	}
	return out
}

// WatchAction is the agent calling itself, as the process that stays.
const WatchAction = "_watch"

// Called says whether these are the arguments of a process that stays.
func Called(args []string, action string) bool {
	return len(args) > 2 && args[1] == "ocf" && args[2] == action
}

// SplitArgs splits the content of a process's file cmdline.
func SplitArgs(cmdline []byte) []string {
	return strings.Split(strings.TrimSuffix(string(cmdline), "\x00"), "\x00")
}

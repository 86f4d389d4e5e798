// Package netns makes network namespaces that have a name, as ip-netns(8)
// keeps them, and runs code inside of them. It knows nothing of what they
// are for.
package netns

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"
)

// Dir is where namespaces are kept by name: ip-netns(8) shows these too.
const Dir = "/run/netns"

// Path returns the file below Dir that keeps the namespace alive.
func Path(name string) string { return filepath.Join(Dir, name) }

// OnThread calls f on a thread of its own that ends with the call: whatever
// f changes of the thread (namespaces, root) cannot reach other code. What f
// starts (processes, sockets) begins with what the thread has by then.
func OnThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			// The main thread would not end, and /proc/self is what it sees.
			// While it waits here, it cannot be chosen again.
			done <- OnThread(f)
			runtime.UnlockOSThread()
			return
		}
		// Never unlocked: a locked thread ends with its goroutine.
		done <- f()
	}()
	return <-done
}

// Enter moves the calling thread, which is one of OnThread's, into a
// namespace. Source: setns(2).
func Enter(name string) error {
	if name != filepath.Base(name) {
		return fmt.Errorf("%q is no name of a network namespace", name)
	}
	f, err := os.Open(Path(name))
	if err != nil {
		return fmt.Errorf("network namespace %s: %w", name, err)
	}
	defer f.Close()
	if err := unix.Setns(int(f.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("entering network namespace %s: %w", name, err)
	}
	return nil
}

// Do calls f inside the namespace. Sockets and processes that f creates stay in
// it.
func Do(name string, f func() error) error {
	return OnThread(func() error {
		if err := Enter(name); err != nil {
			return err
		}
		return f()
	})
}

// ID is what /proc/PID/ns/net of a process in a namespace links to. It fails
// with fs.ErrNotExist if there is no namespace of the name.
func ID(name string) (string, error) {
	var st unix.Stat_t
	var vfs unix.Statfs_t
	p := Path(name)
	if err := unix.Stat(p, &st); err != nil {
		return "", &fs.PathError{Op: "stat", Path: p, Err: err}
	}
	if err := unix.Statfs(p, &vfs); err != nil {
		return "", &fs.PathError{Op: "statfs", Path: p, Err: err}
	}
	if vfs.Type != unix.NSFS_MAGIC {
		// The file stays behind when the maker of a namespace is interrupted.
		return "", &fs.PathError{Op: "open", Path: p, Err: fs.ErrNotExist}
	}
	return fmt.Sprintf("net:[%d]", st.Ino), nil
}

// OfProcess returns the ID of the namespace that a process is in.
func OfProcess(pid string) (string, error) { return os.Readlink("/proc/" + pid + "/ns/net") }

// Processes lists the processes that live in a namespace.
func Processes(name string) ([]string, error) {
	id, err := ID(name)
	if err != nil {
		return nil, err
	}
	links, err := filepath.Glob("/proc/[0-9]*/ns/net")
	if err != nil {
		return nil, err
	}
	var in []string
	for _, link := range links {
		pid := filepath.Base(filepath.Dir(filepath.Dir(link)))
		// A process that has ended since the listing is in no namespace.
		if of, err := OfProcess(pid); err == nil && of == id {
			in = append(in, pid)
		}
	}
	return in, nil
}

// Make creates a namespace. Its only interface is lo, which is down.
func Make(name string) error {
	p := Path(name)
	if err := os.MkdirAll(Dir, 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(p, os.O_CREATE|os.O_RDONLY, 0o444)
	if err != nil {
		return err
	}
	f.Close()
	return OnThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("making network namespace %s: %w", name, err)
		}
		if err := unix.Mount("/proc/thread-self/ns/net", p, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("keeping network namespace %s: %w", name, err)
		}
		return nil
	})
}

// Remove gives up a namespace: it ends with the last process in it. One that
// is not there is no error.
func Remove(name string) error {
	p := Path(name)
	// More than one mount if /run/netns itself is mounted over /run.
	for range 8 {
		// It holds no data, so a lazy unmount takes nothing from anybody.
		if err := unix.Unmount(p, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
			if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
				break
			}
			return fmt.Errorf("umount %s: %w", p, err)
		}
	}
	if err := os.Remove(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

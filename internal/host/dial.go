package host

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"
)

// netnsDir is where ip-netns(8) keeps its namespaces.
const netnsDir = "/run/netns"

// dial opens a TCP connection, from the target's network namespace.
func dial(ctx context.Context, t Target) (net.Conn, error) {
	addr := net.JoinHostPort(t.Address, fmt.Sprint(t.port()))
	var d net.Dialer
	if t.NetNS == "" {
		return d.DialContext(ctx, "tcp", addr)
	}
	// A name would be looked up by other threads, in another namespace.
	if _, err := netip.ParseAddr(t.Address); err != nil {
		return nil, fmt.Errorf("a host in a network namespace needs an IP address, not %q", t.Address)
	}
	return inNetNS(t.NetNS, func() (net.Conn, error) { return d.DialContext(ctx, "tcp", addr) })
}

// inNetNS runs f on a thread that is in another network namespace. Source:
// setns(2), network_namespaces(7): the namespace is the thread's, and a
// socket stays in that which made it.
func inNetNS(name string, f func() (net.Conn, error)) (net.Conn, error) {
	if name != filepath.Base(name) {
		return nil, fmt.Errorf("%q is no name of a network namespace", name)
	}
	type result struct {
		conn net.Conn
		err  error
	}
	done := make(chan result, 1)
	go func() {
		runtime.LockOSThread()
		home, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			runtime.UnlockOSThread()
			done <- result{nil, fmt.Errorf("own network namespace: %w", err)}
			return
		}
		defer unix.Close(home)
		away, err := unix.Open(filepath.Join(netnsDir, name), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			runtime.UnlockOSThread()
			done <- result{nil, fmt.Errorf("network namespace %s: %w", name, err)}
			return
		}
		defer unix.Close(away)
		if err := unix.Setns(away, unix.CLONE_NEWNET); err != nil {
			runtime.UnlockOSThread()
			done <- result{nil, fmt.Errorf("network namespace %s: setns: %w", name, err)}
			return
		}
		conn, err := f()
		// A thread that cannot come home is never unlocked: it ends with this
		// goroutine, so that no other one ever runs in the wrong namespace.
		if unix.Setns(home, unix.CLONE_NEWNET) == nil {
			runtime.UnlockOSThread()
		}
		done <- result{conn, err}
	}()
	r := <-done
	return r.conn, r.err
}

package host

import (
	"context"
	"fmt"
	"net"
	"net/netip"

	"github.com/mortarhpc/mortar/internal/base/netns"
)

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
	var conn net.Conn
	err := netns.Do(t.NetNS, func() (err error) {
		conn, err = d.DialContext(ctx, "tcp", addr)
		return err
	})
	return conn, err
}

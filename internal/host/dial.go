package host

import (
	"context"
	"fmt"
	"net"
	"net/netip"

	"github.com/mortarhpc/mortar/internal/base/netns"
	"github.com/mortarhpc/mortar/internal/brick/spec"
)

// dialIn opens a TCP connection, from a network namespace if one is named.
func dialIn(ctx context.Context, ns, address, port string) (net.Conn, error) {
	addr := net.JoinHostPort(address, port)
	var d net.Dialer
	if ns == "" {
		return d.DialContext(ctx, "tcp", addr)
	}
	// A name would be looked up by other threads, in another namespace.
	if _, err := netip.ParseAddr(address); err != nil {
		return nil, fmt.Errorf("a host in a network namespace needs an IP address, not %q", address)
	}
	var conn net.Conn
	err := netns.Do(ns, func() (err error) {
		conn, err = d.DialContext(ctx, "tcp", addr)
		return err
	})
	return conn, err
}

// ManagementDial opens TCP connections to addresses of the brick's management
// network: those of arrays, which are no hosts.
func ManagementDial(s *spec.Spec) (func(ctx context.Context, network, address string) (net.Conn, error), error) {
	all, err := Inventory(s)
	if err != nil {
		return nil, err
	}
	ns := ""
	for _, t := range all {
		ns = t.NetNS // a rack has one for all its hosts
	}
	return func(ctx context.Context, _, address string) (net.Conn, error) {
		name, port, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		return dialIn(ctx, ns, name, port)
	}, nil
}

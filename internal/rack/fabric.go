package rack

import (
	"context"
	"net"
	"net/netip"
	"strconv"

	"github.com/mortarhpc/mortar/internal/rack/array"
	"github.com/mortarhpc/mortar/internal/rack/hw"
	"github.com/mortarhpc/mortar/internal/rack/tool"
)

// startFabric starts an array's host ports unless they are there.
func startFabric(ctx context.Context, r *rack, e *hw.Enclosure) error {
	name := fabricName(e.Name)
	if tool.Running(r.dir, name) != nil {
		return nil
	}
	index := r.cfg.ArrayIndex(e.Name)
	return tool.StartDaemon(ctx, r.dir, r.cfg.Netns(), name, func() bool {
		return r.listensTCP(netip.AddrPortFrom(hw.ArrayNet(index, hw.LinkHost), hw.ISCSIPort+hw.Controllers-1))
	}, tool.SelfBinary(r.dir), "rack", "_fabric", r.dir, e.Name, tool.PidFile(r.dir, name))
}

// ServeFabric is the hidden command that serves the host ports of an array. It runs
// inside the rack's network namespace until it is killed.
func ServeFabric(ctx context.Context, dir, name string) error {
	r, err := openChild(dir)
	if err != nil {
		return err
	}
	index := r.cfg.ArrayIndex(name)
	if index < 0 {
		return tool.Refuse("there is no array %q", name)
	}
	failed := make(chan error)
	for c := range hw.Controllers {
		l, err := net.Listen("tcp", net.JoinHostPort(hw.ArrayNet(index, hw.LinkHost).String(), strconv.Itoa(hw.ISCSIPort+c)))
		if err != nil {
			return err
		}
		go func() {
			failed <- array.ServePort(l, net.JoinHostPort(hw.ArrayNet(index, hw.LinkPortal+c).String(), strconv.Itoa(hw.ISCSIPort)))
		}()
	}
	m := r.cfg.Arrays()[index].Array.Management
	if m != nil && m.SMcli {
		for c := range m.Addresses {
			go func() { failed <- serveSMcli(ctx, r, r.cfg.Arrays()[index], c) }()
		}
	} else if m != nil {
		password, err := tool.EnsureSecret(m.PasswordFile)
		if err != nil {
			return err
		}
		for c := range m.Addresses {
			go func() { failed <- serveManagement(r, r.cfg.Arrays()[index], c, password) }()
		}
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case err := <-failed:
		return err
	}
}

package rack

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/netns"
	"github.com/mortarhpc/mortar/internal/rack/hw"
	"github.com/mortarhpc/mortar/internal/rack/qemu"
	"github.com/mortarhpc/mortar/internal/rack/tool"
)

// ownerMark is the alias of the rack's management bridge. It identifies the rack that
// owns the namespace.
func ownerMark(dir string) string {
	return "mortar rack " + fmt.Sprintf("%x", sha256.Sum256([]byte(dir)))[:16]
}

// networkCommands are the lines for "ip -batch" that build the switches and
// the nodes' cables inside the namespace.
func networkCommands(c *hw.Config, dir string) []string {
	cmds := []string{"link set lo up"}
	for i, n := range c.Networks {
		br := hw.BridgeName(n.Name)
		// No spanning tree and no learning delay: a port forwards at once.
		// The address is always the same: nodes that are restored remember it.
		cmds = append(cmds, fmt.Sprintf("link add %s address 02:6d:6f:72:74:%02x type bridge stp_state 0 forward_delay 0 mcast_snooping 0", br, i+1))
		if n.Admin.IsValid() {
			cmds = append(cmds,
				"link set "+br+` alias "`+ownerMark(dir)+`"`,
				"addr add "+n.Admin.String()+" dev "+br)
		}
		cmds = append(cmds, fmt.Sprintf("link set %s mtu %d up", br, n.MTU))
	}
	for i := range c.Arrays() {
		tap := qemu.ArrayTap(i)
		cmds = append(cmds, "tuntap add dev "+tap+" mode tap",
			fmt.Sprintf("link set %s mtu %d up", tap, hw.MaxMTU), fmt.Sprintf("addr add %s/24 dev %s", hw.ArrayNet(i, hw.LinkHost), tap))
	}
	for i, n := range c.Nodes {
		for j, nic := range n.NICs {
			tap := hw.TapName(i, j)
			cmds = append(cmds,
				"tuntap add dev "+tap+" mode tap",
				fmt.Sprintf("link set %s mtu %d master %s up", tap, c.MTU(nic.Network), hw.BridgeName(nic.Network)))
		}
	}
	return cmds
}

func netnsExists(name string) bool {
	_, err := os.Stat(filepath.Join("/run/netns", name))
	return err == nil
}

// netnsOwner reports whether the namespace has an owner mark, and whether the mark is
// ours. A builder that was killed before the marking leaves a namespace without one.
func netnsOwner(c *hw.Config, dir string) (ours, marked bool, err error) {
	alias := ""
	err = netns.Do(c.Netns(), func() error {
		// /sys shows the namespace in which it was mounted, so ask ip.
		out, err := tool.Output(context.Background(), nil, "ip", "-d", "link", "show", hw.BridgeName(c.AdminNetwork().Name))
		if err == nil {
			alias = string(out)
		}
		return nil
	})
	marked = strings.Contains(alias, "mortar rack ")
	return strings.Contains(alias, ownerMark(dir)), marked, err
}

// checkNetns refuses a namespace in which another rack runs. A running rack always
// has processes in its namespace: those of its management hardware. A namespace
// without a process is left from a reboot or a kill, and Up makes it again.
func checkNetns(c *hw.Config, dir string) error {
	if !netnsExists(c.Netns()) {
		return nil
	}
	if ours, marked, err := netnsOwner(c, dir); err != nil || !marked || ours {
		return nil
	}
	pids, err := netns.Processes(c.Netns())
	if err != nil || len(pids) == 0 {
		return err
	}
	return tool.Refuse("network namespace %s belongs to a rack in another directory (process %s runs in it): take that one down, or give this brick another name",
		c.Netns(), pids[0])
}

// lockName keeps other processes from making a rack of the same name while this rack
// has no process in its namespace yet.
func lockName(ctx context.Context, c *hw.Config) (unlock func(), err error) {
	if err := os.MkdirAll(locksDir, 0o700); err != nil {
		return nil, err
	}
	return lockFor(ctx, nameLock(c), "building a rack named "+c.Name)
}

// locksDir holds the locks of the racks' names, which are unique on the machine.
const locksDir = "/run/mortar/racks"

func nameLock(c *hw.Config) string { return filepath.Join(locksDir, c.Netns()+".lock") }

// ensureNetwork builds the namespace with everything in it, unless it is complete.
func ensureNetwork(ctx context.Context, r *rack) error {
	ns := r.cfg.Netns()
	if netnsExists(ns) {
		if err := checkNetns(r.cfg, r.dir); err != nil {
			return err
		}
		if ours, _, err := netnsOwner(r.cfg, r.dir); err == nil && ours && r.taps(ctx) {
			return nil
		}
		// Incomplete: make it again.
		if err := tool.Run(ctx, "ip", "netns", "del", ns); err != nil {
			return err
		}
	}
	if err := tool.Run(ctx, "ip", "netns", "add", ns); err != nil {
		return err
	}
	return r.ip(ctx, networkCommands(r.cfg, r.dir)...)
}

// taps reports whether the last device that ensureNetwork makes exists.
func (r *rack) taps(ctx context.Context) bool {
	i := len(r.cfg.Nodes) - 1
	j := len(r.cfg.Nodes[i].NICs) - 1
	return r.ip(ctx, "link show "+hw.TapName(i, j)) == nil
}

// ip runs commands of ip(8) inside the rack's namespace.
func (r *rack) ip(ctx context.Context, commands ...string) error {
	in := strings.Join(commands, "\n") + "\n"
	_, err := tool.Output(ctx, []byte(in), "ip", "-n", r.cfg.Netns(), "-batch", "-")
	return err
}

// hostAddress adds the address of a BMC or a PDU on the management network, or
// removes it, so that a device without power does not even answer ARP.
func (r *rack) hostAddress(ctx context.Context, a netip.Addr, on bool) error {
	dev := hw.BridgeName(r.cfg.AdminNetwork().Name)
	p := netip.PrefixFrom(a, a.BitLen()).String()
	if on {
		// replace, unlike add, succeeds if the address exists.
		return r.ip(ctx, "addr replace "+p+" dev "+dev)
	}
	out, err := tool.Output(ctx, nil, "ip", "-n", r.cfg.Netns(), "-o", "addr", "show", "dev", dev)
	if err != nil || !strings.Contains(string(out), " "+strings.TrimSuffix(p, "/32")) {
		return err
	}
	return r.ip(ctx, "addr del "+p+" dev "+dev)
}

// removeNetns removes the rack's namespace, unless it belongs to another rack.
func removeNetns(ctx context.Context, c *hw.Config, dir string) error {
	if !netnsExists(c.Netns()) {
		return nil
	}
	ours, marked, err := netnsOwner(c, dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil && marked && !ours {
		return nil
	}
	// A name that "ip netns add" left without its namespace is removed too.
	return tool.Run(ctx, "ip", "netns", "del", c.Netns())
}

package discover

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/host/resource/storage"
)

// network is an IP network with the hosts' interfaces on it.
type network struct {
	netip.Prefix
	on map[string]at // by host
}

type at struct {
	netip.Addr
	storage.NIC
}

// networks of a brick; Private is nil if there is none.
type networks struct {
	Public, Management, Private *network
	Others                      []*network // other candidates
}

// Mbps is the speed of the slowest link, 0 if the speed of any link is unknown.
func (n *network) Mbps() int {
	speed := -1
	for _, a := range n.on {
		if speed < 0 || a.Mbps < speed {
			speed = a.Mbps
		}
	}
	return max(speed, 0)
}

// MTU is the common MTU of all interfaces, or 0 if they differ or have the usual one.
func (n *network) MTU() int {
	mtu := 0
	for _, a := range n.on {
		if mtu != 0 && a.NIC.MTU != mtu {
			return 0
		}
		mtu = a.NIC.MTU
	}
	if mtu == 1500 {
		return 0
	}
	return mtu
}

// InfiniBand reports whether any interface on the network is InfiniBand.
func (n *network) InfiniBand() bool {
	for _, a := range n.on {
		if a.InfiniBand {
			return true
		}
	}
	return false
}

// Of is the address of a host on the network.
func (n *network) Of(host string) netip.Addr { return n.on[host].Addr }

// Free is the i-th address from the network's end that no known host has.
func (n *network) Free(i int) netip.Addr {
	taken := map[netip.Addr]bool{}
	for _, a := range n.on {
		taken[a.Addr] = true
	}
	for a := last(n.Prefix).Prev(); n.Contains(a); a = a.Prev() {
		if taken[a] {
			continue
		}
		if i--; i < 0 {
			return a
		}
	}
	return n.Addr()
}

// last is the broadcast address.
func last(p netip.Prefix) netip.Addr {
	b := p.Masked().Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

// sortNetworks assigns roles to networks by their hosts. SSH uses the management
// network. The fastest other network of all hosts is public. A network of servers
// only is private.
func sortNetworks(servers, clients []Host) (networks, error) {
	all, err := findNetworks(slices.Concat(servers, clients))
	if err != nil {
		return networks{}, err
	}
	var ns networks
	everybody := func(n *network) bool { return hasAll(n, servers) && hasAll(n, clients) }
	var public, private []*network
	for _, n := range all {
		switch {
		case n.Contains(servers[0].Address) && hasAll(n, servers):
			ns.Management = n
		case everybody(n):
			public = append(public, n)
		case len(servers) > 1 && hasAll(n, servers):
			private = append(private, n)
		}
	}
	fastest := func(a, b *network) int { return cmp.Compare(b.Mbps(), a.Mbps()) }
	slices.SortStableFunc(public, fastest)
	slices.SortStableFunc(private, fastest)
	switch {
	case len(public) > 0:
		ns.Public, ns.Others = public[0], public[1:]
	case ns.Management != nil && everybody(ns.Management):
		ns.Public, ns.Management = ns.Management, nil
	default:
		return ns, resource.Refuse("discover-no-network", nil)
	}
	if len(servers) > 1 {
		if len(private) == 0 && len(ns.Others) > 0 {
			private, ns.Others = ns.Others[:1], ns.Others[1:]
		}
		if len(private) == 0 {
			return ns, resource.Refuse("discover-no-private", resource.With{"server": servers[0].Name, "partner": servers[1].Name, "public": ns.Public.Prefix})
		}
		ns.Private = private[0]
		ns.Others = append(ns.Others, private[1:]...)
	}
	return ns, nil
}

// findNetworks lists the networks of the hosts, in the order of their addresses.
func findNetworks(hosts []Host) ([]*network, error) {
	by := map[netip.Prefix]*network{}
	for _, h := range hosts {
		for _, nic := range h.NICs {
			for _, a := range nic.Addresses {
				p, err := netip.ParsePrefix(a)
				if err != nil {
					return nil, fmt.Errorf("%s: %s: %w", h.Name, nic.Name, err)
				}
				n := by[p.Masked()]
				if n == nil {
					n = &network{p.Masked(), map[string]at{}}
					by[p.Masked()] = n
				}
				// Prefer the address of the SSH session if the host has several.
				if known, ok := n.on[h.Name]; !ok || known.Addr != h.Address {
					n.on[h.Name] = at{p.Addr(), nic}
				}
			}
		}
	}
	var all []*network
	for _, n := range by {
		all = append(all, n)
	}
	slices.SortFunc(all, func(a, b *network) int { return strings.Compare(a.String(), b.String()) })
	return all, nil
}

func hasAll(n *network, hosts []Host) bool {
	return !slices.ContainsFunc(hosts, func(h Host) bool { _, ok := n.on[h.Name]; return !ok })
}

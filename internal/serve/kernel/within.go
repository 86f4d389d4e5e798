package kernel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	rtnl "github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/mortarhpc/mortar/internal/base/netns"
	"github.com/mortarhpc/mortar/internal/base/quick"
)

func (*Linux) Namespace(name string) (string, error) { return netns.ID(name) }

// AddNamespace makes the namespace with an interface that is a child of the
// parent, as childOf has it.
func (*Linux) AddNamespace(name, link string, parent Iface) error {
	p, err := rtnl.LinkByIndex(parent.Index)
	if err != nil {
		return fmt.Errorf("interface %s: %w", parent.Name, err)
	}
	child, err := childOf(p, link)
	if err != nil {
		return err
	}
	if err := netns.Make(name); err != nil {
		return err
	}
	ns, err := os.Open(netns.Path(name))
	if err != nil {
		return err
	}
	defer ns.Close()
	child.Attrs().Namespace = rtnl.NsFd(int(ns.Fd()))
	if err := rtnl.LinkAdd(child); err != nil {
		return fmt.Errorf("%s on %s: %w (EBUSY: it carries macvlan interfaces already)", child.Type(), parent.Name, err)
	}
	return netns.Do(name, func() error {
		// Its link-local address would be the parent's.
		if err := os.WriteFile("/proc/sys/net/ipv6/conf/"+link+"/disable_ipv6", []byte("1\n"), 0); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		for _, n := range []string{"lo", link} {
			if err := linkUp(n, p.Attrs()); err != nil {
				return fmt.Errorf("interface %s of namespace %s: %w", n, name, err)
			}
		}
		return nil
	})
}

// childOf is a second interface on the parent's network: an ipvlan of an Ethernet
// interface, or another IPoIB interface on the port of an InfiniBand one.
//
// An ipvlan has the parent's hardware address, so neither a switch with port
// security nor a NIC's address filter notices. An IPoIB interface has a queue
// pair, and so an address, of its own. It takes the parent's partition and mode:
// only over netlink may two interfaces have one partition, and an interface with
// a parent cannot be one, so that one's parent is taken.
//
// Source: Documentation/networking/ipvlan.rst, mode L2, and ipoib_netlink.c and
// ipoib_vlan.c of the kernel. The IPoIB half was not run on InfiniBand.
func childOf(parent rtnl.Link, name string) (rtnl.Link, error) {
	p := parent.Attrs()
	attrs := rtnl.NewLinkAttrs()
	attrs.Name, attrs.ParentIndex = name, p.Index
	switch p.EncapType {
	case "ether":
		return &rtnl.IPVlan{LinkAttrs: attrs, Mode: rtnl.IPVLAN_MODE_L2}, nil
	case "infiniband":
		ib, ok := parent.(*rtnl.IPoIB)
		if !ok {
			return nil, fmt.Errorf("interface %s is of type %s: on InfiniBand a second interface for the service can only be made on the kernel's ipoib", p.Name, parent.Type())
		}
		attrs.ParentIndex = cmp.Or(p.ParentIndex, p.Index)
		return &rtnl.IPoIB{LinkAttrs: attrs, Pkey: ib.Pkey, Mode: ib.Mode, Umcast: ib.Umcast}, nil
	}
	return nil, fmt.Errorf("interface %s is %s: a second interface for the service can only be made on Ethernet or InfiniBand", p.Name, p.EncapType)
}

// joinWait is how long an IPoIB interface may take to join its broadcast group,
// for which it asks the subnet manager. Only then does it carry packets.
const joinWait = 10 * time.Second

// linkUp sets up an interface of the namespace this thread is in. One of IPoIB
// gets its parent's MTU (connected mode begins with that of datagrams), and is
// waited for, unless the parent's port has no link either.
func linkUp(name string, parent *rtnl.LinkAttrs) error {
	l, err := rtnl.LinkByName(name)
	if err != nil {
		return err
	}
	_, ipoib := l.(*rtnl.IPoIB)
	if ipoib {
		if err := rtnl.LinkSetMTU(l, parent.MTU); err != nil {
			return fmt.Errorf("MTU %d: %w", parent.MTU, err)
		}
	}
	if err := rtnl.LinkSetUp(l); err != nil {
		return err
	}
	if !ipoib || parent.RawFlags&unix.IFF_RUNNING == 0 {
		return nil
	}
	for end := time.Now().Add(joinWait); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if l, err = rtnl.LinkByName(name); err != nil {
			return err
		}
		if l.Attrs().RawFlags&unix.IFF_RUNNING != 0 {
			return nil
		}
	}
	return fmt.Errorf("it has no carrier after %s, though its parent has: see the kernel's log for what the subnet manager answers", joinWait)
}

func (*Linux) CopyRoutes(name, link string, parent Iface) error {
	routes, err := rtnl.RouteListFiltered(rtnl.FAMILY_V4, &rtnl.Route{LinkIndex: parent.Index}, rtnl.RT_FILTER_OIF)
	if err != nil {
		return fmt.Errorf("routes of %s: %w", parent.Name, err)
	}
	return netns.Do(name, func() error {
		l, err := rtnl.LinkByName(link)
		if err != nil {
			return err
		}
		var errs []error
		for _, r := range routes {
			if r.Gw == nil {
				continue // the network itself comes with the address
			}
			// Src would be an address of the host.
			to := rtnl.Route{LinkIndex: l.Attrs().Index, Dst: r.Dst, Gw: r.Gw, Priority: r.Priority, MTU: r.MTU}
			if err := rtnl.RouteReplace(&to); err != nil {
				errs = append(errs, fmt.Errorf("route to %s over %s: %w", r.Dst, r.Gw, err))
			}
		}
		return errors.Join(errs...)
	})
}

func (*Linux) DelNamespace(name, link string) error {
	// By hand, as the namespace may live on in some process: the address
	// must not. One of IPoIB would go back to the host with the namespace's end.
	err := netns.Do(name, func() error {
		l, err := rtnl.LinkByName(link)
		if errors.As(err, &rtnl.LinkNotFoundError{}) {
			return nil
		}
		if err != nil {
			return err
		}
		return rtnl.LinkDel(l)
	})
	if _, gone := netns.ID(name); err != nil && gone == nil {
		return fmt.Errorf("interface %s of namespace %s: %w", link, name, err)
	}
	return netns.Remove(name)
}

func (k *Linux) Within(name string) Host {
	if name == "" {
		return k
	}
	return &within{k, name}
}

// within is the kernel seen from a network namespace.
type within struct {
	*Linux
	name string
}

func (k *within) do(f func() error) error { return netns.Do(k.name, f) }

func inside[T any](k *within, f func() (T, error)) (v T, err error) {
	err = k.do(func() error { v, err = f(); return err })
	return v, err
}

func (k *within) ReadFile(p string) ([]byte, error) {
	return inside(k, func() ([]byte, error) { return quick.ReadFile(p, 0) })
}

func (k *within) Poke(p, data string) error {
	return k.do(func() error { return k.Linux.Poke(p, data) })
}

func (k *within) Mount(source, target, fstype string, flags uintptr, data string) error {
	return k.do(func() error { return unix.Mount(source, target, fstype, flags, data) })
}

func (k *within) Run(ctx context.Context, c Command) (string, error) { return run(ctx, c, k.name) }
func (k *within) Start(c Command) error                              { return start(c, k.name) }

func (k *within) Interface(a netip.Addr) (Iface, error) {
	return inside(k, func() (Iface, error) { return k.netlink.Interface(a) })
}

func (k *within) Link(name string) (Iface, error) {
	return inside(k, func() (Iface, error) { return k.netlink.Link(name) })
}

func (k *within) Addresses() (map[netip.Prefix]string, error) {
	return inside(k, func() (map[netip.Prefix]string, error) { return k.netlink.Addresses() })
}

func (k *within) AddAddress(ifc Iface, p netip.Prefix) error {
	return k.do(func() error { return k.netlink.AddAddress(ifc, p) })
}

func (k *within) DelAddress(name string, p netip.Prefix) error {
	return k.do(func() error { return k.netlink.DelAddress(name, p) })
}

func (k *within) ProbeARP(ctx context.Context, ifc Iface, a netip.Addr, wait time.Duration) (string, error) {
	return inside(k, func() (string, error) { return k.netlink.ProbeARP(ctx, ifc, a, wait) })
}

func (k *within) AnnounceARP(ifc Iface, a netip.Addr) error {
	return k.do(func() error { return k.netlink.AnnounceARP(ifc, a) })
}

func (k *within) Ports(ctx context.Context, programs []Program) ([]uint16, error) {
	return inside(k, func() ([]uint16, error) { return k.Linux.Ports(ctx, programs) })
}

func (k *within) Null(ctx context.Context, at netip.AddrPort, p Program) error {
	return k.do(func() error { return k.Linux.Null(ctx, at, p) })
}

func (k *within) ResetConnections(a netip.Addr, port uint16) error {
	return k.do(func() error { return k.netlink.ResetConnections(a, port) })
}

// Link finds an interface by its name.
func (netlink) Link(name string) (Iface, error) {
	i, err := net.InterfaceByName(name)
	if err != nil {
		return Iface{}, fmt.Errorf("interface %s: %w", name, err)
	}
	return Iface{i.Index, i.Name}, nil
}

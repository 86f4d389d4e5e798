package kernel

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"
	"unsafe"

	rtnl "github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// netlink changes and probes addresses in process: package netlink for addresses and
// connections, packet(7) for ARP.
type netlink struct{}

func (netlink) Interface(a netip.Addr) (Iface, error) {
	all, err := net.Interfaces()
	if err != nil {
		return Iface{}, err
	}
	for _, i := range all {
		addrs, err := i.Addrs()
		if err != nil {
			continue
		}
		for _, n := range addrs {
			if p, err := netip.ParsePrefix(n.String()); err == nil && p.Addr() == a {
				if i.Flags&net.FlagUp == 0 {
					return Iface{}, fmt.Errorf("interface %s is down", i.Name)
				}
				return Iface{i.Index, i.Name}, nil
			}
		}
	}
	return Iface{}, errors.New("not found")
}

func (netlink) Addresses() (map[netip.Prefix]string, error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	out := map[netip.Prefix]string{}
	for _, i := range all {
		addrs, err := i.Addrs()
		if err != nil {
			return nil, err
		}
		for _, n := range addrs {
			if p, err := netip.ParsePrefix(n.String()); err == nil {
				out[p] = i.Name
			}
		}
	}
	return out, nil
}

func (netlink) AddAddress(ifc Iface, p netip.Prefix) error {
	err := rtnl.AddrAdd(linkOf(ifc.Index), addressOf(p))
	if errors.Is(err, unix.EEXIST) {
		return nil
	}
	return err
}

func (netlink) DelAddress(name string, p netip.Prefix) error {
	i, err := net.InterfaceByName(name)
	if err != nil {
		return err
	}
	err = rtnl.AddrDel(linkOf(i.Index), addressOf(p))
	if errors.Is(err, unix.EADDRNOTAVAIL) {
		return nil
	}
	return err
}

func linkOf(index int) rtnl.Link { return &rtnl.GenericLink{LinkAttrs: rtnl.LinkAttrs{Index: index}} }

func addressOf(p netip.Prefix) *rtnl.Addr {
	return &rtnl.Addr{IPNet: &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}}
}

const arpRequest, arpReply = 1, 2

// arpLink is what ARP needs to know of an interface.
type arpLink struct {
	index           int
	hatype          uint16 // ARPHRD_*, which is the hardware type of ARP as well
	addr, broadcast []byte // hardware addresses
}

// arpLengths are the hardware types that a service address can be on, and how
// long their addresses are. Source: RFC 826, RFC 4391 (section 9).
var arpLengths = map[uint16]int{unix.ARPHRD_ETHER: 6, unix.ARPHRD_INFINIBAND: 20}

// arpLinkOf asks the kernel for an interface's hardware addresses. The broadcast
// address of InfiniBand has the partition's key in it.
// Source: rtnetlink(7), struct ifinfomsg; RFC 4391, section 4.
func arpLinkOf(ifc Iface) (arpLink, error) {
	ask := nl.NewNetlinkRequest(unix.RTM_GETLINK, 0)
	which := nl.NewIfInfomsg(unix.AF_UNSPEC)
	which.Index = int32(ifc.Index)
	ask.AddData(which)
	answers, err := ask.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWLINK)
	if errors.Is(err, unix.ENODEV) || err == nil && len(answers) == 0 {
		return arpLink{}, fmt.Errorf("interface %s is gone", ifc.Name)
	}
	if err != nil {
		return arpLink{}, fmt.Errorf("interface %s: %w", ifc.Name, err)
	}
	is := nl.DeserializeIfInfomsg(answers[0])
	attrs, err := nl.ParseRouteAttrAsMap(answers[0][is.Len():])
	if err != nil {
		return arpLink{}, fmt.Errorf("interface %s: %w", ifc.Name, err)
	}
	l := arpLink{index: ifc.Index, hatype: is.Type, addr: attrs[unix.IFLA_ADDRESS].Value, broadcast: attrs[unix.IFLA_BROADCAST].Value}
	if n := arpLengths[l.hatype]; n == 0 || len(l.addr) != n || len(l.broadcast) != n {
		return arpLink{}, fmt.Errorf("interface %s is neither Ethernet nor InfiniBand (hardware type %d, addresses of %d bytes): the service address cannot be on it", ifc.Name, l.hatype, len(l.addr))
	}
	return l, nil
}

// packet makes an ARP packet about IPv4 addresses from this interface. Source:
// RFC 826.
func (l arpLink) packet(op uint16, src netip.Addr, target []byte, dst netip.Addr) []byte {
	b := binary.BigEndian.AppendUint16(nil, l.hatype)
	b = append(b, 8, 0, byte(len(l.addr)), 4)
	b = binary.BigEndian.AppendUint16(b, op)
	s, d := src.As4(), dst.As4()
	b = append(append(b, l.addr...), s[:]...)
	return append(append(b, target...), d[:]...)
}

// nobody is the hardware address of a host that is not known.
func (l arpLink) nobody() []byte { return make([]byte, len(l.addr)) }

func htons(v uint16) uint16 {
	return binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, v))
}

// socket opens a packet socket for ARP on the interface.
func (l arpLink) socket() (int, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, int(htons(unix.ETH_P_ARP)))
	if err != nil {
		return -1, err
	}
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: htons(unix.ETH_P_ARP), Ifindex: l.index}); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// sockaddr is the broadcast address as struct sockaddr_ll. That of package unix
// has room for 8 bytes of address; the kernel wants all that the interface's
// have. Source: packet(7), packet_snd() of the kernel.
func (l arpLink) sockaddr() []byte {
	b := binary.NativeEndian.AppendUint16(nil, unix.AF_PACKET)
	b = binary.BigEndian.AppendUint16(b, unix.ETH_P_ARP)
	b = binary.NativeEndian.AppendUint32(b, uint32(l.index))
	b = binary.NativeEndian.AppendUint16(b, l.hatype)
	b = append(b, 0, byte(len(l.broadcast)))
	b = append(b, l.broadcast...)
	return append(b, make([]byte, max(unix.SizeofSockaddrLinklayer-len(b), 0))...)
}

// broadcastPacket sends a packet to all hosts on the network.
func (l arpLink) broadcastPacket(fd int, packet []byte) error {
	to := l.sockaddr()
	_, _, errno := unix.Syscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(&packet[0])), uintptr(len(packet)), 0,
		uintptr(unsafe.Pointer(&to[0])), uintptr(len(to)))
	if errno != 0 {
		return os.NewSyscallError("sendto", errno)
	}
	return nil
}

func (netlink) ProbeARP(ctx context.Context, ifc Iface, a netip.Addr, wait time.Duration) (string, error) {
	l, err := arpLinkOf(ifc)
	if err != nil {
		return "", err
	}
	return l.probe(ctx, a, wait)
}

// probe asks as RFC 5227 says: from no address, so that no host's cache
// changes.
func (l arpLink) probe(ctx context.Context, a netip.Addr, wait time.Duration) (string, error) {
	fd, err := l.socket()
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	question := l.packet(arpRequest, netip.IPv4Unspecified(), l.nobody(), a)
	end := time.Now().Add(wait)
	buf := make([]byte, 128)
	var sent time.Time
	for left := wait; left > 0 && ctx.Err() == nil; left = time.Until(end) {
		if time.Since(sent) >= wait/2 {
			if err := l.broadcastPacket(fd, question); err != nil {
				return "", err
			}
			sent = time.Now()
		}
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(fds, int(min(left, wait/2-time.Since(sent)).Milliseconds())+1)
		if err != nil && err != unix.EINTR {
			return "", err
		}
		if n <= 0 {
			continue
		}
		n, _, err = unix.Recvfrom(fd, buf, unix.MSG_DONTWAIT)
		if err == unix.EAGAIN || err == unix.EINTR {
			continue
		}
		if err != nil {
			return "", err
		}
		if who := l.claim(buf[:n], a); who != nil && !bytes.Equal(who, l.addr) {
			return who.String(), nil
		}
	}
	return "", ctx.Err() // a probe that was cut short has found nothing out
}

// claim says which hardware address a packet gives for a.
func (l arpLink) claim(b []byte, a netip.Addr) net.HardwareAddr {
	n := len(l.addr)
	if len(b) < 8+2*(n+4) || b[2] != 8 || b[3] != 0 || int(b[4]) != n || b[5] != 4 {
		return nil
	}
	if op := binary.BigEndian.Uint16(b[6:]); op != arpRequest && op != arpReply {
		return nil
	}
	if [4]byte(b[8+n:8+n+4]) != a.As4() {
		return nil
	}
	return net.HardwareAddr(bytes.Clone(b[8 : 8+n]))
}

func (netlink) AnnounceARP(ifc Iface, a netip.Addr) error {
	l, err := arpLinkOf(ifc)
	if err != nil {
		return err
	}
	return l.announce(a)
}

// announce sends a gratuitous request and a gratuitous reply: hosts differ in
// which of them they believe. Source: RFC 5227, section 3.
func (l arpLink) announce(a netip.Addr) error {
	fd, err := l.socket()
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := l.broadcastPacket(fd, l.packet(arpRequest, a, l.nobody(), a)); err != nil {
		return err
	}
	return l.broadcastPacket(fd, l.packet(arpReply, a, l.broadcast, a))
}

// ResetConnections ends every TCP connection of the host from a local
// address. Sockets of an address that has moved away are left half closed for
// minutes; were the address to come back meanwhile, they would take the
// packets of the clients' new connections.
// Source: sock_diag(7), SOCK_DESTROY
func (netlink) ResetConnections(a netip.Addr, port uint16) error {
	const listens = 10 // TCP_LISTEN
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		all, err := rtnl.SocketDiagTCP(family)
		if err != nil && !errors.Is(err, rtnl.ErrDumpInterrupted) {
			return err
		}
		for _, s := range all {
			local, ok := netip.AddrFromSlice(s.ID.Source)
			if !ok || local.Unmap() != a || s.ID.SourcePort != port || s.State == listens {
				continue
			}
			// An IPv6 socket with an IPv4 address is found by that. ENOENT: it ended by itself.
			err := rtnl.SocketDestroy(&net.TCPAddr{IP: s.ID.Source, Port: int(port)}, &net.TCPAddr{IP: s.ID.Destination, Port: int(s.ID.DestinationPort)})
			if err != nil && !errors.Is(err, unix.ENOENT) {
				return err
			}
		}
	}
	return nil
}

// Events tells, without saying what, of each message of the kernel about a
// network interface, an IPv4 address or a device, and of each event of md. Messages that come
// while no program listens are one.
// Source: rtnetlink(7), RTMGRP_LINK, RTMGRP_IPV4_IFADDR; netlink(7), NETLINK_KOBJECT_UEVENT.
func (netlink) Events(ctx context.Context) (<-chan struct{}, error) {
	events := make(chan struct{}, 1)
	tell := func() {
		select {
		case events <- struct{}{}:
		default:
		}
	}
	go followFile(ctx, mdstat, tell)
	for _, g := range []struct {
		family int
		groups uint32
	}{{unix.NETLINK_ROUTE, unix.RTMGRP_LINK | unix.RTMGRP_IPV4_IFADDR}, {unix.NETLINK_KOBJECT_UEVENT, 1}} {
		fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, g.family)
		if err != nil {
			return events, err
		}
		if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: g.groups}); err != nil {
			unix.Close(fd)
			return events, err
		}
		f := os.NewFile(uintptr(fd), "netlink") // non-blocking, so reads wait in the runtime
		context.AfterFunc(ctx, func() { f.Close() })
		go func() {
			buf := make([]byte, 64<<10)
			for {
				_, err := f.Read(buf)
				if err != nil && !errors.Is(err, unix.ENOBUFS) { // some were lost: others came
					return
				}
				tell()
			}
		}()
	}
	return events, nil
}

// mdstat is there once a module of md is loaded. md sends no message when it throws out a
// member whose device stays.
const mdstat = "/proc/mdstat"

// retryEvery is the time between attempts to open a file that is not there.
const retryEvery = 2 * time.Second

// followFile tells of each event of a file of /proc that poll(2) reports, and once at its
// begin, until ctx ends.
// Source: drivers/md/md.c, mdstat_poll: EPOLLERR and EPOLLPRI since the file was opened
func followFile(ctx context.Context, file string, tell func()) {
	for ctx.Err() == nil {
		if awaitFile(ctx, file, tell) == nil {
			continue
		}
		select {
		case <-ctx.Done():
		case <-time.After(retryEvery):
		}
	}
}

// awaitFile calls opened, and waits for an event of the file or the end of ctx.
func awaitFile(ctx context.Context, file string, opened func()) error {
	fd, err := unix.Open(file, unix.O_RDONLY|unix.O_CLOEXEC, 0) // Go's poller would take the event
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	opened() // for what came before
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLPRI}}
	for ctx.Err() == nil {
		// A second: ctx ends without an event.
		if n, err := unix.Poll(fds, 1000); n > 0 || err != nil && err != unix.EINTR {
			return err
		}
	}
	return nil
}

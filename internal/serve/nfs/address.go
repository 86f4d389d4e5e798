package nfs

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/mortarhpc/mortar/internal/serve/kernel"
	"github.com/mortarhpc/mortar/internal/serve/refusal"
	"github.com/mortarhpc/mortar/internal/serve/unit"
)

// probeWait is how long start sends ARP probes for the service address before
// it changes anything. A live server answers ARP from its kernel within a
// millisecond; an emulated and loaded one needs some tens.
const probeWait = 200 * time.Millisecond

const nfsPort = 2049

// Present finds the interface that has the service address.
func (s *server) Present() (name string, as netip.Prefix, err error) {
	if id, err := s.namespace(); err != nil || id == "" && s.cfg.Namespace != "" {
		return "", netip.Prefix{}, err
	}
	all, err := s.In.Addresses()
	if err != nil {
		return "", netip.Prefix{}, err
	}
	for p, n := range all {
		if p.Addr() == s.cfg.Prefix().Addr() {
			return n, p, nil
		}
	}
	return "", netip.Prefix{}, nil
}

func (s *address) addressState() (unit.State, error) {
	name, _, err := s.Present()
	switch {
	case err != nil:
		return unit.Broken, err
	case name == "":
		return unit.Stopped, nil
	}
	return unit.Running, nil
}

// probe refuses to start the service if another host answers for its address:
// the service then most likely runs on a node that was not fenced.
func (s *address) probe(ctx context.Context) error {
	if name, _, err := s.Present(); err != nil || name != "" {
		return err
	}
	ifc, err := s.Iface()
	if err != nil {
		return err
	}
	who, err := s.K.ProbeARP(ctx, ifc, s.cfg.Prefix().Addr(), probeWait)
	if err != nil {
		return fmt.Errorf("asking who has %s: %w", s.cfg.Prefix().Addr(), err)
	}
	if who != "" {
		return refusal.New("elsewhere", refusal.Args{"address": s.cfg.Prefix().Addr().String(), "mac": who})
	}
	return nil
}

func (s *address) startAddress(ctx context.Context) error {
	own, err := s.Iface()
	if err != nil {
		return err
	}
	ifc := own
	if s.cfg.Namespace != "" {
		if ifc, err = s.In.Link(publicLink); err != nil {
			return err
		}
	}
	name, as, err := s.Present()
	if err != nil {
		return err
	}
	if name != "" && (name != ifc.Name || as != s.cfg.Prefix()) {
		return fmt.Errorf("service address is on %s as %s, not on %s as %s", name, as, ifc.Name, s.cfg.Address)
	}
	if name == "" {
		if err := s.In.AddAddress(ifc, s.cfg.Prefix()); err != nil {
			return fmt.Errorf("adding %s to %s: %w", s.cfg.Address, ifc.Name, err)
		}
	}
	if s.cfg.Namespace != "" {
		// Clients on the service's own network need no route.
		s.Log.NoteErr(s.K.CopyRoutes(s.cfg.Namespace, publicLink, own), "clients on other networks may not be reached")
	}
	return s.announce(ctx, ifc)
}

// announce sends three gratuitous ARP announcements of the address: a network
// may lose one packet, and a client with the old ARP entry waits until the
// entry expires.
func (s *address) announce(ctx context.Context, ifc kernel.Iface) error {
	for i := range 3 {
		if i > 0 && s.K.Sleep(ctx, 20*time.Millisecond) != nil {
			break
		}
		if err := s.In.AnnounceARP(ifc, s.cfg.Prefix().Addr()); err != nil {
			return fmt.Errorf("announcing %s on %s: %w", s.cfg.Address, ifc.Name, err)
		}
	}
	return nil
}

func (s *address) stopAddress(ctx context.Context) error {
	for range 4 { // the address may have been added with any of four prefix lengths
		name, as, err := s.Present()
		if err != nil || name == "" {
			return err
		}
		if err := s.In.DelAddress(name, as); err != nil {
			return fmt.Errorf("removing %s from %s: %w", as, name, err)
		}
	}
	return fmt.Errorf("%s does not go away", s.cfg.Prefix().Addr())
}

// reset ends TCP connections of the service address that no server serves any
// more. A kernel without that request only makes clients wait longer, so reset
// returns no error.
func (s *address) reset() {
	s.Log.NoteErr(s.In.ResetConnections(s.cfg.Prefix().Addr(), nfsPort), "old connections of %s are not reset", s.cfg.Prefix().Addr())
}

// connection is an established connection of a client to nfsd or lockd.
type connection struct{ local, remote netip.AddrPort }

// parseConnections reads /proc/net/tcp or tcp6 for established connections to
// ports of the service address. Source: proc_net(5), and get_tcp4_sock for the byte
// order: each 32 bits of an address as a number in host order.
func parseConnections(src []byte, to netip.Addr, ports []uint16) []connection {
	var out []connection
	for line := range strings.SplitSeq(string(src), "\n") {
		f := strings.Fields(line)
		if len(f) < 4 || f[3] != "01" { // TCP_ESTABLISHED
			continue
		}
		l, err1 := parseSocket(f[1])
		r, err2 := parseSocket(f[2])
		if err1 == nil && err2 == nil && l.Addr() == to && slices.Contains(ports, l.Port()) {
			out = append(out, connection{l, r})
		}
	}
	return out
}

func parseSocket(s string) (netip.AddrPort, error) {
	a, p, ok := strings.Cut(s, ":")
	raw, err := hex.DecodeString(a)
	port, err2 := strconv.ParseUint(p, 16, 16)
	if !ok || err != nil || err2 != nil || len(raw)%4 != 0 {
		return netip.AddrPort{}, errors.New("not a socket: " + s)
	}
	for i := 0; i < len(raw); i += 4 {
		binary.NativeEndian.PutUint32(raw[i:], binary.BigEndian.Uint32(raw[i:]))
	}
	ip, ok := netip.AddrFromSlice(raw)
	if !ok {
		return netip.AddrPort{}, errors.New("not an address: " + a)
	}
	return netip.AddrPortFrom(ip.Unmap(), uint16(port)), nil
}

// goneFor is how long the file keeps a connection that has ended. A client that
// has not come back since the last failover needs the next server's wake-up
// packet too; after this time its own timers have woken it.
const goneFor = 5 * time.Minute

// A line of the connections file is "LOCAL REMOTE" for an established
// connection, or "LOCAL REMOTE TIME" for one that ended at TIME (seconds since
// 1970).

// mergeConnections adds the connections of now to the file's content, and marks
// the others as ended.
func mergeConnections(was []byte, now []connection, t time.Time) []byte {
	lines := map[string]string{} // connection → time at which it ended
	for line := range strings.Lines(string(was)) {
		f := strings.Fields(line)
		if len(f) < 2 || len(f) > 3 {
			continue
		}
		since := t.Unix()
		if len(f) == 3 {
			if n, err := strconv.ParseInt(f[2], 10, 64); err == nil && n < since { // else the other server's clock is ahead
				since = n
			}
		}
		if t.Sub(time.Unix(since, 0)) < goneFor {
			lines[f[0]+" "+f[1]] = " " + strconv.FormatInt(since, 10)
		}
	}
	for _, c := range now {
		lines[c.local.String()+" "+c.remote.String()] = ""
	}
	out := make([]string, 0, len(lines))
	for c, since := range lines {
		out = append(out, c+since+"\n")
	}
	sort.Strings(out)
	return []byte(strings.Join(out, ""))
}

// tickleList is the file's content as tickle_tcp reads it.
func tickleList(file []byte) string {
	var b strings.Builder
	for line := range strings.Lines(string(file)) {
		if f := strings.Fields(line); len(f) >= 2 {
			b.WriteString(f[0] + " " + f[1] + "\n")
		}
	}
	return b.String()
}

func (s *address) connectionsFile() string { return s.cfg.StateDir + "/mortar/connections" }

// clientPorts are the TCP ports to which clients keep connections: nfsd's, and lockd's,
// which changes with each start. If a client waits for a lock when the server crashes, its
// TCP retransmits ever more rarely, and the client cannot reclaim its locks until it learns
// that the connection is dead (seen: 26 s after the service was up).
func (s *address) clientPorts(ctx context.Context) []uint16 {
	ports := []uint16{nfsPort}
	if s.cfg.NFS.serves("3") {
		// Without an answer its connections are marked as ended, and woken all the same.
		if p, err := s.In.Ports(ctx, []kernel.Program{nlockmgr}); err == nil && p[0] != 0 {
			ports = append(ports, p[0])
		}
	}
	return ports
}

// established lists the clients' connections to TCP ports of the service address.
func (s *address) established(ports []uint16) (all []connection, err error) {
	to := s.cfg.Prefix().Addr()
	// /proc/net shows the network of the process; /proc/thread-self/net shows
	// that of the thread, which tells when the service has a namespace.
	for _, f := range []string{"/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"} {
		b, err := s.In.ReadFile(f)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		all = append(all, parseConnections(b, to, ports)...)
	}
	// The watcher's own calls are no client's.
	return slices.DeleteFunc(all, func(c connection) bool { return c.remote.Addr() == to }), nil
}

// saveConnections writes the clients' connections to the volume.
func (s *address) saveConnections(ctx context.Context) error {
	l, err := s.connections(ctx)
	if err != nil || l == nil {
		return err
	}
	return s.put(*l)
}

// connections are the clients' connections, which the next server reads to wake the clients;
// nil if the volume has them already, so that an idle service causes no writes.
func (s *address) connections(ctx context.Context) (*list, error) {
	all, err := s.established(s.clientPorts(ctx))
	if err != nil {
		return nil, err
	}
	was, err := s.K.ReadFile(s.connectionsFile())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	now := mergeConnections(was, all, s.K.Now())
	if err == nil && bytes.Equal(was, now) {
		return nil, nil
	}
	return &list{file: s.connectionsFile(), text: now}, nil
}

// tickle wakes clients whose connections died with the former server. It sends
// a packet out of order, the client answers, the kernel answers that with a
// reset, and the client connects anew at once instead of after its
// retransmission timer (up to minutes).
func (s *address) tickle(ctx context.Context) error {
	b, err := s.K.ReadFile(s.connectionsFile())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	list := tickleList(b)
	if list == "" {
		return nil
	}
	_, err = s.In.Run(ctx, kernel.Command{Argv: []string{"tickle_tcp", "-n", "3"}, Stdin: list})
	return err
}

// notify tells NFSv3 clients that held locks to reclaim them. sm-notify runs in
// the background: it retries an unreachable client for minutes.
func (s *address) notify() error {
	if !s.cfg.NFS.serves("3") {
		return nil
	}
	s.Log.NoteErr(s.NLM.noteReclaim(), "the grace period of NFSv3 locks lasts to its end")
	// -P names the directory that retire filled; -v gives the name by which
	// clients know the server. If there is no client to notify, sm-notify ends
	// lockd's grace period at once.
	// Source: sm-notify(8).
	return s.In.Start(kernel.Command{Argv: []string{"sm-notify", "-P", s.cfg.StateDir + notifyDir, "-v", s.cfg.Prefix().Addr().String()}, Binds: s.binds()})
}

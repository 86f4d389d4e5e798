package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"syscall"
	"time"

	"github.com/buildbarn/go-xdr/pkg/protocols/rpcv2"
	"golang.org/x/sys/unix"
)

const (
	nfsProgram     = 100003
	portmapProgram = 100000
	statdProgram   = 100024
	nlmProgram     = 100021

	nfsPort     = 2049
	portmapPort = 111
)

// callTime is how long a client waits for an answer on a connection before it connects
// anew, as a Linux client over TCP does. Source: nfs(5), timeo.
const callTime = 60 * time.Second

// conn is a connection to an RPC program over TCP. It has one call at a time.
// Source: RFC 5531.
type conn struct {
	net.Conn
	r   *bufio.Reader
	xid uint32
}

// reserved are the source ports that a client may use: nfsd wants one below 1024.
const firstReserved, lastReserved = 665, 1023

// dial connects from an address. try chooses the source port.
func (s *storm) dial(from netip.Addr, port uint16, try int, patience time.Duration) (*conn, error) {
	s.count.connects(time.Now())
	local := lastReserved - try%(lastReserved-firstReserved)
	d := net.Dialer{
		LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, uint16(local))),
		Timeout:   patience,
		KeepAlive: -1,
		Control: func(_, _ string, c syscall.RawConn) error {
			var err error
			if e := c.Control(func(fd uintptr) {
				err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
			}); e != nil {
				return e
			}
			return err
		},
	}
	c, err := d.DialContext(context.Background(), "tcp4", netip.AddrPortFrom(s.Server, port).String())
	if err != nil {
		return nil, err
	}
	s.count.open(1)
	// No TIME_WAIT: the port is used again.
	if err := c.(*net.TCPConn).SetLinger(0); err != nil {
		return nil, err
	}
	return newConn(c), nil
}

func newConn(c net.Conn) *conn {
	return &conn{Conn: c, r: bufio.NewReaderSize(c, 1024), xid: uint32(time.Now().UnixNano())}
}

// drop closes a client's connection, if it has one.
func (s *storm) drop(c **conn) {
	if *c != nil {
		_ = (*c).Close()
		*c = nil
		s.count.open(-1)
	}
}

func message(xid uint32, machine string, program, version, procedure uint32, args io.WriterTo) ([]byte, error) {
	var cred, b bytes.Buffer
	who := rpcv2.AuthsysParms{Machinename: machine}
	if _, err := who.WriteTo(&cred); err != nil {
		return nil, err
	}
	m := rpcv2.RpcMsg{Xid: xid, Body: &rpcv2.RpcMsgBody_CALL{Cbody: rpcv2.CallBody{
		Rpcvers: 2, Prog: program, Vers: version, Proc: procedure,
		Cred: rpcv2.OpaqueAuth{Flavor: rpcv2.AUTH_SYS, Body: cred.Bytes()},
	}}}
	if _, err := m.WriteTo(&b); err != nil {
		return nil, err
	}
	if args != nil {
		if _, err := args.WriteTo(&b); err != nil {
			return nil, err
		}
	}
	return b.Bytes(), nil
}

func (c *conn) call(machine string, program, version, procedure uint32, args io.WriterTo, result io.ReaderFrom) error {
	c.xid++
	b, err := message(c.xid, machine, program, version, procedure, args)
	if err != nil {
		return err
	}
	if err := c.SetDeadline(time.Now().Add(callTime)); err != nil {
		return err
	}
	if _, err := c.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(b))|lastFragment), b...)); err != nil {
		return err
	}
	answer, err := record(c.r)
	if err != nil {
		return err
	}
	return reply(bytes.NewReader(answer), c.xid, result)
}

// lastFragment marks the length of the last fragment of a record. Source: RFC 5531, 11.
const lastFragment = 1 << 31

func record(r io.Reader) (all []byte, err error) {
	for {
		var head [4]byte
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return nil, err
		}
		n := binary.BigEndian.Uint32(head[:])
		part := make([]byte, n&^lastFragment)
		if _, err := io.ReadFull(r, part); err != nil {
			return nil, err
		}
		if all = append(all, part...); n&lastFragment != 0 {
			return all, nil
		}
	}
}

func reply(r io.Reader, xid uint32, result io.ReaderFrom) error {
	var m rpcv2.RpcMsg
	if _, err := m.ReadFrom(r); err != nil {
		return err
	}
	body, ok := m.Body.(*rpcv2.RpcMsgBody_REPLY)
	if !ok || m.Xid != xid {
		return fmt.Errorf("an answer to call %d, not to %d", m.Xid, xid)
	}
	accepted, ok := body.Rbody.(*rpcv2.ReplyBody_MSG_ACCEPTED)
	if !ok {
		return fmt.Errorf("call denied: %+v", body.Rbody)
	}
	if s := accepted.Areply.ReplyData.GetStat(); s != rpcv2.SUCCESS {
		return fmt.Errorf("call refused: RPC status %d", s)
	}
	if result == nil {
		return nil
	}
	_, err := result.ReadFrom(r)
	return err
}

// numbers are XDR's unsigned integers, one after the other: what the port mapper needs.
type numbers []uint32

func (n numbers) WriteTo(w io.Writer) (int64, error) {
	var b []byte
	for _, x := range n {
		b = binary.BigEndian.AppendUint32(b, x)
	}
	k, err := w.Write(b)
	return int64(k), err
}

func (n numbers) ReadFrom(r io.Reader) (int64, error) {
	return int64(4 * len(n)), binary.Read(r, binary.BigEndian, n)
}

// portOf asks the server's rpcbind for the TCP port of a program. Source: RFC 1833, 3.
func (s *storm) portOf(from netip.Addr, program, version uint32, try int) (uint16, error) {
	c, err := s.dial(from, portmapPort, try, s.Lease)
	if err != nil {
		return 0, err
	}
	defer s.drop(&c)
	port := numbers{0}
	if err := c.call("", portmapProgram, 2, 3, numbers{program, version, unix.IPPROTO_TCP, 0}, port); err != nil {
		return 0, err
	}
	if port[0] == 0 {
		return 0, fmt.Errorf("program %d is not registered", program)
	}
	return uint16(port[0]), nil
}

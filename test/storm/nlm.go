package main

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"

	"github.com/buildbarn/go-xdr/pkg/protocols/nlm"
	"github.com/buildbarn/go-xdr/pkg/protocols/rpcv2"
)

// client3 is a client of NFSv3 that holds a lock. The server knows it by its address.
type client3 struct {
	s     *storm
	name  string
	from  netip.Addr
	nfs   *conn // its connection to nfsd
	lockd *conn
	tries int
	fh    []byte
	held  bool
	back  bool // it has reclaimed its lock
	// notified is written to when the server's sm-notify has told the client.
	notified chan struct{}
}

// denied is what lockd answers instead of a lock.
type denied nlm.Nlm4Stats

func (d denied) Error() string {
	return "NLM_LOCK: " + map[nlm.Nlm4Stats]string{
		nlm.NLM4_DENIED: "denied", nlm.NLM4_DENIED_NOLOCKS: "no locks", nlm.NLM4_BLOCKED: "blocked",
		nlm.NLM4_DENIED_GRACE_PERIOD: "grace period", nlm.NLM4_STALE_FH: "stale file handle", nlm.NLM4_FAILED: "failed",
	}[nlm.Nlm4Stats(d)]
}

// ping calls nfsd's null procedure.
func (c *client3) ping() error {
	if c.nfs == nil {
		c.tries++
		k, err := c.s.dial(c.from, nfsPort, c.tries, c.s.Lease)
		if err != nil {
			return err
		}
		c.nfs = k
	}
	err := c.nfs.call(c.name, nfsProgram, 3, 0, nil, nil)
	if err != nil {
		c.s.drop(&c.nfs)
	}
	return err
}

// lock has lockd lock a file of a handle. NLM4_LOCK is procedure 2.
// Source: X/Open XNFS, chapter 14.
func (c *client3) lock(fh []byte, reclaim bool) error {
	if c.lockd == nil {
		c.tries++
		port, err := c.s.portOf(c.from, nlmProgram, 4, c.tries)
		if err != nil {
			return err
		}
		if c.lockd, err = c.s.dial(c.from, port, c.tries, c.s.Lease); err != nil {
			return err
		}
	}
	var res nlm.Nlm4Res
	err := c.lockd.call(c.name, nlmProgram, 4, 2, &nlm.Nlm4Lockargs{
		Cookie: []byte("lock"), Exclusive: true, Reclaim: reclaim, State: 1,
		Alock: nlm.Nlm4Lock{CallerName: c.name, Fh: fh, Oh: []byte("1@" + c.name), Svid: 1},
	}, &res)
	if err != nil {
		c.s.drop(&c.lockd)
		return err
	}
	if res.Stat.Stat != nlm.NLM4_GRANTED {
		return denied(res.Stat.Stat)
	}
	return nil
}

// begin has the client lock its file.
func (c *client3) begin() error {
	if c.held {
		return nil
	}
	if err := c.ping(); err != nil {
		return err
	}
	err := c.lock(c.fh, false)
	c.held = err == nil
	return err
}

// listen answers what sm-notify asks: the port mapper's question for the port of
// rpc.statd, and SM_NOTIFY (procedure 6). Both come to one port.
// Source: RFC 1833, 3, and X/Open XNFS, chapter 11.
func (c *client3) listen() error {
	u, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(c.from, portmapPort)))
	if err != nil {
		return err
	}
	go func() {
		b := make([]byte, 1024)
		for {
			n, from, err := u.ReadFromUDPAddrPort(b)
			if err != nil {
				return
			}
			answer, notify, err := notified(b[:n])
			if err != nil {
				c.s.count.failed(err)
				continue
			}
			if _, err := u.WriteToUDPAddrPort(answer, from); err != nil {
				c.s.count.failed(err)
			}
			if notify {
				select {
				case c.notified <- struct{}{}:
				default: // it reclaims already
				}
			}
		}
	}()
	return nil
}

// notified is the answer to a call of sm-notify, and whether that was the notice itself.
func notified(call []byte) (answer []byte, notify bool, err error) {
	var m rpcv2.RpcMsg
	if _, err := m.ReadFrom(bytes.NewReader(call)); err != nil {
		return nil, false, err
	}
	body, ok := m.Body.(*rpcv2.RpcMsgBody_CALL)
	if !ok {
		return nil, false, fmt.Errorf("an answer instead of a call")
	}
	var out bytes.Buffer
	r := rpcv2.RpcMsg{Xid: m.Xid, Body: &rpcv2.RpcMsgBody_REPLY{Rbody: &rpcv2.ReplyBody_MSG_ACCEPTED{Areply: rpcv2.AcceptedReply{ReplyData: &rpcv2.AcceptedReplyData_SUCCESS{}}}}}
	if _, err := r.WriteTo(&out); err != nil {
		return nil, false, err
	}
	switch b := body.Cbody; {
	case b.Prog == portmapProgram && b.Vers == 2 && b.Proc == 3:
		_, err = numbers{portmapPort}.WriteTo(&out)
	case b.Prog == statdProgram && b.Proc == 6:
		notify = true
	default:
		err = fmt.Errorf("a call of program %d, version %d, procedure %d", b.Prog, b.Vers, b.Proc)
	}
	return out.Bytes(), notify, err
}

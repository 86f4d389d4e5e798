package main

import (
	"encoding/binary"
	"net/netip"
	"strings"
	"time"

	n4 "github.com/buildbarn/go-xdr/pkg/protocols/nfsv4"
)

// client4 is a client of NFSv4.1 with a file of its own, open and locked.
type client4 struct {
	s       *storm
	name    string
	from    netip.Addr
	c       *conn
	tries   int
	id      uint64
	session [16]byte
	seq     uint32
	fh      []byte
	held    bool
	open    n4.Stateid4
}

// status is an error of the server, by the name of RFC 8881.
type status struct {
	op   string
	code n4.Nfsstat4
}

func (s status) Error() string { return s.op + ": " + n4.Nfsstat4_name[s.code] }

// compound sends a compound and reads its result.
func (c *client4) compound(op string, ops ...n4.NfsArgop4) ([]n4.NfsResop4, error) {
	if c.c == nil {
		c.tries++
		k, err := c.s.dial(c.from, nfsPort, c.tries, c.s.Lease)
		if err != nil {
			return nil, err
		}
		c.c = k
	}
	var res n4.Compound4res
	if err := c.c.call(c.name, nfsProgram, 4, 1, &n4.Compound4args{Minorversion: 1, Argarray: ops}, &res); err != nil {
		c.s.drop(&c.c)
		return nil, err
	}
	if res.Status != n4.NFS4_OK {
		return res.Resarray, status{op, res.Status}
	}
	return res.Resarray, nil
}

func (c *client4) sequenced(op string, ops ...n4.NfsArgop4) ([]n4.NfsResop4, error) {
	c.seq++
	res, err := c.compound(op, append([]n4.NfsArgop4{&n4.NfsArgop4_OP_SEQUENCE{Opsequence: n4.Sequence4args{SaSessionid: c.session, SaSequenceid: c.seq}}}, ops...)...)
	st, ok := err.(status)
	if ok && len(res) == 1 {
		c.seq-- // SEQUENCE itself failed: the slot's number was not used
	}
	if ok && (st.code == n4.NFS4ERR_SEQ_MISORDERED || st.code == n4.NFS4ERR_SEQ_FALSE_RETRY) {
		// A connection broke in the middle of a call. Another session keeps all state.
		if err := c.connect(); err != nil {
			return nil, err
		}
		return nil, status{op, n4.NFS4ERR_DELAY}
	}
	return res, err
}

func (c *client4) renew() error {
	_, err := c.sequenced("SEQUENCE")
	return err
}

// verifier tells this run's clients from an earlier one's.
var verifier = func() (v [8]byte) {
	binary.BigEndian.PutUint64(v[:], uint64(time.Now().UnixNano()))
	return v
}()

// connect makes a client ID and a session.
func (c *client4) connect() error {
	res, err := c.compound("EXCHANGE_ID", &n4.NfsArgop4_OP_EXCHANGE_ID{OpexchangeId: n4.ExchangeId4args{
		EiaClientowner:  n4.ClientOwner4{CoVerifier: verifier, CoOwnerid: []byte("Linux NFSv4.1 " + c.name)},
		EiaStateProtect: &n4.StateProtect4A_SP4_NONE{},
	}})
	if err != nil {
		return err
	}
	id := res[0].(*n4.NfsResop4_OP_EXCHANGE_ID).OpexchangeId.(*n4.ExchangeId4res_NFS4_OK).EirResok4
	c.id = id.EirClientid
	ch := n4.ChannelAttrs4{CaMaxrequestsize: 4096, CaMaxresponsesize: 4096, CaMaxresponsesizeCached: 1024, CaMaxoperations: 8, CaMaxrequests: 1}
	res, err = c.compound("CREATE_SESSION", &n4.NfsArgop4_OP_CREATE_SESSION{OpcreateSession: n4.CreateSession4args{
		CsaClientid: c.id, CsaSequence: id.EirSequenceid, CsaForeChanAttrs: ch, CsaBackChanAttrs: ch,
		CsaCbProgram: 0x40000000, CsaSecParms: []n4.CallbackSecParms4{&n4.CallbackSecParms4_AUTH_NONE{}},
	}})
	if err != nil {
		return err
	}
	c.session = res[0].(*n4.NfsResop4_OP_CREATE_SESSION).OpcreateSession.(*n4.CreateSession4res_NFS4_OK).CsrResok4.CsrSessionid
	c.seq = 0
	return nil
}

// reclaimed says that the client reclaims nothing more.
func (c *client4) reclaimed() error {
	_, err := c.sequenced("RECLAIM_COMPLETE", &n4.NfsArgop4_OP_RECLAIM_COMPLETE{})
	if st, ok := err.(status); ok && st.code == n4.NFS4ERR_COMPLETE_ALREADY {
		return nil
	}
	return err
}

// openHow are the arguments of an open of the client's owner.
func (c *client4) openHow(how n4.Openflag4, claim n4.OpenClaim4) *n4.NfsArgop4_OP_OPEN {
	return &n4.NfsArgop4_OP_OPEN{Opopen: n4.Open4args{
		ShareAccess: n4.OPEN4_SHARE_ACCESS_BOTH | n4.OPEN4_SHARE_ACCESS_WANT_NO_DELEG,
		Owner:       n4.StateOwner4{Clientid: c.id, Owner: []byte(c.name)}, Openhow: how, Claim: claim,
	}}
}

// openNew opens a file of the export, and makes it if it is not there.
func (c *client4) openNew(file string) (st n4.Stateid4, fh []byte, err error) {
	ops := []n4.NfsArgop4{&n4.NfsArgop4_OP_PUTROOTFH{}}
	for name := range strings.SplitSeq(strings.Trim(c.s.Export, "/"), "/") {
		ops = append(ops, &n4.NfsArgop4_OP_LOOKUP{Oplookup: n4.Lookup4args{Objname: name}})
	}
	// Mode 0600. Source: RFC 8881, 5.8.2.15: attribute 33 of a map of 32 bits each.
	create := &n4.Openflag4_OPEN4_CREATE{How: &n4.Createhow4_UNCHECKED4{Createattrs: n4.Fattr4{Attrmask: []uint32{0, 2}, AttrVals: []byte{0, 0, 1, 0x80}}}}
	ops = append(ops, c.openHow(create, &n4.OpenClaim4_CLAIM_NULL{File: file}), &n4.NfsArgop4_OP_GETFH{})
	res, err := c.sequenced("OPEN", ops...)
	if err != nil {
		return st, nil, err
	}
	k := len(res)
	return stateOf(res[k-2]), res[k-1].(*n4.NfsResop4_OP_GETFH).Opgetfh.(*n4.Getfh4res_NFS4_OK).Resok4.Object, nil
}

func stateOf(r n4.NfsResop4) n4.Stateid4 {
	return r.(*n4.NfsResop4_OP_OPEN).Opopen.(*n4.Open4res_NFS4_OK).Resok4.Stateid
}

// openAgain reclaims the open of the client's file.
func (c *client4) openAgain() error {
	res, err := c.sequenced("reclaim OPEN", &n4.NfsArgop4_OP_PUTFH{Opputfh: n4.Putfh4args{Object: c.fh}},
		c.openHow(&n4.Openflag4_default{Opentype: n4.OPEN4_NOCREATE}, &n4.OpenClaim4_CLAIM_PREVIOUS{DelegateType: n4.OPEN_DELEGATE_NONE}))
	if err == nil {
		c.open = stateOf(res[len(res)-1])
	}
	return err
}

func (c *client4) lockFile(fh []byte, open n4.Stateid4, reclaim bool) (st n4.Stateid4, err error) {
	op := "LOCK"
	if reclaim {
		op = "reclaim LOCK"
	}
	res, err := c.sequenced(op, &n4.NfsArgop4_OP_PUTFH{Opputfh: n4.Putfh4args{Object: fh}},
		&n4.NfsArgop4_OP_LOCK{Oplock: n4.Lock4args{Locktype: n4.WRITE_LT, Reclaim: reclaim, Length: ^uint64(0), Locker: &n4.Locker4_TRUE{
			OpenOwner: n4.OpenToLockOwner4{OpenStateid: open, LockOwner: n4.StateOwner4{Clientid: c.id, Owner: []byte("lock " + c.name)}},
		}}})
	if err != nil {
		return st, err
	}
	return res[len(res)-1].(*n4.NfsResop4_OP_LOCK).Oplock.(*n4.Lock4res_NFS4_OK).Resok4.LockStateid, nil
}

func (c *client4) release(fh []byte, open, lock n4.Stateid4) error {
	put := &n4.NfsArgop4_OP_PUTFH{Opputfh: n4.Putfh4args{Object: fh}}
	_, err := c.sequenced("LOCKU", put, &n4.NfsArgop4_OP_LOCKU{Oplocku: n4.Locku4args{Locktype: n4.WRITE_LT, LockStateid: lock, Length: ^uint64(0)}})
	if err != nil {
		return err
	}
	_, err = c.sequenced("CLOSE", put, &n4.NfsArgop4_OP_CLOSE{Opclose: n4.Close4args{OpenStateid: open}})
	return err
}

// begin has the client open and lock its file.
func (c *client4) begin() error {
	if c.held {
		return nil
	}
	if err := c.connect(); err != nil {
		return err
	}
	if err := c.reclaimed(); err != nil {
		return err
	}
	var err error
	if c.open, c.fh, err = c.openNew(c.name); err != nil {
		return err
	}
	_, err = c.lockFile(c.fh, c.open, false)
	c.held = err == nil
	return err
}

// work is what a busy client does: it locks a second file, and gives it back.
func (c *client4) work() error {
	open, fh, err := c.openNew(c.name + ".work")
	if err != nil {
		return err
	}
	lock, err := c.lockFile(fh, open, false)
	if err != nil {
		return err
	}
	return c.release(fh, open, lock)
}

// recover reclaims the client's open and lock from a server that has started anew.
func (c *client4) recover() error {
	if err := c.connect(); err != nil {
		return err
	}
	if err := c.openAgain(); err != nil {
		return err
	}
	if _, err := c.lockFile(c.fh, c.open, true); err != nil {
		return err
	}
	return c.reclaimed()
}

// restarted says whether an error means that the server does not know the session.
func restarted(err error) bool {
	st, ok := err.(status)
	return ok && (st.code == n4.NFS4ERR_BADSESSION || st.code == n4.NFS4ERR_STALE_CLIENTID || st.code == n4.NFS4ERR_DEADSESSION)
}

// later says whether the server wants the client to try again.
func later(err error) bool {
	st, ok := err.(status)
	return ok && (st.code == n4.NFS4ERR_GRACE || st.code == n4.NFS4ERR_DELAY)
}

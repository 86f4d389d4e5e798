package vdisk

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/mortarhpc/mortar/internal/rack/tool"
)

// The target's half of iSCSI, as far as QEMU's client (libiscsi) uses it: one connection for a
// session, no digests, no authentication, no error recovery.
//
// A nexus is the name of the initiator and that of the target, without the session's
// identifier (ISID): QEMU draws a new one for each connection, and a real HBA's port has one
// name for ever.
//
// Source: RFC 7143.
const (
	pduHead = 48

	opNopOut   = 0x00
	opSCSI     = 0x01
	opTask     = 0x02
	opLogin    = 0x03
	opDataOut  = 0x05
	opLogout   = 0x06
	opNopIn    = 0x20
	opResponse = 0x21
	opTaskDone = 0x22
	opLoggedIn = 0x23
	opDataIn   = 0x25
	opLeft     = 0x26
	opReady    = 0x31
	immediate  = 0x40
	final      = 0x80

	noTag = 0xffffffff
	// mostPDU bounds what an initiator sends at once, and mostBurst what it sends, or gets,
	// for one request of ours. window is the number of commands under way.
	mostPDU   = 1 << 20
	mostBurst = 1 << 18
	window    = 128
)

// Find finds a target by its name: the drive, and which of its ports it is.
type Find func(target string) (d *Drive, port int)

// ServeISCSI serves drives until the listener is closed.
func ServeISCSI(l net.Listener, find Find) error {
	return tool.ServeConns(l, func(conn net.Conn) error {
		s := &session{conn: conn, in: bufio.NewReaderSize(conn, 1<<17), out: bufio.NewWriterSize(conn, 1<<17), most: 8192, tasks: map[uint32]*task{}}
		err := s.serve(find)
		s.mu.Lock()
		s.abort() // the initiator sends them anew: a late one would overwrite what came since
		s.mu.Unlock()
		if !errors.Is(err, io.EOF) {
			return fmt.Errorf("iSCSI: %s %w", s.nexus, err)
		}
		return nil
	})
}

type session struct {
	conn  net.Conn
	in    *bufio.Reader
	drive *Drive
	nexus string
	port  int
	most  int // bytes of data that the initiator takes in one PDU

	mu       sync.Mutex // of what follows
	out      *bufio.Writer
	status   uint32 // number of the next status
	expected uint32 // number of the next command
	tasks    map[uint32]*task
}

// task is a command under way, by its tag.
type task struct {
	command
	tag     uint32
	lun     [8]byte
	read    bool
	length  int // bytes that the initiator expects to move
	got     int // of the data that it sends
	asked   int // up to here they were asked for
	aborted bool
}

type pdu struct {
	head [pduHead]byte
	data []byte
}

func (p *pdu) op() byte           { return p.head[0] & 0x3f }
func (p *pdu) word(at int) uint32 { return binary.BigEndian.Uint32(p.head[at:]) }

func (s *session) next() (*pdu, error) {
	p := &pdu{}
	if _, err := io.ReadFull(s.in, p.head[:]); err != nil {
		return nil, err
	}
	more := int(p.head[4]) * 4
	n := int(p.word(4) & 0xffffff)
	if n > mostPDU || more > 0 {
		return nil, fmt.Errorf("a PDU of %d bytes, with %d of additional headers", n, more)
	}
	p.data = make([]byte, (n+3)&^3)
	_, err := io.ReadFull(s.in, p.data)
	p.data = p.data[:n]
	return p, err
}

// send completes and sends a PDU of ours. The caller holds mu.
func (s *session) send(op, flags byte, tag uint32, numbered bool, data []byte, fill func(h []byte)) error {
	be, h := binary.BigEndian, make([]byte, pduHead)
	h[0], h[1] = op, flags
	be.PutUint32(h[4:], uint32(len(data)))
	be.PutUint32(h[16:], tag)
	be.PutUint32(h[20:], noTag)
	be.PutUint32(h[24:], s.status)
	be.PutUint32(h[28:], s.expected)
	be.PutUint32(h[32:], s.expected+window-1)
	if fill != nil {
		fill(h)
	}
	if numbered {
		s.status++
	}
	s.out.Write(h)
	s.out.Write(data)
	s.out.Write(make([]byte, -len(data)&3))
	return s.out.Flush()
}

func (s *session) serve(find Find) error {
	if err := s.login(find); err != nil {
		return err
	}
	for {
		p, err := s.next()
		if err != nil {
			return err
		}
		if err := s.take(p); err != nil {
			return err
		}
	}
}

// login goes through the stages of a login. It ends the connection of an initiator that wants
// something else than what QEMU's does.
func (s *session) login(find Find) error {
	for {
		p, err := s.next()
		if err != nil {
			return err
		}
		if p.op() != opLogin || p.head[1]&0x40 != 0 {
			return fmt.Errorf("opcode %#x where a login is expected", p.op())
		}
		answer := map[string]string{}
		var text []byte
		reply := func(key, value string) { text = append(text, key+"="+value+"\x00"...) }
		for _, kv := range strings.Split(string(p.data), "\x00") {
			if k, v, ok := strings.Cut(kv, "="); ok {
				answer[k] = v
			}
		}
		if name := answer["TargetName"]; name != "" {
			if s.drive, s.port = find(name); s.drive == nil {
				return fmt.Errorf("there is no target %s", name)
			}
			s.nexus = answer["InitiatorName"] + "," + name
		}
		if s.drive == nil {
			return errors.New("a login without a target")
		}
		if answer["AuthMethod"] != "" {
			reply("AuthMethod", "None")
			reply("TargetPortalGroupTag", "1")
		}
		for _, k := range []string{"HeaderDigest", "DataDigest"} {
			if answer[k] != "" {
				reply(k, "None")
			}
		}
		if v := answer["MaxRecvDataSegmentLength"]; v != "" {
			if _, err := fmt.Sscan(v, &s.most); err != nil || s.most < 512 {
				return fmt.Errorf("MaxRecvDataSegmentLength=%s", v)
			}
			reply("MaxRecvDataSegmentLength", fmt.Sprint(mostPDU))
		}
		// Data that comes with a command, and the rest when it is asked for.
		for _, kv := range [][2]string{{"InitialR2T", "Yes"}, {"ImmediateData", "Yes"}, {"MaxBurstLength", fmt.Sprint(mostBurst)}, {"FirstBurstLength", fmt.Sprint(mostBurst)},
			{"MaxOutstandingR2T", "1"}, {"MaxConnections", "1"}, {"ErrorRecoveryLevel", "0"}, {"DataPDUInOrder", "Yes"}, {"DataSequenceInOrder", "Yes"},
			{"DefaultTime2Wait", "0"}, {"DefaultTime2Retain", "0"}, {"IFMarker", "No"}, {"OFMarker", "No"}} {
			if answer[kv[0]] != "" {
				reply(kv[0], kv[1])
			}
		}
		s.mu.Lock()
		s.expected = p.word(24)
		flags := p.head[1]
		err = s.send(opLoggedIn, flags, p.word(16), true, text, func(h []byte) {
			copy(h[8:14], p.head[8:14])
			if clear(h[14:16]); flags&0x83 == 0x83 {
				h[15] = 1 // the session's handle
			}
			clear(h[20:24])
		})
		s.mu.Unlock()
		if err != nil || flags&0x83 == 0x83 { // to the full-feature phase
			return err
		}
	}
}

func (s *session) take(p *pdu) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.head[0]&immediate == 0 && p.op() != opDataOut {
		s.expected = p.word(24) + 1
	}
	tag := p.word(16)
	switch p.op() {
	case opNopOut:
		if tag == noTag {
			return nil
		}
		return s.send(opNopIn, final, tag, true, p.data, nil)
	case opSCSI:
		t := &task{tag: tag, length: int(p.word(20)), read: p.head[1]&0x40 != 0}
		t.nexus, t.port, t.block = s.nexus, s.port, p.head[32:48]
		copy(t.lun[:], p.head[8:16])
		s.tasks[tag] = t
		if p.head[1]&0x20 == 0 {
			s.start(t)
			return nil
		}
		t.data = make([]byte, t.length)
		t.got = copy(t.data, p.data)
		return s.more(t)
	case opDataOut:
		t := s.tasks[tag]
		if t == nil {
			return nil // aborted
		}
		at := int(p.word(40))
		if at != t.got || at+len(p.data) > t.asked {
			return fmt.Errorf("data from %d on where %d to %d are expected", at, t.got, t.asked)
		}
		t.got += copy(t.data[at:], p.data)
		if t.got < t.asked {
			return nil
		}
		return s.more(t)
	case opTask:
		if t := s.tasks[p.word(20)]; p.head[1]&0x7f != 1 { // not ABORT TASK
			s.abort()
		} else if t != nil {
			t.aborted = true
			delete(s.tasks, t.tag)
		}
		return s.send(opTaskDone, final, tag, true, nil, func(h []byte) { clear(h[20:24]) })
	case opLogout:
		return errors.Join(s.send(opLeft, final, tag, true, nil, func(h []byte) { clear(h[20:24]) }), io.EOF)
	}
	return fmt.Errorf("opcode %#x", p.op())
}

// abort ends all commands that have not begun. The caller holds mu.
func (s *session) abort() {
	for _, t := range s.tasks {
		t.aborted = true
	}
	clear(s.tasks)
}

// more asks for more data of a command, or starts it if all are there. The caller holds mu.
func (s *session) more(t *task) error {
	if t.got >= t.length {
		s.start(t)
		return nil
	}
	n := min(t.length-t.got, mostBurst)
	t.asked = t.got + n
	return s.send(opReady, final, t.tag, false, nil, func(h []byte) {
		copy(h[8:16], t.lun[:])
		binary.BigEndian.PutUint32(h[20:], t.tag)
		binary.BigEndian.PutUint32(h[40:], uint32(t.got))
		binary.BigEndian.PutUint32(h[44:], uint32(n))
	})
}

// start carries a command out beside others: one that waits for a slow drive holds up neither
// the next one nor the initiator's pings.
func (s *session) start(t *task) {
	go func() {
		if _, n, media, write := t.transfer(); media {
			time.Sleep(s.drive.delay(int(n), write))
		}
		s.mu.Lock()
		aborted := t.aborted
		s.mu.Unlock()
		if aborted {
			return
		}
		out, said := s.drive.do(&t.command)
		s.mu.Lock()
		defer s.mu.Unlock()
		if t.aborted {
			return
		}
		delete(s.tasks, t.tag)
		if err := s.answer(t, out, said); err != nil {
			s.conn.Close()
		}
	}()
}

// answer sends the data and the status of a command. The caller holds mu.
func (s *session) answer(t *task, out []byte, said sense) error {
	be := binary.BigEndian
	flags, residual := byte(final), 0
	moved := len(out)
	if t.block[0] != 0 && t.data != nil {
		moved = len(t.data)
	}
	if out = out[:min(len(out), t.length)]; moved < t.length {
		flags, residual = flags|2, t.length-moved // less than expected
	} else if moved > t.length {
		flags, residual = flags|4, moved-t.length
	}
	if said == (sense{}) && t.read && len(out) > 0 {
		return s.sendData(t, out, flags, residual)
	}
	var data []byte
	status := byte(0)
	switch {
	case said == conflict:
		status = 0x18
	case said != sense{}:
		status = 0x02
		fixed := make([]byte, 18)
		fixed[0], fixed[2], fixed[7], fixed[12], fixed[13] = 0x70, said.key, 10, said.asc, said.ascq
		data = append([]byte{0, byte(len(fixed))}, fixed...)
	}
	return s.send(opResponse, flags, t.tag, true, data, func(h []byte) {
		h[3] = status
		clear(h[20:24])
		be.PutUint32(h[44:], uint32(residual))
	})
}

// sendData sends data, the last with the status. The caller holds mu.
func (s *session) sendData(t *task, out []byte, flags byte, residual int) error {
	for at, number := 0, uint32(0); at < len(out); number++ {
		n := min(len(out)-at, s.most, mostBurst-at%mostBurst)
		f, last := byte(0), at+n == len(out)
		switch {
		case last:
			f = flags | 1 // with the status
		case (at+n)%mostBurst == 0:
			f = final
		}
		if err := s.send(opDataIn, f, t.tag, last, out[at:at+n], func(h []byte) {
			if !last {
				clear(h[24:28])
			} else {
				binary.BigEndian.PutUint32(h[44:], uint32(residual))
			}
			binary.BigEndian.PutUint32(h[36:], number)
			binary.BigEndian.PutUint32(h[40:], uint32(at))
		}); err != nil {
			return err
		}
		at += n
	}
	return nil
}

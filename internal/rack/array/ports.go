package array

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/mortarhpc/mortar/internal/rack/tool"
)

// The host ports of an array: QEMU's iSCSI client connects to them, and they connect
// to the controllers. They exist for one reason. QEMU's client draws a new initiator
// session ID (ISID) for every connection, and the ISID is part of an initiator's
// identity. So after each reconnect LIO would not recognize the holder of a
// reservation, and refuse its writes (seen after the return of a controller). A real
// HBA's port keeps its name, so the host ports set a constant ISID.

// fabricISID is the ISID of every session: type "random" (10b), and an arbitrary
// number. Sessions differ by their initiators' names.
//
// Source: RFC 7143, 11.12.5.
var fabricISID = [6]byte{0x80, 'r', 'a', 'c', 0, 1}

func ServePort(l net.Listener, portal string) error {
	return tool.ServeConns(l, func(conn net.Conn) error {
		if err := carry(conn, portal); err != nil {
			return fmt.Errorf("%s %w", portal, err)
		}
		return nil
	})
}

// carry connects an initiator with a controller's portal.
func carry(conn net.Conn, portal string) error {
	defer conn.Close()
	up, err := net.DialTimeout("tcp", portal, 5*time.Second)
	if err != nil {
		return err
	}
	defer up.Close()
	back := make(chan error, 1)
	go func() {
		_, err := io.Copy(conn, up)
		// If the controller ends the session, close the initiator's connection too.
		back <- errors.Join(err, conn.Close())
	}()
	err = login(up, conn)
	if err == nil {
		_, err = io.Copy(up, conn) // by splice(2), without copies through this process
	}
	up.Close()
	<-back
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

const (
	pduHeader    = 48 // basic header segment
	opLogin      = 0x03
	opImmediate  = 0x40
	loginTransit = 0x80
	stageMask    = 0x03
	fullFeature  = 3
	mostLogin    = 1 << 16 // maximum size of a login request, bytes
)

// login forwards an initiator's login requests with fabricISID in place of their
// ISID, up to the one that ends the login.
//
// Source: RFC 7143, 11.2 and 11.12.
func login(to io.Writer, from io.Reader) error {
	for {
		head := make([]byte, pduHeader)
		if _, err := io.ReadFull(from, head); err != nil {
			return err
		}
		if head[0]&^opImmediate != opLogin {
			return fmt.Errorf("opcode %#x where a login is expected", head[0])
		}
		copy(head[8:14], fabricISID[:])
		// Additional headers in words of four bytes, then data, padded to them.
		rest := int(head[4])*4 + int(binary.BigEndian.Uint32(head[4:])&0xffffff+3)&^3
		if rest > mostLogin {
			return fmt.Errorf("a login of %d bytes", rest)
		}
		pdu := make([]byte, pduHeader+rest)
		copy(pdu, head)
		if _, err := io.ReadFull(from, pdu[pduHeader:]); err != nil {
			return err
		}
		if _, err := to.Write(pdu); err != nil {
			return err
		}
		if head[1]&loginTransit != 0 && head[1]&stageMask == fullFeature {
			return nil
		}
	}
}

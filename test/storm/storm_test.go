package main

import (
	"bytes"
	_ "embed"
	"encoding/hex"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/buildbarn/go-xdr/pkg/protocols/rpcv2"
)

//go:embed testdata/knfsd.txt
var knfsd string

// A client that begins sends what a client of a rack sent, byte by byte, and understands
// what knfsd answered.
func TestAgainstKnfsd(t *testing.T) {
	ours, theirs := net.Pipe()
	defer ours.Close()
	s := &storm{Export: "/srv/home/data", count: newCounts()}
	c := &client4{s: s, name: "storm-probe", c: newConn(ours)}
	go func() {
		defer theirs.Close()
		for line := range strings.Lines(knfsd) {
			kind, text, _ := strings.Cut(strings.TrimSpace(line), " ")
			b, err := hex.DecodeString(text)
			switch {
			case kind == "#":
			case err != nil:
				t.Error(err)
			case kind == "reply":
				if _, err := theirs.Write(b); err != nil {
					t.Error(err)
				}
			default:
				got := make([]byte, len(b))
				if _, err := io.ReadFull(theirs, got); err != nil {
					t.Error(err)
				}
				if !bytes.Equal(got, b) {
					t.Errorf("sent     %x\nrecorded %x", got, b)
				}
			}
		}
	}()
	// Both are of the recorded run.
	c.c.xid = 0x9d3abef3 - 1
	was := verifier
	verifier = [8]byte{0x18, 0xec, 0x4c, 0xde, 0x91, 0x99, 0x6a, 0xdd}
	defer func() { verifier = was }()
	if err := c.begin(); err != nil {
		t.Fatal(err)
	}
	if !c.held || len(c.fh) != 40 || c.open.Seqid != 1 {
		t.Errorf("%+v", c)
	}
}

// getport is what sm-notify of Debian 13 sent on a rack.
const getport = "6b0c5eca0000000000000002000186a0000000020000000300000000000000000000000000000000000186b8000000010000001100000000"

// sm-notify asks for a port, and then gives its notice.
func TestNotified(t *testing.T) {
	recorded, err := hex.DecodeString(getport)
	if err != nil {
		t.Fatal(err)
	}
	if answer, notify, err := notified(recorded); err != nil || notify || hex.EncodeToString(answer) != "6b0c5eca0000000100000000000000000000000000000000"+"0000006f" {
		t.Errorf("%x %v %v", answer, notify, err)
	}
	for _, c := range []struct {
		what                     string
		program, version, number uint32
		args                     io.WriterTo
		port                     uint32
		notify, fails            bool
	}{
		{what: "GETPORT", program: portmapProgram, version: 2, number: 3, args: numbers{statdProgram, 1, 17, 0}, port: portmapPort},
		{what: "SM_NOTIFY", program: statdProgram, version: 1, number: 6, args: numbers{0, 3}, notify: true},
		{what: "a call of NFS", program: nfsProgram, version: 3, fails: true},
	} {
		call, err := message(7, "nfs1", c.program, c.version, c.number, c.args)
		if err != nil {
			t.Fatal(err)
		}
		answer, notify, err := notified(call)
		if (err != nil) != c.fails || notify != c.notify {
			t.Errorf("%s: %v %v", c.what, notify, err)
		}
		if c.fails {
			continue
		}
		var m rpcv2.RpcMsg
		r := bytes.NewReader(answer)
		if _, err := m.ReadFrom(r); err != nil || m.Xid != 7 {
			t.Errorf("%s: %+v %v", c.what, m, err)
		}
		port := numbers{0}
		if c.port > 0 {
			if _, err := port.ReadFrom(r); err != nil || port[0] != c.port {
				t.Errorf("%s: %v %v", c.what, port, err)
			}
		}
	}
	if _, _, err := notified([]byte("short")); err == nil {
		t.Error("half a call passes")
	}
}

func TestMostWithin(t *testing.T) {
	t0 := time.Unix(1000, 0)
	var all []time.Time
	for _, ms := range []int{0, 900, 950, 999, 1899, 5000} {
		all = append(all, t0.Add(time.Duration(ms)*time.Millisecond))
	}
	if got := mostWithin(all, time.Second); got != 4 {
		t.Error(got)
	}
	if got := after(t0, all); got.Last != 5 || got.Median != 0.95 || got.Clients != 6 {
		t.Errorf("%+v", got)
	}
}

// An RPC record may come in several fragments.
func TestRecord(t *testing.T) {
	b, err := record(bytes.NewReader([]byte{0, 0, 0, 1, 'a', 0x80, 0, 0, 2, 'b', 'c', 'd'}))
	if err != nil || string(b) != "abc" {
		t.Errorf("%q %v", b, err)
	}
	if _, err := record(bytes.NewReader([]byte{0x80, 0, 0, 2, 'b'})); err == nil {
		t.Error("half a record passes")
	}
}

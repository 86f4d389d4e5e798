package kernel

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
)

// A question and answers, byte by byte as the standards have them
// (RFC 5531 and 1833).
func TestGetPort(t *testing.T) {
	p := Program{Name: "mountd", Number: 100005, Version: 3}
	question := "80000038" + "00000007" + "00000000" + "00000002" + "000186a0" + "00000002" + "00000003" +
		"0000000000000000" + "0000000000000000" + "000186a5" + "00000003" + "00000006" + "00000000"
	for name, tc := range map[string]struct {
		answer string
		port   uint32
		err    string
	}{
		"known":         {"8000001c" + "00000007" + "00000001" + "00000000" + "0000000000000000" + "00000000" + "00004e50", 20048, ""},
		"with verifier": {"80000020" + "00000007" + "00000001" + "00000000" + "0000000100000004" + "aabbccdd" + "00000000" + "00004e50", 20048, ""},
		"unknown":       {"8000001c" + "00000007" + "00000001" + "00000000" + "0000000000000000" + "00000000" + "00000000", 0, ""},
		"refused":       {"80000014" + "00000007" + "00000001" + "00000001" + "00000001" + "00000005", 0, "refused"},
		"other answer":  {"8000001c" + "00000008" + "00000001" + "00000000" + "0000000000000000" + "00000000" + "00004e50", 0, "not understood"},
		"no program":    {"80000018" + "00000007" + "00000001" + "00000000" + "0000000000000000" + "00000001", 0, "refused"},
		"short":         {"80000004" + "00000007", 0, "not understood"},
		"cut":           {"8000001c" + "00000007", 0, "EOF"},
		"too long":      {"ffffffff", 0, "not understood"},
	} {
		raw, err := hex.DecodeString(tc.answer)
		if err != nil {
			t.Fatal(err)
		}
		var sent bytes.Buffer
		port, err := getPort(struct {
			io.Reader
			io.Writer
		}{bytes.NewReader(raw), &sent}, 7, p)
		if port != tc.port || (err == nil) != (tc.err == "") || (err != nil && !strings.Contains(err.Error(), tc.err)) {
			t.Errorf("%s: %d, %v", name, port, err)
		}
		if got := hex.EncodeToString(sent.Bytes()); got != question {
			t.Errorf("asked %s, want %s", got, question)
		}
	}
}

// null over a real connection: each reply is an answer, silence and a closed connection are not.
func TestNull(t *testing.T) {
	sh(t, "ip", "link", "set", "lo", "up")
	reply := func(xid uint32, words ...uint32) []byte {
		var b []byte
		for _, w := range append([]uint32{1<<31 | uint32(4+4*len(words)), xid}, words...) {
			b = binary.BigEndian.AppendUint32(b, w)
		}
		return b
	}
	for name, c := range map[string]struct {
		answer []byte
		ok     bool
	}{
		"answer":        {reply(1, 1, 0, 0, 0, 0), true},
		"other version": {reply(1, 1, 0, 0, 0, 2, 3, 3), true},
		"denied":        {reply(1, 1, 1, 1, 5), true},
		"other call":    {reply(2, 1, 0, 0, 0, 0), false},
		"closed":        {nil, false},
		"no RPC":        {[]byte("HTTP/1.1 400 Bad Request"), false},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp4", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			asked := make(chan []byte, 1)
			go func() {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				defer conn.Close()
				b := make([]byte, 44)
				io.ReadFull(conn, b)
				asked <- b
				conn.Write(c.answer)
			}()
			err = New().Null(t.Context(), netip.MustParseAddrPort(l.Addr().String()), Program{Name: "nfs", Number: 100003, Version: 4})
			if (err == nil) != c.ok {
				t.Error(err)
			}
			if b := <-asked; binary.BigEndian.Uint32(b[16:]) != 100003 || binary.BigEndian.Uint32(b[20:]) != 4 || binary.BigEndian.Uint32(b[24:]) != 0 {
				t.Errorf("asked %x", b)
			}
		})
	}
	// A stopped process: the kernel takes the connection, and no process reads.
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		conn, err := l.Accept()
		if err == nil {
			cancel()
			defer conn.Close()
		}
	}()
	if err := callNull(ctx, netip.MustParseAddrPort(l.Addr().String()), Program{Name: "nlockmgr", Number: 100021, Version: 4}); err == nil || errors.Is(err, errRefused) {
		t.Error(err)
	}
}

package netprobe

import (
	"context"
	"net"
	"strings"
	"testing"
)

func listen(t *testing.T, tok string) int {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	port := make(chan int, 1)
	ended := make(chan error, 1)
	go func() {
		ended <- Serve(ctx, ServeParams{Address: "127.0.0.1", Token: tok, Seconds: 60}, func(e ServeEvent) { port <- e.Port })
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return <-port
}

const secret = "00112233445566778899aabbccddeeff"

func TestStreams(t *testing.T) {
	port := listen(t, secret)
	for _, write := range []bool{false, true} {
		for _, n := range [][2]int{{1, 1}, {4, 8}} {
			r, err := Run(context.Background(), RunParams{Address: "127.0.0.1", Port: port, Token: secret, Streams: n[0], Concurrency: n[1], RecordBytes: 64 << 10, Write: write, Seconds: 0.2})
			if err != nil || r.Bytes == 0 || r.Bytes%(64<<10) != 0 || r.Seconds < 0.2 {
				t.Errorf("write %v, %v: %+v %v", write, n, r, err)
			}
		}
	}
}

func TestStranger(t *testing.T) {
	port := listen(t, secret)
	r, err := Run(context.Background(), RunParams{Address: "127.0.0.1", Port: port, Token: strings.Repeat("0", 32), Streams: 1, Concurrency: 1, Seconds: 0.2})
	if err == nil {
		t.Errorf("a stranger was served: %+v", r)
	}
}

func TestBadParams(t *testing.T) {
	ok := RunParams{Address: "127.0.0.1", Port: 1, Token: secret, Streams: 1, Concurrency: 1, Seconds: 1}
	for name, spoil := range map[string]func(*RunParams){
		"token": func(p *RunParams) { p.Token = "x" }, "streams": func(p *RunParams) { p.Streams = 0 }, "concurrency": func(p *RunParams) { p.Concurrency = -1 },
		"record": func(p *RunParams) { p.RecordBytes = 1 << 30 }, "seconds": func(p *RunParams) { p.Seconds = 0 },
	} {
		p := ok
		spoil(&p)
		if _, err := Run(context.Background(), p); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	ok.Port = port
	if _, err := Run(context.Background(), ok); err == nil {
		t.Error("nobody listened, and it went well")
	}
}

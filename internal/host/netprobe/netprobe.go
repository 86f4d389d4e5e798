// Package netprobe measures the network between two hosts without storage: TCP
// streams, each with a number of records under way, as LNET selftest does it for
// Lustre. It runs inside the agents. The listener accepts only peers that know the
// probe's token, and closes when the probe ends.
package netprobe

import (
	"context"
	"crypto/subtle"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mortarhpc/mortar/internal/host/agent"
)

// ServeParams are the parameters of net.serve: it listens until it is
// cancelled or the time is over.
type ServeParams struct {
	Address string  `json:"address"` // to listen on; a port is found
	Token   string  `json:"token"`   // hex, 32 digits: who has it may send and be sent to
	Seconds float64 `json:"seconds"`
}

// ServeEvent tells where it listens.
type ServeEvent struct {
	Port int `json:"port"`
}

// RunParams are the parameters of net.run.
type RunParams struct {
	Address     string  `json:"address"`
	Port        int     `json:"port"`
	Token       string  `json:"token"`
	Streams     int     `json:"streams"`
	Concurrency int     `json:"concurrency"`  // records on their way at a time in each stream
	RecordBytes int     `json:"record_bytes"` // default 1 MiB
	Write       bool    `json:"write"`        // to the server; otherwise from it
	Seconds     float64 `json:"seconds"`
}

// RunResult is what net.run answers.
type RunResult struct {
	Bytes   int64   `json:"bytes"` // of records that were answered for
	Seconds float64 `json:"seconds"`
}

const (
	maxRecord  = 16 << 20
	maxStreams = 256
)

// The agent's ops. OpServe emits its event at once, and ends when it is told to.
const (
	OpServe agent.Stream[ServeParams, ServeEvent, agent.None] = "net.serve"
	OpRun   agent.Op[RunParams, *RunResult]                   = "net.run"
)

// Handlers answer these ops.
func Handlers() agent.Mux {
	m := agent.Mux{}
	OpServe.Answer(m, func(ctx context.Context, p ServeParams, emit func(ServeEvent)) (agent.None, error) {
		return agent.None{}, Serve(ctx, p, emit)
	})
	OpRun.Answer(m, Run)
	return m
}

func token(s string) ([]byte, error) {
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != 16 {
		return nil, errors.New("token: 32 hex digits are needed")
	}
	return b, nil
}

// header of a stream: the token, the record's size, and the direction.
const headerBytes = 16 + 4 + 1

// Serve answers streams until ctx ends or the time is over.
func Serve(ctx context.Context, p ServeParams, listening func(ServeEvent)) error {
	secret, err := token(p.Token)
	if err != nil {
		return err
	}
	if p.Seconds <= 0 || p.Seconds > 3600 {
		return fmt.Errorf("seconds %g: use up to 3600", p.Seconds)
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(p.Seconds*1e9))
	defer cancel()
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", net.JoinHostPort(p.Address, "0"))
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	tcp, ok := l.Addr().(*net.TCPAddr)
	if !ok {
		return errors.Join(fmt.Errorf("%s is no TCP address", l.Addr()), l.Close())
	}
	listening(ServeEvent{Port: tcp.Port})
	var wg sync.WaitGroup
	for {
		c, err := l.Accept()
		if err != nil {
			wg.Wait()
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		wg.Go(func() {
			defer c.Close()
			defer context.AfterFunc(ctx, func() { _ = c.Close() })()
			answer(c, secret)
		})
	}
}

// answer serves one stream: a record for each byte asked for, or a byte for
// each record got. It ends with the stream.
func answer(c net.Conn, secret []byte) {
	var head [headerBytes]byte
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.ReadFull(c, head[:]); err != nil || subtle.ConstantTimeCompare(head[:16], secret) != 1 {
		return
	}
	_ = c.SetReadDeadline(time.Time{})
	n := binary.BigEndian.Uint32(head[16:])
	if n == 0 || n > maxRecord {
		return
	}
	buf, one := make([]byte, n), make([]byte, 1)
	in, out := one, buf
	if head[20] == 'w' {
		in, out = buf, one
	}
	for {
		if _, err := io.ReadFull(c, in); err != nil {
			return
		}
		if _, err := c.Write(out); err != nil {
			return
		}
	}
}

// Run keeps streams full for a time.
func Run(ctx context.Context, p RunParams) (*RunResult, error) {
	secret, err := token(p.Token)
	if err != nil {
		return nil, err
	}
	if p.RecordBytes == 0 {
		p.RecordBytes = 1 << 20
	}
	switch {
	case p.Streams < 1 || p.Streams > maxStreams:
		return nil, fmt.Errorf("streams %d: use 1 to %d", p.Streams, maxStreams)
	case p.Concurrency < 1 || p.Concurrency > 1024:
		return nil, fmt.Errorf("concurrency %d: use 1 to 1024", p.Concurrency)
	case p.RecordBytes < 1 || p.RecordBytes > maxRecord:
		return nil, fmt.Errorf("record_bytes %d: use 1 to %d", p.RecordBytes, maxRecord)
	case p.Seconds <= 0 || p.Seconds > 3600:
		return nil, fmt.Errorf("seconds %g: use up to 3600", p.Seconds)
	}
	conns := make([]net.Conn, 0, p.Streams)
	defer func() {
		for _, c := range conns {
			_ = c.Close()
		}
	}()
	d := net.Dialer{Timeout: 10 * time.Second}
	head := append(append([]byte{}, secret...), binary.BigEndian.AppendUint32(nil, uint32(p.RecordBytes))...)
	dir := byte('r')
	if p.Write {
		dir = 'w'
	}
	head = append(head, dir)
	for range p.Streams {
		c, err := d.DialContext(ctx, "tcp", net.JoinHostPort(p.Address, fmt.Sprint(p.Port)))
		if err != nil {
			return nil, err
		}
		conns = append(conns, c)
		if _, err := c.Write(head); err != nil {
			return nil, err
		}
	}
	var done atomic.Int64
	start := time.Now()
	end := start.Add(time.Duration(p.Seconds * 1e9))
	stop := context.AfterFunc(ctx, func() {
		for _, c := range conns {
			_ = c.Close()
		}
	})
	defer stop()
	var wg sync.WaitGroup
	errs := make([]error, len(conns))
	for i, c := range conns {
		wg.Go(func() { errs[i] = stream(c, p, end, &done) })
	}
	wg.Wait()
	took := time.Since(start).Seconds()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return &RunResult{Bytes: done.Load() * int64(p.RecordBytes), Seconds: took}, errors.Join(errs...)
}

// stream keeps a number of records on their way until the end.
func stream(c net.Conn, p RunParams, end time.Time, done *atomic.Int64) error {
	in, out := make([]byte, p.RecordBytes), make([]byte, 1)
	if p.Write {
		in, out = out, in
	}
	// At the end both directions are cut off; bytes on their way then do
	// not count.
	_ = c.SetDeadline(end)
	slots := make(chan struct{}, p.Concurrency)
	quit := make(chan struct{})
	defer close(quit)
	go func() {
		for {
			select {
			case slots <- struct{}{}:
			case <-quit:
				return
			}
			if _, err := c.Write(out); err != nil {
				return // the reader finds out
			}
		}
	}()
	for {
		switch _, err := io.ReadFull(c, in); {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return nil
		case err != nil:
			return err
		}
		<-slots
		done.Add(1)
	}
}

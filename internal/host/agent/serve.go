package agent

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"github.com/mortarhpc/mortar/internal/base/health"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

// Handler answers one op. It may emit any number of events before it
// returns; what it returns is marshalled to JSON. Handlers run concurrently,
// each in its own goroutine, and should end soon after ctx does, unless they
// asked for [Hold]. Errors that are a *Error cross the wire whole, a
// *resource.Refusal becomes one.
type Handler func(ctx context.Context, params json.RawMessage, emit func(any)) (any, error)

// Mux maps ops to handlers.
type Mux map[string]Handler

// Merge returns a Mux with the handlers of all; a later one wins.
func Merge(all ...map[string]Handler) Mux {
	m := Mux{}
	for _, a := range all {
		maps.Copy(m, a)
	}
	return m
}

const (
	// MaxLine bounds a line in either direction, in bytes: the largest is a package of
	// Lustre's modules, of 9 MB here and more with debug symbols, in base64.
	MaxLine = 64 << 20
	// maxRequests bounds the requests that run at once.
	maxRequests = 256
	// lingerAfterEOF is how long Serve waits, once its input has ended, for
	// handlers that did not ask for Hold: one that hangs in the kernel must
	// not keep a dead session's agent alive.
	lingerAfterEOF = 2 * time.Second
)

// Why a handler's context ended; see context.Cause.
var (
	ErrCancelled    = errors.New("cancelled by the other end")
	ErrDisconnected = errors.New("the other end went away")
)

type holdKey struct{}

// Hold keeps the session's agent alive until release is called, even when
// the other end goes away: what has begun to change the host is finished.
func Hold(ctx context.Context) (release func()) {
	if wg, ok := ctx.Value(holdKey{}).(*sync.WaitGroup); ok {
		wg.Add(1)
		return sync.OnceFunc(wg.Done)
	}
	return func() {}
}

// ServeLogin is Serve on this process's standard input and output, behind Begin.
func ServeLogin(ctx context.Context, mux Mux) error {
	if _, err := os.Stdout.WriteString("\n" + Begin + "\n"); err != nil {
		return err
	}
	return Serve(ctx, os.Stdin, os.Stdout, mux)
}

// Serve answers requests read from r, one JSON object a line, on w, until r
// ends, ctx ends or w fails. A line that is no request is answered with an
// error that carries ID 0; nothing read can end the session but its end.
// Serve returns nil when r ended, after all handlers that hold have returned.
func Serve(ctx context.Context, r io.Reader, w io.Writer, mux Mux) error {
	ctx, cancelAll := context.WithCancelCause(ctx)
	defer cancelAll(ErrDisconnected)
	s := &server{w: w, running: map[uint64]context.CancelCauseFunc{}, fail: cancelAll}
	var holds sync.WaitGroup
	ctx = context.WithValue(ctx, holdKey{}, &holds)

	lines := make(chan []byte)
	ended := make(chan error, 1)
	go func() { ended <- readLines(ctx, r, lines, s.overlong) }()

	var handlers sync.WaitGroup
	var err error
loop:
	for {
		select {
		case line := <-lines:
			s.dispatch(ctx, line, mux, &handlers)
		case err = <-ended:
			break loop
		case <-ctx.Done():
			err = context.Cause(ctx)
			break loop
		}
	}
	cancelAll(ErrDisconnected)
	done := make(chan struct{})
	go func() { handlers.Wait(); close(done) }()
	t := time.NewTimer(lingerAfterEOF)
	defer t.Stop()
	select {
	case <-done:
	case <-t.C:
		holds.Wait()
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

type server struct {
	mu      sync.Mutex // guards running
	running map[uint64]context.CancelCauseFunc

	wmu  sync.Mutex // guards w
	w    io.Writer
	fail context.CancelCauseFunc
}

func (s *server) overlong() {
	s.send(Response{Error: &Error{Message: fmt.Sprintf("request is longer than %d bytes", MaxLine)}})
}

func (s *server) dispatch(ctx context.Context, line []byte, mux Mux, handlers *sync.WaitGroup) {
	var req Request
	if err := json.Unmarshal(line, &req); err != nil {
		s.send(Response{Error: &Error{Message: "not a request: " + err.Error()}})
		return
	}
	refuse := func(msg string) { s.send(Response{ID: req.ID, Error: &Error{Message: msg}}) }
	if req.ID == 0 {
		refuse("a request needs an id above 0")
		return
	}
	if req.Op == "cancel" {
		s.cancel(req)
		return
	}
	h, ok := mux[req.Op]
	if !ok {
		refuse(fmt.Sprintf("unknown op %q", req.Op))
		return
	}
	hctx, cancel := context.WithCancelCause(ctx)
	s.mu.Lock()
	_, dup := s.running[req.ID]
	full := len(s.running) >= maxRequests
	if !dup && !full {
		s.running[req.ID] = cancel
	}
	s.mu.Unlock()
	switch {
	case dup:
		cancel(nil)
		refuse(fmt.Sprintf("request %d is still running", req.ID))
		return
	case full:
		cancel(nil)
		refuse(fmt.Sprintf("more than %d requests at once", maxRequests))
		return
	}
	handlers.Go(func() {
		defer cancel(nil)
		result, err := s.call(hctx, h, req)
		s.mu.Lock()
		delete(s.running, req.ID)
		s.mu.Unlock()
		if err != nil {
			s.send(Response{ID: req.ID, Error: ToError(err)})
			return
		}
		raw, err := json.Marshal(result)
		if err != nil {
			s.send(Response{ID: req.ID, Error: &Error{Message: "result: " + err.Error()}})
			return
		}
		s.send(Response{ID: req.ID, Result: raw})
	})
}

// call runs a handler; a panic in it is its request's error, not the end of
// the session.
func (s *server) call(ctx context.Context, h Handler, req Request) (result any, err error) {
	defer func() {
		if p := recover(); p != nil {
			fmt.Fprintf(os.Stderr, "panic in op %s: %v\n%s", req.Op, p, debug.Stack())
			err = &Error{Message: fmt.Sprintf("agent: panic in op %s: %v", req.Op, p)}
		}
	}()
	return h(ctx, req.Params, func(event any) {
		raw, err := json.Marshal(event)
		if err != nil {
			raw, _ = json.Marshal(map[string]string{"event_error": err.Error()})
		}
		s.send(Response{ID: req.ID, Event: raw})
	})
}

func (s *server) cancel(req Request) {
	var p struct {
		ID uint64 `json:"id"`
	}
	if err := json.Unmarshal(req.Params, &p); err != nil {
		s.send(Response{ID: req.ID, Error: &Error{Message: "cancel: " + err.Error()}})
		return
	}
	s.mu.Lock()
	cancel, found := s.running[p.ID]
	s.mu.Unlock()
	if found {
		cancel(ErrCancelled)
	}
	raw, _ := json.Marshal(map[string]bool{"found": found})
	s.send(Response{ID: req.ID, Result: raw})
}

func (s *server) send(r Response) {
	b, err := json.Marshal(r)
	if err == nil && len(b) >= MaxLine {
		b, err = json.Marshal(Response{ID: r.ID, Error: &Error{
			Message: fmt.Sprintf("answer of %d bytes is longer than a line may be (%d)", len(b), MaxLine)}})
	}
	if err != nil {
		b, _ = json.Marshal(Response{ID: r.ID, Error: &Error{Message: err.Error()}})
	}
	b = append(b, '\n')
	s.wmu.Lock()
	defer s.wmu.Unlock()
	if _, err := s.w.Write(b); err != nil {
		s.fail(fmt.Errorf("%w: %w", ErrDisconnected, err))
	}
}

// ToError makes what crosses the wire of any error.
func ToError(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	var r *resource.Refusal
	if errors.As(err, &r) {
		return &Error{Message: r.What, Mend: r.Mend, Refusal: true, Refused: r.Identity}
	}
	return &Error{Message: err.Error()}
}

// Refused is what programs recognise a refusal in an error by, which may be of an agent.
func Refused(err error) health.Identity {
	var e *Error
	var r *resource.Refusal
	switch {
	case errors.As(err, &r):
		return r.Identity
	case errors.As(err, &e):
		return e.Refused
	}
	return health.Identity{}
}

// readLines sends the lines of r to out; empty lines are skipped, and overlong ones reported.
func readLines(ctx context.Context, r io.Reader, out chan<- []byte, overlong func()) error {
	br := bufio.NewReaderSize(r, 64<<10)
	for {
		line, long, err := readLine(br)
		switch {
		case err != nil:
			return err // a last line without its end is no request
		case long:
			overlong()
		case len(line) > 1:
			select {
			case out <- line:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	}
}

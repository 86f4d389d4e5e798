package agent

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/mortarhpc/mortar/internal/base/command"
)

// ErrLost is what calls fail with when the session to the agent has ended.
var ErrLost = errors.New("session to the agent lost")

// Limits on how long an op that only reads may give no sign: no result and no
// event. An op that is not listed has none of its own: an action ends by the
// bound that it carries, load when it is told to.
const (
	// answerLimit is for what starts no command: an answer takes milliseconds.
	// It is twice the 30 s after which a connection without any sign of life is
	// given up (package host), which tells more.
	answerLimit = time.Minute
	// queryLimit is what the agent grants one command, with the time that it
	// needs to give up one that hangs in the kernel.
	queryLimit = longQuery + command.GivenUp + 2*time.Second
	// gatherQueries and diffQueries are how many commands, and no more, a gathering and
	// the diff of one resource start one after the other, if each takes its whole limit; diffs
	// gives a sign at each resource. The five wipefs of 1,008 disks take 336 s together.
	gatherQueries, diffQueries = 2, 4
)

var silence = map[string]time.Duration{
	string(OpHello): answerLimit, string(OpTime): answerLimit, string(OpRead): answerLimit,
	string(OpQuery): queryLimit + answerLimit, OpGather: gatherQueries*queryLimit + answerLimit,
	string(OpDiffs): diffQueries*queryLimit + answerLimit,
}

// aliveTime is how long an agent that was silent may take to say that it lives.
const aliveTime = 5 * time.Second

// SilentError is what a call fails with whose op gave no sign in time.
type SilentError struct {
	Op    string
	Limit time.Duration
	Alive bool // the agent answered another request meanwhile
}

func (e *SilentError) Error() string {
	s := fmt.Sprintf("op %s gave no sign for %v", e.Op, e.Limit)
	if e.Alive {
		return s + "; the agent itself answers, so something that it reads there hangs in the kernel (ps -eo pid,stat,wchan:20,args shows processes in state D)"
	}
	return s + ", and the agent answers nothing else either"
}

// Unwrap gives ErrLost if the agent is as good as gone.
func (e *SilentError) Unwrap() error {
	if e.Alive {
		return nil
	}
	return ErrLost
}

// Client is the administrator's end of one session with an agent. It is safe
// for concurrent use.
type Client struct {
	wmu sync.Mutex
	w   io.Writer

	silence map[string]time.Duration // see there

	mu      sync.Mutex
	nextID  uint64
	pending map[uint64]*call
	err     error // why the session ended; nil while it lives
	done    chan struct{}
}

// call collects what was answered to one request. The queue is unbounded so
// that one slow reader of events never holds up the answers to others.
type call struct {
	queue  []Response
	signal chan struct{} // buffered 1: there is something in the queue
}

// NewClient starts a session over r and w. The session ends when r does; the
// caller closes both.
func NewClient(r io.Reader, w io.Writer) *Client {
	c := &Client{w: w, silence: silence, pending: map[uint64]*call{}, done: make(chan struct{})}
	go c.read(r)
	return c
}

// Done is closed when the session has ended; Err says why.
func (c *Client) Done() <-chan struct{} { return c.done }

// Err is nil while the session lives.
func (c *Client) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Fail ends the session: every call under way and every later one returns
// an error that wraps ErrLost and err.
func (c *Client) Fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return
	}
	c.err = fmt.Errorf("%w: %w", ErrLost, err)
	close(c.done)
}

// Close ends the session.
func (c *Client) Close() { c.Fail(errors.New("closed")) }

func (c *Client) read(r io.Reader) {
	br := bufio.NewReaderSize(r, 64<<10)
	for {
		line, overlong, err := readLine(br)
		if err == nil && overlong {
			err = fmt.Errorf("answer longer than %d bytes", MaxLine)
		}
		if err != nil {
			c.Fail(err)
			return
		}
		var resp Response
		if err := json.Unmarshal(line, &resp); err != nil {
			c.Fail(fmt.Errorf("not an answer of the agent (%w): %.200q", err, line))
			return
		}
		c.mu.Lock()
		if p := c.pending[resp.ID]; p != nil {
			p.queue = append(p.queue, resp)
			select {
			case p.signal <- struct{}{}:
			default:
			}
		}
		c.mu.Unlock()
	}
}

// readLine reads a line with its end. It drops one that is longer than MaxLine.
func readLine(br *bufio.Reader) (line []byte, overlong bool, err error) {
	for {
		part, err := br.ReadSlice('\n')
		if overlong = overlong || len(line)+len(part) > MaxLine; overlong {
			line = nil
		} else {
			line = append(line, part...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, overlong, err
		}
	}
}

// Call sends one request and waits for its result, which is unmarshalled
// into result unless that is nil. Events are handed to onEvent in order, in
// the caller's goroutine. When ctx ends the agent is told to cancel and Call
// returns at once. An error of the agent is a *Error; the end of the session
// wraps ErrLost; an op that only reads and gives no sign is a *SilentError.
func (c *Client) Call(ctx context.Context, op string, params, result any, onEvent func(json.RawMessage)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	req := Request{Op: op}
	if params != nil {
		raw, err := json.Marshal(params)
		if err != nil {
			return fmt.Errorf("op %s: %w", op, err)
		}
		req.Params = raw
	}
	p := &call{signal: make(chan struct{}, 1)}
	c.mu.Lock()
	if c.err != nil {
		defer c.mu.Unlock()
		return c.err
	}
	c.nextID++
	req.ID = c.nextID
	c.pending[req.ID] = p
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.pending, req.ID)
		c.mu.Unlock()
	}()
	if err := c.send(req); err != nil {
		return err
	}
	limit := c.silence[op]
	quiet := time.NewTimer(limit)
	defer quiet.Stop()
	if limit == 0 {
		quiet.Stop()
	}
	for {
		select {
		case <-p.signal:
			if limit > 0 {
				quiet.Reset(limit)
			}
		case <-quiet.C:
			c.cancel(req.ID)
			actx, end := context.WithTimeout(ctx, aliveTime)
			defer end()
			return &SilentError{Op: op, Limit: limit, Alive: c.Call(actx, string(OpTime), nil, nil, nil) == nil}
		case <-c.done:
			// Answers that arrived before the connection ended still count.
			if fin, err := c.drain(p, op, result, onEvent); fin {
				return err
			}
			return c.Err()
		case <-ctx.Done():
			c.cancel(req.ID)
			return ctx.Err()
		}
		if fin, err := c.drain(p, op, result, onEvent); fin {
			return err
		}
	}
}

// drain handles what is in the queue; fin says that the call has its answer.
func (c *Client) drain(p *call, op string, result any, onEvent func(json.RawMessage)) (fin bool, err error) {
	c.mu.Lock()
	queue := p.queue
	p.queue = nil
	c.mu.Unlock()
	for _, r := range queue {
		switch {
		case r.Error != nil:
			return true, r.Error
		case len(r.Event) > 0:
			if onEvent != nil {
				onEvent(r.Event)
			}
		default:
			if result == nil {
				return true, nil
			}
			if err := json.Unmarshal(r.Result, result); err != nil {
				return true, fmt.Errorf("op %s: result: %w", op, err)
			}
			return true, nil
		}
	}
	return false, nil
}

func (c *Client) cancel(id uint64) {
	c.mu.Lock()
	c.nextID++
	req := Request{ID: c.nextID, Op: "cancel"}
	c.mu.Unlock()
	req.Params, _ = json.Marshal(map[string]uint64{"id": id})
	// Not waited for: the session may be what hangs.
	go func() { _ = c.send(req) }()
}

func (c *Client) send(req Request) error {
	b, err := json.Marshal(req)
	if err != nil {
		return err
	}
	if len(b) >= MaxLine {
		return fmt.Errorf("op %s: request of %d bytes is longer than a line may be (%d)", req.Op, len(b), MaxLine)
	}
	c.wmu.Lock()
	defer c.wmu.Unlock()
	if _, err := c.w.Write(append(b, '\n')); err != nil {
		c.Fail(err)
		return c.Err()
	}
	return nil
}

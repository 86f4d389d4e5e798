package host

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/mortarhpc/mortar/internal/host/agent"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/host/resource/storage"
)

// Session is a host with an agent, and the one thing through which programs
// reach it. Its methods are the agent's core ops; [Ask] and [Watch] are for
// those of other packages. It is safe for concurrent use.
//
// Errors of an op that failed on the host are a *agent.Error. Any other error
// means that the host, or the session, is gone.
type Session struct {
	Name string
	line Line
	gate Gate
}

// Line carries calls to a host's agent; see agent.Client.Call. A session over
// SSH has its own; tests play hosts with one.
type Line interface {
	Call(ctx context.Context, op string, params, result any, onEvent func(json.RawMessage)) error
	Close()
}

// New is a session over a line. It runs actions under the zero Gate.
func New(name string, line Line) *Session { return &Session{Name: name, line: line} }

// Under is the same session with another policy for its actions.
func (s *Session) Under(g Gate) *Session {
	x := *s
	x.gate = g
	return &x
}

// Close ends the session. Actions under way on the host are finished there.
func (s *Session) Close() { s.line.Close() }

// Ask calls an op that answers once.
func Ask[P, R any](ctx context.Context, s *Session, op agent.Op[P, R], p P) (R, error) {
	return Watch(ctx, s, agent.Stream[P, agent.None, R](op), p, nil)
}

// Watch calls an op and hands its events to on, which may be nil, in order.
func Watch[P, E, R any](ctx context.Context, s *Session, op agent.Stream[P, E, R], p P, on func(E)) (R, error) {
	var out R
	var params any = p
	if _, none := params.(agent.None); none {
		params = nil
	}
	var onEvent func(json.RawMessage)
	if on != nil {
		onEvent = func(raw json.RawMessage) {
			var e E
			if json.Unmarshal(raw, &e) == nil {
				on(e)
			}
		}
	}
	err := s.line.Call(ctx, string(op), params, &out, onEvent)
	return out, err
}

// Run carries out an action, if the session's Gate lets it pass. An action that
// may not run gives a *resource.Refusal, and one of a dry run ErrDryRun; both
// reach no host.
func (s *Session) Run(ctx context.Context, a resource.Action) (resource.Output, error) {
	var out resource.Output
	err := s.gate.Do(ctx, s.Name, a, func(ctx context.Context) (err error) {
		if a.File, err = loaded(a.File); err != nil {
			return err
		}
		out, err = Watch(ctx, s, agent.OpRun, agent.RunParams{Action: a, Permitted: s.gate.Permitted, By: By()}, func(agent.RunEvent) { s.gate.log(s.Name, Waiting, a) })
		return err
	})
	return out, err
}

// loaded is a file with its content, if that is on this machine. It must be what it was
// when the action was made.
func loaded(f *resource.File) (*resource.File, error) {
	if f == nil || f.From == "" {
		return f, nil
	}
	b, err := os.ReadFile(f.From)
	if err != nil {
		return nil, err
	}
	if fmt.Sprintf("%x", sha256.Sum256(b)) != f.SHA256 {
		return nil, fmt.Errorf("%s has changed since the plan was made: apply again", f.From)
	}
	out := *f
	out.Content, out.From = b, ""
	return &out, nil
}

// Query runs a command that only reads. Its exit code is in the output, and no
// error.
func (s *Session) Query(ctx context.Context, argv ...string) (resource.Output, error) {
	return Ask(ctx, s, agent.OpQuery, agent.QueryParams{Argv: argv})
}

// Text is what a command that only reads prints; an exit code other than 0 is an error.
func (s *Session) Text(ctx context.Context, argv ...string) (string, error) {
	out, err := s.Query(ctx, argv...)
	return resource.Printed(out, err, argv...)
}

// Read gives the content of a file.
func (s *Session) Read(ctx context.Context, path string) (string, error) {
	r, err := Ask(ctx, s, agent.OpRead, agent.ReadParams{Path: path})
	return string(r.Content), err
}

// Follow runs a command that only reads, and hands over each line that it
// prints, until it or ctx ends.
func (s *Session) Follow(ctx context.Context, line func(string), argv ...string) error {
	_, err := Watch(ctx, s, agent.OpFollow, agent.QueryParams{Argv: argv}, func(e agent.FollowEvent) { line(e.Line) })
	return err
}

// Hello says who answers.
func (s *Session) Hello(ctx context.Context) (agent.Hello, error) {
	return Ask(ctx, s, agent.OpHello, agent.None{})
}

// Hardware says what the host is made of.
func (s *Session) Hardware(ctx context.Context) (storage.Hardware, error) {
	return Ask(ctx, s, agent.OpHardware, agent.None{})
}

// Diffs compares resources with the host: one result for each, in order. at is
// told which is compared next; it may be nil.
func (s *Session) Diffs(ctx context.Context, resources []agent.WireResource, at func(agent.DiffsEvent)) ([]agent.DiffResult, error) {
	r, err := Watch(ctx, s, agent.OpDiffs, agent.DiffsParams{Resources: resources}, at)
	return r.Results, err
}

// Clock is the host's wall clock, in ns since 1970.
func (s *Session) Clock(ctx context.Context) (int64, error) {
	r, err := Ask(ctx, s, agent.OpTime, agent.None{})
	return r.NowNS, err
}

// clockTries is how often ClockOffset asks: the shortest of a few round trips
// is one that nothing held up.
const clockTries = 5

// ClockOffset measures how far the host's wall clock is ahead of ours, in ns:
// the answer with the shortest round trip counts. The error of the offset is
// at most half of that round trip.
func (s *Session) ClockOffset(ctx context.Context) (offset, roundTrip int64, err error) {
	for i := range clockTries {
		t0 := time.Now()
		now, err := s.Clock(ctx)
		if err != nil {
			return 0, 0, err
		}
		rtt := time.Since(t0).Nanoseconds()
		if i == 0 || rtt < roundTrip {
			roundTrip, offset = rtt, now-(t0.UnixNano()+rtt/2)
		}
	}
	return offset, roundTrip, nil
}

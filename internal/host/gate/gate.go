// Package gate is the one way through which Mortar changes a host. It decides
// three things, and nothing else decides them: whether an action may destroy
// data, whether anything runs at all (a dry run), and who is told of a change.
// It does not know what an action does.
package gate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/mortarhpc/mortar/internal/host/agent"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

// ErrDryRun ends every action of a dry run: nothing was run.
var ErrDryRun = errors.New("dry run: nothing was changed")

// Gate is the policy of one command. The zero Gate runs every action that
// destroys nothing.
type Gate struct {
	// Permitted are the serial numbers of the disks that the user allows to
	// be wiped, as the user typed them.
	Permitted []string
	// DryRun: no action runs, each ends with ErrDryRun.
	DryRun bool
	// Log is told of each change; may be nil. Several goroutines may call it
	// at once. What it is told never holds a secret.
	Log func(Change)
}

// State says how far a change is.
type State string

// States, in order.
const (
	Begins  State = "begins"
	Waiting State = "waiting" // for the action of another session on the host
	Done    State = "done"
	Failed  State = "failed"
)

// Change is one action on one host.
type Change struct {
	Host  string
	State State
	// Title, Command and File describe the action.
	Title   string
	Command []string
	File    string
}

// Caller is a session with one host's agent; *host.Host is one.
type Caller interface {
	Call(ctx context.Context, op string, params, result any, onEvent func(json.RawMessage)) error
}

// Hosts calls hosts by name; the method Call of *observe.Collector is one.
type Hosts func(ctx context.Context, host, op string, params, result any) error

// On runs an action on one of several hosts; see Run.
func (g Gate) On(ctx context.Context, hosts Hosts, host string, a resource.Action) (resource.Output, error) {
	return g.Run(ctx, host, named{hosts, host}, a)
}

type named struct {
	hosts Hosts
	host  string
}

func (n named) Call(ctx context.Context, op string, params, result any, _ func(json.RawMessage)) error {
	return n.hosts(ctx, n.host, op, params, result)
}

// Run runs an action on a host. An action that may not run gives a
// *resource.Refusal, and one of a dry run ErrDryRun; both reach no host. The
// agent's own error is a *agent.Error.
func (g Gate) Run(ctx context.Context, host string, c Caller, a resource.Action) (resource.Output, error) {
	var out resource.Output
	err := g.Do(ctx, host, a, func(ctx context.Context) error {
		p := agent.RunParams{Action: a, Permitted: g.Permitted}
		return c.Call(ctx, "run", p, &out, func(json.RawMessage) { g.log(host, Waiting, a) })
	})
	return out, err
}

// Do is Run for an action that no agent can carry out, e.g. one of a BMC:
// run carries it out.
func (g Gate) Do(ctx context.Context, host string, a resource.Action, run func(context.Context) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := a.Permitted(g.Permitted); err != nil {
		return err
	}
	if g.DryRun {
		return fmt.Errorf("%s: %s: %w", host, a.Title, ErrDryRun)
	}
	g.log(host, Begins, a)
	if err := run(ctx); err != nil {
		g.log(host, Failed, a)
		return err
	}
	g.log(host, Done, a)
	return nil
}

func (g Gate) log(host string, s State, a resource.Action) {
	if g.Log == nil {
		return
	}
	c := Change{Host: host, State: s, Title: a.Title, Command: a.Cmd}
	if a.File != nil {
		c.File = a.File.Path
	}
	g.Log(c)
}

package host

import (
	"context"
	"errors"
	"fmt"

	"github.com/mortarhpc/mortar/internal/host/resource"
)

// ErrDryRun ends every action of a dry run: nothing was run.
var ErrDryRun = errors.New("dry run: nothing was changed")

// Gate is the policy of a session for the actions that change the host:
// whether one may destroy data, whether anything runs at all (a dry run), and
// who is told of a change. Nothing else decides these. The zero Gate runs every
// action that destroys nothing.
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

// Do is Session.Run for an action that no agent can carry out, e.g. one of a
// BMC: run carries it out.
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

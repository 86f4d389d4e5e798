package inject

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/prove/fault"
	"github.com/mortarhpc/mortar/internal/run/cli"
)

// Brick is a brick to be drilled.
type Brick struct {
	Design  *design.Design
	Service string // the drill is about; "": the first of the spec
	Confirm string // the brick's name, if it was given
	From    string // saved rack that Env.Restore restores; "": none
	Rack    *Rack  // breaks its virtual rack, if that is up
}

// Drill connects a drill to the brick, keeps apply and a second drill out, and calls do. What is
// done stands in the question.
func (b Brick) Drill(ctx context.Context, c *cli.Console, what string, do func(context.Context, fault.Env) error) error {
	d := b.Design
	// A host answers late while a failover or a rebuild keeps its processor busy.
	excused := &host.Excused{}
	dial, err := c.Dial(d, host.Options{KeepAlive: 3 * time.Second, Missed: 12, Excused: excused})
	if err != nil {
		return err
	}
	env := fault.Env{Design: d, Service: b.Service, Dial: dial, Excused: excused, Version: c.Version, Progress: progress(c.Aside())}
	if env.Virtual = c.Virtual(ctx, d.Spec); env.Virtual {
		env.Injector = b.Rack
	} else {
		env.Injector = &Hardware{Design: d, Dial: dial}
		if err := c.ConfirmBrick(fmt.Sprintf("Drill %s breaks brick %q under load.", what, d.Name), "nothing was broken", d.Name, b.Confirm); err != nil {
			return err
		}
	}
	opDial, err := c.Dial(d, host.Options{Timeout: operatorLogin})
	if err != nil {
		return err
	}
	op := NewOperator(d, opDial)
	op.Run = (&Commands{Console: c, File: d.Spec.File, Say: env.Progress, Changed: func(d *design.Design) { b.Rack.Design = d }}).Run
	defer op.Close()
	env.Operator = op
	release, err := c.Claim(ctx, d.Spec)
	if err != nil {
		return err
	}
	defer release()
	if b.From != "" {
		if err := b.Rack.Saved(ctx, b.From); err != nil {
			return err
		}
		env.Restore = op.restoring(b.From, b.Rack.Restore, env.Progress)
	}
	return do(ctx, env)
}

// progress prints lines with the time since now. Drill and commands call it from several
// goroutines.
func progress(w io.Writer) func(text string) {
	start := time.Now()
	var mu sync.Mutex
	return func(text string) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(w, "%s %s\n", cli.Stamp(start), text)
	}
}

package inject

import (
	"context"
	"sync"
	"time"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/run/failover"
	"github.com/mortarhpc/mortar/internal/run/observe"
	"github.com/mortarhpc/mortar/internal/run/procedure"
	"github.com/mortarhpc/mortar/internal/run/scrub"
)

// Operator runs an administrator's commands in a drill: failover, standby,
// confirm-off, status, and those that change the brick. It keeps its sessions open.
// Commands run at once if they are given at once, as two administrators' do.
type Operator struct {
	// Run carries out a mortar command on the brick's spec and returns the spec's design
	// after that; see fault.Operator.Command. It is set before the first Command.
	Run func(ctx context.Context, name string, args ...string) (*design.Design, error)

	dial host.Dial

	mu   sync.Mutex // of d and idle
	d    *design.Design
	idle []*observe.Collector // of d's servers; a Collector is one command's at a time

	looking sync.Mutex // of all, which is one Status's at a time
	all     *observe.Collector
}

// operatorWait bounds a move.
const operatorWait = 3 * time.Minute

const (
	// operatorTimeout bounds a server's answer to a command.
	operatorTimeout = 45 * time.Second
	// lookTimeout is the same for status, which also asks broken servers and must
	// end before the state of the brick changes.
	lookTimeout = 20 * time.Second
	// operatorLogin bounds a login.
	operatorLogin = 8 * time.Second
)

// NewOperator returns an Operator that connects to the brick's hosts with dial
// when needed. Close ends its sessions.
func NewOperator(d *design.Design, dial host.Dial) *Operator {
	o := &Operator{dial: dial}
	o.of(d)
	return o
}

// of goes on with a design.
func (o *Operator) of(d *design.Design) {
	o.d, o.all = d, observe.NewCollector(d, o.dial, lookTimeout)
	o.all.AskOutlets()
}

func (o *Operator) Command(ctx context.Context, name string, args ...string) (*design.Design, error) {
	d, err := o.Run(ctx, name, args...)
	o.looking.Lock()
	defer o.looking.Unlock()
	o.mu.Lock()
	defer o.mu.Unlock()
	if d != nil && d.SHA256 != o.d.SHA256 {
		o.close()
		o.of(d)
	}
	return d, err
}

// Close ends the sessions. No command may run.
func (o *Operator) Close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.close()
}

func (o *Operator) close() {
	o.all.Close()
	for _, c := range o.idle {
		c.Close()
	}
	o.idle = nil
}

func (o *Operator) design() *design.Design {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.d
}

// with gives f a Collector of the servers for its own.
func (o *Operator) with(f func(*design.Design, *observe.Collector) error) error {
	o.mu.Lock()
	d := o.d
	var c *observe.Collector
	if n := len(o.idle); n > 0 {
		c, o.idle = o.idle[n-1], o.idle[:n-1]
	} else {
		c = observe.NewCollector(d, o.dial, operatorTimeout, d.Servers()...)
	}
	o.mu.Unlock()
	defer func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		if d != o.d { // the brick has changed meanwhile
			c.Close()
			return
		}
		o.idle = append(o.idle, c)
	}()
	return f(d, c)
}

func (o *Operator) Status(ctx context.Context) (*observe.Status, error) {
	o.looking.Lock()
	defer o.looking.Unlock()
	f := o.all.Collect(ctx)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return observe.Judge(o.design(), f), nil
}

// do makes a plan from the present facts and runs it.
func (o *Operator) do(ctx context.Context, plan func(*design.Design, *observe.Collector, observe.Facts) (*procedure.Plan, error)) error {
	return o.with(func(d *design.Design, c *observe.Collector) error {
		p, err := plan(d, c, c.Collect(ctx))
		if err != nil || p.Nothing != "" {
			return err
		}
		return procedure.Run(ctx, c, p, procedure.Options{Wait: operatorWait, Poll: 5 * time.Second, Glance: 500 * time.Millisecond})
	})
}

func (o *Operator) Move(ctx context.Context, service, to string) error {
	return o.do(ctx, func(d *design.Design, _ *observe.Collector, f observe.Facts) (*procedure.Plan, error) {
		return failover.Service(d, f, service, to)
	})
}

func (o *Operator) Scrub(ctx context.Context, g design.Group) (found scrub.Group, err error) {
	err = o.with(func(d *design.Design, c *observe.Collector) error {
		found, err = scrub.Run(ctx, c.Session, d, g, nil, scrub.Repair)
		return err
	})
	return found, err
}

func (o *Operator) Standby(ctx context.Context, node string, on bool) error {
	return o.do(ctx, func(d *design.Design, _ *observe.Collector, f observe.Facts) (*procedure.Plan, error) {
		if on {
			return failover.Standby(d, f, node)
		}
		return failover.Unstandby(d, f, node)
	})
}

func (o *Operator) ConfirmOff(ctx context.Context, node string) error {
	return o.do(ctx, func(d *design.Design, c *observe.Collector, f observe.Facts) (*procedure.Plan, error) {
		return failover.Confirm(ctx, d, f, c, node, nil)
	})
}

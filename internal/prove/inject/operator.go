package inject

import (
	"context"
	"sync"
	"time"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/run/failover"
	"github.com/mortarhpc/mortar/internal/run/observe"
	"github.com/mortarhpc/mortar/internal/run/scrub"
)

// Operator runs an administrator's commands in a drill: failover, standby,
// confirm-off, status, and those that change the brick. It keeps its sessions open.
type Operator struct {
	// Run carries out a mortar command on the brick's spec and returns the spec's design
	// after that; see drill.Operator.Command. It is set before the first Command.
	Run func(ctx context.Context, name string, args ...string) (*design.Design, error)

	d    *design.Design
	dial host.Dial

	mu      sync.Mutex // a Collector is not safe for concurrent use
	all     *observe.Collector
	servers *observe.Collector
}

// operatorWait bounds a move.
const operatorWait = 3 * time.Minute

const (
	// operatorTimeout bounds a server's answer to a command.
	operatorTimeout = 45 * time.Second
	// lookTimeout is the same for status, which also asks broken servers and must
	// end before the state of the brick changes.
	lookTimeout = 20 * time.Second
	// OperatorLogin bounds a login.
	OperatorLogin = 8 * time.Second
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
	o.servers = observe.NewCollector(d, o.dial, operatorTimeout, d.Servers()...)
}

func (o *Operator) Command(ctx context.Context, name string, args ...string) (*design.Design, error) {
	d, err := o.Run(ctx, name, args...)
	o.mu.Lock()
	defer o.mu.Unlock()
	if d != nil && d.SHA256 != o.d.SHA256 {
		o.Close()
		o.of(d)
	}
	return d, err
}

func (o *Operator) Close() {
	o.all.Close()
	o.servers.Close()
}

func (o *Operator) Status(ctx context.Context) (*observe.Status, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	f := o.all.Collect(ctx)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return observe.Judge(o.d, f), nil
}

// do makes a plan from the present facts and runs it.
func (o *Operator) do(ctx context.Context, plan func(observe.Facts) (*failover.Plan, error)) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	p, err := plan(o.servers.Collect(ctx))
	if err != nil || p.Nothing != "" {
		return err
	}
	return failover.Run(ctx, o.servers, p, failover.Options{Wait: operatorWait, Poll: 5 * time.Second, Glance: 500 * time.Millisecond})
}

func (o *Operator) Move(ctx context.Context, service, to string) error {
	return o.do(ctx, func(f observe.Facts) (*failover.Plan, error) { return failover.Service(o.d, f, service, to) })
}

func (o *Operator) Scrub(ctx context.Context, g design.Group) (scrub.Group, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return scrub.Run(ctx, o.servers.Session, o.d, g, true, nil)
}

func (o *Operator) Standby(ctx context.Context, node string, on bool) error {
	return o.do(ctx, func(f observe.Facts) (*failover.Plan, error) {
		if on {
			return failover.Standby(o.d, f, node)
		}
		return failover.Unstandby(o.d, f, node)
	})
}

func (o *Operator) ConfirmOff(ctx context.Context, node string) error {
	return o.do(ctx, func(f observe.Facts) (*failover.Plan, error) {
		return failover.Confirm(ctx, o.d, f, o.servers, node, nil)
	})
}

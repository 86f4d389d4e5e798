package drill

import (
	"context"
	"strconv"
	"time"

	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/run/observe"
)

// clockJump moves the active server's clock by so much, and waits until status says so.
func clockJump(by time.Duration) func(Scene) ([]Step, error) {
	seconds := strconv.Itoa(int(by / time.Second))
	return func(s Scene) ([]Step, error) {
		f := Fault{Kind: ClockJump, On: s.Active, Args: []string{seconds}}
		return []Step{
			{Fault: f, Wait: linkHold, Look: true, Until: clockSeen(s.Active)},
			{Fault: f, Mend: true, Wait: 5 * time.Second},
		}, nil
	}
}

// clockSeen waits until status names the clock. That of the first server that answers is the
// one with which it compares the others.
func clockSeen(server string) *Condition {
	return &Condition{What: "status says so", Limit: seenLimit, Sign: true, Look: func(ctx context.Context, v *View) (bool, string) {
		all := v.findings(ctx)
		if ok, text := signOf(observe.ClockSkewed, "host", server).in(all); ok {
			return true, text
		}
		return signOf(observe.ClockSkewed, "reference", server).in(all)
	}}
}

// jump moves a server's clock. The events that it logs from then on have the new time.
func (e *engine) jump(ctx context.Context, f Fault) error {
	n, err := strconv.Atoi(f.Args[0])
	if err != nil {
		return err
	}
	return e.setClock(ctx, f.On, time.Duration(n)*time.Second)
}

// jumpBack sets a server's clock right, unless the server is away. clockBack sees to it then.
func (e *engine) jumpBack(ctx context.Context, f Fault) error {
	if err := e.setClock(ctx, f.On, 0); err != nil {
		e.say("the clock of %s is set once it is back: %v", f.On, err)
	}
	return ctx.Err()
}

func (e *engine) clockBack(ctx context.Context, f Fault) error {
	return untilSeen(ctx, func() error { return e.setClock(ctx, f.On, 0) })
}

// setClock sets a server's clock to what it would be without faults, and so much ahead. Its
// time service corrects the rest.
//
// Source: date(1), --set
func (e *engine) setClock(ctx context.Context, server string, ahead time.Duration) error {
	was := time.Duration(e.watch.moved(server))
	e.watch.shift(server, ahead)
	at := float64(time.Now().Add(ahead+time.Duration(e.watch.based(server))).UnixMilli()) / 1e3
	err := e.do(ctx, server, resource.Action{Title: "set the clock", Cmd: []string{"date", "--set=@" + strconv.FormatFloat(at, 'f', 3, 64)}})
	if err != nil {
		e.watch.shift(server, was)
	}
	return err
}

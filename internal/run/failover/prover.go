package failover

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/mortarhpc/mortar/internal/base/lists"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/converge/plan"
	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/run/observe"
	"github.com/mortarhpc/mortar/internal/run/procedure"
)

// ChosenLevels returns the fence levels of node ("": all servers) with number
// level (0: all). It is an error if there is none.
func ChosenLevels(d *design.Design, node string, level int) ([]*design.FenceLevel, error) {
	if !d.Clustered() {
		return nil, fmt.Errorf("brick %s has one server and no fencing: this needs flavour nfs-ha", d.Name)
	}
	if err := procedure.IsServer(d, node); node != "" && err != nil {
		return nil, err
	}
	out := lists.Only(d.Fencing(), func(l *design.FenceLevel) bool {
		return (node == "" || l.Node == node) && (level == 0 || l.Level == level)
	})
	if len(out) == 0 {
		return nil, fmt.Errorf("there is no level %d of fencing; see `mortar check`", level)
	}
	return out, nil
}

// askMarks bounds the query of a server for interrupted tests.
const askMarks = 30 * time.Second

// ResumeProofs undoes the changes of an interrupted fence test, and waits until
// the servers are in the cluster again. resumed is false if there was none.
func ResumeProofs(ctx context.Context, d *design.Design, h Hosts, o ProofOptions) (resumed bool, err error) {
	t := &tester{d: d, h: h, o: o.WithDefaults(), start: time.Now()}
	for _, via := range d.Servers() {
		cctx, cancel := context.WithTimeout(ctx, askMarks)
		c, err := ReadCIB(cctx, h, via)
		cancel()
		if ctx.Err() != nil {
			return false, ctx.Err()
		}
		// A server that is off or has no cluster does not know the marks. A
		// server with a mark itself is restored through its partner.
		if err != nil || c.Attr(via, observe.AttrTesting) != "" {
			continue
		}
		for _, n := range d.PairWith(via).Servers {
			mark := c.Attr(n, observe.AttrTesting)
			if mark == "" {
				continue
			}
			if err := t.resume(ctx, via, n, mark == observe.TestingStandby); err != nil {
				return true, err
			}
			resumed = true
		}
		return resumed, nil
	}
	return false, nil
}

// proverLogin bounds a login, since a server may be off.
const proverLogin = 20 * time.Second

// Prover runs the fence test of an apply.
type Prover struct {
	Design  *design.Design
	Options ProofOptions
	Connect host.Options
	// Patience bounds the time without a sign of life from a host.
	Patience time.Duration
	// Replaced is a server with a new machine: its old fencing proofs no longer
	// count. "": none.
	Replaced string

	c   *observe.Collector // nil while no server's cluster answers
	via string             // a server whose cluster answers
}

// ResumeFailed is the error if the changes of an interrupted fence test could not
// be undone.
type ResumeFailed struct{ Err error }

func (e *ResumeFailed) Error() string { return e.Err.Error() }
func (e *ResumeFailed) Unwrap() error { return e.Err }

// errNoCluster: there is no cluster, or not yet.
var errNoCluster = errors.New("fence test: no server's cluster answers; see mortar status")

// Close ends the sessions that the Prover opened itself.
func (pr *Prover) Close() {
	if pr.c != nil {
		pr.c.Close()
	}
	pr.c = nil
}

func (pr *Prover) collector() (*observe.Collector, error) {
	targets, err := host.Inventory(pr.Design.Spec)
	if err != nil {
		return nil, err
	}
	opts := pr.Connect
	opts.Timeout = proverLogin
	return observe.NewCollector(pr.Design, host.Dialer(targets, opts), pr.Patience, pr.Design.Servers()...), nil
}

// open finds a server whose cluster answers, over the existing sessions. If none
// answers, there is no cluster, or not yet.
func (pr *Prover) open(ctx context.Context, hosts map[string]*host.Session) error {
	pr.Close()
	if !pr.Design.Clustered() {
		return nil
	}
	c, err := pr.collector()
	if err != nil {
		return err
	}
	for _, name := range pr.Design.Servers() {
		if h := hosts[name]; h != nil {
			c.Keep(h)
		}
	}
	for _, via := range pr.Design.Servers() {
		if _, err = ReadCIB(ctx, c, via); err == nil {
			pr.c, pr.via = c, via
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}

// Prepare makes a plan. If the changes of an interrupted fence test remain, it
// undoes them first, since make cannot plan for a server that is off. An error is
// that of make, or a *ResumeFailed.
func (pr *Prover) Prepare(ctx context.Context, make func() (*plan.Prepared, error)) (*plan.Prepared, error) {
	p, err := make()
	if err != nil {
		if !pr.Design.Clustered() || !errors.Is(err, host.ErrUnreachable) {
			return nil, err
		}
		c, cerr := pr.collector()
		if cerr != nil {
			return nil, err
		}
		defer c.Close()
		resumed, rerr := ResumeProofs(ctx, pr.Design, c, pr.Options)
		if rerr != nil {
			return nil, &ResumeFailed{rerr}
		}
		if !resumed {
			return nil, err
		}
		if p, err = make(); err != nil {
			return nil, err
		}
	}
	if err := pr.open(ctx, p.Hosts); err != nil {
		p.Close()
		return nil, err
	}
	if pr.c == nil {
		return p, nil
	}
	resumed, err := ResumeProofs(ctx, pr.Design, pr.c, pr.Options)
	if err == nil && !resumed {
		return p, nil
	}
	pr.Close()
	p.Close()
	if err != nil {
		return nil, &ResumeFailed{err}
	}
	if p, err = make(); err != nil {
		return nil, err
	}
	return p, pr.open(ctx, p.Hosts)
}

// Forget deletes the proofs of levels that a plan changes.
func (pr *Prover) Forget(ctx context.Context, pending []plan.Planned) error {
	if pr.c == nil {
		return nil
	}
	levels := TouchedLevels(pr.Design, pending)
	for _, l := range pr.Design.Fencing() {
		if l.Node == pr.Replaced && !slices.Contains(levels, l) {
			levels = append(levels, l)
		}
	}
	return ForgetProofs(ctx, pr.Design, pr.c, pr.via, levels)
}

// Unproven returns the levels without a valid proof, over the sessions of an
// apply.
func (pr *Prover) Unproven(ctx context.Context, hosts map[string]*host.Session) ([]*design.FenceLevel, error) {
	if !pr.Design.Clustered() {
		return nil, nil
	}
	if pr.c == nil {
		if err := pr.open(ctx, hosts); err != nil {
			return nil, err
		}
		if pr.c == nil {
			return nil, errNoCluster
		}
	}
	return unproven(ctx, pr.Design, pr.c, pr.via)
}

func unproven(ctx context.Context, d *design.Design, h Hosts, via string) ([]*design.FenceLevel, error) {
	c, err := ReadCIB(ctx, h, via)
	if err != nil {
		return nil, err
	}
	return observe.Unproven(d, c), nil
}

// Prove tests levels; see ProveFencing.
func (pr *Prover) Prove(ctx context.Context, levels []*design.FenceLevel) ([]LevelResult, error) {
	return ProveFencing(ctx, pr.Design, pr.c, levels, pr.Options)
}

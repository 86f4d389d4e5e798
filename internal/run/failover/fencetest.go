package failover

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/base/lists"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/host/agent"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/run/observe"
	"github.com/mortarhpc/mortar/internal/run/procedure"
)

// ProofEvent is progress of ProveFencing.
type ProofEvent struct {
	Event   string  `json:"event"` // always "fence-test"
	Node    string  `json:"node"`
	Level   int     `json:"level,omitempty"` // 0: the event belongs to no level
	State   string  `json:"state"`           // doing, proven, failed, done
	Text    string  `json:"text"`
	Seconds float64 `json:"seconds"` // since ProveFencing began
}

// LevelResult is the result of the test of one level.
type LevelResult struct {
	Node     string   `json:"node"`
	Level    int      `json:"level"`
	Devices  []string `json:"devices"`
	Proven   bool     `json:"proven"`
	Seconds  float64  `json:"seconds"`            // from the command to the cluster's report of success; 0 without one
	Evidence []string `json:"evidence,omitempty"` // independent observations of the effect
	Error    string   `json:"error,omitempty"`
}

// ProofOptions of ProveFencing.
type ProofOptions struct {
	// Fence bounds the fencing with one level, Boot the time until a server is
	// back in the cluster, Dark the time until a BMC dies without power, and
	// until it answers after the power is back.
	Fence, Boot, Dark time.Duration
	// Poll is the pause between two looks.
	Poll time.Duration
	// On receives progress; it may be nil.
	On func(ProofEvent)
}

// WithDefaults sets the defaults of options that are zero.
func (o ProofOptions) WithDefaults() ProofOptions {
	for _, f := range []struct {
		v   *time.Duration
		def time.Duration
	}{{&o.Fence, 90 * time.Second}, {&o.Boot, 15 * time.Minute}, {&o.Dark, 3 * time.Minute}, {&o.Poll, time.Second}} {
		if *f.v == 0 {
			*f.v = f.def
		}
	}
	return o
}

// restoreTime bounds restore after an interrupt.
const restoreTime = 3 * time.Minute

// ProofFailed is the error if at least one level failed its test. Left is the error
// of restoring the state before the test, nil if that succeeded.
type ProofFailed struct {
	Results []LevelResult
	Left    error
}

func (e *ProofFailed) Error() string {
	out := lists.Map(e.Results, func(r LevelResult) string { return r.Error })
	if e.Left != nil {
		out = append(out, e.Left.Error())
	}
	return strings.Join(out, "\n")
}

// tester is a test under way.
type tester struct {
	d     *design.Design
	h     Hosts
	o     ProofOptions
	start time.Time
}

// fitForProof returns why the levels cannot be tested now, nil if they can. It
// changes nothing.
func fitForProof(d *design.Design, f observe.Facts, levels []*design.FenceLevel) error {
	if !d.Clustered() {
		return resource.Refuse("fence-test-no-pair", resource.With{"brick": d.Name})
	}
	var why []string
	for _, n := range NodesOf(levels) {
		pair := d.PairWith(n)
		snap := observe.ClusterOf(d, pair, f)
		if snap == nil {
			return resource.Refuse("cluster-no-answer", nil)
		}
		for _, x := range pair.Servers {
			st := snap.Node(x)
			switch {
			case !st.Member():
				why = append(why, x+" is not in the cluster")
			case st.Standby:
				why = append(why, x+" is in standby")
			}
		}
		for _, s := range snap.Services {
			if s.Server == "" || s.Role != "Started" {
				why = append(why, fmt.Sprintf("service %s does not run", s.Name))
			}
		}
		why = append(why, observe.FenceProblems(d, f, n)...)
		for _, s := range snap.Services {
			if s.Server == n {
				why = append(why, observe.NotReady(d, f, s.Name, pair.Other(n)).Texts()...)
			}
		}
	}
	if len(why) > 0 {
		slices.Sort(why)
		return resource.Refuse("fence-test-unfit", resource.With{"why": slices.Compact(why)})
	}
	return nil
}

// NodesOf returns the nodes of levels, without duplicates.
func NodesOf(levels []*design.FenceLevel) []string {
	return lists.Distinct(lists.Map(levels, func(l *design.FenceLevel) string { return l.Node }))
}

// ReadCIB reads Mortar's part of the cluster's configuration. It asks the cluster,
// because the file on disk lags behind.
func ReadCIB(ctx context.Context, h Hosts, via string) (*linux.CIB, error) {
	text, err := h.Session(via).Text(ctx, "cibadmin", "--query")
	if err != nil {
		return nil, fmt.Errorf("%s: %w", via, err)
	}
	return linux.ParseCIB([]byte(text))
}

// resume undoes the changes of an interrupted test: it switches the server on,
// completes its levels and ends its standby, all with commands on via. Then it
// waits until the server is in the cluster and every resource runs.
func (t *tester) resume(ctx context.Context, via, node string, standby bool) error {
	t.say(node, 0, "doing", "a fence test of %s was cut off: switching it on again", node)
	if err := t.restore(ctx, via, node, standby); err != nil {
		return err
	}
	if err := t.online(ctx, via, node); err != nil {
		return err
	}
	return t.settled(ctx, via)
}

// ProveFencing tests levels, node by node, through the cluster on the node's
// partner. It returns the results of all levels tested; the error is *ProofFailed
// if a level failed. Before it returns, it switches everything on again, even if
// ctx ends.
func ProveFencing(ctx context.Context, d *design.Design, h Hosts, levels []*design.FenceLevel, o ProofOptions) ([]LevelResult, error) {
	t := &tester{d: d, h: h, o: o.WithDefaults(), start: time.Now()}
	f := h.Collect(ctx)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := fitForProof(d, f, levels); err != nil {
		return nil, err
	}
	nodes := NodesOf(levels)
	// Test serving nodes last, so that a service is away for as short as possible.
	serves := func(node string) int { return len(servedBy(observe.ClusterOf(d, d.PairWith(node), f), node)) }
	slices.SortStableFunc(nodes, func(a, b string) int { return serves(a) - serves(b) })
	var all []LevelResult
	for i, n := range nodes {
		if i > 0 {
			// The fence devices of the next node run on its partner, which was just
			// tested: collect new facts.
			if f = h.Collect(ctx); ctx.Err() != nil {
				return all, ctx.Err()
			}
		}
		mine := lists.Only(levels, func(l *design.FenceLevel) bool { return l.Node == n })
		rs, err := t.node(ctx, f, n, mine)
		all = append(all, rs...)
		failed := slices.DeleteFunc(slices.Clone(rs), func(r LevelResult) bool { return r.Proven })
		switch {
		case len(failed) > 0 && ctx.Err() == nil:
			return all, &ProofFailed{failed, err}
		case err != nil:
			return all, err
		}
	}
	if err := t.settled(ctx, nodes[0]); err != nil {
		return all, err
	}
	return all, nil
}

func servedBy(s *observe.Snapshot, node string) []string {
	var out []string
	for _, x := range s.Services {
		if x.Server == node {
			out = append(out, x.Name)
		}
	}
	return out
}

func (t *tester) say(node string, level int, state, format string, args ...any) {
	if t.o.On != nil {
		t.o.On(ProofEvent{Event: "fence-test", Node: node, Level: level, State: state, Text: fmt.Sprintf(format, args...), Seconds: time.Since(t.start).Seconds()})
	}
}

// do runs a command whose output does not matter.
func (t *tester) do(ctx context.Context, via, title string, cmd ...string) error {
	if _, err := t.h.Session(via).Run(ctx, resource.Action{Title: title, Cmd: cmd, Seconds: 120}); err != nil {
		return fmt.Errorf("%s: %s: %w", via, title, err)
	}
	return nil
}

// node tests the levels of one node.
func (t *tester) node(ctx context.Context, f observe.Facts, node string, levels []*design.FenceLevel) (rs []LevelResult, err error) {
	via := t.d.PairWith(node).Other(node)
	snap := observe.ClusterOf(t.d, t.d.PairWith(node), f)
	if snap == nil {
		return nil, errors.New("no server's cluster answers")
	}
	moved := servedBy(snap, node)
	before, err := t.hello(ctx, node)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", node, err)
	}
	if p, err := t.power(ctx, via, node); err != nil {
		return nil, err
	} else if p.state != powerOn {
		return nil, resource.Refuse("fence-test-power", resource.With{"via": via, "node": node, "state": p.state, "said": p.said})
	}

	mark := observe.TestingPlain
	if len(moved) > 0 {
		mark = observe.TestingStandby
	}
	// From here on there are changes to undo.
	if err := t.do(ctx, via, "mark the test of "+node, "crm_attribute", "--node", node, "--name", observe.AttrTesting, "--update", mark, "--lifetime", "forever"); err != nil {
		return nil, err
	}
	restored := false
	putBack := func(ctx context.Context) error {
		err := t.restore(ctx, via, node, mark == observe.TestingStandby)
		restored = ctx.Err() == nil // even if restore failed: a repetition would fail too
		return err
	}
	defer func() {
		if restored {
			return
		}
		// Interrupted: switch the power on before returning.
		t.say(node, 0, "doing", "putting everything back")
		cctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), restoreTime)
		defer cancel()
		if rerr := putBack(cctx); rerr != nil {
			err = errors.Join(err, fmt.Errorf("%s could not be put back: %w; run `mortar apply`", node, rerr))
		}
	}()

	if len(moved) > 0 {
		t.say(node, 0, "doing", "%s serves: moving %s to %s first", node, strings.Join(moved, " and "), via)
		p, err := Standby(t.d, f, node)
		if err != nil {
			return nil, err
		}
		if err := procedure.Run(ctx, t.h, p, t.moving()); err != nil {
			return nil, fmt.Errorf("moving %s from %s: %w", strings.Join(moved, " and "), node, err)
		}
	}
	for _, l := range levels {
		r := t.level(ctx, via, l)
		if ctx.Err() != nil {
			return rs, ctx.Err()
		}
		rs = append(rs, r)
	}
	t.say(node, 0, "doing", "switching %s on again", node)
	if err := putBack(ctx); err != nil {
		return rs, err
	}
	if err := t.back(ctx, via, node, before.BootID); err != nil {
		return rs, err
	}
	if err := t.home(ctx, node, moved); err != nil {
		return rs, err
	}
	return rs, nil
}

func (t *tester) moving() procedure.Options {
	return procedure.Options{Wait: design.MoveTime(t.d), Poll: 2 * t.o.Poll, Glance: t.o.Poll / 2}
}

// hello asks a server for its boot and version. It waits at most 20 s.
func (t *tester) hello(ctx context.Context, node string) (agent.Hello, error) {
	cctx, cancel := context.WithTimeoutCause(ctx, 20*time.Second, errors.New("no answer"))
	defer cancel()
	return t.h.Session(node).Hello(cctx)
}

// AwaitBoot waits until a rebooted server is in the cluster again and can serve,
// and until the cluster monitors the fence devices. before is the id of the boot
// before the reboot.
func AwaitBoot(ctx context.Context, d *design.Design, h Hosts, node, before string, o ProofOptions) error {
	t := &tester{d: d, h: h, o: o.WithDefaults(), start: time.Now()}
	via := d.PairWith(node).Other(node)
	if err := t.back(ctx, via, node, before); err != nil {
		return err
	}
	return t.settled(ctx, via)
}

// back waits until a node is in the cluster again after a boot.
func (t *tester) back(ctx context.Context, via, node, oldBoot string) error {
	if err := t.online(ctx, via, node); err != nil {
		return err
	}
	var h agent.Hello
	if err := t.wait(ctx, t.o.Boot, func(ctx context.Context) (left string, err error) {
		// A server that has just booted may be too busy for a login.
		if h, err = t.hello(ctx, node); err != nil {
			return err.Error(), nil
		}
		return "", nil
	}); err != nil {
		return fmt.Errorf("%s is back in the cluster, but does not answer: %w", node, err)
	}
	if h.BootID == oldBoot {
		return fmt.Errorf("%s was never off: it runs since the same boot (%s) as before", node, oldBoot)
	}
	// The node may join before it has found its disks and their paths.
	if err := t.wait(ctx, t.o.Boot, func(ctx context.Context) (string, error) {
		f := t.h.Collect(ctx)
		why := lists.Flat(t.d.PairWith(node).Services, func(s design.Service) []string { return observe.NotReady(t.d, f, s.Name, node).Texts() })
		return strings.Join(why, "; "), nil
	}); err != nil {
		return fmt.Errorf("%s is back in the cluster, but could not serve: %w", node, err)
	}
	t.say(node, 0, "done", "%s is back in the cluster", node)
	return nil
}

// online waits until a node is in the cluster.
func (t *tester) online(ctx context.Context, via, node string) error {
	t.say(node, 0, "doing", "waiting for %s to boot and join", node)
	err := t.until(ctx, t.o.Boot, via, func(s *observe.Snapshot) string {
		if s.Node(node).Member() {
			return ""
		}
		return node + " is not in the cluster"
	})
	if err != nil {
		return fmt.Errorf("%s was switched on, but did not come back: %w; look at its console", node, err)
	}
	return nil
}

// home moves services back to node.
func (t *tester) home(ctx context.Context, node string, moved []string) error {
	for _, name := range moved {
		if t.d.PairWith(node).HA.Failback == "auto" {
			err := t.until(ctx, 5*time.Minute, node, func(s *observe.Snapshot) string {
				if x := s.Service(name); x != nil && x.Server == node && x.Role == "Started" {
					return ""
				}
				return fmt.Sprintf("service %s is not back on %s", name, node)
			})
			if err != nil {
				return err
			}
			continue
		}
		t.say(node, 0, "doing", "moving %s back to %s", name, node)
		p, err := Service(t.d, t.h.Collect(ctx), name, node)
		if err != nil {
			return fmt.Errorf("moving %s back to %s: %w", name, node, err)
		}
		if err := procedure.Run(ctx, t.h, p, t.moving()); err != nil {
			return fmt.Errorf("moving %s back to %s: %w", name, node, err)
		}
	}
	return nil
}

// settled waits until all resources of the cluster are started. The cluster starts
// the fence devices of a returned server one after the other.
func (t *tester) settled(ctx context.Context, via string) error {
	t.say(via, 0, "doing", "waiting for the fence devices to be watched again")
	return t.until(ctx, 5*time.Minute, via, func(s *observe.Snapshot) string {
		if down := s.Down(); len(down) > 0 {
			return strings.Join(down, ", ") + " not started"
		}
		return ""
	})
}

// until waits for a state of the cluster as via sees it: look says what is missing.
func (t *tester) until(ctx context.Context, limit time.Duration, via string, look func(*observe.Snapshot) string) error {
	return t.wait(ctx, limit, func(ctx context.Context) (string, error) {
		s, err := t.h.Cluster(ctx, via)
		if err != nil {
			return err.Error(), nil
		}
		return look(s), nil
	})
}

// wait calls look until it returns "", else what the wait is for.
func (t *tester) wait(ctx context.Context, limit time.Duration, look func(context.Context) (string, error)) error {
	err := host.Wait{Limit: limit, Poll: t.o.Poll}.Until(ctx, look)
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

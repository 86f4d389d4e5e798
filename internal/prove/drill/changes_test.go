package drill

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/host/agent"
	"github.com/mortarhpc/mortar/internal/host/gather"
	"github.com/mortarhpc/mortar/internal/host/hosttest"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/prove/fault"
	"github.com/mortarhpc/mortar/internal/prove/report"
	"github.com/mortarhpc/mortar/internal/run/observe"
)

// bench is what changes are made on: a brick of nfs-ha whose commands and hardware
// write down what they are asked for.
type bench struct {
	fault.Operator
	t   *testing.T
	d   *design.Design
	did []string
	// fails is the line at which the next attempt fails, once.
	fails string
	extra []fault.UnusedDisk
	// after is the design that commands return; nil: the present one.
	after   *design.Design
	pending error
	ended   func() // called when a line fails
}

func haDesign(t *testing.T, replace ...string) *design.Design {
	t.Helper()
	const file = "../../../examples/nfs-ha.yaml"
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	s, err := spec.Parse(file, []byte(strings.NewReplacer(replace...).Replace(string(b))))
	if err != nil {
		t.Fatal(err)
	}
	d, err := design.New(s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func (b *bench) note(format string, args ...any) error {
	line := fmt.Sprintf(format, args...)
	b.did = append(b.did, line)
	if line == b.fails {
		b.fails = ""
		if b.ended != nil {
			b.ended()
			return context.Canceled
		}
		return errors.New("it broke")
	}
	return nil
}

func (b *bench) Command(_ context.Context, name string, args ...string) (*design.Design, error) {
	if name == "plan" && b.pending != nil {
		return b.d, b.pending
	}
	err := b.note("mortar %s", strings.Join(append([]string{name}, args...), " "))
	if b.after != nil && !slices.Contains(args, "--dry-run") {
		return b.after, err
	}
	return b.d, err
}

func (b *bench) Move(_ context.Context, service, to string) error {
	return b.note("move %s to %s", service, to)
}

func (b *bench) Standby(_ context.Context, node string, on bool) error {
	return b.note("standby %s %v", node, on)
}

func (b *bench) Status(context.Context) (*observe.Status, error) { return &observe.Status{}, nil }

func (b *bench) Can(fault.Fault) error                                   { return nil }
func (b *bench) Inject(_ context.Context, f fault.Fault) error           { return b.note("inject %s", f) }
func (b *bench) Heal(_ context.Context, f fault.Fault) error             { return b.note("heal %s", f) }
func (b *bench) UnusedDisks(context.Context) ([]fault.UnusedDisk, error) { return b.extra, nil }
func (b *bench) dial(_ context.Context, name string) (*host.Session, error) {
	return hosttest.Play(func(_ context.Context, name, op string, params, result any) error {
		var all []resource.DiskFact
		for _, d := range append(slices.Clone(b.d.Disks), design.Disk{Serial: "MA01-2"}) {
			all = append(all, resource.DiskFact{Serial: d.Serial})
		}
		switch op {
		case string(agent.OpTime):
			return hosttest.Answer(result, map[string]int64{"now_ns": time.Now().UnixNano()})
		case string(gather.Op):
			return hosttest.Answer(result, gather.Host{Disks: all})
		case string(agent.OpRun):
			return b.note("%s: %s", name, strings.Join(params.(agent.RunParams).Action.Cmd, " "))
		}
		return fmt.Errorf("unexpected op %s", op)
	}).Session(name), nil
}

// change prepares the change of a drill, and returns the site and the fault.
func (b *bench) change(name string) (*fault.Site, fault.Fault, error) {
	b.t.Helper()
	dr, v, err := Find(name, "")
	if err != nil {
		b.t.Fatal(err)
	}
	env := fault.Env{Design: b.d, Operator: b, Injector: b, Dial: b.dial, Progress: func(s string) { b.t.Log(s) }}
	e := &fault.Site{Scene: fault.Scene{Design: b.d, Service: b.d.Services()[0]}, Env: env, Watch: fault.NewWatcher(func(string) {}, nil)}
	b.t.Cleanup(e.Hosts.Close)
	for _, s := range e.Servers() {
		if _, err := e.Hosts.Connect(b.t.Context(), e.Env.Dial, s); err != nil {
			b.t.Fatal(err)
		}
	}
	s, err := planned(env)
	if err != nil {
		b.t.Fatal(err)
	}
	steps, err := v.Steps(s)
	if err != nil || len(steps) != 1 {
		b.t.Fatal(steps, err)
	}
	f, _ := actOf(steps[0])
	if err := checkSteps(e, dr, v, steps); err != nil {
		return e, f, err
	}
	err = fault.Kinds[f.Kind].Ready(b.t.Context(), e, f)
	b.did = nil
	return e, f, err
}

// The lines of each change, in order.
var changeLines = map[string][]string{
	"change-upgrade": {"mortar upgrade --reboot-only --skip-fence-test --yes --json"},
	"change-disk": {"mortar disk fail MA01 --yes --json", "inject disk-out MA01", "inject disk-blank MA01 MA01-2",
		"mortar disk replace MA01 --with MA01-2 --yes --json"},
	"change-server": {"standby nfs2 true", "nfs2: systemctl stop pacemaker.service corosync.service", "inject power-off nfs2", "inject server-new nfs2", "inject paths-out nfs2",
		"heal power-off nfs2", "mortar server replace nfs2 --skip-fence-test --yes --json", "heal paths-out nfs2",
		"mortar server replace nfs2 --skip-fence-test --yes --json", "standby nfs2 false"},
	"change-grow": {"mortar grow --disks A=MA04 --disks B=MB04 --yes --json"},
}

func newBench(t *testing.T) *bench {
	return &bench{t: t, d: haDesign(t), extra: []fault.UnusedDisk{{Enclosure: "A", Serial: "MA04"}, {Enclosure: "B", Serial: "MB04"}}}
}

func TestChanges(t *testing.T) {
	for name, want := range changeLines {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			e, f, err := b.change(name)
			if err != nil {
				t.Fatal(err)
			}
			in := e.InjectorOf(f)
			for range 2 { // healing a change that is done does nothing
				if err := errors.Join(in.Inject(t.Context(), f), in.Heal(t.Context(), f)); err != nil || !slices.Equal(b.did, want) {
					t.Fatalf("%v\n%s", err, strings.Join(b.did, "\n"))
				}
			}
		})
	}
}

// The cache is given back as it was, below the service that runs, or below one that was started
// without it. One that takes several commands is refused before it is turned off.
func TestChangesOfTheCache(t *testing.T) {
	const off, add = "mortar cache off --yes --json", "mortar cache add S1 S2 --size 400GB --type nvme --mode write-back --yes --json"
	cached := func(second string) *design.Design {
		return haDesign(t, "filesystem:\n", "cache:\n  mode: write-back\n  ssds: [{serial: S1, size: 400GB, type: nvme}, {serial: S2, size: "+second+", type: nvme}]\nfilesystem:\n")
	}
	for how, want := range map[string][]string{
		fault.CacheKept: {off, add},
		fault.CacheGone: {off, "move home to nfs2", add, "move home to nfs1", "mortar apply --skip-fence-test --yes --json"},
	} {
		b := newBench(t)
		b.d = cached("400GB")
		e := &fault.Site{Scene: fault.Scene{Design: b.d, Service: b.d.Services()[0], Active: "nfs1", Passive: "nfs2"}, Env: fault.Env{Design: b.d, Operator: b, Injector: b, Progress: func(string) {}},
			Watch: fault.NewWatcher(func(string) {}, nil)}
		f := fault.Fault{Kind: fault.ChangeCache, Args: []string{how}}
		if err := fault.Kinds[f.Kind].Ready(t.Context(), e, f); err != nil || !slices.Contains(b.did, "mortar cache off --dry-run --json") {
			t.Fatalf("%s: %v, %q", how, err, b.did)
		}
		b.did = nil
		if err := e.InjectorOf(f).Inject(t.Context(), f); err != nil || !slices.Equal(b.did, want) {
			t.Errorf("%s: %v\n%s", how, err, strings.Join(b.did, "\n"))
		}
	}
	b := newBench(t)
	b.d = cached("800GB")
	var refused *fault.Refused
	if _, _, err := b.change("change-cache"); !errors.As(err, &refused) || len(b.did) > 0 {
		t.Errorf("%v, %q", err, b.did)
	}
}

// A change that stops at any of its parts goes on there when it is healed. A new
// server never gets its cables before it is prepared.
func TestChangesGoOn(t *testing.T) {
	for name, want := range changeLines {
		for i, line := range want {
			if slices.Index(want, line) < i || name == "change-upgrade" {
				continue // fails is the first of equal lines
			}
			t.Run(fmt.Sprint(name, i), func(t *testing.T) {
				b := newBench(t)
				e, f, err := b.change(name)
				if err != nil {
					t.Fatal(err)
				}
				b.fails = line
				in := e.InjectorOf(f)
				if err := in.Inject(t.Context(), f); err == nil {
					t.Fatal(err)
				}
				if err := in.Heal(t.Context(), f); err != nil {
					t.Fatal(err)
				}
				if twice := slices.Insert(slices.Clone(want), i, line); !slices.Equal(b.did, twice) {
					t.Errorf("%s", strings.Join(b.did, "\n"))
				}
			})
		}
	}
}

// An upgrade that stopped leaves no server in standby, and reboots none any more.
func TestUpgradeStops(t *testing.T) {
	b := newBench(t)
	e, f, err := b.change("change-upgrade")
	if err != nil {
		t.Fatal(err)
	}
	b.fails = changeLines["change-upgrade"][0]
	in := e.InjectorOf(f)
	if err := in.Inject(t.Context(), f); err == nil {
		t.Fatal("no error")
	}
	for range 2 {
		if err := in.Heal(t.Context(), f); err != nil || !slices.Equal(b.did[1:], []string{"standby nfs1 false", "standby nfs2 false"}) {
			t.Fatal(err, b.did)
		}
	}
}

func TestChangesRefused(t *testing.T) {
	var unhealthy *fault.Unhealthy
	var refused *fault.Refused
	for name := range changeLines {
		b := newBench(t)
		b.pending = errors.New("it would change nfs1: exports")
		if _, _, err := b.change(name); !errors.As(err, &unhealthy) && !errors.As(err, &refused) || len(b.did) > 0 {
			t.Errorf("%s: %v, %v", name, err, b.did)
		}
	}
	for name, dry := range map[string]string{"change-disk": "mortar disk fail MA01 --dry-run --json", "change-upgrade": "mortar upgrade --reboot-only --skip-fence-test --dry-run --json"} {
		b := newBench(t)
		b.fails = dry
		if _, _, err := b.change(name); !errors.As(err, &refused) {
			t.Errorf("%s: %v", name, err)
		}
	}
	b := newBench(t)
	b.extra = nil
	if _, _, err := b.change("change-grow"); !errors.As(err, &refused) {
		t.Error(err)
	}
	e := &fault.Site{Env: fault.Env{Operator: b, Injector: struct{ fault.Injector }{b}}}
	if err := e.Can(fault.Fault{Kind: fault.ChangeGrow}); err == nil {
		t.Error(err)
	}
	d := twoServices()
	if _, err := replaceServerSteps(fault.Scene{Design: d, Service: &d.Pairs[0].Services[0], Active: "nfs1", Passive: "nfs2"}); err == nil {
		t.Error("with two services neither server is passive")
	}
}

// After a change an apply has nothing to do, or the health is not restored.
func TestSettled(t *testing.T) {
	b := newBench(t)
	e, f, err := b.change("change-disk")
	if err != nil {
		t.Fatal(err)
	}
	if err := fault.Kinds[f.Kind].Back(t.Context(), e, f); err != nil || !slices.Equal(b.did, []string{"mortar plan --detailed-exitcode --json"}) {
		t.Error(err, b.did)
	}
	b.pending = errors.New("it would change nfs1: exports")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := fault.Kinds[f.Kind].Back(ctx, e, f); err == nil {
		t.Error("something is left to apply")
	}
}

// What follows a change works on the new design: the rest of the drill, and the next drill.
func TestChangedDesign(t *testing.T) {
	b := newBench(t)
	e, f, err := b.change("change-disk")
	if err != nil {
		t.Fatal(err)
	}
	b.after = haDesign(t, "MA[01-03]", "MA[05-07]")
	if err := e.InjectorOf(f).Inject(t.Context(), f); err != nil || e.Design != b.after || e.Service != b.after.Services()[0] {
		t.Error(err, "the engine goes on with the design before")
	}
	if got := nextSerial(b.d, "MA01-2"); got != "MA01-3" {
		t.Error(got)
	}
	if got := nextSerial(haDesign(t, "MB[01-03]", "MA01-[2-4]"), "MA01"); got != "MA01-5" {
		t.Error(got)
	}
}

// Drills whose change stays are done only if they are named.
func TestLastingIsNamed(t *testing.T) {
	names := func(cs []Choice) (out []string) {
		for _, c := range cs {
			out = append(out, c.Drill.Name)
		}
		return out
	}
	all := names(mustChoose(t))
	for _, d := range Table {
		if !strings.HasPrefix(d.Name, "change-") {
			continue
		}
		if in := slices.Contains(all, d.Name); in != (d.Lasting == "") {
			t.Errorf("%s is among all: %v; it leaves behind %q", d.Name, in, d.Lasting)
		}
		if one, err := Choose([]string{d.Name}, nil); err != nil || len(one) != len(d.Variants) {
			t.Errorf("%s: %v, %v", d.Name, one, err)
		}
	}
}

// clerk is an Operator whose commands take effect at once.
type clerk struct {
	*bench
	design *design.Design
}

func (c clerk) Command(ctx context.Context, name string, args ...string) (*design.Design, error) {
	_, err := c.bench.Command(ctx, name, args...)
	return c.design, err
}

// A whole drill of a change, with real load: it passes, or it is interrupted and healed.
func TestRunOfChange(t *testing.T) { synctest.Test(t, testRunOfChange) }

func testRunOfChange(t *testing.T) {
	d, v, err := Find("change-upgrade", "")
	if err != nil {
		t.Fatal(err)
	}
	upgrade := changeLines["change-upgrade"][0]
	plan := "mortar plan --detailed-exitcode --json"
	for _, interrupted := range []bool{false, true} {
		p, b := newPair(t), newBench(t)
		env := fault.Env{Design: p.design(), Dial: p.dial, Injector: p, Operator: clerk{b, p.design()}, Virtual: true, Version: "test", Progress: func(s string) { t.Log(s) }}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		want := []string{plan, strings.Replace(upgrade, "--yes", "--dry-run", 1), upgrade}
		if interrupted {
			b.fails, b.ended = upgrade, cancel
			want = append(want, "standby nfs1 false", "standby nfs2 false")
		}
		r, err := Run(ctx, env, d, v, p.options(t))
		if !slices.Equal(b.did, append(want, plan)) {
			t.Errorf("did %q", b.did)
		}
		switch {
		case interrupted && !errors.Is(err, context.Canceled):
			t.Errorf("interrupted: %v", err)
		case !interrupted && (err != nil || r.Summary.Verdict != report.Pass || r.Summary.AcknowledgedBytes == 0):
			t.Errorf("%v: %+v", err, r)
		}
		p.leftNothing(t)
	}
}

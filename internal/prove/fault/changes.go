package fault

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/prove/report"
	"github.com/mortarhpc/mortar/internal/run/disk"
)

// UnusedDisk is a disk that both servers see and that the brick does not use.
type UnusedDisk struct{ Enclosure, Serial string }

// unusedDisks is an Injector that knows of disks that are for a growth.
type unusedDisks interface {
	UnusedDisks(ctx context.Context) ([]UnusedDisk, error)
}

// mayChange asks the Injector whether it can do the part of a change that takes a hand.
func mayChange(k Kind) func(b *Site, f Fault) error {
	return func(b *Site, f Fault) error {
		if err := hasOperator(b, f); err != nil {
			return err
		}
		f.Kind = k
		return b.Env.Injector.Can(f)
	}
}

func mayGrow(b *Site, f Fault) error {
	if err := hasOperator(b, f); err != nil {
		return err
	}
	if _, ok := b.Env.Injector.(unusedDisks); !ok {
		return errors.New("a growth cannot be undone, so a drill grows no real brick; run `mortar grow` when you need the room")
	}
	return nil
}

// task is one part of a change, which may be done again after an interruption.
type task struct {
	what string
	do   func(ctx context.Context) error
}

// resume carries out the tasks that are left. There is no way back from a change, so
// healing goes on from where an error or an interrupt stopped it.
func resume(ctx context.Context, b *Site, f Fault) error {
	for len(b.tasks) > 0 {
		x := b.tasks[0]
		began := time.Now()
		b.Say("%s", x.what)
		b.Watch.Add(report.Event{NS: began.UnixNano(), Host: f.On, Source: "drill", Kind: report.EventNote, Text: x.what})
		if err := x.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", x.what, err)
		}
		b.Say("done in %s: %s", report.Seconds(time.Since(began).Seconds()), x.what)
		b.tasks = b.tasks[1:]
	}
	return nil
}

// command is the task of a mortar command.
func command(b *Site, name string, args ...string) task {
	return task{"mortar " + strings.Join(append([]string{name}, args...), " "), func(ctx context.Context) error {
		d, err := b.Env.Operator.Command(ctx, name, append(slices.Clone(args), "--yes", "--json")...)
		if d != nil {
			setDesign(b, d)
		}
		return err
	}}
}

// setDesign goes on with the design of a spec that a command may have changed.
func setDesign(b *Site, d *design.Design) {
	for _, s := range d.Services() {
		if s.Name == b.Service.Name {
			b.Design, b.Service = d, s
		}
	}
}

// planOnly carries out a command that only plans. Its error is one of ctx, or what wrong makes
// of that of the command.
func planOnly(ctx context.Context, b *Site, wrong func(error) error, name string, args ...string) error {
	_, err := b.Env.Operator.Command(ctx, name, append(slices.Clone(args), "--json")...)
	if err == nil || ctx.Err() != nil {
		return ctx.Err()
	}
	return wrong(err)
}

// checkApplied refuses the drill while the hosts are not as the spec says: the change would
// apply that too.
func checkApplied(ctx context.Context, b *Site) error {
	return planOnly(ctx, b, func(err error) error {
		return &Unhealthy{[]string{fmt.Sprintf("the hosts are not as the spec says: %v; run `mortar apply`", err)}}
	}, "plan", "--detailed-exitcode")
}

// dryRun refuses the drill if a command would refuse the change.
func dryRun(ctx context.Context, b *Site, name string, args ...string) error {
	if err := checkApplied(ctx, b); err != nil {
		return err
	}
	return planOnly(ctx, b, func(err error) error { return &Refused{fmt.Sprintf("mortar %s: %v", name, err)} }, name, append(slices.Clone(args), "--dry-run")...)
}

// byHand is the task that the Injector does.
func byHand(b *Site, f Fault) task {
	return task{f.Words(), func(ctx context.Context) error { return b.Env.Injector.Inject(ctx, f) }}
}

// mendByHand is the task that mends what byHand did.
func mendByHand(b *Site, what string, f Fault) task {
	return task{what, func(ctx context.Context) error { return b.Env.Injector.Heal(ctx, f) }}
}

// firstDial bounds the first session with a new machine, which copies the mortar binary to
// it. A login by itself has the limit of the Dial.
const firstDial = 2 * time.Minute

// waitingFor is the task of waiting for what hosts show. look describes what is missing.
func waitingFor(b *Site, what string, limit time.Duration, look func(ctx context.Context, hosts host.ByName) (string, error), servers ...string) task {
	return task{what, func(ctx context.Context) error {
		return host.Wait{Limit: limit, Poll: 2 * time.Second}.Until(ctx, func(ctx context.Context) (string, error) {
			// The session of a run may be one with the machine before.
			fresh := map[string]*host.Session{}
			for _, s := range servers {
				dctx, cancel := context.WithTimeout(ctx, firstDial)
				h, err := b.Env.Dial(dctx, s)
				cancel()
				if err != nil {
					return fmt.Sprintf("%s: %v", s, err), nil
				}
				defer h.Close()
				fresh[s] = h
			}
			lacks, err := look(ctx, func(name string) *host.Session { return fresh[name] })
			if err != nil {
				lacks = err.Error()
			}
			return lacks, nil
		})
	}}
}

func planDisk(ctx context.Context, b *Site, f Fault) error {
	if err := dryRun(ctx, b, "disk fail", f.Args[0]); err != nil {
		return err
	}
	p, err := disk.Find(b.Design, f.Args[0])
	if err != nil {
		return err
	}
	seen := waitingFor(b, "waiting until the servers see disk "+f.Args[1], time.Minute, func(ctx context.Context, hosts host.ByName) (string, error) {
		_, err := p.Found(ctx, hosts, f.Args[1])
		return "", err
	}, b.Servers()...)
	b.tasks = []task{
		command(b, "disk fail", f.Args[0]),
		byHand(b, Fault{Kind: DiskOut, Args: f.Args[:1]}),
		byHand(b, Fault{Kind: DiskBlank, Args: f.Args}),
		seen,
		command(b, "disk replace", f.Args[0], "--with", f.Args[1]),
	}
	return nil
}

// planServer leaves the new machine without its cables until it is prepared: the
// kernel of a fresh system assembles md arrays that its partner writes to.
func planServer(ctx context.Context, b *Site, f Fault) error {
	if err := checkApplied(ctx, b); err != nil {
		return err
	}
	pair := b.Design.PairWith(f.On)
	replace := command(b, "server replace", f.On, "--skip-fence-test")
	off, cables := Fault{Kind: PowerOff, On: f.On}, Fault{Kind: PathsOut, On: f.On}
	b.tasks = []task{
		{"mortar standby " + f.On, func(ctx context.Context) error { return b.Env.Operator.Standby(ctx, f.On, true) }},
		{"stopping the cluster on " + f.On, func(ctx context.Context) error {
			return b.Do(ctx, f.On, resource.Action{Title: "leave the cluster", Cmd: []string{"systemctl", "stop", "pacemaker.service", "corosync.service"}, Seconds: 120})
		}},
		byHand(b, off),
		byHand(b, Fault{Kind: ServerNew, On: f.On}),
	}
	arrays := len(b.Design.ArraysOf(pair)) > 0
	if arrays {
		b.tasks = append(b.tasks, byHand(b, cables))
	}
	b.tasks = append(b.tasks, mendByHand(b, "switching "+f.On+" on", off),
		waitingFor(b, "waiting until "+f.On+" answers", 2*BootLimit, func(context.Context, host.ByName) (string, error) { return "", nil }, f.On))
	if arrays {
		b.tasks = append(b.tasks, replace, mendByHand(b, "plugging the cables of "+f.On+" in", cables),
			waitingFor(b, "waiting until "+f.On+" sees its disks", BootLimit, func(ctx context.Context, hosts host.ByName) (string, error) {
				_, missing, err := disk.SeenBy(ctx, hosts, b.Design, pair, f.On)
				return strings.Join(missing, ", "), err
			}, f.On))
	}
	b.tasks = append(b.tasks, replace,
		task{"mortar unstandby " + f.On, func(ctx context.Context) error { return b.Env.Operator.Standby(ctx, f.On, false) }})
	return nil
}

// planUpgrade leaves the fence test out: it powers servers off, and no drill could tell
// that from a fencing that must not be.
func planUpgrade(ctx context.Context, b *Site, _ Fault) error {
	args := []string{"--reboot-only", "--skip-fence-test"}
	if err := dryRun(ctx, b, "upgrade", args...); err != nil {
		return err
	}
	b.tasks = []task{command(b, "upgrade", args...)}
	return nil
}

// stopUpgrade ends the standby in which an interrupted upgrade left a server.
func stopUpgrade(ctx context.Context, b *Site, _ Fault) error {
	if len(b.tasks) == 0 {
		return nil
	}
	for _, s := range b.Design.Servers() {
		if err := b.Env.Operator.Standby(ctx, s, false); err != nil {
			return fmt.Errorf("ending the standby of %s: %w", s, err)
		}
	}
	b.tasks = nil
	return nil
}

func planGrow(ctx context.Context, b *Site, _ Fault) error {
	in, ok := b.Env.Injector.(unusedDisks)
	if !ok {
		return mayGrow(b, Fault{})
	}
	found, err := in.UnusedDisks(ctx)
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return &Refused{"the rack has no disk that the brick does not use. Build the rack from a copy of the spec with more disks, and the brick from the spec without them: see 'More disks than the brick' in docs/rack.md"}
	}
	var args []string
	for _, s := range found {
		args = append(args, "--disks", s.Enclosure+"="+s.Serial)
	}
	if err := dryRun(ctx, b, "grow", args...); err != nil {
		return err
	}
	b.tasks = []task{command(b, "grow", args...)}
	return nil
}

// How the cache of ChangeCache is taken up again: below a service that ran all the time, or
// below one that was started without it.
const (
	CacheKept = "kept"
	CacheGone = "gone"
)

func planCache(ctx context.Context, b *Site, f Fault) error {
	if b.Design.Spec.Cache == nil {
		return &Refused{"the brick has no cache"}
	}
	args := b.Design.Spec.Cache.AddArgs()
	if args == nil {
		return &Refused{"the SSDs of the cache differ in size, type or server: one mortar cache add does not give them back"}
	}
	if err := dryRun(ctx, b, "cache off"); err != nil {
		return err
	}
	move := func(to string) task {
		return task{"mortar failover " + b.Service.Name + " --to " + to, func(ctx context.Context) error { return b.Env.Operator.Move(ctx, b.Service.Name, to) }}
	}
	b.tasks = []task{command(b, "cache off"), command(b, "cache add", args...)}
	if f.Args[0] == CacheGone {
		b.tasks = []task{b.tasks[0], move(b.Passive), b.tasks[1], move(b.Active), command(b, "apply", "--skip-fence-test")}
	}
	return nil
}

// settleLimit bounds the wait until a plan is empty: clients and the cluster may still
// be busy with what the change did.
const settleLimit = 3 * time.Minute

// settled refuses a change after which an apply would still change something.
func settled(ctx context.Context, b *Site, _ Fault) error {
	b.Say("comparing the hosts with the spec: nothing may be left to apply")
	err := host.Wait{Limit: settleLimit, Poll: 5 * time.Second}.Until(ctx, func(ctx context.Context) (string, error) {
		if err := checkApplied(ctx, b); err != nil {
			return err.Error(), ctx.Err()
		}
		return "", nil
	})
	if err != nil {
		return fmt.Errorf("mortar plan after the change: %w", err)
	}
	return nil
}

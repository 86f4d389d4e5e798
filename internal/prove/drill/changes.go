package drill

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/prove/report"
	"github.com/mortarhpc/mortar/internal/run/disk"
)

// Kinds of changes that an administrator makes while the brick serves. Mortar makes
// them itself, by its own commands, and has the Injector do what takes a hand.
const (
	ChangeDisk    Kind = "change-disk"    // a disk is replaced; serial, serial of the new one
	ChangeServer  Kind = "change-server"  // a new machine takes a server's place
	ChangeUpgrade Kind = "change-upgrade" // every server is rebooted, one at a time
	ChangeGrow    Kind = "change-grow"    // the volume gets the disks that the brick does not use

	// What takes a hand in a change. A change cannot be taken back, so these have no
	// mending either.
	DiskBlank Kind = "disk-blank" // a blank disk is in the slot of one that is out; serial, serial of the new one
	ServerNew Kind = "server-new" // a freshly installed machine is in the place of a server that is off
)

// changeDrills are the drills of changes. Those with Lasting are done only if they
// are named.
var changeDrills = []Drill{
	{
		Name: "change-upgrade", Title: "both servers are rebooted, one at a time, as for new packages or firmware: clients see two planned moves",
		Expect:   Expect{Where: Returns, Fencing: Nobody, Stall: moveStall},
		Variants: []Variant{{How: "reboot", Title: "mortar upgrade --reboot-only", Steps: upgradeSteps}},
	},
	{
		Name: "change-disk", Title: "a disk of a RAID group is taken out of service and replaced by a blank one",
		Lasting:  "the spec names the new disk",
		Expect:   Expect{Where: Stays, Fencing: Nobody, Stall: moveStall, Disks: true},
		Variants: []Variant{{How: "replace", Title: "mortar disk fail, the disk is swapped in its bay, mortar disk replace", Steps: replaceDiskSteps}},
	},
	{
		Name: "change-server", Title: "the passive server is retired, and a freshly installed machine takes its place",
		Lasting:  "the system of that server is a new one, and its fencing is unproven until mortar fence-test",
		Expect:   Expect{Where: Stays, Fencing: Nobody, Stall: moveStall, Disks: true},
		Variants: []Variant{{How: "replace", Title: "mortar standby, power off; the new machine boots without its cables, mortar server replace, its cables, mortar server replace, mortar unstandby", Steps: replaceServerSteps}},
	},
	{
		Name: "change-grow", Title: "the volume grows by disks that the brick does not use yet",
		Lasting:  "the spec and the volume have the new disks: a growth cannot be undone",
		Expect:   Expect{Where: Stays, Fencing: Nobody, Stall: moveStall, Disks: true},
		Variants: []Variant{{How: "disks", Title: "mortar grow --disks", Steps: one(Fault{Kind: ChangeGrow}, 0)}},
	},
}

// moveStall is the target of a planned move, as of the drill failover.
const moveStall = 5

// These drills come before those that cut all power.
func init() {
	Table = slices.Insert(Table, len(Table)-2, changeDrills...)
	for _, name := range []string{"change-disk-replace", "change-grow-disks"} {
		alone[name] = nil
	}
	// settled comes after each change: nothing may be left to apply.
	kinds[ChangeDisk] = faultKind{phrase: "replacing disk {0} by {1}", can: mayChange(DiskBlank), ready: (*engine).planDisk, inject: (*engine).resume, heal: (*engine).resume, back: (*engine).settled}
	kinds[ChangeServer] = faultKind{phrase: "replacing server {on}", can: mayChange(ServerNew), ready: (*engine).planServer, inject: (*engine).resume, heal: (*engine).resume, back: (*engine).settled}
	kinds[ChangeUpgrade] = faultKind{phrase: "rebooting each server", can: hasOperator, ready: (*engine).planUpgrade, inject: (*engine).resume, heal: (*engine).stopUpgrade, back: (*engine).settled}
	kinds[ChangeGrow] = faultKind{phrase: "growing the volume", can: mayGrow, ready: (*engine).planGrow, inject: (*engine).resume, heal: (*engine).resume, back: (*engine).settled}
	kinds[DiskBlank] = faultKind{phrase: "pushing blank disk {1} into the slot of {0}"}
	kinds[ServerNew] = faultKind{phrase: "putting another machine in the place of {on}"}
}

// UnusedDisk is a disk that both servers see and that the brick does not use.
type UnusedDisk struct{ Enclosure, Serial string }

// unusedDisks is an Injector that knows of disks that are for a growth.
type unusedDisks interface {
	UnusedDisks(ctx context.Context) ([]UnusedDisk, error)
}

func upgradeSteps(s Scene) ([]Step, error) {
	return []Step{{Fault: Fault{Kind: ChangeUpgrade}}}, nil
}

func replaceDiskSteps(s Scene) ([]Step, error) {
	ds, err := s.disks(1)
	if err != nil {
		return nil, err
	}
	if _, err := disk.Find(s.Design, ds[0]); err != nil {
		return nil, err
	}
	return []Step{{Fault: Fault{Kind: ChangeDisk, Args: []string{ds[0], nextSerial(s.Design, ds[0])}}}}, nil
}

// nextSerial is a serial number for the disk in place of another: MA01, MA01-2, MA01-3.
func nextSerial(d *design.Design, old string) string {
	base, n := old, 2
	if i := strings.LastIndexByte(old, '-'); i > 0 {
		if k, err := strconv.Atoi(old[i+1:]); err == nil && k > 1 {
			base, n = old[:i], k+1
		}
	}
	for ; ; n++ {
		next := fmt.Sprintf("%s-%d", base, n)
		if !slices.ContainsFunc(d.Disks, func(k design.Disk) bool { return strings.EqualFold(k.Serial, next) }) {
			return next
		}
	}
}

func replaceServerSteps(s Scene) ([]Step, error) {
	if s.Passive == "" || len(s.Design.PairOf(s.Service.Name).Services) > 1 {
		return nil, errors.New("with two services neither server is passive")
	}
	return []Step{{Fault: Fault{Kind: ChangeServer, On: s.Passive}}}, nil
}

// mayChange asks the Injector whether it can do the part of a change that takes a hand.
func mayChange(k Kind) func(e *engine, f Fault) error {
	return func(e *engine, f Fault) error {
		if err := hasOperator(e, f); err != nil {
			return err
		}
		f.Kind = k
		return e.env.Injector.Can(f)
	}
}

func mayGrow(e *engine, f Fault) error {
	if err := hasOperator(e, f); err != nil {
		return err
	}
	if _, ok := e.env.Injector.(unusedDisks); !ok {
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
func (e *engine) resume(ctx context.Context, f Fault) error {
	for len(e.tasks) > 0 {
		x := e.tasks[0]
		began := time.Now()
		e.say("%s", x.what)
		e.watch.add(report.Event{NS: began.UnixNano(), Host: f.On, Source: "drill", Kind: report.EventNote, Text: x.what})
		if err := x.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", x.what, err)
		}
		e.say("done in %s: %s", report.Seconds(time.Since(began).Seconds()), x.what)
		e.tasks = e.tasks[1:]
	}
	return nil
}

// command is the task of a mortar command.
func (e *engine) command(name string, args ...string) task {
	return task{"mortar " + strings.Join(append([]string{name}, args...), " "), func(ctx context.Context) error {
		d, err := e.env.Operator.Command(ctx, name, append(slices.Clone(args), "--yes", "--json")...)
		if d != nil {
			e.adopt(d)
		}
		return err
	}}
}

// adopt goes on with the design of a spec that a command may have changed.
func (e *engine) adopt(d *design.Design) {
	for _, s := range d.Services() {
		if s.Name == e.service.Name {
			e.env.Design, e.service = d, s
		}
	}
}

// applied refuses the drill while the hosts are not as the spec says: the change would
// apply that too.
func (e *engine) applied(ctx context.Context) error {
	if _, err := e.env.Operator.Command(ctx, "plan", "--detailed-exitcode", "--json"); ctx.Err() != nil {
		return ctx.Err()
	} else if err != nil {
		return &Unhealthy{[]string{fmt.Sprintf("the hosts are not as the spec says: %v; run `mortar apply`", err)}}
	}
	return nil
}

// dryRun refuses the drill if a command would refuse the change.
func (e *engine) dryRun(ctx context.Context, name string, args ...string) error {
	if err := e.applied(ctx); err != nil {
		return err
	}
	if _, err := e.env.Operator.Command(ctx, name, append(slices.Clone(args), "--dry-run", "--json")...); ctx.Err() != nil {
		return ctx.Err()
	} else if err != nil {
		return &Refused{fmt.Sprintf("drill %s: mortar %s: %v", e.drill.Name, name, err)}
	}
	return nil
}

// byHand is the task that the Injector does.
func (e *engine) byHand(f Fault) task {
	return task{describe(Step{Fault: f}), func(ctx context.Context) error { return e.env.Injector.Inject(ctx, f) }}
}

// mendByHand is the task that mends what byHand did.
func (e *engine) mendByHand(what string, f Fault) task {
	return task{what, func(ctx context.Context) error { return e.env.Injector.Heal(ctx, f) }}
}

// firstDial bounds the first session with a new machine, which copies the mortar binary to
// it. A login by itself has the limit of the Dial.
const firstDial = 2 * time.Minute

// waiting is the task of waiting for what hosts show. look describes what is missing.
func (e *engine) waiting(what string, limit time.Duration, look func(ctx context.Context, hosts host.ByName) (string, error), servers ...string) task {
	return task{what, func(ctx context.Context) error {
		return host.Wait{Limit: limit, Poll: 2 * time.Second}.Until(ctx, func(ctx context.Context) (string, error) {
			// The session of a run may be one with the machine before.
			fresh := map[string]*host.Session{}
			for _, s := range servers {
				dctx, cancel := context.WithTimeout(ctx, firstDial)
				h, err := e.env.Dial(dctx, s)
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

func (e *engine) planDisk(ctx context.Context, f Fault) error {
	if err := e.dryRun(ctx, "disk fail", f.Args[0]); err != nil {
		return err
	}
	p, err := disk.Find(e.env.Design, f.Args[0])
	if err != nil {
		return err
	}
	seen := e.waiting("waiting until the servers see disk "+f.Args[1], time.Minute, func(ctx context.Context, hosts host.ByName) (string, error) {
		_, err := p.Found(ctx, hosts, f.Args[1])
		return "", err
	}, e.servers...)
	e.tasks = []task{
		e.command("disk fail", f.Args[0]),
		e.byHand(Fault{Kind: DiskOut, Args: f.Args[:1]}),
		e.byHand(Fault{Kind: DiskBlank, Args: f.Args}),
		seen,
		e.command("disk replace", f.Args[0], "--with", f.Args[1]),
	}
	return nil
}

// planServer leaves the new machine without its cables until it is prepared: the
// kernel of a fresh system assembles md arrays that its partner writes to.
func (e *engine) planServer(ctx context.Context, f Fault) error {
	if err := e.applied(ctx); err != nil {
		return err
	}
	pair := e.env.Design.PairWith(f.On)
	replace := e.command("server replace", f.On, "--skip-fence-test")
	off, cables := Fault{Kind: PowerOff, On: f.On}, Fault{Kind: PathsOut, On: f.On}
	e.tasks = []task{
		{"mortar standby " + f.On, func(ctx context.Context) error { return e.env.Operator.Standby(ctx, f.On, true) }},
		{"stopping the cluster on " + f.On, func(ctx context.Context) error {
			return e.do(ctx, f.On, resource.Action{Title: "leave the cluster", Cmd: []string{"systemctl", "stop", "pacemaker.service", "corosync.service"}, Seconds: 120})
		}},
		e.byHand(off),
		e.byHand(Fault{Kind: ServerNew, On: f.On}),
	}
	arrays := len(e.env.Design.ArraysOf(pair)) > 0
	if arrays {
		e.tasks = append(e.tasks, e.byHand(cables))
	}
	e.tasks = append(e.tasks, e.mendByHand("switching "+f.On+" on", off),
		e.waiting("waiting until "+f.On+" answers", 2*bootLimit, func(context.Context, host.ByName) (string, error) { return "", nil }, f.On))
	if arrays {
		e.tasks = append(e.tasks, replace, e.mendByHand("plugging the cables of "+f.On+" in", cables),
			e.waiting("waiting until "+f.On+" sees its disks", bootLimit, func(ctx context.Context, hosts host.ByName) (string, error) {
				_, missing, err := disk.SeenBy(ctx, hosts, e.env.Design, pair, f.On)
				return strings.Join(missing, ", "), err
			}, f.On))
	}
	e.tasks = append(e.tasks, replace,
		task{"mortar unstandby " + f.On, func(ctx context.Context) error { return e.env.Operator.Standby(ctx, f.On, false) }})
	return nil
}

// planUpgrade leaves the fence test out: it powers servers off, and no drill could tell
// that from a fencing that must not be.
func (e *engine) planUpgrade(ctx context.Context, _ Fault) error {
	args := []string{"--reboot-only", "--skip-fence-test"}
	if err := e.dryRun(ctx, "upgrade", args...); err != nil {
		return err
	}
	e.tasks = []task{e.command("upgrade", args...)}
	return nil
}

// stopUpgrade ends the standby in which an interrupted upgrade left a server.
func (e *engine) stopUpgrade(ctx context.Context, _ Fault) error {
	if len(e.tasks) == 0 {
		return nil
	}
	for _, s := range e.env.Design.Servers() {
		if err := e.env.Operator.Standby(ctx, s, false); err != nil {
			return fmt.Errorf("ending the standby of %s: %w", s, err)
		}
	}
	e.tasks = nil
	return nil
}

func (e *engine) planGrow(ctx context.Context, _ Fault) error {
	in, ok := e.env.Injector.(unusedDisks)
	if !ok {
		return mayGrow(e, Fault{})
	}
	found, err := in.UnusedDisks(ctx)
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return &Refused{"drill " + e.drill.Name + ": the rack has no disk that the brick does not use. Build the rack from a copy of the spec with more disks, and the brick from the spec without them: see 'More disks than the brick' in docs/rack.md"}
	}
	var args []string
	for _, s := range found {
		args = append(args, "--disks", s.Enclosure+"="+s.Serial)
	}
	if err := e.dryRun(ctx, "grow", args...); err != nil {
		return err
	}
	e.tasks = []task{e.command("grow", args...)}
	return nil
}

// settleLimit bounds the wait until a plan is empty: clients and the cluster may still
// be busy with what the change did.
const settleLimit = 3 * time.Minute

// settled refuses a change after which an apply would still change something.
func (e *engine) settled(ctx context.Context, _ Fault) error {
	e.say("comparing the hosts with the spec: nothing may be left to apply")
	err := host.Wait{Limit: settleLimit, Poll: 5 * time.Second}.Until(ctx, func(ctx context.Context) (string, error) {
		if _, err := e.env.Operator.Command(ctx, "plan", "--detailed-exitcode", "--json"); err != nil {
			return err.Error(), nil
		}
		return "", nil
	})
	if err != nil {
		return fmt.Errorf("mortar plan after the change: %w", err)
	}
	return nil
}

package drill

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/base/lists"
	"github.com/mortarhpc/mortar/internal/base/raid6"
	"github.com/mortarhpc/mortar/internal/brick/array"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/prove/fault"
	"github.com/mortarhpc/mortar/internal/prove/judge"
	"github.com/mortarhpc/mortar/internal/prove/kind"
	"github.com/mortarhpc/mortar/internal/prove/report"
	"github.com/mortarhpc/mortar/internal/prove/workload"
	"github.com/mortarhpc/mortar/internal/run/disk"
	"github.com/mortarhpc/mortar/internal/run/observe"
	"github.com/mortarhpc/mortar/internal/serve/cache"
	"github.com/mortarhpc/mortar/internal/serve/unit"
)

// untilSeen injects a fault that lasts, until the servers have seen it.
func untilSeen(s fault.Scene, f fault.Fault, hold time.Duration) []Step {
	return []Step{Inject(f), Wait(hold), Until{f.Seen(s)}, Look{}}
}

// holding is one fault that lasts for hold, until the servers have seen it.
func holding(p Part, hold time.Duration) func(fault.Scene) ([]Step, error) {
	return func(s fault.Scene) ([]Step, error) { return untilSeen(s, p.fault(s), hold), nil }
}

// oneFault is one fault, or one command.
func oneFault(p Part) func(fault.Scene) ([]Step, error) {
	return func(s fault.Scene) ([]Step, error) { return []Step{Inject(p.fault(s))}, nil }
}

// toPassive moves the service to the passive server by command.
var toPassive = Part{Kind: fault.Move, On: fault.OnPassive, Args: []string{fault.MoveArg}}

// booted waits until each server has booted after the fault.
func booted(what string, servers ...string) *fault.Condition {
	all := lists.Map(servers, resetItself)
	return fault.AllOf(what, 10*time.Minute, all...)
}

// clockJump moves the active server's clock by so much, until status says so.
func clockJump(by time.Duration) func(fault.Scene) ([]Step, error) {
	return func(s fault.Scene) ([]Step, error) {
		f := fault.Fault{Kind: fault.ClockJump, On: s.Active, Args: []string{strconv.Itoa(int(by / time.Second))}}
		return append(untilSeen(s, f, linkHold), Mend(f), Wait(5*time.Second)), nil
	}
}

// hangOne makes the first disk or LUN of the service hang on the passive server.
func hangOne(s fault.Scene) (Step, error) {
	name, err := s.Storage().Reached()
	return Prepare{Kind: fault.DiskHang, On: s.Passive, Args: []string{name}}, err
}

// diskHung makes a disk hang on the passive server, which then takes the service over.
func diskHung(then Part) func(fault.Scene) ([]Step, error) {
	return func(s fault.Scene) ([]Step, error) {
		if !s.Storage().Rebuilds() {
			return nil, errors.New("no LUN can be done without: lun-hung is the drill of one")
		}
		first, err := hangOne(s)
		if err != nil {
			return nil, err
		}
		return []Step{first, Inject(then.fault(s)), Until{startedWithout(s)}}, nil
	}
}

// startedWithout waits until the service runs on the passive server, on a group that lacks
// one disk.
func startedWithout(s fault.Scene) *fault.Condition {
	g, on := s.Group, s.Passive
	return &fault.Condition{What: "started without the disk", Limit: 2 * time.Minute, Look: func(ctx context.Context, v *fault.Site) (bool, string) {
		if !v.Mounted(ctx, on) {
			return false, "the service does not run on " + on
		}
		a, _, err := fault.ArrayOn(ctx, v, on, g)
		if err != nil {
			return false, err.Error()
		}
		return a.Degraded == 1, fmt.Sprintf("array %s runs without %d of its disks on %s", g.Name, a.Degraded, on)
	}}
}

// lunHung makes a LUN hang on the passive server, then the active one die.
func lunHung(s fault.Scene) ([]Step, error) {
	first, err := hangOne(s)
	if _, noLUN := s.LUN(); noLUN != nil || err != nil || s.Passes() != nil {
		return nil, cmp.Or(noLUN, err, s.Passes())
	}
	return []Step{first, Inject{Kind: fault.Panic, On: s.Active}, Until{notStartedOn(s.Passive, s.Active)}}, nil
}

// hangUnfenced makes the kernel panic on a server that no fence device reaches.
// The server's watchdog resets it.
func hangUnfenced(s fault.Scene) ([]Step, error) {
	return append(unfenceable(s), Inject{Kind: fault.Panic, On: s.Active}, Until{resetItself(s.Active)}), nil
}

// stuckUnfenced makes the stop of the service fail on a server that no fence
// device reaches.
func stuckUnfenced(s fault.Scene) ([]Step, error) {
	held := kind.Of(s.Design).Files(s.Service)
	if held == "" {
		// The targets are unmounted, and their volume group stays.
		if s.Service.Storage.VG == "" || len(s.Service.Targets) == 0 {
			return nil, errNoFiles
		}
		held = s.Service.Targets[0].Device
	}
	return append(unfenceable(s),
		Prepare{Kind: fault.HoldFS, On: s.Active, Args: []string{held}},
		Inject{Kind: fault.LinkDown, On: s.Active, Args: []string{"public"}}, Until{resetItself(s.Active)},
	), nil
}

// resetItself waits until a server has booted after the fault.
func resetItself(server string) *fault.Condition {
	return &fault.Condition{What: "the server has reset itself", Limit: 10 * time.Minute, Look: func(ctx context.Context, v *fault.Site) (bool, string) {
		text, err := v.Read(ctx, server, "/proc/uptime")
		if err != nil {
			return false, server + " does not answer"
		}
		up, ok := linux.Uptime(text)
		since := time.Since(time.Unix(0, v.Watch.FaultNS()))
		return ok && up < since, fmt.Sprintf("%s has run for %s, %s after the fault", server, report.Seconds(up.Seconds()), report.Seconds(since.Seconds()))
	}}
}

// takenAway takes a thing from the active server, on which the watcher puts it back.
func takenAway(what string) func(fault.Scene) ([]Step, error) {
	return func(s fault.Scene) ([]Step, error) {
		if kind.Of(s.Design).Address(s.Service) == "" {
			return nil, fault.ErrNoAddress
		}
		return []Step{Inject{Kind: fault.TakeAway, On: s.Active, Args: []string{what}}, Until{putBack(s.Active, what)}}, nil
	}
}

// putBack waits until the watcher says so: a look at the thing may come when it is back already.
func putBack(server, what string) *fault.Condition {
	c := fault.Logged("the watcher puts it back", time.Minute, func(_ *fault.Site, x report.Event) bool {
		return x.Host == server && x.Code == unit.PutBack(what)
	})
	c.Sign = true
	return c
}

// lnetGone takes the network from LNet of the active server. Corosync and SSH go on over
// the same interface, so only the watcher notices.
func lnetGone(s fault.Scene) ([]Step, error) {
	if kind.Of(s.Design).LNet(s.Design) == "" {
		return nil, fault.ErrNoLustre
	}
	return []Step{Inject{Kind: fault.LNetDown, On: s.Active}, Until{serviceStopped(s.Active)}}, nil
}

// serviceStopped waits until Pacemaker has stopped the service under test on a server.
func serviceStopped(server string) *fault.Condition {
	return fault.Logged("the watcher gives the targets up", 2*time.Minute, func(v *fault.Site, x report.Event) bool {
		return x.Kind == report.EventStopped && x.Host == server && judge.About(x, resource.ServiceID(v.Service.Name))
	})
}

// secondFaultAfter is the time between the faults of mds-and-oss: the first server has been fenced,
// and its partner waits for MMP.
const secondFaultAfter = 15 * time.Second

func mdsAndOSS(s fault.Scene) ([]Step, error) {
	if _, err := opposite(s.Design, s.Service); err != nil {
		return nil, err
	}
	return []Step{Inject{Kind: fault.Freeze, On: s.Active}, Wait(secondFaultAfter), Inject{Kind: fault.Freeze, On: s.Second}}, nil
}

// bitRot corrupts data on a disk and scrubs the brick.
func bitRot(s fault.Scene) ([]Step, error) {
	if kind.Of(s.Design).Files(s.Service) == "" {
		return nil, errNoFiles
	}
	if err := s.Storage().Rot(); err != nil {
		return nil, err
	}
	return []Step{Inject{Kind: fault.BitRot, On: s.Active}, Wait(2 * time.Second), Until{&fault.Condition{What: "scrub finds and mends", Look: scrubbed}}, Look{}}, nil
}

// scrubbed scrubs the group. It reports whether the scrub found exactly the
// corrupted data and repaired it.
func scrubbed(ctx context.Context, b *fault.Site) (bool, string) {
	g, err := b.Env.Operator.Scrub(ctx, b.Group)
	if err != nil {
		return false, err.Error()
	}
	i := slices.IndexFunc(b.Injected, func(f fault.Fault) bool { return f.Kind == fault.Corrupt })
	if i < 0 {
		return false, "nothing was spoilt"
	}
	want := b.Injected[i].Args[0]
	var names []string
	for _, d := range g.Disks {
		names = append(names, fmt.Sprintf("disk %s in %d blocks", d.Serial, d.Blocks))
	}
	ok := len(g.Disks) == 1 && strings.EqualFold(g.Disks[0].Serial, want) && g.Mended == fault.RotBytes/raid6.Block && g.Unknown == 0 && g.Left == 0
	return ok, fmt.Sprintf("%d bytes of disk %s were overwritten; the scrub blamed %s, mended %d blocks of 4 KiB and left %d sectors that do not match", fault.RotBytes, want, strings.Join(names, ", "), g.Mended, g.Left)
}

// powerHold is how long an array is off: longer than the restart of a controller,
// and shorter than I/O waits for paths (no_path_retry).
const powerHold = 45 * time.Second

// powerLost is longer than I/O waits for paths.
const powerLost = (design.QueueSeconds + 20) * time.Second

// lunFault is a fault of the service's first LUN, or of its array or controller, for a while. It
// is mended under load: while a LUN is slow, every operation counts as a stall.
func lunFault(f fault.Fault, hold, after time.Duration, args func(x design.LUN) []string) func(fault.Scene) ([]Step, error) {
	return func(s fault.Scene) ([]Step, error) {
		x, err := s.LUN()
		if err != nil {
			return nil, err
		}
		f := f
		f.Args = args(x)
		steps := append(untilSeen(s, f, hold), Mend(f), Wait(after))
		if f.Kind != fault.LUNSlow {
			steps = append(steps, Until{fault.LUNsHome()})
		}
		return steps, nil
	}
}

func controllerOf(x design.LUN) []string { return []string{x.Array, strconv.Itoa(x.Controller)} }
func arrayOfLUN(x design.LUN) []string   { return []string{x.Array} }
func delayOf(x design.LUN) []string      { return []string{x.Name, strconv.Itoa(fault.SlowMS)} }

// lunMissing boots the passive server without one of the LUNs, then makes the
// active server die.
func lunMissing(s fault.Scene) ([]Step, error) {
	x, err := s.LUN()
	if err = errors.Join(err, s.Passes()); err != nil {
		return nil, err
	}
	off := fault.Fault{Kind: fault.PowerOff, On: s.Passive}
	return []Step{
		Prepare(off), Wait(2 * time.Second),
		Prepare{Kind: fault.LUNMissing, On: s.Passive, Args: []string{x.Name}},
		Mend(off), Until{joinedWithout(x.Name, s.Passive)}, Look{},
		Inject{Kind: fault.Panic, On: s.Active}, Until{notStartedOn(s.Passive, s.Active)},
	}, nil
}

// joinedWithout waits until a server is in the cluster and mortar status reports
// its missing LUN.
func joinedWithout(lun, server string) *fault.Condition {
	return &fault.Condition{What: "status says so", Limit: fault.BootLimit, Look: func(ctx context.Context, v *fault.Site) (bool, string) {
		c, err := v.Cluster(ctx, []string{v.Active})
		if err != nil {
			return false, err.Error()
		}
		if problems := fault.ClusterProblems(c, []string{v.Active, v.Passive}); len(problems) > 0 {
			return false, strings.Join(problems, "; ")
		}
		return fault.SignOf(array.Missing, "luns", lun, "hosts", server).In(v.Findings(ctx))
	}}
}

// notStartedOn waits until the service runs on its own server again, which has booted,
// and checks that the other server did not start it meanwhile.
func notStartedOn(wrong, home string) *fault.Condition {
	reset := resetItself(home)
	return &fault.Condition{What: "not started on " + wrong, Limit: 2 * fault.BootLimit, Look: func(ctx context.Context, v *fault.Site) (bool, string) {
		for _, ev := range v.Events() {
			if ev.Kind == report.EventStarted && ev.Host == wrong && ev.NS > v.Watch.FaultNS() && judge.About(ev, resource.ServiceID(v.Service.Name)) {
				return false, "it started there, without one of its LUNs"
			}
		}
		if ok, detail := reset.Look(ctx, v); !ok {
			return false, detail
		}
		return v.Mounted(ctx, home), "it runs on " + home
	}}
}

// moveStall is the target of a planned move, as of the drill failover.
const moveStall = 5

func replaceDiskSteps(s fault.Scene) ([]Step, error) {
	ds, err := s.Disks(1)
	if err != nil {
		return nil, err
	}
	if _, err := disk.Find(s.Design, ds[0]); err != nil {
		return nil, err
	}
	return []Step{Inject{Kind: fault.ChangeDisk, Args: []string{ds[0], nextSerial(s.Design, ds[0])}}}, nil
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

func replaceServerSteps(s fault.Scene) ([]Step, error) {
	if err := s.Passes(); err != nil {
		return nil, err
	}
	return []Step{Inject{Kind: fault.ChangeServer, On: s.Passive}}, nil
}

// mirrorFull is how much of the mirror is dirty when the mirror is full, in percent. bcache
// writes past the SSDs when 70 % of the buckets are in use; some hold metadata, and some are
// not full. On a rack 57 to 61 % were dirty then.
//
// Source: drivers/md/bcache/writeback.h, CUTOFF_WRITEBACK_SYNC
const mirrorFull = 50

// mirrorFills fills the mirror with dirty data, and keeps bcache from writing it to the disks.
func mirrorFills(s fault.Scene) (full fault.Fault, is Until, err error) {
	if _, err := s.SSD(0); err != nil {
		return full, is, err
	}
	if s.Service.Storage.Cache.Mode != cache.WriteBack {
		return full, is, errors.New("the cache is write-through: nothing in it is dirty")
	}
	return fault.Fault{Kind: fault.CacheFill, On: s.Active, Args: []string{s.Service.Name, s.Service.MountPoints()[0]}},
		Until{dirtyAt(s, "the mirror is full", func(percent int64) bool { return percent >= mirrorFull })}, nil
}

// flushMove has the service leave the server on which a flush waits.
func flushMove(command string, then Part) func(fault.Scene) ([]Step, error) {
	return func(s fault.Scene) ([]Step, error) {
		full, is, err := mirrorFills(s)
		if err != nil {
			return nil, err
		}
		return []Step{
			Prepare(full), is,
			Prepare{Kind: fault.CacheFlush, On: s.Active, Args: []string{s.Service.Name, command}}, Wait(3 * time.Second), Until{flushWaits},
			Inject(then.fault(s)), Until{flushCut(s, then.Kind == fault.Move)}, Look{},
		}, nil
	}
}

// flushWaits waits until the command of CacheFlush runs and has data to wait for.
var flushWaits = &fault.Condition{What: "the flush waits for the disks", Limit: time.Minute, Look: func(ctx context.Context, v *fault.Site) (bool, string) {
	st, err := fault.CacheStats(ctx, v, v.Active)
	runs := fault.UnitRuns(ctx, v, v.Active, fault.FlushUnit)
	return err == nil && st.Up && st.Dirty > 0 && runs, fmt.Sprintf("%s on %s: %v; %d bytes dirty", fault.FlushUnit, v.Active, runs, st.Dirty)
}}

// flushCut waits until the partner's cache has the dirty data of a flush that did not end,
// on every SSD, and finds no fault: it compares the label with bcache's superblock. On a
// server that goes on the flush must have ended by itself.
func flushCut(s fault.Scene, ends bool) *fault.Condition {
	n := len(s.Service.Storage.Cache.SSDs)
	return &fault.Condition{What: "the partner has the dirty data, and label and superblock agree", Limit: 2 * time.Minute, Look: func(ctx context.Context, v *fault.Site) (bool, string) {
		st, err := fault.CacheStats(ctx, v, v.Passive)
		if err != nil {
			return false, err.Error()
		}
		text := fmt.Sprintf("on %s: in sync: %v of %d, %d bytes dirty", v.Passive, st.Mirror.InSync, st.Mirror.Members, st.Dirty)
		if st.Error != "" {
			return false, text + "; " + st.Error
		}
		if ends && fault.UnitRuns(ctx, v, v.Active, fault.FlushUnit) {
			return false, text + "; the flush still runs on " + v.Active
		}
		return st.Up && st.Dirty > 0 && len(st.Mirror.InSync) == n, text
	}}
}

func ssdFail(i int) func(fault.Scene) ([]Step, error) {
	return func(s fault.Scene) ([]Step, error) {
		serial, err := s.SSD(i)
		if err != nil {
			return nil, err
		}
		return holding(Part{Kind: fault.DiskOut, Args: []string{serial}}, linkHold)(s)
	}
}

func ssdReplace(s fault.Scene) ([]Step, error) {
	if s.Service.Storage.Cache != nil && s.Service.Storage.Cache.Mode != cache.WriteBack {
		return nil, errors.New("the cache is write-through: see ssd-both")
	}
	steps, err := ssdFail(0)(s)
	if err != nil {
		return nil, err
	}
	out, _ := actOf(steps[0])
	return append(steps, Mend(out), Wait(3*time.Second),
		Inject{Kind: fault.CacheApply, On: s.Active, Args: []string{s.Service.Name}}, Wait(5*time.Second),
		Until{fault.MirrorOf(s, len(s.Service.Storage.Cache.SSDs))}, Look{}), nil
}

func ssdAll(s fault.Scene) ([]Step, error) {
	if _, err := s.SSD(0); err != nil {
		return nil, err
	}
	c := s.Service.Storage.Cache
	if c.Mode != cache.WriteThrough {
		return nil, errors.New("the cache is write-back: with all of its SSDs, data that is not on the disks would be gone")
	}
	var steps []Step
	for _, d := range c.SSDs {
		steps = append(steps, Inject{Kind: fault.DiskOut, Args: []string{d.Serial}}, Wait(5*time.Second))
	}
	away := fault.SSDsAway(slices.DeleteFunc(slices.Clone(c.SSDs), s.Elsewhere)...)
	return append(steps[:len(steps)-1], Wait(linkHold), Until{away}, Look{}), nil
}

func dirtyAt(s fault.Scene, what string, is func(percent int64) bool) *fault.Condition {
	return fault.CacheCondition(s, what, func(st cache.Stats) bool { return st.DirtyRoom > 0 && is(100*st.Dirty/st.DirtyRoom) })
}

// fencingLiesName is the drill that only a brick with reservations survives.
const fencingLiesName = "fencing-lies"

// wakeAfter is how long the partner serves before the frozen server wakes up:
// long enough for clients to overwrite the data that it holds in memory.
const wakeAfter = 10 * time.Second

// keepAfter is how long writers get to finish their writes after a mark. An fsync
// of rewriteBytes takes less.
const keepAfter = 8 * time.Second

// inMemory is the least dirty data in bytes that the server must hold when it
// freezes.
const inMemory = 4 << 20

// fencingLies tests fence devices that report success and do nothing. The server
// freezes with data in memory that clients have sent and not committed. The
// clients send that data to the partner again and overwrite it. Then the server
// wakes up and writes its old data to the same blocks. Only the reservations of
// the LUNs or disks can refuse these writes.
func fencingLies(lies ...fault.Kind) func(fault.Scene) ([]Step, error) {
	return func(s fault.Scene) ([]Step, error) {
		if !s.Design.Reservable() {
			return nil, fmt.Errorf("the storage of service %s is not reserved: a fence device that lies about a server that lives costs data, and no drill can show otherwise", s.Service.Name)
		}
		steps := lists.Map(lies, func(k fault.Kind) Step { return Prepare{Kind: k, On: s.Active} })
		frozen := fault.Fault{Kind: fault.Freeze, On: s.Active}
		var dirty *fault.Condition // none: an OST's server writes data through, and has its journal in memory
		if kind.Of(s.Design).LNet(s.Design) == "" {
			dirty = unwritten(s.Active)
		}
		return append(steps,
			Prepare{Kind: fault.WriteSoon, On: s.Active}, Until{dirty},
			Inject(frozen), Wait(wakeAfter), Until{servedBy(s.Passive)}, Wait(wakeAfter),
			Keep{}, Wait(keepAfter),
			Mend(frozen), Until{writesNothing(s.Active)}, Until{unmountedOn(s.Active)}, Until{runsOnlyOn(s.Passive, s.Service.Name)},
		), nil
	}
}

// unwritten waits until a server holds inMemory bytes of dirty data.
func unwritten(server string) *fault.Condition {
	return &fault.Condition{What: "data in memory only", Limit: time.Minute, Look: func(ctx context.Context, v *fault.Site) (bool, string) {
		text, err := v.Read(ctx, server, "/proc/meminfo")
		if err != nil {
			return false, err.Error()
		}
		n := dirtyBytes(text)
		return n >= inMemory, fmt.Sprintf("%s has %s in memory that is not on the disks", server, report.Bytes(n))
	}}
}

// dirtyBytes is the data in the page cache that is not on the disks.
//
// Source: proc_meminfo(5): Dirty, Writeback
func dirtyBytes(meminfo string) (n int64) {
	for line := range strings.Lines(meminfo) {
		f := strings.Fields(line)
		if len(f) == 3 && (f[0] == "Dirty:" || f[0] == "Writeback:") {
			kib, _ := strconv.ParseInt(f[1], 10, 64)
			n += kib << 10
		}
	}
	return n
}

// servedBy waits until a server has started the service, while the other one is
// frozen.
func servedBy(server string) *fault.Condition {
	return fault.Logged("the partner serves", 3*time.Minute, func(_ *fault.Site, e report.Event) bool {
		return e.Kind == report.EventStarted && e.Host == server
	})
}

// writesNothing waits until the kernel of a server reports that a LUN or disk refused a write, or
// until the server boots: it resets itself so soon that its last messages may reach no log.
func writesNothing(server string) *fault.Condition {
	return fault.Logged("the server that woke up is refused, or resets itself", fault.BootLimit, func(_ *fault.Site, e report.Event) bool {
		return e.Host == server && (e.Kind == report.EventConflict || e.Kind == report.EventBooted)
	})
}

// unmountedOn waits until a server no longer has the volume mounted.
func unmountedOn(server string) *fault.Condition {
	return &fault.Condition{What: "the server that woke up has let go", Limit: fault.BootLimit, Look: func(ctx context.Context, v *fault.Site) (bool, string) {
		has, err := v.HasVolume(ctx, server, v.Service)
		if err != nil {
			return false, server + " does not answer"
		}
		return !has, fmt.Sprintf("the volume is mounted on %s: %v", server, has)
	}}
}

// runsOnlyOn waits until the cluster says that a service runs on one server alone. While
// the server that woke up is fenced again, Pacemaker still counts it there, too.
func runsOnlyOn(server, service string) *fault.Condition {
	return &fault.Condition{What: "the cluster knows one server of the service", Limit: fault.BootLimit, Look: func(ctx context.Context, v *fault.Site) (bool, string) {
		on, err := v.Location(ctx, service)
		if err != nil {
			return false, err.Error()
		}
		return slices.Equal(on, []string{server}), fmt.Sprintf("%s runs on %s", service, strings.Join(on, ", "))
	}}
}

// rewriteBytes is the size of a rewriter's file, and of the data of each fsync: so
// many requests of the largest size that an NFS client sends them UNSTABLE and
// commits them at the end.
const rewriteBytes = 32 << 20

// addRewriters adds, for each writer in mode fsync, a writer that rewrites a file
// as fast as it can, so that the server always has dirty data in memory.
func (j *clientJob) addRewriters() {
	for _, w := range slices.Clone(j.job.Writers) {
		if w.Mode != workload.Fsync {
			continue
		}
		m := j.mounts[w.Name]
		w.Name = strings.TrimSuffix(w.Name, "-fsync") + "-rewrite"
		w.FileBytes, w.FsyncEvery, w.OpsPerSecond = rewriteBytes, int(rewriteBytes/w.BlockBytes), 0
		j.mounts[w.Name] = m
		j.job.Writers = append(j.job.Writers, w)
	}
}

const (
	// lockLimit bounds the time until the locks of a dead client are free. By hand: 115 s
	// with Lustre. The lease of NFSv4 is 90 s; a client that lost it is removed when
	// another one asks for its lock.
	lockLimit = 6 * time.Minute
)

// clientCrash kills the first client, which holds a lock on each of its mounts.
func clientCrash(s fault.Scene) ([]Step, error) {
	victim := ""
	for _, m := range s.Design.Mounts {
		victim = cmp.Or(victim, m.Client)
	}
	if !slices.ContainsFunc(s.Design.Mounts, func(m design.ClientMount) bool { return m.Client != victim }) {
		return nil, errors.New("one client dies and another one takes its lock, but the spec has no second client with a mount: add one (clients:)")
	}
	crash := fault.Fault{Kind: fault.ClientDown, On: victim}
	frees := func(m design.ClientMount) bool { return kind.For(m).FreesLocks(m) }
	every := func(design.ClientMount) bool { return true }
	var hold Step = Wait(linkHold) // long enough that the clients that live go on without it
	if slices.ContainsFunc(s.Design.Mounts, frees) {
		hold = Until{locksTaken("another client gets its locks", frees)}
	}
	return []Step{Inject(crash), hold, Look{}, Mend(crash), Until{mountsBack(victim)}, Until{locksTaken("another client has all its locks", every)}}, nil
}

// firstClientDies prepares the load for the death of the first client: its ledgers survive it, and the
// workers that challenge its locks take them.
func firstClientDies(jobs []clientJob) error {
	jobs[0].job.Durable = true
	n := 0
	for _, j := range jobs[1:] {
		for i := range j.job.Locks {
			if l := &j.job.Locks[i]; l.Role == workload.Challenge {
				l.Role = workload.Take
				n++
			}
		}
	}
	if n == 0 {
		return fmt.Errorf("no other client mounts what %s has mounted: no client could take its locks", jobs[0].client)
	}
	return nil
}

// locksTaken waits until the workers that take locks have them, on the mounts that of accepts.
func locksTaken(what string, of func(design.ClientMount) bool) *fault.Condition {
	return &fault.Condition{What: what, Limit: lockLimit, Look: func(_ context.Context, v *fault.Site) (bool, string) {
		have, miss := v.Taken(of)
		if len(miss) > 0 {
			return false, "no lock yet: " + strings.Join(miss, ", ")
		}
		return have > 0, fmt.Sprintf("%d locks of the dead client are held by another one", have)
	}}
}

// mountsBack waits until a client has booted and has its mounts.
func mountsBack(client string) *fault.Condition {
	return &fault.Condition{What: "the client is back", Limit: fault.ClientLimit, Look: func(ctx context.Context, v *fault.Site) (bool, string) {
		missing, err := fault.Unmounted(ctx, v, client)
		switch {
		case err != nil:
			return false, client + " does not answer: " + err.Error()
		case len(missing) > 0:
			return false, client + " has not mounted " + strings.Join(missing, ", ")
		}
		return true, client + " has its mounts"
	}}
}

// firstOST is the service's first OST.
func firstOST(s fault.Scene) (design.Target, error) {
	if kind.Of(s.Design).LNet(s.Design) == "" {
		return design.Target{}, fault.ErrNoLustre
	}
	i := slices.IndexFunc(s.Service.Targets, func(t design.Target) bool { return t.Kind == "ost" })
	if i < 0 {
		return design.Target{}, fmt.Errorf("service %s has no OST: give --service of one that has", s.Service.Name)
	}
	if s.Design.Lustre.OSTs < 2 {
		return design.Target{}, errors.New("the file system has one OST: there is no other one for new files")
	}
	return s.Service.Targets[i], nil
}

// spaceLimit bounds the time until the MDS knows that an OST is full, or has room again: it asks
// the OSTs every 5 s, and the blocks of removed files are free once the MDS has told the OST.
// By hand: 10 s.
const spaceLimit = 2 * time.Minute

// ostFull fills one OST. The directory of the load's files has a stripe on every OST, so
// its writers need the full one too.
func ostFull(s fault.Scene) ([]Step, error) {
	t, err := firstOST(s)
	if err != nil {
		return nil, err
	}
	f := fault.Fault{Kind: fault.FillOST, Args: []string{strconv.Itoa(t.Index), t.Name}}
	return []Step{
		Inject(f), Until{hasRoom("writers on it are told", false, f.Args[0])},
		Until{&fault.Condition{What: "new files go to other OSTs", Limit: spaceLimit, Look: func(ctx context.Context, v *fault.Site) (bool, string) {
			return writesElsewhere(ctx, v, t.Index)
		}}},
		Wait(fullHold), Until{fault.Shows(spaceLimit, fault.SignOf(observe.Full, "fs", t.Name))}, Look{},
		Mend(f), Until{hasRoom("there is room again", true, f.Args[0])},
	}, nil
}

// writeNew writes 1 MiB into a file, and has it on the disks.
func writeNew(file string) resource.Action {
	return resource.Action{Title: "write a new file", Seconds: 60,
		Cmd: []string{"dd", "if=/dev/zero", "of=" + file, "bs=64k", "count=16", "conv=fsync", "status=none"}}
}

// newFiles is how many files each mount makes to see where they go: in turns, half of them
// would be on the full OST of two.
const newFiles = 4

// writesElsewhere writes new files with one stripe, which Lustre places, on each mount of each
// client. It reports whether all are written, and none is on the OST.
func writesElsewhere(ctx context.Context, b *fault.Site, full int) (ok bool, detail string) {
	var on []string
	for _, m := range b.Design.Mounts {
		dir := path.Join(m.Path, fault.LoadDir, "new-"+m.Client)
		got, err := placeFiles(ctx, b, m.Client, dir)
		_ = b.Do(ctx, m.Client, fault.Removed(dir))
		if err != nil {
			return false, m.Client + ": " + err.Error()
		}
		on = append(on, got...)
	}
	return elsewhere(on, full)
}

// elsewhere reports whether no new file is on the full OST; on has the index of each.
func elsewhere(on []string, full int) (bool, string) {
	detail := fmt.Sprintf("%d new files are on OST %s", len(on), strings.Join(on, ", "))
	return len(on) > 0 && !slices.Contains(on, strconv.Itoa(full)), detail
}

// placeFiles makes new files, and returns the index of the OST of each new file in a directory.
func placeFiles(ctx context.Context, b *fault.Site, client, dir string) (on []string, err error) {
	for _, a := range []resource.Action{
		{Title: "a directory for new files", Cmd: []string{"mkdir", "-p", dir}},
		{Title: "one stripe for each of its files", Cmd: []string{"lfs", "setstripe", "--stripe-count", "1", dir}},
	} {
		if err := b.Do(ctx, client, a); err != nil {
			return nil, err
		}
	}
	for i := range newFiles {
		file := path.Join(dir, strconv.Itoa(i))
		if err := b.Do(ctx, client, writeNew(file)); err != nil {
			return nil, err
		}
		out, err := b.Query(ctx, client, "lfs", "getstripe", "--stripe-index", file)
		if err == nil && out.Code != 0 {
			err = errors.New(strings.TrimSpace(out.Stderr))
		}
		if err != nil {
			return nil, fmt.Errorf("lfs getstripe: %w", err)
		}
		on = append(on, strings.TrimSpace(out.Stdout))
	}
	return on, nil
}

const (
	// linkHold is how long a fault without consequences lasts: several times the
	// time after which the cluster declares a server dead.
	linkHold = 15 * time.Second
	// pathHold is longer than multipathd's polling interval.
	pathHold = 15 * time.Second
)

// passiveHold is longer than either server needs to fence the other; one of them
// first waits for priority-fencing-delay.
const passiveHold = 25 * time.Second

// bothRings pulls both cables of the active server, or, for a while, of the passive one.
func bothRings(passive bool) func(fault.Scene) ([]Step, error) {
	return func(s fault.Scene) ([]Step, error) {
		on := s.Active
		if passive {
			on = s.Passive
			if err := s.Passes(); err != nil {
				return nil, err
			}
		}
		private, public := fault.Fault{Kind: fault.LinkDown, On: on, Args: []string{"private"}}, fault.Fault{Kind: fault.LinkDown, On: on, Args: []string{"public"}}
		if !passive {
			return []Step{Inject(private), Inject(public)}, nil
		}
		// Seen at once: the partner may fence it.
		down := fault.AllOf("both links are down", fault.SeenLimit, private.Seen(s), public.Seen(s))
		return []Step{Inject(private), Inject(public), Until{down}, Wait(passiveHold), Look{}}, nil
	}
}

// switchHold is longer than the watcher waits until it tells of a link that is back (10 s,
// and 5 s until Pacemaker acts): a restart at that moment belongs to the drill.
const switchHold = 25 * time.Second

// standbyCutOff cuts off a server on which Pacemaker has stopped all of Mortar's agents.
func standbyCutOff(s fault.Scene) ([]Step, error) {
	steps, err := bothRings(true)(s)
	return append([]Step{Prepare{Kind: fault.Standby, On: s.Passive}}, steps...), err
}

func powerBus(s fault.Scene) ([]Step, error) {
	if len(s.Design.Spec.PDUs) == 0 {
		return nil, errNoPDU
	}
	return holding(Part{Kind: fault.FeedOff, Args: []string{s.Design.Spec.PDUs[0].Name}}, linkHold)(s)
}

var errNoPDU = errors.New("the brick has no PDU in its spec")

// pathLoss cuts the paths of the active server over one HBA to one disk or LUN.
func pathLoss(s fault.Scene) ([]Step, error) {
	name, err := s.Storage().Reached()
	if err != nil {
		return nil, err
	}
	return holding(Part{Kind: fault.PathOut, On: fault.OnActive, Args: []string{name, "0"}}, pathHold)(s)
}

// moduleLoss has a part with half of all paths fail. A controller comes back.
func moduleLoss(s fault.Scene) ([]Step, error) {
	f, home, err := s.Storage().Module()
	if err != nil {
		return nil, err
	}
	steps := untilSeen(s, f, pathHold)
	if home != nil {
		steps = append(steps, Mend(f), Until{home})
	}
	return steps, nil
}

// bmcDead freezes the active server once its BMC is dead.
func bmcDead(s fault.Scene) ([]Step, error) {
	return []Step{Prepare{Kind: fault.BMCDead, On: s.Active}, Wait(2 * time.Second), Inject{Kind: fault.Freeze, On: s.Active}}, nil
}

// cacheFull fills the mirror of dirty data, and lets it shrink again.
func cacheFull(s fault.Scene) ([]Step, error) {
	full, is, err := mirrorFills(s)
	if err != nil {
		return nil, err
	}
	shrinks := dirtyAt(s, "dirty data shrinks", func(percent int64) bool { return percent < mirrorFull })
	return []Step{Inject(full), Wait(linkHold), is, Look{}, Mend(full), Wait(5 * time.Second), Until{shrinks}}, nil
}

// ssdThen has something happen while an SSD of the cache is missing, or, if it has returned,
// holds stale data.
func ssdThen(returned bool, then func(fault.Scene) ([]Step, error)) func(fault.Scene) ([]Step, error) {
	return func(s fault.Scene) ([]Step, error) {
		steps, err := ssdFail(0)(s)
		if err != nil {
			return nil, err
		}
		if out, _ := actOf(steps[0]); returned {
			steps = append(steps, Mend(out), Wait(3*time.Second))
		}
		rest, err := then(s)
		return append(prepared(steps), rest...), err
	}
}

func diskLoss(n int) func(fault.Scene) ([]Step, error) {
	return func(s fault.Scene) ([]Step, error) {
		ds, err := s.Disks(n)
		if err != nil {
			return nil, err
		}
		if n > s.Group.Parity || s.Group.Level == 10 && n > 1 {
			return nil, fmt.Errorf("RAID group %s cannot lose %d disks", s.Group.Name, n)
		}
		var steps []Step
		for _, d := range ds {
			steps = append(steps, Inject(s.Storage().Pulled(d)), Wait(3*time.Second))
		}
		return append(steps, Until{s.Storage().Without(ds...)}, Look{}), nil
	}
}

// degradedCrash makes the server die before the rebuild of a spare ends.
func degradedCrash(s fault.Scene) ([]Step, error) {
	steps, err := diskLoss(1)(s)
	if err != nil {
		return nil, err
	}
	if s.Storage().Rebuilds() {
		steps = append([]Step{Prepare{Kind: fault.HoldRebuild, On: s.Active}}, steps...)
	}
	steps = prepared(steps[:len(steps)-1]) // without the look: it takes time in which the rebuild goes on
	return append(steps, Inject{Kind: fault.Panic, On: s.Active}, Until{s.Storage().StartedDegraded()}), nil
}

// killDaemon kills a daemon and waits until a daemon of that name runs again on the
// server of the service.
func killDaemon(daemon string) func(fault.Scene) ([]Step, error) {
	return func(s fault.Scene) ([]Step, error) {
		steps := []Step{Inject{Kind: fault.Kill, On: s.Active, Args: []string{daemon}}}
		cluster := slices.Contains(fault.OfCluster, daemon)
		switch {
		case !cluster && !slices.Contains(kind.Of(s.Design).Is().Daemons, daemon):
			return nil, fmt.Errorf("service %s has no %s", s.Service.Name, daemon)
		case cluster:
			// The server may lose its membership and be fenced. So the drill
			// requires only the service, and health at the end.
			return append(steps, Wait(20*time.Second)), nil
		}
		return append(steps, Until{&fault.Condition{What: "daemon back", Limit: time.Minute, Look: func(ctx context.Context, v *fault.Site) (bool, string) {
			for _, server := range []string{v.Active, v.Passive} {
				if fault.DaemonRuns(ctx, v, server, daemon) && v.Mounted(ctx, server) {
					return true, fmt.Sprintf("%s runs on %s", daemon, server)
				}
			}
			return false, daemon + " does not run where the service is"
		}}}), nil
	}
}

// hangDaemon stops a daemon by a signal and waits until another process has taken its place.
func hangDaemon(daemon string) func(fault.Scene) ([]Step, error) {
	return func(s fault.Scene) ([]Step, error) {
		if !slices.Contains(kind.Of(s.Design).Is().Daemons, daemon) {
			return nil, fmt.Errorf("service %s has no %s", s.Service.Name, daemon)
		}
		return []Step{Inject{Kind: fault.Hang, On: s.Active, Args: []string{daemon}}, Until{&fault.Condition{What: "daemon replaced", Limit: time.Minute, Look: func(ctx context.Context, v *fault.Site) (bool, string) {
			stopped, err := v.Query(ctx, s.Active, "pgrep", "--runstates", "T", "-x", daemon)
			if err != nil || stopped.Code != 1 {
				return false, daemon + " is stopped"
			}
			return fault.DaemonRuns(ctx, v, s.Active, daemon), fmt.Sprintf("another %s runs on %s", daemon, s.Active)
		}}}}, nil
	}
}

func flapLink(network string) func(fault.Scene) ([]Step, error) {
	return func(s fault.Scene) ([]Step, error) {
		f := fault.Fault{Kind: fault.LinkDown, On: s.Active, Args: []string{network}}
		var steps []Step
		for range 10 {
			steps = append(steps, Inject(f), Wait(2*time.Second), Mend(f), Wait(2*time.Second))
		}
		steps[len(steps)-1] = Wait(linkHold)
		return slices.Insert(steps, 2, Step(Until{f.Seen(s)})), nil
	}
}

// errNoFiles refuses drills that need files on a server.
var errNoFiles = errors.New("servers see no files of this brick")

// fullHold is how long the file system stays full: long enough for two monitors
// of the service, which must succeed.
const fullHold = 25 * time.Second

func fullFS(s fault.Scene) ([]Step, error) {
	dir := kind.Of(s.Design).Files(s.Service)
	if dir == "" {
		return nil, fmt.Errorf("%w: ost-full is the drill of a full Lustre", errNoFiles)
	}
	f := fault.Fault{Kind: fault.FillFS, On: s.Active, Args: []string{dir}}
	return []Step{
		Inject(f), Wait(fullHold), Until{hasRoom("clients are told", false, "")}, Look{},
		Mend(f), Until{hasRoom("clients have room again", true, "")},
	}, nil
}

// hasRoom waits until a new file on each mount has room, or none has; ost is the index of the OST
// that it is on, "": any.
func hasRoom(what string, want bool, ost string) *fault.Condition {
	limit, where := 30*time.Second, "each mount"
	if ost != "" {
		limit, where = spaceLimit, "OST "+ost
	}
	return &fault.Condition{What: what, Limit: limit, Look: func(ctx context.Context, v *fault.Site) (bool, string) {
		said, n := probeSpace(ctx, v, ost)
		return len(said) > 0 && (want && n == len(said) || !want && n == 0), fmt.Sprintf("a new file on %s: %s", where, strings.Join(said, ", "))
	}}
}

// probeSpace writes a small new file on each mount of each client that uses the service, or on
// an OST. It returns the outcomes, and how many writes succeeded.
func probeSpace(ctx context.Context, b *fault.Site, ost string) (said []string, room int) {
	for _, m := range b.Design.Mounts {
		if !kind.For(m).Uses(m, b.Service.Name) {
			continue
		}
		file := path.Join(m.Path, fault.LoadDir, "space-"+m.Client+"-"+kind.For(m).Label(m))
		who := m.Client + " " + kind.For(m).Name(m)
		_ = b.Do(ctx, m.Client, fault.Removed(file))
		var err error
		if ost != "" {
			err = b.Do(ctx, m.Client, fault.OnOST(file, ost))
		}
		if err == nil {
			err = b.Do(ctx, m.Client, writeNew(file))
		}
		switch {
		case err == nil:
			room++
			said = append(said, who+" had room")
		case errors.Is(err, unix.ENOSPC):
			said = append(said, who+" '"+unix.ENOSPC.Error()+"'")
		default:
			room = -len(b.Design.Mounts) // neither full nor free
			said = append(said, who+" "+err.Error())
		}
		_ = b.Do(ctx, m.Client, fault.Removed(file))
	}
	return said, room
}

// fsDamage damages the file system of the service, and mends it once status has named the remedy.
func fsDamage(what string) func(fault.Scene) ([]Step, error) {
	return func(s fault.Scene) ([]Step, error) {
		args := []string{what, s.Service.Name}
		return []Step{
			Inject{Kind: fault.DamageFS, Args: args}, Until{fault.Shows(3*time.Minute, fault.SignOf(observe.ServiceDamaged, "service", s.Service.Name))}, Look{},
			Inject{Kind: fault.RepairFS, Args: args},
		}, nil
	}
}

// fullMoved moves the service while its file system is full.
func fullMoved(s fault.Scene) ([]Step, error) {
	steps, err := fullFS(s)
	if err != nil {
		return nil, err
	}
	steps = prepared(slices.Delete(steps, 1, 2)) // the file system stays full after the move
	return slices.Insert(steps, 3, []Step{Inject{Kind: fault.Move, On: s.Passive, Args: []string{s.Service.Name}}, Wait(fullHold), Look{}}...), nil
}

// fenceHold is how long the drill watches that the service does not start while
// no fence device works: longer than the slowest takeover so far.
const fenceHold = 45 * time.Second

// unfenceable breaks every fence device of the active server.
func unfenceable(s fault.Scene) []Step {
	steps := []Step{Prepare{Kind: fault.BMCDead, On: s.Active}}
	for _, p := range s.Design.Spec.PDUs {
		steps = append(steps, Prepare{Kind: fault.PDUDead, Args: []string{p.Name}})
	}
	return steps
}

func fenceAll(s fault.Scene) ([]Step, error) {
	return append(unfenceable(s),
		Inject{Kind: fault.Freeze, On: s.Active}, Until{fault.Logged("fencing fails", 3*time.Minute, func(_ *fault.Site, e report.Event) bool {
			return e.Kind == report.EventFenceFail && e.Node == s.Active
		})},
		Wait(fenceHold), Until{fault.Shows(30*time.Second, fault.SignOf(observe.MemberLost, "host", s.Active))}, Look{},
		Inject{Kind: fault.PowerOff, On: s.Active}, Inject{Kind: fault.ConfirmOff, On: s.Active},
	), nil
}

// coldStartAlone cuts the passive server's power before it can fence the active
// one. The passive server misses the active one after 3 s (token and consensus),
// and the dead BMC delays the fencing for longer than that.
func coldStartAlone(s fault.Scene) ([]Step, error) {
	if err := s.Passes(); err != nil {
		return nil, err
	}
	off := fault.Fault{Kind: fault.PowerOff, On: s.Passive}
	return []Step{
		Prepare{Kind: fault.BMCDead, On: s.Active}, Wait(2 * time.Second),
		Inject{Kind: fault.Freeze, On: s.Active}, Wait(time.Second),
		Inject(off), Wait(2 * time.Second),
		Mend(off), Until{fault.Shows(fault.BootLimit, fault.SignOf(observe.QuorumWaits, "missing", s.Active))}, Wait(fenceHold), Look{},
		Inject{Kind: fault.PowerOff, On: s.Active}, Inject{Kind: fault.ConfirmOff, On: s.Active},
	}, nil
}

// switchBoots takes the public network from servers and clients for ten seconds: the
// link of each client changes, too, which no cable of a server does.
func switchBoots(s fault.Scene) ([]Step, error) {
	return append(injectAndMend(s, fault.Fault{Kind: fault.SwitchDown, Args: []string{"public"}}, 10*time.Second), Wait(switchHold)), nil
}

// injectAndMend injects a fault, waits until it is seen, and mends it after a while.
func injectAndMend(s fault.Scene, f fault.Fault, hold time.Duration) []Step {
	return []Step{Inject(f), Until{f.Seen(s)}, Wait(hold), Mend(f)}
}

// diskSlow makes a disk a hundred times slower until status names the disk. It
// mends the disk under load: while the disk is slow, every operation stalls. A dropped disk
// stays slow: every worker must go on, because the group does without the disk.
func diskSlow(dropped bool) func(fault.Scene) ([]Step, error) {
	return func(s fault.Scene) ([]Step, error) {
		f, err := s.Storage().Slow()
		switch {
		case err != nil:
			return nil, err
		case s.Service.Storage.DropSlow && !dropped:
			return nil, errors.New("the spec has slow disks dropped (storage.drop_slow_disks): use --how dropped")
		case dropped && !s.Service.Storage.DropSlow:
			return nil, errors.New("the spec does not have slow disks dropped (storage.drop_slow_disks is off)")
		case dropped:
			return []Step{Inject(f), Until{fault.SlowSeen(s, f.Args[0])}, Look{}}, nil
		}
		return []Step{Inject(f), Wait(linkHold), Until{fault.SlowSeen(s, f.Args[0])}, Mend(f)}, nil
	}
}

func rackPower(s fault.Scene) ([]Step, error) {
	if len(s.Design.Spec.PDUs) == 0 {
		return nil, errNoPDU
	}
	var off, on []Step
	for _, p := range s.Design.Spec.PDUs {
		f := fault.Fault{Kind: fault.FeedOff, Args: []string{p.Name}}
		off, on = append(off, Inject(f)), append(on, Mend(f))
	}
	for i := range s.Design.Arrays {
		a := &s.Design.Arrays[i]
		if s.Design.PathsTo(a, a.Servers[0]) < 2 {
			continue // inside the server: it has that one's power
		}
		// Before the last feed: the servers still write.
		f := fault.Fault{Kind: fault.ArrayPower, Args: []string{a.Name}}
		off, on = slices.Insert(off, len(off)-1, Step(Inject(f))), append([]Step{Mend(f)}, on...)
	}
	return slices.Concat(off, []Step{Wait(5 * time.Second)}, on, []Step{Until{booted("every server booted", s.Design.Servers()...)}}), nil
}

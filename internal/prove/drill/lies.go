package drill

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/prove/report"
	"github.com/mortarhpc/mortar/internal/prove/workload"
)

// fencingLiesName is the drill that only a brick with reservations survives.
const fencingLiesName = "fencing-lies"

// wakeAfter is how long the partner serves before the server wakes up: long
// enough for clients to write over what that server has in memory.
const wakeAfter = 10 * time.Second

// keepAfter is how long writers have to end what they have begun, once they are
// told to keep what is there: an fsync of rewriteBytes takes less.
const keepAfter = 8 * time.Second

// inMemory is how much the server must hold in memory when it freezes, which is
// not on the disks yet, in bytes.
const inMemory = 4 << 20

// fencingLies has a server fenced by devices that say that they did it. The server
// freezes with data in memory that clients have sent and not committed. They send
// it again to the partner and write over it. The server wakes up and writes to the
// same blocks what it still has: only the LUNs can refuse that.
func fencingLies(lies ...Kind) func(Scene) ([]Step, error) {
	return func(s Scene) ([]Step, error) {
		if !s.Design.Reservable() {
			return nil, fmt.Errorf("the disks of service %s know no reservations: a fence device that lies about a server that lives costs data, and no drill can show otherwise", s.Service.Name)
		}
		var steps []Step
		for _, k := range lies {
			steps = append(steps, Step{Fault: Fault{Kind: k, On: s.Active}, Prepare: true})
		}
		frozen := Fault{Kind: Freeze, On: s.Active}
		return append(steps,
			Step{Fault: Fault{Kind: WriteSoon, On: s.Active}, Prepare: true, Until: unwritten(s.Active)},
			Step{Fault: frozen, Wait: wakeAfter, Until: servedBy(s.Passive, s.Active)},
			Step{Wait: wakeAfter},
			Step{Keep: true, Wait: keepAfter},
			Step{Fault: frozen, Mend: true, Until: refusedTo(s.Active)},
			Step{Until: unmountedOn(s.Active, s.Service.MountPoints()[0])},
		), nil
	}
}

// unwritten waits until a server holds data in memory that is not on the disks.
func unwritten(server string) *Condition {
	return &Condition{What: "data in memory only", Limit: time.Minute, Look: func(ctx context.Context, v *View) (bool, string) {
		text, err := v.e.read(ctx, server, "/proc/meminfo")
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

// servedBy waits until a server has started the service while the other one is
// frozen.
func servedBy(server, frozen string) *Condition {
	return &Condition{What: "the partner serves", Limit: 3 * time.Minute, Look: func(_ context.Context, v *View) (bool, string) {
		for _, e := range v.events() {
			if e.Kind == report.EventStarted && e.NS > v.fault && e.Host == server {
				return true, server + " has started the service while " + frozen + " is frozen"
			}
		}
		return false, server + " has not started the service"
	}}
}

// refusedTo waits until the kernel of a server reports that a LUN refused a write.
// Without that the server tried to write nothing, and the drill shows nothing.
func refusedTo(server string) *Condition {
	return &Condition{What: "writes of the server that woke up are refused", Limit: 30 * time.Second, Look: func(_ context.Context, v *View) (bool, string) {
		n := 0
		for _, e := range v.events() {
			if e.Host == server && e.NS > v.fault && e.Kind == report.EventConflict {
				n++
			}
		}
		return n > 0, fmt.Sprintf("the kernel of %s reports a reservation conflict %d times", server, n)
	}}
}

// unmountedOn waits until a server does not have the volume any more.
func unmountedOn(server, mountPoint string) *Condition {
	return &Condition{What: "the server that woke up has let go", Limit: bootLimit, Look: func(ctx context.Context, v *View) (bool, string) {
		mounts, err := v.e.read(ctx, server, "/proc/self/mounts")
		if err != nil {
			return false, server + " does not answer"
		}
		_, has := linux.MountAt(linux.ParseMounts(mounts), mountPoint)
		return !has, fmt.Sprintf("the volume is mounted on %s: %v", server, has)
	}}
}

// A kernel writes data to the disks once it is this old, and looks for such data
// this often, in hundredths of a second; by default 3000 and 500. A server that
// wakes up is reset within seconds if its partner reaches it. With these values it
// writes until then what another server, which nobody reaches, writes later.
//
// Source: Linux, Documentation/admin-guide/sysctl/vm.rst
const (
	expireSetting, soonExpired = "dirty_expire_centisecs", "100"
	lookSetting, soonLooked    = "dirty_writeback_centisecs", "50"
)

// writeSoon has a server write data to the disks after a second.
func (e *engine) writeSoon(ctx context.Context, f Fault) error {
	var before [2]string
	for i, name := range []string{expireSetting, lookSetting} {
		text, err := e.read(ctx, f.On, "/proc/sys/vm/"+name)
		if err != nil {
			return err
		}
		before[i] = strings.TrimSpace(text)
	}
	e.writeback = before
	return e.setWriteback(ctx, f.On, soonExpired, soonLooked)
}

// writeLater undoes it, unless the server has booted since.
func (e *engine) writeLater(ctx context.Context, f Fault) error {
	now, err := e.read(ctx, f.On, "/proc/sys/vm/"+expireSetting)
	if err != nil || strings.TrimSpace(now) != soonExpired || e.writeback[0] == "" {
		return nil
	}
	return e.setWriteback(ctx, f.On, e.writeback[0], e.writeback[1])
}

func (e *engine) setWriteback(ctx context.Context, server, expire, look string) error {
	return e.do(ctx, server, resource.Action{Title: "set when data goes to the disks",
		Cmd: []string{"sysctl", "--quiet", "--write", "vm." + expireSetting + "=" + expire, "vm." + lookSetting + "=" + look}})
}

// rewriteBytes is the size of a rewriter's file, and of what each fsync has to make
// durable: many requests of the largest size, so that a client sends them without
// asking for each to be on the disks, and commits them at the end.
const rewriteBytes = 32 << 20

// addRewriters adds to each writer that calls fsync one that writes a file over and
// over, as fast as it can: the server always has data of it in memory.
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

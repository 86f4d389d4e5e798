package drill

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/prove/report"
	"github.com/mortarhpc/mortar/internal/prove/workload"
)

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
// the LUNs can refuse these writes.
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
			Step{Fault: frozen, Wait: wakeAfter, Until: servedBy(s.Passive)},
			Step{Wait: wakeAfter},
			Step{Keep: true, Wait: keepAfter},
			Step{Fault: frozen, Mend: true, Until: refusedTo(s.Active)},
			Step{Until: unmountedOn(s.Active, s.Service.MountPoints()[0])},
			Step{Until: runsOnlyOn(s.Passive, s.Service.Name)},
		), nil
	}
}

// unwritten waits until a server holds inMemory bytes of dirty data.
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

// servedBy waits until a server has started the service, while the other one is
// frozen.
func servedBy(server string) *Condition {
	return logged("the partner serves", 3*time.Minute, func(_ *View, e report.Event) bool {
		return e.Kind == report.EventStarted && e.Host == server
	})
}

// refusedTo waits until the kernel of a server reports that a LUN refused a write.
// Otherwise the server wrote nothing, and the drill proves nothing.
func refusedTo(server string) *Condition {
	return logged("writes of the server that woke up are refused", 30*time.Second, func(_ *View, e report.Event) bool {
		return e.Host == server && e.Kind == report.EventConflict
	})
}

// unmountedOn waits until a server no longer has the volume mounted.
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

// runsOnlyOn waits until the cluster says that a service runs on one server alone. While
// the server that woke up is fenced again, Pacemaker still counts it there, too.
func runsOnlyOn(server, service string) *Condition {
	return &Condition{What: "the cluster knows one server of the service", Limit: bootLimit, Look: func(ctx context.Context, v *View) (bool, string) {
		on, err := v.e.location(ctx, service)
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

package drill

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/prove/kind"
	"github.com/mortarhpc/mortar/internal/prove/report"
	"github.com/mortarhpc/mortar/internal/prove/testbed"
	"github.com/mortarhpc/mortar/internal/prove/workload"
)

// lockTake is the kind of a worker that takes the lock of a dead client.
const lockTake = "lock-" + string(workload.Take)

const (
	// lockLimit bounds the time until the locks of a dead client are free. By hand: 115 s
	// with Lustre. The lease of NFSv4 is 90 s; a client that lost it is removed when
	// another one asks for its lock.
	lockLimit = 6 * time.Minute
	// clientLimit bounds the boot of a client, until it has its mounts.
	clientLimit = 6 * time.Minute
)

// clientCrash kills the first client, which holds a lock on each of its mounts.
func clientCrash(s Scene) ([]Step, error) {
	victim := ""
	for _, m := range s.Design.Mounts {
		victim = cmp.Or(victim, m.Client)
	}
	if !slices.ContainsFunc(s.Design.Mounts, func(m design.ClientMount) bool { return m.Client != victim }) {
		return nil, errors.New("one client dies and another one takes its lock, but the spec has no second client with a mount: add one (clients:)")
	}
	crash := Fault{Kind: ClientDown, On: victim}
	frees := func(m design.ClientMount) bool { return kind.For(m).FreesLocks(m) }
	every := func(design.ClientMount) bool { return true }
	last := Step{Fault: crash, Mend: true, Until: mountsBack(victim)}
	if slices.ContainsFunc(s.Design.Mounts, frees) {
		return []Step{{Fault: crash, Look: true, Until: taken("another client gets its locks", frees)}, last, {Until: taken("another client has all its locks", every)}}, nil
	}
	// Long enough that the clients that live go on without it.
	return []Step{{Fault: crash, Wait: linkHold, Look: true}, last, {Until: taken("another client has all its locks", every)}}, nil
}

// dies prepares the load for the death of the first client: its ledgers survive it, and the
// workers that challenge its locks take them.
func dies(jobs []clientJob) error {
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
		return fmt.Errorf("no other client mounts what %s has mounted: nobody could take its locks", jobs[0].client)
	}
	return nil
}

// taken waits until the workers that take locks have them, on the mounts that of accepts.
func taken(what string, of func(design.ClientMount) bool) *Condition {
	return &Condition{What: what, Limit: lockLimit, Look: func(_ context.Context, v *View) (bool, string) {
		have, miss := 0, []string{}
		for _, r := range v.e.load {
			r.mu.Lock()
			for _, l := range r.job.Locks {
				if l.Role != workload.Take || !of(r.mounts[l.Name]) {
					continue
				}
				if slices.ContainsFunc(r.progress.Workers, func(p workload.WorkerProgress) bool { return p.Worker == l.Name && p.Took }) {
					have++
				} else {
					miss = append(miss, r.client+" "+l.Name)
				}
			}
			r.mu.Unlock()
		}
		if len(miss) > 0 {
			return false, "no lock yet: " + strings.Join(miss, ", ")
		}
		return have > 0, fmt.Sprintf("%d locks of the dead client are held by another one", have)
	}}
}

// mountsBack waits until a client has booted and has its mounts.
func mountsBack(client string) *Condition {
	return &Condition{What: "the client is back", Limit: clientLimit, Look: func(ctx context.Context, v *View) (bool, string) {
		missing, err := v.e.unmounted(ctx, client)
		switch {
		case err != nil:
			return false, client + " does not answer: " + err.Error()
		case len(missing) > 0:
			return false, client + " has not mounted " + strings.Join(missing, ", ")
		}
		return true, client + " has its mounts"
	}}
}

// unmounted connects to a client that boots, and returns the mount points of the brick that
// are not mounted there.
func (e *engine) unmounted(ctx context.Context, client string) (missing []string, err error) {
	dctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	s, err := e.hosts.Connect(dctx, e.env.Dial, client)
	if err != nil {
		return nil, err
	}
	ms, err := testbed.Mounts(dctx, s)
	if err != nil {
		return nil, err
	}
	for _, want := range e.env.Design.Mounts {
		if m, ok := linux.MountAt(ms, want.Path); want.Client == client && (!ok || !kind.For(want).Mounted(m.Type)) {
			missing = append(missing, want.Path)
		}
	}
	return missing, nil
}

// clientBack waits until a client answers, and mounts what its boot has not mounted.
func (e *engine) clientBack(ctx context.Context, f Fault) error {
	return host.Wait{Limit: clientLimit, Poll: 2 * time.Second}.Until(ctx, func(ctx context.Context) (string, error) {
		missing, err := e.unmounted(ctx, f.On)
		if err != nil {
			return err.Error(), nil
		}
		for _, at := range missing {
			if err := e.do(ctx, f.On, resource.Action{Title: "mount " + at, Cmd: []string{"mount", at}}); err != nil {
				return f.On + ": " + err.Error(), nil
			}
		}
		return "", nil
	})
}

// bury takes the load of a client that is about to die for lost: no error of it counts, and
// no client waits for it.
func (e *engine) bury(client string) {
	for _, r := range e.load {
		if r.client == client {
			r.mu.Lock()
			r.dead, r.offset = true, e.hosts.Clock(client).Offset
			r.mu.Unlock()
		}
	}
}

func (r *running) buried() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.dead
}

// legacy is what is left of the load of a dead client: the ledgers on its disk.
func (r *running) legacy() loaded {
	return loaded{r.client, r.offset, workload.Result{RunID: r.job.RunID, Client: r.client, Ledger: cmp.Or(r.job.LedgerDir, workload.DefaultLedgerDir(r.job.RunID))}, r.mounts}
}

// logLag is how much later than the event its line may be in the journal, whose clock counts
// for the kernel's lines.
const logLag = int64(3 * time.Second)

// judgeTaken checks that each lock of the dead client went to another one, after the client
// had died, and after the server of the locks had evicted it.
func (e *evidence) judgeTaken() (checks []report.Check) {
	eviction, known := firstEvent(e.events, report.EventFS, e.fault, func(ev report.Event) bool {
		return ev.Source == "kernel" && strings.Contains(ev.Text, "MDT") && evicts(ev.Text, e.deadAddress)
	})
	for _, l := range e.loads {
		for _, w := range l.result.Workers {
			if w.Kind != lockTake {
				continue
			}
			c := report.Check{Name: "lock of the dead client"}
			i := slices.IndexFunc(w.Completions, func(c workload.Completion) bool { return c.Op == workload.OpTook })
			if i < 0 {
				c.Detail = fmt.Sprintf("%s on %s never got it", w.Worker, l.client)
				checks = append(checks, c)
				continue
			}
			at := w.Completions[i].DoneNs - l.offset
			after := report.Seconds(float64(at-e.fault) / 1e9)
			switch {
			case at < e.fault:
				c.Detail = fmt.Sprintf("%s on %s got it while %s still held it", w.Worker, l.client, e.dead)
			case e.evicts && !known:
				c.Detail = fmt.Sprintf("%s on %s got it after %s, but no MDS evicted %s", w.Worker, l.client, after, e.dead)
			case e.evicts && at+logLag < eviction.NS:
				c.Detail = fmt.Sprintf("%s on %s got it after %s, before the MDS evicted %s after %s", w.Worker, l.client, after, e.dead, report.Seconds(float64(eviction.NS-e.fault)/1e9))
			default:
				c.OK, c.Detail = true, fmt.Sprintf("%s on %s got it %s after the death of %s", w.Worker, l.client, after, e.dead)
			}
			checks = append(checks, c)
		}
	}
	if len(checks) == 0 {
		return []report.Check{{Name: "lock of the dead client", Detail: "no other client tried to get it"}}
	}
	return checks
}

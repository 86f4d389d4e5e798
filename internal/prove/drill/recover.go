package drill

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/prove/fault"
	"github.com/mortarhpc/mortar/internal/prove/judge"
	"github.com/mortarhpc/mortar/internal/prove/kind"
	"github.com/mortarhpc/mortar/internal/prove/report"
	"github.com/mortarhpc/mortar/internal/prove/stream"
	"github.com/mortarhpc/mortar/internal/prove/workload"
)

// breakIt starts the load, performs the drill's steps, and waits until every
// worker goes on.
func (e *engine) breakIt(ctx context.Context, jobs []clientJob) error {
	if err := e.startLoad(ctx, jobs); err != nil {
		return err
	}
	e.Say("steady load for %s", report.Seconds(e.Options.Steady.Seconds()))
	if err := e.pause(ctx, e.Options.Steady); err != nil {
		return err
	}
	if err := e.perform(ctx); err != nil {
		return err
	}
	err := e.waitRecovered(ctx)
	if err == nil {
		err = e.takenOver(ctx)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	ev := &e.evidence
	ev.Waited = float64(time.Now().UnixNano()-ev.Fault) / 1e9
	// Record what `mortar status` shows an administrator now, unless a step has: status takes
	// as long as the load that follows, or longer.
	if len(e.status) == 0 {
		var looking sync.WaitGroup
		looking.Go(func() { e.status = fault.StatusLines(ctx, &e.Site) })
		defer looking.Wait()
	}
	if err != nil { // the verdict reports it; the drill itself goes on
		e.Say("not every worker went on: %v", err)
		return nil
	}
	ev.Recovered = true
	e.Say("%+.2f s  every worker on every client goes on; %s more of load", ev.Waited, report.Seconds(e.Options.After.Seconds()))
	recovered := time.Now().UnixNano()
	if _ = e.pause(ctx, e.Options.After); ctx.Err() == nil { // so does a load that ends too early
		// A client can go on once after a takeover, and hang then.
		err = e.waitWorkers(ctx, ebbLimit, func(p workload.WorkerProgress, offset int64) bool { return p.LastOpNs-offset >= recovered })
		if err != nil && ctx.Err() == nil {
			ev.Ebbed = err.Error()
		}
	}
	return ctx.Err()
}

// ebbLimit bounds the time until each worker has completed an operation of the load after
// the recovery.
const ebbLimit = 30 * time.Second

// waitRecovered waits until every worker has completed an operation that the
// brick served after the fault. If the service must move, the operation must
// come after its start on the other server.
func (e *engine) waitRecovered(ctx context.Context) error {
	within := max(e.Options.Recover, e.expect.Within)
	limit := time.Now().Add(within)
	// A worker goes on if it completes an operation after the last step that was
	// not under way at the moment of the fault.
	after := max(e.evidence.Fault+(3*time.Second).Nanoseconds(), e.done)
	if e.expect.Where == judge.Moves {
		err := host.Wait{Limit: within, Poll: 200 * time.Millisecond}.Until(ctx, func(context.Context) (string, error) {
			after = 0 // the load may have gone on during the last step
			for _, x := range e.leads() {
				s, ok := e.Watch.First(report.EventStarted, max(x.Fault, e.evidence.Fault), func(ev report.Event) bool {
					return ev.Host == x.Passive && judge.About(ev, x.Resource)
				})
				if !ok {
					return fmt.Sprintf("service %s has not started on %s", x.Service, x.Passive), nil
				}
				after = max(after, s.NS)
			}
			return "", nil
		})
		if err != nil {
			return err
		}
	}
	return e.waitWorkers(ctx, time.Until(limit), func(p workload.WorkerProgress, offset int64) bool {
		return p.LastOpNs-offset >= after && p.StallSeconds == 0
	})
}

// takeoverTime bounds the wait for a takeover that is under way.
const takeoverTime = 3 * time.Minute

// takenOver waits until no server of the pair is to be fenced and its services run, and
// then once more for every worker: clients can go on before a takeover, which the load must
// meet all the same. A takeover that does not end is judged by where the service is.
func (e *engine) takenOver(ctx context.Context) error {
	if !e.Design.Clustered() {
		return nil
	}
	waited := false
	w := host.Wait{Limit: takeoverTime, Poll: time.Second, Seen: func(left string) { e.Say("the load goes on, because %s", left) }}
	_ = w.Until(ctx, func(ctx context.Context) (string, error) {
		c, err := e.Cluster(ctx, e.Servers())
		if err != nil {
			return err.Error(), nil
		}
		left := fault.ClusterUnderWay(c, e.Design.PairOf(e.Service.Name).Services)
		waited = waited || left != ""
		return left, nil
	})
	if !waited || ctx.Err() != nil {
		return ctx.Err()
	}
	e.done = time.Now().UnixNano()
	return e.waitRecovered(ctx)
}

// heal mends all faults: afterwards both servers are in the cluster and every
// disk is in its array. An interrupt must not stop heal, so ctx is not the user's.
func (e *engine) heal(ctx context.Context) error {
	e.healing = time.Now()
	troubles, err := e.mend(ctx)
	// Once something could not be healed, the rest is tried, but not waited for.
	try := func(do func(ctx context.Context) error) {
		hctx, cancel := ctx, context.CancelFunc(func() {})
		if err != nil {
			hctx, cancel = context.WithTimeout(ctx, time.Minute)
		}
		defer cancel()
		err = errors.Join(err, do(hctx))
	}
	try(e.rejoin)
	for _, f := range distinct(e.Injected) {
		if back := fault.Kinds[f.Kind].Back; back != nil {
			try(func(ctx context.Context) error { return back(ctx, &e.Site, f) })
		}
	}
	if err != nil {
		err = errors.Join(append(troubles, err)...)
	}
	return err
}

// distinct returns each fault once.
func distinct(all []fault.Fault) (out []fault.Fault) {
	for _, f := range all {
		if !slices.ContainsFunc(out, f.Is) {
			out = append(out, f)
		}
	}
	return out
}

// mend ends all faults, the last one first. What fails is tried again: a command needs a
// cluster that answers, and the servers of a brick without power boot for some minutes.
// troubles are what went wrong first with each fault that took more than one try.
func (e *engine) mend(ctx context.Context) (troubles []error, err error) {
	last := slices.Clone(e.Injected)
	slices.Reverse(last)
	left := distinct(last)
	for _, f := range left {
		e.Say("healing: %s", f)
		e.Env.Excused.Set(f.On, false)
	}
	first := true
	err = host.Wait{Limit: 2 * fault.BootLimit, Poll: 5 * time.Second}.Until(ctx, func(context.Context) (string, error) {
		var failed []string
		others := len(left) > 1
		left = slices.DeleteFunc(left, func(f fault.Fault) bool {
			once, cancel := ctx, context.CancelFunc(func() {})
			if others { // one that hangs must not hold them up
				once, cancel = context.WithTimeout(ctx, time.Minute)
			}
			defer cancel()
			err := e.InjectorOf(f).Heal(once, f)
			if err != nil {
				err = fmt.Errorf("healing %s: %w", f, err)
				failed = append(failed, err.Error())
				if first {
					troubles = append(troubles, err)
				}
			}
			return err == nil
		})
		first = false
		return strings.Join(failed, "; "), nil
	})
	return troubles, err
}

// lookTime is enough for a look at a whole brick on emulated servers.
const lookTime = 40 * time.Second

// healed waits until the brick is whole, for example until a rebuild ends. The
// rebuild goes on without Mortar, so an interrupt ends the wait; after one healed waits for
// lookTime only.
func (e *engine) healed(ctx context.Context) error {
	if e.expect.Disks || e.Options.Thorough {
		limit := e.Rejoin
		if ctx.Err() != nil {
			ctx, limit = context.WithoutCancel(ctx), min(limit, lookTime)
		}
		if err := e.Whole(ctx, "the brick", limit); err != nil {
			return err
		}
	}
	at, who := time.Now(), "both servers online"
	if servers := e.Servers(); len(servers) == 1 {
		who = servers[0] + " answers"
	}
	e.Watch.Add(report.Event{NS: at.UnixNano(), Source: "drill", Kind: report.EventHealed, Text: who + ", everything started"})
	e.Say("healthy again after %s", report.Seconds(at.Sub(e.healing).Seconds()))
	return nil
}

// rejoin waits until all servers of the drill are in their clusters and every resource runs.
func (e *engine) rejoin(ctx context.Context) (err error) {
	for _, pair := range judge.Pairs(e.subjects) {
		err = errors.Join(err, e.rejoinPair(ctx, pair[0].Nodes))
	}
	return err
}

// rejoinPair waits until both servers are in the cluster and every resource runs.
func (e *engine) rejoinPair(ctx context.Context, servers []string) error {
	e.Say("waiting until %s are in the cluster and every resource runs", strings.Join(servers, " and "))
	var cleaned time.Time
	asked := map[string]bool{}
	err := host.Wait{Limit: e.Rejoin, Poll: 2 * time.Second}.Until(ctx, func(ctx context.Context) (string, error) {
		c, err := e.Cluster(ctx, servers)
		if err != nil {
			return err.Error(), nil
		}
		problems := fault.ClusterProblems(c, servers)
		if len(problems) == 0 {
			return "", nil
		}
		away := func(n linux.CRMNode) bool { return !n.Online || n.Pending }
		for _, n := range c.Nodes {
			// On a fenced server an administrator may have to start Pacemaker.
			// Here the drill does so.
			if !n.Online && !asked[n.Name] && e.Hosts.Session(n.Name) != nil {
				qctx, cancel := context.WithTimeout(ctx, 15*time.Second)
				asked[n.Name] = startCluster(qctx, &e.Site, n.Name)
				cancel()
			}
		}
		if len(c.Failures) > 0 && time.Since(cleaned) > 20*time.Second && !slices.ContainsFunc(c.Nodes, away) {
			cleaned = time.Now()
			for _, s := range e.InOrder(servers) {
				if e.Run(ctx, s, "forget failed actions", "crm_resource", "--cleanup") == nil {
					break
				}
			}
		}
		return strings.Join(problems, "; "), nil
	})
	if err != nil {
		return fmt.Errorf("not whole again: %w", err)
	}
	return nil
}

// startCluster starts Pacemaker on a server that does not start it at boot. It
// returns false if that failed or the server does not answer.
func startCluster(ctx context.Context, b *fault.Site, name string) bool {
	out, err := b.Query(ctx, name, "systemctl", "is-enabled", "pacemaker.service")
	if err != nil || out.Code == 0 {
		return err == nil
	}
	return b.Run(ctx, name, "start the cluster", "systemctl", "start", "pacemaker.service") == nil
}

// verify reads all data back on each client, through new mounts, after the
// servers have dropped their caches.
func (e *engine) verify(ctx context.Context) (report.Verify, map[string]stream.Report, error) {
	if len(e.evidence.Loads) == 0 {
		return report.Verify{}, nil, errors.New("no client has a ledger")
	}
	if err := dropCaches(ctx, &e.Site); err != nil {
		return report.Verify{}, nil, err
	}
	var names []string
	by := map[string]judge.Load{}
	for _, l := range e.evidence.Loads {
		names = append(names, l.Client)
		by[l.Client] = l
	}
	// An interrupt ends the reading only: nothing else would unmount.
	reports, failed := host.All(context.WithoutCancel(ctx), names, func(_ context.Context, client string) (stream.Report, error) {
		l := by[client]
		ms := slices.DeleteFunc(slices.Clone(e.Design.Mounts), func(m design.ClientMount) bool { return m.Client != client })
		dirs := map[string]string{}
		for i, m := range ms {
			// Read through the other protocol if the client has a mount with it.
			via := m
			if k := slices.IndexFunc(ms, func(o design.ClientMount) bool { return o.Source == m.Source && o.Version != m.Version }); k >= 0 {
				via = ms[k]
			}
			at := path.Join(e.Options.verifyDir, l.Result.RunID, fmt.Sprint(i))
			if err := mountAt(ctx, &e.Site, "mount point for verification", via, at); err != nil {
				return stream.Report{}, err
			}
			dirs[path.Join(m.Path, fault.LoadDir)] = path.Join(at, fault.LoadDir)
			defer unmountAt(context.WithoutCancel(ctx), &e.Site, client, at)
		}
		res, err := host.Ask(ctx, e.Hosts.Session(client), workload.OpVerify, workload.VerifyParams{Ledger: l.Result.Ledger, Dirs: dirs, BeforeNs: e.evidence.Fault + l.Offset})
		if err != nil {
			return stream.Report{}, err
		}
		return *res, nil
	})
	v := judge.VerifyReport(reports)
	v.Method = "After the brick was whole again, each client mounted the export anew (a mount of its own cache, the other protocol version where it has both) and read with O_DIRECT every block it has in its ledger. The server had dropped its caches."
	return v, reports, failed.Join()
}

// dropCaches drops the page cache of the serving servers, so that they read from
// their disks.
func dropCaches(ctx context.Context, b *fault.Site) error {
	for _, s := range b.Design.Services() {
		if !slices.ContainsFunc(b.Design.Mounts, func(m design.ClientMount) bool { return kind.For(m).Uses(m, s.Name) }) {
			continue
		}
		where, err := b.Located(ctx, s.Name)
		if err != nil {
			return fmt.Errorf("service %s: %w", s.Name, err)
		}
		for _, on := range where {
			if err := b.Run(ctx, on, "drop caches", "sysctl", "--quiet", "--write", "vm.drop_caches=3"); err != nil {
				return fmt.Errorf("%s: dropping caches: %w", on, err)
			}
		}
	}
	return nil
}

const (
	// mountTime bounds a mount of a whole brick.
	mountTime = 2 * time.Minute
	// asideTime is how long a mount may be in use after the load has ended.
	asideTime = time.Minute
)

// mountAt mounts an export once more on its client, with a cache and locks of its own. An
// interrupt does not cut it short: the mount would go on, and nothing would end it.
func mountAt(ctx context.Context, b *fault.Site, title string, m design.ClientMount, at string) error {
	if err := b.Do(ctx, m.Client, resource.Action{Title: title, Cmd: []string{"mkdir", "-p", at}}); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), mountTime)
	defer cancel()
	return b.Do(ctx, m.Client, resource.Action{Title: "mount " + m.Source + " once more", Cmd: kind.For(m).ReadBack(m, at)})
}

// unmountAt undoes mountAt, and says what stays. What still reads or writes there ends
// within asideTime, or keeps the mount.
func unmountAt(ctx context.Context, b *fault.Site, client, at string) {
	ctx, cancel := context.WithTimeout(ctx, asideTime+mountTime) // a server that does not answer may hold it
	defer cancel()
	do := func(ctx context.Context, cmd ...string) error {
		return b.Do(ctx, client, resource.Action{Title: "unmount", Cmd: cmd})
	}
	// A worker that waits for a server ends only when that answers.
	err := host.Wait{Limit: asideTime, Poll: 2 * time.Second}.Until(ctx, func(ctx context.Context) (string, error) {
		err := do(ctx, "umount", at)
		if !errors.Is(err, unix.EBUSY) {
			return "", err
		}
		return err.Error(), nil
	})
	if err == nil {
		err = do(ctx, "rmdir", at)
	}
	if err == nil {
		err = do(ctx, "rmdir", "--ignore-fail-on-non-empty", path.Dir(at))
	}
	if err != nil {
		b.Say("%s: %v", client, err)
	}
}

// clean removes the load's files. With keep it leaves them and the ledgers as
// evidence of lost data.
func (e *engine) clean(ctx context.Context, runID string, keep bool) {
	for _, m := range e.aside {
		unmountAt(ctx, &e.Site, m.Client, m.Path)
	}
	if len(e.load) == 0 {
		return
	}
	if keep {
		e.Say("the files (%s) and the clients' ledgers are kept as evidence", strings.Join(slices.Sorted(maps.Keys(e.loadDirs)), ", "))
		return
	}
	_ = host.Each(ctx, e.clients, func(ctx context.Context, name string) error {
		cctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		_, err := host.Ask(cctx, e.Hosts.Session(name), workload.OpLoadClean, workload.StopParams{RunID: runID})
		return err
	})
	for d, m := range e.loadDirs {
		where := []string{m.Client}
		if onServer, _, _ := kind.For(m).LoadDir(m, fault.LoadDir); onServer {
			var err error
			if where, err = e.Location(ctx, m.Service); err != nil || len(where) != 1 {
				continue
			}
		}
		for _, cmd := range [][]string{{"rm", "-rf", "--one-file-system", "--", path.Join(d, runID)}, {"rmdir", "--ignore-fail-on-non-empty", d}} {
			_ = e.Do(ctx, where[0], resource.Action{Title: "remove the load's directory", Cmd: cmd})
		}
	}
}

package drill

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/host/agent"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/prove/kind"
	"github.com/mortarhpc/mortar/internal/prove/report"
	"github.com/mortarhpc/mortar/internal/prove/stream"
	"github.com/mortarhpc/mortar/internal/prove/testbed"
	"github.com/mortarhpc/mortar/internal/prove/workload"
)

// Unhealthy is the error of a brick with problems before the drill. The drill
// changed nothing.
type Unhealthy struct{ Problems []string }

func (e *Unhealthy) Error() string {
	return "the brick is not healthy, so nothing was broken: " + strings.Join(e.Problems, "; ") + " (mortar status shows more)"
}

// Refused is the error of a drill that is impossible here. The drill changed
// nothing.
type Refused struct{ Why string }

func (e *Refused) Error() string { return e.Why }

// healTime bounds the clean-up after an interrupt or failure.
const healTime = 10 * time.Minute

// engine is one drill under way.
type engine struct {
	env     Env
	drill   Drill
	variant Variant
	opt     Options
	sayMu   sync.Mutex
	beside  beside

	hosts testbed.Hosts

	expect   Expect
	service  *design.Service
	servers  []string
	clients  []string
	resource string // of the service, in Pacemaker
	active   string
	survivor string       // the other server
	group    design.Group // a RAID group of the service
	steps    []Step
	second   *second // nil: the drill is about one service
	// bystanders are the pairs that the drill is not about, each by its first service.
	bystanders []*second

	watch     *watcher
	stopWatch func()
	others    []*other
	load      []*running
	aside     []design.ClientMount          // more mounts, of challengers
	loadDirs  map[string]design.ClientMount // directories on the services' volumes, with the mount of a client
	injected  []Fault                       // faults to mend, in the order of their injection
	healing   time.Time                     // when the mending began
	software  []report.Row
	before    map[Kind]map[string]string // what settings were
	hung      map[string]string          // by fault: the map that it has made hang
	tasks     []task                     // what is left of a change
}

// running is the load on one client.
type running struct {
	clientJob
	mu       sync.Mutex
	progress workload.Progress
	result   workload.Result
	err      error
	done     chan struct{}
	dead     bool  // the client died: nothing more is heard of this load
	offset   int64 // of a dead client's clock, while it lived
}

// Run carries out one drill, saves its run in opt.Dir and returns it. An error
// means that there is no verdict; *Unhealthy and *Refused also mean that nothing
// was changed. Run mends all its faults before it returns, even if ctx ends.
func Run(ctx context.Context, env Env, d Drill, v Variant, opt Options) (*report.Run, error) {
	return runOn(ctx, &env, d, v, opt)
}

// runOn is Run. After a change of the brick env has its new design.
func runOn(ctx context.Context, at *Env, d Drill, v Variant, opt Options) (*report.Run, error) {
	var err error
	env := *at
	if !env.Design.Clustered() {
		if v, err = onOne(d, v); err != nil {
			return nil, err
		}
	}
	e := &engine{env: env, drill: d, variant: v, expect: d.Expected(v), opt: opt.WithDefaults(env.Virtual), loadDirs: map[string]design.ClientMount{}}
	e.watch = newWatcher(func(s string) { e.say("%s", s) }, env.Excused)
	if e.service, err = env.service(); err != nil {
		return nil, err
	}
	e.others = others(env.Design, e.service.Name)
	e.servers = env.Design.PairOf(e.service.Name).Servers
	// Refuse an impossible drill before reaching any host, unless that depends
	// on where the service runs.
	if err := Possible(env, d, v); err != nil {
		return nil, err
	}
	if v.Second || v.ClientDies && kind.Of(env.Design).NamesApart() {
		s, err := opposite(env.Design, e.service)
		if err != nil {
			return nil, &Refused{err.Error()}
		}
		e.second = &second{service: s, servers: env.Design.PairOf(s.Name).Servers, others: others(env.Design, s.Name)}
	}
	for i := range env.Design.Pairs {
		if p := &env.Design.Pairs[i]; !slices.Equal(p.Servers, e.servers) && (e.second == nil || !slices.Equal(p.Servers, e.second.servers)) {
			e.bystanders = append(e.bystanders, &second{service: p.First(), servers: p.Servers, others: others(env.Design, p.First().Name)})
		}
	}
	for _, m := range env.Design.Mounts {
		if !slices.Contains(e.clients, m.Client) {
			e.clients = append(e.clients, m.Client)
		}
	}
	defer e.hosts.Close()
	defer func() { at.Design = e.env.Design }()
	return e.run(ctx)
}

func (e *engine) say(format string, args ...any) {
	if e.env.Progress == nil {
		return
	}
	e.sayMu.Lock()
	defer e.sayMu.Unlock()
	e.env.Progress(fmt.Sprintf(format, args...))
}

// announce says what the drill found.
func (e *engine) announce() {
	if e.say("healthy: service %s runs on %s", e.service.Name, e.active); e.survivor != "" {
		e.say("its partner is %s", e.survivor)
	}
	for _, o := range e.others {
		e.say("service %s runs on %s, under load as well", o.service.Name, o.on)
	}
	if s := e.second; s != nil {
		e.say("service %s runs on %s; its partner is %s", s.service.Name, s.active, s.survivor)
	}
	if e.drill.Lasting != "" {
		e.say("this stays after the drill: %s", e.drill.Lasting)
	}
}

// loads returns the load of each client, as the variant wants it. An error is a refusal.
func (e *engine) loads(runID string) ([]clientJob, error) {
	jobs, err := jobs(e.env.Design, e.service.Name, runID, e.opt.verifyDir, e.opt.Rate)
	if err == nil && e.variant.ClientDies {
		err = dies(jobs)
	}
	if err != nil {
		return nil, err
	}
	for i := range jobs {
		if e.variant.Rewrite {
			jobs[i].addRewriters()
		}
		for k := range jobs[i].job.Writers {
			if w := &jobs[i].job.Writers[k]; e.variant.Append && w.Mode == workload.Fsync {
				w.Pattern, w.FileBytes = workload.Append, 0
			}
		}
	}
	return jobs, nil
}

// followAll watches every server until ctx ends.
func (e *engine) followAll(ctx context.Context, watching *sync.WaitGroup) {
	service, volumes := e.service.Name, volumesOf(e.service, e.others) // a change replaces e.service
	for _, s := range e.servers {
		watching.Go(func() { e.follow(ctx, s, service, volumes) })
	}
	for _, x := range e.elsewhere() {
		service, volumes := x.service.Name, volumesOf(x.service, x.others)
		for _, s := range x.servers {
			watching.Go(func() { e.follow(ctx, s, service, volumes) })
		}
	}
}

// locate writes down where each service is mounted after the load.
func (e *engine) locate(ctx context.Context, ev *evidence) {
	ev.location, ev.locationErr = e.located(ctx, e.service.Name)
	for _, o := range e.everyOther() {
		o.location, _ = e.located(ctx, o.service.Name) // no location fails the check of where it may be
	}
	for _, x := range e.elsewhere() {
		of := x.evidence(ev)
		of.location, of.locationErr = e.located(ctx, x.service.Name)
		if x == e.second {
			ev.second = of
			continue
		}
		of.expect = e.expect.elsewhere(e.steps)
		ev.bystanders = append(ev.bystanders, of)
	}
	ev.moved = slices.Equal(ev.location, []string{e.survivor})
}

func (e *engine) run(ctx context.Context) (_ *report.Run, err error) {
	began := time.Now()
	e.say("reaching %s", strings.Join(append(e.env.Design.Servers(), e.clients...), ", "))
	if err := e.connect(ctx); err != nil {
		return nil, err
	}
	if err := e.preflight(ctx); err != nil {
		return nil, err
	}
	if err := e.place(ctx); err != nil {
		return nil, err
	}
	e.announce()
	runID := fmt.Sprintf("%s-%s-%s", e.drill.Name, began.UTC().Format("20060102T150405"), uuid.NewString()[:8])
	jobs, err := e.loads(runID)
	if err != nil {
		return nil, &Refused{err.Error()}
	}
	// From here on there are changes to undo.
	var victim string
	if e.variant.ClientDies {
		victim = jobs[0].client
	}
	ev := evidence{dead: victim, deadAddress: e.env.Design.PublicOf(victim), evicts: kind.Of(e.env.Design).Evicts(), drill: e.drill, expect: e.expect, active: e.active, survivor: e.survivor, resource: e.resource, nodes: e.servers, service: e.service.Name, others: e.others,
		byCommand: slices.ContainsFunc(e.steps, func(s Step) bool { return s.Fault.Kind == Move })}
	cleanup := func() (context.Context, context.CancelFunc) {
		return context.WithTimeout(context.WithoutCancel(ctx), healTime)
	}
	watchCtx, stopWatch := context.WithCancel(context.WithoutCancel(ctx))
	var watching sync.WaitGroup
	e.stopWatch = sync.OnceFunc(func() { stopWatch(); watching.Wait() })
	defer e.stopWatch()
	e.followAll(watchCtx, &watching)

	err = e.breakIt(ctx, jobs, &ev)
	results := e.stopLoad(cleanup)
	ev.loads, ev.loadErr = results, e.loadErrors()
	if err == nil {
		e.locate(ctx, &ev)
	}
	if len(e.injected) > 0 {
		hctx, cancel := cleanup()
		if ctx.Err() != nil {
			e.say("interrupted: healing first, please wait")
		}
		ev.healthErr = e.heal(hctx)
		cancel()
		if ev.healthErr == nil {
			ev.healthErr = e.healed(ctx)
		}
	}
	if err == nil {
		err = ctx.Err()
	}
	if err == nil {
		e.say("reading back every acknowledged byte from another mount, past every cache")
		ev.verify, ev.perClient, ev.verifyErr = e.verify(ctx, results, ev.fault)
		if e.expect.Disks && ev.healthErr == nil {
			ev.parity = e.view().storage().parity(ctx, e)
		}
		if err = ctx.Err(); err == nil {
			e.software = e.versions(ctx)
		}
	}
	lost := ev.verify.LostBytes > 0 || ev.verify.BadBytes > 0
	unread := err == nil && (len(ev.loadErr) > 0 || ev.verifyErr != nil)
	cctx, cancel := cleanup()
	e.clean(cctx, runID, lost || unread)
	cancel()
	if err == nil {
		e.lookOnce(ctx)
	}
	e.stopWatch()
	if err != nil {
		if ev.healthErr != nil {
			err = fmt.Errorf("%w; and the brick is not healthy yet: %w", err, ev.healthErr)
		}
		return nil, err
	}
	var looks map[string]map[string][]look
	ev.events, looks = e.watch.snapshot()
	ev.looks = looks[e.service.MountPoints()[0]]
	for _, o := range e.everyOther() {
		o.looks = looks[o.service.MountPoints()[0]]
		for _, l := range of(results, o.service.Name) {
			o.stall = max(o.stall, longestStall(l, e.watch.fault, true))
		}
	}
	ev.fault = e.watch.fault
	for _, of := range ev.elsewhere() {
		of.looks = looks[of.mounted]
		of.events = ofHosts(ev.events, of.nodes)
	}

	r := e.report(ev, runID, began)
	if err := r.Save(); err != nil {
		return r, err
	}
	return r, nil
}

// lookOnce waits until each server's mounts have been looked at once more: one that was away
// is connected again by now, or the check of the mounts fails.
func (e *engine) lookOnce(ctx context.Context) {
	since, servers := time.Now().UnixNano(), slices.Clone(e.servers)
	for _, x := range e.elsewhere() {
		servers = append(servers, x.servers...)
	}
	_ = host.Wait{Limit: 2 * dialTime, Poll: 100 * time.Millisecond}.Until(ctx, func(context.Context) (string, error) {
		return strings.Join(e.watch.unseen(servers, since), ", "), nil
	})
}

// connect connects to every host and measures its clock.
func (e *engine) connect(ctx context.Context) error {
	// The load needs every server of a file system, not only those of the pair.
	return host.Each(ctx, append(e.env.Design.Servers(), e.clients...), func(ctx context.Context, name string) error {
		_, err := e.hosts.Connect(ctx, e.env.Dial, name)
		return err
	})
}

// place moves the service to the server on which the drill begins, and finds
// the RAID group and the steps of the drill.
func (e *engine) place(ctx context.Context) error {
	if e.variant.Away && e.active == e.service.Preferred {
		e.say("moving service %s to %s first", e.service.Name, e.survivor)
		if err := e.env.Operator.Move(ctx, e.service.Name, e.survivor); err != nil {
			return fmt.Errorf("moving service %s to %s: %w", e.service.Name, e.survivor, err)
		}
		e.active, e.survivor = e.survivor, e.active
	}
	s := Scene{Design: e.env.Design, Service: e.service, Active: e.active, Passive: e.survivor}
	if e.second != nil {
		s.Second = e.second.active
	}
	if e.expect.Disks {
		if err := e.whole(ctx, "the arrays", e.opt.Rejoin); err != nil {
			return &Unhealthy{[]string{err.Error()}}
		}
		var err error
		if s.Group, s.Members, err = s.storage().group(ctx, e); err != nil {
			return err
		}
		e.group = s.Group
	}
	steps, err := e.variant.Steps(s)
	if err != nil {
		return &Refused{fmt.Sprintf("drill %s --how %s cannot be done with this brick: %v", e.drill.Name, e.variant.How, err)}
	}
	e.steps = steps
	for _, st := range steps {
		if ready := kinds[st.Fault.Kind].ready; ready != nil {
			if err := ready(e, ctx, st.Fault); err != nil {
				return err
			}
		}
	}
	if err := e.possible(steps); err != nil {
		return err
	}
	return e.unsigned(ctx, steps)
}

// unsigned refuses a brick that shows the sign of a fault before the fault: the drill
// would pass even if its fault never happened. A busy server may leave one question
// unanswered, so a sign has to be there twice.
func (e *engine) unsigned(ctx context.Context, steps []Step) error {
	for _, s := range steps {
		if s.Mend || s.Until == nil || !s.Until.Sign {
			continue
		}
		there, detail := s.Until.Look(ctx, e.view())
		if there {
			if err := e.sleep(ctx, 2*time.Second); err != nil {
				return err
			}
			there, detail = s.Until.Look(ctx, e.view())
		}
		if there {
			return &Unhealthy{[]string{fmt.Sprintf("%s already, and drill %s could not tell that from its own fault", detail, e.drill.Name)}}
		}
	}
	return nil
}

// Possible returns why a drill is impossible with a brick. It reaches no host,
// so nil does not mean that the drill is possible in the brick's present state.
func Possible(env Env, d Drill, v Variant) error {
	var err error
	if !env.Design.Clustered() {
		if v, err = onOne(d, v); err != nil {
			return err
		}
	}
	e := &engine{env: env, drill: d, variant: v}
	s, err := planned(env)
	if err != nil {
		return err
	}
	steps, err := v.Steps(s)
	if err != nil {
		return &Refused{fmt.Sprintf("drill %s --how %s cannot be done with this brick: %v", d.Name, v.How, err)}
	}
	return e.possible(steps)
}

// planned is the scene by the design alone.
func planned(env Env) (s Scene, err error) {
	s.Design = env.Design
	if s.Service, err = env.service(); err != nil {
		return s, err
	}
	pair := env.Design.PairOf(s.Service.Name)
	s.Active = cmp.Or(s.Service.Preferred, pair.Servers[0])
	s.Passive = pair.Other(s.Active)
	if o, err := opposite(env.Design, s.Service); err == nil {
		s.Second = o.Preferred
	}
	if all := env.Design.GroupsIn(&s.Service.Storage); len(all) > 0 {
		s.Group = all[0]
		for _, m := range s.Group.Members {
			s.Members = append(s.Members, m.Serial)
		}
	}
	return s, nil
}

func (e *engine) possible(steps []Step) error {
	for _, s := range steps {
		if s.Fault.Kind == "" {
			continue
		}
		if err := e.injector(s.Fault).Can(s.Fault); err != nil {
			return &Refused{fmt.Sprintf("drill %s --how %s cannot be done here: %v", e.drill.Name, e.variant.How, err)}
		}
	}
	return nil
}

// preflight finds the active server and refuses a brick that is not healthy.
func (e *engine) preflight(ctx context.Context) error {
	mounted := map[string]string{}
	resource, active, problems := e.find(ctx, e.servers, e.service, e.others, mounted)
	if active != "" {
		e.resource, e.active, e.survivor = resource, active, partner(e.servers, active)
	}
	for _, s := range e.elsewhere() {
		resource, active, more := e.find(ctx, s.servers, s.service, s.others, mounted)
		problems = append(problems, more...)
		if active != "" {
			s.resource, s.active, s.survivor = resource, active, partner(s.servers, active)
		}
	}
	for at, server := range mounted {
		if server == "" {
			continue // already among the problems
		}
		ms, err := testbed.Mounts(ctx, e.hosts.Session(server))
		if err != nil {
			return fmt.Errorf("%s: %w", server, err)
		}
		if _, ok := linux.MountAt(ms, at); !ok {
			problems = append(problems, fmt.Sprintf("%s is not mounted on %s", at, server))
		}
	}
	found, failed := host.All(ctx, e.clients, func(ctx context.Context, name string) ([]linux.Mount, error) {
		return testbed.Mounts(ctx, e.hosts.Session(name))
	})
	if err := failed.Join(); err != nil {
		return err
	}
	for name, ms := range found {
		for _, want := range e.env.Design.Mounts {
			if want.Client != name {
				continue
			}
			if m, ok := linux.MountAt(ms, want.Path); !ok || !kind.For(want).Mounted(m.Type) || m.Source != want.Source {
				problems = append(problems, fmt.Sprintf("%s is not mounted on %s of client %s (mortar apply mounts it)", want.Source, want.Path, name))
			}
		}
	}
	if len(e.clients) == 0 {
		problems = append(problems, "no client mounts the service: a drill needs load; give the spec a client (clients:)")
	}
	if len(problems) > 0 {
		slices.Sort(problems)
		return &Unhealthy{problems}
	}
	return nil
}

// find asks a pair where its services run. It returns the resource of service and the
// server that it runs on ("" if that is a problem), sets where others run, adds the mount
// points of all of them to mounted, and returns what keeps the pair from being healthy.
func (e *engine) find(ctx context.Context, servers []string, service *design.Service, others []*other, mounted map[string]string) (resource, active string, problems []string) {
	c, err := e.cluster(ctx, servers)
	if err != nil {
		return "", "", []string{err.Error()}
	}
	problems = c.problems(servers)
	r, err := c.service(service.Name)
	if err != nil {
		problems = append(problems, err.Error())
	} else if len(r.Nodes) == 1 && slices.Contains(servers, r.Node()) {
		resource, active = r.ID, r.Node()
	}
	mounted[service.MountPoints()[0]] = active
	for _, o := range others {
		if r, err := c.service(o.service.Name); err != nil {
			problems = append(problems, err.Error())
		} else if len(r.Nodes) == 1 {
			o.on = r.Node()
		}
		mounted[o.service.MountPoints()[0]] = o.on
	}
	return resource, active, problems
}

// partner is the other server of a pair; "" if there is none.
func partner(servers []string, server string) string {
	for _, s := range servers {
		if s != server {
			return s
		}
	}
	return ""
}

// cluster returns the cluster's state as seen by the first server of from that
// answers.
func (e *engine) cluster(ctx context.Context, from []string) (c cluster, err error) {
	if !e.env.Design.Clustered() {
		return e.single(ctx)
	}
	err = errors.New("no server to ask")
	for _, s := range from {
		h := e.hosts.Session(s)
		if h == nil {
			continue
		}
		qctx, cancel := context.WithTimeout(ctx, 30*time.Second)
		var out resource.Output
		out, err = h.Query(qctx, crmMonArgv...)
		cancel()
		if err == nil && out.Code != 0 {
			err = fmt.Errorf("crm_mon: exit code %d: %s", out.Code, strings.TrimSpace(out.Stderr))
		}
		if err == nil {
			c, err = parseCrmMon(out.Stdout)
		}
		if err == nil {
			return c, nil
		}
		err = fmt.Errorf("%s: %w", s, err)
		if ctx.Err() != nil {
			return c, err
		}
	}
	return c, err
}

// location gives the servers on which a service runs.
func (e *engine) location(ctx context.Context, service string) ([]string, error) {
	pair := e.env.Design.PairOf(service)
	if pair == nil {
		return nil, fmt.Errorf("there is no service %q", service)
	}
	c, err := e.cluster(ctx, e.inOrder(pair.Servers))
	if err != nil {
		return nil, err
	}
	r, err := c.service(service)
	return r.NodeNames(), err
}

// located is location, asked again while no server answers, or the service seems to run
// on none: while a server joins the cluster, Pacemaker forgets for a moment what runs.
//
// Source: Pacemaker, daemons/controld/controld_join_dc.c
func (e *engine) located(ctx context.Context, service string) (nodes []string, err error) {
	err = untilSeen(ctx, func() (err error) {
		if nodes, err = e.location(ctx, service); err == nil && len(nodes) == 0 {
			err = errors.New("it runs on no server")
		}
		return err
	})
	return nodes, err
}

// inOrder returns the servers of a pair with those first that have no fault.
func (e *engine) inOrder(servers []string) []string {
	faulty := func(s string) int {
		if s == e.active || e.second != nil && s == e.second.active {
			return 1
		}
		return 0
	}
	return slices.SortedStableFunc(slices.Values(servers), func(a, b string) int { return cmp.Compare(faulty(a), faulty(b)) })
}

// do runs an action on a host; the error has the output of its command.
func (e *engine) do(ctx context.Context, name string, a resource.Action) error {
	h := e.hosts.Session(name)
	if h == nil {
		return fmt.Errorf("%s is not reached", name)
	}
	_, err := h.Run(ctx, a)
	var failed *agent.Error
	if errors.As(err, &failed) && failed.Stderr != "" {
		return fmt.Errorf("%w: %s", err, strings.Join(strings.Fields(failed.Stderr), " "))
	}
	return err
}

// breakIt starts the load, performs the drill's steps, and waits until every
// worker goes on.
func (e *engine) breakIt(ctx context.Context, jobs []clientJob, ev *evidence) error {
	for _, m := range e.env.Design.Mounts {
		onServer, dir, create := kind.For(m).LoadDir(m, loadDir)
		if _, made := e.loadDirs[dir]; made {
			continue
		}
		e.loadDirs[dir] = m
		on := m.Client
		if onServer {
			on = e.where(m.Service)
		}
		for _, a := range append([]resource.Action{create}, kind.For(m).Spread(dir)...) {
			if err := e.do(ctx, on, a); err != nil {
				return fmt.Errorf("%s: %w", on, err)
			}
		}
	}

	workers := 0
	for _, j := range jobs {
		for _, m := range j.aside {
			if err := e.mountAside(ctx, m); err != nil {
				return fmt.Errorf("%s: %w", m.Client, err)
			}
		}
		workers += j.job.Workers()
		e.startLoad(ctx, j)
	}
	e.say("load starts: %d workers on %s, files and locks, every block with a ledger", workers, strings.Join(e.clients, ", "))
	if err := e.waitWorkers(ctx, 2*time.Minute, func(p workload.WorkerProgress, _ int64) bool { return p.Ops > 0 }); err != nil {
		return fmt.Errorf("load did not get going: %w", err)
	}
	e.say("steady load for %s", report.Seconds(e.opt.Steady.Seconds()))
	if err := e.pause(ctx, e.opt.Steady); err != nil {
		return err
	}

	if err := e.perform(ctx, ev); err != nil {
		return err
	}
	err := e.waitRecovered(ctx, ev)
	if err == nil {
		err = e.takenOver(ctx, ev)
	}
	ev.waited = float64(time.Now().UnixNano()-ev.fault) / 1e9
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		e.say("not every worker went on: %v", err)
	default:
		ev.recovered = true
		e.say("%+.2f s  every worker on every client goes on; %s more of load", ev.waited, report.Seconds(e.opt.After.Seconds()))
	}
	// Record what `mortar status` shows an administrator now, unless a step has: status takes
	// as long as the load that follows, or longer.
	if len(ev.status) == 0 {
		var looking sync.WaitGroup
		looking.Go(func() { ev.status = e.view().status(ctx) })
		defer looking.Wait()
	}
	err = nil // the verdict reports it; the drill itself goes on
	if ev.recovered {
		recovered := time.Now().UnixNano()
		if err = e.pause(ctx, e.opt.After); ctx.Err() == nil {
			err = nil // so does a load that ends too early
			ev.ebbed = e.ebbed(ctx, recovered)
		}
	}
	return err
}

// ebbLimit bounds the time until each worker has completed an operation of the load after
// the recovery.
const ebbLimit = 30 * time.Second

// ebbed names the workers that complete nothing more after a time; "": there is none. A
// client can go on once after a takeover, and hang then.
func (e *engine) ebbed(ctx context.Context, after int64) string {
	err := e.waitWorkers(ctx, ebbLimit, func(p workload.WorkerProgress, offset int64) bool { return p.LastOpNs-offset >= after })
	if err == nil || ctx.Err() != nil {
		return ""
	}
	return err.Error()
}

// perform carries out the steps of the drill, one after the other.
func (e *engine) perform(ctx context.Context, ev *evidence) (err error) {
	defer func() { err = errors.Join(err, e.beside.wait()) }()
	for _, s := range e.steps {
		if s.At > 0 {
			if err := e.sleep(ctx, time.Until(time.Unix(0, ev.fault).Add(s.At))); err != nil {
				return err
			}
		}
		if s.Fault.Kind != "" {
			if err := e.act(ctx, s, ev); err != nil {
				return err
			}
		}
		if s.Keep {
			if err := e.mark(ctx); err != nil {
				return err
			}
		}
		if s.Wait > 0 {
			if err := e.sleep(ctx, s.Wait); err != nil {
				return err
			}
		}
		if s.Until != nil {
			if err := e.await(ctx, s.Until, ev); err != nil {
				return err
			}
		}
		if s.Look {
			if lines := e.view().status(ctx); len(lines) > 0 {
				ev.status = lines
			}
		}
	}
	ev.done = time.Now().UnixNano()
	return nil
}

// keeps says whether the writers leave what they have written so far as it is when a step
// begins: before each fault, but not each time that it is injected again. A setting of the
// kernel harms no data.
func (e *engine) keeps(s Step) bool {
	return settings[s.Fault.Kind] == nil && !s.Mend &&
		!slices.ContainsFunc(e.steps, func(s Step) bool { return s.Keep }) &&
		!slices.ContainsFunc(e.injected, func(f Fault) bool { return f.String() == s.Fault.String() })
}

// act injects or mends the fault of a step.
func (e *engine) act(ctx context.Context, s Step, ev *evidence) error {
	first := !s.Prepare && ev.fault == 0
	if e.keeps(s) {
		if err := e.markAt(ctx, first); err != nil {
			return err
		}
	}
	e.say("%s now", describe(s))
	at := time.Now().UnixNano()
	if first {
		e.watch.setFault(at)
		ev.fault = at
	}
	if s.Fault.Kind == ClientDown && !s.Mend {
		e.bury(s.Fault.On)
	}
	if !s.Mend {
		// heal mends the fault even if Inject fails.
		e.injected = append(e.injected, s.Fault)
		e.watch.add(report.Event{NS: at, Host: s.Fault.On, Source: "drill", Kind: report.EventFault, Text: describe(s)})
	}
	if s.Beside {
		e.beside.run(s.Fault, func() error { return e.carryOut(ctx, s, at) })
		return nil
	}
	if err := e.carryOut(ctx, s, at); err != nil {
		return err
	}
	if s.Fault.Kind == ConfirmOff {
		ev.confirmed = at
	}
	if x := e.second; x != nil && s.Fault.On == x.active && x.fault == 0 {
		x.fault = at
	}
	return nil
}

// carryOut injects or mends the fault of a step that began at a time.
func (e *engine) carryOut(ctx context.Context, s Step, at int64) (err error) {
	in := e.injector(s.Fault)
	if e.expect.Wakes && s.Fault.Kind == Freeze {
		e.env.Excused.Set(s.Fault.On, !s.Mend)
	}
	if s.Mend {
		err = in.Heal(ctx, s.Fault)
	} else {
		err = in.Inject(ctx, s.Fault)
	}
	if back := kinds[s.Fault.Kind].back; err == nil && s.Back && back != nil {
		e.beside.run(s.Fault, func() error {
			if err := back(e, ctx, s.Fault); err != nil && ctx.Err() == nil {
				// heal gives it back
				e.watch.add(report.Event{NS: time.Now().UnixNano(), Source: "drill", Kind: report.EventNote, Text: fmt.Sprintf("not given back yet after %s: %v", describe(s), err)})
			}
			return nil
		})
	}
	if err != nil && s.Try && ctx.Err() == nil {
		undone := fmt.Sprintf("%s: %v", describe(s), err)
		e.say("not done: %s", undone)
		e.watch.add(report.Event{NS: time.Now().UnixNano(), Host: s.Fault.On, Source: "drill", Kind: report.EventNote, Text: "not done: " + undone})
		if !s.Mend {
			e.beside.undone(undone)
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w", describe(s), err)
	}
	if s.Mend {
		e.watch.add(report.Event{NS: at, Host: s.Fault.On, Source: "drill", Kind: report.EventMended, Text: describe(s)})
	}
	return nil
}

// await waits for a condition.
func (e *engine) await(ctx context.Context, s *Condition, ev *evidence) error {
	limit := time.Now().Add(s.Limit)
	for {
		ok, detail := s.Look(ctx, e.view())
		if err := ctx.Err(); err != nil {
			return err
		}
		if ok || time.Now().After(limit) {
			at := ""
			if ev.fault != 0 {
				at = fmt.Sprintf("%+.2f s  ", float64(time.Now().UnixNano()-ev.fault)/1e9)
			}
			if ok {
				e.say("%s%s: %s", at, s.What, detail)
			} else {
				e.say("%snot seen within %s: %s; %s", at, report.Seconds(s.Limit.Seconds()), s.What, detail)
			}
			ev.conditions = append(ev.conditions, report.Check{Name: s.What, OK: ok, Detail: detail})
			return nil
		}
		if err := e.sleep(ctx, time.Second); err != nil {
			return err
		}
	}
}

func (e *engine) sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// pause waits, and fails at once if the load on a client ends.
func (e *engine) pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-t.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
			if errs := e.loadErrors(); len(errs) > 0 {
				return errors.New(strings.Join(errs, "; "))
			}
		}
	}
}

// startLoad starts the load on one client; it ends with load.stop.
func (e *engine) startLoad(ctx context.Context, j clientJob) {
	r := &running{clientJob: j, done: make(chan struct{})}
	e.load = append(e.load, r)
	h := e.hosts.Session(j.client)
	go func() {
		defer close(r.done)
		// Not the caller's context: an interrupt must stop the load in
		// order, not tear it down.
		res, err := host.Watch(context.WithoutCancel(ctx), h, workload.OpLoad, j.job, func(p workload.Progress) {
			r.mu.Lock()
			r.progress = p
			r.mu.Unlock()
			select {
			case e.watch.wake <- struct{}{}:
			default:
			}
		})
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.err = err; res != nil {
			r.result = *res
		}
	}()
}

// markTime bounds a mark at a fault after the first one: a client may be cut off by then.
const markTime = 10 * time.Second

// markAt marks at a fault. Once a fault has been injected the drill goes on without a mark;
// the judge finds a load that has failed.
func (e *engine) markAt(ctx context.Context, first bool) error {
	if first {
		return e.mark(ctx)
	}
	once, cancel := context.WithTimeout(ctx, markTime)
	defer cancel()
	if err := e.mark(once); err != nil && ctx.Err() == nil {
		what := fmt.Sprintf("data from before this fault may be overwritten: %v", err)
		e.say("%s", what)
		e.watch.add(report.Event{NS: time.Now().UnixNano(), Source: "drill", Kind: report.EventNote, Text: what})
	}
	return ctx.Err()
}

// mark tells the writers of every client to leave the data written so far as it
// is.
func (e *engine) mark(ctx context.Context) error {
	errs := make([]error, len(e.load))
	var wg sync.WaitGroup
	for i, r := range e.load {
		r.mu.Lock()
		dead := r.dead
		r.mu.Unlock()
		if dead {
			continue
		}
		wg.Go(func() {
			if _, err := host.Ask(ctx, e.hosts.Session(r.client), workload.OpLoadMark, workload.StopParams{RunID: r.job.RunID}); err != nil {
				errs[i] = fmt.Errorf("%s: %w", r.client, err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// loadErrors describes the errors of clients whose load failed.
func (e *engine) loadErrors() []string {
	var out []string
	for _, r := range e.load {
		r.mu.Lock()
		if r.err != nil && !r.dead {
			out = append(out, fmt.Sprintf("load on %s: %v", r.client, r.err))
		}
		r.mu.Unlock()
	}
	return out
}

// waitWorkers waits until ok holds for every worker of every client; offset is
// how far the client's clock is ahead, in ns.
func (e *engine) waitWorkers(ctx context.Context, limit time.Duration, ok func(p workload.WorkerProgress, offset int64) bool) error {
	w := host.Wait{Limit: limit, Pause: func(ctx context.Context) {
		select {
		case <-ctx.Done():
		case <-time.After(200 * time.Millisecond):
		case <-e.watch.wake:
		}
	}}
	return w.Until(ctx, func(context.Context) (string, error) {
		waiting, err := e.workersLeft(ok)
		if errs := e.loadErrors(); err == nil && len(waiting) > 0 && len(errs) > 0 {
			err = errors.New(strings.Join(errs, "; "))
		}
		return strings.Join(waiting, ", "), err
	})
}

// workersLeft names the workers for which ok does not hold.
func (e *engine) workersLeft(ok func(p workload.WorkerProgress, offset int64) bool) (waiting []string, err error) {
	for _, r := range e.load {
		r.mu.Lock()
		if r.dead {
			r.mu.Unlock()
			continue
		}
		want := r.job.Workers()
		if len(r.progress.Workers) < want {
			waiting = append(waiting, r.client+" has not reported")
		}
		for _, p := range r.progress.Workers {
			if p.Failed != "" {
				err = cmp.Or(err, fmt.Errorf("%s %s gave up: %s", r.client, p.Worker, p.Failed))
			}
			if !ok(p, e.hosts.Clock(r.client).Offset) {
				w := r.client + " " + p.Worker + " does not go on"
				if p.LastError != "" {
					w += " (" + p.LastError + ")"
				}
				waiting = append(waiting, w)
			}
		}
		r.mu.Unlock()
	}
	return waiting, err
}

// waitRecovered waits until every worker has completed an operation that the
// brick served after the fault. If the service must move, the operation must
// come after its start on the other server.
func (e *engine) waitRecovered(ctx context.Context, ev *evidence) error {
	within := max(e.opt.Recover, e.expect.Within)
	limit := time.Now().Add(within)
	// A worker goes on if it completes an operation after the last step that was
	// not under way at the moment of the fault.
	after := max(ev.fault+(3*time.Second).Nanoseconds(), ev.done)
	if e.expect.Where == Moves {
		err := host.Wait{Limit: within, Poll: 200 * time.Millisecond}.Until(ctx, func(context.Context) (string, error) {
			at, left := e.startedOn(e.service.Name, e.resource, e.survivor, ev.fault)
			if s := e.second; left == "" && s != nil {
				var second int64
				second, left = e.startedOn(s.service.Name, s.resource, s.survivor, s.fault)
				at = max(at, second)
			}
			// The load may have gone on during the last step.
			after = at
			return left, nil
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
func (e *engine) takenOver(ctx context.Context, ev *evidence) error {
	if !e.env.Design.Clustered() {
		return nil
	}
	var services []string
	for _, s := range e.env.Design.PairOf(e.service.Name).Services {
		services = append(services, s.Name)
	}
	waited := false
	w := host.Wait{Limit: takeoverTime, Poll: time.Second, Seen: func(left string) { e.say("the load goes on, because %s", left) }}
	_ = w.Until(ctx, func(ctx context.Context) (string, error) {
		c, err := e.cluster(ctx, e.inOrder(e.servers))
		if err != nil {
			return err.Error(), nil
		}
		left := c.underWay(services)
		waited = waited || left != ""
		return left, nil
	})
	if !waited || ctx.Err() != nil {
		return ctx.Err()
	}
	ev.done = time.Now().UnixNano()
	return e.waitRecovered(ctx, ev)
}

// startedOn is when a service started on a server after a fault, or what is missing.
func (e *engine) startedOn(service, resource, server string, fault int64) (at int64, missing string) {
	s, ok := e.watch.first(report.EventStarted, fault, func(x report.Event) bool {
		return x.Host == server && aboutResource(x, resource)
	})
	if !ok {
		return 0, fmt.Sprintf("service %s has not started on %s", service, server)
	}
	return s.NS, ""
}

// stopLoad ends the load on all clients and collects the results.
func (e *engine) stopLoad(cleanup func() (context.Context, context.CancelFunc)) []loaded {
	if len(e.load) == 0 {
		return nil
	}
	ctx, cancel := cleanup()
	defer cancel()
	e.say("stopping the load")
	var wg sync.WaitGroup
	for _, r := range e.load {
		if r.buried() {
			continue
		}
		wg.Go(func() {
			params := workload.StopParams{RunID: r.job.RunID}
			_, stop := host.Ask(ctx, e.hosts.Session(r.client), workload.OpLoadStop, params)
			select {
			case <-r.done:
			case <-ctx.Done():
			}
			r.mu.Lock()
			failed := r.err
			r.mu.Unlock()
			if failed == nil && ctx.Err() == nil {
				return
			}
			// The session broke: the result is on the client's disk.
			h, err := e.hosts.Connect(ctx, e.env.Dial, r.client)
			if err == nil {
				_, _ = host.Ask(ctx, h, workload.OpLoadStop, params)
				var res *workload.Result
				if res, err = host.Ask(ctx, h, workload.OpLoadResult, params); err == nil {
					r.mu.Lock()
					r.result = *res
					r.mu.Unlock()
					return
				}
			}
			r.mu.Lock()
			r.err = errors.Join(failed, stop, err)
			r.mu.Unlock()
		})
	}
	wg.Wait()
	var out []loaded
	for _, r := range e.load {
		r.mu.Lock()
		if r.dead {
			out = append(out, r.legacy())
		} else if len(r.result.Workers) > 0 {
			out = append(out, loaded{r.client, e.hosts.Clock(r.client).Offset, r.result, r.mounts})
		}
		r.mu.Unlock()
	}
	return out
}

// heal mends all faults: afterwards both servers are in the cluster and every
// disk is in its array. An interrupt must not stop heal, so ctx is not the user's.
func (e *engine) heal(ctx context.Context) error {
	e.healing = time.Now()
	troubles, err := e.mend(ctx)
	hctx, cancel := hurried(ctx, err)
	err = errors.Join(err, e.rejoin(hctx))
	cancel()
	var done []string
	for _, f := range e.injected {
		back := kinds[f.Kind].back
		if back == nil || slices.Contains(done, f.String()) {
			continue
		}
		done = append(done, f.String())
		hctx, cancel := hurried(ctx, err)
		err = errors.Join(err, back(e, hctx, f)) // still do it for the others
		cancel()
	}
	if err != nil {
		err = errors.Join(append(troubles, err)...)
	}
	return err
}

// hurried bounds what is still tried once something could not be healed.
func hurried(ctx context.Context, failed error) (context.Context, context.CancelFunc) {
	if failed == nil {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, time.Minute)
}

// mend ends all faults, the last one first. What fails is tried again: a command needs a
// cluster that answers, and the servers of a brick without power boot for some minutes.
// troubles are what went wrong first with each fault that took more than one try.
func (e *engine) mend(ctx context.Context) (troubles []error, err error) {
	var left []Fault
	for _, f := range slices.Backward(e.injected) {
		if !slices.ContainsFunc(left, func(g Fault) bool { return g.String() == f.String() }) {
			left = append(left, f)
			e.say("healing: %s", f)
			e.env.Excused.Set(f.On, false)
		}
	}
	first := true
	err = host.Wait{Limit: 2 * bootLimit, Poll: 5 * time.Second}.Until(ctx, func(context.Context) (string, error) {
		var failed []string
		others := len(left) > 1
		left = slices.DeleteFunc(left, func(f Fault) bool {
			once, cancel := ctx, context.CancelFunc(func() {})
			if others { // one that hangs must not hold them up
				once, cancel = context.WithTimeout(ctx, time.Minute)
			}
			defer cancel()
			err := e.injector(f).Heal(once, f)
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
	if e.expect.Disks || e.opt.Thorough {
		limit := e.opt.Rejoin
		if ctx.Err() != nil {
			ctx, limit = context.WithoutCancel(ctx), min(limit, lookTime)
		}
		if err := e.whole(ctx, "the brick", limit); err != nil {
			return err
		}
	}
	at, who := time.Now(), "both servers online"
	if len(e.servers) == 1 {
		who = e.servers[0] + " answers"
	}
	e.watch.add(report.Event{NS: at.UnixNano(), Source: "drill", Kind: report.EventHealed, Text: who + ", everything started"})
	e.say("healthy again after %s", report.Seconds(at.Sub(e.healing).Seconds()))
	return nil
}

// rejoin waits until all servers of the drill are in their clusters and every resource runs.
func (e *engine) rejoin(ctx context.Context) error {
	err := e.rejoinPair(ctx, e.servers)
	for _, x := range e.elsewhere() {
		err = errors.Join(err, e.rejoinPair(ctx, x.servers))
	}
	return err
}

// rejoinPair waits until both servers are in the cluster and every resource runs.
func (e *engine) rejoinPair(ctx context.Context, servers []string) error {
	e.say("waiting until %s are in the cluster and every resource runs", strings.Join(servers, " and "))
	var cleaned time.Time
	asked := map[string]bool{}
	err := host.Wait{Limit: e.opt.Rejoin, Poll: 2 * time.Second}.Until(ctx, func(ctx context.Context) (string, error) {
		c, err := e.cluster(ctx, e.inOrder(servers))
		if err != nil {
			return err.Error(), nil
		}
		problems := c.problems(servers)
		if len(problems) == 0 {
			return "", nil
		}
		away := func(n linux.CRMNode) bool { return !n.Online || n.Pending }
		for _, n := range c.Nodes {
			// On a fenced server an administrator may have to start Pacemaker.
			// Here the drill does so.
			if !n.Online && !asked[n.Name] && e.hosts.Session(n.Name) != nil {
				qctx, cancel := context.WithTimeout(ctx, 15*time.Second)
				asked[n.Name] = e.startCluster(qctx, n.Name)
				cancel()
			}
		}
		if len(c.Failures) > 0 && time.Since(cleaned) > 20*time.Second && !slices.ContainsFunc(c.Nodes, away) {
			cleaned = time.Now()
			for _, s := range e.inOrder(servers) {
				if e.do(ctx, s, resource.Action{Title: "forget failed actions", Cmd: []string{"crm_resource", "--cleanup"}}) == nil {
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
func (e *engine) startCluster(ctx context.Context, name string) bool {
	out, err := e.query(ctx, name, "systemctl", "is-enabled", "pacemaker.service")
	if err != nil {
		return false
	}
	if out.Code == 0 {
		return true
	}
	return e.do(ctx, name, resource.Action{Title: "start the cluster", Cmd: []string{"systemctl", "start", "pacemaker.service"}}) == nil
}

// verify reads all data back on each client, through new mounts, after the
// servers have dropped their caches.
func (e *engine) verify(ctx context.Context, results []loaded, fault int64) (report.Verify, map[string]stream.Report, error) {
	if len(results) == 0 {
		return report.Verify{}, nil, errors.New("no client has a ledger")
	}
	if err := e.dropCaches(ctx); err != nil {
		return report.Verify{}, nil, err
	}
	var names []string
	by := map[string]loaded{}
	for _, l := range results {
		names = append(names, l.client)
		by[l.client] = l
	}
	// An interrupt ends the reading only: nothing else would unmount.
	reports, failed := host.All(context.WithoutCancel(ctx), names, func(_ context.Context, client string) (stream.Report, error) {
		l := by[client]
		h := e.hosts.Session(client)
		var ms []design.ClientMount
		for _, m := range e.env.Design.Mounts {
			if m.Client == client {
				ms = append(ms, m)
			}
		}
		dirs := map[string]string{}
		for i, m := range ms {
			// Read through the other protocol if the client has a mount with it.
			via := m
			for k := 1; k < len(ms); k++ {
				if o := ms[(i+k)%len(ms)]; o.Source == m.Source && o.Version != m.Version {
					via = o
					break
				}
			}
			at := path.Join(e.opt.verifyDir, l.result.RunID, fmt.Sprint(i))
			if err := e.do(ctx, client, resource.Action{Title: "mount point for verification", Cmd: []string{"mkdir", "-p", at}}); err != nil {
				return stream.Report{}, err
			}
			if err := e.mountAt(ctx, via, at); err != nil {
				return stream.Report{}, err
			}
			dirs[path.Join(m.Path, loadDir)] = path.Join(at, loadDir)
			defer e.unmountAt(context.WithoutCancel(ctx), client, at)
		}
		res, err := host.Ask(ctx, h, workload.OpVerify, workload.VerifyParams{Ledger: l.result.Ledger, Dirs: dirs, BeforeNs: fault + l.offset})
		if err != nil {
			return stream.Report{}, err
		}
		return res.Report, nil
	})
	v := verifyReport(reports)
	v.Method = "After the brick was whole again, each client mounted the export anew (a mount of its own cache, the other protocol version where it has both) and read with O_DIRECT every block it has in its ledger. The server had dropped its caches."
	return v, reports, failed.Join()
}

// dropCaches drops the page cache of the serving servers, so that they read from
// their disks.
func (e *engine) dropCaches(ctx context.Context) error {
	for _, s := range e.env.Design.Services() {
		if !slices.ContainsFunc(e.env.Design.Mounts, func(m design.ClientMount) bool { return kind.For(m).Uses(m, s.Name) }) {
			continue
		}
		where, err := e.located(ctx, s.Name)
		if err != nil {
			return fmt.Errorf("service %s: %w", s.Name, err)
		}
		for _, on := range where {
			if err := e.do(ctx, on, resource.Action{Title: "drop caches", Cmd: []string{"sysctl", "--quiet", "--write", "vm.drop_caches=3"}}); err != nil {
				return fmt.Errorf("%s: dropping caches: %w", on, err)
			}
		}
	}
	return nil
}

// mountTime bounds a mount of a whole brick.
const mountTime = 2 * time.Minute

// mountAt mounts an export once more on its client. An interrupt does not cut it short:
// the mount would go on, and nothing would end it.
func (e *engine) mountAt(ctx context.Context, m design.ClientMount, at string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), mountTime)
	defer cancel()
	return e.do(ctx, m.Client, resource.Action{Title: "mount " + m.Source + " once more", Cmd: kind.For(m).ReadBack(m, at)})
}

// mountAside mounts an export once more on its client, with locks of its own.
func (e *engine) mountAside(ctx context.Context, m design.ClientMount) error {
	e.aside = append(e.aside, m)
	return errors.Join(
		e.do(ctx, m.Client, resource.Action{Title: "mount point for challengers", Cmd: []string{"mkdir", "-p", m.Path}}),
		e.mountAt(ctx, m, m.Path))
}

// unmountAside undoes mountAside.
func (e *engine) unmountAside(ctx context.Context) {
	for _, m := range e.aside {
		e.unmountAt(ctx, m.Client, m.Path)
	}
}

// unmountAt undoes mountAt, and says what stays. What still reads or writes there ends
// within asideTime, or keeps the mount.
func (e *engine) unmountAt(ctx context.Context, client, at string) {
	ctx, cancel := context.WithTimeout(ctx, asideTime+mountTime) // a server that does not answer may hold it
	defer cancel()
	do := func(ctx context.Context, cmd ...string) error {
		return e.do(ctx, client, resource.Action{Title: "unmount", Cmd: cmd})
	}
	// A worker that waits for a server ends only when that answers.
	err := host.Wait{Limit: asideTime, Poll: 2 * time.Second}.Until(ctx, func(ctx context.Context) (string, error) {
		err := do(ctx, "umount", at)
		if err == nil || !strings.Contains(err.Error(), "busy") {
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
		e.say("%s: %v", client, err)
	}
}

// asideTime is how long a mount may be in use after the load has ended.
const asideTime = time.Minute

// clean removes the load's files. With keep it leaves them and the ledgers as
// evidence of lost data.
func (e *engine) clean(ctx context.Context, runID string, keep bool) {
	e.unmountAside(ctx)
	if len(e.load) == 0 {
		return
	}
	if keep {
		e.say("the files (%s) and the clients' ledgers are kept as evidence", strings.Join(slices.Sorted(maps.Keys(e.loadDirs)), ", "))
		return
	}
	_ = host.Each(ctx, e.clients, func(ctx context.Context, name string) error {
		cctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		_, err := host.Ask(cctx, e.hosts.Session(name), workload.OpLoadClean, workload.StopParams{RunID: runID})
		return err
	})
	for d, m := range e.loadDirs {
		where := []string{m.Client}
		if onServer, _, _ := kind.For(m).LoadDir(m, loadDir); onServer {
			var err error
			if where, err = e.location(ctx, m.Service); err != nil || len(where) != 1 {
				continue
			}
		}
		_ = e.do(ctx, where[0], resource.Action{Title: "remove the load's directory", Cmd: []string{"rm", "-rf", "--one-file-system", "--", path.Join(d, runID)}})
		_ = e.do(ctx, where[0], resource.Action{Title: "remove the load's directory", Cmd: []string{"rmdir", "--ignore-fail-on-non-empty", d}})
	}
}

// versions returns the versions of the software on the survivor and on the first
// client.
func (e *engine) versions(ctx context.Context) []report.Row {
	return testbed.Versions(ctx, []string{cmp.Or(e.survivor, e.active), e.clients[0]}, e.hosts.Session)
}

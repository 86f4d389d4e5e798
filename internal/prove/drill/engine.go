package drill

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/base/lists"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/host/gather"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/prove/fault"
	"github.com/mortarhpc/mortar/internal/prove/judge"
	"github.com/mortarhpc/mortar/internal/prove/kind"
	"github.com/mortarhpc/mortar/internal/prove/report"
	"github.com/mortarhpc/mortar/internal/prove/testbed"
)

// healTime bounds the clean-up after an interrupt or failure.
const healTime = 10 * time.Minute

// engine is one drill under way.
type engine struct {
	fault.Site
	Options Options
	drill   Drill
	variant Variant
	expect  judge.Expect
	steps   []Step
	beside  beside

	// subjects are the services that the drill judges: the one under test first, and those of a
	// pair one after the other.
	subjects  []*judge.Subject
	clients   []string
	load      loads
	stopWatch func()
	aside     []design.ClientMount          // more mounts, of challengers
	loadDirs  map[string]design.ClientMount // directories on the services' volumes, with the mount of a client
	healing   time.Time                     // when the mending began

	evidence judge.Evidence
	status   []report.StatusLine
	done     int64 // when the last step ended, ns
}

// Run carries out one drill, saves its run in opt.Dir and returns it. An error
// means that there is no verdict; *Unhealthy and *Refused also mean that nothing
// was changed. Run mends all its faults before it returns, even if ctx ends.
func Run(ctx context.Context, env fault.Env, d Drill, v Variant, opt Options) (*report.Run, error) {
	return runOn(ctx, &env, d, v, opt)
}

// runOn is Run. After a change of the brick env has its new design.
func runOn(ctx context.Context, env *fault.Env, d Drill, v Variant, opt Options) (*report.Run, error) {
	// Refuse an impossible drill before reaching any host, unless that depends
	// on where the service runs.
	v, s, err := possible(*env, d, v)
	if err != nil {
		return nil, err
	}
	opt = opt.WithDefaults(env.Virtual)
	e := &engine{Site: fault.Site{Scene: fault.Scene{Design: env.Design, Service: s.Service}, Env: *env, Rejoin: opt.Rejoin, Random: v.Schedule != nil}, Options: opt,
		drill: d, variant: v, expect: d.Expected(v), loadDirs: map[string]design.ClientMount{}}
	e.Watch = fault.NewWatcher(func(s string) { e.Say("%s", s) }, env.Excused)
	e.Taken = func(of func(design.ClientMount) bool) (int, []string) { return e.load.taken(of) }
	if err := e.listSubjects(); err != nil {
		return nil, &fault.Refused{Why: err.Error()}
	}
	e.clients = testbed.Clients(e.Design)
	defer e.Hosts.Close()
	defer func() { env.Design = e.Design }()
	return e.run(ctx)
}

// listSubjects lists the services that the drill judges: all of the brick. One of the other role is
// among those that it is about if the drill has to do with both.
func (e *engine) listSubjects() error {
	leads := []*design.Service{e.Service}
	if e.variant.Second || e.variant.ClientDies && kind.Of(e.Design).Is().NamesApart {
		s, err := opposite(e.Design, e.Service)
		if err != nil {
			return err
		}
		leads = append(leads, s)
	}
	about := len(leads)
	for i := range e.Design.Pairs {
		p := &e.Design.Pairs[i]
		if !slices.ContainsFunc(leads, func(s *design.Service) bool { return slices.Equal(e.Design.PairOf(s.Name).Servers, p.Servers) }) {
			leads = append(leads, p.First())
		}
	}
	for i, s := range leads {
		p := e.Design.PairOf(s.Name)
		add := func(name string) {
			e.subjects = append(e.subjects, &judge.Subject{Service: name, Resource: resource.ServiceID(name), Nodes: p.Servers, Apart: i >= about})
		}
		add(s.Name)
		for _, o := range p.Services {
			if o.Name != s.Name {
				add(o.Name)
			}
		}
	}
	return nil
}

// leads are the services that the drill is about, each on a pair of its own.
func (e *engine) leads() (out []*judge.Subject) {
	for _, p := range judge.Pairs(e.subjects) {
		if !p[0].Apart {
			out = append(out, p[0])
		}
	}
	return out
}

func (e *engine) run(ctx context.Context) (_ *report.Run, err error) {
	began := time.Now()
	e.Say("reaching %s", strings.Join(append(e.Design.Servers(), e.clients...), ", "))
	for _, do := range []func(context.Context) error{e.connect, e.preflight, e.place} {
		if err := do(ctx); err != nil {
			return nil, err
		}
	}
	for _, x := range e.subjects {
		if !x.Apart {
			e.Say("healthy: service %s runs on %s", x.Service, x.Active)
		}
	}
	if e.drill.Lasting != "" {
		e.Say("this stays after the drill: %s", e.drill.Lasting)
	}
	runID := fmt.Sprintf("%s-%s-%s", e.drill.Name, began.UTC().Format("20060102T150405"), uuid.NewString()[:8])
	jobs, err := e.jobs(runID)
	if err != nil {
		return nil, &fault.Refused{Why: err.Error()}
	}
	// From here on there are changes to undo.
	ev := &e.evidence
	ev.Subjects, ev.Evicts = e.subjects, kind.Of(e.Design).Is().Evicts
	if e.variant.ClientDies {
		ev.Dead, ev.DeadAddress = jobs[0].client, e.Design.PublicOf(jobs[0].client)
	}
	cleanup := func() (context.Context, context.CancelFunc) {
		return context.WithTimeout(context.WithoutCancel(ctx), healTime)
	}
	e.followAll(context.WithoutCancel(ctx))
	defer e.stopWatch()

	err = e.breakIt(ctx, jobs)
	cctx, cancel := cleanup()
	ev.Loads = e.stopLoad(cctx)
	cancel()
	ev.LoadErrs = e.load.errors()
	if err == nil {
		for _, x := range e.subjects {
			x.Location, x.LocationErr = e.Located(ctx, x.Service)
		}
	}
	if len(e.Injected) > 0 {
		if ctx.Err() != nil {
			e.Say("interrupted: healing first, please wait")
		}
		cctx, cancel := cleanup()
		ev.HealthErr = e.heal(cctx)
		cancel()
		if ev.HealthErr == nil {
			ev.HealthErr = e.healed(ctx)
		}
	}
	var software []report.Row
	if err = cmp.Or(err, ctx.Err()); err == nil {
		e.Say("reading back every acknowledged byte from another mount, past every cache")
		ev.Verify, ev.PerClient, ev.VerifyErr = e.verify(ctx)
		if e.expect.Disks && ev.HealthErr == nil {
			ev.Conditions = append(ev.Conditions, e.Storage().Parity(ctx, &e.Site)...)
		}
		if err = ctx.Err(); err == nil {
			software = testbed.Versions(ctx, []string{cmp.Or(e.Passive, e.Active), e.clients[0]}, e.Hosts.Session)
		}
	}
	cctx, cancel = cleanup()
	e.clean(cctx, runID, ev.Verify.LostBytes > 0 || ev.Verify.BadBytes > 0 || err == nil && (len(ev.LoadErrs) > 0 || ev.VerifyErr != nil))
	cancel()
	if err == nil {
		e.lookOnce(ctx)
	}
	e.stopWatch()
	if err != nil {
		if ev.HealthErr != nil {
			err = fmt.Errorf("%w; and the brick is not healthy yet: %w", err, ev.HealthErr)
		}
		return nil, err
	}
	var looks map[string]map[string][]judge.Look
	ev.Events, looks = e.Watch.Snapshot()
	for _, x := range e.subjects {
		x.Looks = looks[e.volumes(x)[0]]
	}
	r := e.report(runID, began, software)
	return r, r.Save()
}

// volumes are the mount points of a service.
func (e *engine) volumes(x *judge.Subject) []string { return e.Design.Service(x.Service).MountPoints() }

// connect connects to every host and measures its clock.
func (e *engine) connect(ctx context.Context) error {
	// The load needs every server of a file system, not only those of the pair.
	return host.Each(ctx, append(e.Design.Servers(), e.clients...), func(ctx context.Context, name string) error {
		_, err := e.Hosts.Connect(ctx, e.Env.Dial, name)
		return err
	})
}

// preflight finds the active servers and refuses a brick that is not healthy.
func (e *engine) preflight(ctx context.Context) error {
	var problems []string
	for _, pair := range judge.Pairs(e.subjects) {
		c, err := e.Cluster(ctx, pair[0].Nodes)
		if err != nil {
			problems = append(problems, err.Error())
			continue
		}
		problems = append(problems, fault.ClusterProblems(c, pair[0].Nodes)...)
		for _, x := range pair {
			r := gather.ServiceIn(c, x.Service)
			if r == nil {
				problems = append(problems, "service "+x.Service+" has no resource in Pacemaker (mortar apply makes it)")
			}
			if r == nil || len(r.Nodes) != 1 || !slices.Contains(x.Nodes, r.Node()) {
				continue // c.problems has it
			}
			x.Active = r.Node()
			if i := slices.IndexFunc(x.Nodes, func(n string) bool { return n != x.Active }); i >= 0 {
				x.Passive = x.Nodes[i]
			}
			ms, err := testbed.Mounts(ctx, e.Hosts.Session(x.Active))
			if err != nil {
				return fmt.Errorf("%s: %w", x.Active, err)
			}
			at := e.volumes(x)[0]
			if _, ok := linux.MountAt(ms, at); !ok {
				problems = append(problems, fmt.Sprintf("%s is not mounted on %s", at, x.Active))
			}
		}
	}
	found, failed := host.All(ctx, e.clients, func(ctx context.Context, name string) ([]linux.Mount, error) {
		return testbed.Mounts(ctx, e.Hosts.Session(name))
	})
	if err := failed.Join(); err != nil {
		return err
	}
	for _, want := range e.Design.Mounts {
		if m, ok := linux.MountAt(found[want.Client], want.Path); !ok || !strings.HasPrefix(m.Type, kind.For(want).Is().FSType) || m.Source != want.Source {
			problems = append(problems, fmt.Sprintf("%s is not mounted on %s of client %s (mortar apply mounts it)", want.Source, want.Path, want.Client))
		}
	}
	if len(e.clients) == 0 {
		problems = append(problems, "no client mounts the service: a drill needs load; give the spec a client (clients:)")
	}
	if len(problems) > 0 {
		slices.Sort(problems)
		return &fault.Unhealthy{Problems: problems}
	}
	return nil
}

// place moves the service to the server on which the drill begins, and finds
// the RAID group and the steps of the drill.
func (e *engine) place(ctx context.Context) error {
	x := e.subjects[0]
	if e.variant.Away && x.Active == e.Service.Preferred {
		e.Say("moving service %s to %s first", x.Service, x.Passive)
		if err := e.Env.Operator.Move(ctx, x.Service, x.Passive); err != nil {
			return fmt.Errorf("moving service %s to %s: %w", x.Service, x.Passive, err)
		}
		x.Active, x.Passive = x.Passive, x.Active
	}
	e.Active, e.Passive = x.Active, x.Passive
	if leads := e.leads(); len(leads) > 1 {
		e.Second = leads[1].Active
	}
	if e.expect.Disks {
		if err := e.Whole(ctx, "the arrays", e.Rejoin); err != nil {
			return &fault.Unhealthy{Problems: []string{err.Error()}}
		}
		var err error
		if e.Group, e.Members, err = e.Storage().RAIDGroup(ctx, &e.Site); err != nil {
			return err
		}
	}
	var err error
	if e.steps, err = e.variant.steps(e.drill, e.Scene); err != nil {
		return err
	}
	for _, st := range e.steps {
		f, _ := actOf(st)
		if ready := fault.Kinds[f.Kind].Ready; ready != nil {
			if err := ready(ctx, &e.Site, f); err != nil {
				return err
			}
		}
	}
	if err := checkSteps(&e.Site, e.drill, e.variant, e.steps); err != nil {
		return err
	}
	e.foresee()
	return e.unsigned(ctx)
}

// foresee sets what must happen to each service.
func (e *engine) foresee() {
	has := func(ks ...fault.Kind) bool {
		return slices.ContainsFunc(e.steps, func(s Step) bool { f, _ := actOf(s); return slices.Contains(ks, f.Kind) })
	}
	for _, pair := range judge.Pairs(e.subjects) {
		lead := pair[0]
		if lead.Expect = e.expect; lead.Apart {
			lead.Expect = e.expect.Apart(has(fault.FeedOff, fault.SwitchDown))
		}
		for _, x := range pair[1:] {
			x.Expect = lead.Expect.Beside(x.Active == lead.Active && !has(fault.Move))
		}
	}
}

// unsigned refuses a brick that shows the sign of a fault before the fault: the drill
// would pass even if its fault never happened. A busy server may leave one question
// unanswered, so a sign has to be there twice.
func (e *engine) unsigned(ctx context.Context) error {
	for _, step := range e.steps {
		s, ok := step.(Until)
		if !ok || s.Condition == nil || !s.Sign {
			continue
		}
		there, detail := s.Look(ctx, &e.Site)
		if there {
			if err := e.Sleep(ctx, 2*time.Second); err != nil {
				return err
			}
			there, detail = s.Look(ctx, &e.Site)
		}
		if there {
			return &fault.Unhealthy{Problems: []string{fmt.Sprintf("%s already, and drill %s could not tell that from its own fault", detail, e.drill.Name)}}
		}
	}
	return nil
}

// followAll watches every server until stopWatch.
func (e *engine) followAll(ctx context.Context) {
	ctx, stop := context.WithCancel(ctx)
	var watching sync.WaitGroup
	e.stopWatch = sync.OnceFunc(func() { stop(); watching.Wait() })
	for _, pair := range judge.Pairs(e.subjects) {
		volumes := lists.Map(pair, e.volumes)
		for _, s := range pair[0].Nodes {
			watching.Go(func() { e.Follow(ctx, s, pair[0].Service, volumes) })
		}
	}
}

// lookOnce waits until each server's mounts have been looked at once more: one that was away
// is connected again by now, or the check of the mounts fails.
func (e *engine) lookOnce(ctx context.Context) {
	since := time.Now().UnixNano()
	_ = host.Wait{Limit: 2 * fault.DialTime, Poll: 100 * time.Millisecond}.Until(ctx, func(context.Context) (string, error) {
		return strings.Join(e.Watch.Unseen(e.Design.Servers(), since), ", "), nil
	})
}

// Possible returns why a drill is impossible with a brick. It reaches no host,
// so nil does not mean that the drill is possible in the brick's present state.
func Possible(env fault.Env, d Drill, v Variant) error {
	_, _, err := possible(env, d, v)
	return err
}

// possible is Possible. It returns the variant as the brick has it, and the scene by the design.
func possible(env fault.Env, d Drill, v Variant) (Variant, fault.Scene, error) {
	if !env.Design.Clustered() {
		var err error
		if v, err = onOne(d, v); err != nil {
			return v, fault.Scene{}, err
		}
	}
	s, err := planned(env)
	if err != nil {
		return v, s, err
	}
	steps, err := v.steps(d, s)
	if err != nil {
		return v, s, err
	}
	return v, s, checkSteps(&fault.Site{Scene: s, Env: env}, d, v, steps)
}

// steps returns the steps of a drill, or why there are none.
func (v Variant) steps(d Drill, s fault.Scene) ([]Step, error) {
	steps, err := v.Steps(s)
	if err != nil {
		return nil, &fault.Refused{Why: fmt.Sprintf("drill %s --how %s cannot be done with this brick: %v", d.Name, v.How, err)}
	}
	return steps, nil
}

// checkSteps returns why a step cannot be carried out.
func checkSteps(b *fault.Site, d Drill, v Variant, steps []Step) error {
	for _, s := range steps {
		if f, _ := actOf(s); f.Kind != "" {
			if err := b.Can(f); err != nil {
				return &fault.Refused{Why: fmt.Sprintf("drill %s --how %s cannot be done here: %v", d.Name, v.How, err)}
			}
		}
	}
	return nil
}

// planned is the scene by the design alone.
func planned(env fault.Env) (s fault.Scene, err error) {
	s.Design = env.Design
	if s.Service, err = tested(env); err != nil {
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

// tested returns the service under test: Env.Service, or the design's first.
func tested(env fault.Env) (*design.Service, error) {
	if env.Service == "" {
		return env.Design.Pairs[0].First(), nil
	}
	var names []string
	for _, s := range env.Design.Services() {
		if s.Name == env.Service {
			return s, nil
		}
		names = append(names, s.Name)
	}
	return nil, &fault.Refused{Why: fmt.Sprintf("there is no service %q; there are: %v", env.Service, names)}
}

// opposite returns the first service of the first pair whose role is another one: the
// first OST for an MDS, the MDS for an OST.
func opposite(d *design.Design, s *design.Service) (*design.Service, error) {
	if !kind.Of(d).Is().NamesApart {
		return nil, fault.ErrNoLustre
	}
	role := d.PairOf(s.Name).Role
	for i := range d.Pairs {
		if p := &d.Pairs[i]; p.Role != role {
			return p.First(), nil
		}
	}
	return nil, fmt.Errorf("every pair of the brick has the role %q", role)
}

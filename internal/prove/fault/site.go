package fault

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/host/agent"
	"github.com/mortarhpc/mortar/internal/host/gather"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/prove/report"
	"github.com/mortarhpc/mortar/internal/prove/testbed"
	"github.com/mortarhpc/mortar/internal/run/observe"
	"github.com/mortarhpc/mortar/internal/run/scrub"
)

// Scene is what the steps of a drill work on.
type Scene struct {
	Design  *design.Design
	Service *design.Service
	Active  string // server that the service runs on
	Passive string // the other one
	// Second is the server of the service on another pair, for a drill with
	// Variant.Second.
	Second string
	// Group is a RAID group of the service, Members the serials of its present
	// disks.
	Group   design.Group
	Members []string
}

// Servers are those of the service's pair.
func (s Scene) Servers() []string { return s.Design.PairOf(s.Service.Name).Servers }

// Passes returns why neither server is passive: both serve.
func (s Scene) Passes() error {
	if s.Passive == "" || len(s.Design.PairOf(s.Service.Name).Services) > 1 {
		return errors.New("with two services neither server is passive")
	}
	return nil
}

// Site is the brick under a drill: its hosts, what they show, and what was done to them.
type Site struct {
	Scene
	Env    Env
	Hosts  testbed.Hosts
	Watch  *watcher
	Rejoin time.Duration // time limit for the brick to become whole
	// Random: the faults are drawn, so that one of them may be done already.
	Random bool
	// AppendOnly is the path on the server of a file of the load that is never overwritten; "":
	// there is none.
	AppendOnly string
	// Taken counts the workers of the load that have taken a lock of a dead client on the mounts
	// that of accepts, and names those that have none yet.
	Taken    func(of func(design.ClientMount) bool) (have int, missing []string)
	Injected []Fault // faults to mend, in the order of their injection

	sayMu  sync.Mutex
	before map[Kind]map[string]string // what settings were
	hung   map[string]string          // by fault: the map that it has made hang
	tasks  []task                     // what is left of a change
}

// Say tells the user of an event.
func (b *Site) Say(format string, args ...any) {
	if b.Env.Progress == nil {
		return
	}
	b.sayMu.Lock()
	defer b.sayMu.Unlock()
	b.Env.Progress(fmt.Sprintf(format, args...))
}

// Sleep waits, unless ctx ends.
func (b *Site) Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// askTime bounds a query of a server that may be broken.
const askTime = 40 * time.Second

// asked asks a host over its present session.
func asked[R any](ctx context.Context, b *Site, name string, ask func(*host.Session, context.Context) (R, error)) (R, error) {
	h := b.Hosts.Session(name)
	if h == nil {
		var none R
		return none, fmt.Errorf("%s is not reached", name)
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	return ask(h, ctx)
}

// gathered looks at a server.
func gathered(ctx context.Context, b *Site, server string, r gather.Request) (gather.Host, error) {
	return asked(ctx, b, server, func(s *host.Session, ctx context.Context) (gather.Host, error) { return host.Ask(ctx, s, gather.Op, r) })
}

// Query runs a command that only reads.
func (b *Site) Query(ctx context.Context, name string, argv ...string) (resource.Output, error) {
	return asked(ctx, b, name, func(s *host.Session, ctx context.Context) (resource.Output, error) { return s.Query(ctx, argv...) })
}

// output is what a query prints, without space around it. An exit code other than 0 is an error.
func (b *Site) output(ctx context.Context, name string, argv ...string) (string, error) {
	text, err := asked(ctx, b, name, func(s *host.Session, ctx context.Context) (string, error) { return s.Text(ctx, argv...) })
	if err != nil {
		err = fmt.Errorf("%s: %w", name, err)
	}
	return strings.TrimSpace(text), err
}

// Read reads a file, without space around it.
func (b *Site) Read(ctx context.Context, name, file string) (string, error) {
	s, err := asked(ctx, b, name, func(s *host.Session, ctx context.Context) (string, error) { return s.Read(ctx, file) })
	return strings.TrimSpace(s), err
}

// Do runs an action on a host; the error has the output of its command.
func (b *Site) Do(ctx context.Context, name string, a resource.Action) error {
	h := b.Hosts.Session(name)
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

// Run is Do for a command.
func (b *Site) Run(ctx context.Context, name, title string, cmd ...string) error {
	return b.Do(ctx, name, resource.Action{Title: title, Cmd: cmd})
}

// Cluster returns the cluster's state as seen by the first of servers that answers, those
// without a fault first.
func (b *Site) Cluster(ctx context.Context, servers []string) (_ *linux.CRM, err error) {
	if !b.Design.Clustered() {
		return singleServer(ctx, b)
	}
	err = errors.New("no server to ask")
	for _, s := range b.InOrder(servers) {
		if b.Hosts.Session(s) == nil {
			continue
		}
		var h gather.Host
		if h, err = gathered(ctx, b, s, gather.Request{TimeoutMS: int(askTime.Milliseconds())}.With(gather.ClusterRequest())); err == nil {
			seen := h.Cluster()
			if seen.CRM != nil {
				return seen.CRM, nil
			}
			err = errors.New(seen.Err)
		}
		err = fmt.Errorf("%s: %w", s, err)
		if ctx.Err() != nil {
			break
		}
	}
	return nil, err
}

// Location gives the servers on which a service runs.
func (b *Site) Location(ctx context.Context, service string) ([]string, error) {
	pair := b.Design.PairOf(service)
	if pair == nil {
		return nil, fmt.Errorf("there is no service %q", service)
	}
	c, err := b.Cluster(ctx, pair.Servers)
	if err != nil {
		return nil, err
	}
	r := gather.ServiceIn(c, service)
	if r == nil {
		return nil, fmt.Errorf("no resource of service %s in Pacemaker (mortar apply makes it)", service)
	}
	return r.NodeNames(), nil
}

// server is the one server on which a service runs.
func (b *Site) server(ctx context.Context, service string) (string, error) {
	where, err := b.Location(ctx, service)
	if err == nil && len(where) != 1 {
		err = fmt.Errorf("service %s is on %q", service, strings.Join(where, ", "))
	}
	if err != nil {
		return "", err
	}
	return where[0], nil
}

// Located is Location, asked again while no server answers, or the service seems to run
// on none: while a server joins the cluster, Pacemaker forgets for a moment what runs.
//
// Source: Pacemaker, daemons/controld/controld_join_dc.c
func (b *Site) Located(ctx context.Context, service string) (nodes []string, err error) {
	err = untilSeen(ctx, func() (err error) {
		if nodes, err = b.Location(ctx, service); err == nil && len(nodes) == 0 {
			err = errors.New("it runs on no server")
		}
		return err
	})
	return nodes, err
}

// InOrder returns the servers of a pair with those first that have no fault.
func (b *Site) InOrder(servers []string) []string {
	faulty := func(s string) bool { return s == b.Active || s == b.Second }
	whole := slices.DeleteFunc(slices.Clone(servers), faulty)
	return append(whole, slices.DeleteFunc(slices.Clone(servers), func(s string) bool { return !faulty(s) })...)
}

// Mounted reports whether a server has the service's volume mounted.
func (b *Site) Mounted(ctx context.Context, server string) bool {
	has, err := b.HasVolume(ctx, server, b.Service)
	return err == nil && has
}

// HasVolume reports whether a server has the volume of a service mounted.
func (b *Site) HasVolume(ctx context.Context, server string, s *design.Service) (bool, error) {
	text, err := b.Read(ctx, server, "/proc/self/mounts")
	_, ok := linux.MountAt(linux.ParseMounts(text), s.MountPoints()[0])
	return ok, err
}

// holder is the server of the pair that has the service's volume mounted.
func (b *Site) holder(ctx context.Context) (string, error) {
	for _, server := range b.Servers() {
		if b.Mounted(ctx, server) {
			return server, nil
		}
	}
	return "", fmt.Errorf("the volume of %s is mounted on no server", b.Service.Name)
}

// Events are those so far.
func (b *Site) Events() []report.Event {
	ev, _ := b.Watch.Snapshot()
	return ev
}

// Findings returns the faults, then the warnings, of `mortar status`; nothing if it fails.
func (b *Site) Findings(ctx context.Context) []*observe.Part {
	if b.Env.Operator == nil {
		return nil
	}
	s, err := b.Env.Operator.Status(ctx)
	if err != nil {
		return nil
	}
	var out []*observe.Part
	for _, level := range []observe.Level{observe.Fault, observe.Warning} {
		s.Each(func(p *observe.Part) {
			if p.Level == level {
				out = append(out, p)
			}
		})
	}
	return out
}

// StatusLines returns the findings as the report has them.
func StatusLines(ctx context.Context, b *Site) (out []report.StatusLine) {
	for _, p := range b.Findings(ctx) {
		out = append(out, report.StatusLine{Level: p.Level.String(), Code: string(p.Code), Text: p.Text, Mend: p.Mend})
	}
	return out
}

// Whole waits until `mortar status` finds no fault, each client answers and no array is rebuilding.
func (b *Site) Whole(ctx context.Context, what string, limit time.Duration) error {
	told := time.Time{}
	w := host.Wait{Limit: limit, Poll: 3 * time.Second, Seen: func(left string) {
		if time.Since(told) > 10*time.Second {
			told = time.Now()
			b.Say("waiting for %s: %s", what, left)
		}
	}}
	err := w.Until(ctx, func(ctx context.Context) (string, error) {
		return stillWrong(ctx, b, func(p *observe.Part) bool {
			return p.Level == observe.Fault || p.Code == observe.ClientSilent || p.Progress != nil
		}), nil
	})
	if err != nil {
		return fmt.Errorf("%s not whole: %w", what, err)
	}
	return nil
}

// stillWrong are the texts of those parts of `mortar status` that are not right yet, or why it fails.
func stillWrong(ctx context.Context, b *Site, wrong func(*observe.Part) bool) string {
	if b.Env.Operator == nil {
		return ""
	}
	s, err := b.Env.Operator.Status(ctx)
	if err != nil {
		return err.Error()
	}
	var texts []string
	s.Each(func(p *observe.Part) {
		if wrong(p) {
			texts = append(texts, p.Text)
		}
	})
	return strings.Join(texts, "; ")
}

// ArrayOn is a group's array as it runs on a server, and what else the server says.
func ArrayOn(ctx context.Context, b *Site, server string, g design.Group) (*gather.Array, *gather.Host, error) {
	h, err := gathered(ctx, b, server, gather.ArrayRequest())
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", server, err)
	}
	a := h.Running(g.UUID)
	if a == nil {
		return nil, nil, fmt.Errorf("array %s does not run on %s", g.Name, server)
	}
	return a, &h, nil
}

// GroupMembers returns a group's array as it runs on the active server, and the serials of its
// working disks in RAID order.
func (b *Site) GroupMembers(ctx context.Context, g design.Group) (a *gather.Array, serials []string, err error) {
	a, h, err := ArrayOn(ctx, b, b.Active, g)
	if err != nil {
		return nil, nil, err
	}
	serials, err = membersOf(a, h)
	return a, serials, err
}

func membersOf(a *gather.Array, h *gather.Host) (serials []string, err error) {
	members := slices.DeleteFunc(slices.Clone(a.Members), func(m linux.MDMember) bool { return m.Slot < 0 })
	slices.SortFunc(members, func(x, y linux.MDMember) int { return x.Slot - y.Slot })
	for _, m := range members {
		d, ok := h.DiskOf(m.Dev)
		if !ok {
			return nil, fmt.Errorf("member %s of array %s is no disk that is known", m.Dev, a.Name)
		}
		serials = append(serials, d.Serial)
	}
	return serials, nil
}

// untilSeen calls try until it succeeds, for a minute: the kernel sees a disk, its paths
// and its multipath map some time after the disk is in its slot, and a busy server may
// leave one question unanswered. It does not interrupt a try.
func untilSeen(ctx context.Context, try func() error) error {
	return host.Wait{Limit: time.Minute, Poll: 2 * time.Second}.Until(ctx, func(context.Context) (string, error) {
		if err := try(); err != nil {
			return err.Error(), nil
		}
		return "", nil
	})
}

// Disks are n members of one of the service's RAID groups, by serial.
func (s Scene) Disks(n int) ([]string, error) {
	if len(s.Members) < n {
		return nil, fmt.Errorf("no RAID group of service %s has %d disks that Mortar knows", s.Service.Name, n)
	}
	return s.Members[:n], nil
}

// BootLimit bounds the time from a rack server's power-on to a cluster with an
// elected coordinator.
const BootLimit = 3 * time.Minute

// SSD returns the serial of the i-th SSD of the cache. Both servers reach all
// SSDs.
func (s Scene) SSD(i int) (string, error) {
	c := s.Service.Storage.Cache
	if c == nil {
		return "", fmt.Errorf("service %s has no cache", s.Service.Name)
	}
	if i >= len(c.SSDs) {
		return "", fmt.Errorf("the cache has %d SSD", len(c.SSDs))
	}
	return c.SSDs[i].Serial, nil
}

// Injector breaks and mends hardware. The engine calls it from one goroutine at a
// time. Heal restores the hardware to its state before the fault, with servers
// powered on and running. It must work even if Inject failed, and several times.
type Injector interface {
	// Can returns why it is impossible to inject a fault here, nil if it is
	// possible.
	Can(f Fault) error
	Inject(ctx context.Context, f Fault) error
	Heal(ctx context.Context, f Fault) error
}

// Operator runs the commands of an administrator.
type Operator interface {
	// Move moves a service to a server and waits until it runs there.
	Move(ctx context.Context, service, to string) error
	// Standby puts a server in standby or ends its standby, and waits for the
	// effect.
	Standby(ctx context.Context, node string, on bool) error
	// ConfirmOff tells the cluster that a person has seen that a server is off.
	ConfirmOff(ctx context.Context, node string) error
	// Scrub checks a RAID group and repairs it.
	Scrub(ctx context.Context, g design.Group) (scrub.Group, error)
	// Command runs a mortar command on the brick's spec, as an administrator types it:
	// its name, and what follows the spec. It returns the design of the spec as it is
	// after that, also with an error if there is one; later methods use that design.
	Command(ctx context.Context, name string, args ...string) (*design.Design, error)
	// Status returns what `mortar status` finds.
	Status(ctx context.Context) (*observe.Status, error)
}

// Condition is what a drill waits for. If it is not met within Limit, the drill
// fails but goes on.
type Condition struct {
	What  string // name of the check
	Limit time.Duration
	// Sign: it is by the fault that the condition is met, so a brick where it is met
	// before the fault is refused.
	Sign bool
	// Look reports whether the condition is met, and describes what it saw.
	Look func(ctx context.Context, v *Site) (seen bool, detail string)
}

// Env is the environment of a drill.
type Env struct {
	Design   *design.Design
	Dial     host.Dial
	Excused  *host.Excused // of the sessions that Dial opens; may be nil
	Injector Injector
	Operator Operator
	Service  string // the service under test; "": the design's first
	Virtual  bool   // a virtual rack
	Version  string // of mortar
	// Restore puts the brick into its state before any fault. Random calls it before
	// each drill, so that no drill depends on an earlier one; nil: the brick stays as
	// the drill before has left it.
	Restore func(ctx context.Context) error
	// Progress receives a text for each event of the drill. Drills call it from
	// several goroutines, one at a time. It may be nil.
	Progress func(text string)
}

// Package upgrade upgrades servers, one at a time: it moves services away, upgrades
// packages, reboots, checks the server, proves its fencing, and moves services back.
// Clients see only the planned moves of the services.
//
// The package knows the order of steps and when to stop. Packages failover and plan
// move, fence and apply. It prints nothing.
package upgrade

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mortarhpc/mortar/internal/base/distro"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/host/agent"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/run/failover"
	"github.com/mortarhpc/mortar/internal/run/observe"
	"github.com/mortarhpc/mortar/internal/run/procedure"
)

// Options of an upgrade.
type Options struct {
	// RebootOnly leaves the packages as they are.
	RebootOnly bool
	// NoFenceTest skips the fence test of each rebooted server.
	NoFenceTest bool
	// Apply applies the spec to the hosts, which rebuilds a new kernel's initial
	// RAM disk and installs a new version of Mortar. Run calls it while a server is
	// in standby.
	Apply func(ctx context.Context) error
	// On receives progress; it may be nil.
	On func(Event)
}

// Event is progress.
type Event struct {
	Event   string  `json:"event"` // always "upgrade"
	Server  string  `json:"server"`
	Step    string  `json:"step"`
	Text    string  `json:"text,omitempty"`
	Seconds float64 `json:"seconds"` // since the upgrade began
}

// Server is the state of a server before its upgrade.
type Server struct {
	Name   string   `json:"server"`
	Kernel string   `json:"kernel"`
	Newer  []string `json:"newer"` // packages to upgrade, each with its new version
	// Serves are the server's services, which move away and back. A server in standby
	// has those that prefer it.
	Serves []string `json:"serves"`
	// Standby: the server is in standby, as an upgrade that was interrupted leaves it.
	Standby bool `json:"standby,omitempty"`
}

// Done is the result of a server's upgrade.
type Done struct {
	Server     string   `json:"server"`
	KernelFrom string   `json:"kernel_before"`
	KernelTo   string   `json:"kernel_after"`
	Upgraded   []string `json:"upgraded"`
	Moved      []string `json:"moved"` // services that moved away and back
	Seconds    float64  `json:"seconds"`
}

// Upgrade upgrades the servers of a brick.
type Upgrade struct {
	d     *design.Design
	hosts failover.Hosts
	o     Options
	start time.Time
}

// New returns an Upgrade of a brick's servers.
func New(d *design.Design, hosts failover.Hosts, o Options) *Upgrade {
	if o.On == nil {
		o.On = func(Event) {}
	}
	return &Upgrade{d: d, hosts: hosts, o: o, start: time.Now()}
}

// Look returns the servers in the order of their upgrades. In each pair a server in
// standby comes first, since its partner has no server to move services to; then the one
// with fewer services, so that services move as late as possible. only
// selects one server, "" all. Look refuses an unhealthy brick: the partner of a
// rebooting server must be able to serve alone.
func (u *Upgrade) Look(ctx context.Context, only string) ([]Server, error) {
	if !u.d.Clustered() {
		return nil, resource.Refuse("upgrade-one-server", nil)
	}
	if err := procedure.IsServer(u.d, only); only != "" && err != nil {
		return nil, err
	}
	f := u.hosts.Collect(ctx)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if faults := faultsOf(u.d, f); len(faults) > 0 {
		return nil, resource.Refuse("upgrade-unhealthy", resource.With{"faults": faults})
	}
	var out []Server
	for i := range u.d.Pairs {
		p := &u.d.Pairs[i]
		var pair []Server
		for _, name := range p.Servers {
			if only != "" && name != only {
				continue
			}
			s, err := u.server(ctx, f, name)
			if err != nil {
				return nil, err
			}
			pair = append(pair, s)
		}
		slices.SortStableFunc(pair, func(a, b Server) int {
			if a.Standby != b.Standby {
				return map[bool]int{true: -1, false: 1}[a.Standby]
			}
			return len(a.Serves) - len(b.Serves)
		})
		out = append(out, pair...)
	}
	return out, nil
}

// faultsOf returns the texts of a brick's faults.
func faultsOf(d *design.Design, f observe.Facts) []string {
	var out []string
	observe.Judge(d, f).Each(func(p *observe.Part) {
		if p.Level == observe.Fault {
			out = append(out, p.Text)
		}
	})
	return out
}

func (u *Upgrade) server(ctx context.Context, f observe.Facts, name string) (Server, error) {
	s := Server{Name: name, Newer: []string{}, Serves: []string{}}
	h, err := u.hosts.Session(name).Hello(ctx)
	if err != nil {
		return s, fmt.Errorf("%s: %w", name, err)
	}
	s.Kernel = h.Kernel
	if s.Newer, err = u.newer(ctx, name, h); err != nil {
		return s, err
	}
	pair := u.d.PairWith(name)
	snap := observe.ClusterOf(u.d, pair, f)
	s.Standby = inStandby(snap, name)
	for _, x := range snap.Services {
		if homeOf(pair, snap, x) == name {
			s.Serves = append(s.Serves, x.Name)
		}
	}
	return s, nil
}

func inStandby(snap *observe.Snapshot, name string) bool {
	n := snap.Node(name)
	return n != nil && n.Standby
}

// homeOf returns the server that a service runs on, or that it goes back to: an upgrade
// before this one may have moved it off its preferred server, which is in standby still.
func homeOf(pair *design.Pair, snap *observe.Snapshot, x observe.ServiceState) string {
	for i := range pair.Services {
		if s := &pair.Services[i]; s.Name == x.Name && inStandby(snap, s.Preferred) {
			return s.Preferred
		}
	}
	return x.Server
}

// newer returns the packages that are out of date, by the server's present lists.
func (u *Upgrade) newer(ctx context.Context, name string, h agent.Hello) ([]string, error) {
	if u.o.RebootOnly {
		return []string{}, nil
	}
	m := distro.Nearest(h.OSRelease).Manager
	text, err := u.hosts.Session(name).Text(ctx, m.Pending...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return append([]string{}, m.Newer(text)...), nil
}

// Stopped is the error of an upgrade that stopped at a server.
type Stopped struct {
	Server string
	Step   string
	Back   string // how to go back
	Err    error
}

func (e *Stopped) Error() string {
	return fmt.Sprintf("%s: %s: %v\nStopped here; no other server is touched. %s", e.Server, e.Step, e.Err, e.Back)
}

// Unwrap returns the cause.
func (e *Stopped) Unwrap() error { return e.Err }

// step is one step of a server's upgrade.
type step struct {
	name string
	do   func(ctx context.Context) error
}

// Run upgrades a server. An error is a *Stopped.
func (u *Upgrade) Run(ctx context.Context, s Server) (Done, error) {
	start := time.Now()
	done := Done{Server: s.Name, KernelFrom: s.Kernel, Upgraded: s.Newer, Moved: []string{}}
	var boot string
	steps := []step{
		{"standby", func(ctx context.Context) error { return u.move(ctx, s.Name, failover.Standby) }},
		{"packages", func(ctx context.Context) error { return u.packages(ctx, s, &done) }},
		{"apply", u.o.Apply},
		{"reboot", func(ctx context.Context) (err error) { boot, err = u.reboot(ctx, s.Name); return err }},
		{"apply", u.o.Apply},
		{"unstandby", func(ctx context.Context) error { return u.move(ctx, s.Name, failover.Unstandby) }},
		{"wait", func(ctx context.Context) error {
			return failover.AwaitBoot(ctx, u.d, u.hosts, s.Name, boot, failover.ProofOptions{On: u.proof(s.Name)})
		}},
		{"fence test", func(ctx context.Context) error { return u.fenceTest(ctx, s.Name) }},
		{"failback", func(ctx context.Context) error { return u.failback(ctx, s, &done) }},
		{"health", u.healthy},
	}
	for _, x := range steps {
		u.say(s.Name, x.name, "")
		if err := x.do(ctx); err != nil {
			if ctx.Err() != nil {
				err = ctx.Err()
			}
			return done, &Stopped{s.Name, x.name, u.back(s, x.name), err}
		}
	}
	h, err := u.hosts.Session(s.Name).Hello(ctx)
	if err != nil {
		return done, &Stopped{s.Name, "health", u.back(s, "health"), err}
	}
	done.KernelTo, done.Seconds = h.Kernel, time.Since(start).Seconds()
	return done, nil
}

// back describes how to recover after a failed step.
func (u *Upgrade) back(s Server, step string) string {
	other := u.d.PairWith(s.Name).Other(s.Name)
	switch step {
	case "standby":
		return fmt.Sprintf("`mortar unstandby` lets %s serve again.", s.Name)
	case "packages", "apply", "reboot", "unstandby", "wait":
		return fmt.Sprintf("%s serves meanwhile, and %s takes nothing over until `mortar unstandby`. To go back: boot the kernel before (%s) from the boot loader's menu, or install the versions before that the package manager's log names. Or mend it and run `mortar upgrade` again.",
			other, s.Name, s.Kernel)
	}
	return fmt.Sprintf("%s is in the cluster again; see `mortar status`, mend it, and run `mortar upgrade` again.", s.Name)
}

func (u *Upgrade) say(server, step, text string) {
	u.o.On(Event{"upgrade", server, step, text, time.Since(u.start).Seconds()})
}

func (u *Upgrade) moving(server, step string) procedure.Options {
	return procedure.Options{Wait: design.MoveTime(u.d), Poll: 3 * time.Second, Glance: 500 * time.Millisecond, On: func(e procedure.Event) {
		if e.State == "failed" {
			u.say(server, step, e.Title+": "+e.Detail)
		}
	}}
}

func (u *Upgrade) move(ctx context.Context, server string, plan func(*design.Design, observe.Facts, string) (*procedure.Plan, error)) error {
	p, err := plan(u.d, u.hosts.Collect(ctx), server)
	if err != nil {
		return err
	}
	return procedure.Run(ctx, u.hosts, p, u.moving(server, p.What))
}

func (u *Upgrade) packages(ctx context.Context, s Server, done *Done) error {
	if u.o.RebootOnly {
		return nil
	}
	sess := u.hosts.Session(s.Name)
	h, err := sess.Hello(ctx)
	if err != nil {
		return err
	}
	m := distro.Nearest(h.OSRelease).Manager
	for _, a := range resource.UpgradePackages(m) {
		u.say(s.Name, "packages", a.Title)
		if _, err := sess.Run(ctx, a); err != nil {
			return err
		}
		// The lists are new, so the outdated packages may have changed.
		if slices.Equal(a.Cmd, m.Refresh) {
			if done.Upgraded, err = u.newer(ctx, s.Name, h); err != nil {
				return err
			}
		}
	}
	u.say(s.Name, "packages", fmt.Sprintf("%d upgraded", len(done.Upgraded)))
	return nil
}

// reboot reboots a server and waits until it answers again. It returns the id of the
// boot before the reboot.
func (u *Upgrade) reboot(ctx context.Context, server string) (before string, err error) {
	sess := u.hosts.Session(server)
	h, err := sess.Hello(ctx)
	if err != nil {
		return "", err
	}
	a := resource.Action{Title: "reboot " + server, Cmd: []string{"systemctl", "--no-block", "reboot"}, Seconds: 30}
	var refused *resource.Refusal
	if _, err := sess.Run(ctx, a); errors.As(err, &refused) {
		return "", err
	} else if err != nil {
		u.say(server, "reboot", "no answer to the reboot command: "+err.Error()) // the server may be shutting down
	}
	w := host.Wait{Limit: 15 * time.Minute, Poll: 2 * time.Second}
	err = w.Until(ctx, func(ctx context.Context) (string, error) {
		cctx, cancel := context.WithTimeout(ctx, 20*time.Second)
		defer cancel()
		now, err := sess.Hello(cctx)
		switch {
		case err != nil:
			return err.Error(), nil
		case now.BootID == h.BootID:
			return server + " has not gone down yet", nil
		}
		return "", nil
	})
	if err != nil {
		return "", fmt.Errorf("%s did not come back: %w; look at its console", server, err)
	}
	return h.BootID, nil
}

func (u *Upgrade) proof(server string) func(failover.ProofEvent) {
	return func(e failover.ProofEvent) { u.say(server, "fence test", e.Text) }
}

// fenceTest proves the fencing of the server while it has no services yet.
func (u *Upgrade) fenceTest(ctx context.Context, server string) error {
	if u.o.NoFenceTest {
		return nil
	}
	levels, err := failover.ChosenLevels(u.d, server, 0)
	if err != nil {
		return err
	}
	_, err = failover.ProveFencing(ctx, u.d, u.hosts, levels, failover.ProofOptions{On: u.proof(server)})
	return err
}

// failback moves the services back that ran on the server before its upgrade.
func (u *Upgrade) failback(ctx context.Context, s Server, done *Done) error {
	pair := u.d.PairWith(s.Name)
	for i := range pair.Services {
		svc := &pair.Services[i]
		if !slices.Contains(s.Serves, svc.Name) {
			continue
		}
		done.Moved = append(done.Moved, svc.Name)
		if pair.HA.Failback == "auto" && svc.Preferred == s.Name {
			continue // the cluster moves it back itself
		}
		p, err := failover.Service(u.d, u.hosts.Collect(ctx), svc.Name, s.Name)
		if err != nil {
			return err
		}
		if err := procedure.Run(ctx, u.hosts, p, u.moving(s.Name, "failback")); err != nil {
			return err
		}
	}
	return nil
}

// healthy waits until the brick has no fault: clients and fence devices need a
// moment.
func (u *Upgrade) healthy(ctx context.Context) error {
	w := host.Wait{Limit: 3 * time.Minute, Poll: 5 * time.Second}
	return w.Until(ctx, func(ctx context.Context) (string, error) {
		return strings.Join(faultsOf(u.d, u.hosts.Collect(ctx)), "; "), nil
	})
}

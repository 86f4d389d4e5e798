package drill

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/converge/plan"
	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/host/agent"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/prove/kind"
	"github.com/mortarhpc/mortar/internal/prove/report"
	"github.com/mortarhpc/mortar/internal/run/observe"
)

// View is what a Condition sees of the brick.
type View struct {
	Scene
	e     *engine
	fault int64
}

func (e *engine) view() *View {
	return &View{e: e, fault: e.watch.faultNS(),
		Scene: Scene{Design: e.env.Design, Service: e.service, Active: e.active, Passive: e.survivor}}
}

// askTime bounds a query of a server that may be broken.
const askTime = 40 * time.Second

// asked asks a host over its present session.
func asked[R any](ctx context.Context, e *engine, name string, ask func(*host.Session, context.Context) (R, error)) (R, error) {
	h := e.hosts.Session(name)
	if h == nil {
		var none R
		return none, fmt.Errorf("%s is not reached", name)
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	return ask(h, ctx)
}

func (e *engine) query(ctx context.Context, name string, argv ...string) (resource.Output, error) {
	return asked(ctx, e, name, func(s *host.Session, ctx context.Context) (resource.Output, error) { return s.Query(ctx, argv...) })
}

func (e *engine) read(ctx context.Context, name, file string) (string, error) {
	return asked(ctx, e, name, func(s *host.Session, ctx context.Context) (string, error) { return s.Read(ctx, file) })
}

// mounted reports whether a server has the service's volume mounted.
func (v *View) mounted(ctx context.Context, server string) bool {
	s, err := v.e.read(ctx, server, "/proc/self/mounts")
	if err != nil {
		return false
	}
	_, ok := linux.MountAt(linux.ParseMounts(s), v.Service.MountPoints()[0])
	return ok
}

func (v *View) events() []report.Event {
	ev, _ := v.e.watch.snapshot()
	return ev
}

// findings returns the faults, then the warnings, of `mortar status`; nothing if it fails.
func (v *View) findings(ctx context.Context) []*observe.Part {
	if v.e.env.Operator == nil {
		return nil
	}
	s, err := v.e.env.Operator.Status(ctx)
	if err != nil {
		return nil
	}
	var faults, warnings []*observe.Part
	s.Each(func(p *observe.Part) {
		switch p.Level {
		case observe.Fault:
			faults = append(faults, p)
		case observe.Warning:
			warnings = append(warnings, p)
		}
	})
	return append(faults, warnings...)
}

// status returns findings as the report has them.
func (v *View) status(ctx context.Context) []report.StatusLine {
	var out []report.StatusLine
	for _, p := range v.findings(ctx) {
		out = append(out, report.StatusLine{Level: p.Level.String(), Code: string(p.Code), Text: p.Text, Mend: p.Mend})
	}
	return out
}

// A sign is a finding of `mortar status` by which a fault is seen: its code, and pairs of the
// name and the value of an argument.
type sign struct {
	code observe.Code
	args []string
}

func signOf(code observe.Code, args ...string) sign { return sign{code, args} }

// in returns the text of the finding that is the sign, or that there is none.
func (s sign) in(all []*observe.Part) (bool, string) {
	for _, p := range all {
		if p.Has(s.code, s.args...) {
			return true, p.Text
		}
	}
	return false, fmt.Sprintf("mortar status has no finding %s of %s", s.code, strings.Join(s.args, " "))
}

// shows waits until `mortar status` has each of the signs.
func shows(limit time.Duration, signs ...sign) *Condition {
	return &Condition{What: "status says so", Limit: limit, Sign: true, Look: func(ctx context.Context, v *View) (bool, string) {
		all := v.findings(ctx)
		var said []string
		for _, s := range signs {
			ok, text := s.in(all)
			if !ok {
				return false, text
			}
			said = append(said, text)
		}
		return len(said) > 0, strings.Join(said, "; ")
	}}
}

// probeSpace writes a small new file on each mount of each client. It returns the
// outcomes, and how many writes succeeded.
func (v *View) probeSpace(ctx context.Context) (said []string, room int) {
	for _, m := range v.Design.Mounts {
		if !kind.For(m).Uses(m, v.Service.Name) {
			continue
		}
		file := path.Join(m.Path, loadDir, "space-"+m.Client+"-"+kind.For(m).Label(m))
		who := m.Client + " " + kind.For(m).Name(m)
		err := v.e.do(ctx, m.Client, writeNew(file))
		switch {
		case err == nil:
			room++
			said = append(said, who+" had room")
		case strings.Contains(err.Error(), noSpace):
			said = append(said, who+" '"+noSpace+"'")
		default:
			said = append(said, who+" "+err.Error())
		}
		_ = v.e.do(ctx, m.Client, resource.Action{Title: "remove it", Cmd: []string{"rm", "-f", "--", file}})
	}
	return said, room
}

// whole waits until `mortar status` finds no fault and no array is rebuilding.
func (e *engine) whole(ctx context.Context, what string, limit time.Duration) error {
	if e.env.Operator == nil {
		return nil
	}
	told := time.Time{}
	w := host.Wait{Limit: limit, Poll: 3 * time.Second, Seen: func(left string) {
		if time.Since(told) > 10*time.Second {
			told = time.Now()
			e.say("waiting for %s: %s", what, left)
		}
	}}
	err := w.Until(ctx, func(ctx context.Context) (string, error) {
		s, err := e.env.Operator.Status(ctx)
		if err != nil {
			return err.Error(), nil
		}
		var wrong []string
		s.Each(func(p *observe.Part) {
			if p.Level == observe.Fault || p.Progress != nil {
				wrong = append(wrong, p.Text)
			}
		})
		return strings.Join(wrong, "; "), nil
	})
	if err != nil {
		return fmt.Errorf("%s not whole: %w", what, err)
	}
	return nil
}

// members returns the serials of the working disks of a group's array, in RAID
// order, as the active server sees them.
func (e *engine) members(ctx context.Context, g design.Group) ([]string, error) {
	out, err := e.query(ctx, e.active, "mdadm", "--detail", "--export", "/dev/md/"+g.Name)
	if err != nil {
		return nil, err
	}
	facts, err := asked(ctx, e, e.active, (*host.Session).Facts)
	if err != nil {
		return nil, err
	}
	devs := parseMembers(out.Stdout)
	var serials []string
	for _, dev := range devs {
		name, _ := e.read(ctx, e.active, "/sys/block/"+path.Base(dev)+"/dm/name") // not every disk is a map
		d, ok := resource.DiskOf(facts.Disks, path.Base(dev), strings.TrimSpace(name))
		if !ok {
			return nil, fmt.Errorf("member %s of array %s is no disk that is known", dev, g.Name)
		}
		serials = append(serials, d.Serial)
	}
	return serials, nil
}

// parseMembers reads `mdadm --detail --export`. It returns the devices of the
// members that have a slot, in the order of slots.
//
// Source: mdadm(8); Detail.c prints MD_DEVICE_<dev>_ROLE and _DEV
func parseMembers(text string) []string {
	roles, devs := map[string]int{}, map[string]string{}
	for line := range strings.Lines(text) {
		k, val, ok := strings.Cut(strings.TrimSpace(line), "=")
		name, found := strings.CutPrefix(k, "MD_DEVICE_")
		if !ok || !found {
			continue
		}
		if n, ok := strings.CutSuffix(name, "_ROLE"); ok {
			var slot int
			if _, err := fmt.Sscanf(val, "%d", &slot); err == nil {
				roles[n] = slot
			}
		}
		if n, ok := strings.CutSuffix(name, "_DEV"); ok {
			devs[n] = val
		}
	}
	names := make([]string, 0, len(roles))
	for n := range roles {
		if devs[n] != "" {
			names = append(names, n)
		}
	}
	slices.SortFunc(names, func(a, b string) int { return roles[a] - roles[b] })
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = devs[n]
	}
	return out
}

// returnSlow gives a disk back that was dropped because it was slow.
func (e *engine) returnSlow(ctx context.Context, f Fault) error {
	if !e.service.Storage.DropSlow {
		return nil
	}
	where, err := e.location(ctx, e.service.Name)
	if err != nil {
		return err
	}
	if len(where) != 1 {
		return fmt.Errorf("disk %s cannot be given back: its service is on %q", f.Args[0], strings.Join(where, ", "))
	}
	if err := untilSeen(ctx, func() error { return e.forgetDropped(ctx, where[0], f.Args[0]) }); err != nil {
		return err
	}
	return e.returnDisk(ctx, f)
}

// forgetDropped removes the record by which apply leaves a dropped disk out. Its error
// says that the record is still there.
func (e *engine) forgetDropped(ctx context.Context, server, serial string) error {
	text, err := e.read(ctx, server, linux.CIBFile)
	if err != nil {
		return err
	}
	cib, err := linux.ParseCIB([]byte(text))
	if err != nil {
		return err
	}
	for _, d := range cib.Dropped() {
		if !strings.EqualFold(d.Serial, serial) {
			continue
		}
		if err := e.do(ctx, server, resource.Action{Title: "forget that " + serial + " was slow", Cmd: d.Forget()}); err != nil {
			return err
		}
		return fmt.Errorf("the cluster's configuration still has disk %s as dropped", serial)
	}
	return nil
}

// returnDisk adds a disk that is in its slot again to its array, as a spare or in
// its old place, with the actions of `mortar apply`.
func (e *engine) returnDisk(ctx context.Context, f Fault) error {
	if err := e.healAgain(ctx, f); err != nil {
		return err
	}
	serial := f.Args[0]
	var g design.Group
	for _, x := range e.env.Design.Groups {
		for _, d := range slices.Concat(x.Members, x.Spares) {
			if d.Serial == serial {
				g = x
			}
		}
	}
	ssd, service := cacheHas(e.env.Design, serial), e.service.Name
	if on := e.env.Design.On(g.Name); on != nil {
		service = on.Name
	}
	var wire agent.WireResource
	if !ssd {
		if g.Name == "" {
			return fmt.Errorf("disk %s is of no group", serial)
		}
		var err error
		if wire, err = agent.Wire(plan.ArrayOf(e.env.Design, g)); err != nil {
			return err
		}
	}
	if ssd {
		e.say("giving SSD %s back to the cache", serial)
	} else {
		e.say("giving disk %s back to array %s", serial, g.Name)
	}
	// The service may be on its way.
	err := untilSeen(ctx, func() error {
		where, err := e.location(ctx, service)
		if err != nil {
			return err
		}
		if len(where) != 1 {
			return fmt.Errorf("service %s is on %q", service, strings.Join(where, ", "))
		}
		if ssd {
			return e.applyCache(ctx, Fault{On: where[0], Args: []string{e.service.Name}})
		}
		return e.giveBack(ctx, where[0], g, wire)
	})
	if err != nil {
		return fmt.Errorf("disk %s: %w", serial, err)
	}
	return nil
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

func (e *engine) giveBack(ctx context.Context, server string, g design.Group, wire agent.WireResource) error {
	// A failed member stays in md's list until it is removed.
	for _, which := range []string{"failed", "detached"} {
		a := resource.Action{Title: "take " + which + " members out of " + g.Name, Cmd: []string{"mdadm", "--manage", "/dev/md/" + g.Name, "--remove", which}}
		if err := e.do(ctx, server, a); err != nil {
			return err
		}
	}
	if err := e.settle(ctx, server, wire); err != nil {
		return fmt.Errorf("array %s: %w", g.Name, err)
	}
	return nil
}

// settle runs the actions of `mortar apply` for one resource of a server, until there are
// none.
func (e *engine) settle(ctx context.Context, server string, wire agent.WireResource) error {
	for range 3 {
		ds, err := asked(ctx, e, server, func(s *host.Session, ctx context.Context) ([]agent.DiffResult, error) {
			return s.Diffs(ctx, []agent.WireResource{wire}, nil)
		})
		if err != nil {
			return err
		}
		if ds[0].Error != nil {
			return ds[0].Error
		}
		if len(ds[0].Actions) == 0 {
			return nil
		}
		for _, a := range ds[0].Actions {
			if err := e.do(ctx, server, a); err != nil {
				return err
			}
		}
	}
	return errors.New("after three attempts mortar apply still has something to do")
}

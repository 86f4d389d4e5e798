package change

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/renameio/v2"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/converge/plan"
	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/run/cli"
	"github.com/mortarhpc/mortar/internal/run/disk"
	"github.com/mortarhpc/mortar/internal/run/procedure"
)

// specChange is a change of a spec, which is applied. Both specs have the sizes of their files,
// not those of a virtual rack.
type specChange struct {
	was, next *spec.Spec
	shown     string // describes the change
	// wipe lists disks whose data this change may destroy, in addition to the spec's list.
	wipe []string
	// during runs in the background of the apply; nil: nothing.
	during func(ctx context.Context)
}

// run shows the change, asks, writes the spec and applies it. If apply refuses the plan, run
// restores the spec. done is false after a dry run and after a failure.
func (s specChange) run(ctx context.Context, c *cli.Console) (done bool, err error) {
	if err := host.Hardware(s.next); err != nil {
		return false, cli.Fail(cli.BadInput, err)
	}
	d, err := design.New(s.next)
	if err != nil {
		return false, cli.Refuse(fmt.Errorf("with this change, %w", err))
	}
	d.Spec.Wipe = append(d.Spec.Wipe, s.wipe...)
	c.Printf("%s\n", s.shown)
	if c.DryRun {
		_, err := Show(ctx, c, d, Options{})
		return false, err
	}
	if err := c.MayAsk(); err != nil {
		return false, err
	}
	if !c.Yes {
		n, err := Show(ctx, c, d, Options{})
		if err != nil {
			return false, err
		}
		if err := c.Confirm(ctx, question(n, len(d.Spec.Servers)+len(d.Spec.Clients))); err != nil {
			return false, err
		}
	}
	file := s.was.File
	if err := renameio.WriteFile(file, s.next.Source, 0o644, renameio.WithExistingPermissions()); err != nil {
		return false, err
	}
	if d, err = cli.Load(file); err != nil {
		return false, err
	}
	d.Spec.Wipe = append(d.Spec.Wipe, s.wipe...)
	background, stop := context.WithCancel(ctx)
	defer stop()
	if !c.JSON && s.during != nil {
		go s.during(background)
	}
	err = apply(ctx, c, d)
	if refused := (*cli.Exit)(nil); errors.As(err, &refused) && refused.Code == cli.BadInput {
		// The hosts are unchanged, so restore the spec too.
		if rerr := renameio.WriteFile(file, s.was.Source, 0o644, renameio.WithExistingPermissions()); rerr != nil {
			return false, cli.Fail(cli.Failed, errors.Join(err, fmt.Errorf("the spec has the change all the same: %w", rerr)))
		}
	}
	return err == nil, err
}

// apply applies a spec that the user has confirmed, without a fence test.
func apply(ctx context.Context, c *cli.Console, d *design.Design) error {
	confirmed := *c
	confirmed.Yes, confirmed.Start = true, time.Now()
	return Apply(ctx, &confirmed, d, Options{SkipFenceTest: true})
}

// Cache changes the key cache of a spec that has one, and applies it.
func Cache(ctx context.Context, c *cli.Console, file string, change func(*spec.Cache) (*spec.Cache, error)) error {
	s, err := cli.ReadSpec(file)
	if err != nil {
		return err
	}
	if s.Cache == nil {
		return cli.Fail(cli.BadInput, fmt.Errorf("%s: the brick has no cache: mortar cache add gives it one", file))
	}
	return setCache(ctx, c, s, change)
}

// AddCache is Cache, also of a brick that has none.
func AddCache(ctx context.Context, c *cli.Console, file string, change func(*spec.Cache) (*spec.Cache, error)) error {
	s, err := cli.ReadSpec(file)
	if err != nil {
		return err
	}
	return setCache(ctx, c, s, change)
}

func setCache(ctx context.Context, c *cli.Console, s *spec.Spec, change func(*spec.Cache) (*spec.Cache, error)) error {
	old, err := cli.Load(s.File)
	if err != nil {
		return err
	}
	next, want, err := s.ChangeCache(change)
	if err != nil {
		return cli.Refuse(err)
	}
	block := "(removed)"
	if want != nil {
		block = strings.ReplaceAll(strings.Trim(string(spec.SetCache(nil, want)), "\n"), "\n", "\n  ")
	} else if args := s.Cache.AddArgs(); args != nil {
		block += "\n  to take it up again: mortar cache add " + strings.Join(append([]string{s.File}, args...), " ")
	}
	_, err = specChange{was: s, next: next, shown: fmt.Sprintf("%s, key cache:\n  %s", s.File, block), during: func(ctx context.Context) { watchFlush(ctx, c, old) }}.run(ctx, c)
	return err
}

// uncached prints what part of the volume goes past its cache, and how that ends. It returns the
// text; "" for none, and if no server tells.
func uncached(ctx context.Context, c *cli.Console, d *design.Design) string {
	if d.Cached() == nil {
		return ""
	}
	p, err := cachePeer(c, d, 20*time.Second)
	if err != nil {
		return ""
	}
	defer p.Close()
	server, st := p.Uncached(ctx)
	if st.Uncached == 0 {
		return ""
	}
	how := fmt.Sprintf("mortar failover %s %s", d.Spec.File, p.service)
	if d.PairWith(server).HA == nil {
		how = "reboot " + server
	}
	text := fmt.Sprintf("%s of %s go past the cache until the service starts the next time: %s", spec.Bytes(st.Uncached).Decimal(), p.service, how)
	if !st.Up {
		text += ", then mortar apply " + d.Spec.File + ", which gives the cache its SSDs"
	}
	c.Printf("%s\n", text)
	return text
}

// cachePeer asks the servers of a brick for the state of its cache.
func cachePeer(c *cli.Console, d *design.Design, timeout time.Duration) (*CachePeer, error) {
	hosts, err := c.Collector(d, timeout, d.Servers()...)
	if err != nil {
		return nil, err
	}
	p, err := NewCachePeer(d, hosts)
	if err != nil {
		return nil, cli.Fail(cli.BadInput, err)
	}
	return p, nil
}

// watchFlush prints how much dirty data the SSDs still hold.
func watchFlush(ctx context.Context, c *cli.Console, d *design.Design) {
	p, err := cachePeer(c, d, 20*time.Second)
	if err != nil {
		return
	}
	defer p.Close()
	last := int64(-1)
	for ctx.Err() == nil {
		if _, st, err := p.Stats(ctx, false); err == nil && st.Dirty != last && (st.Dirty > 0 || last > 0) {
			c.Printf("       dirty: %s to be written to the disks\n", spec.Bytes(st.Dirty).Decimal())
			last = st.Dirty
		}
		select {
		case <-ctx.Done():
		case <-time.After(2 * time.Second):
		}
	}
}

// Replace prepares a new machine for a server's place, or takes it into the brick once it is
// cabled.
func Replace(ctx context.Context, c *cli.Console, file, server string, o Options) error {
	d, err := cli.Load(file)
	if err != nil {
		return err
	}
	if err := procedure.IsServer(d, server); err != nil {
		return cli.Refuse(err)
	}
	pair := d.PairWith(server)
	if pair.HA == nil {
		return cli.Refuse(errors.New("a brick with one server has no partner that serves meanwhile: stop the old one, cable the new one, and run mortar apply"))
	}
	o.Replaced = server
	if len(d.ArraysOf(pair)) > 0 {
		cabled, err := cabledAndReady(ctx, c, d, pair, server)
		if err != nil {
			return err
		}
		if !cabled {
			o.Prepare = server
		}
	}
	if c.DryRun {
		_, err = Show(ctx, c, d, o)
		return err
	}
	if err := Apply(ctx, c, d, o); err != nil {
		return err
	}
	if o.Prepare != "" {
		c.Printf("%s is prepared: its kernel leaves the brick's arrays alone. Plug in its cables to the enclosures, then run the same command again.\n", server)
		return nil
	}
	c.Printf("%s is part of the brick. If it is in standby, `mortar unstandby %s %s` ends that.\n", server, file, server)
	return nil
}

// cabledAndReady reports whether a server sees the disks of its pair and is prepared for them.
// It refuses a server that sees only some of them, and one that sees them unprepared.
func cabledAndReady(ctx context.Context, c *cli.Console, d *design.Design, pair *design.Pair, server string) (bool, error) {
	hosts, err := c.Collector(d, cli.HostTimeout, server)
	if err != nil {
		return false, err
	}
	defer hosts.Close()
	seen, missing, err := disk.SeenBy(ctx, hosts.Session, d, pair, server)
	switch {
	case err != nil:
		return false, cli.Refuse(err)
	case len(seen) == 0:
		return false, nil
	}
	o := Options{Prepare: server}
	p, err := plan.Prepare(ctx, d, o.preparing(c, false, func(string, string) {}))
	if err != nil {
		return false, cli.Refused(ctx, d.Spec, err)
	}
	defer p.Close()
	if slices.ContainsFunc(p.Plan.Pending(), func(s plan.Planned) bool { return plan.LeavesArraysAlone(s.Step) }) {
		return false, cli.Refuse(resource.Refuse("server-unprepared", resource.With{"server": server, "disks": len(seen)}))
	}
	if len(missing) > 0 {
		return false, cli.Refuse(resource.Refuse("server-lacks-disks", resource.With{"server": server, "seen": len(seen), "disks": len(seen) + len(missing), "missing": missing}))
	}
	return true, nil
}

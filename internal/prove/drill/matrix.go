package drill

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/prove/fault"
	"github.com/mortarhpc/mortar/internal/prove/judge"
	"github.com/mortarhpc/mortar/internal/prove/report"
)

// Choice is a drill with one of its variants.
type Choice struct {
	Drill   Drill
	Variant Variant
}

// Name is DRILL-HOW: the name of the choice in --only, and of its directory.
func (c Choice) Name() string { return c.Drill.Name + "-" + c.Variant.How }

// Choose returns the choices of the table that only names, or all, without those
// that skip names. All are those that leave the brick as it was. A name is that of
// a drill, or drill-how for one variant. An unknown name is an error.
func Choose(only, skip []string) ([]Choice, error) {
	used := map[string]bool{}
	in := func(list []string, c Choice) bool {
		hit := false
		for _, n := range list {
			if n == c.Drill.Name || n == c.Name() {
				used[n], hit = true, true
			}
		}
		return hit
	}
	var out []Choice
	for _, d := range Table {
		for _, v := range d.Variants {
			c := Choice{d, v}
			wanted, unwanted := len(only) == 0 && d.Lasting == "" || in(only, c), in(skip, c)
			if wanted && !unwanted {
				out = append(out, c)
			}
		}
	}
	for _, n := range slices.Concat(only, skip) {
		if !used[n] {
			return nil, fmt.Errorf("no drill %q; give names as mortar drill list shows them: DRILL for all its variants, DRILL-HOW for one", n)
		}
	}
	if len(out) == 0 {
		return nil, errors.New("nothing is left to be done: everything that --only names is skipped")
	}
	return out, nil
}

// Suits returns the drills whose parts the brick has. A brick with one server
// has no partner.
func Suits(all []Choice, d *design.Design) []Choice {
	return slices.DeleteFunc(slices.Clone(all), func(c Choice) bool {
		_, single := alone[c.Name()]
		return !single && !d.Clustered() || c.Drill.has != nil && !c.Drill.has(d) || c.Variant.has != nil && !c.Variant.has(d)
	})
}

// All carries out several drills, each repeat times, and restores health after
// each. It returns an entry for each drill done, and writes the entries to dir
// after each drill. In a brick with two services each drill begins with both on
// their preferred servers. All ends early, with an error, if ctx ends or, a *Broken,
// if the brick cannot be healed.
func All(ctx context.Context, env fault.Env, choices []Choice, repeat int, dir string, opt Options) ([]report.Entry, []*report.Run, error) {
	var entries []report.Entry
	var runs []*report.Run
	say := (&fault.Site{Env: env}).Say
	for i, c := range choices {
		e := report.Entry{Summary: report.Summary{Drill: c.Drill.Name, How: c.Variant.How, Brick: env.Design.Name, Virtual: env.Virtual}, Dirs: []string{}, StallsSeconds: []float64{}}
		e.Seed, e.Schedule = c.Variant.drawn()
		var done []*report.Run
		impossible := Possible(env, c.Drill, c.Variant)
		failure := impossible
		for n := 0; n < repeat && failure == nil; n++ {
			name := c.Name()
			if repeat > 1 {
				name = fmt.Sprintf("%s-%d", name, n+1)
			}
			say("[%d/%d] %s: %s", i+1, len(choices), name, c.Variant.Title)
			opt.Dir = filepath.Join(dir, name)
			if failure = moveHome(ctx, env, c); failure != nil {
				break
			}
			began := time.Now()
			var r *report.Run
			if r, failure = runOn(ctx, &env, c.Drill, c.Variant, opt); failure != nil {
				break
			}
			done = append(done, r)
			say("[%d/%d] %s: %s, longest stall %s, %s lost; took %s", i+1, len(choices), name, strings.ToUpper(r.Summary.Verdict),
				report.Seconds(r.Summary.LongestStallSeconds), report.Bytes(r.Summary.LostBytes), report.Seconds(time.Since(began).Seconds()))
			for _, why := range r.Summary.Reasons {
				say("        %s", why)
			}
		}
		if len(done) > 0 {
			e = report.EntryOf(dir, done)
			runs = append(runs, done...)
		}
		if failure != nil {
			e.Verdict = report.NoVerdict
			var refused *fault.Refused
			if errors.As(failure, &refused) {
				e.Verdict = report.Refused
			}
			e.Reasons = append(e.Reasons, failure.Error())
			say("[%d/%d] %s: %v", i+1, len(choices), c.Name(), failure)
		}
		entries = append(entries, e)
		if err := report.SaveEntries(dir, entries); err != nil {
			return entries, runs, err
		}
		if err := ctx.Err(); err != nil {
			return entries, runs, cmp.Or(failure, err) // failure says what is still broken
		}
		if impossible != nil || failure == nil && !slices.ContainsFunc(done, unhealed) {
			continue
		}
		// Faults of one drill must not affect the next.
		if err := recuperate(ctx, env, opt); err != nil {
			if ctx.Err() != nil {
				return entries, runs, err
			}
			return entries, runs, &Broken{fmt.Errorf("after %s the brick did not become whole again, so the remaining %d drills were not done: %w", c.Name(), len(choices)-i-1, err)}
		}
	}
	return entries, runs, nil
}

// Broken is the error of drills that ended because the brick did not become whole.
type Broken struct{ error }

func (b *Broken) Unwrap() error { return b.error }

// powerCycle cuts the power of every server, gives it back, ends each standby, and waits
// until the brick is whole. It is an error if no PDU can be switched off, as on real
// hardware.
func powerCycle(ctx context.Context, env fault.Env, opt Options) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	e := &fault.Site{Scene: fault.Scene{Design: env.Design}, Env: env}
	var feeds []fault.Fault
	for _, p := range env.Design.Spec.PDUs {
		f := fault.Fault{Kind: fault.FeedOff, Args: []string{p.Name}}
		if err := e.Can(f); err != nil {
			return err
		}
		feeds = append(feeds, f)
	}
	if len(feeds) == 0 {
		return errNoPDU
	}
	e.Say("cutting the power of every server")
	var err error
	for _, f := range feeds {
		err = errors.Join(err, e.InjectorOf(f).Inject(ctx, f))
	}
	err = errors.Join(err, e.Sleep(ctx, 5*time.Second))
	for _, f := range feeds {
		err = errors.Join(err, e.InjectorOf(f).Heal(context.WithoutCancel(ctx), f))
	}
	if err = errors.Join(err, recuperate(ctx, env, opt)); err != nil || env.Operator == nil {
		return err
	}
	for _, server := range env.Design.Servers() {
		if err := env.Operator.Standby(ctx, server, false); err != nil {
			return err
		}
	}
	return recuperate(ctx, env, opt)
}

// unhealed reports whether a run did not restore the brick's health.
func unhealed(r *report.Run) bool {
	return slices.ContainsFunc(r.Summary.Checks, func(c report.Check) bool { return c.Name == judge.Health && !c.OK })
}

// moveHome moves the services to their preferred servers if the drill needs that. It
// does not move the service under test if the variant has Away. With one service
// a pair is symmetric: most drills begin on the server on which the last one
// ended, which saves the 30 s of grace of a move.
func moveHome(ctx context.Context, env fault.Env, c Choice) error {
	drilled, err := tested(env)
	if err != nil || env.Operator == nil || len(env.Design.Services()) == 1 && !c.Variant.Home {
		return err
	}
	for _, s := range env.Design.Services() {
		if s.Name == drilled.Name && c.Variant.Away {
			continue
		}
		if err := env.Operator.Move(ctx, s.Name, s.Preferred); err != nil {
			return fmt.Errorf("moving service %s to %s, where a drill begins: %w", s.Name, s.Preferred, err)
		}
	}
	return nil
}

// recuperate waits until the brick has no fault.
func recuperate(ctx context.Context, env fault.Env, opt Options) error {
	return (&fault.Site{Env: env}).Whole(ctx, "the brick", opt.WithDefaults(env.Virtual).Rejoin)
}

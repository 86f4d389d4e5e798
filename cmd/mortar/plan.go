package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/build/plan"
	"github.com/mortarhpc/mortar/internal/host"
)

// connectOptions are patient: a host that installs packages, makes file systems
// or is loaded to the brim is not gone because it is busy.
var connectOptions = host.Options{KeepAlive: 5 * time.Second, Missed: 6}

// patience is how long such a host may give no sign of life.
var patience = connectOptions.KeepAlive * time.Duration(connectOptions.Missed)

// preparation is a plan and the hosts it was made for.
type preparation struct {
	plan  *plan.Plan
	hosts map[string]*host.Session
}

func (p *preparation) close() { host.CloseAll(p.hosts) }

// prepare does everything that comes before the first change: reach every
// host, observe, compare. Whatever fails here is bad input: nothing was
// changed. With keep, a cluster key that has to be made is kept.
func prepare(ctx context.Context, d *design.Design, keep bool, progress func(host, what string)) (*preparation, error) {
	targets, err := host.Inventory(d.Spec)
	if err != nil {
		return nil, fail(exitBadInput, err)
	}
	opts := connectOptions
	opts.Progress = progress
	hosts, err := host.ConnectAll(ctx, targets, opts)
	if errors.Is(err, host.ErrUnreachable) {
		return nil, &unreachable{refused(ctx, d.Spec, err)}
	} else if err != nil {
		return nil, refused(ctx, d.Spec, err)
	}
	p := &preparation{hosts: hosts}
	binaries := map[string]string{}
	for _, v := range d.Spec.Servers {
		hello, err := hosts[v.Name].Hello(ctx)
		if err != nil {
			p.close()
			return nil, refused(ctx, d.Spec, err)
		}
		binaries[v.Name] = hello.Binary
	}
	if p.plan, err = compare(ctx, d, p.hosts, binaries, keep, progress); err != nil {
		p.close()
		return nil, refused(ctx, d.Spec, err)
	}
	return p, nil
}

// unreachable is a refusal because a host does not answer.
type unreachable struct{ error }

func (u *unreachable) Unwrap() error { return u.error }

func compare(ctx context.Context, d *design.Design, hosts map[string]*host.Session, binaries map[string]string, keep bool, progress func(host, what string)) (*plan.Plan, error) {
	progress("", "observing")
	var steps []plan.Step
	for try := 0; ; try++ {
		facts, err := plan.Observe(ctx, hosts)
		if err != nil {
			return nil, err
		}
		steps, err = plan.Desired(d, facts, plan.Secrets(d.Spec, keep))
		// A service that moves while the servers are asked, one after the other,
		// can look as if two had it.
		if two := (plan.Refusals)(nil); errors.As(err, &two) && try == 0 {
			continue
		}
		if err != nil {
			return nil, err
		}
		break
	}
	progress("", "comparing")
	p, err := plan.Build(ctx, append(plan.BinaryLinks(binaries), steps...), hosts)
	if err != nil {
		return nil, err
	}
	p.DigestKey, err = plan.DigestKey(d.Spec, keep)
	return p, err
}

// refused ends a command that has changed nothing. What is wrong with a host
// or disk is shown with the place where the spec has it.
func refused(ctx context.Context, s *spec.Spec, err error) error {
	if ctx.Err() != nil {
		return fail(exitInterrupted, errors.New("interrupted; nothing was changed"))
	}
	return fail(exitBadInput, fmt.Errorf("%w\nNothing was changed", located(s, err)))
}

// located gives errors of hosts and refusals their place in the spec.
func located(s *spec.Spec, err error) error {
	var several host.Errors
	var one *host.Error
	var refusals plan.Refusals
	var all spec.Errors
	add := func(hostName, field, what, mend string) {
		line, col := plan.Locate(s, hostName, field, what)
		all = append(all, &spec.Error{File: s.File, Line: line, Col: col, Msg: what, Mend: mend})
	}
	switch {
	case errors.As(err, &refusals):
		for _, r := range refusals {
			what := r.What
			if !strings.Contains(what, r.Host) {
				what = r.Host + ": " + what
			}
			add(r.Host, "name", what, r.Mend)
		}
	case errors.As(err, &several):
	case errors.As(err, &one):
		several = host.Errors{one.Host: one}
	default:
		return err
	}
	for _, e := range several {
		if !errors.As(e, &one) {
			return err
		}
		field := "address"
		if errors.Is(one, host.ErrHostKey) {
			field = "host_key"
		}
		line, col := plan.Locate(s, one.Host, field, "")
		bare := *one
		bare.Mend = ""
		all = append(all, &spec.Error{File: s.File, Line: line, Col: col, Msg: bare.Error(), Mend: one.Mend})
	}
	slices.SortStableFunc(all, func(a, b *spec.Error) int { return cmp.Or(a.Line-b.Line, a.Col-b.Col) })
	return all
}

// connectProgress shows on a terminal what is being done before a plan.
func connectProgress(w io.Writer, live bool) (progress func(host, what string), done func()) {
	if !live {
		return func(string, string) {}, func() {}
	}
	start := time.Now()
	var mu sync.Mutex
	return func(host, what string) {
			mu.Lock()
			defer mu.Unlock()
			if host != "" {
				what = host + ": " + what
			}
			fmt.Fprintf(w, "\r\x1b[K%s %s", stamp(start), what)
		}, func() {
			mu.Lock()
			defer mu.Unlock()
			fmt.Fprint(w, "\r\x1b[K")
		}
}

// planStyle marks up a plan on a terminal.
func planStyle(colour bool) plan.Style {
	if !colour {
		return plan.Style{}
	}
	mark := func(code string) func(string) string {
		return func(s string) string { return "\x1b[" + code + "m" + s + "\x1b[0m" }
	}
	return plan.Style{Host: mark("1"), Title: mark("36"), Add: mark("32"), Remove: mark("31"), Dim: mark("2"), Warn: mark("1;31")}
}

func newPlanCmd() *cobra.Command {
	var asJSON, detailed, offline bool
	var profile string
	cmd := &cobra.Command{
		Use:   "plan SPEC",
		Short: "Show what apply would change, host by host, with the exact commands and files",
		Long: `Reaches every host of the spec, compares what is there with what is wanted and
shows each change: the exact command, the file with its content or the
difference to the present one. Nothing is changed, except that the mortar
binary is copied to hosts that do not have it yet.

With --offline no host is reached: the plan is the one for blank hosts, and
secrets are not read. It works for every flavour, also for one that this
version cannot build.

Exit codes: 0 shown, 2 refused (bad spec, unreachable host, a disk with foreign
data …), 3 changes are pending (with --detailed-exitcode only).`,
		Example: `  mortar plan brick.yaml
  mortar plan brick.yaml --json | jq '.hosts[].changes[].step'`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if offline {
				return showOffline(cmd.Context(), args[0], profile, cmd.OutOrStdout(), asJSON)
			}
			d, err := loadDesignAs(args[0], profile)
			if err != nil {
				return err
			}
			pending, err := showPlan(cmd.Context(), d, cmd.OutOrStdout(), asJSON)
			if err == nil && pending && detailed {
				return fail(exitPending, nil)
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the plan as JSON")
	cmd.Flags().BoolVar(&offline, "offline", false, "plan for blank hosts, without reaching any")
	profileFlag(cmd, &profile)
	cmd.Flags().BoolVar(&detailed, "detailed-exitcode", false, "end with 3 if changes are pending")
	return cmd
}

// showOffline shows the plan of a brick whose hosts are blank.
func showOffline(ctx context.Context, file, profile string, w io.Writer, asJSON bool) error {
	d, err := loadAnyDesignAs(file, profile)
	if err != nil {
		return err
	}
	p, err := plan.Offline(ctx, d)
	if err != nil {
		return fail(exitFailed, err)
	}
	if asJSON {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		enc.SetEscapeHTML(false)
		return enc.Encode(p.Doc())
	}
	if len(d.Arrays) > 0 {
		fmt.Fprintln(w, "Before this: configure the arrays (mortar array script), and compare their LUNs (mortar array verify).")
	}
	if err := p.Show(w, planStyle(isTerminal(os.Stdout))); err != nil {
		return err
	}
	if err := design.Buildable(d.Spec); err != nil {
		fmt.Fprintf(w, "This is for reading: %v.\n", err)
	}
	return nil
}

func showPlan(ctx context.Context, d *design.Design, w io.Writer, asJSON bool) (pending bool, err error) {
	progress, done := connectProgress(os.Stderr, !asJSON && isTerminal(os.Stderr))
	p, err := prepare(ctx, d, false, progress)
	done()
	if err != nil {
		return false, err
	}
	defer p.close()
	if asJSON {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		enc.SetEscapeHTML(false)
		err = enc.Encode(p.plan.Doc())
	} else {
		err = p.plan.Show(w, planStyle(isTerminal(os.Stdout)))
	}
	if err != nil {
		return false, fail(exitFailed, err)
	}
	return len(p.plan.Pending()) > 0, nil
}

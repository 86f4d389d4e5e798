package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/build/plan"
	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/rack"
	"github.com/mortarhpc/mortar/internal/run/failover"
	"github.com/mortarhpc/mortar/internal/run/observe"
)

type fenceTestFlags struct {
	node, confirm string
	profile       string
	level         int
	asJSON        bool
	timeout       time.Duration
}

func newFenceTestCmd() *cobra.Command {
	var f fenceTestFlags
	cmd := &cobra.Command{
		Use:   "fence-test SPEC",
		Short: "Prove fencing: power each server off by each level, see it dead, and bring it back",
		Long: `Has the cluster fence each server by each level of its fencing, one level at a
time, and sees what came of it by other ways than the fence device's word: by
level 1 (the BMC) the chassis must be off; by level 2 (both outlets) the BMC
must die too; and the server must be gone from SSH, from ping and from the
cluster. Then everything is switched on again, and the server must come back
into the cluster by another boot.

A server that serves is not fenced: its services are moved to its partner
first, and back afterwards. Clients wait during both moves.

What is proven is recorded in the cluster, level by level; "mortar status" shows
it. A changed device counts as unproven. "mortar apply" does this test of
what is unproven at its end.

A test that was cut off leaves a mark in the cluster: the next fence-test, or
apply, switches the server on again first.

On real hardware the names of the servers are asked for; without a terminal
give them with --confirm.

Exit codes: 0 all proven, 1 a level failed (everything is on again), 2 refused
(nothing was changed), 130 interrupted (everything is on again).`,
		Example: `  mortar fence-test brick.yaml
  mortar fence-test brick.yaml --node nfs2 --level 2 --json
  mortar fence-test brick.yaml --confirm nfs1,nfs2`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runFenceTest(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout(), args[0], f)
		},
	}
	cmd.Flags().StringVar(&f.node, "node", "", "test this server only")
	profileFlag(cmd, &f.profile)
	cmd.Flags().IntVar(&f.level, "level", 0, "test this level only")
	cmd.Flags().StringVar(&f.confirm, "confirm", "", "names of the servers, separated by commas, to confirm a test on real hardware")
	cmd.Flags().BoolVar(&f.asJSON, "json", false, "print events as JSON lines, the result last")
	cmd.Flags().DurationVar(&f.timeout, "timeout", 30*time.Second, "how long a server that is up may take to answer")
	return cmd
}

// fenceTestDone is the last line of fence-test --json.
type fenceTestDone struct {
	Tests   []failover.LevelResult `json:"tests"`
	Seconds float64                `json:"seconds"`
	Error   string                 `json:"error,omitempty"`
}

func runFenceTest(ctx context.Context, in io.Reader, w io.Writer, file string, f fenceTestFlags) (err error) {
	start := time.Now()
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	done := fenceTestDone{Tests: []failover.LevelResult{}}
	defer func() {
		done.Seconds = time.Since(start).Seconds()
		if err != nil {
			done.Error = err.Error()
		}
		if f.asJSON {
			err = errors.Join(err, enc.Encode(done))
		}
	}()
	d, err := loadDesignAs(file, f.profile)
	if err != nil {
		return err
	}
	levels, err := chosenLevels(d, f.node, f.level)
	if err != nil {
		return fail(exitBadInput, err)
	}
	if !virtualRack(ctx, d.Spec) {
		if err := confirmFencing(in, w, levels, f.confirm, f.asJSON); err != nil {
			return err
		}
	}
	release, err := plan.Lock(d.Spec)
	if err != nil {
		return fail(exitBadInput, err)
	}
	defer release()
	c, err := newCollector(d, f.timeout/2, f.timeout, serverNamesOf(d)...)
	if err != nil {
		return err
	}
	defer c.Close()
	o := failover.ProofOptions{On: fenceProgress(w, enc, start, f.asJSON)}
	if _, err := resumeFenceTest(ctx, d, c, o); err != nil {
		return fenceTestFailed(ctx, err)
	}
	rs, err := failover.ProveFencing(ctx, d, c, levels, o)
	done.Tests = append(done.Tests, rs...)
	if err != nil {
		return fenceTestFailed(ctx, err)
	}
	if !f.asJSON {
		fmt.Fprintf(w, "Fencing proven: %s (%.0f s).\n", provenText(rs), time.Since(start).Seconds())
	}
	return nil
}

// provenText says what was proven, by server.
func provenText(rs []failover.LevelResult) string {
	var out []string
	for _, r := range rs {
		out = append(out, fmt.Sprintf("%s level %d in %.1f s", r.Node, r.Level, r.Seconds))
	}
	return strings.Join(out, ", ")
}

// fenceTestFailed gives an error of a test its exit code.
func fenceTestFailed(ctx context.Context, err error) error {
	var refused *resource.Refusal
	var failed *failover.ProofFailed
	switch {
	case errors.As(err, &refused):
		return fail(exitBadInput, err)
	case ctx.Err() != nil:
		if err == ctx.Err() { //nolint:errorlint // that and nothing else
			return fail(exitInterrupted, errors.New("interrupted; everything that the fence test switched off is on again"))
		}
		return fail(exitInterrupted, fmt.Errorf("interrupted: %w", err))
	case errors.As(err, &failed):
		after := "Everything was switched on again."
		if failed.Left != nil {
			after = "Not everything could be put back: mend that, and run the test again."
		}
		return fail(exitFailed, fmt.Errorf("fencing does not work:\n%w\n%s Until it is mended, a failure of that server may stop its service for good", err, after))
	}
	return fail(exitFailed, err)
}

// chosenLevels are those of a node and level, or all.
func chosenLevels(d *design.Design, node string, level int) ([]*design.FenceLevel, error) {
	if !d.Clustered() {
		return nil, fmt.Errorf("brick %s has one server and no fencing: this needs flavour nfs-ha", d.Name)
	}
	if node != "" && len(d.Levels(node)) == 0 {
		return nil, fmt.Errorf("%s is not a server of this brick; choose one of %s", node, strings.Join(serverNamesOf(d), ", "))
	}
	var out []*design.FenceLevel
	for _, l := range d.Fencing() {
		if (node == "" || l.Node == node) && (level == 0 || l.Level == level) {
			out = append(out, l)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("there is no level %d of fencing; the levels are 1 and 2", level)
	}
	return out, nil
}

// virtualRack says whether a spec's hardware is a virtual rack that is up.
func virtualRack(ctx context.Context, s *spec.Spec) bool {
	_, err := rack.Status(ctx, rackOf(s))
	return err == nil
}

// rackOf is where the virtual rack of a spec is, if it has one.
func rackOf(s *spec.Spec) string { return filepath.Dir(host.InventoryFile(s)) }

// confirmFencing has the user name the servers that will be powered off.
func confirmFencing(in io.Reader, w io.Writer, levels []*design.FenceLevel, given string, asJSON bool) error {
	var nodes []string
	for _, l := range levels {
		if !slices.Contains(nodes, l.Node) {
			nodes = append(nodes, l.Node)
		}
	}
	want := strings.Join(nodes, ",")
	if given == "" && isTerminalReader(in) && !asJSON {
		fmt.Fprintf(w, "This is real hardware. One after the other, these servers are powered off and on; their services move away and back meanwhile.\nType %s to go on: ", want)
		line, err := bufio.NewReader(in).ReadString('\n')
		if err != nil {
			return fail(exitBadInput, fmt.Errorf("nothing was typed, nothing was changed: %w", err))
		}
		given = strings.TrimSpace(line)
	}
	switch given {
	case want:
		return nil
	case "":
		return fail(exitBadInput, fmt.Errorf("this is real hardware and nobody can be asked here: give --confirm %s; nothing was changed", want))
	}
	return fail(exitBadInput, fmt.Errorf("%q is not %q; nothing was changed", given, want))
}

// fenceProgress prints what happens.
func fenceProgress(w io.Writer, enc *json.Encoder, start time.Time, asJSON bool) func(failover.ProofEvent) {
	return func(e failover.ProofEvent) {
		if asJSON {
			_ = enc.Encode(e) // progress: the result's own write says if stdout is gone
			return
		}
		text := e.Text
		switch e.State {
		case "failed":
			text, _, _ = strings.Cut(text, "\n") // the whole is in the error
			text = bold("FAILED") + " " + text
		case "proven":
			text = bold("proven") + " " + text
		}
		fmt.Fprintf(w, "%s   %-10s %s\n", stamp(start), e.Node, text)
	}
}

// resumeFenceTest puts back what a fence test that was cut off left, and
// waits until the servers are in the cluster again.
func resumeFenceTest(ctx context.Context, d *design.Design, h failover.Hosts, o failover.ProofOptions) (resumed bool, err error) {
	for _, via := range serverNamesOf(d) {
		cctx, cancel := context.WithTimeout(ctx, 30*time.Second)
		nodes, err := failover.InterruptedProofs(cctx, d, h, via)
		cancel()
		if ctx.Err() != nil {
			return false, ctx.Err()
		}
		// A server that is off, or has no cluster, cannot tell; one that is
		// itself marked leaves it to its partner.
		if err != nil || slices.Contains(nodes, via) {
			continue
		}
		for _, n := range nodes {
			if err := failover.ResumeProof(ctx, d, h, via, n, o); err != nil {
				return true, err
			}
		}
		return len(nodes) > 0, nil
	}
	return false, nil
}

// prover does the fence test of an apply.
type prover struct {
	d    *design.Design
	opts failover.ProofOptions
	gate host.Gate
	c    *observe.Collector // nil while no server's cluster answers
	via  string             // a server whose cluster answers
}

func (pr *prover) close() {
	if pr.c != nil {
		pr.c.Close()
	}
	pr.c = nil
}

// open finds a server whose cluster answers, over the sessions there are. Where
// none does there is no cluster, or none yet.
func (pr *prover) open(ctx context.Context, hosts map[string]*host.Session) error {
	pr.close()
	if !pr.d.Clustered() {
		return nil
	}
	dial, err := dialHosts(pr.d, connectOptions)
	if err != nil {
		return err
	}
	c := observe.NewCollector(pr.d, dial, patience, serverNamesOf(pr.d)...).Under(pr.gate)
	for _, name := range serverNamesOf(pr.d) {
		if h := hosts[name]; h != nil {
			c.Keep(h)
		}
	}
	for _, via := range serverNamesOf(pr.d) {
		if _, err = failover.ReadCIB(ctx, c, via); err == nil {
			pr.c, pr.via = c, via
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}

// prepare makes a plan, after it has put back what a fence test that was cut
// off left: a server that is off cannot be planned for.
func (pr *prover) prepare(ctx context.Context, plan func() (*preparation, error)) (*preparation, error) {
	p, err := plan()
	if err != nil {
		if !pr.d.Clustered() || !errors.As(err, new(*unreachable)) {
			return nil, err
		}
		c, derr := newCollector(pr.d, 20*time.Second, patience, serverNamesOf(pr.d)...)
		if derr != nil {
			return nil, err
		}
		c.Under(pr.gate)
		defer c.Close()
		resumed, rerr := resumeFenceTest(ctx, pr.d, c, pr.opts)
		if rerr != nil {
			return nil, fenceTestFailed(ctx, rerr)
		}
		if !resumed {
			return nil, err
		}
		if p, err = plan(); err != nil {
			return nil, err
		}
	}
	if err := pr.open(ctx, p.hosts); err != nil {
		p.close()
		return nil, err
	}
	if pr.c == nil {
		return p, nil
	}
	resumed, err := resumeFenceTest(ctx, pr.d, pr.c, pr.opts)
	if err == nil && !resumed {
		return p, nil
	}
	pr.close()
	p.close()
	if err != nil {
		return nil, fenceTestFailed(ctx, err)
	}
	if p, err = plan(); err != nil {
		return nil, err
	}
	return p, pr.open(ctx, p.hosts)
}

// forget takes away proofs that count no more.
func (pr *prover) forget(ctx context.Context, levels []*design.FenceLevel) error {
	if pr.c == nil {
		return nil
	}
	return failover.ForgetProofs(ctx, pr.d, pr.c, pr.via, levels)
}

// prove ends an apply: it tests what is unproven.
func (pr *prover) prove(ctx context.Context, p *preparation, in io.Reader, w io.Writer, f applyFlags, done *applyDone) error {
	if !pr.d.Clustered() {
		return nil
	}
	if pr.c == nil {
		if err := pr.open(ctx, p.hosts); err != nil {
			return err
		}
		if pr.c == nil {
			return fail(exitFailed, errors.New("fence test: no server's cluster answers; see mortar status"))
		}
	}
	levels, err := failover.Unproven(ctx, pr.d, pr.c, pr.via)
	if err != nil {
		return fenceTestFailed(ctx, err)
	}
	if len(levels) == 0 {
		return nil
	}
	why := ""
	switch {
	case f.skipFenceTest:
		why = "--skip-fence-test"
	case !virtualRack(ctx, pr.d.Spec) && p.served():
		// It would interrupt clients twice; nobody asked for that by applying.
		why = "the service runs already, and a fence test moves it"
		if !f.yes && !f.asJSON && isTerminalReader(in) && confirmFencing(in, w, levels, "", false) == nil {
			why = ""
		}
	}
	if why != "" {
		for _, l := range levels {
			done.Unproven = append(done.Unproven, fmt.Sprintf("%s level %d", l.Node, l.Level))
		}
		if !f.asJSON {
			fmt.Fprintf(w, "Fencing is not proven (%s): %s. mortar fence-test %s proves it.\n", why, strings.Join(done.Unproven, ", "), pr.d.Spec.File)
		}
		return nil
	}
	if !f.asJSON {
		fmt.Fprintf(w, "Fence test: each level that is not proven is used, one by one (--skip-fence-test leaves it out)\n")
	}
	start := time.Now()
	done.FenceTests, err = failover.ProveFencing(ctx, pr.d, pr.c, levels, pr.opts)
	var refused *resource.Refusal
	switch {
	case errors.As(err, &refused):
		return fail(exitFailed, fmt.Errorf("everything is applied, but fencing could not be tested: %w", err))
	case err != nil:
		return fenceTestFailed(ctx, err)
	}
	if !f.asJSON {
		fmt.Fprintf(w, "Fencing proven: %s (%.0f s).\n", provenText(done.FenceTests), time.Since(start).Seconds())
	}
	return nil
}

// served says whether the services ran before anything was applied.
func (p *preparation) served() bool {
	return !slices.ContainsFunc(p.plan.Pending(), func(s plan.Planned) bool { return s.Stage == plan.StageService })
}

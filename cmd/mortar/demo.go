package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/prove/drill"
	"github.com/mortarhpc/mortar/internal/prove/report"
	"github.com/mortarhpc/mortar/internal/prove/versus"
	"github.com/mortarhpc/mortar/internal/run/cli"
)

// demoStep is one command of the demo.
type demoStep struct {
	say  string
	args []string
	// saved is the name under which the rack is saved after this step. A demo of the same
	// build restores it in place of the step, unless its rack is up.
	saved string
}

// demoSteps lists the README's commands in order.
func demoSteps(spec, dir, drill, how string) []demoStep {
	return []demoStep{
		{"the design: what one short file becomes", []string{"check", spec}, ""},
		{"the virtual rack: servers, clients, shared disks, BMCs, PDUs", []string{"rack", "up", spec}, "demo"},
		{"build the brick over SSH; the fence test is left out here: the drill fences a server anyway", []string{"apply", spec, "--yes", "--skip-fence-test"}, ""},
		{"a second apply must change nothing", []string{"apply", spec, "--yes", "--skip-fence-test"}, ""},
		{"health, from disk to client", []string{"status", spec}, ""},
		{"break it under load, then check every acknowledged byte", []string{"drill", newDrillRunCmd().Name(), spec, drill, "--how", how, "--seconds", "6", "--out", dir}, ""},
		{"the report", []string{"report", dir}, ""},
	}
}

func newDemoCmd() *cobra.Command {
	var dir, name, how string
	cmd := command("demo", func(ctx context.Context, c *cli.Console, _ []string) error {
		chosen, err := demoDrill(dir, name, how)
		if err != nil {
			return cli.Refuse(err)
		}
		return runDemo(ctx, c.Out, dir, name, chosen)
	})
	cmd.Flags().StringVar(&dir, "out", "out/demo", "directory for the spec, the run and the report")
	cmd.Flags().StringVar(&name, "drill", "server-crash", "drill to run")
	cmd.Flags().StringVar(&how, "how", "", "variant of the drill (default: its first)")
	return cmd
}

// demoDrill returns the variant of the demo's drill, and refuses one that the brick cannot have.
func demoDrill(dir, name, how string) (string, error) {
	d, v, err := drill.Find(name, how)
	if err != nil {
		return "", err
	}
	if err := writable(dir); err != nil {
		return "", fmt.Errorf("--out: %w", err)
	}
	des, err := cli.Load(filepath.Join(dir, "brick.yaml"))
	if errors.Is(err, fs.ErrNotExist) {
		des, err = cli.Example("nfs-ha")
	}
	if err != nil {
		return "", err
	}
	return v.How, possibleOnRack(des, "", d, v)
}

func runDemo(ctx context.Context, w io.Writer, dir, drill, how string) error {
	start := time.Now()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	spec := filepath.Join(dir, "brick.yaml")
	fmt.Fprintln(w, bold("Mortar demo")+": from one file to a proven HA NFS brick, on a virtual rack")
	if _, err := os.Stat(spec); errors.Is(err, os.ErrNotExist) {
		fmt.Fprintf(w, "\n%s %s\n", cli.Stamp(start), bold("$ mortar init nfs-ha > "+spec))
		var out bytes.Buffer
		if err := part(ctx, &out, "init", "nfs-ha"); err != nil {
			return err
		}
		if err := writeWhole(spec, out.Bytes()); err != nil {
			return err
		}
	} else {
		fmt.Fprintf(w, "\n%s using %s, which is there already\n", cli.Stamp(start), spec)
	}
	steps := demoSteps(spec, dir, drill, how)
	for i, s := range steps {
		save := false
		if s.saved != "" {
			save = !rackThere(spec)
			if restore := []string{"rack", "restore", spec, s.saved}; save && call(ctx, nothing(), io.Discard, io.Discard, append(restore, "--dry-run")...) == nil {
				s.args, s.say, save = restore, s.say+", just booted, as an earlier demo has saved them", false
			}
		}
		fmt.Fprintf(w, "\n%s %s\n%s\n", cli.Stamp(start), bold("$ mortar "+strings.Join(s.args, " ")),
			faint(fmt.Sprintf("        step %d of %d: %s", i+1, len(steps), s.say)))
		t := time.Now()
		err := part(ctx, w, s.args...)
		if err == nil && save {
			err = part(ctx, w, "rack", "save", spec, s.saved)
		}
		if err != nil {
			if ctx.Err() != nil {
				// An interrupted demo leaves nothing behind.
				fmt.Fprintf(w, "\n%s interrupted; taking the rack down\n", cli.Stamp(start))
				_ = part(context.WithoutCancel(ctx), w, "rack", "down", spec) // its error is printed
				return fail(exitInterrupted, nil)
			}
			fmt.Fprintf(w, "\n%s step failed: mortar %s: %v\nThe rack stays as it is. Look around:\n", cli.Stamp(start), s.args[0], err)
			demoHints(w, spec)
			return err
		}
		fmt.Fprintf(w, "%s\n", faint(fmt.Sprintf("        %s done in %.0f s", s.args[0], time.Since(t).Seconds())))
	}
	return demoSummary(w, start, dir, spec)
}

// rackThere reports whether the demo's rack is up.
func rackThere(spec string) bool {
	s, err := cli.ReadSpec(spec)
	if err != nil {
		return false
	}
	_, err = os.Stat(rackOf(s))
	return err == nil
}

// nothing is the standard input of a command that is part of another one.
func nothing() io.Reader { return strings.NewReader("") }

// part runs a command that is part of another one. The command prints its error; that of part has
// its exit code. One whose context cannot end is a clean-up, which a second Ctrl-C does not stop.
func part(ctx context.Context, w io.Writer, args ...string) error {
	if ctx.Done() == nil {
		defer cli.Uninterrupted()()
	}
	err := call(ctx, nothing(), w, stderr, args...)
	var ee *cli.Exit
	switch {
	case err != nil && ctx.Err() != nil:
		return fail(exitInterrupted, fmt.Errorf("interrupted during mortar %s", args[0]))
	case errors.As(err, &ee):
		return fail(ee.Code, nil)
	}
	return err
}

// demoSummary prints what the demo built and broke, how long clients waited, and how many
// bytes it compared and lost.
func demoSummary(w io.Writer, start time.Time, dir, spec string) error {
	r, err := report.Load(dir)
	if err != nil {
		return err
	}
	s := &r.Summary
	fmt.Fprintf(w, "\n%s\n", bold("Summary"))
	d, err := cli.Load(spec)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "  built     %s brick %q: %d servers, %d disks in %d enclosures, %d RAID group(s), usable %.2f GiB\n", d.Flavour, d.Name,
		len(d.Spec.Servers), len(d.Disks), len(d.Spec.Enclosures), len(d.Groups), float64(d.Capacity.Usable)/(1<<30))
	fmt.Fprintf(w, "  broken    %s (%s) under verified load\n", s.Drill, s.How)
	fmt.Fprintf(w, "  waited    %s: the longest stall any client saw%s\n", report.Seconds(s.LongestStallSeconds), s.PhasesText())
	fmt.Fprintf(w, "  checked   %s acknowledged, %s read back uncached from another mount\n", report.Bytes(s.AcknowledgedBytes), report.Bytes(s.VerifiedBytes))
	fmt.Fprintf(w, "  lost      %d bytes\n", s.LostBytes)
	fmt.Fprintf(w, "  verdict   %s\n", bold(s.Verdict))
	fmt.Fprintf(w, "  left out  the fence test of every level (apply --skip-fence-test): mortar fence-test %s does it\n", spec)
	fmt.Fprintf(w, "  took      %.0f s\n\n", time.Since(start).Seconds())
	fmt.Fprintf(w, "Report: %s   Data: %s\n", filepath.Join(dir, "report.html"), filepath.Join(dir, "summary.json"))
	demoHints(w, spec)
	if s.Verdict != report.Pass {
		return fail(exitFailed, nil)
	}
	return nil
}

// demoHints prints how to look around and how to take the rack down.
func demoHints(w io.Writer, spec string) {
	fmt.Fprintf(w, `  mortar status %[1]s             health, from disk to client
  mortar rack ssh %[1]s nfs1      a shell on a server
  mortar rack status %[1]s        power, links and disks of the virtual hardware
  mortar rack down %[1]s          take it all down
(mortar is bin/mortar)
`, spec)
}

// againstStock builds and measures a brick with each profile. Source: versus.Comparison.
func againstStock(ctx context.Context, w io.Writer, specFile, dir string, measure func(file, run string) []string) (map[spec.Profile]string, error) {
	if err := writable(dir); err != nil {
		return nil, fail(exitBadInput, fmt.Errorf("--out: %w", err))
	}
	start := time.Now()
	c := versus.Comparison{Spec: specFile, Dir: dir, Measure: measure, Mortar: func(ctx context.Context, args ...string) error {
		return step(ctx, w, w, start, args)
	}}
	runs, err := c.Run(ctx)
	if child := (*cli.Exit)(nil); err != nil && !errors.As(err, &child) {
		err = fail(exitBadInput, err)
	}
	return runs, err
}

// given are the flags that the user gave a command, for a child command: without those that have
// no meaning there.
func given(cmd *cobra.Command, without ...string) (out []string) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		v := f.Value.String()
		if list, ok := f.Value.(pflag.SliceValue); ok {
			v = strings.Join(list.GetSlice(), ",")
		}
		if !slices.Contains(append(without, "out", "json", "confirm"), f.Name) {
			out = append(out, "--"+f.Name+"="+v)
		}
	})
	return out
}

// step prints a command and runs it.
func step(ctx context.Context, out, progress io.Writer, start time.Time, args []string) error {
	fmt.Fprintf(progress, "\n%s %s\n", cli.Stamp(start), bold("$ mortar "+strings.Join(args, " ")))
	return part(ctx, out, args...)
}

// Package demo is mortar demo: the README's commands one after the other, up to a brick on a
// virtual rack that has survived a drill, and its report.
//
// Package demo has their order, and tells what they show. It does nothing by itself.
package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/renameio/v2"

	"github.com/mortarhpc/mortar/internal/prove/drill"
	"github.com/mortarhpc/mortar/internal/prove/inject"
	"github.com/mortarhpc/mortar/internal/prove/report"
	"github.com/mortarhpc/mortar/internal/run/cli"
)

// Demo is what a demo shows.
type Demo struct {
	Dir        string // for the spec, the run and the report
	Drill, How string // "": the first variant of the drill
}

// step is one command of the demo.
type step struct {
	say  string
	args []string
	// saved is the name under which the rack is saved after this step. A demo of the same
	// build restores it in place of the step, unless its rack is up.
	saved string
}

func (d *Demo) spec() string { return filepath.Join(d.Dir, "brick.yaml") }

// steps lists the README's commands in order.
func (d *Demo) steps() []step {
	spec := d.spec()
	return []step{
		{"the design: what one short file becomes", []string{"check", spec}, ""},
		{"the virtual rack: servers, clients, shared disks, BMCs, PDUs", []string{"rack", "up", spec}, "demo"},
		{"build the brick over SSH; the fence test is left out here: the drill fences a server anyway", []string{"apply", spec, "--yes", "--skip-fence-test"}, ""},
		{"a second apply must change nothing", []string{"apply", spec, "--yes", "--skip-fence-test"}, ""},
		{"health, from disk to client", []string{"status", spec}, ""},
		{"break it under load, then check every acknowledged byte", append(strings.Fields("drill run"), spec, d.Drill, "--how", d.How, "--seconds", "6", "--out", d.Dir), ""},
		{"the report", []string{"report", d.Dir}, ""},
	}
}

// check chooses the variant of the drill, and refuses one that the brick cannot have.
func (d *Demo) check() error {
	x, v, err := drill.Find(d.Drill, d.How)
	if err != nil {
		return err
	}
	d.How = v.How
	if err := cli.Writable(d.Dir); err != nil {
		return err
	}
	des, err := cli.Load(d.spec())
	if errors.Is(err, fs.ErrNotExist) {
		des, err = cli.Example("nfs-ha")
	}
	if err != nil {
		return err
	}
	return drill.Possible(inject.OnRack(des, ""), x, v)
}

// Run shows everything.
func (d *Demo) Run(ctx context.Context, c *cli.Console) error {
	if err := d.check(); err != nil {
		return cli.Refuse(err)
	}
	if err := os.MkdirAll(d.Dir, 0o755); err != nil {
		return err
	}
	fmt.Fprintln(c.Out, c.Bold("Mortar demo")+": from one file to a proven HA NFS brick, on a virtual rack")
	if err := d.writeSpec(ctx, c); err != nil {
		return err
	}
	steps := d.steps()
	for i, s := range steps {
		save := false
		if s.saved != "" {
			brick, err := cli.ReadSpec(d.spec())
			if err != nil {
				return err
			}
			save = !c.Virtual(ctx, brick)
			if restore := []string{"rack", "restore", d.spec(), s.saved}; save && c.Call(ctx, strings.NewReader(""), io.Discard, io.Discard, append(restore, "--dry-run")...) == nil {
				s.args, s.say, save = restore, s.say+", just booted, as an earlier demo has saved them", false
			}
		}
		c.Typing("mortar " + strings.Join(s.args, " "))
		fmt.Fprintln(c.Out, c.Faint(fmt.Sprintf("        step %d of %d: %s", i+1, len(steps), s.say)))
		t := time.Now()
		err := c.Part(ctx, c.Out, s.args...)
		if err == nil && save {
			err = c.Part(ctx, c.Out, "rack", "save", d.spec(), s.saved)
		}
		if err != nil {
			if ctx.Err() != nil {
				// An interrupted demo leaves nothing behind.
				fmt.Fprintf(c.Out, "\n%s interrupted; taking the rack down\n", cli.Stamp(c.Start))
				_ = c.Part(context.WithoutCancel(ctx), c.Out, "rack", "down", d.spec()) // its error is printed
				return cli.Fail(cli.Interrupted, nil)
			}
			fmt.Fprintf(c.Out, "\n%s step failed: mortar %s: %v\nThe rack stays as it is. Look around:\n", cli.Stamp(c.Start), s.args[0], err)
			d.hints(c.Out)
			return err
		}
		fmt.Fprintln(c.Out, c.Faint(fmt.Sprintf("        %s done in %.0f s", s.args[0], time.Since(t).Seconds())))
	}
	return d.summary(c)
}

// writeSpec writes the spec, unless there is one.
func (d *Demo) writeSpec(ctx context.Context, c *cli.Console) error {
	if _, err := os.Stat(d.spec()); !errors.Is(err, os.ErrNotExist) {
		fmt.Fprintf(c.Out, "\n%s using %s, which is there already\n", cli.Stamp(c.Start), d.spec())
		return nil
	}
	c.Typing("mortar init nfs-ha > " + d.spec())
	var out bytes.Buffer
	if err := c.Part(ctx, &out, "init", "nfs-ha"); err != nil {
		return err
	}
	return renameio.WriteFile(d.spec(), out.Bytes(), 0o644)
}

// summary prints what the demo built and broke, how long clients waited, and how many
// bytes it compared and lost.
func (d *Demo) summary(c *cli.Console) error {
	w := c.Out
	r, err := report.Load(d.Dir)
	if err != nil {
		return err
	}
	s := &r.Summary
	fmt.Fprintf(w, "\n%s\n", c.Bold("Summary"))
	des, err := cli.Load(d.spec())
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "  built     %s brick %q: %d servers, %d disks in %d enclosures, %d RAID group(s), usable %.2f GiB\n", des.Flavour, des.Name,
		len(des.Spec.Servers), len(des.Disks), len(des.Spec.Enclosures), len(des.Groups), float64(des.Capacity.Usable)/(1<<30))
	fmt.Fprintf(w, "  broken    %s (%s) under verified load\n", s.Drill, s.How)
	fmt.Fprintf(w, "  waited    %s: the longest stall any client saw%s\n", report.Seconds(s.LongestStallSeconds), s.PhasesText())
	fmt.Fprintf(w, "  checked   %s acknowledged, %s read back uncached from another mount\n", report.Bytes(s.AcknowledgedBytes), report.Bytes(s.VerifiedBytes))
	fmt.Fprintf(w, "  lost      %d bytes\n", s.LostBytes)
	fmt.Fprintf(w, "  verdict   %s\n", c.Bold(s.Verdict))
	fmt.Fprintf(w, "  left out  the fence test of every level (apply --skip-fence-test): mortar fence-test %s does it\n", d.spec())
	fmt.Fprintf(w, "  took      %.0f s\n\n", time.Since(c.Start).Seconds())
	fmt.Fprintf(w, "Report: %s   Data: %s\n", filepath.Join(d.Dir, report.HTMLFile), filepath.Join(d.Dir, report.SummaryFile))
	d.hints(w)
	if s.Verdict != report.Pass {
		return cli.Fail(cli.Failed, nil)
	}
	return nil
}

// hints prints how to look around and how to take the rack down.
func (d *Demo) hints(w io.Writer) {
	fmt.Fprintf(w, `  mortar status %[1]s             health, from disk to client
  mortar rack ssh %[1]s nfs1      a shell on a server
  mortar rack status %[1]s        power, links and disks of the virtual hardware
  mortar rack down %[1]s          take it all down
(mortar is bin/mortar)
`, d.spec())
}

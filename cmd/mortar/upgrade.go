package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/run/upgrade"
)

// upgradeFlags are those of mortar upgrade.
type upgradeFlags struct {
	node                                      string
	rebootOnly, noFenceTest, yes, dry, asJSON bool
	timeout                                   time.Duration
}

func newUpgradeCmd() *cobra.Command {
	var f upgradeFlags
	cmd := command("upgrade", func(cmd *cobra.Command, args []string) error { return f.run(cmd, args[0]) })
	cmd.Flags().StringVar(&f.node, "node", "", "upgrade this server only")
	cmd.Flags().BoolVar(&f.rebootOnly, "reboot-only", false, "leave the packages as they are")
	cmd.Flags().BoolVar(&f.noFenceTest, "skip-fence-test", false, "do not prove the fencing of each server again")
	cmd.Flags().BoolVar(&f.yes, "yes", false, "do not ask")
	cmd.Flags().BoolVar(&f.dry, "dry-run", false, "only show what would be done, by the package lists that the servers have")
	cmd.Flags().BoolVar(&f.asJSON, "json", false, "print events as JSON lines, the result last")
	cmd.Flags().DurationVar(&f.timeout, "timeout", 30*time.Second, "how long a server that is up may take to answer")
	return cmd
}

// upgradeDone is the last line of mortar upgrade --json.
type upgradeDone struct {
	Servers []upgrade.Done   `json:"servers"`
	Planned []upgrade.Server `json:"planned"`
	DryRun  bool             `json:"dry_run,omitempty"`
	Seconds float64          `json:"seconds"`
	Error   string           `json:"error,omitempty"`
}

func (f *upgradeFlags) run(cmd *cobra.Command, file string) (err error) {
	ctx, w := cmd.Context(), cmd.OutOrStdout()
	t := &teller{w, f.asJSON, time.Now()}
	done := upgradeDone{Servers: []upgrade.Done{}, Planned: []upgrade.Server{}, DryRun: f.dry}
	defer t.end(&err, func(seconds float64, failed string) any {
		done.Seconds, done.Error = seconds, failed
		return done
	})
	d, err := loadDesign(file)
	if err != nil {
		return err
	}
	c, err := newCollector(d, f.timeout)
	if err != nil {
		return err
	}
	defer c.Close()
	u := upgrade.New(d, c, upgrade.Options{RebootOnly: f.rebootOnly, NoFenceTest: f.noFenceTest, On: f.progress(t),
		Apply: func(ctx context.Context) error { return f.apply(ctx, cmd, file) }})
	if done.Planned, err = u.Look(ctx, f.node); err != nil {
		return refused(ctx, d.Spec, err)
	}
	if !f.asJSON {
		f.show(w, d, done.Planned)
	}
	if f.dry {
		return nil
	}
	if err := mayAsk(cmd.InOrStdin(), f.yes, f.asJSON); err != nil {
		return err
	}
	if !f.yes {
		if err := confirm(ctx, cmd.InOrStdin(), w, fmt.Sprintf("\nUpgrade and reboot %d servers, one at a time?", len(done.Planned))); err != nil {
			return err
		}
	}
	release, err := claimBrick(ctx, d.Spec)
	if err != nil {
		return err
	}
	defer release()
	ctx = context.WithValue(ctx, claimed{}, true)
	for i, s := range done.Planned {
		r, err := u.Run(ctx, s)
		if err != nil {
			err = fmt.Errorf("%w%s", err, f.rest(file, done.Planned, i))
		}
		if ctx.Err() != nil {
			return fail(exitInterrupted, fmt.Errorf("interrupted: %w", err))
		}
		if err != nil {
			return err
		}
		done.Servers = append(done.Servers, r)
		t.say("%s is done in %.0f s: kernel %s, %d packages upgraded", bold(r.Server), r.Seconds, r.KernelTo, len(r.Upgraded))
	}
	return nil
}

// rest says how to go on if all servers but the last one of several are done.
func (f *upgradeFlags) rest(file string, planned []upgrade.Server, at int) string {
	if at == 0 || at < len(planned)-1 {
		return ""
	}
	command := fmt.Sprintf("mortar upgrade %s --node %s", file, planned[at].Name)
	if f.rebootOnly {
		command += " --reboot-only"
	}
	if f.noFenceTest {
		command += " --skip-fence-test"
	}
	return fmt.Sprintf("\nThe others are done. Go on with `%s`.", command)
}

// apply does what mortar apply does, without a fence test and without output.
func (f *upgradeFlags) apply(ctx context.Context, cmd *cobra.Command, file string) error {
	d, err := loadDesign(file)
	if err != nil {
		return err
	}
	return runApply(ctx, d, cmd.InOrStdin(), io.Discard, applyFlags{yes: true, skipFenceTest: true})
}

func (f *upgradeFlags) show(w io.Writer, d *design.Design, planned []upgrade.Server) {
	for _, s := range planned {
		text := fmt.Sprintf("%s: kernel %s", s.Name, s.Kernel)
		if s.Standby {
			text += "; in standby already, which ends"
		}
		if len(s.Serves) > 0 {
			text += fmt.Sprintf("; %s moves to %s and back", strings.Join(s.Serves, " and "), d.PairWith(s.Name).Other(s.Name))
		} else {
			text += "; serves nothing now"
		}
		if !f.rebootOnly {
			text += fmt.Sprintf("; %d packages are out of date, by the lists it has", len(s.Newer))
		}
		fmt.Fprintln(w, text)
		for _, p := range s.Newer {
			fmt.Fprintln(w, "  "+p)
		}
	}
}

func (f *upgradeFlags) progress(t *teller) func(upgrade.Event) {
	return func(e upgrade.Event) {
		text := e.Step
		if e.Text != "" {
			text = "  " + e.Text
		}
		t.event(e, e.Server, text)
	}
}

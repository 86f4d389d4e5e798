package change

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/run/cli"
	"github.com/mortarhpc/mortar/internal/run/upgrade"
)

// Upgrade chooses what an upgrade does.
type Upgrade struct {
	Node                    string // "": all servers
	RebootOnly, NoFenceTest bool
	Timeout                 time.Duration
}

// upgraded is the last line of mortar upgrade --json.
type upgraded struct {
	Servers []upgrade.Done   `json:"servers"`
	Planned []upgrade.Server `json:"planned"`
	DryRun  bool             `json:"dry_run,omitempty"`
	Seconds float64          `json:"seconds"`
	Error   string           `json:"error,omitempty"`
}

// Run upgrades the servers of a brick, one at a time.
func (f *Upgrade) Run(ctx context.Context, c *cli.Console, file string) (err error) {
	done := upgraded{Servers: []upgrade.Done{}, Planned: []upgrade.Server{}, DryRun: c.DryRun}
	defer c.End(&err, func(seconds float64, failed string) any {
		done.Seconds, done.Error = seconds, failed
		return done
	})
	d, hosts, err := c.Open(file, f.Timeout)
	if err != nil {
		return err
	}
	defer hosts.Close()
	u := upgrade.New(d, hosts, upgrade.Options{RebootOnly: f.RebootOnly, NoFenceTest: f.NoFenceTest,
		On: func(e upgrade.Event) {
			text := e.Step
			if e.Text != "" {
				text = "  " + e.Text
			}
			c.Event(e, e.Server, text)
		},
		Apply: func(ctx context.Context) error {
			d, err := cli.Load(file)
			if err != nil {
				return err
			}
			silent := *c
			silent.Out, silent.JSON = io.Discard, false
			return apply(ctx, &silent, d)
		}})
	if done.Planned, err = u.Look(ctx, f.Node); err != nil {
		return cli.Refused(ctx, d.Spec, err)
	}
	f.show(c, d, done.Planned)
	if c.DryRun {
		return nil
	}
	if err := c.Confirm(ctx, fmt.Sprintf("\nUpgrade and reboot %d servers, one at a time?", len(done.Planned))); err != nil {
		return err
	}
	release, err := c.Claim(ctx, d.Spec)
	if err != nil {
		return err
	}
	defer release()
	ctx = cli.Claimed(ctx)
	for i, s := range done.Planned {
		r, err := u.Run(ctx, s)
		if err != nil {
			err = fmt.Errorf("%w%s", err, f.rest(file, done.Planned, i))
		}
		if ctx.Err() != nil {
			return cli.Fail(cli.Interrupted, fmt.Errorf("interrupted: %w", err))
		}
		if err != nil {
			return err
		}
		done.Servers = append(done.Servers, r)
		c.Say("%s is done in %.0f s: kernel %s, %d packages upgraded", c.Bold(r.Server), r.Seconds, r.KernelTo, len(r.Upgraded))
	}
	return nil
}

// rest says how to go on if all servers but the last one of several are done.
func (f *Upgrade) rest(file string, planned []upgrade.Server, at int) string {
	if at == 0 || at < len(planned)-1 {
		return ""
	}
	command := fmt.Sprintf("mortar upgrade %s --node %s", file, planned[at].Name)
	if f.RebootOnly {
		command += " --reboot-only"
	}
	if f.NoFenceTest {
		command += " --skip-fence-test"
	}
	return fmt.Sprintf("\nThe others are done. Go on with `%s`.", command)
}

func (f *Upgrade) show(c *cli.Console, d *design.Design, planned []upgrade.Server) {
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
		if !f.RebootOnly {
			text += fmt.Sprintf("; %d packages are out of date, by the lists it has", len(s.Newer))
		}
		c.Printf("%s\n", text)
		for _, p := range s.Newer {
			c.Printf("  %s\n", p)
		}
	}
}

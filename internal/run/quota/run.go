package quota

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/converge/plan"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/run/cli"
)

// with finds the server of each service of a brick, or of the one that is named, and calls do.
func with(ctx context.Context, c *cli.Console, file, service string, do func([]Served) error) error {
	d, hosts, err := c.OpenServers(file, cli.HostTimeout)
	if err != nil {
		return err
	}
	defer hosts.Close()
	if d.Lustre != nil {
		return cli.Refuse(errors.New("quotas of Lustre are set by lfs setquota on a client"))
	}
	on, err := On(ctx, d, service, hosts.Session)
	if refused := (*resource.Refusal)(nil); errors.As(err, &refused) {
		return cli.Refuse(err)
	}
	if err != nil {
		return err
	}
	return do(on)
}

// Show prints the quotas of a brick, or of one of its services.
func Show(ctx context.Context, c *cli.Console, file, service string) error {
	return with(ctx, c, file, service, func(on []Served) error {
		all := []Entry{}
		for _, s := range on {
			for _, k := range s.Kinds {
				es, err := Report(ctx, s.Host, s.Service, k)
				if err != nil {
					return fmt.Errorf("%s: %w", s.Server, err)
				}
				all = append(all, es...)
			}
			if len(s.Kinds) == 0 {
				c.Printf("%v\n", Off(s.Service, "user"))
			}
		}
		return c.Line(all, func(w io.Writer) error { return Table(w, all) })
	})
}

// changed is what --json prints of a change of quotas.
type changed struct {
	Service string   `json:"service"`
	Server  string   `json:"server"`
	Title   string   `json:"title"`
	Command []string `json:"command"`
	Changed bool     `json:"changed"`
	DryRun  bool     `json:"dry_run,omitempty"`
	Error   string   `json:"error,omitempty"`
}

// Change runs an action on the server of the service, whose quotas are of a kind.
func Change(ctx context.Context, c *cli.Console, file, service, kind string, make func(*design.Service) (resource.Action, error)) error {
	return with(ctx, c, file, service, func(on []Served) error {
		if len(on) != 1 {
			return cli.Refuse(errors.New("there are two services: name one with --service"))
		}
		s := on[0]
		a, err := make(s.Service)
		if err == nil && !slices.Contains(s.Kinds, kind) {
			err = Off(s.Service, kind)
		}
		if err != nil {
			return cli.Refuse(err)
		}
		c.Printf("%s: %s\n  $ %s\n", s.Server, a.Title, plan.Quote(a.Cmd))
		if !c.DryRun {
			err = s.Run(ctx, a)
		}
		done := changed{Service: s.Name, Server: s.Server, Title: a.Title, Command: a.Cmd, Changed: !c.DryRun && err == nil, DryRun: c.DryRun}
		if err != nil {
			done.Error = err.Error()
		}
		return errors.Join(c.Show(done, func(io.Writer) error { return nil }), err)
	})
}

package scrub

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/mortarhpc/mortar/internal/run/cli"
)

// All scrubs the RAID groups of a brick with those names, or all, and prints what it finds; text
// describes the result of a group.
func All(ctx context.Context, c *cli.Console, file string, names []string, repair bool, text func(*Group) string) error {
	d, hosts, err := c.OpenServers(file, cli.HostTimeout)
	if err != nil {
		return err
	}
	defer hosts.Close()
	groups, err := Groups(d, names)
	if err != nil {
		return cli.Fail(cli.BadInput, err)
	}
	release, err := c.Claim(ctx, d.Spec) // keep apply out meanwhile
	if err != nil {
		return err
	}
	defer release()
	say := func(format string, args ...any) {
		fmt.Fprintf(c.Aside(), "%s %s\n", cli.Stamp(c.Start), fmt.Sprintf(format, args...))
	}
	var done []Group
	failed := false
	options := map[bool][]string{true: {Repair}}[repair]
	for _, g := range groups {
		say("scrub of %s", g.Name)
		last := time.Now()
		r, err := Run(ctx, hosts.Session, d, g, func(p float64) {
			if time.Since(last) >= 5*time.Second {
				last = time.Now()
				say("  %.0f %%", p)
			}
		}, options...)
		if err == nil {
			done = append(done, r)
			say("  %s", text(&r))
			continue
		}
		failed = true
		if say("  %v", err); ctx.Err() != nil {
			break
		}
	}
	if err := c.Line(done, func(io.Writer) error { return nil }); err != nil {
		return err
	}
	switch {
	case ctx.Err() != nil:
		return cli.Fail(cli.Interrupted, nil)
	case failed:
		return cli.Fail(cli.Failed, errors.New("not every group could be scrubbed"))
	case slices.ContainsFunc(done, func(g Group) bool { return !g.Clean() }):
		return cli.Fail(cli.Failed, nil)
	}
	return nil
}

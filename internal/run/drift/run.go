package drift

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/google/renameio/v2"

	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/converge/plan"
	"github.com/mortarhpc/mortar/internal/run/cli"
)

// Run compares bricks with their specs, all at the same time, so that one that hangs holds up no
// other, and prints them in the order of the files. It writes metrics into textfile, unless that
// is "". A brick that cannot be reached fails alone.
func Run(ctx context.Context, c *cli.Console, files []string, textfile string) error {
	results := make([]chan Drift, len(files))
	for i, file := range files {
		results[i] = make(chan Drift, 1)
		go func() { results[i] <- compare(ctx, c, file) }()
	}
	var all []Drift
	for _, result := range results {
		r := <-result
		if ctx.Err() != nil {
			return cli.Fail(cli.Interrupted, nil)
		}
		all = append(all, r)
		if err := c.Line(r, r.text); err != nil {
			return err
		}
	}
	if textfile != "" {
		if err := renameio.WriteFile(textfile, []byte(Metrics(all, time.Now())), 0o644); err != nil {
			return err
		}
	}
	switch {
	case slices.ContainsFunc(all, func(r Drift) bool { return r.Error != "" }):
		return cli.Fail(cli.BadInput, nil)
	case slices.ContainsFunc(all, func(r Drift) bool { return len(r.Pending) > 0 }):
		return cli.Fail(cli.Pending, nil)
	case slices.ContainsFunc(all, func(r Drift) bool { return len(r.LeftOut) > 0 }):
		return cli.Fail(cli.LeftOut, nil)
	}
	return nil
}

func compare(ctx context.Context, c *cli.Console, file string) Drift {
	r := Drift{Pending: []string{}}
	d, err := cli.Load(file)
	if err == nil {
		if r, err = Of(ctx, d, c.Preparing()); err != nil {
			err = plan.Located(d.Spec, err)
		}
	}
	if r.Spec = file; err != nil {
		r.Error = err.Error()
	}
	return r
}

func (r Drift) text(w io.Writer) error {
	name := cmp.Or(r.Brick, r.Spec)
	switch {
	case r.Error != "":
		fmt.Fprintf(w, "%s: cannot be compared: %s\n", name, strings.ReplaceAll(r.Error, "\n", "; "))
	case len(r.Pending) == 0:
		fmt.Fprintf(w, "%s: %d resources are as the spec has them\n", name, r.Resources)
	default:
		fmt.Fprintf(w, "%s: %d of %d resources are not as the spec has them\n", name, len(r.Pending), r.Resources)
		for _, p := range r.Pending {
			fmt.Fprintf(w, "  %s\n", p)
		}
	}
	if len(r.LeftOut) > 0 {
		fmt.Fprintf(w, "  no answer: %s\n", strings.Join(spec.Ranges(r.LeftOut), ", "))
	}
	return nil
}

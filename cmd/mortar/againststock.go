package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/prove/versus"
	"github.com/mortarhpc/mortar/internal/run/cli"
)

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

// step prints a command and runs it.
func step(ctx context.Context, out, progress io.Writer, start time.Time, args []string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	fmt.Fprintf(progress, "\n%s %s\n", cli.Stamp(start), bold("$ mortar "+strings.Join(args, " ")))
	return childFailed(ctx, args[0], runSelf(ctx, out, self, args))
}

// childFailed returns a child command's failure with the child's exit code. The child has
// already printed its error.
func childFailed(ctx context.Context, name string, err error) error {
	switch ee := (*exec.ExitError)(nil); {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fail(exitInterrupted, fmt.Errorf("interrupted during mortar %s", name))
	case errors.As(err, &ee) && ee.ExitCode() > 0:
		return fail(ee.ExitCode(), nil)
	}
	return fail(exitFailed, fmt.Errorf("mortar %s: %w", name, err))
}

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Part runs a command that is part of this one, with its output to out. The command prints its
// error; that of Part has its exit code. One whose context cannot end is a clean-up, which a second
// Ctrl-C does not stop.
func (c *Console) Part(ctx context.Context, out io.Writer, args ...string) error {
	if ctx.Done() == nil {
		defer Uninterrupted()()
	}
	err := c.Call(ctx, strings.NewReader(""), out, c.Err, args...)
	var ee *Exit
	switch {
	case err != nil && ctx.Err() != nil:
		return Fail(Interrupted, fmt.Errorf("interrupted during mortar %s", args[0]))
	case errors.As(err, &ee):
		return Fail(ee.Code, nil)
	}
	return err
}

// Step is Part for a command that the reader sees as if it were typed.
func (c *Console) Step(ctx context.Context, out io.Writer, args ...string) error {
	c.Typing("mortar " + strings.Join(args, " "))
	return c.Part(ctx, out, args...)
}

// Typing prints the line of a command that is part of this one.
func (c *Console) Typing(line string) {
	fmt.Fprintf(c.Aside(), "\n%s %s\n", Stamp(c.Start), c.Bold("$ "+line))
}

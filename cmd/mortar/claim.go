package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/mortarhpc/mortar/internal/converge/plan"
	"github.com/mortarhpc/mortar/internal/host/claim"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/run/cli"
)

func newUnlockCmd() *cobra.Command {
	var by string
	cmd := command("unlock", func(ctx context.Context, c *cli.Console, args []string) error {
		s, err := cli.ReadSpec(args[0])
		if err != nil {
			return err
		}
		ended, err := plan.Unlock(ctx, s, env.Connect, by)
		err = errors.Join(err, c.Line(ended, func(w io.Writer) error {
			for _, n := range slices.Sorted(maps.Keys(ended)) {
				claim := ended[n]
				fmt.Fprintf(w, "%s: the claim of %s is ended\n", n, &claim)
			}
			if err == nil && len(ended) == 0 {
				fmt.Fprintln(w, "nobody claims the brick")
			}
			return nil
		}))
		if refused := (*resource.Refusal)(nil); errors.As(err, &refused) {
			return fail(exitBadInput, err)
		}
		return err
	})
	cmd.Flags().StringVar(&by, "holder", "", "who holds the claim, as the refusal of a command names it")
	cmd.Flags().Bool("json", false, "print the claims that were ended, by server")
	_ = cmd.MarkFlagRequired("holder")
	return cmd
}

// newHostBrickCmd is the part of a claim that runs on a server; the agent runs one action at a
// time.
func newHostBrickCmd() *cobra.Command {
	var holder string
	cmd := hidden("host-brick", func(ctx context.Context, c *cli.Console, args []string) error {
		text, err := io.ReadAll(os.Stdin)
		if err == nil {
			err = claim.Change(claim.File(), holder, args[0], text)
		}
		return err
	})
	cmd.Flags().StringVar(&holder, "holder", "", "whose command this is")
	return cmd
}

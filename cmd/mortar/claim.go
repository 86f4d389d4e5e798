package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/converge/plan"
	"github.com/mortarhpc/mortar/internal/host/claim"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

// claimed marks the context of a command that is part of one which claims the brick.
type claimed struct{}

// claimBrick keeps other commands from changing the brick, on this machine and on others.
func claimBrick(ctx context.Context, s *spec.Spec) (release func(), err error) {
	if ctx.Value(claimed{}) != nil {
		return func() {}, nil
	}
	if release, err = plan.Claim(ctx, s, connectOptions); err != nil {
		return nil, fail(exitBadInput, fmt.Errorf("%w; nothing was changed", err))
	}
	return release, nil
}

func newUnlockCmd() *cobra.Command {
	var by string
	var asJSON bool
	cmd := command("unlock", func(cmd *cobra.Command, args []string) error {
		s, err := readSpec(args[0])
		if err != nil {
			return err
		}
		ended, err := plan.Unlock(cmd.Context(), s, connectOptions, by)
		if asJSON {
			err = errors.Join(err, json.NewEncoder(cmd.OutOrStdout()).Encode(ended))
		} else {
			for _, n := range slices.Sorted(maps.Keys(ended)) {
				c := ended[n]
				fmt.Fprintf(cmd.OutOrStdout(), "%s: the claim of %s is ended\n", n, &c)
			}
			if err == nil && len(ended) == 0 {
				fmt.Fprintln(cmd.OutOrStdout(), "nobody claims the brick")
			}
		}
		if refused := (*resource.Refusal)(nil); errors.As(err, &refused) {
			return fail(exitBadInput, err)
		}
		return err
	})
	cmd.Flags().StringVar(&by, "holder", "", "who holds the claim, as the refusal of a command names it")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the claims that were ended, by server")
	_ = cmd.MarkFlagRequired("holder")
	return cmd
}

// newHostBrickCmd is the part of a claim that runs on a server; the agent runs one action at a
// time.
func newHostBrickCmd() *cobra.Command {
	var holder string
	cmd := hidden("host-brick", func(cmd *cobra.Command, args []string) error {
		text, err := io.ReadAll(os.Stdin)
		if err == nil {
			err = claim.Change(claim.File(), holder, args[0], text)
		}
		return err
	})
	cmd.Flags().StringVar(&holder, "holder", "", "whose command this is")
	return cmd
}

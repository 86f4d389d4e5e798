package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"

	"github.com/mortarhpc/mortar/internal/converge/plan"
	"github.com/mortarhpc/mortar/internal/run/drift"
)

// driftsOf compares all bricks at the same time, so that one that hangs holds up no other.
// Each channel gets one result, in the order of the files.
func driftsOf(ctx context.Context, files []string) []chan drift.Drift {
	out := make([]chan drift.Drift, len(files))
	for i, file := range files {
		out[i] = make(chan drift.Drift, 1)
		go func() { out[i] <- driftOf(ctx, file) }()
	}
	return out
}

// runDrift compares each brick with its spec. A brick that cannot be reached fails alone.
func runDrift(cmd *cobra.Command, files []string, asJSON bool, textfile string) error {
	var all []drift.Drift
	for _, result := range driftsOf(cmd.Context(), files) {
		r := <-result
		if cmd.Context().Err() != nil {
			return fail(exitInterrupted, nil)
		}
		all = append(all, r)
		if asJSON {
			if err := json.NewEncoder(cmd.OutOrStdout()).Encode(r); err != nil {
				return err
			}
			continue
		}
		printDrift(cmd.OutOrStdout(), r)
	}
	if textfile != "" {
		if err := renameio.WriteFile(textfile, []byte(drift.Metrics(all, time.Now())), 0o644); err != nil {
			return err
		}
	}
	switch {
	case slices.ContainsFunc(all, func(r drift.Drift) bool { return r.Error != "" }):
		return fail(exitBadInput, nil)
	case slices.ContainsFunc(all, func(r drift.Drift) bool { return len(r.Pending) > 0 }):
		return fail(exitPending, nil)
	}
	return nil
}

func driftOf(ctx context.Context, file string) drift.Drift {
	r := drift.Drift{Pending: []string{}}
	d, err := loadDesign(file)
	if err == nil {
		if r, err = drift.Of(ctx, d, preparing(false, func(string, string) {})); err != nil {
			err = plan.Located(d.Spec, err)
		}
	}
	if r.Spec = file; err != nil {
		r.Error = err.Error()
	}
	return r
}

func printDrift(w io.Writer, r drift.Drift) {
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
}

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

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/build/plan"
	"github.com/mortarhpc/mortar/internal/run/observe"
)

// drift is how many resources of a brick's hosts differ from its spec.
type drift struct {
	Spec      string   `json:"spec,omitempty"`
	Brick     string   `json:"brick"`
	Resources int      `json:"resources"` // number of resources compared
	Pending   []string `json:"pending"`   // resources that differ
	Error     string   `json:"error,omitempty"`
}

// driftsOf compares all bricks at the same time, so that one that hangs holds up no other.
// Each channel gets one result, in the order of the files.
func driftsOf(ctx context.Context, files []string) []chan drift {
	out := make([]chan drift, len(files))
	for i, file := range files {
		out[i] = make(chan drift, 1)
		go func() { out[i] <- driftOf(ctx, file) }()
	}
	return out
}

// runDrift compares each brick with its spec. A brick that cannot be reached fails alone.
func runDrift(cmd *cobra.Command, files []string, asJSON bool, textfile string) error {
	var all []drift
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
		if err := renameio.WriteFile(textfile, []byte(driftMetrics(all, time.Now())), 0o644); err != nil {
			return err
		}
	}
	switch {
	case slices.ContainsFunc(all, func(r drift) bool { return r.Error != "" }):
		return fail(exitBadInput, nil)
	case slices.ContainsFunc(all, func(r drift) bool { return len(r.Pending) > 0 }):
		return fail(exitPending, nil)
	}
	return nil
}

func driftOf(ctx context.Context, file string) drift {
	r := drift{Spec: file, Pending: []string{}}
	d, err := loadDesign(file)
	if err != nil {
		r.Error = err.Error()
		return r
	}
	if r, err = compared(ctx, d); err != nil {
		r.Error = plan.Located(d.Spec, err).Error()
	}
	r.Spec = file
	return r
}

// compared compares a brick's hosts with its design.
func compared(ctx context.Context, d *design.Design) (drift, error) {
	r := drift{Brick: d.Name, Pending: []string{}}
	p, err := plan.Prepare(ctx, d, preparing(false, func(string, string) {}))
	if err != nil {
		return r, err
	}
	defer p.Close()
	r.Resources = len(p.Plan.Steps)
	for _, x := range p.Plan.Pending() {
		r.Pending = append(r.Pending, x.Host+": "+x.Title)
	}
	return r, nil
}

func printDrift(w io.Writer, r drift) {
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

// driftMetrics writes the comparison for node_exporter's textfile collector.
func driftMetrics(all []drift, now time.Time) string {
	var b strings.Builder
	family := func(name, help string, value func(drift) (float64, bool)) {
		fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s gauge\n", name, help, name)
		for _, r := range all {
			if v, ok := value(r); ok {
				fmt.Fprintf(&b, "%s{brick=%s,spec=%s} %g\n", name, observe.Label(r.Brick), observe.Label(r.Spec), v)
			}
		}
	}
	family("mortar_drift_resources", "Resources on hosts that are not as the spec has them.", func(r drift) (float64, bool) {
		return float64(len(r.Pending)), r.Error == ""
	})
	family("mortar_drift_error", "1 if the brick could not be compared with its spec.", func(r drift) (float64, bool) {
		if r.Error != "" {
			return 1, true
		}
		return 0, true
	})
	fmt.Fprintf(&b, "# HELP mortar_drift_checked_timestamp_seconds When bricks were compared.\n# TYPE mortar_drift_checked_timestamp_seconds gauge\nmortar_drift_checked_timestamp_seconds %d\n", now.Unix())
	return b.String()
}

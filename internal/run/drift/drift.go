// Package drift compares the hosts of bricks with their specs, for a timer and for the rehearsal
// of a restore.
//
// The package makes no plan by itself (package plan does), and changes nothing.
package drift

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/converge/plan"
	"github.com/mortarhpc/mortar/internal/run/metrics"
)

// Drift is how many resources of a brick's hosts differ from its spec.
type Drift struct {
	Spec      string   `json:"spec,omitempty"`
	Brick     string   `json:"brick"`
	Resources int      `json:"resources"`          // number of resources compared
	Pending   []string `json:"pending"`            // resources that differ
	LeftOut   []string `json:"left_out,omitempty"` // clients that do not answer
	Error     string   `json:"error,omitempty"`
}

// Of compares the hosts of a brick with its design.
func Of(ctx context.Context, d *design.Design, o plan.PrepareOptions) (Drift, error) {
	r := Drift{Brick: d.Name, Pending: []string{}}
	p, err := plan.Prepare(ctx, d, o)
	if err != nil {
		return r, err
	}
	defer p.Close()
	r.Resources, r.LeftOut = len(p.Plan.Steps), slices.Sorted(maps.Keys(p.Plan.Left))
	for _, x := range p.Plan.Pending() {
		r.Pending = append(r.Pending, x.Host+": "+x.Title)
	}
	return r, nil
}

// Metrics writes the comparison for node_exporter's textfile collector.
func Metrics(all []Drift, now time.Time) string {
	var b strings.Builder
	family := func(name, help string, value func(Drift) (float64, bool)) {
		b.WriteString(metrics.Head(name, "gauge", help))
		for _, r := range all {
			if v, ok := value(r); ok {
				b.WriteString(metrics.Sample(name, v, "brick", r.Brick, "spec", r.Spec))
			}
		}
	}
	family("mortar_drift_resources", "Resources on hosts that are not as the spec has them.", func(r Drift) (float64, bool) {
		return float64(len(r.Pending)), r.Error == ""
	})
	family("mortar_drift_error", "1 if the brick could not be compared with its spec.", func(r Drift) (float64, bool) {
		if r.Error != "" {
			return 1, true
		}
		return 0, true
	})
	fmt.Fprintf(&b, "# HELP mortar_drift_checked_timestamp_seconds When bricks were compared.\n# TYPE mortar_drift_checked_timestamp_seconds gauge\nmortar_drift_checked_timestamp_seconds %d\n", now.Unix())
	return b.String()
}

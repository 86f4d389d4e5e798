package bench

import (
	"context"

	"github.com/mortarhpc/mortar/internal/report"
)

// Bottleneck names the layer that bounds the rest, in a sentence.
func Bottleneck(layers []report.Layer) string { return "" }

func (r *runner) profile(ctx context.Context) {}

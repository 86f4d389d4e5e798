package chart

import (
	"math"
	"slices"
	"testing"
)

func TestStep(t *testing.T) {
	for _, tc := range []struct {
		span float64
		n    int
		want float64
	}{{10, 5, 2}, {11, 5, 5}, {100, 5, 20}, {0.3, 3, 0.1}, {60, 12, 5}, {0, 5, 1}, {math.NaN(), 5, 1}, {3, 0, 1}, {1e9, 1, 1e9}} {
		if got := Step(tc.span, tc.n); math.Abs(got-tc.want) > 1e-9*tc.want {
			t.Errorf("Step(%g, %d) = %g, not %g", tc.span, tc.n, got, tc.want)
		}
	}
}

func TestLinear(t *testing.T) {
	for _, tc := range []struct {
		top  float64
		want []float64
	}{
		{9, []float64{0, 2, 4, 6, 8, 10}},
		{9.99, []float64{0, 2, 4, 6, 8, 10, 12}}, // room above a curve along the edge
		{10, []float64{0, 2, 4, 6, 8, 10, 12}},
		{0, []float64{0, 1}},
	} {
		a := Linear(tc.top, 5)
		if !slices.Equal(a.Ticks, tc.want) {
			t.Errorf("Linear(%g): %v", tc.top, a.Ticks)
		}
		if a.At(0) != 0 || a.At(a.Ticks[len(a.Ticks)-1]) != 1 {
			t.Errorf("Linear(%g): its ends are at %g and %g", tc.top, a.At(0), a.At(a.Ticks[len(a.Ticks)-1]))
		}
	}
}

func TestLogarithmic(t *testing.T) {
	a := Decades(0.3, 2000)
	if len(a.Ticks) != 6 || math.Abs(a.Ticks[0]-0.1) > 1e-12 || math.Abs(a.Ticks[5]-1e4) > 1e-6 {
		t.Errorf("ticks %v", a.Ticks)
	}
	for v, want := range map[float64]float64{0.1: 0, 1: 0.2, 1e4: 1, 0: 0, 0.01: 0} {
		if got := a.At(v); math.Abs(got-want) > 1e-9 {
			t.Errorf("At(%g) = %g, not %g", v, got, want)
		}
	}
	if a := Decades(10, 10); len(a.Ticks) != 2 {
		t.Errorf("one decade at least: %v", a.Ticks)
	}
	b := Log(1, 8, 1, 2, 4, 8, 16)
	if !slices.Equal(b.Ticks, []float64{1, 2, 4, 8}) || math.Abs(b.At(2)-1.0/3) > 1e-9 {
		t.Errorf("%v, 2 at %g", b.Ticks, b.At(2))
	}
	if got := Log(4, 4, 4).At(4); got != 0.5 {
		t.Errorf("a single value at %g", got)
	}
}

package chart

import "math"

type Axis struct {
	Ticks []float64 // rising
	from  float64
	to    float64
	log   bool
}

// Linear returns an axis from 0 up to a round value that is at least top, with about n
// round steps. A curve that would run along the upper edge gets room above.
func Linear(top float64, n int) Axis {
	step := Step(top, n)
	end := step * math.Max(1, math.Ceil(top/step-1e-9))
	if top > 0.98*end {
		end += step
	}
	a := Axis{to: end}
	for i := 0.0; i*step <= end+step/1e6; i++ {
		a.Ticks = append(a.Ticks, i*step)
	}
	return a
}

// Decades returns a logarithmic axis, from the power of ten below low to the one above
// top, with a tick at each. low must be above 0.
func Decades(low, top float64) Axis {
	from, to := math.Floor(math.Log10(low)), math.Ceil(math.Log10(top))
	if to <= from {
		to = from + 1
	}
	a := Axis{from: math.Pow(10, from), to: math.Pow(10, to), log: true}
	for e := from; e <= to; e++ {
		a.Ticks = append(a.Ticks, math.Pow(10, e))
	}
	return a
}

// Log returns a logarithmic axis between two values above 0, whatever they are. Ticks are
// those of the given values that lie between them.
func Log(from, to float64, ticks ...float64) Axis {
	a := Axis{from: from, to: to, log: true}
	for _, t := range ticks {
		if t >= from && t <= to {
			a.Ticks = append(a.Ticks, t)
		}
	}
	return a
}

// At returns where v lies: 0 at the axis' beginning, 1 at its end. On a
// logarithmic axis what lies below its beginning is drawn there. On one of no
// length every value is in the middle.
func (a Axis) At(v float64) float64 {
	from, to := a.from, a.to
	if a.log {
		from, to, v = math.Log(from), math.Log(to), math.Log(math.Max(v, a.from))
	}
	if to == from {
		return 0.5
	}
	return (v - from) / (to - from)
}

// Step returns the distance between round ticks, so that at most n of them
// divide span.
func Step(span float64, n int) float64 {
	if !(span > 0) || n < 1 {
		return 1
	}
	raw := span / float64(n)
	mag := math.Pow(10, math.Floor(math.Log10(raw)))
	for _, m := range []float64{1, 2, 5} {
		if raw <= m*mag {
			return m * mag
		}
	}
	return 10 * mag
}

package forecast

import (
	"context"
	"math"
	"strconv"
	"testing"
)

func TestMTTDL(t *testing.T) {
	// One disk without redundancy: 1/lambda. Two without repair to speak of.
	for _, c := range []struct {
		n, m       int
		lambda, mu float64
		want       float64
	}{
		{1, 0, 0.01, 1, 100},
		{2, 1, 0.01, 0.0000001, 1/0.02 + 1/0.01},
		// RAID 1 closed form: (3 lambda + mu) / (2 lambda^2).
		{2, 1, 0.001, 0.1, (3*0.001 + 0.1) / (2 * 0.001 * 0.001)},
	} {
		got, err := MTTDL(c.n, c.m, c.lambda, c.mu)
		if err != nil || math.Abs(got-c.want) > 1e-4*c.want {
			t.Errorf("MTTDL(%d,%d,%g,%g) = %g, %v; want %g", c.n, c.m, c.lambda, c.mu, got, err, c.want)
		}
	}
	if _, err := MTTDL(2, 2, 1, 1); err == nil {
		t.Error("no error for a group that may lose all its disks")
	}
}

// TestSimulateAgainstMarkov: where the closed form applies (exponential
// rebuilds, replaced at once, nothing else fails) both agree within 5 %.
func TestSimulateAgainstMarkov(t *testing.T) {
	for _, c := range []struct{ disks, parity int }{{4, 1}, {6, 2}, {10, 2}, {12, 2}} {
		f := Fleet{Bricks: 1000, Years: 10, Seed: 7, Groups: 4, Disks: c.disks, Parity: c.parity, Servers: 1,
			DiskAFR: 1.5, RebuildHours: 200, ExpRebuild: true}
		r, err := simulate(f)
		if err != nil {
			t.Fatal(err)
		}
		want, err := MTTDL(c.disks, c.parity, f.DiskAFR/HoursPerYear, 1/f.RebuildHours)
		if err != nil {
			t.Fatal(err)
		}
		if got := r.MTTDLHours.Mean; math.Abs(got-want) > 0.05*want {
			t.Errorf("%d disks, %d parity: MTTDL %.0f h from %d losses, Markov %.0f h", c.disks, c.parity, got, r.Losses, want)
		}
		t.Logf("%d+%d disks: simulated %.0f h (%d losses), Markov %.0f h: %+.1f %%", c.disks-c.parity, c.parity, r.MTTDLHours.Mean, r.Losses, want, 100*(r.MTTDLHours.Mean/want-1))
		if r.MTTDLHours.Low > r.MTTDLHours.Mean || r.MTTDLHours.High < r.MTTDLHours.Mean {
			t.Errorf("interval %v does not hold its mean", r.MTTDLHours)
		}
	}
}

// typical is an HA brick of the papers: six groups 8+2 over five enclosures.
func typical(bricks int) Fleet {
	return Fleet{Bricks: bricks, Years: 10, Seed: 1, Groups: 6, Disks: 10, Parity: 2, Spares: 2, Enclosures: 5, Arrays: 1, Controllers: 2, Servers: 2,
		DiskAFR: 0.02, BatchShare: 0.05, BatchFactor: 4, RebuildHours: 12, ReplaceHours: 48, LatentPerYear: 0.1, ScrubHours: 168, RestoreHours: 72,
		EnclosureAFR: 0.01, EnclosureRepair: 24, ControllerAFR: 0.02, ControllerRepair: 24, ServerAFR: 0.5, ServerRepair: 24,
		PowerPerYear: 0.2, PowerHours: 4, FailoverSeconds: 60, FailoverFails: 0.02, HandHours: 2}
}

func TestSimulateRepeats(t *testing.T) {
	a, err := simulate(typical(200))
	if err != nil {
		t.Fatal(err)
	}
	b, _ := simulate(typical(200))
	if a != b {
		t.Errorf("same seed, different results:\n%+v\n%+v", a, b)
	}
	f := typical(200)
	f.Seed++
	if c, _ := simulate(f); a == c {
		t.Error("another seed gave the same result")
	}
	if a.DiskFailures == 0 || a.Unavailability.Mean <= 0 || a.Unavailability.Mean > 0.005 {
		t.Errorf("implausible: %+v", a)
	}
}

// TestCauses: each cause alone gives the unavailability that arithmetic says.
func TestCauses(t *testing.T) {
	base := Fleet{Bricks: 4000, Years: 10, Seed: 3, Groups: 1, Disks: 4, Parity: 2, Servers: 1}
	for _, c := range []struct {
		cause Cause
		set   func(*Fleet)
		want  float64 // hours in a year
	}{
		{CauseServer, func(f *Fleet) { f.ServerAFR, f.ServerRepair = 1, 24 }, 24 / (1 + 24/HoursPerYear)},
		{CauseFailover, func(f *Fleet) { f.Servers, f.ServerAFR, f.FailoverSeconds = 2, 1, 3600 }, 1},
		{CauseFailover, func(f *Fleet) { f.Servers, f.ActiveActive, f.ServerAFR, f.FailoverSeconds = 2, true, 1, 3600 }, 1},
		{CauseFailover, func(f *Fleet) {
			f.Servers, f.ServerAFR, f.ServerRepair, f.FailoverFails, f.HandHours = 2, 1, 0.5, 0.5, 8
		}, 0.25},
		{CauseController, func(f *Fleet) { f.Arrays, f.Controllers, f.ControllerAFR, f.ControllerRepair = 2, 1, 0.5, 10 }, 10},
		{CauseController, func(f *Fleet) { f.Arrays, f.Controllers, f.ControllerAFR, f.ControllerRepair = 1, 2, 5, 50 }, HoursPerYear * math.Pow(50/(50+HoursPerYear/5), 2)},
		{CausePower, func(f *Fleet) { f.PowerPerYear, f.PowerHours = 2, 3 }, 6},
		// Two enclosures, two disks of the group in each: one may go, both may not.
		{CauseEnclosure, func(f *Fleet) { f.Enclosures, f.EnclosureAFR, f.EnclosureRepair = 1, 1, 10 }, 10 / (1 + 10/HoursPerYear)},
	} {
		f := base
		c.set(&f)
		r, err := simulate(f)
		if err != nil {
			t.Fatal(err)
		}
		if got := r.DownHours[c.cause].Mean; math.Abs(got-c.want) > 0.05*c.want {
			t.Errorf("%v: %.3f hours a year, want %.3f", c.cause, got, c.want)
		}
		for o, h := range r.DownHours {
			if Cause(o) != c.cause && h.Mean > 0.001*c.want {
				t.Errorf("%v alone: %.3f hours by %v", c.cause, h.Mean, Cause(o))
			}
		}
	}
}

// TestEnclosureSurvived: two enclosures of which one may go cost nothing.
func TestEnclosureSurvived(t *testing.T) {
	f := Fleet{Bricks: 500, Years: 10, Seed: 3, Groups: 1, Disks: 4, Parity: 2, Servers: 1, Enclosures: 2, EnclosureAFR: 0.05, EnclosureRepair: 1}
	r, err := simulate(f)
	if err != nil || r.DownHours[CauseEnclosure].Mean > 0.001 {
		t.Errorf("down %v hours a year, %v", r.DownHours, err)
	}
}

// TestLatent: a group that has lost all its redundancy meets a latent error
// as often as arithmetic says, loses sectors by it and not the group, and
// scrubbing twice as often halves that.
func TestLatent(t *testing.T) {
	f := Fleet{Bricks: 20000, Years: 10, Seed: 5, Groups: 1, Disks: 10, Parity: 1, Servers: 1, DiskAFR: 0.1, RebuildHours: 1, LatentPerYear: 0.1, ScrubHours: 1000}
	a, err := simulate(f)
	if err != nil {
		t.Fatal(err)
	}
	// Each failure: 9 disks left, half a scrub interval of age on average.
	x := 9 * 0.1 * 1000 / HoursPerYear
	want := float64(a.DiskFailures) * (1 - (1-math.Exp(-x))/x)
	if got := float64(a.SectorLosses); math.Abs(got-want) > 0.05*want {
		t.Errorf("%.0f sectors lost, want %.0f", got, want)
	}
	if a.DownHours[CauseDataLoss].Mean != 0 && a.Losses == a.SectorLosses {
		t.Errorf("down by lost sectors: %v", a.DownHours)
	}
	f.ScrubHours /= 2
	b, _ := simulate(f)
	if r := float64(b.SectorLosses) / float64(a.SectorLosses); r < 0.45 || r > 0.56 {
		t.Errorf("scrubbing twice as often leaves %.2f of the losses", r)
	}
	f.ScrubHours = 0
	if c, _ := simulate(f); c.SectorLosses < 10*a.SectorLosses {
		t.Errorf("never scrubbed: %d sectors lost, scrubbed %d", c.SectorLosses, a.SectorLosses)
	}
}

// TestBatches: bad batches cost more data than the same failures spread
// evenly, since loss goes with a power of the failure rate.
func TestBatches(t *testing.T) {
	even := Fleet{Bricks: 8000, Years: 10, Seed: 5, Groups: 4, Disks: 10, Parity: 2, Servers: 1, DiskAFR: 0.2, RebuildHours: 100}
	bad := even
	bad.BatchShare, bad.BatchFactor = 0.1, 5
	bad.DiskAFR = even.DiskAFR / (0.9 + 0.1*5)
	a, _ := simulate(even)
	b, _ := simulate(bad)
	if d := float64(b.DiskFailures)/float64(a.DiskFailures) - 1; math.Abs(d) > 0.02 {
		t.Errorf("disk failures differ by %.1f %%", 100*d)
	}
	// (0.9 + 0.1 x 5^3) / (0.9 + 0.1 x 5)^3 = 4.9
	if x := float64(b.Losses) / float64(a.Losses); x < 4 || x > 6 {
		t.Errorf("batches cost %.1f times the losses, want about 4.9 (%d, %d)", x, b.Losses, a.Losses)
	}
}

// TestSpares: a hot spare shortens the time without redundancy by the time a
// hand needs.
func TestSpares(t *testing.T) {
	f := Fleet{Bricks: 2000, Years: 10, Seed: 5, Groups: 4, Disks: 10, Parity: 2, Servers: 1, DiskAFR: 0.3, RebuildHours: 24, ReplaceHours: 200}
	without, _ := simulate(f)
	f.Spares = 4
	with, _ := simulate(f)
	if with.Losses*5 > without.Losses {
		t.Errorf("losses with spares %d, without %d", with.Losses, without.Losses)
	}
}

// TestMemoryIsFlat: a hundred times the fleet takes no more allocations.
func TestMemoryIsFlat(t *testing.T) {
	allocs := func(bricks int) float64 {
		return testing.AllocsPerRun(1, func() {
			if _, err := simulate(typical(bricks)); err != nil {
				t.Fatal(err)
			}
		})
	}
	if small, large := allocs(20), allocs(2000); large > small+8 {
		t.Errorf("%.0f allocations for 20 bricks, %.0f for 2,000", small, large)
	}
}

// TestIntervals: of many fleets, about 95 % have the truth in their interval.
func TestIntervals(t *testing.T) {
	f := Fleet{Bricks: 400, Years: 10, Groups: 1, Disks: 4, Parity: 2, Servers: 1, PowerPerYear: 0.3, PowerHours: 5}
	in, runs := 0, 300
	for i := range runs {
		f.Seed = uint64(i)
		r, err := simulate(f)
		if err != nil {
			t.Fatal(err)
		}
		if e := r.DownHours[CausePower]; e.Low <= 1.5 && 1.5 <= e.High {
			in++
		}
	}
	if share := float64(in) / float64(runs); share < 0.91 || share > 0.99 {
		t.Errorf("%.1f %% of the intervals hold the truth", 100*share)
	}
}

// BenchmarkFleet is the cost of bricks x 10 years as the fleet grows tenfold;
// memory (B/op) must stay flat.
func BenchmarkFleet(b *testing.B) {
	for _, n := range []int{10, 100, 1000, 10000} {
		b.Run("bricks="+strconv.Itoa(n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				r, err := simulate(typical(n))
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(r.Events), "events")
			}
		})
	}
}

// TestMarkovOfFleet: the closed form that is printed agrees with a simulation
// of disks alone also where repair is slow: replaced by hand, then rebuilt.
func TestMarkovOfFleet(t *testing.T) {
	f := Fleet{Bricks: 3000, Years: 10, Seed: 9, Groups: 4, Disks: 10, Parity: 1, Servers: 1, DiskAFR: 0.3, RebuildHours: 0, ReplaceHours: 60}
	r, err := simulate(f)
	if err != nil {
		t.Fatal(err)
	}
	// Fixed times instead of exponential ones: with one disk of parity the
	// mean is all that matters as long as it is short.
	if got, want := r.MTTDLHours.Mean, f.Markov(); math.Abs(got-want) > 0.05*want {
		t.Errorf("MTTDL %.0f h from %d losses, closed form %.0f h", got, r.Losses, want)
	}
}

func simulate(f Fleet) (Result, error) { return Simulate(context.Background(), f, nil) }

package report

import (
	"bytes"
	"strings"
	"testing"
)

func TestGains(t *testing.T) {
	run := func(drill, profile string, stall float64, verdict string) *Run {
		return &Run{Summary: Summary{Drill: drill, How: "freeze", Profile: profile, LongestStallSeconds: stall, Verdict: verdict}}
	}
	runs := []*Run{
		run("server-crash", stock, 90, Pass), run("server-crash", stock, 60, Fail), run("server-crash", stock, 120, Pass),
		run("power-bus", stock, 0, Pass), run("old", "", 3, Pass), run("alone", stock, 3, Pass),
		run("server-crash", tuned, 12, Pass), run("server-crash", tuned, 15, Pass), run("power-bus", tuned, 0, Pass), run("old", tuned, 3, Pass),
	}
	gs := Gains(runs)
	if len(gs) != 2 || gs[0].Drill != "server-crash-freeze" || gs[1].Drill != "power-bus-freeze" {
		t.Fatalf("got %+v", gs)
	}
	if g := gs[0]; g.StockMedian != 90 || g.TunedMedian != 13.5 || g.Ratio == nil || *g.Ratio != 0.15 || g.StockPassed != 2 || g.TunedPassed != 2 {
		t.Errorf("got %+v", g)
	}
	if gs[1].Ratio != nil {
		t.Errorf("a ratio to nothing: %v", *gs[1].Ratio)
	}
	var b bytes.Buffer
	if err := GainsText(&b, gs); err != nil || !strings.Contains(b.String(), "0.15") {
		t.Errorf("%v: %s", err, &b)
	}
	// Runs of one profile are compared with nothing.
	for n, compares := range map[int]bool{len(runs): true, 4: false} {
		b.Reset()
		if err := HTML(&b, runs[:n]); err != nil || strings.Contains(b.String(), "Tuned against stock") != compares {
			t.Errorf("the page of %d runs: %v", n, err)
		}
	}
}

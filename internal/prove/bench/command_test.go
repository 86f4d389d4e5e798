package bench

import (
	"bytes"
	"errors"
	"testing"

	"github.com/mortarhpc/mortar/internal/prove/report"
	"github.com/mortarhpc/mortar/internal/run/cli"
)

// A run that is not complete ends with exit code 1, also if nothing else failed.
func TestOutcome(t *testing.T) {
	for verdict, want := range map[string]int{report.Complete: 0, report.Partial: cli.Failed, report.Wrong: cli.Failed} {
		var out bytes.Buffer
		r := &report.Run{Bench: &report.Bench{BenchSummary: report.BenchSummary{Suite: "profile", Verdict: verdict}}}
		err := outcome(t.Context(), &cli.Console{Out: &out}, r, nil)
		code, e := 0, (*cli.Exit)(nil)
		if errors.As(err, &e) {
			code = e.Code
		}
		if code != want || out.Len() == 0 {
			t.Errorf("%s: %d, %v\n%s", verdict, code, err, &out)
		}
	}
}

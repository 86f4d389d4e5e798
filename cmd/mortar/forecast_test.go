package main

import (
	"encoding/json"
	"encoding/xml"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/mortarhpc/mortar/internal/brick/forecast"
	"github.com/mortarhpc/mortar/internal/prove/report"
)

func exampleFiles(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("../../examples/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no examples", err)
	}
	return files
}

// Every example has a forecast as text, JSON and SVG.
func TestForecastExamples(t *testing.T) {
	for _, f := range exampleFiles(t) {
		svg := filepath.Join(t.TempDir(), "curves.svg")
		out, code, err := runCmd(t, "forecast", f, "--svg", svg, "--explain")
		if err != nil || code != 0 || out == "" {
			t.Errorf("%s: %v, %d\n%s", f, err, code, out)
			continue
		}
		b, err := os.ReadFile(svg)
		if err != nil {
			t.Fatal(err)
		}
		for dec := xml.NewDecoder(strings.NewReader(string(b))); ; {
			if _, err := dec.Token(); err == io.EOF {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", f, err)
			}
		}
		out, _, err = runCmd(t, "forecast", f, "--json")
		var got forecast.Forecast
		if err != nil || json.Unmarshal([]byte(out), &got) != nil || len(got.Lines) < 4 || got.Lines[0].Peak <= 0 || got.Lines[0].Bottleneck == "" {
			t.Errorf("%s --json: %v\n%.300s", f, err, out)
		}
	}
}

func TestForecastRefuses(t *testing.T) {
	spec := "../../examples/nfs-ha.yaml"
	bad := filepath.Join(t.TempDir(), "bad.yaml")
	if err := os.WriteFile(bad, []byte("nfs.client_mbps: fast\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		nil, {"/nonexistent.yaml"}, {spec, "--set", "x"}, {spec, "--set", "x=1"}, {spec, "--set", "hw.cores=0"}, {spec, "--set", "hw.groups=-3"},
		{spec, "--coefficients", "/nonexistent"}, {spec, "--coefficients", bad}, {spec, "--set", "nfs.client_mbps=1e400"},
	} {
		if out, code, err := runCmd(t, "forecast", args...); code != exitBadInput || err == nil || out != "" {
			t.Errorf("forecast %v: %d, %v, %q", args, code, err, out)
		} else if strings.Contains(err.Error(), "\n") {
			t.Errorf("forecast %v: more than one message: %v", args, err)
		}
	}
}

// --measured puts the peaks of a benchmark beside the forecast for as many clients.
func TestForecastMeasured(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	b := &report.Bench{BenchSummary: report.BenchSummary{Schema: report.Schema, Kind: report.KindBench}}
	phase := func(op, unit string, record int64, threads int, values ...float64) {
		p := report.BenchPoint{Threads: threads}
		for _, v := range values {
			p.Runs = append(p.Runs, report.BenchRun{Value: v})
		}
		b.Phases = append(b.Phases, report.BenchPhase{Name: op, Test: "t", Op: op, Unit: unit, RecordBytes: record, Points: []report.BenchPoint{p}})
	}
	phase("seq-write", "MiB/s", 1<<20, 2, 100, 300, 200)
	phase("seq-read", "MiB/s", 4096, 2, 7) // no stream
	phase("md-create", "ops/s", 0, 4, 1500)
	if err := (&report.Run{Dir: dir, Bench: b}).Save(); err != nil {
		t.Fatal(err)
	}
	spec := "../../examples/lustre-small.yaml"
	set := []string{spec, "--measured", dir, "--set", "disk.nl-sas.16tb.mbps=100", "--set", "disk.stream_write=1"}
	out, code, err := runCmd(t, "forecast", append(set, "--json")...)
	var got struct{ Measured []forecast.Compared }
	if err != nil || code != 0 || json.Unmarshal([]byte(out), &got) != nil {
		t.Fatalf("%v %d %.300s", err, code, out)
	}
	want := []forecast.Compared{
		{Measured: forecast.Measured{Pattern: forecast.SeqWrite, Test: "t", Threads: 2, Value: 200 * 1.048576}, Unit: "MB/s", Forecast: 400, Ratio: 200 * 1.048576 / 400, Bottleneck: "disks"},
		{Measured: forecast.Measured{Pattern: forecast.Create, Test: "t", Threads: 4, Value: 1500}, Unit: "1/s", Forecast: 15000, Ratio: 0.1, Bottleneck: "MDS"},
	}
	if d := cmp.Diff(want, got.Measured, cmpopts.EquateApprox(0, 1e-6)); d != "" {
		t.Error(d)
	}
	if out, _, err = runCmd(t, "forecast", set...); err != nil || !strings.Contains(out, "Measured and forecast") || !strings.Contains(out, "-47.6 %") {
		t.Errorf("%v\n%s", err, out)
	}
	if _, code, err = runCmd(t, "forecast", spec, "--measured", t.TempDir()); code != exitBadInput || err == nil {
		t.Errorf("a directory without a run: %d %v", code, err)
	}
}

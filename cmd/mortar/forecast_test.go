package main

import (
	"encoding/json"
	"encoding/xml"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/internal/brick/forecast"
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
		out, code, err := runCmd(t, newForecastCmd(), f, "--svg", svg, "--explain")
		if err != nil || code != 0 || !strings.Contains(out, "sequential write") || !strings.Contains(out, "limited by") {
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
		out, _, err = runCmd(t, newForecastCmd(), f, "--json")
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
		if out, code, err := runCmd(t, newForecastCmd(), args...); code != exitBadInput || err == nil || out != "" {
			t.Errorf("forecast %v: %d, %v, %q", args, code, err, out)
		} else if strings.Contains(err.Error(), "\n") {
			t.Errorf("forecast %v: more than one message: %v", args, err)
		}
	}
}

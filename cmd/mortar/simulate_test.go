package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Every example can be simulated. The same seed gives the same output.
func TestSimulateExamples(t *testing.T) {
	for _, f := range exampleFiles(t) {
		svg := filepath.Join(t.TempDir(), "scale.svg")
		args := []string{f, "--bricks", "200", "--seed", "7", "--svg", svg}
		out, code, err := runCmd(t, "simulate", args...)
		if err != nil || code != 0 || out == "" {
			t.Errorf("%s: %v, %d\n%s", f, err, code, out)
			continue
		}
		if b, err := os.ReadFile(svg); err != nil || !strings.HasPrefix(string(b), "<svg") {
			t.Errorf("%s: %v, %.40s", f, err, b)
		}
		again, _, _ := runCmd(t, "simulate", args...)
		if again != out {
			t.Errorf("%s: another result with the same seed\n%s\n%s", f, out, again)
		}
		// So few bricks lose nothing; an infinite time between losses must still be valid
		// JSON.
		out, _, err = runCmd(t, "simulate", f, "--bricks", "1", "--years", "0.1", "--json")
		var got struct {
			Modules []struct {
				Result struct {
					Unavailability struct{ Mean *float64 } `json:"unavailability"`
				} `json:"result"`
			} `json:"modules"`
			Scaling []struct{ Bricks int }
		}
		if err != nil || json.Unmarshal([]byte(out), &got) != nil || len(got.Modules) == 0 || got.Modules[0].Result.Unavailability.Mean == nil || len(got.Scaling) < 3 {
			t.Errorf("%s --json: %v\n%.300s", f, err, out)
		}
	}
}

func TestSimulateRefuses(t *testing.T) {
	spec := "../../examples/nfs-ha.yaml"
	for _, args := range [][]string{
		nil, {"/nonexistent.yaml"}, {spec, "--bricks", "0"}, {spec, "--bricks", "-5"}, {spec, "--years", "0"}, {spec, "--years", "NaN"}, {spec, "--years", "1e9"},
		{spec, "--set", "sim.disk_afr=-1"}, {spec, "--set", "sim.rebuild_mbps=0"}, {spec, "--set", "sim.failover_fails=2"}, {spec, "--seed", "-1"}, {spec, "--seed", "x"}, {spec, "--seed", "99999999999999999999"},
	} {
		if out, code, err := runCmd(t, "simulate", args...); code != exitBadInput || err == nil || out != "" {
			t.Errorf("simulate %v: %d, %v, %q", args, code, err, out)
		} else if strings.Contains(err.Error(), "\n") {
			t.Errorf("simulate %v: more than one message: %v", args, err)
		} else if len(args) > 1 && args[1] == "--seed" && (!strings.Contains(err.Error(), "want a whole number from 0") || strings.Contains(err.Error(), "strconv")) {
			t.Errorf("simulate %v: %v", args, err)
		}
	}
}

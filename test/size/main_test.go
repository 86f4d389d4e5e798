package main

import (
	"os"
	"path/filepath"
	"testing"
)

// What a run leaves becomes figures: a command that failed has none, steps of a stage
// may overlap, and of the agent the last start counts.
func TestFigures(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"steps.tsv": "rack-up\t12.5\t0\nstatus\t2\t1\nmove\t9\t1\n",
		"apply": `{"event":"changed","stage":"storage","host":"nfs1","seconds":2}
{"event":"changed","stage":"storage","host":"nfs1","seconds":2}
{"event":"stage-done","stage":"storage","seconds":3}
no JSON
`,
		"agent-nfs1": `{"action":"start","step":"mount","seconds":50}
{"action":"start","step":"begin"}
{"action":"start","step":"mount","seconds":5}
{"action":"start","step":"end","seconds":8}
`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	commands, stages, parts := figures{}, figures{}, figures{}
	for _, err := range []error{readCommands(commands, dir, 6), readApply(stages, dir, 6), readAgent(parts, dir, 6)} {
		if err != nil {
			t.Error(err)
		}
	}
	for _, c := range []struct {
		of   figures
		step string
		want float64
	}{{commands, "rack up", 12.5}, {commands, "status", 2}, {commands, "move", 0}, {stages, "storage", 3}, {parts, "start: mount", 5}, {parts, "start", 8}} {
		if got := c.of[c.step][6]; got != c.want {
			t.Errorf("%s: %v, want %v", c.step, got, c.want)
		}
	}
	if e, ok := exponent(map[int]float64{6: 1, 24: 2, 96: 32}); !ok || e != 2 {
		t.Errorf("exponent %v", e)
	}
}

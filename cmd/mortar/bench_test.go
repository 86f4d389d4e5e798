package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/examples"
	"github.com/mortarhpc/mortar/internal/run/cli"
)

func benchCmd(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := newBenchCmd()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetIn(strings.NewReader(""))
	cmd.SetArgs(args)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	err := cmd.ExecuteContext(context.Background())
	return out.String(), err
}

func haSpec(t *testing.T) string { return exampleSpec(t, "nfs-ha.yaml") }

func exampleSpec(t *testing.T, name string) string {
	t.Helper()
	src, err := examples.FS.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	f := filepath.Join(t.TempDir(), "brick.yaml")
	if err := os.WriteFile(f, src, 0o644); err != nil {
		t.Fatal(err)
	}
	return f
}

func TestBenchRefusals(t *testing.T) {
	f := haSpec(t)
	own := filepath.Join(t.TempDir(), "own.yaml")
	if err := os.WriteFile(own, []byte("apiVersion: mortar/v1\nkind: suite\nname: x\ntests:\n  - {name: a, phases: [seq-wriet], threads: [1]}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	out := t.TempDir()
	for want, args := range map[string][]string{
		"stock of flavour nfs can be designed but not":                      {exampleSpec(t, "nfs.yaml"), "--against-stock", "--out", out},
		"no suite \"slow\"; use quick":                                      {f, "--against-stock", "--suite", "slow", "--out", out},
		"suite quick has no test \"y\"":                                     {f, "--against-stock", "--tests", "y", "--out", out},
		"no suite \"fast\"; use quick, paper, io500":                        {f, "--suite", "fast"},
		"own.yaml:5:24: there is no phase":                                  {f, "--suite", own},
		"--scale: \"x\" is no scale":                                        {f, "--scale", "x"},
		"--clients \"1,,2\": give numbers":                                  {f, "--clients", "1,,2"},
		"--clients \"2,2\": 2 is there twice":                               {f, "--clients", "2,2"},
		"--nfs \"5\": no client mounts by it; those of the spec mount by 3": {exampleSpec(t, "nss7.4-ha.yaml"), "--nfs", "5", "--dry-run"},
		"--cold \"yes\": use restart, drop or none":                         {f, "--cold", "yes"},
		"--repeat 101: give 1 to 100":                                       {f, "--repeat", "101"},
		"has no test \"x\"; it has sequential":                              {f, "--tests", "x", "--dry-run"},
		"no suite \"none\"; use quick, paper, io500":                        {"--print-suite", "none"},
		"this is real hardware and no terminal is here to ask":              {f, "--suite", "paper"},
		"\"wrong\" is not \"brick1\"":                                       {f, "--suite", "paper", "--confirm", "wrong"},
	} {
		out, err := benchCmd(t, args...)
		var ee *cli.Exit
		if !errors.As(err, &ee) || ee.Code != exitBadInput || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: want %q, got %v %s", args, want, err, out)
		}
	}
}

func TestBenchDryRun(t *testing.T) {
	out, err := benchCmd(t, haSpec(t), "--suite", "paper", "--scale", "1/256", "--clients", "1,2", "--dry-run")
	if err != nil || !strings.Contains(out, "10.0 MiB") || !strings.Contains(out, "20 x 188 files") || !strings.Contains(out, "20 x 188 directories") {
		t.Errorf("%v\n%s", err, out)
	}
	// A dry run builds no rack.
	if both, err := benchCmd(t, haSpec(t), "--suite", "paper", "--scale", "1/256", "--clients", "1,2", "--dry-run", "--against-stock"); err != nil || both != out {
		t.Errorf("%v\n%s", err, both)
	}
	out, err = benchCmd(t, haSpec(t), "--suite", "raw", "--dry-run")
	if err != nil || strings.Contains(out, "THREADS") {
		t.Errorf("a head over no tests: %v\n%s", err, out)
	}
	out, err = benchCmd(t, haSpec(t), "--suite", "paper", "--scale", "1/256", "--dry-run")
	if err != nil || !strings.Contains(out, "left out: 16, 32, 64, 128, 256, 512 (--clients") || !strings.Contains(out, "52 measurements, 8 min 40 s of measuring at most; caches are emptied 34 times") {
		t.Errorf("%v\n%s", err, out)
	}
	out, err = benchCmd(t, haSpec(t), "--dry-run", "--json")
	if err != nil || !strings.Contains(out, `"suite": "quick"`) && !strings.Contains(out, `"suite":"quick"`) {
		t.Errorf("%v\n%s", err, out)
	}
}

// bench accepts the suite that it prints as a template.
func TestPrintSuite(t *testing.T) {
	for _, n := range []string{"quick", "paper", "io500"} {
		out, err := benchCmd(t, "--print-suite", n)
		if err != nil {
			t.Fatal(err)
		}
		f := filepath.Join(t.TempDir(), "mine.yaml")
		if err := os.WriteFile(f, []byte(out), 0o644); err != nil {
			t.Fatal(err)
		}
		if out, err := benchCmd(t, haSpec(t), "--suite", f, "--dry-run"); err != nil {
			t.Errorf("%s: %v %s", n, err, out)
		}
	}
}

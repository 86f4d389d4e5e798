package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/examples"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/prove/drill"
	"github.com/mortarhpc/mortar/internal/prove/inject"
	"github.com/mortarhpc/mortar/internal/prove/report"
)

func TestDrillRefuses(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	example, err := examples.FS.ReadFile("nfs-ha.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("brick.yaml", example, 0o644); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		args []string
		say  string
	}{
		"no drill":      {[]string{"run", "brick.yaml"}, "mortar drill run wants SPEC DRILL"},
		"unknown drill": {[]string{"run", "brick.yaml", "server-crush"}, "server-crash"},
		"unknown how":   {[]string{"run", "brick.yaml", "server-crash", "--how", "magic"}, "--how freeze"},
		"no spec":       {[]string{"run", "none.yaml", "server-crash"}, "none.yaml"},
		"seconds":       {[]string{"run", "brick.yaml", "server-crash", "--seconds", "0"}, "--seconds"},
		"after":         {[]string{"run", "brick.yaml", "server-crash", "--after", "0"}, "--after"},
		"rate":          {[]string{"all", "brick.yaml", "--rate", "-1"}, "--rate"},
		"within":        {[]string{"random", "brick.yaml", "--within", "-1"}, "--within"},
		"within short":  {[]string{"run", "brick.yaml", "server-crash", "--within", "0.5"}, "--within"},
		"repeat":        {[]string{"all", "brick.yaml", "--repeat", "0"}, "--repeat 0"},
		"unconfirmed":   {[]string{"run", "brick.yaml", "server-crash"}, "--confirm brick1"},
		"all, real":     {[]string{"all", "brick.yaml"}, "--confirm brick1"},
		"unknown only":  {[]string{"all", "brick.yaml", "--only", "nothing"}, "mortar drill list"},
		"wrong name":    {[]string{"run", "brick.yaml", "server-crash", "--confirm", "brick2"}, "brick2"},
		"not possible":  {[]string{"run", "brick.yaml", "server-crash", "--confirm", "brick1", "--how", "freeze"}, "cannot be frozen"},
		"count":         {[]string{"random", "brick.yaml", "--count", "0"}, "--count 0"},
		"random, real":  {[]string{"random", "brick.yaml"}, "--confirm brick1"},
		"out is a file": {[]string{"run", "brick.yaml", "server-crash", "--confirm", "brick1", "--out", "brick.yaml"}, "--out"},
	} {
		t.Run(name, func(t *testing.T) {
			code, _, said := mortar(t, append([]string{"drill"}, c.args...)...)
			if code != exitBadInput || !strings.Contains(said, c.say) {
				t.Errorf("exit %d, %s; want 2 and %q", code, said, c.say)
			}
		})
	}
	if left, _ := filepath.Glob("out*"); len(left) > 0 {
		t.Errorf("refused, but left %v", left)
	}
}

func TestDrillList(t *testing.T) {
	code, out, said := mortar(t, "drill", "list")
	if code != 0 {
		t.Fatal(code, said)
	}
	for _, d := range drill.Table {
		if !strings.Contains(out, d.Name) {
			t.Errorf("%s is not listed:\n%s", d.Name, out)
		}
	}
}

// This release takes the former spellings of mortar drill too.
func TestFormerDrill(t *testing.T) {
	for former, want := range map[string]string{
		"--list --json":                         "list --json",
		"b.yaml server-crash --how power":       "run b.yaml server-crash --how power",
		"b.yaml --all --only x --repeat 5":      "all b.yaml --only x --repeat 5",
		"--random b.yaml --seed 17":             "random b.yaml --seed 17",
		"b.yaml x --against-stock --repeat 5":   "versus b.yaml x --repeat 5",
		"b.yaml --all --against-stock --only x": "versus b.yaml --only x",
		"run b.yaml server-crash":               "",
		"all b.yaml":                            "",
		"qqqq":                                  "",
		"--help":                                "",
	} {
		if got := strings.Join(formerDrill(strings.Fields(former)), " "); got != want {
			t.Errorf("%s: %q, want %q", former, got, want)
		}
	}
	if code, out, said := mortar(t, "drill", "--list"); code != 0 || !strings.Contains(out, "server-crash") {
		t.Errorf("%d, %s", code, said)
	}
}

// The example brick on a rack can run every drill of the table.
func TestRackCanDoEveryDrill(t *testing.T) {
	src, err := examples.FS.ReadFile("nfs-ha.yaml")
	if err != nil {
		t.Fatal(err)
	}
	s, err := spec.Parse("nfs-ha.yaml", src)
	if err != nil {
		t.Fatal(err)
	}
	d, err := design.New(s)
	if err != nil {
		t.Fatal(err)
	}
	env := inject.OnRack(d, "")
	all, err := drill.Choose(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	second := d.Mounts[0]
	second.Client = "c2" // client-crash needs one that lives
	d.Mounts = append(d.Mounts, second)
	plain := drill.Suits(all, d)
	ssds := &design.Cache{Mode: "write-back", SSDs: []design.Disk{{Serial: "S1"}, {Serial: "S2"}}}
	for _, mode := range []string{"", "write-back", "write-through"} {
		if mode != "" {
			ssds.Mode, d.Services()[0].Storage.Cache = mode, ssds
			if n := len(drill.Suits(all, d)); n <= len(plain) {
				t.Errorf("%s cache: %d drills, without %d", mode, n, len(plain))
			}
		}
		for _, c := range drill.Suits(all, d) {
			if err := drill.Possible(env, c.Drill, c.Variant); err != nil {
				t.Errorf("%s: %v", c.Name(), err)
			}
		}
	}
}

func TestReportAndCompare(t *testing.T) {
	dir := t.TempDir()
	for _, n := range []string{"a", "b"} {
		r := report.Run{Dir: filepath.Join(dir, n), Summary: report.Summary{Drill: "server-crash", Verdict: report.Pass, LongestStallSeconds: 4}}
		if err := r.Save(); err != nil {
			t.Fatal(err)
		}
	}
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	code, out, said := mortar(t, "report", a)
	if code != 0 || strings.TrimSpace(out) != filepath.Join(a, "report.html") {
		t.Errorf("report: %q, exit %d, %s", out, code, said)
	}
	page, err := os.ReadFile(filepath.Join(a, "report.html"))
	if err != nil || !bytes.HasPrefix(page, []byte("<!DOCTYPE html>")) {
		t.Errorf("page: %.40q %v", page, err)
	}
	if code, out, said := mortar(t, "compare", a, b); code != 0 || out == "" {
		t.Errorf("compare: %q, exit %d, %s", out, code, said)
	}
	if code, _, _ := mortar(t, "report", dir); code != exitBadInput {
		t.Errorf("report of no run: exit %d, want 2", code)
	}
}

package forecast

import (
	"flag"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/paper"
	"github.com/mortarhpc/mortar/internal/brick/spec"
)

var update = flag.Bool("update", false, "write the made parts of the pages of forecast and simulate, and their drawings")

const docs = "../../../docs/"

// figuresTable is the published figures beside the forecast, as a table.
func figuresTable(t *testing.T) string {
	var b strings.Builder
	b.WriteString("| system | load | published | forecast | per cent | limited by | used for |\n|---|---|---:|---:|---:|---|---|\n")
	n := 0
	var misses []string
	for _, f := range figures() {
		fc, err := New(f.hw, Defaults())
		if err != nil {
			t.Fatal(err)
		}
		l, _ := fc.Line(f.pattern)
		use := f.use
		if f.miss != "" {
			n++
			use += fmt.Sprintf(", miss %d", n)
			misses = append(misses, fmt.Sprintf("%d. %s, %s: %s.", n, f.hw.Name, f.pattern, f.miss))
		}
		off := paper.PercentText(paper.Percent(f.value, l.Peak))
		fmt.Fprintf(&b, "| %s | %s | %s %s | %s | %s | %s | %s |\n", f.hw.Name, f.pattern, number(f.value), l.Unit, number(l.Peak), off, l.Bottleneck, use)
	}
	b.WriteString("\n" + strings.Join(misses, "\n") + "\n")
	return b.String()
}

// ratiosTable is what the documents say of one change, beside the forecast.
func ratiosTable(t *testing.T) string {
	var b, misses strings.Builder
	b.WriteString("| one system over another | source | published | forecast | points apart | |\n|---|---|---:|---:|---:|---|\n")
	number := map[string]int{}
	for _, r := range ratios() {
		got, note := r.got(t), ""
		if r.missed != "" {
			if number[r.missed] == 0 {
				number[r.missed] = len(number) + 1
				fmt.Fprintf(&misses, "%d. %s.\n", number[r.missed], r.missed)
			}
			note = fmt.Sprintf("not modelled, %d", number[r.missed])
		}
		more := ""
		if r.atLeast {
			more = "more than "
		}
		fmt.Fprintf(&b, "| %s | %s | %s%+.1f %% | %+.1f %% | %.1f | %s |\n", r.what, r.where, more, 100*(r.want-1), 100*(got-1), 100*math.Abs(got-r.want), note)
	}
	return b.String() + "\n" + misses.String()
}

func coefficientsTable() string {
	var b strings.Builder
	b.WriteString("| name | value | unit | source |\n|---|---:|---|---|\n")
	for _, k := range Defaults().All() {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", k.Name, strconv.FormatFloat(k.Value, 'g', -1, 64), k.Unit, k.Source)
	}
	return b.String()
}

func hardwareTable() string {
	var b strings.Builder
	b.WriteString("| name | meaning |\n|---|---|\n")
	for _, n := range hardwareNames() {
		fmt.Fprintf(&b, "| `%s` | %s |\n", n, facts()[n].doc)
	}
	return b.String()
}

func example(t *testing.T, name string) (*design.Design, Hardware) {
	t.Helper()
	s, err := spec.Load("../../../examples/" + name + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	d, err := design.Derive(s)
	if err != nil {
		t.Fatal(err)
	}
	h, err := FromDesign(d)
	if err != nil {
		t.Fatal(err)
	}
	return d, h
}

// TestDocs: what the pages of forecast and simulate say of the model is what the model says.
func TestDocs(t *testing.T) {
	d, h := example(t, "nss4-ha-288")
	fc, err := New(h, Defaults())
	if err != nil {
		t.Fatal(err)
	}
	y, ok := paper.Of(d.Spec)
	if !ok {
		t.Fatal("the example is no system of a paper")
	}
	if err := fc.Beside(y, Defaults()); err != nil {
		t.Fatal(err)
	}
	rack, rh := example(t, "lustre-rack")
	ms, err := Modules(rack, Defaults())
	if err != nil {
		t.Fatal(err)
	}
	var sims []Simulated
	for _, m := range ms {
		m.Fleet.Bricks = 10000
		r, err := simulate(m.Fleet)
		if err != nil {
			t.Fatal(err)
		}
		sims = append(sims, Simulated{m, r, m.Fleet.Markov()})
	}
	sim, err := Summarize(rack.Name, rh, Defaults(), sims)
	if err != nil {
		t.Fatal(err)
	}
	var text, simText strings.Builder
	if err := fc.Text(&text, Defaults(), false); err != nil {
		t.Fatal(err)
	}
	if err := sim.Text(&simText, Defaults(), false); err != nil {
		t.Fatal(err)
	}
	compare(t, docs+"forecast-nss4-ha.svg", fc.SVG())
	compare(t, docs+"simulate-lustre-rack.svg", sim.SVG())

	for _, part := range []struct{ page, name, text string }{
		{"forecast.md", "forecast", "```\n" + text.String() + "```\n"}, {"simulate.md", "simulate", "```\n" + simText.String() + "```\n"},
		{"forecast.md", "figures", figuresTable(t)}, {"forecast.md", "ratios", ratiosTable(t)}, {"coefficients.md", "coefficients", coefficientsTable()}, {"coefficients.md", "hardware", hardwareTable()},
	} {
		made(t, docs+part.page, part.name, part.text)
	}
}

// made compares a part of a page with what it is made of.
func made(t *testing.T, page, name, text string) {
	t.Helper()
	src, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	got := string(src)
	begin, end := "<!-- made: "+name+" -->\n", "<!-- end -->"
	i := strings.Index(got, begin)
	if i < 0 {
		t.Fatalf("%s has no %q", page, strings.TrimSpace(begin))
	}
	i += len(begin)
	j := strings.Index(got[i:], end)
	if j < 0 {
		t.Fatalf("%s: %s has no end", page, name)
	}
	compare(t, page, got[:i]+"\n"+text+"\n"+got[i+j:])
}

func compare(t *testing.T, file, want string) {
	t.Helper()
	have, err := os.ReadFile(file)
	if err == nil && string(have) == want {
		return
	}
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Errorf("%s is not what the model says now; look at the difference after `go test ./internal/brick/forecast -run TestDocs -update`", file)
}

// TestDocsCores: the page says why the example's metadata is not the published one's.
func TestDocsCores(t *testing.T) {
	page, err := os.ReadFile("../../../docs/forecast.md")
	if err != nil {
		t.Fatal(err)
	}
	s, err := spec.Load("../../../examples/nss7.4-ha.yaml")
	if err != nil {
		t.Fatal(err)
	}
	d, err := design.Derive(s)
	if err != nil {
		t.Fatal(err)
	}
	for cores, want := range map[int]string{0: "1,212,480", 16: "538,880"} {
		h, err := FromDesign(d)
		if err != nil {
			t.Fatal(err)
		}
		if cores > 0 {
			h.Cores = cores
		}
		f, err := New(h, Defaults())
		if err != nil {
			t.Fatal(err)
		}
		l, ok := f.Line(Stat)
		digits := strings.ReplaceAll(want, ",", "")
		if got := fmt.Sprintf("%.0f", l.Peak); !ok || got != digits || !strings.Contains(string(page), want+"/s") && !strings.Contains(string(page), "| "+want+" |") {
			t.Errorf("file stat with %d cores (0: the example's): %s, the page says %s", cores, got, want)
		}
	}
}

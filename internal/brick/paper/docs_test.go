package paper_test

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/examples"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/forecast"
	"github.com/mortarhpc/mortar/internal/brick/paper"
	"github.com/mortarhpc/mortar/internal/brick/release"
)

var update = flag.Bool("update", false, "write docs/systems")

const docs = "../../../docs/systems"

// run is an entry of docs/systems/summary.json, what make systems wrote.
type run struct {
	System, Drill, Scale, Error string
	Built                       bool
	Changed                     *int     `json:"changed_second_apply"`
	Verdict                     string   `json:"drill_verdict"`
	Longest                     *float64 `json:"longest_stall_seconds"`
	Lost                        *int64   `json:"lost_bytes"`
	Seconds, Load               float64
	Started                     string
}

func runs(t *testing.T) map[string]run {
	var list []run
	text, err := os.ReadFile(filepath.Join(docs, "summary.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := errors.Join(err, json.Unmarshal(text, &list)); err != nil {
		t.Fatal(err)
	}
	all := map[string]run{}
	for _, r := range list {
		all[r.System] = r
	}
	return all
}

// TestPages: docs/systems has a page for each system, and what it says of
// Mortar is what the program says.
func TestPages(t *testing.T) {
	ran := runs(t)
	for _, y := range paper.Systems() {
		d, err := design.Derive(load(t, y.Name))
		if err != nil {
			t.Fatal(err)
		}
		r, ok := ran[y.Name]
		compare(t, filepath.Join(docs, y.Name+".md"), page(t, y, d, r, ok))
	}
}

// TestResults: docs/results/systems.md has what became of every example.
func TestResults(t *testing.T) {
	ran := runs(t)
	var b strings.Builder
	b.WriteString("<!-- written by go test ./internal/brick/paper -update -->\n\n# Every example, built and broken on a virtual rack\n\n")
	b.WriteString("What `make systems` saw ([systems.md](../systems.md)): `mortar init SYSTEM`, `rack up --scale`, `apply --skip-fence-test`, the same again, a server's crash under load (`drill server-crash`), `rack down`. ")
	b.WriteString("The servers are emulated by two processors (QEMU without KVM), so times are longer than those of real servers; and where the load was above 1 before it began, other racks or builds ran beside it. The rows are entries of [summary.json](../systems/summary.json).\n\n")
	b.WriteString("| system | date | disks of | load before | built | changed by the second apply | drill | longest stall | lost | whole time |\n|---|---|---|---|---|---|---|---|---|---|\n")
	var names, open []string
	files, err := fs.Glob(examples.FS, "*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		names = append(names, strings.TrimSuffix(f, ".yaml"))
	}
	for name := range ran {
		if !slices.Contains(names, name) {
			t.Errorf("summary.json: there is no example %s", name)
		}
	}
	for _, name := range names {
		r, ok := ran[name]
		if !ok {
			open = append(open, "`"+name+"`")
			continue
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %.1f | %s |\n", link(name), r.Started, r.Scale, r.Load, strings.Join(r.cells(), " | "))
	}
	for _, name := range names {
		if r := ran[name]; r.Error != "" {
			fmt.Fprintf(&b, "\n`%s`: %s\n", name, r.Error)
		}
	}
	if len(open) > 0 {
		fmt.Fprintf(&b, "\nNot run yet: %s.\n", strings.Join(open, ", "))
	}
	compare(t, filepath.Join(docs, "../results/systems.md"), b.String())
}

// link is a system's page, or its file if no paper describes it.
func link(name string) string {
	if _, ok := paper.Find(name); ok {
		return fmt.Sprintf("[%s](../systems/%s.md)", name, name)
	}
	return fmt.Sprintf("[%s](../../examples/%s.yaml)", name, name)
}

func compare(t *testing.T, file, want string) {
	t.Helper()
	if *update {
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(want), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	if have, err := os.ReadFile(file); err != nil || string(have) != want {
		t.Errorf("%s is not what the program says now (%v); look at the difference after go test ./internal/brick/paper -update", file, err)
	}
}

func page(t *testing.T, y paper.System, d *design.Design, r run, ran bool) string {
	var b strings.Builder
	fmt.Fprintf(&b, "<!-- written by go test ./internal/brick/paper -update -->\n\n# %s\n\n", y.Title)
	fmt.Fprintf(&b, "Source: %s. Example: [%s.yaml](../../examples/%s.yaml), `mortar init %s`. All systems: [systems.md](../systems.md).\n\n", y.Source, y.Name, y.Name, y.Name)
	b.WriteString("## Layout, capacity, tuning\n\n| what | paper | where | Mortar | obtained by | why it differs |\n|---|---|---|---|---|---|\n")
	for key := range y.Says {
		if !slices.ContainsFunc(release.Aspects(d), func(a release.Aspect) bool { return a.Key == key }) {
			t.Errorf("%s: no aspect %q", y.Name, key)
		}
	}
	for _, a := range release.Aspects(d) {
		if s, ok := y.Says[a.Key]; ok {
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", a.What, s.Value, s.Where, a.Value, a.How, s.Note)
		}
	}
	peaks(t, &b, y, d)
	failures(&b, d)
	b.WriteString("\n## Slips of the paper\n\nWhere it contradicts itself or its own figures. Mortar goes by the last column.\n\n| where | says | is |\n|---|---|---|\n")
	for _, s := range paper.Slips(y.Source) {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", s.Where, s.Says, s.Is)
	}
	b.WriteString("\n## Built and broken on a virtual rack\n\n")
	if !ran {
		fmt.Fprintf(&b, "Not yet: `make systems SYSTEMS=%s`.\n", y.Name)
		return b.String()
	}
	outcome(&b, r)
	return b.String()
}

func peaks(t *testing.T, b *strings.Builder, y paper.System, d *design.Design) {
	b.WriteString("\n## Peaks\n\n")
	if len(y.Figures) == 0 {
		b.WriteString("The paper has none of this configuration. `mortar forecast` says what it should deliver.\n")
		return
	}
	h, err := forecast.FromDesign(d)
	if err != nil {
		t.Fatal(err)
	}
	f, err := forecast.New(h, forecast.Defaults())
	if err != nil {
		t.Fatal(err)
	}
	b.WriteString("`mortar forecast` on the example; a test holds it within 20 % for streams and a factor of 1.5 for the rest, or wants the reason of the last column. All values of a row are in the paper's unit, and per cent are by how much the forecast is above the paper. [forecast.md](../forecast.md#how-good-is-it) has the systems side by side. `mortar bench --suite paper` measures the same, and its report shows it in this order.\n\n")
	if err := f.Beside(y, forecast.Defaults()); err != nil {
		t.Fatal(err)
	}
	with := forecast.MeasuredWith(y.Name)
	measured, line := "", ""
	if len(with) > 0 {
		measured, line = " as measured | per cent |", "---:|---:|"
		for _, a := range with {
			fmt.Fprintf(b, "*As measured*: the system was measured with `%s=%s` (`mortar forecast %s.yaml --set %s=%s`).\n\n", a.Name, a.Value, y.Name, a.Name, a.Value)
		}
	}
	fmt.Fprintf(b, "| figure | measured | paper | the text also says | forecast | per cent |%s limited by | why the example is another |\n|---|---|---|---|---:|---:|%s---|---|\n", measured, line)
	value := func(g paper.Figure, v float64) string {
		if v == 0 {
			return "none"
		}
		return paper.Figure{Peak: v, Unit: g.Unit}.Number()
	}
	for i, g := range y.Figures {
		p := f.Published[i]
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s | %s |", g.Where, p.Test, g.Number(), g.Says, value(g, p.Forecast), paper.PercentText(p.Percent))
		if len(with) > 0 {
			fmt.Fprintf(b, " %s | %s |", value(g, p.AsMeasured), paper.PercentText(p.MeasuredPercent))
		}
		fmt.Fprintf(b, " %s | %s |\n", p.Bottleneck, g.Example)
	}
}

func failures(b *strings.Builder, d *design.Design) {
	table := paper.Failures(d.Flavour)
	b.WriteString("\n## Failures\n\n")
	if len(table.Rows) == 0 {
		b.WriteString("The paper has no table of failures: a single server has no partner to take over, and clients wait until it is back. `mortar drill all brick.yaml` does the drills that need no partner.\n")
		return
	}
	fmt.Fprintf(b, "%s (%s). `mortar drill all brick.yaml` does the drills, and its report lists this table with what happened.\n\n", table.Title, table.Source)
	b.WriteString("| what fails | what must happen | published time | drill | otherwise here |\n|---|---|---|---|---|\n")
	for _, f := range table.Rows {
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s |\n", f.What, f.Must, f.Time, strings.Join(f.Drills, ", "), f.Here)
	}
}

func outcome(b *strings.Builder, r run) {
	fmt.Fprintf(b, "`make systems SYSTEMS=%s`, %s, disks of %s. All: [results/systems.md](../results/systems.md).\n\n", r.System, r.Started, r.Scale)
	b.WriteString("| built | changed by the second apply | drill | longest stall | lost | whole time |\n|---|---|---|---|---|---|\n")
	fmt.Fprintf(b, "| %s |\n", strings.Join(r.cells(), " | "))
	if r.Error != "" {
		fmt.Fprintf(b, "\n%s\n", r.Error)
	}
}

// cells are what became of it: built, changed, drill, stall, lost, time.
func (r run) cells() []string {
	built, changed, drill, stall, lost := "no", "–", "–", "–", "–"
	if r.Built {
		built = "yes"
	}
	if r.Changed != nil {
		changed = fmt.Sprint(*r.Changed)
	}
	if r.Verdict != "" {
		drill = r.Drill + ": " + r.Verdict
	}
	if r.Longest != nil {
		stall = fmt.Sprintf("%.1f s", *r.Longest)
	}
	if r.Lost != nil {
		lost = fmt.Sprintf("%d B", *r.Lost)
	}
	return []string{built, changed, drill, stall, lost, fmt.Sprintf("%.0f s", r.Seconds)}
}

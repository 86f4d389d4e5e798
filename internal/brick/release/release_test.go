package release

import (
	"flag"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/forecast"
	"github.com/mortarhpc/mortar/internal/brick/paper"
	"github.com/mortarhpc/mortar/internal/brick/spec"
)

var update = flag.Bool("update", false, "write docs/systems/releases.md")

func system(t *testing.T, name string) *Side {
	t.Helper()
	s, err := OfSystem(name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func ofSpec(t *testing.T, name string, edits ...string) *Side {
	t.Helper()
	src, err := os.ReadFile("../../../examples/" + name + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	sp, err := spec.Parse(name+".yaml", []byte(strings.NewReplacer(edits...).Replace(string(src))))
	if err != nil {
		t.Fatal(err)
	}
	d, err := design.Derive(sp)
	if err != nil {
		t.Fatal(err)
	}
	s, err := OfDesign(d)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func peak(t *testing.T, c *Comparison, of forecast.Pattern) Peak {
	t.Helper()
	for _, p := range c.Peaks {
		if p.Load == of {
			return p
		}
	}
	t.Fatalf("no peak of %s", of)
	return Peak{}
}

func near(p *float64, want float64) bool { return p != nil && math.Abs(*p-want) < 0.05 }

// The closing table of NSS7.4-HA, from its own values.
func TestClosingTable(t *testing.T) {
	c := Compare(system(t, "nss7.3-ha"), system(t, "nss7.4-ha"))
	for of, want := range map[forecast.Pattern]float64{forecast.SeqWrite: -1.5, forecast.SeqRead: -0.7, forecast.RandomWrite: -0.7, forecast.RandomRead: -42.4,
		forecast.Create: -1.1, forecast.Stat: -35.4, forecast.Remove: -35.4} {
		if p := peak(t, c, of); !near(p.PaperPercent, want) {
			t.Errorf("%s: published %s, want %.1f", of, paper.PercentText(p.PaperPercent), want)
		}
	}
	if p := peak(t, c, forecast.Stat); !near(p.Percent, -33.3) || !near(p.ForecastOverPaperB, 3.2) {
		t.Errorf("the system was measured with 16 cores: %+v", p)
	}
}

// A comparison of two specs names what differs, marks what is equal, and shows capacities in per cent.
func TestTwoSpecs(t *testing.T) {
	c := Compare(ofSpec(t, "nss4-ha-144"), ofSpec(t, "nss4-ha-288", "threads: 256", "threads: 128"))
	rows := map[string]Row{}
	for _, r := range c.Rows {
		rows[r.What] = r
	}
	if r := rows["raw capacity"]; !near(r.Percent, 100) || !near(r.PaperPercent, 100) || r.Same {
		t.Errorf("%+v", r)
	}
	if r := rows["servers"]; !r.Same || r.A.Paper == "" {
		t.Errorf("%+v", r)
	}
	if p := peak(t, c, forecast.RandomWrite); !near(p.Percent, 100) || p.PaperPercent != nil {
		t.Errorf("twice the disks: %+v", p)
	}
	parts := ""
	for _, r := range c.Rows {
		if !strings.HasSuffix(parts, r.Part+" ") {
			parts += r.Part + " "
		}
	}
	if parts != "components layout capacity tuning " {
		t.Errorf("parts are %s", parts)
	}
}

// A spec beside a published system: its forecast stands beside what was published.
func TestSpecAgainstSystem(t *testing.T) {
	mine := ofSpec(t, "nss4-ha-288", "name: nss4\n", "name: mine\n", "model: R620", "model: R999")
	if mine.System != "" {
		t.Fatalf("the spec is taken for %s", mine.System)
	}
	for _, c := range []*Comparison{Compare(system(t, "nss4-ha-288"), mine), Compare(mine, system(t, "nss4-ha-288"))} {
		var b strings.Builder
		if err := c.Text(&b); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"forecast of mine", "published of NSS4-HA, 288 TB", "4,058 MB/s", ": 288 TB)", "hw.memory_gib=64"} {
			if !strings.Contains(b.String(), want) {
				t.Errorf("lacks %q:\n%s", want, b.String())
			}
		}
	}
}

// Every pair of examples can be compared, whatever its flavour.
func TestEveryPair(t *testing.T) {
	sides := []*Side{ofSpec(t, "nfs"), ofSpec(t, "nfs-ha"), ofSpec(t, "jbod-ha"), ofSpec(t, "nvme-ha"), ofSpec(t, "lustre-small"), ofSpec(t, "nfs-ha-xl")}
	for _, y := range paper.Systems() {
		sides = append(sides, system(t, y.Name))
	}
	for _, a := range sides {
		for _, b := range sides {
			c := Compare(a, b)
			var text strings.Builder
			if err := c.Text(&text); err != nil || len(c.Rows) < 10 || len(c.Peaks) < 4 {
				t.Errorf("%s and %s: %v, %d rows, %d peaks", a.Name, b.Name, err, len(c.Rows), len(c.Peaks))
			}
			if strings.Contains(text.String(), "NaN") || strings.Contains(text.String(), "Inf %") {
				t.Errorf("%s and %s:\n%s", a.Name, b.Name, text.String())
			}
			if a == b {
				for _, r := range c.Rows {
					if !r.Same {
						t.Errorf("%s differs from itself: %+v", a.Name, r)
					}
				}
			}
		}
	}
	if _, err := OfSystem("nss9"); err == nil {
		t.Errorf("an unknown system: %v", err)
	}
}

// The page has each release beside its predecessor.
func TestPage(t *testing.T) {
	var b strings.Builder
	b.WriteString("<!-- written by go test ./internal/brick/release -update -->\n\n# Release against release\n\n")
	b.WriteString("Each release of the papers beside its predecessor, as the papers close. `mortar compare A B` makes the same of two specs, of a spec and a published system, or of two systems by their names ([bench.md](../bench.md#comparing)).\n\n")
	b.WriteString("*Paper* is what the paper says of the system, *Mortar* what the example has. Rates are in MB/s and operations per second. Per cent after a published value is by how much the forecast of the same system is above it; *on average* is the mean over 1, 2, 4 … 64 clients, for metadata 512 threads. What the model lacks where forecast and published ratios differ: [forecast.md](../forecast.md#how-good-is-it).\n\n")
	for _, p := range [][2]string{{"nss2-ha", "nss3-ha"}, {"nss3-ha", "nss4-ha-288"}, {"nss7.3-ha", "nss7.4-ha"}} {
		markdown(&b, Compare(system(t, p[0]), system(t, p[1])))
	}
	text := strings.TrimSuffix(b.String(), "\n")
	const file = "../../../docs/systems/releases.md"
	if *update {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if have, err := os.ReadFile(file); err != nil || string(have) != text {
		t.Errorf("%s is not what the program says now (%v); look at the difference after go test ./internal/brick/release -update", file, err)
	}
}

// markdown writes a comparison as a section of a page: rows that are equal are left out of the tables, and
// named below.
func markdown(b *strings.Builder, c *Comparison) {
	fmt.Fprintf(b, "## %s over %s\n\n", c.B.Name, c.A.Name)
	fmt.Fprintf(b, "`mortar compare %s %s`\n\n", c.A.System, c.B.System)
	for _, n := range c.Notes {
		fmt.Fprintf(b, "- %s\n", n)
	}
	fmt.Fprintf(b, "\n| what | %s, paper | Mortar | %s, paper | Mortar | per cent |\n|---|---|---|---|---|---:|\n", c.A.Name, c.B.Name)
	var same []string
	for _, r := range c.Rows {
		if r.Same && r.A.Paper == r.B.Paper {
			same = append(same, r.What)
			continue
		}
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s | %s |\n", r.What, r.A.Paper, r.A.Mortar, r.B.Paper, r.B.Mortar, r.percents())
	}
	fmt.Fprintf(b, "\nThe same in both: %s.\n\n", strings.Join(same, ", "))
	for i, row := range c.peakRows() {
		if i == 0 {
			row[0] = "peak"
		}
		says := "the paper also says"
		if i > 0 {
			says = c.Peaks[i-1].Says
		}
		fmt.Fprintf(b, "| %s | %s |\n", strings.Join(row, " | "), says)
		if i == 0 {
			fmt.Fprintf(b, "|---|---|%s---|\n", strings.Repeat("---:|", len(row)-2))
		}
	}
	b.WriteString("\n")
}

package paper_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/internal/brick/paper"
	"github.com/mortarhpc/mortar/internal/brick/spec"
)

func load(t *testing.T, name string) *spec.Spec {
	t.Helper()
	s, err := spec.Load("../../../examples/" + name + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A system is found by its example, scaled for a rack too, and by no other.
func TestOf(t *testing.T) {
	for _, y := range paper.Systems() {
		s := load(t, y.Name)
		for _, by := range []int64{1, 1000} {
			if err := s.Scale(by); err != nil {
				t.Fatal(err)
			}
			if got, ok := paper.Of(s); !ok || got.Name != y.Name {
				t.Errorf("%s at 1/%d: %q, %v", y.Name, by, got.Name, ok)
			}
		}
	}
	if got, ok := paper.Of(load(t, "nfs-ha")); ok {
		t.Errorf("nfs-ha is no system of a paper: %s", got.Name)
	}
}

// The figures, as digests of the papers list them.
func TestFigures(t *testing.T) {
	for _, c := range []struct{ system, test, phase, where, number string }{
		{"nss2-ha", "sequential", "seq-read", "Table 2", "2,430 MB/s"},
		{"nss3-ha", "sequential", "seq-read", "Figure 6", "2,127 MB/s"},
		{"nss4-ha-288", "sequential", "seq-write", "Figure 5", "1,535 MB/s"},
		{"nss4-ha-288", "metadata", "md-remove", "Figure 11", "no number"},
		{"nss5.5", "random", "rand-write", "Figure 4", "100,000 1/s"},
		{"nfs-dfc", "random", "rand-read", "Figure 8", "123,000 1/s at 32 clients"},
		{"nfs-dfc", "rewrite", "seq-rewrite", "Section 3.1", "750 MiB/s"},
		{"nss7.3-ha", "random", "rand-read", "Figure 3", "28,811 1/s at 32 clients"},
		{"nss7.4-ha", "metadata", "md-stat", "Figure 5", "522,231 1/s"},
		{"lustre-brick", "metadata-sync", "md-create", "Figures 23, 24", "15,000 1/s"},
	} {
		y, _ := paper.Find(c.system)
		f, _ := y.Figure(c.test, c.phase)
		if f.Where != c.where || f.Number() != c.number {
			t.Errorf("%s, %s: %s, %s; want %s, %s", c.system, c.phase, f.Where, f.Number(), c.where, c.number)
		}
	}
}

// What the list of slips says of sums and per cent follows from the papers' own figures, and every
// document has its list.
func TestSlips(t *testing.T) {
	for _, y := range paper.Systems() {
		if len(paper.Slips(y.Source)) == 0 {
			t.Errorf("%s: no list of slips", y.Source)
		}
	}
	is := func(system, where string) string {
		y, _ := paper.Find(system)
		for _, s := range paper.Slips(y.Source) {
			if s.Where == where {
				return s.Is
			}
		}
		t.Errorf("%s: no slip at %s", system, where)
		return ""
	}
	want := func(system, where, text string) {
		if got := is(system, where); !strings.Contains(got, text) {
			t.Errorf("%s, %s: %q lacks %q", system, where, got, text)
		}
	}
	now, _ := paper.Find("nss7.4-ha")
	before, _ := paper.Find("nss7.3-ha")
	var down []string
	for i, f := range now.Figures {
		down = append(down, fmt.Sprintf("%.1f", -*paper.Percent(before.Figures[i].Peak, f.Peak)))
		if f.Phase == "rand-read" {
			want("nss7.4-ha", "performance summary", fmt.Sprintf("%.0f %% higher", *paper.Percent(f.Peak, before.Figures[i].Peak)))
		}
	}
	want("nss7.4-ha", "closing table", strings.Join(down[:6], ", ")+" and "+down[6]+" %")
	want("nss7.4-ha", "table 5 (of files)", paper.Thousands(3000*4*128))
	want("lustre-brick", "10.7", paper.Thousands(32*2000))
	want("nfs-dfc", "3.2", fmt.Sprintf("%.1f times", 123000.0/9300))
	want("nfs-dfc", "table 1, A.2", "the system on RAID 1, swap on RAID 0")
}

package paper_test

import (
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
	for _, y := range paper.Systems {
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

package observe

import (
	"slices"
	"testing"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/serve/cache"
)

// Each change makes warnings in the expected parts.
func TestJudgeCache(t *testing.T) {
	whole := func() cache.Stats {
		return cache.Stats{
			Up: true, DirtyRoom: 1000, CleanRoom: 5000, Mirror: cache.Mirror{Members: 2, InSync: []string{"A", "B"}},
			SSDs: []cache.Life{{Serial: "A", Device: "nvme0n1", Left: 90}, {Serial: "B", Device: "nvme1n1", Left: -1}},
		}
	}
	for _, c := range []struct {
		name   string
		change func(*cache.Stats)
		want   []string // parts that are not OK
	}{
		{"whole", func(*cache.Stats) {}, nil},
		{"one leg", func(s *cache.Stats) { s.Mirror.InSync = []string{"B"}; s.SSDs[0].Device = "" }, []string{"mirror", "A"}},
		{"no mirror", func(s *cache.Stats) { s.Mirror = cache.Mirror{} }, []string{"mirror"}},
		{"nearly full", func(s *cache.Stats) { s.Dirty = 650 }, []string{"dirty"}},
		{"does not shrink", func(s *cache.Stats) { s.Dirty, s.DirtySeconds = 20, 700 }, []string{"dirty"}},
		{"not for long", func(s *cache.Stats) { s.Dirty, s.DirtySeconds = 20, 20 }, nil},
		{"reads", func(s *cache.Stats) { s.CleanRoom = 0 }, []string{"reads"}},
		{"worn", func(s *cache.Stats) { s.SSDs[0].Left = 5 }, []string{"A"}},
		{"predicts its failure", func(s *cache.Stats) { s.SSDs[1].Failing = true }, []string{"B"}},
		{"hot", func(s *cache.Stats) { s.SSDs[1].Warning = "it is too hot" }, []string{"B"}},
		{"no answer", func(s *cache.Stats) { s.SSDs[1].Unread = []string{"no JSON"} }, []string{"B"}},
		{"given up", func(s *cache.Stats) { s.Error = "bcache has given up" }, []string{"stack"}},
	} {
		st := whole()
		c.change(&st)
		p := &Part{}
		judgeCache(p, &design.Cache{Mode: cache.WriteBack}, "nfs1", st)
		var got []string
		for _, x := range p.Parts {
			if x.Level != OK {
				got = append(got, x.Name)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

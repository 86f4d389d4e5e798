package change

import (
	"slices"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/serve/cache"
)

// cacheLine puts each figure below its heading.
func TestCacheLine(t *testing.T) {
	a := cache.Stats{TimeNS: 1e9, ReadHits: 100, ReadMisses: 50, WrittenSSD: 1e6, Flushed: 1e6}
	b := a
	b.TimeNS += 2e9
	b.Volume = linux.BlockIO{Reads: 40, Writes: 10, WriteBytes: 8e6}
	b.ReadHits, b.ReadMisses = 130, 60
	b.WrittenSSD += 2e6
	b.Dirty, b.Flushed = 5e6, 4e6
	b.Disks = linux.BlockIO{Reads: 20, Writes: 4, WriteBytes: 6e6}
	b.SSDIO = linux.BlockIO{Reads: 60, Writes: 2, ReadBytes: 1e6, WriteBytes: 2e6}
	want := []string{"20", "75", "4.0", "25", "5.0", "1.5", "10", "2", "3.0", "30", "1", "1.5"}
	if got := strings.Fields(cacheLine(a, b)); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	b.WrittenSSD = a.WrittenSSD + 20e6
	if got := strings.Fields(cacheLine(a, b)); got[3] != "100" {
		t.Errorf("%q: more to the SSDs than was written", got)
	}
	if cacheLine(a, a) != "" {
		t.Error("no time has passed")
	}
}

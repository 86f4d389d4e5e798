package plan

import (
	"strings"
	"testing"
)

func TestHeaderSize(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct {
		align, extent int64
		stripes       int
		want          int64
	}{
		{0, 4 * mib, 1, 8 * mib},
		{1 * mib, 4 * mib, 1, 8 * mib},
		{1280 << 10, 4 * mib, 1, 20 * mib}, // 10 x 128 KiB: 20 MiB is the least both divide
		{1280 << 10, 4 * mib, 2, 40 * mib}, // as much on each of two arrays
		{8 * mib, 4 * mib, 3, 24 * mib},
	} {
		if got := headerSize(c.align, c.extent, c.stripes); got != c.want {
			t.Errorf("align %d, extent %d, %d stripes: %d, want %d", c.align, c.extent, c.stripes, got, c.want)
		}
	}
}

// A configuration of the cache that the server would refuse ends the plan, before
// any step: none is left out.
func TestBadCacheEndsThePlan(t *testing.T) {
	d, _, _ := offline(t, "nfs-dfc.yaml")
	d.Cached().Storage.Cache.Mode = "write-around"
	if steps, err := Desired(named(d), Facts{}, offlineSecrets); err == nil || !strings.Contains(err.Error(), "write-around") || len(steps) > 0 {
		t.Errorf("%d steps, %v", len(steps), err)
	}
}

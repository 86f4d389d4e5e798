package main

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/host/sshtest"
	"github.com/mortarhpc/mortar/internal/serve/cache"
)

// A change of the cache that the hosts refuse leaves the spec unchanged.
func TestCacheRefused(t *testing.T) {
	const block = "cache:\n  # two of them\n  ssds: [{serial: S1, size: 1.6TB, type: nvme}, {serial: S2, size: 1.6TB, type: nvme}]\n  mode: write-back\n"
	x := newSite(t, sshtest.Start(t), func(s string) string { return s + block })
	before, err := os.ReadFile(x.spec)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"mode", x.spec, "write-through"}, "Nothing was changed"}, // this machine lacks the disks
		{[]string{"off", x.spec}, "Nothing was changed"},
		{[]string{"mode", x.spec, "write-around"}, "write-around"},
		{[]string{"add", x.spec, "s1", "--size", "1.6TB"}, "SSD s1 is in the cache already"},
		{[]string{"add", x.spec, "S3", "--size", "900MB"}, "use SSDs of 1GB or more"},
		{[]string{"add", x.spec, "S3", "--size", "64MB"}, "an SSD of 64MB has no room for the metadata of a cache"},
		{[]string{"add", x.spec, "S3", "--size", "big"}, "--size"},
		{[]string{"remove", x.spec, "S1"}, "with this change, " + x.spec + ":"},
		{[]string{"remove", x.spec, "S1", "S2"}, "mortar cache off"},
		{[]string{"remove", x.spec, "S9"}, "SSD S9 is not in the cache"},
	} {
		code, out, msg := mortar(t, append(append([]string{"cache"}, tc.args...), "--yes")...)
		if code != exitBadInput || !strings.Contains(msg, tc.want) || !strings.Contains(strings.ToLower(msg), "nothing was changed") {
			t.Errorf("%v: exit code %d, %s%s", tc.args, code, out, msg)
		}
		if after, err := os.ReadFile(x.spec); err != nil || string(after) != string(before) {
			t.Fatalf("%v: the spec was changed (%v):\n%s", tc.args, err, after)
		}
	}
}

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

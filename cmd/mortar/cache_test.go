package main

import (
	"os"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/internal/host/sshtest"
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

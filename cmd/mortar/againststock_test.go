package main

import (
	"strings"

	"testing"

	"github.com/spf13/cobra"
)

func TestDrillAgainstStockRefused(t *testing.T) {
	for name, args := range map[string][]string{
		"unknown drill": {"drill", "versus", "x.yaml", "nothing"},
		"no such spec":  {"drill", "versus", "x.yaml", "server-crash", "--out", t.TempDir()},
		"rate":          {"drill", "versus", "x.yaml", "server-crash", "--rate", "-1"},
		"only":          {"drill", "versus", "x.yaml", "--only", "nothing"},
	} {
		if code, _, msg := mortar(t, args...); code != exitBadInput || msg == "" {
			t.Errorf("%s: code %d: %s", name, code, msg)
		}
	}
}

// The two runs of a comparison get the flags that the user gave, and know each of them.
func TestGivenFlags(t *testing.T) {
	for _, c := range []struct {
		own, child *cobra.Command
		args, want string
	}{
		{newDrillVersusCmd(), newDrillAllCmd(), "--repeat 5 --seconds 4 --only server-crash-freeze,both-rings --service home --how x --out d --json", "--only=server-crash-freeze,both-rings --repeat=5 --seconds=4 --service=home"},
		{newBenchCmd(), newBenchCmd(), "--against-stock --suite io500 --profile --survey --clients 1,2 --confirm b", "--clients=1,2 --profile=true --suite=io500 --survey=true"},
	} {
		if err := c.own.ParseFlags(strings.Fields(c.args)); err != nil {
			t.Fatal(err)
		}
		got := givenFlags(c.own, "how", "against-stock", "print-suite", "dry-run")
		if strings.Join(got, " ") != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
		if err := c.child.ParseFlags(got); err != nil {
			t.Error(err)
		}
	}
}

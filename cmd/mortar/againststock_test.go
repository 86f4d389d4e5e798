package main

import (
	"strings"
	"testing"
)

func TestDrillAgainstStockRefused(t *testing.T) {
	for name, args := range map[string][]string{
		"unknown drill": {"drill", "x.yaml", "nothing", "--against-stock"},
		"no such spec":  {"drill", "x.yaml", "server-crash", "--against-stock", "--out", t.TempDir()},
		"rate":          {"drill", "x.yaml", "server-crash", "--against-stock", "--rate", "-1"},
		"only":          {"drill", "x.yaml", "--all", "--against-stock", "--only", "nothing"},
	} {
		if code, _, msg := mortar(t, args...); code != exitBadInput || msg == "" {
			t.Errorf("%s: code %d: %s", name, code, msg)
		}
	}
}

func TestDrillForward(t *testing.T) {
	f := drillFlags{repeat: 5, seconds: 4, after: 8, only: []string{"server-crash-freeze", "both-rings"}, service: "home"}
	got := strings.Join(f.forward(), " ")
	if want := "--repeat 5 --seconds 4 --after 8 --rate 0 --within 0 --only server-crash-freeze,both-rings --service home"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	// The child command must know every flag that forward returns.
	cmd := newDrillCmd()
	for _, a := range f.forward() {
		if name, ok := strings.CutPrefix(a, "--"); ok && cmd.Flags().Lookup(name) == nil {
			t.Errorf("no flag --%s", name)
		}
	}
}

package main

import (
	"strings"
	"testing"
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

func TestDrillForward(t *testing.T) {
	f := drillFlags{repeat: 5, seconds: 4, after: 8, only: []string{"server-crash-freeze", "both-rings"}, service: "home"}
	got := strings.Join(f.forward(), " ")
	if want := "--repeat 5 --seconds 4 --after 8 --rate 0 --within 0 --only server-crash-freeze,both-rings --service home"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	// The child command must know every flag that forward returns.
	cmd := newDrillAllCmd()
	for _, a := range f.forward() {
		if name, ok := strings.CutPrefix(a, "--"); ok && cmd.Flags().Lookup(name) == nil {
			t.Errorf("no flag --%s", name)
		}
	}
}

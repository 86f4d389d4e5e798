package linux

import (
	"slices"
	"testing"
)

func TestHostNames(t *testing.T) {
	text := "127.0.0.1 localhost\n# 10.0.0.9 old\n10.0.0.9\tnfs  nfs.example # comment\n10.0.0.9 second\n10.0.0.90 other\n10.0.0.8"
	for address, want := range map[string][]string{"10.0.0.9": {"nfs", "nfs.example"}, "10.0.0.90": {"other"}, "10.0.0.8": {}, "10.0.0.7": nil} {
		if got := HostNames(text, address); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", address, got, want)
		}
	}
}

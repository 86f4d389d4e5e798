package design

import (
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/examples"
	"github.com/mortarhpc/mortar/internal/brick/spec"
)

// The write cache of an MD3 is mirrored, and the reason is given; without the mirror mortar check
// warns, and names what is lost.
func TestWriteCacheMirroring(t *testing.T) {
	at := "        model: MD3200\n"
	for _, c := range []struct {
		key, value string
		warned     int
	}{
		{"", "on", 0},
		{"        write_cache_mirroring: off\n", "off", 1},
	} {
		src, err := examples.FS.ReadFile("lustre-brick.yaml")
		if err != nil {
			t.Fatal(err)
		}
		s, err := spec.Parse("brick.yaml", []byte(strings.Replace(string(src), at, at+c.key, 1)))
		if err != nil {
			t.Fatal(err)
		}
		d, err := Derive(s)
		if err != nil {
			t.Fatal(err)
		}
		if got := d.Value("cache", "write cache mirroring of oss1"); got != c.value {
			t.Errorf("%q: the setting is %q, want %q", c.key, got, c.value)
		}
		warned := 0
		for _, w := range d.Warnings {
			if w.Rule == "unmirrored" {
				warned++
				if w.Line == 0 {
					t.Errorf("line %d: %s", w.Line, w.Text)
				}
			}
		}
		if warned != c.warned {
			t.Errorf("%q: %d warnings, want %d: %v", c.key, warned, c.warned, d.Warnings)
		}
	}
}

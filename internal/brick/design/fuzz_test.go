package design

import (
	"io"
	"io/fs"
	"regexp"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/examples"
	"github.com/mortarhpc/mortar/internal/brick/spec"
)

// Whatever the parser accepts can be designed, shown and drawn: without a
// panic, and every disk at most once in a group.
func FuzzDerive(f *testing.F) {
	files, err := fs.Glob(examples.FS, "*.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range files {
		src, err := fs.ReadFile(examples.FS, name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(src)
	}
	f.Fuzz(func(t *testing.T, src []byte) { derivable(t, src) })
}

// derivable says whether the spec was good.
func derivable(t *testing.T, src []byte) bool {
	t.Helper()
	s, err := spec.Parse("fuzz.yaml", src)
	if err != nil {
		return false
	}
	d, err := Derive(s)
	if err != nil {
		return false
	}
	seen := map[string]bool{}
	for _, g := range d.Groups {
		for _, m := range g.Members {
			if seen[m.Serial] {
				t.Errorf("%s is in two groups", m.Serial)
			}
			seen[m.Serial] = true
		}
	}
	if c := d.Capacity; c.Usable <= 0 || c.RAID <= 0 || c.RAID > c.Raw {
		t.Errorf("capacity %+v", c)
	}
	for _, l := range d.LUNs() {
		if l.Size <= 0 {
			t.Errorf("LUN %s has %d bytes", l.Name, l.Size)
		}
	}
	if err := Show(io.Discard, d, ShowOptions{Explain: true}); err != nil {
		t.Error(err)
	}
	if err := SVG(io.Discard, d); err != nil {
		t.Error(err)
	}
	return true
}

// Each line of a system left out, and each number another one, in turn.
func TestSlips(t *testing.T) {
	number := regexp.MustCompile(`\b[0-9]+\b`)
	for _, name := range []string{"lustre-small", "nss5.5", "nfs-dfc"} {
		src, err := fs.ReadFile(examples.FS, name+".yaml")
		if err != nil {
			t.Fatal(err)
		}
		text := string(src)
		good, tried := 0, 0
		try := func(s string) {
			tried++
			if derivable(t, []byte(s)) {
				good++
			}
		}
		at := 0
		for line := range strings.Lines(text) {
			try(text[:at] + text[at+len(line):])
			at += len(line)
		}
		for _, m := range number.FindAllStringIndex(text, -1) {
			for _, n := range []string{"0", "1", "7"} {
				try(text[:m[0]] + n + text[m[1]:])
			}
		}
		if good == 0 || good == tried {
			t.Errorf("%s: %d of %d accepted", name, good, tried)
		}
	}
}

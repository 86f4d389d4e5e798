package spec

import (
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/examples"
)

// Only the entry of the disk changes, wherever it is written, and a range that it
// is in is split.
func TestReplaceDisk(t *testing.T) {
	b, err := examples.FS.ReadFile("nfs-ha.yaml")
	if err != nil {
		t.Fatal(err)
	}
	const flow = `      - {serial: "MA[01-03]", size: 2GB, type: nl-sas} # MA01, MA02, MA03; on real hardware e.g. size: 12TB` + "\n"
	for _, c := range []struct{ name, was, serial, want string }{
		{"first of a range", flow, "MA01", `      - {serial: "ZX9", size: 2GB, type: nl-sas}
      - {serial: "MA[02-03]", size: 2GB, type: nl-sas} # MA01, MA02, MA03; on real hardware e.g. size: 12TB
`},
		{"inside of a range", flow, "ma02", `      - {serial: "MA01", size: 2GB, type: nl-sas}
      - {serial: "ZX9", size: 2GB, type: nl-sas}
      - {serial: "MA03", size: 2GB, type: nl-sas} # MA01, MA02, MA03; on real hardware e.g. size: 12TB
`},
		{"a list on one line", `      [{serial: MA01, size: 2GB}, {serial: "MA[02-03]", size: 2GB}]` + "\n", "MA02",
			`      [{serial: MA01, size: 2GB}, {serial: "ZX9", size: 2GB}, {serial: "MA03", size: 2GB}]` + "\n"},
		{"line by line", "      - serial: MA01 # the first\n        size: 2GB\n      - {serial: 'MA[02-03]', size: 2GB}\n", "MA01",
			"      - {serial: \"ZX9\", size: 2GB}\n      - {serial: 'MA[02-03]', size: 2GB}\n"},
		{"with a WWN", "      - {serial: MA01, wwn: \"5000000000000001\", size: 2GB}\n      - {serial: 'MA[02-03]', size: 2GB}\n", "MA01",
			"      - {serial: \"ZX9\", wwn: \"5000000000000009\", size: 2GB}\n      - {serial: 'MA[02-03]', size: 2GB}\n"},
	} {
		src := strings.Replace(string(b), flow, c.was, 1)
		s, err := Parse("x.yaml", []byte(src))
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		want := strings.Replace(string(b), flow, c.want, 1)
		got, err := s.ReplaceDisk(c.serial, "ZX9", "5000000000000009")
		if err != nil || string(got) != want {
			t.Errorf("%s: %v\n%s", c.name, err, got)
		}
		failed, err := s.FailDisk(c.serial)
		if err != nil || string(failed) != src+"\nfailed: [\""+strings.ToUpper(c.serial)+"\"]\n" {
			t.Errorf("%s: %v\n%s", c.name, err, failed)
			continue
		}
		if s, err = Parse("x.yaml", failed); err != nil {
			t.Fatal(err)
		}
		if got, err = s.ReplaceDisk(c.serial, "ZX9", "5000000000000009"); err != nil || strings.TrimRight(string(got), "\n") != strings.TrimRight(want, "\n") {
			t.Errorf("%s, after it failed: %v\n%s", c.name, err, got)
		}
	}
	s, err := Parse("x.yaml", b)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.ReplaceDisk("MA1", "ZX9", ""); err == nil {
		t.Error(err)
	}
	if _, err := s.ReplaceDisk("MA01", "MB01", ""); err == nil {
		t.Error(err)
	}
	if _, err := s.FailDisk("XX"); err == nil {
		t.Error(err)
	}
}

func TestRangeOf(t *testing.T) {
	for _, list := range []string{"MA[01-12]", "S9[1-3]5X", "A[098-101]", "A[10-13]"} {
		all, err := expandSerial(list)
		if err != nil {
			t.Fatal(err)
		}
		if got := rangeOf(list, all); got != list {
			t.Errorf("%s: %s", list, got)
		}
	}
}

package release

import (
	"runtime/debug"
	"testing"
)

// A build without the linker's version has that of its module.
func TestVersion(t *testing.T) {
	for module, want := range map[string]string{"": "unknown", "(devel)": "unknown", "v0.3.0": "v0.3.0", "v0.0.0-20261128155524-44237a9d0000+dirty": "v0.0.0-20261128155524-44237a9d0000+dirty"} {
		if got := versionOf(&debug.BuildInfo{Main: debug.Module{Version: module}}); got != want {
			t.Errorf("%q: %q, want %q", module, got, want)
		}
	}
	if got := Version("0.3.0"); got != "0.3.0" {
		t.Error(got)
	}
}

func TestNewer(t *testing.T) {
	parse := func(text string) Build {
		t.Helper()
		b, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	old, utc, later := parse(`{"version":"0.2.0"}`), parse(`{"version":"a","made":"2026-11-27T10:00:00Z"}`), parse(`{"version":"b","made":"2026-11-27T11:30:00+01:00","x":1}`)
	order := []Build{old, utc, later}
	for i, a := range order {
		for j, b := range order {
			if a.Newer(b) != (i > j) {
				t.Errorf("%s newer than %s: %v", a, b, a.Newer(b))
			}
		}
	}
	if old.String() != "0.2.0 (of unknown time)" || later.String() != "b of 2026-11-27 10:30" {
		t.Error(old, later)
	}
	if _, err := Parse("mortar 0.2.0"); err == nil {
		t.Error("an older build's version is taken")
	}
}

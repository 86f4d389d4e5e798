package linux

import "testing"

func TestParseOSRelease(t *testing.T) {
	for text, want := range map[string]OSRelease{
		"PRETTY_NAME=\"Debian GNU/Linux 13 (trixie)\"\nNAME=\"Debian GNU/Linux\"\nVERSION_ID=\"13\"\nID=debian\n": {"debian", "13", "Debian GNU/Linux 13 (trixie)"},
		"# ID=other\nID='rhel'\nID_LIKE=\"fedora\"\nVERSION_ID=\"9.4\"\n":                                         {"rhel", "9.4", ""},
		"": {},
	} {
		if got := ParseOSRelease(text); got != want {
			t.Errorf("%q: %+v, want %+v", text, got, want)
		}
	}
}

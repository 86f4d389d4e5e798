package resource

import (
	"testing"

	"github.com/mortarhpc/mortar/internal/base/distro"
	"github.com/mortarhpc/mortar/internal/base/linux"
)

// FuzzToolOutput: whatever a tool prints, no parser panics or hangs.
func FuzzToolOutput(f *testing.F) {
	for _, s := range []string{
		"", "{}",
		"Id=a\nNames=a b\n\nId=c\n", "/srv\t*(rw,sync)\n", "+3 -4.0 +4.1\n",
		"Package: a\nStatus: install ok installed\n", `<cib epoch="1"><configuration/></cib>`, "<a><b/></a><c/>", "</a>", "<a>",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		_, _ = linux.ParseCRM(s)
		parseShow(s)
		servedVersions(s)
		distro.Default().Manager.Installed(s)
		if e, err := parseXML([]byte(s)); err == nil {
			// What was read is written and read as the same again.
			again, err := parseXML([]byte(e.String()))
			if err != nil || !e.same(again) {
				t.Errorf("%q became %q: %v", s, e.String(), err)
			}
		}
	})
}

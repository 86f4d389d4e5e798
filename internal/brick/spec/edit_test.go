package spec

import (
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/examples"
)

// A file with line ends of Windows has the same errors at the same places, and is edited as one
// of Unix is.
func TestLinesOfWindows(t *testing.T) {
	b, err := examples.FS.ReadFile("nfs-ha.yaml")
	if err != nil {
		t.Fatal(err)
	}
	windows := func(text []byte) []byte { return []byte(strings.ReplaceAll(string(text), "\n", "\r\n")) }
	wrong := []byte(strings.Replace(string(b), "apiVersion", "# a\n# b\napiVersio", 1))
	_, unix := Parse("x.yaml", wrong)
	if _, err := Parse("x.yaml", windows(wrong)); err == nil || err.Error() != unix.Error() {
		t.Errorf("%v\n%v", err, unix)
	}
	var texts [2]string
	for i, src := range [][]byte{b, windows(b)} {
		s, err := Parse("x.yaml", src)
		if err != nil {
			t.Fatal(err)
		}
		for _, edit := range []func() ([]byte, error){
			func() ([]byte, error) { return s.FailDisk("MA01") },
			func() ([]byte, error) { return s.ReplaceDisk("MA02", "ZX9", "") },
			func() ([]byte, error) { return s.Grow([]Added{{Enclosure: "C", Serial: "MC[01-20]", Service: "home"}}) },
		} {
			text, err := edit()
			if err == nil {
				s, err = Parse("x.yaml", text)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		texts[i] = string(s.Source)
	}
	if texts[1] != string(windows([]byte(texts[0]))) {
		t.Errorf("%q", texts[1])
	}
}

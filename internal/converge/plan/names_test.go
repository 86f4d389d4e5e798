package plan

import (
	"regexp"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/examples"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

// Whatever servers, PDUs and services are called, the spec is refused or no ID of the
// cluster's configuration and no file of a host is there twice.
func TestNamesDoNotCollide(t *testing.T) {
	words := []string{"a", "pdu-a", "a-2", "pdu-pdu-a", "a-params", "a-params-ip", "a-bmc", "pdu-a-bmc", "a-meta", "a-monitor-900s", "a-start-0s", "a-link", "a-storage-rule", "a-clone"}
	refused, built := 0, 0
	try := func(example, from1, to1, from2, to2 string) {
		text, err := examples.FS.ReadFile(example)
		if err != nil {
			t.Fatal(err)
		}
		swap := func(s, from, to string) string {
			return regexp.MustCompile(`(: |, |\[|- )`+from+`([,}\]\s])`).ReplaceAllString(s, "${1}"+to+"${2}")
		}
		s, err := spec.Parse("brick.yaml", []byte(strings.ReplaceAll(swap(swap(string(text), from1, "\x00"), from2, to2), "\x00", to1)))
		if err != nil {
			if !strings.Contains(err.Error(), "collide") && !strings.Contains(err.Error(), "cannot name") && !strings.Contains(err.Error(), "twice") && !strings.Contains(err.Error(), "taken") {
				t.Fatalf("%s: %q and %q: %v", example, to1, to2, err)
			}
			refused++
			return
		}
		built++
		d, err := design.New(s)
		if err != nil {
			t.Fatal(err)
		}
		steps, err := Desired(d, Facts{}, testSecrets)
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]bool{}
		for _, st := range steps {
			key := st.Host + " " + st.named()
			if c, ok := st.Resource.(*resource.CIB); ok {
				for _, m := range regexp.MustCompile(` id="([^"]*)"`).FindAllStringSubmatch(c.Configuration, -1) {
					if seen["id "+m[1]] {
						t.Errorf("%s: %q and %q: ID %s is there twice", example, to1, to2, m[1])
					}
					seen["id "+m[1]] = true
				}
			}
			if seen[key] && st.Kind() == "file" {
				t.Errorf("%s: %q and %q: %s is there twice", example, to1, to2, key)
			}
			seen[key] = true
		}
	}
	for i, x := range words {
		for _, y := range words[i+1:] {
			try("nfs-ha.yaml", "pdu-a", x, "pdu-b", y)
			try("nfs-ha.yaml", "nfs1", x, "nfs2", y)
			try("nfs-ha.yaml", "nfs1", x, "pdu-a", y)
		}
	}
	if refused == 0 || built == 0 {
		t.Errorf("%d refused, %d built", refused, built)
	}
}

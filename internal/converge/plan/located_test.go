package plan

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/examples"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/host/agent"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

// A refusal that came over the wire points at the first disk that it names, and else at its
// host. A serial in its text says nothing: an agent of an earlier release has no more.
func TestRefusalHasItsPlace(t *testing.T) {
	text, err := examples.FS.ReadFile("nfs-ha.yaml")
	if err != nil {
		t.Fatal(err)
	}
	s, err := spec.Parse("brick.yaml", text)
	if err != nil {
		t.Fatal(err)
	}
	lineOf := func(word string) int {
		return 1 + strings.Count(string(text[:bytes.Index(text, []byte(word))]), "\n")
	}
	old := resource.Refusal{What: "disk MA03 is small"}
	for name, c := range map[string]struct {
		refusal *resource.Refusal
		line    int
	}{
		"one disk": {resource.Refuse("disk-too-small", resource.With{"disk": resource.Named{ID: "MB03", Words: "the disk in bay 3"}, "bytes": 5, "want": 6}), lineOf(`"MB[`)},
		"several":  {resource.Refuse("disks-not-there", resource.With{"disks": []string{"MA02", "MB03"}, "are": "are"}), lineOf(`"MA[`)},
		"no disk":  {resource.Refuse("host-not-root", resource.With{"host": "nfs2"}), lineOf("name: nfs2")},
		"old":      {&old, lineOf("name: nfs2")},
	} {
		b, err := json.Marshal(agent.ToError(c.refusal))
		var e agent.Error
		if err := errors.Join(err, json.Unmarshal(b, &e)); err != nil {
			t.Fatal(err)
		}
		var all spec.Errors
		err = Located(s, Refusals{{Host: "nfs2", Refusal: resource.Refusal{Identity: e.Refused, What: e.Message}}})
		if !errors.As(err, &all) || len(all) != 1 || all[0].Line != c.line {
			t.Errorf("%s: %v, want line %d", name, err, c.line)
		}
	}
}

package host

import (
	"regexp"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/internal/host/resource"
)

func TestCommandOf(t *testing.T) {
	for args, want := range map[string]string{
		"/usr/bin/mortar apply brick.yaml --yes": "mortar apply",
		"mortar lustre pool create b.yaml x":     "mortar lustre pool",
		"./bin/mortar --help":                    "mortar",
		"mortar drill out/brick.yaml crash":      "mortar drill",
	} {
		if got := commandOf(strings.Fields(args)); got != want {
			t.Errorf("%s: got %q, want %q", args, got, want)
		}
	}
}

// Each action that reaches a host says who has it done.
func TestActionSaysWho(t *testing.T) {
	h := &fakeHost{}
	if _, err := New("nfs1", h).Run(t.Context(), resource.Action{Title: "set", Cmd: []string{"true"}}); err != nil {
		t.Fatal(err)
	}
	if got := h.ran[0].By; !regexp.MustCompile(`^\S+@\S+ \(host\.test\)$`).MatchString(got) {
		t.Errorf("by %q", got)
	}
}

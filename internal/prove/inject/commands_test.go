package inject

import (
	"context"
	"io"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/run/cli"
)

// A rack that is there stays as it is; a saved one is made once, and restored where no rack is.
func TestReady(t *testing.T) {
	for _, x := range []struct {
		known, up bool
		want      string
	}{
		{true, true, ""},
		{true, false, "rack restore"},
		{false, false, "rack up, apply, rack save"},
		{false, true, "rack up, apply, rack save"},
	} {
		var did []string
		c := &cli.Console{Out: io.Discard, Env: &cli.Env{
			Virtual: func(context.Context, *spec.Spec) bool { return x.up },
			Call: func(_ context.Context, _ io.Reader, _, _ io.Writer, args ...string) error {
				word, _, _ := strings.Cut(strings.Join(args, " "), " brick.yaml")
				did = append(did, word)
				return nil
			},
		}}
		if err := Ready(t.Context(), c, &spec.Spec{File: "brick.yaml"}, "fresh", x.known); err != nil {
			t.Error(err)
		}
		if got := strings.Join(did, ", "); got != x.want {
			t.Errorf("did %q, want %q", got, x.want)
		}
	}
}

// The Restore of a drill tells how long it took, if it did not fail.
func TestRestoring(t *testing.T) {
	d, err := cli.Example("nfs-ha")
	if err != nil {
		t.Fatal(err)
	}
	var said []string
	restore := NewOperator(d, nil).restoring("fresh", func(context.Context, string, bool) error { return nil }, func(s string) { said = append(said, s) })
	if err := restore(t.Context()); err != nil || len(said) != 1 || !strings.HasPrefix(said[0], "restored fresh in ") {
		t.Errorf("%v, %q", err, said)
	}
}

func TestProgressWriter(t *testing.T) {
	var said []string
	n := &progressWriter{say: func(s string) { said = append(said, s) }}
	for _, part := range []string{`{"event":"upgrade","server":"nfs2","st`, "ep\":\"standby\"}\n{\"hosts\": [\n", `{"group":"brick1-r0","server":"nfs1","action":"recovery","percent":42}` + "\n"} {
		if k, err := n.Write([]byte(part)); k != len(part) || err != nil {
			t.Fatal(k, err)
		}
	}
	if got := strings.Join(said, "\n"); got != "  nfs2: standby\n  brick1-r0 on nfs1: recovery 42.0 %" {
		t.Errorf("%q", got)
	}
	text := []byte(`{"hosts":[{"host":"nfs1","changes":[{"step":"exports"}]},{"host":"c1","changes":[]}],"pending":1,"steps":9}`)
	if got := pendingOf(text); got != "nfs1: exports" {
		t.Error(got)
	}
}

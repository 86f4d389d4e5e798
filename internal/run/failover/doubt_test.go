package failover

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/host/agent"
	"github.com/mortarhpc/mortar/internal/host/hosttest"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

// keepers are servers with the files that a start was refused for.
type keepers struct {
	Hosts
	files map[string]string // by server
}

func (k keepers) Session(name string) *host.Session {
	return hosttest.Play(func(_ context.Context, on, op string, params, result any) error {
		text, there := k.files[on]
		switch p := params.(type) {
		case agent.QueryParams:
			if err := resource.ReadOnly(p.Argv); err != nil {
				return err
			}
			out := "ocf-home.log\n"
			if there {
				out += "doubt-home.json\n"
			}
			return hosttest.Answer(result, resource.Output{Stdout: out})
		case agent.ReadParams:
			return hosttest.Answer(result, agent.ReadResult{Content: []byte(text)})
		}
		return errors.New(op)
	}).Session(name)
}

func TestInDoubt(t *testing.T) {
	d := theDesign(t)
	doubt := func(at string) string {
		return `{"service": "home", "at": "` + at + `", "arrays": [{"name": "r0", "uuid": "u", "events": 9, "blocks": [4096]}]}`
	}
	for _, c := range []struct {
		name, situation string
		files           map[string]string
		node, fault     string
	}{
		{"nobody has refused", "healthy", nil, "", ""},
		{"one has", "healthy", map[string]string{"nfs1": doubt("2026-11-26T12:00:00Z")}, "nfs1", ""},
		{"the newer one counts", "healthy", map[string]string{"nfs1": doubt("2026-11-26T12:00:00Z"), "nfs2": doubt("2026-11-26T12:00:01Z")}, "nfs2", ""},
		{"one that could not start it does not", "standby", map[string]string{"nfs1": doubt("2026-11-26T12:00:00Z")}, "", ""},
		{"half a file", "healthy", map[string]string{"nfs2": doubt("2026-11-26T12:00:00Z")[:60]}, "", "nfs2: /run/mortar/doubt-home.json: "},
	} {
		r, err := InDoubt(t.Context(), d, facts(t, c.situation, nil), keepers{files: c.files}, "")
		switch {
		case c.fault != "" && (err == nil || !strings.Contains(err.Error(), c.fault)), c.fault == "" && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.node == "" && r != nil, c.node != "" && (r == nil || r.Node != c.node || string(r.raw) != c.files[c.node] || r.Doubt.Arrays[0].Blocks[0] != 4096):
			t.Errorf("%s: %+v", c.name, r)
		}
	}
}

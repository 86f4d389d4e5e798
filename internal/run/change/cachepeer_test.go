package change

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/host/agent"
	"github.com/mortarhpc/mortar/internal/host/hosttest"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/run/observe"
	"github.com/mortarhpc/mortar/test/example"
)

func TestCachePeer(t *testing.T) {
	d := example.Design(t, "nfs-ha.yaml")
	dial := func(_ context.Context, name string) (*host.Session, error) {
		if name == "nfs3" {
			return nil, errors.New("no route to host")
		}
		return hosttest.Play(func(_ context.Context, name, _ string, params, result any) error {
			argv := params.(agent.QueryParams).Argv
			out := resource.Output{}
			if slices.Contains(argv, "stats") {
				out.Stdout = `{"up":` + map[string]string{"nfs1": "false", "nfs2": "true"}[name] + `}`
			}
			return hosttest.Answer(result, out)
		}).Session(name), nil
	}
	if _, err := NewCachePeer(d, observe.NewCollector(d, dial, time.Second, d.Servers()...)); err == nil {
		t.Errorf("a brick without a cache: %v", err)
	}
	d.Services()[0].Storage.Cache = &design.Cache{}
	p, err := NewCachePeer(d, observe.NewCollector(d, dial, time.Second, d.Servers()...))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	server, st, err := p.Stats(t.Context(), true)
	if err != nil || server != "nfs2" || !st.Up || p.names[0] != "nfs2" {
		t.Errorf("%s %+v %v, then %v", server, st, err, p.names)
	}
	p.names = []string{"nfs1", "nfs3"}
	if _, _, err := p.Stats(t.Context(), false); err == nil || !strings.HasPrefix(err.Error(), "nfs1: ") || !strings.HasSuffix(err.Error(), "no route to host") {
		t.Error(err)
	}
}

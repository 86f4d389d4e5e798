package fault

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/host/agent"
	"github.com/mortarhpc/mortar/internal/host/hosttest"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

// What a loop device holds is let go of.
func TestLetGo(t *testing.T) {
	var ran []string
	conn := hosttest.Play(func(_ context.Context, _, op string, params, result any) error {
		switch op {
		case "query":
			return hosttest.Answer(result, resource.Output{Stdout: "/dev/loop7\n"})
		case "run":
			ran = append(ran, strings.Join(params.(agent.RunParams).Action.Cmd, " "))
		}
		return nil
	})
	b := &Site{}
	if _, err := b.Hosts.Connect(t.Context(), func(_ context.Context, name string) (*host.Session, error) { return conn.Session(name), nil }, "nfs1"); err != nil {
		t.Fatal(err)
	}
	if err := releaseFS(t.Context(), b, Fault{On: "nfs1", Args: []string{"/dev/b1/data"}}); err != nil || !slices.Equal(ran, []string{"losetup --detach /dev/loop7"}) {
		t.Errorf("%v, ran %q", err, ran)
	}
}

func TestSizes(t *testing.T) {
	if got := sizes(17<<40, 8<<40); !slices.Equal(got, []int64{8 << 40, 8 << 40, 1 << 40}) || sizes(-5, 8) != nil {
		t.Errorf("parts %d", got)
	}
}

package observe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/host/gather"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

// realLine answers with the real handlers, on this machine.
type realLine struct{ closed chan struct{} }

func (realLine) Call(ctx context.Context, op string, params, result any, _ func(json.RawMessage)) error {
	raw, err := json.Marshal(params)
	if err != nil {
		return err
	}
	out, err := gather.Handlers()[op](ctx, raw, nil)
	if err != nil {
		return err
	}
	b, err := json.Marshal(out)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, result)
}

func (c realLine) Close() { close(c.closed) }

// deafLine never answers, even after the end of its context.
type deafLine chan struct{}

func (d deafLine) Call(context.Context, string, any, any, func(json.RawMessage)) error {
	<-d
	return nil
}

func (deafLine) Close() {}

func TestCollect(t *testing.T) {
	d := theDesign(t)
	closed := make(chan struct{})
	deaf := make(deafLine)
	defer close(deaf)
	c := NewCollector(d, func(ctx context.Context, name string) (*host.Session, error) {
		switch name {
		case "nfs1":
			return host.New(name, realLine{closed}), nil
		case "nfs2":
			return host.New(name, deaf), nil
		}
		return nil, errors.New("no route to host")
	}, time.Second)
	f := c.Collect(t.Context())
	if h := f.Hosts["nfs1"].Host; h == nil || h.Hostname == "" || h.NowNS == 0 || h.Files["/proc/uptime"] == "" {
		t.Errorf("nfs1: %+v", f.Hosts["nfs1"])
	}
	if got := f.Hosts["nfs2"].Err; got != "no answer within 1s" {
		t.Errorf("nfs2: %q", got)
	}
	if got := f.Hosts["c1"].Err; got != "no route to host" {
		t.Errorf("c1: %q", got)
	}
	Judge(d, f) // of this very machine
	c.Close()
	<-closed
}

// However many clients are off, the servers are asked.
func TestCollectBesideSilentClients(t *testing.T) {
	d := *theDesign(t)
	one, s := d.Spec.Clients[0], *d.Spec
	for i := range 500 {
		one.Name = fmt.Sprintf("a%03d", i)
		s.Clients = append(s.Clients, one)
	}
	d.Spec = &s
	for range 3 { // goroutines begin in any order
		c := NewCollector(&d, func(ctx context.Context, name string) (*host.Session, error) {
			if !slices.Contains(d.Servers(), name) {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return host.New(name, realLine{make(chan struct{})}), nil
		}, time.Second)
		f := c.Collect(t.Context())
		c.Close()
		for _, s := range d.Servers() {
			if f.Hosts[s].Host == nil {
				t.Errorf("%s: %s", s, f.Hosts[s].Err)
			}
		}
	}
}

// notedLine notes the request, and answers nothing.
type notedLine struct{ r *gather.Request }

func (n notedLine) Call(_ context.Context, _ string, params, _ any, _ func(json.RawMessage)) error {
	*n.r, _ = params.(gather.Request)
	return nil
}

func (notedLine) Close() {}

// Status asks a server for all that it judges of the cluster; a wait for a change asks for crm_mon
// alone, several times a second.
func TestClusterRequests(t *testing.T) {
	asks := func(r gather.Request, command string) bool {
		return slices.ContainsFunc(r.Run, func(argv []string) bool { return strings.Join(argv, " ") == command })
	}
	d := theDesign(t)
	for name, r := range requests(d, time.Minute) {
		server := slices.Contains(d.Servers(), name)
		if asks(r, gather.CmdCRM) != server || asks(r, gather.CmdWaits) != server || r.CIB != server {
			t.Errorf("%s: %+v", name, r)
		}
	}
	var r gather.Request
	c := NewCollector(d, func(_ context.Context, name string) (*host.Session, error) { return host.New(name, notedLine{&r}), nil }, time.Second)
	if _, err := c.Cluster(t.Context(), "nfs1"); err == nil || !asks(r, gather.CmdCRM) || len(r.Run) != 1 || r.CIB {
		t.Errorf("%v, %+v", err, r)
	}
}

// The host refuses a query that is not on the list of read-only ones. Then status
// would lack its output, so every query must be on the list.
func TestRequestsOnlyRead(t *testing.T) {
	for _, flavour := range []string{"nfs", "nfs-ha", "nfs-ha-xl"} {
		for host, r := range requests(designOf(t, flavour), time.Minute) {
			for _, argv := range r.Run {
				if err := resource.ReadOnly(argv); err != nil {
					t.Errorf("%s: %s: %v", flavour, host, err)
				}
			}
		}
	}
}

package drill

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/host/agent"
	"github.com/mortarhpc/mortar/internal/host/hosttest"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/prove/fault"
	"github.com/mortarhpc/mortar/internal/prove/report"
	"github.com/mortarhpc/mortar/internal/serve/unit"
	"github.com/mortarhpc/mortar/test/example"
)

// What the drill takes away and what the watcher says, by the design: a service with a
// network namespace has its address there.
func TestAddressGone(t *testing.T) {
	for _, file := range []string{"nfs-ha.yaml", "nfs-ha-xl.yaml"} {
		d := example.Design(t, file)
		all, err := Choose([]string{"address-gone"}, nil)
		if err != nil || len(all) != 2 {
			t.Fatal(all, err)
		}
		for _, c := range all {
			s := d.Services()[0]
			var ran [][]string
			conn := hosttest.Play(func(_ context.Context, _, op string, params, result any) error {
				if op == "query" {
					return hosttest.Answer(result, resource.Output{Stdout: "2: ens1@if3    inet " + s.Address + "/24 scope global"})
				}
				if op == "run" {
					ran = append(ran, params.(agent.RunParams).Action.Cmd)
				}
				return nil
			})
			e := &fault.Site{Scene: fault.Scene{Design: d, Service: s}, Env: fault.Env{Design: d, Injector: &pair{}, Service: s.Name}}
			if _, err := e.Hosts.Connect(t.Context(), func(_ context.Context, name string) (*host.Session, error) { return conn.Session(name), nil }, "nfs1"); err != nil {
				t.Fatal(err)
			}
			if err := Possible(e.Env, c.Drill, c.Variant); err != nil {
				t.Errorf("%s: %v", c.Name(), err)
			}
			steps, err := c.Variant.Steps(fault.Scene{Design: d, Service: s, Active: "nfs1", Passive: "nfs2"})
			if err != nil {
				t.Fatal(err)
			}
			f, _ := actOf(steps[0])
			if err := e.InjectorOf(f).Inject(t.Context(), f); err != nil || len(ran) != 1 {
				t.Fatal(ran, err)
			}
			cmd := ran[0]
			if got := slices.Contains(cmd, s.Address+"/"+strconv.Itoa(s.Prefix)); f.Args[0] == unit.TheAddress && !got {
				t.Errorf("%s: %q", c.Name(), cmd)
			}
			if in := slices.Contains(cmd, s.Namespace); s.Namespace != "" && f.Args[0] == unit.TheAddress && !in {
				t.Errorf("%s: %q, and the namespace is %s", c.Name(), cmd, s.Namespace)
			}
			if f.Args[0] == unit.TheName && !strings.Contains(strings.Join(cmd, " "), strings.ReplaceAll(s.Address, ".", `\.`)) {
				t.Errorf("%s: %q", c.Name(), cmd)
			}
		}
	}
}

// The drill has shown something only if the watcher says so after the fault, on that server.
func TestPutBack(t *testing.T) {
	for _, c := range []struct {
		x    report.Event
		want bool
	}{
		{report.Event{Host: "nfs1", NS: 200, Code: "put-back-address"}, true},
		{report.Event{Host: "nfs2", NS: 200, Code: "put-back-address"}, false},
		{report.Event{Host: "nfs1", NS: 50, Code: "put-back-address"}, false},
		{report.Event{Host: "nfs1", NS: 200, Text: "service home: service address 10.20.0.20/24 is gone, and it is not put back: x"}, false},
		{report.Event{Host: "nfs1", NS: 200, Code: "put-back-name"}, false},
	} {
		v := &fault.Site{Watch: fault.NewWatcher(func(string) {}, nil)}
		v.Watch.Add(c.x)
		v.Watch.SetFault(100)
		if got, said := putBack("nfs1", unit.TheAddress).Look(t.Context(), v); got != c.want {
			t.Errorf("%+v: %v, %s", c.x, got, said)
		}
	}
}

package drill

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/internal/prove/report"
)

// What the drill takes away and what the watcher says, by the design: a service with a
// network namespace has its address there.
func TestAddressGone(t *testing.T) {
	for _, example := range []string{"nfs-ha.yaml", "nfs-ha-xl.yaml"} {
		d := exampleDesign(t, example)
		all, err := Choose([]string{"address-gone"}, nil)
		if err != nil || len(all) != 2 {
			t.Fatal(all, err)
		}
		for _, c := range all {
			s := d.Services()[0]
			e := &engine{env: Env{Design: d, Injector: &pair{}, Service: s.Name}, service: s}
			if err := Possible(e.env, c.Drill, c.Variant); err != nil {
				t.Errorf("%s: %v", c.Name(), err)
			}
			steps, err := c.Variant.Steps(Scene{Design: d, Service: s, Active: "nfs1", Passive: "nfs2"})
			if err != nil || len(steps) != 1 {
				t.Fatal(steps, err)
			}
			f := steps[0].Fault
			cmd := e.taking(f).Cmd
			if got := slices.Contains(cmd, s.Address+"/"+strconv.Itoa(s.Prefix)); f.Args[0] == theAddress && !got {
				t.Errorf("%s: %q", c.Name(), cmd)
			}
			if in := slices.Contains(cmd, s.Namespace); s.Namespace != "" && f.Args[0] == theAddress && !in {
				t.Errorf("%s: %q, and the namespace is %s", c.Name(), cmd, s.Namespace)
			}
			if f.Args[0] == theName && !strings.Contains(strings.Join(cmd, " "), strings.ReplaceAll(s.Address, ".", `\.`)) {
				t.Errorf("%s: %q", c.Name(), cmd)
			}
		}
	}
}

// The drill has shown something only if the watcher says so after the fault, on that server.
func TestPutBack(t *testing.T) {
	line := "service home: service address 10.20.0.20/24 was gone: put back"
	for _, c := range []struct {
		x    report.Event
		want bool
	}{
		{report.Event{Host: "nfs1", NS: 200, Text: line}, true},
		{report.Event{Host: "nfs2", NS: 200, Text: line}, false},
		{report.Event{Host: "nfs1", NS: 50, Text: line}, false},
		{report.Event{Host: "nfs1", NS: 200, Text: "service home: service address 10.20.0.20/24 is gone, and it is not put back: x"}, false},
		{report.Event{Host: "nfs1", NS: 200, Text: "service home: the line of 10.20.0.20 in /etc/hosts was gone: put back"}, false},
	} {
		v := &View{e: &engine{watch: &watcher{events: []report.Event{c.x}}}}
		v.fault = 100
		if got, said := putBack("nfs1", "service address").Look(t.Context(), v); got != c.want {
			t.Errorf("%+v: %v, %s", c.x, got, said)
		}
	}
}

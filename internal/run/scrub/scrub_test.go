package scrub

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/host/agent"
	"github.com/mortarhpc/mortar/internal/host/gather"
	"github.com/mortarhpc/mortar/internal/host/hosttest"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

func TestPercent(t *testing.T) {
	for s, want := range map[string]float64{"1024 / 4096": 25, "none": -1, "": -1, "1 / 0": -1, "4096 / 4096": 100} {
		got, ok := percent(s)
		if !ok {
			got = -1
		}
		if got != want {
			t.Errorf("%q: %g, want %g", s, got, want)
		}
	}
}

// servers fakes the servers: nfs2 has the array.
func servers(result string) host.ByName {
	return hosttest.Play(func(_ context.Context, host, op string, params, result2 any) error {
		switch op {
		case string(gather.Op):
			f := gather.Host{Disks: []resource.DiskFact{{Serial: "MA01", WWN: "5000c50000000101", Paths: []string{"sda", "sdg"}}}}
			if host == "nfs2" {
				f.Files = map[string]string{"/sys/block/md127/md/array_state": "clean\n", "/sys/block/md127/md/uuid": "1:2:3:4\n", "/sys/block/dm-3/dm/name": "35000c50000000101\n"}
			}
			return hosttest.Answer(result2, f)
		case "run":
			argv := params.(agent.RunParams).Action.Cmd
			if got := strings.Join(argv[1:], " "); got != "scrub-array /dev/md127 --repair" {
				return errors.New("unexpected " + got)
			}
			return hosttest.Answer(result2, resource.Output{Stdout: result})
		}
		return errors.New("unexpected " + op)
	}).Session
}

func TestRun(t *testing.T) {
	d := &design.Design{Spec: &spec.Spec{Servers: []spec.Server{{Name: "nfs1"}, {Name: "nfs2"}}}, Disks: []design.Disk{{Serial: "MA01", Enclosure: "A", Bay: 1}}}
	g := design.Group{Name: "b-r0", UUID: "1:2:3:4", Level: 6}
	r, err := Run(t.Context(), servers(`{"mismatches_sectors":8,"found":2,"mended":2,"findings":[{"member":"dm-3","slot":0,"bytes":4096,"mended":true},{"member":"dm-3","slot":0,"bytes":4096,"mended":true}]}`), d, g, true, nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]Disk{{Serial: "MA01", Enclosure: "A", Bay: 1, Blocks: 2}}, r.Disks); diff != "" || r.Server != "nfs2" || !r.Clean() {
		t.Errorf("%+v %s", r, diff)
	}
	for name, g := range map[string]design.Group{"inside of an array": {Name: "x", Level: 6, Array: "md3200"}, "mirror": {Name: "x", Level: 10}, "nowhere": {Name: "x", Level: 6, UUID: "9:9:9:9"}} {
		if _, err := Run(t.Context(), servers(""), d, g, true, nil); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := Run(t.Context(), servers("no JSON"), d, g, true, nil); err == nil {
		t.Error("an answer that is no JSON passes")
	}
}

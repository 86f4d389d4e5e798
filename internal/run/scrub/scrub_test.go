package scrub

import (
	"context"
	"errors"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

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

// servers fakes the servers: nfs2 has the array, and is asked to scrub it with these options.
func servers(options, result string) host.ByName {
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
			if got := strings.Join(argv[1:], " "); got != "scrub-array /dev/md127"+options {
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
	r, err := Run(t.Context(), servers(" --repair", `{"mismatches_sectors":8,"found":2,"mended":2,"findings":[{"member":"dm-3","slot":0,"bytes":4096,"mended":true},{"member":"dm-3","slot":0,"bytes":4096,"mended":true}]}`), d, g, nil, Repair)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]Disk{{Serial: "MA01", Enclosure: "A", Bay: 1, Blocks: 2}}, r.Disks); diff != "" || r.Server != "nfs2" || !r.Clean() {
		t.Errorf("%+v %s", r, diff)
	}
	for name, g := range map[string]design.Group{"inside of an array": {Name: "x", Level: 6, Array: "md3200"}, "mirror": {Name: "x", Level: 10}, "nowhere": {Name: "x", Level: 6, UUID: "9:9:9:9"}} {
		if _, err := Run(t.Context(), servers(" --repair", ""), d, g, nil, Repair); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := Run(t.Context(), servers(" --repair", "no JSON"), d, g, nil, Repair); err == nil {
		t.Error("an answer that is no JSON passes")
	}
	r, err = Run(t.Context(), servers(" --within 3m0s", `{"percent":12.5,"mismatches_sectors":8}`), d, g, nil, "--within", "3m0s")
	if err != nil || r.Percent != 12.5 || r.Mismatches != 8 {
		t.Errorf("%+v, %v", r, err)
	}
}

// md is a fake of the kernel's side of an array that compares. It takes a second for a range, and
// finds a sector in it that differs.
func md(t *testing.T, stopped, delayed bool) *Array {
	a := &Array{Dev: "md127", Disks: 4, Chunk: 64 << 10, sys: t.TempDir()}
	a.poke = func(file, value string) error {
		all := map[string]string{path.Base(file): value, "mismatch_cnt": "1"}
		if value == "check" {
			time.Sleep(time.Second)
			to, err := a.read("sync_max")
			switch {
			case err != nil:
				return err
			case stopped:
				all["sync_action"], all["sync_min"] = "idle", "4096"
			case delayed:
				all["sync_completed"] = "delayed"
			case to == "max":
				all["sync_action"], all["sync_min"] = "idle", "0"
			default:
				all["sync_completed"] = to + " / 99999999"
			}
		}
		for name, text := range all {
			if err := os.WriteFile(filepath.Join(a.sys, name), []byte(text+"\n"), 0o600); err != nil {
				return err
			}
		}
		return nil
	}
	return a
}

// A comparison counts only as far as it came, and only if md went on with it.
func TestCompare(t *testing.T) {
	for _, c := range []struct {
		name             string
		rows             int64
		stopped, delayed bool
		within           time.Duration
		percent          float64
		differ           int64
		fails            bool
	}{
		{name: "whole", rows: 200, within: time.Minute, percent: 100, differ: 2},
		{name: "too large", rows: 64000, within: 3 * time.Second, percent: 0.3, differ: 3},
		{name: "stopped by somebody", rows: 200, stopped: true, within: time.Minute, fails: true},
		{name: "waits for another array", rows: 200, delayed: true, within: 10 * time.Second, fails: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := md(t, c.stopped, c.delayed)
				a.Size = c.rows * a.Chunk
				r, err := a.Compare(t.Context(), c.within)
				if (err != nil) != c.fails {
					t.Fatalf("%+v, %v", r, err)
				}
				if err == nil && (r.Percent != c.percent || r.Mismatches != c.differ || r.Left != c.differ) {
					t.Errorf("%+v", r)
				}
			})
		})
	}
}

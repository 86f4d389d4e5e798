package fault

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
)

// systemMirror is a server whose system is on md0.
type systemMirror struct {
	degraded, level, mdstat string
	strays                  []gather.Stray
	ran                     []string
}

func (m *systemMirror) Close() {}

func (m *systemMirror) Call(_ context.Context, op string, params, result any, _ func(json.RawMessage)) error {
	switch op {
	case string(agent.OpTime):
		return nil
	case string(gather.Op):
		*result.(*gather.Host) = gather.Host{Strays: m.strays, Files: map[string]string{
			"/proc/mdstat":                     m.mdstat,
			"/sys/block/md0/md/array_state":    "active\n",
			"/sys/block/md0/md/uuid":           "c0ffee00-1111-2222-3333-444455556666\n",
			"/sys/block/md0/md/level":          m.level + "\n",
			"/sys/block/md0/md/raid_disks":     "2\n",
			"/sys/block/md0/md/degraded":       m.degraded + "\n",
			"/sys/block/md0/md/dev-vdc/state":  "in_sync\n",
			"/sys/block/md127/md/array_state":  "active\n",
			"/sys/block/md127/md/uuid":         "12345678-1111-2222-3333-444455556666\n",
			"/sys/block/md127/md/level":        "raid1\n",
			"/sys/block/md127/md/raid_disks":   "2\n",
			"/sys/block/md127/md/degraded":     "1\n",
			"/sys/block/md127/md/sync_action":  "idle\n",
			"/sys/block/md127/md/mismatch_cnt": "0\n",
			"/sys/block/md127/md/sync_min":     "0\n",
		}}
		return nil
	case "run":
		a := params.(agent.RunParams).Action
		m.ran = append(m.ran, strings.Join(a.Cmd, " "))
		m.degraded, m.strays = "0", nil
		return nil
	}
	return fmt.Errorf("unexpected %s", op)
}

func (m *systemMirror) site(t *testing.T) *Site {
	d := &design.Design{Spec: &spec.Spec{}, Pairs: []design.Pair{{Servers: []string{"nfs1", "nfs2"}, Services: []design.Service{{Name: "home", NFS: &design.NFS{Address: "10.0.0.9", MountPoint: "/srv/home"}}}}}}
	d.Groups = append(d.Groups, design.Group{Name: "b-r0", UUID: "12345678:11112222:33334444:55556666"})
	e := &Site{Scene: Scene{Design: d}, Env: Env{Virtual: true}, Rejoin: 3 * time.Second}
	if _, err := e.Hosts.Connect(t.Context(), func(_ context.Context, name string) (*host.Session, error) { return host.New(name, m), nil }, "nfs1"); err != nil {
		t.Fatal(err)
	}
	return e
}

func TestMirrored(t *testing.T) {
	var unhealthy *Unhealthy
	var refused *Refused
	for name, tt := range map[string]struct {
		m    systemMirror
		want any // the error; nil: none
	}{
		"whole":     {systemMirror{degraded: "0", level: "raid1"}, nil},
		"degraded":  {systemMirror{degraded: "1", level: "raid1"}, &unhealthy},
		"busy":      {systemMirror{degraded: "0", level: "raid1", mdstat: "md0 : active raid1\n  [=>..]  resync = 1.0% (1/99) finish=1.0min speed=1K/sec\n"}, &unhealthy},
		"no mirror": {systemMirror{degraded: "0", level: "raid0"}, &refused},
	} {
		t.Run(name, func(t *testing.T) {
			err := mirrored(t.Context(), tt.m.site(t), Fault{On: "nfs1"})
			if tt.want == nil && err != nil || tt.want != nil && !errors.As(err, tt.want) {
				t.Errorf("%T %v", err, err)
			}
		})
	}
}

func TestReturnSystemDisk(t *testing.T) { synctest.Test(t, testReturnSystemDisk) }

func testReturnSystemDisk(t *testing.T) {
	m := &systemMirror{degraded: "1", level: "raid1", strays: []gather.Stray{{Dev: "sdz", Array: "md127"}, {Dev: "vdb", Array: "md0"}}}
	if err := returnSystemDisk(t.Context(), m.site(t), Fault{On: "nfs1"}); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"mdadm --manage /dev/md0 --add /dev/vdb"}, m.ran); d != "" {
		t.Error(d)
	}
	// The disk does not come back.
	m = &systemMirror{degraded: "1", level: "raid1"}
	if err := returnSystemDisk(t.Context(), m.site(t), Fault{On: "nfs1"}); err == nil || len(m.ran) > 0 {
		t.Errorf("%v, ran %q", err, m.ran)
	}
}

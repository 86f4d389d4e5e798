package drill

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/host/agent"
	"github.com/mortarhpc/mortar/internal/host/gather"
)

// mirrored is a server whose system is on md0.
type mirrored struct {
	degraded, level, mdstat string
	strays                  []gather.Stray
	ran                     []string
}

func (m *mirrored) Close() {}

func (m *mirrored) Call(_ context.Context, op string, params, result any, _ func(json.RawMessage)) error {
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

func (m *mirrored) engine(t *testing.T) *engine {
	d := newPair(t).design()
	d.Groups = append(d.Groups, design.Group{Name: "b-r0", UUID: "12345678:11112222:33334444:55556666"})
	e := &engine{env: Env{Design: d, Virtual: true}, opt: Options{Rejoin: 3 * time.Second}}
	if _, err := e.hosts.Connect(t.Context(), func(_ context.Context, name string) (*host.Session, error) { return host.New(name, m), nil }, "nfs1"); err != nil {
		t.Fatal(err)
	}
	return e
}

func TestMirrored(t *testing.T) {
	for name, tt := range map[string]struct {
		m         mirrored
		unhealthy bool
		want      string
	}{
		"whole":     {mirrored{degraded: "0", level: "raid1"}, false, ""},
		"degraded":  {mirrored{degraded: "1", level: "raid1"}, true, "md0 of nfs1 is degraded"},
		"busy":      {mirrored{degraded: "0", level: "raid1", mdstat: "md0 : active raid1\n  [=>..]  resync = 1.0% (1/99) finish=1.0min speed=1K/sec\n"}, true, "being resynced"},
		"no mirror": {mirrored{degraded: "0", level: "raid0"}, false, "on no md RAID 1"},
	} {
		t.Run(name, func(t *testing.T) {
			err := tt.m.engine(t).mirrored(t.Context(), Fault{On: "nfs1"})
			var u *Unhealthy
			var r *Refused
			switch {
			case tt.want == "" && err != nil, tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("%v, want %q", err, tt.want)
			case tt.want != "" && errors.As(err, &u) != tt.unhealthy, tt.want != "" && errors.As(err, &r) == tt.unhealthy:
				t.Errorf("%T", err)
			}
		})
	}
}

func TestReturnSystemDisk(t *testing.T) { synctest.Test(t, testReturnSystemDisk) }

func testReturnSystemDisk(t *testing.T) {
	m := &mirrored{degraded: "1", level: "raid1", strays: []gather.Stray{{Dev: "sdz", Array: "md127"}, {Dev: "vdb", Array: "md0"}}}
	if err := m.engine(t).returnSystemDisk(t.Context(), Fault{On: "nfs1"}); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"mdadm --manage /dev/md0 --add /dev/vdb"}, m.ran); d != "" {
		t.Error(d)
	}
	// The disk does not come back.
	m = &mirrored{degraded: "1", level: "raid1"}
	if err := m.engine(t).returnSystemDisk(t.Context(), Fault{On: "nfs1"}); err == nil || !strings.Contains(err.Error(), "not whole") || len(m.ran) > 0 {
		t.Errorf("%v, ran %q", err, m.ran)
	}
}

// The drill pulls a disk of the active server only.
func TestLocalDiskSteps(t *testing.T) {
	steps, err := localDisk(Scene{Active: "nfs2", Passive: "nfs1"})
	if err != nil || len(steps) != 1 || steps[0].Fault.String() != "local-disk nfs2 0" {
		t.Errorf("%v %v", steps, err)
	}
	if !slices.ContainsFunc(Table, func(d Drill) bool {
		return d.Name == "local-disk" && d.Expect.Where == Stays && d.Expect.Fencing == Nobody
	}) {
		t.Error("not in the table")
	}
}

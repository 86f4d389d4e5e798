package disk

import (
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/examples"
	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/run/observe"
)

func brick(t *testing.T, name, more string) *design.Design {
	t.Helper()
	b, err := examples.FS.ReadFile(name + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	s, err := spec.Parse("brick.yaml", append(b, more...))
	if err != nil {
		t.Fatal(err)
	}
	d, err := design.New(s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestFind(t *testing.T) {
	p, err := Find(brick(t, "nfs-ha", ""), "ma02")
	if err != nil || p.String() != "disk MA02 (enclosure A, bay 2) of group brick1-r0" || len(p.servers) != 2 {
		t.Errorf("%v, %v", p, err)
	}
	if _, err := Find(brick(t, "nfs-ha", ""), "XX"); err == nil || !strings.Contains(err.Error(), "no RAID group has a disk XX") {
		t.Error(err)
	}
	d := brick(t, "nss2-ha", "")
	if _, err := Find(d, d.Disks[0].Serial); err == nil || !strings.Contains(err.Error(), "is in no md array") {
		t.Error(err)
	}
}

// An SSD of a journal is a disk of its mirror: one that fails leaves no redundancy.
func TestJournalSSD(t *testing.T) {
	b, err := examples.FS.ReadFile("nfs-ha.yaml")
	if err != nil {
		t.Fatal(err)
	}
	s, err := spec.Parse("brick.yaml", []byte(strings.Replace(string(b), "storage:\n", "storage:\n  journal: {ssds: [{serial: 'J[1-2]', size: 2GB}]}\n", 1)))
	if err != nil {
		t.Fatal(err)
	}
	d, err := design.New(s)
	if err != nil {
		t.Fatal(err)
	}
	p, err := Find(d, "j2")
	if err != nil || p.String() != "disk J2 (enclosure journal, bay 2) of group brick1-j0" || len(p.servers) != 2 {
		t.Fatal(p, err)
	}
	st := &State{Server: "nfs1", Array: linux.MDArray{Dev: "md126", Level: "raid1", RaidDisks: 2},
		Members: []linux.MDMember{{Dev: "nvme0n1", States: []string{"in_sync"}}, {Dev: "nvme1n1", States: []string{"in_sync"}, Slot: 1}},
		disks:   []observe.DiskState{{DiskFact: resource.DiskFact{Serial: "J1", Paths: []string{"/dev/nvme0n1"}}}, {DiskFact: resource.DiskFact{Serial: "J2", Paths: []string{"/dev/nvme1n1"}}}}}
	if err := p.MayFail(st, false); err == nil || !strings.Contains(err.Error(), "without disk J2") {
		t.Error(err)
	}
	if err := p.MayFail(st, true); err != nil {
		t.Error(err)
	}
	if err := p.MayReplace(st, "brick.yaml"); err == nil || !strings.Contains(err.Error(), "still works") {
		t.Error(err)
	}
	st.Members[1].States, st.Array.Degraded = []string{"faulty"}, 1
	if err := p.MayReplace(st, "brick.yaml"); err != nil {
		t.Error(err)
	}
}

// state is a RAID 6 2+2 with members in these states, on disks MA01, MB01, MA02 and
// MB02, and from the fifth on spares.
func state(degraded int, states ...string) *State {
	st := &State{Server: "nfs1", Array: linux.MDArray{Dev: "md127", Level: "raid6", RaidDisks: 4, Degraded: degraded}}
	for i, s := range states {
		slot := i
		if i >= 4 || strings.HasPrefix(s, "spare") && !strings.Contains(s, "replacement") {
			slot = -1
		}
		dev := "dm-" + string(rune('0'+i))
		serial := []string{"MA01", "MB01", "MA02", "MB02", "MA03", "MB03"}[i]
		st.Members = append(st.Members, linux.MDMember{Dev: dev, States: strings.Split(s, ","), Slot: slot})
		st.disks = append(st.disks, observe.DiskState{DiskFact: resource.DiskFact{Serial: serial, Paths: []string{"/dev/sda", dev}}})
	}
	return st
}

// A disk may leave if the group keeps redundancy: through a spare, or through its
// remaining members. The last redundancy may go only with bare, data never.
func TestMayFail(t *testing.T) {
	p, err := Find(brick(t, "nfs-ha", ""), "MA01")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		st   *State
		bare bool
		want string
	}{
		{"a spare takes over", state(0, "in_sync", "in_sync", "in_sync", "in_sync", "spare"), false, ""},
		{"no spare, one more may fail", state(0, "in_sync", "in_sync", "in_sync", "in_sync"), false, ""},
		{"one is missing", state(1, "in_sync", "faulty", "in_sync", "in_sync"), false, "another failure in brick1-r0 would lose data"},
		{"one is missing, asked for", state(1, "in_sync", "faulty", "in_sync", "in_sync"), true, ""},
		{"two are missing", state(2, "in_sync", "faulty", "faulty", "in_sync"), true, "brick1-r0 cannot do without disk MA01"},
		{"it has failed", state(1, "faulty", "in_sync", "in_sync", "in_sync"), false, ""},
		{"it is gone", &State{Array: linux.MDArray{RaidDisks: 4, Degraded: 1}}, false, ""},
	} {
		err := p.MayFail(c.st, c.bare)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestMayReplace(t *testing.T) {
	p, err := Find(brick(t, "nfs-ha", ""), "MA01")
	if err != nil {
		t.Fatal(err)
	}
	for states, want := range map[string]string{
		"in_sync":                  "still works",
		"in_sync,want_replacement": "is being copied to a spare",
		"faulty":                   "",
		"spare":                    "",
	} {
		err := p.MayReplace(state(0, states, "in_sync", "in_sync", "in_sync"), "brick.yaml")
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v", states, err)
		}
	}
}

// Members missing because of disks taken out of service do not count as a failed
// replacement.
func TestLacks(t *testing.T) {
	st := state(1, "in_sync", "in_sync", "in_sync", "faulty")
	p, err := Find(brick(t, "nfs-ha", ""), "MA01")
	if err != nil || p.Lacks(st) != 1 {
		t.Errorf("%v: %d", err, p.Lacks(st))
	}
	if p, err = Find(brick(t, "nfs-ha", "\nfailed: [MB02]\n"), "MA01"); err != nil || p.Lacks(st) != 0 {
		t.Errorf("%v: %d", err, p.Lacks(st))
	}
}

package md

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseExamine(t *testing.T) {
	got := ParseExamine(`mdadm: No md superblock detected on /dev/c.
/dev/a:
          Magic : a92b4efc
    Feature Map : 0x200
     Array UUID : 5d1c0aaa:01234567:89abcdef:00000001
         Events : 42
    Device Role : Active device 3
/dev/b:
     Array UUID : 5d1c0aaa:01234567:89abcdef:00000001
         Events : 41
    Device Role : spare
`)
	const uuid = "5d1c0aaa0123456789abcdef00000001"
	want := map[string]*Superblock{"/dev/a": {UUID: uuid, Events: 42, Features: FeatureJournal, Roles: []uint16{3}}, "/dev/b": {UUID: uuid, Events: 41}}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if a, b := got["/dev/a"].Slot(), got["/dev/b"].Slot(); a != 3 || b != -1 {
		t.Errorf("slots %d and %d", a, b)
	}
	if (&Superblock{}).Slot() != -1 {
		t.Error("a member that has no role has a slot")
	}
	faulty := Superblock{DevNumber: 1, Roles: []uint16{0, 0xfffe}}
	if faulty.Slot() != -1 {
		t.Error("a faulty member has a slot")
	}
	if Stale(41, 42) || !Stale(40, 42) {
		t.Error("one event behind is in time, two are not")
	}
}

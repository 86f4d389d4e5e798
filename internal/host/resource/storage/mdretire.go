package storage

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/base/md"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

// retire takes failed disks out of a running array, and what md has thrown out
// and the design does not have any more. A disk that still works is copied to a
// spare first, so that the array keeps its redundancy: md copies in the
// background, and then calls the disk faulty. What remains is to remove it.
//
// Source: mdadm(8), --replace; Documentation/admin-guide/md.rst, dev-XXX/state.
func (a *Array) retire(sys resource.Look, r linux.MDArray, disks arrayDisks) ([]resource.Action, error) {
	members, err := linux.MDMembers(resource.Tree{Sys: sys}, r.Dev)
	sys.Check(err)
	at := func(name string) *linux.MDMember {
		i := slices.IndexFunc(members, func(m linux.MDMember) bool { return m.Dev == name })
		if i < 0 {
			return nil
		}
		return &members[i]
	}
	known := map[string]bool{}
	failed := disks.failed
	for _, d := range slices.Concat(disks.own, disks.others) {
		known[d.memberName(sys, r)] = true
		if d.Ref.Failed {
			failed = append(failed, d)
		}
	}
	var as []resource.Action
	manage := func(title, why string, args ...string) {
		as = append(as, resource.Action{Title: title, Why: why, Cmd: append([]string{"mdadm", "--manage", "/dev/" + r.Dev}, args...)})
	}
	for _, d := range failed {
		name := d.memberName(sys, r)
		known[name] = true
		m := at(name)
		switch {
		case m == nil:
		case m.Is("faulty") || m.Slot < 0:
			manage(fmt.Sprintf("remove %s from array %s", d.Ref, a.Name), "", "--remove", name)
		case m.Is("want_replacement") && replaced(members, m):
			// md copies it; `mortar disk fail` waits for that.
		case m.Is("in_sync") && r.Degraded == 0 && idleSpare(members) && !replaced(members, nil):
			manage(fmt.Sprintf("copy %s to a spare of array %s", d.Ref, a.Name), "the array keeps its redundancy; it gives the disk up when the spare has everything", "--replace", d.stable())
		case m.Is("in_sync") && (replaced(members, nil) || !a.canDoWithout(r, members, m)):
			return nil, &resource.Refusal{
				What: fmt.Sprintf("array %s cannot give %s up now: it lacks %d of %d members, or copies another one", a.Name, d.Ref, r.Degraded, r.RaidDisks),
				Mend: "wait until it is whole (`mortar status`), or replace the missing disk first",
			}
		default:
			manage(fmt.Sprintf("take %s out of array %s", d.Ref, a.Name), "there is no spare that it could be copied to", "--fail", name, "--remove", name)
		}
	}
	for _, m := range members {
		if m.Is("faulty") && !known[m.Dev] {
			manage(fmt.Sprintf("remove %s from array %s", m.Dev, a.Name), "it has failed, and the design does not have it any more", "--remove", m.Dev)
			if name := pathlessMap(sys, m.Dev); name != "" {
				as = append(as, resource.Action{
					Title: "remove the multipath map " + name, Why: "it has no path left: its disk was pulled while the array held it", Cmd: []string{"multipath", "-f", name}, OKCodes: []int{1},
				})
			}
		}
	}
	return as, nil
}

// pathlessMap is the name of a multipath map without paths; "" if the device is none.
func pathlessMap(sys resource.Look, dev string) string {
	if !strings.HasPrefix(sys.Text("/sys/block/"+dev+"/dm/uuid"), "mpath-") || len(sys.Files("/sys/block/"+dev+"/slaves/*")) > 0 {
		return ""
	}
	return sys.Text("/sys/block/" + dev + "/dm/name") // one without a name is left alone
}

// idleSpare tells whether the array has a spare that it could use.
func idleSpare(members []linux.MDMember) bool {
	return slices.ContainsFunc(members, func(m linux.MDMember) bool { return m.Slot < 0 && m.Is("spare") && !m.Is("faulty") })
}

// replaced tells whether a member is being copied to another disk; nil: any.
func replaced(members []linux.MDMember, m *linux.MDMember) bool {
	return slices.ContainsFunc(members, func(x linux.MDMember) bool {
		return x.Is("replacement") && !x.Is("faulty") && (m == nil || x.Slot == m.Slot)
	})
}

// canDoWithout tells whether an array goes on without a member.
func (a *Array) canDoWithout(r linux.MDArray, members []linux.MDMember, m *linux.MDMember) bool {
	present := linux.MDPresent(r.RaidDisks, members, func(x linux.MDMember) bool { return x.Dev != m.Dev })
	return md.CanLose(a.Level, md.Near2, present) >= 0
}

package storage

import (
	"strconv"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/internal/host/resource"
)

// A disk that is taken out of service is copied to a spare if there is one, and
// given up at once if not; and never if the array could not go on.
func TestArrayRetires(t *testing.T) {
	refs := append([]DiskRef(nil), twoRefs...)
	refs[0].Failed = true
	a := &Array{Name: "r0", UUID: groupUUID, Level: 6, Chunk: 128 << 10, Members: refs}
	type member struct{ dev, state, slot string }
	for _, c := range []struct {
		name     string
		degraded string
		members  []member
		want     string
		refusal  string
	}{
		{"with a spare", "0", []member{{"dm-0", "in_sync", "0"}, {"dm-1", "in_sync", "1"}, {"dm-9", "spare", "none"}},
			"mdadm --manage /dev/md127 --replace /dev/mapper/35000c50000000101", ""},
		{"with a spare that waits", "0", []member{{"dm-0", "in_sync", "0"}, {"dm-9", "in_sync", "1"}},
			"mdadm --manage /dev/md127 --add /dev/mapper/35000c50000000102 --replace /dev/mapper/35000c50000000101 --with /dev/mapper/35000c50000000102", ""},
		{"while it is copied", "0", []member{{"dm-0", "in_sync,want_replacement", "0"}, {"dm-1", "in_sync", "1"}, {"dm-9", "spare,replacement", "0"}}, "", ""},
		{"once it is copied", "0", []member{{"dm-0", "faulty", "0"}, {"dm-1", "in_sync", "1"}, {"dm-9", "in_sync", "0"}},
			"mdadm --manage /dev/md127 --remove dm-0", ""},
		{"the spare that got the copy has died", "0", []member{{"dm-0", "in_sync,want_replacement", "0"}, {"dm-1", "in_sync", "1"}, {"dm-9", "faulty,replacement", "0"}},
			"mdadm --manage /dev/md127 --fail dm-0 --remove dm-0\nmdadm --manage /dev/md127 --remove dm-9", ""},
		{"without a spare", "0", []member{{"dm-0", "in_sync", "0"}, {"dm-1", "in_sync", "1"}},
			"mdadm --manage /dev/md127 --fail dm-0 --remove dm-0", ""},
		{"a spare itself", "0", []member{{"dm-0", "spare", "none"}, {"dm-1", "in_sync", "1"}},
			"mdadm --manage /dev/md127 --remove dm-0", ""},
		{"the last one that works", "1", []member{{"dm-0", "in_sync", "0"}, {"dm-1", "spare", "1"}, {"dm-9", "spare", "none"}}, "", ""},
		{"another one is copied", "0", []member{{"dm-0", "in_sync", "0"}, {"dm-1", "in_sync,want_replacement", "1"}, {"dm-8", "spare,replacement", "1"}, {"dm-9", "spare", "none"}}, "", "array-not-whole"},
	} {
		t.Run(c.name, func(t *testing.T) {
			sys := twoPathDisks(true)
			var names []string
			for _, m := range c.members {
				names = append(names, m.dev)
				sys.Files["/sys/block/md127/md/dev-"+m.dev+"/state"] = m.state + "\n"
				sys.Files["/sys/block/md127/md/dev-"+m.dev+"/slot"] = m.slot + "\n"
			}
			addArray(sys, "md127", "11111111-2222-2222-3333-333344444444", "clean", names...)
			sys.Files["/sys/block/md127/md/degraded"] = c.degraded + "\n"
			if c.name == "with a spare that waits" {
				sys.Files["/run/mortar/spares-home.json"] = `{"/dev/mapper/35000c50000000102":"11111111222222223333333344444444"}`
			}
			if c.name == "the last one that works" {
				// Of a mirror: a disk that is being rebuilt does not count.
				sys.Files["/sys/block/md127/md/level"] = "raid10\n"
				b := *a
				b.Level = 10
				refused(t, &b, sys, "array-not-whole", "disk", "MA01", "lacks", "1", "members", "2")
				return
			}
			if c.refusal != "" {
				refused(t, a, sys, c.refusal, "disk", "MA01")
				return
			}
			wantShow(t, diff(t, a, sys), c.want)
		})
	}

	// Pulled out of its bay: no check looks for it, and md's memory of it goes.
	sys := twoPathDisks(true)
	sys.Drives = sys.Drives[1:]
	addArray(sys, "md127", "11111111-2222-2222-3333-333344444444", "clean", "dm-0", "dm-1")
	sys.Files["/sys/block/md127/md/dev-dm-0/state"] = "faulty\n"
	sys.Files["/sys/block/md127/md/dev-dm-1/state"] = "in_sync\n"
	for _, f := range []string{"/sys/block/dm-0/slaves/sda/x", "/sys/block/dm-0/slaves/sdz/x"} {
		delete(sys.Files, f)
	}
	sys.Files["/sys/block/dm-0/dm/uuid"] = "mpath-35000c50000000101\n"
	sys.Files["/sys/block/dm-0/dm/name"] = "35000c50000000101\n"
	wantShow(t, diff(t, a, sys), "mdadm --manage /dev/md127 --remove dm-0\nmultipath -f 35000c50000000101")
	sys.Files["/sys/block/dm-0/slaves/sda/x"] = "" // a path is left
	wantShow(t, diff(t, a, sys), "mdadm --manage /dev/md127 --remove dm-0")

	// A new array is not made without one of its disks.
	sys = twoPathDisks(true)
	sys.Outputs["mdadm --examine"] = resource.Output{}
	sys.Outputs["wipefs --no-act --json"] = resource.Output{}
	b := *a
	b.Assemble = true
	refused(t, &b, sys, "array-member-failed", "disk", "MA01")
}

// A spare that has moved between the arrays of a service is where it belongs: its own
// array does not ask for it back, and the other one gives it up like its own disks.
func TestMovedSpareIsNoDrift(t *testing.T) {
	const peerUUID = "99999999:22222222:33333333:44444444"
	ours := func(i int, failed bool) []DiskRef {
		r := twoRefs[i]
		r.Failed = failed
		return []DiskRef{r}
	}
	sys := twoPathDisks(true) // MA01 is dm-0, MA02 dm-1
	addArray(sys, "md127", "11111111-2222-2222-3333-333344444444", "clean", "dm-0", "dm-1")
	for dev, m := range map[string][2]string{"dm-0": {"in_sync", "0"}, "dm-1": {"in_sync", "1"}} {
		sys.Files["/sys/block/md127/md/dev-"+dev+"/state"], sys.Files["/sys/block/md127/md/dev-"+dev+"/slot"] = m[0]+"\n", m[1]+"\n"
	}
	addArray(sys, "md126", "99999999-2222-2222-3333-333344444444", "clean", "dm-8", "dm-9")
	donor := &Array{Name: "r1", UUID: peerUUID, Level: 6, Chunk: 128 << 10, Members: []DiskRef{{Serial: "x", Failed: true}, {Serial: "y", Failed: true}}, Spares: ours(1, false), Peers: []string{groupUUID}, Pool: ours(0, false)}
	wantShow(t, diff(t, donor, sys), "")
	donor.Peers = nil
	wantShow(t, diff(t, donor, sys), "mdadm --manage /dev/md126 --add /dev/mapper/35000c50000000102")
	// One that waits is in no array.
	sys.Files["/run/mortar/spares-home.json"] = `{"/dev/mapper/35000c50000000102":"99999999222222223333333344444444"}`
	wantShow(t, diff(t, donor, sys), "")
	delete(sys.Files, "/run/mortar/spares-home.json")

	taker := &Array{Name: "r0", UUID: groupUUID, Level: 6, Chunk: 128 << 10, Members: append(ours(0, false), DiskRef{Serial: "z", Failed: true}), Peers: []string{peerUUID}, Pool: ours(1, false)}
	wantShow(t, diff(t, taker, sys), "")
	// One that md has thrown out stays, as a disk of its own would, until it is replaced.
	sys.Files["/sys/block/md127/md/dev-dm-1/state"], sys.Files["/sys/block/md127/md/dev-dm-1/slot"] = "faulty\n", "none\n"
	wantShow(t, diff(t, taker, sys), "")
	taker.Pool = nil
	wantShow(t, diff(t, taker, sys), "mdadm --manage /dev/md127 --remove dm-1")
	// It is taken out of service.
	sys.Files["/sys/block/md127/md/dev-dm-1/state"], sys.Files["/sys/block/md127/md/dev-dm-1/slot"] = "in_sync\n", "1\n"
	taker.Pool = ours(1, true)
	wantShow(t, diff(t, taker, sys), "mdadm --manage /dev/md127 --fail dm-1 --remove dm-1")
	// A disk of another group that is gone is that group's business.
	taker.Pool = []DiskRef{{Serial: "gone"}}
	wantShow(t, diff(t, taker, sys), "")
}

// A spare that was moved to another array and rebuilt there holds that array's data. Its
// own array does not take it back by overwriting its superblock, also while the other
// array is not assembled here.
func TestMovedSpareOfAbsentArrayIsLeftAlone(t *testing.T) {
	const peerUUID = "99999999:22222222:33333333:44444444"
	const add = "mdadm --manage /dev/md127 --add /dev/mapper/35000c50000000102"
	of := func(uuid string) string {
		return "/dev/mapper/35000c50000000102:\n     Array UUID : " + uuid + "\n         Events : 12\n   Device Role : Active device 1\n"
	}
	signed := `{"signatures":[{"device":"dm-1","offset":"0x1000","type":"linux_raid_member","uuid":"99999999-2222-2222-3333-333344444444"}]}`
	for name, c := range map[string]struct {
		examine, wipefs string
		peer, degraded  string // state of the peer here, "": it is not
		want            string
	}{
		"the peer's, which is not here":           {of(peerUUID), "", "", "", ""},
		"the peer's, which is half-started":       {of(peerUUID), "", "inactive", "0", ""},
		"the peer's, which runs and lacks a disk": {of(peerUUID), "", "clean", "1", ""},
		"the peer's, which runs whole without it": {of(peerUUID), "", "clean", "0", add},
		"the peer's, of which mdadm says nothing": {"", signed, "", "", ""},
		"no superblock":                   {"", "", "", "", add},
		"a superblock of its own array":   {of(groupUUID), "", "", "", add},
		"one of an array that is no peer": {of("77777777:22222222:33333333:44444444"), "", "", "", add},
	} {
		sys := twoPathDisks(true)
		addArray(sys, "md127", "11111111-2222-2222-3333-333344444444", "clean", "dm-0")
		if c.peer != "" {
			addArray(sys, "md126", "99999999-2222-2222-3333-333344444444", c.peer, "dm-8", "dm-9")
			sys.Files["/sys/block/md126/md/degraded"] = c.degraded + "\n"
		}
		sys.Files["/sys/block/md127/md/dev-dm-0/state"], sys.Files["/sys/block/md127/md/dev-dm-0/slot"] = "in_sync\n", "0\n"
		sys.Outputs["mdadm --examine"] = resource.Output{Code: 1, Stdout: c.examine}
		sys.Outputs["wipefs --no-act --json"] = resource.Output{Stdout: c.wipefs}
		a := &Array{Name: "r0", UUID: groupUUID, Level: 6, Chunk: 128 << 10, Members: []DiskRef{twoRefs[0], {Serial: "x", Failed: true}}, Spares: twoRefs[1:], Peers: []string{peerUUID}}
		if got := strings.TrimSpace(show(diff(t, a, sys))); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		for _, q := range sys.Asked {
			if strings.HasPrefix(q, "mdadm") && q != "mdadm --examine /dev/mapper/35000c50000000102" {
				t.Errorf("%s: %s", name, q)
			}
		}
	}
}

// An array that is whole is not examined.
func TestWholeArrayIsNotExamined(t *testing.T) {
	sys := twoPathDisks(true)
	addArray(sys, "md127", "11111111-2222-2222-3333-333344444444", "clean", "dm-0", "dm-1")
	for i, dev := range []string{"dm-0", "dm-1"} {
		sys.Files["/sys/block/md127/md/dev-"+dev+"/state"], sys.Files["/sys/block/md127/md/dev-"+dev+"/slot"] = "in_sync\n", strconv.Itoa(i)+"\n"
	}
	wantShow(t, diff(t, &Array{Name: "r0", UUID: groupUUID, Level: 6, Chunk: 128 << 10, Members: twoRefs, Peers: []string{"99999999:22222222:33333333:44444444"}}, sys), "")
	if len(sys.Asked) > 0 {
		t.Errorf("%q", sys.Asked)
	}
}

// An array that is not assembled counts spares of other groups that are its members.
func TestMovedSpareBySuperblock(t *testing.T) {
	sys := twoPathDisks(true)
	sys.Outputs["wipefs --no-act --json"] = resource.Output{}
	sb := func(disk, role string) string {
		return "/dev/mapper/3500" + disk + ":\n     Array UUID : 11111111:22222222:33333333:44444444\n         Events : 12\n   Device Role : Active device " + role + "\n"
	}
	sys.Outputs["mdadm --examine"] = resource.Output{Stdout: sb("0c50000000101", "0") + sb("0c50000000102", "3")}
	a := &Array{Name: "r0", UUID: groupUUID, Level: 6, Chunk: 128 << 10, Assemble: true,
		Members: []DiskRef{twoRefs[0], {Serial: "x", Failed: true}, {Serial: "y", Failed: true}, {Serial: "z", Failed: true}}, Pool: twoRefs[1:]}
	wantShow(t, diff(t, a, sys), `
mdadm --assemble /dev/md/r0 --uuid=11111111:22222222:33333333:44444444 --run /dev/mapper/35000c50000000101 /dev/mapper/35000c50000000102
udevadm wait --timeout=100 /dev/md/r0`)
	a.Pool = nil
	refused(t, a, sys, "array-members-gone", "members", "1", "want", "4")
}

// A few disks in another array of the service are spares that moved; if half of a
// group is elsewhere, the spec has changed.
func TestMovedSpares(t *testing.T) {
	list := func(groups string) (out []WantedDisk) {
		for _, g := range groups {
			w := WantedDisk{Group: strings.Repeat(strings.ToLower(string(g)), 32), Set: "home"}
			if g >= 'A' && g <= 'Z' {
				w.Set = ""
			}
			out = append(out, w)
		}
		return out
	}
	for name, c := range map[string]struct{ groups, homes, want string }{
		"where they belong":                     {"aaaabbbb", "aaaabbbb", "--------"},
		"a spare of b is in a":                  {"aaaabbbbb", "aaaabbbba", "--------m"},
		"it replaced one that is gone":          {"aaaabbbbb", "aaa bbbba", "--------m"},
		"two of four were replaced":             {"aaaabbbbbb", "aa  bbbbaa", "--------mm"},
		"a replaced disk of a helps out in b":   {"aaaaabbbbb", "aaaabbbbba", "----m----m"},
		"the groups are swapped":                {"aaaabbbb", "bbbbaaaa", "--------"},
		"half of each is elsewhere":             {"aaaabbbb", "aabbbbaa", "--------"},
		"somebody else's array":                 {"aaaabbbbb", "aaaabbbbc", "---------"},
		"a disk that is in no group of the set": {"aaaaB", "aaaaa", "-----"},
	} {
		var homes []string
		for _, h := range c.homes {
			homes = append(homes, strings.TrimSpace(strings.Repeat(string(h), 32)))
		}
		got := ""
		for _, m := range movedSpares(list(c.groups), homes) {
			got += map[bool]string{true: "m", false: "-"}[m]
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

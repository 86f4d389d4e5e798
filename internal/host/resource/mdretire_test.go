package resource

import "testing"

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
		{"another one is copied", "0", []member{{"dm-0", "in_sync", "0"}, {"dm-1", "in_sync,want_replacement", "1"}, {"dm-8", "spare,replacement", "1"}, {"dm-9", "spare", "none"}}, "", "cannot give disk MA01"},
	} {
		t.Run(c.name, func(t *testing.T) {
			sys := twoPathDisks(true)
			var names []string
			for _, m := range c.members {
				names = append(names, m.dev)
				sys.files["/sys/block/md127/md/dev-"+m.dev+"/state"] = m.state + "\n"
				sys.files["/sys/block/md127/md/dev-"+m.dev+"/slot"] = m.slot + "\n"
			}
			addArray(sys, "md127", "11111111-2222-2222-3333-333344444444", "clean", names...)
			sys.files["/sys/block/md127/md/degraded"] = c.degraded + "\n"
			if c.name == "the last one that works" {
				// Of a mirror: what is being rebuilt does not count.
				sys.files["/sys/block/md127/md/level"] = "raid10\n"
				b := *a
				b.Level = 10
				refused(t, &b, sys, "cannot give disk MA01 (enclosure A, bay 1) up now: it lacks 1 of 2 members")
				return
			}
			if c.refusal != "" {
				refused(t, a, sys, c.refusal)
				return
			}
			wantShow(t, diff(t, a, sys), c.want)
		})
	}

	// Pulled out of its bay: nobody looks for it, and md's memory of it goes.
	sys := twoPathDisks(true)
	sys.disks = sys.disks[1:]
	addArray(sys, "md127", "11111111-2222-2222-3333-333344444444", "clean", "dm-0", "dm-1")
	sys.files["/sys/block/md127/md/dev-dm-0/state"] = "faulty\n"
	sys.files["/sys/block/md127/md/dev-dm-1/state"] = "in_sync\n"
	wantShow(t, diff(t, a, sys), "mdadm --manage /dev/md127 --remove dm-0")

	// A new array is not made without one of its disks.
	sys = twoPathDisks(true)
	sys.outputs["mdadm --examine"] = Output{}
	sys.outputs["wipefs --no-act --json"] = Output{}
	b := *a
	b.Assemble = true
	refused(t, &b, sys, "disk MA01 (enclosure A, bay 1) is marked as failed")
}

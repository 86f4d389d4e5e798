package array

import (
	_ "embed"
	"fmt"
	"strings"

	"github.com/mortarhpc/mortar/internal/rack/hw"
)

// arrayFirmware has the firmware's functions, for busybox's shell. It globs and reads
// instead of forking, which is expensive in emulation.
//
//   - A slot identifies a disk: HBA slot/128, target slot%128.
//   - /rw/groupN holds the slots of group N. The firmware creates a group only if
//     that file is missing. --assume-clean is right: the disks are blank, and the
//     parity of zeroes is zero.
//   - heal removes missing disks from their groups, gives each group that lacks one a
//     disk that is in none, and records the members of each group. sparelist has the slots
//     of disks that are spares, or were members; another disk has not been configured.
//   - With access type 1 (implicit) an array moves its LUNs by itself, as these
//     arrays do. With explicit, Linux promotes its own group and LIO demotes none.
//   - The default of nonop_delay_msecs is 100: ten operations a second.
//   - rebuildKiB limits a rebuild, to leave the processor to the servers' I/O. compare
//     lifts the limit: nothing else happens meanwhile.
//   - A LUN whose write cache is not mirrored has one in the memory of the controller that owns it
//     (dm-writecache, which keeps half of it dirty). It is lost with that controller, and written
//     to the disks before the LUN moves or the power goes. What a mirrored cache has
//     acknowledged both controllers have, so such a LUN needs none here.
//   - A change of states passes through "transitioning" for trans_delay_msecs.
//
//go:embed firmware.sh
var arrayFirmware string

// arrayServe is the last part of the firmware: it takes commands while the array has
// power.
const arrayServe = `heal
exec 3<> /dev/ttyS1
say multi-user
while read -r mark line <&3; do eval "$line" >&3 2>&1; echo "$mark $?" >&3; done
fail "the control line"
`

// transitionMS is the duration of a change of ALUA states, in milliseconds. Real
// arrays need some seconds, but more than a path checker's interval would test
// nothing more.
const transitionMS = 1000

// rebuildKiB bounds a rebuild, in KiB/s. Without a bound an emulated processor
// rebuilds at 12 MiB/s, and the LUNs have gaps of a second (seen).
const rebuildKiB = 4096

// cacheKiB is an unmirrored write cache of a LUN.
const cacheKiB = 8192

// Firmware is the whole program of an array: functions, then its own disks,
// groups and LUNs.
func Firmware(c *hw.Config, e *hw.Enclosure) string {
	a := e.Array
	var b strings.Builder
	say := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	fmt.Fprintf(&b, "rebuild=%d cacheKiB=%d\n", rebuildKiB, cacheKiB)
	b.WriteString(arrayFirmware)
	index := c.ArrayIndex(e.Name)
	say("$b ip link set lo up; $b ip link set eth0 mtu %d up", hw.MaxMTU)
	for i := range hw.Controllers {
		say("$b ip addr add %s/24 dev eth0", hw.ArrayNet(index, hw.LinkPortal+i))
	}
	all := make([]int, len(a.Disks))
	for i := range all {
		all[i] = i
	}
	say("slotlist='%s'", numbers(all))
	say("vendor=%s product=%s revision=%s transition=%d", a.Vendor, a.Product, a.Revision, transitionMS)
	say("target=/sys/kernel/config/target/iscsi/%s", hw.TargetName(c, e))
	for ctl := range hw.Controllers {
		say("portal %d %s", ctl, hw.ArrayNet(index, hw.LinkPortal+ctl))
	}
	for _, line := range Configuration(c, e, 0, 0) {
		if what, _, _ := strings.Cut(line, " "); what == "group" || what == "lun" || what == "unmirrored" {
			line += " || fail " + what
		}
		say("%s", line)
	}
	// What has been configured since.
	say("[ ! -e /rw/more ] || . /rw/more || fail configuration")
	for ctl := range hw.Controllers {
		say("echo 1 > $target/tpgt_%d/enable || fail 'controller %d'", ctl+1, ctl)
	}
	b.WriteString(arrayServe)
	return b.String()
}

// Configuration has the lines that make the groups and LUNs of an array after the first
// ones, which are there. None has a double quote or a dollar.
func Configuration(c *hw.Config, e *hw.Enclosure, groups, luns int) []string {
	a := e.Array
	var out []string
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	slots := map[string]int{}
	for i, d := range a.Disks {
		slots[d.Name] = i
	}
	at := map[string]int{}
	for i, g := range a.Groups {
		at[g.Name] = i
	}
	all := make([]int, len(a.Groups))
	for i, g := range a.Groups {
		all[i] = i
		if i < groups {
			continue
		}
		members := make([]int, len(g.Members))
		for k, m := range g.Members {
			members[k] = slots[m]
		}
		say("group %d %d %d %d %d %s", i, g.Level, len(g.Members), g.Chunk>>10, g.MemberBytes>>10, numbers(members))
	}
	say("sparelist='%s' grouplist='%s'", numbers(a.Assigned()), numbers(all))
	for i, d := range e.Disks {
		if i < luns {
			continue
		}
		say("lun %d %d %d %d", i, at[d.LUN.Group], d.LUN.Offset/hw.SectorBytes, d.Bytes/hw.SectorBytes)
		if d.LUN.Unmirrored {
			say("unmirrored %d", i)
		}
		// The WWN is of type NAA 6: six digits of the company, 25 of the serial number.
		say("expose %d %s %s", i, d.WWN[7:], d.WWN[1:7])
		names := ""
		for _, n := range c.Nodes {
			if hw.IsServer(&n) && e.MappedTo(d.LUN, n.Name) {
				for hba := range hw.HBAs {
					names += " " + hw.InitiatorName(n.Name, hba, d.LUN.Number)
				}
			}
		}
		for ctl := range hw.Controllers {
			say("map %d %d %d%s", ctl, i, d.LUN.Number, names)
		}
	}
	return out
}

func numbers(all []int) string { return strings.Trim(fmt.Sprint(all), "[]") }

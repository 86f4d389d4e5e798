package storage

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/base/lists"
	"github.com/mortarhpc/mortar/internal/base/md"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

// Array is one md array with its members and spares.
type Array struct {
	Name    string
	UUID    string
	Level   int   // 6 or 10
	Chunk   int64 // bytes; 0 for a mirror
	Members []DiskRef
	Spares  []DiskRef
	// Peers are the UUIDs of the arrays of its service, Pool the disks of all of them: all
	// arrays share one list. The watcher moves spares between these arrays (package ocf):
	// a disk that a peer has is not added here, and one of Pool may be a member.
	Peers []string  `json:",omitempty"`
	Pool  []DiskRef `json:",omitempty"`
	// Assemble brings the array up here. Without Assemble the array's superblocks on
	// the disks suffice (the cluster brings the array up), and Diff refuses disks
	// without them.
	Assemble bool
	// Grow is the volume that this array makes larger while a cluster serves it on this
	// host: then Diff creates the array, also without Assemble.
	Grow *Growing `json:",omitempty"`
	// Heed is the begin of a command that shows, before the array is created, that its disks
	// heed reservations; their devices follow.
	Heed []string `json:",omitempty"`
}

// Growing is a volume that is to grow; PVs are all physical volumes that its group
// has or is to have.
type Growing struct {
	VG, LV string
	PVs    []string
}

func (a *Array) Identity() (kind, id string) { return "md-array", a.Name }

func (a *Array) dev() string { return "/dev/md/" + a.Name }

// Diff compares the running array, or the superblocks if it does not run.
func (a *Array) Diff(sys resource.Look) ([]resource.Action, error) {
	own, failed := a.find(sys)
	arrays := sys.Arrays()
	var as []resource.Action
	for _, r := range arrays {
		if !md.SameUUID(r.UUID, a.UUID) {
			continue
		}
		if r.Running() {
			as, err := a.diffRunning(sys, r, own, failed, arrays)
			if err != nil {
				return nil, err
			}
			if !a.Assemble {
				return as, nil
			}
			if !sys.Exists(a.dev()) {
				as = append(as, a.wait())
			}
			return as, nil
		}
		if !a.Assemble {
			return nil, nil // the cluster is about to start or stop it
		}
		as = append(as, resource.Action{
			Title: "stop the half-started array " + a.Name, Cmd: []string{"mdadm", "--stop", "/dev/" + r.Dev},
		})
	}
	return a.diffStopped(sys, own, failed, as)
}

// find finds the disks of the group: those in service, and those that failed.
func (a *Array) find(sys resource.Look) (own, failed []foundDisk) {
	for _, f := range resolve(sys, slices.Concat(a.Members, a.Spares)) {
		if f.Ref.Failed {
			failed = append(failed, f)
		} else {
			own = append(own, f)
		}
	}
	return own, failed
}

// others finds the disks of the other groups, of which any may be missing. A brick of 240
// disks has 24 arrays: each looks at the disks of all only if it lacks one of its own.
func (a *Array) others(sys resource.Look) []foundDisk {
	key := func(r DiskRef) [2]string { return [2]string{r.Serial, r.WWN} }
	own, failed := map[[2]string]bool{}, map[[2]string]bool{}
	for _, r := range slices.Concat(a.Members, a.Spares) {
		own[key(r)] = true
	}
	var refs []DiskRef
	for _, r := range a.Pool {
		if !own[key(r)] {
			failed[key(r)] = r.Failed
			r.Failed = true // may be missing
			refs = append(refs, r)
		}
	}
	fs := resolve(sys, refs)
	for i := range fs {
		fs[i].Ref.Failed = failed[key(fs[i].Ref)]
	}
	return fs
}

// diffRunning checks geometry, which cannot be changed here, adds disks of the
// design that the array does not have, and takes failed ones out.
func (a *Array) diffRunning(sys resource.Look, r linux.MDArray, own, failed []foundDisk, arrays []linux.MDArray) ([]resource.Action, error) {
	for _, c := range []struct{ what, have, want string }{
		{"level", r.Level, fmt.Sprintf("raid%d", a.Level)},
		{"number of members", strconv.Itoa(r.RaidDisks), strconv.Itoa(len(a.Members))},
		{"chunk", strconv.Itoa(r.Chunk), strconv.FormatInt(a.Chunk, 10)},
	} {
		if c.have != c.want {
			return nil, resource.Refuse("array-geometry", resource.With{"array": a.Name, "property": c.what, "have": c.have, "want": c.want})
		}
	}
	dropped := a.dropped(sys)
	policy := sys.Text("/sys/block/" + r.Dev + "/md/consistency_policy")
	if policy == "journal" {
		return nil, a.journal()
	}
	var add []foundDisk
	for _, d := range own {
		slow := slices.ContainsFunc(dropped, func(serial string) bool { return sameSerial(serial, d.Ref.Serial) })
		if d.memberName(sys, r) == "" && !slow && !a.lent(sys, d, arrays) {
			add = append(add, d)
		}
	}
	var as []resource.Action
	for _, d := range a.notOfPeers(sys, add, arrays) {
		as = append(as, resource.Action{
			Title: fmt.Sprintf("add %s to array %s", d.Ref, a.Name),
			Cmd:   []string{"mdadm", "--manage", "/dev/" + r.Dev, "--add", d.stable()},
		})
	}
	if len(as) > 0 {
		return as, nil // failed disks leave when the array has all others
	}
	return a.retire(sys, r, own, failed)
}

// isPeer tells whether a UUID is that of another array of the service.
func (a *Array) isPeer(uuid string) bool {
	return !md.SameUUID(uuid, a.UUID) && hasUUID(a.Peers, uuid)
}

// lent tells whether a disk is in another array of the service.
func (a *Array) lent(sys resource.Look, f foundDisk, arrays []linux.MDArray) bool {
	x, in := memberOf(arrays, kernelNames(sys, f))
	return in && a.isPeer(x.UUID)
}

// notOfPeers leaves out the disks that carry the superblock of another array of the
// service. Such a disk may be a spare that was moved there and holds data by now, while
// that array is not assembled here: mdadm --add would overwrite its superblock. A peer
// that runs here and is whole without the disk does not need it.
func (a *Array) notOfPeers(sys resource.Look, add []foundDisk, arrays []linux.MDArray) []foundDisk {
	if len(add) == 0 || len(a.Peers) == 0 {
		return add
	}
	of := arraysOn(sys, add)
	var out []foundDisk
	for i, d := range add {
		needed := slices.ContainsFunc(of[i], func(uuid string) bool {
			whole := func(x linux.MDArray) bool { return md.SameUUID(x.UUID, uuid) && x.Running() && x.Degraded == 0 }
			return a.isPeer(uuid) && !slices.ContainsFunc(arrays, whole)
		})
		if !needed {
			out = append(out, d)
		}
	}
	return out
}

// arraysOn are the UUIDs of the arrays whose superblocks each disk carries. It asks
// wipefs about disks of which mdadm says nothing: that alone must not be taken for a
// disk without a superblock.
func arraysOn(sys resource.Look, disks []foundDisk) [][]string {
	sbs, _, _ := superblocks(sys, disks)
	of := make([][]string, len(disks))
	silent := false
	for i, sb := range sbs {
		if of[i] = []string{sb.UUID}; sb.UUID == "" {
			of[i], silent = nil, true
		}
	}
	if !silent {
		return of
	}
	sigs := signatures(sys, disks)
	for i := range disks {
		for _, s := range sigs[i] {
			if s.Type == "linux_raid_member" {
				of[i] = append(of[i], s.UUID)
			}
		}
	}
	return of
}

// dropped are the serial numbers of disks that ocf:mortar:watch has dropped because
// they were slow, from this array or, as its spares, from others of the service:
// mortar disk replace puts others in their place.
func (a *Array) dropped(sys resource.Look) (out []string) {
	all, err := linux.ReadDropped(sys.ReadFile)
	sys.Check(err)
	for _, d := range all {
		out = append(out, d.Serial)
	}
	return out
}

// journal refuses an array that an earlier version has built with a write journal: its
// agent would start the array no more.
func (a *Array) journal() error {
	return resource.Refuse("array-journal", resource.With{"array": a.Name})
}

// memberName is the kernel's name of a disk as a member of an array; "" if the
// array does not have it.
func (f foundDisk) memberName(sys resource.Look, r linux.MDArray) string {
	for _, n := range kernelNames(sys, f) {
		if slices.Contains(r.Members, n) {
			return n
		}
	}
	return ""
}

// survey is what superblocks say of an array that does not run.
type survey struct {
	have    []foundDisk // the disks that carry its superblock
	present []bool      // by slot, also of those that failed
	members int
	newest  uint64 // the largest count of events; 0: none has any
}

func (a *Array) survey(sys resource.Look, disks []foundDisk) (s survey, err error) {
	sbs := a.examine(sys, disks)
	for _, sb := range sbs {
		if md.SameUUID(sb.UUID, a.UUID) {
			s.newest = max(s.newest, sb.Events)
		}
	}
	s.present = make([]bool, len(a.Members))
	for i, d := range disks {
		sb := sbs[i]
		if !md.SameUUID(sb.UUID, a.UUID) {
			continue
		}
		s.have = append(s.have, d)
		if sb.Features&md.FeatureJournal != 0 && sb.Events > 0 && !md.Stale(sb.Events, s.newest) {
			return s, a.journal()
		}
		if slot := sb.Slot(); slot >= 0 && slot < len(s.present) && !md.Stale(sb.Events, s.newest) {
			s.present[slot] = true
			s.members++
		}
	}
	return s, nil
}

// diffStopped looks at the superblocks: create, assemble, or leave alone.
func (a *Array) diffStopped(sys resource.Look, own, failed []foundDisk, as []resource.Action) ([]resource.Action, error) {
	s, err := a.survey(sys, own)
	whole, blank := s.members == len(a.Members), len(s.have) == 0 && len(own) == len(a.Members)+len(a.Spares)
	if err == nil && !whole && !blank { // a spare of another group may be a member
		s, err = a.survey(sys, slices.Concat(own, a.others(sys)))
	}
	if err != nil {
		return nil, err
	}
	switch {
	case s.members > 0 && md.CanLose(a.Level, md.Near2, s.present) >= 0:
		if !a.Assemble && len(as) == 0 {
			return nil, nil
		}
		argv := []string{"mdadm", "--assemble", a.dev(), "--uuid=" + md.UUID(a.UUID), "--run"}
		for _, d := range s.have {
			argv = append(argv, d.stable())
		}
		return append(as, resource.Action{Title: "assemble array " + a.Name, Cmd: argv}, a.wait()), nil
	case s.newest > 0:
		return nil, resource.Refuse("array-members-gone", resource.With{"array": a.Name, "members": s.members, "want": len(a.Members)})
	case a.Grow != nil:
		if err := a.mayGrow(sys); err != nil {
			return nil, err
		}
	case !a.Assemble:
		return nil, resource.Refuse("array-was-built", resource.With{"array": a.Name, "notes": resource.BuiltDir, "cib": path.Dir(linux.CIBFile)})
	}
	create, err := a.create(sys, own)
	if err != nil {
		return nil, err
	}
	if len(s.have) > 0 {
		// A creation that was cut short before the array's first event: there is
		// nothing on it.
		argv := []string{"mdadm", "--zero-superblock"}
		for _, d := range s.have {
			argv = append(argv, d.stable())
		}
		as = append(as, resource.Action{Title: "remove what is left of a creation of array " + a.Name + " that was cut short", Cmd: argv})
	}
	if a.Heed != nil {
		as = append(as, resource.Action{
			Title: "see that the disks of array " + a.Name + " heed reservations", Seconds: 300, Blank: create.Blank,
			Why: "a block that was read is written back over a path that a reservation keeps out, and must be refused",
			Cmd: append(slices.Clone(a.Heed), create.Blank...),
		})
	}
	return append(as, create, a.wait()), nil
}

// mayGrow refuses to create an array for a volume that is not active here, or that
// had the array already: then its superblocks are lost, and a new array in its
// place would be a hole in the file system.
func (a *Array) mayGrow(sys resource.Look) error {
	g := a.Grow
	if !lvActive(sys, g.VG, g.LV) {
		return resource.Refuse("grow-inactive", resource.With{"array": a.Name, "volume": g.VG + "/" + g.LV})
	}
	rows := lvmReport(sys, "vgs", "vg_name,vg_missing_pv_count", "", withLater(sys, nil, g.PVs))
	i := slices.IndexFunc(rows, func(r map[string]string) bool { return r["vg_name"] == g.VG })
	if i < 0 {
		return fmt.Errorf("lvm vgs does not list volume group %s, whose volume is active", g.VG)
	}
	if n := rows[i]["vg_missing_pv_count"]; n != "0" {
		return resource.Refuse("grow-array-lost", resource.With{"array": a.Name, "vg": g.VG, "missing": n})
	}
	return nil
}

// create makes the array on disks that carry nothing.
func (a *Array) create(sys resource.Look, disks []foundDisk) (resource.Action, error) {
	if a.Level != 6 && a.Level != 10 {
		return resource.Action{}, fmt.Errorf("array %s: RAID %d is not built here", a.Name, a.Level)
	}
	if i := slices.IndexFunc(slices.Concat(a.Members, a.Spares), func(d DiskRef) bool { return d.Failed }); i >= 0 {
		return resource.Action{}, resource.Refuse("array-member-failed", resource.With{"array": a.Name, "disk": slices.Concat(a.Members, a.Spares)[i].named()})
	}
	argv := a.createArgs()
	create := resource.Action{
		Title: "create array " + a.Name, Seconds: 300,
		// --assume-clean saves the first resync, but is only right if every disk
		// is known to hold zeroes: with other parity the first rebuild would
		// restore wrong data. Writing zeroes keeps hard disks busy for hours
		// before the array can be used.
		Why: "the parity is computed in the background, while the array is in use; it survives failures where that is done",
	}
	for _, d := range disks {
		argv = append(argv, d.stable())
		create.Blank = append(create.Blank, d.stable())
		create.Destroys = append(create.Destroys, d.Serial)
	}
	create.Cmd = argv
	if zeroedByUnmap(sys, disks) {
		members := disks[:len(a.Members)]
		size := members[0].Size // md uses no more of any than of the smallest
		cmd := []string{"sh", "-ec", zeroAndRun, "zero", "", strconv.Itoa(len(members))}
		for _, d := range members {
			size = min(size, d.Size)
			cmd = append(cmd, d.stable())
		}
		create.Seconds = 1800 // an SSD of 30 TB may take a minute for each TB
		cmd[4] = strconv.FormatInt(size, 10)
		create.Title = "zero the disks of array " + a.Name + " by unmapping them, and create it"
		create.Cmd = append(cmd, slices.Insert(argv, 3, "--assume-clean")...)
		create.Why = "unmapped disks hold zeroes, and the parity of zeroes is zero: there is nothing to compute"
	}
	return create, nil
}

// createArgs are the command that creates the array, without its devices.
func (a *Array) createArgs() []string {
	argv := []string{"mdadm", "--create", a.dev(), "--run", "--metadata=1.2",
		"--level=" + strconv.Itoa(a.Level), "--raid-devices=" + strconv.Itoa(len(a.Members)), "--chunk=" + strconv.FormatInt(a.Chunk/1024, 10),
		"--uuid=" + md.UUID(a.UUID), "--name=" + a.Name, "--homehost=any", "--bitmap=internal"}
	if a.Level == 10 {
		argv = append(argv, "--layout=n2")
	}
	if len(a.Spares) > 0 {
		argv = append(argv, "--spare-devices="+strconv.Itoa(len(a.Spares)))
	}
	return argv
}

// zeroAndRun is a program for sh(1) with the arguments SIZE COUNT DISK...
// COMMAND...: zeroes COUNT disks side by side and runs the command. It is one action, so
// that no interruption comes between: nothing on a disk would say that it holds
// zeroes, and nothing may write to one before it is an array's.
const zeroAndRun = `size=$1 count=$2 all= bad=0; shift 2
while [ $count -gt 0 ]; do fallocate --punch-hole --offset 0 --length "$size" "$1" & all="$all $!"; shift; count=$((count-1)); done
for one in $all; do wait $one || bad=$?; done
[ $bad = 0 ]
exec "$@"`

// zeroedByUnmap tells whether all disks can be zeroed by unmapping them, which
// takes no time: the kernel does so where a disk promises that unmapped blocks
// read as zeroes (LBPRZ), on request without a way out by writing zeroes. (The
// --write-zeroes of mdadm has the disks write them.)
// Source: drivers/scsi/sd.c, zeroing_mode; blkdev_fallocate() of the kernel.
func zeroedByUnmap(sys resource.Look, disks []foundDisk) bool {
	for _, d := range disks {
		if !d.scsi() {
			return false
		}
		for _, p := range d.Paths {
			modes := sys.Files("/sys/block/" + path.Base(p) + "/device/scsi_disk/*/zeroing_mode")
			if len(modes) != 1 || !strings.HasSuffix(sys.Text(modes[0]), "_unmap") {
				return false
			}
		}
	}
	return true
}

// wait is for the name of the array, by which LVM is told of it: udev gives
// it, and on a busy host later than mdadm waits.
func (a *Array) wait() resource.Action {
	return resource.Action{Title: "wait for " + a.dev(), Cmd: []string{"udevadm", "wait", "--timeout=100", a.dev()}}
}

// examine reads the superblocks of all disks with one command. It refuses a
// disk on which wipefs sees a superblock of this array and mdadm sees none: an
// answer that says nothing must not be taken for a blank disk.
func (a *Array) examine(sys resource.Look, disks []foundDisk) []*md.Superblock {
	sbs, out, installed := superblocks(sys, disks)
	if !slices.ContainsFunc(sbs, func(sb *md.Superblock) bool { return !md.SameUUID(sb.UUID, a.UUID) }) {
		return sbs
	}
	sigs := signatures(sys, disks)
	for i, d := range disks {
		ours := slices.ContainsFunc(sigs[i], func(s signature) bool { return s.Type == "linux_raid_member" && md.SameUUID(s.UUID, a.UUID) })
		switch {
		case !ours || md.SameUUID(sbs[i].UUID, a.UUID):
		case !installed:
			// A plan before mdadm is there. What it will say is not known, but it
			// is an array that exists. It is asked again before anything is done.
			sbs[i] = &md.Superblock{UUID: md.Hex(a.UUID), Roles: []uint16{uint16(i)}, Events: 1}
		default:
			sys.Check(resource.Refuse("array-superblock", resource.With{"array": a.Name, "disk": d.Ref.named(), "device": d.Device, "error": cmp.Or(strings.TrimSpace(out.Stderr), "it says nothing")}))
		}
	}
	return sbs
}

// superblocks reads the superblocks of all disks with one command; an empty one of a
// disk of which mdadm says nothing.
func superblocks(sys resource.Look, disks []foundDisk) (sbs []*md.Superblock, out resource.Output, installed bool) {
	argv := []string{"mdadm", "--examine"}
	for _, d := range disks {
		argv = append(argv, d.Device)
	}
	out, installed = sys.Command(argv...)
	// The exit code is 1 if any device has no superblock.
	by := md.ParseExamine(out.Stdout)
	for _, d := range disks {
		sb := by[d.Device]
		if sb == nil {
			sb = &md.Superblock{}
		}
		sbs = append(sbs, sb)
	}
	return sbs, out, installed
}

// retire takes failed disks out of a running array, and what md has thrown out
// and the design does not have any more. A disk that still works is copied to a
// spare first, so that the array keeps its redundancy: md copies in the
// background, and then calls the disk faulty. What remains is to remove it.
//
// Source: mdadm(8), --replace; Documentation/admin-guide/md.rst, dev-XXX/state.
func (a *Array) retire(sys resource.Look, r linux.MDArray, own, failed []foundDisk) ([]resource.Action, error) {
	members, err := linux.MDMembers(resource.Tree{Sys: sys}, r.Dev)
	sys.Check(err)
	at := func(name string) *linux.MDMember {
		return lists.Find(members, func(m *linux.MDMember) bool { return m.Dev == name })
	}
	known := map[string]bool{}
	for _, d := range slices.Concat(own, failed) {
		known[d.memberName(sys, r)] = true
	}
	if slices.ContainsFunc(r.Members, func(m string) bool { return !known[m] }) {
		for _, d := range a.others(sys) {
			known[d.memberName(sys, r)] = true
			if d.Ref.Failed {
				failed = append(failed, d)
			}
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
		case m.Is("in_sync") && r.Degraded == 0 && !replaced(members, nil) && copyArgs(sys, r, d, own, members) != nil:
			manage(fmt.Sprintf("copy %s to a spare of array %s", d.Ref, a.Name), "the array keeps its redundancy; it gives the disk up when the spare has everything", copyArgs(sys, r, d, own, members)...)
		case m.Is("in_sync") && (replaced(members, nil) || !a.canDoWithout(r, members, m)):
			return nil, resource.Refuse("array-not-whole", resource.With{"array": a.Name, "disk": d.Ref.named(), "lacks": r.Degraded, "members": r.RaidDisks})
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

// copyArgs have md copy a disk to a spare, which the array has or which waits outside of it, one
// in the disk's enclosure first; nil: there is none.
func copyArgs(sys resource.Look, r linux.MDArray, d foundDisk, own []foundDisk, members []linux.MDMember) []string {
	args := []string{"--replace", d.stable()}
	if slices.ContainsFunc(members, func(m linux.MDMember) bool { return m.Slot < 0 && m.Is("spare") && !m.Is("faulty") }) {
		return args
	}
	waiting := slices.DeleteFunc(slices.Clone(own), func(s foundDisk) bool {
		name := s.memberName(sys, r)
		return name == "" || slices.ContainsFunc(members, func(m linux.MDMember) bool { return m.Dev == name })
	})
	if len(waiting) == 0 {
		return nil
	}
	spare := waiting[max(0, slices.IndexFunc(waiting, func(s foundDisk) bool { return s.Ref.Enclosure == d.Ref.Enclosure }))].stable()
	return slices.Concat([]string{"--add", spare}, args, []string{"--with", spare})
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

package storage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/mortarhpc/mortar/internal/base/health"
	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/base/lists"
	"github.com/mortarhpc/mortar/internal/base/md"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

// DiskRef names one disk of the design, and where a person finds it; or one LUN
// of an array.
type DiskRef struct {
	Serial    string
	WWN       string `json:",omitempty"`
	Enclosure string
	Bay       int
	Size      int64 `json:",omitempty"` // bytes as sold; of a LUN as designed
	// LUN is the name of a LUN, and of its multipath map; "" for a disk. Its WWN
	// is what says which one it is, and what a person types as its serial.
	LUN string `json:",omitempty"`
	// Direct: the LUN is of a controller in the server, with one path and no
	// multipath.
	Direct bool `json:",omitempty"`
	// Sector is the size of its logical blocks in bytes, if the spec says it.
	Sector int64 `json:",omitempty"`
	// Failed: the disk is taken out of service. It may be missing; an array that
	// has it gives it up.
	Failed bool `json:",omitempty"`
}

func (r DiskRef) String() string {
	if r.LUN != "" {
		return fmt.Sprintf("LUN %s (array %s, WWN %s)", r.LUN, r.Enclosure, cmp.Or(r.WWN, "not in the spec"))
	}
	return fmt.Sprintf("disk %s (enclosure %s, bay %d)", r.Serial, r.Enclosure, r.Bay)
}

// id is what a person types for it, and named what a refusal calls it.
func (r DiskRef) id() string { return cmp.Or(r.LUN, r.Serial) }

func (r DiskRef) named() resource.Named { return resource.Named{ID: r.id(), Words: r.String()} }

// foundDisk is a DiskRef and the disk of this host that it names.
type foundDisk struct {
	Ref DiskRef
	resource.DiskFact
}

// mapName is the name of the disk's multipath map, which is its WWID: a NAA
// identifier (type 3) and 16 or 32 hex digits.
// Source: multipath.conf(5), user_friendly_names.
func (f foundDisk) mapName() string { return "3" + strings.ToLower(f.WWN) }

// scsi tells whether the disk can have a multipath map: NVMe has its own.
func (f foundDisk) scsi() bool {
	return f.WWN != "" && len(f.Paths) > 0 && !slices.ContainsFunc(f.Paths, func(p string) bool {
		return !strings.HasPrefix(path.Base(p), "sd")
	})
}

// stable is the device the disk has once multipath is set up: what commands
// and configurations are given, also in a plan made before.
func (f foundDisk) stable() string {
	switch {
	case f.Ref.Direct || !f.scsi():
		return f.Device
	case f.Ref.LUN != "":
		return "/dev/mapper/" + f.Ref.LUN
	}
	return "/dev/mapper/" + f.mapName()
}

// resolve finds each disk by serial, or by WWN. A disk that is missing, has
// two identities or is too small is refused. A missing disk that is marked as
// failed is left out.
func resolve(sys resource.Look, refs []DiskRef) []foundDisk {
	facts, err := sys.Disks(sys.Ctx)
	sys.Check(err)
	fs, err := match(facts, refs)
	sys.Check(err)
	for _, f := range fs {
		sys.Check(f.ownMap(sys))
	}
	return fs
}

// ownMap refuses a multipath map that has paths to other disks: what commands
// write to must be the disk that was looked at.
func (f foundDisk) ownMap(sys resource.Look) error {
	if !f.scsi() {
		return nil
	}
	dm := sys.Kernel(f.stable())
	if dm == "" {
		return nil
	}
	for _, s := range sys.Files("/sys/block/" + dm + "/slaves/*") {
		if s = path.Base(s); !slices.Contains(f.Paths, s) {
			return resource.Refuse("disk-map-mixed", resource.With{"disk": f.Ref.named(), "device": f.stable(), "path": s, "map": f.mapName()})
		}
	}
	return nil
}

func match(facts *resource.DiskList, refs []DiskRef) ([]foundDisk, error) {
	fs := make([]foundDisk, 0, len(refs))
	var missing []DiskRef
	for _, r := range refs {
		f, err := identify(facts, r)
		if err != nil {
			return nil, err
		}
		if f == nil {
			if !r.Failed {
				missing = append(missing, r)
			}
			continue
		}
		// Makers round differently; one percent is less than any step in size.
		if r.Size > 0 && f.Size < r.Size-r.Size/100 {
			return nil, resource.Refuse("disk-too-small", resource.With{"disk": r.named(), "bytes": f.Size, "want": r.Size})
		}
		if r.LUN != "" && f.Size > r.Size+r.Size/100 {
			return nil, resource.Refuse("lun-too-large", resource.With{"disk": r.named(), "bytes": f.Size, "want": r.Size})
		}
		if r.Sector > 0 && f.Sector > 0 && f.Sector != r.Sector {
			return nil, resource.Refuse("disk-sector", resource.With{"disk": r.named(), "bytes": f.Sector, "want": r.Sector})
		}
		fs = append(fs, foundDisk{Ref: r, DiskFact: *f})
	}
	if len(missing) > 0 {
		are := "is"
		if len(missing) > 1 {
			are = "are"
		}
		return nil, resource.Refuse("disks-not-there", resource.With{"disks": resource.Named{ID: lists.Map(missing, DiskRef.id), Words: lists.Map(missing, DiskRef.String)}, "are": are})
	}
	return fs, nil
}

// identify finds the one disk that a DiskRef names; nil if none has the serial or
// WWN. A serial that several disks have needs a WWN to tell them apart, and a
// WWN must be of one disk: multipath joins by it.
func identify(facts *resource.DiskList, r DiskRef) (*resource.DiskFact, error) {
	same := facts.Serial(r.Serial)
	if r.LUN != "" {
		same = facts.WWN(r.WWN)
	}
	if r.LUN != "" && len(same) == 0 {
		if r.WWN == "" {
			return nil, resource.Refuse("lun-no-wwn", resource.With{"disk": r.named()})
		}
		return nil, nil
	}
	if len(same) == 0 {
		i := slices.IndexFunc(facts.All, func(f resource.DiskFact) bool { return md.SameUUID(f.WWN, r.WWN) })
		if i < 0 {
			return nil, nil
		}
		return nil, resource.Refuse("disk-other-serial", resource.With{"disk": r.named(), "wwn": r.WWN, "serial": facts.All[i].Serial})
	}
	if len(same) > 1 {
		devices := deviceNames(same)
		same = slices.DeleteFunc(slices.Clone(same), func(f *resource.DiskFact) bool { return !md.SameUUID(f.WWN, r.WWN) })
		if len(same) != 1 {
			return nil, resource.Refuse("disk-serial-twice", resource.With{"disk": r.named(), "count": len(devices), "devices": devices})
		}
	}
	f := same[0]
	if r.LUN == "" && r.WWN != "" && !md.SameUUID(f.WWN, r.WWN) {
		return nil, resource.Refuse("disk-other-wwn", resource.With{"disk": r.named(), "wwn": f.WWN, "want": r.WWN})
	}
	if facts.Twins && len(facts.WWN(f.WWN)) > 1 {
		return nil, resource.Refuse("disk-wwn-twice", resource.With{"disk": r.named(), "wwn": f.WWN, "devices": deviceNames(facts.WWN(f.WWN))})
	}
	return f, nil
}

// deviceNames lists disks by device and serial.
func deviceNames(fs []*resource.DiskFact) []string {
	var out []string
	for _, f := range fs {
		out = append(out, fmt.Sprintf("%s (serial %s, WWN %s)", f.Device, f.Serial, cmp.Or(f.WWN, "none")))
	}
	return out
}

func sameSerial(a, b string) bool {
	return strings.EqualFold(strings.TrimSpace(a), strings.TrimSpace(b)) && strings.TrimSpace(a) != ""
}

// WantedDisk is a disk and what it may carry.
type WantedDisk struct {
	DiskRef
	// Group is the UUID of the brick's md array the disk is a member of, or
	// "" for a disk that is not used yet.
	Group string
	// Set names the service of the array. Its watcher moves spares between the arrays
	// of a service, so the disk may be in another one of the same set.
	Set string `json:",omitempty"`
	// VG is the volume group that a LUN is a physical volume of, FS the UUID of a
	// file system straight on it; "" for others.
	VG string `json:",omitempty"`
	FS string `json:",omitempty"`
	// Wipe: the user typed the serial under wipe.
	Wipe bool `json:",omitempty"`
}

// mayCarry tells whether a signature is the brick's own.
func (w WantedDisk) mayCarry(s signature) bool {
	switch s.Type {
	case "linux_raid_member":
		return w.Group != "" && md.SameUUID(s.UUID, w.Group)
	case "LVM2_member":
		return w.VG != "" // of which group it is, volumeGroups tells
	case "xfs":
		return w.FS != "" && md.SameUUID(s.UUID, w.FS)
	}
	return false
}

// mayServe tells whether what uses a disk is the brick itself.
func (w WantedDisk) mayServe(sys resource.Look, names []string, use string) bool {
	if w.VG != "" && strings.HasPrefix(use, linux.DMName(w.VG, "")) {
		return true
	}
	return w.FS != "" && slices.Contains(names, sys.Kernel("/dev/disk/by-uuid/"+w.FS))
}

// Disks are the disks of a brick on a server: all are there, nothing uses
// them but the brick, and none carries anything that this brick has not made.
// Only with Check, on the one server that builds, does Diff look at the contents of
// the disks.
type Disks struct {
	Host  string
	List  []WantedDisk
	Check bool
	// Arrays are the UUIDs of all arrays of this brick: a member of another
	// group of the same brick is ours, but in the wrong place.
	Arrays []string
}

func (d *Disks) Identity() (kind, id string) { return "disks", d.Host }

// Diff gives a wipe for each disk that carries something and may be wiped.
// An array of such disks, which a distribution assembles by itself at boot,
// is stopped first if nothing uses it.
func (d *Disks) Diff(sys resource.Look) ([]resource.Action, error) {
	return untilAssembled(sys, d.diff)
}

// untilAssembled looks again before it refuses a disk, while md arrays are
// being put together: Pacemaker may be starting the service at this moment,
// and an array has no UUID before all its members are in.
func untilAssembled(sys resource.Look, look func(resource.Look) ([]resource.Action, error)) ([]resource.Action, error) {
	as, err := resource.Observe(sys.Ctx, sys.Sys, look)
	for try := range 10 {
		arrays, arrErr := linux.MDArrays(resource.Tree{Sys: sys})
		if r := (*resource.Refusal)(nil); !errors.As(err, &r) || arrErr != nil || len(arrays) == 0 {
			break
		}
		// The first time also if they have UUIDs by now.
		if try > 0 && !slices.ContainsFunc(arrays, func(a linux.MDArray) bool { return strings.Trim(md.Hex(a.UUID), "0") == "" }) {
			break
		}
		select {
		case <-sys.Ctx.Done():
			return nil, sys.Ctx.Err()
		case <-time.After(300 * time.Millisecond):
		}
		as, err = resource.Observe(sys.Ctx, sys.Sys, look)
	}
	return as, err
}

// verdict is what is found of disks that the brick takes.
type verdict struct {
	free    []foundDisk // that nothing uses; want says what each may carry
	want    []WantedDisk
	not     []DiskRef // that may not be taken
	foreign []string  // what speaks against each, and that as a sentence
	words   []string
	wipes   []resource.Action
}

// carries judges a free disk that carries what the brick has not made: it is wiped if the user
// typed its serial.
func (v *verdict) carries(i int, what, made string, wipe ...string) {
	f := v.free[i]
	if !v.want[i].Wipe {
		v.speaks(f.Ref, "carries", what+made)
		return
	}
	v.wipes = append(v.wipes, resource.Action{
		Title: fmt.Sprintf("wipe %s: %s", f.Ref, what), Why: "its serial is listed under wipe",
		Cmd: append(append([]string{"wipefs", "--all"}, wipe...), f.Device), Destroys: []string{f.Ref.Serial},
	})
}

func (v *verdict) speaks(r DiskRef, says, what string) {
	v.not, v.foreign, v.words = append(v.not, r), append(v.foreign, what), append(v.words, r.String()+" "+says+" "+what)
}

// refusal is nil if nothing speaks against the disks. typed is what a person types to have one
// wiped.
func (v *verdict) refusal(code, typed string) error {
	if len(v.foreign) == 0 {
		return nil
	}
	return resource.Refuse(code, resource.With{"disks": lists.Map(v.not, DiskRef.id), "found": resource.Named{ID: v.foreign, Words: v.words}, "typed": typed})
}

// refsOf are the disks of a list.
func refsOf(list []WantedDisk) []DiskRef {
	out := make([]DiskRef, len(list))
	for i, w := range list {
		out[i] = w.DiskRef
	}
	return out
}

func (d *Disks) diff(sys resource.Look) ([]resource.Action, error) {
	fs := resolve(sys, refsOf(d.List))
	v, stops, ours := d.users(sys, fs)
	if err := v.refusal(notOurs(ours, "disks-in-use"), d.typed()); err != nil {
		return nil, err
	}
	if !d.Check || len(v.free) == 0 {
		return stops, nil
	}
	joins, ours := d.contents(sys, v)
	if err := v.refusal(notOurs(ours, "disks-not-blank"), d.typed()); err != nil {
		return nil, err
	}
	return append(stops, v.wipes...), d.oneSector(fs, joins)
}

// users sorts out the disks that the brick uses already and those that nothing uses. Arrays
// of disks that may be wiped are stopped. ours: a disk is in another group of this brick.
func (d *Disks) users(sys resource.Look, fs []foundDisk) (v *verdict, stops []resource.Action, ours bool) {
	arrays, ms := sys.Arrays(), sys.Mounts()
	homes, all := make([]string, len(fs)), make([][]string, len(fs))
	for i, f := range fs {
		all[i] = kernelNames(sys, f)
		a, _ := memberOf(arrays, all[i])
		homes[i] = a.UUID
	}
	v = &verdict{free: make([]foundDisk, 0, len(fs)), want: make([]WantedDisk, 0, len(fs))}
	stopped := map[string]bool{}
	moved := movedSpares(d.List, homes)
	for i, f := range fs {
		names := all[i]
		a, in := memberOf(arrays, names)
		switch {
		case in && (md.SameUUID(a.UUID, d.List[i].Group) || moved[i]):
			continue // assembled where it belongs
		case in && d.stoppable(sys, ms, a, fs):
			if !stopped[a.Dev] {
				stopped[a.Dev] = true
				stops = append(stops, resource.Action{
					Title: "stop md array " + a.Dev + " (" + md.UUID(a.UUID) + ")",
					Why:   "all its disks are to be wiped, and nothing uses it",
					Cmd:   []string{"mdadm", "--stop", "/dev/" + a.Dev},
				})
			}
		case in:
			ours = ours || hasUUID(d.Arrays, a.UUID)
			v.speaks(f.Ref, "is in use by", fmt.Sprintf("md array %s (%s)", a.Dev, md.UUID(a.UUID)))
			continue
		default:
			if use := inUse(sys, ms, names); use != "" {
				if !d.List[i].mayServe(sys, names, use) {
					v.speaks(f.Ref, "is in use by", use)
				}
				continue
			}
		}
		v.free, v.want = append(v.free, f), append(v.want, d.List[i])
	}
	return v, stops, ours
}

// contents looks at what free disks carry. joins are those that the brick has not made
// anything of yet; ours: one carries what belongs to another group of this brick.
func (d *Disks) contents(sys resource.Look, v *verdict) (joins []DiskRef, ours bool) {
	sigs := signatures(sys, v.free)
	groups := volumeGroups(sys, v.free, v.want, sigs)
	moved := movedSpares(v.want, carried(sigs))
	for i, f := range v.free {
		want := v.want[i]
		var bad []string
		if !slices.ContainsFunc(sigs[i], want.mayCarry) && !moved[i] {
			joins = append(joins, f.Ref)
		}
		made := ", not made by this brick"
		for _, s := range sigs[i] {
			switch vg := groups[f.Device]; {
			case moved[i] && s.Type == "linux_raid_member":
			case !want.mayCarry(s):
				if s.Type == "linux_raid_member" && hasUUID(d.Arrays, s.UUID) {
					ours, made = true, ""
				}
				bad = append(bad, s.describe(d.Arrays))
			case s.Type == "LVM2_member" && vg != "" && vg != want.VG:
				bad = append(bad, s.describe(d.Arrays)+" of volume group "+vg)
			}
		}
		if len(bad) > 0 {
			v.carries(i, strings.Join(slices.Compact(bad), " and "), made) // a GPT is there twice
		}
	}
	return joins, ours
}

// oneSector refuses disks that would join others with logical blocks of another size. LVM makes
// no volume group of them. md takes the largest size: an array that got such a disk as a spare
// would have other blocks than the file system on it, from one rebuild to the next. Disks
// that are together already stay.
//
// Source: lvm.conf(5), devices/allow_mixed_block_sizes; Linux, block/blk-settings.c, blk_stack_limits
func (d *Disks) oneSector(fs []foundDisk, joins []DiskRef) error {
	place := map[DiskRef]string{} // one volume group, or one array
	for _, w := range d.List {
		place[w.DiskRef] = cmp.Or(w.VG, w.Set, w.Group)
	}
	sectors := map[string]map[int64][]string{} // the disks of a place by their size of blocks
	for _, f := range fs {
		if at := place[f.Ref]; at != "" && f.Sector > 0 {
			if sectors[at] == nil {
				sectors[at] = map[int64][]string{}
			}
			sectors[at][f.Sector] = append(sectors[at][f.Sector], f.Ref.id())
		}
	}
	for _, r := range joins {
		of := sectors[place[r]]
		if len(of) < 2 {
			continue
		}
		var all []string
		for _, size := range slices.Sorted(maps.Keys(of)) {
			all = append(all, fmt.Sprintf("logical blocks of %d bytes (%s)", size, strings.Join(of[size], ", ")))
		}
		return resource.Refuse("disk-sectors-mixed", resource.With{"disk": r.named(), "sizes": strings.Join(all, " and ")})
	}
	return nil
}

// movedSpares tells which disks are spares that have moved to another array of their
// set; homes are the arrays that have the disks, "" for none. Of a group that gave or
// got spares, more disks are where the spec has them than in other arrays. Otherwise
// the spec has changed.
func movedSpares(list []WantedDisk, homes []string) []bool {
	if !slices.ContainsFunc(homes, func(h string) bool { return h != "" }) {
		return make([]bool, len(list)) // none has a home, as on a blank server
	}
	here, away := map[string]int{}, map[string]int{} // by group
	sets := map[string]string{}                      // by group
	for i, w := range list {
		group := md.Hex(w.Group)
		sets[group] = w.Set
		switch {
		case md.SameUUID(homes[i], w.Group):
			here[group]++
		case homes[i] != "":
			away[group]++
		}
	}
	out := make([]bool, len(list))
	for i, w := range list {
		from, to := md.Hex(w.Group), md.Hex(homes[i])
		same := w.Set != "" && from != to && to != "" && sets[to] == w.Set
		out[i] = same && here[from] > away[from] && here[to] > away[to]
	}
	return out
}

// carried are the UUIDs of the arrays of which disks carry a superblock.
func carried(sigs [][]signature) []string {
	out := make([]string, len(sigs))
	for i := range sigs {
		for _, s := range sigs[i] {
			if s.Type == "linux_raid_member" {
				out[i] = s.UUID
			}
		}
	}
	return out
}

// hasUUID tells whether a UUID, however it is written, is in a list.
func hasUUID(list []string, uuid string) bool {
	return slices.ContainsFunc(list, func(u string) bool { return md.SameUUID(u, uuid) })
}

// notOurs is the code for disks that carry something. A member of one of this
// brick's own arrays holds its data: the spec has changed their layout.
func notOurs(ours bool, code string) string {
	if ours {
		return "disks-in-other-group"
	}
	return code
}

// typed is what a person types to have a device wiped.
func (d *Disks) typed() string {
	if len(d.List) > 0 && d.List[0].LUN != "" {
		return "WWN"
	}
	return "serial"
}

// stoppable tells whether every member of an array is one of our disks that
// may be wiped, and nothing is on top of it.
func (d *Disks) stoppable(sys resource.Look, ms []linux.Mount, a linux.MDArray, fs []foundDisk) bool {
	if hasUUID(d.Arrays, a.UUID) {
		return false // an array of this brick is never in the way by accident
	}
	for _, m := range a.Members {
		if !slices.ContainsFunc(fs, func(f foundDisk) bool {
			i := slices.IndexFunc(d.List, func(w WantedDisk) bool { return w.DiskRef == f.Ref })
			return i >= 0 && d.List[i].Wipe && slices.Contains(kernelNames(sys, f), m)
		}) {
			return false
		}
	}
	return inUse(sys, ms, []string{a.Dev}) == ""
}

// describe tells a person what carries the signature; arrays are the brick's own.
func (s signature) describe(arrays []string) string {
	t := s.Type
	switch {
	case t == "linux_raid_member" && hasUUID(arrays, s.UUID):
		return "a member of another array of this brick"
	case t == "linux_raid_member":
		t = "a member of md array " + md.UUID(s.UUID)
	case t == "LVM2_member":
		t = "an LVM physical volume"
	case t == "gpt" || t == "dos" || t == "PMBR":
		t = "a partition table (" + t + ")"
	default:
		t = "a signature of " + t
	}
	if s.Label != "" {
		t += " labelled '" + s.Label + "'"
	}
	return t
}

// kernelNames are those of a disk's paths and of its map.
func kernelNames(sys resource.Look, f foundDisk) []string {
	names := lists.Map(f.Paths, path.Base)
	if n := sys.Kernel(f.Device); n != "" && !slices.Contains(names, n) {
		names = append(names, n)
	}
	return names
}

// memberOf finds the array that has one of the devices.
func memberOf(arrays []linux.MDArray, names []string) (linux.MDArray, bool) {
	for _, a := range arrays {
		for _, n := range names {
			if slices.Contains(a.Members, n) {
				return a, true
			}
		}
	}
	return linux.MDArray{}, false
}

// inUse tells what holds one of the devices or of their partitions: device
// mapper, an array, or a mount; "" for nothing. A multipath map is the disk
// itself.
func inUse(sys resource.Look, ms []linux.Mount, names []string) string {
	all := slices.Concat(names, partitions(sys, names))
	for _, n := range all {
		for _, h := range sys.Files("/sys/class/block/" + n + "/holders/*") {
			h = path.Base(h)
			if slices.Contains(all, h) || strings.HasPrefix(sys.Text("/sys/class/block/"+h+"/dm/uuid"), "mpath-") {
				continue
			}
			return cmp.Or(sys.Text("/sys/class/block/"+h+"/dm/name"), h)
		}
	}
	for _, m := range ms {
		if strings.HasPrefix(m.Source, "/dev/") && slices.Contains(all, sys.Kernel(m.Source)) {
			return "the mount on " + m.Target
		}
	}
	return ""
}

// signature is one magic string wipefs(8) found.
type signature struct {
	Device string `json:"device"`
	Type   string `json:"type"`
	UUID   string `json:"uuid"`
	Label  string `json:"label"`
}

// MustBeBlank refuses devices that carry any signature. A device that cannot
// be read is an error.
func MustBeBlank(ctx context.Context, sys resource.Sys, devices []string) error {
	fs := make([]foundDisk, len(devices))
	for i, d := range devices {
		fs[i].Device = d
	}
	sigs, err := resource.Observe(ctx, sys, func(sys resource.Look) ([][]signature, error) { return signatures(sys, fs), nil })
	for i := range sigs {
		for _, s := range sigs[i] {
			return resource.Refuse("disk-written-since", resource.With{"device": devices[i], "found": s.describe(nil)})
		}
	}
	return err
}

// signatures reads what the disks carry, with one command for as many as one may have.
func signatures(sys resource.Look, fs []foundDisk) (sigs [][]signature) {
	for part := range slices.Chunk(fs, resource.QueryDisks) {
		argv := []string{"wipefs", "--no-act", "--json"}
		index := map[string]int{}
		for i, f := range part {
			argv = append(argv, f.Device)
			index[path.Base(f.Device)] = i
			if n := sys.Kernel(f.Device); n != "" {
				index[n] = i
			}
		}
		all, err := parseWipefs(sys.Ask("util-linux", argv...))
		sys.Check(err)
		of := make([][]signature, len(part))
		for _, s := range all {
			i, ok := index[path.Base(s.Device)]
			if !ok {
				sys.Check(fmt.Errorf("wipefs named a device it was not asked for: %s", s.Device))
			}
			of[i] = append(of[i], s)
		}
		sigs = append(sigs, of...)
	}
	return sigs
}

// volumeGroups names the volume group of each LUN that is a physical volume, as
// the brick's own may be, by the LUN's device.
func volumeGroups(sys resource.Look, look []foundDisk, want []WantedDisk, sigs [][]signature) map[string]string {
	var pvs []string
	for i, f := range look {
		if want[i].VG != "" && slices.ContainsFunc(sigs[i], func(s signature) bool { return s.Type == "LVM2_member" }) {
			pvs = append(pvs, f.Device)
		}
	}
	if len(pvs) == 0 {
		return nil
	}
	rows := lvmReport(sys, "pvs", "pv_name,vg_name", "", pvs)
	groups := map[string]string{}
	for _, pv := range pvs {
		for _, r := range rows {
			if sys.Kernel(r["pv_name"]) == sys.Kernel(pv) {
				groups[pv] = r["vg_name"]
			}
		}
	}
	return groups
}

// parseWipefs reads `wipefs --json`: nothing at all if there is none.
func parseWipefs(s string) ([]signature, error) {
	if strings.TrimSpace(s) == "" {
		return nil, nil
	}
	var doc struct {
		Signatures []signature `json:"signatures"`
	}
	unread, err := health.JSON(s, &doc)
	if err == nil && len(unread) > 0 {
		err = errors.New(unread.String()) // Mortar writes to no disk whose signatures are not known
	}
	if err != nil {
		return nil, fmt.Errorf("wipefs: %w", err)
	}
	return doc.Signatures, nil
}

package design

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/mortarhpc/mortar/internal/brick/spec"
)

// extentSize is LVM's default physical extent. It also bounds the stripe
// size: a stripe may not be larger than an extent. Source: lvcreate(8).
const extentSize = 4 * spec.MiB

func fullStripe(r spec.RAID) spec.Bytes { return spec.Bytes(r.Data) * r.Chunk }

func powerOfTwo(b spec.Bytes) bool { return b > 0 && b&(b-1) == 0 }

// stripeSize is how much LVM puts on one group before it goes to the next: a
// full RAID stripe, so that one write fills one group's stripe; where that is
// no power of two (LVM takes no other), the chunk, which divides it.
func stripeSize(r spec.RAID) spec.Bytes {
	if f := fullStripe(r); powerOfTwo(f) && f <= extentSize {
		return f
	}
	return min(r.Chunk, extentSize)
}

// storage is what a service of an NFS brick stands on.
func (d builder) storage(v *spec.Service, groups []Group) Storage {
	s := d.Spec
	r := s.Storage.RAID
	luns := d.lunsOf(v.Name)
	out := Storage{
		VG:         strings.ReplaceAll(s.Name+"_"+v.Name, "-", "_"),
		LV:         "data",
		Stripes:    len(originalGroups(groups)),
		StripeSize: stripeSize(r),
		ExtentSize: extentSize,
		SystemID:   s.Servers[0].Name,
		DropSlow:   s.Storage.DropSlowDisks == "on",
	}
	if s.HA != nil {
		out.SystemID = "mortar-" + s.Name
	}
	for _, g := range groups {
		out.Groups = append(out.Groups, g.Name)
		if g.Growth > 0 && len(luns) == 0 {
			out.grew(g.Growth, g.Name)
		}
	}
	if len(luns) > 0 {
		out.Stripes = 0
		// A LUN of several spans takes a stripe of each in turn.
		out.StripeSize = min(stripeSize(r)*spec.Bytes(len(luns[0].Groups)), extentSize)
		if !powerOfTwo(out.StripeSize) {
			out.StripeSize = stripeSize(r)
		}
		for _, l := range luns {
			out.LUNs = append(out.LUNs, l.Device)
			if l.Growth == 0 {
				out.Stripes++
			} else {
				out.grew(l.Growth, l.Name)
			}
		}
	}
	if s.Storage.Volume == "device" && len(luns) > 0 {
		out.VG, out.LV, out.Device = "", "", luns[0].Device
	}
	return out
}

func (v *Storage) grew(growth int, name string) {
	for len(v.Growths) < growth {
		v.Growths = append(v.Growths, nil)
	}
	v.Growths[growth-1] = append(v.Growths[growth-1], name)
}

// tooLarge says what of a service's volume LVM or XFS does not take; "": nothing.
func tooLarge(d *Design, v *Service) string {
	const (
		stripes = 128            // of a logical volume. Source: LVM2, metadata-exported.h, MAX_STRIPES
		extents = math.MaxUint32 // of a volume group. Source: the same, MAX_EXTENT_COUNT
		width   = math.MaxInt32  // bytes. Source: xfsprogs, libxfs/xfs_sb.c, xfs_validate_stripe_geometry
	)
	if v.NFS == nil {
		return ""
	}
	size, wide := d.lvSize(v.Name, len(v.Storage.Growths)), v.SU*spec.Bytes(v.SW)
	switch {
	case v.Storage.Stripes > stripes:
		return fmt.Sprintf("a volume striped over %d groups (LVM takes %d at most: make them wider)", v.Storage.Stripes, stripes)
	case size/extentSize > extents:
		return fmt.Sprintf("a volume of %s (LVM counts 2^32 extents of %s)", size.Binary(), spec.Bytes(extentSize))
	case wide > width:
		return fmt.Sprintf("a stripe of %s over all groups (XFS takes less than 2 GiB: choose a smaller chunk)", wide.Binary())
	}
	return ""
}

// originalGroups are the groups that were there from the first: the geometry of what is
// made once follows from them alone.
func originalGroups(groups []Group) []Group {
	return slices.DeleteFunc(slices.Clone(groups), func(g Group) bool { return g.Growth > 0 })
}

// fileSystem is the XFS of a service of an NFS brick.
func (d builder) fileSystem(v *spec.Service, groups []Group) *NFS {
	s := d.Spec
	r := s.Storage.RAID
	out := &NFS{
		FSUUID: stableUUID(s, "xfs", v.Name).String(), FSLabel: v.Name,
		SU: r.Chunk, SW: r.Data * len(originalGroups(groups)),
		MountPoint: v.Path, MountOpts: mountOptions(s),
	}
	out.MkfsArgs = []string{
		"-K", "-L", out.FSLabel,
		"-m", "uuid=" + out.FSUUID,
		"-s", "size=4096",
		"-d", fmt.Sprintf("su=%dk,sw=%d", out.SU/spec.KiB, out.SW),
		"-l", fmt.Sprintf("size=%dm,su=%dk", logSize(d.lvSize(v.Name, 0))/spec.MiB, logSU/spec.KiB),
	}
	return out
}

// logSize is the XFS log: large enough that creating many files does not wait
// for it, small enough that a takeover replays it in seconds.
func logSize(lv spec.Bytes) spec.Bytes {
	switch {
	case lv >= 16*spec.TB:
		return 1 * spec.GiB
	case lv >= 256*spec.GB:
		return 512 * spec.MiB
	}
	return 64 * spec.MiB // the least mkfs.xfs takes
}

// logSU is the log's stripe unit: one sector of ours. Every log write is
// padded to it, and sync exports force the log at each COMMIT: with 32 KiB, the
// most mkfs.xfs takes by itself, 41 s of 4 KiB writes left a log of 9.3 MB to
// be replayed at the takeover, in 2.9 s on emulated disks.
const logSU = 4 * spec.KiB

// mdData is what md with metadata 1.2 leaves of a member: after superblock, bitmap and the
// room it keeps for later reshaping.
// Source: mdadm, super1.c, validate_geometry1 and choose_bm_space.
func mdData(size, chunk spec.Bytes) spec.Bytes {
	return (size/sector*sector - mdOffset(size, chunk)) / chunk * chunk
}

// sector is the unit of md's metadata.
const sector = 512

// mdOffset is where md with metadata 1.2 begins the data of a member.
func mdOffset(size, chunk spec.Bytes) spec.Bytes {
	dev := size / sector
	bitmap := spec.Bytes(4 * 2)
	switch {
	case dev-64*2 >= 200*1024*1024*2:
		bitmap = 128 * 2
	case dev-4*2 > 8*1024*1024*2:
		bitmap = 64 * 2
	}
	headroom := spec.Bytes(128 * 1024 * 2)
	for headroom<<10 > dev && headroom > chunk/spec.KiB*2*2 {
		headroom >>= 1
	}
	const mib = 2 * 1024 // sectors
	return (12*2 + bitmap + headroom + mib - 1) / mib * mib * sector
}

// mountOptions are ours and then the spec's, which win over the same one of
// ours; what no longer exists is left out (see translate).
func mountOptions(s *spec.Spec) []string {
	out := []string{"noatime", "nodev", "nosuid", "logbsize=256k"}
	for _, o := range s.Filesystem.Mount {
		if _, gone := obsoleteMount(o); gone {
			continue
		}
		if o == "logbsize=262144" {
			o = "logbsize=256k"
		}
		name, _, _ := strings.Cut(o, "=")
		if i := slices.IndexFunc(out, func(have string) bool { h, _, _ := strings.Cut(have, "="); return h == name }); i >= 0 {
			out[i] = o
			continue
		}
		out = append(out, o)
	}
	return out
}

// lvSize is the volume of a service after a number of growths: whole extents
// behind LVM's own metadata, which is aligned to the full stripe; or the LUN
// itself.
func (d *Design) lvSize(service string, growths int) spec.Bytes {
	var total spec.Bytes
	if luns := d.lunsOf(service); len(luns) > 0 {
		for _, l := range luns {
			if d.Spec.Storage.Volume == "device" {
				return l.Size
			}
			if l.Growth > growths {
				continue
			}
			start := (spec.MiB + l.FullStripe - 1) / l.FullStripe * l.FullStripe
			total += (l.Size - start) / extentSize * extentSize
		}
		return total
	}
	for i := range d.Groups {
		g := &d.Groups[i] // no copy, for bricks of 100,000 disks
		if g.Set() != service || g.Growth > growths {
			continue
		}
		full := spec.Bytes(g.Data) * g.Chunk
		start := (spec.MiB + full - 1) / full * full
		array := spec.Bytes(g.Data) * mdData(g.Members[0].Size, g.Chunk)
		total += (array - start) / extentSize * extentSize
	}
	return total
}

// capacity adds up what there is. For Lustre the total counts the OSTs,
// where file data go.
func (d builder) capacity() {
	c := &d.Capacity
	if d.Lustre != nil {
		for i := range d.Pairs {
			one := d.moduleCapacity(&d.Pairs[i])
			c.Sets = append(c.Sets, one)
			if d.Pairs[i].Role == "oss" {
				c.Raw += one.Raw
				c.RAID += one.RAID
				c.LUNs += one.LUNs
				c.Usable += one.Usable
			}
		}
		return
	}
	for _, k := range d.Disks {
		c.Raw += k.Size
	}
	for _, g := range d.Groups {
		c.RAID += g.Usable
	}
	for _, a := range d.Arrays {
		for _, l := range a.LUNs {
			c.LUNs += l.Size
		}
	}
	for _, v := range d.Services() {
		c.Usable += d.lvSize(v.Name, len(v.Storage.Growths)) - logSize(d.lvSize(v.Name, 0))
	}
}

package storage

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/base/md"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

// BlockQueue sets queue values of disks, of their multipath maps and of md
// arrays: a udev rule for whenever a device appears, and the devices that
// are there now.
type BlockQueue struct {
	Path   string // of the rule file
	Disks  []DiskRef
	Arrays []string // md UUIDs
	// Volumes are logical volumes, VG/LV.
	Volumes []string
	// DiskSettings go to each path and map, ArraySettings to each md device,
	// VolumeSettings to each logical volume; names are files under /sys/block/<dev>/, e.g. queue/scheduler.
	DiskSettings   []resource.Setting
	ArraySettings  []resource.Setting
	VolumeSettings []resource.Setting
}

func (q *BlockQueue) Identity() (kind, id string) { return "block-queue", q.Path }

// Diff compares the rule file and /sys.
func (q *BlockQueue) Diff(sys resource.Look) ([]resource.Action, error) {
	disks := resolve(sys, q.Disks)
	as := sys.Want(&resource.TextFile{Path: q.Path, Content: []byte(q.rules(disks))})
	if len(as) > 0 {
		as = append(as, resource.Action{Title: "let udev read its rules again", Cmd: []string{"udevadm", "control", "--reload"}})
	}
	var devs, maps, mds []string
	for _, d := range disks {
		for _, p := range d.Paths {
			devs = append(devs, path.Base(p))
		}
		if n := sys.Kernel(d.Device); n != "" && !slices.Contains(devs, n) {
			maps = append(maps, n)
		}
	}
	for _, a := range sys.Arrays() {
		if hasUUID(q.Arrays, a.UUID) {
			mds = append(mds, a.Dev)
		}
	}
	var lvs []string
	for _, v := range q.Volumes {
		if n := sys.Kernel("/dev/" + v); n != "" {
			lvs = append(lvs, n)
		}
	}
	for _, g := range []struct {
		settings []resource.Setting
		devs     []string
	}{{q.DiskSettings, append(devs, maps...)}, {q.ArraySettings, mds}, {q.VolumeSettings, lvs}} {
		for _, s := range g.settings {
			as = append(as, liveQueue(sys, s, g.devs)...)
		}
	}
	return as, nil
}

// liveQueue sets a value on all devices that have the file and another value,
// with one command for each value.
func liveQueue(sys resource.Look, s resource.Setting, devs []string) []resource.Action {
	files := map[string][]string{} // by the value that they get
	var values []string
	for _, d := range devs {
		p := "/sys/block/" + d + "/" + s.Name
		got := sys.Text(p)
		if got == "" { // a bio-based map has no scheduler, an array no queue depth
			continue
		}
		if s.Name == "queue/scheduler" {
			if !strings.Contains(got, s.Value) {
				continue
			}
			_, cur, _ := strings.Cut(got, "[")
			got, _, _ = strings.Cut(cur, "]")
			if strings.HasPrefix(d, "dm-") {
				continue // the scheduler below, on the paths, is the one that sorts
			}
		}
		want := possible(sys, s, d)
		if got == want {
			continue
		}
		if files[want] == nil {
			values = append(values, want)
		}
		files[want] = append(files[want], p)
	}
	var as []resource.Action
	for _, v := range values {
		why := s.Reason
		if v != s.Value {
			why = fmt.Sprintf("the hardware allows no more; %s would be wanted: %s", s.Value, s.Reason)
		}
		as = append(as, resource.Action{
			Title: fmt.Sprintf("set %s to %s on %d devices", path.Base(s.Name), v, len(files[v])), Why: why,
			Cmd: append([]string{"tee"}, files[v]...), Stdin: []byte(v),
		})
	}
	return as
}

// possible is the value of a setting that a device can have: a request is no larger
// than its adapter takes, and than the device itself says. Linux before 6.10 refuses more,
// later ones ignore it.
//
// Source: Documentation/ABI/stable/sysfs-block, max_hw_sectors_kb; Linux,
// block/blk-settings.c, blk_validate_limits (max_dev_sectors)
func possible(sys resource.Look, s resource.Setting, dev string) string {
	most, err := strconv.ParseInt(s.Value, 10, 64)
	if s.Name != "queue/max_sectors_kb" || err != nil {
		return s.Value
	}
	lower := func(kib int64) {
		if kib > 0 {
			most = min(most, kib)
		}
	}
	number := func(p string) int64 {
		n, _ := strconv.ParseInt(sys.Text(p), 10, 64)
		return n
	}
	lower(number("/sys/block/" + dev + "/queue/max_hw_sectors_kb"))
	for _, d := range append(sys.Files("/sys/block/"+dev+"/slaves/*"), "/sys/block/"+dev) {
		dir := "/sys/block/" + path.Base(d)
		page, _ := sys.File(dir + "/device/vpd_pgb0")
		lower(linux.MaxTransferOf([]byte(page)) * number(dir+"/queue/logical_block_size") / 1024)
	}
	return strconv.FormatInt(most, 10)
}

// rules writes the udev rules. A line of a rule is bounded, so disks are
// named in groups.
func (q *BlockQueue) rules(disks []foundDisk) string {
	var b strings.Builder
	b.WriteString(resource.Header)
	for _, s := range slices.Concat(q.DiskSettings, q.ArraySettings, q.VolumeSettings) {
		if s.Reason != "" {
			b.WriteString(resource.Comment(s.Name + "=" + s.Value + ": " + s.Reason))
		}
	}
	set := func(ss []resource.Setting, skip string) string {
		var a []string
		for _, s := range ss {
			if s.Name != skip {
				a = append(a, fmt.Sprintf(`ATTR{%s}="%s"`, s.Name, s.Value))
			}
		}
		return strings.Join(a, ", ")
	}
	var naa, mpath, nvme, uuids []string
	for _, d := range disks {
		if strings.HasPrefix(path.Base(d.Paths[0]), "nvme") {
			nvme = append(nvme, d.Serial)
		}
		if d.scsi() {
			naa = append(naa, "naa."+strings.ToLower(d.WWN))
			mpath = append(mpath, "mpath-"+d.mapName())
		}
	}
	for _, u := range q.Arrays {
		uuids = append(uuids, md.UUID(u))
	}
	const group = 16
	rule := func(match, attr string, values []string, sets string) {
		// When a program closes a disk that it wrote to, udev probes the disk again
		// with half a dozen programs. The tools that change these devices tell udev
		// themselves, so the probes are not needed.
		sets = strings.TrimPrefix(sets+`, OPTIONS+="nowatch"`, ", ")
		for c := range slices.Chunk(values, group) {
			fmt.Fprintf(&b, "ACTION==\"add|change\", SUBSYSTEM==\"block\", KERNEL==\"%s\", %s==\"%s\", %s\n", match, attr, strings.Join(c, "|"), sets)
		}
	}
	rule("sd*[!0-9]", "ATTR{device/wwid}", naa, set(q.DiskSettings, ""))
	rule("nvme*n[0-9]|nvme*n[0-9][0-9]", "ATTRS{serial}", nvme, set(q.DiskSettings, ""))
	rule("dm-*", "ENV{DM_UUID}", mpath, set(q.DiskSettings, "queue/scheduler"))
	rule("md*", "ENV{MD_UUID}", uuids, set(q.ArraySettings, ""))
	var names []string
	for _, v := range q.Volumes {
		vg, lv, _ := strings.Cut(v, "/")
		names = append(names, linux.DMName(vg, lv))
	}
	rule("dm-*", "ENV{DM_NAME}", names, set(q.VolumeSettings, ""))
	return b.String()
}

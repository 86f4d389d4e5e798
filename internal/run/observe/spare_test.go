package observe

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mortarhpc/mortar/internal/base/linux"
)

// Status tells to which group a spare has moved, and takes it for no fault; and it tells
// when a group waits for the spare of another one.
func TestStatusOfMovedSpare(t *testing.T) {
	d := designOf(t, "nfs-ha", "MA[01-03]", "MA[01-05]", "MB[01-03]", "MB[01-05]")
	r0, r1 := d.Groups[0], d.Groups[1]
	spare0, spare1, first := r0.Spares[0], r1.Spares[0], r0.Members[0]
	// The facts of r1, which is md126.
	both := func() (Facts, map[string]string) {
		f := healthy(t, d)
		h := f.Hosts["nfs1"].Host
		for p, text := range maps.Clone(h.Files) {
			if rest, ok := strings.CutPrefix(p, "/sys/block/md127/md/"); ok && !strings.HasPrefix(rest, "dev-") {
				h.Files["/sys/block/md126/md/"+rest] = text
			}
		}
		h.Files["/sys/block/md126/md/uuid"] = rfcUUID(r1.UUID) + "\n"
		return f, h.Files
	}
	put := func(files map[string]string, md, serial, slot, state string) {
		dir := "/sys/block/" + md + "/md/dev-" + dmOf(d, serial)
		files[dir+"/slot"], files[dir+"/state"] = slot+"\n", state+"\n"
	}
	out := func(files map[string]string, md, serial string) {
		dir := "/sys/block/" + md + "/md/dev-" + dmOf(d, serial)
		delete(files, dir+"/slot")
		delete(files, dir+"/state")
	}
	for name, c := range map[string]struct {
		change func(files map[string]string)
		want   []string // findings, and texts of the groups
		mend   string
		slow   bool // the spare that has moved was dropped from its new group
	}{
		"where they belong": {func(files map[string]string) { put(files, "md126", spare1.Serial, "none", "spare") },
			[]string{"RAID 6 2+2 on nfs1, 4 of 4 disks, 1 spare", "RAID 6 2+2 on nfs1, 4 of 4 disks, 1 spare"}, "", false},
		"it waits in no array": {func(files map[string]string) {
			files["/run/mortar/spares-home.json"] = fmt.Sprintf(`{"/dev/mapper/3%s":"%s"}`, spare1.Serial, strings.ReplaceAll(r1.UUID, ":", ""))
		}, []string{"RAID 6 2+2 on nfs1, 4 of 4 disks, 1 spare", "RAID 6 2+2 on nfs1, 4 of 4 disks, 1 spare"}, "", false},
		"a spare stands in": {func(files map[string]string) {
			out(files, "md127", first.Serial)
			put(files, "md127", spare1.Serial, "0", "in_sync")
		}, []string{fmt.Sprintf("warning: %s is whole, but not with the disks it was designed with: %s is not in it", r0.Name, diskName(&first)), fmt.Sprintf("warning: %s would not survive the loss of enclosure B: 3 of its members are there, since spares stood in", r0.Name),
			"RAID 6 2+2 on nfs1, 4 of 4 disks, 1 spare", "RAID 6 2+2 on nfs1, 4 of 4 disks; its disk " + diskName(&spare1) + " has moved to " + r0.Name}, "", false},
		"and the disk was replaced": {func(files map[string]string) {
			put(files, "md127", first.Serial, "none", "spare")
			put(files, "md127", spare1.Serial, "0", "in_sync")
		}, []string{fmt.Sprintf("warning: %s would not survive the loss of enclosure B: 3 of its members are there, since spares stood in", r0.Name),
			"RAID 6 2+2 on nfs1, 4 of 4 disks, 2 spares", "RAID 6 2+2 on nfs1, 4 of 4 disks; its disk " + diskName(&spare1) + " has moved to " + r0.Name}, "", false},
		"a group waits": {func(files map[string]string) {
			put(files, "md126", spare1.Serial, "none", "spare")
			out(files, "md127", first.Serial)
			out(files, "md127", spare0.Serial)
			files["/sys/block/md127/md/degraded"] = "1\n"
		}, []string{fmt.Sprintf("warning: spare %s is not in %s: it would not stand in", diskName(&spare0), r0.Name),
			fmt.Sprintf("fault: %s is degraded on nfs1: 3 of 4 disks work, 1 more may fail; missing: %s", r0.Name, diskName(&first)),
			"RAID 6 2+2 on nfs1, 3 of 4 disks", "RAID 6 2+2 on nfs1, 4 of 4 disks, 1 spare"}, "the watcher moves a spare of another group here", false},
		"it was dropped there": {func(files map[string]string) {
			out(files, "md127", first.Serial)
			files["/sys/block/md127/md/degraded"] = "1\n" // the service has started again since: md lists it no more
		}, []string{fmt.Sprintf("fault: disk %s was dropped from %s by nfs1 at 20:50 because it was slow: it took 2400 ms for an answer, its peers 9 ms", diskName(&spare1), r0.Name),
			fmt.Sprintf("fault: %s is degraded on nfs1: 3 of 4 disks work, 1 more may fail; missing: %s", r0.Name, diskName(&first)),
			"RAID 6 2+2 on nfs1, 3 of 4 disks, 1 spare", "RAID 6 2+2 on nfs1, 4 of 4 disks"}, "`mortar disk replace brick.yaml " + spare1.Serial + " --with SERIAL`", true},
	} {
		f, files := both()
		for slot, m := range r1.Members {
			put(files, "md126", m.Serial, fmt.Sprint(slot), "in_sync")
		}
		if c.slow {
			rec := linux.Dropped{Group: r0.Name, Serial: spare1.Serial, At: noon.Add(-10 * time.Minute), TookMS: 2400, PeersMS: 9, Device: "/dev/mapper/x"}
			nodes := f.Hosts["nfs1"].Host.CIB.Nodes
			for i, n := range nodes {
				if n.Name == "nfs1" {
					nodes[i].Attrs = append(n.Attrs, linux.CIBPair{Name: rec.Attr(), Value: rec.String()})
				}
			}
		}
		c.change(files)
		status := Judge(d, f)
		got := slices.DeleteFunc(complaints(status), func(s string) bool { return s == neverProven1 || s == neverProven2 })
		mended := false
		for _, p := range status.Parts {
			if p.Name == "RAID" {
				for _, g := range p.Parts {
					got = append(got, g.Text)
					for _, x := range g.Parts {
						mended = mended || c.mend != "" && strings.Contains(x.Mend, c.mend)
					}
				}
			}
		}
		if !slices.Equal(got, c.want) || mended != (c.mend != "") {
			t.Errorf("%s:\n got %q\nwant %q, mended %v", name, got, c.want, mended)
		}
	}
}

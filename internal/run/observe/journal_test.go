package observe

import (
	"fmt"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

// withJournal is the healthy example brick with a journal on two SSDs.
func withJournal(t *testing.T) (*design.Design, Facts) {
	t.Helper()
	d := designOf(t, "nfs-ha", "storage:\n", "storage:\n  journal: {ssds: [{serial: J1, size: 2GB}, {serial: J2, size: 2GB}]}\n")
	f := healthy(t, d)
	for name := range f.Hosts {
		h := f.Hosts[name].Host
		for i := range 2 {
			n := fmt.Sprintf("nvme%dn1", i)
			h.Disks = append(h.Disks, DiskState{
				DiskFact:  resource.DiskFact{Serial: fmt.Sprintf("J%d", i+1), Device: "/dev/disk/by-id/nvme-J" + n, Paths: []string{n}, Size: 2e9},
				PathState: map[string]PathState{n: {"live", -1}},
			})
		}
	}
	h := f.Hosts["nfs1"].Host
	m := d.Services()[0].Storage.Journal.Mirror
	h.Files["/proc/mdstat"] += "md126 : active raid1 nvme1n1[1] nvme0n1[0]\n      1951744 blocks super 1.2 [2/2] [UU]\n"
	h.Links["/dev/md/"+m.Name] = "/dev/md126"
	for name, v := range map[string]string{"uuid": rfcUUID(m.UUID), "array_state": "active", "degraded": "0", "raid_disks": "2", "level": "raid1", "sync_action": "idle", "mismatch_cnt": "0",
		"dev-nvme0n1/state": "in_sync", "dev-nvme0n1/slot": "0", "dev-nvme1n1/state": "in_sync", "dev-nvme1n1/slot": "1"} {
		h.Files["/sys/block/md126/md/"+name] = v + "\n"
	}
	h.Files["/sys/block/md127/md/dev-md126p1/state"], h.Files["/sys/block/md127/md/dev-md126p1/slot"] = "journal\n", "journal\n"
	return d, f
}

func TestJournalHealth(t *testing.T) {
	ssd := func(h *Host, serial string) {
		for i, x := range h.Disks {
			if x.Serial == serial {
				h.Disks = append(h.Disks[:i:i], h.Disks[i+1:]...)
				return
			}
		}
	}
	for _, c := range []struct {
		name  string
		do    func(d *design.Design, f Facts)
		level Level
		want  string // a finding
	}{
		{"healthy", func(*design.Design, Facts) {}, OK, ""},
		{"an SSD has failed", func(_ *design.Design, f Facts) {
			files := f.Hosts["nfs1"].Host.Files
			files["/sys/block/md126/md/dev-nvme1n1/state"], files["/sys/block/md126/md/degraded"] = "faulty\n", "1\n"
		}, Warning, "brick1-j0 is degraded on nfs1: 1 of 2 disks work, one more failure stops the writes"},
		{"an SSD is gone", func(_ *design.Design, f Facts) {
			h := f.Hosts["nfs1"].Host
			ssd(h, "J2")
			delete(h.Files, "/sys/block/md126/md/dev-nvme1n1/state")
			delete(h.Files, "/sys/block/md126/md/dev-nvme1n1/slot")
			h.Files["/sys/block/md126/md/degraded"] = "1\n"
		}, Warning, "nfs1 does not see SSD J2"},
		{"the passive server does not see one", func(_ *design.Design, f Facts) { ssd(f.Hosts["nfs2"].Host, "J1") },
			Warning, "nfs2 does not see SSD J1: it could take brick1-j0 over with the other one only"},
		{"an SSD is being rebuilt", func(_ *design.Design, f Facts) {
			files := f.Hosts["nfs1"].Host.Files
			files["/sys/block/md126/md/dev-nvme1n1/state"], files["/sys/block/md126/md/degraded"] = "spare\n", "1\n"
		}, Warning, "is being rebuilt into brick1-j0"},
		{"the array has lost its journal", func(_ *design.Design, f Facts) {
			f.Hosts["nfs1"].Host.Files["/sys/block/md127/md/dev-md126p1/state"] = "faulty,journal\n"
		}, Fault, "brick1-r0 has lost its write journal on brick1-j0: it takes no writes"},
		{"the mirror is not there", func(_ *design.Design, f Facts) {
			files := f.Hosts["nfs1"].Host.Files
			for p := range files {
				if strings.HasPrefix(p, "/sys/block/md126/") {
					delete(files, p)
				}
			}
		}, Fault, "mirror of 2 SSDs is not assembled on any server"},
		{"two servers have the mirror", func(_ *design.Design, f Facts) {
			for p, v := range f.Hosts["nfs1"].Host.Files {
				if strings.HasPrefix(p, "/sys/block/md126/") {
					f.Hosts["nfs2"].Host.Files[p] = v
				}
			}
		}, Fault, "mirror of 2 SSDs is assembled on nfs1 and nfs2 at once"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, f := withJournal(t)
			c.do(d, f)
			v := newView(d, &d.Pairs[0], f)
			worst, said := OK, ""
			for _, p := range (mdStorage{v}).parts() {
				p.settle()
				if p.Name == "path" && p.Level != OK {
					t.Errorf("an SSD with one path is no lost path: %s", p.Text)
				}
				p.leaves(func(l *Part) {
					worst = max(worst, l.Level)
					said += l.Text + "\n"
				})
			}
			if worst != c.level || !strings.Contains(said, c.want) {
				t.Errorf("level %v, want %v: %q in\n%s", worst, c.level, c.want, said)
			}
		})
	}
}

// A server that lacks SSDs is not ready to take the service; the mirror is no array of
// the system; its redundancy is a metric.
func TestJournalElsewhere(t *testing.T) {
	d, f := withJournal(t)
	s := newView(d, &d.Pairs[0], f).byName["nfs1"]
	if as := s.systemArrays(d); len(as) > 0 {
		t.Errorf("%+v", as)
	}
	text := metrics(d.Measure(&d.Pairs[0], "nfs1"), f.Hosts["nfs1"].Host).text()
	if !strings.Contains(text, `mortar_raid_disks_present{brick="brick1",group="brick1-j0"} 2`) || strings.Contains(text, `serial="J1"`) {
		t.Error(text)
	}
}

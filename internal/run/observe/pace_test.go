package observe

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/host/gather"
)

func TestSlowMembers(t *testing.T) {
	g := &design.Group{Name: "b-r0"}
	a := &array{}
	for i, serial := range []string{"MA01", "MA02", "MB01", "MB02"} {
		dev := "dm-" + string(rune('1'+i))
		a.members = append(a.members, member{linux.MDMember{Dev: dev, States: []string{"in_sync"}, Slot: i}, &design.Disk{Serial: serial}})
	}
	v := mdStorage{&view{pair: &design.Pair{}}}
	slow := func(g *design.Group, a *array, pace map[string]gather.Pace) []*Part {
		p := &Part{}
		v.slowMembers(p, g, a, pace)
		return p.Parts
	}
	for _, c := range []struct {
		ms   []float64
		want []string
	}{
		{[]float64{8, 9, 10, 2400}, []string{"MB02"}},
		{[]float64{300, 9, 10, 9}, []string{"MA01"}},
		{[]float64{8, 9, 10, 200}, nil},                         // slower than the others, but a hard disk may take that long
		{[]float64{100, 120, 150, 800}, nil},                    // a busy group
		{[]float64{2000, 2000, 2500, 2400}, nil},                // all are slow
		{[]float64{9, 2400}, nil},                               // two disks are too few to find the slow one
		{[]float64{9, 9, 2400, 2500}, []string{"MB01", "MB02"}}, // two may be slow
	} {
		pace := map[string]gather.Pace{}
		for i, ms := range c.ms {
			pace[a.members[i].Dev] = gather.Pace{Done: 4, MS: ms}
		}
		got := slow(g, a, pace)
		if len(got) != len(c.want) {
			t.Errorf("%v: %d are slow, want %q", c.ms, len(got), c.want)
			continue
		}
		for i, p := range got {
			if !p.Has(DiskSlow, "disk", c.want[i]) || p.Level != Warning {
				t.Errorf("%v: %+v, want %q", c.ms, p, c.want)
			}
		}
	}
	mirror := &array{members: a.members[:2]}
	if got := slow(g, mirror, map[string]gather.Pace{"dm-1": {Done: 4, MS: 9}, "dm-2": {Done: 4, MS: 2400}}); len(got) != 1 || !got[0].Has(DiskSlow, "disk", "MA02") {
		t.Errorf("a leg of a mirror: %+v", got)
	}
	got := slow(g, a, map[string]gather.Pace{"dm-1": {Done: 0, MS: 1000}, "dm-2": {Done: 4, MS: 9}, "dm-3": {Done: 4, MS: 9}})
	if len(got) != 1 || !strings.Contains(got[0].Text, "answered nothing for a second, its peers 9 ms") {
		t.Errorf("%+v", got)
	}
	v.pair.Services = []design.Service{{Storage: design.Storage{Groups: []string{"b-r0"}, DropSlow: true}}}
	if got = slow(g, a, map[string]gather.Pace{"dm-1": {Done: 0, MS: 1000}, "dm-2": {Done: 4, MS: 9}, "dm-3": {Done: 4, MS: 9}}); len(got) != 1 || !strings.Contains(got[0].Mend, "ocf:mortar:watch drops it") {
		t.Errorf("%+v", got)
	}
}

// A LUN is compared with the others of its volume on the server that has the load.
func TestSlowLUNs(t *testing.T) {
	slowLUNsOf := func(server string, luns map[string]string, pace map[string]gather.Pace) []*Part {
		p := &Part{}
		slowLUNs(p, server, luns, pace)
		return p.Parts
	}
	luns := map[string]string{"dm-1": "a-lun0", "dm-2": "a-lun1", "dm-3": "a-lun2", "dm-4": "a-lun3"}
	got := slowLUNsOf("nss1", luns, map[string]gather.Pace{"dm-1": {Done: 3, MS: 1502}, "dm-2": {Done: 9, MS: 4}, "dm-3": {Done: 9, MS: 5}, "dm-4": {Done: 9, MS: 4}})
	if len(got) != 1 || got[0].Name != "a-lun0" || got[0].Level != Warning || !strings.Contains(got[0].Text, "LUN a-lun0 is slow on nss1: it takes 1502 ms for an answer, the others 4 ms") {
		t.Errorf("%+v", got)
	}
	x := &server{host: &gather.Host{Files: map[string]string{"/sys/block/dm-1/dm/name": "a-lun0\n", "/sys/block/dm-2/dm/name": "a-lun1\n", "/sys/block/dm-2/dm/uuid": "mpath-36\n"}}}
	if got := x.mapped("/dev/mapper/a-lun1") + " " + x.mapped("/dev/disk/by-id/dm-uuid-mpath-36") + " " + x.mapped("/dev/sda"); got != "dm-2 dm-2 sda" {
		t.Error(got)
	}
	if got := slowLUNsOf("nss2", luns, nil); got != nil {
		t.Errorf("idle: %+v", got)
	}
}

// A disk that was dropped is named with the reason, while md lists it as failed and
// after the service has moved, until it is back or the spec has another one.
func TestDroppedDisk(t *testing.T) {
	const md = "/sys/block/md127/md/"
	d := designOf(t, "nfs-ha", "storage:\n", "storage:\n  drop_slow_disks: on\n")
	g := d.Groups[0]
	x := g.Members[1]
	dm := dmOf(d, x.Serial)
	rec := linux.Dropped{Node: "nfs1", Group: g.Name, Serial: x.Serial, Device: "/dev/mapper/3" + x.Serial, At: noon.Add(-10 * time.Minute), TookMS: 2400, PeersMS: 9}
	want := fmt.Sprintf("disk %s was dropped from %s by nfs1 at 20:50 because it was slow: it took 2400 ms for an answer, its peers 9 ms", diskName(&x), g.Name)
	gone := func(files map[string]string) {
		files[md+"degraded"] = "1\n"
		delete(files, md+"dev-"+dm+"/state")
		delete(files, md+"dev-"+dm+"/slot")
	}
	for _, c := range []struct {
		name  string
		rec   func(*linux.Dropped)
		files func(map[string]string)
		says  bool
	}{
		{"md lists it as failed", nil, func(files map[string]string) {
			files[md+"degraded"], files[md+"dev-"+dm+"/state"], files[md+"dev-"+dm+"/slot"] = "1\n", "faulty\n", "none\n"
		}, true},
		{"the service has moved", nil, gone, true},
		{"it is back", nil, func(map[string]string) {}, false},
		{"it is a spare now", nil, func(files map[string]string) {
			files[md+"dev-"+dm+"/state"], files[md+"dev-"+dm+"/slot"] = "spare\n", "none\n"
		}, false},
		{"another disk is in its place", func(r *linux.Dropped) { r.Serial = "OLD" }, gone, false},
		{"it is of another group", func(r *linux.Dropped) { r.Group = "b-r9" }, gone, false},
	} {
		f := healthy(t, d)
		r := rec
		if c.rec != nil {
			c.rec(&r)
		}
		older := r
		older.At = r.At.Add(-time.Hour)
		nodes := f.Hosts["nfs1"].Host.CIB.Nodes
		for i, n := range nodes {
			at := map[bool]linux.Dropped{true: r, false: older}[n.Name == "nfs1"]
			nodes[i].Attrs = append(n.Attrs, linux.CIBPair{Name: at.Attr(), Value: at.String()})
		}
		c.files(f.Hosts["nfs1"].Host.Files)
		var said []*Part
		Judge(d, f).Each(func(p *Part) {
			if strings.Contains(p.Text, "slow") || strings.Contains(p.Text, "has failed") {
				said = append(said, p)
			}
		})
		if c.says && (len(said) != 1 || !said[0].Has(DiskDropped, "disk", x.Serial, "group", g.Name) || said[0].Text != want || said[0].Level != Fault || !strings.Contains(said[0].Mend, "`mortar disk replace brick.yaml "+x.Serial+" --with SERIAL`")) || !c.says && len(said) > 0 {
			t.Errorf("%s: %d findings", c.name, len(said))
			for _, p := range said {
				t.Errorf("%+v", *p)
			}
		}
	}
}

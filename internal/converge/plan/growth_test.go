package plan

import (
	"os"
	"slices"
	"testing"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/host/resource/storage"
	"github.com/mortarhpc/mortar/internal/serve/ocf"
)

// grownDesign is the example nfs-ha with a growth of one group.
func grownDesign(t *testing.T) *design.Design {
	t.Helper()
	text, err := os.ReadFile("../../../examples/nfs-ha.yaml")
	if err != nil {
		t.Fatal(err)
	}
	s, err := spec.Parse("x.yaml", text)
	if err == nil {
		text, err = s.Grow([]spec.Added{{Enclosure: "A", Serial: "MA[04-05]"}, {Enclosure: "B", Serial: "MB[04-05]"}})
	}
	if err != nil {
		t.Fatal(err)
	}
	return designOf(t, text)
}

// While the cluster serves a volume, the new array is made first, then both agents
// learn of it, and only then the volume group needs it: a takeover at any moment
// finds all that it needs. A volume that is being built has it from the start.
func TestOrderOfGrowth(t *testing.T) {
	d := grownDesign(t)
	svc := d.Services()[0]
	runs := resource.HostFacts{
		Cluster: clusterOf(true, linux.CRMResource{ID: resource.ServiceID(svc.Name), Role: "Started", Nodes: onNode("nfs2")}),
	}
	at := func(steps []Step, kind, id, host string) int {
		return slices.IndexFunc(steps, func(s Step) bool {
			return s.Kind() == kind && s.ID() == id && s.Host == host
		})
	}
	vol := svc.Storage.VG + "/" + svc.Storage.LV
	steps, err := Desired(d, Facts{Hosts: map[string]resource.HostFacts{"nfs1": runs, "nfs2": runs}}, testSecrets)
	if err != nil {
		t.Fatal(err)
	}
	array := at(steps, "md-array", svc.Storage.Growths[0][0], "nfs2")
	growth := at(steps, "grown-volume", vol, "nfs2")
	for _, h := range []string{"nfs1", "nfs2"} {
		if agent := at(steps, "ocf-config", ocf.ConfigPath(svc.Name), h); array < 0 || array > agent || agent > growth {
			t.Errorf("array %d, agent of %s %d, growth %d", array, h, agent, growth)
		}
	}
	if g := steps[growth].Resource.(*storage.GrownVolume); g.SystemID != "" {
		t.Errorf("LVM is to change a volume that is served as another owner than its server: %+v", g)
	}
	if a := steps[array].Resource.(*storage.Array); a.Grow == nil || a.Assemble {
		t.Errorf("%+v", a)
	}
	if a := steps[at(steps, "md-array", svc.Storage.Groups[0], "nfs2")].Resource.(*storage.Array); a.Grow != nil {
		t.Errorf("a group that was there first may be made anew: %+v", a)
	}

	if steps, err = Desired(d, Facts{}, testSecrets); err != nil {
		t.Fatal(err)
	}
	lv, growth := at(steps, "logical-volume", vol, "nfs1"), at(steps, "grown-volume", vol, "nfs1")
	fs := at(steps, "xfs", "/dev/"+vol, "nfs1")
	if lv < 0 || lv > growth || growth > fs {
		t.Errorf("volume %d, growth %d, file system %d", lv, growth, fs)
	}
	if l := steps[lv].Resource.(*storage.LogicalVolume); len(l.PVs) != 1 || len(l.Later) != 1 || l.Stripes != 1 {
		t.Errorf("%+v", l)
	}
}

// apply adds a cache to a brick in use. It makes the header and the label before it tells an agent
// of the cache, and puts no data on an SSD before both agents know the cache. So a takeover at any
// moment finds what its config says. A single server has no agent: apply moves the file system onto
// the layers at once.
func TestOrderOfALateCache(t *testing.T) {
	for _, x := range []struct {
		file, host string
		managed    bool
	}{{"nfs-ha.yaml", "nfs2", true}, {"nfs.yaml", "nfs1", false}} {
		text, err := os.ReadFile("../../../examples/" + x.file)
		if err != nil {
			t.Fatal(err)
		}
		s, err := spec.Parse("x.yaml", text)
		if err != nil {
			t.Fatal(err)
		}
		s, _, err = s.ChangeCache(func(c *spec.Cache) (*spec.Cache, error) {
			return c, c.Add(spec.DiskList{Size: 400 * spec.GB, Type: "nvme"}, "S1")
		})
		if err != nil {
			t.Fatal(err)
		}
		d := designOf(t, s.Source)
		svc := d.Services()[0]
		v := &svc.Storage
		f := resource.HostFacts{Mapped: []string{linux.DMName(v.VG, v.LV)}}
		if x.managed {
			f.Cluster = clusterOf(true, linux.CRMResource{ID: resource.ServiceID(svc.Name), Role: "Started", Nodes: onNode(x.host)})
		}
		hosts := map[string]resource.HostFacts{}
		for _, h := range d.Servers() {
			hosts[h] = f
		}
		steps, err := Desired(d, Facts{Hosts: hosts}, testSecrets)
		if err != nil {
			t.Fatal(err)
		}
		at := func(kind, id, host string) int {
			i := slices.IndexFunc(steps, func(s Step) bool { return s.Kind() == kind && s.ID() == id && s.Host == host })
			if i < 0 {
				t.Fatalf("%s: no %s %s on %s", x.file, kind, id, host)
			}
			return i
		}
		vol := v.VG + "/" + v.LV
		header, front, ssds := at("logical-volume", v.VG+"/"+v.Cache.Header, x.host), at("cache-front", vol, x.host), at("cache", vol, x.host)
		if l := steps[header].Resource.(*storage.LogicalVolume); header > front || front > ssds || l.Late != 2 || l.Before != v.LV || l.SystemID != "" {
			t.Errorf("%s: header %d, layers %d, SSDs %d: %+v", x.file, header, front, ssds, l)
		}
		at("xfs", v.Backing(), x.host) // not one that is to be made on a device that is not there yet
		c := steps[front].Resource.(*storage.CacheFront)
		if x.managed {
			for _, h := range d.Servers() {
				if agent := at("ocf-config", ocf.ConfigPath(svc.Name), h); front > agent || agent > ssds || !c.Managed || c.Stop != nil {
					t.Errorf("layers %d, agent of %s %d, SSDs %d: %+v", front, h, agent, ssds, c)
				}
			}
			continue
		}
		if m := steps[at("mount", svc.MountPoint, x.host)].Resource.(*storage.MountPoint); c.Managed || len(c.Stop) != 1 || m.Until != v.Backing() || m.Source != v.Mounted() {
			t.Errorf("%+v, %+v", c, m)
		}
	}
}

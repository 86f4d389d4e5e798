package plan

import (
	"bytes"
	"fmt"
	"io/fs"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/examples"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/host/resource/storage"
)

// offline plans an example, edited by replacing old by new.
func offline(t *testing.T, name string, oldNew ...string) (*design.Design, *Plan, string) {
	t.Helper()
	src, err := fs.ReadFile(examples.FS, name)
	if err != nil {
		t.Fatal(err)
	}
	s, err := spec.Parse(name, []byte(strings.NewReplacer(oldNew...).Replace(string(src))))
	if err != nil {
		t.Fatal(err)
	}
	d, err := design.Derive(s)
	if err != nil {
		t.Fatal(err)
	}
	p, err := Offline(t.Context(), d)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	var b bytes.Buffer
	if err := p.Show(&b, nil); err != nil {
		t.Fatal(err)
	}
	return d, p, b.String()
}

// Every example has a plan for blank hosts, on every host, and no secret in it.
func TestOfflineExamples(t *testing.T) {
	files, err := fs.Glob(examples.FS, "*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		d, p, text := offline(t, f)
		hosts := map[string]bool{}
		for _, s := range p.Pending() {
			hosts[s.Host] = true
		}
		for _, v := range d.Spec.Servers {
			if !hosts[v.Name] {
				t.Errorf("%s: nothing to do on %s", f, v.Name)
			}
		}
		for _, v := range d.Spec.Clients {
			if !hosts[v.Name] {
				t.Errorf("%s: nothing to do on %s", f, v.Name)
			}
		}
		// What stands for a secret is seen in the CIB only, which is hidden in a
		// real plan.
		for line := range strings.Lines(text) {
			if strings.Contains(line, "(content of ") && !strings.Contains(line, `name="community"`) {
				t.Errorf("%s: a secret is shown: %s", f, line)
			}
		}
	}
}

// find gives the resources of a type in a plan.
func find[R resource.Resource](p *Plan) (out []R) {
	for _, s := range p.Steps {
		if r, ok := s.Resource.(R); ok {
			out = append(out, r)
		}
	}
	return out
}

// kinds of resources in a plan, each once.
func kinds(p *Plan) []string {
	var out []string
	for _, s := range p.Steps {
		out = append(out, s.Kind())
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// A brick on arrays: LUNs by their own names, no md, everything above as on
// JBODs.
func TestOfflineArray(t *testing.T) {
	_, p, _ := offline(t, "nss4-ha-144.yaml")
	for _, no := range []string{"md-array", "md-conf", "initramfs"} {
		if slices.Contains(kinds(p), no) {
			t.Errorf("%s in a plan without md", no)
		}
	}
	vg, lv := find[*storage.VolumeGroup](p)[0], find[*storage.LogicalVolume](p)[0]
	luns := []string{"/dev/mapper/nss4-lun0", "/dev/mapper/nss4-lun1", "/dev/mapper/nss4-lun2", "/dev/mapper/nss4-lun3"}
	if !slices.Equal(vg.PVs, luns) || len(vg.Serials) != 4 || vg.Align != 5120<<10 || lv.Stripes != 4 || lv.StripeSize != 512<<10 {
		t.Errorf("%+v\n%+v", vg, lv)
	}
}

// No stage or step of a brick of NVMe disks has a name of SCSI.
func TestOfflineNVMe(t *testing.T) {
	_, p, _ := offline(t, "nvme-ha.yaml")
	for _, s := range p.Steps {
		if name := strings.ToLower(s.Stage + ", " + s.Title); strings.Contains(name, "scsi") || strings.Contains(name, "multipath") {
			t.Errorf("%s: %s", s.Host, name)
		}
	}
}

func TestOfflineCache(t *testing.T) {
	_, p, _ := offline(t, "nfs-dfc.yaml")
	if slices.Contains(kinds(p), "multipath") {
		t.Error("multipath for a controller in the server")
	}
	c, x := find[*storage.Cache](p), find[*storage.XFS](p)
	if len(c) != 1 || len(x) != 1 || c[0].Device != x[0].Device {
		t.Errorf("the file system is not on the cache: %+v %+v", c, x)
	}
}

// A target registers with the MGS when it starts first: the services of the
// MDS run before the cluster of any OSS has its configuration.
func TestOfflineLustre(t *testing.T) {
	_, p, _ := offline(t, "lustre-brick.yaml")
	var order []string
	for _, s := range p.Steps {
		if k := s.Kind(); k == "cib" || k == "running" && strings.HasPrefix(s.Title, "service ") {
			order = append(order, s.Host+" "+s.Title)
		}
	}
	// Each is watched from the server on which it does not run.
	want := []string{"mds01 cluster configuration", "mds01 service mgt", "mds02 service mdt0000", "oss01 cluster configuration"}
	if len(order) < len(want) || !slices.Equal(order[:len(want)], want) {
		t.Errorf("%q", order)
	}
}

// NFS over RDMA adds a package, a module, the listener of nfsd and the client's mount options.
func TestOfflineRDMA(t *testing.T) {
	for _, name := range []string{"nfs-ha.yaml", "nfs.yaml"} {
		_, p, _ := offline(t, name, "\nnfs:\n", "\nnfs:\n  transport: rdma\n")
		for _, r := range find[*resource.Packages](p) {
			if !slices.Contains(r.Names, "rdma-core") {
				t.Errorf("%s: %v", name, r.Names)
			}
		}
		for _, r := range find[*resource.Modules](p) {
			if !slices.Contains(r.Names, "rpcrdma") {
				t.Errorf("%s: %v", name, r.Names)
			}
		}
		for _, r := range find[*storage.MountPoint](p) {
			if r.Type == "nfs" && (!slices.Contains(r.Options, "proto=rdma") || !slices.Contains(r.Options, "port=20049")) {
				t.Errorf("%s: %v", name, r.Options)
			}
		}
		for _, r := range find[*storage.OCFConfig](p) {
			if !strings.Contains(string(r.Template), `"rdma":20049`) {
				t.Errorf("%s: %s", name, r.Template)
			}
		}
		for _, r := range find[*resource.NFSServer](p) {
			if r.RDMA != 20049 {
				t.Errorf("%s: %+v", name, r)
			}
		}
	}
}

// A Lustre whose MDS has JBODs and whose OSS has an array.
func TestOfflineMixedLustre(t *testing.T) {
	_, p, _ := offline(t, "lustre-small.yaml", "raid: {level: 6, data: 2, spares: 2", "kind: array\n        model: ME4084\n        raid: {level: 6, data: 2, spares: 2")
	for _, s := range p.Steps {
		if md := s.Kind() == "md-array"; md && !strings.HasPrefix(s.Host, "mds") {
			t.Errorf("md on %s, a server of an array", s.Host)
		}
		if v, ok := s.Resource.(*storage.VolumeGroup); ok && strings.HasPrefix(v.PVs[0], "/dev/mapper/small-OST") != strings.HasPrefix(s.Host, "oss") {
			t.Errorf("%s: %+v", s.Host, v)
		}
	}
}

// A file system directly on the one LUN of a controller.
func TestOfflineDevice(t *testing.T) {
	_, p, _ := offline(t, "nfs-dfc.yaml", `cache:
  ssds:
    - {serial: SSD01, size: 350GB, type: nvme}
    - {serial: SSD02, size: 350GB, type: nvme}
  mode: write-back
  sequential_bypass: 1MiB
`, "", "storage:\n", "storage:\n  volume: device\n", "controller: 1}", "controller: 1, wwns: ['600508b1001c0001']}")
	x := find[*storage.XFS](p)
	if len(x) != 1 || x[0].Device != "/dev/disk/by-id/wwn-0x600508b1001c0001" || x[0].Serial != "600508b1001c0001" {
		t.Errorf("%+v", x)
	}
	if slices.Contains(kinds(p), "volume-group") {
		t.Error("LVM on a LUN that is to carry the file system itself")
	}
}

// Two plans are in testdata as a user sees them: of NFS and of Lustre, both for pairs on JBODs.
// What holds for the plans of all examples is in property_test.go.
func TestOfflinePlansStayTheSame(t *testing.T) {
	for _, name := range []string{"nfs-ha", "lustre-small"} {
		_, _, text := offline(t, name+".yaml")
		golden(t, "plan-"+name+".txt", text)
	}
}

// The arrays of a service follow each other, and are Apart: apply creates them side by side.
func TestArraysAreApart(t *testing.T) {
	_, p, _ := offline(t, "jbod-ha.yaml")
	arrays, runs := 0, 0
	for i, s := range p.Steps {
		if s.Apart != (s.Kind() == "md-array") {
			t.Errorf("%s: %v", s.Title, s.Apart)
		}
		if s.Apart {
			arrays++
			if !p.Steps[i-1].Apart {
				runs++
			}
		}
	}
	if arrays < 2 || runs != 1 {
		t.Errorf("%d arrays in %d runs", arrays, runs)
	}
}

// A plan's memory grows with the number of disks, not with its square: four times the disks
// take four times the memory, and half as much again.
func TestOfflineGrowsWithDisks(t *testing.T) {
	memory := func(enclosures int) float64 {
		var disks strings.Builder
		for i := range enclosures {
			fmt.Fprintf(&disks, "  - name: E%d\n    disks: [{serial: \"E%dN[01-84]\", size: 24TB, type: nl-sas}]\n", i, i)
		}
		src, err := fs.ReadFile(examples.FS, "nfs-ha.yaml")
		if err != nil {
			t.Fatal(err)
		}
		head, rest, _ := strings.Cut(string(src), "enclosures:\n")
		_, rest, _ = strings.Cut(rest, "\nstorage:\n")
		s, err := spec.Parse("brick.yaml", []byte(head+"enclosures:\n"+disks.String()+"storage:\n"+strings.NewReplacer("data: 2 #", "data: 10 #", "spares: 2", "spares: 0").Replace(rest)))
		if err != nil {
			t.Fatal(err)
		}
		d, err := design.Derive(s)
		if err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if _, err := Offline(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		return float64(after.TotalAlloc - before.TotalAlloc)
	}
	few, many := memory(6), memory(24)
	if many > 6*few {
		t.Errorf("a plan of 504 disks takes %.0f MB, one of 2,016 %.0f MB", few/1e6, many/1e6)
	}
}

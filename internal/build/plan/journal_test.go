package plan

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/serve/ocf"
)

// journalDesign is an example with a journal below its storage section.
func journalDesign(t *testing.T, example, under, journal string) *design.Design {
	t.Helper()
	file := "../../../examples/" + example + ".yaml"
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(string(b), under, under+journal, 1)
	s, err := spec.Parse(file, []byte(text))
	if err != nil || text == string(b) {
		t.Fatal(err, under)
	}
	d, err := design.New(s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func nfsJournal(t *testing.T) *design.Design {
	return journalDesign(t, "nfs-ha", "storage:\n", "  journal: {ssds: [{serial: J1, size: 2GB}, {serial: J2, size: 2GB}]}\n")
}

// The mirror is made before its partitions, and these before the array; everything
// that keeps arrays to one server covers the mirror.
func TestJournalSteps(t *testing.T) {
	d := nfsJournal(t)
	steps, err := Desired(d, Facts{}, testSecrets)
	if err != nil {
		t.Fatal(err)
	}
	at := func(kind, title string) int {
		return slices.IndexFunc(steps, func(s Step) bool { return s.Resource.Kind() == kind && strings.Contains(s.Title, title) })
	}
	mirror, table, array := at("md-array", "brick1-j0"), at("journal-table", "brick1-j0"), at("md-array", "brick1-r0")
	if mirror < 0 || mirror > table || table > array {
		t.Fatalf("mirror %d, partitions %d, array %d", mirror, table, array)
	}
	j := d.Services()[0].Storage.Journal
	m, a := steps[mirror].Resource.(*resource.Array), steps[array].Resource.(*resource.Array)
	if m.Level != 1 || len(m.Members) != 2 || !m.Assemble || m.Journal != "" || a.Journal != j.Parts[0].Device {
		t.Errorf("mirror %+v, array %+v", m, a)
	}
	for _, i := range []int{mirror, table, array} {
		if len(steps[i].Guards) != 2 {
			t.Errorf("%s has guards %+v", steps[i].Title, steps[i].Guards)
		}
	}
	for _, g := range steps[mirror].Guards {
		if u := g.Resource.(*resource.Unclaimed); g.Host == "nfs2" && u.Arrays[j.Mirror.UUID] == "" {
			t.Errorf("nfs2 may have the mirror: %+v", u)
		}
	}
	r := findStep(t, steps, "release-storage", "").Resource.(*resource.ReleaseStorage)
	if r.Mirrors[j.Mirror.UUID] == "" || r.Arrays[j.Mirror.UUID] != "" || len(r.Arrays) != 1 {
		t.Errorf("release %+v", r)
	}
	conf := string(findStep(t, steps, "md-conf", "").Resource.(*resource.MDConf).Content)
	if !strings.Contains(conf, "ARRAY <ignore> UUID="+j.Mirror.UUID) {
		t.Error(conf)
	}
	if i := findStep(t, steps, "initramfs", "").Resource.(*resource.Initramfs); !slices.Contains(i.Arrays, j.Mirror.UUID) {
		t.Errorf("initial RAM disk %+v", i)
	}
	for _, s := range steps {
		if k, ok := s.Resource.(*resource.Disks); ok {
			i := slices.IndexFunc(k.List, func(w resource.WantedDisk) bool { return w.Serial == "J2" })
			if i < 0 || k.List[i].Group != j.Mirror.UUID {
				t.Errorf("%s on %s: %+v", s.Title, s.Host, k.List)
			}
		}
		if q, ok := s.Resource.(*resource.BlockQueue); ok && (len(q.Disks) != 6 || len(q.Arrays) != 1) {
			t.Errorf("the SSDs get the values of the disks: %+v", q)
		}
	}
	if m := findStep(t, steps, "modules", "").Resource.(*resource.Modules); !slices.Contains(m.Names, "raid1") {
		t.Errorf("modules %q", m.Names)
	}
	if p := findStep(t, steps, "packages", "").Resource.(*resource.Packages); !slices.Contains(p.Names, "fdisk") {
		t.Errorf("packages %q", p.Names)
	}
	o := findStep(t, steps, "ocf-config", "home").Resource.(*resource.OCFConfig)
	var c ocf.Config
	if err := json.Unmarshal(o.Template, &c); err != nil || c.Journal == nil || c.Journal.Need != 1 || c.Arrays[0].Journal != 1 || len(o.Journal) != 2 || !slices.Equal(c.Needs, []string{ocf.NeedJournal}) {
		t.Errorf("%v\n%s", err, o.Template)
	}
}

// A mirror that only one server has counts as the service's storage, and one that both
// have is refused as an array is.
func TestJournalOwner(t *testing.T) {
	d := nfsJournal(t)
	j := d.Services()[0].Storage.Journal
	has := resource.HostFacts{Arrays: []linux.MDArray{{UUID: j.Mirror.UUID, State: "clean"}}}
	b := newBuilder(d, &d.Pairs[0], Facts{Hosts: map[string]resource.HostFacts{"nfs1": {}, "nfs2": has}}, testSecrets)
	if p := b.placeOf(b.services()[0]); p.host != "nfs2" {
		t.Errorf("%+v", p)
	}
	b.facts.Hosts["nfs1"] = has
	if err := b.oneOwner(); err == nil || !strings.Contains(err.Error(), "array brick1-j0 is assembled on nfs1 and nfs2") {
		t.Error(err)
	}
}

// Each OST has a mirror of its own, and each array a partition of it.
func TestJournalOfOSTs(t *testing.T) {
	d := journalDesign(t, "lustre-small", "servers: [oss01, oss02]\n      storage:\n", "        journal: {ssds: [{serial: 'J[1-4]', size: 1600GB}]}\n")
	steps, err := Desired(named(d), Facts{}, testSecrets)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range steps {
		if a, ok := s.Resource.(*resource.Array); ok && a.Level != 10 {
			got = append(got, s.Host+" "+a.Name)
		}
	}
	const want = "oss01 small-j0, oss01 small-r1, oss02 small-j1, oss02 small-r2"
	if strings.Join(got, ", ") != want {
		t.Errorf("%q, want %q", got, want)
	}
	if a := ArrayOf(d, d.Groups[1]); !strings.HasSuffix(a.Journal, "-part1") || ArrayOf(d, d.Groups[0]).Journal != "" {
		t.Errorf("%+v", a)
	}
}

package design

import (
	"bytes"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/examples"
	"github.com/mortarhpc/mortar/internal/brick/spec"
)

// edited is an example with one change.
func edited(t *testing.T, example, old, with string) *spec.Spec {
	t.Helper()
	b, err := examples.FS.ReadFile(example + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(string(b), old, with, 1)
	if text == string(b) {
		t.Fatalf("%s has no %q", example, old)
	}
	s, err := spec.Parse("x.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

const nfsJournal = "storage:\n  journal: {ssds: [{serial: 'J[1-2]', size: 2GB}]}\n"

// Each service has a mirror of its own, and each of its groups a partition of it.
func TestJournal(t *testing.T) {
	const oss = "servers: [oss01, oss02]\n      storage:\n"
	for _, c := range []struct {
		example, old, with string
		mirrors            []string // service, mirror and SSDs
	}{
		{"nfs-ha", "storage:\n", nfsJournal, []string{"home brick1-j0 J1 J2"}},
		{"nfs-ha-xl", "storage:\n", "storage:\n  journal: {ssds: [{serial: 'J[1-4]', size: 2GB}]}\n", []string{"home brickxl-j0 J1 J2", "scratch brickxl-j1 J3 J4"}},
		{"jbod-ha", "storage:\n", "storage:\n  journal: {ssds: [{serial: J1, size: 1600GB}, {serial: J2, size: 1920GB}]}\n", []string{"scratch jbod-j0 J1 J2"}},
		{"lustre-small", oss, oss + "        journal: {ssds: [{serial: 'J[1-4]', size: 1600GB}]}\n", []string{"ost0000 small-j0 J1 J2", "ost0001 small-j1 J3 J4"}},
	} {
		d, err := New(edited(t, c.example, c.old, c.with))
		if err != nil {
			t.Errorf("%s: %v", c.example, err)
			continue
		}
		var got []string
		for _, s := range d.Services() {
			j := s.Storage.Journal
			if j == nil {
				continue
			}
			m := j.Mirror
			got = append(got, strings.Join([]string{s.Name, m.Name, m.Members[0].Serial, m.Members[1].Serial}, " "))
			end := spec.Bytes(spec.MiB)
			for i, g := range d.GroupsIn(&s.Storage) {
				p, n := j.Of(g.Name)
				if p == nil || n != i+1 || p.Start != end || p.Size%spec.MiB != 0 || p.Size < mdOffset(g.Members[0].Size, g.Chunk)+journalLeast {
					t.Errorf("%s: partition %d of %s: %+v", c.example, n, g.Name, p)
					break
				}
				end = p.Start + p.Size
			}
			if room := mdData(min(m.Members[0].Size, m.Members[1].Size)/100*99, mirrorChunk); end+spec.MiB > room {
				t.Errorf("%s: partitions to %s on a mirror of %s", c.example, end, room)
			}
		}
		if strings.Join(got, ", ") != strings.Join(c.mirrors, ", ") {
			t.Errorf("%s: %q, want %q", c.example, got, c.mirrors)
		}
		for _, a := range d.Recommended {
			t.Errorf("%s: with a journal, recommended %s", c.example, a.Text)
		}
	}
}

// What can be said and not built, and what cannot be.
func TestJournalRefusals(t *testing.T) {
	one := edited(t, "nfs", "storage:\n", nfsJournal)
	if _, err := Derive(one); err != nil {
		t.Errorf("it can be looked at: %v", err)
	}
	for name, c := range map[string]struct {
		s    *spec.Spec
		want string
	}{
		"one server":    {one, "a journal of flavour nfs"},
		"profile stock": {edited(t, "nfs-ha", "storage:\n", "profile: stock\n"+nfsJournal), "a journal with profile stock"},
		"both failed":   {edited(t, "nfs-ha", "storage:\n", "failed: [J1, J2]\n"+nfsJournal), "both SSDs of mirror brick1-j0 are marked as failed"},
		"too small for 8 groups": {edited(t, "jbod-ha", "  raid: {level: 6, data: 10", "  journal: {ssds: [{serial: 'J[1-2]', size: 1GB}]}\n  raid: {level: 6, data: 4"),
			"SSDs of 1GB leave"},
	} {
		if _, err := New(c.s); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := New(edited(t, "nfs-ha", "storage:\n", "failed: [J2]\n"+nfsJournal)); err != nil {
		t.Errorf("one failed: %v", err)
	}
}

// check recommends a journal for parity on JBODs of a pair, and says where that is
// explained; it prints one that is there.
func TestJournalShown(t *testing.T) {
	for example, want := range map[string]int{"nfs-ha": 1, "nfs-ha-xl": 1, "lustre-small": 1, "nfs": 0, "nss7.4-ha": 0} {
		b, err := examples.FS.ReadFile(example + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		s, err := spec.Parse("x.yaml", b)
		if err != nil {
			t.Fatal(err)
		}
		d, err := Derive(s)
		if err != nil || len(d.Recommended) != want {
			t.Errorf("%s: %v, %+v", example, err, d.Recommended)
		}
	}
	d, err := New(edited(t, "nfs-ha", "storage:\n", nfsJournal))
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := Show(&b, d, ShowOptions{Explain: true}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"home: mirror j0 on J1 and J2", "for each of 1 group", "driver-api/md/raid5-cache"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is not in\n%s", want, b.String())
		}
	}
}

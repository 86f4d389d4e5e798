package spec

import (
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/examples"
)

// withJournal is an example with a journal in its storage section.
func withJournal(t *testing.T, example, under, ssds string) *Spec {
	t.Helper()
	b, err := examples.FS.ReadFile(example + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	src := strings.Replace(string(b), under, under+ssds, 1)
	if src == string(b) {
		t.Fatalf("%s has no %q", example, under)
	}
	s, err := Parse("x.yaml", []byte(src))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// An SSD of a journal fails, and another one takes its place, as a disk of an
// enclosure does.
func TestReplaceJournalSSD(t *testing.T) {
	const ssds = "  journal:\n    ssds:\n      - {serial: J1, size: 2GB}\n      - {serial: J2, size: 2GB, type: ssd}\n"
	s := withJournal(t, "nfs-ha", "storage:\n", ssds)
	if l := s.Storage.Journal.SSDs; l[0].Type != "nvme" || l[1].Type != "ssd" {
		t.Errorf("types %+v", l)
	}
	if name, ok := s.DiskNamed("j2"); !ok || name != "J2" {
		t.Error(name, ok)
	}
	failed, err := s.FailDisk("J2")
	if err != nil || !strings.Contains(string(failed), `failed: ["J2"]`) {
		t.Fatalf("%v\n%s", err, failed)
	}
	if s, err = Parse("x.yaml", failed); err != nil {
		t.Fatal(err)
	}
	got, err := s.ReplaceDisk("J2", "J9", "")
	if err != nil || !strings.Contains(string(got), "      - {serial: J1, size: 2GB}\n      - {serial: \"J9\", size: 2GB, type: ssd}\n") || strings.Contains(string(got), "failed:") {
		t.Errorf("%v\n%s", err, got)
	}
	if _, err := s.ReplaceDisk("J2", "MA01", ""); err == nil {
		t.Error("a disk of the RAID becomes an SSD of the journal")
	}
}

// A Lustre module has two SSDs for each OST; a scaled brick has room for them.
func TestJournalOfLustre(t *testing.T) {
	const oss = "servers: [oss01, oss02]\n      storage:\n"
	s := withJournal(t, "lustre-small", oss, "        journal: {ssds: [{serial: 'J[1-4]', size: 1600GB}]}\n")
	if js := s.Journals(); len(js) != 1 || js[0].Name != "oss" || js[0].Pairs(s.Flavour) != 2 {
		t.Errorf("%+v", js)
	}
	if err := s.Scale(1000); err != nil || s.Journals()[0].Storage.Journal.SSDs[0].Size < leastSSD {
		t.Error(err, s.Journals()[0].Storage.Journal.SSDs)
	}
	b, _ := examples.FS.ReadFile("lustre-small.yaml")
	for ssds, want := range map[string]string{"J[1-2]": "each of the 2 OSTs of module oss needs a mirror of two", "J[1-6]": "list 4"} {
		_, err := Parse("x.yaml", []byte(strings.Replace(string(b), oss, oss+"        journal: {ssds: [{serial: '"+ssds+"', size: 1600GB}]}\n", 1)))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", ssds, err)
		}
	}
}

package ocf

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/internal/base/md"
	"golang.org/x/sys/unix"
)

// journalBrick is an array with a journal, served by NFS.
func journalBrick(t *testing.T) (*shared, *Config) {
	return brick(t, storageSpecimens[onJournal], serviceSpecimens[0])
}

// The specimen has the name that its place is given.
func TestJournalSpecimen(t *testing.T) {
	if n := storageSpecimens[onJournal].name; n != "md with journal" {
		t.Error(n)
	}
}

// A server dies while its RAID lacks a disk, and with two: its partner replays the
// journal, and neither compares parities nor tells md to start what is dirty.
func TestDegradedCrashWithJournal(t *testing.T) {
	for _, gone := range [][]int{{0}, {1, 2}, {4, 5}} {
		sh, c := journalBrick(t)
		h, other := sh.hosts["nfs1"], sh.hosts["nfs2"]
		if err := h.service(c).start(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, i := range gone {
			sh.disks[fmt.Sprintf("/dev/mapper/d%d", i)].gone = true
		}
		h.crash()
		if err := other.service(c).start(t.Context()); err != nil {
			t.Fatalf("without %d: %v", gone, err)
		}
		i := slices.IndexFunc(other.changes, func(c string) bool { return strings.Contains(c, "/dev/md/r0") })
		if i < 0 || !strings.HasSuffix(other.changes[i], " /dev/md126p1") || strings.Contains(other.changes[i], "--readonly") || slices.ContainsFunc(other.changes, func(c string) bool { return strings.Contains(c, "start_dirty_degraded") }) {
			t.Errorf("without %d: %q", gone, other.changes)
		}
		if err := other.service(c).stop(t.Context()); err != nil || !slices.Contains(other.changes, "mdadm --stop --quiet /dev/md127 /dev/md126") {
			t.Errorf("%v, %q", err, other.changes)
		}
	}
}

// md writes that an array is dirty, journal or not, until it assembles it after its
// parity was computed. The monitor writes down when that was.
func TestJournalOfNewParity(t *testing.T) {
	sh, c := journalBrick(t)
	sh.tags, sh.journal.synced = []string{"site=a"}, false
	h, other := sh.hosts["nfs1"], sh.hosts["nfs2"]
	s := h.service(c)
	if err := s.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	watch := func(want string) {
		t.Helper()
		if st, err := s.monitor(t.Context()); st != running || err != nil || strings.Join(sh.tags, " ") != want {
			t.Errorf("%v, %v, tags %q, want %q", st, err, sh.tags, want)
		}
	}
	watch("site=a")
	sh.journal.synced = true
	watch("site=a mortar-synced-r0")
	n := len(h.changes)
	watch("site=a mortar-synced-r0")
	if len(h.changes) != n {
		t.Errorf("again: %q", h.changes[n:])
	}
	sh.journal.synced = false // as md knows it: it was assembled before
	h.crash()
	sh.disks["/dev/mapper/d0"].gone = true
	so := other.service(c)
	if err := so.storage.sound(t.Context()); err != nil {
		t.Errorf("sound: %v", err)
	}
	if err := so.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	const poke = "poke /sys/module/md_mod/parameters/start_dirty_degraded "
	if a, b := slices.Index(other.changes, poke+"1"), slices.Index(other.changes, poke+"0"); a < 0 || b < a {
		t.Errorf("%q", other.changes)
	}
}

// A tag that cannot be written is no fault of the service.
func TestTagsThatCannotBeWritten(t *testing.T) {
	sh, c := journalBrick(t)
	sh.tags = nil
	h := sh.hosts["nfs1"]
	s := h.service(c)
	if err := s.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.k = &failing{kernel: h, bad: func(argv []string) bool { return argv[0] == "lvm" }}
	if st, err := s.monitor(t.Context()); st != running || err != nil {
		t.Error(st, err)
	}
}

// While /sys does not tell which SSDs the mirror has, no tag is changed: with both of
// them marked as out no server would start.
func TestTagsWhileTheMirrorCannotBeRead(t *testing.T) {
	for name, bad := range map[string]error{"an error": unix.EIO, "an attribute that is busy": unix.EBUSY} {
		sh, c := journalBrick(t)
		h := sh.hosts["nfs1"]
		s := h.service(c)
		if err := s.start(t.Context()); err != nil {
			t.Fatal(err)
		}
		h.out = []int{1}
		if st, err := s.monitor(t.Context()); st != running || err != nil {
			t.Fatal(st, err)
		}
		tags, n := strings.Join(sh.tags, " "), len(h.changes)
		if !strings.Contains(tags, "mortar-journal-out-1") {
			t.Fatal(tags)
		}
		h.out = nil
		s.k = unreadable{h, "/md/dev-s", bad}
		if err := s.storage.note(t.Context()); err == nil || strings.Join(sh.tags, " ") != tags || len(h.changes) != n {
			t.Errorf("%s: %v, tags %q, want %q", name, err, sh.tags, tags)
		}
	}
}

// unreadable has files that cannot be read: those whose path contains a text.
type unreadable struct {
	kernel
	text string
	err  error
}

func (u unreadable) ReadFile(p string) ([]byte, error) {
	if strings.Contains(p, u.text) {
		return nil, &fs.PathError{Op: "read", Path: p, Err: u.err}
	}
	return u.kernel.ReadFile(p)
}

// An SSD that left the mirror while it was in use is not believed when it comes back
// alone: what it holds is older than what is on the disks.
func TestSSDThatWasPulled(t *testing.T) {
	sh, c := journalBrick(t)
	h, other := sh.hosts["nfs1"], sh.hosts["nfs2"]
	s := h.service(c)
	if err := s.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	ssd := func(i int) *fakeDisk { return sh.disks[fmt.Sprintf("/dev/mapper/s%d", i)] }
	h.out = []int{1}
	if st, err := s.monitor(t.Context()); st != running || err != nil || !slices.Contains(sh.tags, "mortar-journal-out-1") {
		t.Fatal(st, err, sh.tags)
	}
	h.crash()
	ssd(0).gone = true // s1 is back, with a superblock in which both were there
	so := other.service(c)
	const why = "journal j0: the SSD that is here left the mirror while it was in use"
	if err := so.storage.sound(t.Context()); err == nil || !strings.Contains(err.Error(), why) {
		t.Errorf("sound: %v", err)
	}
	if err := so.start(t.Context()); err == nil || !strings.Contains(err.Error(), why) {
		t.Fatalf("start: %v", err)
	}
	if slices.ContainsFunc(other.changes, func(c string) bool { return strings.HasPrefix(c, "mdadm") }) {
		t.Errorf("changed: %q", other.changes)
	}
	if err := so.stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	// The one with the newest entries is enough.
	ssd(0).gone, ssd(1).gone = false, true
	if err := so.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	// It is back in the mirror: the tag goes.
	other.out = nil
	if st, err := so.monitor(t.Context()); st != running || err != nil || slices.Contains(sh.tags, "mortar-journal-out-1") {
		t.Error(st, err, sh.tags)
	}
}

// A journal that is not the array's, or older than it, is not replayed; nor is one
// forced.
func TestJournalThatIsNotBelieved(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(*shared)
		want string
	}{
		"another array's": {func(sh *shared) { sh.journal.alien = true }, "partition 1 of j0 is not its write journal, but of array eeeeeeee"},
		"out of date":     {func(sh *shared) { sh.journal.events = 98 }, "its write journal is out of date (event 98, the array is at 100)"},
		"being built":     {func(sh *shared) { sh.owner = BuildingID("at-rest") }, "volume group vg-a is under construction"},
		"no volume group": {func(sh *shared) { sh.vg = "other" }, "array r0 carries volume group other, not vg-a"},
	} {
		sh, cfg := journalBrick(t)
		c.do(sh)
		h := sh.hosts["nfs1"]
		refuses(t, sh, cfg, mishap{want: c.want})
		if slices.ContainsFunc(h.changes, func(c string) bool { return strings.HasPrefix(c, "mdadm --assemble /dev/md/r0") }) {
			t.Errorf("%s: %q", name, h.changes)
		}
	}
	// One event behind is in time, as for members.
	sh, cfg := journalBrick(t)
	sh.journal.events = 99
	if err := sh.hosts["nfs1"].service(cfg).start(t.Context()); err != nil {
		t.Error(err)
	}
}

// A config that names a partition needs a mirror.
func TestJournalConfig(t *testing.T) {
	_, c := journalBrick(t)
	for want, do := range map[string]func(c *Config){
		"arrays[0].journal 1: a partition":   func(c *Config) { c.Journal = nil },
		"arrays[0].journal -1: a partition":  func(c *Config) { c.Arrays[0].Journal = -1 },
		`journal.uuid "x": 32 hex digits`:    func(c *Config) { c.Journal.UUID = "x" },
		"journal.members is empty":           func(c *Config) { c.Journal.Members = nil },
		`journal.members[0] "s0": a path be`: func(c *Config) { c.Journal.Members[0] = "s0" },
	} {
		bad := *c
		storage := *c.MDStorage
		storage.Arrays = slices.Clone(storage.Arrays)
		mirror := *c.Journal
		mirror.Members = slices.Clone(mirror.Members)
		storage.Journal, bad.MDStorage = &mirror, &storage
		do(&bad)
		if err := bad.check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// An array that is not assembled is read from its members, also where two are missing.
func TestReadMembers(t *testing.T) {
	sh, c := journalBrick(t)
	s := sh.hosts["nfs1"].service(c).storage.(*mdKind)
	for a := range 6 {
		for b := range 6 {
			for i := range 6 {
				sh.disks[fmt.Sprintf("/dev/mapper/d%d", i)].gone = i == a || i == b
			}
			v, err := s.judged(c.Arrays[0], superblocks{})
			if err != nil {
				t.Fatal(err)
			}
			const n = 64 << 10
			got, err := s.readMembers(&v, 0, n)
			if err != nil || string(got) != string(sh.fakePV(0, n)) {
				t.Errorf("without %d and %d: %v", a, b, err)
			}
			if got, err = s.readMembers(&v, 12<<10, 8<<10); err != nil || string(got) != string(sh.fakePV(12<<10, 8<<10)) {
				t.Errorf("over the end of a chunk, without %d and %d: %v", a, b, err)
			}
			v.Newest = &md.Superblock{Level: 6, Chunk: 1000, Layout: 2}
			if _, err := s.readMembers(&v, 0, 4096); err == nil {
				t.Error("chunks of 1000 bytes")
			}
		}
	}
}

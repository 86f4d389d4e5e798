package cache

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mortarhpc/mortar/internal/serve/kernel"
	"github.com/mortarhpc/mortar/internal/serve/refusal"
)

// fakeTree is a fake sysfs of files and links.
type fakeTree struct {
	mu    sync.Mutex // of ran: commands run side by side
	files map[string]string
	links map[string]string
	// poked is called for every write.
	poked    func(t *fakeTree, p, data string) error
	discards *sync.WaitGroup // a discard ends when so many have begun; nil: at once
	now      time.Time
	// locked are the devices locked against udev; ran are the commands, each with
	// the devices locked at that time.
	locked map[string]bool
	ran    []string
	out    map[string]string // of commands
	read   func(dev string, offset, step int64, n int) error
	blocks map[int64][]byte // of the header, by offset; nil: no header
	// claimed are the devices that a driver has for itself.
	claimed map[string]bool
}

func (t *fakeTree) ReadFile(p string) ([]byte, error) {
	if s, ok := t.files[p]; ok {
		return []byte(s), nil
	}
	return nil, fs.ErrNotExist
}

func (t *fakeTree) ReadDir(p string) ([]string, error) {
	names := map[string]bool{}
	for _, m := range []map[string]string{t.files, t.links} {
		for f := range m {
			if rest, ok := strings.CutPrefix(f, p+"/"); ok {
				name, _, _ := strings.Cut(rest, "/")
				names[name] = true
			}
		}
	}
	if len(names) == 0 {
		return nil, fs.ErrNotExist
	}
	return slices.Sorted(maps.Keys(names)), nil
}

func (t *fakeTree) Realpath(p string) (string, error) {
	if to, ok := t.links[p]; ok {
		return to, nil
	}
	return "", fs.ErrNotExist
}

func (t *fakeTree) Poke(p, data string) error { return t.poked(t, p, data) }

func (t *fakeTree) Mkdir(string, uint32, int, int) error { return nil }

func (t *fakeTree) Save(p string, data []byte) error {
	t.files[p] = string(data)
	return nil
}

func (t *fakeTree) ReadBlocks(_ string, offset int64, n int) ([]byte, error) {
	if t.blocks == nil {
		return nil, fs.ErrNotExist
	}
	b := make([]byte, n)
	copy(b, t.blocks[offset])
	return b, nil
}

func (t *fakeTree) WriteBlocks(_ string, offset int64, data []byte) error {
	if t.blocks == nil {
		return fs.ErrNotExist
	}
	t.blocks[offset] = slices.Clone(data)
	return nil
}

// labelled gives the tree a header with a label.
func (t *fakeTree) labelled(test *testing.T, l *Label) {
	b, err := l.encode()
	if err != nil {
		test.Fatal(err)
	}
	t.files["/sys/block/dm-6/dm/name"], t.blocks = "b_home-cacheheader\n", map[int64][]byte{labelOffsets[1]: b}
}

func (t *fakeTree) Claimed(dev string) bool { return t.claimed[dev] }

func (t *fakeTree) Run(_ context.Context, c kernel.Command) (string, error) {
	argv := c.Argv
	if argv[0] == "blkdiscard" && t.discards != nil {
		t.discards.Done()
		t.discards.Wait()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	locked := slices.Sorted(maps.Keys(t.locked))
	t.ran = append(t.ran, strings.Join(argv, " ")+" locked: "+strings.Join(locked, " "))
	if out, ok := t.out[strings.Join(argv, " ")]; ok {
		return out, nil
	}
	return "", fs.ErrNotExist
}
func (t *fakeTree) Lock(_ context.Context, dev string) (func(), error) {
	if t.locked == nil {
		t.locked = map[string]bool{}
	}
	t.locked[dev] = true
	return func() { delete(t.locked, dev) }, nil
}
func (t *fakeTree) ReadPast(_ context.Context, dev string, offset, step int64, n int) error {
	return t.read(dev, offset, step, n)
}
func (t *fakeTree) Hostname() (string, error) { return "nfs1", nil }
func (t *fakeTree) Now() time.Time            { return t.now }
func (t *fakeTree) Sleep(ctx context.Context, d time.Duration) (err error) {
	t.now = t.now.Add(d)
	return ctx.Err()
}

// A device whose set has failed has no set, although bcache still calls it clean. So
// detach returns at once, where it once waited for ever.
func TestDetachAfterFailure(t *testing.T) {
	sys := &fakeTree{files: map[string]string{"/sys/block/bcache0/bcache/state": "clean\n"}, links: map[string]string{}}
	sys.poked = func(_ *fakeTree, p, _ string) error { return errors.New("written to " + p) }
	s := &Stack{parts: parts{host: host{sys: sys, note: t.Logf}, cfg: config(WriteBack, "A", "B")}}
	if s.attached("bcache0", &Layer{Set: "set"}) {
		t.Error("a device without a set has one")
	}
	if err := (&change{Stack: s}).detach(t.Context(), "bcache0"); err != nil {
		t.Error(err)
	}
}

// Start waits for missing SSDs only after a boot.
func TestPatience(t *testing.T) {
	for uptime, want := range map[string]time.Duration{"31.20 50.00\n": ssdWait, "86400.00 1.00\n": 0, "": ssdWait} {
		sys := &fakeTree{files: map[string]string{"/proc/uptime": uptime}}
		if got := (&Stack{parts: parts{host: host{sys: sys}}}).patience(); got != want {
			t.Errorf("up %q: %s, want %s", uptime, got, want)
		}
	}
}

// Start waits for no SSD that left the mirror: the clean layer is lost with it. Its
// wait ends by the clock, although the looks take time.
func TestAwaitedSSDs(t *testing.T) {
	clean := &Layer{Members: []string{"A", "B"}}
	for _, c := range []struct {
		name  string
		open  bool
		dirty *Layer
		clean *Layer
		want  []string
	}{
		{"all is well", true, &Layer{Members: []string{"A", "B"}}, clean, []string{"A", "A", "B", "B"}},
		{"stopped in order", false, &Layer{Members: []string{"A"}}, clean, []string{"A", "A", "B"}},
		{"B left the mirror", true, &Layer{Members: []string{"A"}}, clean, []string{"A"}},
		{"no clean layer", true, &Layer{Members: []string{"A"}}, nil, []string{"A"}},
		{"write-through", true, nil, clean, []string{"A", "B"}},
		{"none", true, nil, nil, nil},
	} {
		s := &Stack{parts: parts{label: &Label{Dirty: c.dirty, Open: c.open}}}
		got := s.awaited(c.clean)
		if slices.Sort(got); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	sys := &fakeTree{}
	looks := 0
	err := (&Stack{parts: parts{host: host{sys: sys}}}).wait(t.Context(), ssdWait, "SSDs", func() bool {
		looks++
		sys.now = sys.now.Add(200 * time.Millisecond)
		return false
	})
	if err == nil || looks != 41 {
		t.Errorf("%v after %d looks, want 41", err, looks)
	}
}

// udev is locked out from the partitioning of an SSD until its partitions are in use.
func TestPartitionWithoutUdev(t *testing.T) {
	sys := &fakeTree{files: map[string]string{
		"/sys/fs/bcache/register": "", "/sys/module/raid1/refcnt": "", "/sys/module/raid0/refcnt": "",
		"/sys/block/nvme0n1/device/serial": "A\n", "/sys/class/block/nvme0n1/size": "2000000\n",
		"/sys/block/nvme1n1/device/serial": "B\n", "/sys/class/block/nvme1n1/size": "2000000\n",
	}}
	s := &Stack{parts: parts{host: host{sys: sys, note: t.Logf}, cfg: config(WriteBack, "A", "B"), label: &Label{Sequence: 1}}}
	sys.labelled(t, s.label)
	s.cfg.MirrorBytes = 250 << 20
	if err := (&change{s, func(string, int64, int64) {}}).steps(t.Context(), need{Partition: []string{"A", "B"}}); err == nil {
		t.Error("sfdisk failed, and nobody says so")
	}
	i := slices.IndexFunc(sys.ran, func(c string) bool { return strings.HasPrefix(c, "sfdisk") })
	if i < 0 || !strings.HasSuffix(sys.ran[i], "locked: /dev/nvme0n1 /dev/nvme1n1") || len(sys.locked) > 0 {
		t.Errorf("%q, locked in the end: %v", sys.ran, sys.locked)
	}
}

// A serial that two devices share names neither of them.
func TestPartitionOfAnAmbiguousSerial(t *testing.T) {
	sys := &fakeTree{files: map[string]string{
		"/sys/fs/bcache/register": "", "/sys/module/raid1/refcnt": "", "/sys/module/raid0/refcnt": "",
		"/sys/block/nvme0n1/device/serial": "A\n", "/sys/class/block/nvme0n1/size": "2000000\n",
		"/sys/block/nvme1n1/device/serial": "B\n", "/sys/class/block/nvme1n1/size": "2000000\n",
		"/sys/block/nvme1n2/device/serial": "B\n", "/sys/class/block/nvme1n2/size": "2000000\n",
	}}
	s := &Stack{parts: parts{host: host{sys: sys, note: t.Logf}, cfg: config(WriteBack, "A", "B"), label: &Label{Sequence: 1}}}
	sys.labelled(t, s.label)
	err := (&change{s, func(string, int64, int64) {}}).steps(t.Context(), need{Partition: []string{"A", "B"}})
	if refusal.CodeOf(err) != "same-serial" {
		t.Error(err)
	}
	if slices.ContainsFunc(sys.ran, func(c string) bool { return strings.HasPrefix(c, "sfdisk") || strings.HasPrefix(c, "blkdiscard") }) {
		t.Errorf("ran %q", sys.ran)
	}
}

// Revive retries I/O that failed between the layers. It gives up if the disks do not
// answer, and keeps failed I/O again after they have answered.
func TestRevive(t *testing.T) {
	sys := &fakeTree{files: map[string]string{
		"/sys/block/dm-8/dm/name": "vg.origin\n", "/sys/block/dm-9/dm/name": "vg.clean\n", "/sys/class/block/bcache0/dev": "251:0\n",
	}, links: map[string]string{"/sys/class/block/dm-8/bcache/dev": "/sys/block/bcache0"}}
	const (
		status = "dmsetup status vg.clean"
		to     = "dmsetup message vg.clean 0 "
		good   = "0 8000 multipath 2 0 0 0 1 1 A 0 1 2 251:0 A 0 0 1 \n"
		failed = "0 8000 multipath 2 0 0 0 1 1 E 0 1 2 251:0 F 1 0 1 \n"
	)
	sys.out = map[string]string{status: good, to + "reinstate_path 251:0": "", to + "fail_if_no_path": "", to + "queue_if_no_path": ""}
	cfg := config(WriteBack, "A", "B")
	cfg.VG = "vg"
	notes := 0
	s := &Stack{parts: parts{host: host{sys: sys, note: func(string, ...any) { notes++ }}, cfg: cfg}}
	messages := func(looks int) (out []string) {
		sys.ran = nil
		for range looks {
			if err := s.Revive(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		for _, c := range sys.ran {
			if m, ok := strings.CutPrefix(c, to); ok {
				out = append(out, strings.Fields(m)[0])
			}
		}
		return out
	}
	if m := messages(2); m != nil {
		t.Errorf("all is well: %q", m)
	}
	sys.out[status] = failed
	if m := messages(revivals - 1); len(m) != revivals-1 || slices.ContainsFunc(m, func(x string) bool { return x != "reinstate_path" }) || notes != 1 {
		t.Errorf("failed: %q, %d notes", m, notes)
	}
	if m := messages(2); !slices.Equal(m, []string{"fail_if_no_path", "reinstate_path", "reinstate_path"}) || notes != 2 {
		t.Errorf("goes on to fail: %q, %d notes", m, notes)
	}
	sys.out[status] = good
	if m := messages(2); !slices.Equal(m, []string{"queue_if_no_path"}) {
		t.Errorf("well again: %q", m)
	}
	if got := retryTable(8000, "251:0"); got != "0 8000 multipath 3 queue_if_no_path queue_mode bio 0 1 1 service-time 0 1 1 251:0 1\n" {
		t.Errorf("%q", got)
	}
}

// The tree of a new set gets a second level. If it does not, deepen only notes that.
func TestDeepen(t *testing.T) {
	const depth = "/sys/fs/bcache/set/tree_depth"
	for _, c := range []struct {
		name    string
		sectors string
		grows   int // after so many reads; 0: never
		want    int
		note    bool
	}{
		{"small nodes", "7782400", 2700, 3000, false},
		{"large nodes", "4000000000", 11000, 11000, false},
		{"deep from its start", "7782400", -1, 0, false},
		{"it does not grow", "7782400", 0, deepMost, true},
		{"no room for scattered blocks", "160000", 0, 0, true},
	} {
		noted, read := false, 0
		sys := &fakeTree{files: map[string]string{depth: "0\n", "/sys/class/block/bcache1/size": c.sectors + "\n"}}
		if c.grows < 0 {
			sys.files[depth] = "1\n"
		}
		last := int64(-1)
		sys.read = func(dev string, offset, step int64, n int) error {
			if dev != "/dev/bcache1" || offset <= last || step%4096 != 0 || step < 8192 {
				t.Errorf("%s: %s at %d by %d", c.name, dev, offset, step)
			}
			last = offset + int64(n-1)*step
			if size := s64(c.sectors) * 512; last+4096 > size {
				t.Errorf("%s: read at %d of %d", c.name, last, size)
			}
			if read += n; c.grows > 0 && read >= c.grows {
				sys.files[depth] = "1\n"
			}
			return nil
		}
		s := &Stack{parts: parts{host: host{sys: sys, note: func(string, ...any) { noted = true }}, cfg: config(WriteBack, "A", "B")}}
		if err := (&change{Stack: s}).deepen(t.Context(), "bcache1", &Layer{Set: "set"}); err != nil || read != c.want || noted != c.note {
			t.Errorf("%s: %v, %d read, noted %v", c.name, err, read, noted)
		}
	}
}

func s64(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}

// A change that was killed after the label dropped a layer leaves the layer's array
// running. The next change must stop that array.
func TestStraysGo(t *testing.T) {
	dev := func(name, serial string) map[string]string {
		return map[string]string{
			"/sys/block/" + name + "/device/serial": serial + "\n", "/sys/class/block/" + name + "/size": "2000000\n",
			"/sys/block/" + name + "/" + name + "p2/partition": "2\n", "/sys/class/block/" + name + "p2/holders/md126/x": "",
		}
	}
	sys := &fakeTree{files: map[string]string{
		"/sys/fs/bcache/register": "", "/sys/module/raid1/refcnt": "", "/sys/module/raid0/refcnt": "",
		"/sys/block/md126/md/array_state": "clean\n", "/sys/block/md126/md/uuid": "d0000003-0000-0000-0000-000000000000\n",
		"/sys/block/md126/bcache/x": "", "/sys/fs/bcache/old/x": "",
	}, links: map[string]string{"/sys/block/md126/bcache/set": "/sys/fs/bcache/old"}}
	maps.Copy(sys.files, dev("nvme0n1", "A"))
	maps.Copy(sys.files, dev("nvme1n1", "B"))
	sys.discards = &sync.WaitGroup{} // both SSDs are discarded side by side, or the test hangs
	sys.discards.Add(2)
	sys.poked = func(_ *fakeTree, p, _ string) error {
		if p != "/sys/fs/bcache/old/stop" {
			return errors.New("written to " + p)
		}
		maps.DeleteFunc(sys.files, func(f, _ string) bool {
			return strings.Contains(f, "md126") || strings.HasPrefix(f, "/sys/fs/bcache/old")
		})
		clear(sys.links)
		return nil
	}
	s := &Stack{parts: parts{host: host{sys: sys, note: t.Logf}, cfg: config(WriteBack, "A", "B"), label: &Label{Sequence: 1, SSDs: []string{"A"}}}}
	sys.labelled(t, s.label)
	err := (&change{s, func(string, int64, int64) {}}).steps(t.Context(), need{Partition: []string{"A", "B"}, MakeDirty: true})
	if errors.As(err, new(*refusal.Refusal)) {
		t.Error(err)
	}
	if !slices.ContainsFunc(sys.ran, func(c string) bool { return strings.HasPrefix(c, "blkdiscard") }) {
		t.Errorf("%v; only %q was run", err, sys.ran)
	}
}

// ssds finds an SSD that must leave the mirror while it is still a member.
func TestLeavingSSD(t *testing.T) {
	sys := &fakeTree{files: map[string]string{}}
	for i, serial := range []string{"A", "B", "C", "D"} {
		n := "nvme" + strconv.Itoa(i) + "n1"
		sys.files["/sys/block/"+n+"/device/serial"] = serial + "\n"
		sys.files["/sys/class/block/"+n+"/size"] = "2000000\n"
	}
	s := &Stack{parts: parts{host: host{sys: sys, note: t.Logf}, cfg: config(WriteBack, "B", "C"),
		label: &Label{SSDs: []string{"B", "C"}, Dirty: &Layer{Members: []string{"A", "B"}}}}}
	if got := slices.Sorted(maps.Keys(s.ssds())); !slices.Equal(got, []string{"A", "B", "C"}) {
		t.Errorf("found %q", got)
	}
}

// The mirror takes writes only after its mode is set: a change that was killed before
// is not complete.
func TestMirrorWithoutWriteBack(t *testing.T) {
	const mode = "/sys/block/bcache1/bcache/cache_mode"
	sys := &fakeTree{files: map[string]string{mode: "writethrough [writeback] writearound none\n"},
		links: map[string]string{"/sys/block/bcache1/bcache/cache": "/sys/fs/bcache/set"}}
	s := &Stack{parts: parts{host: host{sys: sys, note: t.Logf}, cfg: config(WriteBack, "A", "B")}}
	if !s.inMode("bcache1", takesWrites) || s.inMode("bcache1", flushes) {
		t.Error("write-back does not count")
	}
	sys.files[mode] = "[writethrough] writeback writearound none\n"
	if s.inMode("bcache1", takesWrites) {
		t.Error("write-through counts as write-back")
	}
}

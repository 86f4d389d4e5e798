package ocf

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mortarhpc/mortar/internal/serve/kernel"
	"github.com/mortarhpc/mortar/internal/serve/mdraid"
)

// twoGroups gives a host that serves the files of two arrays in /sys: md1 is whole and
// its spare waits, md2 lacks a member.
func (h *fakeHost) twoGroups() *Config {
	c := testConfig()
	c.Arrays = nil
	// The members' enclosures and numbers; B9 is a spare.
	for i, members := range [][]string{{"A1", "A2", "B1", "B2", "B9s"}, {"A3", "A4", "B3"}} {
		uuid := strings.Repeat(fmt.Sprint(i+1), 32)
		name := fmt.Sprint(i + 1)
		dir := "/sys/block/md" + name
		for f, v := range map[string]string{"array_state": "clean", "level": "raid6", "uuid": uuid, "raid_disks": "4", "degraded": fmt.Sprint(i), "sync_action": "idle", "component_size": "4"} {
			h.files[dir+"/md/"+f] = v + "\n"
		}
		a := mdraid.Array{Name: "r" + name, UUID: uuid}
		for slot, dev := range members {
			a.Members, a.Enclosures = append(a.Members, "/dev/"+dev), append(a.Enclosures, dev[:1])
			h.files["/dev/"+dev] = "" // Realpath
			h.files["/sys/block/"+dev+"/size"] = "20\n"
			if strings.HasSuffix(dev, "s") {
				h.files[sparesOfHome] = `{"/dev/` + dev + `":"` + uuid + `"}`
				h.disks["/dev/"+dev] = &fakeDisk{uuid: uuid, role: 6}
				continue
			}
			h.inArray("md"+name, dev, "in_sync", fmt.Sprint(slot))
		}
		c.Arrays = append(c.Arrays, a)
	}
	return c
}

const sparesOfHome = "/run/mortar/spares-home.json"

// inArray puts a disk into an array in /sys.
func (h *fakeHost) inArray(array, dev, state, slot string) {
	for f, v := range map[string]string{"state": state, "slot": slot, "offset": "8"} {
		h.files["/sys/block/"+array+"/md/dev-"+dev+"/"+f] = v + "\n"
	}
}

// The watcher of the server that serves adds a spare of another group, or of the group itself,
// after a while, once, and tells so. A spare that no array takes waits no longer.
func TestWatcherMovesSpare(t *testing.T) {
	for name, c := range map[string]struct {
		clear int
		own   bool // the service has one group, whose spare waits
		want  []string
		says  string
	}{
		"another group's":            {0, false, []string{"--add 2"}, ""},
		"its own":                    {0, true, []string{"--add 2"}, ""},
		"the array does not want it": {1, false, []string{"--add 2"}, "`mortar apply` adds it anew"},
		"it is a spare no more":      {-6, false, []string{}, "its superblock does not say that it is a spare"},
		"the service is locked":      {-1, false, nil, ""},
		"this server does not serve": {-2, false, nil, ""},
		"the partner has the volume": {-3, false, nil, `the storage of service home is "nfs2"'s`},
		"it is at rest":              {-4, false, nil, `the storage of service home is "at-rest"'s`},
		"who has it cannot be read":  {-5, false, nil, "who owns the storage of service home cannot be read"},
	} {
		h := newShared(t).hosts["nfs1"]
		cfg := h.twoGroups()
		if c.own {
			cfg.Arrays[1].Members = append(cfg.Arrays[1].Members, "/dev/B9s")
			cfg.Arrays, cfg.Arrays[1].Enclosures = cfg.Arrays[1:], nil
			h.files[sparesOfHome] = `{"/dev/B9s":"` + cfg.Arrays[0].UUID + `"}`
			h.disks["/dev/B9s"].uuid = cfg.Arrays[0].UUID
		}
		s := h.service(cfg)
		h.active, h.owner = c.clear != -2, "nfs1"
		switch c.clear {
		case -6:
			h.disks["/dev/B9s"].uuid = strings.Repeat("9", 32)
		case -3:
			h.owner = "nfs2"
		case -4:
			h.owner = "at-rest"
		}
		w := h.watcher(s)
		var said []string
		w.record = func(format string, a ...any) { said = append(said, fmt.Sprintf(format, a...)) }
		w.log = w.record
		locked := 0
		w.lock = func(string) (func(), error) {
			if c.clear == -1 {
				return nil, errInjected
			}
			locked++
			return func() { locked-- }, nil
		}
		var did []string
		s.K = hearing{readable{h, c.clear != -5}, func(argv []string) error {
			did = append(did, strings.Join(argv, " "))
			if len(did) == c.clear {
				return errInjected
			}
			return nil
		}}
		for range 4 {
			w.reacts(t.Context(), s, "md")
			h.clock = h.clock.Add(30 * time.Second / 3)
		}
		var want []string
		for _, x := range c.want {
			what, to, _ := strings.Cut(x, " ")
			want = append(want, "mdadm --manage /dev/md"+to+" "+what+" /dev/B9s")
		}
		if !slices.Equal(did, want) || locked != 0 {
			t.Errorf("%s: %q, locked %d", name, did, locked)
		}
		all := strings.Join(said, "\n")
		of := map[bool]string{false: ", and group r1, whose spare it was, is whole"}[c.own]
		if len(c.want) > 0 && c.says == "" && !strings.Contains(all, "add spare B9s to array md2: group r2 lacks 1 of 4 members"+of) || !strings.Contains(all, c.says) || c.says == "" && strings.Contains(all, "failed") {
			t.Errorf("%s: %s", name, all)
		}
		if waits := strings.Contains(h.files[sparesOfHome], "B9s"); waits != (c.want == nil) {
			t.Errorf("%s: %s", name, h.files[sparesOfHome])
		}
	}
}

// A spare leaves its array once that has been whole with it for a while: apply has added it, or
// an earlier version has left it there. It waits from then on, also for its enclosure.
func TestSparesLeaveArrays(t *testing.T) {
	for name, c := range map[string]struct {
		change func(h *fakeHost)
		want   string
		waits  bool
	}{
		"it is in the array":     {func(*fakeHost) {}, "mdadm --manage /dev/md1 --remove /dev/B9s", true},
		"the array is checked":   {func(h *fakeHost) { h.files["/sys/block/md1/md/sync_action"] = "check\n" }, "mdadm --manage /dev/md1 --remove /dev/B9s", true},
		"the array resyncs":      {func(h *fakeHost) { h.files["/sys/block/md1/md/sync_action"] = "resync\n" }, "", false},
		"the array lacks a disk": {func(h *fakeHost) { h.files["/sys/block/md1/md/degraded"] = "1\n" }, "", false},
		"a disk is copied to it": {func(h *fakeHost) {
			h.inArray("md1", "A1", "in_sync,want_replacement", "0")
			h.inArray("md1", "B9s", "spare,replacement", "0")
		}, "", false},
		"it has failed":                      {func(h *fakeHost) { h.inArray("md1", "B9s", "faulty", "none") }, "", false},
		"it is rebuilt":                      {func(h *fakeHost) { h.inArray("md1", "B9s", "spare", "3") }, "", false},
		"it waits, its enclosure is away":    {func(h *fakeHost) { h.out("md1", "B9s"); delete(h.files, "/dev/B9s"); delete(h.disks, "/dev/B9s") }, "", true},
		"the spec lists it as failed":        {func(h *fakeHost) { h.out("md1", "B9s"); h.files["failed"] = "" }, "", false},
		"the configuration has it no longer": {func(h *fakeHost) { h.out("md1", "B9s"); h.files["gone"] = "" }, "", false},
	} {
		h := newShared(t).hosts["nfs1"]
		cfg := h.twoGroups()
		h.files["/sys/block/md2/md/degraded"] = "0\n"
		h.inArray("md1", "B9s", "spare", "none")
		h.active, h.owner = true, "nfs1"
		c.change(h)
		a := &cfg.Arrays[0]
		if _, failed := h.files["failed"]; failed {
			a.Serials, a.Failed = []string{"A1", "A2", "B1", "B2", "B9s"}, []string{"B9s"}
		}
		if _, gone := h.files["gone"]; gone {
			a.Members, a.Enclosures = a.Members[:4], a.Enclosures[:4]
		}
		s := h.service(cfg)
		w := h.watcher(s)
		w.record, w.log = func(string, ...any) {}, func(string, ...any) {}
		w.lock = func(string) (func(), error) { return func() {}, nil }
		var did []string
		begun := h.clock
		s.K = hearing{readable{h, true}, func(argv []string) error {
			if !strings.Contains(h.files[sparesOfHome], "B9s") || h.clock.Sub(begun) < 30*time.Second {
				t.Errorf("%s: %q after %v, noted %s", name, argv, h.clock.Sub(begun), h.files[sparesOfHome])
			}
			did = append(did, strings.Join(argv, " "))
			h.out("md1", "B9s")
			return nil
		}}
		for range 12 {
			w.reacts(t.Context(), s, "md: spares")
			h.clock = h.clock.Add(10 * time.Second)
		}
		if got := strings.Join(did, "\n"); got != c.want || strings.Contains(h.files[sparesOfHome], "B9s") != c.waits {
			t.Errorf("%s: %q, noted %s", name, got, h.files[sparesOfHome])
		}
	}
}

// out takes a disk out of an array in /sys.
func (h *fakeHost) out(array, dev string) {
	for _, f := range []string{"state", "slot", "offset"} {
		delete(h.files, "/sys/block/"+array+"/md/dev-"+dev+"/"+f)
	}
}

// spareDue says whether a spare is added now.
func spareDue(m *mdraid.Kind, now time.Time) bool {
	groups, err := m.Spares.Groups()
	_, ok := m.Spares.SpareDue(groups, now)
	return ok && err == nil
}

// readable is a host on whose arrays of twoGroups the volume group can be read, or not.
type readable struct {
	*fakeHost
	yes bool
}

func (r readable) ReadBlocks(dev string, off int64, n int) ([]byte, error) {
	if dev != "/dev/md1" && dev != "/dev/md2" {
		return r.fakeHost.ReadBlocks(dev, off, n)
	}
	if !r.yes {
		return nil, errInjected
	}
	return r.fakePV(off, n), nil
}

// hearing hands the commands to a function.
type hearing struct {
	kernel.Host
	run func(argv []string) error
}

func (f hearing) Run(_ context.Context, c kernel.Command) (string, error) { return "", f.run(c.Argv) }

// A member that comes back in time, or a rebuild, begins the wait anew.
func TestSpareWaits(t *testing.T) {
	h := newShared(t).hosts["nfs1"]
	s := h.service(h.twoGroups())
	m := s.storage.(*mdraid.Kind)
	for _, c := range []struct {
		after    time.Duration
		degraded string
		want     bool
	}{{0, "1", false}, {30*time.Second - 1, "1", false}, {0, "0", false}, {time.Second, "1", false}, {30*time.Second - 1, "1", false}, {1, "1", true}} {
		h.clock = h.clock.Add(c.after)
		h.files["/sys/block/md2/md/degraded"] = c.degraded + "\n"
		if ok := spareDue(m, h.clock); ok != c.want {
			t.Errorf("after %v, degraded %s: %v", c.after, c.degraded, ok)
		}
	}
}

// The members of an enclosure that restarts are waited for. One disk that is gone is not, nor
// one more than the enclosure had.
func TestSpareWaitsForEnclosure(t *testing.T) {
	for name, c := range map[string]struct {
		there    []string // disks of enclosure C that have a path
		degraded string
		back     time.Duration // the enclosure is back; 0: never
		want     time.Duration
	}{
		"the enclosure is gone":              {nil, "1", 0, 15 * time.Minute},
		"its other disk is there":            {[]string{"C5"}, "1", 0, 30 * time.Second},
		"a disk of another one is gone, too": {nil, "2", 0, 30 * time.Second},
		"it is back, and the disk is not in": {nil, "1", 2 * time.Minute, 15 * time.Minute},
	} {
		h := newShared(t).hosts["nfs1"]
		cfg := h.twoGroups()
		cfg.Arrays[1].Members = append(cfg.Arrays[1].Members, "/dev/C4")
		cfg.Arrays[1].Enclosures = append(cfg.Arrays[1].Enclosures, "C")
		cfg.Arrays[0].Members = append(cfg.Arrays[0].Members, "/dev/C5") // a spare that is lent, say
		cfg.Arrays[0].Enclosures = append(cfg.Arrays[0].Enclosures, "C")
		for _, dev := range c.there {
			h.files["/dev/"+dev], h.files["/sys/block/"+dev+"/size"] = "", "20\n"
		}
		h.files["/sys/block/md2/md/degraded"] = c.degraded + "\n"
		if c.degraded == "2" {
			delete(h.files, "/sys/block/md2/md/dev-B3/slot")
			delete(h.files, "/sys/block/md2/md/dev-B3/state")
		}
		m := h.service(cfg).storage.(*mdraid.Kind)
		begun := h.clock
		for {
			if ok := spareDue(m, h.clock); ok || h.clock.Sub(begun) > time.Hour {
				break
			}
			h.clock = h.clock.Add(10 * time.Second)
			if c.back > 0 && h.clock.Sub(begun) >= c.back {
				for _, dev := range []string{"C4", "C5"} {
					h.files["/dev/"+dev], h.files["/sys/block/"+dev+"/size"] = "", "20\n"
				}
			}
		}
		if took := h.clock.Sub(begun); took != c.want {
			t.Errorf("%s: a spare moves after %v, want %v", name, took, c.want)
		}
	}
}

// Members that left together with their enclosure are given back when it is back. One that had
// left before is not, nor one that was dropped or is listed as failed, nor one of an array
// that is whole.
func TestEnclosureComesBack(t *testing.T) {
	const dir = "/sys/block/md2/md/"
	for name, c := range map[string]struct {
		before  time.Duration // the disk had left so long before its enclosure
		alone   bool          // the enclosure stays
		outside bool          // no array lists the disk: another server has started the arrays since
		failed  bool          // the spec lists it as failed
		other   bool          // it carries another array's superblock
		want    []string
	}{
		"it left with its enclosure":          {want: []string{"--remove", "--re-add"}},
		"a moment before the rest":            {before: 10 * time.Second, want: []string{"--remove", "--re-add"}},
		"an hour before":                      {before: time.Hour},
		"it left alone":                       {alone: true},
		"another server has the arrays since": {outside: true, want: []string{"--re-add"}},
		"it is listed as failed":              {failed: true},
		"it is another array's":               {outside: true, other: true},
	} {
		sh := newShared(t)
		h := sh.hosts["nfs1"]
		cfg := h.twoGroups()
		a := &cfg.Arrays[1]
		a.Members, a.Enclosures = append(a.Members, "/dev/C4", "/dev/C5"), append(a.Enclosures, "C", "C")
		if c.failed {
			a.Serials, a.Failed = []string{"A3", "A4", "B3", "C4", "C5"}, []string{"C4"}
		}
		there := func(yes bool, devs ...string) {
			for _, dev := range devs {
				if h.files["/dev/"+dev], h.files["/sys/block/"+dev+"/size"] = "", "20\n"; !yes {
					delete(h.files, "/dev/"+dev)
					delete(h.files, "/sys/block/"+dev+"/size")
				}
			}
		}
		there(true, "C4", "C5")
		sh.disks["/dev/C4"] = &fakeDisk{uuid: a.UUID, role: 3, events: 90}
		if c.other {
			sh.disks["/dev/C4"].uuid = strings.Repeat("9", 32)
		}
		h.files["/sys/block/md2/slaves/C4"] = ""
		if !c.outside {
			h.files[dir+"dev-C4/state"], h.files[dir+"dev-C4/slot"], h.files[dir+"dev-C4/offset"] = "faulty\n", "none\n", "8\n"
		}
		h.active, h.owner = true, "nfs1"
		s := h.service(cfg)
		w := h.watcher(s)
		w.record, w.log = func(string, ...any) {}, func(string, ...any) {}
		w.lock = func(string) (func(), error) { return func() {}, nil }
		var did []string
		s.K = hearing{readable{h, true}, func(argv []string) error {
			if argv[len(argv)-1] != "/dev/C4" && argv[len(argv)-1] != "C4" {
				return nil // a spare
			}
			did = append(did, argv[3])
			switch argv[3] {
			case "--remove":
				for _, f := range []string{"state", "slot", "offset"} {
					delete(h.files, dir+"dev-C4/"+f)
				}
			case "--re-add":
				h.files[dir+"dev-C4/state"], h.files[dir+"dev-C4/slot"], h.files[dir+"dev-C4/offset"] = "spare\n", "3\n", "8\n"
			}
			return nil
		}}
		pass := func(d time.Duration) {
			for end := h.clock.Add(d); h.clock.Before(end); {
				w.reacts(t.Context(), s, "md: late members")
				h.clock = h.clock.Add(5 * time.Second)
			}
		}
		there(false, "C4")
		pass(c.before)
		if !c.alone {
			there(false, "C5")
		}
		pass(time.Minute)
		if did != nil {
			t.Errorf("%s: %q while it is away", name, did)
		}
		there(true, "C4", "C5")
		pass(time.Minute)
		if !slices.Equal(did, c.want) {
			t.Errorf("%s: %q, want %q", name, did, c.want)
		}
	}
}

// A start finds a spare that has moved to another array of the service, and reads
// each disk once.
func TestStartFindsMovedSpare(t *testing.T) {
	sh := newShared(t)
	h := sh.hosts["nfs1"]
	const other = "ffffeeeeddddccccbbbbaaaa99998888"
	sh.disks["/dev/mapper/d9"] = &fakeDisk{uuid: arrayUUID, role: 5, events: 100} // moved
	sh.disks["/dev/mapper/e0"] = &fakeDisk{uuid: other, role: 0, events: 7}
	sh.disks["/dev/mapper/d5"].gone = true
	c := testConfig()
	c.Arrays = append(c.Arrays, mdraid.Array{Name: "r1", UUID: other, Members: []string{"/dev/mapper/e0", "/dev/mapper/d9"}})
	s := h.service(c)
	reads := map[string]int{}
	s.K = counting{h, reads}
	m := s.storage.(*mdraid.Kind)
	read := mdraid.Superblocks{}
	v, err := judged(m, c.Arrays[0], read)
	if err != nil || v.Missing != 0 || !slices.Contains(v.Members, "/dev/mapper/d9") || slices.Contains(v.Members, "/dev/mapper/e0") {
		t.Errorf("%+v, %v", v, err)
	}
	v, err = judged(m, c.Arrays[1], read)
	if err == nil || !slices.Equal(v.Members, []string{"/dev/mapper/e0"}) {
		t.Errorf("%+v, %v", v, err)
	}
	for dev, n := range reads {
		if n != 1 {
			t.Errorf("%s was read %d times", dev, n)
		}
	}
	if len(reads) != 7 {
		t.Errorf("%v", reads)
	}
}

// counting counts what is read of each device.
type counting struct {
	kernel.Host
	reads map[string]int
}

func (c counting) ReadBlocks(dev string, off int64, n int) ([]byte, error) {
	c.reads[dev]++
	return c.Host.ReadBlocks(dev, off, n)
}

func (c counting) Ask(_ context.Context, _ time.Duration, all []kernel.Question) []kernel.Answer {
	return asked(all, c.Path, c.ReadBlocks)
}

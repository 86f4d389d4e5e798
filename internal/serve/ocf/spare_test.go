package ocf

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/base/md"
	"github.com/mortarhpc/mortar/internal/serve/kernel"
)

// aGroup is a RAID 6 of four of 1000 bytes. Each word of text is a member: its
// enclosure, its number, and "s" for a spare, "r" for one that is rebuilt, "f" for one
// that has failed.
func aGroup(name, text string) raidGroup {
	g := raidGroup{name: name, due: true}
	g.MDArray = linux.MDArray{UUID: name, Dev: "md-" + name, Level: "raid6", State: "active", RaidDisks: 4, Size: 900, Action: "idle", Degraded: 4}
	slot := 0
	for _, w := range strings.Fields(text) {
		m := raidMember{path: "/dev/mapper/" + w, enclosure: w[:1], size: 1000, works: true}
		m.Dev, m.Slot, m.Offset, m.States = w, -1, 100, []string{"spare"}
		switch w[len(w)-1] {
		case 's':
		case 'f':
			m.States = []string{"faulty"}
		case 'r':
			m.Slot = slot
			slot++
		default:
			m.Slot, m.States = slot, []string{"in_sync"}
			slot++
			g.Degraded--
		}
		g.members = append(g.members, m)
	}
	return g
}

func TestChooseSpare(t *testing.T) {
	whole, short := "A1 A2 B1 B2", "A3 A4 B3"
	for name, c := range map[string]struct {
		groups []raidGroup
		change func(g []raidGroup)
		want   string // disk, donor and receiver; "": none
	}{
		"nothing is missing":         {[]raidGroup{aGroup("r0", whole+" A9s"), aGroup("r1", "A3 A4 B3 B4")}, nil, ""},
		"a group lacks a member":     {[]raidGroup{aGroup("r0", whole+" B9s"), aGroup("r1", short)}, nil, "B9s r0 r1"},
		"a failed one is still in":   {[]raidGroup{aGroup("r0", whole+" B9s"), aGroup("r1", short+" B4f")}, nil, "B9s r0 r1"},
		"it has a spare of its own":  {[]raidGroup{aGroup("r0", whole+" B9s"), aGroup("r1", short+" B8s")}, nil, ""},
		"it is being rebuilt":        {[]raidGroup{aGroup("r0", whole+" B9s"), aGroup("r1", short+" B4r")}, nil, ""},
		"it lacks two and rebuilds":  {[]raidGroup{aGroup("r0", whole+" B9s"), aGroup("r1", "A3 A4 B4r")}, nil, "B9s r0 r1"},
		"not for long enough":        {[]raidGroup{aGroup("r0", whole+" B9s"), aGroup("r1", short)}, func(g []raidGroup) { g[1].due = false }, ""},
		"the donor has no spare":     {[]raidGroup{aGroup("r0", whole), aGroup("r1", short)}, nil, ""},
		"the donor lacks a member":   {[]raidGroup{aGroup("r0", "A1 A2 B1 B9s"), aGroup("r1", short)}, nil, ""},
		"the donor dropped a disk":   {[]raidGroup{aGroup("r0", "A1 A2 B1 B2f B9s"), aGroup("r1", short)}, nil, ""},
		"and has rebuilt a spare":    {[]raidGroup{aGroup("r0", whole+" B8f B9s"), aGroup("r1", short)}, nil, "B9s r0 r1"},
		"a dropped disk is no spare": {[]raidGroup{aGroup("r0", whole+" B9f"), aGroup("r1", short)}, nil, ""},
		"the donor resyncs":          {[]raidGroup{aGroup("r0", whole+" B9s"), aGroup("r1", short)}, func(g []raidGroup) { g[0].Action = "resync" }, ""},
		"the donor is scrubbed":      {[]raidGroup{aGroup("r0", whole+" B9s"), aGroup("r1", short)}, func(g []raidGroup) { g[0].Action = "check" }, "B9s r0 r1"},
		"the donor copies a member":  {[]raidGroup{aGroup("r0", whole+" B9s"), aGroup("r1", short)}, func(g []raidGroup) { g[0].members[0].States = []string{"in_sync", "want_replacement"} }, ""},
		"the donor is read-only":     {[]raidGroup{aGroup("r0", whole+" B9s"), aGroup("r1", short)}, func(g []raidGroup) { g[0].State = "readonly" }, ""},
		"the receiver has too few":   {[]raidGroup{aGroup("r0", whole+" B9s"), aGroup("r1", "A3")}, nil, ""},
		"the receiver is read-only":  {[]raidGroup{aGroup("r0", whole+" B9s"), aGroup("r1", short)}, func(g []raidGroup) { g[1].State = "readonly" }, ""},
		"the spare has no path":      {[]raidGroup{aGroup("r0", whole+" B9s"), aGroup("r1", short)}, func(g []raidGroup) { g[0].members[4].works = false }, ""},
		"its own spare has no path":  {[]raidGroup{aGroup("r0", whole+" B9s"), aGroup("r1", short+" B8s")}, func(g []raidGroup) { g[1].members[3].works = false }, "B9s r0 r1"},
		"the spare is too small":     {[]raidGroup{aGroup("r0", whole+" B9s"), aGroup("r1", short)}, func(g []raidGroup) { g[0].members[4].size = 999 }, ""},
		"nobody knows the spare":     {[]raidGroup{aGroup("r0", whole+" B9s"), aGroup("r1", short)}, func(g []raidGroup) { g[0].members[4].path = "" }, ""},
		"enclosure A is full":        {[]raidGroup{aGroup("r0", whole+" A9s B9s"), aGroup("r1", short)}, nil, "B9s r0 r1"},
		"also of a group with more":  {[]raidGroup{aGroup("r0", whole+" A8s A9s"), aGroup("r2", "A5 A6 B5 B6 B9s"), aGroup("r1", short)}, nil, "B9s r2 r1"},
		"only a crowded one is left": {[]raidGroup{aGroup("r0", whole+" A9s"), aGroup("r1", short)}, nil, "A9s r0 r1 crowded"},
		"enclosures are not known":   {[]raidGroup{aGroup("r0", whole+" A9s"), aGroup("r1", short)}, func(g []raidGroup) { g[0].members[4].enclosure = "" }, "A9s r0 r1"},
		"the smallest that will do":  {[]raidGroup{aGroup("r0", whole+" B8s"), aGroup("r2", "A5 A6 B5 B6 B9s"), aGroup("r1", short)}, func(g []raidGroup) { g[0].members[4].size = 5000 }, "B9s r2 r1"},
		"the donor with most spares": {[]raidGroup{aGroup("r0", whole+" B7s"), aGroup("r2", "A5 A6 B5 B6 B8s B9s"), aGroup("r1", short)}, nil, "B8s r2 r1"},
		"the emptiest enclosure":     {[]raidGroup{aGroup("r0", whole+" B9s C9s"), aGroup("r1", short)}, nil, "C9s r0 r1"},
		"who can lose least":         {[]raidGroup{aGroup("r0", whole+" B9s"), aGroup("r1", short), aGroup("r2", "A5 B5")}, nil, "B9s r0 r2"},
		"RAID 10: not beside its mirror": {[]raidGroup{aGroup("r0", whole+" A9s B9s"), aGroup("r1", "A3 B3 A4")}, func(g []raidGroup) {
			for i := range g {
				g[i].Level, g[i].Layout = "raid10", md.Near2
			}
		}, "B9s r0 r1"},
	} {
		if c.change != nil {
			c.change(c.groups)
		}
		got := ""
		if m, ok := chooseSpare(c.groups); ok {
			got = m.disk.Dev + " " + m.from.name + " " + m.to.name
			if m.crowded {
				got += " crowded"
			}
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// twoGroups gives a host that serves the files of two arrays in /sys: md1 is whole and
// has a spare, md2 lacks a member.
func (h *fakeHost) twoGroups() *Config {
	c := testConfig()
	c.Arrays = nil
	for i, g := range []raidGroup{aGroup("1", "A1 A2 B1 B2 B9s"), aGroup("2", "A3 A4 B3")} {
		uuid := strings.Repeat(fmt.Sprint(i+1), 32)
		dir := "/sys/block/md" + g.name
		for f, v := range map[string]string{"array_state": "clean", "level": "raid6", "uuid": uuid, "raid_disks": "4", "degraded": fmt.Sprint(g.Degraded), "sync_action": "idle", "component_size": "4"} {
			h.files[dir+"/md/"+f] = v + "\n"
		}
		a := Array{Name: "r" + g.name, UUID: uuid}
		for _, m := range g.members {
			a.Members, a.Enclosures = append(a.Members, "/dev/"+m.Dev), append(a.Enclosures, m.enclosure)
			h.files["/dev/"+m.Dev] = "" // Realpath
			h.files["/sys/block/"+m.Dev+"/size"] = "20\n"
			h.files[dir+"/md/dev-"+m.Dev+"/state"] = m.States[0] + "\n"
			h.files[dir+"/md/dev-"+m.Dev+"/slot"] = fmt.Sprint(m.Slot) + "\n"
			h.files[dir+"/md/dev-"+m.Dev+"/offset"] = "8\n"
		}
		c.Arrays = append(c.Arrays, a)
	}
	return c
}

// The watcher of the server that serves moves a spare after a while, once, and tells
// so. An array that does not take the spare leaves it where it was.
func TestWatcherMovesSpare(t *testing.T) {
	for name, c := range map[string]struct {
		fails, clear int // command that fails
		want         []string
		says         string
	}{
		"it moves":                    {0, 0, []string{"--remove 1", "--add 2"}, ""},
		"the donor keeps it":          {1, 0, []string{"--remove 1"}, "array r1 keeps it"},
		"the other one does not want": {2, 0, []string{"--remove 1", "--add 2", "--add 1"}, "array r1 has it again"},
		"and neither does the first":  {2, 3, []string{"--remove 1", "--add 2", "--add 1"}, "it is in no array now"},
		"the service is locked":       {0, -1, nil, ""},
		"this server does not serve":  {0, -2, nil, ""},
		"the partner has the volume":  {0, -3, nil, `the storage of service home is "nfs2"'s`},
		"it is at rest":               {0, -4, nil, `the storage of service home is "at-rest"'s`},
		"who has it cannot be read":   {0, -5, nil, "who owns the storage of service home cannot be read"},
	} {
		h := newShared(t).hosts["nfs1"]
		s := h.service(h.twoGroups())
		h.active, h.owner = c.clear != -2, "nfs1"
		switch c.clear {
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
		s.k = hearing{readable{h, c.clear != -5}, func(argv []string) error {
			did = append(did, strings.Join(argv, " "))
			if n := len(did); n == c.fails || n == c.clear {
				return errInjected
			}
			return nil
		}}
		for range 4 {
			w.reacts(t.Context(), s, "md")
			h.clock = h.clock.Add(spareAfter / 3)
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
		if c.want != nil && !strings.Contains(all, "move spare B9s from array r1, which is whole, to array r2, which lacks 1 of 4 members and has none") || !strings.Contains(all, c.says) || c.says == "" && strings.Contains(all, "failed") {
			t.Errorf("%s: %s", name, all)
		}
	}
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
	m := s.storage.(*mdKind)
	for _, c := range []struct {
		after    time.Duration
		degraded string
		want     bool
	}{{0, "1", false}, {spareAfter - 1, "1", false}, {0, "0", false}, {time.Second, "1", false}, {spareAfter - 1, "1", false}, {1, "1", true}} {
		h.clock = h.clock.Add(c.after)
		h.files["/sys/block/md2/md/degraded"] = c.degraded + "\n"
		if _, ok := m.spareDue(h.clock); ok != c.want {
			t.Errorf("after %v, degraded %s: %v", c.after, c.degraded, ok)
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
	c.Arrays = append(c.Arrays, Array{Name: "r1", UUID: other, Members: []string{"/dev/mapper/e0", "/dev/mapper/d9"}})
	s := h.service(c)
	reads := map[string]int{}
	s.k = counting{h, reads}
	m := s.storage.(*mdKind)
	read := superblocks{}
	v, err := m.judged(c.Arrays[0], read)
	if err != nil || v.Missing != 0 || !slices.Contains(v.Members, "/dev/mapper/d9") || slices.Contains(v.Members, "/dev/mapper/e0") {
		t.Errorf("%+v, %v", v, err)
	}
	v, err = m.judged(c.Arrays[1], read)
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
	return asked(all, c.ReadBlocks)
}

package mdraid

import (
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/base/md"
)

// aGroup is a RAID 6 of four of 1000 bytes. Each word of text is a member: its
// enclosure, its number, and "s" for a spare that waits, "i" for one that is in the array, "r"
// for one that is rebuilt, "f" for one that has failed.
func aGroup(name, text string) raidGroup {
	g := raidGroup{name: name, due: true}
	g.MDArray = linux.MDArray{UUID: name, Dev: "md-" + name, Level: "raid6", State: "active", RaidDisks: 4, Size: 900, Action: "idle", Degraded: 4}
	slot := 0
	for _, w := range strings.Fields(text) {
		m := raidMember{path: "/dev/mapper/" + w, enclosure: w[:1], size: 1000, works: true}
		m.Dev, m.Slot, m.Offset, m.States = w, -1, 100, []string{"spare"}
		switch w[len(w)-1] {
		case 's':
			m.waits = true
		case 'i':
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
		"it has a spare of its own":  {[]raidGroup{aGroup("r0", whole+" B9s"), aGroup("r1", short+" B8s")}, func(g []raidGroup) { g[1].members[3].size = 5000 }, "B8s r1 r1"},
		"one that is in it":          {[]raidGroup{aGroup("r0", whole+" B9s"), aGroup("r1", short+" B8i")}, nil, ""},
		"its own would crowd":        {[]raidGroup{aGroup("r0", whole+" B9s"), aGroup("r1", short+" A8s")}, nil, "B9s r0 r1"},
		"the donor's is in it":       {[]raidGroup{aGroup("r0", whole+" B9i"), aGroup("r1", short)}, nil, ""},
		"it is being rebuilt":        {[]raidGroup{aGroup("r0", whole+" B9s"), aGroup("r1", short+" B4r")}, nil, ""},
		"it lacks two and rebuilds":  {[]raidGroup{aGroup("r0", whole+" B9s"), aGroup("r1", "A3 A4 B4r")}, nil, "B9s r0 r1"},
		"not for long enough":        {[]raidGroup{aGroup("r0", whole+" B9s"), aGroup("r1", short)}, func(g []raidGroup) { g[1].due = false }, ""},
		"the donor has no spare":     {[]raidGroup{aGroup("r0", whole), aGroup("r1", short)}, nil, ""},
		"the donor lacks a member":   {[]raidGroup{aGroup("r0", "A1 A2 B1 B9s"), aGroup("r1", short)}, func(g []raidGroup) { g[0].due = false }, ""},
		"the donor dropped a disk":   {[]raidGroup{aGroup("r0", "A1 A2 B1 B2f B9s"), aGroup("r1", short)}, func(g []raidGroup) { g[0].due = false }, ""},
		"and has rebuilt a spare":    {[]raidGroup{aGroup("r0", whole+" B8f B9s"), aGroup("r1", short)}, nil, "B9s r0 r1"},
		"a dropped disk is no spare": {[]raidGroup{aGroup("r0", whole+" B9f"), aGroup("r1", short)}, nil, ""},
		"the donor resyncs":          {[]raidGroup{aGroup("r0", whole+" B9s"), aGroup("r1", short)}, func(g []raidGroup) { g[0].Action = "resync" }, ""},
		"the donor is scrubbed":      {[]raidGroup{aGroup("r0", whole+" B9s"), aGroup("r1", short)}, func(g []raidGroup) { g[0].Action = "check" }, "B9s r0 r1"},
		"the donor copies a member":  {[]raidGroup{aGroup("r0", whole+" B9s"), aGroup("r1", short)}, func(g []raidGroup) { g[0].members[0].States = []string{"in_sync", "want_replacement"} }, ""},
		"the donor is read-only":     {[]raidGroup{aGroup("r0", whole+" B9s"), aGroup("r1", short)}, func(g []raidGroup) { g[0].State = "readonly" }, ""},
		"the receiver has too few":   {[]raidGroup{aGroup("r0", whole+" B9s"), aGroup("r1", "A3")}, nil, ""},
		"the receiver is read-only":  {[]raidGroup{aGroup("r0", whole+" B9s"), aGroup("r1", short)}, func(g []raidGroup) { g[1].State = "readonly" }, ""},
		"the spare has no path":      {[]raidGroup{aGroup("r0", whole+" B9s"), aGroup("r1", short)}, func(g []raidGroup) { g[0].members[4].works = false }, ""},
		"its own spare has no path":  {[]raidGroup{aGroup("r0", whole+" B9s"), aGroup("r1", short+" B8i")}, func(g []raidGroup) { g[1].members[3].works = false }, "B9s r0 r1"},
		"the spare is too small":     {[]raidGroup{aGroup("r0", whole+" B9s"), aGroup("r1", short)}, func(g []raidGroup) { g[0].members[4].size = 999 }, ""},
		"enclosure A is full":        {[]raidGroup{aGroup("r0", whole+" A9s B9s"), aGroup("r1", short)}, nil, "B9s r0 r1"},
		"also of a group with more":  {[]raidGroup{aGroup("r0", whole+" A8s A9s"), aGroup("r2", "A5 A6 B5 B6 B9s"), aGroup("r1", short)}, nil, "B9s r2 r1"},
		"only a crowded one is left": {[]raidGroup{aGroup("r0", whole+" A9s"), aGroup("r1", short)}, nil, "A9s r0 r1 crowded"},
		"enclosures are not known":   {[]raidGroup{aGroup("r0", whole+" A9s"), aGroup("r1", short)}, func(g []raidGroup) { g[0].members[4].enclosure = "" }, "A9s r0 r1"},
		"the smallest that will do":  {[]raidGroup{aGroup("r0", whole+" B8s"), aGroup("r2", "A5 A6 B5 B6 B9s"), aGroup("r1", short)}, func(g []raidGroup) { g[0].members[4].size = 5000 }, "B9s r2 r1"},
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

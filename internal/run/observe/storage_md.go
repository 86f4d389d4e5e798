package observe

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/health"
	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/base/md"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/host/gather"
)

// mdStorage are md arrays of disks, each seen by several paths.
type mdStorage struct{ *view }

func (v mdStorage) request(r *gather.Request) {
	r.Pace = true
	if v.pair.HA == nil || len(v.pair.HA.Reservations) == 0 {
		return
	}
	r.SCSI = true
	for _, x := range v.d.DisksOf(v.pair) {
		r.Reservations = append(r.Reservations, x.Serial)
	}
}

func (v mdStorage) parts() []*Part {
	return slices.Concat([]*Part{v.disksPart(), v.paths()}, v.reserved(), []*Part{v.raid()})
}

// disksPart checks that at least one server sees each disk of the design. paths
// covers a disk that only one server does not see.
func (v mdStorage) disksPart() *Part {
	p := &Part{Name: "disk"}
	up := v.answering()
	total := map[string]int{}
	seen := map[string]int{}
	var order []string
	bad := map[string]*Part{}
	disks := v.d.DisksOf(v.pair)
	for i := range disks {
		x := &disks[i]
		if total[x.Enclosure] == 0 {
			order, bad[x.Enclosure] = append(order, x.Enclosure), &Part{}
		}
		total[x.Enclosure]++
		var reasons []string
		good := false
		for _, s := range up {
			sd := s.disks[x.Serial]
			switch {
			case sd == nil:
				reasons = append(reasons, s.name+" does not see it")
			case len(sd.good) == 0:
				reasons = append(reasons, "all its paths from "+s.name+" have failed")
			default:
				good = true
			}
		}
		if good {
			seen[x.Enclosure]++
		}
		if x.Failed {
			bad[x.Enclosure].find(x.Serial, "disk-out-of-service", with{"disk": x})
		}
		if good || x.Failed {
			continue
		}
		use := "a spare"
		switch {
		case x.Group != "":
			use = "in " + x.Group
		case !x.Spare:
			use = "unused"
		}
		bad[x.Enclosure].find(x.Serial, DiskGone, with{"disk": x, "use": use, "reasons": reasons})
	}
	n := 0
	for _, e := range order {
		n += seen[e]
		c := p.add("enclosure "+e, "%d of %d disks", seen[e], total[e])
		if seen[e] == 0 && total[e] > 1 {
			c.is("enclosure-gone", with{"enclosure": e, "disks": total[e], "hosts": serverNames(up)})
			continue
		}
		c.Parts = bad[e].Parts
	}
	p.Text = fmt.Sprintf("%d of %d", n, len(disks))
	return p
}

// paths checks that each server has all paths to each disk. The expected number is
// that of the disk with most paths, since the spec does not have it.
func (v mdStorage) paths() *Part {
	p := &Part{Name: "path"}
	up := v.answering()
	want := 0
	for _, s := range up {
		for _, sd := range s.disks {
			want = max(want, len(sd.good)+len(sd.bad))
		}
	}
	for _, s := range v.servers {
		if s.host == nil {
			p.find(s.name, "host-unknown", with{"host": s.name})
			continue
		}
		c := p.add(s.name, "")
		n := 0
		for _, sd := range s.disks {
			n += len(sd.good)
		}
		c.Text = fmt.Sprintf("%d paths to %d disks", n, len(s.disks))
		if want == 0 {
			c.is("disks-unseen", with{"host": s.name})
			continue
		}
		v.lostPaths(c, s, want)
		if want == 1 && v.pair.HA != nil && len(c.Parts) == 0 {
			c.find("one path", "path-single", with{"host": s.name})
		}
	}
	p.Text = fmt.Sprintf("%d to each disk", want)
	return p
}

// loss is what a server lacks of the paths to a disk.
type loss struct {
	which string // "path 2 of 2", "1 of 2 paths", "all paths"
	why   string
}

// lossOf compares a server's paths to a disk with the wanted number. hbas are the server's, in
// the order that numbers the paths. A disk that no server sees is disksPart's finding.
func (v mdStorage) lossOf(x *design.Disk, s *server, want int, hbas []int) (l loss, lost bool) {
	sd := s.disks[x.Serial]
	switch {
	case x.Failed || sd != nil && len(sd.good) >= want && len(sd.bad) == 0:
		return l, false
	case (sd == nil || len(sd.good) == 0) && !v.seenElsewhere(x, s):
		return l, false
	case sd == nil || len(sd.good) == 0:
		l.which = fmt.Sprintf("all %d paths", want)
		if want <= 1 {
			l.which = "the path"
		}
	default:
		var missing []string
		for i, h := range hbas {
			if !slices.ContainsFunc(sd.good, func(name string) bool { return sd.PathState[name].HBA == h }) {
				missing = append(missing, strconv.Itoa(i+1))
			}
		}
		l.which = fmt.Sprintf("%d of %d paths", want-len(sd.good), want)
		if len(hbas) == want && len(missing) == want-len(sd.good) {
			l.which = fmt.Sprintf("path %s of %d", health.List(missing), want)
		}
	}
	if sd != nil {
		l.why = strings.Join(slices.Compact(slices.Sorted(maps.Values(sd.bad))), ", ")
	}
	return l, true
}

// lostPaths names the disks and paths that a server has lost, whole enclosures
// first.
func (v mdStorage) lostPaths(c *Part, s *server, want int) {
	var hbas []int
	for _, sd := range s.disks {
		for _, st := range sd.PathState {
			if st.HBA >= 0 {
				hbas = append(hbas, st.HBA)
			}
		}
	}
	slices.Sort(hbas)
	hbas = slices.Compact(hbas)

	lost := map[string]map[loss][]*design.Disk{} // by enclosure
	count := map[string]int{}
	var enclosures []string
	disks := v.d.DisksOf(v.pair)
	for i := range disks {
		x := &disks[i]
		if count[x.Enclosure] == 0 {
			enclosures, lost[x.Enclosure] = append(enclosures, x.Enclosure), map[loss][]*design.Disk{}
		}
		count[x.Enclosure]++
		if l, is := v.lossOf(x, s, want, hbas); is {
			lost[x.Enclosure][l] = append(lost[x.Enclosure][l], x)
		}
	}
	if len(disks) == 0 {
		return
	}
	// If every disk has lost the same path, the loss is that of the HBA.
	for l := range lost[enclosures[0]] {
		if len(enclosures) > 1 && !slices.ContainsFunc(enclosures, func(e string) bool { return len(lost[e][l]) < count[e] }) {
			c.find("every enclosure", PathLost, with{"host": s.name, "paths": l.which, "to": "every enclosure", "why": l.why}).Mend = "look at the HBA and its cables"
			return
		}
	}
	for _, e := range enclosures {
		for _, l := range slices.SortedFunc(maps.Keys(lost[e]), func(a, b loss) int { return strings.Compare(a.which+a.why, b.which+b.why) }) {
			ds := lost[e][l]
			what := "enclosure " + e
			name := what
			switch {
			case len(ds) == count[e] && count[e] > 1:
			case len(ds) == 1:
				what, name = "disk "+diskName(ds[0]), ds[0].Serial
			default:
				what = fmt.Sprintf("%d of the %d disks of enclosure %s: %s", len(ds), count[e], e, health.List(serialsOf(ds)))
			}
			c.find(name, PathLost, with{"host": s.name, "paths": l.which, "to": what, "why": l.why, "disks": ds})
		}
	}
}

func (v mdStorage) seenElsewhere(x *design.Disk, not *server) bool {
	return slices.ContainsFunc(v.servers, func(s *server) bool { return s != not && s.reaches(x) })
}

// raid checks that each group is assembled on one server, whole, and in sync.
func (v mdStorage) raid() *Part {
	p := &Part{Name: "RAID"}
	whole, groups := 0, v.d.ArraysOf(v.pair)
	for i := range groups {
		g := &groups[i]
		c := v.group(p, g)
		if (c.Level == OK || c.Level == Warning) && !slices.ContainsFunc(c.Parts, func(x *Part) bool { return x.Code == Degraded }) {
			whole++
		}
	}
	p.Text = fmt.Sprintf("%d of %d groups whole", whole, len(groups))
	return p
}

// roles are the disks of a group, by what its array has of them.
type roles struct {
	failed    []any // disks, or names of devices without one
	missing   []*design.Disk
	strangers []string // devices that are no disk of the design
	spares    int
}

// rolesOf finds the members of an array, and the disks of the design that are not members.
func (v mdStorage) rolesOf(part *Part, g *design.Group, a *array, lent map[string]string) (r roles) {
	there := map[string]bool{} // by serial: they are members, or known to have failed
	var pathless []any
	for _, m := range a.members {
		switch {
		case m.Is("faulty") && m.disk == nil:
			pathless = append(pathless, m.Dev)
		case m.Is("faulty"):
			r.failed, there[m.disk.Serial] = append(r.failed, m.disk), true
		case m.Is("in_sync"):
			switch x := v.memberAt(g, a, m); {
			case m.disk != nil:
				there[m.disk.Serial] = true
			case x != nil:
				there[x.Serial] = true
				part.find("", "disk-unnoticed", with{"group": g.Name, "disk": x})
			default:
				r.strangers = append(r.strangers, m.Dev)
			}
		case m.Is("spare") && m.Slot >= 0:
			part.find("", "disk-rebuilding", with{"group": g.Name, "disk": m.who()})
		default:
			r.spares++
		}
	}
	for i := range g.Members {
		x := &g.Members[i]
		m := a.of(x.Serial)
		// It is being rebuilt, or a spare since another disk took its place.
		spare := m != nil && m.Is("spare") && (m.Slot >= 0 || a.Degraded == 0)
		if !there[x.Serial] && lent[x.Serial] == "" && !x.Failed && !spare {
			r.missing = append(r.missing, x)
		}
	}
	// A server knows a disk by its paths. Failed members without any are the missing
	// disks if there are as many of both.
	if len(pathless) == len(r.missing) {
		for i, x := range r.missing {
			pathless[i] = x
		}
		r.missing = nil
	}
	r.failed = append(r.failed, pathless...)
	return r
}

// group judges a group where it is assembled, and returns its part.
func (v mdStorage) group(p *Part, g *design.Group) *Part {
	s := v.only(p, g.Name, "group", func(s *server) bool { return s.array(g) != nil })
	if s == nil {
		return p.Parts[len(p.Parts)-1]
	}
	a := s.array(g)
	part := p.add(g.Name, "%s on %s, %s", raidName(g), s.name, memberCount(a))
	lent := v.lent(s, g)
	r := v.rolesOf(part, g, a, lent)
	dropped := v.dropped(g, a, lent)
	for _, who := range r.failed {
		x, known := who.(*design.Disk)
		if known && slices.ContainsFunc(dropped, func(p *Part) bool { return p.Name == x.Serial }) {
			continue
		}
		if f := part.find("", DiskFailed, with{"disk": who, "group": g.Name}); !known {
			f.Mend = ""
		}
	}
	part.Parts = append(part.Parts, dropped...)
	for i := range g.Spares {
		x := &g.Spares[i]
		slow := slices.ContainsFunc(v.cib.Dropped(), func(d linux.Dropped) bool { return strings.EqualFold(d.Serial, x.Serial) }) // its group says so
		if len(a.members) > 0 && !x.Failed && !slow && lent[x.Serial] == "" && a.of(x.Serial) == nil && s.disks[x.Serial] != nil {
			part.find(x.Serial, "spare-missing", with{"disk": x, "group": g.Name})
		}
	}
	switch {
	case r.spares == 1:
		part.Text += ", 1 spare"
	case r.spares > 1:
		part.Text += fmt.Sprintf(", %d spares", r.spares)
	}
	for _, x := range slices.Concat(g.Members, g.Spares) {
		if to := lent[x.Serial]; to != "" {
			part.Text += fmt.Sprintf("; its disk %s has moved to %s", diskName(&x), to)
		}
	}
	v.redundancy(part, s, g, a, r)
	v.crowded(part, s, g, a)
	if len(r.strangers) > 0 {
		part.find("members", "members-foreign", with{"group": g.Name, "disks": r.strangers})
	}
	if code := Code("group-" + a.State); findings[code].Text != "" { // "clean", "active" and more are no findings
		part.find("state", code, with{"group": g.Name, "host": s.name})
	}
	v.slowMembers(part, g, a, s.host.Pace)
	if a.Mismatches > 0 && a.Action != "check" && a.Action != "repair" {
		part.find("parity", "parity-mismatch", with{"group": g.Name, "sectors": a.Mismatches})
	}
	if a.Stat.Action != "" {
		addProgress(part, a.Stat, g.Name)
	}
	return part
}

// redundancy judges what a group has left to lose.
func (v mdStorage) redundancy(part *Part, s *server, g *design.Group, a *array, r roles) {
	if a.Degraded == 0 {
		if len(r.missing) > 0 && len(a.members) > 0 {
			part.find("members", "members-other", with{"group": g.Name, "disks": r.missing})
		}
		return
	}
	left := md.CanLose(g.Level, md.Near2, linux.MDPresent(a.RaidDisks, a.Members, nil))
	then := "it cannot serve"
	switch {
	case left > 0:
		then = fmt.Sprintf("%d more may fail", left)
	case left == 0 && g.Level == 1:
		then = "one more failure stops the writes"
	case left == 0:
		then = "one more failure loses data"
	}
	f := part.find("redundancy", Degraded, with{"group": g.Name, "host": s.name, "working": a.RaidDisks - a.Degraded, "disks": a.RaidDisks, "then": then, "missing": r.missing})
	switch {
	case a.Stat.Action != "" || r.spares > 0:
		f.Mend = ""
	case v.pair.HA != nil && v.spareOfPeer(s, g):
		f.Mend = "replace the disk; the watcher moves a spare of another group here, within a minute (`journalctl -t mortar` on " + s.name + ")"
	}
}

// crowded warns of a whole group that was designed to survive the loss of any enclosure and
// would not, because spares stood in.
func (v mdStorage) crowded(part *Part, s *server, g *design.Group, a *array) {
	if a.Degraded > 0 || !design.SurvivesEnclosure(*g) {
		return
	}
	in := map[string][]member{} // by enclosure
	for _, m := range a.members {
		if m.disk != nil && m.Slot >= 0 && m.Is("in_sync") {
			in[m.disk.Enclosure] = append(in[m.disk.Enclosure], m)
		}
	}
	for _, e := range slices.Sorted(maps.Keys(in)) {
		present := linux.MDPresent(a.RaidDisks, a.Members, nil)
		for _, m := range in[e] {
			if m.Slot < len(present) {
				present[m.Slot] = false
			}
		}
		if e == "" || md.CanLose(g.Level, md.Near2, present) >= 0 {
			continue
		}
		p := part.find("enclosure", "enclosure-crowded", with{"group": g.Name, "enclosure": e, "members": len(in[e])})
		last := in[e][len(in[e])-1]
		for _, m := range in[e] {
			if slices.ContainsFunc(g.Spares, func(x design.Disk) bool { return x.Serial == m.disk.Serial }) {
				last = m
			}
		}
		for _, m := range a.members {
			if m.disk != nil && s.reaches(m.disk) && m.disk.Enclosure != e && m.Slot < 0 && m.Is("spare") && !m.Is("faulty") {
				to, add := s.disks[m.disk.Serial].Device, ""
				if v.pair.HA != nil { // it waits outside of the array
					add = " --add " + to
				}
				p.Mend = fmt.Sprintf("on %s: `mdadm --manage /dev/md/%s%s --replace /dev/%s --with %s` copies %s to %s, with full redundancy meanwhile",
					s.name, g.Name, add, last.Dev, to, diskName(last.disk), diskName(m.disk))
				return
			}
		}
		return
	}
}

// lent are the disks of a group that are in other arrays of its service on a server, by
// serial: the watcher moves spares between them. The values are those groups' names.
func (v mdStorage) lent(s *server, g *design.Group) map[string]string {
	out := map[string]string{}
	for _, p := range v.d.Peers(g) {
		if a := s.array(&p); a != nil {
			for _, m := range a.members {
				if m.disk != nil {
					out[m.disk.Serial] = p.Name
				}
			}
		}
	}
	return out
}

// spareOfPeer tells whether another group of the service is whole and has a spare.
func (v mdStorage) spareOfPeer(s *server, g *design.Group) bool {
	return slices.ContainsFunc(v.d.Peers(g), func(p design.Group) bool {
		a := s.array(&p)
		return a != nil && a.Degraded == 0 && slices.ContainsFunc(a.members, func(m member) bool { return m.Is("spare") && m.Slot < 0 && !m.Is("faulty") })
	})
}

// slowMembers finds the disks of a group that answer much later than the others.
func (v mdStorage) slowMembers(part *Part, g *design.Group, a *array, pace map[string]gather.Pace) {
	var devs []string
	who := map[string]any{}
	for _, m := range a.members {
		if m.Is("in_sync") {
			devs, who[m.Dev] = append(devs, m.Dev), m.who()
		}
	}
	slowest(devs, pace, func(dev string, args with) {
		args["group"], args["disk"] = g.Name, who[dev]
		f := part.find("", DiskSlow, args)
		switch {
		case v.drops(g):
			f.Mend = "ocf:mortar:watch drops it if it stays so slow for a minute, and the group has a parity disk left (storage.drop_slow_disks); `mortar events` says why it does not"
		case len(a.members) == 2:
			f.Mend = "look at its SMART data and its path; if it stays slow, `mortar disk replace`"
		}
	})
}

// drops reports whether slow disks of a group are dropped.
func (v mdStorage) drops(g *design.Group) bool {
	return slices.ContainsFunc(v.pair.Services, func(s design.Service) bool { return s.Storage.DropSlow && slices.Contains(s.Storage.Groups, g.Name) })
}

// dropped finds the disks that ocf:mortar:watch has dropped from a group, and that
// are not back.
func (v mdStorage) dropped(g *design.Group, a *array, lent map[string]string) (out []*Part) {
	disks := slices.Concat(g.Members, g.Spares)
	for _, p := range v.d.Peers(g) {
		disks = append(disks, slices.Concat(p.Members, p.Spares)...) // it may have been a spare of another group
	}
	recs := v.cib.Dropped()
	slices.SortFunc(recs, func(a, b linux.Dropped) int { return b.At.Compare(a.At) })
	for _, rec := range recs {
		for _, x := range disks {
			m := a.of(x.Serial)
			back := lent[x.Serial] != "" || m != nil && !m.Is("faulty")
			if rec.Group != g.Name || !strings.EqualFold(rec.Serial, x.Serial) || x.Failed || back || len(a.members) == 0 ||
				slices.ContainsFunc(out, func(p *Part) bool { return p.Name == x.Serial }) {
				continue
			}
			out = append(out, (&Part{Name: x.Serial}).is(DiskDropped, with{"disk": &x, "group": g.Name, "host": rec.Node, "time": v.clock(rec.At), "why": rec.Words()}))
		}
	}
	return out
}

// addProgress adds the progress of a rebuild or check of an array.
func addProgress(part *Part, pr linux.MDStat, array string) {
	action := map[string]string{"recovery": "rebuild"}[pr.Action]
	if action == "" {
		action = pr.Action
	}
	prog := &Progress{Action: action, Percent: pr.Percent}
	progress := fmt.Sprintf("%.1f %%", pr.Percent)
	switch {
	case pr.Waiting != "":
		progress = "waiting (" + strings.ToLower(pr.Waiting) + ")"
	default:
		if pr.Left > 0 {
			progress += fmt.Sprintf(", %s left", duration(pr.Left))
		}
		sec := pr.Left.Seconds()
		prog.SecondsLeft = &sec
	}
	args := with{"array": array, "action": action, "progress": progress}
	if pr.Action == "check" { // routine
		text, _ := health.Fill(arrayBusy, args)
		part.add(action, "%s", text).Progress = prog
		return
	}
	part.find(action, "array-busy", args).Progress = prog
}

// memberAt finds the disk of a member without paths, whose serial cannot be read. It
// is the design's disk in the same slot of the array, if no other member is that
// disk and no server sees it.
func (v mdStorage) memberAt(g *design.Group, a *array, m member) *design.Disk {
	if m.disk != nil || m.Slot < 0 || m.Slot >= len(g.Members) {
		return nil
	}
	x := &g.Members[m.Slot]
	if a.of(x.Serial) != nil || slices.ContainsFunc(v.servers, func(s *server) bool { return s.disks[x.Serial] != nil }) {
		return nil
	}
	return x
}

// who is the disk of a member; the name of its device if no disk is known.
func (m *member) who() any {
	if m.disk != nil {
		return m.disk
	}
	return m.Dev
}

func memberCount(a *array) string {
	return fmt.Sprintf("%d of %d disks", a.RaidDisks-a.Degraded, a.RaidDisks)
}

func raidName(g *design.Group) string {
	if g.Level == 1 {
		return fmt.Sprintf("mirror of %d SSDs", len(g.Members))
	}
	if g.Level == 10 {
		return fmt.Sprintf("RAID 10 over %d", len(g.Members))
	}
	return fmt.Sprintf("RAID %d %d+%d", g.Level, g.Data, g.Parity)
}

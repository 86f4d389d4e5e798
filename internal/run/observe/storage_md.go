package observe

import (
	"fmt"
	"maps"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/base/md"
	"github.com/mortarhpc/mortar/internal/brick/design"
)

// mdStorage are md arrays of disks, each seen by several paths.
type mdStorage struct{ *view }

func (v mdStorage) request(r *Request) { r.Pace = true }

func (v mdStorage) parts() []*Part {
	return []*Part{v.disksPart(), v.paths(), v.raid()}
}

// disksPart checks that at least one server sees each disk of the design. paths
// covers a disk that only one server does not see.
func (v mdStorage) disksPart() *Part {
	p := &Part{Name: "disk"}
	up := v.answering()
	if len(up) == 0 {
		return unknown(p, "no server answers")
	}
	total := map[string]int{}
	seen := map[string]int{}
	var order []string
	bad := map[string][]*Part{}
	disks := v.pairDisks()
	for i := range disks {
		x := &disks[i]
		if total[x.Enclosure] == 0 {
			order = append(order, x.Enclosure)
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
			bad[x.Enclosure] = append(bad[x.Enclosure], v.outOfService(x))
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
		bad[x.Enclosure] = append(bad[x.Enclosure], &Part{Name: x.Serial, Level: Fault,
			Text: fmt.Sprintf("disk %s, %s, is gone: %s", diskName(x), use, list(reasons)),
			Mend: "look at the bay; a disk that stays gone is to be replaced: " + v.replaceCommand(x)})
	}
	n := 0
	for _, e := range order {
		n += seen[e]
		c := p.add(OK, "enclosure "+e, "%d of %d disks", seen[e], total[e])
		if seen[e] == 0 && total[e] > 1 {
			c.Level = Fault
			c.Text = fmt.Sprintf("enclosure %s is gone: none of its %d disks is seen by %s", e, total[e], list(serverNames(up)))
			c.Mend = "see that the enclosure has power and that its cables are in"
			continue
		}
		c.Parts = bad[e]
	}
	p.Text = fmt.Sprintf("%d of %d", n, len(disks))
	return p
}

// outOfService is the finding for a disk that an administrator took out of service.
func (v mdStorage) outOfService(x *design.Disk) *Part {
	return &Part{Name: x.Serial, Level: Warning,
		Text: fmt.Sprintf("disk %s is out of service: the spec lists it under failed", diskName(x)),
		Mend: "put another disk into the bay: " + v.replaceCommand(x)}
}

// replaceCommand is the command to run after a new disk is in the bay of x.
func (v mdStorage) replaceCommand(x *design.Disk) string {
	return fmt.Sprintf("`mortar disk replace %s %s --with SERIAL`", v.d.Spec.File, x.Serial)
}

// paths checks that each server has all paths to each disk. The expected number is
// that of the disk with most paths, since the spec does not have it.
func (v mdStorage) paths() *Part {
	p := &Part{Name: "path"}
	up := v.answering()
	if len(up) == 0 {
		return unknown(p, "no server answers")
	}
	want := 0
	for _, s := range up {
		for _, sd := range s.disks {
			want = max(want, len(sd.good)+len(sd.bad))
		}
	}
	for _, s := range v.servers {
		if s.host == nil {
			p.add(Unknown, s.name, "%s does not answer", s.name)
			continue
		}
		c := p.add(OK, s.name, "")
		n := 0
		for _, sd := range s.disks {
			n += len(sd.good)
		}
		c.Text = fmt.Sprintf("%d paths to %d disks", n, len(s.disks))
		if want == 0 {
			c.Level = Unknown
			continue
		}
		c.Parts = append(c.Parts, v.lostPaths(s, want)...)
		if want == 1 && v.pair.HA != nil && len(c.Parts) == 0 {
			w := c.add(Warning, "one path", "%s has one path only to every disk: a cable, port or HBA that fails takes the service off it", s.name)
			w.Mend = "cable a second HBA"
		}
	}
	p.Text = fmt.Sprintf("%d to each disk", want)
	return p
}

// lostPaths names the disks and paths that a server has lost, whole enclosures
// first.
func (v mdStorage) lostPaths(s *server, want int) []*Part {
	// The HBAs' order gives the numbers of the paths.
	hbas := map[int]bool{}
	for _, sd := range s.disks {
		for _, st := range sd.PathState {
			if st.HBA >= 0 {
				hbas[st.HBA] = true
			}
		}
	}
	order := slices.Sorted(maps.Keys(hbas))

	type loss struct {
		which string // "path 2 of 2", "1 of 2 paths", "all paths"
		why   string
	}
	lost := map[string]map[loss][]*design.Disk{} // by enclosure
	count := map[string]int{}
	var enclosures []string
	disks := v.pairDisks()
	for i := range disks {
		x := &disks[i]
		if count[x.Enclosure] == 0 {
			enclosures = append(enclosures, x.Enclosure)
		}
		count[x.Enclosure]++
		if x.Failed {
			continue
		}
		sd := s.disks[x.Serial]
		if sd != nil && len(sd.good) >= want && len(sd.bad) == 0 {
			continue
		}
		if sd == nil && !v.seenElsewhere(x, s) {
			continue // the disk itself is gone: disksPart has the finding
		}
		var l loss
		switch {
		case sd == nil || len(sd.good) == 0:
			l.which = fmt.Sprintf("all %d paths", want)
			if want <= 1 {
				l.which = "the path"
			}
			if sd != nil && !v.seenElsewhere(x, s) {
				continue
			}
		default:
			good := map[int]bool{}
			for _, name := range sd.good {
				good[sd.PathState[name].HBA] = true
			}
			var missing []string
			for i, h := range order {
				if !good[h] {
					missing = append(missing, strconv.Itoa(i+1))
				}
			}
			if len(order) == want && len(missing) == want-len(sd.good) {
				l.which = fmt.Sprintf("path %s of %d", list(missing), want)
			} else {
				l.which = fmt.Sprintf("%d of %d paths", want-len(sd.good), want)
			}
		}
		if sd != nil && len(sd.bad) > 0 {
			why := map[string]bool{}
			for _, w := range sd.bad {
				why[w] = true
			}
			l.why = strings.Join(slices.Sorted(maps.Keys(why)), ", ")
		}
		if lost[x.Enclosure] == nil {
			lost[x.Enclosure] = map[loss][]*design.Disk{}
		}
		lost[x.Enclosure][l] = append(lost[x.Enclosure][l], x)
	}
	var out []*Part
	// If every disk has lost the same path, the loss is that of the HBA.
	if len(enclosures) > 1 {
		all := map[loss]int{}
		for _, e := range enclosures {
			for l, ds := range lost[e] {
				if len(ds) == count[e] {
					all[l]++
				}
			}
		}
		for l, n := range all {
			if n == len(enclosures) {
				text := fmt.Sprintf("%s lost %s to every enclosure", s.name, l.which)
				if l.why != "" {
					text += " (" + l.why + ")"
				}
				return []*Part{{Name: "every enclosure", Level: Fault, Text: text, Mend: "look at the HBA and its cables"}}
			}
		}
	}
	for _, e := range enclosures {
		losses := slices.Collect(maps.Keys(lost[e]))
		sort.Slice(losses, func(i, j int) bool { return losses[i].which+losses[i].why < losses[j].which+losses[j].why })
		for _, l := range losses {
			ds := lost[e][l]
			what := "enclosure " + e
			name := what
			switch {
			case len(ds) == count[e] && count[e] > 1:
			case len(ds) == 1:
				what, name = "disk "+diskName(ds[0]), ds[0].Serial
			default:
				var serials []string
				for _, x := range ds {
					serials = append(serials, x.Serial)
				}
				what = fmt.Sprintf("%d of the %d disks of enclosure %s: %s", len(ds), count[e], e, list(serials))
			}
			text := fmt.Sprintf("%s lost %s to %s", s.name, l.which, what)
			if l.why != "" {
				text += " (" + l.why + ")"
			}
			out = append(out, &Part{Name: name, Level: Fault, Text: text,
				Mend: "look at the cable, the HBA port and the enclosure's I/O module"})
		}
	}
	return out
}

func (v mdStorage) seenElsewhere(x *design.Disk, not *server) bool {
	for _, s := range v.servers {
		if s != not && s.host != nil && s.disks[x.Serial] != nil && len(s.disks[x.Serial].good) > 0 {
			return true
		}
	}
	return false
}

// degraded is the part of a group that lacks a member.
const degraded = "redundancy"

// raid checks that each group is assembled on one server, whole, and in sync.
func (v mdStorage) raid() *Part {
	p := &Part{Name: "RAID"}
	if len(v.answering()) == 0 {
		return unknown(p, "no server answers")
	}
	whole, groups := 0, v.groups()
	for i := range groups {
		g := &groups[i]
		c := v.group(g)
		c.Name = g.Name
		if (c.Level == OK || c.Level == Warning) && !slices.ContainsFunc(c.Parts, func(x *Part) bool { return x.Name == degraded }) {
			whole++
		}
		p.Parts = append(p.Parts, c)
	}
	p.Text = fmt.Sprintf("%d of %d groups whole", whole, len(groups))
	return p
}

func (v mdStorage) group(g *design.Group) *Part {
	layout := raidName(g)
	var on []*server
	for _, s := range v.servers {
		if s.host != nil && s.array(g) != nil {
			on = append(on, s)
		}
	}
	if len(on) == 0 {
		if silent := v.silent(); len(silent) > 0 {
			return &Part{Level: Unknown, Text: fmt.Sprintf("%s, assembled on no server that answers; %s may have it", layout, list(silent))}
		}
		return &Part{Level: Fault, Text: fmt.Sprintf("%s is not assembled on any server", layout),
			Mend: "look at the cluster below: the service that carries it does not run"}
	}
	if len(on) > 1 {
		return &Part{Level: Fault, Text: fmt.Sprintf("%s is assembled on %s at once: writing from both destroys it", layout, list(serverNames(on))),
			Mend: "power off the one that does not serve, now; then check the array (mortar scrub) and the file system (xfs_repair -n). A new server sees the disks only after mortar server replace"}
	}
	s := on[0]
	a := s.array(g)
	part := &Part{Level: OK, Text: fmt.Sprintf("%s on %s, %s", layout, s.name, whole(a))}

	// Find the members, and the disks of the design that are not members.
	in := map[string]bool{}
	var faulty, pathless, strangers, unnoticed []string
	known := map[string]*design.Disk{} // of faulty
	spares := 0
	for _, m := range a.members {
		who := m.Dev
		if m.disk != nil {
			who = diskName(m.disk)
		}
		switch {
		case m.Is("faulty") && m.disk == nil:
			pathless = append(pathless, who)
		case m.Is("faulty"):
			faulty = append(faulty, who)
			known[who] = m.disk
		case m.Is("in_sync"):
			switch x := v.memberAt(g, a, m); {
			case m.disk != nil:
				in[m.disk.Serial] = true
			case x != nil:
				in[x.Serial] = true
				unnoticed = append(unnoticed, diskName(x))
			default:
				strangers = append(strangers, who)
			}
		case m.Is("spare") && m.Slot >= 0:
			part.Parts = append(part.Parts, &Part{Name: serialOf(who), Level: Warning, Text: who + " is being rebuilt into " + g.Name})
		default:
			spares++
		}
	}
	lent := v.lent(s, g)
	var out []string
	var missing []*design.Disk
	for i := range g.Members {
		x := &g.Members[i]
		if !in[x.Serial] && lent[x.Serial] == "" && !x.Failed && !slices.Contains(faulty, diskName(x)) && !slices.ContainsFunc(a.members, func(m member) bool {
			return m.disk != nil && m.disk.Serial == x.Serial && m.Is("spare") && (m.Slot >= 0 || a.Degraded == 0) // or it is a spare since another disk took its place
		}) {
			out, missing = append(out, diskName(x)), append(missing, x)
		}
	}
	// A server knows a disk by its paths. Failed members without any are the missing
	// disks if there are as many of both.
	if len(pathless) == len(missing) {
		for i, x := range missing {
			pathless[i], known[out[i]] = out[i], x
		}
		out = nil
	}
	faulty = append(faulty, pathless...)
	for _, who := range unnoticed {
		part.add(Warning, serialOf(who), "%s still counts disk %s in, which is gone: md finds out at the next write to it", g.Name, who)
	}
	dropped := v.dropped(g, a, lent)
	for _, who := range faulty {
		if x := known[who]; x != nil && slices.ContainsFunc(dropped, func(p *Part) bool { return p.Name == x.Serial }) {
			continue
		}
		f := part.add(Fault, serialOf(who), "disk %s has failed in %s", who, g.Name)
		if x := known[who]; x != nil {
			f.Mend = "swap it in its bay, then " + v.replaceCommand(x)
		}
	}
	part.Parts = append(part.Parts, dropped...)
	for i := range g.Spares {
		x := &g.Spares[i]
		slow := slices.ContainsFunc(v.cib.Dropped(), func(d linux.Dropped) bool { return strings.EqualFold(d.Serial, x.Serial) }) // its group says so
		if len(a.members) > 0 && !x.Failed && !slow && lent[x.Serial] == "" && !slices.ContainsFunc(a.members, func(m member) bool { return m.disk != nil && m.disk.Serial == x.Serial }) {
			part.add(Warning, x.Serial, "spare %s is not in %s: it would not stand in", diskName(x), g.Name)
		}
	}
	switch {
	case spares == 1:
		part.Text += ", 1 spare"
	case spares > 1:
		part.Text += fmt.Sprintf(", %d spares", spares)
	}
	for _, x := range slices.Concat(g.Members, g.Spares) {
		if to := lent[x.Serial]; to != "" {
			part.Text += fmt.Sprintf("; its disk %s has moved to %s", diskName(&x), to)
		}
	}
	if a.Degraded > 0 {
		left := md.CanLose(g.Level, md.Near2, a.present())
		text := fmt.Sprintf("%s is degraded on %s: %d of %d disks work, ", g.Name, s.name, a.RaidDisks-a.Degraded, a.RaidDisks)
		switch {
		case left > 0:
			text += fmt.Sprintf("%d more may fail", left)
		case left == 0 && g.Level == 1:
			text += "one more failure stops the writes"
		case left == 0:
			text += "one more failure loses data"
		default:
			text += "it cannot serve"
		}
		if len(out) > 0 {
			text += "; missing: " + list(out)
		}
		f := part.add(Fault, degraded, "%s", text)
		if a.stat.Action == "" && spares == 0 {
			f.Mend = "no spare is left: replace the disk"
			if v.pair.HA != nil && v.spareOfPeer(s, g) {
				f.Mend = "replace the disk; the watcher moves a spare of another group here, within a minute (`journalctl -t mortar` on " + s.name + ")"
			}
		}
	} else if len(out) > 0 && len(a.members) > 0 {
		w := part.add(Warning, "members", "%s is whole, but not with the disks it was designed with: %s not in it", g.Name, list(out)+isAre(len(out)))
		w.Mend = "a spare stands in; replace the failed disk"
	}
	if x := v.crowded(s, g, a); x != nil {
		part.Parts = append(part.Parts, x)
	}
	if len(strangers) > 0 {
		part.add(Warning, "members", "%s holds a disk the design does not know: %s", g.Name, list(strangers))
	}
	switch a.State {
	case "inactive":
		part.add(Fault, "state", "%s is not running on %s (inactive): too few disks, or assembly was cut short", g.Name, s.name)
	case "readonly", "read-auto":
		if a.State == "readonly" {
			part.add(Fault, "state", "%s is read-only on %s", g.Name, s.name)
		}
	case "broken":
		part.add(Fault, "state", "%s is broken on %s: more disks are gone than it can lose", g.Name, s.name)
	case "suspended":
		part.add(Warning, "state", "I/O to %s is suspended on %s", g.Name, s.name)
	}
	part.Parts = append(part.Parts, v.slowMembers(g, a, s.host.Pace)...)
	if a.Mismatches > 0 && a.Action != "check" && a.Action != "repair" {
		w := part.add(Warning, "parity", "the last check of %s found %d sectors whose parity did not match", g.Name, a.Mismatches)
		w.Mend = fmt.Sprintf("`mortar scrub %s --repair` finds the disk that lies and mends it; `echo repair` to sync_action would not: it takes data for right", v.d.Spec.File)
	}
	if a.stat.Action != "" {
		addProgress(part, a.stat, g.Name)
	}
	return part
}

// crowded warns of a whole group that was designed to survive the loss of any enclosure and
// would not, because spares stood in; nil: it would.
func (v mdStorage) crowded(s *server, g *design.Group, a *array) *Part {
	if a.Degraded > 0 || !design.SurvivesEnclosure(*g) {
		return nil
	}
	in := map[string][]member{} // by enclosure
	for _, m := range a.members {
		if m.disk != nil && m.Slot >= 0 && m.Is("in_sync") {
			in[m.disk.Enclosure] = append(in[m.disk.Enclosure], m)
		}
	}
	for _, e := range slices.Sorted(maps.Keys(in)) {
		present := a.present()
		for _, m := range in[e] {
			if m.Slot < len(present) {
				present[m.Slot] = false
			}
		}
		if e == "" || md.CanLose(g.Level, md.Near2, present) >= 0 {
			continue
		}
		p := &Part{Name: "enclosure", Level: Warning, Text: fmt.Sprintf("%s would not survive the loss of enclosure %s: %d of its members are there, since spares stood in", g.Name, e, len(in[e]))}
		last := in[e][len(in[e])-1]
		for _, m := range in[e] {
			if slices.ContainsFunc(g.Spares, func(x design.Disk) bool { return x.Serial == m.disk.Serial }) {
				last = m
			}
		}
		for _, m := range a.members {
			if m.disk != nil && m.disk.Enclosure != e && m.Slot < 0 && m.Is("spare") && !m.Is("faulty") {
				p.Mend = fmt.Sprintf("on %s: `mdadm --manage /dev/md/%s --replace /dev/%s --with /dev/%s` copies %s to %s, with full redundancy meanwhile",
					s.name, g.Name, last.Dev, m.Dev, diskName(last.disk), diskName(m.disk))
				return p
			}
		}
		p.Mend = "put a spare into another enclosure"
		return p
	}
	return nil
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
func (v mdStorage) slowMembers(g *design.Group, a *array, pace map[string]Pace) (out []*Part) {
	var devs []string
	for _, m := range a.members {
		if m.Is("in_sync") {
			devs = append(devs, m.Dev)
		}
	}
	slow, usual := latecomers(devs, pace)
	mend := "look at its SMART data and its path; if it stays slow, `mortar disk fail` copies it to a spare and takes it out"
	if len(a.members) == 2 {
		mend = "look at its SMART data and its path; if it stays slow, `mortar disk replace`"
	}
	if v.drops(g) {
		mend = "ocf:mortar:watch drops it if it stays so slow for a minute, and the group has a parity disk left (storage.drop_slow_disks); `mortar events` says why it does not"
	}
	for _, m := range a.members {
		if !slices.Contains(slow, m.Dev) {
			continue
		}
		who := m.Dev
		if m.disk != nil {
			who = diskName(m.disk)
		}
		out = append(out, &Part{Name: serialOf(who), Level: Warning,
			Text: fmt.Sprintf("disk %s is slow and slows %s down: it %s, its peers %.0f ms", who, g.Name, pace[m.Dev], usual),
			Mend: mend})
	}
	return out
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
			back := lent[x.Serial] != "" || slices.ContainsFunc(a.members, func(m member) bool { return m.disk != nil && m.disk.Serial == x.Serial && !m.Is("faulty") })
			if rec.Group != g.Name || !strings.EqualFold(rec.Serial, x.Serial) || x.Failed || back || len(a.members) == 0 ||
				slices.ContainsFunc(out, func(p *Part) bool { return p.Name == x.Serial }) {
				continue
			}
			out = append(out, &Part{Name: x.Serial, Level: Fault,
				Text: fmt.Sprintf("disk %s was dropped from %s by %s at %s because it was slow: %s", diskName(&x), g.Name, rec.Node, v.clock(rec.At), rec.Words()),
				Mend: "put another disk into its bay, then " + v.replaceCommand(&x)})
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
	text := fmt.Sprintf("%s of %s: ", action, array)
	switch {
	case pr.Waiting != "":
		text += "waiting (" + strings.ToLower(pr.Waiting) + ")"
	default:
		text += fmt.Sprintf("%.1f %%", pr.Percent)
		if pr.Left > 0 {
			text += fmt.Sprintf(", %s left", duration(pr.Left))
		}
		sec := pr.Left.Seconds()
		prog.SecondsLeft = &sec
	}
	level := Warning
	if pr.Action == "check" {
		level = OK // routine
	}
	c := part.add(level, action, "%s", text)
	c.Progress = prog
}

// memberAt finds the disk of a member without paths, whose serial cannot be read. It
// is the design's disk in the same slot of the array, if no other member is that
// disk and no server sees it.
func (v mdStorage) memberAt(g *design.Group, a *array, m member) *design.Disk {
	if m.disk != nil || m.Slot < 0 || m.Slot >= len(g.Members) {
		return nil
	}
	x := &g.Members[m.Slot]
	for _, o := range a.members {
		if o.disk != nil && o.disk.Serial == x.Serial {
			return nil
		}
	}
	for _, s := range v.servers {
		if s.host != nil && s.disks[x.Serial] != nil {
			return nil
		}
	}
	return x
}

func whole(a *array) string {
	n := a.RaidDisks - a.Degraded
	return fmt.Sprintf("%d of %d disks", n, a.RaidDisks)
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

func (v mdStorage) pairDisks() []design.Disk { return v.d.DisksOf(v.pair) }

func (v mdStorage) groups() []design.Group { return v.d.ArraysOf(v.pair) }

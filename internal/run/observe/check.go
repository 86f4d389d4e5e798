package observe

import (
	"fmt"
	"maps"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/base/md"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/serve/ocf"
)

// Bounds of what passes without a word.
const (
	clockSkew  = 2 * time.Second // between hosts; NFSv4 leases and logs suffer beyond
	spaceWarn  = 85.0            // percent of a file system used: XFS allocates badly on a full one
	spaceFault = 98.0
	slowStatfs = 5000.0 // ms for a client's FSSTAT
)

// Judge makes the health tree of a brick from what should be and what is. It
// is pure: the same design and facts always give the same status.
func Judge(d *design.Design, f Facts) *Status {
	s := &Status{Brick: d.Name, Flavour: string(d.Flavour), Time: f.Time, SpecSHA256: d.SHA256, Services: []Where{}}
	v := newView(d, &d.Pairs[0], f)
	for i := range d.Pairs {
		v := newView(d, &d.Pairs[i], f)
		for j := range v.pair.Services {
			s.Services = append(s.Services, v.where(&v.pair.Services[j]))
		}
		parts := v.parts()
		if len(d.Pairs) > 1 {
			parts = []*Part{{Name: v.pair.Name, Parts: parts}}
		}
		s.Parts = append(s.Parts, parts...)
	}
	if len(d.Spec.Clients) > 0 {
		s.Parts = append(s.Parts, v.clients())
	}
	s.finish()
	return s
}

// parts are those of a pair, from its hosts to its power.
func (v *view) parts() []*Part {
	out := []*Part{v.hosts(), v.disksPart(), v.paths(), v.raid(), v.volumes()}
	if v.cached() != nil {
		out = append(out, v.cache())
	}
	out = append(out, v.fileSystems(), v.exports())
	if v.pair.HA != nil {
		out = append(out, v.cluster(), v.fencing())
		if p := v.power(); p != nil {
			out = append(out, p)
		}
	}
	return out
}

// cached is the service of the pair that has a cache, nil if none has.
func (v *view) cached() *design.Service {
	for i := range v.pair.Services {
		if s := &v.pair.Services[i]; s.Storage.Cache != nil {
			return s
		}
	}
	return nil
}

// hosts: does each answer, is its clock right.
func (v *view) hosts() *Part {
	p := &Part{Name: "host"}
	var names []string
	names = append(names, v.pair.Servers...)
	if v.pair.Name == v.d.Pairs[0].Name { // clients are of all pairs, and named once
		for _, c := range v.d.Spec.Clients {
			names = append(names, c.Name)
		}
	}
	answering := 0
	asked := 0
	for _, n := range names {
		a, ok := v.facts.Hosts[n]
		if !ok {
			continue // not asked
		}
		asked++
		if a.Host == nil {
			text := oneLine(a.Err)
			if !strings.HasPrefix(text, n+" ") { // else it names the host itself
				text = n + " does not answer: " + text
			}
			p.add(Fault, n, "%s", text)
			continue
		}
		answering++
		text := linux.ParseOSRelease(a.Host.Files["/etc/os-release"]).Name
		if up, ok := linux.Uptime(a.Host.Files["/proc/uptime"]); ok {
			text += ", up " + duration(up)
		}
		c := p.add(OK, n, "%s", strings.TrimPrefix(text, ", "))
		if s := v.byName[n]; s != nil {
			v.system(c, s)
		}
		v.mtus(c, n, a.Host)
		if off, ref := v.skew(n); off > clockSkew || off < -clockSkew {
			c.Level = Warning
			how := "ahead of"
			if off < 0 {
				off, how = -off, "behind"
			}
			c.Text = fmt.Sprintf("clock of %s is %s %s that of %s", n, duration(off), how, ref)
			c.Mend = "run a time service (chrony, systemd-timesyncd) on every host"
		}
	}
	p.Text = fmt.Sprintf("%d of %d answer", answering, asked)
	return p
}

// mtus: has each interface the MTU that the spec says of its network.
func (v *view) mtus(c *Part, host string, h *Host) {
	for _, want := range v.d.MTUs(host) {
		for _, l := range h.NetLinks {
			if l.MTU != want.MTU && slices.ContainsFunc(l.Addresses, func(a string) bool { return strings.HasPrefix(a, want.Address+"/") }) {
				f := c.add(Warning, l.Name, "%s of %s (%s, network %s) has MTU %d, not %d", l.Name, host, want.Address, want.Network, l.MTU, want.MTU)
				f.Mend = fmt.Sprintf("`ip link set %s mtu %d`, and the same in the host's network configuration", l.Name, want.MTU)
			}
		}
	}
}

// skew says by how much at least a host's clock is off that of the first
// server that answers. A host read its clock somewhere between being asked and
// having answered, so each is known to lie in an interval; what counts is the
// gap between two.
func (v *view) skew(name string) (time.Duration, string) {
	interval := func(n string) (lo, hi time.Duration) {
		a := v.facts.Hosts[n]
		now := time.Unix(0, a.Host.NowNS)
		return now.Sub(a.Answered), now.Sub(a.Asked)
	}
	for _, s := range v.servers {
		if s.host == nil {
			continue
		}
		if s.name == name {
			return 0, name
		}
		lo, hi := interval(name)
		refLo, refHi := interval(s.name)
		switch {
		case lo > refHi:
			return lo - refHi, s.name
		case hi < refLo:
			return hi - refLo, s.name
		}
		return 0, s.name
	}
	return 0, name
}

// disksPart: is every disk of the design there at all. A disk that only one
// server does not see is a matter of paths.
func (v *view) disksPart() *Part {
	p := &Part{Name: "disk"}
	up := v.answering()
	if len(up) == 0 {
		return unknown(p, "no server answers")
	}
	total := map[string]int{}
	seen := map[string]int{}
	var order []string
	bad := map[string][]*Part{}
	for i := range v.d.Disks {
		x := &v.d.Disks[i]
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
			Mend: "look at the bay; a disk that stays gone is to be replaced"})
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
	p.Text = fmt.Sprintf("%d of %d", n, len(v.d.Disks))
	return p
}

// paths: has each server all its ways to each disk. How many there should be
// is learnt from the disks that have most: the spec does not say.
func (v *view) paths() *Part {
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

// lostPaths names what a server cannot reach, whole enclosures first.
func (v *view) lostPaths(s *server, want int) []*Part {
	// Paths are numbered by the order of the HBAs they go over.
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
	for i := range v.d.Disks {
		x := &v.d.Disks[i]
		if count[x.Enclosure] == 0 {
			enclosures = append(enclosures, x.Enclosure)
		}
		count[x.Enclosure]++
		sd := s.disks[x.Serial]
		if sd != nil && len(sd.good) >= want && len(sd.bad) == 0 {
			continue
		}
		if sd == nil && !v.seenElsewhere(x, s) {
			continue // the disk itself is gone: said under disk
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
	// The same path lost to every disk is one loss: of the HBA.
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

func (v *view) seenElsewhere(x *design.Disk, not *server) bool {
	for _, s := range v.servers {
		if s != not && s.host != nil && s.disks[x.Serial] != nil && len(s.disks[x.Serial].good) > 0 {
			return true
		}
	}
	return false
}

// raid: is each group assembled, on one server, whole, and in sync.
func (v *view) raid() *Part {
	p := &Part{Name: "RAID"}
	if len(v.answering()) == 0 {
		return unknown(p, "no server answers")
	}
	whole := 0
	for i := range v.d.Groups {
		g := &v.d.Groups[i]
		c := v.group(g)
		c.Name = g.Name
		if c.Level == OK || c.Level == Warning {
			whole++
		}
		p.Parts = append(p.Parts, c)
	}
	p.Text = fmt.Sprintf("%d of %d groups whole", whole, len(v.d.Groups))
	return p
}

func (v *view) group(g *design.Group) *Part {
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
			Mend: "stop the service on one of them now, and find out why fencing did not"}
	}
	s := on[0]
	a := s.array(g)
	part := &Part{Level: OK, Text: fmt.Sprintf("%s on %s, %s", layout, s.name, whole(a))}

	// Who is in, and who of the design is not.
	in := map[string]bool{}
	var faulty, strangers, unnoticed []string
	spares := 0
	for _, m := range a.members {
		who := m.Dev
		if m.disk != nil {
			who = diskName(m.disk)
		}
		switch {
		case m.Is("faulty"):
			faulty = append(faulty, who)
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
	var out []string
	for i := range g.Members {
		x := &g.Members[i]
		if !in[x.Serial] && !slices.Contains(faulty, diskName(x)) && !slices.ContainsFunc(a.members, func(m member) bool {
			return m.disk != nil && m.disk.Serial == x.Serial && m.Is("spare") && m.Slot >= 0
		}) {
			out = append(out, diskName(x))
		}
	}
	for _, who := range unnoticed {
		part.add(Warning, serialOf(who), "%s still counts disk %s in, which is gone: md finds out at the next write to it", g.Name, who)
	}
	for _, who := range faulty {
		f := part.add(Fault, serialOf(who), "disk %s has failed in %s", who, g.Name)
		f.Mend = "replace the disk"
	}
	for i := range g.Spares {
		x := &g.Spares[i]
		if len(a.members) > 0 && !slices.ContainsFunc(a.members, func(m member) bool { return m.disk != nil && m.disk.Serial == x.Serial }) {
			part.add(Warning, x.Serial, "spare %s is not in %s: it would not stand in", diskName(x), g.Name)
		}
	}
	switch {
	case spares == 1:
		part.Text += ", 1 spare"
	case spares > 1:
		part.Text += fmt.Sprintf(", %d spares", spares)
	}
	if a.Degraded > 0 {
		left := md.CanLose(g.Level, md.Near2, a.present())
		text := fmt.Sprintf("%s is degraded on %s: %d of %d disks work, ", g.Name, s.name, a.RaidDisks-a.Degraded, a.RaidDisks)
		switch {
		case left > 0:
			text += fmt.Sprintf("%d more may fail", left)
		case left == 0:
			text += "one more failure loses data"
		default:
			text += "it cannot serve"
		}
		if len(out) > 0 {
			text += "; missing: " + list(out)
		}
		f := part.add(Fault, "redundancy", "%s", text)
		if a.stat.Action == "" && spares == 0 {
			f.Mend = "no spare is left: replace the disk"
		}
	} else if len(out) > 0 && len(a.members) > 0 {
		w := part.add(Warning, "members", "%s is whole, but not with the disks it was designed with: %s not in it", g.Name, list(out)+isAre(len(out)))
		w.Mend = "a spare stands in; replace the failed disk"
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
	if a.Mismatches > 0 && a.Action != "check" && a.Action != "repair" {
		w := part.add(Warning, "parity", "the last check of %s found %d sectors whose parity did not match", g.Name, a.Mismatches)
		w.Mend = fmt.Sprintf("`mortar scrub %s --repair` finds the disk that lies and mends it; `echo repair` to sync_action would not: it takes data for right", v.d.Spec.File)
	}
	if a.stat.Action != "" {
		addProgress(part, a.stat, g.Name)
	}
	return part
}

// addProgress says how far a rebuild or check of an array is.
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
		text += fmt.Sprintf("%.1f %%, %s left", pr.Percent, duration(pr.Left))
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

// memberAt finds the disk of a member whose paths are all gone, so that no
// serial can be read: the one the design has at its place in the array, if no
// other member is that disk and no server sees it.
func (v *view) memberAt(g *design.Group, a *array, m member) *design.Disk {
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
	if g.Level == 10 {
		return fmt.Sprintf("RAID 10 over %d", len(g.Members))
	}
	return fmt.Sprintf("RAID %d %d+%d", g.Level, g.Data, g.Parity)
}

// volumes: is each logical volume active where its service runs, on the
// arrays it should be on.
func (v *view) volumes() *Part {
	p := &Part{Name: "volume"}
	if len(v.answering()) == 0 {
		return unknown(p, "no server answers")
	}
	n := 0
	for i := range v.pair.Services {
		vol := &v.pair.Services[i].Storage
		name := vol.VG + "/" + vol.LV
		dm := linux.DMName(vol.VG, vol.LV)
		var on []*server
		for _, s := range v.servers {
			if s.host == nil {
				continue
			}
			for path, text := range s.host.Files {
				if strings.HasPrefix(path, "/sys/block/dm-") && strings.HasSuffix(path, "/dm/name") && strings.TrimSpace(text) == dm {
					on = append(on, s)
				}
			}
		}
		switch {
		case len(on) == 0 && len(v.silent()) > 0:
			p.add(Unknown, name, "%s is active on no server that answers; %s may have it", name, list(v.silent()))
		case len(on) == 0:
			p.add(Fault, name, "%s is not active on any server", name)
		case len(on) > 1:
			c := p.add(Fault, name, "%s is active on %s at once: writing from both destroys it", name, list(serverNames(on)))
			c.Mend = "stop the service on one of them now, and find out why fencing did not"
		default:
			n++
			p.add(OK, name, "active on %s", on[0].name)
		}
	}
	p.Text = fmt.Sprintf("%d of %d active", n, len(v.pair.Services))
	return p
}

// fileSystems: mounted where the service runs, once, writable, answering,
// not full.
func (v *view) fileSystems() *Part {
	p := &Part{Name: "file system"}
	if len(v.answering()) == 0 {
		return unknown(p, "no server answers")
	}
	n := 0
	for i := range v.pair.Services {
		vol := &v.pair.Services[i]
		var on []*server
		for _, s := range v.servers {
			if _, ok := s.mountOf(vol); ok {
				on = append(on, s)
			}
		}
		switch {
		case len(on) == 0 && len(v.silent()) > 0:
			p.add(Unknown, vol.MountPoint, "mounted on no server that answers; %s may have it", list(v.silent()))
			continue
		case len(on) == 0:
			p.add(Fault, vol.MountPoint, "%s is not mounted on any server", vol.MountPoint)
			continue
		case len(on) > 1:
			c := p.add(Fault, vol.MountPoint, "%s is mounted on %s at once: XFS does not survive this", vol.MountPoint, list(serverNames(on)))
			c.Mend = "stop the service on one of them now, and find out why fencing did not"
			continue
		}
		s := on[0]
		m, _ := s.mountOf(vol)
		fs := s.host.FS[vol.MountPoint]
		c := p.add(OK, vol.MountPoint, "%s on %s", m.Type, s.name)
		st := &vol.Storage
		dev, other := "/dev/mapper/"+linux.DMName(st.VG, st.LV), st.Backing()
		if k := st.Cache; k != nil {
			dev, other = k.Device, k.Device
		} else if cached := "/dev/mapper/" + st.VG + ".cached"; m.Source == cached {
			other = cached // a cache that was turned off passes everything on until the service stops
		}
		if m.Source != dev && m.Source != other {
			c.add(Fault, "device", "%s on %s is mounted from %s, not from %s", vol.MountPoint, s.name, m.Source, dev)
		}
		if _, ro := m.Option("ro"); ro {
			c.add(Fault, "mount", "%s is mounted read-only on %s", vol.MountPoint, s.name)
		}
		switch {
		case fs.TimedOut:
			c.add(Fault, "answer", "%s on %s does not answer: I/O to it hangs", vol.MountPoint, s.name)
		case fs.Err != "":
			c.add(Fault, "answer", "%s on %s gives an error: %s (XFS shuts down after an I/O error; see the kernel log)", vol.MountPoint, s.name, fs.Err)
		case fs.Size > 0:
			used := 100 * float64(fs.Size-min(fs.Avail, fs.Size)) / float64(fs.Size)
			c.Text += fmt.Sprintf(", %s, %.0f %% used", size(fs.Size), used)
			full(c, vol.MountPoint, s.name, "space", used)
			if fs.Files > 0 {
				full(c, vol.MountPoint, s.name, "inodes", 100*float64(fs.Files-min(fs.FilesFree, fs.Files))/float64(fs.Files))
			}
		}
		n++
	}
	p.Text = fmt.Sprintf("%d of %d mounted", n, len(v.pair.Services))
	return p
}

func full(c *Part, path, host, what string, used float64) {
	switch {
	case used >= spaceFault:
		c.add(Fault, what, "%s on %s is full: %.0f %% of its %s used", path, host, used, what)
	case used >= spaceWarn:
		c.add(Warning, what, "%s on %s is nearly full: %.0f %% of its %s used", path, host, used, what)
	}
}

// exports: where the service runs, are nfsd, its daemons, its exports and
// its address there; and is the address nowhere else.
func (v *view) exports() *Part {
	p := &Part{Name: "export"}
	if len(v.answering()) == 0 {
		return unknown(p, "no server answers")
	}
	n := 0
	for i := range v.pair.Services {
		svc := &v.pair.Services[i]
		w := v.where(svc)
		s := v.byName[w.Server]
		if s == nil {
			// The cluster does not say; look who has the address.
			for _, x := range v.servers {
				if x.hasAddress(svc.Address) {
					s = x
				}
			}
		}
		switch {
		case s == nil && len(v.silent()) > 0:
			p.add(Unknown, svc.Name, "service %s runs on no server that answers; %s may have it", svc.Name, list(v.silent()))
			continue
		case s == nil:
			p.add(Fault, svc.Name, "service %s (%s) runs on no server", svc.Name, svc.Address)
			continue
		case s.host == nil:
			p.add(Unknown, svc.Name, "service %s is on %s, which does not answer", svc.Name, s.name)
			continue
		}
		c := p.add(OK, svc.Name, "")
		v.serving(c, svc, s)
		n++
	}
	p.Text = fmt.Sprintf("%d of %d services exported", n, len(v.pair.Services))
	return p
}

func (v *view) serving(c *Part, svc *design.Service, s *server) {
	h := s.host
	nfsd := ocf.NFSDDir(svc.Namespace)
	threads, _ := strconv.Atoi(strings.TrimSpace(h.Files[nfsd+"/threads"]))
	c.Text = fmt.Sprintf("%s on %s, %d nfsd threads", svc.Address, s.name, threads)
	if threads == 0 {
		c.add(Fault, "nfsd", "no nfsd runs on %s", s.name)
	} else if want := v.d.Spec.NFS.Threads; want > 0 && threads < want {
		c.add(Warning, "nfsd", "%d nfsd threads run on %s, not %d", threads, s.name, want)
	}
	if threads > 0 {
		have := map[string]bool{}
		for _, f := range strings.Fields(h.Files[nfsd+"/versions"]) {
			have[strings.TrimPrefix(f, "+")] = strings.HasPrefix(f, "+")
		}
		for _, want := range v.d.Spec.NFS.Versions {
			if on, known := have[want]; len(have) > 0 && (!known || !on) {
				c.add(Fault, "NFSv"+want, "%s does not serve NFSv%s", s.name, want)
			}
		}
		if strings.TrimSpace(h.Files[nfsd+"/v4_end_grace"]) == "N" {
			c.add(OK, "grace", "in grace: clients reclaim their locks, new ones wait")
		}
		need := []string{"nfsdcld"}
		if slices.Contains(v.d.Spec.NFS.Versions, "3") {
			need = append(need, "rpc.mountd", "rpc.statd", "rpcbind")
		}
		for _, name := range need {
			if k, asked := h.Processes[inNamespace(name, svc.Namespace)]; asked && k == 0 {
				f := c.add(Fault, name, "%s does not run on %s: %s", name, s.name, daemonUse[name])
				f.Mend = "its log (journalctl) says why; the cluster restarts the service when its monitor sees it"
			}
		}
	}
	if !s.hasAddress(svc.Address) {
		c.add(Fault, "address", "the service address %s is not on %s", svc.Address, s.name)
	}
	for _, x := range v.servers {
		if x != s && x.hasAddress(svc.Address) {
			f := c.add(Fault, "address", "the service address %s is on %s too, where the service does not run", svc.Address, x.name)
			f.Mend = "take it off with `ip addr del`, and find out why fencing did not"
		}
	}
	v.exported(c, svc, s)
}

// exported compares the table that the server's rpc.mountd reads with the
// service's exports, options and all.
func (v *view) exported(c *Part, svc *design.Service, s *server) {
	var want []ocf.Export
	for _, e := range svc.Exports {
		want = append(want, ocf.Export{Dir: e.Dir, Clients: e.Clients, FSID: e.FSID, Options: e.Options})
	}
	for _, d := range ocf.CompareExports(ocf.ParseETab(s.host.Files[etabOf(svc)]), want) {
		var f *Part
		switch {
		case d.Missing:
			f = c.add(Fault, d.Dir, "%s is not exported to %s on %s", d.Dir, d.Clients, s.name)
		case d.Extra && v.pair.HA == nil:
			continue // of another file than ours, perhaps
		case d.Extra:
			f = c.add(Warning, d.Dir, "%s is exported to %s on %s, which the spec does not say", d.Dir, d.Clients, s.name)
		case slices.Contains(d.Have, "async"):
			f = c.add(Fault, d.Dir, "%s is exported async on %s: acknowledged writes are lost if it fails", d.Dir, s.name)
		case slices.Contains(d.Have, "ro"):
			f = c.add(Fault, d.Dir, "%s is exported read-only on %s", d.Dir, s.name)
		default:
			f = c.add(Warning, d.Dir, "%s on %s", d, s.name)
		}
		f.Mend = "`mortar apply`"
	}
}

var daemonUse = map[string]string{
	"nfsdcld":    "clients could not reclaim NFSv4 locks after a failover",
	"rpc.mountd": "no client can mount by NFSv3, and new exports are not resolved",
	"rpc.statd":  "NFSv3 locks would not be recovered after a failover",
	"rpcbind":    "NFSv3 clients cannot find the server's ports",
}

// answering are the servers with facts, in the design's order.
func (v *view) answering() []*server {
	var out []*server
	for _, s := range v.servers {
		if s.host != nil {
			out = append(out, s)
		}
	}
	return out
}

// silent are the names of the servers without facts that may still run; one
// that the cluster has fenced or seen leave does not.
func (v *view) silent() []string {
	var out []string
	for _, s := range v.servers {
		if s.host != nil {
			continue
		}
		if n := v.node(s.name); n != nil && !n.Online && !n.Unclean {
			continue
		}
		out = append(out, s.name)
	}
	return out
}

// node is the cluster's word on a server.
func (v *view) node(name string) *linux.CRMNode {
	if v.crm == nil {
		return nil
	}
	for i := range v.crm.Nodes {
		if v.crm.Nodes[i].Name == name {
			return &v.crm.Nodes[i]
		}
	}
	return nil
}

func serverNames(ss []*server) []string {
	var out []string
	for _, s := range ss {
		out = append(out, s.name)
	}
	return out
}

func unknown(p *Part, why string) *Part {
	p.Level, p.Text = Unknown, why
	return p
}

func isAre(n int) string {
	if n == 1 {
		return " is"
	}
	return " are"
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// duration in the two largest units that matter.
func duration(d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < 10*time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < 2*time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h %d min", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%d days", int(d.Hours()/24))
}

// size in decimal units, as disks are sold.
func size(b uint64) string { return spec.Bytes(b).Decimal() }

// serialOf shortens what diskName says to the serial, for a part's name.
func serialOf(disk string) string {
	s, _, _ := strings.Cut(disk, " (")
	return s
}

package observe

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/base/lists"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/host/gather"
)

// Limits below which Judge finds nothing.
const (
	spaceWarn  = 85.0 // percent of a file system used: XFS allocates badly on a full one
	spaceFault = 98.0
	slowStatfs = 5000.0 // ms for a client's FSSTAT
	// A cable that is pulled and plugged in damages a few frames; one that is broken
	// goes on.
	linkErrors = 100
)

// Judge compares the facts of a brick with its design and returns the tree of its
// health. It is pure: the same design and facts always give the same status.
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
		s.Parts = append(s.Parts, v.kind().clients())
	}
	s.finish(d.Spec.File)
	return s
}

// parts returns the parts of a pair, from its hosts to its power.
func (v *view) parts() []*Part {
	storage, served := v.storage().parts(), []*Part{v.volumes()}
	if v.cached() != nil {
		served = append(served, v.cache())
	}
	served = append(served, v.kind().parts()...)
	if len(v.answering()) == 0 {
		for _, p := range slices.Concat(storage, served) {
			*p = *(&Part{Name: p.Name}).is(noAnswer, nil)
		}
	}
	out := append([]*Part{v.hosts()}, storage...)
	if p := v.arrayHealth(); p != nil {
		out = append(out, p)
	}
	out = append(out, served...)
	if p := v.hardware(); p != nil {
		out = append(out, p)
	}
	if v.pair.HA != nil {
		c := ha{v}
		out = append(out, c.cluster(), c.fencing())
		if p := c.power(); p != nil {
			out = append(out, p)
		}
	}
	return out
}

// cached is the service of the pair that has a cache, nil if none has.
func (v *view) cached() *design.Service {
	return lists.Find(v.pair.Services, func(s *design.Service) bool { return s.Storage.Cache != nil })
}

// hosts checks that each host answers and that its clock is right.
func (v *view) hosts() *Part {
	p := &Part{Name: "host"}
	var names []string
	names = append(names, v.pair.Servers...)
	if v.pair.Name == v.d.Pairs[0].Name { // clients are of all pairs, and named once
		names = append(names, v.d.Spec.ClientNames()...)
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
			f := with{"host": n, "error": oneLine(a.Err)}
			if says, ok := strings.CutPrefix(oneLine(a.Err), n+" "); ok { // it names the host itself
				f = with{"host": n, "says": says}
			}
			if v.byName[n] == nil {
				p.find(n, ClientSilent, f)
			} else {
				p.find(n, HostSilent, f)
			}
			continue
		}
		answering++
		text := linux.ParseOSRelease(a.Host.Files["/etc/os-release"]).Name
		if up, ok := linux.Uptime(a.Host.Files["/proc/uptime"]); ok {
			text += ", up " + duration(up)
		}
		c := p.add(n, "%s", strings.TrimPrefix(text, ", "))
		if s := v.byName[n]; s != nil {
			v.system(c, s)
			s.room(c)
			s.memory(c)
			for _, tool := range slices.Sorted(maps.Keys(s.odd)) {
				c.unread(tool+" on "+n, s.odd[tool])
			}
		}
		v.links(c, n, a.Host)
		if off, ref := v.skew(n); off.Abs() > ClockSkew {
			how := "ahead of"
			if off < 0 {
				off, how = -off, "behind"
			}
			c.is(ClockSkewed, with{"host": n, "by": duration(off), "how": how, "reference": ref})
		}
	}
	v.alike(p)
	p.Text = fmt.Sprintf("%d of %d answer", answering, asked)
	return p
}

// alike warns of a pair whose servers run different releases of their distribution, as they
// do half way through an upgrade.
func (v *view) alike(p *Part) {
	if v.pair.HA == nil {
		return
	}
	for i, s := range v.answering() {
		first := v.answering()[0]
		a, b := linux.ParseOSRelease(first.host.Files["/etc/os-release"]), linux.ParseOSRelease(s.host.Files["/etc/os-release"])
		if i > 0 && (a.ID != b.ID || a.Version != b.Version) {
			p.find("releases", "releases-differ", with{"host": s.name, "release": b.Name, "other": first.name, "others": a.Name})
		}
	}
}

// links checks that each interface has the MTU of its network in the spec, and that no link of
// a server is slower than the spec says, or damages frames.
func (v *view) links(c *Part, host string, h *gather.Host) {
	for _, want := range v.d.MTUs(host) {
		for _, l := range h.NetLinks {
			if l.MTU != want.MTU && l.Has(want.Address) {
				c.find(l.Name, "mtu-wrong", with{"link": l.Name, "host": host, "address": want.Address, "network": want.Network, "mtu": l.MTU, "want": want.MTU})
			}
		}
	}
	for _, l := range h.NetLinks {
		for _, want := range v.d.Speeds(host) {
			if l.Mbits > 0 && float64(l.Mbits) < want.Mbits && l.Has(want.Address) {
				c.find(l.Name, "link-slow", with{"link": l.Name, "host": host, "address": want.Address, "network": want.Network, "mbits": l.Mbits, "want": want.Mbits})
			}
		}
		if v.byName[host] != nil && l.Errors >= linkErrors {
			c.find(l.Name+" errors", "link-errors", with{"link": l.Name, "host": host, "errors": l.Errors})
		}
	}
}

// skew returns by how much at least a host's clock differs from that of the first
// answering server. A host reads its clock between the question and the answer, so
// each clock is known only to an interval. skew is the gap between the two
// intervals.
func (v *view) skew(name string) (time.Duration, string) {
	interval := func(n string) (lo, hi time.Duration) {
		a := v.facts.Hosts[n]
		return clockAhead(a.Asked, a.Answered, a.Host)
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
		return clockDifference(lo, hi, refLo, refHi), s.name
	}
	return 0, name
}

// ClockSkew is how far clocks may differ; a larger skew harms NFSv4 leases and the
// order of logs.
const ClockSkew = 2 * time.Second

// Ahead returns by how much at least a host's clock is ahead of the caller's, which
// asked the host at asked and had the answer at answered. It is negative if the
// host's clock is behind, and 0 if no difference is certain.
func Ahead(asked, answered time.Time, h *gather.Host) time.Duration {
	lo, hi := clockAhead(asked, answered, h)
	return clockDifference(lo, hi, 0, 0)
}

// clockAhead bounds how far a host's clock is ahead of the caller's.
func clockAhead(asked, answered time.Time, h *gather.Host) (lo, hi time.Duration) {
	now := time.Unix(0, h.NowNS)
	return now.Sub(answered), now.Sub(asked)
}

// clockDifference is how far an interval lies above another: negative if it lies below, 0 if
// they meet.
func clockDifference(lo, hi, refLo, refHi time.Duration) time.Duration {
	switch {
	case lo > refHi:
		return lo - refHi
	case hi < refLo:
		return hi - refLo
	}
	return 0
}

// volumes checks that each logical volume is active on its service's server, and on
// the arrays of the design.
func (v *view) volumes() *Part {
	p := &Part{Name: "volume"}
	var all []string
	for i := range v.pair.Services {
		all = append(all, v.pair.Services[i].Volumes()...)
	}
	n := 0
	for _, name := range all {
		vg, lv, _ := strings.Cut(name, "/")
		s := v.only(p, name, "volume", func(s *server) bool {
			return slices.Contains(slices.Collect(maps.Values(s.host.Mapped())), linux.DMName(vg, lv))
		})
		if s != nil {
			n++
			p.add(name, "active on %s", s.name)
		}
	}
	p.Text = fmt.Sprintf("%d of %d active", n, len(all))
	return p
}

// only returns the server that has a thing. If none has it, or several, it returns nil and
// adds the finding, whose code begins with what the thing is.
func (v *view) only(p *Part, name, what string, has func(*server) bool) *server {
	on := slices.DeleteFunc(v.answering(), func(s *server) bool { return !has(s) })
	switch {
	case len(on) == 1:
		return on[0]
	case len(on) > 1:
		p.find(name, Code(what+"-twice"), with{what: name, "hosts": serverNames(on)})
	case len(v.silent()) > 0:
		p.find(name, Code(what+"-unknown"), with{what: name, "hosts": v.silent()})
	default:
		p.find(name, Code(what+"-missing"), with{what: name})
	}
	return nil
}

// answering returns the servers with facts, in the design's order.
func (v *view) answering() []*server {
	return lists.Only(v.servers, func(s *server) bool { return s.host != nil })
}

// silent returns the names of the servers without facts that may still run. A server
// that the cluster has fenced, or that has left the cluster, does not run.
func (v *view) silent() []string {
	var out []string
	for _, s := range v.servers {
		if s.host != nil {
			continue
		}
		if n := v.crm.Node(s.name); n != nil && !n.Online && !n.Unclean {
			continue
		}
		out = append(out, s.name)
	}
	return out
}

func serverNames(ss []*server) []string {
	return lists.Map(ss, func(s *server) string { return s.name })
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// duration formats a duration in its two largest units.
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

// size formats a size in decimal units, as on the labels of disks.
func size(b uint64) string { return spec.Bytes(b).Decimal() }

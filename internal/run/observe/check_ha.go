package observe

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/serve/ocf"
)

// noCluster returns why an answering server has no view of the cluster.
func (s *server) noCluster() string {
	if s.crmSlow {
		return fmt.Sprintf("the cluster on %s did not answer in time", s.name)
	}
	return fmt.Sprintf("the cluster does not run on %s: %s", s.name, oneLine(s.crmErr))
}

// stopped says whether a server that answers runs no Pacemaker.
func (s *server) stopped() bool {
	return s.host != nil && s.crm == nil && !s.crmSlow && s.crmErr != starting
}

func (s *server) startCluster() string {
	if s.crmSlow {
		return "look again: a server that has just booted is busy; if it stays so, `journalctl -u pacemaker` there"
	}
	return "`systemctl start pacemaker` there (it starts corosync), or `mortar apply`"
}

// cluster checks members, quorum, links, and where each service runs.
func (v *view) cluster() *Part {
	p := &Part{Name: "cluster"}
	ha := v.pair.HA
	if v.crm == nil {
		for _, s := range v.servers {
			if s.host == nil {
				p.add(Unknown, s.name, "%s does not answer", s.name)
				continue
			}
			p.add(Fault, s.name, "%s", s.noCluster()).Mend = s.startCluster()
		}
		p.Text = "no server's cluster answers"
		return p
	}
	m := v.crm
	online := 0
	for _, n := range ha.Nodes {
		c := v.member(n)
		c.Name = n.Name
		if c.Level == OK {
			online++
			if !v.guarded(n.Name) {
				c.add(Warning, "watchdog", "no watchdog runs on %s: if its kernel hangs and no fence device works, it stays so", n.Name).Mend =
					fmt.Sprintf("load the driver of its hardware watchdog (iTCO_wdt, ipmi_watchdog, …) at boot, then `mortar apply %s`", v.d.Spec.File)
			}
		}
		p.Parts = append(p.Parts, c)
	}
	p.Text = fmt.Sprintf("%d of %d servers online", online, len(ha.Nodes))
	if m.DC.Name != "" {
		p.Text += ", coordinator " + m.DC.Name
	}
	switch missing := v.unseen(); {
	case len(missing) > 0:
		c := p.add(Fault, "quorum", "%s waits for %s: after a cold start it has no quorum, fences nobody and starts nothing before it has seen every server (wait_for_all)", v.crmOf.name, list(missing))
		c.Mend = v.mendUnseen(missing[0])
		if v.byName[missing[0]].host != nil {
			c.Mend = "see " + missing[0] + " above"
		}
	case !m.DC.Present:
		c := p.add(Warning, "coordinator", "the cluster has elected no coordinator (DC): it does not act now")
		c.Mend = "normal for some seconds after a start; else see pacemaker.log"
	case !m.DC.Quorum:
		p.add(Fault, "quorum", "%s has no quorum: nothing is started", v.crmOf.name).Mend = "look at corosync's log there"
	}
	if m.Options.Maintenance {
		p.add(Warning, "maintenance", "maintenance mode is on: the cluster watches and does nothing").Mend = "`crm_attribute --type crm_config --name maintenance-mode --delete`"
	}
	if m.Options.StopAll {
		p.add(Fault, "stop-all-resources", "the cluster was told to stop everything").Mend = "`crm_attribute --type crm_config --name stop-all-resources --delete`"
	}
	v.disagreement(p)
	p.Parts = append(p.Parts, v.rings()...)
	for i := range v.pair.Services {
		p.Parts = append(p.Parts, v.service(&v.pair.Services[i]))
	}
	for _, f := range m.Failures {
		if strings.HasPrefix(f.Op, "fence-") || v.fenceDevice(resourceOf(f)) != nil {
			continue // fencing has these
		}
		c := p.add(Warning, resourceOf(f), "%s of %s failed on %s%s: %s", f.Task, resourceOf(f), f.Node, v.at(f.When), failureText(f))
		c.Mend = fmt.Sprintf("when the cause is mended: `crm_resource --cleanup --resource %s`", resourceOf(f))
		switch service, ok := strings.CutPrefix(resourceOf(f), resource.ServiceID("")); {
		case ok && strings.Contains(f.Reason, ocf.Unfinished):
			c.Mend = "wait: Pacemaker tries again by itself, and the next start goes on with the comparison"
		case ok && strings.Contains(f.Reason, ocf.Confirmable):
			c.Mend = fmt.Sprintf("connect the missing disk if it was there when the server died; else `mortar confirm-doubt %s %s` lists what is in doubt and asks", v.d.Spec.File, service)
		}
		if m.barred(resourceOf(f), f.Node) {
			c.Level = Fault
			c.Text += fmt.Sprintf("; it cannot run on %s until that is cleaned up", f.Node)
		}
	}
	for _, n := range v.pair.HA.Nodes {
		for _, id := range m.Lacking(n.Name) {
			c := p.add(Fault, id, "%s cannot run on %s: its agent was not there when the cluster looked, and it does not look again by itself", id, n.Name)
			c.Mend = "`mortar apply` has it look again"
		}
	}
	if v.cib != nil {
		for _, l := range v.cib.Constraints {
			if strings.HasPrefix(l.ID, "cli-") {
				c := p.add(Warning, l.Resource, "a left-over constraint of a move (%s) ties %s: score %s for %s", l.ID, l.Resource, l.Score, l.Node)
				c.Mend = fmt.Sprintf("`crm_resource --resource %s --clear`", l.Resource)
			}
		}
	}
	return p
}

// unseen returns the servers that the cluster waits for since a cold start.
func (v *view) unseen() []string {
	if v.crm == nil || !v.crmOf.waits {
		return nil
	}
	var out []string
	for _, n := range v.pair.HA.Nodes {
		if n.Name != v.crmOf.name && !v.crm.online(n.Name) {
			out = append(out, n.Name)
		}
	}
	return out
}

// mendUnseen is the remedy for a server that the cluster waits for.
func (v *view) mendUnseen(node string) string {
	return fmt.Sprintf("switch %s on, and the cluster starts; if %s is gone for good, cut its power by hand, and then `mortar confirm-off %s %s`", node, node, v.d.Spec.File, node)
}

func (v *view) member(n design.Node) *Part {
	c := v.node(n.Name)
	waited := slices.Contains(v.unseen(), n.Name)
	switch s := v.byName[n.Name]; {
	case c == nil:
		return &Part{Level: Fault, Text: fmt.Sprintf("the cluster does not know %s", n.Name), Mend: "`mortar apply`"}
	case waited && (s == nil || s.host == nil):
		return &Part{Level: Fault, Text: fmt.Sprintf("%s is away since %s has started", n.Name, v.crmOf.name), Mend: v.mendUnseen(n.Name)}
	case c.Unclean && !c.Online && !waited:
		return &Part{Level: Fault, Text: fmt.Sprintf("%s is lost and must be fenced before its service may start elsewhere", n.Name),
			Mend: fmt.Sprintf("fencing is under way, or fails: see below; if nothing can fence it, cut its power by hand, and then `mortar confirm-off %s %s`", v.d.Spec.File, n.Name)}
	case c.Unclean && !waited:
		return &Part{Level: Fault, Text: fmt.Sprintf("%s is unclean: the cluster is about to fence it", n.Name)}
	case !c.Online && s != nil && s.host != nil:
		return &Part{Level: Fault, Text: fmt.Sprintf("%s is up, but not in the cluster", n.Name), Mend: fmt.Sprintf("`systemctl start pacemaker` on %s, once it is known why it left", n.Name)}
	case !c.Online:
		return &Part{Level: Fault, Text: fmt.Sprintf("%s is out of the cluster: no partner is left to take over", n.Name), Mend: "bring it up again; it joins by itself"}
	case c.Pending && s != nil && s.stopped():
		return &Part{Level: Fault, Text: fmt.Sprintf("Corosync runs on %s, but Pacemaker does not: the cluster waits for it, and starts nothing that does not run already", n.Name),
			Mend: fmt.Sprintf("`systemctl start pacemaker` on %s; if it does not stay up, `systemctl stop corosync` there, and the cluster goes on without %s", n.Name, n.Name)}
	case c.Pending:
		return &Part{Level: Warning, Text: n.Name + " is joining", Mend: fmt.Sprintf("wait; if it stays so, `stonith_admin --reboot %s` on %s has it fenced, and the cluster goes on without it", n.Name, v.crmOf.name)}
	case c.Maintenance:
		return &Part{Level: Warning, Text: fmt.Sprintf("%s is in maintenance mode: what runs there is not watched", n.Name)}
	case c.Standby:
		return &Part{Level: Warning, Text: fmt.Sprintf("%s is in standby: it takes over nothing", n.Name), Mend: fmt.Sprintf("`mortar unstandby %s %s`", v.d.Spec.File, n.Name)}
	case c.StandbyFail:
		return &Part{Level: Fault, Text: fmt.Sprintf("%s was put in standby after a failure", n.Name)}
	case c.Health != "" && c.Health != "green":
		return &Part{Level: Warning, Text: fmt.Sprintf("%s is online, its health is %s", n.Name, c.Health)}
	case v.crm.DC.Quorum && v.unwatched(n.Name): // without quorum no resource runs
		return &Part{Level: Warning, Text: fmt.Sprintf("%s is online, but ocf:mortar:watch does not run there: a lost link or path is noticed late", n.Name), Mend: fmt.Sprintf("`mortar apply %s` has Pacemaker start it", v.d.Spec.File)}
	}
	return &Part{Level: OK, Text: "online"}
}

// watchdogStates are the files that say whether a hardware watchdog is fed.
//
// Source: Documentation/ABI/testing/sysfs-class-watchdog
const watchdogStates = "/sys/class/watchdog/watchdog*/state"

// guarded reports whether a watchdog resets a server whose kernel hangs. A server that
// does not answer counts as guarded, and every server of a brick without watchdogs.
func (v *view) guarded(node string) bool {
	s := v.byName[node]
	if s == nil || s.host == nil || !slices.ContainsFunc(v.d.SettingsOf("systemd"), func(x design.Setting) bool { return x.Name == "RuntimeWatchdogSec" }) {
		return true
	}
	for path, text := range s.host.Files {
		if ok, _ := filepath.Match(watchdogStates, path); ok && strings.TrimSpace(text) == "active" {
			return true
		}
	}
	return false
}

// unwatched reports whether a brick with watchers has none on a server.
func (v *view) unwatched(node string) bool {
	known := false
	for _, r := range v.crm.Cloned {
		if r.ID == "mortar-watch" {
			known = true
			if r.Role == "Started" && r.Node() == node {
				return false
			}
		}
	}
	return known
}

// disagreement compares the servers' views of the members: two servers that both
// believe the other is gone are a split brain.
func (v *view) disagreement(p *Part) {
	for i, a := range v.servers {
		for _, b := range v.servers[i+1:] {
			if a.crm == nil || b.crm == nil {
				continue
			}
			aSeesB, bSeesA := a.crm.online(b.name), b.crm.online(a.name)
			switch {
			case !aSeesB && !bSeesA:
				c := p.add(Fault, "split", "%s and %s each believe the other is gone: the cluster is split", a.name, b.name)
				c.Mend = "see the links below; fencing decides who goes on"
			case !aSeesB:
				p.add(Warning, "views", "%s believes that %s is gone, %s does not", a.name, b.name, b.name)
			case !bSeesA:
				p.add(Warning, "views", "%s believes that %s is gone, %s does not", b.name, a.name, a.name)
			}
		}
	}
	for _, s := range v.servers {
		if s.host != nil && s.crm == nil {
			p.add(Fault, s.name, "%s", s.noCluster()).Mend = s.startCluster()
		}
	}
}

// infinity is Pacemaker's INFINITY: Pacemaker does not start a resource again on a
// node where it failed so often.
const infinity = 1000000

func (c *crm) barred(resource, node string) bool {
	for _, n := range c.History {
		for _, h := range n.Resources {
			if n.Node == node && h.ID == resource && h.FailCount >= infinity {
				return true
			}
		}
	}
	return false
}

func (c *crm) online(name string) bool {
	return slices.ContainsFunc(c.Nodes, func(n linux.CRMNode) bool { return n.Name == name && n.Online })
}

// rings checks each corosync link between two servers, from both ends.
func (v *view) rings() []*Part {
	ha := v.pair.HA
	var out []*Part
	links := 0
	for _, n := range ha.Nodes {
		links = max(links, len(n.Rings))
	}
	for id := range links {
		name := fmt.Sprintf("ring %d", id)
		net := v.ringNetwork(id)
		if net != "" {
			name += " (" + net + ")"
		}
		down := map[string]bool{}
		var texts, away, odd []string
		known := false
		for _, n := range ha.Nodes {
			s := v.byName[n.Name]
			if s == nil || s.host == nil || len(s.links) == 0 {
				continue
			}
			var l *link
			for i := range s.links {
				if s.links[i].ID == id {
					l = &s.links[i]
				}
			}
			if l == nil {
				texts = append(texts, fmt.Sprintf("%s has no link %d", n.Name, id))
				continue
			}
			known = true
			for _, peer := range ha.Nodes {
				if peer.ID == n.ID {
					continue
				}
				if c := v.node(peer.Name); c != nil && !c.Online && (!c.Unclean || v.byName[peer.Name].host == nil && slices.Contains(v.unseen(), peer.Name)) {
					away = append(away, peer.Name) // the peer is away, so the link must be down
					continue
				}
				st := l.Peers[peer.ID]
				if st != "" && linkStates[st] == "" {
					odd = append(odd, fmt.Sprintf("%s says of %s: %s", n.Name, peer.Name, st))
					continue
				}
				if st != "connected" {
					a, b := min(n.Name, peer.Name), max(n.Name, peer.Name)
					if !down[a+" "+b] {
						down[a+" "+b] = true
						texts = append(texts, fmt.Sprintf("%s and %s do not reach each other", a, b))
					}
				}
			}
		}
		switch {
		case len(texts) > 0:
			p := &Part{Name: name, Level: Fault, Text: fmt.Sprintf("%s: %s", name, list(texts)), Mend: "look at the link, switch and address of this network on both servers"}
			out = append(out, p)
		case len(odd) > 0:
			out = append(out, &Part{Name: name, Level: Unknown, Text: fmt.Sprintf("%s: %s", name, list(odd)), Mend: "see `corosync-cfgtool -s` on both servers"})
		case !known:
			out = append(out, &Part{Name: name, Level: Unknown, Text: "corosync could not be asked"})
		case len(away) > 0:
			out = append(out, &Part{Name: name, Level: Unknown, Text: list(away) + isAre(len(away)) + " away"})
		default:
			out = append(out, &Part{Name: name, Text: "connected"})
		}
	}
	return out
}

// ringNetwork is the name of a ring's network.
func (v *view) ringNetwork(id int) string {
	n := v.pair.HA.Nodes[0]
	if id >= len(n.Rings) {
		return ""
	}
	for _, s := range v.d.Spec.Servers {
		if s.Name != n.Name {
			continue
		}
		switch n.Rings[id] {
		case s.Private:
			return "private"
		case s.Public:
			return "public"
		case s.Address:
			return "management"
		}
	}
	return ""
}

// service checks that a service runs, and that it runs on its preferred server.
func (v *view) service(svc *design.Service) *Part {
	p := &Part{Name: "service " + svc.Name}
	r := v.crm.resource(svc.Name, v.pair.Services)
	if r == nil {
		p.Level, p.Text, p.Mend = Fault, fmt.Sprintf("the cluster does not know service %s", svc.Name), "`mortar apply`"
		return p
	}
	w := v.where(svc)
	since := ""
	if w.Since != nil {
		since = " since " + v.clock(*w.Since)
	}
	switch {
	case r.Blocked:
		p.Level, p.Text = Fault, fmt.Sprintf("service %s is blocked: the cluster cannot stop or start it safely", svc.Name)
	case len(r.Nodes) > 1:
		p.Level, p.Text = Fault, fmt.Sprintf("service %s is active on more than one server", svc.Name)
	case w.Server == "":
		p.Level, p.Text = Fault, fmt.Sprintf("service %s runs nowhere (%s)", svc.Name, strings.ToLower(r.Role))
		p.Mend = "see the failures and fencing below"
		if len(v.unseen()) > 0 {
			p.Mend = "see quorum above"
		}
	case r.Failed:
		p.Level, p.Text = Fault, fmt.Sprintf("service %s has failed on %s", svc.Name, w.Server)
	case r.Role != "Started":
		p.Level, p.Text = Warning, fmt.Sprintf("service %s is %s on %s", svc.Name, strings.ToLower(r.Role), w.Server)
	case v.node(w.Server) != nil && v.node(w.Server).Unclean:
		p.Level, p.Text = Fault, fmt.Sprintf("service %s was on %s, which is lost: it waits for fencing", svc.Name, w.Server)
	case !r.Managed:
		p.Level, p.Text = Warning, fmt.Sprintf("service %s on %s is not managed: nothing would restart it", svc.Name, w.Server)
	case w.Server != svc.Preferred:
		p.Level, p.Text = Warning, fmt.Sprintf("service %s on %s%s, its preferred server is %s", svc.Name, w.Server, since, svc.Preferred)
		which := ""
		if len(v.pair.Services) > 1 {
			which = " " + svc.Name
		}
		p.Mend = fmt.Sprintf("`mortar failback %s%s` when it suits", v.d.Spec.File, which)
		if n := v.node(svc.Preferred); n != nil && n.Standby {
			p.Mend = fmt.Sprintf("first `mortar unstandby %s %s`, then ", v.d.Spec.File, svc.Preferred) + p.Mend
		}
	default:
		p.Text = fmt.Sprintf("on %s%s", w.Server, since)
	}
	return p
}

func resourceOf(f linux.CRMFailure) string {
	// nfs_monitor_10000: resource, operation, interval.
	if i := strings.LastIndexByte(f.Op, '_'); i > 0 {
		if j := strings.LastIndexByte(f.Op[:i], '_'); j > 0 {
			return f.Op[:j]
		}
	}
	return f.Op
}

func failureText(f linux.CRMFailure) string {
	s := strings.ToLower(f.Status)
	if f.Reason != "" {
		s += ": " + f.Reason
	}
	if f.State != "" && f.State != "Done" && f.State != "complete" {
		s += " (" + strings.ToLower(f.State) + ")"
	}
	return s
}

// at formats a time as " at 14:02", "" if it cannot be parsed.
func (v *view) at(when string) string {
	t, ok := linux.ParseCRMTime(when, v.crmOf.host.UTCOffset)
	if !ok {
		return ""
	}
	return " at " + v.clock(t)
}

// clock formats a time in the reader's zone, with the date only if it is not today.
func (v *view) clock(t time.Time) string {
	t = t.In(v.now.Location())
	if t.Format(time.DateOnly) == v.now.Format(time.DateOnly) {
		return t.Format("15:04")
	}
	return t.Format("2006-01-02 15:04")
}

func (v *view) fenceDevice(id string) *design.FenceDevice {
	for i := range v.pair.HA.Fencing {
		for j := range v.pair.HA.Fencing[i].Devices {
			if v.pair.HA.Fencing[i].Devices[j].ID == id {
				return &v.pair.HA.Fencing[i].Devices[j]
			}
		}
	}
	return nil
}

// fencing checks that every level is configured, that every device is registered and
// answers, and that fencing has worked.
func (v *view) fencing() *Part {
	p := &Part{Name: "fencing"}
	if v.crm == nil {
		return unknown(p, "the cluster cannot be asked")
	}
	if !v.crm.Options.Stonith {
		f := p.add(Fault, "stonith-enabled", "fencing is switched off: a failover can destroy data")
		f.Mend = "`crm_attribute --type crm_config --name stonith-enabled --update true`"
	}
	nodes := []string{}
	for _, l := range v.pair.HA.Fencing {
		if !slices.Contains(nodes, l.Node) {
			nodes = append(nodes, l.Node)
		}
	}
	ready := 0
	told := map[string]bool{}
	for _, node := range nodes {
		c := p.add(OK, node, "")
		var levels []string
		usable := false
		for i := range v.pair.HA.Fencing {
			l := &v.pair.HA.Fencing[i]
			if l.Node != node {
				continue
			}
			good := true
			var ids []string
			for j := range l.Devices {
				ids = append(ids, l.Devices[j].ID)
				if f := v.device(&l.Devices[j], node); f != nil {
					if !told[l.Devices[j].ID] { // a PDU serves both servers
						c.Parts = append(c.Parts, f)
						told[l.Devices[j].ID] = true
					}
					good = good && f.Level != Fault
				}
			}
			if v.cib != nil && !HasLevel(v.cib, l) {
				f := c.add(Fault, fmt.Sprintf("level %d", l.Level), "level %d of fencing %s (%s) is not in the cluster's configuration", l.Level, node, list(ids))
				f.Mend = "`mortar apply`"
				good = false
			}
			usable = usable || good
			levels = append(levels, fmt.Sprintf("%d %s", l.Level, strings.Join(ids, " + ")))
		}
		c.Text = "level " + strings.Join(levels, ", level ")
		if usable {
			ready++
		} else {
			f := c.add(Fault, "levels", "%s cannot be fenced: no level of it works; a failure of %s would stop its service", node, node)
			f.Mend = "mend the devices named here first of all"
		}
		v.history(c, node)
	}
	p.Text = fmt.Sprintf("%d of %d servers can be fenced", ready, len(nodes))
	return p
}

// HasLevel reports whether the topology has a level as designed.
func HasLevel(c *linux.CIB, want *design.FenceLevel) bool {
	return slices.ContainsFunc(c.Levels, func(l linux.CIBLevel) bool {
		have := strings.Split(l.Devices, ",")
		for i := range have {
			have[i] = strings.TrimSpace(have[i])
		}
		slices.Sort(have)
		return l.Target == want.Node && l.Index == want.Level && slices.Equal(have, slices.Sorted(slices.Values(want.IDs())))
	})
}

// device judges one fence device; nil if it is ok.
func (v *view) device(dev *design.FenceDevice, node string) *Part {
	var r *linux.CRMResource
	for i := range v.crm.Resources {
		if v.crm.Resources[i].ID == dev.ID {
			r = &v.crm.Resources[i]
		}
	}
	f := &Part{Name: dev.ID, Level: Fault}
	switch {
	case r == nil:
		f.Text, f.Mend = fmt.Sprintf("fence device %s (%s) is not registered", dev.ID, dev.Agent), "`mortar apply`"
		return f
	case r.Failed, r.Node() == "":
		f.Text = fmt.Sprintf("fence device %s (%s) does not work", dev.ID, dev.Agent)
		for _, x := range v.crm.Failures {
			if resourceOf(x) == dev.ID {
				f.Text += fmt.Sprintf(": its %s failed on %s%s: %s", x.Task, x.Node, v.at(x.When), failureText(x))
			}
		}
		f.Mend = fmt.Sprintf("see that it has power and answers, then `crm_resource --cleanup --resource %s`", dev.ID)
		if r.Node() == "" && !r.Failed && !v.failed(dev.ID) {
			// Stopped without a failure: perhaps no node is left for the device,
			// which never runs on the node that it fences.
			others := false
			for _, n := range v.crm.Nodes {
				others = others || n.Name != node && n.Online && !n.Standby
			}
			f.Level, f.Mend = Warning, ""
			if others {
				// This is normal for some time after a server joined: the cluster
				// starts devices one after the other.
				f.Text = fmt.Sprintf("fence device %s is not watched now: the cluster has not started it", dev.ID)
				f.Mend = fmt.Sprintf("if it stays so: `crm_resource --cleanup --resource %s`", dev.ID)
			} else {
				f.Text = fmt.Sprintf("fence device %s has no server to run on: the other one is away", dev.ID)
			}
		}
		return f
	}
	return nil
}

func (v *view) failed(id string) bool {
	return slices.ContainsFunc(v.crm.Failures, func(f linux.CRMFailure) bool { return resourceOf(f) == id })
}

// history adds whether fencing of a node is under way or failed, and when it last
// worked.
func (v *view) history(c *Part, node string) {
	offset := v.crmOf.host.UTCOffset
	var good, ended, bad time.Time // ended: the last success, including confirmations by a person
	var badWhy string
	pending := false
	for _, e := range v.crm.Fences {
		if e.Target != node || e.Action == "on" || e.Action == "monitor" {
			continue
		}
		t, _ := linux.ParseCRMTime(e.Completed, offset)
		switch e.Status {
		case "success":
			if t.After(ended) {
				ended = t
			}
			// Source: Pacemaker's fencer, fenced_handle_manual_confirmation
			if t.After(good) && e.Delegate != "a human" {
				good = t
			}
		case "failed":
			if t.After(bad) {
				bad, badWhy = t, e.Reason
			}
		case "pending":
			pending = true
		}
	}
	if pending {
		c.add(Warning, "now", "%s is being fenced", node)
	}
	switch {
	case bad.After(ended):
		f := c.add(Fault, "history", "fencing of %s failed at %s", node, v.clock(bad))
		if badWhy != "" {
			f.Text += ": " + badWhy
		}
		f.Mend = "see pacemaker.log; a service waits until fencing works"
		if v.crm.online(node) {
			// The node is back and the cluster no longer waits: a person may have
			// confirmed it off while the last attempt was still under way.
			f.Level = Warning
			f.Mend = fmt.Sprintf("see pacemaker.log; `mortar fence-test %s --node %s` shows whether it works again", v.d.Spec.File, node)
		}
	}
	v.proven(c, node, good)
}

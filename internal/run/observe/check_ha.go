package observe

import (
	"cmp"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/mortarhpc/mortar/internal/base/health"
	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/host/gather"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/serve/refusal"
	"github.com/mortarhpc/mortar/internal/serve/unit"
)

// ha judges the cluster of a pair: its members, services and fencing, and their power.
type ha struct{ *view }

// noCluster makes a part the finding that an answering server has no view of the cluster.
func (s *server) noCluster(p *Part) *Part {
	if s.cluster.Slow {
		return p.is("cluster-slow", with{"host": s.name})
	}
	return p.is("cluster-stopped", with{"host": s.name, "error": oneLine(s.cluster.Err)})
}

// stopped says whether a server that answers runs no Pacemaker.
func (s *server) stopped() bool {
	return s.host != nil && s.cluster.CRM == nil && !s.cluster.Slow && !s.cluster.Starting
}

// cluster checks members, quorum, links, and where each service runs.
func (v ha) cluster() *Part {
	p := &Part{Name: "cluster"}
	ha := v.pair.HA
	if v.crm == nil {
		for _, s := range v.servers {
			if s.host == nil {
				p.find(s.name, "host-unknown", with{"host": s.name})
				continue
			}
			s.noCluster(p.add(s.name, ""))
		}
		p.Text = "no server's cluster answers"
		return p
	}
	m := v.crm
	online := 0
	for _, n := range ha.Nodes {
		c := v.member(n.Name)
		if c.Level == OK {
			online++
			if !v.guarded(n.Name) {
				c.find("watchdog", "watchdog-missing", with{"host": n.Name})
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
		c := p.find("quorum", QuorumWaits, with{"host": v.crmOf.name, "missing": missing, "off": missing[0]})
		if v.byName[missing[0]].host != nil {
			c.Mend = "see " + missing[0] + " above"
		}
	case !m.DC.Present:
		p.find("coordinator", "coordinator-missing", nil)
	case !m.DC.Quorum:
		p.find("quorum", "quorum-missing", with{"host": v.crmOf.name})
	}
	if m.Options.Maintenance {
		p.find("maintenance", "cluster-maintenance", nil)
	}
	if m.Options.StopAll {
		p.find("stop-all-resources", "cluster-stops-all", nil)
	}
	v.disagreement(p)
	v.rings(p)
	for i := range v.pair.Services {
		v.service(p, &v.pair.Services[i])
	}
	for _, f := range m.Failures {
		if strings.HasPrefix(f.Op, "fence-") {
			continue // fencing has these
		}
		code, args := Code("action-failed"), with{"resource": f.Resource(), "task": f.Task, "host": f.Node, "time": strings.TrimPrefix(v.at(f.When), " at "), "failure": f.String()}
		if service, ok := strings.CutPrefix(f.Resource(), resource.ServiceID("")); ok {
			said := refusal.CodeIn(f.Reason)
			args["service"], args["refusal"] = service, said
			code = cmp.Or(ofRefusal[said], code)
		}
		if m.Barred(f.Resource(), f.Node) {
			args["barred"] = f.Node
		}
		if c := p.find(f.Resource(), code, args); args["barred"] != nil {
			c.Level = Fault
		}
	}
	for _, n := range v.pair.HA.Nodes {
		for _, id := range m.Lacking(n.Name) {
			p.find(id, "agent-missing", with{"resource": id, "host": n.Name})
		}
	}
	for _, l := range v.cib.Moves() {
		p.find(l.Resource, MoveLeftover, with{"resource": l.Resource, "constraint": l.ID, "score": l.Score, "host": l.Node})
	}
	return p
}

// ofRefusal are the findings of refusals that have a remedy of their own.
var ofRefusal = map[refusal.Code]Code{refusal.Comparing: "service-compares", refusal.InDoubt: ServiceInDoubt, refusal.Damaged: ServiceDamaged}

// unseen returns the servers that the cluster waits for since a cold start.
func (v *view) unseen() []string {
	if v.crm == nil || !v.crmOf.cluster.Waits {
		return nil
	}
	var out []string
	for _, n := range v.pair.HA.Nodes {
		if n.Name != v.crmOf.name && !v.crm.Online(n.Name) {
			out = append(out, n.Name)
		}
	}
	return out
}

// member judges a server as a member of the cluster.
func (v ha) member(node string) *Part {
	p := &Part{Name: node, Text: "online"}
	c := v.crm.Node(node)
	if c == nil {
		return p.is("member-unknown", with{"host": node})
	}
	s, waited := v.byName[node], slices.Contains(v.unseen(), node)
	up := s != nil && s.host != nil
	return p.first(with{"host": node, "asked": v.crmOf.name, "health": c.Health}, []condition{
		{waited && !up, "member-awaited"},
		{c.Unclean && !c.Online && !waited, MemberLost},
		{c.Unclean && !waited, "member-unclean"},
		{!c.Online && up, "member-left"},
		{!c.Online, "member-away"},
		{c.Pending && up && s.stopped(), "pacemaker-stopped"},
		{c.Pending, "member-joins"},
		{c.Maintenance, "member-maintenance"},
		{c.Standby, InStandby},
		{c.StandbyFail, "standby-after-failure"},
		{c.Health != "" && c.Health != "green", "member-health"},
		{v.crm.DC.Quorum && v.unwatched(node), "watcher-missing"}, // without quorum no resource runs
	})
}

// watchdogStates are the files that say whether a hardware watchdog is fed.
//
// Source: Documentation/ABI/testing/sysfs-class-watchdog
const watchdogStates = "/sys/class/watchdog/watchdog*/state"

// guarded reports whether a watchdog resets a server whose kernel hangs. A server that
// does not answer counts as guarded, and every server of a brick without watchdogs.
func (v ha) guarded(node string) bool {
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
func (v ha) unwatched(node string) bool {
	watch := func(r linux.CRMResource) bool { return r.ID == "mortar-watch" }
	return slices.ContainsFunc(v.crm.Cloned, watch) &&
		!slices.ContainsFunc(v.crm.Cloned, func(r linux.CRMResource) bool { return watch(r) && r.Role == "Started" && r.Node() == node })
}

// disagreement compares the servers' views of the members: two servers that both
// believe the other is gone are a split brain.
func (v ha) disagreement(p *Part) {
	if a, b := v.servers[0], v.servers[1]; a.cluster.CRM != nil && b.cluster.CRM != nil {
		switch aSeesB, bSeesA := a.cluster.Online(b.name), b.cluster.Online(a.name); {
		case !aSeesB && !bSeesA:
			p.find("split", "cluster-split", with{"host": a.name, "other": b.name})
		case !aSeesB:
			p.find("views", "views-differ", with{"host": a.name, "other": b.name})
		case !bSeesA:
			p.find("views", "views-differ", with{"host": b.name, "other": a.name})
		}
	}
	for _, s := range v.servers {
		if s.host != nil && s.cluster.CRM == nil {
			s.noCluster(p.add(s.name, ""))
		}
	}
}

// rings checks each corosync link between two servers, from both ends.
func (v ha) rings(p *Part) {
	ha := v.pair.HA
	links := 0
	for _, n := range ha.Nodes {
		links = max(links, len(n.Rings))
	}
	for id := range links {
		v.ring(p, id)
	}
}

func (v ha) ring(p *Part, id int) {
	name := fmt.Sprintf("ring %d", id)
	if net := v.ringNetwork(id); net != "" {
		name += " (" + net + ")"
	}
	var texts, away, odd []string
	known := false
	for _, n := range v.pair.HA.Nodes {
		s := v.byName[n.Name]
		i := slices.IndexFunc(s.links, func(l linux.Ring) bool { return l.ID == id })
		switch {
		case len(s.links) == 0:
			continue
		case i < 0:
			texts = append(texts, fmt.Sprintf("%s has no link %d", n.Name, id))
			continue
		}
		known = true
		for _, peer := range v.pair.HA.Nodes {
			c, st := v.crm.Node(peer.Name), s.links[i].Peers[peer.ID]
			switch text := fmt.Sprintf("%s and %s do not reach each other", min(n.Name, peer.Name), max(n.Name, peer.Name)); {
			case peer.ID == n.ID:
			case c != nil && !c.Online && (!c.Unclean || v.byName[peer.Name].host == nil && slices.Contains(v.unseen(), peer.Name)):
				away = append(away, peer.Name) // so the link must be down
			case st != "" && linux.RingStates[st] == "":
				odd = append(odd, fmt.Sprintf("%s says of %s: %s", n.Name, peer.Name, st))
			case st != "connected" && !slices.Contains(texts, text):
				texts = append(texts, text)
			}
		}
	}
	switch {
	case len(texts) > 0:
		p.find(name, "ring-broken", with{"ring": name, "failures": texts})
	case len(odd) > 0:
		p.find(name, "ring-unread", with{"ring": name, "states": odd})
	case !known:
		p.find(name, "ring-unknown", with{"ring": name})
	case len(away) > 0:
		p.find(name, "ring-alone", with{"ring": name, "hosts": away})
	default:
		p.add(name, "connected")
	}
}

// ringNetwork is the name of a ring's network.
func (v ha) ringNetwork(id int) string {
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
		}
	}
	return ""
}

// service checks that a service runs, and that it runs on its preferred server.
func (v ha) service(p *Part, svc *design.Service) {
	name := "service " + svc.Name
	r := gather.ServiceIn(v.crm, svc.Name)
	if r == nil {
		p.find(name, "service-undefined", with{"service": svc.Name})
		return
	}
	w := v.where(svc)
	args := with{"service": svc.Name, "host": w.Server, "preferred": svc.Preferred, "role": strings.ToLower(r.Role), "since": "", "which": ""}
	if w.Since != nil {
		args["since"] = v.clock(*w.Since)
	}
	if len(v.pair.Services) > 1 {
		args["which"] = svc.Name
	}
	if n := v.crm.Node(svc.Preferred); n != nil && n.Standby {
		args["standby"] = svc.Preferred
	}
	for _, s := range v.servers {
		var p unit.Progress
		if s.name == w.Server && s.host != nil && json.Unmarshal([]byte(s.host.Files[unit.ProgressFile(svc.Name)]), &p) == nil {
			args["progress"] = &p
		}
	}
	n := v.crm.Node(w.Server)
	text, _ := health.Fill("on {host}[ since {since}]", args)
	p.add(name, "%s", text).first(args, []condition{
		{r.Blocked, "service-blocked"},
		{len(r.Nodes) > 1, "service-twice"},
		{w.Server == "" && len(v.unseen()) > 0, "service-awaits-quorum"},
		{w.Server == "" && !r.Managed, "service-left-alone"},
		{w.Server == "", "service-stopped"},
		{r.Failed, "service-failed"},
		{r.Role != "Started", "service-changing"},
		{n != nil && n.Unclean, ServiceAwaitsFencing},
		{!r.Managed, "service-unmanaged"},
		{w.Server != svc.Preferred, "service-away"},
	})
}

// at formats a time as " at 14:02", "" if it cannot be parsed.
func (v ha) at(when string) string {
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

// fencing checks that every level is configured, that every device is registered and
// answers, and that fencing has worked.
func (v ha) fencing() *Part {
	p := &Part{Name: "fencing"}
	if v.crm == nil {
		return p.is("fencing-unknown", nil)
	}
	if !v.crm.Options.Stonith {
		p.find("stonith-enabled", "fencing-off", nil)
	}
	ready := 0
	told := map[string]bool{}
	for _, n := range v.pair.HA.Nodes {
		c := p.add(n.Name, "")
		var levels []string
		usable := false
		for _, l := range v.pair.HA.Levels(n.Name) {
			good := true
			for _, f := range v.devices(l) {
				if !told[f.Name] { // a PDU serves both servers
					c.Parts = append(c.Parts, f)
					told[f.Name] = true
				}
				good = good && f.Level != Fault
			}
			if v.cib != nil && !slices.ContainsFunc(v.cib.Levels, func(has linux.CIBLevel) bool { return isLevel(has, l) }) {
				c.find(fmt.Sprintf("level %d", l.Level), "fencing-level-missing", with{"level": l.Level, "host": n.Name, "devices": l.IDs()})
				good = false
			}
			usable = usable || good
			levels = append(levels, fmt.Sprintf("%d %s", l.Level, strings.Join(l.IDs(), " + ")))
		}
		c.Text = "level " + strings.Join(levels, ", level ")
		if usable {
			ready++
		} else {
			c.find("levels", "fencing-impossible", with{"host": n.Name})
		}
		v.hedge(c, n.Name)
		v.history(c, n.Name)
	}
	p.Text = fmt.Sprintf("%d of %d servers can be fenced", ready, len(v.pair.HA.Nodes))
	return p
}

// hedge warns if the device that does not wait for a dead one is not used: the levels behind
// it fence all the same, one after the other.
func (v ha) hedge(c *Part, node string) {
	for _, l := range v.pair.HA.Topology(node) {
		if l.Level > 0 {
			continue
		}
		if v.cib != nil && !HasLevel(v.cib, l) {
			c.find("hedge", "fencing-waits", with{"host": node, "devices": l.IDs()})
			continue
		}
		for _, f := range v.devices(l) {
			if f.Level == Fault { // of one that is only stopped, the devices of the levels tell
				f.Level = Warning
				c.Parts = append(c.Parts, f)
			}
		}
	}
}

// devices judges the fence devices of a level; those that are ok are left out.
func (v ha) devices(l *design.FenceLevel) (out []*Part) {
	for i := range l.Devices {
		if f := v.device(&l.Devices[i], l.Node); f != nil {
			out = append(out, f)
		}
	}
	return out
}

// HasLevel reports whether the topology has a level as designed.
func HasLevel(c *linux.CIB, want *design.FenceLevel) bool {
	return slices.ContainsFunc(c.Levels, func(l linux.CIBLevel) bool { return l.Index == want.Index && isLevel(l, want) })
}

// isLevel reports whether a level has the devices of the design, in any place: before apply has
// put the hedge there, the levels of an older version are one place further up.
func isLevel(l linux.CIBLevel, want *design.FenceLevel) bool {
	have := strings.Split(l.Devices, ",")
	for i := range have {
		have[i] = strings.TrimSpace(have[i])
	}
	slices.Sort(have)
	return l.Target == want.Node && slices.Equal(have, slices.Sorted(slices.Values(want.IDs())))
}

// device judges one fence device; nil if it is ok.
func (v ha) device(dev *design.FenceDevice, node string) *Part {
	r := v.crm.Resource(dev.ID)
	f, args := &Part{Name: dev.ID}, with{"device": dev.ID, "agent": dev.Agent, "host": node}
	switch {
	case r == nil:
		return f.is("fence-device-missing", args)
	case !r.Failed && r.Node() != "":
		return nil
	}
	var failures []string
	for _, x := range v.crm.Failures {
		if x.Resource() == dev.ID {
			failures = append(failures, fmt.Sprintf("its %s failed on %s%s: %s", x.Task, x.Node, v.at(x.When), x))
		}
	}
	if r.Failed || len(failures) > 0 {
		args["failures"] = strings.Join(failures, ": ")
		return f.is("fence-device-failed", args)
	}
	// Stopped without a failure: perhaps no node is left for the device, which never runs on
	// the node that it fences. That it is stopped is normal for some time after a server
	// joined: the cluster starts devices one after the other.
	if slices.ContainsFunc(v.crm.Nodes, func(n linux.CRMNode) bool { return n.Name != node && n.Online && !n.Standby }) {
		return f.is("fence-device-unwatched", args)
	}
	return f.is("fence-device-homeless", args)
}

// history adds whether fencing of a node is under way or failed, and when it last
// worked.
func (v ha) history(c *Part, node string) {
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
		c.find("now", "fencing-now", with{"host": node})
	}
	if bad.After(ended) {
		code := Code("fencing-failed")
		if v.crm.Online(node) {
			// The node is back and the cluster no longer waits: a person may have
			// confirmed it off while the last attempt was still under way.
			code = "fencing-failed-before"
		}
		c.find("history", code, with{"host": node, "time": v.clock(bad), "why": badWhy})
	}
	v.proven(c, node, good)
}

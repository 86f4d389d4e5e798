package observe

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/host/gather"
)

// lustreKind are targets of a Lustre file system.
type lustreKind struct{ *view }

// lustreHealth contains "healthy" while no target of a server has a fault.
//
// Source: Lustre Operations Manual, health_check
const lustreHealth = "/sys/fs/lustre/health_check"

func (v lustreKind) request(_ *design.Service, r *gather.Request) {
	if slices.Contains(r.Files, lustreHealth) {
		return // another service has added them
	}
	r.Files = append(r.Files, lustreHealth)
	r.Run = append(r.Run, strings.Fields(gather.CmdTargets))
}

// parts checks that each target is mounted once and on its preferred server, that
// the servers are healthy, that clients reconnected after the last start, and the
// free space.
func (v lustreKind) parts() []*Part {
	return []*Part{v.targets(), v.recovery(), v.space()}
}

func (v lustreKind) targets() *Part {
	p := &Part{Name: "target"}
	n, all := 0, v.pair.Targets()
	for _, t := range all {
		s := v.only(p, t.Name, "target", func(s *server) bool {
			m, ok := linux.MountAt(s.mounts, t.MountPoint)
			return ok && strings.HasPrefix(m.Type, "lustre")
		})
		switch {
		case s == nil:
			continue
		case s.name != t.Server:
			p.find(t.Name, "target-away", with{"target": t.Name, "host": s.name, "home": t.Server})
		default:
			p.add(t.Name, "on %s", s.name)
		}
		n++
	}
	for _, s := range v.answering() {
		if text := strings.TrimSpace(s.host.Files[lustreHealth]); text != "" && text != "healthy" {
			p.find(s.name, "lustre-unhealthy", with{"host": s.name, "text": oneLine(text)})
		}
	}
	p.Text = fmt.Sprintf("%d of %d mounted", n, len(all))
	return p
}

// params returns the parameters of the targets on the answering servers.
func (v lustreKind) params() map[string]string {
	all := map[string]string{}
	for _, s := range v.answering() {
		maps.Copy(all, linux.ParseParams(s.host.Run[gather.CmdTargets].Stdout))
	}
	return all
}

// recovery checks the targets' recovery. After its start a target waits for its
// former clients. It evicts clients that do not reconnect in time, and their
// unwritten data is lost.
//
// Source: Lustre Operations Manual, 37 (recovery)
func (v lustreKind) recovery() *Part {
	p := &Part{Name: "recovery"}
	params := v.params()
	n, all := 0, 0
	for _, t := range v.pair.Targets() {
		if t.Kind == "mgs" {
			continue // an MGS has no recovery
		}
		all++
		kind := map[string]string{"mdt": "mdt", "ost": "obdfilter"}[t.Kind]
		k := linux.ParseKeys(params[kind+"."+t.Name+".recovery_status"])
		var came, had int
		clients := k["completed_clients"]
		if !strings.Contains(clients, "/") { // while it recovers: how many are done, of those that are connected
			clients = cmp.Or(k["connected_clients"], clients)
		}
		if _, err := fmt.Sscanf(clients, "%d/%d", &came, &had); clients != "" && err != nil {
			p.find(t.Name, "recovery-unread", with{"target": t.Name, "clients": clients})
			continue
		}
		switch k["status"] {
		case "":
			p.find(t.Name, "target-unseen", with{"target": t.Name})
		case "INACTIVE", "COMPLETE":
			n++
			switch {
			case came < had:
				p.find(t.Name, "clients-evicted", with{"target": t.Name, "evicted": had - came, "clients": had})
			case had > 0:
				p.add(t.Name, "%d of %d clients came back after the last start, in %s s", came, had, k["recovery_duration"])
			}
		default: // RECOVERING, WAITING, WAITING_FOR_CLIENTS and what later versions have
			p.find(t.Name, "in-recovery", with{"target": t.Name, "state": strings.ToLower(k["status"]), "back": came, "clients": had, "left": k["time_remaining"]})
		}
	}
	p.Text = fmt.Sprintf("%d of %d targets have their clients", n, all)
	return p
}

// unevenWarn is how far the fullest OST may be ahead of the emptiest, in percentage
// points. Within 17 Lustre gives new files to OSTs in turn. Beyond that the emptier
// OSTs get more files, and become slower.
//
// Source: Lustre Operations Manual, qos_threshold_rr
const unevenWarn = 17

// space checks that no target is full of data or inodes, and that OSTs fill evenly.
func (v lustreKind) space() *Part {
	p := &Part{Name: "space"}
	params := v.params()
	used := func(target, total, free string) (float64, bool) {
		t, err1 := strconv.ParseFloat(params["osd-ldiskfs."+target+"."+total], 64)
		f, err2 := strconv.ParseFloat(params["osd-ldiskfs."+target+"."+free], 64)
		if err1 != nil || err2 != nil || t == 0 {
			return 0, false
		}
		return 100 * (t - min(f, t)) / t, true
	}
	type filled struct {
		name string
		used float64
	}
	var osts []filled
	for _, t := range v.pair.Targets() {
		name := t.Name
		if t.Kind == "mgs" {
			name = "MGS"
		}
		u, ok := used(name, "kbytestotal", "kbytesavail")
		if !ok {
			p.find(t.Name, "target-unseen", with{"target": t.Name})
			continue
		}
		inodes, ok := used(name, "filestotal", "filesfree")
		if !ok {
			p.find(t.Name, "inodes-unread", with{"target": t.Name, "used": u})
			continue
		}
		c := p.add(t.Name, "%.0f %% of its space and %.0f %% of its inodes used", u, inodes)
		fullness(c, t.Name, t.Server, "space", u)
		fullness(c, t.Name, t.Server, "inodes", inodes)
		if t.Kind == "ost" {
			osts = append(osts, filled{t.Name, u})
		}
	}
	if len(osts) == 0 {
		return p
	}
	less := func(a, b filled) int { return cmp.Compare(a.used, b.used) }
	low, high := slices.MinFunc(osts, less), slices.MaxFunc(osts, less)
	p.Text = fmt.Sprintf("OSTs are %.0f %% to %.0f %% full", low.used, high.used)
	if high.used-low.used > unevenWarn {
		p.find("balance", "osts-uneven", with{"target": high.name, "used": high.used, "other": low.name, "less": low.used, "ost": high.name[strings.LastIndex(high.name, "-")+1:]})
	}
	return p
}

// clients checks that each client has the file system mounted.
func (v lustreKind) clients() *Part {
	p := &Part{Name: "client"}
	good, silent := 0, 0
	for _, want := range v.d.Mounts {
		a, asked := v.facts.Hosts[want.Client]
		switch {
		case !asked:
			continue
		case a.Host == nil:
			silent++ // named among the hosts
			continue
		}
		if m, ok := linux.MountAt(linux.ParseMounts(a.Host.Files["/proc/self/mounts"]), want.Path); !ok || m.Type != "lustre" {
			p.find(want.Client, "mount-missing", with{"mount": want.Path, "host": want.Client})
			continue
		}
		good++
		p.add(want.Client, "%s mounted", want.Path)
	}
	p.Text = fmt.Sprintf("%d of %d mounted", good, len(p.Parts)+silent)
	return p
}

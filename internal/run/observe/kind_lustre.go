package observe

import (
	"fmt"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/brick/design"
)

// lustreKind are targets of a Lustre file system.
type lustreKind struct{ *view }

// lustreHealth says "healthy" while no target of a server is in trouble.
//
// Source: Lustre Operations Manual, health_check
const lustreHealth = "/sys/fs/lustre/health_check"

func (v lustreKind) request(_ *design.Service, r *Request) {
	r.Files = append(r.Files, lustreHealth)
}

// parts: is each target mounted, once, at home; are the servers healthy.
func (v lustreKind) parts() []*Part {
	p := &Part{Name: "target"}
	if len(v.answering()) == 0 {
		return []*Part{unknown(p, "no server answers")}
	}
	n, all := 0, v.pair.Targets()
	for _, t := range all {
		var on []*server
		for _, s := range v.servers {
			if m, ok := linux.MountAt(s.mounts, t.MountPoint); ok && strings.HasPrefix(m.Type, "lustre") {
				on = append(on, s)
			}
		}
		switch {
		case len(on) == 0 && len(v.silent()) > 0:
			p.add(Unknown, t.Name, "mounted on no server that answers; %s may have it", list(v.silent()))
		case len(on) == 0:
			p.add(Fault, t.Name, "target %s is not mounted on any server", t.Name)
		case len(on) > 1:
			c := p.add(Fault, t.Name, "target %s is mounted on %s at once: this destroys it", t.Name, list(serverNames(on)))
			c.Mend = "stop the service on one of them now, and find out why fencing did not"
		case on[0].name != t.Server:
			n++
			p.add(Warning, t.Name, "on %s; its home is %s", on[0].name, t.Server).Mend = "`mortar failback` takes it home"
		default:
			n++
			p.add(OK, t.Name, "on %s", on[0].name)
		}
	}
	for _, s := range v.answering() {
		if text := strings.TrimSpace(s.host.Files[lustreHealth]); text != "" && text != "healthy" {
			p.add(Fault, s.name, "Lustre on %s is not healthy: %s", s.name, oneLine(text)).Mend = "look at its kernel log"
		}
	}
	p.Text = fmt.Sprintf("%d of %d mounted", n, len(all))
	return []*Part{p}
}

// clients: is the file system mounted on each.
func (v lustreKind) clients() *Part {
	p := &Part{Name: "client"}
	good := 0
	for _, want := range v.d.Mounts {
		a, asked := v.facts.Hosts[want.Client]
		switch {
		case !asked:
			continue
		case a.Host == nil:
			p.add(Unknown, want.Client, "%s does not answer", want.Client)
			continue
		}
		if m, ok := linux.MountAt(linux.ParseMounts(a.Host.Files["/proc/self/mounts"]), want.Path); !ok || m.Type != "lustre" {
			p.add(Fault, want.Client, "%s is not mounted on %s", want.Path, want.Client).Mend = "`mortar apply`, or `mortar mount-options` for the line in fstab"
			continue
		}
		good++
		p.add(OK, want.Client, "%s mounted", want.Path)
	}
	p.Text = fmt.Sprintf("%d of %d mounted", good, len(p.Parts))
	return p
}

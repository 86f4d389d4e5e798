package observe

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/brick/spec"
)

// clients checks that every mount exists, is as designed, and answers.
func (v nfsKind) clients() *Part {
	p := &Part{Name: "client"}
	good := 0
	for _, cl := range v.d.Spec.Clients {
		a, asked := v.facts.Hosts[cl.Name]
		if !asked {
			continue
		}
		if a.Host == nil {
			p.add(Unknown, cl.Name, "%s does not answer", cl.Name)
			continue
		}
		c := p.add(OK, cl.Name, "")
		h := a.Host
		ms := linux.ParseMounts(h.Files["/proc/self/mounts"])
		stats := parseMountStats(h.Files["/proc/self/mountstats"])
		n, slowest := 0, 0.0
		want := 0
		for _, dm := range v.d.Mounts {
			if dm.Client != cl.Name {
				continue
			}
			want++
			m, ok := linux.MountAt(ms, dm.Path)
			if !ok || !strings.HasPrefix(m.Type, "nfs") {
				f := c.add(Fault, dm.Path, "%s is not mounted on %s", dm.Path, cl.Name)
				f.Mend = "`mortar apply`, or `mortar mount-options` for the line in fstab"
				continue
			}
			fs := h.FS[dm.Path]
			switch {
			case fs.TimedOut:
				f := c.add(Fault, dm.Path, "%s on %s hangs: the server did not answer within %s", dm.Path, cl.Name, ms2(fs.Millis))
				f.Mend = "nothing on the client: a hard mount goes on as soon as the service answers"
				continue
			case fs.Err != "":
				f := c.add(Fault, dm.Path, "%s on %s gives an error: %s", dm.Path, cl.Name, fs.Err)
				if strings.Contains(fs.Err, "stale") {
					f.Mend = "the export lost its identity (fsid); mount again, and look at the export"
				}
				continue
			}
			n++
			good++
			slowest = max(slowest, fs.Millis)
			if m.Source != dm.Source {
				c.add(Warning, dm.Path, "%s on %s is mounted from %s, not from %s", dm.Path, cl.Name, m.Source, dm.Source)
			}
			if _, soft := m.Option("soft"); soft && !slices.Contains(dm.Options, "soft") {
				f := c.add(Fault, dm.Path, "%s on %s is mounted soft: a failover longer than its timeout gives programs I/O errors, and data may be lost", dm.Path, cl.Name)
				f.Mend = "mount it with hard"
			}
			if vers, ok := m.Option("vers"); ok && dm.Version != "" && vers != dm.Version {
				c.add(Warning, dm.Path, "%s on %s uses NFSv%s, not v%s", dm.Path, cl.Name, vers, dm.Version)
			}
			if proto, over := m.Option("proto"); over && !slices.Contains(dm.Options, "proto="+proto) {
				c.add(Warning, dm.Path, "%s on %s goes over %s, which the spec does not say", dm.Path, cl.Name, strings.ToUpper(proto))
			}
			if fs.Millis > slowStatfs {
				c.add(Warning, dm.Path, "%s on %s took %s to answer", dm.Path, cl.Name, ms2(fs.Millis))
			}
			// Retransmissions are no fault: they remain from a failover.
			var ops, again int64
			for _, s := range stats[dm.Path] {
				ops += s.Ops
				again += max(0, s.Transmissions-s.Ops)
			}
			detail := c.add(OK, dm.Path, "NFSv%s from %s", strings.TrimPrefix(optionOr(m, "vers", dm.Version), "v"), m.Source)
			if optionOr(m, "proto", "") == spec.RDMA {
				detail.Text += " over RDMA"
			}
			if ops > 0 {
				detail.Text += fmt.Sprintf(", %d calls, %d sent again", ops, again)
			}
		}
		c.Text = fmt.Sprintf("%d of %d mounts", n, want)
		if n > 0 {
			c.Text += fmt.Sprintf(" answer, within %s", ms2(slowest))
		}
	}
	p.Text = fmt.Sprintf("%d of %d mounts answer", good, len(v.d.Mounts))
	return p
}

func optionOr(m linux.Mount, name, or string) string {
	if v, ok := m.Option(name); ok {
		return v
	}
	return or
}

func ms2(ms float64) string {
	if ms < 1000 {
		return fmt.Sprintf("%.1f ms", ms)
	}
	return fmt.Sprintf("%.1f s", ms/1000)
}

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
			p.find(cl.Name, "host-unknown", with{"host": cl.Name})
			continue
		}
		c := p.add(cl.Name, "")
		h := a.Host
		ms := linux.ParseMounts(h.Files["/proc/self/mounts"])
		stats := linux.ParseMountStats(h.Files["/proc/self/mountstats"])
		n, slowest := 0, 0.0
		want := 0
		for _, dm := range v.d.Mounts {
			if dm.Client != cl.Name {
				continue
			}
			want++
			wrong := func(code Code, args with) {
				args["mount"], args["host"] = dm.Path, cl.Name
				c.find(dm.Path, code, args)
			}
			m, ok := linux.MountAt(ms, dm.Path)
			if !ok || !strings.HasPrefix(m.Type, "nfs") {
				wrong("mount-missing", with{})
				continue
			}
			fs := h.FS[dm.Path]
			switch {
			case fs.TimedOut:
				wrong("mount-hangs", with{"within": ms2(fs.Millis)})
				continue
			case fs.Err != "":
				wrong("mount-error", with{"error": fs.Err})
				continue
			}
			n++
			good++
			slowest = max(slowest, fs.Millis)
			if m.Source != dm.Source {
				wrong("mount-source", with{"source": m.Source, "want": dm.Source})
			}
			if _, soft := m.Option("soft"); soft && !slices.Contains(dm.Options, "soft") {
				wrong("mount-soft", with{})
			}
			if vers, ok := m.Option("vers"); ok && dm.Version != "" && vers != dm.Version {
				wrong("mount-version", with{"version": vers, "want": dm.Version})
			}
			if proto, over := m.Option("proto"); over && !slices.Contains(dm.Options, "proto="+proto) {
				wrong("mount-protocol", with{"protocol": strings.ToUpper(proto)})
			}
			if fs.Millis > slowStatfs {
				wrong("mount-slow", with{"took": ms2(fs.Millis)})
			}
			// Retransmissions are no fault: they remain from a failover.
			detail := c.add(dm.Path, "NFSv%s from %s", strings.TrimPrefix(optionOr(m, "vers", dm.Version), "v"), m.Source)
			if optionOr(m, "proto", "") == spec.RDMA {
				detail.Text += " over RDMA"
			}
			if s := stats[dm.Path]; s.Ops > 0 {
				detail.Text += fmt.Sprintf(", %d calls, %d sent again", s.Ops, s.Transmissions-s.Ops)
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

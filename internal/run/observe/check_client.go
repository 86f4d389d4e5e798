package observe

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/brick/spec"
)

// clients checks that every mount exists, is as designed, and answers.
func (v nfsKind) clients() *Part {
	p := &Part{Name: "client"}
	good, silent := 0, 0
	for _, cl := range v.d.Spec.Clients {
		a, asked := v.facts.Hosts[cl.Name]
		if !asked {
			continue
		}
		if a.Host == nil {
			silent++ // named among the hosts
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
	v.namesakes(p)
	p.Text = fmt.Sprintf("%d of %d mounts answer", good, len(v.d.Mounts))
	if silent > 0 {
		p.Text += fmt.Sprintf("; %d of %d clients do not", silent, len(v.d.Spec.Clients))
	}
	return p
}

// These files of a client have the text by which it tells itself from others of its name.
const (
	uniqueID = "/sys/module/nfs/parameters/nfs4_unique_id"
	netnsID  = "/sys/fs/nfs/net/nfs_client/identifier"
)

// namesakes finds clients that a server takes for one: those with the same text and host name.
//
// Source: RFC 8881 2.4; the kernel's fs/nfs/nfs4proc.c, nfs4_init_uniform_client_string, and
// Documentation/filesystems/nfs/client-identifier.rst.
func (v nfsKind) namesakes(p *Part) {
	by := map[string][]string{}
	for _, m := range v.d.Mounts {
		h := v.facts.Hosts[m.Client].Host
		if h == nil || !strings.HasPrefix(m.Version, "4") {
			continue
		}
		name := h.Hostname
		for _, file := range []string{netnsID, uniqueID} { // the first that is set
			if id := strings.TrimSpace(h.Files[file]); id != "" && id != "(null)" {
				name = id + "/" + name
				break
			}
		}
		if h.Hostname != "" && !slices.Contains(by[name], m.Client) {
			by[name] = append(by[name], m.Client)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(by)) {
		if hosts := by[name]; len(hosts) > 1 {
			p.find("name "+name, "client-name-twice", with{"host": hosts[0], "hosts": spec.Ranges(hosts), "name": name})
		}
	}
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

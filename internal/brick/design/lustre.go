package design

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/mortarhpc/mortar/internal/brick/spec"
)

func (l *Lustre) mounts(clients []spec.Client) []ClientMount {
	var out []ClientMount
	for _, c := range clients {
		out = append(out, ClientMount{Client: c.Name, Service: l.FSName, Source: l.Source, Path: l.Mount, Version: "lustre", Options: l.MountOpts})
	}
	return out
}

// block is the block size of ldiskfs, in bytes.
const block = 4 * spec.KiB

// lustre derives targets, their servers and their place in the network.
//
// Source: Lustre Operations Manual, 10.1 and 11.2 (failover); paper Lustre
// brick, 7.
func (d builder) lustre() error {
	s := d.Spec
	c := s.Lustre
	l := &Lustre{
		FSName: c.FSName, LNET: fmt.Sprintf("%s(%s)", c.LNET, s.Networks.Public.Interface),
		Mount: c.Mount, StripeCount: c.StripeCount, StripeSize: c.StripeSize, Pools: c.Pools,
	}
	// flock: locks that hold on all clients, as programs expect.
	l.MountOpts = []string{"flock", "noatime"}
	d.Lustre = l
	public := map[string]string{}
	servers := map[string]spec.Server{}
	for _, v := range s.Servers {
		public[v.Name] = v.Public + "@" + c.LNET
		l.ServerNIDs = append(l.ServerNIDs, public[v.Name])
		servers[v.Name] = v
	}
	nids := func(names []string, first string) []string {
		out := []string{public[first]}
		for _, n := range names {
			if n != first {
				out = append(out, public[n])
			}
		}
		return out
	}
	for _, m := range c.Modules {
		if m.Role == "mds" {
			l.MGSNIDs = nids(m.Servers, d.mgsHome(&m))
		}
	}
	for _, m := range c.Modules {
		// Each module is a cluster of its own: a failure in one fences no server of
		// another.
		p := Pair{Name: m.Name, Role: m.Role, Servers: m.Servers}
		p.HA = d.cluster([]spec.Server{servers[m.Servers[0]], servers[m.Servers[1]]})
		p.HA.Cluster = s.Name + "-" + m.Name
		for _, sv := range d.targetServices(&m) {
			for i := range sv.Targets {
				t := &sv.Targets[i]
				t.Module = m.Name
				t.ServiceNIDs = nids(m.Servers, t.Server)
				t.MountPoint = "/lustre/" + t.Name
				t.Resource = "target-" + t.Name
				d.target(t)
			}
			p.Services = append(p.Services, sv)
		}
		d.Pairs = append(d.Pairs, p)
	}
	l.Source = strings.Join(l.MGSNIDs, ":") + ":/" + l.FSName
	l.Params = append(l.Params,
		"osc.*.max_dirty_mb=256",
		"osc.*.max_rpcs_in_flight=32",
		"osc.*.idle_timeout=0",
	)
	for _, p := range c.Params {
		if now, old := modernParam(p); old {
			p = now
		}
		name, _, _ := strings.Cut(p, "=")
		for i, have := range l.Params { // the spec's own win
			if h, _, _ := strings.Cut(have, "="); h == name {
				l.Params = append(l.Params[:i:i], l.Params[i+1:]...)
				break
			}
		}
		l.Params = append(l.Params, p)
	}
	return d.fileRoom()
}

// fileRoom refuses an MDT with fewer inodes than its OSTs: each file takes one of the
// MDT, and one of an OST at least. mkfs.lustre chooses by the size of a target, so that
// the targets of a scaled brick stand in another proportion.
func (d builder) fileRoom() error {
	var mdt, osts int64
	at := ""
	for i, m := range d.Spec.Lustre.Modules {
		if m.Role == "mds" {
			at = fmt.Sprintf("lustre.modules[%d].storage", i)
		}
	}
	for _, p := range d.Pairs {
		for _, t := range p.Targets() {
			switch t.Kind {
			case "mdt":
				mdt += t.Inodes
			case "ost":
				osts += t.Inodes
			}
		}
	}
	if mdt >= osts || d.Spec.Scaled() {
		return nil
	}
	return errorAt(d.Spec, at, "give the mds module larger disks, or more", "the MDT has room for %d files and the OSTs for %d: the file system would be full before they are", mdt, osts)
}

// mgsHome is the server on which the MGS runs as a rule.
func (d builder) mgsHome(m *spec.Module) string {
	for _, u := range d.lunsOf(m.Name) {
		if u.Use == "mgs" {
			return u.Server
		}
	}
	return m.Servers[0]
}

// targetServices are the services of a module: a target for each LUN or RAID
// group of an OSS; an MDS has two on one group, which move together.
func (d builder) targetServices(m *spec.Module) []Service {
	l := d.Lustre
	groups := d.GroupsOf(m.Name)
	luns := d.lunsOf(m.Name)
	var out []Service
	// Also one RAID group or LUN carries a volume group: its owner is what keeps
	// two servers from one target.
	add := func(st Storage, targets ...Target) {
		last := &targets[len(targets)-1]
		name := strings.ToLower(strings.TrimPrefix(last.Name, l.FSName+"-"))
		st.VG = strings.ReplaceAll(d.Name+"_"+name, "-", "_")
		st.Stripes, st.ExtentSize, st.SystemID = 1, extentSize, "mortar-"+d.Name
		st.DropSlow = m.Storage.DropSlowDisks == "on"
		for i := range targets {
			t := &targets[i]
			t.Volume = strings.ToLower(strings.TrimPrefix(t.Name, l.FSName+"-"))
			t.Device = "/dev/" + st.VG + "/" + t.Volume
		}
		out = append(out, Service{Name: name, Preferred: last.Server, Storage: st, Targets: targets})
	}
	switch {
	case len(luns) > 0:
		for _, u := range luns {
			t := Target{Name: u.Name, Kind: u.Use, Group: u.Groups[0], Size: u.Size, Server: u.Server}
			if t.Kind == "ost" {
				t.Index = l.OSTs
				l.OSTs++
			}
			add(Storage{Groups: u.Groups, LUNs: []string{u.Device}}, t)
		}
	case m.Role == "mds":
		g := groups[0]
		size := spec.Bytes(g.Data) * mdData(g.Members[0].Size, g.Chunk)
		mgt := mgtOf(size)
		add(Storage{Groups: []string{g.Name}},
			Target{Name: l.FSName + "-MGT", Kind: "mgs", Group: g.Name, Size: mgt, Server: m.Servers[0]},
			Target{Name: l.FSName + "-MDT0000", Kind: "mdt", Group: g.Name, Size: (size-spec.MiB)/extentSize*extentSize - mgt, Server: m.Servers[0]})
	default:
		for i, g := range groups {
			add(Storage{Groups: []string{g.Name}}, Target{
				Name: fmt.Sprintf("%s-OST%04x", l.FSName, l.OSTs), Kind: "ost", Index: l.OSTs, Group: g.Name,
				Size: spec.Bytes(g.Data) * mdData(g.Members[0].Size, g.Chunk), Server: m.Servers[halfOf(i, len(groups))],
			})
			l.OSTs++
		}
	}
	return out
}

// mmpSeconds is how often a mounted target writes its MMP block. The partner's mount
// waits twice for 2n+1 seconds after a crash. ldiskfs begins with an n of twice this
// interval, at least 5, and comes down to 5 by a sixteenth in each interval: with the
// 5 s of mke2fs a target that crashes soon after its mount makes its partner wait 42 s,
// with 2 s never more than 22 while the disks answer.
// Source: lustre-release, ldiskfs/mmp.c, kmmpd and ldiskfs_multi_mount_protect (2.17.57)
const mmpSeconds = 2

func (d builder) target(t *Target) {
	g := d.groupNamed(t.Group)
	l := d.Lustre
	args := []string{}
	if t.Kind == "mgs" {
		args = append(args, "--mgs")
	} else {
		args = append(args, "--"+t.Kind, "--fsname="+l.FSName, "--index="+strconv.Itoa(t.Index))
		for _, n := range l.MGSNIDs {
			args = append(args, "--mgsnode="+n)
		}
	}
	for _, n := range t.ServiceNIDs {
		args = append(args, "--servicenode="+n)
	}
	if t.Kind == "mgs" {
		args = append(args, fmt.Sprintf("--mkfsoptions=-E mmp_update_interval=%d", mmpSeconds))
	} else {
		t.Stride = int(g.Chunk / block)
		t.StripeWidth = t.Stride * stripeDisks(g)
		args = append(args, fmt.Sprintf("--mkfsoptions=-O flex_bg -G 256 -E stride=%d,stripe-width=%d,mmp_update_interval=%d", t.Stride, t.StripeWidth, mmpSeconds))
	}
	t.MkfsArgs = append(args, t.Device)
	if t.Kind == "mgs" {
		return
	}
	ratio, inode := inodeRatio(t)
	t.BytesPerNode = ratio
	t.Inodes = min(int64(t.Size/ratio), math.MaxUint32) // mke2fs caps the number: an inode has 32 bits
	t.Usable = t.Size - journal(t) - spec.Bytes(t.Inodes)*inode
}

// stripeDisks is how many data disks the allocator of ldiskfs is told of. On
// parity RAID it is all: a full stripe is written without reading. Mirrors
// have no parity, and metadata are small: four chunks keep a directory's
// blocks together, as the seed has it (12 data disks there, and
// stripe-width=64 for stride=16).
func stripeDisks(g Group) int {
	if g.Level == 10 {
		return min(g.Data, 4)
	}
	return g.Data
}

// inodeRatio is mkfs.lustre's own choice: bytes of the target for each inode,
// and the inode's size.
// Source: lustre-release, lustre/utils/libmount_utils_ldiskfs.c (2026); the
// Operations Manual, 5.3, has older limits.
func inodeRatio(t *Target) (ratio, inode spec.Bytes) {
	if t.Kind == "mdt" {
		return 2560, 1024
	}
	switch {
	case t.Size > 16*spec.TiB:
		return 1 * spec.MiB, 512
	case t.Size > 4*spec.TiB:
		return 512 * spec.KiB, 512
	case t.Size > 1*spec.TiB:
		return 256 * spec.KiB, 512
	case t.Size > 10*spec.GiB:
		return 69905, 512 // 64 KiB and a bit: the inodes of 256 groups fit into one
	}
	return 16 * spec.KiB, 512
}

// journal is mkfs.lustre's own choice, too: 4 % of the target, within limits.
func journal(t *Target) spec.Bytes {
	most := 1 * spec.GiB
	if t.Kind == "mdt" {
		most = 4 * spec.GiB
	}
	return min(t.Size/25, most)
}

func (d builder) moduleCapacity(m *Pair) SetCapacity {
	c := SetCapacity{Name: m.Name}
	for _, k := range d.Disks {
		if k.Module == m.Name {
			c.Raw += k.Size
		}
	}
	for _, g := range d.GroupsOf(m.Name) {
		c.RAID += g.Usable
	}
	for _, u := range d.lunsOf(m.Name) {
		c.LUNs += u.Size
	}
	for _, t := range m.Targets() {
		c.Usable += t.Usable
	}
	return c
}

func (d *Design) groupNamed(name string) Group {
	if g := find(all(d.Groups), func(g *Group) bool { return g.Name == name }); g != nil {
		return *g
	}
	return Group{}
}

package design

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/mortarhpc/mortar/internal/brick/spec"
)

// mounts of the file system by clients.
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
// Source: Lustre Operations Manual, 10.1 and 11.2 (failover); seed Lustre
// brick, 7.
func (d *Design) lustre() error {
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
func (d *Design) fileRoom() error {
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
func (d *Design) mgsHome(m *spec.Module) string {
	for _, u := range d.lunsOf(m.Name) {
		if u.Use == "mgs" {
			return u.Server
		}
	}
	return m.Servers[0]
}

// targetServices are the services of a module: a target for each LUN or RAID
// group of an OSS; an MDS has two on one group, which move together.
func (d *Design) targetServices(m *spec.Module) []Service {
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
				Size: spec.Bytes(g.Data) * mdData(g.Members[0].Size, g.Chunk), Server: m.Servers[half(i, len(groups))],
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

// target fills in how a target is made.
func (d *Design) target(t *Target) {
	var g Group
	for _, x := range d.Groups {
		if x.Name == t.Group {
			g = x
		}
	}
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
	t.Inodes = int64(t.Size / ratio)
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

func (d *Design) moduleCapacity(m *Pair) SetCapacity {
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

// lustreSettings are the tuning values of servers and clients.
func lustreSettings(d *Design) []Setting {
	s := d.Spec
	var out []Setting
	add := func(role, kind, name, value, reason, source string) {
		out = append(out, Setting{Role: role, Kind: kind, Name: name, Value: value, Reason: reason, Source: source})
	}
	const seed = "seed Lustre brick, "
	if d.Disks[0].Type == "nvme" {
		add("server", "disk", "scheduler", "none", "an NVMe disk orders its own queue; a scheduler only costs time", "kernel: block/switching-sched")
	} else {
		add("server", "disk", "scheduler", "mq-deadline", "bounds how long a read waits behind writes", seed+"4.2.1; kernel: block/deadline-iosched")
	}
	if !hasArrays(d) { // a LUN says itself how much it takes at once, and the kernel heeds that
		add("server", "disk", "max_sectors_kb", "2048", "two RPCs of 1 MiB go to a target in one request", seed+"4.2.1")
	}
	add("server", "disk", "read_ahead_kb", "2048", "the next full stripes are read while the client takes the first; the seed also names 8192", seed+"4.2.1")
	multipathSettings(d, add)
	mirrorSettings(d, add)
	for i := range d.Pairs {
		m := &d.Pairs[i]
		for _, t := range m.Targets() {
			if t.Kind == "mgs" {
				continue
			}
			g := d.groupNamed(t.Group)
			why := fmt.Sprintf("chunk of %s in blocks of 4 KiB; %d data disks: a full stripe is allocated and written whole", g.Chunk, g.Data)
			if t.Kind == "mdt" {
				why = fmt.Sprintf("chunk of %s in blocks of 4 KiB; mirrors have no stripe to fill, so four chunks of the %d are named", g.Chunk, g.Data)
			}
			add("server", "mkfs", "stride,stripe-width of "+m.Name, fmt.Sprintf("%d,%d", t.Stride, t.StripeWidth), why, "mke2fs(8), -E; "+seed+"7.3, 7.4")
			break
		}
	}
	add("server", "mkfs", "flex_bg", "-G 256", "bitmaps and inode tables of 256 block groups lie together: fewer seeks at mount and fsck", "mke2fs(8); "+seed+"7.3")
	add("server", "mkfs", "mmp_update_interval", strconv.Itoa(mmpSeconds), "seconds between a mounted target's writes of its MMP block (5 as built): with 5, a takeover within half a minute of a mount waits up to 42 s for MMP, with 2 it waits 22 s as at any other time", "mke2fs(8), -E; lustre-release, ldiskfs/mmp.c")
	add("server", "lnet", "networks", d.Lustre.LNET, "the interface Lustre speaks through, on every node", "Lustre Operations Manual, LNet; "+seed+"7.2")
	add("server", "sysctl", "kernel.panic_on_oops", "1", "unmounting a target whose disks have failed is a bug of the kernel (2.17.57): the server stops, is fenced, and its partner takes over; without this the unmount hangs", "kernel: admin-guide/sysctl/kernel")
	add("both", "module", "libcfs.libcfs_debug", "0", "no debug log in memory: small operations are faster; set_param -P passes over debug", seed+"8.1; modinfo libcfs")
	add("both", "module", "mgc.mgc_requeue_timeout_min", "1", "seconds until a node that was told of a change asks the MGS for it, and up to as many again by chance (5 as built): clients hear sooner where a target is after a takeover", "modinfo mgc; kernel module: mgc_requeue_thread")
	add("both", "module", "lnet.lnet_transaction_timeout", "30", "seconds until LNet gives up a message that it cannot deliver (150 as built): the unmount of a target whose server has lost its link waits for its last messages", "modinfo lnet; kernel module: lnet_post_send_locked, msg_deadline")
	add("both", "module", "lnet.lnet_peer_discovery_disabled", "1", "no node has a second address that LNet could discover. As built (0), a network that was off for 10 s left clients of 2.17.57 in an endless loop of the kernel", "modinfo lnet; kernel module: lnet_peer_needs_push, lnet_peer_is_uptodate_locked")
	driver, source := "ko2iblnd.timeout", "modinfo ko2iblnd; kernel module: kiblnd_timeout"
	if strings.HasPrefix(d.Spec.Lustre.LNET, "tcp") {
		driver, source = "ksocklnd.sock_timeout", "modinfo ksocklnd; kernel module: ksocknal_timeout"
	}
	add("both", "module", driver, "10", "seconds until a node closes a connection on which nothing moves (50 as built): without this a client's attempts to reconnect wait on the connection to the crashed server", source)
	for _, v := range []struct{ name, reason, source string }{
		{"osc.*.max_dirty_mb", "MB of written data a client holds for each OST: writes go out in full RPCs", seed + "8.1"},
		{"osc.*.max_rpcs_in_flight", "requests a client has out at each OST: small files wait less", seed + "8.1"},
		{"osc.*.idle_timeout", "seconds until a client without work disconnects from an OST (20 as built; 0: never). If it tries that while the OST's server is dead, the OST waits for it in vain during its recovery, for minutes", "kernel module: ptlrpc_disconnect_idle_interpret"},
	} {
		for _, p := range d.Lustre.Params {
			if n, value, _ := strings.Cut(p, "="); n == v.name {
				add("client", "lustre", n, value, v.reason, "lctl-set_param(8); "+v.source)
			}
		}
	}
	add("client", "lustre", "stripe_count", strconv.Itoa(d.Lustre.StripeCount), "OSTs a new file lies on: 1 suits many files, more or -1 a few large ones, set for their directory with lfs setstripe -c", "lfs-setstripe(1); "+seed+"8.1")
	add("client", "lustre", "stripe_size", d.Lustre.StripeSize.String(), "bytes on one OST before the next one's turn: a full stripe of the RAID group, or a multiple", "lfs-setstripe(1)")
	haSettings(s.HA.Token, s.HA.Failback, hasArrays(d), add)
	for i := range out {
		switch s := &out[i]; s.Name {
		case "monitor-interval":
			n := d.mostServices()
			s.Value = fmt.Sprintf("%ds", max(10, monitorSpacing*n))
			s.Reason = fmt.Sprintf("a server that has all %d services of its pair runs a monitor each %d s at most. What hangs clients is found sooner: the watcher looks for it each 2 s", n, monitorSpacing)
		case "start-timeout":
			s.Value, s.Reason, s.Source = "300s", "mounting a target waits until MMP is sure that no other server has it, and replays its journal", "ocf:lustre:Lustre; ext4(5), mmp"
		case "stop-timeout":
			s.Value, s.Reason, s.Source = "300s", "unmounting a target writes all that its clients have sent; after it the server is fenced", "ocf:lustre:Lustre"
		}
	}
	return out
}

// monitorSpacing is the least time between two monitors of one server, seconds. Real
// servers would bear more. The servers of a rack that emulates 13 machines on two
// processors did not: with monitors of 20 targets each 10 s Pacemaker killed its own
// daemons, because they did not answer.
const monitorSpacing = 5

// mostServices is how many services the pair with the most has.
func (d *Design) mostServices() int {
	n := 0
	for i := range d.Pairs {
		n = max(n, len(d.Pairs[i].Services))
	}
	return n
}

func (d *Design) groupNamed(name string) Group {
	for _, g := range d.Groups {
		if g.Name == name {
			return g
		}
	}
	return Group{}
}

func hasArrays(d *Design) bool { return len(d.Arrays) > 0 }

package design

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/mortarhpc/mortar/internal/brick/spec"
)

// nfsMountOptions is how a client mounts: hard, so that programs wait through
// a failover instead of losing data.
func nfsMountOptions(s *spec.Spec, m spec.Mount) []string {
	out := []string{"vers=" + m.Version, "proto=tcp"}
	rdma := m.RDMA(&s.NFS)
	if rdma {
		out = []string{"vers=" + m.Version, "proto=rdma", "port=" + strconv.Itoa(RDMAPort)}
	}
	if m.Version == "3" {
		out = append(out, "mountproto=tcp")
	}
	out = append(out, "hard", "timeo="+timeo, "retrans=2", "rsize=1048576", "wsize=1048576")
	if n := nconnect(s); n > 1 && !rdma { // the card itself does what several TCP connections spread over cores
		out = append(out, fmt.Sprintf("nconnect=%d", n))
	}
	for _, o := range m.Options { // the spec's own win over the same option of ours
		name, _, _ := strings.Cut(o, "=")
		out = slices.DeleteFunc(out, func(have string) bool { h, _, _ := strings.Cut(have, "="); return h == name })
		out = append(out, o)
	}
	return out
}

// RDMAPort is where nfsd listens for RDMA.
//
// Source: RFC 8267, section 6 (registered with IANA as nfsrdma).
const RDMAPort = 20049

// lockGrace is the longest grace period of lockd in s. 15, three repetitions
// of a lost notification, would give locks back sooner, but no drill has
// passed with it yet.
const lockGrace = 30

// timeo is in tenths of a second, as in nfs(5).
const timeo = "150"

// nconnect is the number of TCP connections of a client: one fills a slow
// link, a fast one needs several cores' worth.
func nconnect(s *spec.Spec) int {
	gbit := 10.0
	if m := s.Networks.Public.Mbits(); m > 0 {
		gbit = m / 1000
	}
	switch {
	case gbit >= 100:
		return 16
	case gbit >= 25:
		return 8
	case gbit >= 10:
		return 4
	}
	return 1
}

// memory is the memory of the smaller server, in bytes; 0 if the spec does not say.
func memory(s *spec.Spec) spec.Bytes {
	var m spec.Bytes
	for i, v := range s.Servers {
		if i == 0 || v.Memory < m {
			m = v.Memory
		}
	}
	return m
}

// stripeCache is md's stripe cache in entries per array. An entry takes 4 KiB
// of memory on each member.
func stripeCache(s *spec.Spec, groups int) int {
	r := s.Storage.RAID
	const most, least = 16384, 256 // md's own bounds: 17 to 32768, 256 by default
	m := memory(s)
	if m == 0 {
		return 4096
	}
	n := least
	for n < most && spec.Bytes(groups*r.Width()*n*2)*4*spec.KiB <= m/50 {
		n *= 2
	}
	return n
}

// settings is every tuning value, with its reason and where it is explained.
func settings(d *Design) []Setting {
	s := d.Spec
	r := s.Storage.RAID
	var out []Setting
	add := func(role, kind, name, value, reason, source string) {
		out = append(out, Setting{Role: role, Kind: kind, Name: name, Value: value, Reason: reason, Source: source})
	}
	mem := memory(s)

	// Disks and arrays.
	if k := d.Disks[0].Type; k == "nvme" {
		add("server", "disk", "scheduler", "none", "an NVMe disk orders its own queue; a scheduler only costs time", "kernel: block/switching-sched")
	} else {
		add("server", "disk", "scheduler", "mq-deadline", "bounds how long a read waits behind writes; RAID needs all members of a stripe, so the slowest one counts", "kernel: block/deadline-iosched")
		add("server", "disk", "nr_requests", "256", "room to merge neighbouring requests and sort them for the heads", "kernel: ABI sysfs-block, queue/nr_requests")
	}
	maxSectors := max(1024, int(r.Chunk/spec.KiB))
	add("server", "disk", "max_sectors_kb", strconv.Itoa(maxSectors), fmt.Sprintf("at least one whole chunk (%s) goes to a disk in one request", r.Chunk), "kernel: ABI sysfs-block, queue/max_sectors_kb")
	if r.Level != 10 && !hasArrays(d) {
		n := stripeCache(s, len(d.Groups))
		cost := spec.Bytes(len(d.Groups)*r.Width()*n) * 4 * spec.KiB
		add("server", "md", "stripe_cache_size", strconv.Itoa(n), fmt.Sprintf("stripes gathered whole need no read before parity is written; costs entries x 4 KiB x disks = %s of memory for %s", cost.Binary(), plural(len(d.Groups), "group")), "md(4), RAID 4/5/6 sysfs attributes")
		if mem == 0 || mem >= 16*spec.GiB {
			add("server", "md", "group_thread_cnt", "4", "parity by several threads: one does 1-2 GB/s", "kernel: admin-guide/md, group_thread_cnt")
		}
	}
	groupsPerVolume := max(1, len(d.Services()[0].Storage.Groups))
	ra := max(4096, int(2*fullStripe(r)/spec.KiB))
	raLV := max(4096, int(2*fullStripe(r)/spec.KiB)*groupsPerVolume)
	if !hasArrays(d) {
		add("server", "md", "read_ahead_kb", strconv.Itoa(ra), "two full stripes ahead, 4 MiB at least, keep every disk of a group reading", "kernel: ABI sysfs-block, queue/read_ahead_kb")
	}
	add("server", "lv", "read_ahead_kb", strconv.Itoa(raLV), "two full stripes of every group ahead, 4 MiB at least, keep every disk reading; nfsd reads through this queue", "kernel: ABI sysfs-block, queue/read_ahead_kb")

	// Multipath.
	multipathSettings(d, add)
	mirrorSettings(d, add)

	// Volume and file system.
	sv := d.Services()[0]
	v := &sv.Storage
	if v.Stripes > 1 {
		why := "one full RAID stripe goes to one group, then the next group's turn"
		if v.StripeSize != fullStripe(r) {
			why = fmt.Sprintf("the chunk: LVM takes powers of two only, and a full stripe is %s", fullStripe(r))
		}
		add("server", "lvm", "stripesize", v.StripeSize.String(), why, "lvcreate(8)")
		add("server", "lvm", "stripes", strconv.Itoa(v.Stripes), "every file is spread over all groups", "lvcreate(8)")
	}
	add("server", "mkfs", "su", sv.SU.String(), "the RAID chunk: XFS places and extends files in these units, so that full stripes are written without reading", "mkfs.xfs(8)")
	add("server", "mkfs", "sw", strconv.Itoa(sv.SW), "data disks: "+dataDisks(r.Data, len(first(d.GroupsIn(v)))), "mkfs.xfs(8)")
	add("server", "mkfs", "sectsize", "4096", "disks write 4 KiB at once whatever they report; and a cache of 4 KiB sectors can be put under it later", "mkfs.xfs(8)")
	lv := d.lvSize(sv.Name, 0)
	add("server", "mkfs", "log size", logSize(lv).String(), "room for many creates in flight, and replayed within seconds at a takeover", "mkfs.xfs(8)")
	add("server", "mkfs", "log su", logSU.String(), "every log write is padded to this, and sync exports force the log at each COMMIT: small, or a takeover has much to replay", "mkfs.xfs(8)")
	add("server", "mount", "noatime", "on", "reading writes nothing", "mount(8)")
	add("server", "mount", "nodev,nosuid", "on", "files belong to clients: a device node or set-user-ID program they made means nothing on the server", "mount(8)")
	add("server", "mount", "logbsize", "256k", "fewer, larger log writes when many files are made", "xfs(5)")

	// Memory.
	if mem >= 64*spec.GiB {
		add("server", "sysctl", "vm.dirty_bytes", strconv.FormatInt(int64(8*spec.GiB), 10), "as much as is written in some seconds: a stop of the service must write it all before it may move", "kernel: admin-guide/sysctl/vm")
		add("server", "sysctl", "vm.dirty_background_bytes", strconv.FormatInt(int64(1*spec.GiB), 10), "writing begins early and in long runs", "kernel: admin-guide/sysctl/vm")
	} else {
		add("server", "sysctl", "vm.dirty_ratio", "20", "writers wait before memory is full of unwritten data; a stop of the service must write it all before it may move", "kernel: admin-guide/sysctl/vm")
		add("server", "sysctl", "vm.dirty_background_ratio", "5", "writing begins early and steadily instead of in bursts", "kernel: admin-guide/sysctl/vm")
	}
	add("server", "sysctl", "vm.vfs_cache_pressure", "50", "inodes and directories stay in memory rather than file data: a lookup from disk costs far more than a block", "kernel: admin-guide/sysctl/vm")

	if d.Clustered() && d.Lustre == nil {
		add("server", "sysctl", "fs.xfs.xfssyncd_centisecs", "500", "every 5 s, not 30, metadata that is in the log is written to its place: so much less is replayed at a takeover", "kernel: admin-guide/xfs")
		add("server", "sysctl", "fs.leases-enable", "0", "nfsd delegates no files: a lock that a client took for itself under a delegation is unknown to the servers, and can be lost at a takeover", "kernel: admin-guide/sysctl/fs; RFC 8881 10.2.1")
	}

	// Network.
	add("both", "sysctl", "net.ipv4.tcp_rmem", "4096 2621440 16777216", "windows large enough for a fast link from the first round trip; 16 MiB is 10 Gb/s x 13 ms", "tcp(7)")
	add("both", "sysctl", "net.ipv4.tcp_wmem", "4096 65536 16777216", "send buffer to match", "tcp(7)")

	// NFS server.
	add("server", "nfsd", "threads", strconv.Itoa(s.NFS.Threads), "each sync write holds a thread until the disks have it: as many as requests in flight", "rpc.nfsd(8)")
	add("server", "nfsd", "versions", strings.Join(s.NFS.Versions, " "), "4.0 is not served: without RECLAIM_COMPLETE every takeover waits for the whole grace period", "rpc.nfsd(8)")
	add("server", "nfsd", "lease", strconv.Itoa(s.NFS.Lease), "seconds; a client that renewed within them keeps its locks over a takeover. Shorter ones expire during it", "nfsd(7)")
	add("server", "nfsd", "grace", strconv.Itoa(s.NFS.Grace), "seconds in which locks may be reclaimed only; v4 ends it when every known client has", "nfsd(7)")
	if d.Clustered() {
		add("server", "nfsd", "lock grace", strconv.Itoa(min(s.NFS.Grace, lockGrace)), "seconds of the same for NLM, which cannot tell when all have reclaimed and holds up new v4 locks too. A client reclaims when it is notified: at once, or if messages are lost 2, 6 or 14 s later", "lockd: nlm_grace_period; sm-notify(8)")
	}
	for i, sv := range d.Services() {
		if i > 0 {
			add("server", "nfsd", "scope", sv.Scope, "likewise, of service "+sv.Name, "rpc.nfsd(8), RFC 8881 2.10.4")
			continue
		}
		add("server", "nfsd", "scope", sv.Scope, "the same on both servers: else v4 clients take the survivor for another server and do not reclaim", "rpc.nfsd(8), RFC 8881 2.10.4")
	}
	if s.NFS.RDMA() {
		add("server", "nfsd", "rdma", strconv.Itoa(RDMAPort), "nfsd serves RDMA besides TCP, which stays there for clients that do not ask for it. It needs no port of a firewall: RDMA passes by the server's packet filters. RoCE's packets (UDP port 4791) and TCP port 2049 pass those in between", "nfs.conf(5), RFC 8267")
	}
	if len(s.Services) > 1 && s.Networks.Public.Link == "infiniband" {
		add("server", "nfsd", "interface", "ipoib", "each of two services has an interface of its own, a child of the server's, of the same partition. This was not run on InfiniBand yet; on a rack, whose network is Ethernet, it is an ipvlan", "kernel: ipoib_netlink.c; ip-link(8)")
	}
	if everyExport(d, "sync") {
		add("server", "export", "sync", "on", "an answer means that the data is on disk. async would lose acknowledged writes at a crash", "exports(5)")
	}
	if everyExport(d, "no_subtree_check") {
		add("server", "export", "no_subtree_check", "on", "renaming an open file must not break it", "exports(5)")
	}
	add("server", "export", "fsid", "UUID of the path", "file handles stay valid on the other server and after a rebuild of the host", "exports(5)")

	// Cluster.
	if ha := d.Pairs[0].HA; ha != nil {
		haSettings(ha.TokenMS, ha.Failback, hasArrays(d), add)
		add("server", "pacemaker", "power_timeout", bmcAnswer, "a BMC that does not answer one command within so many seconds is dead, and the PDUs' turn comes; one that is alive is asked so often, a second apart, whether its server is off. A BMC slower than that fails the fence test of apply", "fence_ipmilan(8)")
		add("server", "pacemaker", "pcmk_reboot_timeout", bmcTimeout, "a BMC that has not switched its server off and on by then, tried once, is given up for the PDUs. ipmitool alone asks a dead one for 20 s", "pacemaker-fenced(7)")
		add("server", "pacemaker", "priority-fencing-delay", raceDelay, "two servers that lose sight of each other fence each other. The one without the service is shot so much later, and so wins: it can serve, which is more than is known of the other. A dead server that served is fenced at once", "pacemaker-schedulerd(7)")
		if len(d.Services()) > 1 {
			add("server", "pacemaker", "pcmk_delay_base", tieDelay, "while each server has a service neither is passive: the first one is shot later, and wins", "pacemaker-fenced(7)")
		}
	}

	// Clients.
	add("client", "module", "nfs.max_session_slots", "128", "requests in flight to one server by v4; 64 by default", "kernel: fs/nfs, max_session_slots")
	add("client", "nfs", "hard", "on", "programs wait through a takeover; soft would give them I/O errors and lose data", "nfs(5)")
	add("client", "nfs", "timeo", timeo, "tenths of a second; keepalive and TCP timeout of the connection follow it, so a takeover whose TCP reset was lost is noticed in a minute instead of three. A healthy server answers far sooner", "nfs(5)")
	add("client", "nfs", "rsize,wsize", "1048576", "the largest the protocol code takes: fewest round trips", "nfs(5)")
	add("client", "nfs.conf", "nfsrahead.default", "4096", "KiB read ahead of a program that reads a file from start to end, 4 calls of rsize under way; the kernel's 128 are not even one. From the next mount on, and for every NFS mount of the client", "nfsrahead(5)")
	if n := nconnect(s); n > 1 {
		add("client", "nfs", "nconnect", strconv.Itoa(n), "one TCP connection is handled by one core at each end; several fill the link", "nfs(5)")
	}
	return out
}

// haSettings are those of a cluster of two servers. queues: its storage lets I/O
// wait while all paths are gone.
func haSettings(token int, failback string, queues bool, add func(role, kind, name, value, reason, source string)) {
	add("server", "corosync", "token", strconv.Itoa(token), "ms of silence after which a server counts as dead. Shorter finds it earlier, and fences a healthy server that was merely busy", "corosync.conf(5)")
	add("server", "corosync", "consensus", strconv.Itoa(max(token/2, 500)), "ms to agree on who is left; of two servers less than the token is safe, and the default of 1.2 x token would be added to each takeover", "corosync.conf(5)")
	add("server", "corosync", "two_node", "1", "one of two servers may go on alone, after fencing the other", "votequorum(5)")
	add("server", "corosync", "wait_for_all", "1", "after a cold start of both, neither acts before it has seen the other once", "votequorum(5)")
	add("server", "corosync", "crypto", "aes256/sha256", "nobody on the public network can forge or read a heartbeat", "corosync.conf(5)")
	add("server", "corosync", "link_mode", "active", "both rings carry every message, so a ring that comes and goes delays none. With passive the other ring takes over only when knet has given the first one up, and one that has just come back gets ten times as long: more than the token", "corosync.conf(5); kronosnet: KNET_LINK_PONG_TIMEOUT_BACKOFF")
	add("server", "systemd", "RuntimeWatchdogSec", "60", "s after which the hardware's watchdog resets a server whose kernel hangs, if no fence device has done so: it comes back without a person", "systemd-system.conf(5)")
	add("server", "pacemaker", "stonith-enabled", "true", "no takeover without proof that the other server is off", "pacemaker-controld(7)")
	add("server", "pacemaker", "stonith-timeout", "60s", "a fencing level that has not answered by then is given up for the next one", "pacemaker-controld(7)")
	add("server", "pacemaker", "fence-reaction", "panic", "a server that is told of its own fencing still runs: the wrong outlet was switched, or a person was wrong. It resets itself at once, without writing anything back; by default only its cluster daemons would end, and it would go on writing to the shared disks", "pacemaker-controld(7); Linux: admin-guide/sysrq, b")
	add("server", "pacemaker", "no-quorum-policy", "stop", "with two_node one server has quorum; one that has not serves nothing", "pacemaker-schedulerd(7)")
	add("server", "pacemaker", "resource-stickiness", map[string]string{"manual": "1000", "auto": "0"}[failback], "failback is "+failback+": a second interruption comes when "+map[string]string{"manual": "you choose", "auto": "the server is back"}[failback], "pacemaker: resource meta-attributes")
	add("server", "pacemaker", "monitor-interval", "10s", "each monitor costs milliseconds; a failed service is found within this time", "pacemaker: resource operations")
	add("server", "pacemaker", "start-timeout", "180s", "assembling arrays and replaying the log of a large file system", "pacemaker: resource operations")
	if queues {
		add("server", "pacemaker", "stop-timeout", "330s", fmt.Sprintf("I/O waits up to %d s for a LUN whose paths are all gone; then writing all dirty data. After it the server is fenced", QueueSeconds), "pacemaker: resource operations")
	} else {
		add("server", "pacemaker", "stop-timeout", "180s", "writing all dirty data; after it the server is fenced", "pacemaker: resource operations")
	}
}

// arrayPrio is multipath's word for how a family reports ownership.
var arrayPrio = map[string]string{"md3": "rdac", "me4": "alua"}

// like says whether all arrays are of one family.
func like(arrays []Array) bool {
	for _, a := range arrays {
		if a.Family != arrays[0].Family {
			return false
		}
	}
	return true
}

// queueChecks is how many checks of a LUN without any path multipathd makes before
// I/O to it fails, QueueSeconds how many seconds that takes: a check each 5 s
// (polling_interval). Source: seed NSS4-HA, 4.3.2.
const (
	queueChecks  = 30
	QueueSeconds = queueChecks * 5
)

// mirrorSettings are those of the write cache of MD3 arrays, one for each storage section.
func mirrorSettings(d *Design, add func(role, kind, name, value, reason, source string)) {
	said := map[string]bool{}
	for _, set := range d.Spec.Sets() {
		arrays := d.Spec.ArraysOf(set.Name)
		if len(arrays) == 0 || said[set.Path] {
			continue
		}
		said[set.Path] = true
		if m, _ := spec.ModelOf(arrays[0].Model); m.Family != "md3" {
			continue
		}
		name := "write cache mirroring"
		if d.Lustre != nil {
			name += " of " + set.Name
		}
		value, reason := "on", "both controllers have what was acknowledged and is not on disk yet, so one may die; it costs write throughput (MD3200: 1,515 MB/s with it, 2,048 without)"
		if !set.Storage.Mirrored() {
			value, reason = "off", "the spec asks for it: writes are faster, and what a controller had acknowledged and not written is lost when it dies. The paper measured so, and recommends it for scratch data only"
		}
		add("array", "cache", name, value, reason, "seed Lustre brick, 4.2.1, 10.2; seed NSS4-HA, tables 2 and 4")
	}
}

// multipathSettings are those of disks with two ports, or of LUNs behind two
// controllers; a RAID controller in the server has one path.
func multipathSettings(d *Design, add func(role, kind, name, value, reason, source string)) {
	if hasArrays(d) && d.Arrays[0].Family == "perc" {
		return
	}
	then := "the fault is seen"
	switch {
	case d.Lustre != nil:
		then = "the target moves"
	case d.Clustered():
		then = "the service moves"
	}
	if hasArrays(d) {
		add("server", "multipath", "no_path_retry", strconv.Itoa(queueChecks), fmt.Sprintf("%d checks, 5 s apart, or %d s, after the last path is gone I/O fails and %s. A controller that restarts hands its LUNs over within two minutes. Without a value an ME4 would fail I/O at once, and 'queue' would hang it for ever", queueChecks, QueueSeconds, then), "multipath.conf(5); seed NSS4-HA, 4.3.2")
		add("server", "multipath", "path_grouping_policy", "group_by_prio", "the paths to the controller that owns the LUN first, the others only if those are gone", "multipath.conf(5)")
		if like(d.Arrays) {
			add("server", "multipath", "prio", arrayPrio[d.Arrays[0].Family], "how the array tells which controller owns a LUN; multipath finds ALUA out by itself, and then uses that", "multipath.conf(5), built-in table of arrays, detect_prio")
		}
		if d.Clustered() && slices.ContainsFunc(d.Arrays, func(a Array) bool { return a.Family == "md3" }) {
			add("server", "multipath", "failback", "followover", "a LUN returns to its own controller when paths to that come back. With 'immediate' each server would take the LUN back that the other one needs where it is", "multipath.conf(5)")
		} else {
			add("server", "multipath", "failback", "immediate", "a LUN is used over the controller that owns it, so that both carry load. The array moves LUNs between its controllers, not the servers", "multipath.conf(5)")
		}
		return
	}
	if d.Clustered() && d.Lustre == nil {
		add("server", "multipath", "polling_interval", "2", "seconds between checks of a path, at first", "multipath.conf(5)")
		add("server", "multipath", "no_path_retry", "1", "3 s after its last path is gone a disk fails, and md goes on without it: clients wait so long for a disk that was pulled. If it is all disks the server is fenced, see ocf:mortar:watch", "multipath.conf(5), multipathd: retry_tick")
	} else {
		add("server", "multipath", "no_path_retry", "6", "six checks (30 s) after the last path is gone I/O fails and "+then+"; 'queue' would hang it for ever", "multipath.conf(5)")
	}
	add("server", "multipath", "path_selector", "service-time 0", "both HBAs carry load; the path that answers faster gets more", "multipath.conf(5)")
	add("server", "multipath", "path_grouping_policy", "multibus", "the two ports of a JBOD disk are equal", "multipath.conf(5)")
	add("server", "multipath", "user_friendly_names", "no", "maps are named by WWID, the same on both servers", "multipath.conf(5)")
}

func dataDisks(perGroup, groups int) string {
	if groups == 1 {
		return strconv.Itoa(perGroup)
	}
	return fmt.Sprintf("%d in each of %d groups", perGroup, groups)
}

// everyExport says whether every export has an option.
func everyExport(d *Design, option string) bool {
	for _, s := range d.Services() {
		for _, e := range s.Exports {
			if !slices.Contains(e.Options, option) {
				return false
			}
		}
	}
	return true
}

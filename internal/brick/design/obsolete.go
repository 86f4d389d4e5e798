package design

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/mortarhpc/mortar/internal/brick/spec"
)

// obsoleteMount says whether a mount option of XFS is gone from current
// kernels, and what took its place.
//
// Source: xfs(5); kernel: admin-guide/xfs, removed mount options.
func obsoleteMount(option string) (Translation, bool) {
	name, _, _ := strings.Cut(option, "=")
	const source = "kernel: admin-guide/xfs, Removed Mount Options"
	switch name {
	case "nobarrier", "barrier":
		return Translation{Old: option, Why: "removed in Linux 4.19: cache flushes are always sent, and cost nothing where the array's cache has a battery. Without them a power cut can cost the file system", Source: source}, true
	case "attr2", "noattr2":
		return Translation{Old: option, Why: "its format has been the only one since XFS v5 (2013); deprecated in Linux 5.10, removed in 6.18", Source: source}, true
	case "ikeep", "noikeep", "delaylog", "nodelaylog":
		return Translation{Old: option, Why: "there is only one way left", Source: source}, true
	}
	return Translation{}, false
}

var conf = regexp.MustCompile(`^([A-Za-z0-9]{1,8})(-(?:OST|MDT)[0-9a-fA-F]{4})?\.(osc|mdc|llite|lov|ost|mdt|mdd|lod|osp|sys)\.(.+)$`)

// modernParam turns a setting in the form of lctl conf_param
// (testfs.osc.max_dirty_mb=256) into that of lctl set_param -P.
// Source: lctl-conf_param(8), lctl-set_param(8).
func modernParam(p string) (now string, old bool) {
	m := conf.FindStringSubmatch(p)
	if m == nil || m[1] == m[3] {
		return p, false
	}
	if m[3] == "sys" {
		return m[4], true
	}
	return m[3] + "." + m[1] + m[2] + "-*." + m[4], true
}

// translate lists what of the source papers no longer exists. What the spec
// itself has is always listed, the rest where the brick is like theirs.
func (d *Design) translate() {
	s := d.Spec
	add := func(old, now, why, source string) {
		d.Translations = append(d.Translations, Translation{Old: old, New: now, Why: why, Source: source})
	}
	for i, o := range s.Filesystem.Mount {
		if t, gone := obsoleteMount(o); gone {
			t.Line, t.Col = s.Pos(fmt.Sprintf("filesystem.mount[%d]", i))
			d.Translations = append(d.Translations, t)
		}
	}
	if s.Lustre != nil {
		for i, p := range s.Lustre.Params {
			if now, old := modernParam(p); old {
				line, col := s.Pos(fmt.Sprintf("lustre.params[%d]", i))
				d.Translations = append(d.Translations, Translation{Old: "lctl conf_param " + p, New: "lctl set_param -P " + now,
					Why: "conf_param is obsolete; set_param -P names a setting as lctl get_param prints it", Source: "lctl-conf_param(8)", Line: line, Col: col})
			}
		}
	}
	if !hasArrays(d) && d.Lustre == nil && s.Cache == nil {
		return
	}
	add("elevator=deadline (kernel command line)", "scheduler mq-deadline by a udev rule, for the brick's disks only", "the argument has done nothing since Linux 5.4", "kernel: block/switching-sched")
	for _, f := range []string{"md3", "perc", "me4"} {
		if !d.hasFamily(f) {
			continue
		}
		switch f {
		case "md3":
			add("/dev/mpath/NAME", "/dev/mapper/NAME", "device mapper has one directory", "multipath.conf(5)")
			add("multipath driver of the array's maker (RDAC)", "dm-multipath with prio rdac", "the kernel has the handler (scsi_dh_rdac)", "multipath.conf(5)")
		case "perc":
			add("omconfig storage controller …", "perccli64 /cN add vd …", "OpenManage Server Administrator is at its end; mortar array script writes both", "seed NFS+DFC, A.4")
		}
	}
	if s.Cache != nil {
		add("fldc --add --ssd, --enable --disk --mode=wb|wt", "cache: in the spec", "Fluid Cache for DAS is no longer made; bcache and md mirrors do its work on Debian's kernels", "seed NFS+DFC, A.5")
	}
	if d.Clustered() {
		if d.Lustre != nil {
			add("Heartbeat v1: ha.cf, haresources", "Corosync and Pacemaker", "Corosync took its place; version 1 knew two nodes, and no failure but a node's", "seed Lustre brick, Appendix C")
			add("keepalive 2, warntime 10, deadtime 60, initdead 180", fmt.Sprintf("token %d ms, wait_for_all", s.HA.Token), "Corosync declares a silent node dead after token and consensus", "corosync.conf(5)")
			add("auto_failback off", "resource-stickiness 1000 (failback: manual)", "the same behaviour", "pacemaker: resource meta-attributes")
			add("stonith_host … external/ipmi", "fence_ipmilan, and PDU outlets as second level", "a BMC dies with its server's power feed", "fence_ipmilan(8)")
		} else {
			add("Red Hat Cluster Suite (cman, rgmanager)", "Corosync and Pacemaker", "ended with RHEL 6", "seed NSS4-HA, Table 7")
			add("clustered LVM (clvmd)", "LVM system ID", "one server at a time has the volume: ownership is enough, and no lock manager can hang", "lvmsystemid(7)")
		}
	}
	if l := d.Lustre; l != nil {
		const b = "seed Lustre brick, "
		fs := l.FSName
		add("mkfs.lustre --failnode=NID", "mkfs.lustre --servicenode=NID for each server", "with failnode the first mount had to be on one certain server", b+"7.3; mkfs.lustre(8)")
		add("mkfs.lustre without --index", "--index=N", "an index that is chosen when a target first mounts depends on the order of mounting", "mkfs.lustre(8)")
		add("mount -t lustre mds01@o2ib;mds02@o2ib:/"+fs, "mount -t lustre "+l.Source, "NIDs of different servers are separated by colons", "mount.lustre(8)")
		add("options lnet in /etc/modprobe.conf", "/etc/modprobe.d/lustre.conf", "one file has become a directory", "modprobe.d(5)")
		add("lctl conf_param", "lctl set_param -P", "conf_param is obsolete; set_param -P names a setting as lctl get_param prints it", "lctl-conf_param(8)")
		add("lctl --device N deactivate (on the MDS, for a full OST)", "lctl set_param osp."+fs+"-OST0000-osc-MDT0000.max_create_count=0", "no new objects there, but those that are there can still be deleted", "Lustre Operations Manual, 14.9")
		add("lfs find --obd OST, then cp and mv of each file", "lfs find --ost 0 DIR | lfs_migrate -y, which uses lfs migrate", "the file keeps its inode, and stays open while it moves", b+"8.3; lfs-migrate(1)")
		add("e2fsck --mdsdb, --ostdb and lfsck, all unmounted", "lctl lfsck_start -M "+fs+"-MDT0000 -A -t all", "checks and repairs while the file system is in use; e2fsck -fp stays for a single target", b+"8.5; lctl-lfsck_start(8)")
		add("tunefs.lustre --writeconf, start: MGS, OSTs, MDT, clients", "tunefs.lustre --writeconf on all targets, start: MGS, MDT, OSTs, clients", "the manual's order today", "Lustre Operations Manual, 14.5")
		add("echo deadline > /sys/block/X/queue/scheduler in rc.local", "udev rule", "holds also for a disk that comes later", b+"4.2.1")
	}
}

func (d *Design) hasFamily(family string) bool {
	for _, a := range d.Arrays {
		if a.Family == family {
			return true
		}
	}
	return false
}

// obsoleteInSpec are the translations of what the spec itself has.
func (d *Design) obsoleteInSpec() []Translation {
	var out []Translation
	for _, t := range d.Translations {
		if t.Line > 0 {
			out = append(out, t)
		}
	}
	return out
}

// warnHardware notes what only real hardware shows.
func (d *Design) warnHardware(add func(at, rule, format string, args ...any)) {
	s := d.Spec
	for _, t := range d.obsoleteInSpec() {
		text := t.Old + " no longer exists and is left out: " + t.Why
		if t.New != "" {
			text = t.Old + " no longer exists; used instead: " + t.New
		}
		d.Warnings = append(d.Warnings, Warning{Rule: "obsolete", Text: text, Line: t.Line, Col: t.Col})
	}
	for i, a := range s.Arrays {
		if a.WWNs != nil && i < len(d.Arrays) && len(a.WWNs) != len(d.Arrays[i].LUNs) {
			add(fmt.Sprintf("arrays[%d].wwns", i), "wwns", "array %s has %s, but %d WWNs are listed", a.Name, plural(len(d.Arrays[i].LUNs), "LUN"), len(a.WWNs))
		}
	}
	for i, v := range s.Servers {
		d.warnCards(i, v, add)
	}
}

// warnCards compares where cards are with where they work best.
func (d *Design) warnCards(i int, v spec.Server, add func(at, rule, format string, args ...any)) {
	widest := 0
	for _, k := range v.PCI {
		if k.Kind == "sas-hba" || k.Kind == "raid" {
			widest = max(widest, k.Lanes)
		}
	}
	storage := []spec.Card{}
	for j, k := range v.PCI {
		switch k.Kind {
		case "hca", "nic":
			if k.Lanes < widest {
				add(fmt.Sprintf("servers[%d].pci[%d]", i, j), "pcie", "server %s: the card to the clients is in slot %d with %d lanes, while a storage card has %d; exchange them: it carries what the storage cards share. NSS4-HA read 4.0 GB/s so, and 3.3 the other way round", v.Name, k.Slot, k.Lanes, widest)
			}
		case "sas-hba", "raid":
			storage = append(storage, k)
		}
	}
	if len(v.PCI) >= 2 && len(storage) > 0 && v.CPU != nil && v.CPU.Sockets >= 2 {
		same := true
		for _, k := range v.PCI {
			same = same && k.Node == v.PCI[0].Node
		}
		if same {
			add(fmt.Sprintf("servers[%d].pci", i), "numa", "server %s: all cards belong to NUMA node %d, so all their interrupts and memory traffic go through one processor of %d; put one into a slot of another", v.Name, v.PCI[0].Node, v.CPU.Sockets)
		}
	}
}

// advise says what a person does with their hands, where the spec tells of
// cards and arrays.
func (d *Design) advise() {
	s := d.Spec
	add := func(server, source, format string, args ...any) {
		d.Advice = append(d.Advice, Advice{Server: server, Text: fmt.Sprintf(format, args...), Source: source})
	}
	const nss4, dfc = "seed NSS4-HA, 3.2", "seed NFS+DFC, 2.4.2"
	for _, v := range s.Servers {
		if len(v.PCI) == 0 {
			continue
		}
		var text []string
		for _, k := range v.PCI {
			text = append(text, fmt.Sprintf("%s in slot %d (x%d, PCIe %d, %.1f GB/s, node %d)", k.Kind, k.Slot, k.Lanes, k.Generation, laneGBs(k.Generation)*float64(k.Lanes), k.Node))
		}
		add(v.Name, nss4, "cards: %s", strings.Join(text, ", "))
		for _, k := range v.PCI {
			if k.Kind == "hca" || k.Kind == "nic" {
				threads := "nfsd's threads (one pool for each node: sunrpc.pool_mode=pernode)"
				if d.Lustre != nil {
					threads = "Lustre's threads (its CPU partitions follow the nodes)"
				}
				add(v.Name, dfc, "let interrupts of the client network (irqbalance does so) and %s stay on NUMA node %d, where the card of slot %d is", threads, k.Node, k.Slot)
				break
			}
		}
	}
	for i := range d.Arrays {
		a := &d.Arrays[i]
		for _, v := range a.Servers {
			if n := d.PathsTo(a, v); n > 1 {
				if n == 2 {
					add(v, nss4+", Table 4", "cable the HBA to both controllers of array %s: 2 paths to every LUN, so that a cable or a controller may fail; if the HBA does, the other server takes over", a.Name)
					continue
				}
				add(v, nss4+", Table 4", "cable each HBA to both controllers of array %s: %d paths to every LUN, so that an HBA, a cable or a controller may fail", a.Name, n)
			}
		}
		if n := len(a.Enclosures); n > 1 && a.Family == "md3" {
			add("", nss4+", Table 4", "array %s: cable the %d enclosures as a ring that begins at controller 0 with the first and at controller 1 with the last one, so that the loss of one cuts off no other", a.Name, n)
		}
	}
	if d.Flavour != spec.Lustre && len(d.Arrays) > 0 && s.Servers[0].Memory > 0 {
		lv := d.Capacity.LUNs
		add("", "xfs_repair(8); seed NFS+DFC, 2.4.2", "keep swap of about %s on local disks: xfs_repair of a file system this large may need more than memory", (lv / (2 * spec.TiB) * spec.GiB).Binary())
	}
}

// laneGBs is what a lane of PCI Express carries, in 10^9 bytes a second after
// encoding. Source: PCI Express Base Specification.
func laneGBs(generation int) float64 {
	return map[int]float64{1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}[generation]
}

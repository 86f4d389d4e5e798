package plan

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

// Stages only a Lustre brick has.
const (
	StageTargets  = "Lustre targets"
	StageMGS      = "first mount of the MGS"
	StageMDT      = "first mount of the MDT"
	StageOSTs     = "first mount of the OSTs"
	StageUnmount  = "unmount the targets"
	StageReleased = "release the targets"
	StageParams   = "Lustre settings"
)

// lustreArraysConf lists a module's md arrays for the resource agent.
const lustreArraysConf = "/etc/mortar/arrays.conf"

// lustreSteps is the plan of a Lustre brick: per module storage, targets and
// a cluster; then the file system as a whole, in the order in which it must
// be started: MGS, MDT, OSTs, clients.
//
// Source: Lustre Operations Manual, 10.1, 11.2 and 13.2.
func lustreSteps(d *design.Design) ([]Step, error) {
	var steps []Step
	for i := range d.Pairs {
		m := &d.Pairs[i]
		b := newBuilder(d, m, Facts{}, offlineSecrets)
		b.lustreModule(m)
		if err := b.membership(); err != nil {
			return nil, err
		}
		if err := b.lustreCIB(m); err != nil {
			return nil, err
		}
		steps = append(steps, b.steps...)
	}
	b := &builder{d: d, secrets: offlineSecrets}
	b.lustreSystem()
	return inStages(append(steps, b.steps...)), nil
}

// lustreModule prepares both servers and makes the targets, each from the
// server that mounts it as a rule.
func (b *builder) lustreModule(m *design.Pair) {
	jbod := !strings.HasPrefix(m.Targets()[0].Device, "/dev/mapper/") // else it is a LUN
	for _, h := range m.Servers {
		b.add(StageHosts, h, "host "+h, &resource.Host{Name: h})
		d := b.distro(h).Packages
		p := &resource.Packages{Names: slices.Concat(d.Cluster, d.Multipath, d.LustreServer), Fence: d.FenceAgents}
		if jbod {
			p.Names = append(p.Names, d.MD...)
			if m.Role == "mds" {
				p.Names = append(p.Names, d.LVM...)
			}
		}
		b.add(StagePackages, h, "packages", p)
		b.lnet(h)
		if jbod {
			b.lustreDisks(h, m)
		} else {
			b.lunKernel(h, []string{"lnet"})
			b.multipathLUNs(h)
		}
	}
	if jbod {
		b.lustreArrays(m)
	}
	for _, t := range m.Targets() {
		at := t.Server
		if jbod {
			at = m.Servers[0] // where the arrays were made
		}
		b.add(StageTargets, at, "target "+t.Name, &commands{"lustre-target", t.Name, []resource.Action{{
			Title: "make " + t.Name, Why: targetWhy(t),
			Cmd: append([]string{"mkfs.lustre"}, t.MkfsArgs...), Seconds: 3600,
		}}})
		for _, h := range m.Servers {
			b.add(StageTargets, h, "mount point of "+t.Name, &resource.Directory{Path: t.MountPoint, Keep: true})
		}
	}
	if jbod {
		var stop []resource.Action
		if m.Role == "mds" {
			stop = append(stop, cmd("deactivate the volume group", "lvm", "vgchange", "--activate", "n", vgOf(m.Targets()[0])))
		}
		for _, g := range b.d.GroupsOf(m.Name) {
			stop = append(stop, cmd("stop md array "+g.Name, "mdadm", "--stop", "/dev/md/"+g.Name))
		}
		b.add(StageReleased, m.Servers[0], "release the storage of "+m.Name, &commands{"release-storage", m.Name, stop})
	}
}

func targetWhy(t design.Target) string {
	switch t.Kind {
	case "mgs":
		return "configuration of the file system; either server may mount it"
	case "mdt":
		return fmt.Sprintf("room for %d million files; either server may mount it", t.Inodes/1_000_000)
	}
	return fmt.Sprintf("stride %d and stripe-width %d blocks of 4 KiB: one full RAID stripe; as a rule on %s", t.Stride, t.StripeWidth, t.Server)
}

// lnet is the network of Lustre on one node.
func (b *builder) lnet(h string) {
	b.add(StageKernel, h, "LNET", &resource.TextFile{Path: "/etc/modprobe.d/lustre.conf", Content: []byte(resource.Header +
		"# The interface Lustre speaks through. Source: Lustre Operations Manual, 9\n" +
		"options lnet networks=\"" + b.d.Lustre.LNET + "\"\n")})
	b.add(StageKernel, h, "start LNET", &commands{"lnet", h, []resource.Action{
		cmd("load lnet now", "modprobe", "lnet"),
		cmd("bring the network up", "lnetctl", "lnet", "configure", "--all"),
	}})
}

// lustreDisks is what a server with JBODs needs: the same as an NFS brick's,
// for the disks of its module only.
func (b *builder) lustreDisks(h string, m *design.Pair) {
	all := *b.d
	own := *b.d
	own.Disks, own.Groups = nil, nil
	for _, k := range all.Disks {
		if k.Module == m.Name {
			own.Disks = append(own.Disks, k)
		}
	}
	own.Groups = all.GroupsOf(m.Name)
	n := &builder{d: &own, pair: m, secrets: b.secrets, servers: []string{h}}
	level := "raid456"
	if own.Groups[0].Level == 10 {
		level = "raid10"
	}
	modules := []string{level, "dm_multipath", "lnet"}
	if s := b.d.Value("disk", "scheduler"); s != "" && s != "none" {
		modules = append(modules, s)
	}
	n.add(StageKernel, h, "kernel modules", &resource.Modules{Names: modules})
	n.storageFiles(h)
	// What udev must ignore, the resource agent must find: it has a file of its
	// own.
	var conf strings.Builder
	conf.WriteString(resource.Header + "# For ocf:heartbeat:mdraid, which assembles an array where its target runs.\n")
	for _, g := range own.Groups {
		conf.WriteString("ARRAY /dev/md/" + g.Name + " UUID=" + g.UUID + "\n")
	}
	n.add(StageKernel, h, "directory /etc/mortar", &resource.Directory{Path: "/etc/mortar", Mode: 0o700})
	n.add(StageKernel, h, "arrays of the cluster", &resource.TextFile{Path: lustreArraysConf, Content: []byte(conf.String())})
	n.multipath()
	b.steps = append(b.steps, n.steps...)
}

// lustreArrays makes the md arrays, and the volumes of an MDS on them.
func (b *builder) lustreArrays(m *design.Pair) {
	h := m.Servers[0]
	groups := b.d.GroupsOf(m.Name)
	for _, g := range groups {
		b.add(StageStorage, h, "md array "+g.Name, arrayOf(g, true))
	}
	if m.Role != "mds" {
		return
	}
	ts := m.Targets()
	vg := vgOf(ts[0])
	pv := "/dev/md/" + groups[0].Name
	b.add(StageStorage, h, "volume group "+vg, &commands{"volume-group", vg, []resource.Action{
		cmd("create volume group "+vg, "lvm", "vgcreate", "--yes", "--setautoactivation", "n", vg, pv),
		cmd("a volume for the MGS", "lvm", "lvcreate", "--yes", "--name", "mgt", "--size", strconv.FormatInt(int64(ts[0].Size), 10)+"b", vg),
		cmd("a volume for the MDT", "lvm", "lvcreate", "--yes", "--name", "mdt0000", "--extents", "100%FREE", vg),
	}})
}

func vgOf(t design.Target) string {
	vg, _, _ := strings.Cut(strings.TrimPrefix(t.Device, "/dev/"), "/")
	return vg
}

// lustreCIB is the cluster of one module: a resource for each target, half of
// the OSTs on each server, and fencing.
func (b *builder) lustreCIB(m *design.Pair) error {
	cib, err := b.cib() // fencing, properties and defaults; there are no services
	if err != nil {
		return err
	}
	el := resource.El
	ts := m.Targets()
	timeout := b.value("pacemaker", "target-timeout", "300s")
	var resources, constraints *resource.Element
	for _, c := range cib.Children {
		switch c.Name {
		case "resources":
			resources = c
		case "constraints":
			constraints = c
		}
	}
	var ids []string
	jbod := !strings.HasPrefix(ts[0].Device, "/dev/mapper/")
	made := map[string]bool{}
	for _, t := range ts {
		if jbod && !made[t.Group] {
			made[t.Group] = true
			id := "array-" + t.Group
			resources.Add(el("primitive", "id", id, "class", "ocf", "provider", "heartbeat", "type", "mdraid").Add(
				pairs("instance_attributes", id+"-params", map[string]string{"md_dev": "/dev/md/" + t.Group, "mdadm_conf": lustreArraysConf, "force_clones": "false"}),
				el("operations").Add(op(id, "start", "0s", "120s"), op(id, "stop", "0s", "120s"), op(id, "monitor", "30s", "60s"))))
			if m.Role == "mds" {
				vid := "volumes-" + m.Name
				resources.Add(el("primitive", "id", vid, "class", "ocf", "provider", "heartbeat", "type", "LVM-activate").Add(
					pairs("instance_attributes", vid+"-params", map[string]string{"vgname": vgOf(t), "vg_access_mode": "system_id"}),
					el("operations").Add(op(vid, "start", "0s", "90s"), op(vid, "stop", "0s", "90s"), op(vid, "monitor", "30s", "90s"))))
				depends(constraints, vid, id)
			}
		}
		stop := op(t.Resource, "stop", "0s", timeout)
		stop.Attrs["on-fail"] = "fence" // two servers on one target destroy it
		resources.Add(el("primitive", "id", t.Resource, "class", "ocf", "provider", "lustre", "type", "Lustre").Add(
			pairs("instance_attributes", t.Resource+"-params", map[string]string{"target": t.Device, "mountpoint": t.MountPoint}),
			el("operations").Add(op(t.Resource, "start", "0s", timeout), stop, op(t.Resource, "monitor", "20s", timeout))))
		constraints.Add(el("rsc_location", "id", "locate-"+t.Resource, "rsc", t.Resource, "node", t.Server, "score", "100"))
		switch {
		case jbod && m.Role == "mds":
			depends(constraints, t.Resource, "volumes-"+m.Name)
		case jbod:
			depends(constraints, t.Resource, "array-"+t.Group)
		}
		if t.Kind == "mdt" && len(ids) > 0 {
			constraints.Add(el("rsc_order", "id", "order-"+t.Resource, "first", ids[0], "then", t.Resource, "kind", "Optional"))
		}
		ids = append(ids, t.Resource)
	}
	at := m.Servers[0]
	b.add(StageCluster, at, "cluster configuration of "+m.Name, &resource.CIB{
		Configuration: cib.String(), Owned: []string{"target-", "array-", "volumes-", "fence-", "fencing-", "locate-", "order-", "with-", "mortar-"}, Secret: []string{"community"},
	})
	return nil
}

// depends: rsc runs where on does, and after it.
func depends(constraints *resource.Element, rsc, on string) {
	constraints.Add(
		resource.El("rsc_colocation", "id", "with-"+rsc, "rsc", rsc, "with-rsc", on, "score", "INFINITY"),
		resource.El("rsc_order", "id", "order-"+rsc+"-"+on, "first", on, "then", rsc))
}

// lustreSystem is what concerns the file system as a whole.
func (b *builder) lustreSystem() {
	l := b.d.Lustre
	mds := ""
	for _, m := range b.d.Pairs {
		if m.Role == "mds" {
			mds = m.Servers[0]
		}
	}
	// A target registers with the MGS when it is mounted for the first time, so
	// the order matters once: MGS, MDT, OSTs. From then on the clusters mount
	// them, in any order. Their agent, ocf:lustre:Lustre, still says -t lustre and
	// takes a target that was mounted as lustre_tgt for not mounted, so all are
	// unmounted before the clusters start.
	stage := map[string]string{"mgs": StageMGS, "mdt": StageMDT, "ost": StageOSTs}
	for _, t := range b.d.Targets() {
		at := t.Server
		if strings.HasPrefix(t.Device, "/dev/md/") {
			at = b.d.PairWith(t.Server).Servers[0] // where the arrays were made
		}
		b.add(stage[t.Kind], at, "mount "+t.Name, &commands{"lustre-mount", t.Name, []resource.Action{
			cmd("mount "+t.Name, "mount", "-t", "lustre_tgt", t.Device, t.MountPoint)}})
	}
	for _, t := range slices.Backward(b.d.Targets()) {
		at := t.Server
		if strings.HasPrefix(t.Device, "/dev/md/") {
			at = b.d.PairWith(t.Server).Servers[0]
		}
		b.add(StageUnmount, at, "unmount "+t.Name, &commands{"lustre-unmount", t.Name, []resource.Action{
			cmd("unmount "+t.Name, "umount", t.MountPoint)}})
	}
	for _, m := range b.d.Pairs {
		b.add(StageService, m.Servers[0], "targets of "+m.Name, &commands{"lustre-up", m.Name, []resource.Action{
			cmd("wait until Pacemaker has mounted them", "crm_resource", "--wait", "--timeout=600s")}})
	}
	var set []resource.Action
	for _, p := range l.Params {
		set = append(set, cmd("set "+p+" for good, on every node", "lctl", "set_param", "-P", p))
	}
	b.add(StageParams, mds, "settings", &commands{"lustre-params", l.FSName, set})
	for _, p := range l.Pools {
		name := l.FSName + "." + p.Name
		actions := []resource.Action{cmd("make pool "+name, "lctl", "pool_new", name)}
		var osts []string
		for _, i := range p.Indices(l.OSTs) {
			osts = append(osts, fmt.Sprintf("%s-OST%04x", l.FSName, i))
		}
		actions = append(actions, cmd("add its OSTs", append([]string{"lctl", "pool_add", name}, osts...)...))
		b.add(StageParams, mds, "pool "+p.Name, &commands{"lustre-pool", name, actions})
	}
	first := true
	for _, c := range b.clientNames() {
		b.add(StageHosts, c, "host "+c, &resource.Host{Name: c})
		b.add(StagePackages, c, "packages", &resource.Packages{Names: b.distro(c).Packages.LustreClient})
		b.lnet(c)
		b.add(StageClients, c, "mount "+l.Mount, &resource.MountPoint{
			Source: l.Source, Path: l.Mount, Type: "lustre", Fstab: true,
			// No nofail: mount(8) hands it on, and Lustre does not mount with an
			// option it does not know; with _netdev a boot goes on without the file
			// system.
			Options: append(slices.Clone(l.MountOpts), "_netdev"),
		})
		if first {
			first = false
			b.add(StageClients, c, "default striping", &commands{"lustre-striping", l.Mount, []resource.Action{
				cmd("files below "+l.Mount+" are striped like this if nothing else is said", "lfs", "setstripe", "-c", strconv.Itoa(l.StripeCount), "-S", strconv.FormatInt(int64(l.StripeSize), 10), l.Mount),
			}})
		}
	}
}

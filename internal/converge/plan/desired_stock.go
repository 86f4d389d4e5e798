package plan

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

// stock says whether the brick is built as the distribution and ClusterLabs
// would have it.
func (b *builder) stock() bool { return b.d.Spec.Profile == spec.Stock }

// Agents of the resource with a service's ID, by profile.
const (
	tunedAgent = "ocf:mortar:service"
	stockAgent = "ocf:heartbeat:IPaddr2"
)

// profile refuses to turn a brick of one profile into one of the other: the
// cluster would drop one resource and start another that uses the same disks, and
// nothing keeps the second from starting before the first has stopped.
func (b *builder) profile() error {
	want, is := tunedAgent, spec.Stock
	if b.stock() {
		want, is = stockAgent, spec.Tuned
	}
	for _, s := range b.servers {
		for _, svc := range b.services() {
			r := b.facts.Hosts[s].Manages(resource.ServiceID(svc.Name))
			if r == nil {
				continue
			}
			// Pacemaker before 2.1.6 writes ocf::heartbeat:IPaddr2.
			if have := strings.Replace(r.Agent, "::", ":", 1); have != "" && have != want {
				return resource.Refuse("profile-other", resource.With{"is": is, "want": b.d.Spec.Profile})
			}
		}
	}
	return nil
}

// mdadmConf is what the mdraid agent assembles from. The host's own
// configuration ignores the arrays, so that nothing else assembles them.
const mdadmConf = "/etc/mortar/mdadm.conf"

// stockNFS is the NFS server as the standard agents want it: the
// distribution's configuration, started by no other program.
func (b *builder) stockNFS(h string) {
	b.add(StageNFS, h, "NFS units", &resource.Units{Name: "nfs", List: []resource.Unit{
		{Name: "rpcbind.socket", Enabled: true, Active: true, Why: "NFSv3 clients ask it for the ports of mountd and statd"},
		{Name: "nfs-server.service", Keep: b.servesNow(h), Why: "nfsd is the nfsserver agent's to start, on the server that owns the volume"},
		// Source: https://github.com/ClusterLabs/resource-agents/issues/2164
		{Name: "fsidd.service", Keep: b.servesNow(h), Optional: true, Why: "it numbers re-exported file systems, of which there are none, and its database keeps the NFS state's mount busy: the nfsserver agent could not stop"},
	}})
	for _, svc := range b.services() {
		b.add(StageNFS, h, "name of "+svc.Address, &resource.HostsEntry{
			Address: svc.Address, Names: []string{svc.Address, svc.Scope},
			Why: "after a takeover sm-notify speaks to NFSv3 clients from the service address, and they ask for its name",
		})
	}
	var text strings.Builder
	text.WriteString(resource.Header + "# For the agent ocf:heartbeat:mdraid.\nDEVICE /dev/mapper/*\n")
	for _, g := range b.d.Groups {
		text.WriteString("ARRAY /dev/md/" + g.Name + " UUID=" + g.UUID + "\n")
	}
	b.add(StageNFS, h, "arrays for the mdraid agent", &resource.TextFile{Path: mdadmConf, Content: []byte(text.String())})
}

// stockOp is an operation with the timeout and interval that an agent's
// metadata advise.
type stockOp struct{ start, stop, monitor, every string }

// Source: meta-data of resource-agents 4.16.
var stockOps = map[string]stockOp{
	"mdraid":       {"20s", "20s", "20s", "10s"},
	"LVM-activate": {"90s", "90s", "90s", "30s"},
	"Filesystem":   {"60s", "60s", "40s", "20s"},
	"nfsserver":    {"40s", "20s", "20s", "10s"},
	"exportfs":     {"40s", "120s", "20s", "10s"},
	"IPaddr2":      {"20s", "20s", "20s", "10s"},
	"nfsnotify":    {"90s", "90s", "90s", "30s"},
}

// stockService is a service by the standard agents, in the order in which they
// are started. The address carries the service's ID: it is there when all
// before it is.
// Source: ClusterLabs, Clusters from Scratch; ocf_heartbeat_*(7).
func (b clusterPart) stockService(s *design.Service) *resource.Element {
	v := &s.Storage
	id := resource.ServiceID(s.Name)
	group := resource.El("group", "id", resource.GroupID(s.Name))
	add := func(rid, agent string, params map[string]string) {
		o := stockOps[agent]
		group.Add(resource.El("primitive", "id", rid, "class", "ocf", "provider", "heartbeat", "type", agent).Add(
			pairs("instance_attributes", rid+"-params", params),
			resource.El("operations").Add(op(rid, "start", "0s", o.start), op(rid, "stop", "0s", o.stop), op(rid, "monitor", o.every, o.monitor)),
		))
	}
	for _, g := range b.d.GroupsIn(v) {
		add(id+"-md-"+g.Name, "mdraid", map[string]string{"mdadm_conf": mdadmConf, "md_dev": "/dev/md/" + g.Name})
	}
	add(id+"-lvm", "LVM-activate", map[string]string{"vgname": v.VG, "lvname": v.LV, "vg_access_mode": "system_id"})
	add(id+"-fs", "Filesystem", map[string]string{
		"device": "/dev/" + v.VG + "/" + v.LV, "directory": filepath.Clean(s.MountPoint), "fstype": "xfs", "options": strings.Join(s.MountOpts, ","),
	})
	add(id+"-nfs", "nfsserver", map[string]string{"nfs_shared_infodir": s.StateDir, "nfs_no_notify": "true", "nfs_server_scope": s.Scope})
	for i, e := range s.Exports {
		add(id+"-export-"+strconv.Itoa(i+1), "exportfs", map[string]string{
			"clientspec": e.Clients, "directory": filepath.Clean(e.Dir), "fsid": e.FSID,
			"options": strings.Join(slices.DeleteFunc(slices.Clone(e.Options), func(o string) bool { return strings.HasPrefix(o, "fsid=") }), ","),
		})
	}
	add(id, "IPaddr2", map[string]string{"ip": s.Address, "cidr_netmask": strconv.Itoa(s.Prefix)})
	add(id+"-notify", "nfsnotify", map[string]string{"source_host": s.Address})
	return group
}

package plan

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/md"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/serve/cache"
	"github.com/mortarhpc/mortar/internal/serve/ocf"
)

// Stages of an apply, in order. The daemons of the cluster start early: while
// the storage is built they find each other and elect a coordinator. It has
// nothing to run before its configuration comes, after all storage was
// released.
const (
	StageHosts      = "check hosts"
	StagePackages   = "packages"
	StageKernel     = "kernel settings"
	StageMembership = "cluster membership"
	StageDisks      = "disks"
	StageMultipath  = "multipath"
	StageStorage    = "storage"
	StageRelease    = "release storage"
	StageNFS        = "NFS server"
	StageCluster    = "cluster configuration"
	StageService    = "service"
	StageClients    = "client mounts"
	StageFencing    = "fencing"
)

const (
	secretsDir = "/etc/mortar/secrets"
	mortarPath = "/usr/local/sbin/mortar" // a link to this binary, made when the host is reached
)

// Desired is every step that makes a brick out of its hosts, in order.
// Facts decide where the steps of storage go; secrets reads the files the
// spec names, and CorosyncKey.
func Desired(d *design.Design, facts Facts, secrets func(file string) ([]byte, error)) ([]Step, error) {
	b := newBuilder(d, &d.Pairs[0], facts, secrets)
	if err := b.distributions(); err != nil {
		return nil, err
	}
	if err := b.profile(); err != nil {
		return nil, err
	}
	if err := b.oneOwner(); err != nil {
		return nil, err
	}
	b.checks()
	b.packages()
	b.kernel()
	b.multipath()
	for _, s := range b.services() {
		if err := b.storage(s); err != nil {
			return nil, err
		}
	}
	if err := b.serve(); err != nil {
		return nil, err
	}
	// Release comes after storage of all volumes, and so on: one stage is one
	// run of steps, whatever the order in which they were thought of.
	order := []string{StageHosts, StagePackages, StageKernel, StageMembership, StageDisks, StageMultipath, StageStorage,
		StageRelease, StageNFS, StageCluster, StageService, StageClients, StageFencing}
	slices.SortStableFunc(b.steps, func(x, y Step) int {
		return slices.Index(order, x.Stage) - slices.Index(order, y.Stage)
	})
	return b.steps, nil
}

// serve is all above the volumes: NFS, the cluster and the clients.
func (b *builder) serve() error {
	if err := b.nfs(); err != nil {
		return err
	}
	b.forgetCache()
	if b.pair.HA != nil {
		if err := b.membership(); err != nil {
			return err
		}
		if err := b.configuration(); err != nil {
			return err
		}
	}
	b.clients()
	return nil
}

// builder makes the steps of one pair.
type builder struct {
	d       *design.Design
	pair    *design.Pair
	facts   Facts
	secrets func(string) ([]byte, error)
	servers []string // of the pair
	steps   []Step
}

func newBuilder(d *design.Design, p *design.Pair, facts Facts, secrets func(string) ([]byte, error)) *builder {
	return &builder{d: d, pair: p, facts: facts, secrets: secrets, servers: p.Servers}
}

// services of the pair, by NFS.
func (b *builder) services() []*design.Service {
	var out []*design.Service
	for i := range b.pair.Services {
		if s := &b.pair.Services[i]; s.NFS != nil {
			out = append(out, s)
		}
	}
	return out
}

// cached is the service of the pair that has a cache, nil if none has.
func (b *builder) cached() *design.Service {
	for _, s := range b.services() {
		if s.Storage.Cache != nil {
			return s
		}
	}
	return nil
}

func (b *builder) add(stage, host, title string, r resource.Resource) {
	b.steps = append(b.steps, Step{Stage: stage, Title: title, Host: host, Resource: r})
}

// clients that mount something, in the order of the spec.
func (b *builder) clientNames() []string {
	var all []string
	for _, c := range b.d.Spec.Clients {
		all = append(all, c.Name)
	}
	return all
}

// settings of a kind for a role.
func (b *builder) settings(role, kind string) []resource.Setting {
	var out []resource.Setting
	for _, s := range b.d.Settings {
		if s.Kind == kind && (s.Role == role || s.Role == "both") {
			out = append(out, resource.Setting{Name: s.Name, Value: s.Value, Reason: reason(s)})
		}
	}
	return out
}

func reason(s design.Setting) string {
	if s.Source == "" {
		return s.Reason
	}
	return s.Reason + " (" + s.Source + ")"
}

// value is a setting of the design, or what to take without.
func (b *builder) value(kind, name, without string) string {
	if v := b.d.Value(kind, name); v != "" {
		return v
	}
	return without
}

func ref(k design.Disk) resource.DiskRef {
	return resource.DiskRef{Serial: k.Serial, WWN: k.WWN, Enclosure: k.Enclosure, Bay: k.Bay, Size: int64(k.Size)}
}

func refs(ks []design.Disk) []resource.DiskRef {
	var out []resource.DiskRef
	for _, k := range ks {
		out = append(out, ref(k))
	}
	return out
}

// checks refuses before anything is changed: a host that cannot be used, a
// disk that is missing or carries what is not ours.
func (b *builder) checks() {
	for _, h := range append(slices.Clone(b.servers), b.clientNames()...) {
		r := &resource.Host{Name: h, NodeName: b.pair.HA != nil && slices.Contains(b.servers, h)}
		for _, m := range b.d.MTUs(h) {
			r.MTUs = append(r.MTUs, resource.WantedMTU(m))
		}
		b.add(StageHosts, h, "host "+h, r)
	}
	var arrays []string
	group := map[string]string{}
	for _, g := range b.d.Groups {
		arrays = append(arrays, g.UUID)
		for _, k := range append(slices.Clone(g.Members), g.Spares...) {
			group[k.Serial] = g.UUID
		}
	}
	var all []resource.WantedDisk
	for _, k := range b.d.Disks {
		all = append(all, resource.WantedDisk{DiskRef: ref(k), Group: group[k.Serial], Wipe: slices.Contains(b.d.Spec.Wipe, k.Serial)})
	}
	for _, s := range b.servers {
		b.add(StageHosts, s, "disks of "+s, &resource.Disks{Host: s, List: all, Arrays: arrays})
	}
	b.cacheSSDs()
	// What the disks carry is looked at once, where each volume is or will be.
	// What is to be wiped goes before multipath makes new devices of the disks,
	// on which udev would assemble an array that is found there.
	for i, s := range b.services() {
		var mine []resource.WantedDisk
		for j, k := range b.d.Disks {
			if k.Service == s.Name || k.Service == "" && i == 0 {
				mine = append(mine, all[j])
			}
		}
		at := b.placeOf(s)
		b.add(StageDisks, at.host, "disks of "+s.Name, &resource.Disks{Host: at.host, List: mine, Arrays: arrays, Check: true})
	}
}

// oneOwner refuses everything if two servers have an array of the brick, or
// each a part of a volume's arrays.
func (b *builder) oneOwner() error {
	if b.pair.HA == nil {
		return nil
	}
	var all Refusals
	for _, g := range b.d.Groups {
		on := slices.DeleteFunc(slices.Clone(b.servers), func(s string) bool { return !b.facts.RunsArray(s, g.UUID) })
		if len(on) > 1 {
			all = append(all, HostRefusal{Host: on[1], Step: "arrays", Refusal: resource.Refusal{
				What: "array " + g.Name + " is assembled on " + strings.Join(on, " and ") + ": both may write to its disks",
				Mend: "power off the server that does not serve it, now; then check the array (mortar scrub) and the file system (xfs_repair -n)",
			}})
		}
	}
	if len(all) > 0 {
		return all
	}
	for _, svc := range b.services() {
		on := b.serversWith(svc, b.facts.RunsArray)
		if len(on) > 1 {
			all = append(all, HostRefusal{Host: on[1], Step: "arrays", Refusal: resource.Refusal{
				What: "arrays of service " + svc.Name + " run on " + strings.Join(on, " and on ") + ": no server has the whole volume",
				Mend: "find out which server uses it (mount, crm_mon), and stop the arrays on the other with `mdadm --stop`",
			}})
		}
	}
	if len(all) > 0 {
		return all
	}
	return nil
}

// serversWith are the servers that have one of a service's arrays.
func (b *builder) serversWith(svc *design.Service, has func(server, uuid string) bool) []string {
	return slices.DeleteFunc(slices.Clone(b.servers), func(s string) bool {
		return !slices.ContainsFunc(b.d.GroupsIn(&svc.Storage), func(g design.Group) bool { return has(s, g.UUID) })
	})
}

// holder is the server that has a service's arrays: that on which one runs
// before one on which it lies inactive; "" if none has.
func (b *builder) holder(svc *design.Service) string {
	on := append(b.serversWith(svc, b.facts.RunsArray), b.serversWith(svc, b.facts.HasArray)...)
	if len(on) == 0 {
		return ""
	}
	return on[0]
}

// place is where the storage of a volume is dealt with.
type place struct {
	host string
	// managed: the cluster has the service, so nothing is brought up or down
	// here; running: and runs it on host.
	managed, running bool
	// built: an earlier apply built all of it on host, and was cut short while
	// it released it.
	built bool
}

// alone tells whether the storage is brought up and looked into here.
func (p place) alone() bool { return !p.managed && !p.built }

// placeOf decides on the one server that builds a volume: the one where it is
// up, or else the first; of two volumes each is built where its service will
// run.
func (b *builder) placeOf(svc *design.Service) place {
	p := place{host: b.servers[0]}
	if len(b.pair.Services) > 1 {
		p.host = svc.Preferred // each server builds its own, side by side
	}
	held := b.holder(svc)
	if held != "" {
		p.host = held
	}
	for _, s := range b.servers {
		// A cluster that starts, or is stopped, still owns what it is configured
		// for: it may start the service at any moment, on either server.
		f, id := b.facts.Hosts[s], resource.ServiceID(svc.Name)
		_, managed := f.Manages(id)
		p.managed = p.managed || managed
		c := f.Cluster
		if r, ok := c.Resource(id); ok && c.Ready && r.Role == "Started" && r.Node != "" {
			p.host, p.running = r.Node, true
		}
	}
	if b.pair.HA == nil || p.managed {
		return p
	}
	for _, s := range b.servers {
		// A note is old if another server has the arrays by now.
		if (held == "" || held == s) && b.facts.Hosts[s].Built[svc.Storage.VG] == b.digest(svc) {
			p.host, p.built = s, true
		}
	}
	return p
}

// digest of all that storage builds for a service.
func (b *builder) digest(s *design.Service) string {
	text, err := json.Marshal(struct {
		Service *design.Service
		Groups  []design.Group
	}{s, b.d.GroupsIn(&s.Storage)})
	if err != nil {
		panic(err) // plain values only
	}
	return fmt.Sprintf("%x", sha256.Sum256(text))
}

func (b *builder) packages() {
	for _, s := range b.servers {
		b.add(StagePackages, s, "packages", b.serverPackages(s))
	}
	for _, c := range b.clientNames() {
		b.add(StagePackages, c, "packages", &resource.Packages{Names: b.distro(c).Packages.NFSClient})
	}
}

func (b *builder) kernel() {
	for _, h := range append(slices.Clone(b.servers), b.clientNames()...) {
		role := "client"
		if slices.Contains(b.servers, h) {
			role = "server"
		}
		m := &resource.Modules{Options: b.settings(role, "module")}
		if role == "server" {
			m.Names = []string{"raid456", "dm_multipath", "nfsd", "xfs"}
			if b.d.Spec.Storage.RAID.Level == 10 {
				m.Names[0] = "raid10"
			}
			if b.cached() != nil {
				m.Names = append(m.Names, "bcache", "raid0", "raid1", "raid10")
			}
			// A scheduler that is a module can only be chosen once it is loaded, also
			// by udev, which may not load one.
			if len(b.pair.Services) > 1 {
				m.Names = append(m.Names, "ipvlan") // of each service's namespace
			}
			if s := b.d.Value("disk", "scheduler"); s != "" && s != "none" {
				m.Names = append(m.Names, s)
			}
		} else {
			// Loaded while the servers are being built, not while a mount waits.
			m.Names = []string{"nfs", "nfsv3", "nfsv4"}
			if ra := b.d.Value("nfs.conf", "nfsrahead.default"); ra != "" {
				b.add(StageKernel, h, "NFS read-ahead", &resource.TextFile{
					Path: "/etc/nfs.conf.d/mortar-readahead.conf", Content: []byte(resource.Header + "[nfsrahead]\ndefault=" + ra + "\n"),
				})
			}
		}
		b.add(StageKernel, h, "kernel modules", m)
		if ss := b.settings(role, "sysctl"); len(ss) > 0 {
			b.add(StageKernel, h, "kernel settings", &resource.Sysctl{Path: "/etc/sysctl.d/90-mortar.conf", Settings: ss})
		}
		if role == "server" {
			b.storageFiles(h)
			continue
		}
		u := &resource.Units{Name: "nfs-client", NoWait: true, List: []resource.Unit{
			{Name: "rpcbind.socket", Enabled: true, Active: true, Why: "locks of NFSv3 need it"},
		}}
		if slices.ContainsFunc(b.d.Mounts, func(m design.ClientMount) bool { return m.Client == h && slices.Contains(m.Options, "vers=3") }) {
			u.List = append(u.List, resource.Unit{Name: "rpc-statd.service", Active: true, Why: "the first mount of NFSv3 would start it and wait"})
		}
		b.add(StageKernel, h, "NFS units", u)
	}
}

// storageFiles are what keeps md and LVM from doing things by themselves, or
// makes them do so.
func (b *builder) storageFiles(h string) {
	var text strings.Builder
	if b.pair.HA != nil {
		text.WriteString("# Shared arrays: nothing but the resource agent may assemble them, on the one\n" +
			"# server that owns them. With <ignore>, udev does not.\n# Source: mdadm.conf(5)\n")
	} else {
		text.WriteString("# Assembled at boot, as their members appear.\n")
	}
	var arrays []string
	for _, g := range b.d.Groups {
		dev := "/dev/md/" + g.Name
		if b.pair.HA != nil {
			dev = "<ignore>"
		}
		text.WriteString("ARRAY " + dev + " UUID=" + g.UUID + "\n")
		arrays = append(arrays, g.UUID)
	}
	var files []string
	if b.pair.HA != nil {
		lvm := "/etc/lvm/lvmlocal.conf"
		b.add(StageKernel, h, "LVM configuration", &resource.TextFile{Path: lvm, Content: []byte(resource.Header +
			`# A volume group belongs to the server whose name it carries: the other one
# refuses to activate it. Source: lvmsystemid(7)
global {
	system_id_source = "uname"
}
# Members of arrays and maps of disks are never physical volumes themselves.
devices {
	md_component_detection = 1
	multipath_component_detection = 1
}
`)})
		files = append(files, lvm)
	}
	b.mdFiles(h, text.String(), arrays, files)
}

// mdFiles are what udev and the initial RAM disk are told of md arrays: udev
// by lines of mdadm.conf(5), the initial RAM disk to leave all of them alone,
// also those of a single server. It does not know multipath, and would
// assemble them of single paths.
func (b *builder) mdFiles(h, lines string, arrays, files []string) {
	if s := b.cached(); s != nil {
		c := s.Storage.Cache
		lines += ignoreSSDs(c)
		arrays = slices.Concat(arrays, c.DirtyUUIDs, c.CleanUUIDs)
		files = append(files, b.distro(h).BcacheRules, cacheRules)
		b.cacheFiles(h)
	}
	b.add(StageKernel, h, "md configuration", &resource.MDConf{
		Path: b.distro(h).MDConf.Dir + "mortar.conf", Content: []byte(resource.Header + lines), Arrays: arrays,
	})
	b.add(StageKernel, h, "initial RAM disk", &resource.Initramfs{Arrays: arrays, Files: files})
}

func (b *builder) multipath() {
	var uuids []string
	for _, g := range b.d.Groups {
		uuids = append(uuids, g.UUID)
	}
	var lvs []string
	for _, s := range b.services() {
		lvs = append(lvs, s.Storage.VG+"/"+s.Storage.LV)
	}
	for _, s := range b.servers {
		b.add(StageMultipath, s, "multipath", &resource.Multipath{
			Brick: b.d.Name, Disks: refs(b.d.Disks), Settings: b.settings("server", "multipath"),
		})
		if b.stock() {
			continue // the kernel's queues as they are
		}
		b.add(StageMultipath, s, "block queues", &resource.BlockQueue{
			Path: "/etc/udev/rules.d/90-mortar-block.rules", Disks: refs(b.d.Disks), Arrays: uuids, Volumes: lvs,
			DiskSettings:   queueSettings(b.settings("server", "disk")),
			ArraySettings:  queueSettings(b.settings("server", "md")),
			VolumeSettings: queueSettings(b.settings("server", "lv")),
		})
	}
}

// queueSettings gives names of the design their place in sysfs.
func queueSettings(ss []resource.Setting) []resource.Setting {
	var out []resource.Setting
	for _, s := range ss {
		switch s.Name {
		case "stripe_cache_size", "group_thread_cnt":
			s.Name = "md/" + s.Name
		default:
			s.Name = "queue/" + s.Name
		}
		out = append(out, s)
	}
	return out
}

// storage builds what a service stands on, on one server, from arrays to
// directories.
func (b *builder) storage(s *design.Service) error {
	p := b.placeOf(s)
	v := &s.Storage
	var pvs []string
	arrays := map[string]string{}
	first := len(b.steps)
	for _, g := range b.d.GroupsIn(v) {
		pvs = append(pvs, "/dev/md/"+g.Name)
		arrays[g.UUID] = g.Name
		b.add(StageStorage, p.host, "md array "+g.Name, arrayOf(g, p.alone()))
	}
	if b.pair.HA != nil {
		// Both mount points exist, so that the agent need not make them.
		for _, host := range b.servers {
			b.add(StageRelease, host, "mount point "+s.MountPoint, &resource.Directory{Path: s.MountPoint, Keep: true})
		}
	}
	if p.alone() || p.running {
		if err := b.inside(s, p, pvs); err != nil {
			return err
		}
	}
	if b.pair.HA != nil && !p.managed {
		b.guard(b.steps[first:], s, p.host, arrays)
	}
	// Otherwise the service is stopped or failed, and it is the cluster's to
	// start, or the storage is being released: what is inside of the arrays
	// cannot be looked at.
	if b.pair.HA != nil && !p.managed {
		r := &resource.ReleaseStorage{VG: v.VG, LV: v.LV, SystemID: ocf.BuildingID(v.SystemID), RestID: v.SystemID, MountPoint: s.MountPoint, Arrays: arrays}
		if v.Cache != nil {
			r.Cache, r.Cached = cache.ConfigPath(s.Name), (&cache.Config{VG: v.VG}).Mounted()
		}
		b.add(StageRelease, p.host, "storage of "+v.VG+" is built", &resource.Built{VG: v.VG, Digest: b.digest(s)})
		b.add(StageRelease, p.host, "release "+v.VG, r)
	}
	return nil
}

// guard has every action that builds storage preceded by a look at all servers:
// between the plan and the action somebody may have started a cluster.
func (b *builder) guard(steps []Step, svc *design.Service, at string, arrays map[string]string) {
	var guards []Step
	for _, s := range b.servers {
		u := &resource.Unclaimed{Service: resource.ServiceID(svc.Name)}
		if s != at {
			u.Arrays = arrays
		}
		guards = append(guards, Step{Stage: StageStorage, Title: "nobody else has " + svc.Storage.VG, Host: s, Resource: u})
	}
	for i := range steps {
		if steps[i].Stage == StageStorage {
			steps[i].Guards = guards
		}
	}
}

// inside is what the arrays carry, from the volume group to directories.
func (b *builder) inside(s *design.Service, p place, pvs []string) error {
	v := &s.Storage
	groups := b.d.GroupsIn(v)
	id, rest := "", ""
	if b.pair.HA != nil {
		id = v.SystemID
		if !p.managed {
			id, rest = ocf.BuildingID(v.SystemID), v.SystemID
		}
	}
	align := int64(0)
	if len(groups) > 0 {
		// LVM starts data at a multiple of this: a full stripe, at least 1 MiB.
		full := int64(groups[0].Data) * int64(groups[0].Chunk)
		align = (int64(spec.MiB) + full - 1) / full * full
	}
	lv, dev := v.Backing(), v.Mounted()
	b.add(StageStorage, p.host, "volume group "+v.VG, &resource.VolumeGroup{
		Name: v.VG, LV: v.LV, PVs: pvs, SystemID: id, RestID: rest, Align: align, ExtentSize: int64(v.ExtentSize),
	})
	b.addHeader(v, p.host, id, pvs, align, !p.managed)
	b.add(StageStorage, p.host, "logical volume "+v.VG+"/"+v.LV, &resource.LogicalVolume{
		VG: v.VG, Name: v.LV, PVs: pvs, SystemID: id, Stripes: v.Stripes, StripeSize: int64(v.StripeSize), Activate: !p.managed,
	})
	if v.Cache != nil {
		if err := b.addCache(s, p.host); err != nil {
			return err
		}
	} else {
		b.add(StageStorage, p.host, "no cache of "+v.VG+"/"+v.LV, &resource.NoCache{Path: cache.ConfigPath(s.Name)})
	}
	b.add(StageStorage, p.host, "file system on "+dev, &resource.XFS{Device: dev, UUID: s.FSUUID, Args: s.MkfsArgs})
	if !p.running {
		mount := &resource.MountPoint{Source: dev, Path: s.MountPoint, Type: "xfs", Options: s.MountOpts}
		if dev == lv {
			mount.Until = (&cache.Config{VG: v.VG}).Device()
		}
		if b.pair.HA == nil {
			mount.Fstab = true
			// A server whose disks are away still boots, so that it can be mended;
			// nfs-server waits for the mount by its own generator.
			mount.Options = append(slices.Clone(s.MountOpts), "nofail", "x-systemd.device-timeout=120s")
			if v.Cache != nil {
				mount.Options = append(mount.Options, "x-systemd.requires="+cacheUnit(s.Name), "x-systemd.after="+cacheUnit(s.Name))
			}
		}
		b.add(StageStorage, p.host, "mount "+s.MountPoint, mount)
	}
	if b.pair.HA != nil {
		b.add(StageStorage, p.host, "directory for the NFS state", &resource.Directory{Path: path.Dir(s.StateDir), Mode: 0o711})
	}
	made := map[string]bool{filepath.Clean(s.MountPoint): true}
	for _, e := range s.Exports {
		for _, dir := range below(s.MountPoint, e.Dir) {
			if !made[dir] {
				made[dir] = true
				b.add(StageStorage, p.host, "directory "+dir, &resource.Directory{Path: dir, Keep: true})
			}
		}
	}
	return nil
}

// below lists the directories from a mount point down to dir.
func below(mount, dir string) []string {
	mount, dir = filepath.Clean(mount), filepath.Clean(dir)
	var out []string
	for dir != mount && strings.HasPrefix(dir, mount+"/") {
		out = append([]string{dir}, out...)
		dir = filepath.Dir(dir)
	}
	return out
}

// ArrayOf is the md array of a RAID group, to be compared where it runs: its
// diff adds disks of the group that it does not have.
func ArrayOf(g design.Group) *resource.Array { return arrayOf(g, false) }

func arrayOf(g design.Group, assemble bool) *resource.Array {
	return &resource.Array{
		Name: g.Name, UUID: g.UUID, Level: g.Level, Chunk: int64(g.Chunk),
		Members: refs(g.Members), Spares: refs(g.Spares), Assemble: assemble,
	}
}

// nfs configures nfsd: run by systemd on a single server, by the resource
// agent in a cluster.
func (b *builder) nfs() error {
	n := b.d.Spec.NFS
	for _, h := range b.servers {
		if b.stock() {
			b.stockNFS(h)
			continue
		}
		b.add(StageNFS, h, "NFS configuration", &resource.TextFile{
			Path: "/etc/nfs.conf.d/mortar.conf", Content: []byte(b.nfsConf()),
		})
		if b.pair.HA == nil {
			var lines []ocf.Export
			for _, s := range b.services() {
				lines = append(lines, exportsOf(s)...)
			}
			b.add(StageNFS, h, "NFS units", &resource.Units{Name: "nfs", List: []resource.Unit{
				{Name: "rpcbind.socket", Enabled: true, Active: true, Why: "NFSv3 clients ask it for the ports of mountd and statd"},
				{Name: "nfs-server.service", Enabled: true, Active: true},
			}})
			b.add(StageNFS, h, "exports", &resource.Exports{Path: "/etc/exports.d/mortar.exports", Lines: lines})
			b.add(StageNFS, h, "NFS server", &resource.NFSServer{Threads: n.Threads, Versions: n.Versions, Lease: n.Lease, Grace: n.Grace})
			continue
		}
		b.add(StageNFS, h, "NFS units", &resource.Units{Name: "nfs", List: []resource.Unit{
			{Name: "rpcbind.socket", Enabled: true, Active: true, Why: "NFSv3 clients ask it for the ports of mountd and statd"},
			{Name: "nfs-server.service", Masked: true, Keep: b.servesNow(h), Why: "nfsd is the resource agent's to start, on the server that owns the volume"},
			{Name: "rpc-statd-notify.service", Masked: true, Keep: true, Why: "the resource agent notifies, from the service address"},
		}})
		for _, svc := range b.services() {
			b.add(StageNFS, h, "name of "+svc.Address, &resource.HostsEntry{
				Address: svc.Address, Names: []string{svc.Address, svc.Scope},
				Why: "after a takeover sm-notify speaks to NFSv3 clients as the name of the service address; they know the server " +
					"by its address, so that must be its name too, or they do not reclaim their locks",
			})
		}
		b.add(StageNFS, h, "resource agent", &resource.Directory{Path: b.distro(h).OCF + "/mortar"})
		b.add(StageNFS, h, "resource agent ocf:mortar:service", &resource.Symlink{
			Path: b.distro(h).OCF + "/mortar/service", Target: mortarPath,
		})
		b.add(StageNFS, h, "resource agent ocf:mortar:watch", &resource.Symlink{
			Path: b.distro(h).OCF + "/mortar/watch", Target: mortarPath,
		})
		for _, s := range b.services() {
			r, err := b.ocfConfig(s)
			if err != nil {
				return err
			}
			b.add(StageNFS, h, "configuration of service "+s.Name, r)
			// On both: which of them has the service may change meanwhile.
			b.add(StageNFS, h, "exports of service "+s.Name, &resource.ServiceExports{
				Service: s.Name, Agent: mortarPath, Config: ocfConfigPath(s.Name), StateDir: s.StateDir, Namespace: s.Namespace, Exports: exportsOf(s),
			})
		}
	}
	return nil
}

// servesNow: while the agent's nfsd runs on a host, units are only masked,
// never stopped.
func (b *builder) servesNow(host string) bool {
	for _, s := range b.services() {
		if p := b.placeOf(s); p.running && p.host == host {
			return true
		}
	}
	return false
}

func (b *builder) nfsConf() string {
	n := b.d.Spec.NFS
	var t strings.Builder
	t.WriteString(resource.Header)
	if b.pair.HA != nil {
		t.WriteString("# The resource agent sets the same values when it starts nfsd; here they are\n# for whoever looks.\n")
	}
	t.WriteString("[nfsd]\n")
	for _, s := range b.d.SettingsOf("nfsd") {
		if s.Name == "scope" && len(b.pair.Services) > 1 {
			continue // each service has its own
		}
		switch s.Name {
		case "threads", "lease", "grace", "scope":
			key := map[string]string{"threads": "threads", "lease": "lease-time", "grace": "grace-time", "scope": "scope"}[s.Name]
			fmt.Fprintf(&t, "# %s\n%s=%s\n", s.Reason, key, s.Value)
		}
	}
	yes := func(v string) string {
		if slices.ContainsFunc(n.Versions, func(x string) bool { return x == v || strings.HasPrefix(x, v+".") }) {
			return "y"
		}
		return "n"
	}
	fmt.Fprintf(&t, "vers3=%s\nvers4=%s\nvers4.0=%s\nvers4.1=%s\nvers4.2=%s\n", yes("3"), yes("4"), yes("4.0"), yes("4.1"), yes("4.2"))
	return t.String()
}

func (b *builder) ocfConfig(s *design.Service) (*resource.OCFConfig, error) {
	n, v := b.d.Spec.NFS, &s.Storage
	c := ocf.Config{
		Service: s.Name, MDStorage: &ocf.MDStorage{}, VolumeGroup: ocf.VolumeGroup{VG: v.VG, LV: v.LV, SystemID: v.SystemID},
		NFSService: &ocf.NFSService{
			FSUUID: s.FSUUID, MountPoint: filepath.Clean(s.MountPoint), MountOpts: s.MountOpts, StateDir: s.StateDir,
			Namespace: s.Namespace,
			NFS:       ocf.NFS{Threads: n.Threads, Versions: n.Versions, Lease: n.Lease, Grace: n.Grace, Scope: s.Scope},
			Address:   s.Address + "/" + strconv.Itoa(s.Prefix),
		},
		Nodes: map[string]string{},
	}
	if v := b.value("nfsd", "lock grace", ""); v != "" {
		g, err := strconv.Atoi(v)
		if err != nil {
			return nil, fmt.Errorf("lock grace: %w", err)
		}
		c.NFS.LockGrace = g
	}
	for _, x := range b.d.Spec.Servers {
		c.Nodes[x.Name] = x.Public
	}
	if b.pair.HA != nil {
		c.Rings = map[string][]string{}
		for _, n := range b.pair.HA.Nodes {
			c.Rings[n.Name] = n.Rings
		}
		for _, f := range b.fenceDevices() {
			if !slices.Contains(c.Fences, f.Params["ip"]) {
				c.Fences = append(c.Fences, f.Params["ip"])
			}
		}
	}
	c.Exports = exportsOf(s)
	if v.Cache != nil {
		c.Cache = cache.ConfigPath(s.Name)
	}
	r := &resource.OCFConfig{Path: ocfConfigPath(s.Name), Agent: mortarPath}
	for _, g := range b.d.GroupsIn(v) {
		c.Arrays = append(c.Arrays, ocf.Array{Name: g.Name, UUID: g.UUID, Need: md.Fewest(g.Level, len(g.Members))})
		r.Members = append(r.Members, refs(append(slices.Clone(g.Members), g.Spares...)))
	}
	var err error
	r.Template, err = json.Marshal(c)
	return r, err
}

// exportsOf are a service's exports as exportfs is told of them.
func exportsOf(s *design.Service) []ocf.Export {
	var out []ocf.Export
	for _, e := range s.Exports {
		out = append(out, ocf.Export{Dir: filepath.Clean(e.Dir), Clients: e.Clients, FSID: e.FSID, Options: e.Options})
	}
	return out
}

func ocfConfigPath(service string) string { return "/etc/mortar/service-" + service + ".json" }

// membership is Corosync and Pacemaker, up to a complete cluster.
func (b *builder) membership() error {
	ha := b.pair.HA
	key, err := b.secrets(CorosyncKey)
	if err != nil {
		return err
	}
	consensus, err := strconv.Atoi(b.value("corosync", "consensus", strconv.Itoa(ha.TokenMS*6/5)))
	if err != nil {
		return fmt.Errorf("consensus: %w", err)
	}
	c := &resource.Corosync{Cluster: ha.Cluster, TokenMS: ha.TokenMS, ConsensusMS: consensus, Key: key}
	var nodes []string
	for _, n := range ha.Nodes {
		c.Nodes = append(c.Nodes, resource.CorosyncNode{ID: n.ID, Name: n.Name, Rings: n.Rings})
		nodes = append(nodes, n.Name)
	}
	for _, h := range b.servers {
		b.add(StageMembership, h, "directory /etc/mortar", &resource.Directory{Path: "/etc/mortar", Mode: 0o700})
		b.add(StageMembership, h, "directory for secrets", &resource.Directory{Path: secretsDir, Mode: 0o700})
		for _, f := range b.fenceDevices() {
			if f.SNMP != nil {
				conf, err := b.snmpConfig(f)
				if err != nil {
					return err
				}
				b.add(StageMembership, h, "secret of "+f.ID, &resource.TextFile{
					Path: SecretPath(f), Content: conf, Mode: 0o600, Secret: true,
					Why: "read by net-snmp's commands, so that it is in no argument and not in the CIB",
				})
				continue
			}
			if f.SecretParam == "community" {
				continue
			}
			secret, err := b.secret(f)
			if err != nil {
				return err
			}
			b.add(StageMembership, h, "secret of "+f.ID, &resource.TextFile{
				Path: SecretPath(f), Content: append([]byte(secret), '\n'), Secret: true,
				Why: "given to the fence agent by a script, so that it is in no argument and not in the CIB",
			})
			b.add(StageMembership, h, "script for the secret of "+f.ID, &resource.TextFile{
				Path: SecretPath(f) + ".sh", Mode: 0o700,
				Content: []byte("#!/bin/sh\n" + resource.Header + "exec cat " + SecretPath(f) + "\n"),
			})
		}
		b.add(StageMembership, h, "order of stopping", &resource.TextFile{
			Path: "/etc/systemd/system/resource-agents-deps.target.d/mortar.conf",
			Content: []byte(resource.Header +
				"# Pacemaker starts after these, and stops before them at shutdown.\n" +
				"[Unit]\nRequires=rpcbind.socket\nAfter=rpcbind.socket multipathd.service\n"),
		})
		b.add(StageMembership, h, "corosync", c)
		b.add(StageMembership, h, "cluster units", &resource.Units{Name: "cluster", NoWait: true, List: []resource.Unit{
			{Name: "corosync.service", Enabled: true, Active: true},
			{Name: "pacemaker.service", Enabled: true, Active: true},
		}})
	}
	b.add(StageCluster, b.configurator(), "cluster "+ha.Cluster, &resource.Cluster{Name: ha.Cluster, Nodes: nodes, Seconds: 180})
	return nil
}

// configurator is the server the cluster is configured from: one that has a
// ready cluster, or the first.
func (b *builder) configurator() string {
	for _, s := range b.servers {
		if c := b.facts.Hosts[s].Cluster; c != nil && c.Ready {
			return s
		}
	}
	return b.servers[0]
}

// SecretPath is where a fence device's secret is kept on the servers. Of a
// user of SNMPv3 it is a configuration of net-snmp's commands: as options of
// the fence agent the pass phrases would be arguments of those commands, which
// every user of the server can read.
//
// Source: snmp.conf(5); fencing_snmp.py, prepare_cmd
func SecretPath(f design.FenceDevice) string {
	if f.SNMP != nil {
		return secretsDir + "/" + f.ID + "/snmp.conf"
	}
	return secretsDir + "/" + f.ID
}

// snmpCommands are the parameters by which the fence agent calls net-snmp's
// commands with the configuration of SecretPath and no other. The
// configuration for one host that net-snmp looks for itself is not found: the
// agent names the port with the address.
//
// Source: fence_apc_snmp(8), snmpget_path; snmp_config(5), SNMPCONFPATH
func snmpCommands(f design.FenceDevice) map[string]string {
	out := map[string]string{}
	for _, c := range []string{"snmpget", "snmpset", "snmpwalk"} {
		out[c+"_path"] = "/usr/bin/env SNMPCONFPATH=" + path.Dir(SecretPath(f)) + " /usr/bin/" + c
	}
	return out
}

// snmpConfig is the file of SecretPath for a user of SNMPv3.
// Source: snmp.conf(5)
func (b *builder) snmpConfig(f design.FenceDevice) ([]byte, error) {
	var lines strings.Builder
	lines.WriteString(resource.Header)
	fmt.Fprintf(&lines, "defVersion 3\ndefSecurityName %s\ndefSecurityLevel authPriv\ndefAuthType %s\ndefPrivType %s\n", f.SNMP.User, f.SNMP.Auth, f.SNMP.Privacy)
	for _, x := range []struct{ key, file string }{{"defAuthPassphrase", f.SNMP.AuthFile}, {"defPrivPassphrase", f.SNMP.PrivacyFile}} {
		s, err := b.secretLine(x.file)
		if err != nil {
			return nil, err
		}
		// Source: RFC 3414, section 11.2; the file's quoting has no escape for all.
		if len(s) < 8 || strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' || r == '"' || r == '\\' }) {
			return nil, fmt.Errorf("secret file %s: a pass phrase of SNMPv3 has 8 characters or more, of ASCII without quotes and backslashes", x.file)
		}
		fmt.Fprintf(&lines, "%s \"%s\"\n", x.key, s)
	}
	return []byte(lines.String()), nil
}

// fenceDevices are all of them, once.
func (b *builder) fenceDevices() []design.FenceDevice {
	var out []design.FenceDevice
	for _, l := range b.pair.HA.Fencing {
		for _, f := range l.Devices {
			if !slices.ContainsFunc(out, func(o design.FenceDevice) bool { return o.ID == f.ID }) {
				out = append(out, f)
			}
		}
	}
	return out
}

// secret is a fence device's.
func (b *builder) secret(f design.FenceDevice) (string, error) { return b.secretLine(f.SecretFile) }

func (b *builder) secretLine(file string) (string, error) { return secretLine(file, b.secrets) }

// secretLine is one line of a file; the newline an editor added is no part of it.
func secretLine(file string, read func(file string) ([]byte, error)) (string, error) {
	s, err := read(file)
	if err != nil {
		return "", err
	}
	t := strings.TrimRight(string(s), "\r\n")
	if t == "" || strings.ContainsAny(t, "\n\r\x00") {
		return "", fmt.Errorf("secret file %s: one line with the secret is wanted", file)
	}
	return t, nil
}

func (b *builder) configuration() error {
	cib, err := b.cib()
	if err != nil {
		return err
	}
	at := b.configurator()
	b.add(StageCluster, at, "cluster configuration", &resource.CIB{
		Configuration: cib.String(), Owned: []string{"service-", "fence-", "fencing-", "locate-", "order-", "mortar-"}, Secret: []string{"community"},
	})
	for _, s := range b.services() {
		// Watched from the other server: this one is busy starting it.
		at = b.servers[0]
		if at == s.Preferred && len(b.servers) > 1 {
			at = b.servers[1]
		}
		b.add(StageService, at, "service "+s.Name, &resource.Running{
			Name: "service " + s.Name, Resources: []string{resource.ServiceID(s.Name)}, Seconds: 300,
		})
	}
	var fencing []string
	for _, f := range b.fenceDevices() {
		fencing = append(fencing, f.ID)
	}
	// Last, because the clients need not wait for the devices to be tried.
	b.add(StageFencing, at, "fence devices", &resource.Running{Name: "fencing", Resources: fencing, Seconds: 300})
	return nil
}

func (b *builder) clients() {
	for _, c := range b.clientNames() {
		for _, svc := range b.services() {
			b.add(StageClients, c, "name of "+svc.Address, &resource.HostsEntry{
				Address: svc.Address, Names: []string{svc.Address, svc.Scope},
				Why: "statd looks the server's address up at the first lock of NFSv3, and where nobody answers waits ten seconds for a name",
			})
		}
		for _, m := range b.d.Mounts {
			if m.Client != c {
				continue
			}
			b.add(StageClients, c, "mount "+m.Path, &resource.MountPoint{
				Source: m.Source, Path: m.Path, Type: "nfs", Fstab: true,
				// nofail: a client boots while the service is away.
				Options: append(slices.Clone(m.Options), "_netdev", "nofail"),
			})
		}
	}
}

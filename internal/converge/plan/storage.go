package plan

import (
	"encoding/json"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/distro"
	"github.com/mortarhpc/mortar/internal/base/lists"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/host/resource/storage"
	"github.com/mortarhpc/mortar/internal/serve/cache"
	"github.com/mortarhpc/mortar/internal/serve/fence"
	"github.com/mortarhpc/mortar/internal/serve/ocf"
)

// storageKind is what a kind of storage adds to the plan of a pair: md arrays
// of disks, or LUNs of RAID arrays. Everything else is the same for both: volume
// group, logical volumes, cache, and what a kind of service makes on them.
type storageKind interface {
	// refuse says what of the facts speaks against any plan.
	refuse() error
	packages(p distro.Packages) []string // of a server, before those of the service's kind
	modules() []string                   // of the kernel
	// checks look at all devices of the pair on its servers, before anything is
	// changed.
	checks()
	// carries looks, on the one server that builds, at what the devices of a
	// service carry; first: also at those of no service.
	carries(s *design.Service, host string, first bool)
	// files keep the kernel, udev and the initial RAM disk from using the devices
	// by themselves. more are files that the initial RAM disk has to have.
	files(host string, more []string)
	// devices are multipath and the queues of devices.
	devices(host string)
	// uses names what of a service's storage does I/O on a server; there tells
	// whether any of it is there, also at rest.
	uses(s *design.Service, host string) []string
	there(s *design.Service, host string) bool
	// build has the physical volumes of a service made. It gives their devices,
	// and the serials of those that must be blank.
	build(s *design.Service, p place) (pvs, serials []string)
	// pv is the physical volume that a growth added, by its name in the design.
	pv(name string) string
	// claim tells what makes storage one server's own, to those who look
	// whether another has it, and to those who take it down.
	claim(s *design.Service, u *storage.Unclaimed, r *storage.ReleaseStorage)
	// agent tells the resource agent.
	agent(s *design.Service, c *ocf.Config, r *storage.OCFConfig)
}

// reservations has the keys with which the servers of the pair reserve its LUNs or disks; nil if
// they do not.
func reservations(p *design.Pair) map[string]string {
	if p.HA == nil {
		return nil
	}
	return p.HA.Reservations
}

// keys are those of all servers of the pair.
func keys(p *design.Pair) []string { return slices.Sorted(maps.Values(reservations(p))) }

// storage is the kind of storage of the pair.
func (b *builder) storage() storageKind {
	if len(b.pair.Services[0].Storage.LUNs) > 0 {
		return lunStorage{b}
	}
	return mdStorage{b}
}

// lvm keeps servers of a pair from activating each other's volume groups.
const lvmConf = "/etc/lvm/lvmlocal.conf"

// storageFiles are what keeps md and LVM from doing things by themselves, or
// makes them do so.
func (b *builder) storageFiles(h string) {
	var files []string
	if b.pair.HA != nil {
		b.upgradesAtNight(h)
		b.add(StageKernel, h, "LVM configuration", &resource.TextFile{Path: lvmConf, Content: []byte(resource.Header +
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
		files = append(files, lvmConf)
	}
	b.storage().files(h, files)
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
		cachePart{b}.files(h)
	}
	b.add(StageKernel, h, "md configuration", &storage.MDConf{
		Path: b.distro(h).MDConf.Dir + "mortar.conf", Content: []byte(resource.Header + lines), Arrays: arrays,
	})
	b.checksOfArrays(h)
	b.add(StageKernel, h, "initial RAM disk", &storage.Initramfs{Arrays: arrays, Files: files})
}

// checksOfArrays ends the distribution's checks of all md arrays. They would also check
// a degraded array below a cache, and run beside a scrub. In their place, at the same hour,
// the server that has an array of the brick scrubs it if it is whole and idle.
func (b *builder) checksOfArrays(h string) {
	bg := b.distro(h).Background
	u := &resource.Units{Name: "checks of arrays"}
	for _, t := range bg.CheckTimers {
		u.List = append(u.List, resource.Unit{Name: t, Masked: true, Optional: true, Why: "mortar-scrub.timer checks the brick's arrays"})
	}
	b.add(StageKernel, h, "checks of arrays", u)
	b.add(StageKernel, h, "checks of arrays by cron", &resource.TextFile{Path: bg.CheckCron, IfThere: true,
		Content: []byte(resource.Header + "# mortar-scrub.timer checks the brick's arrays instead.\n"),
		Why:     "the distribution checks all arrays, degraded ones too"})
	var scrubs strings.Builder
	var scrubbed []design.Group
	for _, s := range b.services() {
		for _, g := range b.d.GroupsIn(&s.Storage) {
			if g.Level == 6 {
				scrubbed = append(scrubbed, g)
				scrubs.WriteString("/dev/md/" + g.Name + "\n")
			}
		}
	}
	if scrubs.Len() == 0 {
		return
	}
	// A file of its own: systemd would not notice that a unit has changed.
	b.add(StageKernel, h, "groups to scrub", &resource.TextFile{Path: scrubList, Content: []byte(scrubs.String())})
	b.add(StageKernel, h, "service that scrubs", &resource.TextFile{Path: unitPath(scrubService), Content: []byte(resource.Header + `[Unit]
Description=Scrub of the RAID 6 groups that this server has

[Service]
Type=oneshot
ExecStart=/usr/bin/xargs --arg-file=` + scrubList + ` --max-args=1 --max-procs=` + strconv.Itoa(design.ScrubsAtOnce(b.d, scrubbed)) + ` ` + mortarPath + ` scrub-array
# xargs(1): a command failed, as it does for an array that the partner has.
SuccessExitStatus=123
Nice=10
IOSchedulingClass=idle
`)})
	b.add(StageKernel, h, "timer of the scrub", &resource.TextFile{Path: unitPath(scrubTimer), Content: []byte(resource.Header + `[Unit]
Description=Scrub of the RAID 6 groups once a month

[Timer]
# The hour of Debian's own checks.
OnCalendar=Sun *-*-1..7 1:00:00

[Install]
WantedBy=timers.target
`)})
	b.add(StageKernel, h, "scrub", &resource.Units{Name: "scrub", List: []resource.Unit{{Name: scrubTimer, Enabled: true, Active: true}}})
}

const (
	scrubService = "mortar-scrub.service"
	scrubTimer   = "mortar-scrub.timer"
	scrubList    = "/etc/mortar/scrub"
)

// upgradesAtNight keeps automatic upgrades from what the cluster runs on: a daemon that
// restarts takes its server out of the cluster, and no two servers at a time may go.
func (b *builder) upgradesAtNight(h string) {
	bg := b.distro(h).Background
	if bg.UpgradeConf != "" {
		b.add(StageKernel, h, "automatic upgrades", &resource.TextFile{Path: bg.UpgradeConf, Content: []byte(resource.Header + bg.UpgradeText),
			Why: "mortar upgrade upgrades cluster, storage and kernel, one server at a time"})
	}
	if bg.RestartConf != "" {
		b.add(StageKernel, h, "automatic restarts", &resource.TextFile{Path: bg.RestartConf, Content: []byte(resource.Header + bg.RestartText),
			Why: "mortar upgrade restarts them, by a reboot in standby"})
	}
}

// blockQueue sets the queues of devices on a server.
func (b *builder) blockQueue(h string, disks []storage.DiskRef, arrays []string) {
	if b.stock() {
		return // the kernel's queues as they are
	}
	var lvs []string
	for _, s := range b.services() {
		for _, v := range b.kind().volumes(s) {
			lvs = append(lvs, s.Storage.VG+"/"+v.name)
		}
	}
	b.add(StagePaths, h, "block queues", &storage.BlockQueue{
		Path: "/etc/udev/rules.d/90-mortar-block.rules", Disks: disks, Arrays: arrays, Volumes: lvs,
		DiskSettings:   queueSettings(b.settings("server", "disk")),
		ArraySettings:  queueSettings(b.settings("server", "md")),
		VolumeSettings: queueSettings(b.settings("server", "lv")),
	})
}

// build makes what a service stands on, on one server, from arrays or LUNs to
// directories.
func (b *builder) build(s *design.Service) {
	p := b.placeOf(s)
	first := len(b.steps)
	pvs, serials := b.storage().build(s, p)
	if b.pair.HA != nil {
		// Both servers have the mount points, so that the agent need not make them.
		for _, host := range b.servers {
			for _, m := range s.MountPoints() {
				b.add(StageRelease, host, "mount point "+m, &resource.Directory{Path: m, Keep: true})
			}
		}
	}
	if p.alone() || p.running {
		if s.Storage.VG != "" {
			b.volumes(s, p, pvs, serials)
		}
		b.kind().content(s, p, serials)
	}
	// Otherwise the service is stopped or failed, and it is the cluster's to
	// start, or the storage is being released: the arrays' content
	// cannot be looked at.
	if b.pair.HA != nil && !p.managed {
		b.guard(b.steps[first:], s, p.host)
		b.release(s, p.host)
	}
}

// owned is what storage is known by: its volume group, or without one the
// service.
func owned(s *design.Service) string {
	if s.Storage.VG != "" {
		return s.Storage.VG
	}
	return s.Name
}

// guard has every action that builds storage preceded by a look at all servers:
// between the plan and the action an administrator may have started a cluster.
func (b *builder) guard(steps []Step, svc *design.Service, at string) {
	var guards []Step
	for _, s := range b.servers {
		u := &storage.Unclaimed{Service: resource.ServiceID(svc.Name)}
		if s != at {
			b.storage().claim(svc, u, &storage.ReleaseStorage{})
		}
		guards = append(guards, Step{Stage: StageStorage, Title: "no other server has " + owned(svc), Host: s, Resource: u})
	}
	for i := range steps {
		if steps[i].Stage == StageStorage {
			steps[i].Guards = guards
		}
	}
}

// release takes the storage down once it is built, and hands it over to the
// resource agent.
func (b *builder) release(s *design.Service, host string) {
	v := &s.Storage
	r := &storage.ReleaseStorage{VG: v.VG, LV: v.LV, SystemID: ocf.BuildingID(v.SystemID), RestID: v.SystemID, MountPoint: b.kind().builtOn(s)}
	b.storage().claim(s, &storage.Unclaimed{}, r)
	if v.Cache != nil {
		r.Cache, r.Cached = cache.ConfigPath(s.Name), (&cache.Config{VG: v.VG}).Mounted()
	}
	b.add(StageRelease, host, "storage of "+owned(s)+" is built", &resource.Built{VG: owned(s), Digest: b.digest(s)})
	b.add(StageRelease, host, "release "+owned(s), r)
}

// volume is a logical volume of a service; the last one takes what is left.
type volume struct {
	name string
	size int64 // bytes; 0: the rest
}

// firstPVs are the physical volumes that a volume group is made of; those of its
// growths are added later, and are the last of all.
func firstPVs(v *design.Storage, pvs []string) []string {
	for _, names := range v.Growths {
		pvs = pvs[:len(pvs)-len(names)]
	}
	return pvs
}

// growths extends a volume by the groups of its growths, and its file system to all
// of the volume. While the cluster serves the volume, both servers' agents learn of
// the groups first: then a takeover at any moment finds what it needs.
func (b *builder) growths(s *design.Service, p place, id string, pvs []string, align int64) {
	v := &s.Storage
	if len(v.Growths) == 0 {
		return
	}
	stage := StageStorage
	if p.managed {
		stage, id = StageGrowth, "" // the server that serves it owns it
	}
	g := &storage.GrownVolume{
		VG: v.VG, LV: v.LV, PVs: pvs, SystemID: id, Align: align, StripeSize: int64(v.StripeSize), Slack: int64(v.ExtentSize),
	}
	if s.NFS != nil {
		g.MountPoint = filepath.Clean(s.MountPoint)
	}
	if v.Cache != nil {
		g.Cache = cache.ConfigPath(s.Name)
	}
	g.Header = cachePart{b}.headerOf(s)
	for _, names := range v.Growths {
		of := lists.Map(names, b.storage().pv)
		g.Growths = append(g.Growths, of)
		g.HeaderBytes = append(g.HeaderBytes, headerSize(align, int64(v.ExtentSize), len(of)))
	}
	b.add(stage, p.host, "growth of "+v.VG+"/"+v.LV, g)
}

// volumes are the volume group, its logical volumes and the cache.
func (b *builder) volumes(s *design.Service, p place, pvs, serials []string) {
	v := &s.Storage
	id, rest := "", ""
	if b.pair.HA != nil {
		id = v.SystemID
		if !p.managed {
			id, rest = ocf.BuildingID(v.SystemID), v.SystemID
		}
	}
	align := alignOf(b.d, v)
	all := b.kind().volumes(s)
	first := firstPVs(v, pvs)
	b.add(StageStorage, p.host, "volume group "+v.VG, &storage.VolumeGroup{
		Name: v.VG, LV: all[len(all)-1].name, PVs: first, Later: pvs[len(first):], Serials: serials, SystemID: id, RestID: rest, Align: align, ExtentSize: int64(v.ExtentSize),
	})
	cachePart{b}.header(s, p, id, first, pvs[len(first):], align)
	for _, lv := range all {
		b.add(StageStorage, p.host, "logical volume "+v.VG+"/"+lv.name, &storage.LogicalVolume{
			VG: v.VG, Name: lv.name, PVs: first, Later: pvs[len(first):], SystemID: id, Stripes: v.Stripes, StripeSize: int64(v.StripeSize), Size: lv.size, Activate: !p.managed,
		})
	}
	b.growths(s, p, id, pvs, align)
	switch {
	case v.Cache != nil:
		cachePart{b}.device(s, p)
	case b.kind().caches():
		b.add(StageStorage, p.host, "no cache of "+v.VG+"/"+v.LV, &storage.NoCache{Path: cache.ConfigPath(s.Name)})
	}
}

// alignOf is where LVM starts data on each physical volume: at a multiple of a
// full stripe, 1 MiB or more.
func alignOf(d *design.Design, v *design.Storage) int64 {
	groups := d.GroupsIn(v)
	if len(groups) == 0 {
		return 0
	}
	full := int64(groups[0].Data) * int64(groups[0].Chunk)
	return (int64(spec.MiB) + full - 1) / full * full
}

// startSeconds is how long a start of a service may take that does not get on.
func startSeconds(d *design.Design) int {
	n, _ := strconv.Atoi(strings.TrimSuffix(d.Value("pacemaker", "start-timeout"), "s"))
	return n
}

// ocfConfig tells the resource agent what a service consists of.
func (b *builder) ocfConfig(s *design.Service) (*storage.OCFConfig, error) {
	v := &s.Storage
	c := ocf.Config{Service: s.Name, VolumeGroup: ocf.VolumeGroup{VG: v.VG, LV: v.LV, SystemID: v.SystemID}, Nodes: map[string]string{}}
	for _, x := range b.d.Spec.Servers {
		if slices.Contains(b.servers, x.Name) {
			c.Nodes[x.Name] = x.Public
		}
	}
	if b.value("pacemaker", "start-limit", "") != "" {
		c.StartSeconds = startSeconds(b.d)
	}
	if b.pair.HA != nil {
		c.Rings = map[string][]string{}
		for _, n := range b.pair.HA.Nodes {
			c.Rings[n.Name] = n.Rings
		}
		for _, f := range fenceDevices(b.pair) {
			if f.Params["ip"] != "" && !slices.Contains(c.Fences, f.Params["ip"]) {
				c.Fences = append(c.Fences, f.Params["ip"])
			}
		}
	}
	if v.Cache != nil {
		c.Cache = cache.ConfigPath(s.Name)
	}
	r := &storage.OCFConfig{Path: ocf.ConfigPath(s.Name), Agent: mortarPath}
	for _, dir := range b.facts.Unexport {
		r.Unexport = append(r.Unexport, s.MountPoint+dir)
	}
	b.storage().agent(s, &c, r)
	if err := b.kind().agent(s, &c); err != nil {
		return nil, err
	}
	var err error
	r.Template, err = json.Marshal(c)
	return r, err
}

// fenceAgentPath is where Pacemaker finds Mortar's fence agent.
// Source: Pacemaker's lib/fencing/st_rhcs.c, PCMK__FENCE_BINDIR
const fenceAgentPath = "/usr/sbin/" + fence.Name

// agents installs the fence agent and the resource agents on a server, and writes the
// configuration of each service; then adds the steps that follow for a service.
func (b *builder) agents(stage, h string, then func(*design.Service)) error {
	if b.pair.HA != nil && len(b.pair.HA.Hedge) > 0 {
		b.add(stage, h, "fence agent", &resource.TextFile{
			Path: fenceAgentPath, Mode: 0o755, Content: []byte("#!/bin/sh\n" + resource.Header + "exec " + mortarPath + " " + fence.Word + " \"$@\"\n"),
			Why: "an older mortar, after a downgrade, fails here; behind a link of that name it would print its help and count as a success",
		})
	}
	dir := b.distro(h).OCF + "/mortar"
	b.add(stage, h, "resource agent", &resource.Directory{Path: dir})
	for _, agent := range []string{"service", "watch"} {
		b.add(stage, h, "resource agent ocf:mortar:"+agent, &resource.Symlink{Path: dir + "/" + agent, Target: mortarPath})
	}
	for _, s := range b.services() {
		r, err := b.ocfConfig(s)
		if err != nil {
			return err
		}
		b.add(stage, h, "configuration of service "+s.Name, r)
		then(s)
	}
	return nil
}

// servesNow: while the agent's service runs on a host, units are only masked,
// never stopped.
func (b *builder) servesNow(host string) bool {
	return slices.ContainsFunc(b.services(), func(s *design.Service) bool {
		p := b.placeOf(s)
		return p.running && p.host == host
	})
}

// directories makes those from a mount point down to each of dirs, on the
// server that has it mounted.
func (b *builder) directories(host, mount string, dirs []string) {
	made := map[string]bool{filepath.Clean(mount): true}
	for _, d := range dirs {
		for _, dir := range below(mount, d) {
			if !made[dir] {
				made[dir] = true
				b.add(StageStorage, host, "directory "+dir, &resource.Directory{Path: dir, Keep: true})
			}
		}
	}
}

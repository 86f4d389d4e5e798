package plan

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/host/resource/storage"
	"github.com/mortarhpc/mortar/internal/serve/cache"
)

// cacheUnit brings the cache of a single server's service up at boot.
func cacheUnit(service string) string { return "mortar-cache-" + service + ".service" }

// watchUnit keeps its label true, which the resource agent does in a cluster.
func watchUnit(service string) string { return "mortar-cache-watch-" + service + ".service" }

func unitPath(unit string) string { return linux.SystemdDir + unit }

// cacheConfig is what the servers are told of the cache.
func cacheConfig(s *design.Service) ([]byte, error) {
	v, k := &s.Storage, s.Storage.Cache
	c := cache.Config{
		Service: s.Name, VG: v.VG, LV: v.LV, Mode: k.Mode, Bypass: int64(k.Bypass), MirrorBytes: int64(k.Mirror),
		DirtyUUIDs: k.DirtyUUIDs, CleanUUIDs: k.CleanUUIDs,
	}
	for _, d := range k.SSDs {
		c.SSDs = append(c.SSDs, cache.SSD{Serial: d.Serial, Server: d.Server})
	}
	if err := c.Check(); err != nil {
		return nil, err
	}
	return json.MarshalIndent(c, "", "  ")
}

// cachePart makes the cache of a pair's service, or takes away what is left of one.
type cachePart struct{ *builder }

// ssds refuses SSDs that are not there or carry what is not ours.
func (b cachePart) ssds() {
	s := b.cached()
	if s == nil {
		return
	}
	k, at := s.Storage.Cache, b.placeOf(s)
	for _, h := range b.servers {
		r := &storage.CacheSSDs{Host: h, Arrays: slices.Concat(k.DirtyUUIDs, k.CleanUUIDs)}
		for _, d := range k.SSDs {
			if d.Server == "" || d.Server == h {
				w := storage.WantedDisk{DiskRef: ref(d), Wipe: slices.Contains(b.d.Spec.Wipe, d.Serial)}
				w.Enclosure = "cache"
				r.List = append(r.List, w)
				r.Check = r.Check || d.Server == h || h == at.host
			}
		}
		if len(r.List) == 0 {
			continue
		}
		stage := StageHosts
		if r.Check {
			stage = StageDisks
		}
		b.add(stage, h, "SSDs of "+h, r)
	}
}

// cacheRules are rules of udev that a cache needs, on the server and in its
// initial RAM disk, besides those that replace the ones of bcache-tools.
const cacheRules = "/etc/udev/rules.d/63-mortar-cache.rules"

// files are the cache's files on a server.
func (b cachePart) files(h string) {
	s := b.cached()
	v := &s.Storage
	b.add(StageKernel, h, "no bcache by itself", &resource.TextFile{
		Path: b.distro(h).BcacheRules,
		Content: []byte(resource.Header + "# In place of the rules of bcache-tools: a set or a backing device that is registered as\n" +
			"# soon as it is seen could be in use on the other server.\n"),
	})
	b.add(StageKernel, h, "partitions of the cache", &resource.TextFile{
		Path: cacheRules,
		Content: []byte(resource.Header + "# Before mdadm's 64-md-raid-assembly.rules, which on a remove event take a partition out of its\n" +
			"# array: also one that came back meanwhile, as after a partition table was read again.\n" +
			"SUBSYSTEM==\"block\", ENV{ID_PART_ENTRY_NAME}==\"mortar-*\", ENV{ID_FS_TYPE}=\"\"\n"),
	})
	b.add(StageKernel, h, "directory /etc/mortar", &resource.Directory{Path: "/etc/mortar", Mode: 0o700})
	b.add(StageKernel, h, "configuration of the cache", &resource.TextFile{Path: cache.ConfigPath(s.Name), Content: append(slices.Clone(b.cacheConf), '\n'), Mode: 0o600})
	if b.pair.HA != nil {
		return
	}
	unit := func(title, name, description string, more, service []string) {
		lines := slices.Concat([]string{strings.TrimSuffix(resource.Header, "\n"), "[Unit]", "Description=" + description}, more, []string{"", "[Service]"}, service, []string{""})
		b.add(StageKernel, h, title, &resource.TextFile{Path: unitPath(name), Content: []byte(strings.Join(lines, "\n"))})
	}
	command := func(op string) string { return mortarPath + " host-cache " + op + " " + cache.ConfigPath(s.Name) }
	unit("unit of the cache", cacheUnit(s.Name), "Cache of "+v.VG+"/"+v.LV, []string{
		"Wants=" + watchUnit(s.Name),
		"DefaultDependencies=no",
		"After=systemd-modules-load.service local-fs-pre.target",
		"Before=umount.target",
		"Conflicts=umount.target",
	}, []string{
		"Type=oneshot",
		"RemainAfterExit=yes",
		"ExecStart=" + command("start --wait"),
		"ExecStop=" + command("stop"),
		"TimeoutStartSec=300",
	})
	unit("unit that watches the cache", watchUnit(s.Name), "Which SSDs hold the newest dirty data of "+v.VG+"/"+v.LV, []string{
		"BindsTo=" + cacheUnit(s.Name),
		"After=" + cacheUnit(s.Name),
	}, []string{
		"Type=exec",
		"ExecStart=" + command("watch"),
		"Restart=on-failure",
		"RestartSec=5",
	})
}

// ignoreSSDs are lines of mdadm.conf(5).
func ignoreSSDs(c *design.Cache) string {
	t := "# Of the cache's SSDs: assembled by mortar host-cache, which knows which SSD holds\n# the newest data.\n"
	for _, u := range slices.Concat(c.DirtyUUIDs, c.CleanUUIDs) {
		t += "ARRAY <ignore> UUID=" + u + "\n"
	}
	return t
}

// headerOf is the header of a service's volume, "" if it can have no cache.
func (b cachePart) headerOf(s *design.Service) string {
	if !b.kind().caches() || b.stock() || len(b.d.Services()) > 1 || s.Storage.VG == "" {
		return ""
	}
	return cache.HeaderLV
}

// header makes room for bcache's superblocks and the label, before the volume takes all that is
// left of its group, with a cache or without: one may be added later. align is where a full
// stripe of a physical volume may begin.
func (b cachePart) header(s *design.Service, p place, id string, first, later []string, align int64) {
	v := &s.Storage
	if b.headerOf(s) == "" {
		return
	}
	lv := &storage.LogicalVolume{
		VG: v.VG, Name: cache.HeaderLV, PVs: first, Later: later, SystemID: id, Stripes: v.Stripes, StripeSize: int64(v.StripeSize),
		Size: headerSize(align, int64(v.ExtentSize), v.Stripes), Activate: !p.managed, Before: v.LV,
	}
	if p.managed {
		lv.SystemID = "" // the server that serves it owns it
	}
	if v.Cache != nil {
		lv.Late = int(headerSize(0, int64(v.ExtentSize), 1) / int64(v.ExtentSize))
	}
	b.add(StageStorage, p.host, "logical volume "+v.VG+"/"+cache.HeaderLV, lv)
}

// bare: a service's volume is there on a server, without the cache that the spec gives it.
func (b cachePart) bare(s *design.Service, host string) bool {
	v, mapped := &s.Storage, b.facts.Hosts[host].Mapped
	return v.Cache != nil && slices.Contains(mapped, linux.DMName(v.VG, v.LV)) && !slices.Contains(mapped, (&cache.Config{VG: v.VG}).Mounted())
}

// headerSize is at least what the header needs, and so much that the volume
// behind it begins with a full stripe on every physical volume.
func headerSize(align, extent int64, stripes int) int64 {
	step := extent // on each physical volume
	for align > 0 && step%align != 0 {
		step += extent
	}
	step *= int64(max(stripes, 1))
	return (cache.HeaderBytes + step - 1) / step * step
}

// device puts the layers of bcache, and the SSDs, in front of a volume. Of a volume in use the
// SSDs come last: before they have data, the agents of both servers know the cache, so that a
// takeover at any moment brings it up.
func (b cachePart) device(s *design.Service, p place) {
	v, host, stage := &s.Storage, p.host, StageStorage
	c := storage.Cache{Path: cache.ConfigPath(s.Name), VG: v.VG, LV: v.LV, Header: v.Cache.Header, Device: v.Cache.Device, Config: b.cacheConf}
	if p.managed || b.bare(s, host) {
		front := &storage.CacheFront{Cache: c, Managed: p.managed, Options: s.MountOpts}
		if b.pair.HA == nil {
			front.Stop = []string{"nfs-server.service"}
		}
		b.add(stage, host, "layers in front of "+v.VG+"/"+v.LV, front)
		stage = StageGrowth
	}
	b.add(stage, host, "cache of "+v.VG+"/"+v.LV, &c)
	if b.pair.HA == nil {
		b.add(StageStorage, host, "cache at boot", &resource.Units{Name: "cache", List: []resource.Unit{
			{Name: cacheUnit(s.Name), Active: true, Why: "stops the cache at shutdown; the mount starts it at boot"},
			{Name: watchUnit(s.Name), Active: true, Why: "writes down on the disks which SSDs hold the newest dirty data"},
		}})
	}
}

// forget removes what is left of a cache that was in the spec once.
func (b cachePart) forget() {
	if b.cached() != nil || !b.kind().caches() {
		return
	}
	name := b.pair.Services[0].Name
	for _, h := range b.servers {
		r := &storage.NoCache{Path: cache.ConfigPath(name), Forget: true}
		if b.pair.HA == nil {
			r.Units = []string{unitPath(cacheUnit(name)), unitPath(watchUnit(name))}
		}
		b.add(StageNFS, h, "no cache", r)
	}
}

package plan

import (
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/serve/cache"
)

// arraySteps are those of an NFS brick whose RAID groups an array makes: no
// md, and volume groups over LUNs. Everything above is as on JBODs.
func arraySteps(d *design.Design) ([]Step, error) {
	// The builder's own steps are of md arrays; without groups it makes none.
	own, pair := *d, d.Pairs[0]
	pair.Services = slices.Clone(pair.Services)
	for i := range pair.Services {
		pair.Services[i].Storage.Groups = nil
	}
	own.Pairs = []design.Pair{pair}
	b := newBuilder(&own, &own.Pairs[0], Facts{}, offlineSecrets)
	b.arrayHosts()
	b.cacheSSDs()
	for _, s := range b.servers {
		if b.cached() != nil {
			b.mdFiles(s, "", nil, nil)
		}
		b.lunKernel(s, []string{"nfsd"})
		b.multipathLUNs(s)
	}
	for _, s := range b.services() {
		if err := b.lunVolume(s); err != nil {
			return nil, err
		}
	}
	for _, c := range b.clientNames() {
		b.add(StagePackages, c, "packages", &resource.Packages{Names: b.distro(c).Packages.NFSClient})
		b.add(StageKernel, c, "kernel modules", &resource.Modules{Names: []string{"nfs"}, Options: b.settings("client", "module")})
		b.add(StageKernel, c, "kernel settings", &resource.Sysctl{Path: "/etc/sysctl.d/90-mortar.conf", Settings: b.settings("client", "sysctl")})
	}
	if err := b.serve(); err != nil {
		return nil, err
	}
	return inStages(b.steps), nil
}

// inStages brings each stage's steps together, in the order of an apply.
func inStages(steps []Step) []Step {
	order := []string{StageHosts, StagePackages, StageKernel, StageDisks, StageMultipath, StageStorage, StageRelease,
		StageTargets, StageMGS, StageMDT, StageOSTs, StageUnmount, StageReleased, StageNFS,
		StageMembership, StageCluster, StageService, StageParams, StageClients, StageFencing}
	at := func(s Step) int {
		if i := slices.Index(order, s.Stage); i >= 0 {
			return i
		}
		return len(order)
	}
	slices.SortStableFunc(steps, func(x, y Step) int { return at(x) - at(y) })
	return steps
}

// arrayHosts are checks and packages.
func (b *builder) arrayHosts() {
	for _, h := range slices.Concat(b.servers, b.clientNames()) {
		b.add(StageHosts, h, "host "+h, &resource.Host{Name: h})
	}
	for _, s := range b.servers {
		d := b.distro(s).Packages
		p := &resource.Packages{Names: slices.Concat(d.LVM, d.XFS, d.NFSServer)}
		if !b.localRAID() {
			p.Names = append(p.Names, d.Multipath...)
		}
		if b.cached() != nil {
			p.Names = slices.Concat(p.Names, d.Cache, d.MD)
		}
		if b.pair.HA != nil {
			p.Names = append(p.Names, d.Cluster...)
			p.Fence = d.FenceAgents
		}
		b.add(StagePackages, s, "packages", p)
	}
}

// lunKernel is modules, kernel settings and LVM's configuration.
func (b *builder) lunKernel(h string, modules []string) {
	m := &resource.Modules{Names: modules, Options: b.settings("server", "module")}
	if !b.localRAID() {
		m.Names = append([]string{"dm_multipath"}, m.Names...)
		for _, a := range b.d.Arrays {
			m.Names = append(m.Names, map[string]string{"md3": "scsi_dh_rdac", "me4": "scsi_dh_alua"}[a.Family])
			break
		}
	}
	if s := b.d.Value("disk", "scheduler"); s != "" && s != "none" {
		m.Names = append(m.Names, s)
	}
	b.add(StageKernel, h, "kernel modules", m)
	if ss := b.settings("server", "sysctl"); len(ss) > 0 {
		b.add(StageKernel, h, "kernel settings", &resource.Sysctl{Path: "/etc/sysctl.d/90-mortar.conf", Settings: ss})
	}
	if b.pair.HA != nil && b.d.Lustre == nil {
		b.add(StageKernel, h, "LVM configuration", &resource.TextFile{Path: "/etc/lvm/lvmlocal.conf", Content: []byte(resource.Header +
			`# A volume group belongs to the server whose name it carries: the other one
# refuses to activate it. Source: lvmsystemid(7)
global {
	system_id_source = "uname"
}
devices {
	multipath_component_detection = 1
}
`)})
	}
}

// localRAID: the array is a controller in the server, with one path to each
// LUN.
func (b *builder) localRAID() bool {
	return len(b.d.Arrays) > 0 && b.d.Arrays[0].Family == "perc"
}

// multipathLUNs names each LUN by its place in the design, on every server
// alike, and tunes its queue.
func (b *builder) multipathLUNs(h string) {
	var conf, rules strings.Builder
	conf.WriteString(resource.Header + "defaults {\n\tuser_friendly_names no\n\tfind_multipaths yes\n\tpolling_interval 5\n}\n")
	conf.WriteString("# What holds for the LUNs of the brick; all else is multipath's own table of arrays.\noverrides {\n")
	for _, s := range b.settings("server", "multipath") {
		v := s.Value
		if strings.Contains(v, " ") {
			v = `"` + v + `"`
		}
		fmt.Fprintf(&conf, "\t# %s\n\t%s %s\n", s.Reason, s.Name, v)
	}
	conf.WriteString("}\nmultipaths {\n")
	rules.WriteString(resource.Header)
	n := 0
	for _, a := range b.d.Arrays {
		if !slices.Contains(a.Servers, h) {
			continue
		}
		for _, l := range a.LUNs {
			n++
			wwid := "3" + l.WWN
			if l.WWN == "" {
				wwid = "<WWID of " + l.Name + ": arrays.wwns in the spec>"
			}
			fmt.Fprintf(&conf, "\tmultipath {\n\t\twwid %q\n\t\talias %s\n\t}\n", wwid, l.Name)
			match := fmt.Sprintf("ENV{DM_NAME}==%q", l.Name)
			if a.Family == "perc" {
				match = fmt.Sprintf("ENV{ID_WWN}==%q", "0x"+strings.TrimPrefix(l.Device, "/dev/disk/by-id/wwn-0x"))
			}
			fmt.Fprintf(&rules, "# LUN %d of array %s\nACTION==\"add|change\", SUBSYSTEM==\"block\", ENV{DEVTYPE}==\"disk\", %s", l.Number, a.Name, match)
			for _, s := range b.settings("server", "disk") {
				fmt.Fprintf(&rules, ", ATTR{queue/%s}=%q", s.Name, s.Value)
			}
			rules.WriteString("\n")
		}
	}
	if n == 0 {
		return
	}
	conf.WriteString("}\n")
	if !b.localRAID() {
		b.add(StageMultipath, h, "multipath", &resource.TextFile{Path: "/etc/multipath.conf", Content: []byte(conf.String())})
		b.add(StageMultipath, h, "multipathd", &commands{"multipath", b.d.Name, []resource.Action{
			cmd("start multipathd now and at boot", "systemctl", "enable", "--now", "multipathd.service"),
			cmd("wait for device nodes", "udevadm", "settle", "--timeout=120"),
		}})
	}
	b.add(StageMultipath, h, "block queues", &resource.TextFile{Path: "/etc/udev/rules.d/90-mortar-block.rules", Content: []byte(rules.String())})
	b.add(StageMultipath, h, "apply the rules", &commands{"block-queue", b.d.Name, []resource.Action{
		cmd("let udev read its rules again", "udevadm", "control", "--reload"),
		cmd("apply them to the devices that are there", "udevadm", "trigger", "--action=change", "--subsystem-match=block", "--settle"),
	}})
}

// lunVolume builds a volume over LUNs, on the server that prefers it.
func (b *builder) lunVolume(s *design.Service) error {
	v := &s.Storage
	h := s.Preferred
	id := ""
	if b.pair.HA != nil {
		id = v.SystemID
	}
	dev := v.Device
	if v.VG != "" {
		dev = "/dev/" + v.VG + "/" + v.LV
		full := int64(0)
		for _, a := range b.d.Arrays {
			if len(a.LUNs) > 0 {
				full = int64(a.LUNs[0].FullStripe)
			}
		}
		align := int64(spec.MiB)
		if full > 0 {
			align = (align + full - 1) / full * full
		}
		b.add(StageStorage, h, "volume group "+v.VG, &resource.VolumeGroup{Name: v.VG, LV: v.LV, PVs: v.LUNs, SystemID: id, Align: align, ExtentSize: int64(v.ExtentSize)})
		b.addHeader(v, h, id, v.LUNs, align, true)
		b.add(StageStorage, h, "logical volume "+v.VG+"/"+v.LV, &resource.LogicalVolume{VG: v.VG, Name: v.LV, PVs: v.LUNs, SystemID: id, Stripes: v.Stripes, StripeSize: int64(v.StripeSize), Activate: true})
		if v.Cache != nil {
			dev = v.Cache.Device
			if err := b.addCache(s, h); err != nil {
				return err
			}
		}
	}
	b.add(StageStorage, h, "file system on "+dev, &resource.XFS{Device: dev, UUID: s.FSUUID, Args: s.MkfsArgs})
	mount := &resource.MountPoint{Source: dev, Path: s.MountPoint, Type: "xfs", Options: s.MountOpts}
	if b.pair.HA == nil {
		mount.Fstab = true
		mount.Options = append(append([]string{}, s.MountOpts...), "nofail", "x-systemd.device-timeout=120s")
	}
	b.add(StageStorage, h, "mount "+s.MountPoint, mount)
	if b.pair.HA != nil {
		b.add(StageStorage, h, "directory for the NFS state", &resource.Directory{Path: path.Dir(s.StateDir), Mode: 0o711})
	}
	made := map[string]bool{}
	for _, e := range s.Exports {
		for _, dir := range below(s.MountPoint, e.Dir) {
			if !made[dir] {
				made[dir] = true
				b.add(StageStorage, h, "directory "+dir, &resource.Directory{Path: dir, Keep: true})
			}
		}
	}
	if b.pair.HA == nil {
		return nil
	}
	for _, x := range b.servers {
		b.add(StageRelease, x, "mount point "+s.MountPoint, &resource.Directory{Path: filepath.Clean(s.MountPoint), Keep: true})
	}
	release := []resource.Action{cmd("unmount "+s.MountPoint, "umount", s.MountPoint)}
	if v.Cache != nil {
		release = append(release, cmd("stop the cache of "+v.VG, mortarPath, "host-cache", "stop", cache.ConfigPath(s.Name)))
	}
	if v.VG != "" {
		release = append(release, cmd("deactivate "+v.VG, "lvm", "vgchange", "--activate", "n", "--config",
			`global{system_id_source="lvmlocal"} local{system_id="`+id+`"}`, v.VG))
	}
	b.add(StageRelease, h, "release "+v.VG, &commands{"release-storage", v.VG, release})
	return nil
}

package plan

import (
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/distro"
	"github.com/mortarhpc/mortar/internal/base/lists"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/host/resource/storage"
	"github.com/mortarhpc/mortar/internal/serve/cache"
	"github.com/mortarhpc/mortar/internal/serve/nfs"
	"github.com/mortarhpc/mortar/internal/serve/ocf"
)

// nfsKind are exports of an XFS file system by kernel nfsd, at an address.
type nfsKind struct{ *builder }

func (b nfsKind) serverPackages(p distro.Packages) []string {
	return slices.Concat(p.XFS, p.NFSServer, b.overRDMA(p.RDMA...))
}

func (b nfsKind) clientPackages(p distro.Packages) []string {
	return slices.Concat(p.NFSClient, b.overRDMA(p.RDMA...))
}

// overRDMA is what a brick needs that serves RDMA, nothing for another one.
func (b nfsKind) overRDMA(what ...string) []string {
	if !b.d.Spec.NFS.RDMA() {
		return nil
	}
	return what
}

func (b nfsKind) modules() []string {
	out := append([]string{"nfsd", "xfs"}, b.overRDMA("rpcrdma")...)
	if slices.ContainsFunc(b.services(), func(s *design.Service) bool { return s.Namespace != "" }) {
		out = append(out, "ipvlan")
	}
	return out
}

func (b nfsKind) caches() bool { return true }

func (b nfsKind) client(h string) {
	if text := b.confOf("client"); text != "" {
		b.add(StageKernel, h, "NFS client configuration", &resource.TextFile{
			Path: "/etc/nfs.conf.d/mortar-readahead.conf", Content: []byte(resource.Header + text),
		})
	}
	// Loaded while the servers are being built, not while a mount waits.
	b.add(StageKernel, h, "kernel modules", &resource.Modules{Names: append([]string{"nfs", "nfsv3", "nfsv4"}, b.overRDMA("rpcrdma")...), Options: b.settings("client", "module")})
	b.sysctl(h, "client")
	u := &resource.Units{Name: "nfs-client", NoWait: true, List: []resource.Unit{
		{Name: "rpcbind.socket", Enabled: true, Active: true, Why: "locks of NFSv3 need it"},
	}}
	if slices.ContainsFunc(b.d.Mounts, func(m design.ClientMount) bool { return m.Client == h && slices.Contains(m.Options, "vers=3") }) {
		u.List = append(u.List, resource.Unit{Name: "rpc-statd.service", Active: true, Why: "the first mount of NFSv3 would start it and wait"})
	}
	b.add(StageKernel, h, "NFS units", u)
}

func (b nfsKind) volumes(s *design.Service) []volume { return []volume{{name: s.Storage.LV}} }

func (b nfsKind) builtOn(s *design.Service) string { return s.MountPoint }

// content is the file system, mounted, with its directories.
func (b nfsKind) content(s *design.Service, p place, serials []string) {
	v := &s.Storage
	dev := v.Mounted()
	fs := &storage.XFS{Device: dev, UUID: s.FSUUID, Args: s.MkfsArgs}
	bare := cachePart(b).bare(s, p.host)
	if bare {
		fs.Device = v.Backing() // the same blocks, and it is there now
	}
	if v.VG == "" {
		fs.Serial = serials[0]
	}
	if b.pair.HA == nil {
		fs.At = s.MountPoint
	}
	b.add(StageStorage, p.host, "file system on "+fs.Device, fs)
	if !p.running {
		m := b.mount(s, dev)
		if bare {
			m.Until = v.Backing() // CacheFront mounts it
		}
		b.add(StageStorage, p.host, "mount "+s.MountPoint, m)
	}
	if b.pair.HA != nil {
		b.add(StageStorage, p.host, "directory for the NFS state", &resource.Directory{Path: path.Dir(s.StateDir), Mode: 0o711})
	}
	dirs := lists.Map(s.Exports, func(e design.Export) string { return e.Dir })
	b.directories(p.host, s.MountPoint, dirs)
}

func (b nfsKind) mount(s *design.Service, dev string) *storage.MountPoint {
	v := &s.Storage
	mount := &storage.MountPoint{Source: dev, Path: s.MountPoint, Type: "xfs", Options: s.MountOpts}
	if v.VG != "" && dev == v.Backing() {
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
	return mount
}

// server configures nfsd: run by systemd on a single server, by the resource
// agent in a cluster.
func (b nfsKind) server(h string) error {
	if b.stock() {
		b.stockNFS(h)
		return nil
	}
	n := b.d.Spec.NFS
	b.add(StageNFS, h, "NFS configuration", &resource.TextFile{
		Path: "/etc/nfs.conf.d/mortar.conf", Content: []byte(b.conf()),
	})
	for _, s := range b.settings("server", "statd") {
		b.add(StageNFS, h, "names for rpc.statd", resource.StatdNames(s))
		if b.pair.HA == nil {
			b.add(StageNFS, h, "rpc.statd", resource.StatdUnit())
		}
	}
	if b.pair.HA == nil {
		lines := lists.Flat(b.services(), exportsOf)
		b.add(StageNFS, h, "NFS units", &resource.Units{Name: "nfs", List: []resource.Unit{
			{Name: "rpcbind.socket", Enabled: true, Active: true, Why: "NFSv3 clients ask it for the ports of mountd and statd"},
			{Name: "nfs-server.service", Enabled: true, Active: true},
		}})
		b.add(StageNFS, h, "exports", &resource.Exports{Path: "/etc/exports.d/mortar.exports", Lines: lines})
		b.add(StageNFS, h, "NFS server", &resource.NFSServer{Threads: n.Threads, Connections: design.MostConnections, Versions: n.Versions, Lease: n.Lease, Grace: n.Grace, RDMA: b.rdmaPort()})
		return nil
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
	return b.agents(StageNFS, h, func(s *design.Service) {
		// On both: which of them has the service may change meanwhile.
		b.add(StageNFS, h, "exports of service "+s.Name, &resource.ServiceExports{
			Service: s.Name, Agent: mortarPath, Config: ocf.ConfigPath(s.Name), StateDir: s.StateDir, Namespace: s.Namespace, Exports: exportsOf(s),
		})
	})
}

func (b nfsKind) conf() string {
	n := b.d.Spec.NFS
	var t strings.Builder
	t.WriteString(resource.Header)
	if b.pair.HA != nil {
		t.WriteString("# The resource agent sets the same values when it starts nfsd; here the\n# administrator reads them.\n")
	}
	t.WriteString("[nfsd]\n")
	for _, s := range b.d.SettingsOf("nfsd") {
		if s.Name == "scope" && len(b.pair.Services) > 1 {
			continue // each service has its own
		}
		switch s.Name {
		case "threads", "lease", "grace", "scope", "rdma":
			key := map[string]string{"lease": "lease-time", "grace": "grace-time"}[s.Name]
			if key == "" {
				key = s.Name
			}
			fmt.Fprintf(&t, "# %s\n%s=%s\n", s.Reason, key, s.Value)
		case "interface":
			fmt.Fprintf(&t, "# %s: %s\n", s.Name, s.Reason)
		}
	}
	yes := func(v string) string {
		if slices.ContainsFunc(n.Versions, func(x string) bool { return x == v || strings.HasPrefix(x, v+".") }) {
			return "y"
		}
		return "n"
	}
	fmt.Fprintf(&t, "vers3=%s\nvers4=%s\nvers4.0=%s\nvers4.1=%s\nvers4.2=%s\n", yes("3"), yes("4"), yes("4.0"), yes("4.1"), yes("4.2"))
	return t.String() + b.confOf("server")
}

// confOf are the settings of the design for nfs.conf(5) on the hosts of a role, section by
// section.
func (b nfsKind) confOf(role string) string {
	var t strings.Builder
	last := ""
	for _, s := range b.settings(role, "nfs.conf") {
		section, key, _ := strings.Cut(s.Name, ".")
		if section != last {
			fmt.Fprintf(&t, "[%s]\n", section)
			last = section
		}
		fmt.Fprintf(&t, "%s%s=%s\n", resource.Comment(s.Reason), key, s.Value)
	}
	return t.String()
}

// rdmaPort is where nfsd listens for RDMA, 0 if it does not.
func (b nfsKind) rdmaPort() int {
	if b.d.Spec.NFS.RDMA() {
		return design.RDMAPort
	}
	return 0
}

func (b nfsKind) constraints(*resource.Element) {}

func (b nfsKind) agent(s *design.Service, c *ocf.Config) error {
	n := b.d.Spec.NFS
	c.NFSService = &nfs.NFSService{
		FSUUID: s.FSUUID, MountPoint: filepath.Clean(s.MountPoint), MountOpts: s.MountOpts, StateDir: s.StateDir, StateImage: s.StateDir + ".img",
		Namespace: s.Namespace,
		NFS:       nfs.NFS{Threads: n.Threads, Connections: design.MostConnections, Versions: n.Versions, Lease: n.Lease, Grace: n.Grace, Scope: s.Scope, RDMA: b.rdmaPort()},
		Address:   s.Address + "/" + strconv.Itoa(s.Prefix),
		Exports:   exportsOf(s),
	}
	if n := b.d.Spec.Nodes(); n > nfs.FewClients {
		c.NFS.Clients = n
	}
	if v := b.value("nfsd", "lock grace", ""); v != "" {
		g, err := strconv.Atoi(v)
		if err != nil {
			return fmt.Errorf("lock grace: %w", err)
		}
		c.NFS.LockGrace = g
	}
	return nil
}

// exportsOf are a service's exports in the form that exportfs takes.
func exportsOf(s *design.Service) []nfs.Export {
	var out []nfs.Export
	for _, e := range s.Exports {
		out = append(out, nfs.Export{Dir: filepath.Clean(e.Dir), Clients: e.Clients, FSID: e.FSID, Options: e.Options})
	}
	return out
}

func (b nfsKind) served() {
	for _, c := range b.d.Spec.ClientNames() {
		for _, svc := range b.d.Services() {
			e := &resource.HostsEntry{
				Address: svc.Address, Names: []string{svc.Address, svc.Scope},
				Why: "statd looks the server's address up at the first lock of NFSv3, and waits ten seconds for a name where no resolver answers",
			}
			if b.pair.HA == nil {
				e.Names = append(e.Names, b.servers[0])
				e.Why += "; a server that has booted tells its clients to reclaim their locks by its host name, which must be that address"
			}
			b.add(StageClients, c, "name of "+svc.Address, e)
		}
		for _, m := range b.d.Mounts {
			if m.Client != c {
				continue
			}
			b.add(StageClients, c, "mount "+m.Path, &storage.MountPoint{
				Source: m.Source, Path: m.Path, Type: "nfs", Fstab: true,
				Options: b.d.FstabOptions(m),
			})
		}
	}
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

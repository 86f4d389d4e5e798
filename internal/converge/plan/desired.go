package plan

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/lists"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/converge/prepared"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/host/resource/storage"
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
	StagePaths      = "paths and queues"
	StageStorage    = "storage"
	StageRelease    = "release storage"
	StageNFS        = "NFS server"
	StageAgent      = "resource agent" // in the place of the NFS server
	StageGrowth     = "growth"         // of volumes that the cluster serves
	StageCluster    = "cluster configuration"
	StageService    = "service"
	StageMetrics    = "metrics"
	StageClients    = "client mounts"
	StageFencing    = "fencing"
	// Lustre: targets of an OSS register with the MGS when they start first, and
	// settings of the file system are kept there.
	StageWhole = "file system"
)

// The pairs of OSS start one after the other, each in stages of its own: a fault
// of all of them stops the first one only.
const (
	stageOSSCluster = "cluster configuration of " // and the pair's name
	stageOSSService = "services of "              // and the pair's name
	stageOSS        = "OSS"                       // their place in the order of stages
)

// These come before all others.
const (
	stageBinary       = "mortar"
	stageActiveBinary = "mortar on active servers"
)

const (
	secretsDir = "/etc/mortar/secrets"
	mortarPath = "/usr/local/sbin/mortar" // a link to this binary, made when the host is reached
)

// BeforeDisks are the steps that a server needs before it may see disks which its
// partner serves: with them its kernel leaves alone what it finds there.
func BeforeDisks(server string) func(Step) bool {
	return func(s Step) bool {
		switch s.Stage {
		case StageHosts:
			return s.Host == server && s.Kind() == "host"
		case stageBinary, stageActiveBinary, StagePackages, StageKernel:
			return s.Host == server
		}
		return false
	}
}

// LeavesArraysAlone tells whether a step keeps a server's kernel from assembling the
// arrays of its pair by itself.
func LeavesArraysAlone(s Step) bool {
	switch s.Resource.(type) {
	case *storage.MDConf, *storage.Initramfs:
		return true
	}
	return false
}

// order is that of the stages. Release comes after storage of all services, and
// so on: one stage is one run of steps, whatever the order in which they were
// thought of.
var order = []string{StageHosts, StagePackages, StageKernel, StageMembership, StageDisks, StagePaths, StageStorage,
	StageRelease, StageNFS, StageAgent, StageGrowth, StageCluster, StageService, stageOSS, StageWhole, StageMetrics, StageClients, StageFencing}

// rank is the place of a stage in the order.
func rank(stage string) int {
	if strings.HasPrefix(stage, stageOSSCluster) || strings.HasPrefix(stage, stageOSSService) {
		stage = stageOSS
	}
	return slices.Index(order, stage)
}

// Desired is every step that makes a brick out of its hosts, in order.
// Facts decide where the steps of storage go; secrets reads the files the
// spec names, and CorosyncKey.
func Desired(d *design.Design, facts Facts, secrets func(file string) ([]byte, error)) ([]Step, error) {
	var pairs []*builder
	var steps []Step
	for i := range d.Pairs {
		b := newBuilder(d, &d.Pairs[i], facts, secrets)
		if err := b.refuse(); err != nil {
			return nil, err
		}
		for _, h := range b.servers {
			b.host(h)
		}
		pairs = append(pairs, b)
	}
	// Clients are of all pairs.
	whole := newBuilder(d, &d.Pairs[0], facts, secrets)
	for _, c := range d.Spec.ClientNames() {
		whole.host(c)
	}
	pairs = append(pairs, whole)
	take := func() {
		for _, b := range pairs {
			steps = append(steps, b.steps...)
			b.steps = nil
		}
	}
	take()
	for _, b := range pairs[:len(d.Pairs)] {
		if err := b.all(); err != nil {
			return nil, err
		}
	}
	whole.clients()
	whole.kind().served()
	take()
	slices.SortStableFunc(steps, func(x, y Step) int {
		return rank(x.Stage) - rank(y.Stage)
	})
	return steps, nil
}

// all is what makes a pair, once its hosts were looked at.
func (b *builder) all() error {
	if s := b.cached(); s != nil {
		c, err := cacheConfig(s)
		if err != nil {
			return err
		}
		b.cacheConf = c
	}
	b.checks()
	for _, h := range b.servers {
		b.add(StagePackages, h, "packages", b.serverPackages(h))
		b.kernel(h)
		b.storage().devices(h)
	}
	for _, s := range b.services() {
		b.build(s)
	}
	for _, h := range b.servers {
		if err := cmp.Or(b.kind().server(h), b.metrics(h)); err != nil {
			return err
		}
	}
	cachePart{b}.forget()
	if b.pair.HA == nil {
		return nil
	}
	c := clusterPart{b}
	if err := c.membership(); err != nil {
		return err
	}
	return c.configuration()
}

// refuse says what of the facts speaks against any plan for the pair.
func (b *builder) refuse() error {
	for _, speaks := range []func() error{b.distributions, b.alike, b.profile, b.storage().refuse, b.oneOwner} {
		if err := speaks(); err != nil {
			return err
		}
	}
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
	// cacheConf is the configuration file of the pair's cache; nil without one.
	cacheConf []byte
}

func newBuilder(d *design.Design, p *design.Pair, facts Facts, secrets func(string) ([]byte, error)) *builder {
	return &builder{d: d, pair: p, facts: facts, secrets: secrets, servers: p.Servers}
}

// services of the pair.
func (b *builder) services() []*design.Service {
	var out []*design.Service
	for i := range b.pair.Services {
		out = append(out, &b.pair.Services[i])
	}
	return out
}

// cached is the service of the pair that has a cache, nil if none has.
func (b *builder) cached() *design.Service {
	s, _ := lists.First(b.services(), func(s *design.Service) bool { return s.Storage.Cache != nil })
	return s
}

func (b *builder) add(stage, host, title string, r resource.Resource) {
	b.steps = append(b.steps, Step{Stage: stage, Title: title, Host: host, Resource: r})
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
	return cmp.Or(b.d.Value(kind, name), without)
}

func ref(k design.Disk) storage.DiskRef {
	return storage.DiskRef{Serial: k.Serial, WWN: k.WWN, Enclosure: k.Enclosure, Bay: k.Bay, Size: int64(k.Size), Sector: int64(k.Sector), Failed: k.Failed}
}

func refs(ks []design.Disk) []storage.DiskRef {
	out := make([]storage.DiskRef, 0, len(ks))
	for _, k := range ks {
		out = append(out, ref(k))
	}
	return out
}

// host refuses a host that cannot be used.
func (b *builder) host(h string) {
	r := &resource.Host{Name: h, NodeName: b.pair.HA != nil && slices.Contains(b.servers, h), RDMA: b.d.Spec.NFS.RDMA(), Room: slices.Contains(b.servers, h)}
	for _, m := range b.d.MTUs(h) {
		r.MTUs = append(r.MTUs, resource.WantedMTU(m))
	}
	b.add(StageHosts, h, "host "+h, r)
}

// checks refuses before anything is changed: a disk that is missing or carries
// what is not ours.
func (b *builder) checks() {
	b.storage().checks()
	cachePart{b}.ssds()
	// One server, which has the volume or will have it, looks at the contents of its
	// disks. It wipes disks before multipath makes devices of them: udev would
	// assemble an old array from those devices.
	for i, s := range b.services() {
		b.storage().carries(s, b.placeOf(s).host, i == 0)
	}
}

// oneOwner refuses everything if two servers have storage of the pair in use,
// or each a part of a service's.
func (b *builder) oneOwner() error {
	if b.pair.HA == nil {
		return nil
	}
	var all Refusals
	for _, s := range b.services() {
		on := map[string][]string{}
		for _, h := range b.servers {
			for _, what := range b.storage().uses(s, h) {
				on[what] = append(on[what], h)
			}
		}
		maps.DeleteFunc(on, func(_ string, by []string) bool { return len(by) < 2 })
		for _, what := range slices.Sorted(maps.Keys(on)) {
			all = append(all, refuse(on[what][1], "arrays", "storage-used-twice", resource.With{"storage": what, "servers": on[what]}))
		}
	}
	if len(all) > 0 {
		return all
	}
	for _, s := range b.services() {
		on := slices.DeleteFunc(slices.Clone(b.servers), func(h string) bool { return len(b.storage().uses(s, h)) == 0 })
		if len(on) > 1 {
			all = append(all, refuse(on[1], "arrays", "arrays-split", resource.With{"service": s.Name, "servers": on}))
		}
	}
	return all.orNil()
}

// holder is the server that has the storage of a service: one that uses it
// before one on which it is there and does nothing; "" if none has.
func (b *builder) holder(s *design.Service) string {
	if h, uses := lists.First(b.servers, func(h string) bool { return len(b.storage().uses(s, h)) > 0 }); uses {
		return h
	}
	h, _ := lists.First(b.servers, func(h string) bool { return b.storage().there(s, h) })
	return h
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
		p.managed = p.managed || f.Manages(id) != nil
		if r := f.Cluster.Resource(id); r.Node() != "" && f.Cluster.DC.Present && r.Role == "Started" {
			p.host, p.running = r.Node(), true
		}
	}
	if b.pair.HA == nil || p.managed {
		return p
	}
	for _, s := range b.servers {
		// A note is old if another server has the storage by now.
		if built := b.facts.Hosts[s].Built[owned(svc)]; built != "" && (held == "" || held == s) && built == b.digest(svc) {
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

// clients are packages and kernels of the hosts that mount something.
func (b *builder) clients() {
	for _, c := range b.d.Spec.ClientNames() {
		p := b.distro(c).Packages
		b.add(StagePackages, c, "packages", &resource.Packages{Names: slices.Concat(b.kind().clientPackages(p), p.Bench, prepared.Firewall(b.d, c).Packages())})
		b.add(StageKernel, c, "time service", &resource.TimeService{})
		b.add(StageKernel, c, "firewall", prepared.Firewall(b.d, c))
		b.kind().client(c)
	}
}

// kernel sets a server's modules, its sysctl values, and the files that keep the
// kernel from using shared storage by itself.
func (b *builder) kernel(h string) {
	m := &resource.Modules{Options: b.settings("server", "module")}
	m.Names = slices.Concat(b.storage().modules(), b.kind().modules())
	if b.cached() != nil {
		m.Names = append(m.Names, "bcache", "raid0", "raid1", "raid10")
	}
	// A scheduler that is a module can only be chosen once it is loaded, also
	// by udev, which may not load one.
	if s := b.d.Value("disk", "scheduler"); s != "" && s != "none" {
		m.Names = append(m.Names, s)
	}
	b.add(StageKernel, h, "kernel modules", m)
	b.add(StageKernel, h, "time service", &resource.TimeService{})
	b.sysctl(h, "server")
	b.storageFiles(h)
	b.add(StageKernel, h, "firewall", prepared.Firewall(b.d, h))
	if p := b.d.Spec.Preparation; p != nil && p.Swap > 0 {
		b.add(StageKernel, h, "swap", &resource.Swap{Bytes: int64(p.Swap)})
	}
}

func (b *builder) sysctl(h, role string) {
	if ss := b.settings(role, "sysctl"); len(ss) > 0 {
		b.add(StageKernel, h, "kernel settings", &resource.Sysctl{Path: "/etc/sysctl.d/90-mortar.conf", Settings: ss})
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

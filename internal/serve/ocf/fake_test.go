package ocf

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/base/md"
	"github.com/mortarhpc/mortar/internal/base/pr"
	"github.com/mortarhpc/mortar/internal/serve/doubt"
	"github.com/mortarhpc/mortar/internal/serve/kernel"
	"github.com/mortarhpc/mortar/internal/serve/mdraid"
	"github.com/mortarhpc/mortar/internal/serve/nfs"
	"github.com/mortarhpc/mortar/internal/serve/unit"
)

// shared is what two fake hosts have in common: disks and network. It knows
// what must never happen and fails the test when it does.
type shared struct {
	t      *testing.T
	disks  map[string]*fakeDisk // by device path
	raid10 bool                 // the array is one, of three pairs
	owner  string               // system ID of the volume group
	seqno  int                  // of its metadata
	fsUUID string
	vg     string
	volume map[string]string // files on the file system, by path below it
	sizes  map[string]int64  // of files that were filled
	hosts  map[string]*fakeHost
	attrs  map[string]string // node attributes, by "nfs1 name"
	luns   []*fakeLUN        // the storage, if it is not md
	// reserved: the LUNs must be, whatever is on them.
	reserved bool
	lvs      []string          // logical volumes; they are dm-7, dm-8 …
	fs       string            // device of the XFS file system
	labels   map[string]string // of ldiskfs file systems, by device
	mmp      map[string]uint32 // what their MMP blocks hold
	noMMP    bool
	deaf     bool  // the cluster hears no attribute
	room     int64 // free on the file system
	kept     int64 // taken up by the reserve
}

type fakeDisk struct {
	uuid       string // of its array
	role       int
	events     uint64
	dirty      bool
	gone       bool // not connected
	recovering bool
	without    int // of slots counted from 1: md has thrown that member out
	res        fakeLUN
	unable     bool // it knows no reservations
}

// fakeLUN is a LUN of an array, whose map is dm-20, dm-21 …
type fakeLUN struct {
	name, wwid string
	size       int64
	gone       bool
	paths      int
	// Keys of registered paths, by "nfs1 /dev/sd00"; the path that holds the
	// reservation; how often that changed.
	keys       map[string]pr.Key
	holder     string
	generation uint32
}

const (
	arrayUUID = "0f1e2d3c4b5a69788796a5b4c3d2e1f0"
	volUUID   = "11112222333344445555666677778888"
)

// fakeHost is a host as a model: enough of the kernel and of the tools that
// what the agent does has its consequences.
type fakeHost struct {
	*shared
	mu     sync.Mutex // held by the methods that are called from goroutines
	name   string
	uptime string
	files  map[string]string // files of the host itself
	md     map[string]string // assembled arrays: UUID to device
	inert  bool              // arrays assembled but not started
	ro     bool              // arrays assembled read-only
	degr   int
	active bool // logical volumes
	cached bool // the cache over them
	sick   bool // Lustre
	apart  bool // LNet has no network
	// mounting and mountedOne are called when the mount of a target begins and ends.
	mounting, mountedOne func()
	frozen               bool     // a target is read-only, which Lustre sees when it writes
	watched              []string // devices that a mount has watched for MMP of another server
	claimed              bool     // devices of targets are in use, and are not mounted
	writes               bool     // to see that
	mounts               []linux.Mount
	procs                map[int]*fakeProc
	nextPID              int
	nfsd                 int
	listens              string // of nfsd besides TCP
	addrs                map[netip.Prefix]string
	// The service's network namespace, if there is one.
	space      bool
	spaceLink  bool
	spaceAddrs map[netip.Prefix]string
	cldLate    int  // starts of nfsd at which nfsdcld is late
	untracked  bool // nfsd runs without it

	changes  []string // every change, in order
	shutDown bool     // the file system of the volume takes and gives nothing any more
	failAt   int      // change that fails, from 1; 0: none
	dead     bool
	hung     map[string]bool // devices that do not answer
	clock    time.Time
	tickled  string
	readonly bool
	forgot   string   // program rpcbind does not know any more
	slow     bool     // resync
	floor    string   // of a resync, as it was written
	held     bool     // udev
	barred   []string // routes that lead nowhere
	// mountd is the table of exports as rpc.mountd read it last.
	mountd    string
	badClient string // a name that does not resolve
	lax       string // another one, of which exportfs says nothing
	// mute are the programs that give no answer, by rpcbind's names.
	mute   map[string]bool
	nobody bool   // no thread of nfsd is idle
	woken  int    // how often an idle one was woken
	slept  func() // is called in a sleep
	damage error  // of a mount of XFS
	blank  bool   // there is no superblock of XFS
	plain  bool   // there is no nsswitch.conf
}

type fakeProc struct {
	state    string // as /proc has it; "": S
	ran      int    // how often it gave up the processor
	name     string
	cwd      string
	stubborn bool // ignores SIGTERM
	immortal bool
	inside   bool // in the service's network namespace
	bound    bool // and sees the volume's state as /var/lib/nfs
}

var errInjected = errors.New("injected failure")

func newShared(t *testing.T) *shared {
	s := &shared{t: t, disks: map[string]*fakeDisk{}, mmp: map[string]uint32{}, owner: "at-rest", seqno: 7, vg: "vg-a", fsUUID: volUUID, sizes: map[string]int64{}, volume: map[string]string{}, hosts: map[string]*fakeHost{}, attrs: map[string]string{}, room: 1 << 30,
		lvs: []string{"data"}, fs: "dm-7"}
	for i := range 6 {
		s.disks[fmt.Sprintf("/dev/mapper/d%d", i)] = &fakeDisk{uuid: arrayUUID, role: i, events: 100}
	}
	for i, n := range []string{"nfs1", "nfs2"} {
		h := &fakeHost{shared: s, name: n, uptime: "5000.1 1.0"}
		h.addrs = map[netip.Prefix]string{netip.MustParsePrefix(fmt.Sprintf("10.0.0.%d/24", i+1)): "eth0"}
		s.hosts[n] = h
		h.boot()
	}
	return s
}

// boot gives a host the state it has after power-on.
func (h *fakeHost) boot() {
	for p := range h.addrs {
		if p.Addr().String() == "10.0.0.9" {
			delete(h.addrs, p)
		}
	}
	h.files = map[string]string{
		"/etc/passwd":                                        "root:x:0:0::/:/bin/sh\nstatd:x:102:65534::/var/lib/nfs:/usr/sbin/nologin\n",
		"/proc/sys/fs/nfs/nlm_grace_period":                  "0\n",
		"/proc/sys/fs/nfs/nlm_timeout":                       "10\n",
		"/run/rpcbind.sock":                                  "",
		"/var/lib/nfs/etab":                                  "",
		"/sys/module/md_mod/parameters/start_dirty_degraded": "0\n",
		"/dev/kmsg":                                          "",
		"/proc/sysrq-trigger":                                "",
		"/etc/hosts":                                         "10.0.0.9 10.0.0.9 brick-home\n",
	}
	h.md, h.active, h.nfsd, h.inert, h.ro, h.degr = map[string]string{}, false, 0, false, false, 0
	h.cached, h.sick, h.apart, h.frozen, h.writes = false, false, false, false, false
	h.space, h.spaceLink, h.spaceAddrs = false, false, map[netip.Prefix]string{}
	h.mounts = []linux.Mount{{Dev: "8:1", Root: "/", Target: "/", Options: []string{"rw"}, Type: "ext4", Source: "/dev/sda1", Super: []string{"rw"}}}
	h.procs = map[int]*fakeProc{1: {name: "systemd"}}
	h.nextPID = 1000
	h.dead = false
	if h.reserved {
		h.cabled(true)
	}
	h.clock = time.Unix(1_700_000_000, 0)
}

func testConfig() *Config {
	c := &Config{
		Service: "home", VolumeGroup: VolumeGroup{VG: "vg-a", LV: "data", SystemID: "at-rest"},
		MDStorage: &mdraid.MDStorage{Arrays: []mdraid.Array{{Name: "r0", UUID: md.UUID(arrayUUID), Need: 4}}},
		NFSService: &nfs.NFSService{
			FSUUID: volUUID, MountPoint: "/srv/home", MountOpts: []string{"noatime", "logbsize=256k"}, StateDir: "/srv/home/.nfs",
			NFS:     nfs.NFS{Threads: 256, Versions: []string{"3", "4.1", "4.2"}, Lease: 30, Grace: 30, Scope: "brick-home"},
			Exports: []nfs.Export{{Dir: "/srv/home", Clients: "10.0.0.0/24", FSID: "5d1f7f66-63a4-4f5c-9d25-5f9d3b6f8a01", Options: []string{"rw", "sync"}}},
			Address: "10.0.0.9/24",
		},
		Nodes: map[string]string{"nfs1": "10.0.0.1", "nfs2": "10.0.0.2"},
	}
	for i := range 6 {
		c.Arrays[0].Members = append(c.Arrays[0].Members, fmt.Sprintf("/dev/mapper/d%d", i))
	}
	return c
}

// flavours runs a test for a service on the host's network and for one with
// a namespace of its own.
func flavours(t *testing.T, f func(t *testing.T, cfg func() *Config)) {
	t.Run("host", func(t *testing.T) { f(t, testConfig) })
	t.Run("namespace", func(t *testing.T) {
		f(t, func() *Config {
			c := testConfig()
			c.Namespace = "mortar-home"
			return c
		})
	})
	t.Run("state disk", func(t *testing.T) {
		f(t, func() *Config {
			c := testConfig()
			c.StateImage = stateImage
			return c
		})
	})
	t.Run("namespace and state disk", func(t *testing.T) {
		f(t, func() *Config {
			c := testConfig()
			c.Namespace, c.StateImage = "mortar-home", stateImage
			return c
		})
	})
}

func (h *fakeHost) service(c *Config) *service {
	s, err := newService(c, h, h.name)
	if err != nil {
		h.t.Fatal(err)
	}
	s.Self = 999
	s.Log = &unit.Steps{Action: "test", Stderr: testWriter{h.t}, Now: h.Now}
	s.hold = func(context.Context) (*Config, func(), error) { return c, func() {}, nil }
	s.lists = func(context.Context) (func(), error) { return func() {}, nil }
	if c.Cache != "" {
		s.cache = &fakeStack{h}
	}
	return s
}

// fakeStack is the cache over the volume.
type fakeStack struct{ *fakeHost }

func (f *fakeStack) State() (bool, error) { return f.cached, nil }
func (f *fakeStack) Start(context.Context) error {
	if !f.active {
		f.t.Error("the cache starts without its volume")
	}
	if f.cached {
		return nil
	}
	err := f.change("cache +")
	f.cached = err == nil
	return err
}

func (f *fakeStack) Stop(context.Context) error {
	if !f.cached {
		return nil
	}
	err := f.change("cache -")
	f.cached = err != nil
	return err
}
func (f *fakeStack) SyncChanged() bool            { return false }
func (f *fakeStack) NoteSync() error              { return nil }
func (f *fakeStack) Revive(context.Context) error { return nil }
func (f *fakeStack) OnDisks() error               { return nil }

// fakeKeys are those of the servers, and a stranger's.
var fakeKeys = map[string]string{"nfs1": "0x4d4f525400000001", "nfs2": "0x4d4f525400000002"}

func fakeKey(node string) pr.Key {
	k, err := pr.ParseKey(fakeKeys[node])
	if err != nil {
		k = 0xbad
	}
	return k
}

// take has a host hold the reservation of a LUN, as if it had taken it.
func (l *fakeLUN) take(host string) {
	l.keys, l.holder = map[string]pr.Key{host + " x": fakeKey(host)}, host+" x"
	l.generation += 2
}

// reservable are the LUNs, or the disks in their order.
func (sh *shared) reservable() []*fakeLUN {
	all := slices.Clone(sh.luns)
	for _, name := range slices.Sorted(maps.Keys(sh.disks)) {
		all = append(all, &sh.disks[name].res)
	}
	return all
}

// by is the host that holds the reservation.
func (l *fakeLUN) by() string {
	host, _, _ := strings.Cut(l.holder, " ")
	return host
}

// fakePath is a path to a LUN, as an array without APTPL answers.
type fakePath struct {
	*fakeHost
	*fakeLUN
	name string // "nfs1 /dev/sd00"
}

func (h *fakeHost) Path(dev string) pr.Path {
	if name, ok := strings.CutPrefix(dev, "/dev/d"); ok {
		d := h.disks["/dev/mapper/d"+name]
		if d.unable {
			return unablePath{}
		}
		return &fakePath{h, &d.res, h.name + " " + dev}
	}
	return &fakePath{h, h.luns[dev[len("/dev/sd")]-'0'], h.name + " " + dev}
}

// unablePath is a path to a disk that knows no reservations.
type unablePath struct{ pr.Path }

func (unablePath) Read() (pr.State, error) { return pr.State{}, pr.ErrUnable }

func (p *fakePath) alter(what string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.change("%s %s", what, strings.Fields(p.name)[1]); err != nil {
		return err
	}
	p.generation++
	if p.keys == nil {
		p.keys = map[string]pr.Key{}
	}
	return nil
}

func (p *fakePath) Read() (pr.State, error) {
	s := pr.State{Generation: p.generation, Holder: p.keys[p.holder]}
	if s.Holder != 0 {
		s.Type = pr.WriteExclusiveRegistrantsOnly
	}
	for _, n := range slices.Sorted(maps.Keys(p.keys)) {
		s.Keys = append(s.Keys, p.keys[n])
	}
	return s, nil
}

func (p *fakePath) Register(own pr.Key) error {
	if err := p.alter("register"); err != nil {
		return err
	}
	p.keys[p.name] = own
	return nil
}

func (p *fakePath) Unregister() error {
	if p.fakeHost.inUse() && p.holder == p.name {
		p.t.Error("the reservation is given up while the LUNs are in use")
	}
	if err := p.alter("unregister"); err != nil {
		return err
	}
	if delete(p.keys, p.name); p.holder == p.name {
		p.holder = ""
	}
	return nil
}

func (p *fakePath) Reserve(own pr.Key) error {
	if p.keys[p.name] != own || p.holder != "" && p.holder != p.name {
		return pr.ErrConflict
	}
	if err := p.alter("reserve"); err != nil {
		return err
	}
	p.holder = p.name
	return nil
}

func (p *fakePath) Preempt(own, victim pr.Key) error {
	if p.keys[p.name] != own {
		return pr.ErrConflict
	}
	if err := p.alter("preempt"); err != nil {
		return err
	}
	if p.keys[p.holder] == victim {
		p.holder = p.name
	}
	maps.DeleteFunc(p.keys, func(n string, k pr.Key) bool { return k == victim && n != p.name })
	return nil
}

// number is the device number of a device of the device mapper.
func number253(dev string) string { return "253:" + strings.TrimPrefix(dev, "dm-") }

// pvs are the physical volumes of the volume group that are here.
func (h *fakeHost) pvs() (out []string) {
	for i, l := range h.luns {
		if !l.gone {
			out = append(out, fmt.Sprintf("/dev/dm-%d", 20+i))
		}
	}
	for _, dev := range h.md {
		if !h.inert {
			out = append(out, "/dev/"+dev)
		}
	}
	return out
}

// nfsOf is a service's kind, which is that of NFS.
func nfsOf(s *service) *nfs.Kind { return s.kind.(*nfs.Kind) }

type testWriter struct{ t *testing.T }

func (w testWriter) Write(b []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(b)))
	return len(b), nil
}

// change notes a change and fails it if that is wanted.
func (h *fakeHost) change(format string, a ...any) error {
	if h.dead {
		h.t.Errorf("%s is dead but changes: "+format, append([]any{h.name}, a...)...)
	}
	h.changes = append(h.changes, fmt.Sprintf(format, a...))
	if h.failAt == len(h.changes) {
		return errInjected
	}
	for _, p := range a {
		if p, ok := p.(string); ok && h.shutDown && !strings.Contains(format, "mount") {
			if _, ok := h.onVolume(p); ok {
				return &fs.PathError{Op: "open", Path: p, Err: unix.EIO}
			}
		}
	}
	return nil
}

func (h *fakeHost) mounted(target string) *linux.Mount { return unit.MountedAt(h.mounts, target) }

// rewrite takes a path through the bind mount and the volume.
func (h *fakeHost) onVolume(p string) (string, bool) {
	if m := h.mounted("/var/lib/nfs"); m != nil && (p == m.Target || unit.Below(m.Target, p)) {
		root := m.Root
		if m.Dev == imageNumber {
			root = "/.nfs" // a file of the state has the same name with and without its own file system
		}
		return root + strings.TrimPrefix(p, m.Target), true
	}
	if h.mounted("/srv/home") != nil && unit.Below("/srv/home", p) {
		return strings.TrimPrefix(p, "/srv/home"), true
	}
	return "", false
}

func (h *fakeHost) ReadFile(p string) ([]byte, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if v, ok := h.onVolume(p); ok {
		if h.shutDown {
			return nil, &fs.PathError{Op: "open", Path: p, Err: unix.EIO}
		}
		if c, ok := h.volume[v]; ok {
			return []byte(c), nil
		}
		return nil, fs.ErrNotExist
	}
	c, ok := h.tree(p)[p]
	if !ok {
		return nil, &fs.PathError{Op: "open", Path: p, Err: fs.ErrNotExist}
	}
	return []byte(c), nil
}

// tree is every file of the kernel and the host that is near a path. Each read asks for
// one, so it makes the text of no other file.
func (h *fakeHost) tree(p string) map[string]string {
	near := func(f string) bool { return p == f || unit.Below(f, p) || unit.Below(p, f) }
	t := map[string]string{}
	put := func(f, text string) {
		if near(f) {
			t[f] = text
		}
	}
	for f, text := range h.files {
		put(f, text)
	}
	put("/proc/uptime", h.uptime)
	if near("/sys/block") {
		h.blockTree(near, put)
	}
	if near("/sys/kernel/debug/lnet/nis") {
		t["/sys/kernel/debug/lnet/nis"] = "nid                      status alive refs peer  rtr   max    tx   min\n0@lo                     up         0    2    0    0     0     0     0\n"
		if !h.apart {
			t["/sys/kernel/debug/lnet/nis"] += "10.20.0.11@tcp           up        -1    1    8    0   256   256   244\n"
		}
	}
	for _, m := range h.mounts {
		switch m.Type {
		case "xfs":
			put("/sys/fs/xfs/"+h.fs+"/x", "")
		case "lustre":
			put("/sys/fs/ldiskfs/"+h.mapper(m.Source)+"/x", "")
			put("/sys/fs/lustre/health_check", "healthy\n")
			put("/sys/fs/lustre/enable_health_write", "0\n")
			if h.sick || h.frozen && h.writes {
				put("/sys/fs/lustre/health_check", "device testfs-OST0000 reported unhealthy\nNOT HEALTHY\n")
			}
		case "nfsd":
			put(m.Target+"/threads", strconv.Itoa(h.nfsd)+"\n")
			ports := "tcp 2049\n"
			if h.nfsd > 0 {
				ports += h.listens
			}
			put(m.Target+"/portlist", ports)
			put(m.Target+"/pool_stats", fmt.Sprintf("# pool packets-arrived sockets-enqueued threads-woken threads-timedout\n0 9 9 %d 0\n", h.woken))
		}
	}
	if near("/proc/self/mountinfo") {
		t["/proc/self/mountinfo"] = h.mountinfo()
	}
	for pid, proc := range h.procs {
		if proc.bound {
			put("/sys/fs/xfs/"+h.fs+"/x", "")
		}
		if d := "/proc/" + strconv.Itoa(pid); near(d) {
			h.procTree(put, d, proc)
		}
	}
	if near("/proc/thread-self/net/tcp") {
		t["/proc/thread-self/net/tcp"] = h.tcp(h.addrs)
	}
	return t
}

// blockTree puts the block devices in sysfs.
func (h *fakeHost) blockTree(near func(string) bool, put func(f, text string)) {
	put("/sys/block/sda/dev", "8:0")
	for uuid, dev := range h.md {
		d := "/sys/block/" + dev
		if !near(d) {
			continue
		}
		state := "clean\n"
		if h.ro {
			state = "readonly\n"
		}
		if h.inert {
			state = "inactive\n"
		}
		put(d+"/dev", "9:127\n")
		put(d+"/md/array_state", state)
		put(d+"/md/level", "raid6\n")
		put(d+"/md/raid_disks", "6\n")
		speed := "200000 (system)\n"
		if h.slow {
			speed = "1001 (local)\n"
		}
		put(d+"/md/sync_speed_max", speed)
		put(d+"/md/sync_speed_min", speed)
		for i := range 6 {
			n := strconv.Itoa(i)
			member := d + "/md/dev-d" + n
			if !near(member) {
				continue
			}
			state := "in_sync\n"
			if i >= 6-h.degr {
				state = "faulty\n"
			}
			put(member+"/state", state)
			put(member+"/slot", n+"\n")
		}
		put(d+"/md/sync_action", "idle\n")
		put(d+"/md/degraded", strconv.Itoa(h.degr)+"\n")
		put(d+"/md/uuid", uuid[:8]+"-"+uuid[8:12]+"-"+uuid[12:16]+"-"+uuid[16:20]+"-"+uuid[20:]+"\n")
	}
	mapped := func(dev, name string) {
		if d := "/sys/block/" + dev; near(d) {
			put(d+"/dm/name", name+"\n")
			put(d+"/dev", number253(dev)+"\n")
			put(d+"/dm/suspended", "0\n")
		}
	}
	if h.active {
		for i, lv := range h.lvs {
			mapped("dm-"+strconv.Itoa(7+i), linux.DMName("vg-a", lv))
		}
	}
	if h.cached {
		mapped("dm-9", "vg-a.cached")
	}
	for i, l := range h.luns {
		if l.gone {
			continue
		}
		dev := "dm-" + strconv.Itoa(20+i)
		mapped(dev, l.name)
		put("/sys/block/"+dev+"/dm/uuid", "mpath-"+l.wwid+"\n")
		put("/sys/block/"+dev+"/size", strconv.FormatInt(l.size/unit.Sector, 10)+"\n")
		for p := range l.paths {
			path := "sd" + strconv.Itoa(i) + strconv.Itoa(p)
			put("/sys/block/"+dev+"/slaves/"+path+"/x", "")
			put("/sys/block/"+path+"/device/state", "running\n")
		}
	}
}

// mountinfo is /proc/self/mountinfo.
func (h *fakeHost) mountinfo() string {
	var b strings.Builder
	for i, m := range h.mounts {
		super := strings.Join(m.Super, ",")
		if h.readonly && m.Type == "xfs" {
			super = "ro"
		}
		for _, w := range []string{strconv.Itoa(i + 20), " 1 ", m.Dev, " ", m.Root, " ", m.Target, " ", strings.Join(m.Options, ","), " shared:1 - ", m.Type, " ", m.Source, " ", super, "\n"} {
			b.WriteString(w)
		}
	}
	return b.String()
}

// procTree puts a process in /proc.
func (h *fakeHost) procTree(put func(f, text string), d string, p *fakeProc) {
	put(d+"/comm", p.name[:min(15, len(p.name))]+"\n")
	put(d+"/maps", "7f00-7f01 r-xp 00000000 08:01 99 /usr/lib/libc.so.6\n")
	put(d+"/status", fmt.Sprintf("Name:\t%s\nState:\t%s (any)\nvoluntary_ctxt_switches:\t%d\nnonvoluntary_ctxt_switches:\t7\n", p.name, cmp.Or(p.state, "S"), p.ran))
	put(d+"/fd/0", "->/dev/null")
	put(d+"/cwd", "->"+p.cwd)
	put(d+"/exe", "->/usr/sbin/"+p.name)
	if p.name == "nfsdcld" {
		put(d+"/exe", "->/usr/local/sbin/mortar")
	}
	put(d+"/ns/net", "->net:[1]")
	if p.inside {
		put(d+"/ns/net", "->net:[42]")
	}
	if p.bound {
		put(d+"/mountinfo", "99 1 "+number253(h.fs)+" /.nfs /var/lib/nfs rw - xfs /dev/mapper/volume rw\n")
		if h.mounted("/srv/home/.nfs") != nil {
			put(d+"/mountinfo", "99 1 "+imageNumber+" / /var/lib/nfs rw - ext4 /dev/loop0 rw\n")
		}
	}
}

func (h *fakeHost) tcp(addrs map[netip.Prefix]string) string {
	tcp := "  sl  local_address rem_address   st\n"
	if _, ok := addrs[netip.MustParsePrefix("10.0.0.9/24")]; ok && h.nfsd > 0 {
		tcp += "   0: 0900000A:0801 0500000A:0382 01 00000000:00000000\n" +
			"   1: 0900000A:0015 0500000A:0320 01 00000000:00000000\n" // lockd, by Ports
	}
	return tcp
}

func (h *fakeHost) ReadDir(p string) ([]string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	seen := map[string]bool{}
	if v, ok := h.onVolume(p); ok {
		for f := range h.volume {
			if unit.Below(v, f) {
				n, _, _ := strings.Cut(strings.TrimPrefix(f, v+"/"), "/")
				seen[n] = true
			}
		}
	}
	for f := range h.tree(p) {
		if unit.Below(p, f) {
			n, _, _ := strings.Cut(strings.TrimPrefix(f, p+"/"), "/")
			seen[n] = true
		}
	}
	if len(seen) == 0 {
		return nil, fs.ErrNotExist
	}
	return slices.Sorted(maps.Keys(seen)), nil
}

func (h *fakeHost) Readlink(p string) (string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c, ok := h.tree(p)[p]
	if !ok || !strings.HasPrefix(c, "->") {
		return "", fs.ErrNotExist
	}
	return c[2:], nil
}

func (h *fakeHost) Realpath(p string) (string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if d, ok := h.disks[p]; ok && !d.gone {
		return p, nil
	}
	if _, ok := h.tree(p)[p]; ok {
		return p, nil
	}
	if dev := h.mapper(p); dev != "" {
		return "/dev/" + dev, nil
	}
	return "", fs.ErrNotExist
}

// mapper is the device that a name below /dev/mapper is of.
func (h *fakeHost) mapper(p string) string {
	if i := slices.IndexFunc(h.lvs, func(lv string) bool { return p == "/dev/mapper/"+linux.DMName("vg-a", lv) }); i >= 0 && h.active {
		return fmt.Sprintf("dm-%d", 7+i)
	}
	if i := slices.IndexFunc(h.luns, func(l *fakeLUN) bool { return p == "/dev/mapper/"+l.name }); i >= 0 {
		return fmt.Sprintf("dm-%d", 20+i)
	}
	if p == "/dev/mapper/vg-a.cached" && h.cached {
		return "dm-9"
	}
	return ""
}

// there says whether a device of the device mapper is there.
func (h *fakeHost) there(dev string) bool {
	switch n, _ := strings.CutPrefix(dev, "dm-"); {
	case n == "9":
		return h.cached
	case len(n) == 2:
		return !h.luns[n[1]-'0'].gone
	default:
		return h.active
	}
}

const (
	stateImage  = "/srv/home/.nfs.img"
	imageNumber = "7:0"
)

func (h *fakeHost) Access(p string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if strings.HasSuffix(p, "/rpc_pipefs/nfsd/cld") && (h.nfsd == 0 || h.untracked) || p == nfs.NSSwitch && h.plain {
		return fs.ErrNotExist
	}
	return nil
}

func (h *fakeHost) Fill(p string, size int64) error {
	if err := h.change("fill %s", p); err != nil {
		return err
	}
	if h.room < size {
		return &fs.PathError{Op: "write", Path: p, Err: unix.ENOSPC}
	}
	v, _ := h.onVolume(p)
	h.room -= size
	h.volume[v], h.sizes[v] = "blank", size
	return nil
}

func (h *fakeHost) Size(p string) (int64, error) {
	v, ok := h.onVolume(p)
	if !ok || h.volume[v] == "" {
		return 0, fs.ErrNotExist
	}
	return cmp.Or(h.sizes[v], 32<<20), nil
}

func (h *fakeHost) SyncDir(p string) error { return h.change("sync the directory of %s", p) }

func (h *fakeHost) MountImage(image, target, fstype string, flags uintptr, _ string) error {
	if err := h.change("mount %s %s %s", image, target, fstype); err != nil {
		return err
	}
	if v, ok := h.onVolume(image); !ok || h.volume[v] != fstype {
		return fmt.Errorf("%q of %s is no %s", h.volume[v], image, fstype)
	}
	h.mayWrite()
	number := imageNumber
	if image != stateImage {
		number = "7:1"
	}
	h.mounts = append(h.mounts, linux.Mount{Dev: number, Root: "/", Target: target, Options: []string{"rw"}, Type: fstype, Source: "/dev/loop0", Super: []string{"rw"}})
	return nil
}

func (h *fakeHost) Poke(p, data string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if v, ok := h.onVolume(p); ok {
		h.volume[v] = data
		return nil
	}
	if _, ok := h.tree(p)[p]; !ok {
		return fs.ErrNotExist
	}
	if err := h.change("poke %s %s", p, strings.TrimSpace(data)); err != nil {
		return err
	}
	if p == "/proc/sysrq-trigger" {
		h.dead = true
		return nil
	}
	switch path.Base(p) {
	case "sync_speed_min":
		h.floor = data
		return nil
	case "sync_speed_max":
		h.slow = data == "1001\n" && h.floor == data // md heeds no ceiling below the floor
		return nil
	}
	if path.Base(p) == "enable_health_write" {
		h.writes = data == "1\n"
		return nil
	}
	if path.Base(p) == "portlist" {
		h.listens = data
		return nil
	}
	if path.Base(p) == "threads" {
		fmt.Sscan(data, &h.nfsd)
		if h.nfsd == 0 {
			h.listens = ""
			// lockd is told of no host any more, and statd forgets them all.
			maps.DeleteFunc(h.volume, func(f, _ string) bool { return unit.Below("/.nfs/sm", f) })
		}
		return nil
	}
	h.files[p] = data
	return nil
}

func (h *fakeHost) Save(p string, data []byte) error {
	if err := h.change("save %s", p); err != nil {
		return err
	}
	if v, ok := h.onVolume(p); ok {
		own := slices.ContainsFunc(h.mounts, func(m linux.Mount) bool { return m.Dev == imageNumber })
		if h.room < 4096 && !own {
			return &fs.PathError{Op: "open", Path: p, Err: unix.ENOSPC}
		}
		h.volume[v] = string(data)
		return nil
	}
	if unit.Below("/srv/home", p) {
		h.t.Errorf("%s written while the volume is not mounted", p)
	}
	h.files[p] = string(data)
	return nil
}

func (h *fakeHost) Symlink(target, p string) error { return h.change("link %s to %s", p, target) }

func (h *fakeHost) Rename(from, to string) error {
	if err := h.change("rename %s %s", from, to); err != nil {
		return err
	}
	a, ok := h.onVolume(from)
	b, ok2 := h.onVolume(to)
	if !ok || !ok2 {
		h.t.Errorf("%s renamed to %s, which are not both on the volume", from, to)
		return nil
	}
	h.volume[b], h.sizes[b] = h.volume[a], h.sizes[a]
	delete(h.volume, a)
	return nil
}

func (h *fakeHost) Remove(p string) error {
	if err := h.change("remove %s", p); err != nil {
		return err
	}
	delete(h.files, p)
	if v, ok := h.onVolume(p); ok {
		delete(h.volume, v)
	}
	return nil
}

func (h *fakeHost) Empty(p string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.change("empty %s", p); err != nil {
		return err
	}
	if unit.Below(unit.RunDir, p) {
		h.files[p] = ""
		return nil
	}
	v, ok := h.onVolume(p)
	if !ok {
		h.t.Errorf("%s emptied, which is not on the volume", p)
	}
	h.volume[v] = ""
	if v == "/.nfs/mortar/reserve" {
		h.room, h.kept = h.room+h.kept, 0
	}
	return nil
}

func (h *fakeHost) Free(string) (int64, error) { return h.room, nil }

func (h *fakeHost) Reserve(p string, size int64) error {
	if h.kept >= size {
		return nil
	}
	if err := h.change("reserve %s", p); err != nil {
		return err
	}
	v, ok := h.onVolume(p)
	if !ok {
		h.t.Errorf("%s reserved, which is not on the volume", p)
	}
	if h.room < size-h.kept {
		return &fs.PathError{Op: "fallocate", Path: p, Err: unix.ENOSPC}
	}
	h.volume[v] = ""
	h.room, h.kept = h.room+h.kept-size, size
	return nil
}

func (h *fakeHost) Mkdir(p string, _ uint32, _, _ int) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if unit.Below("/srv/home", p) && h.mounted("/srv/home") == nil {
		h.t.Errorf("%s made while the volume is not mounted", p)
	}
	return nil
}

func (h *fakeHost) Own(p string, _, _ int) error { return nil }

// touched are the changes but for the notes of a refused start, and reservations of disks, which
// a stop gives up.
func (h *fakeHost) touched() []string {
	return slices.DeleteFunc(slices.Clone(h.changes), func(c string) bool {
		_, of, _ := strings.Cut(c, " ")
		return strings.HasPrefix(of, "/dev/d") || of == "/run/mortar/reserved-home" ||
			c == "save /run/mortar/refused-home" || c == "save "+doubt.DoubtFile("home")
	})
}

func (h *fakeHost) Ask(_ context.Context, limit time.Duration, all []kernel.Question) []kernel.Answer {
	silent := false
	out := asked(all, h.Path, func(dev string, off int64, n int) ([]byte, error) {
		if h.hung[dev] {
			silent = true
			return nil, kernel.SilentFor(limit)
		}
		return h.ReadBlocks(dev, off, n)
	})
	if silent {
		h.clock = h.clock.Add(limit)
	}
	return out
}

// asked answers questions by a function.
func asked(all []kernel.Question, path func(string) pr.Path, read func(dev string, off int64, n int) ([]byte, error)) (out []kernel.Answer) {
	for i, q := range all {
		if q.Order != nil {
			_, err := read(q.Dev, 0, 4096)
			a := kernel.Answer{Number: i, Err: err}
			if err == nil {
				a.Data, _ = json.Marshal(q.Order.Carry(path))
			}
			out = append(out, a)
			continue
		}
		if q.Write {
			out = append(out, kernel.Answer{Number: i})
			continue
		}
		b, err := read(q.Dev, q.Off, q.N)
		out = append(out, kernel.Answer{Number: i, Data: b, Err: err})
	}
	return out
}

func (h *fakeHost) ReadBlocks(dev string, off int64, n int) ([]byte, error) {
	b := make([]byte, n)
	if h.hung[dev] {
		h.t.Errorf("%s is read by the agent itself, and hangs", dev)
		return nil, kernel.ErrSilent
	}
	if d, ok := h.disks[dev]; ok {
		if d.gone {
			return nil, fs.ErrNotExist
		}
		if off == md.SuperblockOffset {
			copy(b, h.fakeSuperblock(d))
		}
		return b, nil
	}
	name := cmp.Or(h.mapper(dev), strings.TrimPrefix(dev, "/dev/"))
	if label, ok := h.labels[name]; ok && h.there(name) {
		le := binary.LittleEndian
		if off == mmpBlock {
			h.mu.Lock()
			defer h.mu.Unlock()
			le.PutUint32(b, 0x004d4d50)
			le.PutUint32(b[4:], cmp.Or(h.mmp[name], mmpClean))
			return b, nil
		}
		le.PutUint16(b[1024+0x38:], 0xef53)
		le.PutUint32(b[1024+0x18:], 2)
		le.PutUint64(b[1024+0x168:], mmpBlock/4096)
		copy(b[1024+0x78:], label)
		if !h.noMMP {
			le.PutUint32(b[1024+0x60:], 0x2c2|0x100)
		}
		return b, nil
	}
	if name == h.fs && h.there(name) && h.blank {
		return b, nil
	}
	if name == h.fs && h.there(name) {
		copy(b, "XFSB")
		raw, _ := hex.DecodeString(h.fsUUID)
		copy(b[32:], raw)
		return b, nil
	}
	if slices.Contains(h.pvs(), dev) {
		return h.fakePV(off, n), nil
	}
	return nil, fs.ErrNotExist
}

// Where the MMP block of a target is, and what it holds after an unmount, while the target is
// mounted, and while e2fsck works on it.
const (
	mmpBlock           = 9 * 4096
	mmpClean    uint32 = 0xff4d4d50
	mmpMounted  uint32 = 0x1234
	mmpChecking uint32 = 0xe24d4d50
)

func (h *fakeHost) Claimed(string) bool { return h.claimed }

func (h *fakeHost) WriteBlocks(dev string, off int64, data []byte) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.change("write %s", dev); err != nil {
		return err
	}
	name := h.mapper(dev)
	if off != mmpBlock || h.labels[name] == "" || !h.there(name) || h.claimed {
		h.t.Errorf("%d bytes are written to %s at %d", len(data), dev, off)
	}
	h.mayWrite()
	h.mmp[name] = binary.LittleEndian.Uint32(data[4:])
	return nil
}

// fakeSuperblock builds the superblock of a member of a RAID 6 of six.
func (s *shared) fakeSuperblock(d *fakeDisk) []byte {
	sb := testSuperblock{uuid: d.uuid, level: 6, disks: 6, dev: uint32(d.role), events: d.events, dirty: d.dirty}
	if s.raid10 {
		sb.level, sb.layout = 10, 0x102
	}
	if d.recovering {
		sb.features |= md.FeatureRecovery
	}
	for i := range sb.disks {
		sb.roles = append(sb.roles, uint16(i))
	}
	if d.without > 0 {
		sb.roles[d.without-1] = md.RoleFaulty
	}
	return sb.bytes()
}

// testSuperblock builds superblocks as md writes them.
type testSuperblock struct {
	uuid     string
	level    int32
	layout   uint32
	disks    uint32
	dev      uint32
	events   uint64
	features uint32
	dirty    bool
	roles    []uint16
	// Bytes of a chunk, of each member that are used, where these begin, and the
	// bitmap.
	chunk, size, data, bitmap int64
}

func (t testSuperblock) bytes() []byte {
	le := binary.LittleEndian
	b := make([]byte, md.SuperblockSize)
	le.PutUint32(b, md.SuperblockMagic)
	le.PutUint32(b[4:], 1)
	le.PutUint32(b[8:], t.features)
	raw, _ := hex.DecodeString(t.uuid)
	copy(b[16:], raw)
	copy(b[32:], "any:r0")
	le.PutUint32(b[72:], uint32(t.level))
	le.PutUint32(b[76:], t.layout)
	le.PutUint64(b[80:], uint64(t.size/512))
	le.PutUint32(b[88:], uint32(t.chunk/512))
	le.PutUint32(b[92:], t.disks)
	le.PutUint64(b[128:], uint64(t.data/512))
	if t.bitmap != 0 {
		le.PutUint32(b[96:], uint32((t.bitmap-md.SuperblockOffset)/512))
		le.PutUint32(b[8:], t.features|md.FeatureBitmap)
	}
	le.PutUint32(b[160:], t.dev)
	le.PutUint64(b[200:], t.events)
	le.PutUint64(b[208:], math.MaxUint64)
	if t.dirty {
		le.PutUint64(b[208:], 0)
	}
	le.PutUint32(b[220:], uint32(len(t.roles)))
	for i, r := range t.roles {
		le.PutUint16(b[256+2*i:], r)
	}
	le.PutUint32(b[216:], md.SuperblockSum(b[:256+2*len(t.roles)]))
	return b
}

func (s *shared) fakePV(off int64, n int) []byte {
	text := s.vg + " {\nid = \"x\"\nseqno = " + strconv.Itoa(s.seqno) + "\nsystem_id = " + strconv.Quote(s.owner) + "\nphysical_volumes {\npv0 {\n}\n}\n}\n"
	image, ok := pvImages.Load(text)
	if !ok {
		image, _ = pvImages.LoadOrStore(text, pvImage(text, 512))
	}
	return slices.Clone(image.([]byte)[off:][:n])
}

// pvImages are the images that fakePV has made, by text: tests read the same few
// thousands of times.
var pvImages sync.Map

// pvImage builds the head of a physical volume with a text at an offset of
// its 8 KiB metadata ring.
func pvImage(text string, at int) []byte {
	le := binary.LittleEndian
	b := make([]byte, 64<<10)
	l := b[512:]
	copy(l, "LABELONE")
	le.PutUint32(l[20:], 32)
	copy(l[24:], "LVM2 001")
	p := l[32:]
	le.PutUint64(p[40:], 1<<20)
	le.PutUint64(p[72:], 4096)
	le.PutUint64(p[80:], 8192)
	m := b[4096:]
	copy(m[4:], mdaMagic)
	le.PutUint64(m[40:], uint64(at))
	le.PutUint64(m[48:], uint64(len(text)))
	for i := range len(text) {
		o := at + i
		if o >= 8192 {
			o = o - 8192 + 512
		}
		m[o] = text[i]
	}
	return b
}

func (h *fakeHost) Mount(source, target, fstype string, flags uintptr, data string) error {
	if err := h.change("mount %s %s %s %s", source, target, fstype, data); err != nil {
		return err
	}
	m := linux.Mount{Root: "/", Target: target, Options: []string{"rw"}, Type: fstype, Source: source, Super: []string{"rw"}}
	switch {
	case flags&unix.MS_BIND != 0:
		v, ok := h.onVolume(source)
		if !ok {
			return fs.ErrNotExist
		}
		m.Dev, m.Root, m.Type, m.Source = number253(h.fs), v, "xfs", "/dev/mapper/volume"
		if own := h.mounted("/srv/home/.nfs"); own != nil {
			m.Dev, m.Root, m.Type, m.Source = own.Dev, own.Root, own.Type, own.Source
		}
	case fstype == "xfs":
		if !h.there(h.fs) || h.mapper(source) != h.fs {
			return fs.ErrNotExist
		}
		if h.damage != nil {
			return h.damage
		}
		h.mayWrite()
		for _, o := range h.hosts {
			if o != h && !o.dead && o.mounted("/srv/home") != nil {
				h.t.Errorf("the volume is mounted on %s and %s", o.name, h.name)
			}
		}
		if flags != unix.MS_NOATIME || data != "logbsize=256k" {
			h.t.Errorf("mount options %x %q", flags, data)
		}
		m.Dev = number253(h.fs)
	default:
		m.Dev = "0:99"
	}
	h.mounts = append(h.mounts, m)
	return nil
}

// mayWrite fails the test if the storage is not this host's.
func (h *fakeHost) mayWrite() {
	for _, l := range h.luns {
		if (len(h.lvs) == 0 || h.reserved) && l.by() != h.name {
			h.t.Errorf("%s mounts LUNs that are reserved for %q", h.name, l.by())
		}
	}
	left := 0
	for name, d := range h.disks {
		if h.reserved && !d.gone && d.res.by() != h.name {
			if left++; left > 2 { // more than RAID 6 can lose
				h.t.Errorf("%s mounts disks, and %s is reserved for %q", h.name, name, d.res.by())
			}
		}
	}
	if len(h.lvs) > 0 && h.owner != h.name {
		h.t.Errorf("%s mounts a volume of %q", h.name, h.owner)
	}
}

// mountTarget is mount.lustre, with multiple mount protection.
func (h *fakeHost) mountTarget(source, target string) error {
	dev := h.mapper(source)
	if dev == "" || !h.there(dev) {
		return errors.New("mount.lustre: no such device")
	}
	h.mayWrite()
	for _, o := range h.hosts {
		if o != h && !o.dead && slices.ContainsFunc(o.mounts, func(m linux.Mount) bool { return m.Source == source }) {
			return errors.New("mount.lustre: Device or resource busy: MMP")
		}
	}
	if cmp.Or(h.mmp[dev], mmpClean) != mmpClean {
		h.watched = append(h.watched, dev)
	}
	h.mmp[dev] = mmpMounted
	h.mounts = append(h.mounts, linux.Mount{Dev: "0:77", Root: "/", Target: target, Options: []string{"rw"}, Type: "lustre", Source: source, Super: []string{"ro"}})
	return nil
}

func (h *fakeHost) Unmount(target string) error {
	if err := h.change("umount %s", target); err != nil {
		return err
	}
	for i := len(h.mounts) - 1; i >= 0; i-- {
		m := h.mounts[i]
		if m.Target != target {
			continue
		}
		for _, o := range h.mounts {
			if unit.Below(target, o.Target) {
				return unix.EBUSY
			}
		}
		for _, p := range h.procs {
			if p.cwd == target || unit.Below(target, p.cwd) {
				return unix.EBUSY
			}
			if target == "/var/lib/nfs" && slices.Contains([]string{"rpc.statd", "rpc.mountd", "nfsdcld"}, p.name) {
				return unix.EBUSY
			}
		}
		image := func(o linux.Mount) bool { return strings.HasPrefix(o.Source, "/dev/loop") }
		if m.Type == "xfs" && (h.nfsd > 0 || slices.ContainsFunc(h.mounts, image)) {
			return unix.EBUSY
		}
		if m.Type == "lustre" {
			delete(h.mmp, h.mapper(m.Source))
		}
		h.mounts = slices.Delete(h.mounts, i, i+1)
		return nil
	}
	return unix.EINVAL
}

func (h *fakeHost) Interface(a netip.Addr) (kernel.Iface, error) {
	for p, n := range h.addrs {
		if p.Addr() == a {
			return kernel.Iface{Index: 2, Name: n}, nil
		}
	}
	return kernel.Iface{}, errors.New("not found")
}

func (h *fakeHost) Link(name string) (kernel.Iface, error) {
	return kernel.Iface{}, errors.New("no interface " + name)
}

func (h *fakeHost) Addresses() (map[netip.Prefix]string, error) { return maps.Clone(h.addrs), nil }

func (h *fakeHost) AddAddress(ifc kernel.Iface, p netip.Prefix) error {
	if err := h.change("address + %s", p); err != nil {
		return err
	}
	h.upAfterService()
	h.addrs[p] = ifc.Name
	return nil
}

func (h *fakeHost) upAfterService() {
	if h.nfsd == 0 || !strings.Contains(h.volume["/.nfs/etab"], "/srv/home") && h.badClient+h.lax == "" {
		h.t.Error("the address is up before the service: clients would see stale handles")
	}
}

func (h *fakeHost) DelAddress(_ string, p netip.Prefix) error {
	if err := h.change("address - %s", p); err != nil {
		return err
	}
	delete(h.addrs, p)
	return nil
}

func (h *fakeHost) ProbeARP(_ context.Context, _ kernel.Iface, a netip.Addr, _ time.Duration) (string, error) {
	for _, o := range h.hosts {
		if o == h || o.dead {
			continue
		}
		for p := range o.all() {
			if p.Addr() == a {
				return "02:00:00:00:00:99", nil
			}
		}
	}
	return "", nil
}

func (h *fakeHost) Ports(_ context.Context, programs []kernel.Program) ([]uint16, error) {
	if _, ok := h.files["/run/rpcbind.sock"]; !ok {
		return nil, syscall.ECONNREFUSED
	}
	have := map[string]bool{"nfs": h.nfsd > 0, "nlockmgr": h.nfsd > 0}
	for _, p := range h.procs {
		have["mountd"] = have["mountd"] || p.name == "rpc.mountd"
		have["status"] = have["status"] || p.name == "rpc.statd"
	}
	var out []uint16
	for _, p := range programs {
		port := uint16(p.Number % 1000)
		if !have[p.Name] || h.forgot == p.Name {
			port = 0
		}
		out = append(out, port)
	}
	return out, nil
}

func (h *fakeHost) Null(_ context.Context, at netip.AddrPort, p kernel.Program) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !slices.ContainsFunc(slices.Collect(maps.Keys(h.all())), func(p netip.Prefix) bool { return p.Addr() == at.Addr() }) {
		h.t.Errorf("%s is asked at %v, which is not here", p.Name, at)
	}
	if want := uint16(p.Number % 1000); at.Port() != want && (p.Name != "nfs" || at.Port() != 2049) {
		h.t.Errorf("%s is asked at port %d", p.Name, at.Port())
	}
	if p.Name == "nfs" && !h.nobody {
		h.woken++
	}
	stopped := func(name string) bool {
		for _, proc := range h.procs {
			if proc.name == name && proc.state == "T" {
				return true
			}
		}
		return false
	}
	if h.mute[p.Name] || p.Name == "mountd" && stopped("rpc.mountd") || p.Name == "status" && stopped("rpc.statd") {
		return context.DeadlineExceeded
	}
	return nil
}

// all are the addresses of a host and its namespace.
func (h *fakeHost) all() map[netip.Prefix]string {
	all := maps.Clone(h.addrs)
	maps.Copy(all, h.spaceAddrs)
	return all
}

func (h *fakeHost) ResetConnections(a netip.Addr, _ uint16) error {
	for p := range h.all() {
		if p.Addr() == a {
			h.t.Error("connections reset while the address is up")
		}
	}
	return nil
}

func (h *fakeHost) AnnounceARP(kernel.Iface, netip.Addr) error { return h.change("announce") }

func (h *fakeHost) Executable(name string) (string, error) { return "/usr/sbin/" + name, nil }
func (h *fakeHost) Hostname() (string, error)              { return h.name, nil }

func (h *fakeHost) Now() time.Time { return h.clock }

func (h *fakeHost) Sleep(ctx context.Context, d time.Duration) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.clock = h.clock.Add(d)
	if h.slept != nil {
		h.slept()
	}
	if end, ok := ctx.Deadline(); ok && h.clock.After(end) {
		return context.DeadlineExceeded
	}
	return nil
}

func (h *fakeHost) Kill(pid int, sig syscall.Signal) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	p, ok := h.procs[pid]
	if !ok {
		return unix.ESRCH
	}
	if err := h.change("kill %d %s", sig, p.name); err != nil {
		return err
	}
	if p.immortal || ((p.stubborn || p.state == "T") && sig != unix.SIGKILL) {
		return nil
	}
	delete(h.procs, pid)
	return nil
}

func (h *fakeHost) Namespace(string) (string, error) {
	if !h.space {
		return "", fs.ErrNotExist
	}
	return "net:[42]", nil
}

func (h *fakeHost) AddNamespace(name, link string, parent kernel.Iface) error {
	if h.space {
		h.t.Error("a namespace is made that is there")
	}
	h.space = true // one that is left half made
	if err := h.change("namespace + %s %s@%s", name, link, parent.Name); err != nil {
		return err
	}
	h.spaceLink = true
	return nil
}

func (h *fakeHost) CopyRoutes(name, link string, parent kernel.Iface) error {
	return h.change("routes")
}

func (h *fakeHost) DelNamespace(name, _ string) error {
	if !h.space {
		return nil
	}
	if err := h.change("namespace - %s", name); err != nil {
		return err
	}
	for _, p := range h.procs {
		if p.inside {
			h.t.Errorf("the namespace is removed under %s", p.name)
		}
	}
	if h.nfsd > 0 {
		h.t.Error("the namespace is removed under nfsd")
	}
	h.space, h.spaceLink, h.spaceAddrs = false, false, map[netip.Prefix]string{}
	return nil
}

func (h *fakeHost) Within(name string) kernel.Host {
	if name == "" {
		return h
	}
	return &fakeWithin{h}
}

// fakeWithin is a host seen from the service's namespace.
type fakeWithin struct{ *fakeHost }

func (h *fakeWithin) there() error {
	if !h.space {
		return fs.ErrNotExist
	}
	return nil
}

func (h *fakeWithin) ReadFile(p string) ([]byte, error) {
	if p == "/proc/thread-self/net/tcp" {
		return []byte(h.tcp(h.spaceAddrs)), h.there()
	}
	return h.fakeHost.ReadFile(p)
}

func (h *fakeWithin) Link(name string) (kernel.Iface, error) {
	if !h.space || !h.spaceLink {
		return kernel.Iface{}, errors.New("no interface " + name)
	}
	return kernel.Iface{Index: 5, Name: name}, nil
}

func (h *fakeWithin) Addresses() (map[netip.Prefix]string, error) {
	return maps.Clone(h.spaceAddrs), h.there()
}

func (h *fakeWithin) AddAddress(ifc kernel.Iface, p netip.Prefix) error {
	if err := h.change("address + %s", p); err != nil {
		return err
	}
	h.upAfterService()
	h.spaceAddrs[p] = ifc.Name
	return h.there()
}

func (h *fakeWithin) DelAddress(_ string, p netip.Prefix) error {
	if err := h.change("address - %s", p); err != nil {
		return err
	}
	delete(h.spaceAddrs, p)
	return h.there()
}

func (h *fakeWithin) Ports(ctx context.Context, programs []kernel.Program) ([]uint16, error) {
	for _, p := range h.procs {
		if p.name == "rpcbind" && p.inside {
			return h.fakeHost.Ports(ctx, programs)
		}
	}
	return nil, syscall.ECONNREFUSED
}

func (h *fakeWithin) Start(c kernel.Command) error {
	if err := h.there(); err != nil {
		return err
	}
	return h.begin(c, true)
}

func (h *fakeWithin) Run(ctx context.Context, c kernel.Command) (string, error) {
	if err := h.there(); err != nil {
		return "", err
	}
	return h.fakeHost.run(c, true)
}

func (h *fakeHost) spawn(p *fakeProc) int {
	h.nextPID++
	h.procs[h.nextPID] = p
	return h.nextPID
}

func (h *fakeHost) Start(c kernel.Command) error { return h.begin(c, false) }

func (h *fakeHost) begin(c kernel.Command, inside bool) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.change("start %s", strings.Join(c.Argv, " ")); err != nil {
		return err
	}
	switch c.Argv[0] {
	case "udevadm":
		h.held = false
		return nil
	case "modprobe":
		return nil
	}
	p := &fakeProc{name: c.Argv[0], cwd: "/", inside: inside, bound: inside && len(c.Binds) > 0}
	if slices.Equal(c.Argv[1:], []string{"ocf", "_cld", "/var/lib/nfs/nfsdcld/main.sqlite", "/run/rpc_pipefs/nfsd/cld"}) {
		p.name = "nfsdcld"
		if !p.bound && h.mounted("/var/lib/nfs") == nil {
			h.t.Error("nfsdcld before the state is bound")
		}
	}
	h.spawn(p)
	return nil
}

func (h *fakeHost) Run(_ context.Context, c kernel.Command) (string, error) { return h.run(c, false) }

func (h *fakeHost) run(c kernel.Command, inside bool) (string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	a := c.Argv
	// What reads or writes the NFS state must see the volume's.
	bound := slices.Contains(c.Binds, kernel.Bind{From: "/srv/home/.nfs", At: "/var/lib/nfs"})
	state := bound && inside || h.mounted("/var/lib/nfs") != nil
	if err := h.change("%s", strings.Join(a, " ")); err != nil {
		return "", err
	}
	fails := func(format string, x ...any) (string, error) { return "", fmt.Errorf(a[0]+": "+format, x...) }
	switch {
	case a[0] == "mkfs.ext4":
		v, _ := h.onVolume(a[len(a)-1])
		if h.volume[v] != "blank" {
			h.t.Errorf("%s would be overwritten", a[len(a)-1])
		}
		h.volume[v] = "ext4"
		return "", nil
	case a[0] == "e2fsck":
		v, _ := h.onVolume(a[len(a)-1])
		if h.volume[v] == "torn" || h.volume[v] == "superblock torn" && slices.Contains(a, "-b") {
			h.volume[v] = "ext4"
		}
		return fails("exit code 1")
	case a[0] == "sqlite3":
		if v, ok := h.onVolume(a[len(a)-1]); !ok || h.mounted("/srv/home") == nil || h.volume[v] != "" {
			h.t.Errorf("%q: no database", a)
		}
		return "rec-0000000000000001\n", nil
	case a[0] == "cp":
		if h.mounted(a[3]) == nil {
			h.t.Errorf("%q, and it is not mounted", a)
		}
		return "", nil
	case a[0] == "mdadm" && a[1] == "--assemble":
		if slices.Contains(a, "--force") {
			h.t.Error("mdadm --force")
		}
		uuid := md.Hex(strings.TrimPrefix(a[3], "--uuid="))
		if !slices.Contains(a, "--readonly") {
			h.t.Error("an array is assembled for writing before its owner is known")
		}
		n, err := h.assembled(uuid, a)
		if err != nil {
			return fails("%w", err)
		}
		h.md[uuid], h.degr, h.inert, h.ro = "md127", 6-n, false, true
		return "", nil
	case a[0] == "mdadm" && a[1] == "--readwrite":
		for _, o := range h.hosts {
			if o != h && !o.dead && len(o.md) > 0 && !o.ro {
				h.t.Errorf("%s and %s both write to the array", o.name, h.name)
			}
		}
		h.ro = false
		return "", nil
	case a[0] == "mdadm" && a[1] == "--manage" && a[3] == "--re-add":
		if d := h.disks[a[4]]; h.hung[a[4]] || h.ro || h.degr == 0 || d == nil || d.gone {
			return fails("--re-add for %s to %s is not possible", a[4], a[2])
		}
		h.degr--
		return "", nil
	case a[0] == "mdadm" && a[1] == "--zero-superblock", a[0] == "mdadm" && a[1] == "--manage" && a[3] == "--add":
		if h.ro || h.md[arrayUUID] == "" {
			h.t.Errorf("%q, and the array takes no disk", a)
		}
		return "", nil
	case a[0] == "mdadm" && a[1] == "--manage" && a[3] == "--fail":
		if a[4] != "d5" || h.degr > 0 {
			return fails("cannot set %s faulty in %s", a[4], a[2])
		}
		h.degr = 1 // the last one
		return "", nil
	case a[0] == "crm_attribute" && h.deaf:
		return fails("could not connect")
	case a[0] == "crm_attribute" && a[5] == "--update":
		h.files[linux.CIBFile] = fmt.Sprintf("<cib><configuration><nodes><node uname=%q><instance_attributes><nvpair name=%q value=%q/></instance_attributes></node></nodes></configuration></cib>", a[2], a[4], a[6])
		return "", nil
	case a[0] == "crm_attribute" && a[5] == "--delete":
		delete(h.files, linux.CIBFile)
		return "", nil
	case a[0] == "mdadm" && a[1] == "--stop":
		if h.active {
			return fails("busy")
		}
		for _, dev := range a[2:] {
			maps.DeleteFunc(h.md, func(_, d string) bool { return "/dev/"+d == dev })
		}
		h.inert, h.slow, h.ro = false, false, false
		return "", nil
	case a[0] == "mount" && a[1] == "-t" && a[2] == "lustre":
		if h.mounting != nil {
			h.mu.Unlock() // a mount holds up nothing else
			h.mounting()
			h.mountedOne()
			h.mu.Lock()
		}
		return "", h.mountTarget(a[len(a)-2], a[len(a)-1])
	case a[0] == "lvm":
		if pvs := h.pvs(); len(pvs) == 0 || slices.ContainsFunc(pvs, func(p string) bool { return !slices.Contains(a, p) }) {
			return fails("no such volume group")
		}
		cfg := a[3]
		if h.ro && a[len(a)-2] != "n" {
			h.t.Errorf("%q on an array that is read-only", a)
		}
		if i := slices.Index(a, "--systemid"); i > 0 {
			if !strings.Contains(cfg, fmt.Sprintf("%q", h.owner)) {
				return fails("cannot access foreign volume group")
			}
			if h.active && a[i+1] != h.name {
				return fails("volumes are active")
			}
			h.owner = a[i+1]
			h.seqno++
			return "", nil
		}
		if i := slices.Index(a, "--activate"); i > 0 {
			if a[i+1] == "y" {
				if h.owner != h.name {
					return fails("foreign volume group")
				}
				h.active = true
				return "", nil
			}
			if h.inUse() {
				return fails("in use")
			}
			h.active = false
			return "", nil
		}
	case a[0] == "dmsetup" && a[1] == "remove":
		if h.inUse() {
			return fails("device or resource busy")
		}
		h.active = false
		return "", nil
	case a[0] == "dmsetup" && a[1] == "table":
		return "0 2048 linear 9:127 128", nil
	case a[0] == "xfs_io":
		return "0,253,7,0,159,inode_263_data,0,159,160", nil
	case a[0] == "find":
		return "263 data/a name\x00", nil
	case a[0] == "exportfs" && a[1] == "-f":
		h.mountd = h.volume["/.nfs/etab"]
		return "", nil
	case a[0] == "exportfs" && a[1] == "-i":
		i := slices.IndexFunc(c.Binds, func(b kernel.Bind) bool { return b.At == "/var/lib/nfs" })
		if i < 0 || !unit.Below(unit.RunDir, c.Binds[i].From) {
			h.t.Error("exportfs changes the table in use: on a full volume it would empty it")
			return fails("not aside")
		}
		client, dir, _ := strings.Cut(a[4], ":")
		if h.badClient != "" && client == h.badClient {
			return fails("Failed to resolve %s", client)
		}
		if h.lax != "" && client == h.lax {
			return "", nil
		}
		h.files[c.Binds[i].From+"/etab"] += fmt.Sprintf("%s\t%s(%s,wdelay,hide)\n", dir, client, a[3])
		return "", nil
	case a[0] == "rpc.statd" || a[0] == "rpc.mountd" || a[0] == "rpcbind" && inside:
		if !state {
			h.t.Errorf("%s before the state is bound", a[0])
		}
		if a[0] == "rpc.statd" && slices.Contains(c.Binds, kernel.Bind{From: nfs.StatdNames, At: nfs.NSSwitch}) == h.plain {
			h.t.Error("rpc.statd would look up the names of all clients for each that locks, or not start")
		}
		h.spawn(&fakeProc{name: a[0], cwd: "/", inside: inside, bound: bound})
		return "", nil
	case a[0] == "rpc.nfsd":
		if i := slices.Index(a, "--grace-time"); h.nfsd == 0 && i > 0 { // as nfs-utils 2.8 does
			h.files["/proc/sys/fs/nfs/nlm_grace_period"] = a[i+1] + "\n"
		}
		fmt.Sscan(a[len(a)-1], &h.nfsd)
		if c.Nodename != "brick-home" {
			h.t.Errorf("nfsd has scope %q", c.Nodename)
		}
		h.untracked = h.cldLate > 0 || h.only("nfsdcld") == 0
		h.cldLate = max(0, h.cldLate-1)
		return "", nil
	case a[0] == "udevadm":
		h.held = a[2] == "--stop-exec-queue"
		return "", nil
	case a[0] == "ip" && a[1] == "route" && a[3] == "unreachable":
		if i := slices.Index(h.barred, a[4]); a[2] == "replace" && i < 0 {
			h.barred = append(h.barred, a[4])
		} else if a[2] == "del" && i < 0 {
			return fails("RTNETLINK answers: No such process")
		} else if a[2] == "del" {
			h.barred = slices.Delete(h.barred, i, i+1)
		}
		return "", nil
	case a[0] == "attrd_updater" && a[1] == "--query":
		var out strings.Builder
		for _, n := range []string{"nfs1", "nfs2"} {
			if v, ok := h.attrs[n+" "+a[4]]; ok {
				fmt.Fprintf(&out, "name=%q host=%q value=%q\n", a[4], n, v)
			}
		}
		return out.String(), nil
	case a[0] == "attrd_updater" && h.deaf:
		return "", errors.New("attrd does not answer")
	case a[0] == "attrd_updater" && a[3] == "--delete":
		delete(h.attrs, h.name+" "+a[2])
		return "", nil
	case a[0] == "attrd_updater":
		h.attrs[h.name+" "+a[2]] = a[4]
		return "", nil
	case a[0] == "crm_resource":
		return "", nil
	case a[0] == "cat":
		said, ok := h.tree(a[1])[a[1]]
		if !ok {
			return fails("%s: %w", a[1], fs.ErrNotExist)
		}
		return strings.TrimSpace(said), nil
	case a[0] == "tickle_tcp":
		h.tickled = c.Stdin
		return "", nil
	}
	h.t.Errorf("unexpected command %q", a)
	return "", errors.New("unexpected")
}

// assembled counts the members that an array is assembled from, as mdadm and md judge
// them.
func (h *fakeHost) assembled(uuid string, argv []string) (n int, err error) {
	dirty := false
	for _, m := range argv {
		if h.hung[m] {
			h.t.Errorf("mdadm is given %s, and hangs", m)
		}
		if d, ok := h.disks[m]; ok && d.uuid == uuid && !d.gone {
			if d.role < 6 {
				n++
			}
			dirty = dirty || d.dirty
		}
	}
	if n < 6 && dirty && !h.raid10 && strings.TrimSpace(h.files["/sys/module/md_mod/parameters/start_dirty_degraded"]) != "1" {
		return n, errors.New("cannot start dirty degraded array")
	}
	if n < 4 {
		return n, errors.New("not enough devices")
	}
	return n, nil
}

// inUse says whether the volume is mounted anywhere.
func (h *fakeHost) inUse() bool {
	for _, p := range h.procs {
		if p.bound {
			return true
		}
	}
	return h.cached || slices.ContainsFunc(h.mounts, func(m linux.Mount) bool { return m.Dev == number253(h.fs) || m.Type == "lustre" })
}

// clean says what of the service is left on a host.
func (h *fakeHost) left() string {
	var out []string
	add := func(cond bool, what string) {
		if cond {
			out = append(out, what)
		}
	}
	add(h.held, "udev held")
	add(h.slow, "slow resync")
	add(len(h.md) > 0, "array")
	add(h.active, "volume")
	add(h.nfsd > 0, "nfsd")
	m := h.mounted("/srv/home")
	add(m != nil && m.Dev == number253(h.fs), "mount")
	add(h.cached, "cache")
	for _, l := range h.luns { // a disk that does not obey may keep its own
		for path := range l.keys {
			add(strings.HasPrefix(path, h.name+" "), "registration")
		}
	}
	add(slices.ContainsFunc(h.mounts, func(m linux.Mount) bool { return m.Type == "lustre" }), "target")
	add(h.mounted("/var/lib/nfs") != nil, "bind")
	add(slices.ContainsFunc(h.mounts, func(m linux.Mount) bool { return m.Dev == imageNumber }), "state disk")
	add(h.space, "namespace")
	add(slices.ContainsFunc(h.mounts, func(m linux.Mount) bool { return strings.HasPrefix(m.Target, unit.RunDir) }), "mount below "+unit.RunDir)
	_, addr := h.all()[netip.MustParsePrefix("10.0.0.9/24")]
	add(addr, "address")
	for _, p := range h.procs {
		add(slices.Contains([]string{"rpc.statd", "nfsdcld", "rpc.mountd", "sm-notify"}, p.name) || p.inside, p.name)
	}
	return strings.Join(out, " ")
}

func (h *fakeHost) crash() {
	h.dead = true
	for _, d := range h.disks {
		d.dirty = true
	}
}

// judged reads the members of the service's arrays, and of one more, and judges that one.
func judged(s *mdraid.Kind, a mdraid.Array, read mdraid.Superblocks) (mdraid.Verdict, error) {
	names := slices.Clone(a.Members)
	for _, x := range s.Cfg.Arrays {
		names = append(names, x.Members...)
	}
	s.ReadSuperblocks(context.Background(), names, read)
	return s.Judge(a, read)
}

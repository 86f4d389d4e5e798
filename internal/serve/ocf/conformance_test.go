package ocf

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/serve/lun"
	"github.com/mortarhpc/mortar/internal/serve/lustre"
	"github.com/mortarhpc/mortar/internal/serve/unit"
)

// Every storage kind and every service kind pass the same cases against the
// model of two servers.

// storageSpecimen is a storage kind in one of its forms.
type storageSpecimen struct {
	name string
	put  func(*Config, *shared)
	// What happens to a device before a start, and what the start says: nothing
	// was changed then.
	missing, foreign, wrong mishap
	late                    func(sh *shared, gone bool) // a device that comes late
	stranger                mishap                      // another host has the storage
	broken                  []mishap                    // while the service runs
	taken                   func(sh *shared, by string) // the other server takes it
	rest                    func(*shared) string        // who has it after a stop
}

// mishap is something that goes wrong, and what the agent says.
type mishap struct {
	name string
	do   func(*shared, *fakeHost)
	want string
}

// serviceSpecimen is a service kind in one of its forms.
type serviceSpecimen struct {
	name string
	put  func(*Config, *shared) // on the storage that is there
	on   []int                  // storage specimens that its lifecycle is tried on; all of them have NFS
	// Before a start: the file system or target is not the one wanted, its volume
	// is not there, its mount point is in use, the other server has it.
	foreign, missing, occupied mishap
	elsewhere                  string
	broken                     []mishap // while the service runs
}

func withDisks(c *Config, _ *shared) {
	c.MDStorage = testConfig().MDStorage
	c.VolumeGroup = VolumeGroup{VG: "vg-a", SystemID: "at-rest"}
}

func withReservedDisks(c *Config, sh *shared) {
	withDisks(c, sh)
	c.Reservations, sh.reserved = fakeKeys, true
	for _, h := range sh.hosts {
		h.cabled(true)
	}
}

func withLUNs(c *Config, sh *shared) {
	clear(sh.disks)
	c.LUNStorage = &lun.LUNStorage{}
	for i := range 2 {
		l := lun.LUN{Name: fmt.Sprintf("array-l%d", i), WWID: fmt.Sprintf("3600c0ff00000000%d", i), Size: 1 << 40, Paths: 2, Array: "array"}
		c.LUNs = append(c.LUNs, l)
		sh.luns = append(sh.luns, &fakeLUN{name: l.Name, wwid: l.WWID, size: l.Size, paths: 4})
	}
	c.VolumeGroup = VolumeGroup{VG: "vg-a", SystemID: "at-rest"}
}

func withBareLUNs(c *Config, sh *shared) {
	withLUNs(c, sh)
	c.VolumeGroup, c.Reservations = VolumeGroup{}, fakeKeys
}

func withReservedLUNs(c *Config, sh *shared) {
	withLUNs(c, sh)
	c.Reservations, sh.reserved = fakeKeys, true
}

// cached puts a cache in front.
func cached(put func(*Config, *shared)) func(*Config, *shared) {
	return func(c *Config, sh *shared) {
		put(c, sh)
		c.Cache = "/etc/mortar/cache-home.json"
	}
}

func ownedBy(sh *shared, by string) { sh.owner = by }
func heldBy(sh *shared, by string) {
	for _, l := range sh.reservable() {
		l.take(by)
	}
}

// holder is who holds the first LUN.
func holder(sh *shared) string { return sh.luns[0].by() }

var (
	lunMissing = mishap{"", func(sh *shared, _ *fakeHost) { sh.luns[0].gone = true }, "[lun-missing] lun=array-l0 wwid=3600c0ff000000000"}
	lunForeign = mishap{"", func(sh *shared, _ *fakeHost) { sh.luns[0].wwid = "3600c0ff0ffffffff" }, "[lun-name] lun=array-l0 map=mpath-3600c0ff0ffffffff"}
	lunWrong   = mishap{"", func(sh *shared, _ *fakeHost) { sh.luns[0].size-- }, "[lun-size] lun=array-l0 want=1099511627776"}
	lunBroken  = []mishap{
		{"LUN gone", func(sh *shared, _ *fakeHost) { sh.luns[0].gone = true }, "[lun-missing] lun=array-l0"},
		{"LUN of another size", func(sh *shared, _ *fakeHost) { sh.luns[0].size *= 2 }, "[lun-size] lun=array-l0 want=1099511627776"},
	}
	mdMissing = mishap{"", func(sh *shared, _ *fakeHost) {
		for i := range 3 {
			sh.disks[fmt.Sprintf("/dev/mapper/d%d", i)].gone = true
		}
	}, "[too-few] missing=3 members=6 level=6"}
	mdForeign = mishap{"", func(sh *shared, _ *fakeHost) {
		for i := range 3 {
			sh.disks[fmt.Sprintf("/dev/mapper/d%d", i)].uuid = strings.Repeat("ab", 16)
		}
	}, "[too-few] missing=3"}
	mdWrong = mishap{"", func(sh *shared, _ *fakeHost) {
		for _, d := range sh.disks {
			d.dirty = true
		}
		sh.disks["/dev/mapper/d0"].gone = true
	}, "[in-doubt] arrays=r0"}
	mdBroken    = []mishap{{"array failed", func(_ *shared, h *fakeHost) { h.degr = 3 }, "lacks 3 of 6 members"}}
	vgStranger  = mishap{"", func(sh *shared, _ *fakeHost) { sh.owner = "backup-host" }, "[foreign-owner] owner=backup-host"}
	lunStranger = mishap{"", func(sh *shared, _ *fakeHost) { heldBy(sh, "backup-host") }, "[stranger]"}
	vgOwner     = func(sh *shared) string { return sh.owner }
	diskLate    = func(sh *shared, gone bool) { sh.disks["/dev/mapper/d0"].gone = gone }
	lunLate     = func(sh *shared, gone bool) { sh.luns[0].gone = gone }
)

// Places in storageSpecimens.
const (
	onDisks    = 0
	onLUNs     = 2
	onBareLUNs = 4
	onReserved = 5
	onResDisks = 6
)

var storageSpecimens = []storageSpecimen{
	{"md", withDisks, mdMissing, mdForeign, mdWrong, diskLate, vgStranger, mdBroken, ownedBy, vgOwner},
	{"md with cache", cached(withDisks), mdMissing, mdForeign, mdWrong, diskLate, vgStranger, append(slices.Clone(mdBroken),
		mishap{"cache down", func(_ *shared, h *fakeHost) { h.cached = false }, "cache is stopped"}), ownedBy, vgOwner},
	{"LUNs", withLUNs, lunMissing, lunForeign, lunWrong, lunLate, vgStranger, lunBroken, ownedBy, vgOwner},
	{"LUNs with cache", cached(withLUNs), lunMissing, lunForeign, lunWrong, lunLate, vgStranger, lunBroken, ownedBy, vgOwner},
	{"bare LUNs", withBareLUNs, lunMissing, lunForeign, lunWrong, lunLate,
		lunStranger, lunBroken, heldBy, func(sh *shared) string { return "at-rest" + holder(sh) }},
	{"reserved LUNs", withReservedLUNs, lunMissing, lunForeign, lunWrong, lunLate, lunStranger, lunBroken, heldBy, vgOwner},
	{"reserved disks", withReservedDisks, mdMissing, mdForeign, mdWrong, diskLate, lunStranger, mdBroken, heldBy, vgOwner},
}

// withNFS serves an export tree from the storage.
func withNFS(c *Config, sh *shared) {
	c.NFSService = testConfig().NFSService
	sh.fs = "dm-7"
	switch {
	case c.Cache != "":
		sh.fs = "dm-9"
	case c.VG == "":
		sh.fs, sh.lvs, c.LUNs = "dm-20", nil, c.LUNs[:1]
		sh.luns = sh.luns[:1]
	}
	if c.VG != "" {
		c.LV = "data"
	}
}

// withTargets serves an MGS and an MDT from a volume group, or two OSTs.
func withTargets(c *Config, sh *shared) {
	sh.fs = ""
	if c.VG == "" {
		sh.lvs, sh.labels = nil, map[string]string{"dm-20": "testfs-OST0000", "dm-21": "testfs:OST0001"}
		c.LustreService = &lustre.LustreService{FSName: "testfs", Targets: []lustre.Target{
			{Kind: "ost", Volume: "array-l0", MountPoint: "/lustre/ost0"},
			{Kind: "ost", Index: 1, Volume: "array-l1", MountPoint: "/lustre/ost1", MountOpts: []string{"md_stripe_cache_size=512"}},
		}}
		return
	}
	sh.lvs, sh.labels = []string{"mgt", "mdt0000"}, map[string]string{"dm-7": "MGS", "dm-8": "testfs-MDT0000"}
	c.LustreService = &lustre.LustreService{FSName: "testfs", Targets: []lustre.Target{
		{Kind: "mgs", Volume: "mgt", MountPoint: "/lustre/mgs"}, {Kind: "mdt", Volume: "mdt0000", MountPoint: "/lustre/mdt0"},
	}}
}

func inNamespace(put func(*Config, *shared)) func(*Config, *shared) {
	return func(c *Config, sh *shared) {
		put(c, sh)
		c.Namespace = "mortar-home"
	}
}

// occupy mounts something where the service mounts.
func occupy(target string) func(*shared, *fakeHost) {
	return func(_ *shared, h *fakeHost) {
		h.mounts = append(h.mounts, linux.Mount{Dev: "8:2", Root: "/", Target: target, Options: []string{"rw"}, Type: "ext4", Source: "/dev/sdb1", Super: []string{"rw"}})
	}
}

// ldiskfsSays has all targets show these options.
func ldiskfsSays(options string) func(*shared, *fakeHost) {
	return func(_ *shared, h *fakeHost) {
		for _, m := range h.mounts {
			if m.Type == "lustre" {
				h.files["/proc/fs/ldiskfs/"+h.mapper(m.Source)+"/options"] = options
			}
		}
	}
}

var (
	nfsForeign  = mishap{"", func(sh *shared, _ *fakeHost) { sh.fsUUID = strings.Repeat("00", 16) }, "[other-fs] uuid=00000000000000000000000000000000"}
	noVolume    = mishap{"", func(sh *shared, _ *fakeHost) { sh.lvs[len(sh.lvs)-1] = "other" }, "vg-a/"}
	nfsOccupied = mishap{"", occupy("/srv/home"), "[mount-taken] device=/dev/sdb1 at=/srv/home"}
	nfsBroken   = []mishap{
		{"read-only", func(_ *shared, h *fakeHost) { h.readonly = true }, "read-only"},
		{"nfsd gone", func(_ *shared, h *fakeHost) { h.nfsd = 0 }, "nfsd does not run"},
		{"address gone", func(_ *shared, h *fakeHost) { clear(h.spaceAddrs); delete(h.addrs, testConfig().Prefix()) }, "address is stopped"},
	}
	lustreBroken = []mishap{
		{"unhealthy", func(_ *shared, h *fakeHost) { h.sick = true }, "NOT HEALTHY"},
		{"read-only", ldiskfsSays("ro\nerrors=remount-ro\n"), "is read-only"},
		{"read-only after an error, as Linux 6.15 tells", ldiskfsSays("rw\nemergency_ro\nerrors=remount-ro\n"), "is read-only"},
		{"off the network", func(_ *shared, h *fakeHost) { h.apart = true }, "LNet of this server has no network"},
		{"a target unmounted", func(_ *shared, h *fakeHost) {
			h.mounts = slices.DeleteFunc(h.mounts, func(m linux.Mount) bool {
				return m.Type == "lustre" && m.Target != "/lustre/mgs" && m.Target != "/lustre/ost0"
			})
		}, "is stopped"},
	}
)

var serviceSpecimens = []serviceSpecimen{
	{"NFS", withNFS, nil, nfsForeign, noVolume, nfsOccupied, "[elsewhere]", nfsBroken},
	{"NFS in a namespace", inNamespace(withNFS), []int{onDisks}, nfsForeign, noVolume, nfsOccupied, "[elsewhere]", nfsBroken},
	{"Lustre", withTargets, []int{onDisks, onLUNs, onBareLUNs},
		mishap{"", func(sh *shared, _ *fakeHost) { sh.labels["dm-7"], sh.labels["dm-8"] = "MGS", "other-MDT0000" }, "[other-target] label=other-MDT0000 want=testfs-MDT0000"},
		noVolume, mishap{"", occupy("/lustre/mdt0"), "[mount-taken] device=/dev/sdb1 at=/lustre/mdt0"}, "MMP", lustreBroken},
}

// brick is a service kind on a storage kind, on two new servers.
func brick(t *testing.T, on storageSpecimen, serve serviceSpecimen) (*shared, *Config) {
	t.Helper()
	sh := newShared(t)
	c := &Config{Service: "home", Nodes: map[string]string{"nfs1": "10.0.0.1", "nfs2": "10.0.0.2"}}
	on.put(c, sh)
	serve.put(c, sh)
	// As it is written and read.
	src, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	c, err = Parse("c.json", src)
	if err != nil {
		t.Fatal(err)
	}
	return sh, c
}

func TestStorageKinds(t *testing.T) {
	nfs := serviceSpecimens[0]
	for _, on := range storageSpecimens {
		t.Run(on.name, func(t *testing.T) {
			ctx := t.Context()
			lifecycle(t, on, nfs)
			for name, m := range map[string]mishap{"missing": on.missing, "foreign": on.foreign, "wrong": on.wrong} {
				t.Run(name, func(t *testing.T) {
					sh, c := brick(t, on, nfs)
					refuses(t, sh, c, m)
					if n := sh.hosts["nfs1"].touched(); len(n) > 0 {
						t.Errorf("changed before it refused: %q", n)
					}
				})
			}
			t.Run("somebody else has it", func(t *testing.T) {
				sh, c := brick(t, on, nfs)
				refuses(t, sh, c, on.stranger)
			})
			t.Run("late", func(t *testing.T) {
				sh, c := brick(t, on, nfs)
				h := sh.hosts["nfs1"]
				h.uptime = "30.5 1.0"
				on.late(sh, true)
				s := h.service(c)
				begin := h.clock
				s.K = &lateDisk{h, func() { on.late(sh, h.clock.Sub(begin) < 5*time.Second) }}
				if err := s.start(ctx); err != nil || h.degr > 0 {
					t.Errorf("%v, degraded by %d", err, h.degr)
				}
			})
			for _, m := range on.broken {
				t.Run(m.name, func(t *testing.T) { monitorFinds(t, on, nfs, m) })
			}
			for name, do := range map[string]func(*service) error{
				"taken, monitor": func(s *service) error { _, err := s.monitor(ctx); return err },
				"taken, stop":    func(s *service) error { return s.stop(ctx) },
			} {
				t.Run(name, func(t *testing.T) {
					sh, c := brick(t, on, nfs)
					h := sh.hosts["nfs1"]
					s := h.service(c)
					if err := s.start(ctx); err != nil {
						t.Fatal(err)
					}
					on.taken(sh, "nfs2")
					n := len(h.changes)
					err := do(s)
					if got := h.changes[n:]; !says(err, "[taken]") || !strings.Contains(err.Error(), "nfs2") || len(got) != 2 || got[1] != "poke /proc/sysrq-trigger b" {
						t.Errorf("%v, changes %q", err, got)
					}
				})
			}
			t.Run("paths", func(t *testing.T) {
				sh, c := brick(t, on, nfs)
				h := sh.hosts["nfs1"]
				s := h.service(c)
				h.cabled(true)
				if err := s.start(ctx); err != nil || !s.storage.Reachable() || !s.up() {
					t.Fatalf("%v, reachable %v, up %v", err, s.storage.Reachable(), s.up())
				}
				h.cabled(false)
				for _, l := range sh.luns {
					l.paths = 0
				}
				if s.storage.Reachable() {
					t.Error("reachable without a path")
				}
				if err := s.stop(ctx); err != nil || s.up() {
					t.Errorf("stopped: %v, up %v", err, s.up())
				}
			})
		})
	}
}

func TestServiceKinds(t *testing.T) {
	for _, serve := range serviceSpecimens {
		t.Run(serve.name, func(t *testing.T) {
			for _, i := range serve.on {
				t.Run(storageSpecimens[i].name, func(t *testing.T) { lifecycle(t, storageSpecimens[i], serve) })
			}
			on := storageSpecimens[onLUNs] // LUNs are there all the time: no array is written by two servers
			for name, m := range map[string]mishap{"foreign": serve.foreign, "missing": serve.missing, "occupied": serve.occupied} {
				t.Run(name, func(t *testing.T) {
					sh, c := brick(t, on, serve)
					refuses(t, sh, c, m)
				})
			}
			t.Run("elsewhere", func(t *testing.T) {
				sh, c := brick(t, on, serve)
				if err := sh.hosts["nfs1"].service(c).start(t.Context()); err != nil {
					t.Fatal(err)
				}
				refuses(t, sh, c, mishap{want: serve.elsewhere}, "nfs2")
			})
			for _, m := range serve.broken {
				t.Run(m.name, func(t *testing.T) { monitorFinds(t, on, serve, m) })
			}
		})
	}
}

// refuses starts a service after a mishap: nothing of it may be mounted, and a
// stop cleans up.
func refuses(t *testing.T, sh *shared, c *Config, m mishap, on ...string) {
	t.Helper()
	h := sh.hosts[append(on, "nfs1")[0]]
	if m.do != nil {
		m.do(sh, h)
	}
	s := h.service(c)
	if err := s.start(t.Context()); !says(err, m.want) {
		t.Fatalf("error %v, want %q", err, m.want)
	}
	if st, _ := s.Check(); st == unit.Running {
		t.Error("it runs")
	}
	if err := s.stop(t.Context()); err != nil || h.left() != "" {
		t.Errorf("stop: %v, left %q", err, h.left())
	}
}

func monitorFinds(t *testing.T, on storageSpecimen, serve serviceSpecimen, m mishap) {
	sh, c := brick(t, on, serve)
	h := sh.hosts["nfs1"]
	s := h.service(c)
	if err := s.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.do(sh, h)
	if st, err := s.monitor(t.Context()); st != unit.Broken || !says(err, m.want) {
		t.Errorf("state %d, error %v, want %q", st, err, m.want)
	}
}

// lifecycle starts, watches, moves and stops a service, and does so with each
// change of it failing.
func lifecycle(t *testing.T, on storageSpecimen, serve serviceSpecimen) {
	ctx := t.Context()
	start := func(t *testing.T) (*shared, *service, *fakeHost) {
		t.Helper()
		sh, c := brick(t, on, serve)
		h := sh.hosts["nfs1"]
		s := h.service(c)
		mustState(t, s, unit.Stopped)
		if err := s.start(ctx); err != nil {
			t.Fatal(err)
		}
		mustState(t, s, unit.Running)
		return sh, s, h
	}
	var up, down []string // the changes of a start and of a stop
	t.Run("start and stop", func(t *testing.T) {
		sh, s, h := start(t)
		up = slices.Clone(h.changes)
		if st, err := s.monitor(ctx); st != unit.Running || err != nil {
			t.Fatal(st, err)
		}
		n := len(h.changes)
		if err := s.start(ctx); err != nil {
			t.Fatal(err)
		}
		if st, err := s.monitor(ctx); st != unit.Running || err != nil || len(h.changes) != n {
			t.Errorf("again: %d, %v, changes %q", st, err, h.changes[n:])
		}
		if err := s.stop(ctx); err != nil {
			t.Fatal(err)
		}
		down = slices.Clone(h.changes[n:])
		mustState(t, s, unit.Stopped)
		if l := h.left(); l != "" || on.rest(sh) != "at-rest" {
			t.Errorf("left %q, owner %q", l, on.rest(sh))
		}
		n = len(h.changes)
		if err := s.stop(ctx); err != nil || len(h.changes) != n {
			t.Errorf("again: %v, changes %q", err, h.changes[n:])
		}
	})
	t.Run("watched", func(t *testing.T) {
		sh, c := brick(t, on, serve)
		h := sh.hosts["nfs1"]
		h.cabled(true)
		s := h.service(c)
		w := h.watcher(s)
		s.warm(ctx)
		w.look(ctx)
		mustState(t, s, unit.Stopped)
		if err := s.start(ctx); err != nil {
			t.Fatal(err)
		}
		w.look(ctx)
		if err := s.tryIO(ctx); err != nil {
			t.Error(err)
		}
		mustState(t, s, unit.Running)
		if got := sh.attrs["nfs1 "+attrStorage+"home"]; got != "1" {
			t.Errorf("the storage is %q", got)
		}
		// Its disks are lost, and the other server has them.
		sh.attrs["nfs2 "+attrStorage+"home"] = "1"
		h.cabled(false)
		for _, l := range sh.luns {
			l.paths = 0
		}
		for range 2 {
			h.clock = h.clock.Add(2 * time.Second)
			w.look(ctx)
		}
		if sh.attrs["nfs1 "+attrFence] != "true" || !s.kind.Serving() {
			t.Errorf("the server does not ask to be fenced: %v", sh.attrs)
		}
		if _, ok := h.all()[testConfig().Prefix()]; ok {
			t.Error("clients can still be answered with an error")
		}
	})
	t.Run("take-over", func(t *testing.T) {
		sh, s, h := start(t)
		other := sh.hosts["nfs2"]
		so := other.service(s.cfg)
		mustState(t, so, unit.Stopped)
		h.crash()
		if err := so.start(ctx); err != nil {
			t.Fatal(err)
		}
		mustState(t, so, unit.Running)
		h.boot()
		mustState(t, s, unit.Stopped)
		if err := s.stop(ctx); err != nil {
			t.Fatal(err)
		}
		if err := so.stop(ctx); err != nil {
			t.Fatal(err)
		}
		if err := s.start(ctx); err != nil {
			t.Fatal(err)
		}
	})
	for i, what := range up {
		t.Run(fmt.Sprintf("start fails at %02d %s", i+1, what), func(t *testing.T) { startFailsAt(t, on, serve, i+1, what) })
	}
	for i, what := range down {
		t.Run(fmt.Sprintf("stop fails at %02d %s", i+1, what), func(t *testing.T) {
			_, s, h := start(t)
			if _, err := s.monitor(ctx); err != nil {
				t.Fatal(err)
			}
			h.failAt = len(h.changes) + i + 1
			if err := s.stop(ctx); err == nil && h.left() != "" {
				t.Fatalf("the stop succeeded but left %s", h.left())
			}
			if err := s.stop(ctx); err != nil || h.left() != "" {
				t.Errorf("second stop: %v, left %q", err, h.left())
			}
		})
	}
}

// Whatever change of a start fails, the start says so, a stop cleans up, and
// the next start works.
func startFailsAt(t *testing.T, on storageSpecimen, serve serviceSpecimen, i int, what string) {
	sh, c := brick(t, on, serve)
	h := sh.hosts["nfs1"]
	s := h.service(c)
	ctx := t.Context()
	h.failAt = i
	err := s.start(ctx)
	costsTime := slices.ContainsFunc([]string{"tickle_tcp", "start sm-notify", "save /run/mortar/reclaim-", "nlm_", "4.2 256", "udev", "held-", "sync_speed_m", "link /dev/mapper", "routes", "reserve /", "setprstatus", "register /dev/d", "sqlite3"},
		func(x string) bool { return strings.Contains(what, x) })
	if err == nil && !costsTime {
		t.Fatalf("the start did not notice that %q failed", what)
	}
	if st, _ := s.Check(); err != nil && st == unit.Running && what != "announce" {
		t.Error("failed, and still running")
	}
	if err := s.stop(ctx); err != nil || h.left() != "" {
		t.Fatalf("stop: %v, left %q", err, h.left())
	}
	if err := s.start(ctx); err != nil {
		t.Fatal(err)
	}
	mustState(t, s, unit.Running)
}

// A target is mounted by its own name, and found by its device whatever name the
// kernel shows.
func TestTargetUnderAnotherName(t *testing.T) {
	sh, c := brick(t, storageSpecimens[onDisks], serviceSpecimens[2])
	h := sh.hosts["nfs1"]
	s := h.service(c)
	if err := s.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	// The MGS is of the same service: the MDT asks this server's first.
	if !slices.Contains(h.changes, "mount -t lustre -o mgsnode=10.20.0.11@tcp /dev/mapper/vg--a-mdt0000 /lustre/mdt0") ||
		!slices.Contains(h.changes, "mount -t lustre /dev/mapper/vg--a-mgt /lustre/mgs") {
		t.Errorf("%q", h.changes)
	}
	// Another target of Lustre where this one belongs.
	for i := range h.mounts {
		if h.mounts[i].Target == "/lustre/mdt0" {
			h.mounts[i].Source = "/dev/mapper/vg--a-mgt"
		}
	}
	if st, err := s.Check(); st != unit.Broken || !strings.Contains(err.Error(), "instead of volume vg-a/mdt0000") {
		t.Errorf("state %d, %v", st, err)
	}
}

func TestTargetIsJudged(t *testing.T) {
	for name, c := range map[string]struct {
		kind, label string
		noMMP       bool
		want        string
	}{
		"registered":      {"ost", "testfs-OST000a", false, ""},
		"never":           {"ost", "testfs:OST000a", false, ""},
		"to be rewritten": {"ost", "testfs=OST000a", false, ""},
		"without logs":    {"ost", "testfs+OST000a", false, ""},
		"another index":   {"ost", "testfs-OST000b", false, "[other-target] volume=volume label=testfs-OST000b want=testfs-OST000a"},
		"another system":  {"ost", "testf-OST000a", false, "[other-target] label=testf-OST000a"},
		"an MDT":          {"ost", "testfs-MDT000a", false, "[other-target] label=testfs-MDT000a"},
		"no name":         {"ost", "", false, "[other-target]"},
		"no MMP":          {"ost", "testfs-OST000a", true, "[no-mmp] target=testfs-OST000a"},
	} {
		sh := newShared(t)
		sh.labels, sh.noMMP = map[string]string{"dm-7": c.label}, c.noMMP
		h := sh.hosts["nfs1"]
		h.active = true
		b, err := h.ReadBlocks("/dev/dm-7", 0, 4096)
		if err != nil {
			t.Fatal(err)
		}
		registered, err := lustre.Target{Kind: c.kind, Index: 10}.Judge("testfs", "volume", b)
		if registered != (name == "registered") && err == nil {
			t.Errorf("%s: registered: %v", name, registered)
		}
		if (err == nil) != (c.want == "") || err != nil && !says(err, c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	if _, err := (lustre.Target{Kind: "ost"}).Judge("testfs", "volume", make([]byte, 4096)); !says(err, "[no-ldiskfs] volume=volume") {
		t.Error("an empty device is a target")
	}
}

// After a crash each mount waits for MMP: targets that have registered are
// mounted beside each other, one that has not waits for the MGS.
func TestTargetsAreMountedTogether(t *testing.T) {
	for label, together := range map[string]bool{"testfs-MDT0000": true, "testfs:MDT0000": false} {
		sh, c := brick(t, storageSpecimens[onDisks], serviceSpecimens[2])
		sh.labels["dm-8"] = label
		h := sh.hosts["nfs1"]
		var under, most atomic.Int32
		h.mounting = func() {
			most.Store(max(most.Load(), under.Add(1)))
			for range 100 { // the other one has its chance
				if under.Load() > 1 {
					break
				}
				runtime.Gosched()
				time.Sleep(time.Millisecond)
			}
			most.Store(max(most.Load(), under.Load()))
		}
		h.mountedOne = func() { under.Add(-1) }
		if err := h.service(c).start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if (most.Load() == 2) != together {
			t.Errorf("%s: %d mounts at a time", label, most.Load())
		}
	}
}

// The watcher reports a server whose targets hang, or whose LNet has no network.
func TestWatcherReportsSickTargets(t *testing.T) {
	for name, fault := range map[string]func(h *fakeHost, on bool){
		"sick":  func(h *fakeHost, on bool) { h.sick = on },
		"apart": func(h *fakeHost, on bool) { h.apart = on },
	} {
		sh, c := brick(t, storageSpecimens[onDisks], serviceSpecimens[2])
		h := sh.hosts["nfs1"]
		s := h.service(c)
		fault(h, true)
		w := h.watcher(s)
		failed := func() bool {
			w.reacts(t.Context(), s, "lustre")
			return slices.ContainsFunc(h.changes, func(c string) bool { return strings.HasPrefix(c, "crm_resource --fail") })
		}
		if failed() {
			t.Errorf("%s: reported where nothing is served", name)
		}
		fault(h, false)
		if err := s.start(context.Background()); err != nil || failed() {
			t.Fatalf("%s: healthy: %v", name, err)
		}
		fault(h, true)
		if !failed() {
			t.Errorf("%s: not reported", name)
		}
	}
}

// A target whose writes fail is healthy until Lustre writes to it, which the deeper monitor
// has it do, and nothing else.
func TestFrozenTargetIsFoundByWriting(t *testing.T) {
	sh, c := brick(t, storageSpecimens[onDisks], serviceSpecimens[2])
	h := sh.hosts["nfs1"]
	s := h.service(c)
	if err := s.start(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := s.tryIO(t.Context()); err != nil || h.writes {
		t.Errorf("%v; Lustre goes on writing: %v", err, h.writes)
	}
	h.frozen = true
	if st, err := s.monitor(t.Context()); st != unit.Running || err != nil {
		t.Errorf("%v, %v", st, err)
	}
	if err := s.tryIO(t.Context()); err == nil || !strings.Contains(err.Error(), "NOT HEALTHY") || h.writes {
		t.Errorf("%v; Lustre goes on writing: %v", err, h.writes)
	}
}

// The watcher reports a target that ldiskfs has set read-only at its next look.
func TestWatcherSeesReadOnlyTarget(t *testing.T) {
	sh, c := brick(t, storageSpecimens[onDisks], serviceSpecimens[2])
	h := sh.hosts["nfs1"]
	s := h.service(c)
	if err := s.start(context.Background()); err != nil {
		t.Fatal(err)
	}
	w := h.watcher(s)
	w.lock = func(string) (func(), error) { return func() {}, nil }
	for _, c := range []struct {
		options string
		fails   int
	}{{"rw\nerrors=remount-ro\n", 0}, {"ro\nerrors=remount-ro\n", 1}} {
		ldiskfsSays(c.options)(sh, h)
		w.reacts(t.Context(), s, "lustre: health")
		n := 0
		for _, x := range h.changes {
			if strings.HasPrefix(x, "crm_resource --fail") {
				n++
			}
		}
		if n != c.fails {
			t.Errorf("%q: %d failures told", c.options, n)
		}
	}
}

// A server whose LNet had no network serves again as soon as it has one: Pacemaker
// forgets the failure of a target that ran, and of a start that was refused.
func TestForgiveNetwork(t *testing.T) {
	sh, c := brick(t, storageSpecimens[onDisks], serviceSpecimens[2])
	h := sh.hosts["nfs1"]
	h.files["/sys/class/net/eth0/carrier"] = "1\n"
	s := h.service(c)
	w := h.watcher(s)
	forgiven := func() (n int) {
		for _, c := range h.changes {
			if strings.HasPrefix(c, "crm_resource --cleanup --resource service-"+s.cfg.Service+" --node nfs1") {
				n++
			}
		}
		return n
	}
	look := func(want int, when string) {
		t.Helper()
		for range 2 { // not at the first sight
			h.clock = h.clock.Add(time.Minute)
			w.look(t.Context())
		}
		if got := forgiven(); got != want {
			t.Errorf("%s: the failure was forgotten %d times, want %d", when, got, want)
		}
	}
	if err := s.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.apart = true
	look(0, "off the network")
	if err := s.stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	look(0, "stopped, off the network")
	h.apart = false
	look(1, "on the network again")
	look(1, "later")
	h.apart = true
	if err := s.start(t.Context()); err == nil {
		t.Fatal("it starts off the network")
	}
	if err := s.stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	look(1, "a start was refused")
	h.apart = false
	look(2, "on the network after a refused start")
}

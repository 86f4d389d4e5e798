package ocf

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/mortarhpc/mortar/internal/serve/doubt"
	"github.com/mortarhpc/mortar/internal/serve/lun"
	"github.com/mortarhpc/mortar/internal/serve/lustre"
	"github.com/mortarhpc/mortar/internal/serve/mdraid"
	"github.com/mortarhpc/mortar/internal/serve/nfs"
	"github.com/mortarhpc/mortar/internal/serve/unit"
)

// A storageKind starts the devices of a service: those that are the physical
// volumes of its volume group, or carry a file system or target themselves. The
// layers above them are the same for all kinds: volume.go, cache.go.
type storageKind interface {
	// Layers start the devices, in the order of starting. Nothing is written to
	// the devices before open.
	Layers() []unit.Part
	// Devices returns all devices of the service, present or not, in the order
	// of the config.
	Devices() ([]unit.Device, error)
	// Open lets this server write to the devices, after the agent has checked
	// their owner.
	Open(ctx context.Context) error
	// Up says whether this server holds the devices for the service. Devices
	// that every server has all the time are not held.
	Up() bool
	// Writable says whether this server has opened a device, so that it writes to the disks
	// by itself. Devices that every server has all the time write nothing by themselves.
	Writable() bool
	// Free restores the speed of a resync that open has slowed down, and says
	// whether that succeeded. After a success no resync is held.
	Free() (ok bool)
	// Reachable says whether this server has paths to enough of the disks. The
	// watcher calls it about every 2 s.
	Reachable() bool
	// Paced looks at the disks. The function that it returns says which disk has
	// answered so late since then that every server would wait for it; "": none.
	Paced() func() string
	// Reflexes are what the watcher mends in the devices of a service that may run here.
	Reflexes(w unit.Watch) []*unit.Reflex
	// Sound returns the error with which the storage would refuse a start, or
	// nil. It only reads, and waits for nothing but devices that do not answer, for
	// kernel.AskLimit.
	Sound(ctx context.Context) error
	// Marks are what a server changes on the shared devices while it uses them, by what
	// messages call the device; "" for a device that does not answer.
	Marks(ctx context.Context) map[string]string
	// Queues is how long I/O waits for a device without any path before it
	// fails; 0: no longer than a few seconds.
	Queues() time.Duration
	// Modules are the kernel modules that the layers need, for loading in
	// advance.
	Modules() []string
	// Programs are the programs that the layers run.
	Programs() []string
}

// A serviceKind serves the content of the storage.
type serviceKind interface {
	// Layers are the layers above the storage, in the order of starting.
	Layers() []unit.Part
	// Serving says whether a file system of the service is mounted here. It
	// touches no file system.
	Serving() bool
	// Probe refuses to start a service that seems to run elsewhere, before
	// anything is changed.
	Probe(ctx context.Context) error
	// The agent calls started when all layers are up, and stopping before the
	// first goes down. Their errors cost clients time, not data.
	Started(ctx context.Context)
	Stopping(ctx context.Context)
	// Mend repairs in place what it can of the state and fault that a check
	// found, and returns the state and fault that remain.
	Mend(ctx context.Context, st unit.State, fault error) (unit.State, error)
	// Keep saves what the next server needs to know of a service that runs.
	Keep(ctx context.Context) error
	// CheckIO does I/O on the service's storage, past all caches.
	CheckIO(ctx context.Context) error
	// Silence keeps I/O errors of lost disks from clients. The watcher calls it
	// at each observation on a server that holds the storage and has lost its
	// disks.
	Silence(ctx context.Context, log func(format string, a ...any))
	// Reflexes are how the watcher restarts or reports what failed in a service that may
	// run here.
	Reflexes(w unit.Watch) []*unit.Reflex
	// Repairs are what can be put back above the file system while the service runs.
	Repairs() []unit.Repair
	// Modules are the kernel modules that the kind needs; warm starts other
	// slow preparations.
	Modules() []string
	Warm(ctx context.Context)
	// Programs are the programs that the layers run.
	Programs() []string
	// Able returns the error with which the kind would refuse a start here because of
	// something that may pass by itself, or nil. It only reads, and does not wait.
	Able() error
	// Try checks whether this server could serve a config that is not in use.
	Try(ctx context.Context) error
	// VolumeOf is the volume that an offline tool may work on, by the kind's
	// name for its content.
	VolumeOf(name string) (volume string, ok bool)
	// Owners finds whose blocks of the service's only volume are, by their offsets in
	// bytes, in order, while the service runs here.
	Owners(ctx context.Context, blocks []int64) (*doubt.Owners, error)
	// Change changes a service that runs here to its config in place, as far as
	// that is possible.
	Change(ctx context.Context) error
}

// kind is an entry of a table of kinds: T is storageKind or serviceKind.
type kind[T any] struct {
	key   string // only configs of this kind have this key
	in    func(*Config) bool
	check func(*Config, *unit.Faults)
	// names are the devices of a storage kind, or the volumes of a service
	// kind: logical volumes, or devices if there is no volume group. "" is the
	// only device.
	names func(*Config) []string
	of    func(*service) T
}

// kinds is the table of all storage kinds or of all service kinds. No other
// code tests for a kind.
type kinds[T any] struct {
	sort string
	all  []kind[T]
}

var storageKinds = kinds[storageKind]{"storage", []kind[storageKind]{
	{"arrays", func(c *Config) bool { return c.MDStorage != nil }, checkArrays,
		func(c *Config) []string { return c.MDStorage.Names() },
		arraysOf},
	{"luns", func(c *Config) bool { return c.LUNStorage != nil }, checkLUNs,
		func(c *Config) []string { return c.LUNStorage.Names() }, lunsOf},
}}

var serviceKinds = kinds[serviceKind]{"service", []kind[serviceKind]{
	{"nfs", func(c *Config) bool { return c.NFSService != nil }, checkNFS,
		func(c *Config) []string { return []string{c.LV} },
		func(s *service) serviceKind { return nfs.New(s.Host, s.cfg.NFSService, s.cfg.LV, s) }},
	{"targets", func(c *Config) bool { return c.LustreService != nil }, checkLustre,
		func(c *Config) []string { return c.LustreService.Names() },
		func(s *service) serviceKind { return lustre.New(s.Host, s.cfg.LustreService, s) }},
}}

func checkArrays(c *Config, f *unit.Faults) {
	c.MDStorage.Check(f)
	if c.VG == "" {
		f.Add("vg is empty: two servers that write to one array destroy it, and nothing but its volume group says whose it is")
	}
}

func arraysOf(s *service) storageKind {
	k := mdraid.New(s.Host, s.cfg.MDStorage, s.doubts, s)
	if keys := s.cfg.keys(); len(keys) > 0 {
		k.ReserveWith(keys)
		s.reserve = k.Reserve
	}
	return k
}

func checkLUNs(c *Config, f *unit.Faults) {
	c.LUNStorage.Check(f)
	if c.VG == "" && len(c.Reservations) == 0 {
		f.Add("luns without a volume group need \"reservations\": nothing else keeps the partner from writing to them")
	}
}

func lunsOf(s *service) storageKind {
	l := lun.New(s.Host, s.cfg.LUNStorage, s.cfg.VG != "", s.cfg.keys(), s)
	if l.Reserve != nil {
		s.reserve = l.Reserve
	}
	return l
}

func checkNFS(c *Config, f *unit.Faults) {
	if c.VG != "" {
		f.Word("lv", c.LV)
	}
	c.NFSService.Check(f)
}

func checkLustre(c *Config, f *unit.Faults) {
	c.LustreService.Check(f)
	if c.LV != "" || c.Cache != "" {
		f.Add("lv %q, cache %q: targets of Lustre name their volumes and have no cache", c.LV, c.Cache)
	}
}

// kindOf returns the kind that a config describes.
func (k kinds[T]) kindOf(c *Config) (kind[T], error) {
	var found []kind[T]
	var keys []string
	for _, x := range k.all {
		keys = append(keys, x.key)
		if x.in(c) {
			found = append(found, x)
		}
	}
	if len(found) != 1 {
		return kind[T]{}, fmt.Errorf("%d kinds of %s: exactly one of the keys %s is needed", len(found), k.sort, strings.Join(keys, ", "))
	}
	return found[0], nil
}

// What NFS needs of its service, see nfsService.

func (s *service) MayBeTorn() bool { return s.doubts.MayBeTorn() }

func (s *service) LockLists(ctx context.Context) (func(), error) { return s.lists(ctx) }

func (s *service) FreshExports(ctx context.Context) ([]nfs.Export, func(), error) {
	fresh, release, err := s.hold(ctx)
	if err != nil {
		return nil, nil, err
	}
	return fresh.Exports, release, nil
}

// StillOwned says why nothing may be written to the volume from here; nil: this server owns
// its volume group.
func (s *service) StillOwned() error {
	if s.cfg.VG == "" {
		return nil
	}
	owner, err := s.owner()
	if err == nil && owner != s.Node {
		err = s.takenBy(owner, "")
	}
	return err
}

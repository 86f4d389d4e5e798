package ocf

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// A storageKind brings the devices up that a service stands on: those that are
// the physical volumes of its volume group, or carry a file system or target
// themselves. What lies on them is the same for all kinds: volume.go, cache.go.
type storageKind interface {
	// layers bring the devices up, in the order of starting. Before open nothing
	// is written to them.
	layers() []part
	// devices are all of the service's, whether they are here or not, in the
	// order of the config.
	devices() ([]device, error)
	// open lets this server write to the devices, once it is known who owns them.
	open(ctx context.Context) error
	// up says whether this server holds the devices for the service. Devices
	// that every server has all the time are not held.
	up() bool
	// free gives back the speed of a resync that open has slowed down, and says
	// whether that succeeded. After it nothing of it is held.
	free() (ok bool)
	// reachable says whether this server has paths to enough of the disks; it is
	// the watcher's, who asks it about every 2 s.
	reachable() bool
	// sound says why a start would be refused for the storage's sake; nil: it
	// would not. It only looks, and does not wait.
	sound() error
	// queues is how long I/O waits for devices without any path before it fails; 0:
	// no longer than a few seconds.
	queues() time.Duration
	// modules are what the kernel needs for the layers, for loading in advance.
	modules() []string
	// programs are what the layers run.
	programs() []string
}

// device is one of the devices of a storage kind.
type device struct {
	name string // in the config
	what string // the kind's word for it, with the name
	path string // /dev/md127; "" if it is not here
	gone error  // why it is not here
}

// A serviceKind serves what is on the storage.
type serviceKind interface {
	// layers are those above the storage, in the order of starting.
	layers() []part
	// serving says whether a file system of the service is mounted here. It
	// touches no file system.
	serving() bool
	// probe refuses to start a service that seems to run elsewhere, before
	// anything is changed.
	probe(ctx context.Context) error
	// started is called when all layers are up, and stopping before the first
	// goes down: what goes wrong there costs clients time, not data.
	started(ctx context.Context)
	stopping()
	// mend is given what a check has found, and gives what is left after it has
	// mended what can be mended in place.
	mend(ctx context.Context, st state, fault error) (state, error)
	// keep saves what the next server needs to know of a service that runs.
	keep(ctx context.Context) error
	// checkIO does I/O on the service's storage, past all caches.
	checkIO(ctx context.Context) error
	// silence keeps errors of lost disks from clients. The watcher calls it for
	// a server that holds the storage and has lost its disks, at each look.
	silence(ctx context.Context, log func(format string, a ...any))
	// watch looks after a service that may run here; called by the watcher about
	// every 2 s.
	watch(ctx context.Context, w *watcher)
	// modules are what the kernel needs, and warm starts what else takes time.
	modules() []string
	warm(ctx context.Context)
	// programs are what the layers run.
	programs() []string
	// try finds out whether this server could serve a config that is not in use.
	try(ctx context.Context) error
	// volumeOf is the volume that a tool may work on while the service is stopped, by
	// the name that the kind gives to what is on it.
	volumeOf(name string) (volume string, ok bool)
	// change brings a service that runs here in line with its config in place, as
	// far as that is possible.
	change(ctx context.Context) error
}

// kind is an entry of a table of kinds: T is storageKind or serviceKind.
type kind[T any] struct {
	key   string // that only this kind has
	in    func(*Config) bool
	check func(*Config, *faults)
	// names are those of a storage kind's devices, and of a service kind's
	// volumes: logical volumes, or devices if there is no volume group; "" is the
	// only device.
	names func(*Config) []string
	of    func(*service) T
}

// kinds are all kinds of one sort. Nothing else asks which kind a service has.
type kinds[T any] struct {
	sort string
	all  []kind[T]
}

var storageKinds = kinds[storageKind]{"storage", []kind[storageKind]{
	{"arrays", func(c *Config) bool { return c.MDStorage != nil }, checkMD, namesOfArrays, func(s *service) storageKind { return &mdKind{s} }},
	{"luns", func(c *Config) bool { return c.LUNStorage != nil }, checkLUNs, namesOfLUNs, func(s *service) storageKind { return newLUNs(s) }},
}}

var serviceKinds = kinds[serviceKind]{"service", []kind[serviceKind]{
	{"nfs", func(c *Config) bool { return c.NFSService != nil }, checkNFS, volumesOfNFS, func(s *service) serviceKind { return newNFS(s) }},
	{"targets", func(c *Config) bool { return c.LustreService != nil }, checkLustre, volumesOfTargets, func(s *service) serviceKind { return &lustreKind{service: s} }},
}}

// of is the kind that a config describes.
func (k kinds[T]) of(c *Config) (kind[T], error) {
	var found []kind[T]
	var keys []string
	for _, one := range k.all {
		keys = append(keys, one.key)
		if one.in(c) {
			found = append(found, one)
		}
	}
	if len(found) != 1 {
		return kind[T]{}, fmt.Errorf("%d kinds of %s: exactly one of the keys %s is needed", len(found), k.sort, strings.Join(keys, ", "))
	}
	return found[0], nil
}

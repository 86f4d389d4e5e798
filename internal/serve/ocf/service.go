package ocf

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/mortarhpc/mortar/internal/base/pr"
	"github.com/mortarhpc/mortar/internal/serve/doubt"
	"github.com/mortarhpc/mortar/internal/serve/kernel"
	"github.com/mortarhpc/mortar/internal/serve/lun"
	"github.com/mortarhpc/mortar/internal/serve/refusal"
	"github.com/mortarhpc/mortar/internal/serve/unit"
)

// service is one service of a brick on this host: its kind on its storage.
type service struct {
	*cacheLayer
	doubts  *doubt.Notes
	kind    serviceKind
	reserve reservations
	// hold keeps other actions from changing the service until release is
	// called, and reads its configuration again.
	hold func(ctx context.Context) (fresh *Config, release func(), err error)
	// lists keeps other processes from writing the service's lists on the volume.
	lists func(ctx context.Context) (release func(), err error)
}

// newService is the service of a config on a host. Its log and hold are the
// caller's to set.
func newService(cfg *Config, k kernel.Host, host string) (*service, error) {
	sk, err := storageKinds.kindOf(cfg)
	if err != nil {
		return nil, err
	}
	vk, err := serviceKinds.kindOf(cfg)
	if err != nil {
		return nil, err
	}
	h := &unit.Host{K: k, Node: host, Self: os.Getpid(), Service: cfg.Service, Nodes: cfg.Nodes}
	vg := &volumeGroup{Host: h, cfg: cfg, volumes: vk.names(cfg)}
	s := &service{cacheLayer: &cacheLayer{volumeGroup: vg}, doubts: &doubt.Notes{Host: h}, reserve: noReservations{}}
	vg.dropCache, vg.uncached = s.cacheLayer.dropCache, s.cacheLayer.uncached
	s.lists = func(ctx context.Context) (func(), error) { return lock(ctx, cfg.Service+".lists") }
	s.storage, s.kind = sk.of(s), vk.of(s)
	return s, nil
}

func partCode(p unit.Part, err error) error {
	code := refusal.Code(p.Name)
	if !refusal.Known(code) {
		code = "target" // those of Lustre have names of their own
	}
	return refusal.Give(code, err)
}

// parts are all layers, in the order of starting.
func (s *service) parts() []unit.Part {
	all := s.storage.Layers()
	if s.cfg.VG != "" {
		all = append(all, unit.Part{Name: "volume", State: s.volumeState, Start: s.startVolume, Stop: s.stopVolume})
	}
	if s.cfg.Cache != "" && !s.uncached() {
		all = append(all, unit.Part{Name: "cache", State: s.cacheState, Start: s.startCache, Stop: s.stopCache})
	}
	return append(all, s.kind.Layers()...)
}

// Check finds whether the service runs here: running only if every part
// does, stopped only if nothing of its own is left.
func (s *service) Check() (unit.State, error) {
	up, down := 0, 0
	var faults []error
	parts := s.parts()
	for _, p := range parts {
		st, err := p.State()
		switch {
		case st == unit.Broken || err != nil:
			if err == nil {
				err = errors.New(p.Name + " is broken")
			}
			faults = append(faults, partCode(p, err))
		case st == unit.Running && !p.Shared:
			up++
		case st == unit.Stopped && p.Shared:
			faults = append(faults, partCode(p, fmt.Errorf("%s does not run", p.Name)))
		case st == unit.Stopped:
			down++
			faults = append(faults, partCode(p, fmt.Errorf("%s is stopped", p.Name)))
		}
	}
	own := 0
	for _, p := range parts {
		if !p.Shared {
			own++
		}
	}
	switch {
	case len(faults) == 0:
		return unit.Running, nil
	case down == own:
		return unit.Stopped, nil
	}
	return unit.Broken, errors.Join(faults...)
}

// start brings the service up. It leaves what it has started when it fails:
// Pacemaker stops a resource whose start failed, and stop cleans up.
func (s *service) start(ctx context.Context) error {
	if st, err := s.Check(); err == nil && st == unit.Running {
		return nil
	}
	s.OverdueNote().Forget() // of a stop that failed: a person has cleaned up since
	if err := s.Log.Step("probe", func() error { return s.kind.Probe(ctx) }); err != nil {
		return refusal.Give("probe", err)
	}
	defer s.resumeUdev() // what the storage holds
	for _, p := range s.parts() {
		if err := s.Log.Step(p.Name, func() error { return p.Start(ctx) }); err != nil {
			return s.refused(ctx, partCode(p, err))
		}
	}
	s.RefusedNote().Forget()
	s.kind.Started(ctx)
	err := refusal.Give("check", s.Log.Step("check", func() error {
		st, err := s.Check()
		if err == nil && st != unit.Running {
			err = errors.New("the service is stopped after its start")
		}
		return err
	}))
	if err != nil {
		return err
	}
	s.nameFiles(ctx)
	s.doubts.ForgetDoubt()
	return nil
}

// stop takes the service down in the opposite order and fails at the first
// part that does not stop: what lies below it is in use.
func (s *service) stop(ctx context.Context) error {
	if by, err := s.owned(ctx); s.lost(by, err) {
		return s.resetServer(by, err) // unmounting would write
	}
	s.release()
	if st, err := s.Check(); err == nil && st == unit.Stopped {
		return s.reserve.Give(ctx) // of a start that was cut short, or of a server that crashed
	}
	s.kind.Stopping(ctx)
	parts := s.parts()
	for i := len(parts) - 1; i >= 0; i-- {
		if err := s.Log.Step(parts[i].Name, func() error { return parts[i].Stop(ctx) }); err != nil {
			return partCode(parts[i], err)
		}
	}
	return refusal.Give("check", s.Log.Step("check", func() error {
		st, err := s.Check()
		if err == nil && st != unit.Stopped {
			err = errors.New("the service still runs after its stop")
		}
		return err
	}))
}

// owned reads who owns the storage, if it is in use here; else it is "". Devices that
// take writes are in use, with or without a volume on them: md writes to their
// superblocks by itself. A volume group comes before reservations: those that an array
// has forgotten are made again, which must not be done for storage of the other server.
func (s *service) owned(ctx context.Context) (string, error) {
	used, err := s.used()
	if err != nil || !used && !s.storage.Writable() {
		return "", err
	}
	owner := s.Node
	if s.cfg.VG != "" {
		_, m, err := s.meta()
		if err != nil {
			return "", err
		}
		if owner = m.SystemID; owner != s.Node {
			if !used && s.unfinished(m) {
				owner = ""
			}
			return owner, nil
		}
	}
	if holder, err := s.reserve.Keep(ctx); err != nil {
		return holder, err
	}
	return owner, err
}

// Alone is that of the reservations.
func (s *service) Alone(ctx context.Context) bool { return s.reserve.Alone(ctx) }

// used says whether a volume of the service is active here, or a file system mounted.
func (s *service) used() (bool, error) {
	some, _, err := s.Active()
	return err == nil && (some || s.kind.Serving()), err
}

// Mine says why nothing may be written to the service's storage from here; nil: this
// server owns it. One that was frozen, and counts as fenced, still has its arrays when
// it goes on: what it writes to their disks then goes over what the other one has
// written.
func (s *service) Mine(ctx context.Context) error {
	used, err := s.used()
	owner := ""
	if err == nil && used {
		owner, err = s.owned(ctx)
	}
	switch {
	case err != nil:
		return fmt.Errorf("who owns the storage of service %s cannot be read: %w", s.cfg.Service, err)
	case owner == "":
		return fmt.Errorf("this server does not serve %s any more", s.cfg.Service)
	case owner != s.Node:
		return fmt.Errorf("the storage of service %s is %q's, not this server's", s.cfg.Service, owner)
	}
	return nil
}

// lost says whether the other server has the storage that is in use here, or has had
// it and stopped since: the volume group is at rest then. So it is if a LUN is no longer
// the one that this server reserved.
func (s *service) lost(owner string, err error) bool {
	taken := s.cfg.Nodes[owner] != "" && owner != s.Node
	givenBack := s.cfg.SystemID != "" && owner == s.cfg.SystemID
	return taken || givenBack || errors.Is(err, pr.ErrTaken) || errors.Is(err, lun.ErrForgot)
}

// resetServer stops this server at once. The other one took the volume because this
// one counts as fenced: it was frozen, or a person was wrong. What it still has
// in memory would overwrite what the other one has written since. Or err says that a LUN
// has changed below the service, and unmounting would write to it.
func (s *service) resetServer(by string, err error) error {
	why := s.takenBy(by, "this server")
	if errors.Is(err, lun.ErrForgot) {
		why = fmt.Errorf("%w. This server resets itself: a stop would write to it", err)
	}
	s.Log.Note("%v", why)
	return errors.Join(why, s.reset(why))
}

// reset resets this server at once, without writing anything.
//
// Source: Linux, Documentation/admin-guide/sysrq.rst: 'b' reboots without
// syncing or unmounting
func (s *service) reset(why error) error {
	// The log on disk is lost; a console or netconsole shows this.
	_ = s.K.Poke("/dev/kmsg", "<0>mortar: "+why.Error()+"\n")
	return s.K.Poke("/proc/sysrq-trigger", "b")
}

// up says whether this server holds the service's storage: another one needs it
// to be fenced then. It touches no file system.
func (s *service) up() bool {
	some, _, err := s.Active()
	return s.storage.Up() || some && err == nil || s.kind.Serving()
}

// takenBy is the error of storage that another server owns while it is in use here. fenced is
// this server if it resets itself.
func (s *service) takenBy(owner, fenced string) error {
	if owner == "" {
		owner = "a server that has left it"
	}
	args := refusal.Args{"vg": s.cfg.VG, "owner": owner, "host": fenced}
	if s.cfg.VG == "" {
		args["service"] = s.cfg.Service
	}
	return refusal.New(refusal.Taken, args)
}

// monitor checks every part, and has the service keep what the next server needs.
func (s *service) monitor(ctx context.Context) (unit.State, error) {
	if s.Waits() {
		return s.Check()
	}
	owner, ownerErr := s.owned(ctx)
	if s.lost(owner, ownerErr) {
		return unit.Broken, s.resetServer(owner, ownerErr)
	}
	s.release()
	st, err := s.Check()
	st, err = s.kind.Mend(ctx, st, err)
	if st != unit.Running || err != nil {
		return st, err
	}
	if ownerErr != nil {
		return unit.Broken, ownerErr
	}
	if owner != s.Node {
		return unit.Broken, s.takenBy(owner, "")
	}
	if s.cfg.Cache != "" {
		// The watcher has done so within a second, if it runs.
		if err := s.noteSSDs(ctx); err != nil {
			return unit.Broken, err
		}
	}
	if err := s.kind.Keep(ctx); err != nil {
		return unit.Broken, err
	}
	return unit.Running, nil
}

// Waits says whether I/O to the service's devices waits for their paths: nothing
// may be read from them now. That is no failure: the watcher sees whether another
// server can do better.
func (s *service) Waits() bool { return s.storage.Queues() > 0 && !s.storage.Reachable() }

// warm loads what a start on this host will need, so that it need not be
// loaded while clients wait: kernel modules, in the background, and what the
// service's kind needs besides. A probe does this, which Pacemaker runs once on
// each node; nothing depends on its success.
func (s *service) warm(ctx context.Context) {
	want := s.kind.Modules()
	if s.cfg.Cache != "" {
		want = append(want, "bcache", "raid0", "raid1")
	}
	argv := []string{"modprobe", "--quiet", "--all"}
	for _, m := range append(want, s.storage.Modules()...) {
		if _, err := s.K.ReadDir("/sys/module/" + m); err != nil {
			argv = append(argv, m)
		}
	}
	if len(argv) > 3 {
		s.Log.NoteErr(s.K.Start(kernel.Command{Argv: argv}), "modules are not loaded in advance")
	}
	s.kind.Warm(ctx)
}

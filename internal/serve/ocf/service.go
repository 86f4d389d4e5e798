package ocf

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sort"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// state of a part of the service on this host.
type state int

const (
	stopped state = iota
	running
	broken // half there, or there and not working
)

// refusal is an error of a start that was refused before it changed what it
// speaks of: trying again here will not help without a human.
type refusal struct{ error }

func (r *refusal) Unwrap() error { return r.error }

// service is one service of a brick on this host. Storage is the host's; nfsd
// and the service address may be in a network namespace of the service.
type service struct {
	cfg  *Config
	k    kernel // the host
	in   kernel // the same from the service's network namespace, if it has one
	host string
	self int // process ID
	log  *steps
	// grace is that of NFSv3 locks in s, once nfsd is to be started; if it is
	// longer than nfsd's it is nfsd's as well.
	grace int
	// cache is opened when it is first needed.
	cache stack
	now   func() time.Time
	// hold keeps other actions from changing the service until release is
	// called, and reads its exports from the configuration again.
	hold func(ctx context.Context) (release func(), err error)
}

// part is one layer of the service. All functions are idempotent and cope
// with a layer below that is half there.
type part struct {
	name  string
	state func() (state, error)
	start func(context.Context) error
	stop  func(context.Context) error
	// shared: may also run without this service; says nothing of whether
	// the service runs.
	shared bool
}

// parts are all layers, in the order of starting.
func (s *service) parts() []part {
	own := s.cfg.Namespace != ""
	all := []part{
		{"arrays", s.arraysState, s.startArrays, s.stopArrays, false},
		{"volume", s.volumeState, s.startVolume, s.stopVolume, false},
	}
	if s.cfg.Cache != "" {
		all = append(all, part{"cache", s.cacheState, s.startCache, s.stopCache, false})
	}
	all = append(all, part{"mount", s.mountState, s.startMount, s.stopMount, false})
	if own {
		all = append(all, part{"namespace", s.namespaceState, s.startNamespace, s.stopNamespace, false})
	}
	return append(all,
		part{"nfs-state", s.bindState, s.startState, s.stopState, false},
		part{"nfsd", s.nfsdState, s.startNFSD, s.stopNFSD, !own},
		part{"exports", s.exportState, s.startExports, s.stopExports, false},
		part{"address", s.addressState, s.startAddress, s.stopAddress, false})
}

// nodes lists the names of the cluster's nodes.
func (s *service) nodes() []string {
	var out []string
	for n := range s.cfg.Nodes {
		out = append(out, n)
	}
	sort.Strings(out)
	return out
}

// check finds whether the service runs here: running only if every part
// does, stopped only if nothing of its own is left.
func (s *service) check() (state, error) {
	up, down := 0, 0
	var faults []error
	for _, p := range s.parts() {
		st, err := p.state()
		switch {
		case st == broken || err != nil:
			if err == nil {
				err = errors.New(p.name + " is broken")
			}
			faults = append(faults, err)
		case st == running && !p.shared:
			up++
		case st == stopped && p.shared:
			faults = append(faults, fmt.Errorf("%s does not run", p.name))
		case st == stopped:
			down++
			faults = append(faults, fmt.Errorf("%s is stopped", p.name))
		}
	}
	own := 0
	for _, p := range s.parts() {
		if !p.shared {
			own++
		}
	}
	switch {
	case len(faults) == 0:
		return running, nil
	case down == own:
		return stopped, nil
	}
	return broken, errors.Join(faults...)
}

// start brings the service up. It leaves what it has started when it fails:
// Pacemaker stops a resource whose start failed, and stop cleans up.
func (s *service) start(ctx context.Context) error {
	if st, err := s.check(); err == nil && st == running {
		return nil
	}
	if err := s.log.step("probe", func() error { return s.startProbe(ctx) }); err != nil {
		return err
	}
	defer s.letGo() // what startArrays holds
	for _, p := range s.parts() {
		if err := s.log.step(p.name, func() error { return p.start(ctx) }); err != nil {
			return err
		}
	}
	// Clients wait from here on for themselves; what goes wrong now costs
	// time, not data, so it is told and not failed for.
	_ = s.log.step("tickle", func() error { return s.tickle(ctx) })
	_ = s.log.step("notify", s.notify)
	_ = s.moreThreads(ctx)
	return s.log.step("check", func() error {
		st, err := s.check()
		if err == nil && st != running {
			err = errors.New("the service is stopped after its start")
		}
		return err
	})
}

// stop takes the service down in the opposite order and fails at the first
// part that does not stop: what lies below it is in use.
func (s *service) stop(ctx context.Context) error {
	if by := s.taken(); by != "" {
		return s.resetServer(by) // unmounting would write
	}
	s.release()
	if st, err := s.check(); err == nil && st == stopped {
		return nil
	}
	if st, err := s.bindState(); err == nil && st == running {
		_ = s.log.step("connections", s.saveConnections)
	}
	parts := s.parts()
	for i := len(parts) - 1; i >= 0; i-- {
		if err := s.log.step(parts[i].name, func() error { return parts[i].stop(ctx) }); err != nil {
			return err
		}
	}
	return s.log.step("check", func() error {
		st, err := s.check()
		if err == nil && st != stopped {
			err = errors.New("the service still runs after its stop")
		}
		return err
	})
}

// taken is the other server of the cluster that has taken the volume group
// while its volume is active here; "" if it has not, or if the owner cannot be
// read.
func (s *service) taken() string {
	if dev, _, err := s.volume(); err != nil || dev == "" {
		return ""
	}
	m, err := s.owner()
	if err != nil || m.SystemID == s.host || s.cfg.Nodes[m.SystemID] == "" {
		return ""
	}
	return m.SystemID
}

// resetServer stops this server at once. The other one took the volume because this
// one counts as fenced: it was frozen, or a person was wrong. What it still has
// in memory would overwrite what the other one has written since.
//
// Source: Linux, Documentation/admin-guide/sysrq.rst: 'b' reboots without
// syncing or unmounting
func (s *service) resetServer(by string) error {
	why := fmt.Errorf("volume group %s was taken by %q while it is active here: this server counts as fenced, and resets itself", s.cfg.VG, by)
	s.log.note("%v", why)
	// The log on disk is lost; a console or netconsole shows this.
	_ = s.k.Poke("/dev/kmsg", "<0>mortar: "+why.Error()+"\n")
	return errors.Join(why, s.k.Poke("/proc/sysrq-trigger", "b"))
}

// monitor checks every part, and keeps the list of connected clients.
func (s *service) monitor(ctx context.Context) (state, error) {
	if by := s.taken(); by != "" {
		return broken, s.resetServer(by)
	}
	s.release()
	st, err := s.check()
	// A monitor that comes in between must not have the service moved.
	for try := 0; try < 20 && isRevivable(err); try++ {
		if s.k.Sleep(ctx, 250*time.Millisecond) != nil {
			break
		}
		st, err = s.check()
	}
	st, err = s.mendExports(ctx, st, err)
	if st == running && err == nil {
		_ = s.moreThreads(ctx) // serving with fewer is better than not serving
		if m, err := s.owner(); err != nil {
			return broken, err
		} else if m.SystemID != s.host {
			return broken, fmt.Errorf("volume group %s was taken by %q while it is active here", s.cfg.VG, m.SystemID)
		}
		if s.cfg.Cache != "" {
			// An SSD that has left the mirror must not be believed any more.
			if c, err := s.openCache(); err != nil {
				return broken, err
			} else if err := c.NoteSync(); err != nil {
				return broken, err
			}
		}
		s.keepRoom(reserve)
		if err := s.noted(s.saveConnections()); err != nil {
			return broken, fmt.Errorf("saving client connections on the volume: %w", err)
		}
		if err := s.noted(s.saveMonitored()); err != nil {
			return broken, fmt.Errorf("saving who holds NFSv3 locks on the volume: %w", err)
		}
	}
	return st, err
}

// noted passes an error on, unless the volume is full: that is for its users to
// mend, and moving the service would not. What could not be saved is older then.
func (s *service) noted(err error) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		s.log.note("not saved, the volume is full: %v", err)
		return nil
	}
	return err
}

// isRevivable says whether what check found is nothing but a daemon that the
// watcher starts again.
func isRevivable(err error) bool {
	return onlyFaults(err, func(e error) bool { return errors.As(e, new(revivable)) })
}

// onlyFaults says whether check found faults, and each is of a kind.
func onlyFaults(err error, kind func(error) bool) bool {
	all, ok := err.(interface{ Unwrap() []error }) //nolint:errorlint // that of errors.Join in check
	if !ok {
		return false
	}
	for _, e := range all.Unwrap() {
		if !kind(e) {
			return false
		}
	}
	return true
}

// warm loads what a start on this host will need, so that it need not be
// loaded while clients wait: kernel modules, in the background, and rpcbind,
// which systemd starts when it is first spoken to. A probe does this, which
// Pacemaker runs once on each node; nothing depends on its success.
func (s *service) warm(ctx context.Context) {
	want := []string{"xfs", "nfsd", "tcp_diag"}
	if s.cfg.Namespace != "" {
		want = append(want, "ipvlan")
	}
	if s.cfg.Cache != "" {
		want = append(want, "bcache", "raid0", "raid1")
	}
	for _, dev := range s.cfg.Arrays[0].Members {
		if sb, err := s.superblock(dev); err == nil {
			if m := map[int]string{1: "raid1", 4: "raid456", 5: "raid456", 6: "raid456", 10: "raid10"}[sb.Level]; m != "" {
				want = append(want, m)
			}
			break
		}
	}
	argv := []string{"modprobe", "--quiet", "--all"}
	for _, m := range want {
		if _, err := s.k.ReadDir("/sys/module/" + m); err != nil {
			argv = append(argv, m)
		}
	}
	if len(argv) > 3 {
		if err := s.k.Start(command{argv: argv}); err != nil {
			s.log.note("modules are not loaded in advance: %v", err)
		}
	}
	if s.cfg.NFS.serves("3") && s.cfg.Namespace == "" {
		if _, err := s.k.Unregistered(ctx, v3Programs[:1]); err != nil {
			s.log.note("rpcbind does not answer: %v", err)
		}
	}
}

// held marks that an agent holds back what would slow down its start.
func (s *service) held() string { return runDir + "/held-" + s.cfg.Service }

// slowSync is the speed, in KiB/s, that a resync of an array is held to while
// the service starts; a number nobody else would choose, by which it is known.
// Source: Documentation/admin-guide/md.rst, sync_speed_max.
const slowSync = "1001"

// holdUdev lets udev queue events instead of handling them until the service
// is up. Each array and volume that appears makes it run mdadm, lvm, blkid
// and multipath several times, at the very moment the clients wait for this
// host. Nothing in a start depends on udev: the kernel makes the devices.
func (s *service) holdUdev(ctx context.Context) {
	if err := s.k.Save(s.held(), nil); err != nil {
		s.log.note("%v", err)
		return // could not be found again should this process die
	}
	if _, err := s.k.Run(ctx, command{argv: []string{"udevadm", "control", "--stop-exec-queue"}}); err != nil {
		s.log.note("udev is not held: %v", err)
	}
}

// holdSync slows down the resync of the arrays: after a crash it would have
// the disks to itself while the file system replays its journal.
func (s *service) holdSync(all map[string]mdArray) {
	if _, err := s.k.ReadFile(s.held()); err != nil {
		return
	}
	for _, a := range s.ours(all) {
		if err := s.k.Poke("/sys/block/"+a.Dev+"/md/sync_speed_max", slowSync+"\n"); err != nil && !errors.Is(err, fs.ErrNotExist) {
			s.log.note("array %s: its resync is not held back: %v", a.Dev, err)
		}
	}
}

// letGo undoes holdUdev and holdSync at the end of a start, without waiting
// for udev, which has much to do then. The mark stays: the next action makes
// sure.
func (s *service) letGo() {
	if _, err := s.k.ReadFile(s.held()); err != nil {
		return
	}
	s.freeSync()
	if err := s.k.Start(command{argv: []string{"udevadm", "control", "--start-exec-queue"}}); err != nil {
		s.log.note("udev stays held: %v", err)
	}
}

// release makes sure that nothing is held any more: of a start that is over,
// or of an agent that was killed.
func (s *service) release() {
	if _, err := s.k.ReadFile(s.held()); err != nil {
		return
	}
	ok := s.freeSync()
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	if _, err := s.k.Run(ctx, command{argv: []string{"udevadm", "control", "--start-exec-queue"}}); err != nil {
		s.log.note("udev stays held: %v", err)
		ok = false
	}
	if !ok {
		return // the next action tries again
	}
	if err := s.k.Remove(s.held()); err != nil {
		s.log.note("%v", err)
	}
}

// freeSync gives resyncs their usual speed again.
func (s *service) freeSync() (ok bool) {
	ok = true
	if all, err := s.arrays(); err == nil {
		for _, a := range s.ours(all) {
			f := "/sys/block/" + a.Dev + "/md/sync_speed_max"
			if !strings.HasPrefix(s.line(f), slowSync+" ") {
				continue // nothing to sync, or set by somebody else
			}
			if err := s.k.Poke(f, "system\n"); err != nil {
				s.log.note("array %s: its resync stays slow: %v", a.Dev, err)
				ok = false
			}
		}
	}
	return ok
}

// patience is how long to wait for the users of a file system before giving
// up: half of the time that is left, so that giving up is still reported.
func (s *service) patience(ctx context.Context) time.Duration {
	end, ok := ctx.Deadline()
	if !ok {
		return 30 * time.Second
	}
	return max(end.Sub(s.now())/2, 0)
}

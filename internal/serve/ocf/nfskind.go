package ocf

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mortarhpc/mortar/internal/serve/kernel"
)

// nfsKind is the service kind of an NFS export tree: an XFS file system,
// nfsd with its daemons and state, exports and the service address. nfsd and the
// address may be in a network namespace of the service.
type nfsKind struct {
	*service
	in kernel.Host // the host from the service's network namespace, if it has one
	// grace is the grace period of NFSv3 locks in s, once nfsd is to be started; if it is
	// longer than nfsd's it is nfsd's as well.
	grace int
	full  time.Time // when it was last said that the volume is full
	// Of the watcher:
	recorder  recorder
	asker     asker
	unmade    lastSaid       // why names of exports do not resolve
	daemonPID map[string]int // by daemon
	settled   *settled       // NFSv3 locks, during lockd's grace period
}

func newNFS(s *service) *nfsKind {
	return &nfsKind{service: s, in: s.k.Within(s.cfg.Namespace), daemonPID: map[string]int{}}
}

func (s *nfsKind) layers() []part {
	own := s.cfg.Namespace != ""
	all := []part{{"mount", s.mountState, s.startMount, s.stopMount, false}}
	if s.cfg.StateImage != "" {
		all = append(all, part{"state-disk", s.stateDiskState, s.startStateDisk, s.stopStateDisk, false})
	}
	if own {
		all = append(all, part{"namespace", s.namespaceState, s.startNamespace, s.stopNamespace, false})
	}
	return append(all,
		part{"nfs-state", s.bindState, s.startState, s.stopState, false},
		part{"nfsd", s.nfsdState, s.startNFSD, s.stopNFSD, !own},
		part{"exports", s.exportState, s.startExports, s.stopExports, false},
		part{"address", s.addressState, s.startAddress, s.stopAddress, false})
}

func (s *nfsKind) serving() bool {
	all, err := s.mounts()
	if err != nil {
		return false
	}
	_, devno, err := s.mounted()
	m := mountedAt(all, s.cfg.MountPoint)
	return err == nil && m != nil && m.Dev == devno
}

func (s *nfsKind) started(ctx context.Context) {
	_ = s.log.step("tickle", func() error { return s.tickle(ctx) })
	_ = s.log.step("notify", s.notify)
	_ = s.moreThreads(ctx)
}

func (s *nfsKind) stopping(ctx context.Context) {
	s.endRecords(ctx)
	if st, err := s.bindState(); err == nil && st == running {
		_ = s.log.step("connections", func() error { return s.saveConnections(ctx) })
	}
}

// mend waits for the watcher to start daemons again and to make repairs, and changes exports
// in place.
func (s *nfsKind) mend(ctx context.Context, st state, fault error) (state, error) {
	// A monitor that comes in between must not have the service moved.
	for try := 0; try < 20 && (isRevivable(fault) || fault != nil && s.damagedHere()); try++ {
		if s.k.Sleep(ctx, 250*time.Millisecond) != nil {
			break
		}
		st, fault = s.check()
	}
	return s.mendExports(ctx, st, fault)
}

// keep keeps what the next start needs.
func (s *nfsKind) keep(ctx context.Context) error {
	_ = s.moreThreads(ctx) // serving with fewer is better than not serving
	if err := s.listenRDMA(); err != nil {
		return err
	}
	s.keepRoom(reserve)
	if err := s.keepAlive(); err != nil {
		return fmt.Errorf("saving on the volume that the service runs: %w", err)
	}
	return s.record(ctx, true)
}

// noted passes an error on, unless the volume is full: that is for its users to
// mend, and moving the service would not. What could not be saved is older then.
func (s *nfsKind) noted(err error) error {
	if !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EDQUOT) {
		return err
	}
	if s.k.Now().Sub(s.full) >= time.Minute { // the watcher tries every 2 s
		s.full = s.k.Now()
		s.log.note("not saved, the volume is full: %v", err)
	}
	return nil
}

// isRevivable says whether what check found is nothing but a daemon that the
// watcher starts again.
func isRevivable(err error) bool {
	return onlyFaults(err, func(e error) bool { return errors.As(e, new(revivable)) })
}

func (s *nfsKind) checkIO(ctx context.Context) error {
	tried := s.k.Ask(ctx, ioWait, []kernel.Question{{Dev: s.cfg.StateDir + "/mortar/check", Write: true}})
	// ENOSPC means that the file did not exist yet and the file system is full: the storage
	// works.
	if err := tried[0].Err; err != nil && !errors.Is(err, unix.ENOSPC) {
		return fmt.Errorf("writing and reading a file on %s: %w", s.cfg.MountPoint, err)
	}
	return nil
}

// silence gives up the service address, so that clients wait.
func (s *nfsKind) silence(ctx context.Context, log func(string, ...any)) {
	if name, _, err := s.present(); err != nil || name == "" {
		return
	}
	log("service %s has lost its disks: giving up its address, so that clients wait", s.cfg.Service)
	if err := s.stopAddress(ctx); err != nil {
		log("%v", err)
	}
}

func (s *nfsKind) modules() []string {
	want := []string{"xfs", "nfsd", "tcp_diag"}
	if s.cfg.NFS.RDMA > 0 {
		want = append(want, "rpcrdma")
	}
	if s.cfg.Namespace != "" {
		want = append(want, "ipvlan")
	}
	return want
}

// warm speaks to rpcbind, which systemd starts when that is first done.
func (s *nfsKind) warm(ctx context.Context) {
	if s.cfg.NFS.serves("3") && s.cfg.Namespace == "" {
		if _, err := s.k.Ports(ctx, v3Programs[:1]); err != nil {
			s.log.note("rpcbind does not answer: %v", err)
		}
	}
}

func (s *nfsKind) programs() []string {
	all := []string{"exportfs", "rpc.nfsd", mountd, nfsdcld, statd, "sm-notify", "tickle_tcp"}
	if s.cfg.Namespace != "" && s.cfg.NFS.serves("3") {
		all = append(all, rpcbind)
	}
	return all
}

// reflexes start NFS daemons of a running service again that have died or hang, and report
// an nfsd that is gone or hangs.
func (s *nfsKind) reflexes(w *watcher) []*reflex {
	var restarts limit
	return []*reflex{
		{name: "nfs: it does not run", instead: true, sees: func(context.Context) action {
			if s.bound() {
				return nil
			}
			return func(context.Context) { s.forgetDaemons() }
		}},
		{name: "nfs: grace period", sees: always(func(context.Context) { s.endGrace(w) })},
		{name: "nfs: late names", every: namesEvery, beside: true, sees: func(context.Context) action { return s.namesDue(w) }},
		{name: "nfs: dead daemons", locked: true, instead: true, sees: func(context.Context) action {
			if !s.bound() {
				return nil
			}
			dead := s.dead()
			if s.threads() == 0 {
				return func(ctx context.Context) { w.fail(ctx, s.service, "nfsd has no threads any more") }
			}
			if len(dead) == 0 {
				return nil
			}
			return func(ctx context.Context) { s.revive(ctx, w, dead, &restarts) }
		}},
		{name: "nfs: lists", beside: true, sees: func(context.Context) action { return s.recordDue(w) }},
		{name: "nfs: silent daemons", beside: true, busy: &s.asker.busy, sees: func(ctx context.Context) action { return s.askDue(ctx, w) }},
	}
}

// bound says whether the NFS state is in its place: the service runs, or starts or stops.
func (s *nfsKind) bound() bool {
	st, err := s.bindState()
	return err == nil && st == running
}

// revive starts daemons that have died, unless they die again and again: then Pacemaker's
// monitor sees it.
func (s *nfsKind) revive(ctx context.Context, w *watcher, dead []string, restarts *limit) {
	for _, d := range dead {
		if !restarts.allows(d, w.k.Now(), mostRestarts, restartWindow) {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		err := s.startDaemon(ctx, d)
		cancel()
		if err != nil {
			w.log("%s had died and does not start: %v", d, err)
		} else {
			w.log("%s had died: started again", d)
		}
	}
}

// dead lists daemons of a service that do not run. All processes are only
// looked through where one is not where it was.
func (s *nfsKind) dead() []string {
	var missing []string
	for _, d := range s.daemons() {
		if pid := s.daemonPID[d]; pid == 0 || s.line("/proc/"+strconv.Itoa(pid)+"/comm") != comm(d) {
			missing = append(missing, d)
		}
	}
	if missing == nil {
		return nil
	}
	found := s.find(missing...)
	return slices.DeleteFunc(missing, func(d string) bool {
		if len(found[d]) == 0 {
			return false
		}
		s.daemonPID[d] = found[d][0]
		return true
	})
}

func (s *nfsKind) volumeOf(string) (string, bool) { return "", false }

// able finds nothing: what stops NFS shows while it runs, or is the storage's.
func (s *nfsKind) able() error { return nil }

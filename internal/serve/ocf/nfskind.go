package ocf

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// nfsKind is the service kind of an NFS export tree: an XFS file system,
// nfsd with its daemons and state, exports and the service address. nfsd and the
// address may be in a network namespace of the service.
type nfsKind struct {
	*service
	in kernel // the host from the service's network namespace, if it has one
	// grace is the grace period of NFSv3 locks in s, once nfsd is to be started; if it is
	// longer than nfsd's it is nfsd's as well.
	grace    int
	recorder recorder
	asker    asker
	late     lateNames // of the watcher
	full     time.Time // when it was last said that the volume is full
}

func newNFS(s *service) *nfsKind { return &nfsKind{service: s, in: s.k.Within(s.cfg.Namespace)} }

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
	if s.now().Sub(s.full) >= time.Minute { // the watcher tries every 2 s
		s.full = s.now()
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
	_, err := s.k.Run(ctx, command{argv: []string{"/proc/self/exe", "ocf", ioAction, s.cfg.StateDir + "/mortar/check"}})
	if err != nil {
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

// watch starts NFS daemons of a running service again that have died or hang, and
// reports an nfsd that is gone or hangs.
func (s *nfsKind) watch(ctx context.Context, w *watcher) {
	if st, err := s.bindState(); err != nil || st != running {
		s.forgetDaemons()
		return
	}
	s.endGrace(w)
	s.watchNames(ctx, w)
	dead := s.dead(w)
	gone := s.threads() == 0
	if len(dead) == 0 && !gone {
		s.recordBetween(ctx, w)
		s.askDaemons(ctx, w)
		return
	}
	// While the service starts or stops, daemons come and go.
	unlock, err := w.lock(s.cfg.Service)
	if err != nil {
		return
	}
	defer unlock()
	if st, err := s.bindState(); err != nil || st != running {
		return
	}
	if gone {
		if s.threads() == 0 {
			w.fail(ctx, s.service, "nfsd has no threads any more")
		}
		return
	}
	for _, d := range dead {
		of := s.cfg.Service + " " + d
		recent := slices.DeleteFunc(w.restarts[of], func(t time.Time) bool { return w.now().Sub(t) > restartWindow })
		if len(recent) >= mostRestarts {
			w.restarts[of] = recent
			continue // Pacemaker's monitor sees it
		}
		w.restarts[of] = append(recent, w.now())
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
func (s *nfsKind) dead(w *watcher) []string {
	var missing []string
	for _, d := range s.daemons() {
		pid := w.pids[s.cfg.Service+" "+d]
		if pid == 0 || s.line("/proc/"+strconv.Itoa(pid)+"/comm") != comm(d) {
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
		w.pids[s.cfg.Service+" "+d] = found[d][0]
		return true
	})
}

func (s *nfsKind) volumeOf(string) (string, bool) { return "", false }

// able finds nothing: what stops NFS shows while it runs, or is the storage's.
func (s *nfsKind) able() error { return nil }

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
type nfsKind struct{ *nfsServer }

// nfsServer is what the parts of the kind share.
type nfsServer struct {
	*Host
	cfg *NFSService
	lv  string // the volume; "": the only device
	svc nfsService
	in  kernel.Host // the host from the service's network namespace, if it has one

	volume   *nfsVolume
	state    *nfsState
	nfsd     *nfsDaemons
	exports  *exporter
	nlm      *nlm
	address  *nfsAddress
	recorder *recorder
	asker    *asker
	full     time.Time // when it was last said that the volume is full
}

// The parts, each with what it alone keeps.
type (
	// nfsVolume mounts the volume, and the file system of the state of nfs-utils on it.
	nfsVolume struct{ *nfsServer }
	// nfsState has nfs-utils find their state on the volume.
	nfsState struct{ *nfsServer }
	// nfsDaemons starts and stops nfsd with its daemons.
	nfsDaemons struct {
		*nfsServer
		// grace is the grace period of NFSv3 locks in s, once nfsd is to be started; if it is
		// longer than nfsd's it is nfsd's as well.
		grace int
		pids  map[string]int // by daemon, for the watcher
	}
	// exporter makes the table of exports.
	exporter struct {
		*nfsServer
		unmade lastSaid // why names of exports do not resolve
	}
	// nlm keeps NFSv3 locks over a failover.
	nlm struct {
		*nfsServer
		settled *settled // during lockd's grace period
	}
	// nfsAddress has the service address, and the connections to it.
	nfsAddress struct{ *nfsServer }
)

func newNFS(h *Host, cfg *NFSService, lv string, svc nfsService) *nfsKind {
	s := &nfsServer{Host: h, cfg: cfg, lv: lv, svc: svc, in: h.k.Within(cfg.Namespace)}
	s.volume, s.state, s.address = &nfsVolume{s}, &nfsState{s}, &nfsAddress{s}
	s.nfsd, s.exports, s.nlm = &nfsDaemons{nfsServer: s, pids: map[string]int{}}, &exporter{nfsServer: s}, &nlm{nfsServer: s}
	s.recorder, s.asker = &recorder{nfsServer: s}, &asker{nfsServer: s}
	return &nfsKind{s}
}

// nfsService is what NFS needs of its service.
type nfsService interface {
	// on is what a volume's file system is on, called what messages call the volume.
	on(volume string) (dev, devno string, err error)
	called(volume string) string
	// noCache refuses to mount the volume without its cache.
	noCache() error
	// mayBeTorn says whether blocks of the volume may be torn.
	mayBeTorn() bool
	// check finds whether the service runs here.
	check() (state, error)
	// waits says whether I/O to the devices waits for their paths.
	waits() bool
	// damagedHere says whether the watcher is about to put something back.
	damagedHere() bool
	// stillOwned says why nothing may be written to the volume from here.
	stillOwned() error
	// freshExports holds other actions back until release is called, and reads the exports
	// of the configuration again.
	freshExports(ctx context.Context) (exports []Export, release func(), err error)
	// lockLists keeps other processes from writing the service's lists on the volume.
	lockLists(ctx context.Context) (release func(), err error)
}

func (s *nfsKind) layers() []part {
	own := s.cfg.Namespace != ""
	all := []part{{"mount", s.volume.mountState, s.volume.startMount, s.volume.stopMount, false}}
	if s.cfg.StateImage != "" {
		all = append(all, part{"state-disk", s.volume.stateDiskState, s.volume.startStateDisk, s.volume.stopStateDisk, false})
	}
	if own {
		all = append(all, part{"namespace", s.state.namespaceState, s.state.startNamespace, s.state.stopNamespace, false})
	}
	return append(all,
		part{"nfs-state", s.bindState, s.state.startState, s.state.stopState, false},
		part{"nfsd", s.nfsd.nfsdState, s.nfsd.startNFSD, s.nfsd.stopNFSD, !own},
		part{"exports", s.exports.exportState, s.exports.startExports, s.exports.stopExports, false},
		part{"address", s.address.addressState, s.address.startAddress, s.address.stopAddress, false})
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
	_ = s.log.step("tickle", func() error { return s.address.tickle(ctx) })
	_ = s.log.step("notify", s.address.notify)
	_ = s.nfsd.moreThreads(ctx)
}

func (s *nfsKind) stopping(ctx context.Context) {
	s.recorder.endRecords(ctx)
	if st, err := s.bindState(); err == nil && st == running {
		_ = s.log.step("connections", func() error { return s.address.saveConnections(ctx) })
	}
}

// mend waits for the watcher to start daemons again and to make repairs, and changes exports
// in place.
func (s *nfsKind) mend(ctx context.Context, st state, fault error) (state, error) {
	// A monitor that comes in between must not have the service moved.
	for try := 0; try < 20 && (isRevivable(fault) || fault != nil && s.svc.damagedHere()); try++ {
		if s.k.Sleep(ctx, 250*time.Millisecond) != nil {
			break
		}
		st, fault = s.svc.check()
	}
	return s.exports.mendExports(ctx, st, fault)
}

// keep keeps what the next start needs.
func (s *nfsKind) keep(ctx context.Context) error {
	_ = s.nfsd.moreThreads(ctx) // serving with fewer is better than not serving
	if err := s.nfsd.listenRDMA(); err != nil {
		return err
	}
	s.volume.keepRoom(reserve)
	if err := s.nlm.keepAlive(); err != nil {
		return fmt.Errorf("saving on the volume that the service runs: %w", err)
	}
	return s.recorder.record(ctx, true)
}

// noted passes an error on, unless the volume is full: that is for its users to
// mend, and moving the service would not. What could not be saved is older then.
func (s *nfsServer) noted(err error) error {
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
	log("service %s has lost its disks: giving up its address, so that clients wait", s.Service)
	if err := s.address.stopAddress(ctx); err != nil {
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
func (s *nfsKind) reflexes(w watch) []*reflex {
	var restarts limit
	return []*reflex{
		{name: "nfs: it does not run", instead: true, sees: func(context.Context) action {
			if s.bound() {
				return nil
			}
			return func(context.Context) { s.asker.forgetDaemons() }
		}},
		{name: "nfs: grace period", sees: always(func(context.Context) { s.nlm.endGrace(w) })},
		{name: "nfs: late names", every: namesEvery, beside: true, sees: func(context.Context) action { return s.exports.namesDue(w) }},
		{name: "nfs: dead daemons", locked: true, instead: true, sees: func(context.Context) action {
			if !s.bound() {
				return nil
			}
			dead := s.nfsd.dead()
			if s.threads() == 0 {
				return func(ctx context.Context) { w.fail(ctx, "nfsd has no threads any more") }
			}
			if len(dead) == 0 {
				return nil
			}
			return func(ctx context.Context) { s.nfsd.revive(ctx, w, dead, &restarts) }
		}},
		{name: "nfs: lists", beside: true, sees: func(context.Context) action { return s.recorder.recordDue(w) }},
		{name: "nfs: silent daemons", beside: true, busy: &s.asker.busy, sees: func(ctx context.Context) action { return s.asker.askDue(ctx, w) }},
	}
}

// bound says whether the NFS state is in its place: the service runs, or starts or stops.
func (s *nfsServer) bound() bool {
	st, err := s.bindState()
	return err == nil && st == running
}

// revive starts daemons that have died, unless they die again and again: then Pacemaker's
// monitor sees it.
func (s *nfsDaemons) revive(ctx context.Context, w watch, dead []string, restarts *limit) {
	for _, d := range dead {
		if !restarts.allows(d, s.k.Now(), mostRestarts, restartWindow) {
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
func (s *nfsDaemons) dead() []string {
	var missing []string
	for _, d := range s.daemons() {
		if pid := s.pids[d]; pid == 0 || s.line("/proc/"+strconv.Itoa(pid)+"/comm") != comm(d) {
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
		s.pids[d] = found[d][0]
		return true
	})
}

func (s *nfsKind) volumeOf(string) (string, bool) { return "", false }

// able finds nothing: what stops NFS shows while it runs, or is the storage's.
func (s *nfsKind) able() error { return nil }

func (s *nfsKind) owners(ctx context.Context, blocks []int64) (*Owners, error) {
	return xfsOwners(ctx, s.Host, s.cfg.MountPoint, blocks)
}

func (s *nfsKind) probe(ctx context.Context) error  { return s.address.probe(ctx) }
func (s *nfsKind) try(ctx context.Context) error    { return s.exports.try(ctx) }
func (s *nfsKind) change(ctx context.Context) error { return s.exports.change(ctx) }

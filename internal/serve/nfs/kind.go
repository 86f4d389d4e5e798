// Package nfs is the service kind of an NFS export tree. It may not know what its volume is
// made of, nor who owns it: the rest of the service is behind Service.
package nfs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mortarhpc/mortar/internal/serve/doubt"
	"github.com/mortarhpc/mortar/internal/serve/kernel"
	"github.com/mortarhpc/mortar/internal/serve/unit"
)

// Kind is the service kind of an NFS export tree: an XFS file system,
// nfsd with its daemons and state, exports and the service address. nfsd and the
// address may be in a network namespace of the service.
type Kind struct{ *server }

// server is what the parts of the kind share.
type server struct {
	*unit.Host
	cfg *NFSService
	lv  string // the volume; "": the only device
	svc Service
	In  kernel.Host // the host from the service's network namespace, if it has one

	volume   *volume
	state    *state
	Nfsd     *daemons
	exports  *exporter
	NLM      *nlm
	address  *address
	Recorder *recorder
	Asker    *asker
	full     time.Time // when it was last said that the volume is full
}

// The parts, each with what it alone keeps.
type (
	// volume mounts the volume, and the file system of the state of nfs-utils on it.
	volume struct{ *server }
	// state has nfs-utils find their state on the volume.
	state struct{ *server }
	// daemons starts and stops nfsd with its daemons.
	daemons struct {
		*server
		// grace is the grace period of NFSv3 locks in s, once nfsd is to be started; if it is
		// longer than nfsd's it is nfsd's as well.
		grace int
		pids  map[string]int // by daemon, for the watcher
	}
	// exporter makes the table of exports.
	exporter struct {
		*server
		unmade unit.LastSaid // why names of exports do not resolve
	}
	// nlm keeps NFSv3 locks over a failover.
	nlm struct {
		*server
		settled *settled // during lockd's grace period
	}
	// address has the service address, and the connections to it.
	address struct{ *server }
)

func New(h *unit.Host, cfg *NFSService, lv string, svc Service) *Kind {
	s := &server{Host: h, cfg: cfg, lv: lv, svc: svc, In: h.K.Within(cfg.Namespace)}
	s.volume, s.state, s.address = &volume{s}, &state{s}, &address{s}
	s.Nfsd, s.exports, s.NLM = &daemons{server: s, pids: map[string]int{}}, &exporter{server: s}, &nlm{server: s}
	s.Recorder, s.Asker = &recorder{server: s}, &asker{server: s}
	return &Kind{s}
}

// nfsService is what NFS needs of its service.
type Service interface {
	// On is what a volume's file system is on, called what messages call the volume.
	On(volume string) (dev, devno string, err error)
	Called(volume string) string
	// NoCache refuses to mount the volume without its cache.
	NoCache() error
	// MayBeTorn says whether blocks of the volume may be torn.
	MayBeTorn() bool
	// Check finds whether the service runs here.
	Check() (unit.State, error)
	// Waits says whether I/O to the devices waits for their paths.
	Waits() bool
	// DamagedHere says whether the watcher is about to put something back.
	DamagedHere() bool
	// StillOwned says why nothing may be written to the volume from here.
	StillOwned() error
	// FreshExports holds other actions back until release is called, and reads the exports
	// of the configuration again.
	FreshExports(ctx context.Context) (exports []Export, release func(), err error)
	// LockLists keeps other processes from writing the service's lists on the volume.
	LockLists(ctx context.Context) (release func(), err error)
}

func (s *Kind) Layers() []unit.Part {
	own := s.cfg.Namespace != ""
	all := []unit.Part{{Name: "mount", State: s.volume.mountState, Start: s.volume.startMount, Stop: s.volume.stopMount}}
	if s.cfg.StateImage != "" {
		all = append(all, unit.Part{Name: "state-disk", State: s.volume.stateDiskState, Start: s.volume.startStateDisk, Stop: s.volume.stopStateDisk})
	}
	if own {
		all = append(all, unit.Part{Name: "namespace", State: s.state.namespaceState, Start: s.state.startNamespace, Stop: s.state.stopNamespace})
	}
	return append(all,
		unit.Part{Name: "nfs-state", State: s.bindState, Start: s.state.startState, Stop: s.state.stopState},
		unit.Part{Name: "nfsd", State: s.Nfsd.nfsdState, Start: s.Nfsd.startNFSD, Stop: s.Nfsd.stopNFSD, Shared: !own},
		unit.Part{Name: "exports", State: s.exports.exportState, Start: s.exports.startExports, Stop: s.exports.stopExports},
		unit.Part{Name: "address", State: s.address.addressState, Start: s.address.startAddress, Stop: s.address.stopAddress})
}

func (s *Kind) Serving() bool {
	all, err := s.Mounts()
	if err != nil {
		return false
	}
	_, devno, err := s.Mounted()
	m := unit.MountedAt(all, s.cfg.MountPoint)
	return err == nil && m != nil && m.Dev == devno
}

func (s *Kind) Started(ctx context.Context) {
	// sm-notify runs in the background, and many connections take some time to wake.
	_ = s.Log.Step("notify", s.address.notify)
	_ = s.Log.Step("tickle", func() error { return s.address.tickle(ctx) })
	_ = s.Nfsd.moreThreads(ctx)
}

func (s *Kind) Stopping(ctx context.Context) {
	s.Recorder.endRecords(ctx)
	if st, err := s.bindState(); err == nil && st == unit.Running {
		_ = s.Log.Step("connections", func() error { return s.address.saveConnections(ctx) })
	}
}

// Mend waits for the watcher to start daemons again and to make repairs, and changes exports
// in place.
func (s *Kind) Mend(ctx context.Context, st unit.State, fault error) (unit.State, error) {
	// A monitor that comes in between must not have the service moved.
	for try := 0; try < 20 && (isRevivable(fault) || fault != nil && s.svc.DamagedHere()); try++ {
		if s.K.Sleep(ctx, 250*time.Millisecond) != nil {
			break
		}
		st, fault = s.svc.Check()
	}
	return s.exports.mendExports(ctx, st, fault)
}

// Keep keeps what the next start needs.
func (s *Kind) Keep(ctx context.Context) error {
	_ = s.Nfsd.moreThreads(ctx) // serving with fewer is better than not serving
	if err := s.Nfsd.listenRDMA(); err != nil {
		return err
	}
	s.volume.keepRoom(reserve)
	if err := s.NLM.keepAlive(); err != nil {
		return fmt.Errorf("saving on the volume that the service runs: %w", err)
	}
	return s.Recorder.Record(ctx, true)
}

// noted passes an error on, unless the volume is full: that is for its users to
// mend, and moving the service would not. What could not be saved is older then.
func (s *server) noted(err error) error {
	if !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EDQUOT) {
		return err
	}
	if s.K.Now().Sub(s.full) >= time.Minute { // the watcher tries every 2 s
		s.full = s.K.Now()
		s.Log.Note("not saved, the volume is full: %v", err)
	}
	return nil
}

// isRevivable says whether what check found is nothing but a daemon that the
// watcher starts again.
func isRevivable(err error) bool {
	return unit.OnlyFaults(err, func(e error) bool { return errors.As(e, new(revivable)) })
}

func (s *Kind) CheckIO(ctx context.Context) error {
	tried := s.K.Ask(ctx, unit.IoWait, []kernel.Question{{Dev: s.cfg.StateDir + "/mortar/check", Write: true}})
	// ENOSPC means that the file did not exist yet and the file system is full: the storage
	// works.
	if err := tried[0].Err; err != nil && !errors.Is(err, unix.ENOSPC) {
		return fmt.Errorf("writing and reading a file on %s: %w", s.cfg.MountPoint, err)
	}
	return nil
}

// Silence gives up the service address, so that clients wait.
func (s *Kind) Silence(ctx context.Context, log func(string, ...any)) {
	if name, _, err := s.Present(); err != nil || name == "" {
		return
	}
	log("service %s gives up its address, so that clients wait: its disks are out of reach, or the partner has taken them", s.Service)
	if err := s.address.stopAddress(ctx); err != nil {
		log("%v", err)
	}
}

func (s *Kind) Modules() []string {
	want := []string{"xfs", "nfsd", "tcp_diag"}
	if s.cfg.NFS.RDMA > 0 {
		want = append(want, "rpcrdma")
	}
	if s.cfg.Namespace != "" {
		want = append(want, "ipvlan")
	}
	return want
}

// Warm speaks to rpcbind, which systemd starts when that is first done.
func (s *Kind) Warm(ctx context.Context) {
	if s.cfg.NFS.serves("3") && s.cfg.Namespace == "" {
		if _, err := s.K.Ports(ctx, v3Programs[:1]); err != nil {
			s.Log.Note("rpcbind does not answer: %v", err)
		}
	}
}

func (s *Kind) Programs() []string {
	all := []string{"exportfs", "rpc.nfsd", mountd, "sqlite3", statd, "sm-notify", "tickle_tcp"}
	if s.cfg.Namespace != "" && s.cfg.NFS.serves("3") {
		all = append(all, rpcbind)
	}
	return all
}

// Reflexes start NFS daemons of a running service again that have died or hang, and report
// an nfsd that is gone or hangs.
func (s *Kind) Reflexes(w unit.Watch) []*unit.Reflex {
	var restarts unit.Limit
	return []*unit.Reflex{
		{Name: "nfs: it does not run", Instead: true, Sees: func(context.Context) unit.Act {
			if s.bound() {
				return nil
			}
			return func(context.Context) { s.Asker.forgetDaemons() }
		}},
		{Name: "nfs: grace period", Sees: unit.Always(func(context.Context) { s.NLM.EndGrace(w) })},
		{Name: "nfs: late names", Every: namesEvery, Beside: true, Sees: func(context.Context) unit.Act { return s.exports.namesDue(w) }},
		{Name: "nfs: dead daemons", Locked: true, Instead: true, Sees: func(context.Context) unit.Act {
			if !s.bound() {
				return nil
			}
			dead := s.Nfsd.Dead()
			if s.threads() == 0 {
				return func(ctx context.Context) { w.Fail(ctx, "nfsd has no threads any more") }
			}
			if len(dead) == 0 {
				return nil
			}
			return func(ctx context.Context) { s.Nfsd.revive(ctx, w, dead, &restarts) }
		}},
		{Name: "nfs: lists", Beside: true, Sees: func(context.Context) unit.Act { return s.Recorder.recordDue(w) }},
		{Name: "nfs: silent daemons", Beside: true, Busy: &s.Asker.Busy, Sees: func(ctx context.Context) unit.Act { return s.Asker.askDue(ctx, w) }},
	}
}

// bound says whether the NFS state is in its place: the service runs, or starts or stops.
func (s *server) bound() bool {
	st, err := s.bindState()
	return err == nil && st == unit.Running
}

// Of three deaths within a minute a restart does not cure the cause.
const (
	mostRestarts  = 3
	restartWindow = time.Minute
)

// revive starts daemons that have died, unless they die again and again: then Pacemaker's
// monitor sees it.
func (s *daemons) revive(ctx context.Context, w unit.Watch, dead []string, restarts *unit.Limit) {
	for _, d := range dead {
		if !restarts.Allows(d, s.K.Now(), mostRestarts, restartWindow) {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		err := s.startDaemon(ctx, d)
		cancel()
		if err != nil {
			w.Log("%s had died and does not start: %v", d, err)
		} else {
			w.Log("%s had died: started again", d)
		}
	}
}

// Dead lists daemons of a service that do not run. All processes are only
// looked through where one is not where it was.
func (s *daemons) Dead() []string {
	var missing []string
	for _, d := range s.daemons() {
		if pid := s.pids[d]; pid == 0 || s.Line("/proc/"+strconv.Itoa(pid)+"/comm") != comm(d) {
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

func (s *Kind) VolumeOf(name string) (string, bool) { return s.lv, name == s.cfg.MountPoint }

// Able finds nothing: what stops NFS shows while it runs, or is the storage's.
func (s *Kind) Able() error { return nil }

func (s *Kind) Owners(ctx context.Context, blocks []int64) (*doubt.Owners, error) {
	return doubt.XFSOwners(ctx, s.Host, s.cfg.MountPoint, blocks)
}

func (s *Kind) Probe(ctx context.Context) error  { return s.address.probe(ctx) }
func (s *Kind) Try(ctx context.Context) error    { return s.exports.try(ctx) }
func (s *Kind) Change(ctx context.Context) error { return s.exports.change(ctx) }

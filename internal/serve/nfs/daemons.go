package nfs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/mortarhpc/mortar/internal/serve/cld"
	"github.com/mortarhpc/mortar/internal/serve/kernel"
	"github.com/mortarhpc/mortar/internal/serve/unit"
)

const (
	nfsDir        = "/var/lib/nfs"         // where nfs-utils keep state
	nfsdFS        = "/proc/fs/nfsd"        // Source: nfsd(7)
	cldDB         = "/nfsdcld/main.sqlite" // below nfsDir
	cldPipe       = "/nfsd/cld"            // of rpc_pipefs
	rpcbindSocket = "/run/rpcbind.sock"
	NSSwitch      = "/etc/nsswitch.conf"
)

// StatdNames is what rpc.statd sees at NSSwitch, if both are there: plan writes it. It is not in
// nfs.conf.d: exportfs fails where a name there has another ending than .conf (seen, 2.8.3).
const StatdNames = "/etc/mortar-statd-nsswitch.conf"

// Daemons of nfs-utils the service needs. They are run by the agent itself
// and not as systemd units: rpc-statd.service would start sm-notify without
// the service address, nfs-mountd.service is bound to nfs-server.service, and
// each systemctl costs more than the daemon's start. They daemonize, and stay
// in pacemaker.service's control group, whose KillMode=process leaves them
// alone when Pacemaker is restarted. rpc.idmapd is not needed: with sec=sys
// nfsd passes numeric IDs (nfsd's nfs4_disable_idmapping, default on). nfsdcld is package cld;
// a service that an older build started has the one of nfs-utils until it is stopped.
const (
	statd   = "rpc.statd"
	mountd  = "rpc.mountd"
	nfsdcld = cld.Name
	rpcbind = "rpcbind" // in a namespace; else it is the host's, and systemd's to run
)

func (s *server) daemons() []string {
	if s.cfg.NFS.serves("3") {
		if s.cfg.Namespace != "" {
			return []string{rpcbind, statd, nfsdcld, mountd}
		}
		return []string{statd, nfsdcld, mountd}
	}
	return []string{nfsdcld, mountd}
}

// ProcessesOf finds the processes of a program by its name.
func (s *server) ProcessesOf(name string) []int { return s.find(name)[name] }

// comm is a program's name as the kernel keeps it. Source: proc_pid_comm(5)
func comm(program string) string { return program[:min(len(program), 15)] }

// find looks through all processes once, for several programs. Those in
// another network namespace than the service's are not its own.
func (s *server) find(names ...string) map[string][]int {
	ns, err := s.namespace()
	if err != nil || ns == "" && s.cfg.Namespace != "" {
		return nil
	}
	byComm := map[string]string{}
	for _, n := range names {
		byComm[comm(n)] = n
	}
	out := map[string][]int{}
	for _, pid := range s.Pids() {
		dir := "/proc/" + strconv.Itoa(pid) + "/"
		name, ok := byComm[s.Line(dir+"comm")]
		if !ok {
			continue
		}
		// A zombie, or a thread that is ending, has no program any more.
		if _, err := s.K.Readlink(dir + "exe"); err == nil {
			if in, err := s.K.Readlink(dir + "ns/net"); ns == "" || err == nil && in == ns {
				out[name] = append(out[name], pid)
			}
		}
	}
	return out
}

// stateRoot is StateDir within its file system.
func (s *server) stateRoot() string {
	return strings.TrimPrefix(s.cfg.StateDir, s.cfg.MountPoint)
}

// bindState says whether nfs-utils' directory is the one on the volume.
func (s *server) bindState() (unit.State, error) {
	if s.cfg.Namespace != "" {
		return s.ownState() // each process has the directory bound for itself
	}
	all, err := s.Mounts()
	if err != nil {
		return unit.Broken, err
	}
	m := unit.MountedAt(all, nfsDir)
	if m == nil {
		return unit.Stopped, nil
	}
	devno, root, err := s.stateAt()
	if err != nil {
		return unit.Broken, err
	}
	if m.Dev != devno {
		return unit.Stopped, nil // the host's own; ours goes over it
	}
	if m.Root != root {
		return unit.Broken, fmt.Errorf("%s of the volume is mounted on %s instead of %s", m.Root, nfsDir, root)
	}
	for _, target := range []string{s.Pipefs(), s.NfsdDir()} {
		if unit.MountedAt(all, target) == nil {
			return unit.Broken, fmt.Errorf("%s is not mounted", target)
		}
	}
	return unit.Running, nil
}

func (s *state) startState(ctx context.Context) error {
	if s.cfg.Namespace == "" {
		if err := s.kernelMounts(); err != nil {
			return err
		}
	}
	st, err := s.bindState()
	if err == nil && st == unit.Running {
		return nil
	}
	if s.cfg.Namespace == "" {
		if err != nil {
			return err
		}
		if err := s.stopOthers(ctx); err != nil {
			return err
		}
	}
	s.volume.makeRoom()
	uid, gid := s.statdUser()
	for _, d := range []struct {
		name     string
		mode     uint32
		uid, gid int
	}{
		{"", 0o755, 0, 0}, {"/v4recovery", 0o755, 0, 0}, {"/nfsdcld", 0o700, 0, 0},
		// rpc.statd runs as the owner of its directories, whose number may
		// differ on the partner.
		{"/sm", 0o700, uid, gid}, {"/sm.bak", 0o700, uid, gid}, {"/mortar", 0o700, 0, 0},
		{notifyDir, 0o755, 0, 0}, {notifyDir + "/sm", 0o700, uid, gid}, {notifyDir + "/sm.bak", 0o700, uid, gid},
	} {
		if err := s.K.Mkdir(s.cfg.StateDir+d.name, d.mode, d.uid, d.gid); err != nil {
			return err
		}
	}
	// After a crash; before lockd runs, and a client that comes back at once is
	// written down again.
	s.NLM.retire()
	// Exports of the former server are no news: they are made anew below. rpc.mountd
	// lets no client in if it can make no lock of the table: on a full volume only now.
	for _, name := range []string{"/etab", "/.etab.lock"} {
		if err := s.K.Empty(s.cfg.StateDir + name); err != nil {
			return err
		}
	}
	if _, err := s.K.ReadFile(s.cfg.StateDir + "/rmtab"); errors.Is(err, fs.ErrNotExist) {
		if err := s.K.Empty(s.cfg.StateDir + "/rmtab"); err != nil {
			return err
		}
	}
	if err := s.K.Own(s.cfg.StateDir+"/state", uid, gid); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if s.cfg.Namespace != "" {
		if err := s.K.Mkdir(NamespaceDir(s.cfg.Namespace)+"/run/systemd", 0o755, 0, 0); err != nil {
			return err
		}
		if err := s.kernelMounts(); err != nil {
			return err
		}
	} else if err := s.K.Mount(s.cfg.StateDir, nfsDir, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount --bind %s %s: %w", s.cfg.StateDir, nfsDir, err)
	}
	_, err = s.bindState()
	return err
}

// stopOthers stops whatever of NFS runs on the host now: it keeps its state
// on the host's own disk, so lock recovery after a failover would not know of
// it.
func (s *state) stopOthers(ctx context.Context) error {
	if n := s.threads(); n > 0 {
		s.Log.Note("nfsd runs outside of the cluster with %d threads: stopping it (disable nfs-server.service)", n)
		if err := s.Nfsd.stopThreads(ctx); err != nil {
			return err
		}
	}
	all := append(s.daemons(), "sm-notify")
	for _, d := range slices.Sorted(maps.Keys(s.find(all...))) {
		s.Log.Note("%s runs outside of the cluster: stopping it", d)
	}
	return s.end(ctx, all...)
}

// statdUser is whom rpc.statd runs as on this host.
func (s *state) statdUser() (uid, gid int) {
	b, _ := s.K.ReadFile("/etc/passwd")
	name := s.Distro().StatdUser
	for line := range strings.SplitSeq(string(b), "\n") {
		f := strings.Split(line, ":")
		if len(f) > 3 && f[0] == name {
			u, err1 := strconv.Atoi(f[2])
			g, err2 := strconv.Atoi(f[3])
			if err1 == nil && err2 == nil {
				return u, g
			}
		}
	}
	return 0, 0
}

// reserve is how many bytes of the volume are kept for the state of nfs-utils
// on it, without which the service could be neither started nor stopped while
// clients have the volume full: exportfs alone writes its table anew each
// time. Everything it all writes fits many times.
const reserve = 4 << 20

func (s *volume) reserveFile() string { return s.cfg.StateDir + "/mortar/reserve" }

// makeRoom lets go of what keepRoom keeps if there is no other room. Only where
// no client can be served: it would be theirs.
func (s *volume) makeRoom() {
	if m, err := s.StateMount(); err != nil || m != nil {
		return
	}
	free, err := s.K.Free(s.cfg.MountPoint)
	if err == nil && free >= reserve || s.K.Access(s.reserveFile()) != nil {
		return
	}
	// Not removed: XFS gives back the room of a removed file some time later.
	s.Log.NoteErr(s.K.Empty(s.reserveFile()), "the volume is full")
}

// keepRoom keeps as much of reserve as there is, if that is least or more.
func (s *volume) keepRoom(least int64) {
	m, err := s.StateMount()
	if err != nil || m != nil {
		return // the state has room of its own
	}
	for size := int64(reserve); size >= least; size /= 2 {
		if err = s.K.Reserve(s.reserveFile(), size); !errors.Is(err, unix.ENOSPC) {
			break
		}
	}
	if err != nil {
		s.Log.Note("no room is kept for the service's own state: %v", err)
	}
}

func (s *state) stopState(ctx context.Context) error {
	if s.cfg.Namespace != "" {
		return s.stopOwnState(ctx)
	}
	for try := 0; ; try++ {
		all, err := s.Mounts()
		if err != nil {
			return err
		}
		m := unit.MountedAt(all, nfsDir)
		if m == nil {
			return nil
		}
		devno, _, err := s.stateAt()
		if err != nil {
			return err
		}
		if m.Dev != devno {
			return nil // the host's own
		}
		err = s.K.Unmount(nfsDir)
		if err != nil && (!errors.Is(err, unix.EBUSY) || try == 20 || s.K.Sleep(ctx, 250*time.Millisecond) != nil) {
			return fmt.Errorf("umount %s: %w; used by %s", nfsDir, err, unit.Describe(s.Users(devno)))
		}
	}
}

func (s *server) threads() int { return s.Number(s.NfsdDir() + "/threads") }

func (s *daemons) stopThreads(ctx context.Context) error {
	if s.threads() == 0 {
		return nil
	}
	if err := s.K.Poke(s.NfsdDir()+"/threads", "0\n"); err != nil {
		return fmt.Errorf("stopping nfsd: %w", err)
	}
	for try := 0; s.threads() > 0; try++ {
		if try == 100 || s.K.Sleep(ctx, 100*time.Millisecond) != nil {
			return fmt.Errorf("nfsd still runs with %d threads", s.threads())
		}
	}
	return nil
}

func (s *daemons) nfsdState() (unit.State, error) {
	var missing []string
	up := 0
	if s.threads() > 0 {
		up++
	} else {
		missing = append(missing, "nfsd")
	}
	found := s.find(s.daemons()...)
	for _, d := range s.daemons() {
		if len(found[d]) > 0 {
			up++
		} else {
			missing = append(missing, d)
		}
	}
	if up == 0 {
		return unit.Stopped, nil
	}
	if missing != nil {
		err := fmt.Errorf("%s does not run", strings.Join(missing, ", "))
		if s.threads() > 0 {
			return unit.Broken, revivable{err}
		}
		return unit.Broken, err
	}
	if err := s.registered(context.Background()); err != nil {
		return unit.Broken, revivable{err}
	}
	return unit.Running, nil
}

// revivable is the fault of a daemon that has died beside nfsd: the watcher
// starts it again within 2 s, without a client's noticing.
type revivable struct{ error }

func (s *daemons) startNFSD(ctx context.Context) error {
	if st, err := s.nfsdState(); err == nil && st == unit.Running {
		return nil
	}
	n := s.cfg.NFS
	v3 := n.serves("3")
	s.grace = 0
	if s.threads() == 0 && len(s.ProcessesOf(nfsdcld)) == 0 {
		if err := s.forgetGone(ctx); err != nil {
			return err
		}
		s.grace = s.reclaimSeconds(ctx)
	}
	if v3 {
		// rpc.nfsd sets lockd's period to nfsd's when it starts the first
		// threads, so a longer one must be both's. nfsd ends its own when all
		// clients have reclaimed.
		s.grace = min(max(s.grace, s.lockGrace()), maxLockGrace)
		// The watcher must not take the note of an earlier start for this one's.
		if err := s.K.Remove(s.NLM.reclaimNote().File); err != nil {
			return err
		}
		if s.cfg.Namespace == "" {
			if _, err := s.K.Realpath(rpcbindSocket); err != nil {
				return fmt.Errorf("rpcbind does not run (no %s): NFSv3 needs it", rpcbindSocket)
			}
		}
		s.tuneLockd()
	}
	// Side by side: they wait for the disk (nfsdcld's database) and for
	// rpcbind more than they compute. Only nfsd depends on one, nfsdcld, and
	// all but that on rpcbind, where that is the service's own.
	g, gctx := errgroup.WithContext(ctx)
	binds := make(chan struct{})
	afterRPCBind := func() error {
		select {
		case <-binds:
			return nil
		case <-gctx.Done():
			return context.Cause(gctx)
		}
	}
	daemons := s.daemons()
	if !slices.Contains(daemons, rpcbind) {
		close(binds)
	}
	for _, d := range daemons {
		g.Go(func() error {
			if d == statd || d == mountd {
				if err := afterRPCBind(); err != nil {
					return err
				}
			}
			if err := s.Log.Step(d, func() error { return s.startDaemon(ctx, d) }); err != nil {
				return err
			}
			if d == rpcbind {
				close(binds)
			}
			if d == nfsdcld && s.threads() == 0 {
				if err := afterRPCBind(); err != nil {
					return err
				}
				return s.Log.Step("threads", func() error { return s.startThreads(ctx) })
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	// mountd leaves its parent before it has told rpcbind. Once the address is
	// up clients ask.
	for try := 0; ; try++ {
		err := s.registered(ctx)
		if err == nil {
			break
		}
		if try == 200 || s.K.Sleep(ctx, 50*time.Millisecond) != nil {
			return err
		}
	}
	_, err := s.nfsdState()
	return err
}

// tuneLockd sets what lockd reads once, when it starts. As long as lockd is in grace the kernel
// refuses new NFSv4 locks too. It makes the period a multiple of nlm_timeout.
// Source: lockd's module parameters, get_lockd_grace_period() and locks_in_grace() of the kernel.
func (s *daemons) tuneLockd() {
	for _, p := range []struct {
		name  string
		value int
	}{{"nlm_timeout", lockTimeout}, {"nlm_grace_period", s.grace}} {
		if err := s.K.Poke("/proc/sys/fs/nfs/"+p.name, strconv.Itoa(p.value)+"\n"); err != nil && s.threads() == 0 {
			s.Log.Note("lockd's %s stays as it is: %v", p.name, err)
		}
	}
}

// lockGrace is the grace period for NFSv3 locks in s. A client reclaims when
// it is notified, but on a connection of lockd's that it may not have: it
// tries to connect again after 3, 6, 12 s and so on, up to 5 minutes, so after
// an outage of two minutes it may be two minutes late. Then its locks would
// have been given to others (seen). NFSv4 clients try at least twice in a lease.
// Source: xprt_reconnect_backoff() and nfs4_set_lease_period() of the kernel.
func (s *daemons) lockGrace() int {
	grace := cmp.Or(s.cfg.NFS.LockGrace, s.cfg.NFS.Grace)
	was, ok := s.NLM.Alive()
	if held, err := s.NLM.toNotify(); err != nil || len(held) == 0 || !ok {
		return grace // no client held a lock
	}
	out := int(s.K.Now().Sub(was).Seconds())
	longer := min(out+lockTimeout, maxLockGrace)
	if longer <= grace {
		return grace
	}
	s.Log.Note("not served for up to %d s: NFSv3 locks may be reclaimed for %d s", out, longer)
	return longer
}

// maxLockGrace is the most that the kernel takes, in s.
const maxLockGrace = 240

// lockTimeout is lockd's nlm_timeout in s: after so long it repeats a call to
// a client.
const lockTimeout = 5

func (s *daemons) startDaemon(ctx context.Context, name string) error {
	if len(s.ProcessesOf(name)) > 0 {
		return nil
	}
	argv, binds := []string{name}, s.binds()
	switch {
	case name == nfsdcld:
		return s.startCLD(ctx)
	case name == statd:
		argv = append(argv, "--no-notify") // sm-notify is run when the address is up
		if s.K.Access(StatdNames) == nil && s.K.Access(NSSwitch) == nil {
			binds = slices.Insert(binds, 0, kernel.Bind{From: StatdNames, At: NSSwitch})
		}
	case name == mountd && !s.cfg.NFS.serves("3"):
		argv = append(argv, "--no-nfs-version", "3")
	}
	_, err := s.In.Run(ctx, kernel.Command{Argv: argv, Binds: binds})
	return err
}

// startCLD starts the daemon of package cld, and waits until it can answer.
func (s *daemons) startCLD(ctx context.Context) error {
	argv := []string{"/proc/self/exe", "ocf", cld.Action, nfsDir + cldDB, s.Distro().PipeFS + cldPipe}
	if err := s.In.Start(kernel.Command{Argv: argv, Binds: s.binds()}); err != nil {
		return err
	}
	for range 250 {
		if len(s.ProcessesOf(nfsdcld)) > 0 {
			return nil
		}
		if err := s.K.Sleep(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
	return errors.New("nfsdcld does not start: journalctl -t nfsdcld")
}

// firstThreads are nfsd's threads while clients wait for their server: making
// hundreds more takes half a second on a rack's emulated processor.
const firstThreads = 16

// runNFSD sets the number of nfsd's threads, and all else where it has none.
//
// nfsd takes its server scope from the node name of who starts it or changes
// the number of its threads: with another one clients would take it for
// another server and drop their locks (seen). So both are done by rpc.nfsd,
// under the scope's name; the --scope of newer rpc.nfsd does just this.
// Source: RFC 8881, 2.10.4, and nfsd_svc() of the kernel.
func (s *daemons) runNFSD(ctx context.Context, threads int) error {
	n := s.cfg.NFS
	argv := []string{"rpc.nfsd", "--lease-time", strconv.Itoa(n.Lease), "--grace-time", strconv.Itoa(max(s.grace, n.Grace)), "--tcp", "--no-udp"}
	for _, v := range nfsVersions {
		opt := "--no-nfs-version"
		if n.serves(v) {
			opt = "--nfs-version"
		}
		argv = append(argv, opt, v)
	}
	_, err := s.In.Run(ctx, kernel.Command{Argv: append(argv, strconv.Itoa(threads)), Nodename: n.Scope, Binds: s.binds()})
	return err
}

// moreThreads gives a running nfsd the rest of its threads. It is done at the
// end of a start, and by a monitor if that was cut short.
func (s *daemons) moreThreads(ctx context.Context) error {
	if have := s.threads(); have == 0 || have >= s.cfg.NFS.Threads {
		return nil
	}
	return s.Log.Step("more-threads", func() error { return s.runNFSD(ctx, s.cfg.NFS.Threads) })
}

func (s *daemons) startThreads(ctx context.Context) error {
	// Linux from 6.14 on has no such file.
	if n := s.cfg.NFS.Connections; n > 0 {
		if err := s.K.Poke(s.NfsdDir()+"/max_connections", strconv.Itoa(n)+"\n"); err != nil && !errors.Is(err, fs.ErrNotExist) {
			s.Log.Note("nfsd's max_connections stays as it is: %v", err)
		}
	}
	for try := 0; ; try++ {
		if err := s.runNFSD(ctx, min(firstThreads, s.cfg.NFS.Threads)); err != nil {
			return err
		}
		if s.threads() == 0 {
			return errors.New("nfsd has no threads although rpc.nfsd started them")
		}
		// nfsd asks once, at its start, who keeps its list of clients. If
		// nfsdcld was too slow, the kernel has removed the pipe and fallen back to a
		// method whose records the partner would not read: start again.
		if s.K.Access(s.Pipefs()+cldPipe) == nil {
			return s.listenRDMA()
		}
		s.Log.Note("nfsdcld was not ready when nfsd started (try %d)", try+1)
		if err := s.stopThreads(ctx); err != nil {
			return err
		}
		if try == 4 {
			return errors.New("nfsd does not use nfsdcld: clients could not reclaim their locks after a failover")
		}
	}
}

// listenRDMA has nfsd serve RDMA too, if it is to and does not. A running nfsd takes
// up another listener while clients go on. It needs no card: one that comes later
// is listened on as well.
// Source: nfsd(7), portlist.
func (s *daemons) listenRDMA() error {
	port := s.cfg.NFS.RDMA
	if port == 0 {
		return nil
	}
	file := s.NfsdDir() + "/portlist"
	have, err := s.K.ReadFile(file)
	if err != nil || ListensRDMA(string(have), port) {
		return err
	}
	if err := s.K.Poke(file, fmt.Sprintf("rdma %d\n", port)); err != nil {
		return fmt.Errorf("nfsd does not serve RDMA (is there a kernel module svcrdma?): %w", err)
	}
	return nil
}

// ListensRDMA says whether nfsd's portlist has RDMA on a port.
func ListensRDMA(portlist string, port int) bool {
	return slices.Contains(strings.Split(portlist, "\n"), fmt.Sprintf("rdma %d", port))
}

// stopNFSD stops nfsd and its daemons if they serve from the volume;
// others are left alone.
func (s *daemons) stopNFSD(ctx context.Context) error {
	st, err := s.bindState()
	if m, merr := s.volume.mountState(); err == nil && merr == nil && st == unit.Stopped && m == unit.Stopped {
		return nil
	}
	if id, err := s.namespace(); err != nil {
		return err
	} else if id != "" || s.cfg.Namespace == "" {
		// nfsd is reached through what is mounted there, which an administrator may have
		// taken away.
		if err := s.kernelMounts(); err != nil {
			return err
		}
	}
	// It takes clients off the list.
	if err := s.end(ctx, "sm-notify"); err != nil {
		return err
	}
	s.volume.makeRoom()
	s.NLM.listAtStop()
	grace := s.NLM.inGrace()
	s.NLM.retire()
	if grace {
		s.NLM.keepReclaiming()
	}
	if s.threads() == 0 {
		s.NLM.recall()
	}
	if err := s.stopThreads(ctx); err != nil {
		return err
	}
	if name, _, err := s.Present(); err == nil && name == "" {
		s.address.reset()
	}
	if err := s.end(ctx, s.daemons()...); err != nil {
		return err
	}
	s.volume.keepRoom(reserve / 64)
	return nil
}

// notifyDir, below the state directory, is what sm-notify takes for the
// directory of rpc.statd. sm-notify takes all clients that are in there for
// those of the former server. In rpc.statd's own it would also find a client
// that has locked something since nfsd was started a moment ago, and its
// record would be gone at the next takeover (seen).
const notifyDir = "/notify"

// retire puts the clients that hold NFSv3 locks on the list of those to be
// notified when the service has started, as sm-notify does at a boot. At a
// stop too: with nfsd lockd ends, and tells rpc.statd to forget them; no server
// would ask them to reclaim, and the grace period would be over at once.
// Source: sm-notify(8), FILES.
func (s *nlm) retire() {
	dir := s.cfg.StateDir
	for _, from := range []string{"/sm", "/sm.bak"} {
		found, err := s.statdList(from)
		if err != nil {
			s.Log.Note("NFSv3 locks: %v", err)
		}
		for _, n := range found {
			// A file system that refuses this does not let statd forget them either.
			s.Log.NoteErr(s.K.Rename(dir+from+"/"+n, s.notifyFile(n)), "NFSv3 locks of %s", n)
		}
	}
	// The number by which clients know a reboot only ever grows.
	if _, err := s.K.ReadFile(dir + notifyDir + "/state"); errors.Is(err, fs.ErrNotExist) {
		if b, err := s.K.ReadFile(dir + "/state"); err == nil {
			s.Log.NoteErr(s.K.Save(dir+notifyDir+"/state", b), "NFSv3 locks")
		}
	}
}

// recall puts the clients on that list that monitor or watcher saw: for an nfsd that
// ended by itself, of which rpc.statd has forgotten them. To notify a client
// that has no lock any more does no harm.
func (s *nlm) recall() {
	saved, err := s.monitored()
	if err != nil {
		s.Log.Note("NFSv3 locks: %v", err)
	}
	for n, record := range saved {
		s.Log.NoteErr(s.K.Save(s.notifyFile(n), []byte(record+"\n")), "NFSv3 locks of %s", n)
	}
}

// aliveFile says when a monitor last saw the service run, in s since 1970.
func (s *nlm) aliveFile() string { return s.cfg.StateDir + "/mortar/alive" }

// Alive reads it; false: no monitor has noted it yet.
func (s *nlm) Alive() (time.Time, bool) {
	b, err := s.K.ReadFile(s.aliveFile())
	if err != nil {
		return time.Time{}, false
	}
	t, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	if err != nil {
		s.Log.Note("%s: %v", s.aliveFile(), err)
	}
	return time.Unix(t, 0), err == nil
}

// monitoredFile keeps what rpc.statd has written of the clients that hold
// NFSv3 locks: a line for each, of the file's name and its content.
func (s *nlm) monitoredFile() string { return s.cfg.StateDir + "/mortar/monitored" }

// monitored reads what a record has saved: name → record.
func (s *nlm) monitored() (map[string]string, error) {
	b, err := s.K.ReadFile(s.monitoredFile())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	m := map[string]string{}
	for line := range strings.Lines(string(b)) {
		if name, record, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "\t"); ok {
			m[name] = record
		}
	}
	return m, err
}

// keepAlive notes that the service runs now.
func (s *nlm) keepAlive() error {
	if !s.cfg.NFS.serves("3") || s.threads() == 0 {
		return nil
	}
	last, ok := s.Alive()
	if ok && s.K.Now().Sub(last).Abs() < 5*time.Second {
		return nil
	}
	text := strconv.FormatInt(s.K.Now().Unix(), 10) + "\n"
	err := s.K.Save(s.aliveFile(), []byte(text))
	if ok && errors.Is(err, unix.ENOSPC) {
		// As many bytes in the same place need no room.
		err = s.K.Poke(s.aliveFile(), text)
	}
	return s.noted(err)
}

// monitoredNow are the clients that hold NFSv3 locks, for the case that nfsd ends by itself;
// nil if the volume has them already.
func (s *nlm) monitoredNow(context.Context) (*list, error) {
	if !s.cfg.NFS.serves("3") {
		return nil, nil
	}
	names, err := s.statdList("/sm")
	if err != nil {
		return nil, err
	}
	was, err := s.monitored()
	if err != nil || slices.Equal(names, slices.Sorted(maps.Keys(was))) {
		return nil, err
	}
	var text strings.Builder
	for _, n := range names {
		b, err := s.K.ReadFile(s.cfg.StateDir + "/sm/" + n)
		if errors.Is(err, fs.ErrNotExist) {
			continue // its last lock was given back just now
		}
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&text, "%s\t%s\n", n, strings.TrimSuffix(string(b), "\n"))
	}
	if s.threads() == 0 {
		return nil, nil // nfsd has ended, and had rpc.statd forget them
	}
	return &list{file: s.monitoredFile(), text: []byte(text.String())}, nil
}

// end ends all processes of programs, side by side: asks, then kills.
func (s *server) end(ctx context.Context, programs ...string) error {
	for try := 0; ; try++ {
		found := s.find(programs...)
		if len(found) == 0 {
			return nil
		}
		sig := unix.SIGTERM
		if try >= 60 { // 3 s
			sig = unix.SIGKILL
		}
		for name, pids := range found {
			if try > 0 && sig == unix.SIGTERM {
				break
			}
			for _, pid := range pids {
				if err := s.K.Kill(pid, sig); err != nil && !errors.Is(err, unix.ESRCH) {
					return fmt.Errorf("stopping %s (%d): %w", name, pid, err)
				}
			}
		}
		if try == 120 || s.K.Sleep(ctx, 50*time.Millisecond) != nil {
			return fmt.Errorf("%s: no end of its processes: %v", strings.Join(slices.Sorted(maps.Keys(found)), ", "), found)
		}
	}
}

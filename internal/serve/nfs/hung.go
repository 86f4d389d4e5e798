package nfs

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mortarhpc/mortar/internal/base/lists"
	"github.com/mortarhpc/mortar/internal/serve/kernel"
	"github.com/mortarhpc/mortar/internal/serve/unit"
)

// A daemon that hangs keeps its process and its entry in rpcbind's list. So the watcher
// calls the NULL procedure of each daemon through the service address, as a client
// would, beside its loop. A daemon hangs if two looks in a row find that it gives no
// answer and that it is not busy:
//
//   - A process is not busy if it has not run between the beginning of the first look and
//     the end of the second, and waits for no disk. A process that waits for a name
//     server runs at each of the resolver's timeouts, so it counts as busy.
//   - nfsd is not busy if a thread that had nothing to do was woken during each look.
//   - lockd is not busy if its thread waits for a call and not for a disk, nor for
//     rpc.statd.
//
// A process that hangs is started again in place. If it hangs once more, or if the kernel's
// nfsd or lockd hangs, the service is reported as failed: Pacemaker moves it. That is done
// only if the daemon has answered on this server since the service came. Otherwise the cause
// may be on both servers, and a move would end the service on both.

const (
	askEvery = 10 * time.Second
	// A daemon that hangs again so soon was not helped by its restart. It takes two looks
	// to see that.
	hungAgain = 2 * time.Minute
)

// lockd is the kernel's thread for NFSv3 locks.
const lockd = "lockd"

// sight is what one look finds of a daemon.
type sight struct {
	Silent bool   // it gives no answer
	idle   bool   // and is not busy
	mark   string // changes when a process runs
}

// hangs says whether two looks in a row find a daemon that hangs.
func (a sight) hangs(b sight) bool {
	return a.Silent && b.Silent && a.idle && b.idle && a.mark == b.mark
}

// asker asks the daemons beside the watcher's loop.
type asker struct {
	*server
	Busy atomic.Bool   // a look goes on, to which the fields below belong
	at   time.Time     // when the last look began
	wait time.Duration // and how long after that the next one begins
	seen map[string]sight
	Last map[string]sight // of the look before
	// answered are the daemons that have answered since the service came here.
	answered  map[string]bool
	restarted unit.Limit
}

// askDue judges the look that has ended, and begins the next one.
func (s *asker) askDue(ctx context.Context, w unit.Watch) unit.Act {
	a := s
	if w.Lost() || !s.Addressed() {
		a.seen, a.Last = nil, nil
	}
	if seen := a.seen; seen != nil {
		if a.wait = askEvery; s.judgeDaemons(ctx, w) {
			a.wait = kernel.CallLimit // so that a process that waits for a name server runs during two looks
		}
		a.Last, a.seen = seen, nil
	}
	if !s.Addressed() || s.K.Now().Sub(a.at) < a.wait {
		return nil
	}
	a.at = s.K.Now()
	return func(ctx context.Context) { a.seen = s.lookAtDaemons(ctx) }
}

// forgetDaemons is called where the service does not run.
func (s *asker) forgetDaemons() {
	if a := s; a.Busy.CompareAndSwap(false, true) {
		a.seen, a.Last, a.answered, a.restarted = nil, nil, nil, nil
		a.Busy.Store(false)
	}
}

// judgeDaemons acts on two looks, and says whether a daemon was silent in the second one.
func (s *asker) judgeDaemons(ctx context.Context, w unit.Watch) (silent bool) {
	a := s
	if a.answered == nil {
		a.answered, a.restarted = map[string]bool{}, unit.Limit{}
	}
	var hung []string
	for d, seen := range a.seen {
		switch {
		case !seen.Silent:
			a.answered[d] = true
		case a.Last[d].hangs(seen):
			hung = append(hung, d)
			fallthrough
		default:
			silent = true
		}
	}
	if len(hung) == 0 {
		return silent
	}
	// While the service starts or stops, daemons come and go.
	unlock, err := w.Lock()
	if err != nil {
		return false
	}
	defer unlock()
	if !s.bound() || !s.Addressed() {
		return false
	}
	slices.Sort(hung)
	for _, d := range hung {
		inPlace := slices.Contains(s.daemons(), d)
		recently := a.restarted.Reached(d, s.K.Now(), 1, hungAgain)
		switch {
		case inPlace && !recently:
			a.restarted.Count(d, s.K.Now())
			s.replace(ctx, w, d)
		case a.answered[d]:
			w.Fail(ctx, d+" hangs: it does not answer, and is not busy")
		case !inPlace && !recently:
			a.restarted.Count(d, s.K.Now())
			w.Log("%s of service %s has not answered since the service came here: a move may not help", d, s.Service)
		}
	}
	return false
}

// replace kills a daemon that hangs, and starts it again. A process that was stopped by a
// signal takes no other signal than SIGKILL.
func (s *asker) replace(ctx context.Context, w unit.Watch, name string) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for _, pid := range s.ProcessesOf(name) {
		if err := s.K.Kill(pid, unix.SIGKILL); err != nil {
			w.Log("%s (%d): %v", name, pid, err)
		}
	}
	err := s.end(ctx, name)
	if err == nil {
		err = s.Nfsd.startDaemon(ctx, name)
	}
	if err != nil {
		w.Log("%s hung and does not start: %v", name, err)
		return
	}
	w.Log("%s hung: killed and started again", name)
}

func (s *asker) lookAtDaemons(ctx context.Context) map[string]sight {
	seen, mu := map[string]sight{}, sync.Mutex{}
	var wg sync.WaitGroup
	look := func(daemon string, how func() sight) {
		wg.Go(func() {
			found := how()
			mu.Lock()
			defer mu.Unlock()
			seen[daemon] = found
		})
	}
	look("nfsd", func() sight { return s.lookAtNFSD(ctx) })
	// It takes no calls: only one that is stopped shows. It waits for nothing but the disks.
	look(nfsdcld, func() sight { return s.lookAtProcess(nfsdcld, func() bool { return false }) })
	ports := s.v3Ports(ctx)
	mute := func(program string) func() bool { return func() bool { return s.mute(ctx, program, ports[program]) } }
	// Without NFSv3 rpc.mountd takes no calls: only one that is stopped shows.
	look(mountd, func() sight { return s.lookAtProcess(mountd, mute("mountd")) })
	if ports["status"] != 0 {
		look(statd, func() sight { return s.lookAtProcess(statd, mute("status")) })
	}
	if ports[nlockmgr.Name] != 0 {
		look(lockd, func() sight { return s.lookAtLockd(mute(nlockmgr.Name)) })
	}
	wg.Wait()
	return seen
}

// v3Ports are the ports of NFSv3's programs by their names; none if rpcbind does not tell
// them, which a monitor sees.
func (s *asker) v3Ports(ctx context.Context) map[string]uint16 {
	if !s.cfg.NFS.serves("3") {
		return nil
	}
	found, err := s.In.Ports(ctx, v3Programs)
	if err != nil {
		return nil
	}
	ports := map[string]uint16{}
	for i, p := range v3Programs {
		ports[p.Name] = found[i]
	}
	return ports
}

// mute calls a program of NFSv3 and says whether it gives no answer.
func (s *asker) mute(ctx context.Context, program string, port uint16) bool {
	i := slices.IndexFunc(v3Programs, func(p kernel.Program) bool { return p.Name == program })
	return port != 0 && s.In.Null(ctx, netip.AddrPortFrom(s.cfg.Prefix().Addr(), port), v3Programs[i]) != nil
}

// lookAtNFSD calls each version that nfsd serves.
func (s *asker) lookAtNFSD(ctx context.Context) sight {
	before := s.threadsWoken()
	var seen sight
	for _, version := range []uint32{3, 4} {
		serves := func(v string) bool { return strings.HasPrefix(v, strconv.Itoa(int(version))) }
		if !slices.ContainsFunc(s.cfg.NFS.Versions, serves) {
			continue
		}
		p := kernel.Program{Name: v3Programs[0].Name, Number: v3Programs[0].Number, Version: version}
		if s.In.Null(ctx, netip.AddrPortFrom(s.cfg.Prefix().Addr(), nfsPort), p) != nil {
			seen.Silent = true
		}
	}
	seen.idle = s.threadsWoken() > before
	return seen
}

// threadsWoken counts how often a thread of nfsd that had nothing to do was woken for a
// call. Source: Documentation/filesystems/nfs/knfsd-stats.rst
func (s *asker) threadsWoken() (n int) {
	b, _ := s.K.ReadFile(s.NfsdDir() + "/pool_stats")
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) >= 4 && f[0] != "#" {
			woken, _ := strconv.Atoi(f[3])
			n += woken
		}
	}
	return n
}

// lookAtProcess asks a daemon that is a process. One that a signal or a tracer has stopped
// answers nothing, whether a client asks now or not.
func (s *asker) lookAtProcess(name string, silent func() bool) sight {
	before, waits, _ := s.runs(s.ProcessesOf(name))
	seen := sight{Silent: silent(), mark: before}
	after, waitsStill, stopped := s.runs(s.ProcessesOf(name))
	seen.Silent = seen.Silent || stopped
	seen.idle = before != "" && before == after && waits && waitsStill
	return seen
}

func (s *asker) lookAtLockd(silent func() bool) sight {
	waits := func() bool {
		threads := lists.Only(s.Pids(), func(pid int) bool { return s.Line("/proc/"+strconv.Itoa(pid)+"/comm") == lockd })
		_, waits, _ := s.runs(threads)
		return waits
	}
	before := waits()
	return sight{Silent: silent(), idle: waits() && before}
}

// runs gives a mark that changes when one of some processes runs, and says whether all of
// them wait, but for no disk, and whether all are stopped. Source: proc_pid_status(5)
func (s *asker) runs(pids []int) (mark string, waits, stopped bool) {
	waits, stopped = len(pids) > 0, len(pids) > 0
	for _, pid := range pids {
		b, err := s.K.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
		if err != nil {
			return "", false, false // it has ended
		}
		for line := range strings.Lines(string(b)) {
			key, value, _ := strings.Cut(strings.TrimSpace(line), ":")
			switch value = strings.TrimSpace(value); {
			case key == "State":
				waits = waits && strings.ContainsAny(value[:min(1, len(value))], "SITt")
				stopped = stopped && strings.ContainsAny(value[:min(1, len(value))], "Tt")
			case strings.HasSuffix(key, "voluntary_ctxt_switches"):
				mark += fmt.Sprintf("%d %s ", pid, value)
			}
		}
	}
	return mark, waits, stopped
}

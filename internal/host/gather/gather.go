// Package gather is the agent's one read-only look at a host: what plans, status, watch, metrics,
// procedures, benchmarks and drills know of it. It knows no brick, and judges nothing.
package gather

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/base/netns"
	rule "github.com/mortarhpc/mortar/internal/base/pace"
	"github.com/mortarhpc/mortar/internal/base/pr"
	"github.com/mortarhpc/mortar/internal/host/agent"
	"github.com/mortarhpc/mortar/internal/host/claim"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

// Op is the agent's read-only op that answers a Request with a Host.
const Op agent.Op[Request, Host] = agent.OpGather

// Request is a query of one host. The agent answers in its own process; only Run and
// Outlets start others, which are expensive on an emulated CPU.
type Request struct {
	Files     []string   `json:"files,omitempty"` // patterns, see filepath.Match
	Links     []string   `json:"links,omitempty"` // patterns of links to resolve fully
	Run       [][]string `json:"run,omitempty"`   // commands that only read
	FS        []string   `json:"fs,omitempty"`    // mount points for statfs(2)
	Processes []string   `json:"processes,omitempty"`
	// Namespaces are network namespaces whose processes are counted separately.
	Namespaces []string `json:"namespaces,omitempty"`
	Disks      bool     `json:"disks,omitempty"`
	// Pace measures for a second how fast disks answer.
	Pace bool `json:"pace,omitempty"`
	// NICs asks interfaces for their drivers, firmware and flow control, with NetLinks.
	NICs bool `json:"nics,omitempty"`
	SCSI bool `json:"scsi,omitempty"` // paths of SCSI disks, and the states of their port groups
	CIB  bool `json:"cib,omitempty"`
	Plan bool `json:"plan,omitempty"` // what a plan needs to know; what cannot be read of it is an error
	// Reservations are WWNs of LUNs, and serial numbers of disks, whose reservations to read,
	// with SCSI.
	Reservations []string `json:"reservations,omitempty"`
	// Outlets whose state to ask PDUs for.
	Outlets []OutletAsk `json:"outlets,omitempty"`
	// Bounds of each command and of each statfs, in milliseconds.
	TimeoutMS   int `json:"timeout_ms,omitempty"`
	FSTimeoutMS int `json:"fs_timeout_ms,omitempty"`
}

// With returns the request with the files, commands, interfaces and configuration of another one.
func (r Request) With(o Request) Request {
	r.Files, r.Run, r.NICs, r.CIB = slices.Concat(r.Files, o.Files), slices.Concat(r.Run, o.Run), r.NICs || o.NICs, r.CIB || o.CIB
	return r
}

// Host is a host's answer to a Request.
type Host struct {
	Hostname  string               `json:"hostname"`
	NowNS     int64                `json:"now_ns"`       // wall clock of the host, ns since 1970
	UTCOffset int                  `json:"utc_offset_s"` // of the host's local time, seconds east of UTC
	Files     map[string]string    `json:"files,omitempty"`
	Links     map[string]string    `json:"links,omitempty"`
	Run       map[string]RunResult `json:"run,omitempty"` // by the command's words, joined with spaces
	FS        map[string]FS        `json:"fs,omitempty"`
	Processes map[string]int       `json:"processes,omitempty"` // number of running processes, by name, or name@namespace
	Addresses []string             `json:"addresses,omitempty"` // with prefix length; also those in the services' namespaces
	NetLinks  []Link               `json:"net_links,omitempty"` // interfaces of the host itself
	Disks     []resource.DiskFact  `json:"disks,omitempty"`
	Strays    []Stray              `json:"strays,omitempty"` // with Disks
	Pace      map[string]Pace      `json:"pace,omitempty"`   // of each block device that was busy, by sdX or dm-N
	SCSI      []linux.SCSIDisk     `json:"scsi,omitempty"`
	// Reservations of the LUNs and disks that answer, by WWN in lower case. Unreservable are
	// the WWNs of those that know none.
	Reservations map[string]pr.State `json:"reservations,omitempty"`
	Unreservable []string            `json:"unreservable,omitempty"`
	CIB          *linux.CIB          `json:"cib,omitempty"`
	Outlets      []Outlet            `json:"outlets,omitempty"`
	Plan         Plan                `json:"plan,omitzero"`
}

// Plan is what a plan needs to know of a host before it is made.
type Plan struct {
	resource.HostFacts
	linux.OSRelease
	Brick claim.State `json:"brick"`
}

// RunResult is a command's output, or why it could not be run.
type RunResult struct {
	resource.Output
	Err   string         `json:"err,omitempty"`
	Cause resource.Cause `json:"cause,omitempty"`
}

// FS is the result of statfs(2) for a mount point.
type FS struct {
	Err       string  `json:"err,omitempty"`
	TimedOut  bool    `json:"timed_out,omitempty"`
	Size      uint64  `json:"size"`  // bytes
	Avail     uint64  `json:"avail"` // bytes, to users
	Files     uint64  `json:"files"`
	FilesFree uint64  `json:"files_free"`
	Millis    float64 `json:"ms"` // duration of the call
}

// Handlers answer Op.
func Handlers() agent.Mux { return handlers(func(Request) error { return nil }) }

// WatchHandlers are those of an agent that may only watch.
func WatchHandlers() agent.Mux { return handlers(mustWatch) }

func handlers(may func(Request) error) agent.Mux {
	m := agent.Mux{}
	fs := &statfsPool{waiting: map[string]time.Time{}}
	Op.Answer(m, func(ctx context.Context, r Request) (Host, error) {
		if err := may(r); err != nil {
			return Host{}, err
		}
		h := gather(ctx, agent.HostSys{}, fs, r)
		if r.Plan {
			return *h, h.Plan.read(ctx, agent.HostSys{})
		}
		return *h, nil
	})
	return m
}

// Once answers a Request on this machine.
func Once(ctx context.Context, r Request) *Host {
	return gather(ctx, agent.HostSys{}, &statfsPool{waiting: map[string]time.Time{}}, r)
}

// gather answers a Request. Facts that cannot be read are missing in the answer; the
// checks decide whether that is a fault.
func gather(ctx context.Context, sys agent.HostSys, pool *statfsPool, r Request) *Host {
	timeout := time.Duration(r.TimeoutMS) * time.Millisecond
	if timeout <= 0 {
		timeout = 5 * time.Second
	}
	fsTimeout := time.Duration(r.FSTimeoutMS) * time.Millisecond
	if fsTimeout <= 0 {
		fsTimeout = timeout
	}
	now := time.Now()
	_, offset := now.Zone()
	h := &Host{NowNS: now.UnixNano(), UTCOffset: offset, Addresses: addresses(), NetLinks: hostLinks(r.NICs)}
	h.Hostname, _ = os.Hostname()

	// Run slow parts concurrently.
	var wg sync.WaitGroup
	if len(r.Run) > 0 {
		wg.Go(func() {
			h.Run = each(r.Run, func(argv []string) (string, RunResult, bool) {
				cctx, cancel := context.WithTimeout(ctx, timeout)
				defer cancel()
				out, err := sys.Query(cctx, argv...)
				res := RunResult{Output: out}
				if err != nil {
					res.Err, res.Cause = err.Error(), resource.CauseOf(err)
				}
				return strings.Join(argv, " "), res, true
			})
		})
	}
	if len(r.FS) > 0 {
		wg.Go(func() {
			h.FS = each(r.FS, func(path string) (string, FS, bool) { return path, pool.statfs(ctx, path, fsTimeout), true })
		})
	}
	if r.Pace {
		wg.Go(func() { h.Pace = pace(ctx, sys) })
	}
	if len(r.Outlets) > 0 {
		wg.Go(func() { h.Outlets = askOutlets(ctx, sys, r.Outlets, timeout) })
	}

	h.Files = readFiles(sys, r.Files)
	if len(r.Links) > 0 {
		h.Links = map[string]string{}
		for _, pattern := range r.Links {
			paths, _ := sys.Glob(pattern)
			for _, p := range paths {
				if to, err := sys.Readlink(p); err == nil {
					h.Links[p] = to
				}
			}
		}
	}
	if len(r.Processes) > 0 {
		h.Processes = processes(sys, r.Processes, r.Namespaces)
	}
	if r.Disks || r.SCSI {
		var disks []resource.DiskFact
		if l, err := sys.Disks(ctx); err == nil { // disks that cannot be read are missing
			disks = l.All
		}
		if r.Disks {
			h.Disks = pathStates(sys, disks)
			h.Strays = strays(sys)
		}
		if r.SCSI {
			h.SCSI, _ = sys.SCSI(ctx, disks)
			h.Reservations, h.Unreservable = reservations(ctx, sys, h.SCSI, r.Reservations, timeout)
		}
	}
	if r.CIB {
		if c, err := linux.ReadCIB(sys.ReadFile); err == nil {
			h.CIB = onlyOwn(c)
		}
	}
	wg.Wait()
	return h
}

func (p *Plan) read(ctx context.Context, sys agent.HostSys) (err error) {
	if p.OSRelease, err = sys.OS(); err != nil {
		return err
	}
	if p.HostFacts, err = resource.ObserveFacts(ctx, sys); err != nil {
		return fmt.Errorf("facts: %w", err)
	}
	if p.Brick, err = claim.Read(claim.File()); err != nil {
		return fmt.Errorf("brick: %w", err)
	}
	return nil
}

// Pace is how fast a block device answered during paceWindow.
type Pace struct {
	Done int64   `json:"done"` // completed requests
	MS   float64 `json:"ms"`   // mean time of a request; without a completed one, a lower bound of the waiting time
}

// String says how late a device answers.
func (p Pace) String() string {
	if p.Done == 0 {
		return "answered nothing for a second"
	}
	return fmt.Sprintf("takes %.0f ms for an answer", p.MS)
}

// paceWindow is long enough for a disk that answers twice a second, and no longer
// than the other queries of a server take.
const paceWindow = time.Second

// pace compares the kernel's counters at two moments.
func pace(ctx context.Context, sys resource.Sys) map[string]Pace {
	read := func() map[string]linux.DiskStat {
		b, err := sys.ReadFile("/proc/diskstats")
		if err != nil {
			return nil
		}
		return linux.ParseDiskStats(string(b))
	}
	before, began := read(), time.Now()
	select {
	case <-ctx.Done():
		return nil
	case <-time.After(paceWindow):
	}
	return paces(before, read(), time.Since(began))
}

func paces(before, after map[string]linux.DiskStat, window time.Duration) map[string]Pace {
	out := map[string]Pace{}
	for dev, a := range rule.Between(before, after) {
		switch {
		case a.Stuck:
			out[dev] = Pace{0, millis(window)}
		case a.Done > 0:
			out[dev] = Pace{a.Done, millis(a.Took) / float64(a.Done)}
		}
	}
	return out
}

func readFiles(sys resource.Sys, patterns []string) map[string]string {
	files := map[string]string{}
	for _, pattern := range patterns {
		paths := []string{pattern}
		if strings.ContainsAny(pattern, "*?[") {
			paths, _ = sys.Glob(pattern)
		}
		for _, p := range paths {
			// An attribute of /sys or /proc may be listed and still not be readable.
			if b, err := sys.ReadFile(p); err == nil {
				files[p] = string(b)
			}
		}
	}
	return files
}

// HasAddress reports whether a host has an address on an interface. It is false for
// a nil Host, which did not answer.
func (h *Host) HasAddress(addr string) bool {
	return h != nil && hasAddress(h.Addresses, addr)
}

// processes counts the running processes of each name (comm, 15 bytes). Processes in
// one of the network namespaces count as name@namespace too.
func processes(sys resource.Sys, names, namespaces []string) map[string]int {
	n := map[string]int{}
	space := map[string]string{} // target of /proc/PID/ns/net → name
	for _, ns := range namespaces {
		if id, err := netns.ID(ns); err == nil {
			space[id] = ns
		}
	}
	for _, name := range names {
		n[name] = 0
		for _, ns := range namespaces {
			n[InNamespace(name, ns)] = 0
		}
	}
	paths, _ := sys.Glob("/proc/[0-9]*/comm")
	for _, p := range paths {
		b, err := sys.ReadFile(p)
		if err != nil {
			continue
		}
		comm := strings.TrimSpace(string(b))
		if _, wanted := n[comm]; !wanted {
			continue
		}
		n[comm]++
		if id, err := netns.OfProcess(filepath.Base(filepath.Dir(p))); err == nil && space[id] != "" {
			n[InNamespace(comm, space[id])]++
		}
	}
	return n
}

// InNamespace is the key of a count in Host.Processes.
func InNamespace(name, namespace string) string {
	if namespace == "" {
		return name
	}
	return name + "@" + namespace
}

// pathStates adds the states of the paths to disks.
func pathStates(sys resource.Sys, disks []resource.DiskFact) []resource.DiskFact {
	for i, d := range disks {
		states := map[string]resource.PathState{}
		for _, p := range d.Paths {
			name := filepath.Base(p)
			st := resource.PathState{HBA: -1}
			if b, err := sys.ReadFile("/sys/block/" + name + "/device/state"); err == nil {
				st.State = strings.TrimSpace(string(b))
			}
			if to, err := sys.Readlink("/sys/block/" + name + "/device"); err == nil {
				// …/host2/target2:0:3/2:0:3:0: the last element is host:channel:target:LUN.
				if host, _, ok := strings.Cut(filepath.Base(to), ":"); ok {
					if n, err := strconv.Atoi(host); err == nil {
						st.HBA = n
					}
				}
			}
			states[name] = st
			for controller, state := range linux.NVMePaths(resource.Tree{Sys: sys}, name) {
				states[controller] = resource.PathState{HBA: -1, State: cmp.Or(state, "unknown")}
			}
		}
		disks[i].PathState = states
	}
	return disks
}

// reservations reads the reservations of LUNs and disks concurrently, each over the first path
// that answers. The result is by WWN in lower case.
func reservations(ctx context.Context, sys resource.Sys, disks []linux.SCSIDisk, names []string, timeout time.Duration) (all map[string]pr.State, unable []string) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	wanted := map[string]bool{}
	for _, n := range names {
		wanted[strings.ToLower(n)] = true
	}
	var mu sync.Mutex
	all = each(disks, func(d linux.SCSIDisk) (string, pr.State, bool) {
		wwn := strings.ToLower(d.WWN)
		if !wanted[wwn] && !wanted[strings.ToLower(strings.TrimSpace(d.Serial))] {
			return "", pr.State{}, false
		}
		for _, p := range d.Paths {
			if !p.Usable() {
				continue
			}
			st, err := sys.Reservation(ctx, p.Name)
			if err == nil {
				return wwn, st, true
			}
			if errors.Is(err, pr.ErrUnable) {
				mu.Lock()
				defer mu.Unlock()
				unable = append(unable, wwn)
				break
			}
		}
		return "", pr.State{}, false
	})
	slices.Sort(unable)
	return all, unable
}

// each calls do for all things at once. do returns the key and the value of a result, and
// whether there is one.
func each[T, V any](things []T, do func(T) (string, V, bool)) map[string]V {
	out := map[string]V{}
	var wg sync.WaitGroup
	var mu sync.Mutex
	for _, x := range things {
		wg.Go(func() {
			if key, v, ok := do(x); ok {
				mu.Lock()
				defer mu.Unlock()
				out[key] = v
			}
		})
	}
	wg.Wait()
	return out
}

// statfsPool calls statfs(2) with a time limit. A file system that does not answer
// keeps the calling thread in the kernel, so the pool starts no second call for the
// same path.
type statfsPool struct {
	mu      sync.Mutex
	waiting map[string]time.Time // begin of the call under way, by path
}

func (p *statfsPool) statfs(ctx context.Context, path string, timeout time.Duration) FS {
	start := time.Now()
	p.mu.Lock()
	if since, ok := p.waiting[path]; ok {
		p.mu.Unlock()
		return FS{TimedOut: true, Millis: millis(time.Since(since))}
	}
	p.waiting[path] = start
	p.mu.Unlock()

	done := make(chan FS, 1)
	go func() {
		var st unix.Statfs_t
		err := unix.Statfs(path, &st)
		p.mu.Lock()
		delete(p.waiting, path)
		p.mu.Unlock()
		if err != nil {
			done <- FS{Err: err.Error()}
			return
		}
		bs := uint64(st.Bsize)
		if st.Frsize > 0 {
			bs = uint64(st.Frsize)
		}
		done <- FS{Size: st.Blocks * bs, Avail: st.Bavail * bs, Files: st.Files, FilesFree: st.Ffree}
	}()
	t := time.NewTimer(timeout)
	defer t.Stop()
	select {
	case f := <-done:
		f.Millis = millis(time.Since(start))
		return f
	case <-t.C:
	case <-ctx.Done():
	}
	return FS{TimedOut: true, Millis: millis(time.Since(start))}
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

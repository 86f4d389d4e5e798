package bench

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/prove/kind"
	"github.com/mortarhpc/mortar/internal/prove/report"
	"github.com/mortarhpc/mortar/internal/prove/testbed"
	"github.com/mortarhpc/mortar/internal/prove/workload"
)

// prepare connects to every host, finds the servers of the services, checks the
// mounts and makes the directories of the run. Only the last step changes
// hosts.
func (r *runner) prepare(ctx context.Context) error {
	d := r.env.Design
	r.servers, r.clients = d.Servers(), testbed.Clients(d)
	if len(r.clients) == 0 {
		return &Unfit{[]string{"no client mounts the brick: a benchmark needs load; give the spec a client (clients:)"}}
	}
	names := slices.Concat(r.servers, r.clients)
	r.say(Progress{State: "reaching " + strings.Join(names, ", ")})
	err := host.Each(ctx, names, r.connect)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return &Unfit{[]string{err.Error()}}
	}
	for _, n := range names {
		r.noteClock(n)
	}
	for _, n := range r.notes {
		r.say(Progress{Note: n})
	}
	if err := r.findActive(ctx); err != nil {
		return err
	}
	for _, s := range r.active() {
		hello, err := r.host(s).Hello(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", s, err)
		}
		r.memory += hello.MemBytes
	}
	r.noteArrays(ctx)
	r.runID = fmt.Sprintf("bench-%s-%s", r.began.UTC().Format("20060102T150405"), uuid.NewString()[:8])
	if err := r.findLanes(ctx); err != nil {
		return err
	}
	r.bench.Phases, r.bench.Layers = []report.BenchPhase{}, []report.Layer{}
	if err := r.makeDirs(ctx); err != nil {
		return err
	}
	// The hosts' versions go before those of fio on each client.
	r.software = append(testbed.Versions(ctx, slices.Concat(r.active(), r.clients), r.host), r.software...)
	return nil
}

// noteArrays notes degraded or rebuilding arrays, which lower the figures.
func (r *site) noteArrays(ctx context.Context) {
	for _, s := range r.active() {
		mdstat, err := r.host(s).Read(ctx, "/proc/mdstat")
		if err != nil {
			continue // no md on this server
		}
		for _, text := range arrayTroubles(mdstat) {
			r.note(s, "%s", text)
		}
	}
}

func arrayTroubles(mdstat string) []string {
	var out []string
	for _, m := range linux.ParseMDStat(mdstat) {
		if m.Working < m.Disks {
			out = append(out, fmt.Sprintf("array %s is degraded (%d of %d disks): figures are lower for it", m.Dev, m.Working, m.Disks))
		}
		if m.Action != "" && m.Waiting == "" {
			out = append(out, fmt.Sprintf("array %s is busy with %s (%.1f%% done): figures are lower until that ends (mortar status shows it)", m.Dev, m.Action, m.Percent))
		}
	}
	return out
}

// findLanes chooses a mount of each service on each client.
func (r *runner) findLanes(ctx context.Context) error {
	d := r.env.Design
	var problems []string
	chosen := map[string]design.ClientMount{} // client/service
	for _, m := range d.Mounts {
		key := m.Client + "/" + m.Service
		if _, have := chosen[key]; !have && (r.opt.NFSVersion == "" || m.Version == r.opt.NFSVersion) {
			chosen[key] = m
		}
	}
	mounts := map[string][]linux.Mount{}
	for _, c := range r.clients {
		ms, err := testbed.Mounts(ctx, r.host(c))
		if err != nil {
			return fmt.Errorf("%s: %w", c, err)
		}
		mounts[c] = ms
	}
	// Neighbouring lanes are on different clients and different services.
	volumes := kind.Of(d).Volumes(d)
	n, k := len(r.clients), len(volumes)
	for i := range n * k {
		c, s := r.clients[i%n], volumes[(i+i/n)%k]
		m, ok := chosen[c+"/"+s]
		if !ok {
			problems = append(problems, fmt.Sprintf("client %s has no mount of service %s by NFSv%s", c, s, r.opt.NFSVersion))
			continue
		}
		live, there := linux.MountAt(mounts[c], m.Path)
		switch {
		case !there || live.Source != m.Source:
			problems = append(problems, fmt.Sprintf("%s is not mounted on %s of client %s (mortar apply mounts it)", m.Source, m.Path, c))
		case live.ReadOnly():
			problems = append(problems, fmt.Sprintf("%s is mounted read-only on client %s: a benchmark writes; mount it rw", m.Path, c))
		}
		if d := differingOptions(m.Options, live.Options); there && d != "" {
			r.note(c, "%s is mounted with %s, which client and server negotiated", m.Path, d)
		}
		r.lanes = append(r.lanes, lane{client: c, service: s, dir: path.Join(m.Path, benchDir), runID: r.runID + "-" + s})
	}
	if len(problems) > 0 {
		return &Unfit{problems}
	}
	return nil
}

// differingOptions returns the mount options whose values are not the requested ones.
func differingOptions(want, have []string) string {
	var out []string
	for _, w := range want {
		key, value, ok := strings.Cut(w, "=")
		if !ok {
			continue
		}
		for _, h := range have {
			if k, v, ok := strings.Cut(h, "="); ok && k == key && v != value {
				out = append(out, fmt.Sprintf("%s, not %s", h, w))
			}
		}
	}
	return strings.Join(out, "; ")
}

// benchDir is the directory on a mount for the runs' files:
// <mount>/.mortar/<run id>.
const benchDir = ".mortar"

// dirOf returns the directory of a mount's runs, the action that makes it, and the
// host to do that on.
func (r *site) dirOf(m design.ClientMount) (on, dir string, create resource.Action) {
	onServer, dir, create := kind.For(m).LoadDir(m, benchDir)
	if onServer {
		return r.serves[m.Service], dir, create
	}
	return m.Client, dir, create
}

// makeDirs makes the directories of the run and checks the space for the suite.
func (r *runner) makeDirs(ctx context.Context) error {
	d := r.env.Design
	for _, m := range d.Mounts {
		on, dir, create := r.dirOf(m)
		if slices.Contains(r.dirs, dir) {
			continue
		}
		if _, err := r.host(on).Run(ctx, create); err != nil {
			return fmt.Errorf("%s: %w", on, err)
		}
		r.dirs = append(r.dirs, dir)
	}
	free, old := int64(-1), false
	var others []string
	for _, l := range r.lanes {
		f, err := r.prepared(ctx, l)
		if err != nil {
			r.cleanup(ctx)
			return &Unfit{[]string{fmt.Sprintf("%s: %v", l.client, err)}}
		}
		r.facts[l.client] = *f
		for _, o := range f.Others {
			// This run has a directory for each service; those are no other runs.
			if !slices.ContainsFunc(r.lanes, func(x lane) bool { return x.runID == o }) && !slices.Contains(others, o) {
				others = append(others, o)
				r.note(l.client, "%s belongs to another run: if that run is not under way, remove the directory (rm -r)", path.Join(l.dir, o))
			}
		}
		if free < 0 || f.FreeBytes < free {
			free = f.FreeBytes
		}
		if f.Fio == "" {
			r.cleanup(ctx)
			return &Unfit{[]string{fmt.Sprintf("fio is not installed on client %s: %s", l.client, workload.FioInstall)}}
		}
		old = old || !workload.DoesDirectories(f.Fio)
		r.software = append(r.software, report.Row{Name: "fio on " + l.client, Value: f.Fio})
	}
	if old {
		r.leaveDirectories()
	}
	// Services share the load; the smallest volume must hold its part.
	need := int64(0)
	for _, round := range rounds(r.suite, r.sets()) {
		together := int64(0)
		for _, s := range round.sets {
			// Files that are laid out have their full size, even if the measured
			// phases end by time.
			if s.Test.Seconds == 0 || s.Test.layOut() && s.Test.File != 0 {
				together += s.TotalBytes / int64(len(kind.Of(d).Volumes(d)))
			}
		}
		need = max(need, together)
	}
	if need > free*9/10 {
		r.cleanup(ctx)
		mend := "use a smaller --scale, or fewer --tests"
		if r.opt.Scale*float64(free)*0.9/float64(need) > 1e-6 {
			n := 1
			for float64(need)/r.opt.Scale/float64(n) > float64(free)*0.9 {
				n *= 2
			}
			mend = fmt.Sprintf("use --scale 1/%d or less, or fewer --tests", n)
		}
		return &Unfit{[]string{fmt.Sprintf("the suite needs %s at a time, and %s are free; %s", report.Bytes(need), report.Bytes(free), mend)}}
	}
	r.limitSizes(free)
	return nil
}

// limitSizes bounds the sizes of tests that end by time, so that they do not run
// out of space before. Tests whose files exist together get equal parts of the
// space.
func (r *runner) limitSizes(free int64) {
	if len(r.suite.Order) > 0 {
		free /= int64(len(r.suite.Tests))
	}
	for i := range r.suite.Tests {
		t := &r.suite.Tests[i]
		if t.Seconds > 0 && t.metadata() && t.ItemBytes > 0 {
			r.limitItems(t, free)
		}
		if t.Seconds == 0 || t.metadata() || t.File != 0 {
			continue
		}
		total := int64(t.Total)
		total = cmp.Or(total, 2*r.memory)
		if limit := int64(float64(free) / 2 / r.opt.Scale); total > limit {
			total = limit
		}
		t.Total = spec.Bytes(total)
	}
}

// limitItems does the same for the files of metadata tests that have contents.
// A file takes whole blocks of 4 KiB.
func (r *runner) limitItems(t *Test, free int64) {
	each := (int64(t.ItemBytes) + 4095) / 4096 * 4096
	most := int64(0)
	for _, s := range r.sets() {
		if s.Test == t {
			most = max(most, s.Files)
		}
	}
	if fit := free / 2 / each; most > fit {
		t.Items = max(int(float64(t.Items)*float64(fit)/float64(most)), 1)
	}
}

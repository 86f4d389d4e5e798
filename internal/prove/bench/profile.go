package bench

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mortarhpc/mortar/internal/base/lists"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/host/gather"
	"github.com/mortarhpc/mortar/internal/host/netprobe"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/prove/kind"
	"github.com/mortarhpc/mortar/internal/prove/report"
	"github.com/mortarhpc/mortar/internal/prove/workload"
)

// Loads of a profile.
const (
	loadRead   = "sequential read"
	loadWrite  = "sequential write"
	loadRandom = "random 4 KiB read"
)

// probe is the duration of each measurement of a profile or of raw devices, seconds.
func (o *Options) probe() int { return cmp.Or(o.Seconds, 3) }

// profiler measures the layers of a brick in a run.
type profiler struct{ *runner }

// profile measures every layer bottom up. It notes a layer that it cannot
// measure and goes on with the others.
func (r *profiler) profile(ctx context.Context) {
	steps := r.layers(ctx)
	r.steps += len(steps)
	for _, s := range steps {
		if ctx.Err() != nil {
			return
		}
		r.step++
		r.say(Progress{State: "profile: " + s.title, Left: r.left(0, 0)})
		began := time.Now()
		l := report.Layer{Name: s.name, Title: s.title, Results: []report.LayerValue{}, Source: sources[s.name]}
		if err := s.run(ctx, &l); err != nil {
			if ctx.Err() != nil {
				return
			}
			l.Error = err.Error()
			r.note("", "%s could not be profiled: %v", s.title, err)
			r.reasons = append(r.reasons, s.title+" was not measured")
		}
		r.stepSeconds = append(r.stepSeconds, time.Since(began).Seconds())
		l.Results = slices.DeleteFunc(l.Results, func(v report.LayerValue) bool { return len(v.Grid) == 0 }) // of what has failed
		for i := range l.Results {
			v := &l.Results[i]
			if v.Below = s.below; v.Below == "" {
				continue
			}
			if b := best(r.bench.Layers, s.below, v.Load); b > 0 {
				v.Share = new(v.Best / b)
			} else {
				v.Below = ""
			}
		}
		r.bench.Layers = append(r.bench.Layers, l)
		if _, err := r.save(false); err != nil {
			r.note("", "%v", err)
		}
	}
}

// survey are the cells of a layer, regions or objects and threads in each: those of one of the Lustre paper's surveys,
// each of xs with up to 64 threads in all, or a few if no survey was asked for.
func (o *Options) survey(xs []int, least int) [][2]int {
	if !o.Survey {
		return [][2]int{{1, 1}, {1, 4}, {4, 1}, {4, 4}}
	}
	var out [][2]int
	for _, x := range xs {
		for n := max(x, least); n <= 64; n *= 2 {
			out = append(out, [2]int{x, n / x})
		}
	}
	return out
}

// regions is the grid of reads or writes of devices: regions of each, and threads in each region.
func (o *Options) regions() [][2]int { return o.survey([]int{1, 2, 4, 8, 16}, 1) }

// objects is the grid of OSTs: objects on each, and threads on each object.
func (o *Options) objects() [][2]int { return o.survey([]int{2, 4, 8, 16}, 2) }

// selfTests are the numbers of clients, and of records at a time, of LNet's self-test.
func (o *Options) selfTests(clients int) (counts, at []int) {
	if !o.Survey {
		return []int{clients}, []int{1, 8}
	}
	for n := 1; n < min(clients, 16); n *= 2 {
		counts = append(counts, n)
	}
	return append(counts, min(clients, 16)), []int{1, 2, 4, 8, 16, 32}
}

// sources are the tools and figures of the Lustre paper that a layer repeats.
var sources = map[string]string{
	"volume": "as sgpdd-survey; the Lustre paper has the reads in figures 12 and 14", "osts": "as obdfilter-survey, the Lustre paper's figures 15 and 16",
	"lnet": "as LNet's self-test, the Lustre paper's figures 17 and 18",
}

// layer is one that a profile measures.
type layer struct {
	name, title string
	below       string // the layer that it is compared with; "": none
	run         func(context.Context, *report.Layer) error
}

// layers lists the layers of a brick, from the bottom to the clients.
func (r *profiler) layers(ctx context.Context) []layer {
	disks, groups, volumes := r.devices(ctx)
	read := func(all []device) func(context.Context, *report.Layer) error {
		return func(ctx context.Context, l *report.Layer) error { return r.readDevices(ctx, l, all) }
	}
	osts, name := r.osts(), kind.Of(r.env.Design).Is().Mount
	of, below := report.Plural(len(disks), "raw disk"), "raid"
	if len(groups) == 0 {
		of, below = report.Plural(len(disks), "LUN"), "disks"
	}
	mounts := func(n int) func(context.Context, *report.Layer) error {
		return func(ctx context.Context, l *report.Layer) error { return r.probeMounts(ctx, l, n) }
	}
	many := len(r.clients)
	known := map[string]layer{
		"disks":        {"", of, "", read(disks)},
		"raid":         {"", "RAID, " + report.Plural(len(groups), "group"), "disks", read(groups)},
		"volume":       {"", report.Plural(len(volumes), "logical volume"), below, read(volumes)},
		"filesystem":   {"", "XFS, on " + strings.Join(r.active(), " and "), "volume", r.probeLocal},
		"osts":         {"", report.Plural(len(osts), "OST"), "volume", func(ctx context.Context, l *report.Layer) error { return r.probeOSTs(ctx, l, osts) }},
		"verbs":        {"", "network, RDMA", "", r.probeVerbs},
		"network":      {"", "network, TCP", "", r.probeNetwork},
		"lnet":         {"", "LNet", "network", r.probeLNet},
		name + "-one":  {"", kindTitles[name] + ", one client", between(r.env.Design, r.env.Virtual)[0], mounts(1)},
		name + "-many": {"", fmt.Sprintf("%s, %d clients", kindTitles[name], many), between(r.env.Design, r.env.Virtual)[0], mounts(many)},
	}
	var out []layer
	names, _ := r.opt.layersOf(r.env.Design, many, r.env.Virtual) // Run has refused others
	for _, n := range names {
		l := known[n]
		l.name = n
		out = append(out, l)
	}
	if many < 2 {
		r.note("", "there is one client host: %s with many clients could not be profiled", kindTitles[name])
	}
	return out
}

// between are the layers between the volumes and the mounts.
func between(d *design.Design, virtual bool) []string {
	all := slices.Clone(kind.Of(d).Is().Between)
	if s := d.Spec; s.SoftRoCE() || s.Networks.Public.Link == "infiniband" && !virtual {
		all = append(all, "verbs")
	}
	return all
}

// layersOf names the layers of a brick that are to be measured. It refuses one that the brick
// has not.
func (o *Options) layersOf(d *design.Design, clients int, virtual bool) ([]string, error) {
	all := layersOf(d, clients, virtual)
	if len(o.Layers) == 0 {
		return all, nil
	}
	for _, n := range o.Layers {
		if !slices.Contains(all, n) {
			return nil, &Unfit{[]string{fmt.Sprintf("the brick has no layer %q; it has %s", n, strings.Join(all, ", "))}}
		}
	}
	return lists.Only(all, func(n string) bool { return slices.Contains(o.Layers, n) }), nil
}

// layersOf names the layers of a brick, from the bottom to the clients.
func layersOf(d *design.Design, clients int, virtual bool) []string {
	out := []string{"disks", "raid", "volume"}
	if !slices.ContainsFunc(d.Services(), func(s *design.Service) bool { return kind.Of(d).HoldsData(s) && len(d.MDGroups(s)) > 0 }) {
		out = []string{"disks", "volume"}
	}
	middle := between(d, virtual)
	for _, n := range []string{"filesystem", "osts", "verbs", "network", "lnet"} { // each above what it is compared with
		if slices.Contains(middle, n) {
			out = append(out, n)
		}
	}
	name := kind.Of(d).Is().Mount
	if out = append(out, name+"-one"); clients > 1 {
		out = append(out, name+"-many")
	}
	return out
}

// cells is the number of measurements of a layer, with that many clients.
func (o *Options) cells(layer string, clients int) int {
	switch layer {
	case "disks", "raid", "volume": // read in order and at random
		return 2 * len(o.regions())
	case "osts":
		return 2 * len(o.objects())
	case "verbs":
		return 2
	case "network":
		return 2 * 2 * 2 // directions, streams, records at a time
	case "lnet":
		counts, at := o.selfTests(clients)
		return 2 * len(counts) * len(at)
	}
	return 3 * len(fileThreads) // files: loads
}

// device is a block device on a server.
type device struct{ server, path string }

// dataService is the first service that has data.
func (r *profiler) dataService() *design.Service {
	all := r.env.Design.Services()
	return all[slices.IndexFunc(all, kind.Of(r.env.Design).HoldsData)]
}

// devices finds what the brick's volumes of data are made of, where they are in use.
func (r *profiler) devices(ctx context.Context) (disks, groups, volumes []device) {
	d := r.env.Design
	for _, v := range d.Services() {
		if !kind.Of(d).HoldsData(v) {
			continue
		}
		server := r.serves[v.Name]
		facts, err := host.Ask(ctx, r.host(server), gather.Op, gather.Request{Disks: true})
		if err != nil {
			r.note(server, "its disks could not be listed: %v", err)
		}
		for _, g := range d.MDGroups(v) {
			groups = append(groups, device{server, "/dev/md/" + g.Name})
			for _, m := range g.Members {
				i := slices.IndexFunc(facts.Disks, func(f resource.DiskFact) bool {
					return f.Serial != "" && f.Serial == m.Serial || m.WWN != "" && strings.EqualFold(f.WWN, m.WWN)
				})
				if i >= 0 {
					disks = append(disks, device{server, facts.Disks[i].Device})
				}
			}
		}
		for _, l := range v.Storage.LUNs {
			disks = append(disks, device{server, l})
		}
		for _, name := range v.Volumes() {
			volumes = append(volumes, device{server, "/dev/" + name})
		}
		if v.Storage.Device != "" {
			volumes = append(volumes, device{server, v.Storage.Device})
		}
	}
	return disks, groups, volumes
}

// readDevices measures reads of devices, which may be in use: fio opens them read-only and with O_DIRECT.
func (r *profiler) readDevices(ctx context.Context, l *report.Layer, all []device) error {
	if len(all) == 0 {
		return errors.New("there is none")
	}
	by := map[string]devices{}
	for _, d := range all {
		by[d.server] = devices{paths: append(by[d.server].paths, d.path)}
	}
	if err := r.onDevices(ctx, l, loadRead, by); err != nil {
		return err
	}
	return r.onDevices(ctx, l, loadRandom, by)
}

// probed carries out one measurement on files.
func (r *profiler) probed(ctx context.Context, s *Set, op workload.BenchPhase, unit string, use []lane, regions map[string][]workload.BenchRegion) (*report.BenchRun, error) {
	shares, err := r.phase(ctx, s, setPhase{op: op, measured: true}, use, regions)
	for i := range shares {
		switch x := &shares[i]; {
		case x.err != nil:
			err = errors.Join(err, fmt.Errorf("%s: %w", x.client, x.err))
		case x.result != nil:
			for _, t := range x.result.Threads {
				if t.Fault != "" {
					err = errors.Join(err, fmt.Errorf("%s: %s", x.client, t.Error))
					break
				}
			}
			regions[use[i].service] = workload.MergeRegions(regions[use[i].service], x.result.Regions)
		}
	}
	if err = cmp.Or(err, ctx.Err()); err != nil {
		return nil, err
	}
	return new(join(shares, op, unit, spreadEvenly(op, s.Test.IO == "direct"))), nil
}

// addLoad adds a kind of load to a layer.
func addLoad(l *report.Layer, load string) *report.LayerValue {
	l.Results = append(l.Results, report.LayerValue{Load: load, Unit: unitOf(load)})
	return &l.Results[len(l.Results)-1]
}

func unitOf(load string) string {
	if load == loadRandom {
		return "ops/s"
	}
	return "MiB/s"
}

// addPoint adds a measurement, whose parameters are x and y, to a layer's figures.
func addPoint(v *report.LayerValue, x, y int, value, seconds float64, at string) {
	v.Grid = append(v.Grid, report.LayerPoint{X: x, Y: y, Value: value, Seconds: seconds})
	if value > v.Best {
		v.Best, v.At = value, at
	}
}

// summed has every host measure at once, and sums their rates up.
func summed(ctx context.Context, hosts []string, rate func(ctx context.Context, host string) (float64, error)) (sum float64, err error) {
	got, failed := host.All(ctx, hosts, rate)
	for _, v := range got {
		sum += v
	}
	return sum, failed.Join()
}

// fileThreads are the numbers of threads on each lane of a profile's files.
var fileThreads = []int{1, 4}

// fileProbes measures writes of files on lanes, then reads with cold caches, at
// several thread counts of each lane.
func (r *profiler) fileProbes(ctx context.Context, l *report.Layer, use []lane, before func() error) error {
	var free int64 = math.MaxInt64
	for _, x := range use {
		f, err := r.prepared(ctx, x)
		if err != nil {
			return fmt.Errorf("%s: %w", x.client, err)
		}
		free = min(free, f.FreeBytes)
	}
	defer func() {
		cctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanTime)
		defer cancel()
		if err := r.removeSet(cctx, use, ""); err != nil {
			r.note("", "files of the profile may be left: %v", err)
		}
	}()
	loads := []string{loadWrite, loadRead, loadRandom}
	for _, load := range loads {
		addLoad(l, load)
	}
	for _, n := range fileThreads {
		// Enough data for a probe, if the volume has the space.
		total := min(2*r.memory, free/4)
		per := max(total/int64(n*len(use))>>20<<20, 4<<20)
		regions := map[string][]workload.BenchRegion{}
		for i, load := range loads {
			op := []workload.BenchPhase{workload.SeqWrite, workload.SeqRead, workload.RandRead}[i]
			t := &Test{Name: "profile", Title: "Profile: " + load, Phases: []string{string(op)}, Seconds: r.opt.probe(), Layout: string(workload.OwnFile), Record: spec.MiB, IO: "direct"}
			switch {
			case load == loadWrite:
				t.IO = "buffered"
			case load == loadRandom:
				t.Record = 4 * spec.KiB
			}
			if load != loadWrite && before != nil {
				if err := before(); err != nil {
					return err
				}
			}
			s := &Set{Test: t, Name: fmt.Sprintf("profile.%d", n), Threads: n * len(use), Lanes: len(use), PerLane: n, RecordBytes: int64(t.Record), FileBytes: per}
			got, err := r.probed(ctx, s, op, unitOf(load), use, regions)
			if err != nil {
				return err
			}
			addPoint(&l.Results[i], n*len(use), 1, got.Value, got.WholeSeconds, report.Plural(n*len(use), "thread"))
		}
		if err := r.removeSet(ctx, use, fmt.Sprintf("profile.%d", n)); err != nil {
			return err
		}
	}
	return nil
}

// dropServer drops the page cache of the servers.
func (r *site) dropServer(ctx context.Context) error {
	return host.Each(ctx, r.active(), func(ctx context.Context, server string) error {
		return errors.Join(r.do(ctx, server, "write out what is dirty", "sync"),
			r.do(ctx, server, "drop the page cache", "sysctl", "-q", "-w", "vm.drop_caches=3"))
	})
}

// probeLocal measures XFS on the servers themselves.
func (r *profiler) probeLocal(ctx context.Context, l *report.Layer) error {
	var use []lane
	seen := map[string]bool{}
	for _, m := range r.env.Design.Mounts {
		if _, dir, ok := strings.Cut(m.Source, ":"); ok && !seen[m.Service] {
			seen[m.Service] = true
			use = append(use, lane{client: r.serves[m.Service], service: m.Service, dir: path.Join(dir, benchDir), runID: r.runID + "-xfs-" + m.Service, of: 1})
		}
	}
	return r.fileProbes(ctx, l, use, nil)
}

// probeMounts measures the mounts of some clients.
func (r *profiler) probeMounts(ctx context.Context, l *report.Layer, clients int) error {
	var use []lane
	for _, x := range r.lanes {
		if slices.Index(r.clients, x.client) < clients {
			x.runID = fmt.Sprintf("%s-n%d-%s", r.runID, clients, x.service)
			use = append(use, x)
		}
	}
	use = numbered(use)
	return r.fileProbes(ctx, l, use, func() error { return r.dropServer(ctx) })
}

// serving is the server of the first service with data, and its address on the clients' network.
func (r *profiler) serving() (name, address string) {
	name = r.serves[r.dataService().Name]
	return name, r.env.Design.PublicOf(name)
}

// probeVerbs measures RDMA between a server and all clients at once, with perftest.
// Source: ib_write_bw(1), ib_read_bw(1)
func (r *profiler) probeVerbs(ctx context.Context, l *report.Layer) error {
	for _, tool := range []string{"ib_read_bw", "ib_write_bw"} {
		v := addLoad(l, map[string]string{"ib_read_bw": loadRead, "ib_write_bw": loadWrite}[tool])
		sum, err := summed(ctx, r.clients, func(ctx context.Context, c string) (float64, error) { return r.verbs(ctx, tool, c) })
		if err != nil {
			return fmt.Errorf("%w (both ends need perftest: apt-get install perftest)", err)
		}
		addPoint(v, len(r.clients), 1, sum, float64(r.opt.probe()), tool+" of "+report.Plural(len(r.clients), "client"))
	}
	return nil
}

// verbs is the rate between one client and the server, MiB/s.
func (r *profiler) verbs(ctx context.Context, tool, client string) (float64, error) {
	server, address := r.serving()
	port := strconv.Itoa(18515 + slices.Index(r.clients, client))
	a := resource.Action{Title: "measure RDMA", Cmd: []string{tool, "-R", "-D", strconv.Itoa(r.opt.probe()), "-p", port, "--output=bandwidth"}, Seconds: r.opt.probe() + 60, Beside: "perftest " + port}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := r.host(server).Run(ctx, a)
		ended <- err
	}()
	a.Cmd = append(slices.Clone(a.Cmd), address)
	var last error
	for range 10 { // until the server listens
		select {
		case err := <-ended:
			return 0, fmt.Errorf("%s: %w", server, cmp.Or(err, last, errors.New("it measured nothing")))
		case <-time.After(time.Second):
		}
		out, err := r.host(client).Run(ctx, a)
		if err != nil {
			last = fmt.Errorf("%s: %w", client, err)
			continue
		}
		fields := strings.Fields(out.Stdout)
		if len(fields) == 0 {
			return 0, fmt.Errorf("%s: %s printed no rate", client, tool)
		}
		return strconv.ParseFloat(fields[len(fields)-1], 64)
	}
	return 0, last
}

// probeNetwork measures TCP between the servers' public addresses and all
// clients at once.
func (r *profiler) probeNetwork(ctx context.Context, l *report.Layer) error {
	var secret [16]byte
	if _, err := rand.Read(secret[:]); err != nil {
		return err
	}
	tok := hex.EncodeToString(secret[:])
	sctx, cancel := context.WithCancel(ctx)
	defer cancel()
	server, address := r.serving()
	port, ended := make(chan int, 1), make(chan error, 1)
	go func() {
		_, err := host.Watch(sctx, r.host(server), netprobe.OpServe, netprobe.ServeParams{Address: address, Token: tok, Seconds: 600}, func(e netprobe.ServeEvent) { port <- e.Port })
		ended <- err
	}()
	var at int
	select {
	case at = <-port:
	case err := <-ended:
		return fmt.Errorf("%s: %w", server, errors.Join(err, errors.New("it does not listen")))
	case <-time.After(30 * time.Second):
		return fmt.Errorf("%s: it does not listen", server)
	}
	for _, write := range []bool{false, true} {
		v := addLoad(l, map[bool]string{false: loadRead, true: loadWrite}[write])
		for _, streams := range []int{1, 4} {
			for _, conc := range []int{1, 8} {
				p := netprobe.RunParams{Address: address, Port: at, Token: tok, Streams: streams, Concurrency: conc, Write: write, Seconds: float64(r.opt.probe())}
				sum, err := summed(ctx, r.clients, func(ctx context.Context, c string) (float64, error) {
					res, err := host.Ask(ctx, r.host(c), netprobe.OpRun, p)
					if err != nil {
						return 0, fmt.Errorf("%s: %w", c, err)
					}
					return float64(res.Bytes) / (1 << 20) / res.Seconds, nil
				})
				if err != nil {
					return err
				}
				addPoint(v, streams, conc, sum, float64(r.opt.probe()), report.Plural(streams, "stream")+" from each client, "+report.Plural(conc, "record")+" at a time in each")
			}
		}
	}
	return nil
}

// best is the best figure of a layer for a load; 0 if it was not measured.
func best(layers []report.Layer, name, load string) float64 {
	for _, l := range layers {
		for _, v := range l.Results {
			if l.Name == name && v.Load == load {
				return v.Best
			}
		}
	}
	return 0
}

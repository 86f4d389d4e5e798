package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/prove/kind"
	"github.com/mortarhpc/mortar/internal/prove/report"
	"github.com/mortarhpc/mortar/internal/prove/testbed"
	"github.com/mortarhpc/mortar/internal/prove/workload"
)

// SuiteRaw is the name of the suite that Run carries out before apply.
const SuiteRaw = "raw"

// bare is the disks or LUNs of the services of a server, before they carry anything.
type bare struct{ devices, serials []string }

// raw writes the bare LUNs or disks of a brick that is not built, all at once, and reads them, as sgpdd-survey
// does. It writes zeroes, so that they carry nothing afterwards. The agent looks right before each write, and
// refuses a device that carries anything.
// Source: High Performance, Open Source, Dell Lustre Storage System, section 10.2
func raw(ctx context.Context, env Env, suite *Suite, opt Options) (*report.Run, error) {
	opt.Scale = 1
	r := &profiler{&runner{suite: suite, opt: opt}}
	r.env, r.began, r.often, r.serves = env, time.Now(), map[string]*often{}, map[string]string{}
	r.runID = fmt.Sprintf("raw-%s-%s", r.began.UTC().Format("20060102T150405"), uuid.NewString()[:8])
	r.bench.Phases, r.bench.Layers = []report.BenchPhase{}, []report.Layer{}
	defer r.hosts.Close()
	for i, s := range env.Design.Services() {
		if kind.Of(env.Design).HoldsData(s) {
			server := env.Design.Spec.Servers[i%len(env.Design.Spec.Servers)].Name
			r.serves[s.Name] = server
			if !slices.Contains(r.servers, server) {
				r.servers = append(r.servers, server)
			}
		}
	}
	if err := host.Each(ctx, r.servers, r.connect); err != nil {
		return nil, &Unfit{[]string{err.Error()}}
	}
	all, failed := host.All(ctx, r.servers, r.bare)
	if err := failed.Join(); err != nil {
		return nil, &Unfit{[]string{err.Error()}}
	}
	n := 0
	for _, b := range all {
		n += len(b.devices)
	}
	if n == 0 {
		return nil, &Unfit{[]string{"the spec names no disk or LUN of data"}}
	}
	r.software = testbed.Versions(ctx, r.servers, r.host)
	l := report.Layer{Name: "disks", Title: report.Plural(n, "bare device"), Source: "as sgpdd-survey, the Lustre paper's figures 11 to 14"}
	if err := r.rawGrid(ctx, &l, all); err != nil {
		if len(l.Results[0].Grid) == 0 {
			return nil, &Unfit{[]string{err.Error()}} // the first write was refused
		}
		l.Error = err.Error()
		r.reasons = append(r.reasons, l.Error)
	}
	r.bench.Layers = append(r.bench.Layers, l)
	return r.save(true)
}

// bare finds the devices that the brick's data will be on.
func (r *profiler) bare(ctx context.Context, server string) (b bare, err error) {
	facts, err := r.host(server).Facts(ctx)
	if err != nil {
		return b, err
	}
	for _, s := range r.env.Design.Services() {
		if r.serves[s.Name] != server {
			continue
		}
		for _, want := range behind(r.env.Design, &s.Storage) {
			i := slices.IndexFunc(facts.Disks, func(f resource.DiskFact) bool {
				return want != "" && (strings.EqualFold(f.Serial, want) || strings.EqualFold(f.WWN, want))
			})
			if i < 0 {
				return b, fmt.Errorf("%s sees no disk or LUN %q (of an array: mortar array script configures it)", server, want)
			}
			b.devices, b.serials = append(b.devices, facts.Disks[i].Device), append(b.serials, want)
		}
	}
	return b, nil
}

// rawGrid measures writes, then reads, of each cell of the grid on all servers at once.
func (r *profiler) rawGrid(ctx context.Context, l *report.Layer, all map[string]bare) error {
	grid := r.opt.survey(readProbe.grids, []int{1, 2, 4, 8, 16}, 1)
	r.steps = 2 * len(grid)
	for _, write := range []bool{true, false} {
		l.Results = append(l.Results, report.LayerValue{Load: map[bool]string{false: loadRead, true: loadWrite}[write], Unit: "MiB/s"})
		v := &l.Results[len(l.Results)-1]
		for _, g := range grid {
			r.step++
			at := report.Plural(g[0], "region") + " of each device, " + report.Plural(g[1], "thread") + " in each"
			r.say(Progress{State: "bare devices, " + v.Load + ": " + at, Left: r.left(0, 0)})
			began := time.Now()
			rates, failed := host.All(ctx, r.servers, func(ctx context.Context, server string) (float64, error) {
				return r.rawCell(ctx, server, all[server], g, write)
			})
			if err := failed.Join(); err != nil {
				return err
			}
			sum := 0.0
			for _, rate := range rates {
				sum += rate
			}
			r.stepSeconds = append(r.stepSeconds, time.Since(began).Seconds())
			addPoint(v, g[0], g[1], sum, float64(probeSeconds), at)
		}
	}
	return nil
}

// rawCell has fio write or read regions × threads on all devices of a server, MiB/s.
func (r *profiler) rawCell(ctx context.Context, server string, b bare, g [2]int, write bool) (float64, error) {
	a := resource.Action{Title: "read bare devices", Cmd: rawCommand(b.devices, g, write), Seconds: probeSeconds + 120}
	if write {
		a.Title, a.Destroys, a.Blank = "write zeroes to bare devices", b.serials, b.devices
	}
	out, err := r.host(server).Run(ctx, a)
	if err != nil {
		return 0, fmt.Errorf("%s: %w (fio: %s)", server, err, workload.FioInstall)
	}
	return rawRate(out.Stdout, write)
}

// rawCommand is fio's for one cell: the threads of a region take turns with its records of 1 MiB.
func rawCommand(devices []string, g [2]int, write bool) []string {
	rw := map[bool]string{false: "read", true: "write"}[write]
	if g[1] > 1 {
		rw += fmt.Sprintf(":%dm", g[1]-1)
	}
	argv := []string{"fio", "--output-format=json", "--thread=1", "--group_reporting=1", "--ioengine=psync", "--direct=1", "--zero_buffers=1", "--bs=1m", "--rw=" + rw,
		fmt.Sprintf("--runtime=%d", probeSeconds), fmt.Sprintf("--numjobs=%d", g[1]), "--offset_increment=1m"}
	if !write {
		argv = append(argv, "--readonly")
	}
	for i, d := range devices {
		for n := range g[0] {
			// In per cent of the device: one per cent stays free for the threads' increments.
			argv = append(argv, fmt.Sprintf("--name=d%d.%d", i, n), "--filename="+strings.ReplaceAll(d, ":", `\:`),
				fmt.Sprintf("--offset=%d%%", 100*n/g[0]), fmt.Sprintf("--size=%d%%", 100/g[0]-1))
		}
	}
	return argv
}

// rawRate reads fio's report: the rate of all jobs together, MiB/s.
func rawRate(text string, write bool) (float64, error) {
	type side struct {
		Bytes float64 `json:"bw_bytes"` // a second
	}
	var out struct {
		Jobs []struct {
			Error       int
			Read, Write side
		}
	}
	if i := strings.Index(text, "{\n"); i > 0 {
		text = text[i:] // messages may precede it
	}
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		return 0, fmt.Errorf("fio's report: %w", err)
	}
	sum := 0.0
	for _, j := range out.Jobs {
		if j.Error != 0 {
			return 0, fmt.Errorf("fio ended with error %d", j.Error)
		}
		if write {
			sum += j.Write.Bytes
		} else {
			sum += j.Read.Bytes
		}
	}
	if sum <= 0 {
		return 0, errors.New("fio moved nothing")
	}
	return sum / (1 << 20), nil
}

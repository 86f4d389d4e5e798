package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/host/agent"
	"github.com/mortarhpc/mortar/internal/host/gather"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/prove/kind"
	"github.com/mortarhpc/mortar/internal/prove/report"
	"github.com/mortarhpc/mortar/internal/prove/testbed"
	"github.com/mortarhpc/mortar/internal/prove/workload"
)

// SuiteRaw is the name of the suite that Run carries out before apply.
const SuiteRaw = "raw"

// devices are disks, LUNs, arrays or volumes on a server; serials are those of disks and LUNs
// that carry nothing yet.
type devices struct{ paths, serials []string }

// raw writes the bare LUNs or disks of a brick that is not built, all at once, and reads them, as sgpdd-survey
// does. It writes zeroes, so that they carry nothing afterwards. The agent looks right before each write, and
// refuses a device that carries anything.
// Source: High Performance, Open Source, Dell Lustre Storage System, section 10.2
func raw(ctx context.Context, env Env, suite *Suite, opt Options) (*report.Run, error) {
	opt.Scale = 1
	r := &profiler{&runner{suite: suite, opt: opt}}
	r.env, r.began, r.serves = env, time.Now(), map[string]string{}
	r.runID = fmt.Sprintf("raw-%s-%s", r.began.UTC().Format("20060102T150405"), uuid.NewString()[:8])
	r.bench.Phases, r.bench.Layers = []report.BenchPhase{}, []report.Layer{}
	defer r.hosts.Close()
	for _, s := range env.Design.Services() {
		if kind.Of(env.Design).HoldsData(s) {
			r.serves[s.Name] = s.Preferred
			if !slices.Contains(r.servers, s.Preferred) {
				r.servers = append(r.servers, s.Preferred)
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
	for _, d := range all {
		n += len(d.paths)
	}
	if n == 0 {
		return nil, &Unfit{[]string{"the spec names no disk or LUN of data"}}
	}
	r.software = testbed.Versions(ctx, r.servers, r.host)
	l := report.Layer{Name: "disks", Title: report.Plural(n, "bare device"), Source: "as sgpdd-survey, the Lustre paper's figures 11 to 14"}
	r.steps = 2 * len(r.opt.regions())
	for _, load := range []string{loadWrite, loadRead} {
		if err := r.onDevices(ctx, &l, load, all); err != nil {
			if len(l.Results[0].Grid) == 0 {
				return nil, &Unfit{[]string{err.Error()}} // the first write was refused
			}
			l.Error = err.Error()
			r.reasons = append(r.reasons, l.Error)
			break
		}
	}
	r.bench.Layers = append(r.bench.Layers, l)
	return r.save(true)
}

// bare finds the devices that the brick's data will be on.
func (r *profiler) bare(ctx context.Context, server string) (d devices, err error) {
	facts, err := host.Ask(ctx, r.host(server), gather.Op, gather.Request{Disks: true})
	if err != nil {
		return d, err
	}
	for _, s := range r.env.Design.Services() {
		if r.serves[s.Name] != server {
			continue
		}
		for _, want := range disksBelow(r.env.Design, &s.Storage) {
			i := slices.IndexFunc(facts.Disks, func(f resource.DiskFact) bool {
				return want != "" && (strings.EqualFold(f.Serial, want) || strings.EqualFold(f.WWN, want))
			})
			if i < 0 {
				return d, fmt.Errorf("%s sees no disk or LUN %q (of an array: mortar array script configures it)", server, want)
			}
			d.paths, d.serials = append(d.paths, facts.Disks[i].Device), append(d.serials, want)
		}
	}
	return d, nil
}

// onDevices measures a load in each cell of its grid, on the devices of all servers at once.
// Devices may be in use if they are read.
func (r *profiler) onDevices(ctx context.Context, l *report.Layer, load string, all map[string]devices) error {
	grid := r.opt.regions()
	if load == loadRandom {
		// One region: the place of a random record does not matter.
		grid = [][2]int{{1, 1}, {1, 8}, {1, 32}}
	}
	v := addLoad(l, load)
	for _, g := range grid {
		at := report.Plural(g[0], "region") + " of each device, " + report.Plural(g[1], "thread") + " in each"
		if r.suite.Name == SuiteRaw { // a layer of a profile is one step
			r.step++
			r.say(Progress{State: "bare devices, " + load + ": " + at, Left: r.left(0, 0)})
		}
		began := time.Now()
		sum, err := summed(ctx, slices.Sorted(maps.Keys(all)), func(ctx context.Context, server string) (float64, error) {
			return r.onServer(ctx, server, all[server], g, load)
		})
		if err != nil {
			return err
		}
		if r.suite.Name == SuiteRaw {
			r.stepSeconds = append(r.stepSeconds, time.Since(began).Seconds())
		}
		addPoint(v, g[0], g[1], sum, float64(r.opt.probe()), at)
	}
	return nil
}

// onServer has fio make regions × threads of a load on all devices of a server, and returns its rate.
func (r *profiler) onServer(ctx context.Context, server string, d devices, g [2]int, load string) (float64, error) {
	a := resource.Action{Title: "read devices", Cmd: deviceCommand(d.paths, g, load, r.opt.probe()), Seconds: r.opt.probe() + 120}
	if load == loadWrite {
		a.Title, a.Destroys, a.Blank = "write zeroes to bare devices", d.serials, d.paths
	}
	out, err := r.host(server).Run(ctx, a)
	if err != nil {
		if e := (*agent.Error)(nil); errors.As(err, &e) && e.Cause == resource.NotInstalled {
			err = fmt.Errorf("%w (fio: %s)", err, workload.FioInstall)
		}
		return 0, fmt.Errorf("%s: %w", server, err)
	}
	return deviceRate(out.Stdout, load)
}

// deviceCommand is fio's for one cell: the threads of a region take turns with its records of 1 MiB, or read 4 KiB
// at random in it.
func deviceCommand(devices []string, g [2]int, load string, seconds int) []string {
	rw := map[string]string{loadRead: "read", loadWrite: "write", loadRandom: "randread"}[load]
	size := "1m"
	if load == loadRandom {
		size = "4k"
	} else if g[1] > 1 {
		rw += fmt.Sprintf(":%dm", g[1]-1)
	}
	argv := []string{"fio", "--output-format=json", "--thread=1", "--group_reporting=1", "--ioengine=psync", "--direct=1", "--zero_buffers=1", "--bs=" + size, "--rw=" + rw,
		fmt.Sprintf("--runtime=%d", seconds), fmt.Sprintf("--numjobs=%d", g[1]), "--offset_increment=1m"}
	if load != loadWrite {
		argv = append(argv, "--readonly")
	}
	if load == loadRandom {
		argv = append(argv, "--norandommap") // a map of a large disk takes the server's memory
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

// deviceRate reads fio's report: the rate of all jobs together, MiB/s or operations a second.
func deviceRate(text, load string) (float64, error) {
	type side struct {
		Bytes float64 `json:"bw_bytes"` // a second
		IOPS  float64
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
		sum += map[string]float64{loadRead: j.Read.Bytes / (1 << 20), loadWrite: j.Write.Bytes / (1 << 20), loadRandom: j.Read.IOPS}[load]
	}
	if sum <= 0 {
		return 0, errors.New("fio moved nothing")
	}
	return sum, nil
}

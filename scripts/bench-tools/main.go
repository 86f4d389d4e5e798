// Command bench-tools compares the speed of Mortar's load engine with fio's
// and mdtest's on this machine: how much of the client's CPU goes into making
// the load itself. `make bench-tools` runs it; lab/engine.md tells what
// came of it.
//
// All run on tmpfs, one thread, in turn, several times over; the median
// counts. Figures are per CPU-second of the whole process (user and system,
// start to end), as wall time on a shared machine is not worth much; metadata
// rates are per second of the phase, as mdtest gives them, and need a quiet
// machine.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/host/agent"
	"github.com/mortarhpc/mortar/internal/prove/stream"
	"github.com/mortarhpc/mortar/internal/prove/workload"
)

func main() {
	mortar := flag.String("mortar", "bin/mortar", "the binary to try")
	dir := flag.String("dir", "/dev/shm", "a directory on tmpfs")
	mib := flag.Int64("mib", 1024, "MiB of data in each phase")
	runs := flag.Int("runs", 5, "how often each is run")
	asJSON := flag.Bool("json", false, "print the measurements as JSON")
	agree := flag.String("agree", "", "instead: compare the rates that Mortar and fio find on the file system of this directory")
	seconds := flag.Float64("seconds", 5, "with -agree: how long a random phase lasts")
	limit := flag.Duration("limit", time.Hour, "with -agree: begin no further run after so long")
	only := flag.String("only", "", "only measurements whose name contains one of these, with commas")
	flag.Parse()
	b := &bench{mortar: *mortar, bytes: *mib << 20, only: *only, regions: map[string][]workload.BenchRegion{}}
	var ok bool
	var err error
	if *agree != "" {
		ok, err = b.agree(*agree, *runs, *seconds, *limit, *asJSON)
	} else {
		ok, err = b.run(*dir, *runs, *asJSON)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench-tools:", err)
		os.Exit(1)
	}
	if !ok {
		os.Exit(1)
	}
}

// sample is one run of one tool.
type sample struct {
	amount  float64 // MiB or operations
	bytes   float64
	seconds float64 // of the phase
	own     float64 // of these, making or comparing data; mean of the threads
	cpu     float64 // of the process
}

// measurement is one tool at one task.
type measurement struct {
	Name    string    `json:"name"`
	Unit    string    `json:"unit"`
	Values  []float64 `json:"values"`
	Median  float64   `json:"median"`
	Seconds []float64 `json:"wall_seconds"`
	CPU     []float64 `json:"cpu_seconds"`
	do      func() (sample, error)
	wall    bool // amount per second of the phase, not of the CPU
	settled bool // all files are read before it
	scale   float64
}

// goal is a ratio of two measurements that is to be reached.
type goal struct {
	Name  string  `json:"name"`
	Over  string  `json:"over"`
	Least float64 `json:"at_least"`
	Ratio float64 `json:"ratio"`
	// Floor is what the kernel does in any case. Where it alone falls short of
	// the goal, missing that is no failure of ours.
	Floor      string  `json:"floor,omitempty"`
	FloorRatio float64 `json:"floor_ratio,omitempty"`
}

func (g *goal) reached() bool { return g.Ratio >= g.Least || g.Floor != "" && g.FloorRatio < g.Least }

type bench struct {
	mortar  string
	bytes   int64
	only    string
	dir     string
	regions map[string][]workload.BenchRegion
	mdtest  bool
}

// wanted says whether a measurement is one of -only.
func (b *bench) wanted(name string) bool {
	return slices.ContainsFunc(strings.Split(b.only, ","), func(part string) bool { return strings.Contains(name, part) })
}

const (
	branch, items = 100, 1000
	runID         = "bench-tools"
)

func (b *bench) run(dir string, runs int, asJSON bool) (bool, error) {
	for _, exe := range []string{b.mortar, "fio"} {
		if _, err := exec.LookPath(exe); err != nil {
			return false, err
		}
	}
	_, err := exec.LookPath("mdtest")
	b.mdtest = err == nil
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return false, err
	}
	if st.Type != unix.TMPFS_MAGIC {
		return false, fmt.Errorf("%s is not on tmpfs", dir)
	}
	if b.dir, err = os.MkdirTemp(dir, "bench-tools-"); err != nil {
		return false, err
	}
	defer os.RemoveAll(b.dir)
	if _, err := b.agent("bench.prepare", workload.BenchPrepareParams{RunID: runID, Dir: b.dir}, &struct{}{}); err != nil {
		return false, err
	}
	all, goals := b.plan()
	for n := range runs {
		for _, m := range all {
			if !b.wanted(m.Name) {
				continue
			}
			fmt.Fprintf(os.Stderr, "\r\x1b[Krun %d of %d: %s", n+1, runs, m.Name)
			if m.settled {
				if err := settle(b.dir); err != nil {
					return false, err
				}
			}
			s, err := m.do()
			if err != nil {
				return false, fmt.Errorf("%s: %w", m.Name, err)
			}
			v := s.amount / s.cpu
			if m.wall {
				v = s.amount / s.seconds
			}
			m.Values = append(m.Values, v/m.scale)
			m.Seconds, m.CPU = append(m.Seconds, s.seconds), append(m.CPU, s.cpu)
		}
	}
	fmt.Fprint(os.Stderr, "\r\x1b[K")
	medians := map[string]float64{}
	for _, m := range all {
		if len(m.Values) > 0 {
			m.Median = median(m.Values)
			medians[m.Name] = m.Median
		}
	}
	reached := true
	for i := range goals {
		g := &goals[i]
		if medians[g.Name] > 0 && medians[g.Over] > 0 {
			g.Ratio = medians[g.Name] / medians[g.Over]
			g.FloorRatio = medians[g.Floor] / medians[g.Over]
			reached = reached && g.reached()
		}
	}
	if asJSON {
		e := json.NewEncoder(os.Stdout)
		e.SetIndent("", "  ")
		return reached, e.Encode(map[string]any{"measurements": all, "goals": goals})
	}
	fmt.Printf("%-42s %10s  %s\n", "median of "+fmt.Sprint(runs), "", "lowest ... highest")
	for _, m := range all {
		if len(m.Values) > 0 {
			fmt.Printf("%-42s %10.0f  %.0f ... %.0f %s\n", m.Name, m.Median, slices.Min(m.Values), slices.Max(m.Values), m.Unit)
		}
	}
	fmt.Println()
	for _, g := range goals {
		word := "reached"
		switch {
		case g.Ratio == 0:
			word = "not measured"
		case g.Ratio < g.Least && g.reached():
			word = fmt.Sprintf("NOT reached; %s alone comes to %.2f", g.Floor, g.FloorRatio)
		case g.Ratio < g.Least:
			word = "NOT reached"
		}
		fmt.Printf("%-42s / %-30s %5.2f  (at least %.1f: %s)\n", g.Name, g.Over, g.Ratio, g.Least, word)
	}
	if !b.mdtest {
		fmt.Println("\nmdtest is not installed (it is part of IOR; Debian 12 has no package): not compared")
	}
	return reached, nil
}

func (b *bench) plan() ([]*measurement, []goal) {
	const perCPU, kops = "MiB per CPU-second", "thousand per CPU-second"
	data := func(phase workload.BenchPhase, record int64, unverified bool) func() (sample, error) {
		return func() (sample, error) {
			return b.phase(workload.BenchJob{
				Phase: phase, FileBytes: b.bytes, RecordBytes: record, Buffered: true, Unverified: unverified, Regions: b.regions["data"],
			})
		}
	}
	md := func(phase workload.BenchPhase) func() (sample, error) {
		return func() (sample, error) { return b.phase(workload.BenchJob{Phase: phase, Branch: branch, Items: items}) }
	}
	all := []*measurement{
		{Name: "mortar generate", Unit: perCPU, do: func() (sample, error) {
			// A new file each time, as fio's is.
			if err := b.cleanup("data"); err != nil {
				return sample{}, err
			}
			b.regions["data"] = nil
			return data(workload.SeqWrite, 1<<20, false)()
		}},
		{Name: "fio plain write", Unit: perCPU, do: b.fio(true, "--rw=write", "--bs=1m", "--fallocate=none", "--create_on_open=1", "--end_fsync=1")},
		{Name: "fio write, verify=crc32c", Unit: perCPU, do: b.fio(true, "--rw=write", "--bs=1m", "--verify=crc32c", "--do_verify=0", "--fallocate=none", "--create_on_open=1", "--end_fsync=1")},
		{Name: "generating alone, in memory", Unit: perCPU, do: b.generating},
		{Name: "mortar verify", Unit: perCPU, settled: true, do: data(workload.SeqRead, 1<<20, false)},
		{Name: "fio read, verify=crc32c", Unit: perCPU, do: b.fio(false, "--rw=read", "--bs=1m", "--verify=crc32c")},
		{Name: "mortar plain read", Unit: perCPU, do: data(workload.SeqRead, 1<<20, true)},
		{Name: "fio plain read", Unit: perCPU, do: b.fio(false, "--rw=read", "--bs=1m")},
		{Name: "checking alone, in memory", Unit: perCPU, do: b.checking},
		{Name: "mortar random read, verified", Unit: kops, scale: 1e3, do: data(workload.RandRead, 4096, false)},
		{Name: "mortar random read, unverified", Unit: kops, scale: 1e3, do: data(workload.RandRead, 4096, true)},
		{Name: "fio random read, psync", Unit: kops, scale: 1e3, do: b.fio(false, "--rw=randread", "--bs=4k")},
		{Name: "mortar create", Unit: "thousand per second", scale: 1e3, wall: true, do: md(workload.MDCreate)},
		{Name: "mortar stat", Unit: "thousand per second", scale: 1e3, wall: true, do: md(workload.MDStat)},
		{Name: "mortar remove", Unit: "thousand per second", scale: 1e3, wall: true, do: md(workload.MDRemove)},
	}
	goals := []goal{
		{Name: "mortar generate", Over: "fio write, verify=crc32c", Least: 1.5},
		{Name: "mortar verify", Over: "fio read, verify=crc32c", Least: 2, Floor: "mortar plain read"},
		{Name: "mortar random read, unverified", Over: "fio random read, psync", Least: 1},
		{Name: "mortar random read, verified", Over: "fio random read, psync", Least: 1},
	}
	if b.mdtest {
		for i, op := range []string{"create", "stat", "remove"} {
			phase := []workload.BenchPhase{workload.MDCreate, workload.MDStat, workload.MDRemove}[i]
			all = append(all, &measurement{Name: "mdtest " + op, Unit: "thousand per second", scale: 1e3, wall: true, do: func() (sample, error) {
				return b.phase(workload.BenchJob{Phase: phase, Branch: branch, Items: items, Engine: "mdtest"})
			}})
			goals = append(goals, goal{Name: "mortar " + op, Over: "mdtest " + op, Least: 1})
		}
	}
	for _, m := range all {
		if m.scale == 0 {
			m.scale = 1
		}
	}
	return all, goals
}

// settle reads everything twice. The first two times that a page of the cache
// is read the kernel notes it, which costs more than half of what copying
// does: the first one would pay for the others.
func settle(dir string) error {
	buf := make([]byte, 1<<20)
	for range 2 {
		err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			f, err := os.Open(path)
			if err != nil {
				return err
			}
			defer f.Close()
			for {
				if _, err := f.Read(buf); err == io.EOF {
					return nil
				} else if err != nil {
					return err
				}
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// within is how far apart the two engines' rates may be.
const within = 0.05

// arm is one way of doing a phase.
type arm struct {
	Name       string `json:"name"`
	engine     workload.BenchEngine
	unverified bool
	Values     []float64 `json:"values"`
	Median     float64   `json:"median"`
	// Without is the median of the same rates with the time taken out that the
	// threads made or compared data: what they would be at most if that cost
	// nothing. Where the kernel reads ahead or writes back meanwhile the truth
	// lies between.
	Without float64 `json:"median_without_own"`
	without []float64
}

// agreement is what the engines say of one phase. The first two arms are
// Mortar and fio as `mortar bench` runs them; the ratio is of their medians.
// The others tell what a difference is made of.
type agreement struct {
	Phase string  `json:"phase"`
	Unit  string  `json:"unit"`
	Arms  []*arm  `json:"arms"`
	Ratio float64 `json:"ratio"`
	// Paired is the median of the runs' own ratios, of two that followed each
	// other at once.
	Paired float64 `json:"paired_ratio"`
}

// agree has both engines do the same on the same file system, in turn: two
// threads, each a file of its own; sequential through the page cache, which
// is dropped before reading, random with O_DIRECT. The arms of a phase follow
// each other at once, the other way round in every second run, so that what
// else the machine does meets all of them.
func (b *bench) agree(dir string, runs int, seconds float64, limit time.Duration, asJSON bool) (bool, error) {
	begun := time.Now()
	var err error
	if b.dir, err = os.MkdirTemp(dir, "bench-tools-"); err != nil {
		return false, err
	}
	defer os.RemoveAll(b.dir)
	const mortar, fio = workload.EngineMortar, workload.BenchEngine("fio")
	both := func() []*arm { return []*arm{{Name: "mortar", engine: mortar}, {Name: "fio", engine: fio}} }
	all := []*agreement{
		{Phase: string(workload.SeqWrite), Unit: "MiB/s", Arms: both()},
		{Phase: string(workload.SeqRead), Unit: "MiB/s", Arms: append(both(),
			&arm{Name: "mortar, not compared", engine: mortar, unverified: true})},
		{Phase: string(workload.RandRead), Unit: "IOPS", Arms: both()},
		{Phase: string(workload.RandWrite), Unit: "IOPS", Arms: both()},
	}
	if _, err := b.agent("bench.prepare", workload.BenchPrepareParams{RunID: runID, Dir: b.dir}, &struct{}{}); err != nil {
		return false, err
	}
	for n := range runs {
		if time.Since(begun) > limit {
			fmt.Fprintf(os.Stderr, "\r\x1b[K-limit: %d of %d runs\n", n, runs)
			break
		}
		for _, a := range all {
			wanted := b.wanted(a.Phase)
			if !wanted && (n > 0 || a.Phase != string(workload.SeqWrite)) {
				continue // what reads needs the files, once
			}
			for _, arm := range swapped(a.Arms, n) {
				fmt.Fprintf(os.Stderr, "\r\x1b[Krun %d of %d: %s by %s", n+1, runs, a.Phase, arm.Name)
				if a.Phase == string(workload.SeqWrite) {
					set := "data"
					if arm.engine == mortar {
						delete(b.regions, set)
					} else {
						set += "." + string(arm.engine)
					}
					if err := b.cleanup(set); err != nil {
						return false, err
					}
				}
				j := workload.BenchJob{
					Phase: workload.BenchPhase(a.Phase), Engine: arm.engine, Threads: 2, FileBytes: b.bytes / 2, DropCache: true, Regions: b.regions["data"],
					Unverified: arm.unverified,
				}
				scale := 1 << 20
				if a.Unit == "IOPS" {
					scale, j.DurationSeconds = 4096, seconds
				}
				s, err := b.phase(j)
				if err != nil {
					return false, fmt.Errorf("%s by %s: %w", a.Phase, arm.Name, err)
				}
				if wanted {
					arm.Values = append(arm.Values, s.bytes/float64(scale)/s.seconds)
					arm.without = append(arm.without, s.bytes/float64(scale)/(s.seconds-s.own))
				}
			}
		}
	}
	fmt.Fprint(os.Stderr, "\r\x1b[K")
	ok := true
	all = slices.DeleteFunc(all, func(a *agreement) bool { return len(a.Arms[0].Values) == 0 })
	for _, a := range all {
		for _, arm := range a.Arms {
			arm.Median, arm.Without = median(arm.Values), median(arm.without)
		}
		a.Ratio = a.Arms[0].Median / a.Arms[1].Median
		var pairs []float64
		for i := range a.Arms[0].Values {
			pairs = append(pairs, a.Arms[0].Values[i]/a.Arms[1].Values[i])
		}
		a.Paired = median(pairs)
		ok = ok && a.Ratio >= 1-within && a.Ratio <= 1+within
	}
	if asJSON {
		e := json.NewEncoder(os.Stdout)
		e.SetIndent("", "  ")
		return ok, e.Encode(all)
	}
	for _, a := range all {
		fmt.Printf("%-11s ratio of medians %.3f, median of ratios %.3f\n", a.Phase, a.Ratio, a.Paired)
		for _, arm := range a.Arms {
			fmt.Printf("  %-30s %8.0f (%.0f ... %.0f) %s", arm.Name, arm.Median, slices.Min(arm.Values), slices.Max(arm.Values), a.Unit)
			if arm.Without > arm.Median*1.005 {
				fmt.Printf(", %.0f at most without making or comparing data", arm.Without)
			}
			fmt.Println()
		}
	}
	return ok, nil
}

// swapped is the list, the other way round when n is odd.
func swapped[T any](l []T, n int) []T {
	l = slices.Clone(l)
	if n%2 == 1 {
		slices.Reverse(l)
	}
	return l
}

func median(v []float64) float64 { return slices.Sorted(slices.Values(v))[len(v)/2] }

// phase has an agent of its own do a phase.
func (b *bench) phase(j workload.BenchJob) (sample, error) {
	j.RunID, j.Dir = runID, b.dir
	if j.Threads == 0 {
		j.Threads = 1
	}
	var r workload.BenchResult
	cpu, err := b.agent("bench.run", j, &r)
	if err != nil {
		return sample{}, err
	}
	for _, t := range r.Threads {
		if t.Fault != "" {
			return sample{}, fmt.Errorf("%s: %s", t.Fault, t.Error)
		}
	}
	if v := r.Verified; v != nil && v.BadBytes > 0 {
		return sample{}, fmt.Errorf("%d bad bytes: %s", v.BadBytes, v.Findings[0])
	}
	if j.Engine == "" || j.Engine == workload.EngineMortar { // others' files are not self-describing
		b.regions[r.Set] = workload.MergeRegions(b.regions[r.Set], r.Regions)
	}
	s := sample{amount: float64(r.Ops), bytes: float64(r.Bytes), seconds: float64(r.EndNs-r.StartNs) / 1e9, cpu: cpu}
	for _, t := range r.Threads {
		s.own += t.OwnSeconds / float64(len(r.Threads))
	}
	if j.RecordBytes == 1<<20 {
		s.amount = float64(r.Bytes) / (1 << 20)
	}
	return s, nil
}

func (b *bench) cleanup(set string) error {
	_, err := b.agent("bench.cleanup", workload.BenchCleanupParams{RunID: runID, Dir: b.dir, Set: set}, &struct{}{})
	return err
}

// agent starts one, asks it one thing and returns the CPU time of its whole
// life.
func (b *bench) agent(op string, params, result any) (float64, error) {
	cmd := exec.Command(b.mortar, "agent")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return 0, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	answer, err := ask(in, out, op, params)
	in.Close()
	if werr := cmd.Wait(); err == nil {
		err = werr
	}
	if err == nil {
		err = json.Unmarshal(answer, result)
	}
	return cpuOf(cmd), err
}

func ask(in interface{ Write([]byte) (int, error) }, out interface{ Read([]byte) (int, error) }, op string, params any) (json.RawMessage, error) {
	raw, err := json.Marshal(params)
	if err != nil {
		return nil, err
	}
	line, err := json.Marshal(agent.Request{ID: 1, Op: op, Params: raw})
	if err != nil {
		return nil, err
	}
	if _, err := in.Write(append(line, '\n')); err != nil {
		return nil, err
	}
	sc := bufio.NewScanner(out)
	sc.Buffer(nil, agent.MaxLine)
	for sc.Scan() {
		var r agent.Response
		if err := json.Unmarshal(sc.Bytes(), &r); err != nil {
			return nil, err
		}
		switch {
		case r.Error != nil:
			return nil, r.Error
		case r.Result != nil:
			return r.Result, nil
		}
	}
	return nil, errors.Join(errors.New("the agent has gone"), sc.Err())
}

func cpuOf(cmd *exec.Cmd) float64 {
	return cmd.ProcessState.UserTime().Seconds() + cmd.ProcessState.SystemTime().Seconds()
}

// fio runs it with one job on one file.
func (b *bench) fio(fresh bool, args ...string) func() (sample, error) {
	return func() (sample, error) {
		file := filepath.Join(b.dir, "fio.data")
		if fresh {
			if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
				return sample{}, err
			}
		}
		cmd := exec.Command("fio", append([]string{
			"--name=b", "--filename=" + file, "--size=" + fmt.Sprint(b.bytes), "--ioengine=psync", "--thread=1", "--invalidate=0", "--output-format=json",
		}, args...)...)
		cmd.Dir = b.dir // where it leaves the state of its verification
		start := time.Now()
		out, err := cmd.Output()
		if err != nil {
			return sample{}, fmt.Errorf("fio: %w: %s", err, out)
		}
		s := sample{amount: float64(b.bytes) / (1 << 20), seconds: time.Since(start).Seconds(), cpu: cpuOf(cmd)}
		if slices.Contains(args, "--bs=4k") {
			s.amount = float64(b.bytes) / 4096
		}
		return s, nil
	}
}

// checking is what Classify costs without any reading: 1 MiB that stays in
// the cache, over and over, in this process.
func (b *bench) checking() (sample, error) {
	s := stream.NewStream(stream.NewRunID("bench-tools"), 1)
	buf := linux.Aligned(1 << 20)
	for i := range len(buf) / stream.BlockSize {
		s.Encode(buf[i*stream.BlockSize:], uint64(i), 1, 1, 1)
	}
	before, start := self(), time.Now()
	for range b.bytes >> 20 {
		for i := range len(buf) / stream.BlockSize {
			if f := s.Classify(buf[i*stream.BlockSize:], uint64(i), stream.Expect{Acked: 1, Issued: 1}); f.Class != stream.OK {
				return sample{}, fmt.Errorf("%+v", f)
			}
		}
	}
	return sample{amount: float64(b.bytes >> 20), seconds: time.Since(start).Seconds(), cpu: self() - before}, nil
}

// generating is likewise what Encode costs without any writing.
func (b *bench) generating() (sample, error) {
	s := stream.NewStream(stream.NewRunID("bench-tools"), 1)
	buf := linux.Aligned(1 << 20)
	before, start := self(), time.Now()
	for n := range b.bytes >> 20 {
		for i := range len(buf) / stream.BlockSize {
			s.Encode(buf[i*stream.BlockSize:], uint64(i), uint32(n), uint64(n), 1)
		}
	}
	return sample{amount: float64(b.bytes >> 20), seconds: time.Since(start).Seconds(), cpu: self() - before}, nil
}

func self() float64 {
	var ru unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &ru)
	return float64(ru.Utime.Nano()+ru.Stime.Nano()) / 1e9
}

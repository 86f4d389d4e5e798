package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/host/agent"
	"github.com/mortarhpc/mortar/internal/host/gather"
	"github.com/mortarhpc/mortar/internal/host/hosttest"
	"github.com/mortarhpc/mortar/internal/host/netprobe"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/prove/report"
	"github.com/mortarhpc/mortar/internal/prove/workload"
)

// brick is a pair of servers and two clients. Mounts and the cluster are fakes.
// The real engine makes the load, on a local directory in place of the volume.
type brick struct {
	t   *testing.T
	dir string

	mu      sync.Mutex
	mounted map[string]bool // client/path, or server
	cmds    []string
	offset  map[string]int64 // clocks
	lost    map[string]bool  // hosts that are gone
	onRun   func(client string, job workload.BenchJob)
	change  func(op string, answer any)  // changes an answer of the agent
	onCmd   func(host, cmd string) error // with mu held
	// devices answers with the I/O of a server's devices; nil: no device.
	devices func(server string, r gather.Request) gather.Host
	ro      bool
	source  string
}

func newBrick(t *testing.T) *brick {
	lead := startLead
	startLead = 10 * time.Millisecond
	t.Cleanup(func() { startLead = lead })
	b := &brick{t: t, dir: t.TempDir(), source: "10.0.0.9:/srv/home/data", mounted: map[string]bool{"nfs2": true, "c1": true, "c2": true}, offset: map[string]int64{}, lost: map[string]bool{}}
	return b
}

func (b *brick) design() *design.Design {
	s := &spec.Spec{Servers: []spec.Server{{Name: "nfs1", Public: "10.0.0.1"}, {Name: "nfs2", Public: "127.0.0.1"}}}
	return &design.Design{
		Name: "b", Flavour: spec.NFSHA, SHA256: strings.Repeat("0", 64), Spec: s,
		Pairs: []design.Pair{{
			Servers:  []string{"nfs1", "nfs2"},
			HA:       &design.HA{Nodes: []design.Node{{Name: "nfs1"}, {Name: "nfs2"}}},
			Services: []design.Service{{Name: "home", NFS: &design.NFS{Address: "10.0.0.9", MountPoint: "/srv/home"}}},
		}},
		Mounts: []design.ClientMount{
			{Client: "c1", Service: "home", Source: "10.0.0.9:/srv/home/data", Path: b.dir, Version: "4.1"},
			{Client: "c2", Service: "home", Source: "10.0.0.9:/srv/home/data", Path: b.dir, Version: "4.1"},
		},
	}
}

type testHost struct {
	b    *brick
	name string
	mux  agent.Mux
}

func (b *brick) dial(_ context.Context, name string) (*host.Session, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.lost[name] {
		return nil, errors.New("unreachable")
	}
	return host.New(name, &testHost{b, name, agent.Merge(workload.Handlers(), netprobe.Handlers())}), nil
}

func (h *testHost) Close() {}

func (h *testHost) Call(ctx context.Context, op string, params, result any, onEvent func(json.RawMessage)) error {
	hosttest.MustRead(params)
	b := h.b
	b.mu.Lock()
	lost, offset := b.lost[h.name], b.offset[h.name]
	b.mu.Unlock()
	if lost {
		return agent.ErrLost
	}
	answer := func(v any) error {
		raw, err := json.Marshal(v)
		if err != nil || result == nil {
			return err
		}
		return json.Unmarshal(raw, result)
	}
	switch op {
	case "time":
		return answer(map[string]int64{"now_ns": time.Now().UnixNano() + offset})
	case "hello":
		return answer(map[string]any{"mem_bytes": 8 << 20, "os_name": "Test", "kernel": "1"})
	case "observe.gather":
		switch r, asked := params.(gather.Request); {
		case !asked || len(r.Files) == 0:
		case b.devices == nil:
			return fmt.Errorf("no op %s", op)
		default:
			return answer(b.devices(h.name, r))
		}
		return answer(map[string]any{"disks": []resource.DiskFact{{Serial: "D1", Device: filepath.Join(b.dir, "disk")}}})
	case "query":
		return answer(resource.Output{Stdout: "xfsprogs 6\n"})
	case "read":
		b.mu.Lock()
		defer b.mu.Unlock()
		text := ""
		if strings.HasPrefix(h.name, "nfs") && b.mounted[h.name] {
			text = "/dev/b/home /srv/home xfs rw 0 0\n"
		} else if b.mounted[h.name] {
			text = fmt.Sprintf("%s %s nfs4 %s 0 0\n", b.source, b.dir, map[bool]string{true: "ro", false: "rw"}[b.ro])
		}
		return answer(map[string][]byte{"content": []byte(text)})
	case "run":
		var p struct {
			Action resource.Action `json:"action"`
		}
		raw, err := json.Marshal(params)
		if err != nil {
			return err
		}
		if err := json.Unmarshal(raw, &p); err != nil {
			return err
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		b.cmds = append(b.cmds, h.name+" "+strings.Join(p.Action.Cmd, " "))
		if b.onCmd != nil {
			if err := b.onCmd(h.name, strings.Join(p.Action.Cmd, " ")); err != nil {
				return err
			}
		}
		switch p.Action.Cmd[0] {
		case "umount", "mount":
			b.mounted[h.name] = p.Action.Cmd[0] == "mount"
		case "install":
			return nil
		}
		return nil
	}
	raw, err := json.Marshal(params)
	if err != nil {
		return err
	}
	f := h.mux[op]
	if f == nil {
		return fmt.Errorf("no op %s", op)
	}
	if op == "bench.prepare" {
		var p workload.BenchParams
		if err := json.Unmarshal(raw, &p); err != nil {
			return err
		}
		if err := mkdir(p.Dir); err != nil { // as the server's install -d does
			return err
		}
	}
	if op == "bench.run" && b.onRun != nil {
		var j workload.BenchJob
		if err := json.Unmarshal(raw, &j); err != nil {
			return err
		}
		b.onRun(h.name, j)
		b.mu.Lock()
		lost = b.lost[h.name]
		b.mu.Unlock()
		if lost {
			return agent.ErrLost
		}
	}
	v, err := f(ctx, raw, func(e any) {
		if onEvent == nil {
			return
		}
		if raw, err := json.Marshal(e); err == nil {
			onEvent(raw)
		}
	})
	b.mu.Lock()
	lost = b.lost[h.name]
	b.mu.Unlock()
	if lost {
		return agent.ErrLost
	}
	if err != nil {
		return err
	}
	if b.change != nil {
		b.change(op, v)
	}
	return answer(v)
}

const testSuite = `apiVersion: mortar/v1
kind: suite
name: test
cold: restart
repeat: 2
tests:
  - {name: sequential, title: Sequential, phases: [seq-write, seq-read], threads: [1, 4], record: 64KiB, read_shift: 1}
  - {name: random, phases: [rand-write, rand-read], threads: [2], file: 1MiB, io: buffered}
  - {name: metadata, phases: [md-create, md-stat, md-remove], threads: [2], dirs: [2], items: 20}
`

func suiteOf(t *testing.T, text string) *Suite {
	t.Helper()
	s, err := Parse("t.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestRun(t *testing.T) {
	b := newBrick(t)
	out := filepath.Join(t.TempDir(), "run")
	finished := 0
	env := Env{Design: b.design(), Dial: b.dial, Virtual: true, Version: "test", Progress: func(p Progress) {
		if p.Finished != nil {
			finished++
		}
	}}
	r, err := Run(context.Background(), env, suiteOf(t, testSuite), Options{Dir: out})
	if err != nil {
		t.Fatal(err)
	}
	if r.Bench.Verdict != report.Complete || len(r.Bench.Reasons) > 0 {
		t.Errorf("%s: %v", r.Bench.Verdict, r.Bench.Reasons)
	}
	back, err := report.Load(out)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(back.Config.Software, func(r report.Row) bool { return r.Name == "fio on c1" && strings.HasPrefix(r.Value, "fio-") }) {
		t.Errorf("no version of fio: %v", back.Config.Software)
	}
	var names []string
	for _, ph := range back.Bench.Phases {
		names = append(names, ph.Name)
		for _, p := range ph.Points {
			if len(p.Runs) != 2 {
				t.Errorf("%s at %d threads: %d repetitions", ph.Name, p.Threads, len(p.Runs))
			}
			for _, x := range p.Runs {
				if x.Value <= 0 || x.Latency == nil || x.Histogram == "" || len(x.Threads) != p.Threads || len(x.Errors) > 0 || len(x.Timeline.Ops) == 0 {
					t.Errorf("%s at %d threads: %+v", ph.Name, p.Threads, x)
				}
				if strings.HasSuffix(ph.Name, "read") && (x.VerifiedBytes != p.TotalBytes || x.BadBytes != 0) {
					t.Errorf("%s at %d threads: %d of %d bytes verified", ph.Name, p.Threads, x.VerifiedBytes, p.TotalBytes)
				}
			}
			if want := min(p.Threads, 2); p.Hosts != want {
				t.Errorf("%s at %d threads ran on %d hosts", ph.Name, p.Threads, p.Hosts)
			}
		}
	}
	if want := "sequential/seq-write sequential/seq-read random/rand-write random/rand-read metadata/md-create metadata/md-stat metadata/md-remove"; strings.Join(names, " ") != want {
		t.Errorf("phases %v", names)
	}
	if finished != 2*(2*2+2+3) {
		t.Errorf("%d measurements were told", finished)
	}
	// The caches were emptied in the order of the papers' procedure.
	i := slices.Index(b.cmds, "nfs2 crm_resource --restart --resource service-home")
	if i < 2 || !strings.Contains(b.cmds[i-1], "umount") || !strings.HasPrefix(b.cmds[i+1], "nfs2 crm_resource --wait") || !strings.Contains(b.cmds[i+2], " mount") {
		t.Errorf("commands: %q", b.cmds)
	}
	left, err := filepath.Glob(filepath.Join(b.dir, ".mortar", "*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

// With a fio that is too old for directories on one client, the run leaves them out and says so.
func TestOldFio(t *testing.T) {
	b := newBrick(t)
	b.change = func(op string, answer any) {
		if f, ok := answer.(*workload.BenchFacts); ok && op == "bench.prepare" {
			f.Fio = "fio-3.36"
		}
	}
	suite := suiteOf(t, testSuite+"  - {name: directories, phases: [md-mkdir, md-dirstat, md-rmdir], threads: [1], dirs: [2], items: 5}\n")
	r, err := Run(context.Background(), Env{Design: b.design(), Dial: b.dial, Version: "test"}, suite, Options{Dir: t.TempDir(), Cold: ColdNone, Repeat: 1, Tests: []string{"metadata", "directories"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []string{"c1", "c2"} {
		if !slices.Contains(r.Config.Software, report.Row{Name: "fio on " + c, Value: "fio-3.36"}) {
			t.Errorf("%s: %+v", c, r.Config.Software)
		}
	}
	if !strings.Contains(strings.Join(r.Config.Caveats, " "), "directories") || len(r.Bench.Phases) != 3 {
		t.Errorf("%q, %+v", r.Config.Caveats, r.Bench.Phases)
	}
}

const orderedSuite = `apiVersion: mortar/v1
kind: suite
name: io500
cold: none
tests:
  - {name: ior-easy, phases: [seq-write, seq-read], threads: [4], file: 1MiB, read_shift: 1}
  - {name: ior-hard, phases: [seq-write, seq-read], threads: [4], file: 470080B, record: 47008B, layout: strided, read_shift: 1}
  - {name: mdtest-hard, phases: [md-create, find, md-stat, md-read, md-remove], threads: [4], dirs: [1], items: 150, item_size: 3901B, tree: shared, read_shift: 1}
order: [ior-easy/seq-write, ior-hard/seq-write, mdtest-hard/md-create, mdtest-hard/find, ior-easy/seq-read, mdtest-hard/md-stat, ior-hard/seq-read, mdtest-hard/md-read, mdtest-hard/md-remove]
`

// With an order the files of all tests exist at once. A failing test costs only
// its own phases.
func TestOrder(t *testing.T) {
	b := newBrick(t)
	var ran []string
	spoil := false
	b.onRun = func(_ string, j workload.BenchJob) {
		b.mu.Lock()
		defer b.mu.Unlock()
		if step := j.Set + "/" + string(j.Phase); !slices.Contains(ran, step) {
			ran = append(ran, step)
		}
		if spoil && j.Phase == workload.Find {
			_ = os.RemoveAll(filepath.Join(j.Dir, j.RunID, "ior-hard.4"))
		}
	}
	env := Env{Design: b.design(), Dial: b.dial, Virtual: true, Version: "test"}
	r, err := Run(context.Background(), env, suiteOf(t, orderedSuite), Options{Dir: filepath.Join(t.TempDir(), "run")})
	if err != nil || r.Bench.Verdict != report.Complete {
		t.Fatal(err, r.Bench.Reasons)
	}
	want := "ior-easy.4/seq-write ior-hard.4/seq-write mdtest-hard.4/md-create mdtest-hard.4/find ior-easy.4/seq-read mdtest-hard.4/md-stat ior-hard.4/seq-read mdtest-hard.4/md-read mdtest-hard.4/md-remove"
	if got := strings.Join(ran, " "); got != want {
		t.Errorf("order: %s", got)
	}
	if r.Bench.Score == nil || len(r.Bench.Score.Missing) != 3 {
		t.Errorf("score: %+v", r.Bench.Score)
	}
	for _, ph := range r.Bench.Phases {
		run := ph.Points[0].Runs[0]
		// 600 files, four data files and one shared; four of them match.
		if n := map[string]int64{"mdtest-hard/find": 605, "mdtest-hard/md-read": 600}[ph.Name]; n > 0 && run.Ops != n {
			t.Errorf("%s: %d operations", ph.Name, run.Ops)
		}
		if n := map[string]int64{"ior-hard/seq-read": 4 * 470080, "mdtest-hard/find": 4 * 3901, "mdtest-hard/md-read": 600 * 3901}[ph.Name]; n > 0 && run.VerifiedBytes != n {
			t.Errorf("%s: %d bytes verified", ph.Name, run.VerifiedBytes)
		}
	}
	ran, spoil = nil, true
	r, err = Run(context.Background(), env, suiteOf(t, orderedSuite), Options{Dir: filepath.Join(t.TempDir(), "run")})
	if err == nil || r.Bench.Verdict != report.Partial || !strings.Contains(err.Error(), "ior-hard at 4 threads") {
		t.Errorf("%v", err)
	}
	if !slices.Contains(ran, "mdtest-hard.4/md-remove") {
		t.Errorf("the rest was not done: %v", ran)
	}
}

const mixedSuite = `apiVersion: mortar/v1
kind: suite
name: twice
cold: none
tests:
  - {name: rewrite, phases: [seq-write, seq-rewrite], threads: [2], file: 1MiB, record: 64KiB}
  - {name: mixed, title: Both, phases: [seq-rewrite, seq-read], threads: [1, 2], seconds: 1, file: 1MiB, small: 4KiB}
`

// A mixture gives the figures of its streams and of its small records, each in its unit.
func TestMixture(t *testing.T) {
	b := newBrick(t)
	env := Env{Design: b.design(), Dial: b.dial, Virtual: true, Version: "test"}
	r, err := Run(context.Background(), env, suiteOf(t, mixedSuite), Options{Dir: t.TempDir()})
	if err != nil || r.Bench.Verdict != report.Complete {
		t.Fatal(err, r.Bench.Reasons)
	}
	got := ""
	for _, ph := range r.Bench.Phases {
		got += fmt.Sprintf("%s %s of %d, %s, %s\n", ph.Name, ph.Unit, ph.RecordBytes, ph.Window, ph.Title)
		for _, p := range ph.Points {
			x := p.Runs[0]
			if x.Value <= 0 || len(x.Threads) != p.Threads || x.Latency == nil || x.Bytes != x.Ops*ph.RecordBytes || len(x.Errors) > 0 || ph.Test != "rewrite" && !x.Limited {
				t.Errorf("%s at %d threads: %+v", ph.Name, p.Threads, x)
			}
			if strings.HasSuffix(ph.Name, "-read") && x.VerifiedBytes != x.Bytes {
				t.Errorf("%s: %d of %d bytes verified", ph.Name, x.VerifiedBytes, x.Bytes)
			}
		}
	}
	want := `rewrite/seq-write MiB/s of 65536, even, rewrite: write
rewrite/seq-rewrite MiB/s of 65536, even, rewrite: rewrite
mixed/seq-rewrite MiB/s of 1048576, even, Both: rewrite
mixed-small/rand-write ops/s of 4096, exact, Both, small records: write
mixed/seq-read MiB/s of 1048576, exact, Both: read
mixed-small/rand-read ops/s of 4096, exact, Both, small records: read
`
	if got != want {
		t.Errorf("got\n%s", got)
	}
	// The run reports a wrong block in the small records, and a thread for them that fails.
	for name, spoil := range map[string]func(path string) error{
		"wrong":   func(path string) error { return os.WriteFile(path, make([]byte, 4<<20), 0o600) },
		"removed": os.Remove,
	} {
		b.onRun = func(_ string, j workload.BenchJob) {
			if j.Phase == workload.SeqRead {
				if err := spoil(filepath.Join(j.Dir, j.RunID, j.Set, "r1.data")); err != nil {
					t.Error(err)
				}
			}
		}
		r, err := Run(context.Background(), env, suiteOf(t, mixedSuite), Options{Dir: t.TempDir(), Tests: []string{"mixed"}, Threads: []int{1}})
		wrong, failed := false, false
		for _, ph := range r.Bench.Phases {
			for _, p := range ph.Points {
				wrong, failed = wrong || p.Runs[0].BadBytes > 0, failed || len(p.Runs[0].Errors) > 0
			}
		}
		if wrong != (name == "wrong") || !failed || r.Bench.Verdict == report.Complete {
			t.Errorf("%s: %s, wrong %v, failed %v, %v, %q", name, r.Bench.Verdict, wrong, failed, err, r.Config.Caveats)
		}
	}
}

// A second read takes the same records. The disks are throttled only in measured
// phases, even if those fail.
func TestRereadThrottled(t *testing.T) {
	const suite = `apiVersion: mortar/v1
kind: suite
name: cache
cold: drop
tests:
  - {name: random, phases: [rand-read, rand-write], threads: [2], file: 1MiB, io: buffered, reread: 7, disk_iops: 3, disk_rate: 4MB}
  - {name: metadata, phases: [md-create, md-remove], threads: [2], dirs: [1], items: 3}
`
	b := newBrick(t)
	var did []string
	fail := false
	b.onRun = func(client string, j workload.BenchJob) {
		if client == "c1" {
			did = append(did, fmt.Sprintf("%s %d", j.Phase, j.Limit))
		}
		if fail && j.Phase == workload.RandWrite {
			b.mu.Lock()
			b.lost["c1"], b.lost["c2"] = true, true
			b.mu.Unlock()
		}
	}
	env := Env{Design: b.design(), Dial: b.dial, Virtual: true, Version: "test", Throttle: func(_ context.Context, iops int, rate int64) error {
		did = append(did, fmt.Sprint(iops, rate))
		return nil
	}}
	r, err := Run(context.Background(), env, suiteOf(t, suite), Options{Dir: filepath.Join(t.TempDir(), "run")})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"seq-write 0", "rand-read 7", "3 4000000", "rand-read 7", "0 0", "3 4000000", "rand-write 0", "0 0", "md-create 0", "md-remove 0"}
	if !slices.Equal(did, want) {
		t.Errorf("did %q", did)
	}
	run := r.Bench.Phases[0].Points[0].Runs[0]
	if run.Ops != 2*7 || run.VerifiedBytes != 2*7*4096 || run.BadBytes != 0 {
		t.Errorf("%+v", run)
	}
	did, fail = nil, true
	if _, err := Run(context.Background(), env, suiteOf(t, suite), Options{Dir: filepath.Join(t.TempDir(), "run"), Tests: []string{"random"}}); err == nil {
		t.Error("clients that vanish were not noticed")
	}
	if did[len(did)-1] != "0 0" {
		t.Errorf("did %q", did)
	}
}

// A test that ends by time does not run out of space before.
func TestLimitSizes(t *testing.T) {
	suite := load(t, "io500", spec.NFS)
	r := &runner{site: site{memory: 64 << 30}, suite: suite, opt: Options{Scale: 1}, lanes: make([]lane, 4)}
	r.limitSizes(32 << 30)
	total := int64(0)
	for _, s := range r.sets() {
		size := s.TotalBytes
		if s.Test.ItemBytes > 0 {
			size = s.Files * 4096
		}
		if size > 4<<30+64<<20 {
			t.Errorf("%s may become %d bytes", s.Name, size)
		}
		total += size
	}
	if total < 11<<30 {
		t.Errorf("%d bytes in all, where 12 GiB are there for three tests", total)
	}
}

// After a set has run out of space, Run skips its other phases and does the next test.
func TestNoSpace(t *testing.T) {
	b := newBrick(t)
	phase := workload.BenchPhase("")
	b.onRun = func(_ string, j workload.BenchJob) {
		b.mu.Lock()
		defer b.mu.Unlock()
		phase = j.Phase
	}
	b.change = func(_ string, v any) {
		b.mu.Lock()
		defer b.mu.Unlock()
		if x, ok := v.(*workload.BenchResult); ok && phase == workload.SeqWrite {
			x.Threads[0].Fault, x.Threads[0].Error = workload.FaultNoSpace, "write: no space left on device"
		}
	}
	r, err := Run(context.Background(), Env{Design: b.design(), Dial: b.dial}, suiteOf(t, testSuite),
		Options{Dir: t.TempDir(), Cold: ColdNone, Repeat: 1, Threads: []int{2}, Tests: []string{"sequential", "metadata"}})
	if r == nil || err == nil || r.Bench.Verdict != report.Partial || len(r.Bench.Phases) != 4 {
		t.Fatalf("%v %+v", err, r)
	}
}

// Run names the directory of a killed run and does not touch it.
func TestLeftByAnother(t *testing.T) {
	b := newBrick(t)
	left := filepath.Join(b.dir, ".mortar", "bench-killed")
	if err := os.MkdirAll(left, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(left, ".mortar-bench"), []byte("bench-killed\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := Run(context.Background(), Env{Design: b.design(), Dial: b.dial}, suiteOf(t, testSuite), Options{Dir: t.TempDir(), Cold: ColdNone, Threads: []int{2}, Tests: []string{"random"}})
	if err != nil || strings.Count(fmt.Sprint(r.Config.Caveats), left) != 1 {
		t.Errorf("%v %v", err, r.Config.Caveats)
	}
	if _, err := os.Stat(left); err != nil {
		t.Error(err)
	}
}

func TestInterrupted(t *testing.T) {
	b := newBrick(t)
	out := t.TempDir()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	n := 0
	env := Env{Design: b.design(), Dial: b.dial, Progress: func(p Progress) {
		if n++; p.Finished != nil {
			cancel()
		}
	}}
	r, err := Run(ctx, env, suiteOf(t, testSuite), Options{Dir: out, Cold: ColdNone})
	if err != nil || r == nil || r.Bench.Verdict != report.Partial || !slices.Contains(r.Bench.Reasons, "interrupted") || len(r.Bench.Phases) != 1 {
		t.Fatalf("%v %+v", err, r)
	}
	back, err := report.Load(out)
	if err != nil || back.Bench.Verdict != report.Partial || back.Bench.Phases[0].Points[0].Runs[0].Value <= 0 {
		t.Errorf("%v %+v", err, back)
	}
	if left, _ := filepath.Glob(filepath.Join(b.dir, ".mortar", "*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// A client that vanishes costs its own figures; the other clients do the rest of
// the suite.
func TestVanishes(t *testing.T) {
	b := newBrick(t)
	b.onRun = func(client string, j workload.BenchJob) {
		if client == "c2" && j.Phase == workload.SeqRead {
			b.mu.Lock()
			b.lost["c2"] = true
			b.mu.Unlock()
		}
	}
	env := Env{Design: b.design(), Dial: b.dial}
	r, err := Run(context.Background(), env, suiteOf(t, testSuite), Options{Dir: t.TempDir(), Cold: ColdNone, Repeat: 1, Threads: []int{2}})
	if r == nil || err == nil || !strings.Contains(err.Error(), "c2") {
		t.Fatalf("%v %+v", err, r)
	}
	if r.Bench.Verdict != report.Partial || len(r.Bench.Phases) != 6 || !slices.Equal(r.Bench.Clients, []string{"c1"}) {
		t.Errorf("%s, clients %v, %d phases", r.Bench.Verdict, r.Bench.Clients, len(r.Bench.Phases))
	}
	last := r.Bench.Phases[len(r.Bench.Phases)-1]
	if p := last.Points[0]; p.Hosts != 1 || len(p.Runs[0].Threads) != 2 || p.Runs[0].Value <= 0 {
		t.Errorf("%+v", p)
	}
}

// If the run's directory can no longer be written to, as on a full disk, Run
// still does the suite and writes the run elsewhere.
func TestRunDirectoryGone(t *testing.T) {
	b := newBrick(t)
	out := filepath.Join(t.TempDir(), "run")
	t.Setenv("TMPDIR", t.TempDir())
	b.onRun = func(_ string, j workload.BenchJob) {
		if j.Phase == workload.SeqRead {
			if err := errors.Join(os.RemoveAll(out), os.WriteFile(out, nil, 0o600)); err != nil {
				t.Error(err)
			}
		}
	}
	r, err := Run(context.Background(), Env{Design: b.design(), Dial: b.dial}, suiteOf(t, testSuite), Options{Dir: out, Cold: ColdNone, Repeat: 1, Threads: []int{2}})
	if r == nil || err == nil || r.Dir == out || !strings.Contains(err.Error(), r.Dir) || !strings.Contains(err.Error(), out) {
		t.Fatalf("%v %+v", err, r)
	}
	if told := strings.Count(fmt.Sprint(r.Config.Caveats), "cannot be written"); told != 1 {
		t.Errorf("told %d times: %v", told, r.Config.Caveats)
	}
	back, err := report.Load(r.Dir)
	if err != nil || len(back.Bench.Phases) != 7 || back.Bench.Verdict != report.Complete {
		t.Errorf("%v %+v", err, back)
	}
}

// The cluster fences a server whose service does not stop, in the middle of
// crm_resource --restart on that server, which has disabled the service by then.
// Run must enable the service, which starts on the other server, mount the
// clients again, and do the later tests.
func TestRestartBreaksOff(t *testing.T) {
	b := newBrick(t)
	disabled, failed := false, 0
	b.onCmd = func(host, cmd string) error {
		switch {
		case cmd == "crm_resource --restart --resource service-home" && host == "nfs2":
			b.lost["nfs2"], b.mounted["nfs2"], disabled = true, false, true
			return agent.ErrLost
		case cmd == "crm_resource --resource service-home --meta --delete-parameter target-role":
			b.mounted["nfs1"], disabled = true, false
		case strings.HasPrefix(cmd, "mount") && host == "c2" && failed == 0:
			failed++
			return errors.New("connection timed out")
		}
		return nil
	}
	r, err := Run(context.Background(), Env{Design: b.design(), Dial: b.dial}, suiteOf(t, testSuite), Options{Dir: t.TempDir(), Repeat: 1, Threads: []int{2}})
	if err == nil || r == nil || !strings.Contains(err.Error(), "connection timed out") {
		t.Fatalf("%v %+v", err, r)
	}
	if r.Bench.Verdict != report.Partial || len(r.Bench.Phases) != 1+2+3 {
		t.Errorf("%s: %d phases", r.Bench.Verdict, len(r.Bench.Phases))
	}
	if disabled || failed == 0 || !b.mounted["nfs1"] || !b.mounted["c1"] || !b.mounted["c2"] {
		t.Errorf("left behind: disabled %v, mounted %v", disabled, b.mounted)
	}
}

func TestUnfit(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(b *brick, o *Options)
	}{
		{"read-only", func(b *brick, _ *Options) { b.ro = true }},
		{"not mounted", func(b *brick, _ *Options) { b.mounted["c1"] = false }},
		{"no service", func(b *brick, _ *Options) { b.mounted["nfs2"] = false }},
		{"unreachable", func(b *brick, _ *Options) { b.lost["c2"] = true }},
		{"NFS version", func(_ *brick, o *Options) { o.NFSVersion = "3" }},
		{"no such test", func(_ *brick, o *Options) { o.Tests = []string{"x"} }},
		{"too large", func(_ *brick, o *Options) { o.Scale = 1000; o.Threads = []int{4000000} }},
		{"too large to lay out, though ended by time", func(_ *brick, o *Options) {
			o.Tests, o.Threads, o.Scale, o.Seconds = []string{"random"}, []int{4000000}, 1000, 5
		}},
		{"no fio", func(b *brick, _ *Options) {
			b.change = func(op string, answer any) {
				if f, ok := answer.(*workload.BenchFacts); ok && op == "bench.prepare" {
					f.Fio = ""
				}
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBrick(t)
			o := Options{Dir: t.TempDir()}
			c.spoil(b, &o)
			_, err := Run(context.Background(), Env{Design: b.design(), Dial: b.dial}, suiteOf(t, testSuite), o)
			var unfit *Unfit
			if !errors.As(err, &unfit) || len(unfit.Problems) > 2 { // one of each client
				t.Errorf("%v", err)
			}
			if left, _ := filepath.Glob(filepath.Join(b.dir, ".mortar", "*")); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

// A host whose clock is hours off gives the same figures.
func TestClocks(t *testing.T) {
	b := newBrick(t)
	b.offset["nfs1"] = 7200e9
	r, err := Run(context.Background(), Env{Design: b.design(), Dial: b.dial}, suiteOf(t, testSuite), Options{Dir: t.TempDir(), Cold: ColdNone, Repeat: 1, Tests: []string{"metadata"}})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(strings.Join(r.Config.Caveats, "\n"), "120 min 00 s ahead") {
		t.Errorf("%q", r.Config.Caveats)
	}
}

func mkdir(dir string) error { return os.MkdirAll(dir, 0o755) }

// The profile with a file in place of a disk. The md array and the volume are
// missing, which costs only those layers.
func TestProfile(t *testing.T) {
	b := newBrick(t)
	if err := os.WriteFile(filepath.Join(b.dir, "disk"), make([]byte, 8<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	d := b.design()
	// The server's own path to the volume.
	for i := range d.Mounts {
		d.Mounts[i].Source = "10.0.0.9:" + b.dir
	}
	b.source = d.Mounts[0].Source
	st := &d.Services()[0].Storage
	st.VG, st.LV = "b-home", "home"
	d.Groups = []design.Group{{Name: "none", Service: "home", Members: []design.Disk{{Serial: "D1"}, {Serial: "gone"}}}}
	r, err := Run(context.Background(), Env{Design: d, Dial: b.dial}, &Suite{Name: "profile", Cold: ColdDrop, Repeat: 1}, Options{Dir: t.TempDir(), Profile: true, Seconds: 1})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]report.Layer{}
	for _, l := range r.Bench.Layers {
		got[l.Name] = l
	}
	for _, n := range []string{"filesystem", "network", "nfs-one", "nfs-many"} {
		l := got[n]
		if l.Error != "" || len(l.Results) < 2 {
			t.Errorf("%s: %+v", n, l)
		}
		for _, v := range l.Results {
			if v.Best <= 0 || v.At == "" || len(v.Grid) == 0 {
				t.Errorf("%s: %+v", n, v)
			}
			if n == "network" && v.Grid[0].Seconds != 1 {
				t.Errorf("--seconds 1: %+v", v.Grid)
			}
		}
	}
	if l, ok := got["raid"]; ok {
		t.Errorf("RAID was measured where there are no md arrays: %+v", l)
	}
	for _, n := range []string{"disks", "volume"} {
		if got[n].Error == "" {
			t.Errorf("%s was measured where there is none: %+v", n, got[n])
		}
	}
	if v := got["nfs-many"].Results[0]; v.Below != "filesystem" || v.Share == nil {
		t.Errorf("%+v", v)
	}
	if r.Bench.Bottleneck == "" {
		t.Errorf("%q", r.Bench.Bottleneck)
	}
	if left, _ := filepath.Glob(filepath.Join(b.dir, ".mortar", "*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	for _, c := range b.cmds {
		if strings.Contains(c, "mkfs") || strings.Contains(c, "dd ") {
			t.Errorf("a profile ran %q", c)
		}
	}
}

// A mount that is in use is named, with what to do.
func TestColdOfMountInUse(t *testing.T) {
	b := newBrick(t)
	b.onCmd = func(_, cmd string) error {
		return &agent.Error{Message: cmd + ": exit code 32", Code: 32, Stderr: "umount: " + b.dir + ": target is busy.", Errno: unix.EBUSY}
	}
	r := &site{env: Env{Design: b.design()}}
	if _, err := r.hosts.Connect(t.Context(), b.dial, "c1"); err != nil {
		t.Fatal(err)
	}
	if err := r.mount(t.Context(), "c1", false); err == nil || !strings.Contains(err.Error(), "fuser -vm "+b.dir) {
		t.Error(err)
	}
}

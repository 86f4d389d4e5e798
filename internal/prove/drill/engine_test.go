package drill

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/host/agent"
	"github.com/mortarhpc/mortar/internal/host/gather"
	"github.com/mortarhpc/mortar/internal/host/hosttest"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/prove/fault"
	"github.com/mortarhpc/mortar/internal/prove/judge"
	"github.com/mortarhpc/mortar/internal/prove/report"
	"github.com/mortarhpc/mortar/internal/prove/workload"
	"github.com/mortarhpc/mortar/internal/run/observe"
)

// pair is a brick of two servers and a client. The cluster is a fake. The load,
// its ledger and the verification are real, on a local directory in place of the
// volume. The tests cover the engine; the failover itself is tested on a rack.
type pair struct {
	t   *testing.T
	dir string // the volume
	at  string // verification mounts

	mu       sync.Mutex
	active   string
	down     map[string]bool
	lines    map[string][]chan string // followers by host and command
	injected []string
	healed   []string
	started  bool           // the survivor has started the service
	mounts   map[string]int // verification mounts at a path, of both clients
	tamper   func()
	noStart  bool // the survivor never starts
	// alternate: the service moves back after the healing.
	alternate bool
	crm       []string
	dropped   int                      // caches
	detached  []string                 // loop devices
	sessions  map[string]*host.Session // the last one of each host
}

func newPair(t *testing.T) *pair {
	p := &pair{t: t, dir: t.TempDir(), at: t.TempDir(), active: "nfs1", down: map[string]bool{}, lines: map[string][]chan string{}, mounts: map[string]int{}, sessions: map[string]*host.Session{}}
	return p
}

func (p *pair) design() *design.Design {
	d := &design.Design{
		Name: "b", SHA256: strings.Repeat("0", 64), Spec: &spec.Spec{},
		Pairs: []design.Pair{{
			Servers:  []string{"nfs1", "nfs2"},
			HA:       &design.HA{Nodes: []design.Node{{Name: "nfs1"}, {Name: "nfs2"}}},
			Services: []design.Service{{Name: "home", NFS: &design.NFS{Address: "10.0.0.9", MountPoint: "/srv/home"}}},
		}},
	}
	d.Mounts = []design.ClientMount{{Client: "c1", Service: "home", Source: "10.0.0.9:" + p.dir, Path: p.dir, Version: "3"}}
	return d
}

func (p *pair) tell(host, cmd, line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.lines[host+" "+cmd] {
		c <- line
	}
}

func journalLine(ident, msg string) string {
	b, _ := json.Marshal(map[string]string{"__REALTIME_TIMESTAMP": fmt.Sprint(time.Now().UnixMicro()), "SYSLOG_IDENTIFIER": ident, "MESSAGE": " notice: " + msg})
	return string(b)
}

// Injector.
func (p *pair) Can(fault.Fault) error { return nil }

func (p *pair) Inject(_ context.Context, f fault.Fault) error {
	p.mu.Lock()
	p.injected = append(p.injected, f.String())
	p.down[f.On] = true
	p.mu.Unlock()
	if p.noStart {
		return nil
	}
	go func() {
		p.tell("nfs2", "journalctl", journalLine("corosync", "[TOTEM ] A processor failed, forming new configuration: token timed out (1000ms), waiting 1200ms for consensus."))
		p.tell("nfs2", "journalctl", journalLine("pacemaker-controld", "Peer nfs1 was terminated (reboot) by nfs2 on behalf of pacemaker-controld.1@nfs2: OK"))
		p.mu.Lock()
		p.active, p.started = "nfs2", true
		p.mu.Unlock()
		p.tell("nfs2", "tail", fmt.Sprintf(`{"t_ns":%d,"action":"start","step":"begin","seconds":0}`, time.Now().UnixNano()))
		p.tell("nfs2", "tail", fmt.Sprintf(`{"t_ns":%d,"action":"start","step":"end","seconds":0.1}`, time.Now().UnixNano()))
	}()
	return nil
}

func (p *pair) Heal(_ context.Context, f fault.Fault) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.healed = append(p.healed, f.String())
	p.down[f.On] = false
	if p.alternate {
		p.active = "nfs1"
	}
	if p.tamper != nil {
		p.tamper()
	}
	return nil
}

// dial opens a session with a fake host; the client has the real ops of the load.
func (p *pair) dial(ctx context.Context, name string) (*host.Session, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.down[name] {
		return nil, errors.New("no route to host")
	}
	mux := agent.Mux{
		"time": func(context.Context, json.RawMessage, func(any)) (any, error) {
			return map[string]int64{"now_ns": time.Now().UnixNano()}, nil
		},
		"hello": func(context.Context, json.RawMessage, func(any)) (any, error) {
			return map[string]string{"os_name": "Debian", "kernel": "6.12"}, nil
		},
		"query":           p.query,
		string(gather.Op): p.gather,
		"run":             p.run,
		"follow": func(ctx context.Context, raw json.RawMessage, emit func(any)) (any, error) {
			return p.follow(ctx, name, raw, emit)
		},
		"read": func(_ context.Context, raw json.RawMessage, _ func(any)) (any, error) {
			text := "proc /proc proc rw 0 0\n"
			p.mu.Lock()
			defer p.mu.Unlock()
			switch {
			case p.down[name]:
				return nil, errors.New("gone")
			case strings.Contains(string(raw), "/proc/uptime"):
				text = "90000.00 1.00\n"
				if len(p.healed) > 0 {
					text = "0.01 0.01\n"
				}
			case isClient(name):
				text += "10.0.0.9:" + p.dir + " " + p.dir + " nfs rw 0 0\n"
			case name == p.active:
				text += "/dev/vg/lv /srv/home xfs rw 0 0\n"
			}
			return map[string][]byte{"content": []byte(text)}, nil
		},
	}
	if isClient(name) {
		mux = agent.Merge(mux, ownLedgers(workload.Handlers(), name))
	}
	toAgent, fromUs := io.Pipe()
	toUs, fromAgent := io.Pipe()
	done := make(chan struct{})
	go func() { defer close(done); _ = agent.Serve(context.WithoutCancel(ctx), toAgent, fromAgent, mux) }()
	c := agent.NewClient(toUs, fromUs)
	s := host.New(name, session{c, sync.OnceFunc(func() { _ = fromUs.Close(); <-done; _ = fromAgent.Close() })})
	p.sessions[name] = s
	return s, nil
}

// ownLedgers gives c2 a directory of its own for its ledgers: both clients are this host.
func ownLedgers(m agent.Mux, client string) agent.Mux {
	if client == "c1" {
		return m
	}
	out := agent.Mux{}
	for op, do := range m {
		out[op] = func(ctx context.Context, raw json.RawMessage, emit func(any)) (any, error) {
			var p map[string]any
			if json.Unmarshal(raw, &p) == nil && p["run_id"] != nil {
				p["ledger_dir"] = workload.DefaultLedgerDir(fmt.Sprint(p["run_id"])) + "-" + client
				raw, _ = json.Marshal(p)
			}
			return do(ctx, raw, emit)
		}
	}
	return out
}

func isClient(name string) bool { return name == "c1" || name == "c2" }

type session struct {
	*agent.Client
	close func()
}

func (s session) Close() { s.close() }

func (s session) Call(ctx context.Context, op string, params, result any, onEvent func(json.RawMessage)) error {
	hosttest.MustRead(params)
	return s.Client.Call(ctx, op, params, result, onEvent)
}

func (p *pair) query(_ context.Context, raw json.RawMessage, _ func(any)) (any, error) {
	var q agent.QueryParams
	if err := json.Unmarshal(raw, &q); err != nil {
		return nil, err
	}
	if q.Argv[0] == "losetup" {
		return resource.Output{Stdout: "/dev/loop7\n"}, nil
	}
	return resource.Output{Stdout: "pacemaker 3.0\n"}, nil
}

func (p *pair) gather(context.Context, json.RawMessage, func(any)) (any, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	edit := p.crm
	if p.down["nfs1"] {
		edit = append(slices.Clone(edit), `name="nfs1" id="1" online="true"`, `name="nfs1" id="1" online="false"`)
	}
	return gather.Host{Run: map[string]gather.RunResult{gather.CmdCRM: {Output: resource.Output{Stdout: crmMon(p.active, edit...)}}}}, nil
}

// run fakes actions: a mount becomes a symbolic link to its source.
func (p *pair) run(_ context.Context, raw json.RawMessage, _ func(any)) (any, error) {
	var r agent.RunParams
	if err := json.Unmarshal(raw, &r); err != nil {
		return nil, err
	}
	cmd := r.Action.Cmd
	last := cmd[len(cmd)-1]
	p.mu.Lock()
	defer p.mu.Unlock()
	switch cmd[0] {
	case "install", "mkdir":
		return resource.Output{}, os.MkdirAll(last, 0o755)
	case "sysctl": // the fake keeps no cache to drop
		if last == "vm.drop_caches=3" {
			p.dropped++
		}
		return resource.Output{}, nil
	case "mount":
		if p.mounts[last]++; p.mounts[last] > 1 {
			return resource.Output{}, nil
		}
		if err := os.Remove(last); err != nil {
			return nil, err
		}
		return resource.Output{}, os.Symlink(p.dir, last)
	case "umount":
		if p.mounts[last]--; p.mounts[last] > 0 {
			return resource.Output{}, nil
		}
		if err := os.Remove(last); err != nil {
			return nil, err
		}
		return resource.Output{}, os.Mkdir(last, 0o755)
	case "rmdir":
		if p.mounts[last] > 0 {
			return resource.Output{}, nil
		}
		_ = os.Remove(last)
		return resource.Output{}, nil
	case "rm":
		return resource.Output{}, os.RemoveAll(last)
	case "losetup":
		p.detached = append(p.detached, last)
		return resource.Output{}, nil
	}
	return nil, fmt.Errorf("unexpected command %q", cmd)
}

func (p *pair) follow(ctx context.Context, host string, raw json.RawMessage, emit func(any)) (any, error) {
	var q agent.QueryParams
	if err := json.Unmarshal(raw, &q); err != nil {
		return nil, err
	}
	c := make(chan string, 100)
	p.mu.Lock()
	key := host + " " + q.Argv[0]
	p.lines[key] = append(p.lines[key], c)
	p.mu.Unlock()
	for {
		select {
		case l := <-c:
			emit(agent.FollowEvent{Line: l, TNS: time.Now().UnixNano()})
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (p *pair) options(t *testing.T) Options {
	return Options{Dir: filepath.Join(t.TempDir(), "run"), Steady: 300 * time.Millisecond, After: 200 * time.Millisecond, Recover: 20 * time.Second, Rejoin: 20 * time.Second, Rate: 100, verifyDir: p.at}
}

func (p *pair) start(ctx context.Context, t *testing.T, opt Options) (*report.Run, error) {
	d, v, err := Find("server-crash", "freeze")
	if err != nil {
		t.Fatal(err)
	}
	return Run(ctx, fault.Env{Design: p.design(), Dial: p.dial, Injector: p, Virtual: true, Version: "test", Progress: func(s string) { t.Log(s) }}, d, v, opt)
}

// leftNothing checks that the load's files are gone.
func (p *pair) leftNothing(t *testing.T) {
	t.Helper()
	left, _ := filepath.Glob(filepath.Join(p.dir, fault.LoadDir, "*"))
	if len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestRunPasses(t *testing.T) { synctest.Test(t, testRunPasses) }

func testRunPasses(t *testing.T) {
	p := newPair(t)
	opt := p.options(t)
	r, err := p.start(t.Context(), t, opt)
	if err != nil {
		t.Fatal(err)
	}
	s := r.Summary
	if s.Verdict != report.Pass {
		t.Fatalf("verdict %s: %q", s.Verdict, s.Reasons)
	}
	if s.AcknowledgedBytes == 0 || s.VerifiedBytes != s.AcknowledgedBytes || s.LostBytes != 0 {
		t.Errorf("bytes: %+v", s)
	}
	for name, v := range map[string]*float64{"detect": s.Phases.Detect, "fence": s.Phases.Fence, "start": s.Phases.Start, "first I/O": s.Phases.FirstIO, "first lock": s.Phases.FirstLock} {
		if v == nil {
			t.Errorf("phase %s was not found", name)
		}
	}
	if !slices.Equal(p.injected, []string{"freeze nfs1"}) || !slices.Equal(p.healed, []string{"freeze nfs1"}) {
		t.Errorf("injected %q, healed %q", p.injected, p.healed)
	}
	if p.dropped != 1 {
		t.Errorf("caches were dropped %d times", p.dropped)
	}
	if len(s.Clients) != 1 || s.Clients[0].FirstIO == nil || s.Clients[0].Workers != 5 {
		t.Errorf("clients: %+v", s.Clients)
	}
	got, err := report.Load(opt.Dir)
	if err != nil || got.Summary.RunID != s.RunID {
		t.Errorf("saved run: %v", err)
	}
	if err := report.HTML(io.Discard, []*report.Run{got}); err != nil {
		t.Error(err)
	}
	p.leftNothing(t)
}

// truncate loses what a writer has written.
func (p *pair) truncate() {
	files, _ := filepath.Glob(filepath.Join(p.dir, fault.LoadDir, "*", "*osync.data"))
	if len(files) == 0 {
		p.t.Error("no data file to tamper with")
		return
	}
	for _, f := range files {
		if err := os.Truncate(f, 0); err != nil {
			p.t.Error(err)
		}
	}
}

func TestRunFindsLostData(t *testing.T) { synctest.Test(t, testRunFindsLostData) }

func testRunFindsLostData(t *testing.T) {
	p := newPair(t)
	p.tamper = p.truncate
	r, err := p.start(t.Context(), t, p.options(t))
	if err != nil {
		t.Fatal(err)
	}
	if r.Summary.Verdict != report.Fail || r.Summary.LostBytes == 0 || r.Verify.Classes["short"].Bytes == 0 {
		t.Errorf("verdict %s, lost %d, classes %v", r.Summary.Verdict, r.Summary.LostBytes, r.Verify.Classes)
	}
	if got := failed(r.Summary.Checks); !slices.Equal(got, []string{"nothing lost", "data from before the fault"}) {
		t.Errorf("failed: %q", got)
	}
	if left, _ := filepath.Glob(filepath.Join(p.dir, fault.LoadDir, "*", "*")); len(left) == 0 {
		t.Error("the evidence was removed")
	}
}

func TestRunServiceNeverStarts(t *testing.T) { synctest.Test(t, testRunServiceNeverStarts) }

func testRunServiceNeverStarts(t *testing.T) {
	p := newPair(t)
	p.noStart = true
	opt := p.options(t)
	opt.Recover = time.Second
	r, err := p.start(t.Context(), t, opt)
	if err != nil {
		t.Fatal(err)
	}
	got := failed(r.Summary.Checks)
	for _, want := range []string{"every worker went on", "service where it belongs", "fenced before taken over"} {
		if !slices.Contains(got, want) {
			t.Errorf("check %q passed", want)
		}
	}
	if r.Summary.Phases.Detect != nil || r.Summary.Phases.FirstIO != nil {
		t.Errorf("phases that were never reached: %+v", r.Summary.Phases)
	}
	if len(p.healed) != 1 {
		t.Error("not healed")
	}
}

func TestRunRefusesUnhealthy(t *testing.T) {
	p := newPair(t)
	p.crm = []string{`name="nfs2" id="2" online="true"`, `name="nfs2" id="2" online="false"`}
	_, err := p.start(t.Context(), t, p.options(t))
	var u *fault.Unhealthy
	if !errors.As(err, &u) {
		t.Fatalf("got %v", err)
	}
	if len(p.injected)+len(p.healed) > 0 {
		t.Errorf("touched: %q %q", p.injected, p.healed)
	}
	p.leftNothing(t)
}

// TestRunInterrupted cancels during the wait for the service: Run still heals the
// brick and leaves nothing.
func TestRunInterrupted(t *testing.T) { synctest.Test(t, testRunInterrupted) }

func testRunInterrupted(t *testing.T) {
	p := newPair(t)
	p.noStart = true
	ctx, cancel := context.WithCancel(t.Context())
	var looks sync.WaitGroup
	defer looks.Wait()
	defer cancel()
	looks.Go(func() {
		for ctx.Err() == nil {
			p.mu.Lock()
			n := len(p.injected)
			p.mu.Unlock()
			if n > 0 {
				cancel()
			}
			time.Sleep(10 * time.Millisecond)
		}
	})
	_, err := p.start(ctx, t, p.options(t))
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	if len(p.healed) != 1 {
		t.Error("not healed")
	}
	p.leftNothing(t)
}

// neverWhole is an Operator whose brick always has a fault.
type neverWhole struct {
	fault.Operator
	asked func()
}

func (n neverWhole) Status(context.Context) (*observe.Status, error) {
	n.asked()
	return &observe.Status{Parts: []*observe.Part{{Level: observe.Fault, Text: "array rebuilds"}}}, nil
}

// TestInterruptedWaiting cancels during the wait for a mended brick to become
// whole: Run returns without further waiting.
func TestInterruptedWaiting(t *testing.T) { synctest.Test(t, testInterruptedWaiting) }

func testInterruptedWaiting(t *testing.T) {
	p := newPair(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	d, v, err := Find("server-crash", "freeze")
	if err != nil {
		t.Fatal(err)
	}
	opt := p.options(t)
	opt.Thorough, opt.Rejoin = true, time.Hour
	_, err = Run(ctx, fault.Env{Design: p.design(), Dial: p.dial, Injector: p, Operator: neverWhole{asked: cancel}, Virtual: true, Version: "test", Progress: func(s string) { t.Log(s) }}, d, v, opt)
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	if len(p.healed) != 1 {
		t.Error("not healed")
	}
	p.leftNothing(t)
}

// stubborn is an Injector that cannot heal some faults at once.
type stubborn struct {
	*pair
	fails map[fault.Kind]int // how often
}

func (s stubborn) Heal(ctx context.Context, f fault.Fault) error {
	if s.fails[f.Kind]--; s.fails[f.Kind] >= 0 {
		return errors.New("no server's cluster answers")
	}
	return s.pair.Heal(ctx, f)
}

// A fault that cannot be healed yet is tried again, and holds up no other one.
func TestMend(t *testing.T) { synctest.Test(t, testMend) }

func testMend(t *testing.T) {
	faults := []fault.Fault{{Kind: fault.Freeze, On: "nfs1"}, {Kind: fault.FeedOff, Args: []string{"pdu-a"}}, {Kind: fault.Freeze, On: "nfs1"}, {Kind: fault.Panic, On: "nfs2"}}
	for name, c := range map[string]struct {
		fails  int
		healed []string
	}{
		"later": {3, []string{"panic nfs2", "freeze nfs1", "feed-off pdu-a"}},
		"never": {1e6, []string{"panic nfs2", "freeze nfs1"}},
	} {
		p := newPair(t)
		e := &engine{Site: fault.Site{Env: fault.Env{Injector: stubborn{p, map[fault.Kind]int{fault.FeedOff: c.fails}}, Progress: func(string) {}}, Injected: faults}}
		troubles, err := e.mend(t.Context())
		if len(troubles) != 1 || (err != nil) != (name == "never") || !slices.Equal(p.healed, c.healed) {
			t.Errorf("%s: %v, healed %q", name, err, p.healed)
		}
	}
}

// What hangs holds up no other fault either, and what remains to be done for the others is
// done.
func TestHealGoesOn(t *testing.T) { synctest.Test(t, testHealGoesOn) }

func testHealGoesOn(t *testing.T) {
	p := newPair(t)
	link := fault.Fault{Kind: fault.LinkDown, On: "nfs1", Args: []string{"private"}}
	e := &engine{Site: fault.Site{Scene: fault.Scene{Design: p.design()}, Env: fault.Env{Injector: hanging{p}, Progress: func(string) {}}, Injected: []fault.Fault{link, link, {Kind: fault.FeedOff, Args: []string{"pdu-a"}}}},
		subjects: []*judge.Subject{{Service: "home", Nodes: []string{"nfs1"}}}}
	ctx, cancel := context.WithTimeout(t.Context(), healTime)
	defer cancel()
	err := e.heal(ctx)
	if err == nil || !strings.Contains(err.Error(), "feed-off pdu-a") {
		t.Error(err)
	}
	if want := []string{link.String(), link.String()}; !slices.Equal(p.healed, want) { // at once, and again once the server is back
		t.Errorf("healed %q", p.healed)
	}
}

// hanging is an Injector that hangs when it gives a PDU its power back.
type hanging struct{ *pair }

func (h hanging) Heal(ctx context.Context, f fault.Fault) error {
	if f.Kind == fault.FeedOff {
		<-ctx.Done()
		return errors.New("no answer")
	}
	return h.pair.Heal(ctx, f)
}

func failed(cs []report.Check) (names []string) {
	for _, c := range cs {
		if !c.OK {
			names = append(names, c.Name)
		}
	}
	return names
}

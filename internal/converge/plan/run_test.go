package plan

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mortarhpc/mortar/internal/base/health"
	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/host/agent"
	"github.com/mortarhpc/mortar/internal/host/gather"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

// thing is a resource of the fake hosts: a name that wants a value.
type thing struct {
	Name, Want string
	Needs      string   // a thing that must be there, or Diff fails
	Refuse     string   // Diff refuses with this
	Stubborn   bool     // running its action does nothing
	Fails      int      // so many runs of its action do nothing, and each is a failure of its own
	Steps      []string // values it takes, one round each, before Want
	Destroys   []string
	Secret     bool
}

func (r *thing) Identity() (kind, id string) { return "thing", r.Name }
func (r *thing) Diff(resource.Look) ([]resource.Action, error) {
	return nil, errors.New("only the fake host knows")
}

// fakeHost answers as an agent does, from a map.
type fakeHost struct {
	name string
	mu   sync.Mutex
	has  map[string]string
	fail map[string]*agent.Error // by thing: running its action fails
	lost atomic.Bool
	log  func(string)
	runs int
	asks int
	// blind is how many looks fail after an action.
	blind   int
	blinded int
	// blindTo is how many looks at a thing fail.
	blindTo map[string]int
	// blank: the agent looks whether a disk is blank before it destroys.
	blank bool
}

func (h *fakeHost) Close() {}

func (h *fakeHost) Call(ctx context.Context, op string, params, result any, _ func(json.RawMessage)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if h.lost.Load() {
		return fmt.Errorf("%s: %w", h.name, agent.ErrLost)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	raw, err := json.Marshal(params)
	if err != nil {
		return err
	}
	h.asks++
	var answer any
	switch op {
	case string(gather.Op):
		answer = gather.Host{Plan: gather.Plan{OSRelease: linux.OSRelease{ID: "debian", Version: "13"}, HostFacts: resource.HostFacts{Mapped: []string{h.name}}}}
	case "diffs":
		var p agent.DiffsParams
		if err := json.Unmarshal(raw, &p); err != nil {
			return err
		}
		var all agent.DiffsResult
		for _, w := range p.Resources {
			var r thing
			if err := json.Unmarshal(w.Resource, &r); err != nil {
				return err
			}
			all.Results = append(all.Results, h.diff(r))
		}
		answer = all
	case "run":
		var p agent.RunParams
		if err := json.Unmarshal(raw, &p); err != nil {
			return err
		}
		name, value := p.Action.Cmd[1], p.Action.Cmd[2]
		if e := h.fail[name]; e != nil {
			return e
		}
		h.runs++
		h.blinded = h.blind
		if value != "nothing" {
			h.has[name] = value
		}
		if h.log != nil {
			h.log(h.name + " " + name)
		}
		answer = resource.Output{}
	default:
		return &agent.Error{Message: "unknown op " + op}
	}
	raw, err = json.Marshal(answer)
	if err != nil || result == nil {
		return err
	}
	return json.Unmarshal(raw, result)
}

func (h *fakeHost) diff(r thing) agent.DiffResult {
	switch {
	case h.blindTo[r.Name] > 0:
		h.blindTo[r.Name]--
		return agent.DiffResult{Error: &agent.Error{Message: "crm_mon: not done after 1m0s"}}
	case h.blinded > 0:
		h.blinded--
		return agent.DiffResult{Error: &agent.Error{Message: "crm_mon: not done after 1m0s"}}
	case r.Refuse != "":
		return agent.DiffResult{Error: &agent.Error{Refusal: true, Refused: health.Identity{Code: "foreign", Args: resource.With{"disk": r.Refuse}}, Message: r.Refuse, Mend: "mend it"}}
	case r.Needs != "" && h.has[r.Needs] == "":
		return agent.DiffResult{Error: &agent.Error{Message: r.Needs + " is not there"}}
	case h.has[r.Name] == r.Want:
		return agent.DiffResult{}
	}
	value := r.Want
	for i := len(r.Steps) - 1; i >= 0 && h.has[r.Name] != r.Steps[i]; i-- {
		value = r.Steps[i]
	}
	occasion := ""
	if r.Fails > 0 {
		occasion = fmt.Sprintf("failure %d", h.runs)
	}
	if r.Stubborn || h.runs < r.Fails {
		value = "nothing"
	}
	a := resource.Action{Title: "set " + r.Name, Cmd: []string{"set", r.Name, value}, Occasion: occasion, Destroys: r.Destroys}
	if h.blank {
		a.Blank = []string{"/dev/mapper/x"}
	}
	return agent.DiffResult{Actions: []resource.Action{a}}
}

func fleet(names ...string) (map[string]*fakeHost, map[string]*host.Session) {
	fakes, hosts := map[string]*fakeHost{}, map[string]*host.Session{}
	for _, n := range names {
		fakes[n] = &fakeHost{name: n, has: map[string]string{}, fail: map[string]*agent.Error{}}
		hosts[n] = host.New(n, fakes[n])
	}
	return fakes, hosts
}

func step(stage, host string, r thing) Step {
	if r.Want == "" {
		r.Want = "there"
	}
	return Step{Stage: stage, Title: stage + " " + r.Name, Host: host, Resource: &r}
}

func mustBuild(t *testing.T, steps []Step, hosts map[string]*host.Session) *Plan {
	t.Helper()
	p, err := Build(t.Context(), steps, hosts)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestApplyThousandHosts(t *testing.T) {
	const n, stages, perStage = 1000, 2, 3
	var names []string
	for i := range n {
		names = append(names, fmt.Sprintf("h%03d", i))
	}
	fakes, hosts := fleet(names...)
	var mu sync.Mutex
	var order []string
	var steps []Step
	for s := range stages {
		for _, h := range names {
			fakes[h].log = func(l string) { mu.Lock(); order = append(order, l); mu.Unlock() }
			for k := range perStage {
				steps = append(steps, step(fmt.Sprintf("stage%d", s), h, thing{Name: fmt.Sprintf("%d.%d", s, k)}))
			}
		}
	}
	p := mustBuild(t, steps, hosts)
	if got := len(p.Pending()); got != len(steps) {
		t.Fatalf("%d of %d pending", got, len(steps))
	}
	for _, f := range fakes {
		if f.asks != 1 {
			t.Fatalf("%s was asked %d times for a plan", f.name, f.asks)
		}
	}
	res, err := p.Apply(t.Context(), hosts, ApplyOptions{})
	if err != nil || res.Changed != len(steps) || res.Unchanged != 0 || res.Actions != len(steps) {
		t.Fatalf("%+v %v", res, err)
	}
	last := map[string]string{} // on a host: in order
	stage := byte('0')          // over all: stages do not mix
	for _, l := range order {
		h, name, _ := strings.Cut(l, " ")
		if name <= last[h] {
			t.Fatalf("%s after %s on %s", name, last[h], h)
		}
		if name[0] < stage {
			t.Fatalf("%s after stage %c began", l, stage)
		}
		last[h], stage = name, name[0]
	}
	p = mustBuild(t, steps, hosts)
	if got := len(p.Pending()); got != 0 {
		t.Errorf("%d pending after an apply", got)
	}
	res, err = p.Apply(t.Context(), hosts, ApplyOptions{})
	if err != nil || res.Changed != 0 || res.Actions != 0 || res.Unchanged != len(steps) {
		t.Errorf("second apply: %+v %v", res, err)
	}
}

// Killed after every single action, the next apply finishes the job.
func TestResumeAfterEveryAction(t *testing.T) {
	steps := func() []Step {
		var all []Step
		for _, stage := range []string{"a", "b"} {
			for _, h := range []string{"x", "y"} {
				all = append(all, step(stage, h, thing{Name: stage + "1"}), step(stage, h, thing{Name: stage + "2", Steps: []string{"half"}}))
			}
		}
		return all
	}
	const total = 12
	for kill := 1; kill <= total; kill++ {
		fakes, hosts := fleet("x", "y")
		killed := errors.New("killed")
		func() {
			// As a kill does: whatever is under way stays half done.
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			_, _ = mustBuild(t, steps(), hosts).Apply(ctx, hosts, ApplyOptions{AfterAction: func(n int) {
				if n >= kill {
					cancel(killed)
				}
			}})
		}()
		p := mustBuild(t, steps(), hosts)
		res, err := p.Apply(t.Context(), hosts, ApplyOptions{})
		if err != nil {
			t.Fatalf("killed after %d: %v", kill, err)
		}
		runs := fakes["x"].runs + fakes["y"].runs
		if runs != total {
			t.Errorf("killed after %d: %d actions in both runs (%+v in the second), want %d: none twice", kill, runs, res, total)
		}
		if n := len(mustBuild(t, steps(), hosts).Pending()); n != 0 {
			t.Errorf("killed after %d: %d still pending", kill, n)
		}
	}
}

func TestFailureHalts(t *testing.T) {
	fakes, hosts := fleet("x", "y")
	fakes["x"].fail["two"] = &agent.Error{Message: "set two: exit code 7", Cmd: []string{"set", "two", "it's there"}, Code: 7, Stderr: "no\nway\n"}
	var steps []Step
	for _, h := range []string{"x", "y"} {
		steps = append(steps, step("first", h, thing{Name: "one"}), step("first", h, thing{Name: "two"}), step("first", h, thing{Name: "three"}), step("second", h, thing{Name: "four"}))
	}
	var events []Event
	res, err := mustBuild(t, steps, hosts).Apply(t.Context(), hosts, ApplyOptions{OnEvent: func(e Event) { events = append(events, e) }})
	var f *Failure
	if !errors.As(err, &f) || f.Host != "x" || f.Code != 7 || f.Step != "first two" {
		t.Fatalf("%v", err)
	}
	for _, want := range []string{"x: first: first two: set two", `set two 'it'\''s there'`, "exit code: 7", "no\n", "way"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not have %q", err, want)
		}
	}
	for n, f := range fakes {
		if f.has["four"] != "" {
			t.Errorf("%s went on to the next stage", n)
		}
	}
	if fakes["x"].has["one"] == "" || fakes["x"].has["three"] != "" {
		t.Errorf("x has %v", fakes["x"].has)
	}
	if res.Changed < 1 {
		t.Errorf("%+v", res)
	}
	failed := 0
	for _, e := range events {
		if e.Event == EventFailed {
			failed++
		}
	}
	if failed != 1 {
		t.Errorf("%d failures among %+v", failed, events)
	}
	delete(fakes["x"].fail, "two")
	if _, err := mustBuild(t, steps, hosts).Apply(t.Context(), hosts, ApplyOptions{}); err != nil {
		t.Error(err)
	}
}

func TestDidNotConverge(t *testing.T) {
	fakes, hosts := fleet("x")
	_, err := mustBuild(t, []Step{step("s", "x", thing{Name: "a", Stubborn: true})}, hosts).Apply(t.Context(), hosts, ApplyOptions{})
	if err == nil || !strings.Contains(err.Error(), "did not converge") || !strings.Contains(err.Error(), "set a") {
		t.Errorf("%v", err)
	}
	if fakes["x"].runs != 1 {
		t.Errorf("the same action was run %d times", fakes["x"].runs)
	}
	_, err = mustBuild(t, []Step{step("s", "x", thing{Name: "b", Steps: []string{"1", "2", "3", "4", "5", "6"}})}, hosts).Apply(t.Context(), hosts, ApplyOptions{})
	if err == nil || !strings.Contains(err.Error(), "did not converge") {
		t.Errorf("endless rounds: %v", err)
	}
}

// waiting is a thing that comes about by itself.
type waiting struct{ thing }

func (r *waiting) Settle() time.Duration { return 3 * time.Second }

// A wait may need an action meanwhile, which is done once: a fence
// device that failed is tried again.
func TestWaitedForAndHelped(t *testing.T) {
	fakes, hosts := fleet("x")
	s := step("s", "x", thing{})
	s.Resource = &waiting{thing{Name: "a", Want: "there", Steps: []string{"failed"}}}
	res, err := mustBuild(t, []Step{s}, hosts).Apply(t.Context(), hosts, ApplyOptions{})
	if err != nil || res.Changed != 1 || fakes["x"].runs != 2 || fakes["x"].has["a"] != "there" {
		t.Errorf("%+v %v, %d actions", res, err, fakes["x"].runs)
	}
	// The same failure once more is a reason to try again, the old one is not.
	s.Resource = &waiting{thing{Name: "c", Want: "there", Fails: 2}}
	fakes["x"].runs = 0
	if _, err = mustBuild(t, []Step{s}, hosts).Apply(t.Context(), hosts, ApplyOptions{}); err != nil || fakes["x"].runs != 3 {
		t.Errorf("%v, %d actions", err, fakes["x"].runs)
	}
	// Nothing is run over and over while it is waited for.
	s.Resource = &waiting{thing{Name: "b", Want: "there", Stubborn: true}}
	fakes["x"].runs = 0
	if _, err = mustBuild(t, []Step{s}, hosts).Apply(t.Context(), hosts, ApplyOptions{}); err == nil || fakes["x"].runs != 1 {
		t.Errorf("%v, %d actions", err, fakes["x"].runs)
	}
}

// meeting is a host on which no action ends before the last of a number has begun.
type meeting struct {
	*fakeHost
	begun sync.WaitGroup
}

func (h *meeting) Call(ctx context.Context, op string, params, result any, on func(json.RawMessage)) error {
	if op == "run" {
		h.begun.Done()
		h.begun.Wait()
	}
	return h.fakeHost.Call(ctx, op, params, result, on)
}

// Steps that depend on none of each other are compared at once, and changed side by side. If one
// fails the others are finished, and no more are begun.
func TestSideBySide(t *testing.T) {
	for _, fails := range []string{"", "a1"} {
		synctest.Test(t, func(t *testing.T) {
			fakes, _ := fleet("x")
			m := &meeting{fakeHost: fakes["x"]}
			if fails != "" {
				m.fail[fails] = &agent.Error{Message: "no"}
			}
			hosts := map[string]*host.Session{"x": host.New("x", m)}
			steps := []Step{step("s", "x", thing{Name: "first"})}
			for i := range sideBySide {
				s := step("s", "x", thing{Name: fmt.Sprint("a", i)})
				s.Apart = true
				steps = append(steps, s)
			}
			steps = append(steps, step("s", "x", thing{Name: "last", Needs: "a0"}))
			p := mustBuild(t, steps[:len(steps)-1], hosts)
			p.Steps = append(p.Steps, Planned{Step: steps[len(steps)-1]})
			m.begun.Add(1)
			asked := m.asks
			res, err := p.Apply(t.Context(), hosts, ApplyOptions{AfterAction: func(n int) {
				switch n {
				case 1:
					m.begun.Add(sideBySide)
				case 1 + sideBySide:
					m.begun.Add(1)
				}
			}})
			if (err != nil) != (fails != "") || (m.has["last"] == "there") != (fails == "") || m.has["a0"] != "there" || m.has["a2"] != "there" {
				t.Errorf("%+v %v %v", res, err, m.has)
			}
			// All at first; the first thing; those that go side by side, at once and each once more; the last one.
			if got := m.asks - asked - m.runs; fails == "" && got != 1+1+1+sideBySide+1+1 {
				t.Errorf("%d looks", got)
			}
		})
	}
}

// A busy server may not answer in time while its service starts.
func TestLookThatFailsIsRepeated(t *testing.T) {
	fakes, hosts := fleet("x")
	s := step("s", "x", thing{})
	s.Resource = &waiting{thing{Name: "a", Want: "there"}}
	fakes["x"].blind = 2
	if _, err := mustBuild(t, []Step{s}, hosts).Apply(t.Context(), hosts, ApplyOptions{}); err != nil {
		t.Error(err)
	}
	s.Resource = &waiting{thing{Name: "b", Want: "there"}}
	fakes["x"].blind = 1000
	if _, err := mustBuild(t, []Step{s}, hosts).Apply(t.Context(), hosts, ApplyOptions{}); err == nil || !strings.Contains(err.Error(), "not done after") {
		t.Errorf("only looks that fail: %v", err)
	}
	// The first look of a step may fail as well: the step before has changed something.
	fakes["x"].blind, fakes["x"].blinded = 0, 0
	s.Resource = &waiting{thing{Name: "e", Want: "there"}}
	p := mustBuild(t, []Step{step("s", "x", thing{Name: "d", Want: "there"}), s}, hosts)
	fakes["x"].blindTo = map[string]int{"e": 2}
	if _, err := p.Apply(t.Context(), hosts, ApplyOptions{}); err != nil {
		t.Error(err)
	}
	// What does not come about by itself is looked at once.
	fakes["x"].blind, fakes["x"].blinded = 1, 0
	if _, err := mustBuild(t, []Step{step("s", "x", thing{Name: "c"})}, hosts).Apply(t.Context(), hosts, ApplyOptions{}); err == nil {
		t.Error("a look that failed was repeated for nothing")
	}
}

// What the plan saw is not trusted: it is compared again before it is done.
func TestComparedAgain(t *testing.T) {
	fakes, hosts := fleet("x")
	p := mustBuild(t, []Step{step("s", "x", thing{Name: "a"}), step("s", "x", thing{Name: "b"})}, hosts)
	fakes["x"].has["a"] = "there"
	res, err := p.Apply(t.Context(), hosts, ApplyOptions{})
	if err != nil || res.Changed != 1 || res.Unchanged != 1 {
		t.Errorf("%+v %v", res, err)
	}
}

func TestRefusalsAreGathered(t *testing.T) {
	fakes, hosts := fleet("x", "y")
	_, err := Build(t.Context(), []Step{
		step("s", "x", thing{Name: "a"}), step("s", "x", thing{Name: "b", Refuse: "disk MA01 has ext4"}),
		step("s", "y", thing{Name: "c", Refuse: "disk MA02 has LVM"}),
	}, hosts)
	var r Refusals
	if !errors.As(err, &r) || len(r) != 2 || !strings.Contains(err.Error(), "x: s b: disk MA01 has ext4; mend it") || !r[1].Has("foreign", "disk", "disk MA02 has LVM") {
		t.Errorf("%v", err)
	}
	if fakes["x"].runs != 0 {
		t.Error("changed all the same")
	}
}

func TestDestroyingNeedsTheSerial(t *testing.T) {
	fakes, hosts := fleet("x")
	steps := []Step{step("s", "x", thing{Name: "a", Destroys: []string{"MA01", "MA02"}})}
	_, err := mustBuild(t, steps, hosts).Apply(t.Context(), hosts, ApplyOptions{MayDestroy: []string{"MA01"}})
	var r *resource.Refusal
	if !errors.As(err, &r) || !r.Has("wipe-not-permitted", "serial", "MA02") || fakes["x"].runs != 0 {
		t.Errorf("%v, %d runs", err, fakes["x"].runs)
	}
	if _, err := mustBuild(t, steps, hosts).Apply(t.Context(), hosts, ApplyOptions{MayDestroy: []string{"MA02", "MA01"}}); err != nil {
		t.Error(err)
	}
}

func TestLostHost(t *testing.T) {
	fakes, hosts := fleet("x", "y")
	steps := []Step{step("s", "x", thing{Name: "a"}), step("s", "y", thing{Name: "a"}), step("t", "y", thing{Name: "b"})}
	p := mustBuild(t, steps, hosts)
	fakes["y"].lost.Store(true)
	if _, err := p.Apply(t.Context(), hosts, ApplyOptions{}); !errors.Is(err, agent.ErrLost) || !strings.Contains(err.Error(), "y") {
		t.Errorf("%v", err)
	}
	if _, err := Build(t.Context(), steps, hosts); !errors.Is(err, agent.ErrLost) {
		t.Errorf("%v", err)
	}
	if _, err := Observe(t.Context(), hosts); !errors.Is(err, agent.ErrLost) {
		t.Errorf("%v", err)
	}
	delete(hosts, "y")
	if _, err := Build(t.Context(), steps, hosts); err == nil || !strings.Contains(err.Error(), `"y"`) {
		t.Errorf("%v", err)
	}
	f, err := Observe(t.Context(), hosts)
	if err != nil || f.Hosts["x"].Mapped[0] != "x" || f.OS["x"].ID != "debian" {
		t.Errorf("%+v %v", f, err)
	}
}

func TestShow(t *testing.T) {
	p := &Plan{DigestKey: []byte("key"), Steps: []Planned{
		{Step: step("files", "nfs1", thing{Name: "a"}), Before: map[string][]byte{"/etc/a": []byte("one\ntwo\n")}, Actions: []resource.Action{
			{Title: "write a", Why: "because", File: &resource.File{Path: "/etc/a", Content: []byte("one\nthree\n"), Mode: 0o644}},
			{Title: "write b", File: &resource.File{Path: "/etc/b", Content: []byte("new\n"), Mode: 0o640, Group: "haclient"}},
			{Title: "make d", File: &resource.File{Path: "/etc/d", Mkdir: true, Mode: 0o755}},
			{Title: "link l", File: &resource.File{Path: "/etc/l", Symlink: "a"}},
			{Title: "remove r", File: &resource.File{Path: "/etc/r", Remove: true}},
		}},
		{Step: step("files", "nfs2", thing{Name: "a"})},
		{Step: step("secrets", "nfs1", thing{Name: "s"}), Before: map[string][]byte{"/etc/s": []byte("hunter1")}, Actions: []resource.Action{
			{Title: "write s", Secret: true, File: &resource.File{Path: "/etc/s", Content: []byte("hunter2"), Mode: 0o600}},
			{Title: "feed s", Secret: true, Cmd: []string{"tool", "-"}, Stdin: []byte("hunter2")},
		}},
		{Step: step("disks", "nfs1", thing{Name: "d"}), Actions: []resource.Action{
			{Title: "wipe", Cmd: []string{"wipefs", "--all", "/dev/x y"}, Destroys: []string{"MA01"}},
			{Title: "patch", Cmd: []string{"cibadmin", "--patch", "--xml-pipe"}, Stdin: []byte("<diff/>\n")},
		}},
	}}
	var b bytes.Buffer
	if err := p.Show(&b, nil); err != nil {
		t.Fatal(err)
	}
	const want = `nfs1
  files
    files a (thing a)
      - write a  # because
        file /etc/a root:root 0644
          @@ -1,2 +1,2 @@
           one
          -two
          +three
      - write b
        file /etc/b root:haclient 0640
          + new
      - make d
        directory /etc/d root:root 0755
      - link l
        link /etc/l -> a
      - remove r
        remove /etc/r
  secrets
    secrets s (thing s)
      - write s
        file /etc/s root:root 0600
          + (secret, HMAC 05d210d8af05129c)
      - feed s
        $ tool -
        < (secret, HMAC 05d210d8af05129c)
  disks
    disks d (thing d)
      - wipe
        DESTROYS the data on: MA01
        $ wipefs --all '/dev/x y'
      - patch
        $ cibadmin --patch --xml-pipe
        < <diff/>
nfs2 nothing to change
3 of 4 resources to change.
`
	if b.String() != want {
		t.Errorf("got:\n%s", b.String())
	}
	if got := (&Plan{}).presentable([]byte("hunter2"), true); got != "(secret)" {
		t.Errorf("without a key: %s", got)
	}
	raw, err := json.Marshal(p.Doc())
	if err != nil || bytes.Contains(raw, []byte("hunter")) {
		t.Errorf("%s %v", raw, err)
	}
}

func BenchmarkPlan1000Hosts(b *testing.B) {
	var names []string
	for i := range 1000 {
		names = append(names, fmt.Sprintf("h%03d", i))
	}
	_, hosts := fleet(names...)
	var steps []Step
	for _, h := range names {
		for k := range 30 {
			steps = append(steps, step("s", h, thing{Name: fmt.Sprint(k)}))
		}
	}
	for b.Loop() {
		if _, err := Build(b.Context(), steps, hosts); err != nil {
			b.Fatal(err)
		}
	}
}

// A guard is asked before each action. What it refuses is not run, nor what
// it cannot be asked about.
func TestGuards(t *testing.T) {
	guarded := func(g thing) Step {
		s := step("storage", "a", thing{Name: "array", Steps: []string{"half"}, Want: "whole"})
		s.Guards = []Step{step("storage", "a", thing{Name: "own", Refuse: ""}), step("storage", "b", g)}
		return s
	}
	for name, c := range map[string]struct {
		guard thing
		lost  bool
		runs  int
		want  string
	}{
		"free":             {thing{Name: "other", Want: "x"}, false, 2, ""},
		"refused":          {thing{Name: "other", Refuse: "the cluster has service-home"}, false, 0, "b: the cluster has service-home"},
		"refused half-way": {thing{Name: "other", Needs: "free"}, false, 1, "b: free is not there"},
		"cannot be asked":  {thing{Name: "other"}, true, 0, "lost"},
	} {
		t.Run(name, func(t *testing.T) {
			fakes, hosts := fleet("a", "b")
			fakes["b"].has["free"], fakes["b"].has["other"] = "yes", c.guard.Want
			fakes["a"].has["own"] = "there"
			fakes["a"].log = func(string) { delete(fakes["b"].has, "free") }
			s := guarded(c.guard)
			p, err := Build(t.Context(), []Step{s}, hosts)
			if err != nil {
				t.Fatal(err)
			}
			fakes["b"].lost.Store(c.lost)
			_, err = p.Apply(t.Context(), hosts, ApplyOptions{})
			if fakes["a"].runs != c.runs || (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%d actions were run, %v; want %d and %q", fakes["a"].runs, err, c.runs, c.want)
			}
		})
	}
}

// A creation over disks that the agent finds blank needs no typed serial; a
// wipe does.
func TestBlankDisksNeedNoSerial(t *testing.T) {
	for _, blank := range []bool{false, true} {
		fakes, hosts := fleet("a")
		fakes["a"].blank = blank
		p, err := Build(t.Context(), []Step{step("disks", "a", thing{Name: "array", Destroys: []string{"MA01"}})}, hosts)
		if err != nil {
			t.Fatal(err)
		}
		if _, err = p.Apply(t.Context(), hosts, ApplyOptions{}); (err == nil) != blank {
			t.Errorf("blank %v: %v", blank, err)
		}
	}
}

package drill

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/prove/report"
	"github.com/mortarhpc/mortar/internal/prove/workload"
)

func mountOn(client, version string) design.ClientMount {
	return design.ClientMount{Client: client, Service: "home", Source: "10.0.0.9:/srv/home", Path: "/mnt/v" + version, Version: version}
}

// A server of NFSv3 keeps the locks of a dead client until the client has booted.
func TestClientCrashSteps(t *testing.T) {
	for name, c := range map[string]struct {
		mounts []design.ClientMount
		want   string
	}{
		"one client": {[]design.ClientMount{mountOn("c1", "3"), mountOn("c1", "4.1")}, ""},
		"NFSv4":      {[]design.ClientMount{mountOn("c1", "4.1"), mountOn("c2", "4.1")}, "another client gets its locks; the client is back; another client has all its locks"},
		"NFSv3":      {[]design.ClientMount{mountOn("c1", "3"), mountOn("c2", "3")}, "; the client is back; another client has all its locks"},
		"Lustre":     {[]design.ClientMount{mountOn("c1", "lustre"), mountOn("c2", "lustre")}, "another client gets its locks; the client is back; another client has all its locks"},
	} {
		steps, err := clientCrash(Scene{Design: testDesign(c.mounts...)})
		var got []string
		for _, s := range steps {
			what := ""
			if s.Until != nil {
				what = s.Until.What
			}
			got = append(got, what)
		}
		if strings.Join(got, "; ") != c.want || (err != nil) != (c.want == "") || err == nil && steps[0].Fault.String() != "client-down c1" {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

func TestDies(t *testing.T) {
	all, err := jobs(testDesign(mountOn("c1", "4.1"), mountOn("c2", "4.1")), "home", "r1", "/run/mortar", 8)
	if err != nil {
		t.Fatal(err)
	}
	if err := dies(all); err != nil || !all[0].job.Durable || all[1].job.Durable {
		t.Errorf("%+v, %v", all, err)
	}
	roles := map[workload.LockRole]int{}
	for _, j := range all {
		for _, l := range j.job.Locks {
			roles[l.Role]++
		}
	}
	if roles[workload.Hold] != 1 || roles[workload.Take] != 1 || roles[workload.Challenge] != 0 {
		t.Errorf("roles %v", roles)
	}
	other := mountOn("c2", "4.1")
	other.Source = "10.0.0.9:/srv/scratch"
	if all, err = jobs(testDesign(mountOn("c1", "4.1"), other), "home", "r1", "/run/mortar", 8); err != nil {
		t.Fatal(err)
	}
	if err := dies(all); err == nil {
		t.Error("nobody takes the lock")
	}
}

// Another client gets the lock after the MDS has evicted the dead one.
func TestJudgeTaken(t *testing.T) {
	const s = int64(1e9)
	const eviction = "LustreError: 0:0:(ldlm_lockd.c:252:expired_lock_main()) ### lock callback timer expired after 100s: evicting client at 10.0.0.1@tcp ns: mdt-small-MDT0000_UUID"
	for name, c := range map[string]struct {
		took   int64 // after the fault; 0: never
		spoil  func(e *evidence)
		failed bool
		says   string
	}{
		"after the eviction":  {115 * s, func(*evidence) {}, false, "got it 115.0 s after the death of c1"},
		"never":               {0, func(*evidence) {}, true, "never got it"},
		"from a living one":   {-s, func(*evidence) {}, true, "while c1 still held it"},
		"before the eviction": {60 * s, func(*evidence) {}, true, "before the MDS evicted c1 after 110.0 s"},
		"nobody evicted":      {115 * s, func(e *evidence) { e.events = nil }, true, "no MDS evicted c1"},
		"another one evicted": {115 * s, func(e *evidence) { e.deadAddress = "10.0.0.2" }, true, "no MDS evicted c1"},
		"evicted by an OST": {115 * s, func(e *evidence) {
			e.events[0].Text = strings.Replace(eviction, "mdt-small-MDT0000", "filter-small-OST0000", 1)
		}, true, "no MDS evicted c1"},
		"NFS":          {40 * s, func(e *evidence) { e.evicts, e.events = false, nil }, false, "got it 40.0 s after"},
		"nobody tried": {40 * s, func(e *evidence) { e.loads = nil }, true, "no other client tried"},
	} {
		w := workload.WorkerResult{Worker: "lustre-c1-tried", Kind: lockTake, Completions: []workload.Completion{{Op: "ask", DoneNs: 99*s + 7}}}
		if c.took != 0 {
			w.Completions = append(w.Completions, workload.Completion{Op: workload.OpTook, DoneNs: 100*s + c.took + 7})
		}
		e := evidence{fault: 100 * s, dead: "c1", deadAddress: "10.0.0.1", evicts: true,
			events: []report.Event{{NS: 210 * s, Host: "mds1", Source: "kernel", Kind: report.EventFS, Text: eviction}},
			loads:  []loaded{{client: "c2", offset: 7, result: workload.Result{Workers: []workload.WorkerResult{w}}}}}
		c.spoil(&e)
		checks := e.judgeTaken()
		if len(checks) != 1 || checks[0].OK == c.failed || !strings.Contains(checks[0].Detail, c.says) {
			t.Errorf("%s: %+v", name, checks)
		}
	}
}

// mortal is a pair with two clients, of which the first dies with its session, and boots.
type mortal struct {
	*pair
	once sync.Once
}

func (m *mortal) Inject(_ context.Context, f Fault) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.injected = append(m.injected, f.String())
	m.down[f.On] = true
	m.sessions[f.On].Close()
	return nil
}

// A client dies: what it had acknowledged is read back from its ledger, its lock goes to the
// other one, and the verdict is a pass. If its data is gone, it is lost.
func TestRunClientDies(t *testing.T) { synctest.Test(t, testRunClientDies) }

func testRunClientDies(t *testing.T) {
	for name, want := range map[string]string{"kept": report.Pass, "lost": report.Fail} {
		m := &mortal{pair: newPair(t)}
		if want == report.Fail {
			m.tamper = func() {
				m.once.Do(func() {
					files, _ := filepath.Glob(filepath.Join(m.dir, loadDir, "*", "v3-c1-osync.data"))
					if len(files) != 1 || os.Truncate(files[0], 0) != nil {
						t.Errorf("no data of the dead client: %v", files)
					}
				})
			}
		}
		d := m.design()
		second := d.Mounts[0]
		second.Client = "c2"
		d.Mounts = append(d.Mounts, second)
		x, v, err := Find("client-crash", "")
		if err != nil {
			t.Fatal(err)
		}
		steps := v.Steps
		v.Steps = func(s Scene) ([]Step, error) {
			out, err := steps(s)
			out[0].Wait = 0
			return out, err
		}
		r, err := Run(t.Context(), Env{Design: d, Dial: m.dial, Injector: m, Virtual: true, Version: "test", Progress: func(s string) { t.Log(s) }}, x, v, m.options(t))
		if err != nil {
			t.Fatal(err)
		}
		if r.Summary.Verdict != want {
			t.Errorf("%s: verdict %s: %q", name, r.Summary.Verdict, r.Summary.Reasons)
		}
		i := slices.IndexFunc(r.Summary.Clients, func(c report.Client) bool { return c.Name == "c1" })
		if i < 0 || r.Summary.Clients[i].AcknowledgedBytes == 0 || (r.Summary.Clients[i].LostBytes > 0) != (want == report.Fail) {
			t.Errorf("%s: %+v", name, r.Summary.Clients)
		}
		if !slices.Contains(m.healed, "client-down c1") {
			t.Errorf("%s: healed %q", name, m.healed)
		}
	}
}

package drill

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/prove/fault"
	"github.com/mortarhpc/mortar/internal/prove/judge"
	"github.com/mortarhpc/mortar/internal/prove/report"
	"github.com/mortarhpc/mortar/internal/prove/workload"
	"github.com/mortarhpc/mortar/test/example"
)

// The server freezes with dirty data in memory. The writers get their mark before
// the server wakes up, not before it freezes.
func TestFencingLies(t *testing.T) {
	d := example.Design(t, "nss2-ha.yaml")
	_, v, err := Find(fencingLiesName, "outlets")
	if err != nil {
		t.Fatal(err)
	}
	steps, err := v.Steps(fault.Scene{Design: d, Service: d.Services()[0], Active: "nss1", Passive: "nss2"})
	if err != nil {
		t.Fatal(err)
	}
	got := words(steps)
	want := []string{"bmc-dead nss1", "astray nss1", "write-soon nss1", "until data in memory only", "freeze nss1", "wait 10s", "until the partner serves", "wait 10s", "keep", "wait 8s",
		"mend freeze nss1", "until the server that woke up is refused, or resets itself", "until the server that woke up has let go", "until the cluster knows one server of the service"}
	if !slices.Equal(got, want) || !v.Rewrite {
		t.Errorf("steps %q, want %q; rewrite %v", got, want, v.Rewrite)
	}
	for name, active := range map[string]string{"nfs-ha.yaml": "nfs1", "nfs-ha-xl.yaml": "nfs1", "lustre-small.yaml": "oss1"} {
		jbod := example.Design(t, name)
		scene := fault.Scene{Design: jbod, Service: jbod.Services()[0], Active: active, Passive: "other"}
		if steps, err := v.Steps(scene); err != nil || len(steps) != len(want) {
			t.Errorf("%s: %d steps, %v", name, len(steps), err)
		}
		jbod.Spec.Profile = spec.Stock
		if _, err := v.Steps(scene); err == nil {
			t.Errorf("%s: done without reservations", name)
		}
	}
}

func TestDirtyBytes(t *testing.T) {
	text := "MemTotal:         979312 kB\nDirty:              1536 kB\nWriteback:           512 kB\nWritebackTmp:          8 kB\nHugePages_Total:       0\n"
	if n := dirtyBytes(text); n != 2<<20 {
		t.Errorf("%d bytes", n)
	}
	if n := dirtyBytes(""); n != 0 {
		t.Errorf("%d bytes of nothing", n)
	}
}

func TestRewriters(t *testing.T) {
	js, err := jobs(testDesign(design.ClientMount{Client: "c1", Service: "home", Source: "10.0.0.9:/srv/home", Path: "/mnt/v3", Version: "3"}), "home", "r1", "/run/mortar", 8)
	if err != nil {
		t.Fatal(err)
	}
	js[0].addRewriters()
	ws := js[0].job.Writers
	w := ws[len(ws)-1]
	if len(ws) != 3 || w.Name != "v3-c1-rewrite" || w.Mode != workload.Fsync || int64(w.FsyncEvery)*w.BlockBytes != w.FileBytes || w.OpsPerSecond != 0 {
		t.Errorf("%d writers, the last is %+v", len(ws), w)
	}
	if m := js[0].mounts[w.Name]; m.Path != "/mnt/v3" {
		t.Errorf("its mount is %+v", m)
	}
}

// Sessions with a server that is to wake up last while it is frozen, and only then.
func TestSessionsOfFrozenServers(t *testing.T) {
	lies, _, err := Find(fencingLiesName, "bmc")
	if err != nil {
		t.Fatal(err)
	}
	for _, wakes := range []bool{lies.Expect.Wakes, false} {
		p := newPair(t)
		e := &engine{Site: fault.Site{Env: fault.Env{Injector: p, Excused: &host.Excused{}}, Watch: fault.NewWatcher(func(string) {}, nil)}, expect: judge.Expect{Wakes: wakes}}
		frozen := fault.Fault{Kind: fault.Freeze, On: "nfs1"}
		if err := e.carryOut(t.Context(), Drawn{Step: Inject(frozen)}, "", 0); err != nil || e.Env.Excused.Has("nfs1") != wakes {
			t.Errorf("wakes %v, frozen: %v, excused %v", wakes, err, e.Env.Excused.Has("nfs1"))
		}
		if err := e.carryOut(t.Context(), Drawn{Step: Mend(frozen)}, "", 0); err != nil || e.Env.Excused.Has("nfs1") {
			t.Errorf("wakes %v, mended: %v, excused %v", wakes, err, e.Env.Excused.Has("nfs1"))
		}
	}
	if !lies.Expect.Wakes {
		t.Error("fencing-lies tests a server that does not wake up")
	}
}

// The writers get their mark at the step Keep, not at the fault.
func TestKeep(t *testing.T) { synctest.Test(t, testKeep) }

func testKeep(t *testing.T) {
	for _, later := range []bool{false, true} {
		p := newPair(t)
		frozen := fault.Fault{Kind: fault.Freeze, On: "nfs1"}
		d, v, err := Find("server-crash", "freeze")
		if err != nil {
			t.Fatal(err)
		}
		writing := func(window int64) *fault.Condition {
			return &fault.Condition{What: "writes", Limit: 20 * time.Second, Look: func(context.Context, *fault.Site) (bool, string) {
				files, _ := filepath.Glob(filepath.Join(p.dir, fault.LoadDir, "*", "*osync.data"))
				if len(files) != 1 {
					return false, "no file"
				}
				st, err := os.Stat(files[0])
				return err == nil && st.Size() > window*(16<<20) && st.Size() <= (window+1)*(16<<20), "its size"
			}}
		}
		v.Steps = func(fault.Scene) ([]Step, error) {
			if !later {
				return []Step{Inject(frozen), Until{writing(1)}}, nil
			}
			return []Step{Inject(frozen), Wait(300 * time.Millisecond), Until{writing(0)}, Keep{}, Until{writing(1)}}, nil
		}
		r, err := Run(t.Context(), fault.Env{Design: p.design(), Dial: p.dial, Injector: p, Virtual: true, Version: "test", Progress: func(s string) { t.Log(s) }}, d, v, p.options(t))
		if err != nil {
			t.Fatal(err)
		}
		if r.Summary.Verdict != report.Pass {
			t.Errorf("later %v: %q", later, r.Summary.Reasons)
		}
	}
}

// The writers get a mark at each fault, once, but for settings of a kernel.
func TestMarkAtEachFault(t *testing.T) {
	pulled, frozen := fault.Fault{Kind: fault.LinkDown, On: "nfs1", Args: []string{"private"}}, fault.Fault{Kind: fault.Freeze, On: "nfs1"}
	e := &engine{Site: fault.Site{Injected: []fault.Fault{pulled}}}
	for _, c := range []struct {
		fault fault.Fault
		want  bool
	}{
		{frozen, true},
		{fault.Fault{Kind: fault.HoldRebuild, On: "nfs1"}, false},
		{pulled, false}, // again
	} {
		if got := e.keeps(c.fault); got != c.want {
			t.Errorf("%+v: %v", c.fault, got)
		}
	}
	e.steps = []Step{Keep{}}
	if e.keeps(frozen) {
		t.Error("a drill that says when data is kept keeps it at the fault too")
	}
}

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
	"github.com/mortarhpc/mortar/internal/prove/fault"
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
		"NFSv3":      {[]design.ClientMount{mountOn("c1", "3"), mountOn("c2", "3")}, "the client is back; another client has all its locks"},
		"Lustre":     {[]design.ClientMount{mountOn("c1", "lustre"), mountOn("c2", "lustre")}, "another client gets its locks; the client is back; another client has all its locks"},
	} {
		steps, err := clientCrash(fault.Scene{Design: testDesign(c.mounts...)})
		var got []string
		for _, s := range steps {
			if u, ok := s.(Until); ok {
				got = append(got, u.What)
			}
		}
		if strings.Join(got, "; ") != c.want || (err != nil) != (c.want == "") || err == nil && words(steps)[0] != "client-down c1" {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

func TestDies(t *testing.T) {
	all, err := jobs(testDesign(mountOn("c1", "4.1"), mountOn("c2", "4.1")), "home", "r1", "/run/mortar", 8)
	if err != nil {
		t.Fatal(err)
	}
	if err := firstClientDies(all); err != nil || !all[0].job.Durable || all[1].job.Durable {
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
	if err := firstClientDies(all); err == nil {
		t.Error("nobody takes the lock")
	}
}

// mortal is a pair with two clients, of which the first dies with its session, and boots.
type mortal struct {
	*pair
	once sync.Once
}

func (m *mortal) Inject(_ context.Context, f fault.Fault) error {
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
					files, _ := filepath.Glob(filepath.Join(m.dir, fault.LoadDir, "*", "v3-c1-osync.data"))
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
		v.Steps = func(s fault.Scene) ([]Step, error) {
			out, err := steps(s)
			if _, waits := out[1].(Wait); waits {
				out[1] = Wait(0)
			}
			return out, err
		}
		r, err := Run(t.Context(), fault.Env{Design: d, Dial: m.dial, Injector: m, Virtual: true, Version: "test", Progress: func(s string) { t.Log(s) }}, x, v, m.options(t))
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

package ocf

import (
	"os"
	"slices"
	"testing"
	"time"
)

// The process that stays bars a server without links from fencing, gives the way back in the
// end, and resets the server for a service that could not be stopped.
func TestRest(t *testing.T) {
	h := newShared(t).hosts["nfs1"]
	cfg := testConfig()
	cfg.Fences, cfg.Rings = []string{"10.2.0.11"}, map[string][]string{"nfs1": {"10.0.0.1"}}
	s := h.service(cfg)
	h.files["/sys/class/net/eth0/carrier"] = "1\n"
	h.cabled(true)
	if err := s.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	w := h.watcher(s)
	for _, c := range []struct {
		carrier string
		barred  bool
	}{{"1\n", false}, {"0\n", true}} {
		h.files["/sys/class/net/eth0/carrier"] = c.carrier
		looks := 0
		w.standBy(t.Context(), func() bool {
			if looks++; looks == 2 && slices.Contains(h.barred, "10.2.0.11/32") != c.barred {
				t.Errorf("carrier %q: barred %v", c.carrier, h.barred)
			}
			return looks < 2
		})
		if len(h.barred) > 0 {
			t.Errorf("barred after its end: %v", h.barred)
		}
	}
	h.files["/sys/class/net/eth0/carrier"] = "1\n"
	h.clock = h.clock.Add(fencesAfter) // since the link came back
	s.overdueIn(-time.Second)
	looks := 0
	w.standBy(t.Context(), func() bool { looks++; return looks < 2 })
	if !slices.Contains(h.changes, "poke /proc/sysrq-trigger b") {
		t.Error("no reset")
	}
}

// The agent's stop leaves a process in the watcher's place while the cluster's daemons run,
// and its start ends that.
func TestRestTakesThePlaceOfTheWatcher(t *testing.T) {
	host, write := watchedHost(t)
	file := write("good.json", map[string]string{host: "10.0.0.1", "partner": "10.0.0.2"})
	of := clusterEngine
	t.Cleanup(func() { clusterEngine = of })
	own := processName(os.Getpid())
	none := "no-such-daemon"
	for i, c := range []struct {
		action, engine string
		code           int
		watches, rests bool
	}{
		{"start", own, Success, true, false},
		{"stop", own, Success, false, true},
		{"monitor", own, NotRunning, false, true},
		{"stop", own, Success, false, true},
		{"start", own, Success, true, false},
		{"stop", none, Success, false, false},
	} {
		clusterEngine = c.engine
		code, err := watchDo(t.Context(), c.action, []string{file})
		if err != nil && c.code == Success {
			t.Fatal(err)
		}
		w, werr := theWatcher.running()
		r, rerr := standbyProcess.running()
		if code != c.code || (w != 0) != c.watches || (r != 0) != c.rests || werr != nil || rerr != nil {
			t.Fatalf("%d: %s: %d; watcher %d %v, rest %d %v", i, c.action, code, w, werr, r, rerr)
		}
	}
}

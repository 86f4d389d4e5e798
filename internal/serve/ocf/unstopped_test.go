package ocf

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// A server whose stop failed resets itself when the time for fencing it is over,
// unless an administrator has seen to it.
func TestUnstopped(t *testing.T) {
	const reset = "poke /proc/sysrq-trigger b"
	for name, c := range map[string]struct {
		then func(t *testing.T, s *service)
		want bool
	}{
		"nobody fences it":       {func(*testing.T, *service) {}, true},
		"the service is stopped": {func(t *testing.T, s *service) { mustStop(t, s) }, false},
		"a person has seen to it": {func(_ *testing.T, s *service) {
			if code := (&agent{getenv: func(string) string { return "10000" }, stderr: testWriter{t}, now: s.K.Now}).monitor(t.Context(), s); code != Success {
				t.Errorf("monitor: %d", code)
			}
		}, false},
		"it is started again": {func(t *testing.T, s *service) {
			mustStop(t, s)
			if err := s.start(t.Context()); err != nil {
				t.Error(err)
			}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			h := newShared(t).hosts["nfs1"]
			s := h.service(testConfig())
			h.files["/sys/class/net/eth0/carrier"] = "1\n"
			h.cabled(true)
			if err := s.start(t.Context()); err != nil {
				t.Fatal(err)
			}
			w := h.watcher(s)
			s.overdueIn(unfencedFor)
			look := func(after time.Duration) bool {
				up := s.Uptime() + after
				h.uptime, h.clock = fmt.Sprintf("%.1f 1.0", up.Seconds()), h.clock.Add(after)
				w.look(t.Context())
				return slices.Contains(h.changes, reset)
			}
			if look(unfencedFor - 2*time.Second) {
				t.Error("it does not wait for the fence devices")
			}
			c.then(t, s)
			if got := look(3 * time.Second); got != c.want {
				t.Errorf("reset: %v", got)
			}
		})
	}
}

func mustStop(t *testing.T, s *service) {
	t.Helper()
	if err := s.stop(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// A volume whose disks are gone, all paths and the time that I/O waits, is stopped like another one: a stop that
// fails has the server fenced.
func TestStopOfAVolumeThatHasFailed(t *testing.T) {
	flavours(t, func(t *testing.T, cfg func() *Config) {
		h := newShared(t).hosts["nfs1"]
		s := h.service(cfg())
		if err := s.start(t.Context()); err != nil {
			t.Fatal(err)
		}
		h.shutDown = true
		if err := s.stop(t.Context()); err != nil || h.left() != "" {
			t.Errorf("%v, left %q", err, h.left())
		}
	})
}

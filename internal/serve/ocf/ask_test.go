package ocf

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mortarhpc/mortar/internal/serve/kernel"
	"github.com/mortarhpc/mortar/internal/serve/unit"
)

// A disk that hangs counts as missing: the start goes without it and tells mdadm nothing of
// it, and the watcher gives it back once it answers. One that the array cannot lose is
// refused, and the refusal is forgotten when it answers.
func TestHungDisk(t *testing.T) {
	for name, c := range map[string]struct {
		hung   []string
		refuse string
	}{
		"one":                    {[]string{"/dev/mapper/d5"}, ""},
		"two":                    {[]string{"/dev/mapper/d4", "/dev/mapper/d5"}, ""},
		"more than RAID 6 loses": {[]string{"/dev/mapper/d3", "/dev/mapper/d4", "/dev/mapper/d5"}, "/dev/mapper/d3: it does not answer within 10s"},
	} {
		t.Run(name, func(t *testing.T) {
			sh := newShared(t)
			h := sh.hosts["nfs1"]
			h.cabled(true)
			h.hung, h.uptime = map[string]bool{}, "20.0 1.0"
			for _, d := range c.hung {
				h.hung[d] = true
			}
			s := h.service(testConfig())
			w := h.watcher(s)
			look := func() {
				h.clock = h.clock.Add(forgiveEvery)
				w.reacts(t.Context(), s, "md")
				w.reacts(t.Context(), s, "forgive")
			}
			begin := h.clock
			err := s.start(t.Context())
			if (err == nil) != (c.refuse == "") || err != nil && !strings.Contains(err.Error(), c.refuse) {
				t.Fatal(err)
			}
			if spent := h.clock.Sub(begin); c.refuse == "" && spent >= unit.MemberWait || spent > unit.MemberWait+3*kernel.AskLimit {
				t.Errorf("it took %v", spent)
			}
			n := len(h.changes)
			for range 4 {
				look()
			}
			if len(h.changes) > n {
				t.Errorf("it still hangs: %q", h.changes[n:])
			}
			clear(h.hung)
			for range 4 {
				look()
			}
			did := slices.DeleteFunc(slices.Clone(h.changes[n:]), func(x string) bool {
				return !strings.HasPrefix(x, "mdadm") && !strings.HasPrefix(x, "crm_resource --cleanup")
			})
			var want []string
			for _, d := range c.hung {
				want = append(want, "mdadm --manage /dev/md127 --re-add "+d)
			}
			if c.refuse != "" {
				want = []string{"crm_resource --cleanup --resource service-home --node nfs1"}
			}
			if !slices.Equal(did, want) {
				t.Errorf("it answers: %q", did)
			}
		})
	}
}

// A start or monitor that took too long bars the server for no longer than the cause is
// there.
func TestLateActionIsForgiven(t *testing.T) {
	sh := newShared(t)
	h := sh.hosts["nfs1"]
	s := h.service(testConfig())
	s.tooLate(errors.New("the start took too long"))
	w := h.watcher(s)
	forgiven := func() bool {
		n := len(h.changes)
		for range 3 {
			h.clock = h.clock.Add(forgiveEvery)
			w.reacts(t.Context(), s, "forgive")
		}
		return slices.Contains(h.changes[n:], "crm_resource --cleanup --resource service-home --node nfs1")
	}
	h.hung = map[string]bool{"/dev/mapper/d0": true, "/dev/mapper/d1": true, "/dev/mapper/d2": true}
	if forgiven() {
		t.Error("forgiven while the disks hang")
	}
	clear(h.hung)
	w.lock = func(string) (func(), error) { return nil, errors.New("a start hangs, or runs") }
	if forgiven() {
		t.Error("forgiven while a start has the lock")
	}
	w.lock = func(string) (func(), error) { return func() {}, nil }
	if !forgiven() {
		t.Errorf("not forgiven: %q", h.changes)
	}
	// A start that has run out of time notes that by itself.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.refused(ctx, errInjected); !errors.Is(err, errInjected) {
		t.Error(err)
	}
	if !forgiven() {
		t.Errorf("out of time, and not forgiven: %q", h.changes)
	}
	// What it cannot see it does not forgive.
	_ = s.refused(t.Context(), errInjected)
	if forgiven() {
		t.Error("an unknown cause is forgiven")
	}
}

// A start that was refused for its config bars the server until the config is good.
func TestBadConfigIsForgiven(t *testing.T) {
	h := newShared(t).hosts["nfs1"]
	s := h.service(testConfig())
	file := filepath.Join(t.TempDir(), "service-home.json")
	write := func(b []byte) {
		if err := os.WriteFile(file, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write([]byte("{"))
	if err := noteBadConfig(h, file, errors.New("EOF")); err != nil {
		t.Fatal(err)
	}
	w := h.watcher(s)
	forgiven := func() bool {
		n := len(h.changes)
		for range 3 {
			h.clock = h.clock.Add(forgiveEvery)
			w.reacts(t.Context(), s, "forgive")
		}
		return slices.Contains(h.changes[n:], "crm_resource --cleanup --resource service-home --node nfs1")
	}
	if forgiven() {
		t.Error("forgiven with a config that is cut short")
	}
	b, err := json.Marshal(testConfig())
	if err != nil {
		t.Fatal(err)
	}
	write(b)
	if !forgiven() {
		t.Errorf("not forgiven: %q", h.changes)
	}
	if s.RefusedNote().There() || s.BadConfigNote().There() {
		t.Error("a note is left")
	}
}

// LUNs that have paths and do not answer are waited for, as an array may hold I/O back while
// a controller takes over. Then the start is refused, until they answer.
func TestHungLUN(t *testing.T) {
	for name, c := range map[string]struct {
		answers time.Duration // after so long
		refused bool
	}{
		"a controller takes over": {2 * kernel.AskLimit, false},
		"it hangs":                {time.Hour, true},
	} {
		t.Run(name, func(t *testing.T) {
			sh := newShared(t)
			cfg := testConfig()
			cfg.MDStorage = nil
			withLUNs(cfg, sh)
			cfg.LV = "data"
			h := sh.hosts["nfs1"]
			h.hung = map[string]bool{"/dev/dm-20": true}
			s, begin := h.service(cfg), h.clock
			s.K = waking{h, func() { h.hung["/dev/dm-20"] = h.clock.Sub(begin) < c.answers }}
			err := s.start(t.Context())
			if (err != nil) != c.refused || err != nil && !strings.Contains(err.Error(), "has paths, and it does not answer within 10s") {
				t.Fatal(err)
			}
			if spent := h.clock.Sub(begin); spent > 30*time.Second+3*kernel.AskLimit {
				t.Errorf("it took %v", spent)
			}
			if c.refused != (s.storage.Sound(t.Context()) != nil) {
				t.Error("whether the LUNs are sound is seen otherwise later")
			}
			clear(h.hung)
			if err := s.storage.Sound(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

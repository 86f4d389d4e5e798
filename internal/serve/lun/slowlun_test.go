package lun

import (
	"fmt"
	"io/fs"
	"testing"
	"time"

	"github.com/mortarhpc/mortar/internal/serve/kernel"
	"github.com/mortarhpc/mortar/internal/serve/unit"
)

// lunHost has multipath maps dm-0 to dm-3 of LUNs, and what the kernel has counted of them.
type lunHost struct {
	kernel.Host
	clock time.Time
	stats string
}

func (h *lunHost) Now() time.Time { return h.clock }

func (h *lunHost) ReadDir(string) ([]string, error) {
	return []string{"dm-0", "dm-1", "dm-2", "dm-3"}, nil
}

func (h *lunHost) ReadFile(p string) ([]byte, error) {
	if p == "/proc/diskstats" {
		return []byte(h.stats), nil
	}
	var n int
	if _, err := fmt.Sscanf(p, "/sys/block/dm-%d/dm/uuid", &n); err == nil {
		return fmt.Appendf(nil, "mpath-w%d\n", n), nil
	}
	return nil, fs.ErrNotExist
}

// count has each LUN answer requests, that took so many ms in all.
func (h *lunHost) count(done int, took ...int) {
	h.stats = ""
	for i, ms := range took {
		h.stats += fmt.Sprintf("253 %d dm-%d %d 0 %d %d 0 0 0 0 0 0 0\n", i, i, done, 8*done, ms)
	}
}

// A monitor that is late because of one slow LUN finds no fault: the partner has the same
// LUN. If all are slow it may be this server.
func TestPacedNamesTheSlowLUN(t *testing.T) {
	for _, c := range []struct {
		name string
		took []int
		want string
	}{
		{"well", []int{40, 40, 40, 40}, ""},
		{"one", []int{15020, 40, 40, 40}, "LUN a-lun0 takes 1502 ms for an answer, the others 4 ms"},
		{"two", []int{15020, 15020, 40, 40}, ""},
		{"all", []int{15020, 15020, 15020, 15020}, ""},
	} {
		h := &lunHost{clock: time.Unix(1000, 0)}
		cfg := &LUNStorage{}
		for i := range 4 {
			cfg.LUNs = append(cfg.LUNs, LUN{Name: fmt.Sprintf("a-lun%d", i), WWID: fmt.Sprintf("w%d", i)})
		}
		s := New(&unit.Host{K: h, Service: "home"}, cfg, true, nil, nil)
		h.count(0, 0, 0, 0, 0)
		slow := s.Paced()
		h.clock = h.clock.Add(16 * time.Second)
		h.count(10, c.took...)
		if got := slow(); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

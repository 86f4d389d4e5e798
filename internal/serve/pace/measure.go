package pace

import (
	"sync"
	"time"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/serve/unit"
)

// Shot is what the kernel had counted at a moment.
type Shot struct {
	At   time.Time
	Stat map[string]linux.DiskStat
}

// hungFor is after how long paced measures anew. Monitor and I/O take less than a second
// unless they hang, so a disk that made them hang was slow by then: what its paths have
// answered before says nothing.
const hungFor = 20 * time.Second

// Measured measures block devices until what it returns is called, which names what was slow
// since.
func Measured(s *unit.Host, slowSince func(before Shot) string) func() string {
	var mu sync.Mutex
	before, err := Shoot(s)
	again := time.AfterFunc(hungFor, func() {
		mu.Lock()
		defer mu.Unlock()
		before, err = Shoot(s)
	})
	return func() string {
		again.Stop()
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			return ""
		}
		return slowSince(before)
	}
}

// Shoot reads what the kernel has counted.
func Shoot(s *unit.Host) (Shot, error) {
	b, err := s.K.ReadFile("/proc/diskstats")
	return Shot{s.K.Now(), linux.ParseDiskStats(string(b))}, err
}

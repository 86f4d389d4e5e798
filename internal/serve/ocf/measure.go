package ocf

import (
	"sync"
	"time"

	"github.com/mortarhpc/mortar/internal/base/linux"
)

// shot is what the kernel had counted at a moment.
type shot struct {
	at   time.Time
	stat map[string]linux.DiskStat
}

// hungFor is after how long paced measures anew. Monitor and I/O take less than a second
// unless they hang, so a disk that made them hang was slow by then: what its paths have
// answered before says nothing.
const hungFor = 20 * time.Second

// measured measures block devices until what it returns is called, which names what was slow
// since.
func measured(s *Host, slowSince func(before shot) string) func() string {
	var mu sync.Mutex
	before, err := shoot(s)
	again := time.AfterFunc(hungFor, func() {
		mu.Lock()
		defer mu.Unlock()
		before, err = shoot(s)
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

// shoot reads what the kernel has counted.
func shoot(s *Host) (shot, error) {
	b, err := s.k.ReadFile("/proc/diskstats")
	return shot{s.k.Now(), linux.ParseDiskStats(string(b))}, err
}

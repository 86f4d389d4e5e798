package qemu

import (
	"math"
	"strconv"
	"sync"
	"time"
)

// TSCkHz measures the rate of this machine's time stamp counter, in kHz; 0 where there is
// none. It is right to some 20 ppm, also on a busy machine: see tscAt.
var TSCkHz = sync.OnceValue(func() int {
	began, first := tscAt()
	time.Sleep(100 * time.Millisecond)
	ended, last := tscAt()
	return int(math.Round(float64(last-first) / ended.Sub(began).Seconds() / 1000))
})

// tscAt reads the clock and the counter at the same moment: of many tries it takes the one
// with the shortest time between two readings of the clock. A process that loses its
// processor between clock and counter for a millisecond would be wrong by 1 %.
func tscAt() (at time.Time, counter uint64) {
	shortest := time.Hour
	for range 50 {
		before := time.Now()
		c := rdtsc()
		if took := time.Since(before); took < shortest {
			shortest, at, counter = took, before.Add(took/2), c
		}
	}
	return at, counter
}

// clockArgs tell an emulated node's kernel the rate of its time stamp counter. QEMU's
// TCG gives it the host's counter. The kernel would measure the rate against the
// emulated timer, and on a host whose processors are all taken it may measure wrongly: the
// clock of one of eight servers then ran 3.3 times too fast, and its timeouts were as
// much too short.
//
// Source: Linux, Documentation/admin-guide/kernel-parameters.txt, tsc_early_khz;
// seen with QEMU 7.2 on 24 November 2026
func clockArgs(accel string) string {
	if khz := TSCkHz(); accel != "kvm" && khz > 0 {
		return " tsc_early_khz=" + strconv.Itoa(khz)
	}
	return ""
}

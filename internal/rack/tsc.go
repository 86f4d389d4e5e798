package rack

import (
	"math"
	"strconv"
	"sync"
	"time"
)

// tscKHz measures the rate of this machine's time stamp counter, in kHz; 0 where there is
// none.
var tscKHz = sync.OnceValue(func() int {
	began, first := time.Now(), rdtsc()
	time.Sleep(100 * time.Millisecond)
	ticks, took := rdtsc()-first, time.Since(began)
	return int(math.Round(float64(ticks) / took.Seconds() / 1000))
})

// clockArgs tell an emulated node's kernel the rate of its time stamp counter. QEMU's
// TCG gives it the host's counter. The kernel would measure the rate against the
// emulated timer, and on a host whose processors are all taken it may measure wrongly: the
// clock of one of eight servers then ran 3.3 times too fast, and its timeouts were as
// much too short.
//
// Source: Linux, Documentation/admin-guide/kernel-parameters.txt, tsc_early_khz;
// seen with QEMU 7.2 on 24 November 2026
func clockArgs(accel string) string {
	if khz := tscKHz(); accel != "kvm" && khz > 0 {
		return " tsc_early_khz=" + strconv.Itoa(khz)
	}
	return ""
}

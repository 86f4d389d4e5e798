package forecast

import "fmt"

// HoursPerYear is the year every rate per year is converted with.
const HoursPerYear = 8766.0 // 365.25 days

// MTTDL is the mean time to data loss, in hours, of one RAID group of n disks
// that survives the loss of m of them: the closed form of the birth-death
// chain in which each working disk fails at rate lambda and each failed disk
// is rebuilt at rate mu (both per hour, exponential, independent).
//
// Source: Patterson, Gibson and Katz, SIGMOD 1988, extended to m failures;
// the chain is solved exactly, without the usual lambda << mu shortcut.
func MTTDL(n, m int, lambda, mu float64) (float64, error) {
	if n <= m || m < 0 || lambda <= 0 || mu <= 0 {
		return 0, fmt.Errorf("MTTDL of %d disks of which %d may fail, at rates %g and %g: want n > m >= 0 and rates above 0", n, m, lambda, mu)
	}
	// h(i) is the mean time from i failed disks to i+1:
	// h(i) = (1 + mu_i h(i-1)) / lambda_i; the answer is the sum of all.
	var total, h float64
	for i := 0; i <= m; i++ {
		up := float64(n-i) * lambda
		down := float64(i) * mu
		h = (1 + down*h) / up
		total += h
	}
	return total, nil
}

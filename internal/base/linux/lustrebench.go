package linux

import (
	"regexp"
	"strconv"

	"github.com/mortarhpc/mortar/internal/base/lists"
)

var (
	echoObject = regexp.MustCompile(`(?m)is object id (0x[0-9a-f]+)`)
	brwTotal   = regexp.MustCompile(`(?m)^Total: total \d+ threads \d+ sec [0-9.]+ ([0-9.]+)/second`)
	lnetRate   = regexp.MustCompile(`(?m)^\[([RW])\]\s+Avg: ([0-9.]+)\s+MiB/s`)
)

// ParseEchoObjects reads what `lctl create N` of an echo client prints: the objects'
// numbers, hexadecimal.
//
// Source: lctl(8); seen with Lustre 2.17.57
func ParseEchoObjects(text string) []string {
	return lists.Map(echoObject.FindAllStringSubmatch(text, -1), func(m []string) string { return m[1] })
}

// ParseBRW reads the last line of `lctl --threads N q DEVICE test_brw …`: records a
// second of all threads together. ok is false if there is none.
//
// Source: lctl(8); seen with Lustre 2.17.57
func ParseBRW(text string) (rate float64, ok bool) {
	m := brwTotal.FindStringSubmatch(text)
	if m == nil {
		return 0, false
	}
	rate, err := strconv.ParseFloat(m[1], 64)
	return rate, err == nil
}

// ParseLNetRates reads `lst stat --bw GROUP`: what each node of the group received and
// sent on average, MiB/s. ok is false if one of them is missing.
//
// Source: lst(8); seen with Lustre 2.17.57
func ParseLNetRates(text string) (received, sent float64, ok bool) {
	found := map[string]float64{}
	for _, m := range lnetRate.FindAllStringSubmatch(text, -1) {
		f, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			return 0, 0, false
		}
		found[m[1]] = f // the last report counts
	}
	received, r := found["R"]
	sent, w := found["W"]
	return received, sent, r && w
}

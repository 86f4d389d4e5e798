package spec

import (
	"fmt"
	"math/big"
	"strconv"
	"strings"
)

// Units of Bytes. Disks are sold in powers of ten, memory and RAID chunks are
// powers of two; the two are never mixed up because every size has a unit.
const (
	KB Bytes = 1000
	MB       = 1000 * KB
	GB       = 1000 * MB
	TB       = 1000 * GB
	PB       = 1000 * TB

	KiB Bytes = 1024
	MiB       = 1024 * KiB
	GiB       = 1024 * MiB
	TiB       = 1024 * GiB
	PiB       = 1024 * TiB
)

var units = []struct {
	name string
	size Bytes
}{
	{"B", 1},
	{"kB", KB}, {"MB", MB}, {"GB", GB}, {"TB", TB}, {"PB", PB},
	{"KiB", KiB}, {"MiB", MiB}, {"GiB", GiB}, {"TiB", TiB}, {"PiB", PiB},
}

// ParseBytes reads a size with its unit: 4TB is 4*10^12 bytes, 4TiB is 4*2^40.
// A size without a unit, or with one that might mean either, is an error.
func ParseBytes(s string) (Bytes, error) {
	m := re().size.FindStringSubmatch(strings.TrimSpace(s))
	if m == nil {
		return 0, fmt.Errorf("%q is not a size; write a number and a unit, e.g. 4TB or 1280MiB", shorten(s))
	}
	num, unit := m[1], m[2]
	if unit == "" {
		return 0, fmt.Errorf("size %q has no unit; write e.g. %sGB (10^9 bytes) or %sGiB (2^30 bytes)", s, num, num)
	}
	var scale Bytes
	for _, u := range units {
		if u.name == unit || (u.name == "kB" && unit == "KB") {
			scale = u.size
		}
	}
	if scale == 0 {
		if l := strings.ToUpper(unit[:1]); len(unit) <= 2 && strings.Contains("KMGTP", l) && unit != "B" {
			dec, bin := l+"B", l+"iB"
			if l == "K" {
				dec = "kB"
			}
			return 0, fmt.Errorf("unit %q of size %q is ambiguous; write %s%s (powers of ten, as disks are sold) or %s%s (powers of two)", unit, s, num, dec, num, bin)
		}
		var names []string
		for _, u := range units {
			names = append(names, u.name)
		}
		return 0, fmt.Errorf("unknown unit %q in size %q; use %s", unit, s, oneOf(names))
	}
	r, ok := new(big.Rat).SetString(num)
	if !ok {
		return 0, fmt.Errorf("%q is not a size; write a number and a unit, e.g. 4TB", s)
	}
	r.Mul(r, new(big.Rat).SetInt64(int64(scale)))
	if !r.IsInt() {
		return 0, fmt.Errorf("size %q is not a whole number of bytes; use a smaller unit", s)
	}
	if !r.Num().IsInt64() {
		return 0, fmt.Errorf("size %q is too large; at most 8192PiB can be counted", s)
	}
	return Bytes(r.Num().Int64()), nil
}

// String prints the size exactly, in the unit that needs the smallest number;
// ParseBytes reads it back.
func (b Bytes) String() string {
	best := strconv.FormatInt(int64(b), 10) + "B"
	if b == 0 {
		return best
	}
	bestN := b
	for _, u := range units[1:] {
		if b%u.size == 0 && abs(b/u.size) < abs(bestN) {
			bestN = b / u.size
			best = strconv.FormatInt(int64(bestN), 10) + u.name
		}
	}
	return best
}

// Decimal prints the size rounded, in powers of ten: "3.60 TB". Storage is
// spoken of in TB, however much it is.
func (b Bytes) Decimal() string { return b.rounded(1000, []string{"B", "kB", "MB", "GB", "TB"}) }

// Binary prints the size rounded, in powers of two: "3.27 TiB".
func (b Bytes) Binary() string {
	return b.rounded(1024, []string{"B", "KiB", "MiB", "GiB", "TiB"})
}

func (b Bytes) rounded(base float64, names []string) string {
	f, i := float64(b), 0
	for (f >= base || f <= -base) && i < len(names)-1 {
		f /= base
		i++
	}
	if i == 0 {
		return fmt.Sprintf("%d B", int64(b))
	}
	return fmt.Sprintf("%.2f %s", f, names[i])
}

func abs(b Bytes) Bytes {
	if b < 0 {
		return -b
	}
	return b
}

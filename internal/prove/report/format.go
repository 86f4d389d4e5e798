package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Seconds formats a duration: "0.43 s", "12.3 s", "2 min 05 s".
func Seconds(s float64) string {
	switch {
	case s < 0:
		return "-" + Seconds(-s)
	case s == 0:
		return "0 s"
	case s < 0.001:
		return fmt.Sprintf("%.0f µs", s*1e6)
	case s < 0.1:
		return fmt.Sprintf("%.0f ms", s*1e3)
	case s < 9.995:
		return fmt.Sprintf("%.2f s", s)
	case s < 119.95:
		return fmt.Sprintf("%.1f s", s)
	}
	m := int(math.Round(s)) / 60
	return fmt.Sprintf("%d min %02d s", m, int(math.Round(s))-60*m)
}

// Bytes formats a size in binary units: "0 B", "4.0 KiB", "1.2 GiB".
func Bytes(n int64) string {
	if n < 0 {
		return "-" + Bytes(-n)
	}
	if n < 1024 {
		return strconv.FormatInt(n, 10) + " B"
	}
	v, unit := float64(n), ""
	for _, unit = range []string{"KiB", "MiB", "GiB", "TiB", "PiB"} {
		v /= 1024
		if v < 1023.95 {
			break
		}
	}
	return fmt.Sprintf("%.1f %s", v, unit)
}

// Plural counts things: "1 client", "4 clients".
func Plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return Count(int64(n)) + " " + what + "s"
}

// Count formats a number with separators: "1 234 567".
func Count(n int64) string {
	s := strconv.FormatInt(n, 10)
	neg := strings.HasPrefix(s, "-")
	s = strings.TrimPrefix(s, "-")
	var b strings.Builder
	for i, c := range s {
		if i > 0 && (len(s)-i)%3 == 0 {
			b.WriteString("\u202f")
		}
		b.WriteRune(c)
	}
	if neg {
		return "-" + b.String()
	}
	return b.String()
}

func secondsPtr(p *float64) string {
	if p == nil {
		return "–"
	}
	return Seconds(*p)
}

// millis formats a latency given in milliseconds.
func millis(ms float64) string { return Seconds(ms / 1000) }

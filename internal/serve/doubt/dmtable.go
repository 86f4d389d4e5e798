package doubt

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// DMTable is how a device of the device mapper is made of parts of others.
type DMTable []dmSegment

// dmSegment is a range of the device, in sectors, on stripes.
type dmSegment struct {
	start, length int64
	chunk         int64 // sectors of one stripe after another; 0: there is one
	on            []dmPart
}

type dmPart struct {
	dev   string // 9:127
	start int64
}

// ParseDMTable parses the table of a device with linear and striped segments.
//
// Source: dmsetup(8); the kernel's Documentation/admin-guide/device-mapper/linear.rst, striped.rst
func ParseDMTable(s string) (DMTable, error) {
	var out DMTable
	for line := range strings.Lines(s) {
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		seg, err := parseDMSegment(f)
		if err != nil {
			return nil, fmt.Errorf("segment %q: %w", strings.TrimSpace(line), err)
		}
		out = append(out, *seg)
	}
	if len(out) == 0 {
		return nil, errors.New("the volume has no segment")
	}
	return out, nil
}

func parseDMSegment(f []string) (*dmSegment, error) {
	if len(f) < 5 {
		return nil, errors.New("it is too short")
	}
	var bad error
	number := func(s string) int64 {
		n, err := strconv.ParseInt(s, 10, 64)
		bad = errors.Join(bad, err)
		return n
	}
	seg := &dmSegment{start: number(f[0]), length: number(f[1])}
	rest := f[3:]
	switch f[2] {
	case "linear":
	case "striped":
		if seg.chunk = number(f[4]); seg.chunk <= 0 || int64(len(f)-5) != 2*number(f[3]) {
			bad = errors.Join(bad, errors.New("its stripes do not add up"))
		}
		rest = f[5:]
	default:
		return nil, errors.New("only linear and striped ones can be traced")
	}
	for ; len(rest) > 1; rest = rest[2:] {
		seg.on = append(seg.on, dmPart{rest[0], number(rest[1])})
	}
	return seg, bad
}

// At finds the place in the device, in bytes, that is at an offset of another one.
func (t DMTable) At(dev string, offset int64) (int64, bool) {
	for _, s := range t {
		n := int64(len(s.on))
		for i, p := range s.on {
			in := offset/512 - p.start
			if p.dev != dev || in < 0 || in >= s.length/n {
				continue
			}
			if s.chunk > 0 {
				in = (in/s.chunk*n+int64(i))*s.chunk + in%s.chunk
			}
			return (s.start+in)*512 + offset%512, true
		}
	}
	return 0, false
}

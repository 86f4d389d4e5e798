package linux

import (
	"strconv"
	"strings"
)

// BlockIO counts what a block device did since it is there.
type BlockIO struct {
	Reads      int64 `json:"reads"`
	ReadBytes  int64 `json:"read_bytes"`
	Writes     int64 `json:"writes"`
	WriteBytes int64 `json:"write_bytes"`
}

// ParseBlockIO reads /sys/block/DEV/stat; ok is false for what is no such file.
// Source: Documentation/block/stat.rst (sectors are of 512 bytes)
func ParseBlockIO(text string) (b BlockIO, ok bool) {
	f := strings.Fields(text)
	if len(f) < 7 {
		return b, false
	}
	for i, to := range []*int64{0: &b.Reads, 2: &b.ReadBytes, 4: &b.Writes, 6: &b.WriteBytes} {
		if to == nil {
			continue
		}
		n, err := strconv.ParseInt(f[i], 10, 64)
		if err != nil {
			return BlockIO{}, false
		}
		*to = n
	}
	b.ReadBytes, b.WriteBytes = b.ReadBytes*512, b.WriteBytes*512
	return b, true
}

// Add adds what another device did.
func (b *BlockIO) Add(o BlockIO) {
	b.Reads, b.ReadBytes, b.Writes, b.WriteBytes = b.Reads+o.Reads, b.ReadBytes+o.ReadBytes, b.Writes+o.Writes, b.WriteBytes+o.WriteBytes
}

// ParseBcacheBytes reads bcache's numbers with a decimal and a binary prefix
// (1.5k, 12M) in bytes; 0 for what is none.
func ParseBcacheBytes(t string) int64 {
	t = strings.TrimSpace(t)
	if t == "" {
		return 0
	}
	i := strings.IndexByte("kMGTPEZY", t[len(t)-1])
	if i >= 0 {
		t = t[:len(t)-1]
	}
	f, err := strconv.ParseFloat(t, 64)
	if err != nil {
		return 0
	}
	for range i + 1 {
		f *= 1024
	}
	return int64(f)
}

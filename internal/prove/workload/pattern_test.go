package workload

import (
	"bytes"
	"encoding/binary"
	"testing"
)

func TestFillPattern(t *testing.T) {
	// The first outputs of SplitMix64 for seed 1234567, as published with
	// other implementations of it (Rosetta Code, "Pseudo-random numbers/Splitmix64").
	b := make([]byte, 19)
	fillPattern(b, 1234567)
	want := binary.LittleEndian.AppendUint64(nil, 6457827717110365317)
	want = binary.LittleEndian.AppendUint64(want, 3203168211198807973)
	if !bytes.Equal(b[:16], want) {
		t.Errorf("% x", b)
	}
	longer := make([]byte, 24)
	fillPattern(longer, 1234567)
	if !bytes.Equal(b, longer[:19]) {
		t.Error("a shorter record is no beginning of a longer one")
	}
}

func BenchmarkFillPattern(b *testing.B) {
	buf := make([]byte, 47008)
	b.SetBytes(int64(len(buf)))
	for i := range b.N {
		fillPattern(buf, uint64(i))
	}
}

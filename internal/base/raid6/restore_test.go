package raid6

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"
)

// Any two chunks of a row can be missing.
func TestRestore(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	const disks, size = 7, 2 * Block
	data := make([][]byte, disks-2)
	for z := range data {
		data[z] = make([]byte, size)
		for i := range data[z] {
			data[z][i] = byte(rng.Uint32())
		}
	}
	p, q := make([]byte, size), make([]byte, size)
	for b := range size / Block {
		dp, dq := make([]byte, Block), make([]byte, Block)
		syndromes(dp, dq, p, q, data, b) // of parities that are zero: what they should be
		copy(p[b*Block:], dp)
		copy(q[b*Block:], dq)
	}
	for a := range disks {
		for b := range disks {
			got, gp, gq := slices.Clone(data), p, q
			for _, x := range []int{a, b} {
				switch x {
				case disks - 2:
					gp = nil
				case disks - 1:
					gq = nil
				default:
					got[x] = nil
				}
			}
			if err := Restore(gp, gq, got); err != nil {
				t.Fatal(err)
			}
			for z := range data {
				if !bytes.Equal(got[z], data[z]) {
					t.Fatalf("without %d and %d, chunk %d is wrong", a, b, z)
				}
			}
		}
	}
	if err := Restore(nil, q, [][]byte{nil, nil, data[2]}); err == nil {
		t.Error("three chunks are missing")
	}
	if err := Restore(p[:Block], q, [][]byte{data[0], nil}); err == nil {
		t.Error("chunks of several lengths")
	}
}

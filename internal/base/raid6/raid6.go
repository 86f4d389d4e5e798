// Package raid6 is the arithmetic of RAID 6: which member holds what, which one
// is wrong, and what it should hold. No file is opened here.
//
// Source: H. Peter Anvin, "The mathematics of RAID-6"; drivers/md/raid5.c
package raid6

import (
	"crypto/subtle"
	"encoding/binary"
	"fmt"
	"slices"
)

// Places of the parities in a Finding.
const (
	P = -1
	Q = -2
)

// Block is the size in bytes of the blocks that Locate checks one by one: md
// computes parities in pages of this size.
const Block = 4096

// The field GF(2^8) of RAID 6: polynomial 0x11d, generator 2.
var log [256]byte // of the powers of the generator

func init() {
	x := 1
	for i := range 255 {
		log[x] = byte(i)
		if x <<= 1; x > 255 {
			x ^= 0x11d
		}
	}
}

// LeftSymmetric is md's number of the layout that Row knows.
// Source: drivers/md/raid5.h, ALGORITHM_LEFT_SYMMETRIC
const LeftSymmetric = 2

// Layout is which member holds what in a row of chunks.
type Layout struct {
	Disks int
}

// Row gives the member with P, the one with Q, and those with data in the order
// of their coefficients, in a row of md's default layout, left-symmetric.
//
// Source: raid5_compute_sector and raid6_d0 in drivers/md/raid5.c
func (l Layout) Row(row int64) (p, q int, data []int) {
	p = l.Disks - 1 - int(row%int64(l.Disks))
	q = (p + 1) % l.Disks
	for i := range l.Disks - 2 {
		data = append(data, (p+2+i)%l.Disks)
	}
	return p, q, data
}

// Located is the result of Locate for one row.
type Located struct {
	Bad     map[int]int // block → index into data, P or Q
	Unknown []int       // blocks that are wrong in a way that no single member explains
}

// OK reports whether data and parities of the row agree.
func (l Located) OK() bool { return len(l.Bad) == 0 && len(l.Unknown) == 0 }

// Locate finds the wrong member of each block of a row. p and q are its
// parities, data its data chunks in the order of their coefficients, all of
// one length, a multiple of Block.
func Locate(p, q []byte, data [][]byte) (Located, error) {
	l := Located{Bad: map[int]int{}}
	if err := sameLength(p, q, data); err != nil {
		return l, err
	}
	dp, dq := make([]byte, Block), make([]byte, Block)
	for b := 0; b*Block < len(p); b++ {
		syndromes(dp, dq, p, q, data, b)
		culprit, found, clean := -3, true, true
		for i := range Block {
			if dp[i] == 0 && dq[i] == 0 {
				continue
			}
			clean = false
			c := culpritOf(dp[i], dq[i])
			if culprit == -3 {
				culprit = c
			}
			if c != culprit || c >= len(data) {
				found = false
				break
			}
		}
		switch {
		case clean:
		case found:
			l.Bad[b] = culprit
		default:
			l.Unknown = append(l.Unknown, b)
		}
	}
	return l, nil
}

// Disagree finds the blocks of a row in which P and Q do not tell the same of
// the data chunk that is missing. data[missing] is room for it, and holds
// afterwards what P says.
func Disagree(p, q []byte, data [][]byte, missing int) (blocks []int, err error) {
	if err := sameLength(p, q, data); err != nil {
		return nil, err
	}
	lost := data[missing]
	copy(lost, p)
	for z, d := range data {
		if z != missing {
			subtle.XORBytes(lost, lost, d)
		}
	}
	dp, dq := make([]byte, Block), make([]byte, Block)
	for b := 0; b*Block < len(p); b++ {
		syndromes(dp, dq, p, q, data, b)
		if slices.ContainsFunc(dq, func(x byte) bool { return x != 0 }) {
			blocks = append(blocks, b)
		}
	}
	return blocks, nil
}

// culpritOf says who explains the difference of one byte. An error e in data
// chunk z changes P by e and Q by 2^z e.
func culpritOf(dp, dq byte) int {
	switch {
	case dq == 0:
		return P
	case dp == 0:
		return Q
	}
	return (int(log[dq]) - int(log[dp]) + 255) % 255
}

// syndromes are what P and Q of a block differ by from those of its data. It
// works on eight bytes at a time.
func syndromes(dp, dq, p, q []byte, data [][]byte, block int) {
	const low, ones = 0xfefefefefefefefe, 0x0101010101010101
	word := binary.LittleEndian
	for i := 0; i < Block; i += 8 {
		at := block*Block + i
		var sp, sq uint64
		// Horner's rule: Q = (((d[n-1] * 2) + d[n-2]) * 2 + ...) + d[0].
		for z := len(data) - 1; z >= 0; z-- {
			d := word.Uint64(data[z][at:])
			sp ^= d
			sq = (sq<<1)&low ^ (sq>>7&ones)*0x1d ^ d
		}
		word.PutUint64(dp[i:], sp^word.Uint64(p[at:]))
		word.PutUint64(dq[i:], sq^word.Uint64(q[at:]))
	}
}

// Mend corrects, in memory, the blocks whose wrong member is known.
func Mend(p, q []byte, data [][]byte, l Located) {
	dp, dq := make([]byte, Block), make([]byte, Block)
	for b, culprit := range l.Bad {
		syndromes(dp, dq, p, q, data, b)
		at := b * Block
		for i := range Block {
			switch culprit {
			case P:
				p[at+i] ^= dp[i]
			case Q:
				q[at+i] ^= dq[i]
			default:
				data[culprit][at+i] ^= dp[i]
			}
		}
	}
}

func sameLength(p, q []byte, data [][]byte) error {
	n := len(p)
	ok := n%Block == 0 && len(q) == n && len(data) >= 1 && len(data) <= 253
	for _, d := range data {
		ok = ok && len(d) == n
	}
	if !ok {
		return fmt.Errorf("a row of %d data chunks with parities of %d and %d bytes is none of RAID 6", len(data), n, len(q))
	}
	return nil
}

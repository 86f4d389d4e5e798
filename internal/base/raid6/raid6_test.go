package raid6

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"
)

// mul multiplies in the field the long way, as a check on the tables.
func mul(a, b byte) byte {
	var r byte
	for b > 0 {
		if b&1 != 0 {
			r ^= a
		}
		hi := a & 0x80
		a <<= 1
		if hi != 0 {
			a ^= 0x1d
		}
		b >>= 1
	}
	return r
}

func row(rng *rand.Rand, disks, blocks int) (p, q []byte, data [][]byte) {
	n := blocks * Block
	p, q = make([]byte, n), make([]byte, n)
	g := byte(1)
	for range disks {
		d := make([]byte, n)
		for i := range d {
			d[i] = byte(rng.Uint32())
			p[i] ^= d[i]
			q[i] ^= mul(g, d[i])
		}
		data = append(data, d)
		g = mul(g, 2)
	}
	return p, q, data
}

func TestLocateAndMend(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, disks := range []int{1, 2, 8, 10, 30} {
		p, q, data := row(rng, disks, 3)
		if l, err := Locate(p, q, data); err != nil || !l.OK() {
			t.Fatalf("%d disks: a good row is called bad: %+v %v", disks, l, err)
		}
		want := [][]byte{bytes.Clone(p), bytes.Clone(q)}
		for _, d := range data {
			want = append(want, bytes.Clone(d))
		}
		// Another member is wrong in each block.
		spoil := func(b []byte, block int) {
			for range 1 + rng.IntN(100) {
				b[block*Block+rng.IntN(Block)] ^= byte(1 + rng.IntN(255))
			}
		}
		z := rng.IntN(disks)
		spoil(data[z], 0)
		spoil(p, 1)
		spoil(q, 2)
		l, err := Locate(p, q, data)
		if err != nil || len(l.Unknown) > 0 || l.Bad[0] != z || l.Bad[1] != P || l.Bad[2] != Q || len(l.Bad) != 3 {
			t.Fatalf("%d disks: %+v %v, want %d, P and Q", disks, l, err, z)
		}
		Mend(p, q, data, l)
		got := append([][]byte{p, q}, data...)
		for i := range want {
			if !bytes.Equal(want[i], got[i]) {
				t.Errorf("%d disks: member %d is not as it was", disks, i)
			}
		}
	}
}

// Two wrong members in one block must never be taken for one.
func TestTwoCulprits(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	p, q, data := row(rng, 8, 1)
	for i := range 512 {
		data[2][i] ^= byte(1 + rng.IntN(255))
		data[5][i] ^= byte(1 + rng.IntN(255))
	}
	before := bytes.Clone(data[2])
	l, err := Locate(p, q, data)
	if err != nil || len(l.Bad) != 0 || !slices.Equal(l.Unknown, []int{0}) {
		t.Fatalf("%+v %v", l, err)
	}
	Mend(p, q, data, l)
	if !bytes.Equal(before, data[2]) {
		t.Error("something was mended that is not known to be wrong")
	}
}

func TestRow(t *testing.T) {
	// drivers/md/raid5.c, left-symmetric, four disks.
	for r, want := range [][4]int{{3, 0, 1, 2}, {2, 3, 0, 1}, {1, 2, 3, 0}, {0, 1, 2, 3}, {3, 0, 1, 2}} {
		p, q, d := (Layout{4}).Row(int64(r))
		if got := [4]int{p, q, d[0], d[1]}; got != want {
			t.Errorf("row %d: %v, want %v", r, got, want)
		}
	}
}

func TestBadRows(t *testing.T) {
	b := make([]byte, Block)
	for name, f := range map[string]func() error{
		"no data": func() error { _, err := Locate(b, b, nil); return err },
		"lengths": func() error { _, err := Locate(b, b, [][]byte{b[:10]}); return err },
		"no page": func() error { _, err := Locate(b[:10], b[:10], [][]byte{b[:10]}); return err },
	} {
		if f() == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestDisagree(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, disks := range []int{1, 2, 10, 30} {
		for missing := range disks {
			p, q, data := row(rng, disks, 4)
			want := bytes.Clone(data[missing])
			clear(data[missing])
			if bad, err := Disagree(p, q, data, missing); err != nil || bad != nil || !bytes.Equal(data[missing], want) {
				t.Fatalf("%d disks without %d: a whole row is in doubt: %v, %v", disks, missing, bad, err)
			}
			// A write of the missing block itself that reached both parities is
			// whole, one that reached only one of them is not.
			p[Block+7] ^= 9
			q[Block+7] ^= mul(power(missing), 9)
			q[3*Block] ^= 1
			if bad, err := Disagree(p, q, data, missing); err != nil || !slices.Equal(bad, []int{3}) {
				t.Errorf("%d disks without %d: %v, %v, want block 3", disks, missing, bad, err)
			}
			if disks > 1 {
				data[(missing+1)%disks][2*Block+5] ^= 0x40 // written, its parities not
				if bad, err := Disagree(p, q, data, missing); err != nil || !slices.Equal(bad, []int{2, 3}) {
					t.Errorf("%d disks without %d: %v, %v, want blocks 2 and 3", disks, missing, bad, err)
				}
			}
		}
	}
	if _, err := Disagree(make([]byte, Block), make([]byte, Block), [][]byte{make([]byte, 1)}, 0); err == nil {
		t.Error("chunks of different lengths are a row")
	}
}

// power is 2^n in the field.
func power(n int) byte {
	g := byte(1)
	for range n {
		g = mul(g, 2)
	}
	return g
}

package linux

import (
	"slices"
	"testing"
)

func TestLustreBench(t *testing.T) {
	// Lustre 2.17.57, of the source of lctl and lst.
	objects := ParseEchoObjects("create: 2 objects\ncreate: #1 is object id 0x2\ncreate: #2 is object id 0x3\n")
	if !slices.Equal(objects, []string{"0x2", "0x3"}) {
		t.Errorf("%v", objects)
	}
	if rate, ok := ParseBRW("Total: total 64 threads 4 sec 2.500000 25.600000/second\n"); !ok || rate != 25.6 {
		t.Errorf("%v %v", rate, ok)
	}
	if _, ok := ParseBRW("error: test_brw: #1 - No space left on device on write\n"); ok {
		t.Error("a rate of an error")
	}
	r, w, ok := ParseLNetRates("[LNet Bandwidth of servers]\n[R] Avg: 12.50    MiB/s \n[W] Avg: 800.25   MiB/s Min: 1.00     MiB/s \n")
	if !ok || r != 12.5 || w != 800.25 {
		t.Errorf("%v %v %v", r, w, ok)
	}
	if _, _, ok := ParseLNetRates("Failed to stat on 1 nodes\n"); ok {
		t.Error("rates of an error")
	}
}

package linux

import "testing"

func TestParseDiskStats(t *testing.T) {
	got := ParseDiskStats("   8       0 sda 10 2 800 30 20 4 1600 70 3 95 100 5 0 40 900 6 12\n" +
		" 253       3 dm-3 1 0 8 5 2 0 16 7 0 12 12\n  7 0 loop0 1\n")
	if want := (DiskStat{Done: 36, MS: 112, InFlight: 3, Read: 409600, Written: 819200}); got["sda"] != want {
		t.Errorf("sda: %+v, want %+v", got["sda"], want)
	}
	if want := (DiskStat{Done: 3, MS: 12, Read: 4096, Written: 8192}); got["dm-3"] != want {
		t.Errorf("dm-3, of a kernel that counts no flushes: %+v, want %+v", got["dm-3"], want)
	}
	if len(got) != 2 {
		t.Errorf("%d devices: %v", len(got), got)
	}
}

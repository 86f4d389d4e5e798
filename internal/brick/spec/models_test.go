package spec

import "testing"

// What PERC makes of a disk follows from the number of sectors the disk has.
func TestDiskBytes(t *testing.T) {
	if got := DiskBytes(3 * TB); got != 3_000_592_982_016 {
		t.Errorf("3 TB disk: %d", got)
	}
	if got := DiskBytes(2 * TB); got != 2_000_398_934_016 {
		t.Errorf("2 TB disk: %d", got)
	}
	if got := (ArrayModel{Family: "perc"}).OfDisk(3 * TB); got != 2794*GiB {
		t.Errorf("PERC: %d", got)
	}
	if got := DiskBytes(136 * GB); got != 136*GB {
		t.Errorf("odd size: %d", got)
	}
}

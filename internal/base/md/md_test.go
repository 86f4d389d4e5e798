package md

import "testing"

func TestUUID(t *testing.T) {
	const md, blkid = "5d1c0aAA:01234567:89abcdef:00000001", "5d1c0aaa-0123-4567-89ab-cdef00000001"
	if UUID(blkid) != "5d1c0aaa:01234567:89abcdef:00000001" || UUID("/dev/md0") != "/dev/md0" {
		t.Error(UUID(blkid), UUID("/dev/md0"))
	}
	if !SameUUID(md, blkid) || SameUUID("", "") || SameUUID("", blkid) || SameUUID(md, blkid[:35]+"2") {
		t.Error("SameUUID")
	}
	if got := Hex("0x5000C500-zz"); got != "05000c500" {
		t.Error(got)
	}
}

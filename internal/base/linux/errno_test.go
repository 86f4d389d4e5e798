package linux

import (
	"testing"

	"golang.org/x/sys/unix"
)

func TestErrnoIn(t *testing.T) {
	for text, want := range map[string]unix.Errno{
		"dd: error writing '/mnt/a': No space left on device":              unix.ENOSPC,
		"fallocate: fallocate failed: Disk quota exceeded":                 unix.EDQUOT,
		"umount: /mnt: target is busy.":                                    unix.EBUSY,
		"umount.nfs4: /mnt: device is busy":                                unix.EBUSY,
		"sh: write error: Resource busy":                                   unix.EBUSY, // BusyBox with musl
		"rmdir: failed to remove '/mnt': Device or resource busy":          unix.EBUSY,
		"lfs setstripe: cannot create '/mnt/f': No such file or directory": unix.ENOENT,
		"umount: /mnt: not mounted.":                                       0,
		"":                                                                 0,
	} {
		if got := ErrnoIn(text); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}

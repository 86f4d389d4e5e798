package unit

import (
	"testing"

	"golang.org/x/sys/unix"
)

func TestMountOptions(t *testing.T) {
	f, d := MountOptions([]string{"rw", "noatime", "nodiratime", "logbsize=256k", "inode64", "nofail", "_netdev", "x-systemd.automount", "nosuid"})
	if f != unix.MS_NOATIME|unix.MS_NODIRATIME|unix.MS_NOSUID || d != "logbsize=256k,inode64" {
		t.Errorf("%x %q", f, d)
	}
}

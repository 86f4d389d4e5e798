package resource

import (
	"strings"
	"testing"
)

const dfRoom = "df --block-size=1 --output=target,size,avail,itotal,iavail / /boot /run /var /var/lib /var/log"

// apply begins on no server whose own file systems are full, or take no writes.
func TestHostHasRoom(t *testing.T) {
	h := &Host{Name: "nfs2", Room: true}
	sys := &Paper{Files: map[string]string{"/proc/self/status": "Uid:\t0\t0\t0\t0\n", "/proc/self/mounts": "/dev/sda1 / ext4 rw 0 0\n/dev/sda2 /boot ext4 rw 0 0\n"}}
	df := func(root, boot string) {
		sys.Outputs = map[string]Output{dfRoom: {Code: 1, Stderr: "df: /var/lib: No such file or directory", Stdout: "Mounted on 1B-blocks Avail Inodes IFree\n/ 21474836480 " + root + " 1310720 1200000\n/boot 1073741824 " + boot + " 65536 65000\n/ 21474836480 " + root + " 1310720 1200000\n"}}
	}
	df("10737418240", "536870912")
	wantShow(t, diff(t, h, sys), "")
	df("5242880", "536870912")
	refused(t, h, sys, "host-no-room", "found", "/ of nfs2 is full: 5 MiB of 20480 MiB are free, 100 MiB are needed")
	df("5242880", "1048576")
	refused(t, h, sys, "host-no-room", "full", "/", "full", "/boot")
	df("10737418240", "536870912")
	sys.Files["/proc/self/mounts"] = strings.Replace(sys.Files["/proc/self/mounts"], "/ ext4 rw", "/ ext4 ro", 1)
	refused(t, h, sys, "host-no-room", "read_only", "/")
	h.Room = false // a client
	wantShow(t, diff(t, h, sys), "")
}

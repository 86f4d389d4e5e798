package storage

import (
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/internal/host/resource"
)

// A client's mount, as /proc/self/mounts shows it.
func TestLustreClientMount(t *testing.T) {
	m := &MountPoint{Source: "10.77.1.11@tcp:10.77.1.12@tcp:/home", Path: "/mnt/home", Type: "lustre", Options: []string{"flock", "noatime", "_netdev"}, Fstab: true}
	live := recorded(t, "mounts-client").Stdout
	sys := &resource.Paper{Files: map[string]string{"/proc/self/mounts": live, "/etc/fstab": m.line() + "\n"}}
	if as := diff(t, m, sys); len(as) != 0 {
		t.Errorf("a second apply would change: %s", show(as))
	}
	sys.Files["/proc/self/mounts"] = strings.ReplaceAll(live, ",flock", ",localflock")
	wantShow(t, diff(t, m, sys), "umount /mnt/home\nmount /mnt/home")
	// Mounted when the MGS was at home on the other server.
	moved := *m
	moved.Source = "10.77.1.12@tcp:10.77.1.11@tcp:/home"
	sys.Files["/proc/self/mounts"] = live
	as := diff(t, &moved, sys)
	if len(as) != 1 || as[0].File == nil || as[0].File.Path != "/etc/fstab" {
		t.Errorf("not fstab alone: %s", show(as))
	}
	moved.Source = "10.77.1.12@tcp:10.77.1.13@tcp:/home"
	refused(t, &moved, sys, "mount-other", "path", "/mnt/home")
	sys.Files["/proc/self/mounts"] = strings.ReplaceAll(live, ":/home", ":/work")
	refused(t, m, sys, "mount-other", "source", "10.77.1.11@tcp:10.77.1.12@tcp:/work", "path", "/mnt/home")
}

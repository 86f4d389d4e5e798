package observe

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mortarhpc/mortar/internal/host/gather"
)

const (
	mib = 1 << 20
	gib = 1 << 30
)

// What a server's own system lacks: room and inodes of its file systems, writing to them,
// memory.
func TestSystemRoom(t *testing.T) {
	d := theDesign(t)
	well := gather.FS{Size: 20 * gib, Avail: 10 * gib, Files: 1000000, FilesFree: 900000}
	mounts := "/dev/sda1 / ext4 rw,relatime 0 0\n/dev/sda2 /boot ext4 rw,relatime 0 0\ntmpfs /run tmpfs rw,nosuid 0 0\n"
	for _, c := range []struct {
		name   string
		change func(h *gather.Host)
		want   []string
	}{
		{"well", func(*gather.Host) {}, nil},
		{"full", func(h *gather.Host) { h.FS["/"] = gather.FS{Size: 20 * gib, Files: 1000000, FilesFree: 900000} },
			[]string{"fault: / of nfs2 is full: 0 MiB of 20480 MiB are free, 100 MiB are needed"}},
		{"no inodes", func(h *gather.Host) { h.FS["/"] = gather.FS{Size: 20 * gib, Avail: 10 * gib, Files: 1000000} },
			[]string{"fault: / of nfs2 is full: 0 of 1000000 inodes are free, 1000 are needed"}},
		{"nearly full", func(h *gather.Host) {
			h.FS["/boot"] = gather.FS{Size: gib, Avail: 90 * mib, Files: 1000, FilesFree: 900}
		},
			[]string{"warning: /boot of nfs2 is nearly full: 91 % of its space used, 90 MiB are free"}},
		{"no file system of its own", func(h *gather.Host) { h.FS["/var"] = gather.FS{Size: 20 * gib} }, nil},
		{"read-only", func(h *gather.Host) {
			h.Files["/proc/self/mounts"] = strings.Replace(h.Files["/proc/self/mounts"], "/ ext4 rw", "/ ext4 ro", 1)
		}, []string{"fault: / of nfs2 is mounted read-only"}},
		{"read-only after an error, as Linux 6.15 tells", func(h *gather.Host) {
			h.Files["/proc/self/mounts"] = strings.Replace(h.Files["/proc/self/mounts"], "/ ext4 rw", "/ ext4 rw,emergency_ro", 1)
		}, []string{"fault: / of nfs2 is mounted read-only"}},
		{"a /boot that is read-only", func(h *gather.Host) {
			h.Files["/proc/self/mounts"] = strings.Replace(h.Files["/proc/self/mounts"], "/boot ext4 rw", "/boot ext4 ro", 1)
		}, []string{"warning: /boot of nfs2 is mounted read-only"}},
		{"hangs", func(h *gather.Host) { h.FS["/"] = gather.FS{TimedOut: true, Millis: 9000} }, []string{"fault: / of nfs2 does not answer"}},
		{"errors", func(h *gather.Host) { h.Files["/sys/fs/ext4/sda1/errors_count"] = "12\n" },
			[]string{"warning: the file system on sda1 of nfs2 (/) has met 12 errors"}},
		{"no errors", func(h *gather.Host) { h.Files["/sys/fs/ext4/sda1/errors_count"] = "0\n" }, nil},
		{"little memory", func(h *gather.Host) { h.Files["/proc/meminfo"] = "MemTotal: 1000000 kB\nMemAvailable: 40000 kB\n" },
			[]string{"warning: nfs2 is short of memory: 39 MiB of 976 MiB are available"}},
		{"pressure", func(h *gather.Host) {
			h.Files["/proc/pressure/memory"] = "some avg10=0.00 avg60=1.50 avg300=42.57 total=123456\nfull avg10=0.00 avg60=0.50 avg300=22.25 total=4500000\n"
		}, []string{"warning: nfs2 is short of memory: for 22 % of the last five minutes all its processes waited for some"}},
		{"killed", func(h *gather.Host) { h.Files["/proc/vmstat"] = "oom_kill 3\n" },
			[]string{"warning: the kernel of nfs2 has killed 3 processes for want of memory since it started"}},
	} {
		f := healthy(t, d)
		h := f.Hosts["nfs2"].Host
		if h.FS == nil {
			h.FS = map[string]gather.FS{}
		}
		h.FS = maps.Clone(h.FS)
		h.Files["/proc/self/mounts"] += mounts
		h.Files["/proc/meminfo"] = "MemTotal: 1000000 kB\nMemAvailable: 400000 kB\n"
		for _, dir := range []string{"/", "/boot", "/run"} {
			h.FS[dir] = well
		}
		c.change(h)
		want := append(slices.Clone(c.want), neverProven1, neverProven2)
		if got := complaints(Judge(d, f)); !slices.Equal(got, want) {
			t.Errorf("%s: %q", c.name, got)
		}
		if len(c.want) == 0 {
			continue
		}
		Judge(d, f).Each(func(p *Part) {
			if strings.Contains(p.Text, "nfs2") && strings.Contains(c.want[0], p.Text) && p.Mend == "" {
				t.Errorf("%s: %q says not how to mend it", c.name, p.Text)
			}
		})
	}
}

// Status asks for what it judges, also by a key that may only watch.
func TestSystemRoomIsAsked(t *testing.T) {
	r := requests(theDesign(t), time.Minute)["nfs1"]
	for _, dir := range []string{"/", "/boot", "/run", "/var"} {
		if !slices.Contains(r.FS, dir) {
			t.Errorf("%s is not asked for", dir)
		}
	}
	if err := r.MayWatch(); err != nil {
		t.Error(err)
	}
	if err := (gather.Request{Files: []string{"/proc/pressure/memory/../../kcore"}}).MayWatch(); err == nil {
		t.Error("anything may be read")
	}
}

package linux

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

const info = `22 27 0:20 / /sys rw,nosuid shared:7 - sysfs sysfs rw
27 1 8:1 / / rw - ext4 /dev/root rw
60 27 253:7 / /srv/home rw,noatime shared:30 master:2 - xfs /dev/mapper/vg--a-data rw,attr2,sunit=256
61 27 253:7 /.nfs\040dir /var/lib/nfs rw - xfs /dev/mapper/vg--a-data rw
broken line
`

func TestParseMountInfo(t *testing.T) {
	ms := ParseMountInfo(info)
	if len(ms) != 4 {
		t.Fatalf("%+v", ms)
	}
	want := Mount{Dev: "253:7", Root: "/", Target: "/srv/home", Type: "xfs", Source: "/dev/mapper/vg--a-data",
		Options: []string{"rw", "noatime"}, Super: []string{"rw", "attr2", "sunit=256"}}
	if d := cmp.Diff(want, ms[2]); d != "" {
		t.Error(d)
	}
	if ms[3].Root != "/.nfs dir" {
		t.Errorf("%+v", ms[3])
	}
	if _, ok := ms[2].Option("noatime"); !ok {
		t.Error("noatime is not set")
	}
	for p, want := range map[string]string{"/srv/home/a": "/srv/home", "/srv/home": "/srv/home", "/srv/homes": "/", "/sys/x": "/sys"} {
		if m, ok := MountOf(ms, p); !ok || m.Target != want {
			t.Errorf("%s is on %+v, want %s", p, m, want)
		}
	}
}

func TestParseMounts(t *testing.T) {
	ms := ParseMounts("# comment\n/dev/sda1 / ext4 rw,relatime 0 0\n10.0.0.9:/srv/a\\040b\t/mnt/a\\040b nfs4 rw,vers=4.2 0 0\n/dev/sdb1 /mnt/a\\040b xfs rw 0 0\nshort\n")
	if len(ms) != 3 || ms[1].Source != "10.0.0.9:/srv/a b" || ms[1].Target != "/mnt/a b" {
		t.Fatalf("%+v", ms)
	}
	if m, ok := MountAt(ms, "/mnt/a b/"); !ok || m.Type != "xfs" {
		t.Errorf("the last mount hides the others: %+v", m)
	}
	if _, ok := MountAt(ms, "/mnt"); ok {
		t.Error("nothing is mounted at /mnt")
	}
	if _, ok := MountOf(nil, "/"); ok {
		t.Error("a path is on no mount of none")
	}
}

func TestEscape(t *testing.T) {
	for _, s := range []string{"/plain", "/a b\tc\nd\\e#f", `/odd\9`, `\`, ""} {
		if got := Unescape(Escape(s)); got != s {
			t.Errorf("%q became %q", s, got)
		}
	}
	if got := Unescape(`/a\040b\0`); got != `/a b\0` {
		t.Error(got)
	}
}

func FuzzParseMounts(f *testing.F) {
	f.Add(info)
	f.Fuzz(func(_ *testing.T, s string) {
		for _, m := range append(ParseMounts(s), ParseMountInfo(s)...) {
			m.Option("rw")
		}
	})
}

func TestMountOf(t *testing.T) {
	const info = `22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 22 0:26 / /mnt rw - tmpfs tmpfs rw
31 30 0:40 / /mnt/with\040space rw,relatime - nfs4 10.0.0.1:/export/a rw,vers=4.2
32 30 0:41 / /mnt/x rw - nfs4 10.0.0.1:/x rw
33 30 0:42 / /mnt/x rw - nfs server:/over\040x rw
`
	for path, want := range map[string][2]string{
		"/etc": {"ext4", "/dev/vda"}, "/mnt": {"tmpfs", "tmpfs"}, "/mnt/with space/f": {"nfs4", "10.0.0.1:/export/a"},
		"/mntx": {"ext4", "/dev/vda"}, "/mnt/x/y": {"nfs", "server:/over x"},
	} {
		if m, ok := MountOf(ParseMountInfo(info), path); !ok || m.Type != want[0] || m.Source != want[1] {
			t.Errorf("%s is on %+v", path, m)
		}
	}
}

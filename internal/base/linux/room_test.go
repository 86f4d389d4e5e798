package linux

import "testing"

func TestRoom(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct {
		dir  string
		r    Room
		full bool
	}{
		{"/", Room{Size: 20 << 30, Avail: 5 << 30, Inodes: 1000000, InodesFree: 500000}, false},
		{"/", Room{Size: 20 << 30, Avail: 99 * mib, Inodes: 1000000, InodesFree: 500000}, true},
		{"/var", Room{Size: 20 << 30, Avail: 0}, true},
		{"/", Room{Size: 20 << 30, Avail: 5 << 30, Inodes: 1000000, InodesFree: 999}, true},
		{"/", Room{Size: 20 << 30, Avail: 5 << 30}, false}, // of a file system without a number of inodes
		{"/boot", Room{Size: 500 * mib, Avail: 63 * mib, Inodes: 100000, InodesFree: 90000}, false},
		{"/boot", Room{Size: 1000 * mib, Avail: 49 * mib, Inodes: 100000, InodesFree: 90000}, true},
		{"/run", Room{Size: 100 * mib, Avail: 6 * mib}, false},
		{"/run", Room{Size: 100 * mib, Avail: 4 * mib}, true},
		{"/run", Room{}, false}, // not known
	} {
		if got := c.r.Full(c.dir); (got != "") != c.full {
			t.Errorf("%s %+v: %q", c.dir, c.r, got)
		}
	}
}

func TestParseDF(t *testing.T) {
	got, err := ParseDF("Mounted on        1B-blocks       Avail  Inodes   IFree\n/               21003583488  1073741824 1310720 1210000\n/run              102400000    99000000       -       -\n")
	if err != nil || len(got) != 2 || got["/"] != (Room{21003583488, 1073741824, 1310720, 1210000}) || got["/run"] != (Room{102400000, 99000000, 0, 0}) {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := ParseDF("Mounted on\n/ x y\n"); err == nil {
		t.Errorf("%v", got)
	}
}

func TestPressure(t *testing.T) {
	text := "some avg10=0.00 avg60=1.50 avg300=22.57 total=123456\nfull avg10=0.00 avg60=0.50 avg300=12.25 total=4500000\n"
	p, ok := ParsePressure(text, "full")
	if !ok || p.Avg300 != 12.25 || p.Total.Milliseconds() != 4500 {
		t.Errorf("%+v, %v", p, ok)
	}
	if p, ok := ParsePressure("", "full"); ok {
		t.Errorf("%+v", p)
	}
}

func TestVMStat(t *testing.T) {
	text := "nr_free_pages 12\noom_kill 3\noom_kill_other 9\n"
	if n, ok := VMStat(text, "oom_kill"); n != 3 || !ok {
		t.Error(n, ok)
	}
	if n, ok := VMStat(text, "oom"); ok {
		t.Error(n)
	}
}

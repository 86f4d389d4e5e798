package linux

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestParseMDStat(t *testing.T) {
	// Forms of drivers/md/md.c, md_seq_show and status_resync.
	text := `Personalities : [raid6] [raid5] [raid4] [raid10]
md127 : active raid6 dm-5[5](S) dm-4[4] dm-2[2] dm-1[1] dm-0[0]
      3901952 blocks super 1.2 level 6, 128k chunk, algorithm 2 [4/3] [UUU_]
      [=====>...............]  recovery = 27.1% (264704/975488) finish=0.5min speed=22058K/sec
      bitmap: 0/1 pages [0KB], 65536KB chunk

md126 : active (auto-read-only) raid6 sdf[3] sde[2]
      3901952 blocks super 1.2 level 6, 128k chunk, algorithm 2 [4/4] [UUUU]
        resync=PENDING

md125 : active raid10 sdh[1] sdg[0]
      975488 blocks super 1.2 512K chunks 2 near-copies [2/2] [UU]
      [>....................]  check =  0.3% (3000/975488) finish=10.7min speed=1500K/sec

md124 : inactive sdi[0](S)
      976512 blocks super 1.2

unused devices: <none>
`
	want := []MDStat{
		{Dev: "md127", Disks: 4, Working: 3, Action: "recovery", Percent: 27.1, Left: 30 * time.Second},
		{Dev: "md126", Disks: 4, Working: 4, Action: "resync", Waiting: "PENDING"},
		{Dev: "md125", Disks: 2, Working: 2, Action: "check", Percent: 0.3, Left: 642 * time.Second},
		{Dev: "md124"},
	}
	if diff := cmp.Diff(want, ParseMDStat(text)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func FuzzParseMDStat(f *testing.F) {
	f.Add("md1 : active raid1 a[0]\n [2/1] [U_]\n resync = 1.0% finish=1min\n")
	f.Fuzz(func(_ *testing.T, s string) { ParseMDStat(s) })
}

func TestProc(t *testing.T) {
	if up, ok := Uptime("350735.47 234388.90\n"); !ok || up != 350735470*time.Millisecond {
		t.Error(up, ok)
	}
	if _, ok := Uptime(""); ok {
		t.Error("nothing is an uptime")
	}
	const meminfo = "MemTotal:       16384 kB\nMemAvailable:    8192 kB\n"
	if a, b := Memory(meminfo, "MemAvailable"), Memory(meminfo, "Mem"); a != 8<<20 || b != 0 {
		t.Error(a, b)
	}
}

func TestProperties(t *testing.T) {
	got := ParseUdev("S:disk/by-id/x\nI:123\nE:ID_SERIAL=a=b\nE:ID_FS_TYPE=xfs\nG:systemd\n")
	if d := cmp.Diff(map[string]string{"ID_SERIAL": "a=b", "ID_FS_TYPE": "xfs"}, got); d != "" {
		t.Error(d)
	}
}

func TestLinks(t *testing.T) {
	links, err := ParseLinks(`[{"ifname":"lo","addr_info":[{"local":"127.0.0.1"}]},{"ifname":"eth1","mtu":9000,"addr_info":[{"local":"10.0.2.1"},{"local":"fe80::1"}]}]`)
	if err != nil {
		t.Fatal(err)
	}
	if l, ok := LinkWith(links, "10.0.2.1"); !ok || l.Name != "eth1" || l.MTU != 9000 {
		t.Errorf("%+v %v", l, ok)
	}
	if l, ok := LinkWith(links, "10.0.2.2"); ok {
		t.Errorf("%+v has an address of nobody", l)
	}
	if _, err := ParseLinks("ip: no"); err == nil {
		t.Error("what is no JSON gives links")
	}
}

func TestParseBlockIO(t *testing.T) {
	text := "    1181        2    95362     1012      505       13    22402     4021        0     1180     5033        0        0        0        0       12        0\n"
	got, ok := ParseBlockIO(text)
	if want := (BlockIO{1181, 95362 * 512, 505, 22402 * 512}); !ok || got != want {
		t.Errorf("%+v %v", got, ok)
	}
	for _, bad := range []string{"", "1 2 3", "a 2 3 4 5 6 7"} {
		if _, ok := ParseBlockIO(bad); ok {
			t.Errorf("%q was read", bad)
		}
	}
}

func TestParseBcacheBytes(t *testing.T) {
	for in, want := range map[string]int64{"": 0, "0": 0, "512": 512, "4.0k\n": 4096, "1.5M": 3 << 19, "2G": 2 << 30, "x": 0} {
		if got := ParseBcacheBytes(in); got != want {
			t.Errorf("%q is %d, want %d", in, got, want)
		}
	}
}

package linux

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mortarhpc/mortar/test/field"
)

// Recorded from crm_mon of Pacemaker 3.0 while Pacemaker did not run.
const notConnected = `<pacemaker-result api-version="2.38" request="crm_mon --output-as=xml -1">
  <status code="102" message="Not connected">
    <errors>
      <error>crm_mon: Connection to cluster failed: Connection refused</error>
    </errors>
  </status>
</pacemaker-result>
`

func TestParseDMStatus(t *testing.T) {
	text := `35000c50000000101: 0 3906250 multipath 2 0 0 0 1 1 A 0 2 2 8:0 A 0 0 1 8:96 F 3 0 1
35000c50000000102: 0 3906250 multipath 2 0 1 0 2 1 A 0 1 0 8:16 A 0 E 0 1 0 8:112 A 1
35000c50000000103: 0 3906250 multipath 2 1 0 0 0 0
odd: 0 3906250 multipath 2 0 1 0 1 1 A 0 2 0 8:32 A 0 8:48 X 0
brick1_home-data: 0 7790592 linear
cut: 0 1 multipath 2 0 0 0 1 1 A 0 9 2 8:0 A
`
	want := map[string][]MultipathPath{
		"35000c50000000101": {{"8:0", "A", 0}, {"8:96", "F", 3}},
		"35000c50000000102": {{"8:16", "A", 0}, {"8:112", "A", 1}},
		"35000c50000000103": nil,
		"odd":               {{"8:32", "A", 0}, {"8:48", "X", 0}},
		"cut":               nil,
	}
	got, unread := ParseMultipath(field.Banner + text)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if len(unread) != 2 || !strings.HasPrefix(unread[0], "odd: ") || !strings.HasPrefix(unread[1], "cut: ") {
		t.Errorf("%q", unread)
	}
}

const ringDown = `Local node ID 1, transport knet
LINK ID 0 udp
	addr	= 10.77.2.11
	status:
		nodeid:          1:	localhost
		nodeid:          2:	disconnected
LINK ID 1 udp
	addr	= 10.77.1.11
	status:
		nodeid:          1:	localhost
		nodeid:          2:	connected
`

func TestParseLinks(t *testing.T) {
	got, unread := ParseRings(field.Banner + ringDown)
	want := []Ring{
		{ID: 0, Addr: "10.77.2.11", Peers: map[int]string{1: "localhost", 2: "disconnected"}},
		{ID: 1, Addr: "10.77.1.11", Peers: map[int]string{1: "localhost", 2: "connected"}},
	}
	if diff := cmp.Diff(want, got); diff != "" || len(unread) > 0 {
		t.Errorf("(-want +got):\n%s%v", diff, unread)
	}
	// Corosync 3.0, and words of no release.
	got, unread = ParseRings("LINK ID 0\n\taddr\t= 10.77.2.11\n\tstatus:\n\t\tnodeid  1:\tlink enabled:1\tlink connected:1\n\t\tnodeid  2:\tlink enabled:1\tlink connected:0\n\t\tnodeid:  3:\twobbly\n\tlatency: 3\nLINK ID x\n")
	want = []Ring{{ID: 0, Addr: "10.77.2.11", Peers: map[int]string{1: "connected", 2: "disconnected", 3: "wobbly"}}, {ID: -1, Peers: map[int]string{}}}
	if diff := cmp.Diff(want, got); diff != "" || len(unread) != 3 {
		t.Errorf("(-want +got):\n%s%q", diff, unread)
	}
}

func TestParseCRMTime(t *testing.T) {
	for _, tt := range []struct {
		in     string
		offset int
		want   time.Time
	}{
		{"Sat Nov 21 20:50:33 2026", 0, time.Date(2026, 11, 21, 20, 50, 33, 0, time.UTC)},
		{"Sat Nov  7 20:50:33 2026", 3600, time.Date(2026, 11, 7, 19, 50, 33, 0, time.UTC)},
		{"2026-11-21 20:52:27.641955Z", 0, time.Date(2026, 11, 21, 20, 52, 27, 641955000, time.UTC)},
		{"2026-11-21 20:37:36Z", 7200, time.Date(2026, 11, 21, 20, 37, 36, 0, time.UTC)},
		{"2026-11-21 21:37:36 +01:00", 0, time.Date(2026, 11, 21, 20, 37, 36, 0, time.UTC)},
		{"2026-11-21 21:37:36.000001 +01:00", 0, time.Date(2026, 11, 21, 20, 37, 36, 1000, time.UTC)},
	} {
		got, ok := ParseCRMTime(tt.in, tt.offset)
		if !ok || !got.Equal(tt.want) {
			t.Errorf("%q: %v, want %v", tt.in, got, tt.want)
		}
	}
	if _, ok := ParseCRMTime("", 0); ok {
		t.Error("no time was taken for one")
	}
}

func TestParseCRMNotConnected(t *testing.T) {
	_, err := ParseCRM(notConnected)
	if err == nil || err.Error() != "Connection to cluster failed: Connection refused" {
		t.Errorf("error %v", err)
	}
	if _, err := ParseCRM(""); err == nil {
		t.Error("nothing was read as a cluster")
	}
}

func TestParseMountStats(t *testing.T) {
	// Source: fs/nfs/super.c nfs_show_stats, net/sunrpc/stats.c rpc_clnt_show_stats
	text := `device /dev/vdb mounted on / with fstype ext4
device 10.77.1.100:/srv/home/data mounted on /mnt/home with fstype nfs4 statvers=1.1
	opts:	rw,vers=4.1,hard,proto=tcp
	age:	120
	events:	1 2 3 4
	RPC iostats version: 1.1  p/v: 100003/4 (nfs)
	xprt:	tcp 784 0 1 0 12 99 99 0 99 0 2 0 0
	per-op statistics
	        NULL: 1 1 0 44 24 2 0 3 0
	        READ: 10 12 1 2000 90000 5 80 90 0
	       WRITE: 20 20 0 900000 3000 10 400 420 0

device 10.77.1.100:/srv/home/data mounted on /mnt/home-v3 with fstype nfs statvers=1.1
	per-op statistics
	       WRITE: 7 8 0 900000 3000 10 400 420
`
	want := map[string]NFSCalls{"/mnt/home": {Ops: 31, Transmissions: 33}, "/mnt/home-v3": {Ops: 7, Transmissions: 8}}
	if diff := cmp.Diff(want, ParseMountStats(text)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

var mapLine = regexp.MustCompile(`^[^:]+: \S+ \S+ multipath `)

// A map of multipath that the kernel lists is in the answer or counted, and its paths too;
// text before the data changes nothing.
func FuzzParsers(f *testing.F) {
	for _, s := range []string{"md1 : x\n[=> check = 1.0% finish=1min", "a: 0 1 multipath 65536 65536", "LINK ID 0\nnodeid: 1: x", "device a mounted on b with fstype nfs\nper-op\nX: 1 2 3 4 5 6 7 8", "/a\tb(c)", notConnected} {
		f.Add(s)
	}
	f.Add("35000c50000000101: 0 3906250 multipath 2 0 0 0 1 1 A 0 2 2 8:0 A 0 0 1 8:96 F 3 0 1")
	f.Fuzz(func(t *testing.T, s string) {
		maps, odd := ParseMultipath(s)
		again, oddAgain := ParseMultipath(field.Banner + s)
		if d := cmp.Diff(maps, again) + cmp.Diff(odd, oddAgain); d != "" {
			t.Errorf("under a banner: %s", d)
		}
		for line := range strings.Lines(s) {
			line = strings.TrimSpace(line)
			name, _, _ := strings.Cut(line, ": ")
			if _, have := maps[name]; mapLine.MatchString(line) && !have && len(odd) == 0 {
				t.Errorf("%q is left out", line)
			}
		}
		for _, paths := range maps {
			for _, p := range paths {
				if p.State != PathActive && p.State != PathFailed && len(odd) == 0 {
					t.Errorf("%+v is not counted", p)
				}
			}
		}
		links, odd := ParseRings(s)
		linksAgain, oddAgain := ParseRings(field.Banner + s)
		if d := cmp.Diff(links, linksAgain) + cmp.Diff(odd, oddAgain); d != "" {
			t.Errorf("under a banner: %s", d)
		}
		if n := strings.Count("\n"+s, "\nLINK ID"); len(links) < n {
			t.Errorf("%d links of %d", len(links), n)
		}
		ParseMounts(s)
		ParseMountStats(s)
		ParseCRMTime(s, 0)
		_, _ = ParseCRM(s)
	})
}

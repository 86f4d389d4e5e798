package events

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mortarhpc/mortar/examples"
	"github.com/mortarhpc/mortar/internal/base/journal"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/host/agent"
	"github.com/mortarhpc/mortar/internal/host/gather"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/serve/ocf"
)

func example(t *testing.T) *design.Design {
	t.Helper()
	text, err := fs.ReadFile(examples.FS, "nfs-ha.yaml")
	if err != nil {
		t.Fatal(err)
	}
	s, err := spec.Parse("nfs-ha.yaml", text)
	if err != nil {
		t.Fatal(err)
	}
	d, err := design.New(s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// server is a fake host with a journal.
type server struct {
	lines  []string
	older  string // journal before the window
	memory bool   // no /var/log/journal
	serial string // of its disk
	asked  []string
}

func (s *server) Close() {}

func (s *server) Call(_ context.Context, op string, params, result any, onEvent func(json.RawMessage)) error {
	answer := func(v any) error {
		b, err := json.Marshal(v)
		if err != nil {
			return err
		}
		return json.Unmarshal(b, result)
	}
	switch op {
	case string(gather.Op):
		h := gather.Host{NowNS: time.Now().UnixNano()}
		h.Disks = []resource.DiskFact{{Serial: s.serial, WWN: "5000c56fea133486"}}
		return answer(h)
	case string(agent.OpFollow):
		s.asked = params.(agent.QueryParams).Argv
		if err := resource.ReadOnly(s.asked); err != nil {
			return err
		}
		for _, l := range s.lines {
			b, err := json.Marshal(agent.FollowEvent{Line: l})
			if err != nil {
				return err
			}
			onEvent(b)
		}
		return nil
	case string(agent.OpQuery):
		argv := params.(agent.QueryParams).Argv
		if err := resource.ReadOnly(argv); err != nil {
			return err
		}
		out := resource.Output{Stdout: s.older}
		if argv[0] == "ls" && s.memory {
			out.Code = 2
		}
		return answer(out)
	}
	return fmt.Errorf("op %s", op)
}

// at is a line of a journal, seconds after a moment.
func at(seconds int, ident, priority, message string) string {
	b, err := json.Marshal(map[string]string{"__REALTIME_TIMESTAMP": fmt.Sprint(1795000000000000 + seconds*1000000), "SYSLOG_IDENTIFIER": ident, "PRIORITY": priority, "MESSAGE": message})
	if err != nil {
		panic(err) // plain strings
	}
	return string(b)
}

var since = time.Unix(1795000000, 0)

// A failover as nfs1 logged it, after an apply.
func failover(d *design.Design) *server {
	return &server{serial: d.Disks[0].Serial, older: `{"PRIORITY":"6"}`, lines: []string{
		at(0, "mortar", "5", "alice@ws (mortar apply): install packages: apt-get install -y nfs-kernel-server"),
		at(40, "mortar", "5", "alice@ws (mortar apply): kernel settings: file /etc/sysctl.d/90-mortar.conf"),
		at(41, "mortar", "5", "alice@ws (mortar apply): failed: volume: lvm: exit code 5"),
		at(50, "mortar", "5", "bob@ws (mortar failover): move service-home: crm_resource --move"),
		at(60, "mortar", "5", "an old build's line: systemctl start x"),
		at(61, "mortar", "5", ocf.RecordedBy("nfs1")+"move spare 35000c56fea133486 from array brick1-r0, which is whole, to array brick1-r1"),
		at(100, "corosync", "6", "[KNET  ] link: host: 2 link: 1 is down"),
		at(101, "pacemaker-controld", "5", " notice: Peer nfs2 was terminated (reboot) by nfs1 on behalf of pacemaker-controld.367@nfs1: OK"),
		at(102, "pacemaker-controld", "5", " notice: Result of start operation for fence-nfs2-bmc on nfs1: OK"),
		at(103, "multipathd", "5", "35000c56fea133486: remaining active paths: 1"),
		at(104, "kernel", "3", "I/O error, dev sda, sector 4711 op 0x0:(READ)"),
		at(105, "kernel", "3", "I/O error, dev sda, sector 4719 op 0x0:(READ)"),
		at(106, "kernel", "6", "e1000 whatever"),
		at(107, "mortar", "5", "watcher@nfs1 (mortar-watch): dropped slow disk MA01 of group b-r0: it took 2400 ms for an answer, its peers 9 ms"),
		"not JSON",
	}}
}

func TestOf(t *testing.T) {
	d := example(t)
	h := failover(d)
	got, err := Of(t.Context(), host.New("nfs1", h), d, Window{Since: since})
	if err != nil || got.Gaps != odd || got.Skew.Abs() > time.Minute {
		t.Fatalf("%v %+v", err, got)
	}
	for _, arg := range []string{"--since=@1795000000", "mortar", "50000"} {
		if !slices.Contains(h.asked, arg) {
			t.Errorf("asked %q", h.asked)
		}
	}
	var lines []string
	for _, e := range got.Events {
		lines = append(lines, fmt.Sprintf("%s %s %d %s", e.Part, e.Level, e.Count, e.sentence()))
	}
	x := d.Disks[0]
	last := time.Unix(1795000105, 0).Local().Format("15:04:05")
	want := []string{
		"mortar ok 2 alice@ws, mortar apply: 2 changes, the first: install packages: apt-get install -y nfs-kernel-server (until " + time.Unix(1795000040, 0).Local().Format("15:04:05") + ")",
		"mortar fault 1 alice@ws, mortar apply: failed: volume: lvm: exit code 5",
		"mortar ok 1 bob@ws, mortar failover: move service-home: crm_resource --move",
		"mortar ok 1 an old build's line: systemctl start x",
		fmt.Sprintf("mortar ok 1 watcher@nfs1, mortar-watch: move spare disk %s (enclosure %s bay %d) from array brick1-r0, which is whole, to array brick1-r1", x.Serial, x.Enclosure, x.Bay),
		"network warning 1 ring 1 to nfs2 is down",
		"fencing warning 1 nfs2 was fenced (reboot) by nfs1",
		fmt.Sprintf("multipath ok 1 disk %s (enclosure %s bay %d) has 1 working paths", x.Serial, x.Enclosure, x.Bay),
		"kernel fault 2 I/O error, dev sda, sector 4711 op 0x0:(READ) (2 times, until " + last + ")",
		"md warning 1 watcher@nfs1, mortar-watch: dropped slow disk MA01 of group b-r0: it took 2400 ms for an answer, its peers 9 ms",
	}
	if a, b := strings.Join(lines, "\n"), strings.Join(want, "\n"); a != b {
		t.Errorf("got\n%s\nwant\n%s", a, b)
	}

	all, err := Of(t.Context(), host.New("nfs1", failover(d)), d, Window{Since: since, All: true})
	if err != nil || len(all.Events) != 13 {
		t.Errorf("--all: %v, %d events", err, len(all.Events))
	}
}

// An event of an action that the agent refused has the code of the refusal; that of another agent,
// or of a release that has other codes, keeps what the message means.
func TestRefusalsHaveCodes(t *testing.T) {
	for reason, want := range map[string]string{
		"[mounted] logical volume vg/data is mounted on /mnt already": "mounted",
		"[nfsd] nfsd does not run":                                    "nfsd",
		"[of-tomorrow] a reason":                                      journal.StartFail,
		"a reason":                                                    journal.StartFail,
	} {
		h := &server{older: `{"PRIORITY":"6"}`, lines: []string{at(1, "pacemaker-controld", "5", " notice: Result of start operation for service-home on nfs1: error ("+reason+")")}}
		got, err := Of(t.Context(), host.New("nfs1", h), example(t), Window{Since: since})
		if err != nil || len(got.Events) != 1 || got.Events[0].Code != want {
			t.Errorf("%s: %v, %+v", reason, err, got.Events)
		}
	}
}

// odd tells of a line of the journal in these tests.
const odd = `1 record is not understood: "not JSON"`

func TestGaps(t *testing.T) {
	d := example(t)
	for name, c := range map[string]struct {
		h    *server
		want string
	}{
		"memory": {&server{lines: failover(d).lines, memory: true}, "its journal begins at " + clockTime(since) + ", as it is kept in memory (a folder /var/log/journal has journald keep it on disk); " + odd},
		"young":  {&server{lines: failover(d).lines}, "its journal begins at " + clockTime(since) + "; " + odd},
		"none":   {&server{}, "its journal has nothing of that time"},
	} {
		got, err := Of(t.Context(), host.New("nfs1", c.h), d, Window{Since: since})
		if err != nil || got.Gaps != c.want {
			t.Errorf("%s: %v %q", name, err, got.Gaps)
		}
	}
}

func TestRender(t *testing.T) {
	e := []Event{
		{Time: since.Add(time.Second), Count: 1, Brick: "b1", Host: "nfs2", Part: "md", Level: journal.Fault, Text: "array md127: dm-0 failed"},
		{Time: since, Count: 1, Brick: "b1", Host: "nfs1", Part: "kernel", Level: journal.OK, Text: "the host boots"},
		{Time: since.Add(48 * time.Hour), Count: 3, Until: since.Add(49 * time.Hour), Brick: "b1", Host: "c1", Part: "NFS", Level: journal.Warning, Text: "no answer"},
	}
	Sort(e)
	var b strings.Builder
	if err := Render(&b, e, true, nil); err != nil {
		t.Fatal(err)
	}
	day := func(d time.Duration) string { return since.Add(d).Local().Format("Monday 2 January 2006 (MST)") }
	clock := func(d time.Duration) string { return since.Add(d).Local().Format("15:04:05") }
	want := day(0) + "\n" +
		clock(0) + "  b1/nfs1  kernel              the host boots\n" +
		clock(time.Second) + "  b1/nfs2  md         fault    array md127: dm-0 failed\n\n" +
		day(48*time.Hour) + "\n" +
		clock(0) + "  b1/c1    NFS        warning  no answer (3 times, until " + clock(49*time.Hour) + ")\n"
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}

func TestPointInTime(t *testing.T) {
	now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.Local)
	for s, want := range map[string]time.Time{
		"7d": now.AddDate(0, 0, -7), "90m": now.Add(-90 * time.Minute), "2026-11-20": time.Date(2026, 11, 20, 0, 0, 0, 0, time.Local),
		"2026-11-20 18:00": time.Date(2026, 11, 20, 18, 0, 0, 0, time.Local), "2026-11-20T18:00:00Z": time.Date(2026, 11, 20, 18, 0, 0, 0, time.UTC),
	} {
		if got, err := PointInTime(s, now); err != nil || !got.Equal(want) {
			t.Errorf("%s: %v, %v", s, got, err)
		}
	}
	for _, s := range []string{"", "-3d", "-1h", "tomorrow", "7"} {
		if _, err := PointInTime(s, now); err == nil {
			t.Errorf("%q: %v", s, err)
		}
	}
}

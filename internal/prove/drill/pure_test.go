package drill

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/prove/report"
	"github.com/mortarhpc/mortar/internal/prove/stream"
	"github.com/mortarhpc/mortar/internal/prove/workload"
)

func TestJournalEvent(t *testing.T) {
	line := `{"__REALTIME_TIMESTAMP":"1795000000123456","_SOURCE_REALTIME_TIMESTAMP":"1795000000120000","SYSLOG_IDENTIFIER":"pacemaker-controld","MESSAGE":" notice: Peer nfs1 was terminated (reboot) by nfs2 on behalf of pacemaker-controld.812@nfs2: OK"}`
	e, ok := journalEvent([]byte(line), "nfs2")
	if !ok || e.Kind != report.EventFenced || e.Source != "pacemaker" || e.Host != "nfs2" {
		t.Errorf("event %+v %v", e, ok)
	}
	// A failed start of a fence device is no failed start of a service.
	for res, kind := range map[string]string{"service-home": report.EventStartFail, "fence-pdu-a": report.EventNote} {
		line := `{"__REALTIME_TIMESTAMP":"1795000000123456","SYSLOG_IDENTIFIER":"pacemaker-controld","MESSAGE":" notice: Result of start operation for ` + res + ` on nfs2: Error occurred"}`
		if e, ok := journalEvent([]byte(line), "nfs2"); !ok || e.Kind != kind {
			t.Errorf("%s: %+v %v", res, e, ok)
		}
	}
}

func TestOCFEvent(t *testing.T) {
	for _, c := range []struct {
		line, kind, text string
		ns               int64
	}{
		{`{"t_ns":1000000000,"action":"start","step":"begin","seconds":0}`, report.EventStarting, "start begins", 1e9},
		{`{"t_ns":1000000000,"action":"start","step":"mount","seconds":0.5}`, report.EventStep, "start: mount took 0.50 s", 15e8},
		{`{"t_ns":1000000000,"action":"start","step":"end","seconds":3.2}`, report.EventStarted, "start took 3.20 s", 1e9},
		{`{"t_ns":1000000000,"action":"start","step":"end","seconds":3.2,"err":"no member"}`, report.EventStartFail, "start took 3.20 s: no member", 1e9},
		{`{"t_ns":1000000000,"action":"stop","step":"end","seconds":1}`, report.EventStopped, "stop took 1.00 s", 1e9},
		{`{"t_ns":1000000000,"action":"start","step":"note","note":"resync under way"}`, report.EventNote, "start: resync under way", 1e9},
	} {
		e, ok := ocfEvent([]byte(c.line), "nfs2")
		if !ok || e.Kind != c.kind || e.Text != c.text || e.NS != c.ns {
			t.Errorf("%s: %+v %v", c.line, e, ok)
		}
	}
	for _, l := range []string{"", "tail: no such file", `{"t_ns":1,"action":"monitor","step":"monitor"}`} {
		if e, ok := ocfEvent([]byte(l), "nfs2"); ok {
			t.Errorf("%q gives %+v", l, e)
		}
	}
}

// crmMon is an output of crm_mon, with edits that put one thing wrong.
func crmMon(active string, edit ...string) string {
	s := `<?xml version="1.0"?>
<pacemaker-result api-version="2.38" request="crm_mon --one-shot --output-as=xml --inactive">
  <summary><stack type="corosync" pacemakerd-state="running"/></summary>
  <nodes>
    <node name="nfs1" id="1" online="true" standby="false" maintenance="false" pending="false" unclean="false" health="green" is_dc="false" resources_running="2" type="member"/>
    <node name="nfs2" id="2" online="true" standby="false" maintenance="false" pending="false" unclean="false" health="green" is_dc="true" resources_running="1" type="member"/>
  </nodes>
  <resources>
    <resource id="fence-nfs1-bmc" resource_agent="stonith:fence_ipmilan" role="Started" active="true" orphaned="false" blocked="false" maintenance="false" managed="true" failed="false" failure_ignored="false" nodes_running_on="1"><node name="nfs2" id="2" cached="true"/></resource>
    <resource id="fence-nfs2-bmc" resource_agent="stonith:fence_ipmilan" role="Started" active="true" orphaned="false" blocked="false" maintenance="false" managed="true" failed="false" failure_ignored="false" nodes_running_on="1"><node name="nfs1" id="1" cached="true"/></resource>
    <resource id="service-home" resource_agent="ocf:mortar:service" role="Started" active="true" orphaned="false" blocked="false" maintenance="false" managed="true" failed="false" failure_ignored="false" nodes_running_on="1"><node name="ACTIVE" id="1" cached="true"/></resource>
  </resources>
  <failures></failures>
  <status code="0" message="OK"/>
</pacemaker-result>`
	s = strings.ReplaceAll(s, "ACTIVE", active)
	return strings.NewReplacer(edit...).Replace(s)
}

// The load goes on while a server is to be fenced, or a service does not run.
func TestUnderWay(t *testing.T) {
	for want, edit := range map[string][]string{
		"":                         {`name="nfs1" id="1" online="true"`, `name="nfs1" id="1" online="false"`},
		"nfs1 is to be fenced":     {`pending="false" unclean="false" health="green" is_dc="false"`, `pending="false" unclean="true" health="green" is_dc="false"`},
		"service-home is starting": {`resource_agent="ocf:mortar:service" role="Started"`, `resource_agent="ocf:mortar:service" role="Starting"`},
	} {
		c, err := parseCrmMon(crmMon("nfs1", edit...))
		if got := c.underWay([]string{"home"}); err != nil || got != want {
			t.Errorf("%q, %v; want %q", got, err, want)
		}
	}
}

func TestParseCrmMon(t *testing.T) {
	nodes := []string{"nfs1", "nfs2"}
	for name, c := range map[string]struct {
		edit []string
		want []string
	}{
		"healthy":   {nil, nil},
		"offline":   {[]string{`name="nfs2" id="2" online="true"`, `name="nfs2" id="2" online="false"`}, []string{"nfs2 is offline"}},
		"unclean":   {[]string{`unclean="false" health="green" is_dc="false"`, `unclean="true" health="green" is_dc="false"`}, []string{"nfs1 is unclean (waiting to be fenced)"}},
		"standby":   {[]string{`standby="false" maintenance="false" pending="false" unclean="false" health="green" is_dc="true"`, `standby="true" maintenance="false" pending="false" unclean="false"`}, []string{"nfs2 is in standby"}},
		"missing":   {[]string{`<node name="nfs2" id="2" online`, `<node name="other" id="2" online`}, []string{"nfs2 is no member of the cluster"}},
		"stopped":   {[]string{`<node name="nfs2" id="2" cached="true"/>`, ""}, []string{"fence-nfs1-bmc is not running"}},
		"twice":     {[]string{`<node name="nfs1" id="1" cached="true"/></resource>` + "\n  </res", `<node name="nfs1"/><node name="nfs2"/></resource>` + "\n  </res"}, []string{"service-home runs on nfs1 and nfs2"}},
		"unmanaged": {[]string{`managed="true"`, `managed="false"`}, []string{"fence-nfs1-bmc is not managed", "fence-nfs2-bmc is not managed", "service-home is not managed"}},
		"failure": {[]string{"<failures></failures>", `<failures><failure op_key="home_monitor_10000" node="nfs1" exitstatus="not running" exitreason="no nfsd" exitcode="7" call="33" status="complete"/></failures>`},
			[]string{"failed action: home_monitor_10000 on nfs1: not running (no nfsd)"}},
		"no fencing": {[]string{"stonith:fence_ipmilan", "ocf:pacemaker:Dummy"}, []string{"no fence device is registered"}},
	} {
		cl, err := parseCrmMon(crmMon("nfs1", c.edit...))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if d := cmp.Diff(c.want, cl.problems(nodes)); d != "" {
			t.Errorf("%s:\n%s", name, d)
		}
	}
	real, err := os.ReadFile(filepath.Join("testdata", "crm_mon-3.0-starting.xml"))
	if err != nil {
		t.Fatal(err)
	}
	cl, err := parseCrmMon(string(real))
	if err != nil || len(cl.Nodes) != 2 || len(cl.all()) != 7 {
		t.Errorf("a real one: %+v %v", cl, err)
	}
	if d := cmp.Diff([]string{"service-home is starting on nfs1"}, cl.problems(nodes)); d != "" {
		t.Error(d)
	}
	cl, _ = parseCrmMon(crmMon("nfs2"))
	if r, err := cl.service("home"); err != nil || r.ID != "service-home" || !slices.Equal(r.NodeNames(), []string{"nfs2"}) {
		t.Errorf("service: %+v %v", r, err)
	}
	if _, err := (cluster{&linux.CRM{}}).service("home"); err == nil {
		t.Error("a cluster without the resource has a service")
	}
	for _, bad := range []string{"", "<", "<html/>", "crm_mon: Connection to cluster failed"} {
		if _, err := parseCrmMon(bad); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
}

func TestDoubleMount(t *testing.T) {
	on := func(at ...int64) (ls []look) {
		for _, a := range at {
			ls = append(ls, look{a, a, true})
		}
		return ls
	}
	off := func(at ...int64) (ls []look) {
		for _, a := range at {
			ls = append(ls, look{a, a, false})
		}
		return ls
	}
	for name, c := range map[string]struct {
		looks  map[string][]look
		fenced map[string]int64
		bad    bool
	}{
		"moves":             {map[string][]look{"a": append(on(1, 2), off(4)...), "b": append(off(1, 2), on(5, 6)...)}, nil, false},
		"both":              {map[string][]look{"a": on(1, 2, 3, 4), "b": append(off(1), on(3, 5)...)}, nil, true},
		"fenced, rebooted":  {map[string][]look{"a": append(on(1, 2), off(9, 10)...), "b": append(off(1, 2), on(5, 9)...)}, map[string]int64{"a": 4}, false},
		"back after fence":  {map[string][]look{"a": on(1, 2, 12), "b": append(on(5, 6), off(10)...)}, map[string]int64{"a": 4}, false},
		"back while served": {map[string][]look{"a": on(1, 2, 12, 13), "b": on(5, 6, 12, 14)}, map[string]int64{"a": 4}, true},
		"nobody":            {map[string][]look{"a": off(1), "b": nil}, nil, false},
	} {
		if got := doubleMount(c.looks, c.fenced); (got != "") != c.bad {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func testDesign(mounts ...design.ClientMount) *design.Design { return &design.Design{Mounts: mounts} }

func TestJobs(t *testing.T) {
	m := func(client, p, v string) design.ClientMount {
		return design.ClientMount{Client: client, Service: "home", Source: "10.0.0.9:/srv/home", Path: p, Version: v}
	}
	t.Run("one client, both protocols", func(t *testing.T) {
		js, err := jobs(testDesign(m("c1", "/mnt/v41", "4.1"), m("c1", "/mnt/v3", "3")), "home", "r1", "/run/mortar", 8)
		if err != nil || len(js) != 1 {
			t.Fatal(js, err)
		}
		roles := map[string]string{}
		for _, l := range js[0].job.Locks {
			roles[l.Name] = string(l.Role) + " " + l.Dir + " " + l.File
		}
		want := map[string]string{
			"v4.1-c1-lock": "probe /mnt/v41/.mortar ", "v3-c1-lock": "probe /mnt/v3/.mortar ",
			"v4.1-c1-held": "hold /mnt/v41/.mortar ", "v3-c1-held": "hold /mnt/v3/.mortar ",
			// A challenger tries each held lock through the other protocol.
			"v4.1-c1-tried": "challenge /mnt/v3/.mortar v4.1-c1-held", "v3-c1-tried": "challenge /mnt/v41/.mortar v3-c1-held",
		}
		if d := cmp.Diff(want, roles); d != "" {
			t.Error(d)
		}
		if len(js[0].job.Writers) != 4 {
			t.Errorf("%d writers", len(js[0].job.Writers))
		}
	})
	t.Run("two clients", func(t *testing.T) {
		js, err := jobs(testDesign(m("c1", "/mnt/v41", "4.1"), m("c1", "/mnt/v3", "3"), m("c2", "/mnt/v41", "4.1"), m("c2", "/mnt/v3", "3")), "home", "r1", "/run/mortar", 8)
		if err != nil || len(js) != 2 {
			t.Fatal(js, err)
		}
		names := map[string]bool{}
		streams := map[uint32]bool{}
		for _, j := range js {
			streams[j.job.StreamBase] = true
			for _, w := range j.job.Writers {
				if names[w.Name] {
					t.Errorf("two writers share the file of %s", w.Name)
				}
				names[w.Name] = true
			}
		}
		if len(streams) != 2 {
			t.Error("clients share stream numbers")
		}
		var tried []string
		for _, l := range js[1].job.Locks {
			if l.Role == workload.Challenge {
				tried = append(tried, l.Dir+" "+l.File)
			}
		}
		if d := cmp.Diff([]string{"/mnt/v41/.mortar v4.1-c1-held", "/mnt/v3/.mortar v3-c1-held"}, tried); d != "" {
			t.Error(d)
		}
	})
	t.Run("same protocol twice", func(t *testing.T) {
		js, _ := jobs(testDesign(m("c1", "/mnt/a", "3"), m("c1", "/mnt/b", "3")), "home", "r1", "/run/mortar", 8)
		names := map[string]bool{}
		for _, w := range js[0].job.Writers {
			names[w.Name] = true
		}
		if len(names) != 4 {
			t.Errorf("names clash: %v", names)
		}
	})
	t.Run("one mount", func(t *testing.T) {
		js, err := jobs(testDesign(m("c1", "/mnt/v3", "3")), "home", "r1", "/run/mortar", 8)
		if err != nil || len(js[0].aside) != 1 || js[0].aside[0].Path != "/run/mortar/r1/locks-0" {
			t.Fatalf("%+v %v", js, err)
		}
		var tried []string
		for _, l := range js[0].job.Locks {
			if l.Role == workload.Challenge {
				tried = append(tried, l.Name+" "+l.Dir+" "+l.File)
			}
		}
		if d := cmp.Diff([]string{"v3-c1-tried /run/mortar/r1/locks-0/.mortar v3-c1-held"}, tried); d != "" {
			t.Error(d)
		}
	})
	js, err := jobs(testDesign(m("c1", "/small", "lustre")), "home", "r1", "/run/mortar", 8)
	if err != nil || js[0].job.Workers() != 6 || len(js[0].job.Names) != 1 || js[0].mounts["lustre-c1-names"].Path != "/small" {
		t.Errorf("Lustre: %+v %v", js, err)
	}
	if _, err := jobs(testDesign(), "home", "r1", "/run/mortar", 8); err == nil {
		t.Error("no mount, no error")
	}
}

var serverCrash, _, _ = Find("server-crash", "")

// evidenceOf is the evidence of a drill that passes.
func evidenceOf() evidence {
	const s = int64(1e9)
	fault := 100 * s
	ok := stream.Report{AcknowledgedBytes: 1 << 20, VerifiedBytes: 1 << 20, AcknowledgedBeforeBytes: 1 << 19, VerifiedBeforeBytes: 1 << 19, ByClass: map[stream.Class]int64{stream.OK: 1 << 20}}
	worker := func(name, kind string) workload.WorkerResult {
		ops := make([]int64, 300)
		for i := range ops {
			if i < 100 || i > 190 {
				ops[i] = 1
			}
		}
		return workload.WorkerResult{Worker: name, Kind: kind, Ops: 209, AckedBytes: 1 << 20, Timeline: workload.Timeline{StartNs: 90*s + 7, BucketSeconds: 0.1, Ops: ops, Bytes: ops},
			Completions: []workload.Completion{{Op: "write", IssuedNs: 100*s + 7, DoneNs: 108*s + 7}}}
	}
	lock := worker("v3-c1-lock", "lock-probe")
	lock.Completions = []workload.Completion{{Op: "lock", IssuedNs: 107 * s, DoneNs: 109*s + 7}}
	// A client with a delegation grants these locks itself while the server is
	// away.
	tried := worker("v3-c1-tried", "lock-challenge")
	tried.Completions, tried.Timeline.Ops, tried.Timeline.Bytes = nil, nil, nil
	local := worker("v4.1-c1-lock", "lock-probe")
	local.Completions = nil
	for i := range local.Timeline.Ops {
		local.Timeline.Ops[i] = 1
		local.Completions = append(local.Completions, workload.Completion{Op: "lock", IssuedNs: (90+int64(i)/10)*s + 7, DoneNs: (90+int64(i)/10)*s + 100_007})
	}
	return evidence{
		drill: serverCrash, expect: serverCrash.Expect, moved: true, fault: fault, active: "nfs1", survivor: "nfs2", resource: "service-home", nodes: []string{"nfs1", "nfs2"},
		events: []report.Event{
			{NS: 101 * s, Host: "nfs2", Source: "corosync", Kind: report.EventDetected, Text: "[TOTEM ] A processor failed, forming new configuration"},
			{NS: 104 * s, Host: "nfs2", Source: "pacemaker", Kind: report.EventFenced, Text: "Peer nfs1 was terminated (reboot) by nfs2 on behalf of x: OK"},
			{NS: 104*s + 5, Host: "nfs2", Source: "pacemaker", Kind: report.EventStarting, Text: "Initiating start operation service-home_start_0 locally on nfs2"},
			{NS: 106 * s, Host: "nfs2", Source: "pacemaker", Kind: report.EventStarted, Text: "Result of start operation for fence-nfs1-bmc on nfs2: ok"},
			{NS: 107 * s, Host: "nfs2", Source: "ocf", Kind: report.EventStarted, Text: "start took 2.90 s"},
		},
		looks: map[string][]look{"nfs1": {{99 * s, 99 * s, true}, {150 * s, 150 * s, false}}, "nfs2": {{99 * s, 99 * s, false}, {106 * s, 106 * s, true}}},
		loads: []loaded{{client: "c1", offset: 7, mounts: map[string]design.ClientMount{"v3-c1-lock": {Version: "3"}, "v3-c1-osync": {Version: "3", Path: "/mnt/home"}}, result: workload.Result{RunID: "r", Workers: []workload.WorkerResult{worker("v3-c1-osync", "writer"), lock, local, tried},
			Stalls: []workload.Stall{{Worker: "v3-c1-osync", StartNs: 100*s + 7, Seconds: 8}, {Worker: "v3-c1-lock", StartNs: 100*s + 7, Seconds: 9}, {Worker: "v3-c1-osync", StartNs: 91 * s, Seconds: 2}}}}},
		location: []string{"nfs2"}, recovered: true, waited: 10,
		verify: verifyReport(map[string]stream.Report{"c1": ok}), perClient: map[string]stream.Report{"c1": ok},
	}
}

// An event has the time of its host's clock, before or after a jump.
func TestWhen(t *testing.T) { synctest.Test(t, testWhen) }

func testWhen(t *testing.T) {
	for _, by := range []time.Duration{time.Hour, -time.Hour} {
		w := newWatcher(func(string) {}, nil)
		check := func(what string, at time.Time, ahead time.Duration) {
			t.Helper()
			if got := w.when("nfs1", at.Add(ahead).UnixNano()); got != at.UnixNano() {
				t.Errorf("by %v, %s: %v late", by, what, time.Duration(got-at.UnixNano()))
			}
		}
		before := time.Now()
		check("without a jump", before, 0)
		time.Sleep(10 * time.Second)
		w.shift("nfs1", by)
		if w.moved("nfs1") != by.Nanoseconds() {
			t.Error("where the clock is")
		}
		time.Sleep(10 * time.Second)
		meanwhile := time.Now()
		check("before the jump, read later", before, 0)
		check("meanwhile", meanwhile, by)
		w.shift("nfs1", 0)
		time.Sleep(10 * time.Second)
		check("after it was mended", time.Now(), 0)
		check("meanwhile, read later", meanwhile, by)
		check("long ago", before.Add(-2*time.Hour), 0)
		if w.moved("nfs1") != 0 {
			t.Error("where the clock is, mended")
		}
	}
}

// Locks have a target where the service of NFS moves by itself and every client lives.
func TestLocksTarget(t *testing.T) {
	e := evidenceOf()
	nfs, lustre := exampleDesign(t, "nfs-ha.yaml"), exampleDesign(t, "lustre-small.yaml")
	for _, c := range []struct {
		design *design.Design
		expect Expect
		late   float64 // seconds
		met    bool
		none   bool
	}{
		{nfs, Expect{Where: Moves, Stall: 10}, 0, true, false},
		{nfs, Expect{Where: Moves, Stall: 10}, 14, false, false},
		{nfs, Expect{Where: Moves, Stall: none}, 0, false, true},
		{nfs, Expect{Where: Stays, Stall: 10}, 0, false, true},
		{lustre, Expect{Where: Moves, Stall: 10}, 0, false, true},
	} {
		m, _ := marks(e)
		*m.AllLocks += c.late
		back, target, met := (&engine{env: Env{Design: c.design}, expect: c.expect}).locksBack(m)
		if c.none != (target == nil) || target != nil && (*met != c.met || *back != 2+c.late || *target != 15) {
			t.Errorf("%s %+v, %v s late: %v", c.design.Flavour, c.expect, c.late, met)
		}
	}
}

func TestMarks(t *testing.T) {
	e := evidenceOf()
	f := func(v float64) *float64 { return &v }
	got, io := marks(e)
	want := report.Marks{Detected: f(1), Fenced: f(4), Started: f(7), FirstIO: f(8), AllIO: f(8), FirstLock: f(9), AllLocks: f(9)}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if io["c1"] != e.fault+8e9 {
		t.Errorf("first I/O of c1: %d", io["c1"]-e.fault)
	}
	if s := longestStall(e.loads[0], e.fault, true); s != 8 {
		t.Errorf("longest stall %g", s)
	}
	if s := longestStall(e.loads[0], e.fault, false); s != 9 {
		t.Errorf("longest lock stall %g", s)
	}
	e.events = nil
	if got, _ := marks(e); got != (report.Marks{}) {
		t.Errorf("without events: %+v", got)
	}
	// A service that stays has no first I/O after the fault, and the log of its
	// own server counts.
	e = evidenceOf()
	stays(&e)
	e.events = []report.Event{{NS: e.fault + 1e9, Host: "nfs1", Kind: report.EventMembership}, {NS: e.fault + 5e8, Host: "nfs2", Kind: report.EventDetected}}
	if got, io := marks(e); cmp.Diff(report.Marks{Detected: f(1)}, got) != "" || io != nil {
		t.Errorf("it stays: %+v %v", got, io)
	}
	e.events = append(e.events, report.Event{NS: e.fault + 8e8, Kind: report.EventMended})
	if got, _ := marks(e); got.Detected != nil {
		t.Errorf("a heartbeat lost after the mending: detected after %g s", *got.Detected)
	}
}

// An MDS crashes: a writer of Lustre goes on, and the worker on names stalls. The
// end of that stall is the first I/O.
func TestStallOfNames(t *testing.T) {
	const s = int64(1e9)
	e := evidenceOf()
	l := &e.loads[0]
	writer := &l.result.Workers[0]
	names := *writer
	writer.Completions, writer.Timeline.Ops = nil, slices.Repeat([]int64{1}, 300)
	names.Worker, names.Kind = "lustre-c1-names", "names"
	l.result.Workers = append(l.result.Workers, names)
	l.result.Stalls = []workload.Stall{{Worker: names.Worker, StartNs: 100*s + 7, Seconds: 8, Op: "mkdir"}}
	got, io := marks(e)
	if got.FirstIO == nil || *got.FirstIO != 8 || io["c1"] != e.fault+8*s {
		t.Errorf("%+v %v", got, io)
	}
	if d := longestStall(*l, e.fault, true); d != 8 {
		t.Errorf("longest stall %g", d)
	}
	l.result.Stalls = nil
	if got, _ := marks(e); got.FirstIO == nil || *got.FirstIO > 5 {
		t.Errorf("nobody was held up: %+v", got)
	}
}

func failed(cs []report.Check) (names []string) {
	for _, c := range cs {
		if !c.OK {
			names = append(names, c.Name)
		}
	}
	return names
}

func TestTimelineOnOneClock(t *testing.T) {
	w := func(start int64, ops ...int64) workload.WorkerResult {
		return workload.WorkerResult{Worker: "w", Kind: "writer", Mode: "random/osync", Timeline: workload.Timeline{StartNs: start, BucketSeconds: 0.1, Ops: ops, Bytes: ops}}
	}
	const s = int64(1e9)
	tl := timeline([]loaded{
		{client: "a", offset: 0, result: workload.Result{Workers: []workload.WorkerResult{w(10*s, 1, 2, 3)}}, mounts: map[string]design.ClientMount{"w": {Version: "3"}}},
		{client: "b", offset: 5 * s, result: workload.Result{Workers: []workload.WorkerResult{w(15*s+s/5, 4, 5)}}},
	}, 11*s)
	if tl.StartNS != 10*s {
		t.Errorf("starts at %d", tl.StartNS)
	}
	if d := cmp.Diff([][]int64{{1, 2, 3}, {0, 0, 4, 5}}, [][]int64{tl.Workers[0].Ops, tl.Workers[1].Ops}); d != "" {
		t.Error(d)
	}
	if x := tl.Workers[0]; x.Version != "3" || x.Mode != "osync" || x.Pattern != "random" {
		t.Errorf("%+v", x)
	}
}

func TestFind(t *testing.T) {
	if _, v, err := Find("server-crash", ""); err != nil || v.How != "freeze" {
		t.Errorf("default: %v %v", v, err)
	}
	for _, c := range [][2]string{{"server-crush", ""}, {"server-crash", "magic"}} {
		_, _, err := Find(c[0], c[1])
		if err == nil || !strings.Contains(err.Error(), "server-crash") {
			t.Errorf("%v: %v", c, err)
		}
	}
	seen := map[string]bool{}
	for _, d := range Table {
		if seen[d.Name] || len(d.Variants) == 0 || d.Title == "" {
			t.Errorf("drill %q: twice, or empty", d.Name)
		}
		seen[d.Name] = true
	}
}

func FuzzJournal(f *testing.F) {
	f.Add([]byte(`{"__REALTIME_TIMESTAMP":"1","SYSLOG_IDENTIFIER":"corosync","MESSAGE":"x"}`))
	f.Add([]byte(`{"t_ns":1,"action":"start","step":"end"}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		if e, ok := journalEvent(line, "h"); ok && e.Kind == "" {
			t.Error("an event without a kind")
		}
		_, _ = ocfEvent(line, "h")
		_, _ = parseCrmMon(string(line))
	})
}

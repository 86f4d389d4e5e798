package judge

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/prove/report"
	"github.com/mortarhpc/mortar/internal/prove/stream"
	"github.com/mortarhpc/mortar/internal/prove/workload"
	"github.com/mortarhpc/mortar/internal/serve/unit"
)

// row is one line of judge's decision table: a change to a passing run of
// server-crash, and the result of one check.
type row struct {
	name  string
	spoil func(e *Evidence)
	check string
	ok    bool
	say   string // part of the check's detail
}

// stay changes the Evidence to that of a fault that must not move the service,
// without fencing.
func stay(e *Evidence) {
	e.Subjects[0].Expect = Expect{Where: Stays, Fencing: NoServer}
	e.Subjects[0].Location = []string{"nfs1"}
	e.Events = nil
}

func fencedAt(node string, ns int64) report.Event {
	return report.Event{NS: ns, Host: "nfs2", Source: "pacemaker", Kind: report.EventFenced, Node: node, Text: "Peer " + node + " was terminated (reboot) by x on behalf of y: OK"}
}

func failsWith(e *Evidence, worker int, errno string) {
	l := &e.Loads[0].Result
	l.Workers[worker].Errors++
	l.Errors = append(l.Errors, workload.OpError{Worker: l.Workers[worker].Worker, Op: "write", Errno: errno, Error: "says " + errno})
}

// oldBytes changes how many bytes of a worker's file are from before the fault.
func oldBytes(e *Evidence, worker string, n int64) {
	r := e.PerClient["c1"]
	r.Files = []stream.FileReport{{Worker: worker, BeforeBytes: n}}
	e.PerClient = map[string]stream.Report{"c1": r}
}

var judgeTable = []row{
	{"all read back", func(*Evidence) {}, "nothing lost", true, "1.0 MiB of 1.0 MiB acknowledged were read back as written, 0 B lost"},
	{"lost", func(e *Evidence) { e.Verify.LostBytes = 4096; e.Verify.VerifiedBytes -= 4096 }, "nothing lost", false, "4.0 KiB lost"},
	{"wrong, never acknowledged", func(e *Evidence) { e.Verify.BadBytes = 4096 }, "nothing lost", false, "4.0 KiB never acknowledged but wrong"},
	{"less verified", func(e *Evidence) { e.Verify.VerifiedBytes = 1 }, "nothing lost", false, "1 B of 1.0 MiB"},
	{"nothing written", func(e *Evidence) { e.Verify = report.Verify{} }, "nothing lost", false, ""},
	{"old data read back", func(*Evidence) {}, "data from before the fault", true, "512.0 KiB of 512.0 KiB acknowledged before the fault"},
	{"no old data", func(e *Evidence) { e.Verify.AcknowledgedBeforeFaultBytes, e.Verify.VerifiedBeforeFaultBytes = 0, 0 }, "data from before the fault", false, "0 B of 0 B"},
	{"old data lost", func(e *Evidence) { e.Verify.VerifiedBeforeFaultBytes -= 4096 }, "data from before the fault", false, "508.0 KiB of 512.0 KiB"},
	{"no old data of a mount", func(e *Evidence) { oldBytes(e, "v3-c1-osync", 0) }, "data from before the fault", false, "c1 /mnt/home"},
	{"not read back", func(e *Evidence) { e.VerifyErr = errors.New("mount failed") }, "nothing lost", false, "mount failed"},
	{"a file not read", func(e *Evidence) { e.Verify.Errors = []string{"EIO", "ESTALE"} }, "nothing lost", false, "EIO; ESTALE"},

	{"all went on", func(*Evidence) {}, "every worker went on", true, "10.0 s"},
	{"stuck", func(e *Evidence) { e.Recovered = false; e.Loads[0].Result.Stuck = []string{"v3-c1-osync"} }, "every worker went on", false, "c1 v3-c1-osync"},
	{"an open stall", func(e *Evidence) { e.Recovered = false; e.Loads[0].Result.Stalls[1].Open = true }, "every worker went on", false, "c1 v3-c1-lock"},
	{"stuck after it had gone on", func(e *Evidence) { e.Loads[0].Result.Stuck = []string{"v3-c1-osync"} }, "every worker went on", false, "c1 v3-c1-osync"},
	{"went on once, then no more", func(e *Evidence) { e.Ebbed = "c1 v3-c1-lock does not go on" }, "every worker went on", false, "c1 v3-c1-lock"},
	{"nobody knows who", func(e *Evidence) { e.Recovered = false }, "every worker went on", false, ""},

	{"moved", func(*Evidence) {}, "service where it belongs", true, "it runs on nfs2"},
	{"must move, stayed", func(e *Evidence) { e.Subjects[0].Location = []string{"nfs1"} }, "service where it belongs", false, "nfs1"},
	{"must stay, stayed", stay, "service where it belongs", true, "it runs on nfs1"},
	{"must stay, moved", func(e *Evidence) { stay(e); e.Subjects[0].Location = []string{"nfs2"} }, "service where it belongs", false, "nfs2"},
	{"must stay, restarted", func(e *Evidence) {
		stay(e)
		e.Events = []report.Event{{NS: e.Fault + 3e9, Host: "nfs1", Source: "ocf", Kind: report.EventStopped, Text: "stop took 1.00 s"}}
	}, "service where it belongs", false, "3.00 s"},
	{"must stay, restarted before", func(e *Evidence) {
		stay(e)
		e.Events = []report.Event{{NS: e.Fault - 3e9, Host: "nfs1", Source: "ocf", Kind: report.EventStarted, Text: "start took 1.00 s"}}
	}, "service where it belongs", true, "it runs on nfs1"},
	{"must return, restarted", func(e *Evidence) {
		stay(e)
		e.Subjects[0].Expect.Where = Returns
		e.Events = []report.Event{{NS: e.Fault + 3e9, Host: "nfs1", Source: "ocf", Kind: report.EventStarted, Text: "start took 1.00 s"}}
	}, "service where it belongs", true, "it runs on nfs1"},
	{"may be anywhere", func(e *Evidence) { e.Subjects[0].Expect.Where = Anywhere; e.Subjects[0].Location = []string{"nfs1"} }, "service where it belongs", true, "it runs on nfs1"},
	{"may be anywhere, but not there", func(e *Evidence) { e.Subjects[0].Expect.Where = Anywhere; e.Subjects[0].Location = []string{"c1"} }, "service where it belongs", false, ""},
	{"runs twice", func(e *Evidence) { e.Subjects[0].Location = []string{"nfs1", "nfs2"} }, "service where it belongs", false, `"nfs1, nfs2"`},
	{"runs nowhere", func(e *Evidence) { e.Subjects[0].Location = nil }, "service where it belongs", false, ""},
	{"nobody can tell where", func(e *Evidence) { e.Subjects[0].LocationErr = errors.New("no answer") }, "service where it belongs", false, "no answer"},

	{"victim fenced first", func(*Evidence) {}, "fenced before taken over", true, "4.00 s"},
	{"victim not fenced", func(e *Evidence) { e.Events[1].Kind = report.EventFenceFail }, "fenced before taken over", false, "nfs1"},
	{"one of a like name fenced", func(e *Evidence) { e.Events[1].Node = "nfs11" }, "fenced before taken over", false, "nfs1"},
	{"fenced before the fault", func(e *Evidence) { e.Events[1].NS = e.Fault - 1 }, "fenced before taken over", false, "nfs1"},
	{"started too soon", func(e *Evidence) { e.Events[2].NS = e.Events[1].NS - 1e9 }, "fenced before taken over", false, "1.00 s"},
	{"started too soon, only its end is known", func(e *Evidence) {
		e.Events = slices.Delete(e.Events, 2, 4)
		e.Events[2].NS = e.Events[1].NS - 2e9
	}, "fenced before taken over", false, "2.00 s"},
	{"another resource started too soon", func(e *Evidence) { e.Events[3].NS = e.Events[1].NS - 1e9 }, "fenced before taken over", true, "4.00 s"},
	{"both fenced", func(e *Evidence) { e.Events = append(e.Events, fencedAt("nfs2", e.Fault+9e9)) }, "fenced before taken over", false, "nfs2"},
	{"may be fenced, was", func(e *Evidence) { e.Subjects[0].Expect.Fencing = Allow }, "fencing", true, "nfs1"},
	{"may be fenced, was not", func(e *Evidence) { e.Subjects[0].Expect.Fencing = Allow; e.Events = nil }, "fencing", true, ""},
	{"must not be fenced, was not", stay, "no server fenced", true, ""},
	{"must not be fenced, was", func(e *Evidence) { stay(e); e.Events = []report.Event{fencedAt("nfs2", e.Fault+1)} }, "no server fenced", false, "nfs2"},

	{"taken over without fencing", func(e *Evidence) { e.Subjects[0].Expect.Fencing = Allow; e.Events = slices.Delete(e.Events, 1, 2) }, "let go before taken over", false,
		"4.00 s"},
	{"stopped, then taken over", func(e *Evidence) {
		e.Subjects[0].Expect.Fencing = Allow
		e.Events[1] = report.Event{NS: e.Fault + 3e9, Host: "nfs1", Source: "ocf", Kind: report.EventStopped, Text: "stop took 1.00 s"}
	}, "let go before taken over", true, ""},
	{"booted, then taken over", func(e *Evidence) {
		e.Subjects[0].Expect.Fencing = Allow
		e.Events[1] = report.Event{NS: e.Fault + 3e9, Host: "nfs1", Source: "drill", Kind: report.EventBooted, Text: "nfs1 boots"}
	}, "let go before taken over", true, ""},
	{"unmounted, then taken over", func(e *Evidence) {
		e.Subjects[0].Expect.Fencing, e.Events = Allow, slices.Delete(e.Events, 1, 2)
		e.Subjects[0].Looks["nfs1"] = append(e.Subjects[0].Looks["nfs1"], Look{103e9, 103e9, false})
	}, "let go before taken over", true, ""},
	{"unmounted too late", func(e *Evidence) {
		e.Subjects[0].Expect.Fencing, e.Events = Allow, slices.Delete(e.Events, 1, 2)
		e.Subjects[0].Looks["nfs1"] = append(e.Subjects[0].Looks["nfs1"], Look{103e9, 105e9, false})
	}, "let go before taken over", false, "nfs1"},
	{"came back from a server that was only starting it", func(e *Evidence) {
		e.Subjects[0].Expect.Where, e.Subjects[0].Expect.Fencing = Anywhere, Allow
		e.Subjects[0].Looks["nfs2"] = []Look{{104e9 + 6, 104e9 + 7, false}, {106e9, 106e9, false}}
		e.Events = append(e.Events, report.Event{NS: e.Fault + 9e9, Host: "nfs1", Source: "pacemaker", Kind: report.EventStarting, Subject: "service-home", Node: "nfs1", Text: "Requesting local execution of start operation for service-home on nfs1"})
	}, "let go before taken over", false, "9.00 s"},

	{"held back", func(e *Evidence) { e.Confirmed = e.Fault + 1e9 }, "held back until confirmed", true, "1.00 s"},
	{"not held back", func(e *Evidence) { e.Confirmed = e.Fault + 6e9 }, "held back until confirmed", false, "nfs1"},

	{"mounted once", func(*Evidence) {}, "never mounted twice", true, "4"},
	{"mounted twice", func(e *Evidence) {
		e.Subjects[0].Looks["nfs1"] = append(e.Subjects[0].Looks["nfs1"], Look{106e9 - 1, 106e9, true}, Look{107e9, 107e9, true})
	}, "never mounted twice", false, "nfs1"},
	{"one was not looked at", func(e *Evidence) { delete(e.Subjects[0].Looks, "nfs1") }, "never mounted twice", false, "nfs1"},
	{"one was looked at only before the fault", func(e *Evidence) { e.Subjects[0].Looks["nfs1"] = e.Subjects[0].Looks["nfs1"][:1] }, "never mounted twice", false, "nfs1"},

	{"no call failed", func(*Evidence) {}, "no errors", true, ""},
	{"load died", func(e *Evidence) { e.LoadErrs = []string{"c1: session lost"} }, "no errors", false, "c1: session lost"},
	{"a worker gave up", func(e *Evidence) { e.Loads[0].Result.Workers[1].Failed = "lock: ENOLCK" }, "no errors", false, "v3-c1-lock"},
	{"a write failed", func(e *Evidence) { failsWith(e, 0, "ESTALE") }, "no errors", false, "ESTALE"},
	{"a write failed as it must", func(e *Evidence) { e.Subjects[0].Expect.Tolerate = []string{"ENOSPC"}; failsWith(e, 0, "ENOSPC") }, "no other errors", true, "ENOSPC"},
	{"one as it must, another not", func(e *Evidence) {
		e.Subjects[0].Expect.Tolerate = []string{"ENOSPC"}
		failsWith(e, 0, "ENOSPC")
		failsWith(e, 0, "EIO")
	}, "no errors", false, "EIO"},
	{"a write failed as it must, and a lock call", func(e *Evidence) {
		e.Subjects[0].Expect.Tolerate = []string{"ENOSPC"}
		failsWith(e, 1, "ENOLCK")
		failsWith(e, 0, "ENOSPC")
	}, "no other errors", true, "ENOSPC"},
	{"a lock call failed", func(e *Evidence) { failsWith(e, 1, "ENOLCK") }, "no errors", true, ""},

	{"locks kept", func(*Evidence) {}, "locks and reads right", true, ""},
	{"lock lost", func(e *Evidence) {
		failsWith(e, 1, "")
		e.Loads[0].Result.Workers[1].Violations, e.Loads[0].Result.Violations = 1, 1
	}, "locks and reads right", false, "v3-c1-lock"},
	{"no load", func(e *Evidence) { e.Loads = nil }, "locks and reads right", false, ""},
	{"nobody tried a held lock", func(e *Evidence) { w := e.Loads[0].Result.Workers; e.Loads[0].Result.Workers = w[:len(w)-1] }, "locks and reads right", false, ""},

	{"healed", func(*Evidence) {}, Health, true, ""},
	{"not healed", func(e *Evidence) { e.HealthErr = errors.New("nfs1 is offline") }, Health, false, "nfs1 is offline"},

	{"a condition was met", func(e *Evidence) { e.Conditions = []report.Check{{Name: "status says so", OK: true, Detail: "a line"}} }, "status says so", true, "a line"},
	{"a condition was not met", func(e *Evidence) { e.Conditions = []report.Check{{Name: "status says so", Detail: "no line"}} }, "status says so", false, "no line"},
}

// Each row changes one check, and no other fails.
func TestJudge(t *testing.T) {
	for _, r := range judgeTable {
		e := evidenceOf()
		r.spoil(e)
		checks := Judge(e)
		i := slices.IndexFunc(checks, func(c report.Check) bool { return c.Name == r.check })
		if i < 0 || checks[i].OK != r.ok || !strings.Contains(checks[i].Detail, r.say) {
			t.Errorf("%s: want %q %v %q in %+v", r.name, r.check, r.ok, r.say, checks)
			continue
		}
		var want []string
		if !r.ok {
			want = []string{r.check}
		}
		if got := failed(checks); !slices.Equal(got, want) {
			t.Errorf("%s: failed checks %q, want %q", r.name, got, want)
		}
	}
}

func TestJournalEvent(t *testing.T) {
	line := `{"__REALTIME_TIMESTAMP":"1795000000123456","_SOURCE_REALTIME_TIMESTAMP":"1795000000120000","SYSLOG_IDENTIFIER":"pacemaker-controld","MESSAGE":" notice: Peer nfs1 was terminated (reboot) by nfs2 on behalf of pacemaker-controld.812@nfs2: OK"}`
	e, ok := JournalEvent([]byte(line), "nfs2")
	if !ok || e.Kind != report.EventFenced || e.Source != "pacemaker" || e.Host != "nfs2" || e.Node != "nfs1" {
		t.Errorf("event %+v %v", e, ok)
	}
	// A failed start of a fence device is no failed start of a service.
	for res, kind := range map[string]string{"service-home": report.EventStartFail, "fence-pdu-a": report.EventNote} {
		line := `{"__REALTIME_TIMESTAMP":"1795000000123456","SYSLOG_IDENTIFIER":"pacemaker-controld","MESSAGE":" notice: Result of start operation for ` + res + ` on nfs2: Error occurred"}`
		if e, ok := JournalEvent([]byte(line), "nfs2"); !ok || e.Kind != kind || !About(e, res) || About(e, "service") {
			t.Errorf("%s: %+v %v", res, e, ok)
		}
	}
	line = `{"__REALTIME_TIMESTAMP":"1795000000123456","SYSLOG_IDENTIFIER":"mortar-watch","MESSAGE":"[put-back-address] service home: service address 10.0.0.9/24 was gone: put back"}`
	if e, ok := JournalEvent([]byte(line), "nfs1"); !ok || e.Code != unit.PutBack(unit.TheAddress) {
		t.Errorf("event %+v %v", e, ok)
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
		e, ok := AgentEvent([]byte(c.line), "nfs2")
		if !ok || e.Kind != c.kind || e.Text != c.text || e.NS != c.ns {
			t.Errorf("%s: %+v %v", c.line, e, ok)
		}
	}
	for _, l := range []string{"", "tail: no such file", `{"t_ns":1,"action":"monitor","step":"monitor"}`} {
		if e, ok := AgentEvent([]byte(l), "nfs2"); ok {
			t.Errorf("%q gives %+v", l, e)
		}
	}
}

func TestDoubleMount(t *testing.T) {
	on := func(at ...int64) (ls []Look) {
		for _, a := range at {
			ls = append(ls, Look{a, a, true})
		}
		return ls
	}
	off := func(at ...int64) (ls []Look) {
		for _, a := range at {
			ls = append(ls, Look{a, a, false})
		}
		return ls
	}
	for name, c := range map[string]struct {
		looks  map[string][]Look
		fenced map[string]int64
		bad    bool
	}{
		"moves":             {map[string][]Look{"a": append(on(1, 2), off(4)...), "b": append(off(1, 2), on(5, 6)...)}, nil, false},
		"both":              {map[string][]Look{"a": on(1, 2, 3, 4), "b": append(off(1), on(3, 5)...)}, nil, true},
		"fenced, rebooted":  {map[string][]Look{"a": append(on(1, 2), off(9, 10)...), "b": append(off(1, 2), on(5, 9)...)}, map[string]int64{"a": 4}, false},
		"back after fence":  {map[string][]Look{"a": on(1, 2, 12), "b": append(on(5, 6), off(10)...)}, map[string]int64{"a": 4}, false},
		"back while served": {map[string][]Look{"a": on(1, 2, 12, 13), "b": on(5, 6, 12, 14)}, map[string]int64{"a": 4}, true},
		"nobody":            {map[string][]Look{"a": off(1), "b": nil}, nil, false},
	} {
		if got := doubleMount(c.looks, c.fenced); (got != "") != c.bad {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// evidenceOf is the Evidence of a drill that passes.
func evidenceOf() *Evidence {
	const s = int64(1e9)
	fault := 100 * s
	ok := stream.Report{Totals: stream.Totals{AcknowledgedBytes: 1 << 20, VerifiedBytes: 1 << 20, AcknowledgedBeforeFaultBytes: 1 << 19, VerifiedBeforeFaultBytes: 1 << 19}, ByClass: map[stream.Class]int64{stream.OK: 1 << 20}}
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
	return &Evidence{
		Fault: fault, Subjects: []*Subject{{Service: "home", Resource: "service-home", Nodes: []string{"nfs1", "nfs2"}, Active: "nfs1", Passive: "nfs2", Location: []string{"nfs2"},
			Expect: Expect{Where: Moves, Fencing: Victim, Stall: 10},
			Looks:  map[string][]Look{"nfs1": {{99 * s, 99 * s, true}, {150 * s, 150 * s, false}}, "nfs2": {{99 * s, 99 * s, false}, {106 * s, 106 * s, true}}}}},
		Events: []report.Event{
			{NS: 101 * s, Host: "nfs2", Source: "corosync", Kind: report.EventDetected, Text: "[TOTEM ] A processor failed, forming new configuration"},
			{NS: 104 * s, Host: "nfs2", Source: "pacemaker", Kind: report.EventFenced, Node: "nfs1", Text: "Peer nfs1 was terminated (reboot) by nfs2 on behalf of x: OK"},
			{NS: 104*s + 5, Host: "nfs2", Source: "pacemaker", Kind: report.EventStarting, Subject: "service-home", Node: "nfs2", Text: "Initiating start operation service-home_start_0 locally on nfs2"},
			{NS: 106 * s, Host: "nfs2", Source: "pacemaker", Kind: report.EventStarted, Subject: "fence-nfs1-bmc", Node: "nfs2", Text: "Result of start operation for fence-nfs1-bmc on nfs2: ok"},
			{NS: 107 * s, Host: "nfs2", Source: "ocf", Kind: report.EventStarted, Text: "start took 2.90 s"},
		},
		Loads: []Load{{Client: "c1", Offset: 7, Mounts: map[string]design.ClientMount{"v3-c1-lock": {Service: "home", Version: "3"}, "v4.1-c1-lock": {Service: "home", Version: "4.1"}, "v3-c1-tried": {Service: "home", Version: "3"}, "lustre-c1-names": {Service: "home", Version: "3"}, "v3-c1-osync": {Service: "home", Version: "3", Path: "/mnt/home"}}, Result: workload.Result{RunID: "r", Workers: []workload.WorkerResult{worker("v3-c1-osync", "writer"), lock, local, tried},
			Stalls: []workload.Stall{{Worker: "v3-c1-osync", StartNs: 100*s + 7, Seconds: 8}, {Worker: "v3-c1-lock", StartNs: 100*s + 7, Seconds: 9}, {Worker: "v3-c1-osync", StartNs: 91 * s, Seconds: 2}}}}},
		Recovered: true, Waited: 10,
		Verify: VerifyReport(map[string]stream.Report{"c1": ok}), PerClient: map[string]stream.Report{"c1": ok},
	}
}

// Locks have a target where the drill gives one, from the start of the service on.
func TestLocksTarget(t *testing.T) {
	for late, met := range map[float64]bool{0: true, 14: false} {
		e := evidenceOf()
		for i := range e.Loads[0].Result.Workers {
			w := &e.Loads[0].Result.Workers[i]
			for k := range w.Completions {
				if w.Kind != "writer" {
					w.Completions[k].DoneNs += int64(late * 1e9)
				}
			}
			w.Timeline.Ops = nil
		}
		s := Run(e, Targets{Locks: new(15.0)}, false).Summary
		if *s.LocksTargetMet != met || *s.LocksBackSeconds != 2+late || *s.LocksTargetSeconds != 15 {
			t.Errorf("%v s late: %v, %v s", late, *s.LocksTargetMet, *s.LocksBackSeconds)
		}
	}
	if s := Run(evidenceOf(), Targets{}, false).Summary; s.LocksBackSeconds != nil || s.StallTargetMet != nil {
		t.Errorf("without targets: %+v", s)
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
	if io["c1"] != e.Fault+8e9 {
		t.Errorf("first I/O of c1: %d", io["c1"]-e.Fault)
	}
	if s := e.Loads[0].LongestStall(e.Fault, true); s != 8 {
		t.Errorf("longest stall %g", s)
	}
	if s := e.Loads[0].LongestStall(e.Fault, false); s != 9 {
		t.Errorf("longest lock stall %g", s)
	}
	e.Events = nil
	if got, _ := marks(e); got != (report.Marks{}) {
		t.Errorf("without events: %+v", got)
	}
	// A service that stays has no first I/O after the fault, and the log of its
	// own server counts.
	e = evidenceOf()
	stay(e)
	e.Events = []report.Event{{NS: e.Fault + 1e9, Host: "nfs1", Kind: report.EventMembership}, {NS: e.Fault + 5e8, Host: "nfs2", Kind: report.EventDetected}}
	if got, io := marks(e); cmp.Diff(report.Marks{Detected: f(1)}, got) != "" || io != nil {
		t.Errorf("it stays: %+v %v", got, io)
	}
	e.Events = append(e.Events, report.Event{NS: e.Fault + 8e8, Kind: report.EventMended})
	if got, _ := marks(e); got.Detected != nil {
		t.Errorf("a heartbeat lost after the mending: detected after %g s", *got.Detected)
	}
}

// An MDS crashes: a writer of Lustre goes on, and the worker on names stalls. The
// end of that stall is the first I/O.
func TestStallOfNames(t *testing.T) {
	const s = int64(1e9)
	e := evidenceOf()
	l := &e.Loads[0]
	writer := &l.Result.Workers[0]
	names := *writer
	writer.Completions, writer.Timeline.Ops = nil, slices.Repeat([]int64{1}, 300)
	names.Worker, names.Kind = "lustre-c1-names", "names"
	l.Result.Workers = append(l.Result.Workers, names)
	l.Result.Stalls = []workload.Stall{{Worker: names.Worker, StartNs: 100*s + 7, Seconds: 8}}
	got, io := marks(e)
	if got.FirstIO == nil || *got.FirstIO != 8 || io["c1"] != e.Fault+8*s {
		t.Errorf("%+v %v", got, io)
	}
	if d := l.LongestStall(e.Fault, true); d != 8 {
		t.Errorf("longest stall %g", d)
	}
	l.Result.Stalls = nil
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
	tl := timeline([]Load{
		{Client: "a", Offset: 0, Result: workload.Result{Workers: []workload.WorkerResult{w(10*s, 1, 2, 3)}}, Mounts: map[string]design.ClientMount{"w": {Version: "3"}}},
		{Client: "b", Offset: 5 * s, Result: workload.Result{Workers: []workload.WorkerResult{w(15*s+s/5, 4, 5)}}},
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

// Another service of the pair is judged by the same rules, by what its server does.
func TestOtherService(t *testing.T) {
	const s = int64(1e9)
	const place, twice = "service where it belongs (scratch)", "never mounted twice (scratch)"
	for name, c := range map[string]struct {
		together bool
		spoil    func(e *Evidence, o *Subject)
		failed   []string
	}{
		"on the partner": {false, func(*Evidence, *Subject) {}, nil},
		"moved away":     {false, func(_ *Evidence, o *Subject) { o.Location = []string{"nfs1"} }, []string{place}},
		"gone":           {false, func(_ *Evidence, o *Subject) { o.Location = nil }, []string{place}},
		"beside the other": {true, func(_ *Evidence, o *Subject) {
			o.Active, o.Passive = "nfs1", "nfs2"
			o.Looks = map[string][]Look{"nfs1": {{99 * s, 99 * s, true}, {110 * s, 110 * s, false}}, "nfs2": {{106 * s, 106 * s, true}}}
		}, nil},
		"beside it, and left behind": {true, func(_ *Evidence, o *Subject) {
			o.Active, o.Passive, o.Location = "nfs1", "nfs2", []string{"nfs1"}
		}, []string{place}},
		"beside it, and only that one was told to move": {false, func(_ *Evidence, o *Subject) {
			o.Active, o.Passive, o.Location = "nfs1", "nfs2", []string{"nfs1"}
		}, nil},
		"restarted, though it had to stay": {false, func(e *Evidence, o *Subject) {
			stay(e)
			o.Expect = e.Subjects[0].Expect.Beside(false)
			e.Events = []report.Event{{NS: 103 * s, Host: "nfs2", Source: "pacemaker", Kind: report.EventStopped, Subject: "service-scratch", Node: "nfs2", Text: "Result of stop operation for service-scratch on nfs2: OK"}}
		}, []string{place}},
		"mounted twice": {false, func(_ *Evidence, o *Subject) {
			o.Looks["nfs1"] = []Look{{99 * s, 99 * s, true}, {103 * s, 103 * s, true}, {110 * s, 110 * s, true}}
		}, []string{twice}},
		"blind": {false, func(_ *Evidence, o *Subject) { o.Looks = nil }, []string{twice}},
	} {
		e := evidenceOf()
		o := &Subject{Service: "scratch", Resource: "service-scratch", Nodes: e.Subjects[0].Nodes, Active: "nfs2", Passive: "nfs1", Location: []string{"nfs2"}, Expect: e.Subjects[0].Expect.Beside(c.together),
			Looks: map[string][]Look{"nfs1": {{99 * s, 99 * s, false}, {107 * s, 107 * s, false}}, "nfs2": {{99 * s, 99 * s, true}, {106 * s, 106 * s, true}}}}
		e.Subjects = append(e.Subjects, o)
		c.spoil(e, o)
		if got := failed(Judge(e)); !slices.Equal(got, c.failed) {
			t.Errorf("%s: failed %q, want %q", name, got, c.failed)
		}
	}
}

// Only the stalls of the service under test count as stalls of the drill.
func TestLoadOfOneService(t *testing.T) {
	l := Load{Client: "c1", Mounts: map[string]design.ClientMount{"a": {Service: "home"}, "b": {Service: "scratch"}},
		Result: workload.Result{
			Workers: []workload.WorkerResult{{Worker: "a", Kind: "writer"}, {Worker: "b", Kind: "writer"}},
			Stalls:  []workload.Stall{{Worker: "a", StartNs: 10, Seconds: 7}, {Worker: "b", StartNs: 10, Seconds: 2}},
		}}
	for service, want := range map[string]float64{"home": 7, "scratch": 2, "": 7} {
		ls := Of([]Load{l}, service)
		if len(ls) != 1 || ls[0].LongestStall(0, true) != want {
			t.Errorf("%q: %+v", service, ls)
		}
	}
	if ls := Of([]Load{l}, "none"); ls != nil {
		t.Errorf("%+v", ls)
	}
	if len(l.Result.Workers) != 2 {
		t.Error("the results themselves were changed")
	}
}

// A pair that the drill is not about must not notice it, but for a fault of the whole
// rack.
func TestBystander(t *testing.T) {
	for _, c := range []struct {
		name   string
		expect Expect
		whole  bool
		want   Expect
	}{
		{"a crash", Expect{Where: Moves, Fencing: Victim, Stall: 10, Disks: true}, false, Expect{Where: Stays, Fencing: NoServer}},
		{"the rack's power", Expect{Where: Anywhere, Fencing: Allow}, true, Expect{Where: Anywhere, Fencing: Allow}},
		{"one feed", Expect{Where: Stays, Fencing: NoServer}, true, Expect{Where: Stays, Fencing: NoServer}},
		{"a crash and a feed", Expect{Where: Moves, Fencing: Victim}, true, Expect{Where: Anywhere, Fencing: Allow}},
	} {
		if got := c.expect.Apart(c.whole); !cmp.Equal(got, c.want) {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
	// The verdict has one check of the pair, and keeps its events out of the other's.
	for _, fenced := range []bool{false, true} {
		e := evidenceOf()
		looks := e.Subjects[0].Looks
		e.Subjects = append(e.Subjects, &Subject{Service: "ost0", Resource: "service-ost0", Nodes: []string{"oss01", "oss02"}, Active: "oss01", Passive: "oss02", Location: []string{"oss01"}, Apart: true,
			Expect: Expect{Where: Stays, Fencing: NoServer}, Looks: map[string][]Look{"oss01": looks["nfs2"], "oss02": looks["nfs1"][1:]}})
		if fenced {
			e.Events = append(e.Events, report.Event{NS: e.Fault + 1, Host: "oss02", Source: "pacemaker", Kind: report.EventFenced, Node: "oss01", Text: "Peer oss01 was terminated (reboot) by oss02 on behalf of x: OK"})
		}
		checks := Judge(e)
		i := slices.IndexFunc(checks, func(c report.Check) bool { return c.Name == "servers oss01, oss02" })
		if i < 0 || checks[i].OK == fenced || len(failed(checks)) > 1 {
			t.Errorf("fenced %v: %+v", fenced, checks)
		}
	}
}

// withSecond adds the take-over of an OSS, 15 s after the first fault.
func withSecond() (e *Evidence, second *Subject) {
	e = evidenceOf()
	const s = int64(1e9)
	at := e.Fault + 15*s
	second = &Subject{Expect: e.Subjects[0].Expect, Fault: at, Active: "oss1", Passive: "oss2", Resource: "service-ost0000", Nodes: []string{"oss1", "oss2"}, Service: "ost0000",
		Location: []string{"oss2"}, Looks: map[string][]Look{"oss1": {{at, at, true}, {at + 40*s, at + 40*s, false}}, "oss2": {{at, at, false}, {at + 30*s, at + 30*s, true}}}}
	e.Subjects = append(e.Subjects, second)
	e.Events = append(e.Events,
		report.Event{NS: at + 6*s, Host: "oss2", Source: "pacemaker", Kind: report.EventFenced, Node: "oss1", Text: "Peer oss1 was terminated (reboot) by oss2 on behalf of x: OK"},
		report.Event{NS: at + 7*s, Host: "oss2", Source: "ocf", Kind: report.EventStarting, Text: "start begins"},
		report.Event{NS: at + 30*s, Host: "oss2", Source: "ocf", Kind: report.EventStarted, Text: "start took 23 s"})
	return e, second
}

// The verdict covers both services, each with its own pair's events only.
func TestJudgeSecond(t *testing.T) {
	for name, c := range map[string]struct {
		spoil  func(e *Evidence, second *Subject)
		failed []string
	}{
		"both took over":       {func(*Evidence, *Subject) {}, nil},
		"the second stayed":    {func(_ *Evidence, x *Subject) { x.Location = []string{"oss1"} }, []string{"service where it belongs (ost0000)"}},
		"the first stayed":     {func(e *Evidence, _ *Subject) { e.Subjects[0].Location = []string{"nfs1"} }, []string{"service where it belongs"}},
		"the second unfenced":  {func(e *Evidence, _ *Subject) { e.Events = slices.Delete(e.Events, len(e.Events)-3, len(e.Events)-2) }, []string{"fenced before taken over (ost0000)"}},
		"the second too early": {func(e *Evidence, x *Subject) { e.Events[len(e.Events)-2].NS = x.Fault + 1 }, []string{"fenced before taken over (ost0000)"}},
		// A start on the other pair is none of the first service.
		"an early start there": {func(e *Evidence, _ *Subject) {
			e.Events = append(e.Events, report.Event{NS: e.Fault + 1, Host: "oss2", Source: "ocf", Kind: report.EventStarting})
		}, nil},
		"the second twice": {func(_ *Evidence, x *Subject) {
			x.Looks["oss1"] = append(x.Looks["oss1"][:1], Look{x.Fault + 29e9, x.Fault + 29e9, true}, Look{x.Fault + 31e9, x.Fault + 31e9, true})
		}, []string{"never mounted twice (ost0000)"}},
	} {
		e, second := withSecond()
		c.spoil(e, second)
		if got := failed(Judge(e)); !slices.Equal(got, c.failed) {
			t.Errorf("%s: failed checks %q, want %q", name, got, c.failed)
		}
	}
}

// Another client gets the lock after the MDS has evicted the dead one.
func TestJudgeTaken(t *testing.T) {
	const s = int64(1e9)
	const eviction = "LustreError: 0:0:(ldlm_lockd.c:252:expired_lock_main()) ### lock callback timer expired after 100s: evicting client at 10.0.0.1@tcp ns: mdt-small-MDT0000_UUID"
	for name, c := range map[string]struct {
		took   int64 // after the fault; 0: never
		spoil  func(e *Evidence)
		failed bool
	}{
		"after the eviction":  {115 * s, func(*Evidence) {}, false},
		"never":               {0, func(*Evidence) {}, true},
		"from a living one":   {-s, func(*Evidence) {}, true},
		"before the eviction": {60 * s, func(*Evidence) {}, true},
		"nobody evicted":      {115 * s, func(e *Evidence) { e.Events = nil }, true},
		"another one evicted": {115 * s, func(e *Evidence) { e.DeadAddress = "10.0.0.2" }, true},
		"evicted by an OST": {115 * s, func(e *Evidence) {
			e.Events[0].Text = strings.Replace(eviction, "mdt-small-MDT0000", "filter-small-OST0000", 1)
		}, true},
		"NFS":          {40 * s, func(e *Evidence) { e.Evicts, e.Events = false, nil }, false},
		"nobody tried": {40 * s, func(e *Evidence) { e.Loads = nil }, true},
	} {
		w := workload.WorkerResult{Worker: "lustre-c1-tried", Kind: lockTake, Completions: []workload.Completion{{Op: "ask", DoneNs: 99*s + 7}}}
		if c.took != 0 {
			w.Completions = append(w.Completions, workload.Completion{Op: workload.OpTook, DoneNs: 100*s + c.took + 7})
		}
		e := &Evidence{Fault: 100 * s, Dead: "c1", DeadAddress: "10.0.0.1", Evicts: true,
			Events: []report.Event{{NS: 210 * s, Host: "mds1", Source: "kernel", Kind: report.EventFS, Text: eviction}},
			Loads:  []Load{{Client: "c2", Offset: 7, Result: workload.Result{Workers: []workload.WorkerResult{w}}}}}
		c.spoil(e)
		var checks checks
		e.taken(&checks)
		if len(checks) != 1 || checks[0].OK == c.failed {
			t.Errorf("%s: %+v", name, checks)
		}
	}
}

package drill

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/prove/report"
	"github.com/mortarhpc/mortar/internal/prove/stream"
	"github.com/mortarhpc/mortar/internal/prove/workload"
)

// row is one line of judge's decision table: a change to a passing run of
// server-crash, and the result of one check.
type row struct {
	name  string
	spoil func(e *evidence)
	check string
	ok    bool
	say   string // part of the check's detail
}

// stays changes the evidence to that of a fault that must not move the service,
// without fencing.
func stays(e *evidence) {
	e.expect = Expect{Where: Stays, Fencing: Nobody}
	e.location, e.moved = []string{"nfs1"}, false
	e.events = nil
}

func fencedAt(node string, ns int64) report.Event {
	return report.Event{NS: ns, Host: "nfs2", Source: "pacemaker", Kind: report.EventFenced, Text: "Peer " + node + " was terminated (reboot) by x on behalf of y: OK"}
}

func failsWith(e *evidence, worker int, errno string) {
	l := &e.loads[0].result
	l.Workers[worker].Errors++
	l.Errors = append(l.Errors, workload.OpError{Worker: l.Workers[worker].Worker, Op: "write", Errno: errno, Error: "says " + errno})
}

// oldBytes changes how many bytes of a worker's file are from before the fault.
func oldBytes(e *evidence, worker string, n int64) {
	r := e.perClient["c1"]
	r.Files = []stream.FileReport{{Worker: worker, BeforeBytes: n}}
	e.perClient = map[string]stream.Report{"c1": r}
}

var judgeTable = []row{
	{"all read back", func(*evidence) {}, "nothing lost", true, "1.0 MiB of 1.0 MiB acknowledged were read back as written, 0 B lost"},
	{"lost", func(e *evidence) { e.verify.LostBytes = 4096; e.verify.VerifiedBytes -= 4096 }, "nothing lost", false, "4.0 KiB lost"},
	{"wrong, never acknowledged", func(e *evidence) { e.verify.BadBytes = 4096 }, "nothing lost", false, "4.0 KiB never acknowledged but wrong"},
	{"less verified", func(e *evidence) { e.verify.VerifiedBytes = 1 }, "nothing lost", false, "1 B of 1.0 MiB"},
	{"nothing written", func(e *evidence) { e.verify = report.Verify{} }, "nothing lost", false, "nothing was proven"},
	{"old data read back", func(*evidence) {}, "data from before the fault", true, "512.0 KiB of 512.0 KiB acknowledged before the fault"},
	{"no old data", func(e *evidence) { e.verify.AcknowledgedBeforeFaultBytes, e.verify.VerifiedBeforeFaultBytes = 0, 0 }, "data from before the fault", false, "0 B of 0 B"},
	{"old data lost", func(e *evidence) { e.verify.VerifiedBeforeFaultBytes -= 4096 }, "data from before the fault", false, "508.0 KiB of 512.0 KiB"},
	{"no old data of a mount", func(e *evidence) { oldBytes(e, "v3-c1-osync", 0) }, "data from before the fault", false, "nothing of c1 /mnt/home"},
	{"not read back", func(e *evidence) { e.verifyErr = errors.New("mount failed") }, "nothing lost", false, "could not be read back: mount failed"},
	{"a file not read", func(e *evidence) { e.verify.Errors = []string{"EIO", "ESTALE"} }, "nothing lost", false, "EIO; ESTALE"},

	{"all went on", func(*evidence) {}, "every worker went on", true, "all 4 did, at the latest 10.0 s after the fault"},
	{"stuck", func(e *evidence) { e.recovered = false; e.loads[0].result.Stuck = []string{"v3-c1-osync"} }, "every worker went on", false, "c1 v3-c1-osync hangs"},
	{"an open stall", func(e *evidence) { e.recovered = false; e.loads[0].result.Stalls[1].Open = true }, "every worker went on", false, "c1 v3-c1-lock had not gone on"},
	{"stuck after it had gone on", func(e *evidence) { e.loads[0].result.Stuck = []string{"v3-c1-osync"} }, "every worker went on", false, "but then c1 v3-c1-osync hangs"},
	{"went on once, then no more", func(e *evidence) { e.ebbed = "c1 v3-c1-lock does not go on" }, "every worker went on", false, "but then not: c1 v3-c1-lock does not go on"},
	{"nobody knows who", func(e *evidence) { e.recovered = false }, "every worker went on", false, "their state was not known"},

	{"moved", func(*evidence) {}, "service where it belongs", true, "it runs on nfs2"},
	{"must move, stayed", func(e *evidence) { e.location = []string{"nfs1"} }, "service where it belongs", false, `it runs on "nfs1", not on nfs2`},
	{"must stay, stayed", stays, "service where it belongs", true, "it runs on nfs1"},
	{"must stay, moved", func(e *evidence) { stays(e); e.location = []string{"nfs2"} }, "service where it belongs", false, `it runs on "nfs2", not on nfs1`},
	{"must stay, restarted", func(e *evidence) {
		stays(e)
		e.events = []report.Event{{NS: e.fault + 3e9, Host: "nfs1", Source: "ocf", Kind: report.EventStopped, Text: "stop took 1.00 s"}}
	}, "service where it belongs", false, "it runs on nfs1, but was stopped or started meanwhile: 3.00 s after the fault, on nfs1: stop took 1.00 s"},
	{"must stay, restarted before", func(e *evidence) {
		stays(e)
		e.events = []report.Event{{NS: e.fault - 3e9, Host: "nfs1", Source: "ocf", Kind: report.EventStarted, Text: "start took 1.00 s"}}
	}, "service where it belongs", true, "it runs on nfs1"},
	{"must return, restarted", func(e *evidence) {
		stays(e)
		e.expect.Where = Returns
		e.events = []report.Event{{NS: e.fault + 3e9, Host: "nfs1", Source: "ocf", Kind: report.EventStarted, Text: "start took 1.00 s"}}
	}, "service where it belongs", true, "it runs on nfs1"},
	{"may be anywhere", func(e *evidence) { e.expect.Where = Anywhere; e.location = []string{"nfs1"} }, "service where it belongs", true, "it runs on nfs1"},
	{"may be anywhere, but not there", func(e *evidence) { e.expect.Where = Anywhere; e.location = []string{"c1"} }, "service where it belongs", false, "not on nfs1 or nfs2"},
	{"runs twice", func(e *evidence) { e.location = []string{"nfs1", "nfs2"} }, "service where it belongs", false, `"nfs1, nfs2"`},
	{"runs nowhere", func(e *evidence) { e.location = nil }, "service where it belongs", false, `it runs on ""`},
	{"nobody can tell where", func(e *evidence) { e.locationErr = errors.New("no answer") }, "service where it belongs", false, "no answer"},

	{"victim fenced first", func(*evidence) {}, "fenced before taken over", true, "confirmed 4.00 s after the fault"},
	{"victim not fenced", func(e *evidence) { e.events[1].Kind = report.EventFenceFail }, "fenced before taken over", false, "no fencing of nfs1 was confirmed"},
	{"one of a like name fenced", func(e *evidence) { e.events[1].Text = strings.ReplaceAll(e.events[1].Text, "nfs1", "nfs11") }, "fenced before taken over", false, "no fencing of nfs1"},
	{"fenced before the fault", func(e *evidence) { e.events[1].NS = e.fault - 1 }, "fenced before taken over", false, "no fencing of nfs1"},
	{"started too soon", func(e *evidence) { e.events[2].NS = e.events[1].NS - 1e9 }, "fenced before taken over", false, "the start on nfs2 began 1.00 s before"},
	{"started too soon, only its end is known", func(e *evidence) {
		e.events = slices.Delete(e.events, 2, 4)
		e.events[2].NS = e.events[1].NS - 2e9
	}, "fenced before taken over", false, "the start on nfs2 began 2.00 s before"},
	{"another resource started too soon", func(e *evidence) { e.events[3].NS = e.events[1].NS - 1e9 }, "fenced before taken over", true, "confirmed 4.00 s"},
	{"both fenced", func(e *evidence) { e.events = append(e.events, fencedAt("nfs2", e.fault+9e9)) }, "fenced before taken over", false, "nfs1 and nfs2 were fenced, not nfs1 alone"},
	{"may be fenced, was", func(e *evidence) { e.expect.Fencing = Allow }, "fencing", true, "nfs1 was fenced, which this fault allows"},
	{"may be fenced, was not", func(e *evidence) { e.expect.Fencing = Allow; e.events = nil }, "fencing", true, "no server was fenced"},
	{"must not be fenced, was not", stays, "nobody fenced", true, "no server was fenced"},
	{"must not be fenced, was", func(e *evidence) { stays(e); e.events = []report.Event{fencedAt("nfs2", e.fault+1)} }, "nobody fenced", false, "nfs2 was fenced, which this fault does not call for"},

	{"taken over without fencing", func(e *evidence) { e.expect.Fencing = Allow; e.events = slices.Delete(e.events, 1, 2) }, "let go before taken over", false,
		"it was started on nfs2 4.00 s after the fault, when nfs1 had neither stopped it, nor been fenced, nor booted"},
	{"stopped, then taken over", func(e *evidence) {
		e.expect.Fencing = Allow
		e.events[1] = report.Event{NS: e.fault + 3e9, Host: "nfs1", Source: "ocf", Kind: report.EventStopped, Text: "stop took 1.00 s"}
	}, "let go before taken over", true, "no server started"},
	{"booted, then taken over", func(e *evidence) {
		e.expect.Fencing = Allow
		e.events[1] = report.Event{NS: e.fault + 3e9, Host: "nfs1", Source: "drill", Kind: report.EventBooted, Text: "nfs1 boots"}
	}, "let go before taken over", true, "no server started"},
	{"unmounted, then taken over", func(e *evidence) {
		e.expect.Fencing, e.events = Allow, slices.Delete(e.events, 1, 2)
		e.looks["nfs1"] = append(e.looks["nfs1"], look{103e9, 103e9, false})
	}, "let go before taken over", true, "no server started"},
	{"unmounted too late", func(e *evidence) {
		e.expect.Fencing, e.events = Allow, slices.Delete(e.events, 1, 2)
		e.looks["nfs1"] = append(e.looks["nfs1"], look{103e9, 105e9, false})
	}, "let go before taken over", false, "when nfs1 had neither"},
	{"came back from a server that was only starting it", func(e *evidence) {
		e.expect.Where, e.expect.Fencing = Anywhere, Allow
		e.looks["nfs2"] = []look{{104e9 + 6, 104e9 + 7, false}, {106e9, 106e9, false}}
		e.events = append(e.events, report.Event{NS: e.fault + 9e9, Host: "nfs1", Source: "pacemaker", Kind: report.EventStarting, Text: "Requesting local execution of start operation for service-home on nfs1"})
	}, "let go before taken over", false, "it was started on nfs1 9.00 s after the fault, when nfs2 had neither"},

	{"held back", func(e *evidence) { e.confirmed = e.fault + 1e9 }, "held back until confirmed", true, "for 1.00 s"},
	{"not held back", func(e *evidence) { e.confirmed = e.fault + 6e9 }, "held back until confirmed", false, "before anybody had confirmed that nfs1 is off"},

	{"mounted once", func(*evidence) {}, "never mounted twice", true, "4 looks"},
	{"mounted twice", func(e *evidence) {
		e.looks["nfs1"] = append(e.looks["nfs1"], look{106e9 - 1, 106e9, true}, look{107e9, 107e9, true})
	}, "never mounted twice", false, "nfs1"},
	{"one was not looked at", func(e *evidence) { delete(e.looks, "nfs1") }, "never mounted twice", false, "the mounts of nfs1 could not be read"},
	{"one was looked at only before the fault", func(e *evidence) { e.looks["nfs1"] = e.looks["nfs1"][:1] }, "never mounted twice", false, "the mounts of nfs1 could not be read after the fault"},

	{"no call failed", func(*evidence) {}, "no errors", true, "no call of any client failed"},
	{"load died", func(e *evidence) { e.loadErr = []string{"c1: session lost"} }, "no errors", false, "c1: session lost"},
	{"a worker gave up", func(e *evidence) { e.loads[0].result.Workers[1].Failed = "lock: ENOLCK" }, "no errors", false, "v3-c1-lock on c1: lock: ENOLCK"},
	{"a write failed", func(e *evidence) { failsWith(e, 0, "ESTALE") }, "no errors", false, "clients saw 1 failed calls, first: v3-c1-osync on c1, write: says ESTALE"},
	{"a write failed as it must", func(e *evidence) { e.expect.Tolerate = []string{"ENOSPC"}; failsWith(e, 0, "ENOSPC") }, "no other errors", true, "1 calls failed with ENOSPC, as they must"},
	{"one as it must, another not", func(e *evidence) {
		e.expect.Tolerate = []string{"ENOSPC"}
		failsWith(e, 0, "ENOSPC")
		failsWith(e, 0, "EIO")
	}, "no errors", false, "says EIO"},
	{"a write failed as it must, and a lock call", func(e *evidence) {
		e.expect.Tolerate = []string{"ENOSPC"}
		failsWith(e, 1, "ENOLCK")
		failsWith(e, 0, "ENOSPC")
	}, "no other errors", true, "1 calls failed with ENOSPC, as they must"},
	{"a lock call failed", func(e *evidence) { failsWith(e, 1, "ENOLCK") }, "no errors", true, "1 lock calls did and were repeated"},

	{"locks kept", func(*evidence) {}, "locks and reads right", true, "0 times"},
	{"lock lost", func(e *evidence) {
		failsWith(e, 1, "")
		e.loads[0].result.Workers[1].Violations, e.loads[0].result.Violations = 1, 1
	}, "locks and reads right", false, "first: v3-c1-lock on c1"},
	{"no load", func(e *evidence) { e.loads = nil }, "locks and reads right", false, "nothing was proven"},
	{"nobody tried a held lock", func(e *evidence) { w := e.loads[0].result.Workers; e.loads[0].result.Workers = w[:len(w)-1] }, "locks and reads right", false, "nothing was proven"},

	{"healed", func(*evidence) {}, checkHealth, true, "both servers online"},
	{"not healed", func(e *evidence) { e.healthErr = errors.New("nfs1 is offline") }, checkHealth, false, "nfs1 is offline"},

	{"a condition was met", func(e *evidence) { e.conditions = []report.Check{{Name: "status says so", OK: true, Detail: "a line"}} }, "status says so", true, "a line"},
	{"a condition was not met", func(e *evidence) { e.conditions = []report.Check{{Name: "status says so", Detail: "no line"}} }, "status says so", false, "no line"},
}

// Each row changes one check, and no other fails.
func TestJudge(t *testing.T) {
	for _, r := range judgeTable {
		e := evidenceOf()
		r.spoil(&e)
		checks := judge(e)
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

func TestStallTarget(t *testing.T) {
	for _, c := range []struct {
		e    Expect
		f    spec.Flavour
		want float64
	}{
		{Expect{Where: Moves, Stall: 10}, spec.NFSHA, 10},
		{Expect{Where: Moves, Stall: 10}, spec.Lustre, 45},
		{Expect{Where: Stays, Stall: 5}, spec.Lustre, 5},
	} {
		if got := stallTarget(c.e, c.f); got != c.want {
			t.Errorf("%+v, %s: %g s, want %g s", c.e, c.f, got, c.want)
		}
	}
}

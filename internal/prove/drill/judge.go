package drill

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/mortarhpc/mortar/internal/prove/report"
	"github.com/mortarhpc/mortar/internal/prove/stream"
	"github.com/mortarhpc/mortar/internal/prove/workload"
)

// evidence is everything that a verdict depends on.
type evidence struct {
	drill    Drill
	expect   Expect
	fault    int64 // administrator's clock, ns
	done     int64 // when the last step ended
	active   string
	survivor string
	resource string // of the service, in Pacemaker
	nodes    []string
	service  string // the service under test
	others   []*other
	// dead is the client that the drill kills, deadAddress its public address; "": none.
	// evicts: servers evict a dead client, and say so.
	dead, deadAddress string
	evicts            bool
	second            *evidence   // of the second service, on another pair; nil: there is none
	bystanders        []*evidence // of the pairs that the drill is not about
	mounted           string      // where the service of another pair is mounted
	byCommand         bool        // a command moves the service

	events  []report.Event
	looks   map[string][]look
	loads   []loaded
	loadErr []string
	// location of the service after the recovery, before the healing.
	location    []string
	locationErr error
	moved       bool // the service runs on the other server
	conditions  []report.Check
	confirmed   int64 // when confirm-off was run; 0: never
	status      []report.StatusLine
	recovered   bool   // every worker went on in time
	ebbed       string // which workers completed nothing more after that; "": none
	waited      float64
	verify      report.Verify
	perClient   map[string]stream.Report
	verifyErr   error
	healthErr   error          // nil: health was restored
	parity      []report.Check // of the RAID, once it is whole again
}

// checkHealth is the check that the brick is whole again.
const checkHealth = "health restored"

// judge applies the rules and returns every check, passed or not.
func judge(e evidence) (checks []report.Check) {
	add := func(ok bool, name, format string, args ...any) {
		checks = append(checks, report.Check{Name: name, OK: ok, Detail: fmt.Sprintf(format, args...)})
	}

	v := e.verify
	switch {
	case e.verifyErr != nil:
		add(false, "nothing lost", "the data could not be read back: %v", e.verifyErr)
	case len(v.Errors) > 0:
		add(false, "nothing lost", "%s", strings.Join(v.Errors, "; "))
	case v.AcknowledgedBytes == 0:
		add(false, "nothing lost", "no write was acknowledged, so nothing was proven")
	default:
		ok := v.LostBytes == 0 && v.BadBytes == 0 && v.VerifiedBytes == v.AcknowledgedBytes
		d := fmt.Sprintf("%s of %s acknowledged were read back as written, %s lost", report.Bytes(v.VerifiedBytes), report.Bytes(v.AcknowledgedBytes), report.Bytes(v.LostBytes))
		if v.BadBytes > 0 {
			d += ", " + report.Bytes(v.BadBytes) + " never acknowledged but wrong"
		}
		add(ok, "nothing lost", "%s", d)
		before, none := v.AcknowledgedBeforeFaultBytes, e.nothingBefore()
		d = fmt.Sprintf("%s of %s acknowledged before the fault, and not written since, were read back", report.Bytes(v.VerifiedBeforeFaultBytes), report.Bytes(before))
		if len(none) > 0 {
			d += "; nothing of " + strings.Join(none, ", ")
		}
		add(before > 0 && v.VerifiedBeforeFaultBytes == before && len(none) == 0, "data from before the fault", "%s", d)
	}

	went := fmt.Sprintf("all %d did, at the latest %s after the fault", countWorkers(e.loads), report.Seconds(e.waited))
	switch hung := stuck(e.loads); {
	case !e.recovered:
		add(false, "every worker went on", "not within %s: %s", report.Seconds(e.waited), strings.Join(notOn(e.loads), ", "))
	case len(hung) > 0:
		add(false, "every worker went on", "%s, but then %s", went, strings.Join(hung, ", "))
	case e.ebbed != "":
		add(false, "every worker went on", "%s, but then not: %s", went, e.ebbed)
	default:
		add(true, "every worker went on", "%s", went)
	}

	checks = append(append(checks, e.conditions...), e.parity...)

	own := e
	for _, of := range e.elsewhere() {
		own.events = slices.DeleteFunc(slices.Clone(own.events), func(ev report.Event) bool { return slices.Contains(of.nodes, ev.Host) })
	}
	checks = append(checks, own.judgePair()...)
	if e.second != nil {
		for _, c := range e.second.judgePair() {
			c.Name += " (" + e.second.service + ")"
			checks = append(checks, c)
		}
	}
	for _, of := range e.bystanders {
		checks = append(checks, of.judgeBystander())
	}
	checks = append(checks, judgeRecovery(e.events, e.fault, e.deadAddress)...)
	checks = append(checks, judgeMMP(e.events, e.fault, e.expect.Wakes)...)
	if e.dead != "" {
		checks = append(checks, e.judgeTaken()...)
	}

	var ioErrs, lockErrs int64
	var violations int64
	var ioSample, lockSample, violation string
	var gaveUp []string
	tolerated := map[string]int{}
	for _, l := range e.loads {
		violations += l.result.Violations
		for _, w := range l.result.Workers {
			if w.Failed != "" {
				gaveUp = append(gaveUp, fmt.Sprintf("%s on %s: %s", w.Worker, l.client, w.Failed))
			}
			if isIO(w.Kind) {
				ioErrs += w.Errors
			} else {
				lockErrs += max(w.Errors-w.Violations, 0) // a violation is recorded as an error too
			}
		}
		for _, x := range l.result.Errors {
			is := func(what func(workload.WorkerResult) bool) bool {
				return slices.ContainsFunc(l.result.Workers, func(w workload.WorkerResult) bool { return w.Worker == x.Worker && what(w) })
			}
			broken := is(func(w workload.WorkerResult) bool { return w.Violations > 0 })
			sample := &lockSample
			if is(func(w workload.WorkerResult) bool { return isIO(w.Kind) }) {
				sample = &ioSample
			}
			switch {
			case slices.Contains(e.expect.Tolerate, x.Errno):
				tolerated[x.Errno]++
				continue
			case broken && violation == "":
				violation = fmt.Sprintf(", first: %s on %s: %s", x.Worker, l.client, x.Error)
			case !broken && *sample == "":
				*sample = fmt.Sprintf("%s on %s, %s: %s", x.Worker, l.client, x.Op, x.Error)
			}
		}
	}
	switch {
	case len(e.loadErr) > 0:
		add(false, "no errors", "%s", strings.Join(e.loadErr, "; "))
	case len(gaveUp) > 0:
		add(false, "no errors", "workers gave up: %s", strings.Join(gaveUp, "; "))
	case ioErrs > 0 && len(tolerated) > 0 && ioSample == "":
		add(true, "no other errors", "%d calls failed with %s, as they must; none with anything else", ioErrs, strings.Join(slices.Sorted(maps.Keys(tolerated)), ", "))
	case ioErrs > 0:
		add(false, "no errors", "clients saw %d failed calls, first: %s", ioErrs, ioSample)
	case lockErrs > 0:
		add(true, "no errors", "no read or write failed; %d lock calls did and were repeated (%s)", lockErrs, lockSample)
	default:
		add(true, "no errors", "no call of any client failed")
	}
	if challenged := challenges(e.loads); violations == 0 && challenged == 0 {
		add(false, "locks and reads right", "nobody tried to take a held lock, so nothing was proven")
	} else {
		add(violations == 0, "locks and reads right", "%d times a lock was lost or given twice, or a reader saw wrong data%s; others tried %d times to take held locks", violations, violation, challenged)
	}

	if e.healthErr != nil {
		add(false, checkHealth, "%v", e.healthErr)
	} else {
		detail := "both servers online, every resource and fence device started, no failed action left"
		if len(e.nodes) == 1 {
			detail = "the server answers, the volume is mounted and served"
		}
		add(true, checkHealth, "%s", detail)
	}
	return checks
}

// challenges counts the calls of workers that try to take a lock of another one.
func challenges(ls []loaded) (n int64) {
	for _, l := range ls {
		for _, w := range l.result.Workers {
			if w.Kind == "lock-"+string(workload.Challenge) || w.Kind == lockTake {
				n += w.Ops
			}
		}
	}
	return n
}

// judgePair checks where the services of one pair ran, and who was fenced.
func (e *evidence) judgePair() (checks []report.Check) {
	add := func(ok bool, name, format string, args ...any) {
		checks = append(checks, report.Check{Name: name, OK: ok, Detail: fmt.Sprintf(format, args...)})
	}
	want := []string{e.active}
	switch e.expect.Where {
	case Moves:
		want = []string{e.survivor}
	case Anywhere:
		want = e.nodes
	}
	again, restarted := firstRestart(e.events, e.fault, e.resource)
	switch {
	case e.locationErr != nil:
		add(false, "service where it belongs", "%v", e.locationErr)
	case len(e.location) != 1 || !slices.Contains(want, e.location[0]):
		add(false, "service where it belongs", "it runs on %q, not on %s", strings.Join(e.location, ", "), strings.Join(want, " or "))
	case e.expect.Where == Stays && restarted:
		add(false, "service where it belongs", "%s", e.restart(e.location[0], again))
	default:
		add(true, "service where it belongs", "it runs on %s", e.location[0])
	}

	fenced := map[string]int64{}
	var names []string
	for _, n := range e.nodes {
		if f, ok := firstEvent(e.events, report.EventFenced, e.fault, func(ev report.Event) bool { return namesNode(ev.Text, n) }); ok {
			fenced[n] = f.NS
			names = append(names, n)
		}
	}
	begin, began := firstEvent(e.events, report.EventStarting, e.fault, e.aboutService)
	if !began {
		begin, began = firstEvent(e.events, report.EventStarted, e.fault, e.aboutService)
	}
	switch f, ok := fenced[e.active]; {
	case e.expect.Fencing == Victim && !ok:
		add(false, "fenced before taken over", "no fencing of %s was confirmed", e.active)
	case e.expect.Fencing == Victim && began && begin.NS < f:
		add(false, "fenced before taken over", "the start on %s began %s before the fencing was confirmed", begin.Host, report.Seconds(float64(f-begin.NS)/1e9))
	case e.expect.Fencing == Victim && len(names) > 1:
		add(false, "fenced before taken over", "%s were fenced, not %s alone", strings.Join(names, " and "), e.active)
	case e.expect.Fencing == Victim:
		add(true, "fenced before taken over", "confirmed %s after the fault", report.Seconds(float64(f-e.fault)/1e9))
	case e.expect.Fencing == Allow && len(names) > 0:
		add(true, "fencing", "%s was fenced, which this fault allows", strings.Join(names, " and "))
	case e.expect.Fencing == Allow:
		add(true, "fencing", "no server was fenced")
	case len(names) > 0:
		add(false, "nobody fenced", "%s was fenced, which this fault does not call for", strings.Join(names, ", "))
	default:
		add(true, "nobody fenced", "no server was fenced")
	}
	// Where the server with the fault has to be fenced, the check above says more.
	if e.expect.Fencing != Victim {
		early := unreleased(e.events, e.looks, e.fault, e.active, e.resource)
		add(early == "", "let go before taken over", "%s", cmp.Or(early, "no server started the service while another one might still have it"))
	}
	if e.confirmed != 0 {
		switch {
		case began && begin.NS < e.confirmed:
			add(false, "held back until confirmed", "the start on %s began %s before anybody had confirmed that %s is off", begin.Host, report.Seconds(float64(e.confirmed-begin.NS)/1e9), e.active)
		default:
			add(true, "held back until confirmed", "for %s, until mortar confirm-off, the service started nowhere", report.Seconds(float64(e.confirmed-e.fault)/1e9))
		}
	}

	n := 0
	blind := []string{}
	for _, h := range e.nodes {
		n += len(e.looks[h])
		// Every server is back in the end. One whose looks ended with the fault was not watched.
		if !slices.ContainsFunc(e.looks[h], func(l look) bool { return l.doneNS > e.fault }) {
			blind = append(blind, h)
		}
	}
	looks := e.looks
	if e.expect.Wakes {
		looks = maps.Clone(looks)
		looks[e.active] = slices.DeleteFunc(slices.Clone(looks[e.active]), func(l look) bool { return l.doneNS > e.fault })
	}
	switch twice := doubleMount(looks, fenced); {
	case len(blind) > 0:
		add(false, "never mounted twice", "the mounts of %s could not be read after the fault", strings.Join(blind, ", "))
	case twice != "":
		add(false, "never mounted twice", "%s", twice)
	default:
		add(true, "never mounted twice", "%d looks at the servers' mounts found the volume on one server at most", n)
	}

	return append(checks, e.judgeOthers(fenced)...)
}

// firstRestart finds the first stop of a service after the fault, or its first start if there
// is no stop.
func firstRestart(events []report.Event, fault int64, resource string) (report.Event, bool) {
	about := func(ev report.Event) bool { return aboutResource(ev, resource) }
	if ev, ok := firstEvent(events, report.EventStopped, fault, about); ok {
		return ev, true
	}
	return firstEvent(events, report.EventStarted, fault, about)
}

// restart says that a service which had to stay did not run all the time.
func (e *evidence) restart(on string, ev report.Event) string {
	return fmt.Sprintf("it runs on %s, but was stopped or started meanwhile: %s after the fault, on %s: %s", on, report.Seconds(float64(ev.NS-e.fault)/1e9), ev.Host, ev.Text)
}

// aboutService reports whether a start or stop is of the service. The agent's log
// is only about its own service; Pacemaker's lines name the resource.
func (e *evidence) aboutService(ev report.Event) bool { return aboutResource(ev, e.resource) }

func aboutResource(ev report.Event, resource string) bool {
	return ev.Source == "ocf" || meaning("pacemaker-controld", ev.Text).Resource == resource
}

// namesNode reports whether a fencing message is about a node.
func namesNode(text, node string) bool {
	return strings.HasPrefix(text, "Peer "+node+" ") || strings.Contains(text, " targeting "+node+" ")
}

func countWorkers(ls []loaded) int {
	n := 0
	for _, l := range ls {
		n += len(l.result.Workers)
	}
	return n
}

// nothingBefore names the mounts on which no byte from before the fault is left to prove
// anything.
func (e *evidence) nothingBefore() (out []string) {
	for _, l := range e.loads {
		r, ok := e.perClient[l.client]
		if !ok {
			continue // nothing of it was read back
		}
		bytes := map[string]int64{}
		for _, f := range r.Files {
			if m, ok := l.mounts[f.Worker]; ok {
				bytes[m.Path] += f.BeforeBytes
			}
		}
		for at, n := range bytes {
			if n == 0 {
				out = append(out, l.client+" "+at)
			}
		}
	}
	slices.Sort(out)
	return out
}

// stuck names the workers that hung when the load was stopped.
func stuck(ls []loaded) (out []string) {
	for _, l := range ls {
		for _, s := range l.result.Stuck {
			out = append(out, l.client+" "+s+" hangs")
		}
	}
	return out
}

// notOn describes the workers that still hung at the end.
func notOn(ls []loaded) []string {
	out := stuck(ls)
	for _, l := range ls {
		for _, s := range l.result.Stalls {
			if s.Open && !slices.Contains(l.result.Stuck, s.Worker) {
				out = append(out, l.client+" "+s.Worker+" had not gone on")
			}
		}
	}
	if len(out) == 0 {
		out = append(out, "their state was not known")
	}
	return out
}

// marks finds the moments of a failover.
func marks(e evidence) (m report.Marks, io map[string]int64) {
	sec := func(ns int64) *float64 {
		if ns == 0 {
			return nil
		}
		s := float64(ns-e.fault) / 1e9
		return &s
	}
	at := func(kind string, match func(report.Event) bool) int64 {
		ev, ok := firstEvent(e.events, kind, e.fault, match)
		if !ok {
			return 0
		}
		return ev.NS
	}
	// Use the log of the server that serves in the end.
	server := e.survivor
	if !e.moved && e.expect.Where != Moves {
		server = e.active
	}
	onSurvivor := func(ev report.Event) bool { return server == "" || ev.Host == server }
	detected := at(report.EventDetected, onSurvivor)
	if detected == 0 {
		detected = at(report.EventMembership, onSurvivor)
	}
	// A heartbeat lost after the mending is no effect of the fault.
	if mended := at(report.EventMended, nil); !e.moved && mended != 0 && detected > mended {
		detected = 0
	}
	m.Detected = sec(detected)
	m.Fenced = sec(at(report.EventFenced, func(ev report.Event) bool { return namesNode(ev.Text, e.active) }))
	started := at(report.EventStarted, func(ev report.Event) bool { return onSurvivor(ev) && e.aboutService(ev) })
	m.Started = sec(started)
	after := e.fault
	if !e.moved && started == 0 {
		return m, nil // the service never stopped, so there is no first I/O after the fault
	}
	if e.moved || started != 0 {
		// The survivor cannot serve before its start begins.
		begin := at(report.EventStarting, func(ev report.Event) bool { return onSurvivor(ev) && e.aboutService(ev) })
		if begin == 0 {
			begin = started
		}
		if begin == 0 {
			return m, nil
		}
		after = begin
	}
	got := servedAfter(of(e.loads, e.service), after, true)
	first := int64(0)
	for _, t := range got.firstIO {
		if first == 0 || t < first {
			first = t
		}
	}
	m.FirstIO, m.FirstLock = sec(first), sec(got.firstLock)
	if e.recovered {
		m.AllIO, m.AllLocks = sec(got.allIO), sec(got.allLocks)
	}
	return m, got.firstIO
}

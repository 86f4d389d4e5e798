// Package judge has the rules of a drill's verdict: what must happen to each service, and the
// checks of what was seen. It is pure: it reaches no host and reads no clock. It knows neither
// faults nor how a drill is done.
package judge

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/mortarhpc/mortar/internal/prove/report"
	"github.com/mortarhpc/mortar/internal/prove/stream"
	"github.com/mortarhpc/mortar/internal/prove/workload"
)

// Place is where the service must be at the end of a drill.
type Place string

// Places.
const (
	Stays    Place = "stays"    // on its server, which neither stops nor starts it
	Returns  Place = "returns"  // on its server, which may have stopped and started it
	Moves    Place = "moves"    // to the other server
	Anywhere Place = "anywhere" // on one of the two
)

// Fencing is which servers the cluster must or may fence.
type Fencing string

// Values of Fencing, from none to all.
const (
	NoServer Fencing = "none"
	Victim   Fencing = "victim" // the cluster fences the server with the fault before the service starts elsewhere
	Allow    Fencing = "allow"  // the cluster may fence any server
)

// Expect is what must happen in a drill. The verdict depends on it and on the
// rules of every drill: no data lost, locks kept, no error on clients, the volume
// never mounted on two servers, every worker goes on, health restored.
type Expect struct {
	Where   Place
	Fencing Fencing
	// Stall is the target of the longest stall, in seconds; negative: no target.
	// The report shows it beside the figure. It is no part of the verdict: a slow
	// answer is not wrong, and a rack's processors differ from a server's.
	Stall float64
	// Disks: the drill removes disks or paths, so health includes them: every
	// array must be whole and in sync, before and after.
	Disks bool
	// Within is the time limit for every worker to go on; that of the run if it is longer.
	Within time.Duration
	// Wakes: the server that freezes wakes up with the volume still mounted. Sessions with it
	// are kept, so that no sign of it is missed.
	Wakes bool
	// Tolerate are errors clients must expect, by name, e.g. ENOSPC.
	Tolerate []string
}

// Beside is what must happen to another service of the pair. The fate of its server decides:
// a service on the partner of the server with the fault stays there. together: it is on the
// same server, and no command moves only the other one.
func (x Expect) Beside(together bool) Expect {
	x.Wakes = x.Wakes && together
	if x.Where == Moves && !together {
		x.Where = Returns
	}
	return x
}

// Apart is what must happen on a pair that the drill is not about: nothing, unless the fault
// is one of the whole rack.
func (x Expect) Apart(wholeRack bool) Expect {
	if !wholeRack {
		return Expect{Where: Stays, Fencing: NoServer}
	}
	out := Expect{Where: x.Where, Fencing: x.Fencing}
	if out.Where == Moves {
		out.Where = Anywhere
	}
	if out.Fencing == Victim {
		out.Fencing = Allow
	}
	return out
}

// Subject is a service that a drill judges, and what was seen of it.
type Subject struct {
	Service  string
	Resource string   // in Pacemaker
	Nodes    []string // servers of its pair
	Active   string   // its server at the time of the fault
	Passive  string   // the other one; "": there is none
	Expect   Expect
	Apart    bool  // the drill is not about its pair
	Fault    int64 // of its server, ns; 0: that of the drill

	Looks map[string][]Look // at its volume, by server
	// Location is where it runs after the recovery, before the healing.
	Location    []string
	LocationErr error
}

// Moved reports whether the service runs on the other server.
func (x *Subject) Moved() bool { return slices.Equal(x.Location, []string{x.Passive}) }

// Pairs groups the services of each pair.
func Pairs(all []*Subject) (out [][]*Subject) {
	for i, x := range all {
		if i == 0 || !slices.Equal(x.Nodes, all[i-1].Nodes) {
			out = append(out, nil)
		}
		out[len(out)-1] = append(out[len(out)-1], x)
	}
	return out
}

// Evidence is everything that a verdict depends on. Times are ns by the administrator's clock.
type Evidence struct {
	// Subjects has the service under test first, and the services of a pair one after the other.
	Subjects []*Subject
	Fault    int64
	Events   []report.Event
	Loads    []Load
	LoadErrs []string
	// Dead is the client that the drill kills, DeadAddress its public address; "": none.
	// Evicts: servers evict a dead client, and say so.
	Dead, DeadAddress string
	Evicts            bool

	Conditions []report.Check // of the drill's steps, and of the RAID
	Confirmed  int64          // when confirm-off was run; 0: never
	Recovered  bool           // every worker went on in time
	Ebbed      string         // which workers completed nothing more after that; "": none
	Waited     float64        // for the recovery, seconds after the fault
	Verify     report.Verify
	PerClient  map[string]stream.Report
	VerifyErr  error
	HealthErr  error // nil: health was restored
}

// Health is the name of the check that the brick is whole again.
const Health = "health restored"

// checks of one rule.
type checks []report.Check

func (c *checks) add(ok bool, name, format string, args ...any) {
	*c = append(*c, report.Check{Name: name, OK: ok, Detail: fmt.Sprintf(format, args...)})
}

// Judge applies the rules and returns every check, passed or not.
func Judge(e *Evidence) []report.Check {
	var out checks
	e.data(&out)
	e.workers(&out)
	out = append(out, e.Conditions...)
	for _, p := range Pairs(e.Subjects) {
		out = append(out, e.pair(p)...)
	}
	e.recovery(&out)
	e.mmp(&out)
	if e.Dead != "" {
		e.taken(&out)
	}
	e.errors(&out)
	switch {
	case e.HealthErr != nil:
		out.add(false, Health, "%v", e.HealthErr)
	case len(e.Subjects[0].Nodes) == 1:
		out.add(true, Health, "the server answers, the volume is mounted and served")
	default:
		out.add(true, Health, "both servers online, every resource and fence device started, no failed action left")
	}
	return out
}

// data checks that every acknowledged byte was read back.
func (e *Evidence) data(c *checks) {
	const name = "nothing lost"
	v := e.Verify
	switch {
	case e.VerifyErr != nil:
		c.add(false, name, "the data could not be read back: %v", e.VerifyErr)
		return
	case len(v.Errors) > 0:
		c.add(false, name, "%s", strings.Join(v.Errors, "; "))
		return
	case v.AcknowledgedBytes == 0:
		c.add(false, name, "no write was acknowledged, so nothing was proven")
		return
	}
	d := fmt.Sprintf("%s of %s acknowledged were read back as written, %s lost", report.Bytes(v.VerifiedBytes), report.Bytes(v.AcknowledgedBytes), report.Bytes(v.LostBytes))
	if v.BadBytes > 0 {
		d += ", " + report.Bytes(v.BadBytes) + " never acknowledged but wrong"
	}
	c.add(v.LostBytes == 0 && v.BadBytes == 0 && v.VerifiedBytes == v.AcknowledgedBytes, name, "%s", d)
	before, none := v.AcknowledgedBeforeFaultBytes, e.nothingBefore()
	d = fmt.Sprintf("%s of %s acknowledged before the fault, and not written since, were read back", report.Bytes(v.VerifiedBeforeFaultBytes), report.Bytes(before))
	if len(none) > 0 {
		d += "; nothing of " + strings.Join(none, ", ")
	}
	c.add(before > 0 && v.VerifiedBeforeFaultBytes == before && len(none) == 0, "data from before the fault", "%s", d)
}

// nothingBefore names the mounts on which no byte from before the fault is left to prove
// anything.
func (e *Evidence) nothingBefore() (out []string) {
	for _, l := range e.Loads {
		bytes := map[string]int64{} // none if nothing of it was read back
		for _, f := range e.PerClient[l.Client].Files {
			if m, ok := l.Mounts[f.Worker]; ok {
				bytes[m.Path] += f.BeforeBytes
			}
		}
		for at, n := range bytes {
			if n == 0 {
				out = append(out, l.Client+" "+at)
			}
		}
	}
	slices.Sort(out)
	return out
}

// workers checks that every worker went on.
func (e *Evidence) workers(c *checks) {
	n, hung, open := 0, []string{}, []string{}
	for _, l := range e.Loads {
		n += len(l.Result.Workers)
		for _, s := range l.Result.Stuck {
			hung = append(hung, l.Client+" "+s+" hangs")
		}
		for _, s := range l.Result.Stalls {
			if s.Open && !slices.Contains(l.Result.Stuck, s.Worker) {
				open = append(open, l.Client+" "+s.Worker+" had not gone on")
			}
		}
	}
	const name = "every worker went on"
	went := fmt.Sprintf("all %d did, at the latest %s after the fault", n, report.Seconds(e.Waited))
	switch {
	case !e.Recovered:
		who := strings.Join(append(hung, open...), ", ")
		c.add(false, name, "not within %s: %s", report.Seconds(e.Waited), cmp.Or(who, "their state was not known"))
	case len(hung) > 0:
		c.add(false, name, "%s, but then %s", went, strings.Join(hung, ", "))
	case e.Ebbed != "":
		c.add(false, name, "%s, but then not: %s", went, e.Ebbed)
	default:
		c.add(true, name, "%s", went)
	}
}

// pair checks the services of one pair. A pair that the drill is not about has one check.
func (e *Evidence) pair(all []*Subject) []report.Check {
	var out checks
	for i, x := range all {
		for _, c := range e.service(x, i == 0) {
			if x != e.Subjects[0] && !x.Apart || i > 0 {
				c.Name += " (" + x.Service + ")"
			}
			out = append(out, c)
		}
	}
	if !all[0].Apart {
		return out
	}
	var right, wrong []string
	for _, x := range out {
		if right = append(right, x.Name); !x.OK {
			wrong = append(wrong, x.Name+": "+x.Detail)
		}
	}
	detail := "right: " + strings.Join(right, ", ")
	if len(wrong) > 0 {
		detail = strings.Join(wrong, "; ")
	}
	return []report.Check{{Name: "servers " + strings.Join(all[0].Nodes, ", "), OK: len(wrong) == 0, Detail: detail}}
}

// service checks where a service ran. The first of a pair stands for who was fenced, and has
// the agents' logs.
func (e *Evidence) service(x *Subject, first bool) []report.Check {
	var c checks
	fault := cmp.Or(x.Fault, e.Fault)
	events := slices.DeleteFunc(slices.Clone(e.Events), func(ev report.Event) bool {
		return !slices.Contains(x.Nodes, ev.Host) || ev.Source == "ocf" && !first
	})
	e.place(&c, x, events, fault)
	fenced := map[string]int64{}
	for _, n := range x.Nodes {
		if f, ok := First(events, report.EventFenced, fault, func(ev report.Event) bool { return ev.Node == n }); ok {
			fenced[n] = f.NS
		}
	}
	begin, began := First(events, report.EventStarting, fault, x.about)
	if !began {
		begin, began = First(events, report.EventStarted, fault, x.about)
	}
	if first {
		x.fencing(&c, fenced, begin, began, fault)
	}
	// Where the server with the fault has to be fenced, the check above says more.
	if x.Expect.Fencing != Victim || !first {
		early := unreleased(events, x, fault)
		c.add(early == "", "let go before taken over", "%s", cmp.Or(early, "no server started the service while another one might still have it"))
	}
	if e.Confirmed != 0 && first {
		ok, detail := true, fmt.Sprintf("for %s, until mortar confirm-off, the service started nowhere", report.Seconds(float64(e.Confirmed-fault)/1e9))
		if began && begin.NS < e.Confirmed {
			ok, detail = false, fmt.Sprintf("the start on %s began %s before anybody had confirmed that %s is off", begin.Host, report.Seconds(float64(e.Confirmed-begin.NS)/1e9), x.Active)
		}
		c.add(ok, "held back until confirmed", "%s", detail)
	}
	x.mounts(&c, fenced, fault)
	return c
}

// place checks where the service is, and that one that had to stay ran all the time.
func (e *Evidence) place(c *checks, x *Subject, events []report.Event, fault int64) {
	const name = "service where it belongs"
	want := []string{x.Active}
	switch x.Expect.Where {
	case Moves:
		want = []string{x.Passive}
	case Anywhere:
		want = x.Nodes
	}
	again, restarted := First(events, report.EventStopped, fault, x.about)
	if !restarted {
		again, restarted = First(events, report.EventStarted, fault, x.about)
	}
	switch {
	case x.LocationErr != nil:
		c.add(false, name, "%v", x.LocationErr)
	case len(x.Location) != 1 || !slices.Contains(want, x.Location[0]):
		c.add(false, name, "it runs on %q, not on %s", strings.Join(x.Location, ", "), strings.Join(want, " or "))
	case x.Expect.Where == Stays && restarted:
		c.add(false, name, "it runs on %s, but was stopped or started meanwhile: %s after the fault, on %s: %s", x.Location[0], report.Seconds(float64(again.NS-fault)/1e9), again.Host, again.Text)
	case x == e.Subjects[0]:
		c.add(true, name, "it runs on %s", x.Location[0])
	default:
		stall := 0.0
		for _, l := range Of(e.Loads, x.Service) {
			stall = max(stall, l.LongestStall(e.Fault, true))
		}
		c.add(true, name, "it runs on %s; its clients' longest stall was %s", x.Location[0], report.Seconds(stall))
	}
}

// fencing checks who was fenced, and that a start waited for it.
func (x *Subject) fencing(c *checks, fenced map[string]int64, begin report.Event, began bool, fault int64) {
	names := slices.Sorted(maps.Keys(fenced))
	all := strings.Join(names, " and ")
	const name = "fenced before taken over"
	switch f, ok := fenced[x.Active]; {
	case x.Expect.Fencing == Victim && !ok:
		c.add(false, name, "no fencing of %s was confirmed", x.Active)
	case x.Expect.Fencing == Victim && began && begin.NS < f:
		c.add(false, name, "the start on %s began %s before the fencing was confirmed", begin.Host, report.Seconds(float64(f-begin.NS)/1e9))
	case x.Expect.Fencing == Victim && len(names) > 1:
		c.add(false, name, "%s were fenced, not %s alone", all, x.Active)
	case x.Expect.Fencing == Victim:
		c.add(true, name, "confirmed %s after the fault", report.Seconds(float64(f-fault)/1e9))
	case len(names) == 0 && x.Expect.Fencing == Allow:
		c.add(true, "fencing", "no server was fenced")
	case len(names) == 0:
		c.add(true, "no server fenced", "no server was fenced")
	case x.Expect.Fencing == Allow:
		c.add(true, "fencing", "%s was fenced, which this fault allows", all)
	default:
		c.add(false, "no server fenced", "%s was fenced, which this fault does not call for", all)
	}
}

// mounts checks that the volume was never mounted on two servers.
func (x *Subject) mounts(c *checks, fenced map[string]int64, fault int64) {
	const name = "never mounted twice"
	n, blind, looks := 0, []string{}, maps.Clone(x.Looks)
	for _, h := range x.Nodes {
		n += len(looks[h])
		// Every server is back in the end. One whose looks ended with the fault was not watched.
		if !slices.ContainsFunc(looks[h], func(l Look) bool { return l.Done > fault }) {
			blind = append(blind, h)
		}
	}
	if x.Expect.Wakes {
		looks[x.Active] = slices.DeleteFunc(slices.Clone(looks[x.Active]), func(l Look) bool { return l.Done > fault })
	}
	switch twice := doubleMount(looks, fenced); {
	case len(blind) > 0:
		c.add(false, name, "the mounts of %s could not be read after the fault", strings.Join(blind, ", "))
	case twice != "":
		c.add(false, name, "%s", twice)
	default:
		c.add(true, name, "%d looks at the servers' mounts found the volume on one server at most", n)
	}
}

// errors checks what clients saw: errors of calls, and locks and reads that were wrong.
func (e *Evidence) errors(c *checks) {
	var ioErrs, lockErrs, violations, challenged int64
	var ioSample, lockSample, violation string
	var gaveUp []string
	tolerated := map[string]bool{}
	for _, l := range e.Loads {
		violations += l.Result.Violations
		by := map[string]workload.WorkerResult{}
		for _, w := range l.Result.Workers {
			by[w.Worker] = w
			if w.Failed != "" {
				gaveUp = append(gaveUp, fmt.Sprintf("%s on %s: %s", w.Worker, l.Client, w.Failed))
			}
			if isIO(w.Kind) {
				ioErrs += w.Errors
			} else {
				lockErrs += max(w.Errors-w.Violations, 0) // a violation is recorded as an error too
			}
			if w.Kind == "lock-"+string(workload.Challenge) || w.Kind == lockTake {
				challenged += w.Ops
			}
		}
		for _, x := range l.Result.Errors {
			sample := &lockSample
			if isIO(by[x.Worker].Kind) {
				sample = &ioSample
			}
			switch broken := by[x.Worker].Violations > 0; {
			case slices.Contains(e.Subjects[0].Expect.Tolerate, x.Errno):
				tolerated[x.Errno] = true
			case broken && violation == "":
				violation = fmt.Sprintf(", first: %s on %s: %s", x.Worker, l.Client, x.Error)
			case !broken && *sample == "":
				*sample = fmt.Sprintf("%s on %s, %s: %s", x.Worker, l.Client, x.Op, x.Error)
			}
		}
	}
	const name = "no errors"
	switch {
	case len(e.LoadErrs) > 0:
		c.add(false, name, "%s", strings.Join(e.LoadErrs, "; "))
	case len(gaveUp) > 0:
		c.add(false, name, "workers gave up: %s", strings.Join(gaveUp, "; "))
	case ioErrs > 0 && len(tolerated) > 0 && ioSample == "":
		c.add(true, "no other errors", "%d calls failed with %s, as they must; none with anything else", ioErrs, strings.Join(slices.Sorted(maps.Keys(tolerated)), ", "))
	case ioErrs > 0:
		c.add(false, name, "clients saw %d failed calls, first: %s", ioErrs, ioSample)
	case lockErrs > 0:
		c.add(true, name, "no read or write failed; %d lock calls did and were repeated (%s)", lockErrs, lockSample)
	default:
		c.add(true, name, "no call of any client failed")
	}
	if violations == 0 && challenged == 0 {
		c.add(false, "locks and reads right", "no client tried to take a held lock, so nothing was proven")
		return
	}
	c.add(violations == 0, "locks and reads right", "%d times a lock was lost or given twice, or a reader saw wrong data%s; others tried %d times to take held locks", violations, violation, challenged)
}

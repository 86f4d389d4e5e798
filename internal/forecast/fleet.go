package forecast

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
)

// Fleet describes a number of like bricks. All durations are in hours, all
// rates per year, unless the name says otherwise.
type Fleet struct {
	Bricks int
	Years  float64
	Seed   uint64

	// Geometry of one brick.
	Groups     int // RAID groups
	Disks      int // disks of one group, parity included
	Parity     int // disks of a group that may be gone
	Spares     int // hot spares of a brick
	Enclosures int // enclosures a brick's groups are spread over evenly; 0: never fail
	// PerEnclosure is the most disks of a group in one enclosure; 0: as even
	// as Disks and Enclosures allow.
	PerEnclosure int
	Servers      int // 1, or 2 for an HA pair

	// Disks.
	DiskAFR       float64 // failures of one disk in a year (0.02: 2 %)
	BatchShare    float64 // share of bricks whose disks come from a bad batch
	BatchFactor   float64 // how many times more often those fail
	RebuildHours  float64 // on a spare, or once the disk is replaced
	ReplaceHours  float64 // until a failed disk is replaced by hand
	LatentPerYear float64 // latent sector errors of one disk in a year
	ScrubHours    float64 // time between two scrubs, which find and mend them
	ExpRebuild    bool    // rebuild times exponential (as in the Markov chain) instead of fixed
	RestoreHours  float64 // restoring a group from elsewhere after data loss

	// Everything else: failures in a year and hours to repair.
	EnclosureAFR, EnclosureRepair   float64
	ControllerAFR, ControllerRepair float64 // two controllers per brick
	ServerAFR, ServerRepair         float64
	PowerPerYear, PowerHours        float64 // whole site without power
	FailoverSeconds                 float64 // stall of clients at a server's failure in a pair
	FailoverFails                   float64 // share of failovers that need a hand
	HandHours                       float64 // until the administrator has mended that
}

// Cause of unavailability.
type Cause int

// The causes, in the order of Result.DownHours.
const (
	CauseDataLoss Cause = iota
	CauseEnclosure
	CauseController
	CauseServer
	CauseFailover
	CausePower
	causes
)

func (c Cause) String() string {
	return [...]string{"data loss", "enclosure", "controller", "server", "failover", "power"}[c]
}

// Estimate is a mean with a 95 % confidence interval.
type Estimate struct {
	Mean, Low, High float64
}

// Result of a simulation.
type Result struct {
	BrickYears   float64
	DiskFailures int64
	Rebuilds     int64
	Losses       int64 // events in which a group lost data
	SectorLosses int64 // of these: by latent sector errors only
	BricksLost   int64 // bricks with at least one loss
	// LossProbability of one brick over the whole time (Wilson interval).
	LossProbability Estimate
	// MTTDLHours of one group, from the losses seen (Poisson interval); +Inf
	// if none was.
	MTTDLHours Estimate
	// Unavailability of one brick, a share of time, over all causes.
	Unavailability Estimate
	// DownHours of a brick in a year, by cause.
	DownHours [causes]float64
	Events    int64 // simulated events: the cost of the run
}

// Check says what is wrong with a fleet, or nil.
func (f *Fleet) Check() error {
	var errs []error
	say := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	for _, v := range []struct {
		name string
		n    int
	}{{"bricks", f.Bricks}, {"groups", f.Groups}, {"disks", f.Disks}} {
		if v.n < 1 {
			say("%s: %d: want at least 1", v.name, v.n)
		}
	}
	if f.Parity < 0 || f.Parity >= f.Disks {
		say("parity: %d of %d disks", f.Parity, f.Disks)
	}
	if f.Servers != 1 && f.Servers != 2 {
		say("servers: %d: want 1 or 2", f.Servers)
	}
	if f.Spares < 0 || f.Enclosures < 0 {
		say("a negative number of spares or enclosures")
	}
	if f.PerEnclosure < 0 || f.PerEnclosure > f.Disks {
		say("disks of a group in one enclosure: %d of %d", f.PerEnclosure, f.Disks)
	}
	if !(f.Years > 0) || math.IsInf(f.Years, 0) {
		say("years: %g", f.Years)
	}
	for _, v := range []struct {
		name string
		x    float64
	}{{"disk AFR", f.DiskAFR}, {"batch factor", f.BatchFactor}, {"rebuild hours", f.RebuildHours}, {"replace hours", f.ReplaceHours},
		{"latent errors", f.LatentPerYear}, {"scrub hours", f.ScrubHours}, {"restore hours", f.RestoreHours}, {"enclosure AFR", f.EnclosureAFR},
		{"enclosure repair", f.EnclosureRepair}, {"controller AFR", f.ControllerAFR}, {"controller repair", f.ControllerRepair},
		{"server AFR", f.ServerAFR}, {"server repair", f.ServerRepair}, {"power failures", f.PowerPerYear}, {"power hours", f.PowerHours},
		{"failover seconds", f.FailoverSeconds}, {"hand hours", f.HandHours}} {
		if v.x < 0 || math.IsNaN(v.x) || math.IsInf(v.x, 0) {
			say("%s: %g", v.name, v.x)
		}
	}
	for _, v := range []struct {
		name string
		x    float64
	}{{"batch share", f.BatchShare}, {"share of failed failovers", f.FailoverFails}} {
		if !(v.x >= 0 && v.x <= 1) {
			say("%s: %g: want 0 to 1", v.name, v.x)
		}
	}
	return errors.Join(errs...)
}

// Simulate runs every brick of the fleet through its years, one after the
// other: memory does not grow with the fleet. The same Fleet always gives
// the same Result.
func Simulate(f Fleet) (Result, error) {
	if err := f.Check(); err != nil {
		return Result{}, err
	}
	var r Result
	var mean, m2 float64 // Welford, over the bricks' unavailability
	b := newBrick(&f)
	for i := range f.Bricks {
		b.run(uint64(i), &r)
		var down float64
		for c, h := range b.down {
			down += h
			r.DownHours[c] += h
		}
		u := math.Min(down/b.end, 1)
		d := u - mean
		mean += d / float64(i+1)
		m2 += d * (u - mean)
		if b.losses > 0 {
			r.BricksLost++
		}
	}
	n := float64(f.Bricks)
	r.BrickYears = n * f.Years
	for c := range r.DownHours {
		r.DownHours[c] /= r.BrickYears
	}
	half := 0.0
	if f.Bricks > 1 {
		half = 1.96 * math.Sqrt(m2/(n-1)/n)
	}
	r.Unavailability = Estimate{mean, math.Max(0, mean-half), mean + half}
	r.LossProbability = wilson(float64(r.BricksLost), n)
	r.MTTDLHours = mttdl(float64(r.Losses), n*f.Years*HoursPerYear*float64(f.Groups))
	return r, nil
}

// wilson is the 95 % score interval of k successes in n trials.
func wilson(k, n float64) Estimate {
	const z = 1.96
	p := k / n
	d := 1 + z*z/n
	c := (p + z*z/(2*n)) / d
	h := z / d * math.Sqrt(p*(1-p)/n+z*z/(4*n*n))
	return Estimate{p, math.Max(0, c-h), math.Min(1, c+h)}
}

// mttdl is the exposure over the number of losses, with the interval of a
// Poisson count (Byar's approximation).
func mttdl(k, hours float64) Estimate {
	up := func(k float64) float64 { k++; return k * math.Pow(1-1/(9*k)+1.96/(3*math.Sqrt(k)), 3) }
	e := Estimate{Mean: math.Inf(1), Low: hours / up(k), High: math.Inf(1)}
	if k > 0 {
		e.Mean = hours / k
		lo := k * math.Pow(1-1/(9*k)-1.96/(3*math.Sqrt(k)), 3)
		if lo > 0 {
			e.High = hours / lo
		}
	}
	return e
}

type eventKind uint8

const (
	evDiskFail  eventKind = iota
	evDiskBack            // rebuild finished
	evSpareBack           // a failed disk was replaced: the spare is free again, or the waiting rebuild starts
	evEnclFail
	evEnclBack
	evCtrlFail
	evCtrlBack
	evSrvFail
	evSrvBack
	evPower
)

type event struct {
	at    float64
	kind  eventKind
	index int32  // group, enclosure, server …
	gen   uint32 // a group's generation: a restored group forgets its old events
}

// brick is one brick's state; it is reused for the next.
type brick struct {
	f      *Fleet
	rng    *rand.Rand
	src    *rand.PCG
	now    float64
	end    float64
	heap   []event
	lambda float64 // per disk and hour, of this brick

	failed  []int // per group: disks failed and not yet rebuilt
	waiting []int // per group: of these, without a spare yet
	gen     []uint32
	spares  int
	encl    int // enclosures down
	enclBad []bool
	ctrl    int // controllers down
	srv     int // servers down
	losses  int
	down    [causes]float64
	// perEncl is how many disks one enclosure holds of a group, at most.
	perEncl int
}

func newBrick(f *Fleet) *brick {
	b := &brick{f: f, src: rand.NewPCG(0, 0), end: f.Years * HoursPerYear,
		failed: make([]int, f.Groups), waiting: make([]int, f.Groups), gen: make([]uint32, f.Groups), enclBad: make([]bool, f.Enclosures)}
	b.rng = rand.New(b.src)
	if b.perEncl = f.PerEnclosure; b.perEncl == 0 && f.Enclosures > 0 {
		b.perEncl = (f.Disks + f.Enclosures - 1) / f.Enclosures
	}
	return b
}

func (b *brick) exp(ratePerHour float64) float64 { return b.rng.ExpFloat64() / ratePerHour }

// push and pop keep the heap by time.
func (b *brick) push(e event) {
	if e.at > b.end {
		return
	}
	b.heap = append(b.heap, e)
	for i := len(b.heap) - 1; i > 0; {
		p := (i - 1) / 2
		if b.heap[p].at <= b.heap[i].at {
			break
		}
		b.heap[p], b.heap[i] = b.heap[i], b.heap[p]
		i = p
	}
}

func (b *brick) pop() event {
	e := b.heap[0]
	last := len(b.heap) - 1
	b.heap[0] = b.heap[last]
	b.heap = b.heap[:last]
	for i := 0; ; {
		c := 2*i + 1
		if c >= last {
			break
		}
		if c+1 < last && b.heap[c+1].at < b.heap[c].at {
			c++
		}
		if b.heap[i].at <= b.heap[c].at {
			break
		}
		b.heap[i], b.heap[c] = b.heap[c], b.heap[i]
		i = c
	}
	return e
}

// schedule draws the next event of a kind that happens at a yearly rate.
func (b *brick) schedule(kind eventKind, index int32, perYear float64) {
	if perYear > 0 {
		b.push(event{at: b.now + b.exp(perYear/HoursPerYear), kind: kind, index: index})
	}
}

// scheduleDisk draws a group's next disk failure; drawn anew whenever the
// number of working disks changes, which the exponential allows.
func (b *brick) scheduleDisk(g int) {
	working := b.f.Disks - b.failed[g]
	if b.lambda > 0 && working > 0 {
		b.gen[g]++
		b.push(event{at: b.now + b.exp(float64(working)*b.lambda), kind: evDiskFail, index: int32(g), gen: b.gen[g]})
	}
}

func (b *brick) run(index uint64, r *Result) {
	f := b.f
	b.src.Seed(f.Seed, index)
	b.now, b.heap, b.spares, b.encl, b.ctrl, b.srv, b.losses = 0, b.heap[:0], f.Spares, 0, 0, 0, 0
	b.down = [causes]float64{}
	clear(b.failed)
	clear(b.waiting)
	clear(b.enclBad)
	b.lambda = f.DiskAFR / HoursPerYear
	if f.BatchShare > 0 && b.rng.Float64() < f.BatchShare {
		b.lambda *= f.BatchFactor
	}
	for g := range f.Groups {
		b.scheduleDisk(g)
	}
	for e := range f.Enclosures {
		b.schedule(evEnclFail, int32(e), f.EnclosureAFR)
	}
	b.schedule(evCtrlFail, 0, 2*f.ControllerAFR)
	for s := range f.Servers {
		b.schedule(evSrvFail, int32(s), f.ServerAFR)
	}
	b.schedule(evPower, 0, f.PowerPerYear)
	for len(b.heap) > 0 {
		e := b.pop()
		if e.kind == evDiskFail && e.gen != b.gen[e.index] {
			continue // drawn for another number of disks
		}
		r.Events++
		b.account(e.at)
		b.now = e.at
		b.step(e, r)
	}
	b.account(b.end)
}

// account adds the time since the last event to the cause that keeps the
// brick down, the gravest first.
func (b *brick) account(until float64) {
	d := until - b.now
	switch f := b.f; {
	case b.enclosureOutage():
		b.down[CauseEnclosure] += d
	case b.ctrl >= 2:
		b.down[CauseController] += d
	case b.srv >= f.Servers:
		b.down[CauseServer] += d
	}
}

// enclosureOutage says whether enclosures that are down, with disks that
// have failed, take more of some group than it can miss. Failed disks are
// counted as if they lay in the other enclosures, which errs to the safe side.
func (b *brick) enclosureOutage() bool {
	if b.encl == 0 {
		return false
	}
	worst := 0
	for _, n := range b.failed {
		worst = max(worst, n)
	}
	return b.encl*b.perEncl+worst > b.f.Parity
}

func (b *brick) step(e event, r *Result) {
	f := b.f
	switch e.kind {
	case evDiskFail:
		g := int(e.index)
		r.DiskFailures++
		b.failed[g]++
		if b.failed[g] > f.Parity {
			b.lose(g, r, false)
			return
		}
		if b.failed[g] == f.Parity && b.latent(g) {
			// No redundancy left, and a sector that cannot be read.
			b.lose(g, r, true)
			return
		}
		if b.spares > 0 {
			b.spares--
			b.rebuild(g, r)
		} else {
			b.waiting[g]++
		}
		if f.Spares > 0 || f.ReplaceHours > 0 {
			b.push(event{at: b.now + f.ReplaceHours, kind: evSpareBack})
		} else { // replaced at once
			b.waiting[g]--
			b.rebuild(g, r)
		}
		b.scheduleDisk(g)
	case evSpareBack:
		// The new disk goes to the group that has waited with most failures.
		worst := -1
		for g, w := range b.waiting {
			if w > 0 && (worst < 0 || b.failed[g] > b.failed[worst]) {
				worst = g
			}
		}
		if worst < 0 {
			b.spares = min(b.spares+1, f.Spares)
			return
		}
		b.waiting[worst]--
		b.rebuild(worst, r)
	case evDiskBack:
		g := int(e.index)
		if b.failed[g] > 0 {
			b.failed[g]--
			b.scheduleDisk(g)
		}
	case evEnclFail:
		b.encl++
		b.push(event{at: b.now + f.EnclosureRepair, kind: evEnclBack, index: e.index})
	case evEnclBack:
		b.encl--
		b.schedule(evEnclFail, e.index, f.EnclosureAFR)
	case evCtrlFail:
		b.ctrl++
		b.push(event{at: b.now + f.ControllerRepair, kind: evCtrlBack})
		b.schedule(evCtrlFail, 0, float64(max(0, 2-b.ctrl))*f.ControllerAFR)
	case evCtrlBack:
		b.ctrl--
		if b.ctrl == 1 { // both were down: none was scheduled
			b.schedule(evCtrlFail, 0, f.ControllerAFR)
		}
	case evSrvFail:
		b.srv++
		b.push(event{at: b.now + f.ServerRepair, kind: evSrvBack, index: e.index})
		if f.Servers == 2 && b.srv == 1 {
			stall := f.FailoverSeconds / 3600
			if f.FailoverFails > 0 && b.rng.Float64() < f.FailoverFails {
				stall = f.HandHours
			}
			b.down[CauseFailover] += stall
		}
	case evSrvBack:
		b.srv--
		b.schedule(evSrvFail, e.index, f.ServerAFR)
	case evPower:
		b.down[CausePower] += math.Min(f.PowerHours, b.end-b.now)
		b.schedule(evPower, 0, f.PowerPerYear)
	}
}

// rebuild schedules the end of one disk's rebuild.
func (b *brick) rebuild(g int, r *Result) {
	r.Rebuilds++
	d := b.f.RebuildHours
	if b.f.ExpRebuild {
		d = b.rng.ExpFloat64() * d
	}
	b.push(event{at: b.now + d, kind: evDiskBack, index: int32(g)})
}

// latent draws whether any disk that is left has a latent sector error that
// no scrub has found yet: uniform time since the last scrub.
func (b *brick) latent(g int) bool {
	f := b.f
	if f.LatentPerYear == 0 || f.ScrubHours == 0 {
		return false
	}
	age := b.rng.Float64() * f.ScrubHours / HoursPerYear
	left := float64(f.Disks - b.failed[g])
	return b.rng.Float64() < -math.Expm1(-left*f.LatentPerYear*age)
}

// lose counts a loss; the group comes back whole after it was restored.
func (b *brick) lose(g int, r *Result, sector bool) {
	r.Losses++
	b.losses++
	if sector {
		r.SectorLosses++
	} else {
		b.down[CauseDataLoss] += math.Min(b.f.RestoreHours, b.end-b.now)
	}
	// Whole again: what was scheduled for the old disks is forgotten.
	b.failed[g], b.waiting[g] = 0, 0
	kept := b.heap[:0]
	for _, e := range b.heap {
		if e.kind == evDiskBack && int(e.index) == g {
			continue
		}
		kept = append(kept, e)
	}
	b.heap = b.heap[:0]
	for _, e := range kept {
		b.push(e)
	}
	b.scheduleDisk(g)
}

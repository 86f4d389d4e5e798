package forecast

import (
	"cmp"
	"context"
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
)

// Fleet describes a number of like bricks. All durations are in hours, all
// rates per year, unless the name says otherwise.
type Fleet struct {
	Bricks int     `json:"bricks"`
	Years  float64 `json:"years"`
	Seed   uint64  `json:"seed"`

	// Geometry of one brick.
	Groups     int `json:"groups"`     // RAID groups
	Disks      int `json:"disks"`      // disks of one group, parity included
	Parity     int `json:"parity"`     // disks of a group that may be gone
	Spares     int `json:"spares"`     // hot spares of a brick
	Enclosures int `json:"enclosures"` // enclosures a brick's groups are spread over evenly; 0: never fail
	// PerEnclosure is the most disks of a group in one enclosure; 0: as even
	// as Disks and Enclosures allow.
	PerEnclosure int `json:"per_enclosure"`
	// Arrays of which each must work, each with Controllers of which one must:
	// 1 x 2 for an array with two controllers, or a JBOD with two I/O modules;
	// 2 x 1 for two RAID cards. 0: never fail.
	Arrays      int `json:"arrays"`
	Controllers int `json:"controllers"`
	Servers     int `json:"servers"` // 1, or 2 for an HA pair
	// ActiveActive: each server of the pair serves half of the brick.
	ActiveActive bool `json:"active_active"`

	// Disks.
	DiskAFR       float64 `json:"disk_afr"`        // failures of one disk in a year (0.02: 2 %)
	BatchShare    float64 `json:"batch_share"`     // share of bricks whose disks come from a bad batch
	BatchFactor   float64 `json:"batch_factor"`    // how many times more often those fail
	RebuildHours  float64 `json:"rebuild_hours"`   // on a spare, or once the disk is replaced
	ReplaceHours  float64 `json:"replace_hours"`   // until a failed disk is replaced by hand
	LatentPerYear float64 `json:"latent_per_year"` // latent sector errors of one disk in a year
	ScrubHours    float64 `json:"scrub_hours"`     // time between two scrubs, which find and mend them; 0: never scrubbed
	ExpRebuild    bool    `json:"exp_rebuild"`     // rebuild times exponential (as in the Markov chain) instead of fixed
	RestoreHours  float64 `json:"restore_hours"`   // restoring a group from elsewhere after data loss

	// Everything else: failures in a year and hours to repair.
	EnclosureAFR     float64 `json:"enclosure_afr"`
	EnclosureRepair  float64 `json:"enclosure_hours"`
	ControllerAFR    float64 `json:"controller_afr"`
	ControllerRepair float64 `json:"controller_hours"`
	ServerAFR        float64 `json:"server_afr"`
	ServerRepair     float64 `json:"server_hours"`
	PowerPerYear     float64 `json:"power_per_year"` // whole site without power
	PowerHours       float64 `json:"power_hours"`
	FailoverSeconds  float64 `json:"failover_seconds"` // stall of clients at a failure of the server that serves them
	FailoverFails    float64 `json:"failover_fails"`   // share of failovers that need a hand
	HandHours        float64 `json:"hand_hours"`       // until the administrator has mended that
}

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

// MarshalJSON writes what is infinite as null: JSON has no infinity.
func (e Estimate) MarshalJSON() ([]byte, error) {
	p := func(x float64) *float64 {
		if math.IsInf(x, 0) || math.IsNaN(x) {
			return nil
		}
		return &x
	}
	return json.Marshal(struct {
		Mean *float64 `json:"mean"`
		Low  *float64 `json:"low"`
		High *float64 `json:"high"`
	}{p(e.Mean), p(e.Low), p(e.High)})
}

type Result struct {
	BrickYears   float64 `json:"brick_years"`
	DiskFailures int64   `json:"disk_failures"`
	Rebuilds     int64   `json:"rebuilds"`
	Failovers    int64   `json:"failovers"`
	Losses       int64   `json:"losses"`        // events in which data were lost
	SectorLosses int64   `json:"sector_losses"` // of these: sectors only, by latent errors in a group without redundancy
	BricksLost   int64   `json:"bricks_lost"`   // bricks with at least one loss
	// LossProbability of one brick over the whole time (Wilson interval).
	LossProbability Estimate `json:"loss_probability"`
	// MTTDLHours of one group, from all losses seen (Poisson interval); +Inf
	// if none was.
	MTTDLHours Estimate `json:"mttdl_hours"`
	// Unavailability of one brick, a share of time, over all causes.
	Unavailability Estimate `json:"unavailability"`
	// DownHours of a brick in a year, by cause.
	DownHours [causes]Estimate `json:"down_hours"`
	Events    int64            `json:"events"` // simulated events: the cost of the run
}

// Simulate runs every brick of the fleet through its years, one after the
// other: memory does not grow with the fleet. The same Fleet always gives
// the same Result. Simulate calls progress, unless it is nil, now and
// then with the number of bricks that are done. The rules of the spec, Coefficients.Set and the
// command refuse what cannot be simulated: the only error is that of ctx.
func Simulate(ctx context.Context, f Fleet, progress func(done int)) (Result, error) {
	var r Result
	var total welford
	var by [causes]welford
	b := newBrick(&f)
	for i := range f.Bricks {
		// Each time, as a brick with many events takes long.
		if err := ctx.Err(); err != nil {
			return Result{}, err
		}
		if i%1024 == 0 && progress != nil {
			progress(i)
		}
		b.run(uint64(i), &r)
		var down float64
		for c, h := range b.down {
			down += h
			by[c].add(h / f.Years)
		}
		total.add(math.Min(down/b.end, 1))
		if b.losses > 0 {
			r.BricksLost++
		}
	}
	n := float64(f.Bricks)
	r.BrickYears = n * f.Years
	for c := range r.DownHours {
		r.DownHours[c] = by[c].estimate()
	}
	r.Unavailability = total.estimate()
	r.LossProbability = wilson(float64(r.BricksLost), n)
	r.MTTDLHours = mttdl(float64(r.Losses), n*f.Years*HoursPerYear*float64(f.Groups))
	return r, nil
}

// welford keeps mean and variance of a stream of numbers.
// Source: B. P. Welford, Technometrics 4 (1962) 419.
type welford struct{ n, mean, m2 float64 }

func (w *welford) add(x float64) {
	w.n++
	d := x - w.mean
	w.mean += d / w.n
	w.m2 += d * (x - w.mean)
}

// estimate is the mean with its normal 95 % interval, which holds for the
// many bricks of a fleet; of a single one nothing is known.
func (w *welford) estimate() Estimate {
	if w.n < 2 {
		return Estimate{w.mean, 0, math.Inf(1)}
	}
	half := 1.96 * math.Sqrt(w.m2/(w.n-1)/w.n)
	return Estimate{w.mean, math.Max(0, w.mean-half), w.mean + half}
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
	index int32 // group, enclosure, array, server
	// gen is what the index's generation was when the event was drawn; if it
	// has changed since, the event is void.
	gen uint32
}

// brick is one brick's state; it is reused for the next.
type brick struct {
	f      *Fleet
	rng    *rand.Rand
	src    *rand.PCG
	now    float64
	end    float64
	events []event
	lambda float64 // per disk and hour, of this brick

	failed  []int    // per group: disks failed and not yet rebuilt
	waiting []int    // per group: of these, without a spare yet
	draw    []uint32 // per group: generation of its next disk failure
	life    []uint32 // per group: generation of its rebuilds; a restored group forgets them
	spares  int
	encl    int   // enclosures down
	ctrl    []int // per array: controllers down
	noCtrl  int   // arrays without a controller
	srv     int   // servers down
	srvDown [2]bool
	active  int // server that serves
	losses  int
	down    [causes]float64
	// perEncl is how many disks one enclosure holds of a group, at most.
	perEncl int
}

func newBrick(f *Fleet) *brick {
	b := &brick{f: f, src: rand.NewPCG(0, 0), end: f.Years * HoursPerYear,
		failed: make([]int, f.Groups), waiting: make([]int, f.Groups), draw: make([]uint32, f.Groups), life: make([]uint32, f.Groups), ctrl: make([]int, f.Arrays)}
	b.rng = rand.New(b.src)
	if b.perEncl = f.PerEnclosure; b.perEncl == 0 && f.Enclosures > 0 {
		b.perEncl = (f.Disks + f.Enclosures - 1) / f.Enclosures
	}
	return b
}

func (b *brick) exp(ratePerHour float64) float64 { return b.rng.ExpFloat64() / ratePerHour }

// push keeps the events by time, the next one last: there are some dozens of them.
func (b *brick) push(e event) {
	if e.at > b.end {
		return
	}
	i, _ := slices.BinarySearchFunc(b.events, e.at, func(o event, at float64) int { return cmp.Compare(at, o.at) })
	b.events = slices.Insert(b.events, i, e)
}

// schedule draws the next event of a kind that happens at a yearly rate.
func (b *brick) schedule(kind eventKind, index int, perYear float64) {
	if perYear > 0 {
		b.push(event{at: b.now + b.exp(perYear/HoursPerYear), kind: kind, index: int32(index)})
	}
}

// scheduleDisk draws a group's next disk failure; drawn anew whenever the
// number of working disks changes, which the exponential allows.
func (b *brick) scheduleDisk(g int) {
	working := b.f.Disks - b.failed[g]
	b.draw[g]++
	if b.lambda > 0 && working > 0 {
		b.push(event{at: b.now + b.exp(float64(working)*b.lambda), kind: evDiskFail, index: int32(g), gen: b.draw[g]})
	}
}

func (b *brick) run(index uint64, r *Result) {
	f := b.f
	b.src.Seed(f.Seed, index)
	b.now, b.events, b.spares, b.encl, b.noCtrl, b.srv, b.losses, b.active = 0, b.events[:0], f.Spares, 0, 0, 0, 0, 0
	b.srvDown = [2]bool{}
	b.down = [causes]float64{}
	clear(b.failed)
	clear(b.waiting)
	clear(b.ctrl)
	b.lambda = f.DiskAFR / HoursPerYear
	if f.BatchShare > 0 && b.rng.Float64() < f.BatchShare {
		b.lambda *= f.BatchFactor
	}
	for g := range f.Groups {
		b.scheduleDisk(g)
	}
	for e := range f.Enclosures {
		b.schedule(evEnclFail, e, f.EnclosureAFR)
	}
	for a := range f.Arrays {
		for range f.Controllers {
			b.schedule(evCtrlFail, a, f.ControllerAFR)
		}
	}
	for s := range f.Servers {
		b.schedule(evSrvFail, s, f.ServerAFR)
	}
	b.schedule(evPower, 0, f.PowerPerYear)
	for n := len(b.events); n > 0; n = len(b.events) {
		e := b.events[n-1]
		b.events = b.events[:n-1]
		switch {
		case e.kind == evDiskFail && e.gen != b.draw[e.index]:
			continue // drawn for another number of disks
		case e.kind == evDiskBack && e.gen != b.life[e.index]:
			continue // the group was restored meanwhile
		}
		r.Events++
		b.account(e.at)
		b.now = e.at
		b.step(e, r)
	}
	b.account(b.end)
}

// account adds the time since the last event to the cause that keeps the
// brick down; where several do, to the first in this order.
func (b *brick) account(until float64) {
	d := until - b.now
	switch {
	case b.enclosureOutage():
		b.down[CauseEnclosure] += d
	case b.noCtrl > 0:
		b.down[CauseController] += d
	case b.srv >= b.f.Servers:
		b.down[CauseServer] += d
	}
}

// enclosureOutage says whether enclosures that are down, with disks that
// have failed, take more of some group than it can miss. Failed disks are
// counted as if they lay in the other enclosures, which errs to the safe side.
// Nothing is lost by it: the disks come back with their enclosure.
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
	i := int(e.index)
	switch e.kind {
	case evDiskFail:
		r.DiskFailures++
		b.failed[i]++
		if b.failed[i] > f.Parity {
			b.lose(i, r)
			return
		}
		if b.failed[i] == f.Parity && b.latent(i) {
			// No redundancy is left, and the rebuild comes to a sector that cannot
			// be read: its data is lost, the rest of the group is not.
			r.Losses++
			r.SectorLosses++
			b.losses++
		}
		switch {
		case b.spares > 0:
			b.spares--
			b.rebuild(i, r)
			b.push(event{at: b.now + f.ReplaceHours, kind: evSpareBack})
		case f.Spares > 0 || f.ReplaceHours > 0:
			b.waiting[i]++
			b.push(event{at: b.now + f.ReplaceHours, kind: evSpareBack})
		default: // replaced at once
			b.rebuild(i, r)
		}
		b.scheduleDisk(i)
	case evSpareBack:
		// The new disk goes to the group that has lost most and waits.
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
		b.failed[i]--
		b.scheduleDisk(i)
	case evEnclFail:
		b.encl++
		b.push(event{at: b.now + f.EnclosureRepair, kind: evEnclBack, index: e.index})
	case evEnclBack:
		b.encl--
		b.schedule(evEnclFail, i, f.EnclosureAFR)
	case evCtrlFail:
		if b.ctrl[i]++; b.ctrl[i] == f.Controllers {
			b.noCtrl++
		}
		b.push(event{at: b.now + f.ControllerRepair, kind: evCtrlBack, index: e.index})
	case evCtrlBack:
		if b.ctrl[i] == f.Controllers {
			b.noCtrl--
		}
		b.ctrl[i]--
		b.schedule(evCtrlFail, i, f.ControllerAFR)
	case evSrvFail:
		b.srv++
		b.srvDown[i] = true
		b.push(event{at: b.now + f.ServerRepair, kind: evSrvBack, index: e.index})
		if f.Servers == 2 && !b.srvDown[1-i] && (i == b.active || f.ActiveActive) {
			b.failover(i, r)
		}
	case evSrvBack:
		b.srv--
		b.srvDown[i] = false
		if b.srvDown[b.active] { // the other is still away
			b.active = i
		}
		b.schedule(evSrvFail, i, f.ServerAFR)
	case evPower:
		b.down[CausePower] += math.Min(f.PowerHours, b.end-b.now)
		b.schedule(evPower, 0, f.PowerPerYear)
	}
}

// failover moves what server i served to the other.
func (b *brick) failover(i int, r *Result) {
	f := b.f
	r.Failovers++
	b.active = 1 - i
	stall := f.FailoverSeconds / 3600
	if f.FailoverFails > 0 && b.rng.Float64() < f.FailoverFails {
		stall = math.Min(f.HandHours, f.ServerRepair)
	}
	if f.ActiveActive { // half of the brick waits
		stall /= 2
	}
	b.down[CauseFailover] += math.Min(stall, b.end-b.now)
}

// rebuild schedules the end of one disk's rebuild.
func (b *brick) rebuild(g int, r *Result) {
	r.Rebuilds++
	d := b.f.RebuildHours
	if b.f.ExpRebuild {
		d = b.rng.ExpFloat64() * d
	}
	b.push(event{at: b.now + d, kind: evDiskBack, index: int32(g), gen: b.life[g]})
}

// latent draws whether any disk that is left has a latent sector error that
// no scrub has found yet: a uniform time since the last scrub, or all the
// time so far if no scrub runs.
func (b *brick) latent(g int) bool {
	f := b.f
	if f.LatentPerYear == 0 {
		return false
	}
	age := b.now
	if f.ScrubHours > 0 {
		age = math.Min(age, b.rng.Float64()*f.ScrubHours)
	}
	left := float64(f.Disks - b.failed[g])
	return b.rng.Float64() < -math.Expm1(-left*f.LatentPerYear*age/HoursPerYear)
}

// lose counts the loss of a group; it comes back whole after it was restored.
func (b *brick) lose(g int, r *Result) {
	r.Losses++
	b.losses++
	b.down[CauseDataLoss] += math.Min(b.f.RestoreHours, b.end-b.now)
	b.failed[g], b.waiting[g] = 0, 0
	b.life[g]++
	b.scheduleDisk(g)
}

// Package drill breaks a brick under verified load and judges how it took it:
// the table of drills, the flow of one (health, load, fault, watch, heal,
// read back, verdict), what the cluster's logs mean, and the rules of the
// verdict. It reaches hosts only through the agent and breaks things only
// through an Injector; it knows neither QEMU nor IPMI, and it makes no load
// of its own (package workload does) and no page (package report does).
package drill

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/run/observe"
	"github.com/mortarhpc/mortar/internal/run/scrub"
)

// Injector breaks and mends hardware. The engine calls from one goroutine at
// a time. Heal must work whether or not Inject did, and more than once: it
// brings what was hit back to how it was, a server powered on and running.
type Injector interface {
	// Can says why a fault cannot be injected here; nil: it can.
	Can(f Fault) error
	Inject(ctx context.Context, f Fault) error
	Heal(ctx context.Context, f Fault) error
}

// Operator does what an administrator does by command.
type Operator interface {
	// Move moves a service and returns when it runs there.
	Move(ctx context.Context, service, to string) error
	// Standby puts a server in standby, or ends that, and waits for it.
	Standby(ctx context.Context, node string, on bool) error
	// ConfirmOff tells the cluster that a person has seen a server to be off.
	ConfirmOff(ctx context.Context, node string) error
	// Scrub checks a RAID group and mends it.
	Scrub(ctx context.Context, g design.Group) (scrub.Group, error)
	// Status is what `mortar status` finds.
	Status(ctx context.Context) (*observe.Status, error)
}

// Drill is one entry of the table: what is broken and what must then happen.
type Drill struct {
	Name     string
	Title    string
	Variants []Variant // the first is the default
	Expect   Expect
}

// Place is where the service must be in the end.
type Place string

// Places.
const (
	Stays    Place = "stays"
	Moves    Place = "moves"    // to the other server
	Anywhere Place = "anywhere" // on one of the two
)

// Fencing is who must or may be fenced.
type Fencing string

// Fencing, from none to all.
const (
	Nobody Fencing = "nobody"
	Victim Fencing = "victim" // the server that was hit, before the service starts elsewhere
	Allow  Fencing = "allow"  // nobody has to be, anybody may be
)

// Expect is what must happen. The verdict rests on it, and on what holds for
// every drill: nothing lost, locks kept, no error seen, never mounted on two
// servers, every worker goes on, health restored.
type Expect struct {
	Where   Place
	Fencing Fencing
	// Stall is the longest stall aimed at, in seconds; negative: none. It is
	// reported beside the figure and is no part of the verdict: a slow answer
	// is not a wrong one, and a rack's processors are no measure of a server's.
	Stall float64
	// Disks: the drill takes disks or paths away, so health includes them:
	// every array whole and in sync, before and after.
	Disks bool
	// Within is how long every worker may take to go on; 0: Options.Recover.
	Within time.Duration
	// Wakes: the server that was hit wakes up with the volume still mounted.
	Wakes bool
	// Tolerate are errors clients must expect, by name, e.g. ENOSPC.
	Tolerate []string
}

// Variant is a way to do a drill.
type Variant struct {
	How   string
	Title string
	// Steps gives what is done, one after the other. An error says why the
	// drill cannot be done with this brick.
	Steps func(s Scene) ([]Step, error)
	// Expect replaces that of the drill.
	Expect *Expect
	// Append: a worker of each mount appends instead of overwriting, so that
	// there is data that nobody touches again.
	Append bool
	// Rewrite: a worker of each mount writes a small file over and over, so that
	// the server always has data in memory that is not on the disks.
	Rewrite bool
	// Away: the service must not be on its preferred server when it begins.
	Away bool
	// Home: in a matrix it must be there.
	Home bool
	// Schedule is what the steps were drawn as; nil: they were not.
	Schedule *Schedule
}

// Expected is what a variant of a drill must lead to.
func (d Drill) Expected(v Variant) Expect {
	if v.Expect != nil {
		return *v.Expect
	}
	return d.Expect
}

// Scene is where a drill plays.
type Scene struct {
	Design  *design.Design
	Service *design.Service
	Active  string // server that the service runs on
	Passive string // the other one
	// Group is a RAID group of the service, Members the serials of the disks
	// that are in it now.
	Group   design.Group
	Members []string
}

// Step is one thing done in a drill.
type Step struct {
	Fault Fault // the zero Fault: nothing is done
	Mend  bool  // mend it instead
	Try   bool  // that it cannot be done is noted, and ends nothing
	// Prepare: the clock of the drill starts with the first step without.
	Prepare bool
	// Keep: writers keep what they have written until now, and go on elsewhere. A
	// drill without such a step has them do so at the fault.
	Keep  bool
	Wait  time.Duration // then wait so long
	Until *Condition    // then wait for this
	Look  bool          // then note what `mortar status` says
}

// Condition is what a drill waits for. If it does not come in time, the drill fails
// and goes on.
type Condition struct {
	What  string // name of the check
	Limit time.Duration
	// Look says whether the condition holds, and what there is.
	Look func(ctx context.Context, v *View) (seen bool, detail string)
}

// Find gives a drill and its variant by name; how "" is the default variant.
func Find(name, how string) (Drill, Variant, error) {
	var names []string
	for _, d := range Table {
		if d.Name != name {
			names = append(names, d.Name)
			continue
		}
		var hows []string
		for i, v := range d.Variants {
			if v.How == how || how == "" && i == 0 {
				return d, v, nil
			}
			hows = append(hows, v.How)
		}
		return Drill{}, Variant{}, fmt.Errorf("drill %s has no variant %q; use --how %s", name, how, strings.Join(hows, ", --how "))
	}
	return Drill{}, Variant{}, fmt.Errorf("no drill %q; there are: %s (mortar drill --list)", name, strings.Join(names, ", "))
}

// Env is what a drill works with.
type Env struct {
	Design   *design.Design
	Dial     host.Dial
	Injector Injector
	Operator Operator
	Service  string // the one the drills are about; "": the design's first
	Virtual  bool   // a virtual rack
	Version  string // of mortar
	// Progress is told what happens, in words, as it happens; may be nil.
	// It is called from several goroutines, one at a time.
	Progress func(text string)
}

// Options of a run.
type Options struct {
	Dir     string        // where the run is written
	Steady  time.Duration // load before the fault
	After   time.Duration // load after every worker goes on again
	Recover time.Duration // how long to wait for that
	Rejoin  time.Duration // how long the healed server may take to rejoin
	// Thorough: what was broken is healed only when `mortar status` finds no
	// fault at all, not when the cluster is whole.
	Thorough bool
	Rate     float64 // operations per second of each writer; 0: 8 on a virtual rack, else unlimited

	verifyDir string // on clients, for the mounts data is read back through
}

// WithDefaults fills what is zero.
func (o Options) WithDefaults(virtual bool) Options {
	for _, f := range []struct {
		v   *time.Duration
		def time.Duration
	}{{&o.Steady, 12 * time.Second}, {&o.After, 8 * time.Second}, {&o.Recover, 4 * time.Minute}, {&o.Rejoin, 6 * time.Minute}} {
		if *f.v == 0 {
			*f.v = f.def
		}
	}
	if o.verifyDir == "" {
		o.verifyDir = "/run/mortar"
	}
	if o.Rate == 0 && virtual {
		// Emulated servers share the machine's few cores with the load: at
		// full speed the drill would measure how long the cluster waits for
		// a processor.
		o.Rate = 8
	}
	return o
}

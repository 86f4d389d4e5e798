// Package drill breaks a brick under verified load and judges the brick's
// reaction. It has the table of drills, the flow of a drill (health, load, fault,
// watch, heal, read back, verdict), the meaning of the cluster's logs, and the
// rules of the verdict. It reaches hosts only through the agent and breaks
// hardware only through an Injector; it knows neither QEMU nor IPMI. Package
// workload makes the load, package report the pages.
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

// Injector breaks and mends hardware. The engine calls it from one goroutine at a
// time. Heal restores the hardware to its state before the fault, with servers
// powered on and running. It must work even if Inject failed, and several times.
type Injector interface {
	// Can returns why it is impossible to inject a fault here, nil if it is
	// possible.
	Can(f Fault) error
	Inject(ctx context.Context, f Fault) error
	Heal(ctx context.Context, f Fault) error
}

// Operator runs the commands of an administrator.
type Operator interface {
	// Move moves a service to a server and waits until it runs there.
	Move(ctx context.Context, service, to string) error
	// Standby puts a server in standby or ends its standby, and waits for the
	// effect.
	Standby(ctx context.Context, node string, on bool) error
	// ConfirmOff tells the cluster that a person has seen that a server is off.
	ConfirmOff(ctx context.Context, node string) error
	// Scrub checks a RAID group and repairs it.
	Scrub(ctx context.Context, g design.Group) (scrub.Group, error)
	// Command runs a mortar command on the brick's spec, as an administrator types it:
	// its name, and what follows the spec. It returns the design of the spec as it is
	// after that, also with an error if there is one; later methods use that design.
	Command(ctx context.Context, name string, args ...string) (*design.Design, error)
	// Status returns what `mortar status` finds.
	Status(ctx context.Context) (*observe.Status, error)
}

// Drill is one entry of the table: what it breaks and what must then happen.
type Drill struct {
	Name     string
	Title    string
	Variants []Variant // the first is the default
	Expect   Expect
	// Lasting is what of the brick stays changed; "": nothing. Choose takes such a
	// drill only if it is named.
	Lasting string
}

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
	Nobody Fencing = "nobody"
	Victim Fencing = "victim" // the cluster fences the server with the fault before the service starts elsewhere
	Allow  Fencing = "allow"  // the cluster may fence any server
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
	// Within is the time limit for every worker to go on; Options.Recover if
	// that is longer.
	Within time.Duration
	// Wakes: the server that freezes wakes up with the volume still mounted. Sessions with it
	// are kept, so that no sign of it is missed.
	Wakes bool
	// Tolerate are errors clients must expect, by name, e.g. ENOSPC.
	Tolerate []string
}

// Variant is a way to carry out a drill.
type Variant struct {
	How   string
	Title string
	// Steps returns the steps of the drill in order. An error says why the drill
	// is impossible with this brick.
	Steps func(s Scene) ([]Step, error)
	// Expect replaces that of the drill.
	Expect *Expect
	// Append: a worker on each mount appends instead of overwriting, so that
	// some data stays as it is.
	Append bool
	// Rewrite: a worker on each mount rewrites a small file all the time, so that
	// the server always has dirty data in memory.
	Rewrite bool
	// Away: the service must not be on its preferred server at the start.
	Away bool
	// Home: in a matrix, the service must be on its preferred server at the
	// start.
	Home bool
	// ClientDies: the first client dies. Its load ends with it; what it had
	// acknowledged is read back once it has booted.
	ClientDies bool
	// Second: the drill is about a service of the other role too: of an MDS and an
	// OSS. Both must do what Expect says.
	Second bool
	// Schedule is the random schedule of the steps; nil: they are not random.
	Schedule *Schedule
}

// Expected is the Expect of a variant of the drill.
func (d Drill) Expected(v Variant) Expect {
	if v.Expect != nil {
		return *v.Expect
	}
	return d.Expect
}

// Scene is what the steps of a drill work on.
type Scene struct {
	Design  *design.Design
	Service *design.Service
	Active  string // server that the service runs on
	Passive string // the other one
	// Second is the server of the service on another pair, for a drill with
	// Variant.Second.
	Second string
	// Group is a RAID group of the service, Members the serials of its present
	// disks.
	Group   design.Group
	Members []string
}

// Step is one step of a drill.
type Step struct {
	Fault Fault // the zero Fault: the step injects nothing
	Mend  bool  // mend the fault instead of injecting it
	Back  bool  // of Mend: then do beside the next steps what remains to be done, which else heal does
	Try   bool  // after an error note it and go on
	// Prepare: the step comes before the clock of the drill starts.
	Prepare bool
	// Keep: writers leave the data written so far as it is, and go on behind it.
	// Without such a step they do so at each fault.
	Keep   bool
	At     time.Duration // not before so long after the fault
	Beside bool          // the next steps do not wait for this one
	Wait   time.Duration // then wait this long
	Until  *Condition    // then wait for this condition
	Look   bool          // then record the findings of `mortar status`
}

// Condition is what a drill waits for. If it is not met within Limit, the drill
// fails but goes on.
type Condition struct {
	What  string // name of the check
	Limit time.Duration
	// Sign: it is by the fault that the condition is met, so a brick where it is met
	// before the fault is refused.
	Sign bool
	// Look reports whether the condition is met, and describes what it saw.
	Look func(ctx context.Context, v *View) (seen bool, detail string)
}

// Find returns a drill and its variant by name; how "" is the default variant.
// An unknown name is an error.
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
	return Drill{}, Variant{}, fmt.Errorf("no drill %q; there are: %s (mortar drill list)", name, strings.Join(names, ", "))
}

// Env is the environment of a drill.
type Env struct {
	Design   *design.Design
	Dial     host.Dial
	Excused  *host.Excused // of the sessions that Dial opens; may be nil
	Injector Injector
	Operator Operator
	Service  string // the service under test; "": the design's first
	Virtual  bool   // a virtual rack
	Version  string // of mortar
	// Restore puts the brick into its state before any fault. Random calls it before
	// each drill, so that no drill depends on an earlier one; nil: the brick stays as
	// the drill before has left it.
	Restore func(ctx context.Context) error
	// Progress receives a text for each event of the drill. Drills call it from
	// several goroutines, one at a time. It may be nil.
	Progress func(text string)
}

// Options of a run.
type Options struct {
	Dir     string        // directory to write the run to
	Steady  time.Duration // duration of the load before the fault
	After   time.Duration // duration of the load after every worker goes on again
	Recover time.Duration // time limit for every worker to go on again
	Rejoin  time.Duration // time limit for the healed server to rejoin the cluster
	// Thorough: the brick counts as healed only when `mortar status` finds no
	// fault at all, not already when the cluster is whole.
	Thorough bool
	Rate     float64 // operations per second of each writer; 0: 8 on a virtual rack, else unlimited

	verifyDir string // directory on clients for the mounts of the verification
}

// WithDefaults sets the defaults of options that are zero.
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
		// Emulated servers share the machine's few cores with the load. At full
		// speed the drill would measure how long the cluster waits for a core.
		o.Rate = 8
	}
	return o
}

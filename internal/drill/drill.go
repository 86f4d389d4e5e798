// Package drill breaks a brick under verified load and judges how it took it:
// the table of drills, the flow of one (health, load, fault, watch, heal,
// read back, verdict), what the cluster's logs mean, and the rules of the
// verdict. It reaches hosts only through the agent and breaks things only
// through an Injector; it knows neither QEMU nor IPMI, and it makes no load
// of its own (package workload does) and no page (package report does).
package drill

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/mortarhpc/mortar/internal/design"
)

// Kind of a fault: what is broken. An Injector says which it can do.
type Kind string

// Kinds of faults.
const (
	Freeze   Kind = "freeze"    // the server stops executing; its power stays on
	Panic    Kind = "panic"     // its kernel panics
	PowerOff Kind = "power-off" // it loses power at once
)

// Who a fault hits.
const (
	Active  = "active"  // the server the service runs on
	Passive = "passive" // the other one
)

// Fault is one thing to break.
type Fault struct {
	Kind Kind
	On   string // Active or Passive
	Arg  string // which of the server's parts, for kinds that break a part
}

func (f Fault) String() string { return strings.TrimSpace(string(f.Kind) + " " + f.Arg) }

// Injector breaks and mends hardware; target is a server's name. The engine
// calls from one goroutine at a time. Heal must work whether or not Inject
// did, and more than once: it brings the target back to how it was, powered
// on and running.
type Injector interface {
	// Can says why a fault cannot be injected here; nil: it can.
	Can(f Fault) error
	Inject(ctx context.Context, f Fault, target string) error
	Heal(ctx context.Context, f Fault, target string) error
}

// Host is a session with one host's agent, as host.Host gives it.
type Host interface {
	Call(ctx context.Context, op string, params, result any, onEvent func(json.RawMessage)) error
	Close()
}

// Drill is one entry of the table: what is broken and what must then happen.
type Drill struct {
	Name     string
	Title    string
	Variants []Variant // the first is the default
	// Moves: the service must run on the other server afterwards.
	Moves bool
	// Fences: the server that was hit must be fenced, and before the
	// service starts elsewhere.
	Fences bool
}

// Variant is a way to do a drill.
type Variant struct {
	How    string
	Title  string
	Faults []Fault
}

// Table lists every drill.
var Table = []Drill{
	{
		Name: "server-crash", Title: "the active server dies; its partner fences it and takes over", Moves: true, Fences: true,
		Variants: []Variant{
			{"freeze", "it stops executing, as with hanging hardware; it may come back any moment, so only fencing makes the take-over safe", []Fault{{Kind: Freeze, On: Active}}},
			{"panic", "its kernel panics", []Fault{{Kind: Panic, On: Active}}},
			{"power", "it loses power at once", []Fault{{Kind: PowerOff, On: Active}}},
		},
	},
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
	Dial     func(ctx context.Context, host string) (Host, error)
	Injector Injector
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
	Rate    float64       // operations per second of each writer; 0: 8 on a virtual rack, else unlimited

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

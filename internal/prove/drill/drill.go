// Package drill breaks a brick under verified load and judges the brick's
// reaction. It has the table of drills, the flow of a drill (health, load, fault,
// watch, heal, read back, verdict), the meaning of the cluster's logs, and the
// rules of the verdict. It reaches hosts only through the agent and breaks
// hardware only through an Injector; it knows neither QEMU nor IPMI. Package
// workload makes the load, package report the pages.
package drill

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/prove/fault"
	"github.com/mortarhpc/mortar/internal/prove/judge"
)

// Drill is one entry of the table: what it breaks and what must then happen.
type Drill struct {
	Name     string
	Title    string
	Variants []Variant // the first is the default
	// has tells whether a brick has what the drill breaks; nil: each has.
	has func(d *design.Design) bool
	// ownDisks: the disks that it breaks are not those of a RAID controller inside the server.
	ownDisks bool
	Expect   judge.Expect
	// Lasting is what of the brick stays changed; "": nothing. Choose takes such a
	// drill only if it is named.
	Lasting string
}

// Variant is a way to carry out a drill.
type Variant struct {
	How   string
	Title string
	// has is that of the drill, for this variant only.
	has func(d *design.Design) bool
	// Steps returns the steps of the drill in order. An error says why the drill
	// is impossible with this brick.
	Steps func(s fault.Scene) ([]Step, error)
	// Expect replaces that of the drill.
	Expect *judge.Expect
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
func (d Drill) Expected(v Variant) judge.Expect {
	if v.Expect != nil {
		return *v.Expect
	}
	return d.Expect
}

// Find returns a drill and its variant by name; how "" is the default variant.
// An unknown name is an error.
func Find(name, how string) (Drill, Variant, error) {
	var names, hows []string
	for _, d := range Table {
		names = append(names, d.Name)
		for i, v := range d.Variants {
			switch {
			case d.Name != name:
			case v.How == how || how == "" && i == 0:
				return d, v, nil
			default:
				hows = append(hows, v.How)
			}
		}
	}
	if len(hows) > 0 {
		return Drill{}, Variant{}, fmt.Errorf("drill %s has no variant %q; use --how %s", name, how, strings.Join(hows, ", --how "))
	}
	return Drill{}, Variant{}, fmt.Errorf("no drill %q; there are: %s (mortar drill list)", name, strings.Join(names, ", "))
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
		*f.v = cmp.Or(*f.v, f.def)
	}
	o.verifyDir = cmp.Or(o.verifyDir, "/run/mortar")
	if o.Rate == 0 && virtual {
		// Emulated servers share the machine's few cores with the load. At full
		// speed the drill would measure how long the cluster waits for a core.
		o.Rate = 8
	}
	return o
}

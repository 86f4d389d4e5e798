package observe

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/brick/design"
)

// A fence test records its results as attributes of the fenced node in the CIB.
// There both servers have them, they survive a server's replacement, and they
// vanish with the cluster that they describe.
const (
	// AttrTesting is set while a fence test of the node is under way: the node may
	// be off, and the topology may lack a level. Its value is TestingStandby if the
	// test put the node in standby, else TestingPlain.
	AttrTesting    = "mortar-fence-test"
	TestingPlain   = "fenced"
	TestingStandby = "standby"
)

// ProofAttr is the attribute with a level's Proof.
func ProofAttr(level int) string { return "mortar-fence-proven-" + strconv.Itoa(level) }

// Proof records that a fence level of a node has worked.
type Proof struct {
	At      time.Time
	Seconds float64 // from the command to the cluster's report of success
	// Fingerprint of the level at that time, see design.FenceLevel.
	Fingerprint string
}

// String is the attribute's value.
func (p Proof) String() string {
	return fmt.Sprintf("%s %.1fs %s", p.At.UTC().Format(time.RFC3339), p.Seconds, p.Fingerprint)
}

// ParseProof parses the output of String.
func ParseProof(s string) (Proof, error) {
	var p Proof
	f := strings.Fields(s)
	if len(f) != 3 {
		return p, fmt.Errorf("proof of fencing %q: want time, seconds and fingerprint", s)
	}
	var err error
	if p.At, err = time.Parse(time.RFC3339, f[0]); err != nil {
		return p, fmt.Errorf("proof of fencing: %w", err)
	}
	if p.Seconds, err = strconv.ParseFloat(strings.TrimSuffix(f[1], "s"), 64); err != nil {
		return p, fmt.Errorf("proof of fencing: %w", err)
	}
	p.Fingerprint = f[2]
	return p, nil
}

// ProofOf returns the recorded proof of a level, nil if there is none or it cannot
// be parsed.
func ProofOf(c *linux.CIB, node string, level int) *Proof {
	p, err := ParseProof(c.Attr(node, ProofAttr(level)))
	if err != nil {
		return nil
	}
	return &p
}

// Unproven returns the fence levels without a proof for their configuration in the
// design.
func Unproven(d *design.Design, c *linux.CIB) []*design.FenceLevel {
	var out []*design.FenceLevel
	for _, l := range d.Fencing() {
		if p := ProofOf(c, l.Node, l.Level); p == nil || p.Fingerprint != l.Fingerprint() {
			out = append(out, l)
		}
	}
	return out
}

// FenceProblems returns why the cluster cannot use the fence levels of a node:
// devices fail or are not registered, levels are not configured.
func FenceProblems(d *design.Design, f Facts, node string) []string {
	v := ha{newView(d, d.PairWith(node), f)}
	if v.crm == nil {
		return []string{"no server's cluster answers"}
	}
	var out []string
	if !v.crm.Options.Stonith {
		out = append(out, "fencing is switched off (stonith-enabled)")
	}
	for _, l := range v.pair.HA.Levels(node) {
		for _, p := range v.devices(l) {
			if p.Level == Fault {
				out = append(out, p.Text)
			}
		}
		if v.cib != nil && !HasLevel(v.cib, l) {
			out = append(out, fmt.Sprintf("level %d of fencing %s is not in the cluster's configuration", l.Level, node))
		}
	}
	return out
}

// aged reports whether a proof is older than the design accepts. An administrator may have
// moved cables or changed passwords since.
func (v ha) aged(p *Proof) bool {
	days := v.pair.HA.FenceTestDays
	return days > 0 && v.now.Sub(p.At) > time.Duration(days)*24*time.Hour
}

// proven adds the proven fence levels of a node with the time of the proof, and a
// warning for the others.
func (v ha) proven(c *Part, node string, history time.Time) {
	levels := v.pair.HA.Levels(node)
	var never []*design.FenceLevel
	for _, l := range levels {
		ids := strings.Join(l.IDs(), " + ")
		p := ProofOf(v.cib, node, l.Level)
		switch {
		case p == nil:
			never = append(never, l)
		case p.Fingerprint != l.Fingerprint():
			c.find(fmt.Sprintf("level %d", l.Level), "fencing-changed", with{"level": l.Level, "host": node, "devices": ids, "time": v.clock(p.At)})
		case v.aged(p):
			c.find(fmt.Sprintf("level %d", l.Level), "fencing-aged", with{"level": l.Level, "host": node, "devices": ids, "time": v.clock(p.At), "days": v.pair.HA.FenceTestDays})
		default:
			c.add(fmt.Sprintf("level %d", l.Level), "%s proven %s: done in %.1f s", ids, v.clock(p.At), p.Seconds)
		}
	}
	switch {
	case len(never) == len(levels) && history.IsZero():
		c.find("history", "fencing-unproven", with{"host": node})
	case len(never) == len(levels):
		c.find("history", "fencing-levels-unproven", with{"host": node, "time": v.clock(history)})
	default:
		for _, l := range never {
			c.find(fmt.Sprintf("level %d", l.Level), "fencing-level-unproven", with{"level": l.Level, "host": node, "devices": strings.Join(l.IDs(), " + ")})
		}
	}
	if t := v.cib.Attr(node, AttrTesting); t != "" {
		c.find("fence test", "fence-test-unfinished", with{"host": node})
	}
}

package failover

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mortarhpc/mortar/internal/base/journal"
	"github.com/mortarhpc/mortar/internal/base/lists"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/converge/plan"
	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/host/agent"
	"github.com/mortarhpc/mortar/internal/host/gather"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/run/observe"
)

const (
	powerOn  = "on"
	powerOff = "off"
	// noAnswer: the BMC has no power either, or cannot be reached.
	noAnswer = "no answer"
)

// chassis is the state of a server's power as its BMC reports it, with the BMC's
// own words.
type chassis struct{ state, said string }

// bmc is the fence device that is a node's BMC.
func (t *tester) bmc(node string) *design.FenceDevice {
	for _, l := range t.d.Levels(node) {
		for i := range l.Devices {
			if l.Devices[i].BMC() {
				return &l.Devices[i]
			}
		}
	}
	return nil
}

// power asks a node's BMC for the state of its power, from another server. It uses
// ipmitool, since the fence agent is under test.
func (t *tester) power(ctx context.Context, via, node string) (chassis, error) {
	b := t.bmc(node)
	if b == nil {
		return t.asked(ctx, via, t.d.Levels(node)[0].Devices[0].ID)
	}
	// One try of 2 s and one retry find a dead BMC soon. Callers that need an
	// answer ask again.
	argv := slices.Concat([]string{"ipmitool", "-I", "lanplus", "-N", "2", "-R", "1"}, plan.IPMIAccess(b), []string{"chassis", "power", "status"})
	out, err := t.h.Session(via).Query(ctx, argv...)
	if err != nil {
		return chassis{}, fmt.Errorf("%s: %w", via, err)
	}
	return chassisOf(out), nil
}

// asked is the power of a server without an IPMI controller, as the agent of a fence device reports it.
func (t *tester) asked(ctx context.Context, via, device string) (chassis, error) {
	h, err := host.Ask(ctx, t.h.Session(via), gather.Op, gather.Request{Outlets: []gather.OutletAsk{{Device: device}}, TimeoutMS: int(askedTime.Milliseconds())})
	if err != nil {
		return chassis{}, fmt.Errorf("%s: %w", via, err)
	}
	switch {
	case len(h.Outlets) != 1:
		return chassis{noAnswer, "nothing is known of " + device}, nil
	case h.Outlets[0].Err != "":
		return chassis{noAnswer, h.Outlets[0].Err}, nil
	case h.Outlets[0].On:
		return chassis{powerOn, device + " says on"}, nil
	}
	return chassis{powerOff, device + " says off"}, nil
}

// askedTime bounds the question to a fence agent.
const askedTime = 15 * time.Second

// chassisOf reads the output of ipmitool(1): "Chassis Power is on", or off.
func chassisOf(out resource.Output) chassis {
	said := strings.TrimSpace(out.Stdout + out.Stderr)
	if out.Code == 0 {
		switch _, s, _ := strings.Cut(strings.TrimSpace(out.Stdout), "Power is "); s {
		case powerOn, powerOff:
			return chassis{s, said}
		}
	}
	return chassis{noAnswer, said}
}

// level fences a node with one level and checks the effect.
func (t *tester) level(ctx context.Context, via string, l *design.FenceLevel) (r LevelResult) {
	r = LevelResult{Node: l.Node, Level: l.Level, Devices: l.IDs()}
	t.say(l.Node, l.Level, "doing", "fencing %s by level %d alone: %s", l.Node, l.Level, strings.Join(r.Devices, " + "))
	var err error
	defer func() {
		if err != nil {
			r.Error = fmt.Sprintf("level %d of fencing %s (%s): %v", l.Level, l.Node, devices(l), err)
			t.say(l.Node, l.Level, "failed", "%s", r.Error)
		}
	}()
	if err = t.only(ctx, via, l); err != nil {
		return r
	}
	begun := time.Now()
	r.Seconds, err = t.fence(ctx, via, l)
	if err != nil {
		return r
	}
	if r.Evidence, err = t.witness(ctx, via, l); err != nil {
		return r
	}
	p := observe.Proof{At: begun, Seconds: r.Seconds, Fingerprint: l.Fingerprint()}
	if err = t.do(ctx, via, "record the proof", "crm_attribute", "--node", l.Node, "--name", observe.ProofAttr(l.Level), "--update", p.String(), "--lifetime", "forever"); err != nil {
		return r
	}
	r.Proven = true
	t.say(l.Node, l.Level, "proven", "level %d (%s) in %.1f s: %s", l.Level, strings.Join(r.Devices, " + "), r.Seconds, strings.Join(r.Evidence, "; "))
	return r
}

// devices lists the devices of a level with their agents and addresses.
func devices(l *design.FenceLevel) string {
	out := lists.Map(l.Devices, func(f design.FenceDevice) string { return fmt.Sprintf("%s: %s at %s", f.ID, f.Agent, f.Params["ip"]) })
	return strings.Join(out, ", ")
}

// only leaves one level of a node in the cluster's topology, so that no other
// level fences the node.
func (t *tester) only(ctx context.Context, via string, l *design.FenceLevel) error {
	return t.topology(ctx, via, l.Node, func(o *design.FenceLevel) bool { return o.Index == l.Index })
}

// topology changes the cluster's topology so that it has exactly the wanted levels
// of a node.
func (t *tester) topology(ctx context.Context, via, node string, wanted func(*design.FenceLevel) bool) error {
	c, err := ReadCIB(ctx, t.h, via)
	if err != nil {
		return err
	}
	// Add levels first, so that the node always has one.
	for _, put := range []bool{true, false} {
		for _, l := range t.d.PairWith(node).HA.Topology(node) {
			if wanted(l) != put || observe.HasLevel(c, l) == put {
				continue
			}
			what, how := "put level %d (%s) of %s into the topology", []string{"cibadmin", "--modify", "--allow-create"}
			if !put {
				what, how = "take level %d (%s) of %s out of the topology", []string{"cibadmin", "--delete"}
			}
			how = append(how, "--scope", "fencing-topology", "--xml-text", plan.FencingLevel(l).String())
			if err := t.do(ctx, via, fmt.Sprintf(what, l.Index, strings.Join(l.IDs(), " + "), l.Node), how...); err != nil {
				return err
			}
		}
	}
	return nil
}

// fence makes the cluster fence a node. An error contains the fencer's log.
func (t *tester) fence(ctx context.Context, via string, l *design.FenceLevel) (seconds float64, err error) {
	now, err := t.h.Session(via).Clock(ctx)
	if err != nil {
		return 0, err
	}
	cmd := []string{"stonith_admin", "--fence", l.Node, "--timeout", strconv.Itoa(int(t.o.Fence.Seconds()))}
	var took float64
	for again := range 2 {
		start := time.Now()
		_, err = t.h.Session(via).Run(ctx, resource.Action{Title: "fence " + l.Node, Cmd: cmd, Seconds: int(t.o.Fence.Seconds()) + 30})
		took = time.Since(start).Seconds()
		if err != nil {
			break
		}
		// The fencer learns of a new topology some moments after cibadmin
		// returns. Try again if it used another level.
		if again > 0 || !usedOther(t.journal(ctx, via, now), t.d.PairWith(l.Node).HA.Topology(l.Node), l) {
			return took, nil
		}
	}
	var said *agent.Error
	if !errors.As(err, &said) {
		return 0, fmt.Errorf("%s: %w", via, err)
	}
	text := fmt.Sprintf("the cluster could not fence it within %.0f s\n  command: %s (on %s)\n  exit code: %d", took, plan.Quote(cmd), via, said.Code)
	if s := strings.TrimSpace(said.Stderr); s != "" {
		text += "\n  stderr: " + strings.ReplaceAll(s, "\n", "\n          ")
	}
	if log := fencerSaid(t.journal(ctx, via, now), l); log != "" {
		text += "\n  its fencer logged: " + strings.ReplaceAll(log, "\n", "\n          ")
	}
	return 0, errors.New(text)
}

// logLines bounds the lines of the fencer's log in an error.
const logLines = 12

// journal is the fencer's log since a time, "" if there is none.
func (t *tester) journal(ctx context.Context, via string, sinceNS int64) string {
	argv := []string{"journalctl", "--no-pager", "--output", "cat", "--identifier", "pacemaker-fenced", "--since", "@" + strconv.FormatInt(sinceNS/1e9, 10)}
	out, err := t.h.Session(via).Query(ctx, argv...)
	if err != nil || out.Code != 0 {
		return ""
	}
	return out.Stdout
}

// usedOther reports whether the log shows that the fencer used only devices of
// levels other than l.
func usedOther(log string, levels []*design.FenceLevel, l *design.FenceLevel) bool {
	var done []string // devices
	for line := range strings.Lines(log) {
		if m, _ := journal.Means(journal.Line{Ident: "pacemaker-fenced", Message: journal.Clean(line)}, nil); m.Kind == journal.Note && m.Node == l.Node {
			done = append(done, m.Resource)
		}
	}
	used := func(l *design.FenceLevel) bool {
		return slices.ContainsFunc(l.IDs(), func(id string) bool { return slices.Contains(done, id) })
	}
	return !used(l) && slices.ContainsFunc(levels, used)
}

// fencerSaid returns the lines of a log about a level's devices, and the output of
// their agents.
func fencerSaid(log string, l *design.FenceLevel) string {
	var out []string
	for line := range strings.Lines(log) {
		line = strings.TrimSpace(line)
		if strings.HasSuffix(line, "stderr: [  ]") {
			continue // an empty line
		}
		about := slices.ContainsFunc(l.Devices, func(f design.FenceDevice) bool {
			return strings.Contains(line, f.ID) || strings.Contains(line, f.Agent+"[")
		})
		if about && !slices.Contains(out, line) {
			out = append(out, line)
		}
	}
	if n := len(out) - logLines; n > 0 {
		out = out[n:]
	}
	return strings.Join(out, "\n")
}

// witness checks, independently of the devices' own reports, that a node is dead
// and that the level's devices killed it.
func (t *tester) witness(ctx context.Context, via string, l *design.FenceLevel) (evidence []string, err error) {
	want := noAnswer // PDUs cut both feeds, so the BMC dies with its server
	if all := t.d.Levels(l.Node); l.Level < all[len(all)-1].Level {
		want = powerOff // what switches the whole server leaves its controller alive
	}
	var p chassis
	err = t.wait(ctx, t.o.Dark, func(ctx context.Context) (string, error) {
		if p, err = t.power(ctx, via, l.Node); err != nil {
			return "", err
		}
		switch {
		case p.state == want:
			return "", nil
		case want == powerOff && p.state == powerOn:
			return "", fmt.Errorf("the fence device said that %s is off, but its BMC says that it is on", l.Node)
		case want == powerOff:
			return "the BMC of " + l.Node + " does not answer: " + p.said, nil
		}
		// Power supplies feed a BMC for some more seconds.
		return fmt.Sprintf("the BMC of %s still answers (its server is %s) though its outlets were switched off: it has power from elsewhere, or these are outlets of something else", l.Node, p.state), nil
	})
	if err != nil {
		return nil, err
	}
	if want == powerOff {
		evidence = append(evidence, "its BMC says off")
	} else {
		evidence = append(evidence, "its BMC died with its outlets")
	}
	if t.alive(ctx, l.Node) {
		return nil, fmt.Errorf("%s still answers over SSH", l.Node)
	}
	evidence = append(evidence, "no answer over SSH")
	addresses := t.d.Spec.IPs(l.Node)
	for _, a := range addresses {
		out, err := t.h.Session(via).Query(ctx, "ping", "-n", "-c", "1", "-W", "1", a)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", via, err)
		}
		switch out.Code {
		case 0:
			return nil, fmt.Errorf("%s still answers a ping of %s", l.Node, a)
		case 1: // no reply; source: ping(8)
		default:
			return nil, fmt.Errorf("%s: ping %s: exit code %d: %s", via, a, out.Code, strings.TrimSpace(out.Stderr))
		}
	}
	evidence = append(evidence, fmt.Sprintf("no ping on %d addresses", len(addresses)))
	s, err := t.h.Cluster(ctx, via)
	if err != nil {
		return nil, err
	}
	if s.Node(l.Node).Member() {
		return nil, fmt.Errorf("the cluster still has %s as a member", l.Node)
	}
	return append(evidence, "out of the cluster"), nil
}

// alive reports whether a node answers over SSH within 3 s.
func (t *tester) alive(ctx context.Context, node string) bool {
	cctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	_, err := t.h.Session(node).Clock(cctx)
	return err == nil
}

// restore switches a node on with every level, completes the topology, ends the
// standby and deletes the mark. It does all steps in any state, so it can be
// repeated.
func (t *tester) restore(ctx context.Context, via, node string, standby bool) error {
	levels := t.d.Levels(node)
	var errs []error
	on := func() {
		errs = append(errs, t.do(ctx, via, "switch "+node+" on", "stonith_admin", "--unfence", node, "--timeout", strconv.Itoa(int(t.o.Fence.Seconds()))))
	}
	// The last level first: outlets before the BMC, which needs their power.
	for _, l := range slices.Backward(levels) {
		if l.Level == levels[0].Level {
			continue
		}
		if err := t.only(ctx, via, l); err != nil {
			errs = append(errs, err)
			continue
		}
		on()
	}
	errs = append(errs, t.topology(ctx, via, node, func(*design.FenceLevel) bool { return true }))
	var p chassis
	err := t.wait(ctx, t.o.Dark, func(ctx context.Context) (string, error) {
		var err error
		if p, err = t.power(ctx, via, node); err != nil || p.state != noAnswer {
			return "", err
		}
		if t.alive(ctx, node) {
			return "", nil // the node runs; only its BMC is dead
		}
		return "the BMC of " + node + " does not answer: " + p.said, nil
	})
	if err != nil {
		errs = append(errs, err)
	} else if p.state == powerOff {
		on()
	}
	if standby {
		errs = append(errs, t.do(ctx, via, "end the standby of "+node, "crm_attribute", "--node", node, "--name", "standby", "--delete", "--lifetime", "forever"))
	}
	if err := errors.Join(errs...); err != nil {
		return err // leave the mark, so that a later run restores the node
	}
	return t.do(ctx, via, "take away the mark of the test", "crm_attribute", "--node", node, "--name", observe.AttrTesting, "--delete", "--lifetime", "forever")
}

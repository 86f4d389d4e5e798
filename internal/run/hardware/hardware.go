// Package hardware asks the BMCs, enclosures, PDUs and disks of servers how they are, by
// commands on the servers. It judges nothing: package observe does.
package hardware

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mortarhpc/mortar/internal/base/health"
	"github.com/mortarhpc/mortar/internal/base/ipmi"
	"github.com/mortarhpc/mortar/internal/base/ses"
	"github.com/mortarhpc/mortar/internal/base/smart"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/converge/plan"
	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/host/agent"
	"github.com/mortarhpc/mortar/internal/host/gather"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

// timeLimit bounds the queries of BMCs and disks. A BMC lists 150 sensors in
// some 5 s; an emulated server needs 10 s for eight disks.
const timeLimit = 60 * time.Second

// How long answers are used again: fans and disks age slowly, and each query costs a server one
// process. Answers with an error are used for again.
const (
	every = 10 * time.Minute
	again = time.Minute
)

// Disks are the disks that each server sees that answers.
type Disks map[string][]resource.DiskFact

// Report is what a server's BMC, enclosures and disks report about themselves.
type Report struct {
	// By is the server that asked the BMC: the partner, or the server itself.
	By      string        `json:"by,omitempty"`
	Sensors []ipmi.Sensor `json:"sensors,omitempty"`
	Log     *ipmi.Log     `json:"log,omitempty"`
	Last    *ipmi.Event   `json:"last_event,omitempty"`
	BMCErr  string        `json:"bmc_err,omitempty"`

	// PDUs are the loads of the PDUs that this server was asked for, by name.
	PDUs map[string]Load `json:"pdus,omitempty"`

	// Shelves are the reports of the enclosures that this server was asked for.
	Shelves []Shelf `json:"shelves,omitempty"`

	// Disks are the reports of the disks that this server was asked for, by serial.
	Disks   map[string]smart.Report `json:"disks,omitempty"`
	DiskErr string                  `json:"disk_err,omitempty"`

	// Raw are the answers of this server, by the command: also those of its partner's BMC. A
	// bug report needs what is not understood as it came.
	Raw map[string]gather.RunResult `json:"raw,omitempty"`
}

// Load is what a PDU carries, and its limits, in amperes.
type Load struct {
	Amperes float64 `json:"load"`
	Near    float64 `json:"near_overload"`
	Over    float64 `json:"overload"`
	Err     string  `json:"err,omitempty"`
}

// Asker asks, and keeps the last answers.
type Asker struct {
	at  time.Time
	got map[string]Report
	// refused: the servers' agents may only watch.
	refused bool
	// probes is how many successive answers must find an element of an enclosure bad;
	// bad counts them, by enclosure and element.
	probes int
	bad    map[string]int
}

// New returns an Asker.
func New() *Asker { return &Asker{probes: 1} }

// NewSteady returns an Asker for watch, which sends a message for each finding: an element of
// an enclosure counts as bad after five successive answers, a minute apart, because
// enclosures report faults that are over at the next question. Source: TrueNAS,
// enclosure alerts
func NewSteady() *Asker { return &Asker{probes: shelfProbes} }

// Gather asks a server within a limit.
type Gather func(ctx context.Context, server string, r gather.Request) (gather.Host, error)

// Collect asks BMCs, enclosures, PDUs and disks through the servers that answer, each within
// limit, or repeats the last answers. It returns nil if the servers' agents may only watch: that
// is no finding.
func (a *Asker) Collect(ctx context.Context, d *design.Design, up Disks, now time.Time, limit time.Duration, ask Gather) map[string]Report {
	use := every
	for _, h := range a.got {
		if h.BMCErr != "" || h.DiskErr != "" || len(a.bad) > 0 || slices.ContainsFunc(h.Shelves, func(x Shelf) bool { return x.Err != "" }) {
			use = again
		}
	}
	if a.got == nil || now.Sub(a.at) >= use {
		was := a.got
		a.at = now
		a.got, a.refused = askAll(ctx, d, up, limit, ask)
		a.steady()
		for s, h := range a.got {
			h.remember(was[s])
			a.got[s] = h
		}
	}
	if a.refused {
		return nil
	}
	return a.got
}

// askAll asks each server all that it is to be asked, in one request. refused: an agent may only
// watch.
func askAll(ctx context.Context, d *design.Design, up Disks, limit time.Duration, ask Gather) (_ map[string]Report, refused bool) {
	cctx, cancel := context.WithTimeout(ctx, limit+time.Second)
	defer cancel()
	seen, _ := host.All(cctx, slices.Collect(maps.Keys(up)), func(ctx context.Context, s string) (gather.Host, error) { return ask(ctx, s, shelfRequest) })
	disks, shelves := disksToAsk(d, up), shelvesToAsk(d, up, seen)
	pdus := map[string]map[string][]string{} // by server
	for i := range d.Pairs {
		if first := slices.IndexFunc(d.Pairs[i].Servers, func(s string) bool { return up[s] != nil }); first >= 0 {
			pdus[d.Pairs[i].Servers[first]] = pduCommands(d, &d.Pairs[i])
		}
	}
	runs := map[string][][]string{}
	for _, s := range d.Servers() {
		if argv, by := bmcCommand(d, up, s); by != "" {
			for _, q := range bmcQueries {
				runs[by] = append(runs[by], slices.Concat(argv, q))
			}
		}
		for _, dev := range disks[s] {
			runs[s] = append(runs[s], smartCommand(dev))
		}
		for _, x := range shelves[s] {
			runs[s] = append(runs[s], sesCommands(x.Device)...)
		}
		runs[s] = slices.AppendSeq(runs[s], maps.Values(pdus[s]))
	}
	maps.DeleteFunc(runs, func(_ string, r [][]string) bool { return len(r) == 0 })
	limit = max(limit, timeLimit)
	actx, stop := context.WithTimeoutCause(ctx, limit+time.Second, fmt.Errorf("no answer within %v", limit))
	defer stop()
	got, failed := host.All(actx, slices.Collect(maps.Keys(runs)), func(ctx context.Context, s string) (gather.Host, error) {
		return ask(ctx, s, gather.Request{Run: runs[s], TimeoutMS: int(limit.Milliseconds())})
	})
	refused = slices.ContainsFunc(slices.Collect(maps.Values(failed)), func(err error) bool {
		e := (*agent.Error)(nil)
		return errors.As(err, &e) && e.Refusal
	})
	out := map[string]Report{}
	for _, s := range d.Servers() {
		argv, by := bmcCommand(d, up, s)
		h := Report{By: by}
		switch {
		case by == "":
			h.BMCErr = "no partner answers that could ask it"
		case failed[by] != nil:
			h.BMCErr = failed[by].Error()
		default:
			h.readBMC(got[by].Run, argv)
		}
		if err := failed[s]; err != nil {
			h.DiskErr = err.Error()
		} else {
			h.Raw = got[s].Run
			h.readDisks(got[s].Run, disks[s])
			h.readShelves(got[s].Run, shelves[s])
			for name, argv := range pdus[s] {
				if h.PDUs == nil {
					h.PDUs = map[string]Load{}
				}
				h.PDUs[name] = parseLoad(got[s].Run[strings.Join(argv, " ")])
			}
		}
		out[s] = h
	}
	return out, refused
}

// bmcQueries are the commands that read a BMC.
var bmcQueries = [][]string{{"sdr", "elist"}, {"sel", "info"}, {"sel", "elist", "last", "1"}}

// bmcCommand returns the command that asks a node's BMC, and the server that runs it.
// by is "" if the partner does not answer.
func bmcCommand(d *design.Design, up Disks, node string) (argv []string, by string) {
	argv = []string{"ipmitool", "-c"}
	p := d.PairWith(node)
	if p.HA == nil {
		if up[node] != nil {
			by = node
		}
		return argv, by
	}
	for _, n := range p.Servers {
		if n != node && up[n] != nil {
			by = n
		}
	}
	for _, l := range d.Levels(node) {
		for i := range l.Devices {
			if b := &l.Devices[i]; b.BMC() {
				return slices.Concat(argv, []string{"-I", "lanplus"}, plan.IPMIAccess(b)), by
			}
		}
	}
	return argv, ""
}

// LoadObjects are the objects of a PDU that tell its load in tenths of an ampere, and the
// thresholds of its first phase in amperes.
// Source: PowerNet-MIB, rLoadStatusLoad, rLoadPhaseConfigNearOverloadThreshold
// and -OverloadThreshold
var LoadObjects = []string{"1.3.6.1.4.1.318.1.1.12.2.3.1.1.2.1", "1.3.6.1.4.1.318.1.1.12.2.2.1.1.3.1", "1.3.6.1.4.1.318.1.1.12.2.2.1.1.4.1"}

// pduCommands returns the commands that ask the PDUs of a pair for their load, by the
// PDUs' names. A PDU of SNMPv1 is not asked: its community would stand in the arguments.
func pduCommands(d *design.Design, p *design.Pair) map[string][]string {
	out := map[string][]string{}
	if p.HA == nil {
		return out
	}
	for _, l := range p.HA.Fencing {
		for i := range l.Devices {
			f := &l.Devices[i]
			for _, u := range d.Spec.PDUs {
				if f.SNMP != nil && u.Address == f.Params["ip"] {
					out[u.Name] = append([]string{"/usr/bin/env", "SNMPCONFPATH=" + path.Dir(plan.SecretPath(*f)), "/usr/bin/snmpget", "-Oqv", f.Params["ip"] + ":161"}, LoadObjects...)
				}
			}
		}
	}
	return out
}

func parseLoad(r gather.RunResult) Load {
	f := strings.Fields(r.Stdout)
	var n [3]float64
	for i := range n {
		if r.Err != "" || r.Code != 0 || len(f) != len(n) {
			return Load{Err: cmp.Or(oneLine(r.Err+" "+r.Stderr+" "+r.Stdout), "no answer")}
		}
		v, err := strconv.ParseFloat(f[i], 64)
		if err != nil {
			return Load{Err: fmt.Sprintf("load %q", f[i])}
		}
		n[i] = v
	}
	return Load{Amperes: n[0] / 10, Near: n[1], Over: n[2]}
}

func smartCommand(dev string) []string {
	return []string{"smartctl", "--json", "--all", "/dev/" + dev}
}

// disksToAsk returns a block device for each serial, by the server that is asked for
// it: the first one that sees the disk.
func disksToAsk(d *design.Design, up Disks) map[string]map[string]string {
	out := map[string]map[string]string{}
	asked := map[string]bool{}
	for _, s := range d.Servers() {
		out[s] = map[string]string{}
		for _, disk := range up[s] {
			if disk.Serial != "" && len(disk.Paths) > 0 && !asked[disk.Serial] {
				asked[disk.Serial] = true
				out[s][disk.Serial] = disk.Paths[0]
			}
		}
	}
	return out
}

func (h *Report) readBMC(run map[string]gather.RunResult, argv []string) {
	said := func(q []string) gather.RunResult { return run[strings.Join(slices.Concat(argv, q), " ")] }
	sensors := said(bmcQueries[0])
	if sensors.Err != "" || sensors.Code != 0 {
		h.BMCErr = oneLine(sensors.Err + " " + sensors.Stderr)
		return
	}
	h.Sensors = ipmi.Sensors(sensors.Stdout)
	if l, ok := ipmi.ParseLog(said(bmcQueries[1]).Stdout); ok {
		h.Log = &l
	}
	if e, ok := ipmi.LastEvent(said(bmcQueries[2]).Stdout); ok {
		h.Last = &e
	}
}

// remember keeps what an earlier answer had and this one lacks: sensors of the BMC and
// elements of enclosures. A disk that gives no answer is in each answer.
func (h *Report) remember(was Report) {
	if h.BMCErr != "" {
		h.Sensors = was.Sensors
	} else {
		for _, s := range was.Sensors {
			silent := s.Silent
			s.Level, s.Lost = health.Unknown, true
			h.Sensors = keep(h.Sensors, s, silent, func(x ipmi.Sensor) (same, silent bool) { return x.Name == s.Name, x.Silent })
		}
	}
	for _, x := range was.Shelves {
		i := slices.IndexFunc(h.Shelves, func(y Shelf) bool { return y.ID == x.ID && y.Device == x.Device })
		switch {
		case i < 0:
			x.Err = "it is not there any more"
			h.Shelves = append(h.Shelves, x)
			continue
		case h.Shelves[i].Err != "":
			h.Shelves[i].Report = x.Report
			continue
		}
		now := &h.Shelves[i].Report
		for _, e := range x.Report.Elements {
			silent := e.Silent
			e.Level, e.Lost = health.Unknown, true
			now.Elements = keep(now.Elements, e, silent, func(y ses.Element) (same, silent bool) { return y.Kind == e.Kind && y.Name == e.Name, y.Silent })
		}
	}
}

// keep puts a part that had an answer once in the place of one that is silent now, or that is
// there no more.
func keep[T any](all []T, lost T, wasSilent bool, look func(T) (same, silent bool)) []T {
	for i, x := range all {
		if same, silent := look(x); same {
			if silent && !wasSilent {
				all[i] = lost
			}
			return all
		}
	}
	if wasSilent {
		return all
	}
	return append(all, lost)
}

func (h *Report) readDisks(run map[string]gather.RunResult, disks map[string]string) {
	h.Disks = map[string]smart.Report{}
	failed := 0
	for serial, dev := range disks {
		r := run[strings.Join(smartCommand(dev), " ")]
		// smartctl's exit code is a bit mask that includes warnings.
		report, err := smart.Parse(r.Stdout)
		if err != nil {
			report.NoAnswer = cmp.Or(oneLine(r.Err+" "+r.Stderr), err.Error())
		}
		if r.Err != "" {
			failed++
			h.DiskErr = oneLine(r.Err)
		}
		h.Disks[serial] = report
	}
	if failed < len(disks) {
		h.DiskErr = "" // it is no fault of the tool
	}
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

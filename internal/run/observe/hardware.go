package observe

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mortarhpc/mortar/internal/base/ipmi"
	"github.com/mortarhpc/mortar/internal/base/ses"
	"github.com/mortarhpc/mortar/internal/base/smart"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/converge/plan"
	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/host/gather"
)

// hardwareTime bounds the queries of BMCs and disks. A BMC lists 150 sensors in
// some 5 s; an emulated server needs 10 s for eight disks.
const hardwareTime = 60 * time.Second

// hardwareEvery is how long answers of BMCs and disks are used again. Fans and disks
// age slowly, and each query costs a server one process.
const hardwareEvery = 10 * time.Minute

// hardwareAgain is how long an answer with an error is used.
const hardwareAgain = time.Minute

// Limits of SMART values below which status finds nothing.
const (
	lifeWarn = 10 // percent of an SSD's life
	tripNear = 5  // degrees Celsius below the temperature at which a disk protects itself
)

// Hardware is what a server's BMC, enclosures and disks report about themselves.
type Hardware struct {
	// By is the server that asked the BMC: the partner, or the server itself.
	By      string        `json:"by,omitempty"`
	Sensors []ipmi.Sensor `json:"sensors,omitempty"`
	Log     *ipmi.Log     `json:"log,omitempty"`
	Last    *ipmi.Event   `json:"last_event,omitempty"`
	BMCErr  string        `json:"bmc_err,omitempty"`

	// PDUs are the loads of the PDUs that this server was asked for, by name.
	PDUs map[string]PDULoad `json:"pdus,omitempty"`

	// Shelves are the reports of the enclosures that this server was asked for.
	Shelves []Shelf `json:"shelves,omitempty"`

	// Disks are the reports of the disks that this server was asked for, by serial.
	Disks   map[string]smart.Report `json:"disks,omitempty"`
	DiskErr string                  `json:"disk_err,omitempty"`
}

// PDULoad is what a PDU carries, and its limits, in amperes.
type PDULoad struct {
	Load float64 `json:"load"`
	Near float64 `json:"near_overload"`
	Over float64 `json:"overload"`
	Err  string  `json:"err,omitempty"`
}

// hardwareAnswers are the last answers of BMCs and disks.
type hardwareAnswers struct {
	at  time.Time
	got map[string]Hardware
	// probes is how many successive answers must find an element of an enclosure bad;
	// bad counts them, by enclosure and element.
	probes int
	bad    map[string]int
}

// AskHardware makes Collect also ask BMCs for their sensors and event logs, enclosures
// for their power supplies, fans and temperatures, and disks for their SMART data, at
// most every ten minutes. A server's partner asks its BMC,
// with the secret that it fences with. A single server asks its own.
func (c *Collector) AskHardware() { c.hardware = &hardwareAnswers{probes: 1} }

// AskHardwareSteadily is AskHardware for one who is told of each finding: an element of
// an enclosure counts as bad after five successive answers, a minute apart, because
// enclosures report faults that are over at the next question. Source: TrueNAS,
// enclosure alerts
func (c *Collector) AskHardwareSteadily() { c.hardware = &hardwareAnswers{probes: shelfProbes} }

// bmcQueries are the commands that read a BMC.
var bmcQueries = [][]string{{"sdr", "elist"}, {"sel", "info"}, {"sel", "elist", "last", "1"}}

// bmcCommand returns the command that asks a node's BMC, and the server that runs it.
// by is "" if the partner does not answer.
func bmcCommand(d *design.Design, f Facts, node string) (argv []string, by string) {
	argv = []string{"ipmitool", "-c"}
	p := d.PairWith(node)
	if p.HA == nil {
		if f.Hosts[node].Host != nil {
			by = node
		}
		return argv, by
	}
	for _, n := range p.Servers {
		if n != node && f.Hosts[n].Host != nil {
			by = n
		}
	}
	for _, l := range d.Levels(node) {
		for i := range l.Devices {
			if b := &l.Devices[i]; b.Agent == "fence_ipmilan" {
				return append(argv, "-I", "lanplus", "-H", b.Params["ip"], "-U", b.Params["username"], "-f", plan.SecretPath(*b), "-C", b.Params["cipher"]), by
			}
		}
	}
	return argv, ""
}

// pduLoads are the objects of a PDU that tell its load in tenths of an ampere, and the
// thresholds of its first phase in amperes.
// Source: PowerNet-MIB, rPDULoadStatusLoad, rPDULoadPhaseConfigNearOverloadThreshold
// and -OverloadThreshold
var pduLoads = []string{"1.3.6.1.4.1.318.1.1.12.2.3.1.1.2.1", "1.3.6.1.4.1.318.1.1.12.2.2.1.1.3.1", "1.3.6.1.4.1.318.1.1.12.2.2.1.1.4.1"}

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
					out[u.Name] = append([]string{"/usr/bin/env", "SNMPCONFPATH=" + path.Dir(plan.SecretPath(*f)), "/usr/bin/snmpget", "-Oqv", f.Params["ip"] + ":161"}, pduLoads...)
				}
			}
		}
	}
	return out
}

func parsePDULoad(r gather.RunResult) PDULoad {
	f := strings.Fields(r.Stdout)
	var n [3]float64
	for i := range n {
		if r.Err != "" || r.Code != 0 || len(f) != len(n) {
			return PDULoad{Err: cmp.Or(oneLine(strings.TrimSpace(r.Err+" "+r.Stderr+" "+r.Stdout)), "no answer")}
		}
		v, err := strconv.ParseFloat(f[i], 64)
		if err != nil {
			return PDULoad{Err: fmt.Sprintf("load %q", f[i])}
		}
		n[i] = v
	}
	return PDULoad{Load: n[0] / 10, Near: n[1], Over: n[2]}
}

// collectHardware asks BMCs and disks, or repeats the last answers.
func (c *Collector) collectHardware(ctx context.Context, f *Facts) {
	every := hardwareEvery
	for _, h := range c.hardware.got {
		if h.BMCErr != "" || h.DiskErr != "" || slices.ContainsFunc(h.Shelves, func(x Shelf) bool { return x.Err != "" }) {
			every = hardwareAgain
		}
	}
	if len(c.hardware.bad) > 0 {
		every = hardwareAgain
	}
	if c.hardware.got == nil || f.Time.Sub(c.hardware.at) >= every {
		was := c.hardware.got
		c.hardware.at, c.hardware.got = f.Time, c.askHardware(ctx, *f)
		c.hardware.steady()
		for s, h := range c.hardware.got {
			h.remember(was[s])
			c.hardware.got[s] = h
		}
	}
	f.Hardware = c.hardware.got
	for _, h := range f.Hardware {
		if strings.Contains(h.BMCErr+h.DiskErr, gather.OnlyWatches) {
			f.Hardware = nil // this key may not ask: that is no finding
		}
	}
}

func (c *Collector) askHardware(ctx context.Context, f Facts) map[string]Hardware {
	out := map[string]Hardware{}
	runs := map[string][][]string{} // by server
	disks := disksToAsk(c.d, f)
	shelves := c.shelvesToAsk(ctx, f)
	for _, s := range c.d.Servers() {
		argv, by := bmcCommand(c.d, f, s)
		for _, q := range bmcQueries {
			if by != "" {
				runs[by] = append(runs[by], slices.Concat(argv, q))
			}
		}
		for _, dev := range disks[s] {
			runs[s] = append(runs[s], smartCommand(dev))
		}
		for _, x := range shelves[s] {
			runs[s] = append(runs[s], sesCommands(x.Device)...)
		}
	}
	pdus := map[string]map[string][]string{} // by server
	for i := range c.d.Pairs {
		p := &c.d.Pairs[i]
		j := slices.IndexFunc(p.Servers, func(s string) bool { return f.Hosts[s].Host != nil })
		if j < 0 {
			continue
		}
		s := p.Servers[j]
		pdus[s] = pduCommands(c.d, p)
		for _, argv := range pdus[s] {
			runs[s] = append(runs[s], argv)
		}
	}
	limit := max(c.timeout, hardwareTime)
	cctx, cancel := context.WithTimeoutCause(ctx, limit+time.Second, fmt.Errorf("no answer within %v", limit))
	defer cancel()
	got, failed := host.All(cctx, slices.Collect(maps.Keys(runs)), func(ctx context.Context, s string) (gather.Host, error) {
		return c.gather(ctx, s, gather.Request{Run: runs[s], TimeoutMS: int(limit.Milliseconds())})
	})
	for _, s := range c.d.Servers() {
		h := Hardware{}
		argv, by := bmcCommand(c.d, f, s)
		h.By = by
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
			h.readDisks(got[s].Run, disks[s])
			h.readShelves(got[s].Run, shelves[s])
			for name, argv := range pdus[s] {
				if h.PDUs == nil {
					h.PDUs = map[string]PDULoad{}
				}
				h.PDUs[name] = parsePDULoad(got[s].Run[strings.Join(argv, " ")])
			}
		}
		out[s] = h
	}
	return out
}

func smartCommand(dev string) []string {
	return []string{"smartctl", "--json", "--all", "/dev/" + dev}
}

// disksToAsk returns a block device for each serial, by the server that is asked for
// it: the first one that sees the disk.
func disksToAsk(d *design.Design, f Facts) map[string]map[string]string {
	out := map[string]map[string]string{}
	asked := map[string]bool{}
	for _, s := range d.Servers() {
		h := f.Hosts[s].Host
		if h == nil {
			continue
		}
		out[s] = map[string]string{}
		for _, disk := range h.Disks {
			if disk.Serial != "" && len(disk.Paths) > 0 && !asked[disk.Serial] {
				asked[disk.Serial] = true
				out[s][disk.Serial] = disk.Paths[0]
			}
		}
	}
	return out
}

func (h *Hardware) readBMC(run map[string]gather.RunResult, argv []string) {
	said := func(q []string) gather.RunResult { return run[strings.Join(slices.Concat(argv, q), " ")] }
	sensors := said(bmcQueries[0])
	if sensors.Err != "" || sensors.Code != 0 {
		h.BMCErr = oneLine(strings.TrimSpace(sensors.Err + " " + sensors.Stderr))
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
func (h *Hardware) remember(was Hardware) {
	if h.BMCErr != "" {
		h.Sensors = was.Sensors
	} else {
		for _, s := range was.Sensors {
			i := slices.IndexFunc(h.Sensors, func(x ipmi.Sensor) bool { return x.Name == s.Name })
			if s.Silent || i >= 0 && !h.Sensors[i].Silent {
				continue
			}
			s.Level, s.Lost = Unknown, true
			if i < 0 {
				h.Sensors = append(h.Sensors, s)
			} else {
				h.Sensors[i] = s
			}
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
			j := slices.IndexFunc(now.Elements, func(y ses.Element) bool { return y.Kind == e.Kind && y.Name == e.Name })
			if e.Silent || j >= 0 && !now.Elements[j].Silent {
				continue
			}
			e.Level, e.Lost = Unknown, true
			if j < 0 {
				now.Elements = append(now.Elements, e)
			} else {
				now.Elements[j] = e
			}
		}
	}
}

func (h *Hardware) readDisks(run map[string]gather.RunResult, disks map[string]string) {
	h.Disks = map[string]smart.Report{}
	failed := 0
	for serial, dev := range disks {
		r := run[strings.Join(smartCommand(dev), " ")]
		// smartctl's exit code is a bit mask that includes warnings.
		report, err := smart.Parse(r.Stdout)
		if err != nil {
			report.Unread.Add(cmp.Or(strings.TrimSpace(r.Err+" "+r.Stderr), err.Error()))
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

// hardware checks what BMCs and disks report; nil if they were not asked.
func (v *view) hardware() *Part {
	if v.facts.Hardware == nil {
		return nil
	}
	p := &Part{Name: "hardware"}
	well := 0
	for _, s := range v.pair.Servers {
		h := v.facts.Hardware[s]
		c := p.add(s, "%d sensors of its BMC, SMART data of %d disks", len(h.Sensors), len(h.Disks))
		v.bmc(c, s, h)
		v.smart(c, h)
		if c.settle(); c.Level == OK {
			well++
		}
	}
	v.shelves(p)
	v.loads(p)
	p.Text = fmt.Sprintf("%d of %d servers report no fault", well, len(v.pair.Servers))
	return p
}

// loads checks what each PDU carries, and whether the others could carry it if its feed
// failed.
func (v *view) loads(p *Part) {
	all := map[string]PDULoad{}
	for _, s := range v.pair.Servers {
		maps.Copy(all, v.facts.Hardware[s].PDUs)
	}
	total := 0.0
	for _, l := range all {
		total += l.Load
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		l := all[name]
		if l.Err != "" { // whether it answers at all is the part power's business
			p.find(name, "pdu-unread", with{"pdu": name, "error": l.Err, "objects": strings.Join(pduLoads, " ")})
			continue
		}
		c := p.add(name, "load %.1f A of %.0f A", l.Load, l.Over)
		args := with{"pdu": name, "load": l.Load, "limit": l.Over, "total": total}
		switch {
		case l.Load >= l.Over:
			c.is("pdu-overloaded", args)
		case l.Load >= l.Near:
			c.is("pdu-nearly-overloaded", args)
		case len(all) > 1 && total > l.Over:
			c.is("pdu-cannot-stand-in", args)
		}
	}
}

// bmc checks the sensors and the event log of a server.
func (v *view) bmc(c *Part, server string, h Hardware) {
	if h.BMCErr != "" {
		c.find("BMC", "bmc-unread", with{"host": server, "error": h.BMCErr, "asker": cmp.Or(h.By, "the partner of "+server)})
		return
	}
	read := 0
	b := c.add("BMC", "")
	for _, s := range h.Sensors {
		k := b.add(s.Name, "%s", s.Text)
		args := with{"host": server, "sensor": s.Name, "reading": s.Text}
		switch {
		case s.Silent:
			k.Text = "no reading"
			continue
		case s.Lost:
			k.is("sensor-lost", args)
		case s.Level == Unknown:
			k.is("sensor-unread", args)
		case s.Level > Unknown:
			k.is("sensor", args).Level = s.Level
		}
		read++
	}
	b.Text = fmt.Sprintf("%d sensors", read)
	if l := h.Log; l != nil {
		b.unread("event log of "+server+"'s BMC", l.Unread)
		text := fmt.Sprintf("%d entries", l.Entries)
		if l.Used >= 0 {
			text += fmt.Sprintf(", %d %% full", l.Used)
		}
		level := OK
		if e := h.Last; e != nil {
			text += "; the last: " + e.Text
			level = min(e.Level, Warning)
		}
		k := b.add("event log", "%s", text)
		switch args := (with{"host": server, "log": text}); {
		case l.Overflow || l.Used >= 90:
			k.is("bmc-log-full", args)
		case level > OK:
			k.is("bmc-event", args).Level = level
		}
	}
}

// smart checks the SMART data of the disks that a server was asked for.
func (v *view) smart(c *Part, h Hardware) {
	if h.DiskErr != "" {
		c.find("SMART", "smart-unread", with{"host": c.Name, "error": h.DiskErr})
		return
	}
	p := c.add("SMART", "")
	hottest, known := 0, 0
	for _, serial := range slices.Sorted(maps.Keys(h.Disks)) {
		r := h.Disks[serial]
		hottest = max(hottest, r.Temperature)
		if r.Temperature > 0 || r.Left >= 0 || r.Failing || r.Hot || len(r.Warns)+len(r.Defects) > 0 || r.Remapped > 0 {
			known++
		}
		wrong := func(code Code, args with) {
			args["disk"], args["replace"] = v.disk(serial), v.replace(serial)
			p.find(serial, code, args)
		}
		switch {
		case r.Failing:
			wrong("disk-failing", with{"why": r.Why})
		case r.Hot:
			wrong("disk-hot", with{"celsius": r.Temperature})
		case len(r.Warns) > 0:
			wrong("disk-warns", with{"warnings": strings.Join(r.Warns, ", ")})
		case len(r.Defects) > 0:
			wrong("disk-defects", with{"defects": strings.Join(r.Defects, ", ")})
		case r.Left >= 0 && r.Left <= lifeWarn:
			wrong("disk-worn", with{"left": r.Left})
		case r.Trip > 0 && r.Temperature >= r.Trip-tripNear:
			wrong("disk-nearly-tripped", with{"celsius": r.Temperature, "trip": r.Trip})
		}
		if len(r.Unread) > 0 {
			wrong("disk-unread", with{"records": r.Unread.String()})
		}
	}
	p.Text = fmt.Sprintf("%d of %d disks report their health", known, len(h.Disks))
	if hottest > 0 {
		p.Text += fmt.Sprintf(", %d °C at most", hottest)
	}
}

// disk is the design's disk of a serial; of another disk the serial.
func (v *view) disk(serial string) any {
	for i := range v.d.Disks {
		d := &v.d.Disks[i]
		if strings.EqualFold(d.Serial, serial) {
			return d
		}
	}
	return serial
}

func (v *view) replace(serial string) string {
	if _, ours := v.disk(serial).(*design.Disk); ours {
		return fmt.Sprintf("`mortar disk fail %s %s` copies it to a spare and takes it out", v.d.Spec.File, serial)
	}
	return "replace it"
}

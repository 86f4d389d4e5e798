package observe

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/smart"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/run/hardware"
)

// Limits of SMART values below which status finds nothing.
const (
	lifeWarn = 10 // percent of an SSD's life
	tripNear = 5  // degrees Celsius below the temperature at which a disk protects itself
)

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
	all := map[string]hardware.Load{}
	for _, s := range v.pair.Servers {
		maps.Copy(all, v.facts.Hardware[s].PDUs)
	}
	total := 0.0
	for _, l := range all {
		total += l.Amperes
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		l := all[name]
		if l.Err != "" { // whether it answers at all is the part power's business
			p.find(name, "pdu-unread", with{"pdu": name, "error": l.Err, "objects": strings.Join(hardware.LoadObjects, " ")})
			continue
		}
		c := p.add(name, "load %.1f A of %.0f A", l.Amperes, l.Over)
		args := with{"pdu": name, "load": l.Amperes, "limit": l.Over, "total": total}
		switch {
		case l.Amperes >= l.Over:
			c.is("pdu-overloaded", args)
		case l.Amperes >= l.Near:
			c.is("pdu-nearly-overloaded", args)
		case len(all) > 1 && total > l.Over:
			c.is("pdu-cannot-stand-in", args)
		}
	}
}

// bmc checks the sensors and the event log of a server.
func (v *view) bmc(c *Part, server string, h hardware.Report) {
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
func (v *view) smart(c *Part, h hardware.Report) {
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
			if c := p.find(serial, code, args); r.Model != "" {
				c.Text += "; the disk is a " + r.Model
			}
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
		if r.NoAnswer != "" {
			wrong("disk-silent", with{"why": r.NoAnswer, "mend": smart.Mend(r.NoAnswer)})
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

// shelves checks what the enclosures report of their power supplies, fans, sensors and
// slots.
func (v *view) shelves(p *Part) {
	seen := map[string]bool{}
	for _, s := range v.pair.Servers {
		for i := range v.facts.Hardware[s].Shelves {
			x := &v.facts.Hardware[s].Shelves[i]
			name := x.Name(v.d)
			seen[name] = true
			v.shelf(p, s, x, name)
		}
	}
	var without []string
	for _, k := range v.d.DisksOf(v.pair) {
		if !seen[k.Enclosure] && !slices.Contains(without, k.Enclosure) {
			without = append(without, k.Enclosure)
		}
	}
	if len(without) > 0 {
		p.find("enclosures", "enclosures-unknown", with{"enclosures": without})
	}
}

// shelf checks one enclosure.
func (v *view) shelf(p *Part, server string, x *hardware.Shelf, name string) {
	what := "enclosure " + name
	if name == "" {
		what = strings.TrimSpace(fmt.Sprintf("enclosure %s %s %s", x.ID, x.Report.Vendor, x.Report.Product))
	}
	if x.Err != "" {
		p.find(what, "enclosure-unread", with{"enclosure": what, "error": x.Err, "host": server})
		return
	}
	c := p.add(what, "")
	count := map[string]int{}
	hottest := 0
	var worst Level
	for _, e := range x.Report.Elements {
		if e.Silent {
			continue
		}
		if e.Lost {
			c.find(e.Kind+" "+e.Name, "enclosure-part-lost", with{"enclosure": what, "part": e.Kind + " " + e.Name, "last": cmp.Or(e.Text, "good")})
			continue
		}
		count[e.Kind]++
		hottest = max(hottest, e.Celsius)
		level := e.Level
		if level == OK || e.Kind == "enclosure" && level <= worst {
			continue // its own light only repeats what an element reports
		}
		worst = max(worst, level)
		args := with{"enclosure": what, "part": e.Kind + " " + e.Name, "finding": e.Text}
		if serial := x.Slots[e.Name]; serial != "" && e.Kind == "slot" {
			args["disk"] = v.disk(serial)
		}
		c.find(e.Kind+" "+e.Name, "enclosure-part", args).Level = level
	}
	if maker := strings.TrimSpace(x.Report.Vendor + " " + x.Report.Product); name != "" && maker != "" {
		c.Text = maker + ": "
	}
	c.Text += fmt.Sprintf("%d power supplies, %d fans, %d slots by %s", count["power supply"], count["fan"], count["slot"], server)
	if hottest > 0 {
		c.Text += fmt.Sprintf(", %d °C at most", hottest)
	}
}

package observe

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/mortarhpc/mortar/internal/base/ses"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/host/gather"
)

// Shelf is an enclosure that has enclosure services (SES), and what it reports.
type Shelf struct {
	ID     string `json:"id"`     // logical identifier
	Device string `json:"device"` // sgN on the server that was asked
	// Slots are the serials of the brick's disks in its slots, by the slots' names.
	Slots map[string]string `json:"slots,omitempty"`

	Report ses.Enclosure `json:"report"`
	Err    string        `json:"err,omitempty"`
}

// shelfRequest finds enclosures and the disks in their slots. The kernel's driver ses
// has them in /sys.
//
// Source: drivers/misc/enclosure.c
var shelfRequest = gather.Request{
	Files: []string{"/sys/class/enclosure/*/id"},
	Links: []string{"/sys/class/enclosure/*/device/scsi_generic/*", "/sys/class/enclosure/*/*/device/block/*"},
}

// sesCommands print the pages of an enclosure. Three times H is nothing but the bytes.
//
// Source: sg_ses(8)
func sesCommands(dev string) (out [][]string) {
	for _, p := range ses.Pages {
		out = append(out, []string{"sg_ses", "--readonly", "--page=" + p, "-HHH", "/dev/" + dev})
	}
	return out
}

// shelvesToAsk returns the enclosures, by the server that is asked for them: the first
// one that sees the enclosure. Each of its I/O modules is a device of its own, with the
// same identifier.
func (c *Collector) shelvesToAsk(ctx context.Context, f Facts) map[string][]Shelf {
	var up []string
	for _, s := range c.d.Servers() {
		if f.Hosts[s].Host != nil {
			up = append(up, s)
		}
	}
	cctx, cancel := context.WithTimeout(ctx, c.timeout+time.Second)
	defer cancel()
	got, _ := host.All(cctx, up, func(ctx context.Context, s string) (gather.Host, error) { return c.gather(ctx, s, shelfRequest) })
	return eachShelf(c.d, f, got)
}

// eachShelf returns each enclosure once, by the first server that sees it. seen are the
// servers' answers.
func eachShelf(d *design.Design, f Facts, seen map[string]gather.Host) map[string][]Shelf {
	out := map[string][]Shelf{}
	asked := map[string]bool{}
	for _, s := range d.Servers() {
		if f.Hosts[s].Host == nil {
			continue
		}
		for _, x := range findShelves(seen[s], f.Hosts[s].Host.Disks) {
			if key := x.ID + " " + x.name(d); !asked[key] { // makers have given several the same identifier
				asked[key] = true
				out[s] = append(out[s], x)
			}
		}
	}
	return out
}

// findShelves lists the enclosures that a server sees, sorted by device.
func findShelves(h gather.Host, disks []gather.DiskState) []Shelf {
	serials := map[string]string{} // by sdX
	for _, d := range disks {
		for _, p := range d.Paths {
			serials[path.Base(p)] = d.Serial
		}
	}
	by := map[string]*Shelf{}
	for _, link := range slices.Sorted(maps.Keys(h.Links)) {
		rest, ok := strings.CutPrefix(link, "/sys/class/enclosure/")
		at, rest, ok2 := strings.Cut(rest, "/")
		if !ok || !ok2 {
			continue
		}
		x := by[at]
		if x == nil {
			x = &Shelf{ID: strings.TrimPrefix(strings.TrimSpace(h.Files["/sys/class/enclosure/"+at+"/id"]), "0x"), Slots: map[string]string{}}
			by[at] = x
		}
		slot, dev, inSlot := strings.Cut(rest, "/device/block/")
		switch {
		case strings.HasPrefix(rest, "device/scsi_generic/"):
			x.Device = path.Base(rest)
		case inSlot && serials[dev] != "":
			x.Slots[strings.Join(strings.Fields(slot), " ")] = serials[dev]
		}
	}
	var out []Shelf
	for _, at := range slices.Sorted(maps.Keys(by)) {
		if x := by[at]; x.Device != "" {
			if x.ID == "" || strings.Trim(x.ID, "0") == "" {
				x.ID = at // an enclosure without an identifier
			}
			out = append(out, *x)
		}
	}
	return out
}

func (h *Hardware) readShelves(run map[string]gather.RunResult, shelves []Shelf) {
	for _, x := range shelves {
		text := ""
		for _, argv := range sesCommands(x.Device) {
			r := run[strings.Join(argv, " ")]
			switch {
			case r.Err == "" && r.Code == 0:
				text += r.Stdout
			case !strings.Contains(strings.Join(argv, " "), "=ed"): // names are a luxury
				x.Err = oneLine(strings.TrimSpace(r.Err + " " + r.Stderr))
			}
		}
		if x.Err == "" {
			var err error
			if x.Report, err = ses.Parse(text); err != nil {
				x.Err = err.Error()
			}
		}
		h.Shelves = append(h.Shelves, x)
	}
}

// shelfProbes is how many successive answers confirm a fault of an enclosure.
const shelfProbes = 5

// steady takes elements for good that not enough successive answers found bad.
func (a *hardwareAnswers) steady() {
	was := a.bad
	a.bad = map[string]int{}
	for _, h := range a.got {
		for _, x := range h.Shelves {
			for i := range x.Report.Elements {
				e := &x.Report.Elements[i]
				if e.Level <= Unknown {
					continue
				}
				key := strings.Join([]string{x.ID, x.Device, e.Kind, e.Name}, "/")
				if a.bad[key] = was[key] + 1; a.bad[key] < a.probes {
					e.Level = OK
				}
			}
		}
	}
}

// name is the spec's name of a shelf, by most of the disks in its slots; "" for one of
// which no disk is the brick's.
func (x *Shelf) name(d *design.Design) string {
	count := map[string]int{}
	best := ""
	for i := range d.Disks {
		k := &d.Disks[i]
		for _, serial := range x.Slots {
			if strings.EqualFold(serial, k.Serial) {
				if count[k.Enclosure]++; count[k.Enclosure] > count[best] {
					best = k.Enclosure
				}
			}
		}
	}
	return best
}

// shelves checks what the enclosures report of their power supplies, fans, sensors and
// slots.
func (v *view) shelves(p *Part) {
	seen := map[string]bool{}
	for _, s := range v.pair.Servers {
		for i := range v.facts.Hardware[s].Shelves {
			x := &v.facts.Hardware[s].Shelves[i]
			name := x.name(v.d)
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
func (v *view) shelf(p *Part, server string, x *Shelf, name string) {
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
	c.Text = fmt.Sprintf("%d power supplies, %d fans, %d slots by %s", count["power supply"], count["fan"], count["slot"], server)
	if hottest > 0 {
		c.Text += fmt.Sprintf(", %d °C at most", hottest)
	}
}

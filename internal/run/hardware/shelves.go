package hardware

import (
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/health"
	"github.com/mortarhpc/mortar/internal/base/lists"
	"github.com/mortarhpc/mortar/internal/base/ses"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/host/gather"
	"github.com/mortarhpc/mortar/internal/host/resource"
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
func sesCommands(dev string) [][]string {
	return lists.Map(ses.Pages, func(p string) []string { return []string{"sg_ses", "--readonly", "--page=" + p, "-HHH", "/dev/" + dev} })
}

// shelvesToAsk returns each enclosure once, by the first server that sees it. Each of its I/O
// modules is a device of its own, with the same identifier. seen are the servers' answers to
// shelfRequest.
func shelvesToAsk(d *design.Design, up Disks, seen map[string]gather.Host) map[string][]Shelf {
	out := map[string][]Shelf{}
	asked := map[string]bool{}
	for _, s := range d.Servers() {
		for _, x := range findShelves(seen[s], up[s]) {
			if key := x.ID + " " + x.Name(d); !asked[key] { // makers have given several the same identifier
				asked[key] = true
				out[s] = append(out[s], x)
			}
		}
	}
	return out
}

// findShelves lists the enclosures that a server sees, sorted by device.
func findShelves(h gather.Host, disks []resource.DiskFact) []Shelf {
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

func (h *Report) readShelves(run map[string]gather.RunResult, shelves []Shelf) {
	for _, x := range shelves {
		text := ""
		for _, argv := range sesCommands(x.Device) {
			r := run[strings.Join(argv, " ")]
			switch {
			case r.Err == "" && r.Code == 0:
				text += r.Stdout
			case !strings.Contains(strings.Join(argv, " "), "=ed"): // names are a luxury
				x.Err = oneLine(r.Err + " " + r.Stderr)
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
func (a *Asker) steady() {
	was := a.bad
	a.bad = map[string]int{}
	for _, h := range a.got {
		for _, x := range h.Shelves {
			for i := range x.Report.Elements {
				e := &x.Report.Elements[i]
				if e.Level <= health.Unknown {
					continue
				}
				key := strings.Join([]string{x.ID, x.Device, e.Kind, e.Name}, "/")
				if a.bad[key] = was[key] + 1; a.bad[key] < a.probes {
					e.Level = health.OK
				}
			}
		}
	}
}

// Name is the spec's name of a shelf, by most of the disks in its slots; "" for one of
// which no disk is the brick's.
func (x *Shelf) Name(d *design.Design) string {
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

// Package discover drafts a spec from the hardware of bare hosts: their shared
// disks, networks, processors and memory. It
// marks with EDIT everything that only a person can decide.
package discover

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/lists"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/host/resource/storage"
)

// Host is the hardware of one host.
type Host struct {
	Name    string     // as `uname -n` prints it
	Address netip.Addr // address of the SSH session
	Memory  int64      // bytes
	storage.Hardware
}

// Draft is the draft of a spec for the hosts.
type Draft struct {
	Name             string
	Servers, Clients []Host
	Networks         networks
	// Enclosures has the disks for the layout, Taken the disks with data.
	Enclosures []Enclosure
	Guessed    bool // the enclosures are guessed from the serial numbers
	Taken      []storage.DiskHardware
	Single     []string // descriptions of disks that only one of two servers sees
	RAID       spec.RAID
}

// Enclosure has its disks in the order of the bays.
type Enclosure struct {
	Name  string
	ID    string // of SES
	Disks []storage.DiskHardware
}

// New drafts a spec named name, for one server or the two of a pair. It returns a
// refusal if the hosts do not fit a brick.
func New(name string, servers, clients []Host) (*Draft, error) {
	if n := len(servers); n < 1 || n > 2 {
		return nil, resource.Refuse("discover-servers", resource.With{"count": n})
	}
	d := &Draft{Name: name, Servers: servers, Clients: clients}
	var err error
	if d.Networks, err = sortNetworks(servers, clients); err != nil {
		return nil, err
	}
	free := d.sortDisks()
	if err := noLUNs(free); err != nil {
		return nil, err
	}
	d.Enclosures, d.Guessed = enclosures(free)
	if d.RAID, err = raid(len(free), len(d.Enclosures)); err != nil {
		return nil, resource.Refuse("discover-disks", resource.With{"error": err, "not_counted": d.whyFew()})
	}
	return d, nil
}

// identity is the key by which two servers' disks are the same disk. A disk without
// a WWN belongs to its server alone: virtual disks of two hosts may have the same
// serial number.
func identity(server string, d storage.DiskHardware) string {
	if d.WWN == "" {
		return d.Serial + "\x00" + server
	}
	return d.Serial + "\x00" + d.WWN
}

// sortDisks returns the disks that the brick can use: blank, with a serial number,
// and reached by every server. It keeps the others for comments in the draft.
func (d *Draft) sortDisks() (free []storage.DiskHardware) {
	seen := map[string]int{}
	for _, s := range d.Servers {
		for _, disk := range s.Disks {
			seen[identity(s.Name, disk)]++
		}
	}
	done := map[string]bool{}
	for _, s := range d.Servers {
		for _, disk := range s.Disks {
			id := identity(s.Name, disk)
			switch {
			case disk.Serial == "" || done[id]:
				continue
			case seen[id] < len(d.Servers):
				d.Single = append(d.Single, fmt.Sprintf("%s: %s", s.Name, words(disk)))
			case len(carried(d.Servers, id)) > 0:
				disk.Carries = carried(d.Servers, id)
				d.Taken = append(d.Taken, disk)
			default:
				free = append(free, disk)
			}
			done[id] = true
		}
	}
	return free
}

// carried returns the contents that any server sees on a disk.
func carried(servers []Host, id string) []string {
	var all []string
	for _, s := range servers {
		for _, disk := range s.Disks {
			if identity(s.Name, disk) == id {
				all = append(all, disk.Carries...)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// words describes a disk in one line.
func words(d storage.DiskHardware) string {
	s := fmt.Sprintf("%s, %s, %s", cmp.Or(d.Serial, d.Paths[0]), sold(d.Size), kindOf(d))
	if len(d.Carries) > 0 {
		s += ": " + strings.Join(d.Carries, ", ")
	}
	return s
}

func (d *Draft) whyFew() []string { return append(lists.Map(d.Taken, words), d.Single...) }

// noLUNs refuses LUNs of arrays, since no host sees the disks behind them.
func noLUNs(disks []storage.DiskHardware) error {
	makes := map[string]int{}
	for _, d := range disks {
		if m, ok := lunMakes[d.Vendor+" "+product(d)]; ok {
			makes[m]++
		}
	}
	for m, n := range makes {
		return resource.Refuse("discover-luns", resource.With{"count": n, "maker": m})
	}
	return nil
}

// lunMakes maps vendor and model of LUNs to the array or RAID controller.
// Source: multipath-tools, libmultipath/hwtable.c
var lunMakes = map[string]string{
	"DELL MD32xx": "an MD3200 or MD3220", "DELL MD32xxi": "an MD3200i", "DELL MD36xxi": "an MD3600i", "DELL MD36xxf": "an MD3600f", "DELL MD34xx": "an MD3400", "DELL MD38xxf": "an MD3800f",
	"DellEMC ME4": "an ME4", "DellEMC ME5": "an ME5", "NETAPP INF-01-00": "a NetApp E-Series", "DELL PERC": "a PERC",
}

func product(d storage.DiskHardware) string {
	if first, _, _ := strings.Cut(d.Product, " "); first == "PERC" {
		return first
	}
	return d.Product
}

// enclosures groups disks by SES. Without SES it groups them by the prefixes of
// their serial numbers, if these give groups of equal size (guessed).
func enclosures(disks []storage.DiskHardware) (all []Enclosure, guessed bool) {
	by := map[string][]storage.DiskHardware{}
	ses := true
	for _, d := range disks {
		ses = ses && d.Enclosure != ""
	}
	for _, d := range disks {
		key := d.Enclosure
		if !ses {
			key, _ = splitSerial(d.Serial)
		}
		by[key] = append(by[key], d)
	}
	keys := slices.Sorted(maps.Keys(by))
	if !ses && !even(by) {
		by, keys = map[string][]storage.DiskHardware{"": disks}, []string{""}
	}
	for i, k := range keys {
		e := Enclosure{Name: string(rune('A' + i%26)), Disks: by[k]}
		if i >= 26 {
			e.Name += fmt.Sprint(i / 26)
		}
		if ses {
			e.ID = k
		}
		slices.SortFunc(e.Disks, func(a, b storage.DiskHardware) int {
			return cmp.Or(cmp.Compare(a.Bay, b.Bay), strings.Compare(a.Serial, b.Serial))
		})
		all = append(all, e)
	}
	return all, !ses
}

// even reports whether all groups have the same number of disks, and more than one.
func even(by map[string][]storage.DiskHardware) bool {
	n := -1
	for _, g := range by {
		if n >= 0 && len(g) != n || len(g) < 2 {
			return false
		}
		n = len(g)
	}
	return true
}

// raid proposes RAID 6 for n disks in a number of enclosures: 8+2 if there are enough
// disks, otherwise a smaller group that leaves a spare and, if possible, survives the
// loss of an enclosure.
func raid(n, enclosures int) (spec.RAID, error) {
	r := spec.RAID{Level: 6, Parity: 2, Data: 8, Chunk: 128 * spec.KiB}
	if n < 4 {
		return r, fmt.Errorf("%d blank disks that every server reaches, and RAID 6 needs 4", n)
	}
	if n < 11 {
		r.Data = max(min(n-3, 8), 2)
		if enclosures > 1 {
			r.Data = min(r.Data, 2*enclosures-2)
		}
	}
	r.Groups = n / r.Width()
	r.Spares = n - r.Groups*r.Width()
	return r, nil
}

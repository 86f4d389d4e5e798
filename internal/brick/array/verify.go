package array

import (
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/spec"
)

// Seen is a LUN, or disk, as a host sees it.
type Seen struct {
	Device string     `json:"device"`
	WWN    string     `json:"wwn"`
	Serial string     `json:"serial"`
	Model  string     `json:"model"` // vendor and model
	Size   spec.Bytes `json:"size"`
	Paths  int        `json:"paths"`
	// Chunk and FullStripe are what the array tells of its geometry
	// (queue/minimum_io_size and optimal_io_size); 0 where it tells nothing.
	Chunk      spec.Bytes `json:"chunk,omitempty"`
	FullStripe spec.Bytes `json:"full_stripe,omitempty"`
}

// Match is a LUN of the design and what a host sees of it.
type Match struct {
	LUN  string `json:"lun"`
	Host string `json:"host"`
	Seen Seen   `json:"seen"`
}

// Finding is a difference.
type Finding struct {
	Host string `json:"host"`
	LUN  string `json:"lun,omitempty"`
	Text string `json:"text"`
}

// Result of comparing every host.
type Result struct {
	Expected int       `json:"expected"` // LUNs, counted once for each host
	Matches  []Match   `json:"matches"`
	Findings []Finding `json:"findings"`
	// Unproven is what could not be compared, and why.
	Unproven []string `json:"unproven,omitempty"`
}

// tolerance of a size: arrays keep some of it to themselves.
const tolerance = 100 // a hundredth

// products are the names a family's LUNs go by, from the SCSI inquiry.
var products = map[string][]string{
	"md3":  {"MD32", "MD36", "MD34", "MD38"},
	"me4":  {"ME4"},
	"perc": {"PERC"},
}

// Product is the product name of a family's LUNs in the SCSI inquiry.
func Product(family string) string { return products[family][0] }

func ofFamily(family, model string) bool {
	return slices.ContainsFunc(products[family], func(p string) bool { return strings.Contains(strings.ToUpper(model), p) })
}

// Verify compares what hosts see with the design. A LUN is known by its WWN
// if the spec has it, else by its size among those of the array's make.
func Verify(d *design.Design, seen map[string][]Seen) Result {
	var r Result
	r.Findings, r.Matches = []Finding{}, []Match{}
	add := func(host, lun, format string, args ...any) {
		r.Findings = append(r.Findings, Finding{host, lun, fmt.Sprintf(format, args...)})
	}
	hosts := make([]string, 0, len(seen))
	for h := range seen {
		hosts = append(hosts, h)
	}
	sort.Strings(hosts)
	tells, silent := 0, 0
	wwnOf := map[string]map[string]string{} // LUN -> host -> WWN
	for _, h := range hosts {
		used := make([]bool, len(seen[h]))
		families := map[string]bool{}
		for i := range d.Arrays {
			a := &d.Arrays[i]
			if !slices.Contains(a.Servers, h) {
				continue
			}
			families[a.Family] = true
			for _, l := range a.LUNs {
				r.Expected++
				k := find(a, l, seen[h], used)
				if k < 0 {
					add(h, l.Name, "not there: LUN %d of array %s, %s%s", l.Number, a.Name, l.Size.Binary(), wwnText(l.WWN))
					continue
				}
				used[k] = true
				s := seen[h][k]
				r.Matches = append(r.Matches, Match{l.Name, h, s})
				if wwnOf[l.Name] == nil {
					wwnOf[l.Name] = map[string]string{}
				}
				wwnOf[l.Name][h] = s.WWN
				if !near(s.Size, l.Size) {
					add(h, l.Name, "has %s (%d bytes), and the design %s (%d bytes)", s.Size.Binary(), s.Size, l.Size.Binary(), l.Size)
				}
				if want := d.PathsTo(a, h); s.Paths != want {
					add(h, l.Name, "has %d of %d paths", s.Paths, want)
				}
				if s.FullStripe == 0 && s.Chunk <= 4096 {
					silent++
					continue
				}
				tells++
				if s.Chunk > 4096 && s.Chunk != l.Chunk {
					add(h, l.Name, "tells of a chunk of %s, and the design of %s", s.Chunk, l.Chunk)
				}
				if s.FullStripe != 0 && l.Level != 10 && s.FullStripe != l.FullStripe && s.FullStripe != l.FullStripe*spec.Bytes(len(l.Groups)) {
					add(h, l.Name, "tells of a full stripe of %s, and the design of %s", s.FullStripe, l.FullStripe)
				}
			}
		}
		for k, s := range seen[h] {
			for f := range families {
				if !used[k] && ofFamily(f, s.Model) {
					add(h, "", "%s (%s, %s%s) is no LUN of the design", s.Device, strings.Join(strings.Fields(s.Model), " "), s.Size.Binary(), wwnText(s.WWN))
				}
			}
		}
	}
	r.sameOnAll(d, wwnOf)
	if silent > 0 {
		r.Unproven = append(r.Unproven, fmt.Sprintf("chunk and full stripe of %d LUNs: the array does not tell", silent))
	}
	for _, l := range d.LUNs() {
		if l.WWN == "" {
			r.Unproven = append(r.Unproven, "which LUN is which, where sizes are equal: the spec has no WWNs (arrays.wwns)")
			break
		}
	}
	return r
}

// find is the index of a LUN among what a host sees, or -1.
func find(a *design.Array, l design.LUN, seen []Seen, used []bool) int {
	if l.WWN != "" {
		return slices.IndexFunc(seen, func(s Seen) bool { return sameWWN(s.WWN, l.WWN) })
	}
	for k, s := range seen {
		if !used[k] && near(s.Size, l.Size) && (s.Model == "" || ofFamily(a.Family, s.Model)) {
			return k
		}
	}
	return -1
}

func near(a, b spec.Bytes) bool {
	diff := a - b
	if diff < 0 {
		diff = -diff
	}
	return diff <= b/tolerance
}

func sameWWN(a, b string) bool {
	clean := func(s string) string {
		return strings.TrimPrefix(strings.TrimPrefix(strings.ToLower(s), "naa."), "0x")
	}
	return clean(a) != "" && clean(a) == clean(b)
}

func wwnText(w string) string {
	if w == "" {
		return ""
	}
	return ", WWN " + w
}

// sameOnAll: all servers of an array must see the same LUNs, or the other
// one could not take over. Where the spec has no WWNs, LUNs of one size are
// told apart by nothing but their WWN, so the sets are compared.
func (r *Result) sameOnAll(d *design.Design, wwnOf map[string]map[string]string) {
	for i := range d.Arrays {
		a := &d.Arrays[i]
		if len(a.Servers) < 2 {
			continue
		}
		sets := map[string][]string{}
		for _, l := range a.LUNs {
			for h, w := range wwnOf[l.Name] {
				if w != "" {
					sets[h] = append(sets[h], w)
				}
			}
		}
		first := a.Servers[0]
		for _, h := range a.Servers[1:] {
			for _, w := range sets[first] {
				if len(sets[h]) > 0 && !slices.Contains(sets[h], w) {
					r.Findings = append(r.Findings, Finding{h, "", fmt.Sprintf("does not see the LUN with WWN %s that %s sees: it could not take it over", w, first)})
				}
			}
		}
	}
}

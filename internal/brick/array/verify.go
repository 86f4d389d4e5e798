package array

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/base/lists"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/spec"
)

// Seen is a LUN as a host sees it.
type Seen struct {
	Device string     `json:"device"`
	WWN    string     `json:"wwn"`
	Serial string     `json:"serial"`
	Model  string     `json:"model"` // vendor and model
	Size   spec.Bytes `json:"size"`
	// Number is the LUN number on the paths.
	Number int64 `json:"number"`
	// Paths that work; Controllers are those through each controller, null if the
	// paths do not tell.
	Paths       int   `json:"paths"`
	Controllers []int `json:"controllers"`
	// Owner is the controller whose paths are optimized, null if the paths do not
	// tell.
	Owner *int `json:"owner"`
	// Chunk and FullStripe are what the array tells of its geometry
	// (queue/minimum_io_size and optimal_io_size); 0 where it tells nothing.
	Chunk      spec.Bytes `json:"chunk,omitempty"`
	FullStripe spec.Bytes `json:"full_stripe,omitempty"`
	// cut is the longest command, beyond which no stripe can be told.
	cut spec.Bytes
}

// Match is a LUN of the design and what a host sees of it.
type Match struct {
	LUN  string `json:"lun"`
	Host string `json:"host"`
	Seen Seen   `json:"seen"`
}

// Identity is what a spec without WWNs lacks of an array: the WWN of each LUN,
// by number.
type Identity struct {
	Array string   `json:"array"`
	WWNs  []string `json:"wwns"`
}

// Result of comparing every host.
type Result struct {
	Expected int       `json:"expected"` // LUNs, counted once for each host
	Matches  []Match   `json:"matches"`
	Findings []Finding `json:"findings"`
	// Identities are for arrays.wwns of the spec.
	Identities []Identity `json:"identities,omitempty"`
	// Unproven is what could not be compared, and why.
	Unproven []string `json:"unproven,omitempty"`
}

// tolerance of a size: arrays keep some of it to themselves.
const tolerance = 100 // a hundredth

// products are the names a family's LUNs go by, from the SCSI inquiry.
var products = map[string][]string{
	"md3":  {"MD32", "MD36", "MD34", "MD38"},
	"me4":  {"ME4"},
	"me5":  {"ME5"},
	"perc": {"PERC"},
	// multipath-tools, libmultipath/hwtable.c: NETAPP INF-01-00
	"eseries": {"INF-01-00"},
}

// controllerNames are what a family calls its controllers.
var controllerNames = map[string][]string{"md3": {"0", "1"}, "me4": {"A", "B"}, "me5": {"A", "B"}, "eseries": {"A", "B"}, "perc": {"0"}}

// tellsWWNs is how a family's management tells the WWNs of its LUNs.
var tellsWWNs = map[string]string{
	"md3": "`SMcli … -c 'show allVirtualDisks;'`", "me4": "`show volumes details`", "me5": "`show volumes details`", "eseries": "`SMcli … -c 'show allVolumes;'`", "perc": "`perccli64 /cALL/vALL show all`",
}

func ofFamily(family string, k *linux.SCSIDisk) bool {
	return slices.ContainsFunc(products[family], func(p string) bool { return strings.Contains(strings.ToUpper(k.Product), p) })
}

// Verify compares the LUNs that hosts see with the design. A LUN is known by its
// WWN if the spec has it, else by its number and size among those of the array's
// make.
func Verify(d *design.Design, seen map[string][]linux.SCSIDisk) Result {
	v := &verifier{d: d, wwn: map[string]map[string]string{}}
	v.Findings, v.Matches = []Finding{}, []Match{}
	all := lists.Map(slices.Sorted(maps.Keys(seen)), func(h string) *finder { return v.look(h, seen[h]) })
	for _, f := range all {
		v.host(f, all)
	}
	for i := range d.Arrays {
		v.sameOnAll(&d.Arrays[i])
		v.identify(&d.Arrays[i])
	}
	v.notCompared()
	return v.Result
}

type verifier struct {
	Result
	d      *design.Design
	wwn    map[string]map[string]string // LUN -> host -> WWN
	silent map[string]bool              // LUNs whose geometry the array does not tell
	owners bool                         // the array tells which controller owns a LUN
}

func (v *verifier) add(host, lun, code string, args with) {
	v.Findings = append(v.Findings, Found(host, lun, code, args))
}

func (v *verifier) look(h string, disks []linux.SCSIDisk) *finder {
	f := &finder{host: h, disks: disks, used: make([]bool, len(disks)), at: map[string]int{}, twice: map[string]bool{}}
	for i := range v.d.Arrays {
		if a := &v.d.Arrays[i]; slices.Contains(a.Servers, h) {
			f.arrays = append(f.arrays, a)
		}
	}
	for _, a := range f.arrays {
		if !f.twice[a.Family] && a.Family != "perc" && unnamed(a) {
			f.twice[a.Family] = v.twice(h, a.Family, disks)
		}
	}
	f.find()
	return f
}

// host compares what was found on a host; all are the finders of all hosts.
func (v *verifier) host(f *finder, all []*finder) {
	for _, a := range f.arrays {
		ctl := controllers(a, all)
		for i := range a.LUNs {
			l := &a.LUNs[i]
			v.Expected++
			k, ok := f.at[l.Name]
			switch {
			case ok:
				v.judge(f.host, a, l, &f.disks[k], ctl)
			case !f.twice[a.Family] || l.WWN != "":
				v.add(f.host, l.Name, Missing, with{"number": l.Number, "array": a.Name, "size": l.Size.Binary(), "wwn": l.WWN})
			}
		}
	}
	for i := range f.disks {
		k := &f.disks[i]
		for _, a := range f.arrays {
			if !f.used[i] && !f.twice[a.Family] && ofFamily(a.Family, k) {
				v.add(f.host, "", "lun-extra", with{"device": k.Device, "model": model(k), "number": number(k), "size": spec.Bytes(k.Size).Binary(), "wwn": k.WWN})
				break
			}
		}
	}
}

// unnamed tells whether the spec has no WWN of any of an array's LUNs.
func unnamed(a *design.Array) bool {
	return !slices.ContainsFunc(a.LUNs, func(l design.LUN) bool { return l.WWN != "" })
}

// twice finds LUN numbers that two arrays of a family present to a host: without
// WWNs nothing tells which LUN is which.
func (v *verifier) twice(h, family string, disks []linux.SCSIDisk) bool {
	byNumber := map[int64][]string{}
	for i := range disks {
		if ofFamily(family, &disks[i]) {
			n := number(&disks[i])
			byNumber[n] = append(byNumber[n], disks[i].WWN)
		}
	}
	for _, n := range slices.Sorted(maps.Keys(byNumber)) {
		if len(byNumber[n]) > 1 {
			v.add(h, "", "lun-twice", with{"number": n, "times": len(byNumber[n]), "wwns": strings.Join(byNumber[n], ", "), "tool": tellsWWNs[family]})
			return true
		}
	}
	return false
}

func number(k *linux.SCSIDisk) int64 {
	if len(k.Paths) == 0 {
		return -1
	}
	return k.Paths[0].LUN
}

// finder finds the LUNs of a host among its disks.
type finder struct {
	host   string
	arrays []*design.Array // that the host is cabled to
	disks  []linux.SCSIDisk
	used   []bool
	at     map[string]int  // LUN -> index of the disk
	twice  map[string]bool // families with a number that two arrays have
}

// find matches LUNs by WWN, then those without a WWN by number and size, by number
// alone and by size alone. A finding names the right LUN that way.
// Numbers mean nothing on a controller in the server.
func (f *finder) find() {
	unnamed := func(a *design.Array, l *design.LUN, k *linux.SCSIDisk) bool {
		return l.WWN == "" && !f.twice[a.Family] && ofFamily(a.Family, k)
	}
	numbered := func(a *design.Array, l *design.LUN, k *linux.SCSIDisk) bool {
		return unnamed(a, l, k) && a.Family != "perc" && number(k) == int64(l.Number)
	}
	sized := func(a *design.Array, l *design.LUN, k *linux.SCSIDisk) bool {
		return unnamed(a, l, k) && near(k.Size, l.Size)
	}
	for _, like := range []func(*design.Array, *design.LUN, *linux.SCSIDisk) bool{
		func(_ *design.Array, l *design.LUN, k *linux.SCSIDisk) bool { return sameWWN(k.WWN, l.WWN) },
		func(a *design.Array, l *design.LUN, k *linux.SCSIDisk) bool {
			return numbered(a, l, k) && sized(a, l, k)
		},
		numbered,
		sized,
	} {
		for _, a := range f.arrays {
			for i := range a.LUNs {
				f.take(&a.LUNs[i], func(k *linux.SCSIDisk) bool { return like(a, &a.LUNs[i], k) })
			}
		}
	}
}

// take gives a LUN that has none yet the first disk that is like it.
func (f *finder) take(l *design.LUN, like func(*linux.SCSIDisk) bool) {
	if _, found := f.at[l.Name]; found {
		return
	}
	for k := range f.disks {
		if !f.used[k] && like(&f.disks[k]) {
			f.used[k], f.at[l.Name] = true, k
			return
		}
	}
}

// controllers says which controller of an array each target port group is; nil if
// the paths tell of no two groups. The design only has a first and a second
// controller, so the lower number is the first's, unless far more LUNs are at
// home the other way round: after one controller has taken all over, half are.
func controllers(a *design.Array, all []*finder) map[int]int {
	optimized := map[int][2]int{} // by group: paths that are optimized to LUNs of controller 0, and of 1
	for _, f := range all {
		for _, l := range a.LUNs {
			k, ok := f.at[l.Name]
			if !ok {
				continue
			}
			for _, p := range f.disks[k].Paths {
				n := optimized[p.Group]
				if p.Optimized() {
					n[l.Controller]++
				}
				optimized[p.Group] = n
			}
		}
	}
	delete(optimized, 0)
	if len(optimized) != 2 {
		return nil
	}
	ids := slices.Sorted(maps.Keys(optimized))
	low, high := optimized[ids[0]], optimized[ids[1]]
	if low[1]+high[0] > 2*(low[0]+high[1]) {
		return map[int]int{ids[0]: 1, ids[1]: 0}
	}
	return map[int]int{ids[0]: 0, ids[1]: 1}
}

func (v *verifier) judge(h string, a *design.Array, l *design.LUN, k *linux.SCSIDisk, ctl map[int]int) {
	s := see(k, ctl)
	v.Matches = append(v.Matches, Match{l.Name, h, s})
	if v.wwn[l.Name] == nil {
		v.wwn[l.Name] = map[string]string{}
	}
	v.wwn[l.Name][h] = k.WWN
	if !ofFamily(a.Family, k) {
		v.add(h, l.Name, "lun-model", with{"model": s.Model, "array": a.Name, "want": spec.Article(a.Model)})
	}
	if a.Family != "perc" && s.Number != int64(l.Number) {
		v.add(h, l.Name, "lun-number", with{"number": s.Number, "want": l.Number})
	}
	if !near(k.Size, l.Size) {
		v.add(h, l.Name, "lun-size", with{"size": s.Size.Binary(), "bytes": int64(s.Size), "want": l.Size.Binary(), "wanted": int64(l.Size)})
	}
	v.geometry(h, l, &s)
	v.paths(h, a, l, k, &s)
}

// geometry compares segment size and stripe, as far as the array tells them.
func (v *verifier) geometry(h string, l *design.LUN, s *Seen) {
	if s.FullStripe == 0 && s.Chunk <= 4096 {
		if v.silent == nil {
			v.silent = map[string]bool{}
		}
		v.silent[l.Name] = true
		return
	}
	if s.Chunk > 4096 && s.Chunk != l.Chunk {
		v.add(h, l.Name, "lun-segment", with{"segment": s.Chunk, "want": l.Chunk})
		if s.FullStripe*l.Chunk == l.FullStripe*s.Chunk {
			return // as many data disks as designed: the stripe differs by its segments only
		}
	}
	if s.FullStripe == s.cut && s.FullStripe < l.FullStripe {
		return // it tells the longest command instead: QEMU does so, and drivers may
	}
	if s.FullStripe != 0 && l.Level != 10 && s.FullStripe != l.FullStripe && s.FullStripe != l.FullStripe*spec.Bytes(len(l.Groups)) {
		v.add(h, l.Name, "lun-stripe", with{"stripe": s.FullStripe, "want": l.FullStripe})
	}
}

// paths compares the number of paths, and who owns the LUN.
func (v *verifier) paths(h string, a *design.Array, l *design.LUN, k *linux.SCSIDisk, s *Seen) {
	want := v.d.PathsTo(a, h)
	var each []string
	uneven := false
	for i, n := range s.Controllers {
		each = append(each, fmt.Sprintf("%d by controller %s", n, controllerName(a, i)))
		uneven = uneven || n != want/len(s.Controllers)
	}
	switch {
	case s.Paths == 0:
		v.add(h, l.Name, Dead, with{"paths": len(k.Paths)})
	case s.Paths != want:
		v.add(h, l.Name, Impaired, with{"paths": s.Paths, "want": want, "each": each})
	case uneven:
		v.add(h, l.Name, "lun-miscabled", with{"each": each, "want": want / 2})
	}
	if s.Owner == nil {
		return
	}
	v.owners = true
	if *s.Owner != l.Controller {
		v.add(h, l.Name, Moved, with{"owner": controllerName(a, *s.Owner), "want": controllerName(a, l.Controller)})
	}
}

func usable(k *linux.SCSIDisk) []linux.SCSIPath {
	return slices.DeleteFunc(slices.Clone(k.Paths), func(p linux.SCSIPath) bool { return !p.Usable() })
}

func see(k *linux.SCSIDisk, ctl map[int]int) Seen {
	s := Seen{Device: k.Device, WWN: k.WWN, Serial: k.Serial, Model: model(k), Size: spec.Bytes(k.Size), Number: number(k),
		Chunk: spec.Bytes(k.Chunk), FullStripe: spec.Bytes(k.FullStripe), cut: spec.Bytes(k.MaxTransfer)}
	if ctl != nil {
		s.Controllers = make([]int, len(ctl))
	}
	optimized := map[int]bool{}
	for _, p := range usable(k) {
		s.Paths++
		c, known := ctl[p.Group]
		if !known {
			continue
		}
		s.Controllers[c]++
		if p.Optimized() {
			optimized[c] = true
		}
	}
	if len(optimized) == 1 {
		s.Owner = new(slices.Collect(maps.Keys(optimized))[0])
	}
	return s
}

func controllerName(a *design.Array, i int) string { return controllerNames[a.Family][i] }

// model is vendor and product, without the blanks that fill them up.
func model(k *linux.SCSIDisk) string {
	return strings.Join(strings.Fields(k.Vendor+" "+k.Product), " ")
}

func near(size int64, want spec.Bytes) bool {
	diff := spec.Bytes(size) - want
	return max(diff, -diff) <= want/tolerance
}

func sameWWN(a, b string) bool {
	clean := func(s string) string {
		return strings.TrimPrefix(strings.TrimPrefix(strings.ToLower(s), "naa."), "0x")
	}
	return clean(a) != "" && clean(a) == clean(b)
}

// sameOnAll: all servers of an array must see the same LUN under a number, or
// the other one would take something else over.
func (v *verifier) sameOnAll(a *design.Array) {
	for _, l := range a.LUNs {
		first := ""
		for _, h := range a.Servers {
			w := v.wwn[l.Name][h]
			switch {
			case w == "":
			case first == "":
				first = h
			case !sameWWN(w, v.wwn[l.Name][first]):
				v.add(h, l.Name, "lun-other", with{"first": first, "wwn": w, "want": v.wwn[l.Name][first]})
			}
		}
	}
}

// identify collects the WWNs of an array that the spec has none of, if nothing
// speaks against them.
func (v *verifier) identify(a *design.Array) {
	if !unnamed(a) {
		return
	}
	id := Identity{Array: a.Name}
	for _, l := range a.LUNs {
		wwn := ""
		for _, h := range a.Servers {
			wwn = cmp.Or(wwn, v.wwn[l.Name][h])
		}
		if wwn == "" || slices.ContainsFunc(v.Findings, func(f Finding) bool { return f.LUN == l.Name && !f.Passing }) {
			return
		}
		id.WWNs = append(id.WWNs, wwn)
	}
	v.Identities = append(v.Identities, id)
}

func (v *verifier) notCompared() {
	say := func(format string, args ...any) { v.Unproven = append(v.Unproven, fmt.Sprintf(format, args...)) }
	if n := len(v.silent); n > 0 {
		say("segment size and full stripe of %d LUNs: the array does not tell", n)
	}
	direct := true
	for i := range v.d.Arrays {
		a := &v.d.Arrays[i]
		direct = direct && a.Family == "perc"
		if unnamed(a) {
			say("which LUN of array %s is which, beyond number and size: the spec has no WWNs (arrays.wwns)", a.Name)
		}
	}
	if !v.owners && !direct && len(v.Matches) > 0 {
		say("which controller owns a LUN: the paths do not tell")
	}
}

// Text prints a result for a person.
func (r Result) Text(w io.Writer, d *design.Design) error {
	var b strings.Builder
	for _, m := range r.Matches {
		fmt.Fprintf(&b, "%-12s %-18s LUN %-3d %10s  %-24s %s\n", m.Host, m.LUN, m.Seen.Number, m.Seen.Size.Binary(), m.paths(d), m.Seen.WWN)
	}
	for _, g := range Grouped(r.Findings) {
		fmt.Fprintf(&b, "! %s: %s\n    mend: %s\n", strings.Join(g.Hosts, ", "), g.Sentence(d), g.Mend)
	}
	for _, u := range r.Unproven {
		fmt.Fprintf(&b, "not compared: %s\n", u)
	}
	if len(r.Identities) > 0 {
		b.WriteString("WWNs for the spec (arrays.wwns); mortar array verify --write puts them there:\n")
	}
	for _, id := range r.Identities {
		fmt.Fprintf(&b, "  - name: %s\n    wwns: [\"%s\"]\n", id.Array, strings.Join(id.WWNs, `", "`))
	}
	fmt.Fprintf(&b, "%d of %d LUNs found, %s.\n", len(r.Matches), r.Expected, spec.Plural(len(r.Findings), "difference"))
	_, err := io.WriteString(w, b.String())
	return err
}

// paths formats the paths to a LUN: "4 paths (A 2, B 2), owner A".
func (m Match) paths(d *design.Design) string {
	a := lists.Find(d.Arrays, func(a *design.Array) bool {
		return slices.ContainsFunc(a.LUNs, func(l design.LUN) bool { return l.Name == m.LUN })
	})
	text := spec.Plural(m.Seen.Paths, "path")
	var each []string
	for c, n := range m.Seen.Controllers {
		each = append(each, fmt.Sprintf("%s %d", controllerName(a, c), n))
	}
	if len(each) > 0 {
		text += " (" + strings.Join(each, ", ") + ")"
	}
	if m.Seen.Owner != nil {
		text += ", owner " + controllerName(a, *m.Seen.Owner)
	}
	return text
}

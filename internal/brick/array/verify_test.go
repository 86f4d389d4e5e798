package array

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/spec"
)

// whatIsThere is what servers see if the arrays are as designed: each HBA
// reaches both controllers of each array, at targets of their own.
func whatIsThere(d *design.Design) map[string][]linux.SCSIDisk {
	makes := map[string][2]string{"md3": {"DELL", "MD32xx"}, "me4": {"DellEMC", "ME4"}, "perc": {"DELL", "PERC H810"}}
	out := map[string][]linux.SCSIDisk{}
	for i := range d.Arrays {
		a := &d.Arrays[i]
		for _, s := range a.Servers {
			out[s] = append(out[s], linux.SCSIDisk{Device: "/dev/sda", WWN: "55cd2e404b6f0000", Vendor: "ATA", Product: "INTEL SSD", Size: 480e9,
				Paths: []linux.SCSIPath{{Name: "sda", State: "running"}}})
			for _, l := range a.LUNs {
				k := linux.SCSIDisk{
					Device: "/dev/mapper/" + l.Name, WWN: fmt.Sprintf("600a0b80%04x%020x", i, l.Number), Vendor: makes[a.Family][0], Product: makes[a.Family][1],
					Size: int64(l.Size - l.Size/500), Chunk: int64(l.Chunk), FullStripe: int64(l.FullStripe),
				}
				for n := range d.PathsTo(a, s) {
					p := linux.SCSIPath{Name: fmt.Sprintf("sd%d%c", l.Number, 'b'+n), Host: 2 + n/2, Target: 2*i + n%2, LUN: int64(l.Number), State: "running"}
					if a.Family != "perc" {
						p.Group, p.Access = 1+n%2, "active/non-optimized"
						if n%2 == l.Controller {
							p.Access = "active/optimized"
						}
					}
					k.Paths = append(k.Paths, p)
				}
				out[s] = append(out[s], k)
			}
		}
	}
	return out
}

func TestVerifyClean(t *testing.T) {
	for _, name := range []string{"nss4-ha-144", "nss4-ha-288", "nss5.5", "nfs-dfc", "nss7.4-ha", "lustre-brick", "lustre-rack"} {
		d := example(t, name)
		r := Verify(d, whatIsThere(d))
		if len(r.Findings) != 0 || len(r.Matches) != r.Expected || r.Expected == 0 {
			t.Errorf("%s: %d of %d, %v", name, len(r.Matches), r.Expected, r.Findings)
		}
		if len(r.Unproven) == 0 || len(r.Identities) != len(d.Arrays) {
			t.Errorf("%s: missing WWNs: %q, %v", name, r.Unproven, r.Identities)
		}
		for i, id := range r.Identities {
			if id.Array != d.Arrays[i].Name || len(id.WWNs) != len(d.Arrays[i].LUNs) || !strings.HasSuffix(id.WWNs[len(id.WWNs)-1], fmt.Sprint(len(id.WWNs)-1)) {
				t.Errorf("%s: %+v", name, id)
			}
		}
	}
}

// named writes the WWNs of whatIsThere into a design.
func named(d *design.Design) *design.Design {
	for i := range d.Arrays {
		for n := range d.Arrays[i].LUNs {
			d.Arrays[i].LUNs[n].WWN = fmt.Sprintf("600a0b80%04x%020x", i, n)
		}
	}
	return d
}

// Two arrays of one make have LUNs of the same numbers: that is right if the
// spec has the WWNs, and cannot be told apart if it has not.
func TestVerifyTwoArrays(t *testing.T) {
	d := example(t, "nss-ha-xl")
	r := Verify(d, whatIsThere(d))
	if len(r.Identities) != 0 || len(r.Findings) != 2 {
		t.Errorf("%v %v", r.Identities, r.Findings)
	}
	for _, f := range r.Findings {
		if f.Code != "lun-twice" || f.Passing {
			t.Errorf("%+v", f)
		}
	}
	r = Verify(named(d), whatIsThere(d))
	if len(r.Findings) != 0 || len(r.Matches) != r.Expected {
		t.Errorf("with WWNs: %d of %d, %v", len(r.Matches), r.Expected, r.Findings)
	}
}

// Each difference is found, and is found alone. It has the arguments that its kind's text needs,
// and each kind is found, but those of reservations and of what a LUN carries.
func TestVerifyFindings(t *testing.T) {
	found := map[string]bool{"lun-stranger": true, "lun-unregistered": true, "lun-unreserved": true, "lun-refused": true}
	const lun0, lun1 = 1, 2 // after the server's own disk
	type all = map[string][]linux.SCSIDisk
	for _, c := range []struct {
		name  string
		wwns  bool
		spoil func(seen all)
		want  []string // host, LUN, code and arguments of each, or how that begins
	}{
		{"a LUN is missing", false, func(s all) { s["nss2"] = s["nss2"][:4] }, []string{"nss2 nss4-lun3 lun-missing"}},
		{"another one in its place", true, func(s all) { s["nss1"][lun1].WWN = "600a0b8000000000000000000000ffff" }, []string{"nss1 nss4-lun1 lun-missing", "nss1  lun-extra"}},
		{"another size", true, func(s all) { s["nss1"][lun0].Size /= 2 }, []string{"nss1 nss4-lun0 lun-size map[bytes:14970277582602 "}},
		{"another size, no WWNs", false, func(s all) { s["nss1"][lun0].Size *= 2 }, []string{"nss1 nss4-lun0 lun-size map[bytes:59881110330410 "}},
		{"another number", true, func(s all) { renumber(&s["nss1"][lun0], 9) }, []string{"nss1 nss4-lun0 lun-number map[number:9 want:0]"}},
		{"another number, no WWNs", false, func(s all) { renumber(&s["nss1"][lun0], 9); renumber(&s["nss2"][lun0], 9) }, []string{"nss1 nss4-lun0 lun-number map[number:9 want:0]", "nss2 nss4-lun0 lun-number map[number:9 want:0]"}},
		{"another segment", false, func(s all) { s["nss1"][lun0].Chunk = 128 << 10 }, []string{"nss1 nss4-lun0 lun-segment map[segment:128KiB want:512KiB]"}},
		{"another segment, and so another stripe", false, func(s all) { s["nss1"][lun0].Chunk, s["nss1"][lun0].FullStripe = 128<<10, 10*128<<10 }, []string{"nss1 nss4-lun0 lun-segment map[segment:128KiB want:512KiB]"}},
		{"another RAID level", false, func(s all) { s["nss1"][lun0].FullStripe = 11 * 512 << 10 }, []string{"nss1 nss4-lun0 lun-stripe map[stripe:5632KiB want:5MiB]"}},
		{"a stripe longer than any command", false, func(s all) { s["nss1"][lun0].FullStripe, s["nss1"][lun0].MaxTransfer = 1<<20, 1<<20 }, nil},
		{"a shorter stripe", false, func(s all) { s["nss1"][lun0].FullStripe, s["nss1"][lun0].MaxTransfer = 1<<20, 2<<20 }, []string{"nss1 nss4-lun0 lun-stripe map[stripe:1MiB want:5MiB]"}},
		{"a path is missing", false, func(s all) { s["nss2"][lun0].Paths = s["nss2"][lun0].Paths[1:] }, []string{"nss2 nss4-lun0 lun-impaired map[each:[1 by controller 0 2 by controller 1] paths:3 want:4]"}},
		{"a path does not work", false, func(s all) { s["nss2"][lun0].Paths[0].State = "offline" }, []string{"nss2 nss4-lun0 lun-impaired map[each:[1 by controller 0 2 by controller 1] paths:3 want:4]"}},
		{"one path only", false, func(s all) { s["nss2"][lun0].Paths = s["nss2"][lun0].Paths[:1] }, []string{"nss2 nss4-lun0 lun-impaired map[each:[1 by controller 0 0 by controller 1] paths:1 want:4]"}},
		{"no path works", false, func(s all) {
			for i := range s["nss2"][lun0].Paths {
				s["nss2"][lun0].Paths[i].Access = "unavailable"
			}
		}, []string{"nss2 nss4-lun0 lun-dead map[paths:4]"}},
		{"two cables at one controller", false, func(s all) { s["nss2"][lun0].Paths[1].Group = 1 }, []string{"nss2 nss4-lun0 lun-miscabled map[each:[3 by controller 0 1 by controller 1] want:2]"}},
		{"another owner", false, func(s all) { swap(&s["nss1"][lun0]) }, []string{"nss1 nss4-lun0 lun-moved map[owner:1 want:0]"}},
		{"all of one controller", false, func(s all) {
			for i := lun0; i < 5; i += 2 {
				swap(&s["nss1"][i])
				swap(&s["nss2"][i])
			}
		}, []string{"nss1 nss4-lun0 lun-moved map[owner:1 want:0]", "nss1 nss4-lun2 lun-moved map[owner:1 want:0]", "nss2 nss4-lun0 lun-moved map[owner:1 want:0]", "nss2 nss4-lun2 lun-moved map[owner:1 want:0]"}},
		{"all of one controller, and one that is missing", false, func(s all) {
			for i := lun0; i < 5; i += 2 {
				swap(&s["nss1"][i])
				swap(&s["nss2"][i])
			}
			s["nss2"] = s["nss2"][:4]
		}, []string{"nss1 nss4-lun0 lun-moved map[owner:1 want:0]", "nss1 nss4-lun2 lun-moved map[owner:1 want:0]", "nss2 nss4-lun0 lun-moved map[owner:1 want:0]", "nss2 nss4-lun2 lun-moved map[owner:1 want:0]", "nss2 nss4-lun3 lun-missing"}},
		{"another numbering of the groups", false, func(s all) {
			for _, disks := range s {
				for i := range disks {
					swap(&disks[i])
				}
			}
		}, nil},
		{"one too many", false, func(s all) {
			s["nss1"] = append(s["nss1"], linux.SCSIDisk{Device: "/dev/sdz", WWN: "600a0b80000000000000000000000009", Vendor: "DELL", Product: "MD32xx", Size: 1e12, Paths: []linux.SCSIPath{{Name: "sdz", LUN: 9, State: "running"}}})
		}, []string{"nss1  lun-extra"}},
		{"other LUNs on the other server", false, func(s all) { s["nss2"][lun0].WWN = "600a0b80000000000000000000000007" }, []string{"nss2 nss4-lun0 lun-other map[first:nss1 want:600a0b80000000000000000000000000 wwn:600a0b80000000000000000000000007]"}},
		{"a foreign vendor", true, func(s all) { s["nss1"][lun0].Vendor, s["nss1"][lun0].Product = "HPE", "MSA 2060" }, []string{"nss1 nss4-lun0 lun-model"}},
		{"a foreign vendor, no WWNs", false, func(s all) { s["nss1"][lun0].Vendor, s["nss1"][lun0].Product = "HPE", "MSA 2060" }, []string{"nss1 nss4-lun0 lun-missing"}},
		{"two arrays with the same LUN number", false, func(s all) {
			s["nss1"] = append(s["nss1"], s["nss1"][lun0])
			s["nss1"][5].WWN = "600a0b80ffff"
		}, []string{"nss1  lun-twice"}},
	} {
		d := example(t, "nss4-ha-144")
		if c.wwns {
			d = named(d)
		}
		seen := whatIsThere(d)
		if r := Verify(d, seen); len(r.Findings) != 0 {
			t.Fatalf("%s: not clean to begin with: %v", c.name, r.Findings)
		}
		c.spoil(seen)
		r := Verify(d, seen)
		ok := len(r.Findings) == len(c.want)
		for i, f := range r.Findings {
			ok = ok && f.Mend != "" && strings.HasPrefix(fmt.Sprint(f.Host, " ", f.LUN, " ", f.Code, " ", f.Args), c.want[i])
			found[f.Code] = true
			for _, m := range regexp.MustCompile(`\{(\w+)`).FindAllStringSubmatch(Kinds[f.Code].Text+Kinds[f.Code].Mend, -1) {
				if _, has := f.Args[m[1]]; !has {
					t.Errorf("%s needs %q, and has %v", f.Code, m[1], f.Args)
				}
			}
		}
		if !ok {
			t.Errorf("%s:\n%v, want\n%q", c.name, r.Findings, c.want)
		}
	}
	for code := range Kinds {
		if !found[code] {
			t.Errorf("nothing finds %s", code)
		}
	}
}

// Grouped joins a fault of several LUNs into one finding.
func TestGrouped(t *testing.T) {
	d := example(t, "nss4-ha-144")
	seen := whatIsThere(d)
	for _, disks := range seen {
		for i := range disks {
			if i > 0 {
				disks[i].Chunk = 128 << 10
			}
		}
	}
	for _, i := range []int{1, 3} {
		seen["nss1"][i].Size *= 2
	}
	var got []string
	for _, g := range Grouped(Verify(d, seen).Findings) {
		got = append(got, strings.Join(g.Hosts, ", ")+": "+g.Sentence(d))
	}
	want := []string{
		"nss1: each of the LUNs nss4-lun0 and nss4-lun2 has 54.46 TiB (59881110330410 bytes), and the design 27.29 TiB (30000556277760 bytes)",
		"nss1, nss2: each of the 4 LUNs of array nss4 tells of a segment (chunk) of 128KiB, and the design of 512KiB",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// An owner that is not told is no difference; nor is a wrong WWN proposed.
func TestVerifyUnproven(t *testing.T) {
	d := example(t, "nss4-ha-144")
	seen := whatIsThere(d)
	for _, disks := range seen {
		for i := range disks {
			disks[i].Chunk, disks[i].FullStripe = 512, 0
			for j := range disks[i].Paths {
				disks[i].Paths[j].Group, disks[i].Paths[j].Access = 0, ""
			}
		}
	}
	r := Verify(d, seen)
	want := []string{
		"segment size and full stripe of 4 LUNs: the array does not tell",
		"which LUN of array nss4 is which, beyond number and size: the spec has no WWNs (arrays.wwns)",
		"which controller owns a LUN: the paths do not tell",
	}
	if diff := cmp.Diff(want, r.Unproven); diff != "" || len(r.Findings) > 0 {
		t.Errorf("%v\n%s", r.Findings, diff)
	}
	seen["nss1"][1].Size = int64(spec.GiB)
	if r := Verify(d, seen); len(r.Identities) != 0 {
		t.Errorf("%v", r.Identities)
	}
}

func renumber(k *linux.SCSIDisk, n int64) {
	k.Paths = slices.Clone(k.Paths)
	for i := range k.Paths {
		k.Paths[i].LUN = n
	}
}

// swap gives a LUN to the other controller.
func swap(k *linux.SCSIDisk) {
	for i := range k.Paths {
		p := &k.Paths[i]
		p.Access = map[bool]string{true: "active/non-optimized", false: "active/optimized"}[p.Optimized()]
	}
}

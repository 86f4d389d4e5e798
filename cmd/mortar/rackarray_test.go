package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/examples"
	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/brick/array"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/rack/configure"
	"github.com/mortarhpc/mortar/internal/rack/hw"
)

// The scripts make every array of the papers as designed: disks, groups, spares, LUNs and
// paths, at a thousandth of their size. A PERC is its LUNs alone.
func TestRackArrays(t *testing.T) {
	for _, v := range []struct {
		example                                   string
		arrays, disks, groups, luns, spare, paths int // per array
	}{
		{"nss2-ha", 1, 48, 4, 4, 0, 2},
		{"nss3-ha", 1, 96, 8, 8, 0, 2},
		{"nss4-ha-144", 1, 48, 4, 4, 0, 4},
		{"nss4-ha-288", 1, 96, 8, 8, 0, 4},
		{"nss7.3-ha", 1, 84, 8, 8, 4, 4},
		{"nss7.4-ha", 1, 84, 8, 8, 4, 4},
		{"nss-ha-xl", 2, 96, 8, 8, 0, 4},
		{"nss5.5", 0, 0, 0, 2, 0, 1},
		{"nfs-dfc", 0, 0, 0, 1, 0, 1},
	} {
		src, err := examples.FS.ReadFile(v.example + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		s, err := spec.Parse(v.example+".yaml", src)
		if err == nil {
			err = s.Scale(1000)
		}
		if err != nil {
			t.Fatal(err)
		}
		d, err := design.Derive(s)
		if err != nil {
			t.Fatal(err)
		}
		made, err := rackArrays(d, false)
		if err != nil {
			t.Fatal(err)
		}
		c, err := hw.FromSpec(s, made...)
		if err != nil {
			t.Fatalf("%s: %v", v.example, err)
		}
		for i, a := range d.Arrays {
			for k, l := range a.LUNs {
				if m := made[i].LUNs[k]; m.Name != l.Name || m.Number != l.Number || m.Controller != l.Controller || m.Bytes != int64(l.Size) ||
					m.Chunk != int64(l.Chunk) || m.FullStripe != int64(l.FullStripe) || m.WWN != l.WWN || m.Servers != nil {
					t.Errorf("%s: made %+v, designed %+v", v.example, m, l)
				}
			}
			for k := range a.Spares {
				if !slices.Contains(made[i].Spares, a.Spares[k].Serial) {
					t.Errorf("%s: no spare %s", v.example, a.Spares[k].Serial)
				}
			}
		}
		arrays, luns := 0, 0
		for _, e := range c.Enclosures {
			if e.Array == nil {
				luns += len(e.Disks)
				continue
			}
			arrays++
			spare := len(e.Array.Disks)
			for _, g := range e.Array.Groups {
				spare -= len(g.Members)
			}
			if len(e.Array.Disks) != v.disks || len(e.Array.Groups) != v.groups || len(e.Disks) != v.luns || spare != v.spare || e.Paths != v.paths {
				t.Errorf("%s: %s: %d disks, %d groups, %d LUNs, %d spares, %d paths; want %+v",
					v.example, e.Name, len(e.Array.Disks), len(e.Array.Groups), len(e.Disks), spare, e.Paths, v)
			}
		}
		if arrays != v.arrays || v.arrays == 0 && luns != v.luns {
			t.Errorf("%s: %d arrays and %d plain LUNs, want %+v", v.example, arrays, luns, v)
		}
		for _, n := range c.Nodes {
			if n.MemoryMiB > 1280 {
				t.Errorf("%s: %s has %d MiB", v.example, n.Name, n.MemoryMiB)
			}
		}
	}
}

// seenOn is what servers of a rack see of its arrays, as the rack plugs it.
func seenOn(c *hw.Config) map[string][]linux.SCSIDisk {
	out := map[string][]linux.SCSIDisk{}
	none := &hw.Hardware{}
	for _, n := range c.Nodes {
		if hw.IsServer(&n) {
			out[n.Name] = nil // and nothing else
		}
		for _, d := range c.SharedDisks() {
			k := linux.SCSIDisk{Device: "/dev/" + d.Name, WWN: d.WWN, Vendor: d.Vendor, Product: d.Product, Size: d.Bytes, Chunk: d.Chunk, FullStripe: d.FullStripe}
			for path := range d.Paths {
				if none.PathGone(n.Name, d, path) {
					continue
				}
				p := linux.SCSIPath{Name: "sd", Host: d.HBA(path), State: "running"}
				if d.Array != nil {
					p.LUN, p.Group = int64(d.LUN.Number), 1+d.Module(path)
					p.Access = []string{"active/optimized", "active/non-optimized"}[none.ALUA(d.Array, d.LUN, d.Module(path))]
				}
				k.Paths = append(k.Paths, p)
			}
			if len(k.Paths) > 0 {
				out[n.Name] = append(out[n.Name], k)
			}
		}
	}
	return out
}

// On arrays that the printed scripts have made, array verify finds no difference. It finds
// each deviation that is planted into a script, by what servers see.
func TestVerifyOfScripts(t *testing.T) {
	verify := func(name, model, array1 string, wwns bool, oldNew ...string) []string {
		t.Helper()
		src, err := examples.FS.ReadFile(name + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		s, err := spec.Parse(name+".yaml", []byte(model2(string(src), model)))
		if err != nil {
			t.Fatal(err)
		}
		d, err := design.Derive(s)
		if err != nil {
			t.Fatal(err)
		}
		a := &d.Arrays[slices.IndexFunc(d.Arrays, func(a design.Array) bool { return a.Name == array1 })]
		text, err := array.Script(d, a.Name, "", 0)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(oldNew); i += 2 {
			if !strings.Contains(text, oldNew[i]) {
				t.Fatalf("%s: the script has no %q", name, oldNew[i])
			}
			text = strings.ReplaceAll(text, oldNew[i], oldNew[i+1])
		}
		made, _, err := configure.Array(t.Context(), s, hw.Storage{Name: a.Name, Servers: a.Servers, Paths: d.PathsTo(a, a.Servers[0])}, text)
		if err != nil {
			t.Fatalf("%s with %q: %v", name, oldNew, err)
		}
		c, err := hw.FromSpec(s, made)
		if err != nil {
			t.Fatal(err)
		}
		if wwns {
			for i := range a.LUNs {
				a.LUNs[i].WWN = hw.Hashed("other")[:30] + string(rune('a'+i%6)) + "0"
			}
		}
		d.Arrays = []design.Array{*a}
		var out []string
		for _, f := range array.Verify(d, seenOn(&c)).Findings {
			out = append(out, f.Host+": "+array.Grouped([]array.Finding{f})[0].Sentence(d))
		}
		return out
	}
	for _, c := range []struct{ name, model, array string }{
		{"nss7.4-ha", "", "nss7"}, {"nss2-ha", "", "nss2"}, {"nss4-ha-288", "", "nss4"}, {"lustre-brick", "", "md3220"}, {"lustre-brick", "", "md3200-1"},
		{"nss5.5", "", "perc2"}, {"nss7.4-ha", "ME5084", "nss7"}, {"nss5.5", "PERC-H755", "perc2"},
	} {
		if found := verify(c.name, c.model, c.array, false); len(found) != 0 {
			t.Errorf("%s (%s): %q", c.name, c.model, found)
		}
	}
	const lun3 = `set virtualDisk ["nss2-lun3"] logicalUnitNumber=3 hostGroup="nss1_nss2";`
	for what, c := range map[string]struct {
		name, array string
		wwns        bool
		oldNew      []string
		want        string
	}{
		"another chunk":           {"nss7.4-ha", "nss7", false, []string{"chunk-size 128k assigned-to a nss7-r2", "chunk-size 64k assigned-to a nss7-r2"}, "nss1: LUN nss7-lun2 tells of a segment (chunk) of 64KiB, and the design of 128KiB"},
		"fewer disks":             {"nss7.4-ha", "nss7", false, []string{"0.0,0.8,0.16,", "0.8,0.16,", "size 89334GiB nss7-lun0", "size 70000GiB nss7-lun0"}, "tells of a full stripe of 896KiB"},
		"another RAID level":      {"nss2-ha", "nss2", false, []string{`raidLevel=6 userLabel="nss2-lun1"`, `raidLevel=1 userLabel="nss2-lun1"`}, "nss2: LUN nss2-lun1 has 10.91 TiB"},
		"a smaller volume":        {"nss7.4-ha", "nss7", false, []string{"size 89334GiB nss7-lun5", "size 80000GiB nss7-lun5"}, "nss2: LUN nss7-lun5 has 78.12 TiB"},
		"another controller":      {"nss7.4-ha", "nss7", false, []string{"assigned-to b nss7-r3", "assigned-to a nss7-r3"}, "nss1: LUN nss7-lun3 belongs to controller A, and in the design to controller B"},
		"another number":          {"nss2-ha", "nss2", false, []string{"logicalUnitNumber=2 ", "logicalUnitNumber=9 "}, "nss1: LUN nss2-lun2 has LUN number 9, and the design 2"},
		"not mapped":              {"nss2-ha", "nss2", false, []string{lun3, ""}, "nss2: LUN nss2-lun3 is not there"},
		"mapped to one server":    {"nss7.4-ha", "nss7", false, []string{"initiator nss1_nss2.*.* nss7-lun6", "initiator nss1.* nss7-lun6"}, "nss2: LUN nss7-lun6 is not there"},
		"a server's ports wrong":  {"nss7.4-ha", "nss7", false, []string{"id 500605b00002", "id 500605b00009"}, "nss2: LUN nss7-lun0 is not there"},
		"one volume more":         {"nss7.4-ha", "nss7", false, []string{"size 89334GiB nss7-lun7", "size 89000GiB nss7-lun7\ncreate volume vdisk nss7-r7 size 100GiB more", "lun 7 initiator nss1_nss2.*.* nss7-lun7", "lun 7 initiator nss1_nss2.*.* nss7-lun7\nmap volume lun 8 initiator nss1_nss2.*.* more"}, "is no LUN of the design"},
		"numbers of two swapped":  {"lustre-brick", "md3220", false, []string{"logicalUnitNumber=0 ", "logicalUnitNumber=7 ", "logicalUnitNumber=1 ", "logicalUnitNumber=0 ", "logicalUnitNumber=7 ", "logicalUnitNumber=1 "}, "LUN testfs-MGT has"},
		"other WWNs in the spec":  {"nss7.4-ha", "nss7", true, nil, "nss1: LUN nss7-lun0 is not there"},
		"a span of another width": {"nss5.5", "perc2", false, []string{"pdperarray=12", "pdperarray=8"}, "nss1: LUN nss5-lun1 is not there"},
	} {
		found := verify(c.name, "", c.array, c.wwns, c.oldNew...)
		if !slices.ContainsFunc(found, func(f string) bool { return strings.Contains(f, c.want) }) {
			t.Errorf("%s: %q, want %s", what, found, c.want)
		}
	}
}

// model2 puts another model of the same family into a brick's file.
func model2(text, model string) string {
	if model == "" {
		return text
	}
	for _, old := range []string{"model: ME4084", "model: PERC-H810"} {
		text = strings.ReplaceAll(text, old, "model: "+model)
	}
	return text
}

package main

import (
	"slices"
	"testing"

	"github.com/mortarhpc/mortar/examples"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/spec"
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

package design

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mortarhpc/mortar/examples"
	"github.com/mortarhpc/mortar/internal/brick/spec"
)

// A growth changes nothing that exists: neither group, nor what was made once.
func TestGrowthAppends(t *testing.T) {
	for _, c := range []struct {
		example string
		added   []spec.Added
	}{
		{"nfs-ha", []spec.Added{{Enclosure: "A", Serial: "NEW[01-03]"}, {Enclosure: "B", Serial: "NEW[04-06]"}}},
		{"nfs-ha-xl", []spec.Added{{Enclosure: "C", Serial: "NEW[01-05]", Service: "home"}}},
		{"jbod-ha", []spec.Added{{Enclosure: "new", Serial: "NEW[01-24]"}}},
		{"nss2-ha", []spec.Added{{Enclosure: "new", Serial: "NEW[01-12]"}}},
		{"nss7.4-ha", []spec.Added{{Enclosure: "new", Serial: "NEW[01-84]"}}},
	} {
		b, err := examples.FS.ReadFile(c.example + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		s, err := spec.Parse("x.yaml", b)
		if err != nil {
			t.Fatal(err)
		}
		c.added[0].Service = s.Services[0].Name
		for i := range c.added {
			if i := slices.IndexFunc(s.Enclosures, func(e spec.Enclosure) bool { return e.Name == c.added[i].Enclosure }); i >= 0 {
				c.added[0].Service = s.Enclosures[i].Service
			}
		}
		text, err := s.Grow(c.added)
		if err != nil {
			t.Errorf("%s: %v", c.example, err)
			continue
		}
		was, err := New(s)
		if err != nil {
			t.Fatal(err)
		}
		grown, err := spec.Parse("x.yaml", text)
		if err != nil {
			t.Fatal(err)
		}
		d, err := New(grown)
		if err != nil {
			t.Fatal(err)
		}
		if n := len(was.Groups); len(d.Groups) <= n || !cmp.Equal(was.Groups, d.Groups[:n]) {
			t.Errorf("%s: groups:\n%s", c.example, cmp.Diff(was.Groups, d.Groups))
		}
		if d.Capacity.Usable <= was.Capacity.Usable {
			t.Errorf("%s: usable %s, was %s", c.example, d.Capacity.Usable, was.Capacity.Usable)
		}
		for i, s := range was.Services() {
			g := d.Services()[i]
			if !slices.Equal(s.MkfsArgs, g.MkfsArgs) || s.Storage.Stripes != g.Storage.Stripes || s.Storage.StripeSize != g.Storage.StripeSize {
				t.Errorf("%s: %v %d, was %v %d", c.example, g.MkfsArgs, g.Storage.Stripes, s.MkfsArgs, s.Storage.Stripes)
			}
		}
		var added []string
		for _, v := range d.Services() {
			if g := v.Storage.Growths; len(g) > 0 {
				added = append(added, g[0]...)
				last := v.Storage.Groups[len(v.Storage.Groups)-len(g[0]):]
				if luns := d.LUNsIn(&v.Storage); len(luns) > 0 {
					last = nil
					for _, l := range luns[len(luns)-len(g[0]):] {
						last = append(last, l.Name)
					}
				}
				if !slices.Equal(last, g[0]) {
					t.Errorf("%s: the growth is not last: %v %v", c.example, last, g)
				}
			}
		}
		if luns, n := d.LUNs(), len(was.LUNs()); !cmp.Equal(was.LUNs(), luns[:n]) || len(d.Arrays) > 0 && (len(luns) == n || luns[n].Growth != 1) {
			t.Errorf("%s: LUNs:\n%s", c.example, cmp.Diff(was.LUNs(), luns))
		}
		if len(added) != len(d.Groups)-len(was.Groups) {
			t.Errorf("%s: growth %v", c.example, added)
		}
		for _, g := range d.Groups[len(was.Groups):] {
			if g.Growth != 1 || len(g.Members) != g.Data+g.Parity {
				t.Errorf("%s: %+v", c.example, g)
			}
		}
	}
}

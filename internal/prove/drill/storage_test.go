package drill

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/examples"
	"github.com/mortarhpc/mortar/internal/brick/array"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/spec"
)

func exampleDesign(t *testing.T, file string) *design.Design {
	t.Helper()
	src, err := examples.FS.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	s, err := spec.Parse(file, src)
	if err != nil {
		t.Fatal(err)
	}
	d, err := design.New(s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// insider is an Injector that sees the RAID groups of an array.
type insider struct {
	*pair
	groups []ArrayGroup
}

func (i insider) ArrayGroups(context.Context) ([]ArrayGroup, error) { return i.groups, nil }

// Each drill breaks parts that the brick has: disks of JBODs, or LUNs and parts of
// their array.
func TestDrillsBreakWhatIsThere(t *testing.T) {
	for _, c := range []struct{ example, drill, how, first string }{
		{"nfs-ha.yaml", "path-one", "disk", "path-out nfs1 MA01 0"},
		{"nfs-ha.yaml", "controller", "module", "module-out A 0"},
		{"nfs-ha.yaml", "shared-disk", "pulled", "disk-out MA01"},
		{"nfs-ha.yaml", "disk-slow", "throttled", "disk-slow MA01 2 20000"},
		{"nss7.4-ha.yaml", "disk-slow", "throttled", ""},
		{"nfs-ha.yaml", "controller-failover", "command", ""},
		{"nfs-ha.yaml", "array-power", "short", ""},
		{"nss7.4-ha.yaml", "path-one", "disk", "path-out nss1 nss7-lun0 0"},
		{"nss7.4-ha.yaml", "path-one", "hba", "hba-out nss1 0"},
		{"nss7.4-ha.yaml", "paths-all", "paths", "paths-out nss1"},
		{"nss7.4-ha.yaml", "controller", "module", "controller-out nss7 0"},
		{"nss7.4-ha.yaml", "shared-disk", "pulled", "array-disk E1N01"},
		{"nss7.4-ha.yaml", "two-disks", "pulled", "array-disk E1N01"},
		{"nss7.4-ha.yaml", "bit-rot", "scrub", ""},
		{"nss7.4-ha.yaml", "controller-failover", "command", "controller-failover nss7 0"},
		{"nss7.4-ha.yaml", "array-power", "short", "array-power nss7"},
		{"nss7.4-ha.yaml", "lun-slow", "delay", "lun-slow nss7-lun0 1500"},
		{"nss7.4-ha.yaml", "lun-missing", "hidden", "power-off nss2"},
	} {
		d := exampleDesign(t, c.example)
		servers := d.Pairs[0].Servers
		s := Scene{Design: d, Service: d.Services()[0], Active: servers[0], Passive: servers[1], Group: d.Groups[0]}
		for _, m := range s.Group.Members {
			s.Members = append(s.Members, m.Serial)
		}
		_, v, err := Find(c.drill, c.how)
		if err != nil {
			t.Fatal(err)
		}
		steps, err := v.Steps(s)
		if (err != nil) != (c.first == "") || err == nil && steps[0].Fault.String() != c.first {
			t.Errorf("%s of %s: %v, %v; want %q", c.drill, c.example, steps, err, c.first)
		}
	}
}

// A drill pulls a disk from a complete group, since another one may be rebuilding.
func TestGroupOfArray(t *testing.T) {
	d := exampleDesign(t, "nss7.4-ha.yaml")
	s := Scene{Design: d, Service: d.Services()[0]}
	seen := []ArrayGroup{{Name: d.Groups[0].Name, State: "rebuilding"}, {Name: d.Groups[1].Name, State: "optimal", Members: []string{"E1N81"}}}
	e := &engine{env: Env{Injector: insider{groups: seen}}}
	g, members, err := s.storage().group(t.Context(), e)
	if err != nil || g.Name != d.Groups[1].Name || !slices.Equal(members, []string{"E1N81"}) {
		t.Errorf("%s %v %v", g.Name, members, err)
	}
	e.env.Injector = insider{groups: seen[:1]}
	if _, _, err := s.storage().group(t.Context(), e); err == nil {
		t.Error("a disk is pulled from a group that is being rebuilt")
	}
}

func TestThroughOneController(t *testing.T) {
	d := exampleDesign(t, "nss7.4-ha.yaml")
	result := func(paths, owner int) array.Result {
		r := array.Result{}
		for _, h := range d.Servers() {
			for _, l := range d.LUNs() {
				m := array.Match{LUN: l.Name, Host: h, Seen: array.Seen{Paths: paths}}
				if owner >= 0 {
					m.Seen.Owner = &owner
				}
				r.Matches = append(r.Matches, m)
				r.Expected++
			}
		}
		return r
	}
	for name, c := range map[string]struct {
		r     array.Result
		share int
		ok    bool
	}{
		"half of the paths":      {result(2, -1), 2, true},
		"no path yet gone":       {result(4, 0), 2, false},
		"all paths, moved":       {result(4, 1), 1, true},
		"all paths, not moved":   {result(4, 0), 1, false},
		"all paths, nobody says": {result(4, -1), 1, false},
	} {
		ok, text := throughOne(d, c.r, "nss7", 1, c.share)
		if ok != c.ok || !strings.Contains(text, "16 times") {
			t.Errorf("%s: %v, %s", name, ok, text)
		}
	}
	missing := result(2, -1)
	missing.Expected++
	if ok, _ := throughOne(d, missing, "nss7", 1, 2); ok {
		t.Error("a LUN that a server does not see")
	}
}

func TestWhatComparingARAIDSays(t *testing.T) {
	g := design.Group{Name: "b-r0"}
	for _, c := range []struct {
		p    compared
		err  error
		ok   bool
		want string
	}{
		{compared{Mismatches: "0"}, nil, true, "data and parities of b-r0 differ in 0 sectors"},
		{compared{Mismatches: "8"}, nil, false, "differ in 8 sectors"},
		{compared{Mismatches: "0", Done: "512 / 4096"}, nil, true, "differ in 0 of the sectors compared within 3 min 00 s (512 / 4096)"},
		{compared{}, errors.New("no server has it"), false, "could not be compared: no server has it"},
		{compared{}, nil, false, "differ in  sectors"},
	} {
		if got := c.p.check(g, c.err); got.OK != c.ok || !strings.Contains(got.Detail, c.want) {
			t.Errorf("%+v, %v: %+v", c.p, c.err, got)
		}
	}
}

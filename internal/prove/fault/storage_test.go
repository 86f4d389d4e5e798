package fault

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/mortarhpc/mortar/internal/brick/array"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/run/observe"
	"github.com/mortarhpc/mortar/test/example"
)

// insider is an Injector that sees the RAID groups of an array.
type insider struct {
	Injector
	groups []ArrayGroup
	mu     sync.Mutex
	asked  []string // CompareGroup
	refuse error
	begun  bool // it has been told to compare
	idle   bool // it says that it compares, and does not
}

// ArrayGroups shows a comparison at the first look after CompareGroup.
func (i *insider) ArrayGroups(context.Context) ([]ArrayGroup, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	out := slices.Clone(i.groups)
	for k := range out {
		out[k].Comparing = out[k].Comparing || i.begun && !i.idle
	}
	i.begun = false
	return out, nil
}

func (i *insider) CompareGroup(_ context.Context, group string, on bool) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.asked, i.begun = append(i.asked, fmt.Sprint(group, " ", on)), on
	return i.refuse
}

// The groups of pulled disks, or of an array that lost its power, are compared inside the
// array.
func TestParityInsideArrays(t *testing.T) { synctest.Test(t, testParityInsideArrays) }

func testParityInsideArrays(t *testing.T) {
	d := example.Design(t, "nss7.4-ha.yaml")
	first := d.Groups[0]
	for _, c := range []struct {
		name    string
		fault   Fault
		after   ArrayGroup // a comparison
		refuse  error
		idle    bool
		compare int // groups
		ok      bool
	}{
		{"whole", Fault{Kind: ArrayDisk, Args: []string{first.Members[0].Serial}}, ArrayGroup{State: "optimal"}, nil, false, 1, true},
		{"it says that it compares, and does not", Fault{Kind: ArrayDisk, Args: []string{"E1N81"}}, ArrayGroup{State: "optimal"}, nil, true, 1, false},
		{"torn", Fault{Kind: ArrayDisk, Args: []string{first.Members[0].Serial}}, ArrayGroup{State: "optimal", Mismatches: 8}, nil, false, 1, false},
		{"old firmware", Fault{Kind: ArrayDisk, Args: []string{"E1N81"}}, ArrayGroup{State: "optimal"}, errors.New("compare: not found"), false, 1, false},
		{"no power", Fault{Kind: ArrayPower, Args: []string{first.Array}}, ArrayGroup{State: "optimal"}, nil, false, len(d.Groups), true},
		{"it never ends, and has not begun", Fault{Kind: ArrayDisk, Args: []string{"E1N81"}}, ArrayGroup{State: "optimal", Comparing: true}, nil, false, 1, false},
		{"a controller", Fault{Kind: ControllerOut, Args: []string{first.Array, "0"}}, ArrayGroup{State: "optimal"}, nil, false, 0, true},
	} {
		in := &insider{refuse: c.refuse, idle: c.idle}
		for _, g := range d.Groups {
			c.after.Name = g.Name
			in.groups = append(in.groups, c.after)
		}
		e := &Site{Scene: Scene{Design: d, Group: first}, Env: Env{Injector: in, Progress: func(string) {}}, Injected: []Fault{c.fault}}
		checks := lunStorage{Scene{Design: d, Service: d.Services()[0]}}.Parity(t.Context(), e)
		if len(checks) != c.compare || len(in.asked) != 2*c.compare {
			t.Errorf("%s: %d checks, asked %q", c.name, len(checks), in.asked)
		}
		for _, k := range checks {
			if k.OK != c.ok {
				t.Errorf("%s: %+v", c.name, k)
			}
		}
	}
}

// A drill pulls a disk from a complete group, since another one may be rebuilding.
func TestGroupOfArray(t *testing.T) {
	d := example.Design(t, "nss7.4-ha.yaml")
	s := Scene{Design: d, Service: d.Services()[0]}
	seen := []ArrayGroup{{Name: d.Groups[0].Name, State: "rebuilding"}, {Name: d.Groups[1].Name, State: "optimal", Members: []string{"E1N81"}}}
	e := &Site{Env: Env{Injector: &insider{groups: seen}}}
	g, members, err := s.Storage().RAIDGroup(t.Context(), e)
	if err != nil || g.Name != d.Groups[1].Name || !slices.Equal(members, []string{"E1N81"}) {
		t.Errorf("%s %v %v", g.Name, members, err)
	}
	e.Env.Injector = &insider{groups: seen[:1]}
	if _, _, err := s.Storage().RAIDGroup(t.Context(), e); err == nil {
		t.Error("a disk is pulled from a group that is being rebuilt")
	}
}

// A group inside an array lacks a disk only once that has left it, whatever its state.
func TestWithoutDisksOfAnArray(t *testing.T) {
	s := Scene{Design: example.Design(t, "nss7.4-ha.yaml")}
	s.Service = s.Design.Services()[0]
	s.Group = s.Design.Groups[0]
	for _, c := range []struct {
		state   string
		members []string
		want    bool
	}{
		{"optimal", []string{"E1N01", "E1N02"}, false},
		{"rebuilding", []string{"E1N02"}, false},
		{"rebuilding", []string{"E1N03"}, true},
		{"optimal", []string{"E1N03", "E1N04"}, true},
		{"degraded", []string{"E1N03"}, false},
	} {
		e := &Site{Env: Env{Injector: &insider{groups: []ArrayGroup{{Name: s.Group.Name, State: c.state, Members: c.members}}}}}
		if got, detail := s.Storage().Without("E1N01", "E1N02").Look(t.Context(), e); got != c.want {
			t.Errorf("%+v: %v, %s", c, got, detail)
		}
	}
}

// told is an Operator whose status has findings.
type told struct {
	Operator
	found []*observe.Part
}

func (o told) Status(context.Context) (*observe.Status, error) {
	return &observe.Status{Parts: o.found}, nil
}

// Faults of arrays and paths are seen by the codes of what status finds of LUNs, on each server.
func TestLUNFaultsAreSeen(t *testing.T) {
	d := example.Design(t, "nss7.4-ha.yaml")
	s, both := Scene{Design: d, Service: d.Services()[0]}, d.Servers()
	var all, first []string // LUNs; those of the first controller
	for _, x := range d.LUNs() {
		if all = append(all, x.Name); x.Controller == 0 {
			first = append(first, x.Name)
		}
	}
	part := func(code string, hosts, luns []string, paths int) *observe.Part {
		return &observe.Part{Code: observe.Code(code), Level: array.Kinds[code].Level, Text: code, Args: map[string]any{"hosts": hosts, "luns": luns, "paths": paths}}
	}
	type parts = []*observe.Part
	out, moved := Fault{Kind: ControllerOut, Args: []string{"nss7", "0"}}, Fault{Kind: ControllerFailover, Args: []string{"nss7", "0"}}
	off, path := Fault{Kind: ArrayPower, Args: []string{"nss7"}}, Fault{Kind: PathOut, On: both[0], Args: []string{all[0], "1"}}
	for _, c := range []struct {
		name  string
		fault Fault
		found parts
		want  bool
	}{
		{"half of the paths", out, parts{part(array.Impaired, both, all, 2)}, true},
		{"some of the paths", out, parts{part(array.Impaired, both, all, 3)}, false},
		{"on one server", out, parts{part(array.Impaired, both[:1], all, 2)}, false},
		{"all LUNs of a controller", moved, parts{part(array.Moved, both, first, 4)}, true},
		{"some LUNs of a controller", moved, parts{part(array.Moved, both, first[1:], 4)}, false},
		{"no LUN moved", moved, parts{part(array.Impaired, both, all, 2)}, false},
		{"no path to any LUN", off, parts{part(array.Dead, both[:1], all, 4), part(array.Missing, both[1:], all, 0)}, true},
		{"paths to one LUN are left", off, parts{part(array.Dead, both, all[1:], 4)}, false},
		{"a path of a server", path, parts{part(array.Impaired, both[:1], all[:1], 3)}, true},
		{"a path to another LUN", path, parts{part(array.Impaired, both[:1], all[1:], 3)}, false},
		{"a path of the other server", path, parts{part(array.Impaired, both[1:], all[:1], 3)}, false},
		{"every path", Fault{Kind: PathsOut, On: both[0]}, parts{part(array.Dead, both[:1], all, 4)}, true},
		{"nothing", Fault{Kind: HBAOut, On: both[0], Args: []string{"0"}}, nil, false},
	} {
		v := &Site{Scene: s, Env: Env{Operator: told{found: c.found}}}
		if got, said := c.fault.Seen(s).Look(t.Context(), v); got != c.want {
			t.Errorf("%s: %v, %s", c.name, got, said)
		}
		if home, _ := LUNsHome().Look(t.Context(), v); home != (c.found == nil) {
			t.Errorf("%s: the LUNs are home: %v", c.name, home)
		}
	}
	v := &Site{Scene: s, Env: Env{Operator: told{found: parts{{Code: observe.HostSilent, Level: observe.Fault, Text: "nss1 does not answer"}}}}}
	if home, said := LUNsHome().Look(t.Context(), v); home {
		t.Error("the LUNs are home while a server is silent: " + said)
	}
}

// A comparison counts only as far as it came.
func TestWhatComparingARAIDSays(t *testing.T) {
	g := design.Group{Name: "b-r0"}
	for _, c := range []struct {
		mismatches int64
		percent    float64
		err        error
		ok         bool
		want       string
	}{
		{0, 100, nil, true, "b-r0"},
		{8, 100, nil, false, "8 "},
		{0, 12, nil, true, "12 %"},
		{8, 12, nil, false, "8 "},
		{0, 0, errors.New("no server has it"), false, "no server has it"},
		{0, 0, nil, false, "b-r0"},
	} {
		if got := consistent(g, c.mismatches, c.percent, c.err); got.OK != c.ok || !strings.Contains(got.Detail, c.want) {
			t.Errorf("%+v: %+v", c, got)
		}
	}
}

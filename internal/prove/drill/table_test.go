package drill

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mortarhpc/mortar/internal/prove/fault"
	"github.com/mortarhpc/mortar/internal/prove/judge"
	"github.com/mortarhpc/mortar/test/example"
)

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
		{"nss7.4-ha.yaml", "array-power", "long", "array-power nss7"},
		{"nss7.4-ha.yaml", "lun-slow", "delay", "lun-slow nss7-lun0 1500"},
		{"nss7.4-ha.yaml", "lun-missing", "hidden", "power-off nss2"},
		{"nss7.4-ha.yaml", "lun-hung", "crash", "disk-hang nss2 nss7-lun0"},
		{"nss7.4-ha.yaml", "disk-hung", "crash", ""},
		{"nfs-ha.yaml", "lun-hung", "crash", ""},
		{"nfs-ha.yaml", "disk-hung", "crash", "disk-hang nfs2 MA01"},
		{"nfs-ha.yaml", "disk-hung", "move", "disk-hang nfs2 MA01"},
	} {
		d := example.Design(t, c.example)
		servers := d.Pairs[0].Servers
		s := fault.Scene{Design: d, Service: d.Services()[0], Active: servers[0], Passive: servers[1], Group: d.Groups[0]}
		for _, m := range s.Group.Members {
			s.Members = append(s.Members, m.Serial)
		}
		_, v, err := Find(c.drill, c.how)
		if err != nil {
			t.Fatal(err)
		}
		steps, err := v.Steps(s)
		if (err != nil) != (c.first == "") || err == nil && words(steps)[0] != c.first {
			t.Errorf("%s of %s: %v, %v; want %q", c.drill, c.example, steps, err, c.first)
		}
	}
}

// Of a Lustre brick each pair has its own enclosures: others lose no path with their modules.
func TestModulesOfThePair(t *testing.T) {
	d := example.Design(t, "lustre-small.yaml")
	for service, want := range map[string][]string{"mdt0000": {"MA 0", "MA 1", "MB 0", "MB 1"}, "ost0000": {"OA 0", "OA 1", "OB 0", "OB 1"}} {
		scene, err := planned(fault.Env{Design: d, Service: service})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, args := range scene.Storage().Parts()[fault.ModuleOut] {
			got = append(got, strings.Join(args, " "))
		}
		f, _, err := scene.Storage().Module()
		if !slices.Equal(got, want) || err != nil || strings.Join(f.Args, " ") != want[0] {
			t.Errorf("%s: %q, %v, %v", service, got, f, err)
		}
	}
}

// words say each step.
func words(steps []Step) (all []string) {
	for _, s := range steps {
		switch s := s.(type) {
		case Mend:
			all = append(all, "mend "+fault.Fault(s).String())
		case At:
			all = append(all, "at "+time.Duration(s).String())
		case Wait:
			all = append(all, "wait "+time.Duration(s).String())
		case Until:
			if s.Condition != nil {
				all = append(all, "until "+s.What)
			}
		case Look, Keep:
			all = append(all, strings.ToLower(strings.TrimPrefix(fmt.Sprintf("%T", s), "drill.")))
		default:
			f, _ := actOf(s)
			all = append(all, f.String())
		}
	}
	return all
}

// The drill pulls a disk of the active server only.
func TestLocalDiskSteps(t *testing.T) {
	_, v, _ := Find("local-disk", "")
	steps, err := v.Steps(fault.Scene{Active: "nfs2", Passive: "nfs1"})
	if err != nil || words(steps)[0] != "local-disk nfs2 0" {
		t.Errorf("%v %v", steps, err)
	}
	if !slices.ContainsFunc(Table, func(d Drill) bool {
		return d.Name == "local-disk" && d.Expect.Where == judge.Stays && d.Expect.Fencing == judge.NoServer
	}) {
		t.Error("not in the table")
	}
}

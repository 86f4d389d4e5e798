package resource

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/internal/base/linux"
)

// patched carries out a patch of format 2 as cibadmin does: the CIB must have
// the version that the patch was made for, each path must lead somewhere, and a
// position must be one that the parent has.
func patched(t *testing.T, cib *Element, patch []byte) *Element {
	t.Helper()
	p, err := parseXML(patch)
	if err != nil {
		t.Fatal(err)
	}
	version := p.child("version")
	for _, a := range []string{"admin_epoch", "epoch", "num_updates"} {
		if got := version.child("source").Attrs[a]; got != cib.Attrs[a] {
			t.Fatalf("the patch is for %s %s, the CIB has %s", a, got, cib.Attrs[a])
		}
		cib.Attrs[a] = version.child("target").Attrs[a]
	}
	for _, c := range p.Children {
		if c.Name != "change" {
			continue
		}
		steps := strings.Split(strings.TrimPrefix(c.Attrs["path"], "/cib/"), "/")
		at, parent := cib, cib
		for _, step := range steps {
			name, id, _ := strings.Cut(strings.TrimSuffix(step, "']"), "[@id='")
			i := slices.IndexFunc(at.Children, func(e *Element) bool { return e.Name == name && (id == "" || e.Attrs["id"] == id) })
			if i < 0 {
				t.Fatalf("%s %s: nothing is there", c.Attrs["operation"], c.Attrs["path"])
			}
			parent, at = at, at.Children[i]
		}
		switch c.Attrs["operation"] {
		case "delete":
			parent.Children = slices.DeleteFunc(parent.Children, func(e *Element) bool { return e == at })
		case "create":
			n, err := strconv.Atoi(c.Attrs["position"])
			if err != nil || n < 0 || n > len(at.Children) {
				t.Fatalf("create in %s at %s: it has %d children", c.Attrs["path"], c.Attrs["position"], len(at.Children))
			}
			at.Children = slices.Insert(at.Children, n, c.Children[0])
		default:
			t.Fatalf("operation %q", c.Attrs["operation"])
		}
	}
	return cib
}

// sectionOf finds a section of the configuration.
func sectionOf(cib *Element, name string) *Element { return cib.child("configuration").child(name) }

// ours picks one of the brick's own primitives.
func ours(cib *Element, r *rand.Rand) *Element {
	var all []*Element
	for _, e := range sectionOf(cib, "resources").Children {
		if strings.HasPrefix(e.Attrs["id"], "fence-") || strings.HasPrefix(e.Attrs["id"], "service-") {
			all = append(all, e)
		}
	}
	return all[r.IntN(len(all))]
}

// everyElement calls f for the element and all below.
func everyElement(e *Element, f func(*Element)) {
	f(e)
	for _, c := range e.Children {
		everyElement(c, f)
	}
}

// drifts are what administrators and earlier builds may make of a CIB. Each
// changes it, and returns ids that must still be there after a patch.
var drifts = map[string]func(cib *Element, r *rand.Rand) []string{
	"a primitive is gone": func(cib *Element, r *rand.Rand) []string {
		s, gone := sectionOf(cib, "resources"), ours(cib, r)
		s.Children = slices.DeleteFunc(s.Children, func(e *Element) bool { return e == gone })
		return nil
	},
	"a constraint is gone": func(cib *Element, r *rand.Rand) []string {
		s := sectionOf(cib, "constraints")
		s.Children = slices.DeleteFunc(s.Children, func(e *Element) bool { return strings.HasPrefix(e.Attrs["id"], "locate-fence-nfs1") })
		return nil
	},
	"a section is gone": func(cib *Element, r *rand.Rand) []string {
		c := cib.child("configuration")
		c.Children = slices.DeleteFunc(c.Children, func(e *Element) bool { return e.Name == "fencing-topology" })
		return nil
	},
	"a section is empty": func(cib *Element, r *rand.Rand) []string {
		sectionOf(cib, "constraints").Children = nil
		return nil
	},
	"a value is another": func(cib *Element, r *rand.Rand) []string {
		everyElement(ours(cib, r), func(e *Element) {
			if e.Name == "nvpair" {
				e.Attrs["value"] = "another"
			}
		})
		return nil
	},
	"an attribute too many": func(cib *Element, r *rand.Rand) []string {
		ours(cib, r).Attrs["description"] = "by hand"
		return nil
	},
	"a parameter too many": func(cib *Element, r *rand.Rand) []string {
		p := ours(cib, r)
		p.Children = append(p.Children, El("meta_attributes", "id", p.Attrs["id"]+"-x"))
		return nil
	},
	"an element left over": func(cib *Element, r *rand.Rand) []string {
		s := sectionOf(cib, "resources")
		s.Children = slices.Insert(s.Children, r.IntN(len(s.Children)+1), El("primitive", "id", "fence-nfs9-bmc", "class", "stonith", "type", "fence_ipmilan"))
		return nil
	},
	"somebody else's elements": func(cib *Element, r *rand.Rand) []string {
		s, c := sectionOf(cib, "resources"), sectionOf(cib, "constraints")
		s.Children = slices.Insert(s.Children, r.IntN(len(s.Children)+1), El("primitive", "id", "backup", "class", "systemd", "type", "backup"))
		c.Children = slices.Insert(c.Children, r.IntN(len(c.Children)+1), El("rsc_location", "id", "cli-ban-x", "rsc", "backup", "node", "nfs1", "score", "-INFINITY"))
		return []string{"backup", "cli-ban-x"}
	},
	"a property with another id": func(cib *Element, r *rand.Rand) []string {
		for _, p := range sectionOf(cib, "crm_config").Children[0].Children {
			if p.Attrs["name"] == "stonith-enabled" {
				p.Attrs["id"], p.Attrs["value"] = "options-by-hand", "false"
			}
		}
		return nil
	},
	"properties are gone": func(cib *Element, r *rand.Rand) []string {
		set := sectionOf(cib, "crm_config").Children[0]
		set.Children = slices.DeleteFunc(set.Children, func(e *Element) bool { return strings.HasPrefix(e.Attrs["name"], "stonith") })
		return nil
	},
	"somebody else's property": func(cib *Element, r *rand.Rand) []string {
		set := sectionOf(cib, "crm_config").Children[0]
		set.Children = append(set.Children, El("nvpair", "id", "by-hand", "name", "maintenance-mode", "value", "true"))
		return []string{"by-hand"}
	},
	"another order": func(cib *Element, r *rand.Rand) []string {
		everyElement(cib, func(e *Element) {
			r.Shuffle(len(e.Children), func(i, j int) { e.Children[i], e.Children[j] = e.Children[j], e.Children[i] })
		})
		return nil
	},
}

// TestCIBPatchesConverge carries each patch out: after it nothing is left to
// do, and what belongs to others is still there. Drifts are tried one by one,
// and several at once.
func TestCIBPatchesConverge(t *testing.T) {
	recorded := testdata(t, "cib-converged.xml")
	names := make([]string, 0, len(drifts))
	for n := range drifts {
		names = append(names, n)
	}
	slices.Sort(names)
	try := func(seed uint64, which ...string) {
		t.Run(fmt.Sprint(seed, which), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			cib, err := parseXML([]byte(recorded))
			if err != nil {
				t.Fatal(err)
			}
			keep := []string{"nodes-1-standby", "cib-bootstrap-options-dc-version"}
			for _, n := range which {
				keep = append(keep, drifts[n](cib, r)...)
			}
			as := diff(t, testCIB(t), runningCIB(cib.String()))
			if len(as) == 0 && !slices.Contains([]string{"another order", "somebody else's elements", "somebody else's property"}, which[0]) {
				t.Fatal("the drift is not seen")
			}
			if len(as) > 0 {
				cib = patched(t, cib, as[0].Stdin)
			}
			if again := diff(t, testCIB(t), runningCIB(cib.String())); len(again) != 0 {
				t.Errorf("a second apply would change:\n%s", again[0].Why)
			}
			text := cib.String()
			for _, id := range keep {
				if !strings.Contains(text, `id="`+id+`"`) {
					t.Errorf("%s is gone", id)
				}
			}
		})
	}
	for i, n := range names {
		try(uint64(i), n)
	}
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 2))
		several := slices.Clone(names)
		r.Shuffle(len(several), func(i, j int) { several[i], several[j] = several[j], several[i] })
		slices.Sort(several[:4]) // a section is emptied before a change adds to it
		try(seed, several[:4]...)
	}
}

// A CIB that is wrong, or cannot be read, is an error and no patch.
func TestCIBThatCannotBeRead(t *testing.T) {
	whole := testdata(t, "cib-converged.xml")
	for name, c := range map[string]struct {
		wanted string
		sys    *Paper
	}{
		"the wanted one is no XML":  {"<configuration>", runningCIB(whole)},
		"the running one is cut":    {"", runningCIB(whole[:len(whole)/2])},
		"no configuration in it":    {"", runningCIB(`<cib epoch="1"/>`)},
		"two roots":                 {"", runningCIB(`<cib epoch="1"><configuration/></cib><cib/>`)},
		"the one on disk is no XML": {"", &Paper{Files: map[string]string{linux.CIBFile: "\x00\x00"}}},
	} {
		r := testCIB(t)
		if c.wanted != "" {
			r.Configuration = c.wanted
		}
		if as, err := Diff(t.Context(), c.sys, r); err == nil || len(as) != 0 {
			t.Errorf("%s: %v", name, show(as))
		}
	}
}

// While Pacemaker starts, cibadmin fails: the CIB on disk counts, as for a
// cluster that is stopped.
func TestCIBWhilePacemakerStarts(t *testing.T) {
	sys := runningCIB("")
	sys.Outputs["cibadmin --query"] = Output{Code: 102, Stderr: "cibadmin: Could not connect to the CIB API: Transport endpoint is not connected\n"}
	sys.Files[linux.CIBFile] = testdata(t, "cib-converged.xml")
	if as := diff(t, testCIB(t), sys); len(as) != 0 {
		t.Errorf("a cluster that starts would be changed:\n%s", as[0].Why)
	}
}

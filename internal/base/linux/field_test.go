package linux

import (
	"encoding/xml"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mortarhpc/mortar/internal/base/health"
	"github.com/mortarhpc/mortar/test/field"
)

var update = flag.Bool("update", false, "rewrite testdata/field")

func saidCRM(text string) string {
	c, err := ParseCRM(text)
	if err != nil {
		return "error: " + err.Error()
	}
	out := ""
	for _, n := range c.Nodes {
		out += fmt.Sprintf("node %s (%s) online %v unclean %v\n", n.Name, n.ID, n.Online, n.Unclean)
	}
	for _, r := range c.Resources {
		out += fmt.Sprintf("resource %s %s on %q\n", r.ID, r.Role, r.Node())
	}
	for _, r := range c.Cloned {
		out += fmt.Sprintf("cloned %s %s on %q\n", r.ID, r.Role, r.Node())
	}
	for _, n := range c.History {
		for _, r := range n.Resources {
			out += fmt.Sprintf("history of %s on %s: %d failures\n", r.ID, n.Node, r.FailCount)
		}
	}
	for _, f := range c.Failures {
		out += fmt.Sprintf("failure %s: %q\n", f.Op, f.Reason)
	}
	return out + c.Unread.String()
}

func saidCIB(text string) string {
	c, err := ParseCIB([]byte(text))
	if err != nil {
		return "error: " + err.Error()
	}
	out := ""
	for _, n := range c.Nodes {
		out += "node " + n.Name + "\n"
	}
	for _, p := range c.Primitives {
		out += "primitive " + p.ID + " " + p.Agent() + "\n"
	}
	return out
}

func saidRings(text string) string {
	links, unread := ParseRings(text)
	out := ""
	for _, l := range links {
		out += fmt.Sprintf("link %d at %q\n", l.ID, l.Addr)
		for _, id := range slices.Sorted(maps.Keys(l.Peers)) {
			out += fmt.Sprintf("  %d %s\n", id, l.Peers[id])
		}
	}
	return out + unread.String()
}

func saidMultipath(text string) string {
	all, unread := ParseMultipath(text)
	out := ""
	for _, name := range slices.Sorted(maps.Keys(all)) {
		out += fmt.Sprintf("%s %v\n", name, all[name])
	}
	return out + unread.String()
}

func saidParams(text string) string {
	out := ""
	all := ParseParams(text)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		out += fmt.Sprintf("%s = %q\n", name, all[name])
	}
	return out
}

func saidMDStat(text string) string {
	out := ""
	for _, m := range ParseMDStat(text) {
		out += fmt.Sprintf("%s: %d of %d, %s %.1f %% %s, %v left %s\n", m.Dev, m.Working, m.Disks, m.Action, m.Percent, m.Waiting, m.Left, m.Unread)
	}
	return out
}

func TestField(t *testing.T) {
	field.Check(t, "crm", *update, saidCRM)
	field.Check(t, "cib", *update, saidCIB)
	field.Check(t, "rings", *update, saidRings)
	field.Check(t, "multipath", *update, saidMultipath)
	field.Check(t, "params", *update, saidParams)
	field.Check(t, "mdstat", *update, saidMDStat)
}

// primitives counts the elements of a name below resources, wherever they are.
func primitives(text, name string) (n int) {
	text = strings.Map(func(r rune) rune {
		if r < ' ' && !strings.ContainsRune("\n\t\r", r) || r == 0xfffe || r == 0xffff {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(crmBad.ReplaceAllString(text, "?"), "?"))
	d := xml.NewDecoder(strings.NewReader(text))
	var path []string
	for {
		token, err := d.Token()
		switch e := token.(type) {
		case xml.StartElement:
			if e.Name.Local == name && len(path) > 1 && slices.Contains(path[:min(3, len(path))], "resources") && !slices.Contains(path, name) {
				n++
			}
			path = append(path, e.Name.Local)
		case xml.EndElement:
			path = path[:len(path)-1]
		}
		if err != nil || len(path) == 0 && n > 0 {
			return n
		}
	}
}

// Text before the data changes nothing, and no primitive, parameter or array is left out.
func FuzzField(f *testing.F) {
	for _, name := range []string{"crm", "cib", "rings", "multipath", "params", "mdstat"} {
		for _, c := range field.Cases(f, name) {
			f.Add(c.Input)
		}
	}
	f.Fuzz(func(t *testing.T, text string) {
		for name, said := range map[string]func(string) string{"crm": saidCRM, "rings": saidRings, "multipath": saidMultipath, "params": saidParams, "mdstat": saidMDStat} {
			if d := cmp.Diff(said(text), said(field.Banner+text)); d != "" && !strings.HasPrefix(said(text), "error") {
				t.Errorf("%s under a banner: %s", name, d)
			}
		}
		if c, err := ParseCRM(text); err == nil {
			if have, want := len(c.Resources)+len(c.Cloned), primitives(health.Body(text, "<pacemaker-result"), "resource"); have != want {
				t.Errorf("%d primitives of %d", have, want)
			}
		}
		if c, err := ParseCIB([]byte(text)); err == nil && strings.HasPrefix(text, "<cib") {
			if have, want := len(c.Primitives), primitives(text, "primitive"); have != want {
				t.Errorf("%d primitives of the CIB's %d", have, want)
			}
		}
		for line := range strings.Lines(text) {
			name, _, ok := strings.Cut(line, "=")
			if ok && strings.Count(name, ".") > 1 && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz.") == "" {
				if _, have := ParseParams(text)[name]; !have {
					t.Errorf("parameter %q is left out", name)
				}
			}
		}
	})
}

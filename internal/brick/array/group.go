package array

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/health"
	"github.com/mortarhpc/mortar/internal/brick/design"
)

// Group is one difference of several LUNs, or on several hosts. Its Finding is
// the first of them.
type Group struct {
	Finding
	Hosts, LUNs []string // no LUNs: the difference is not of a LUN of the design
}

// Grouped joins findings of one text: those of a host, and then those of hosts
// with the same LUNs.
func Grouped(found []Finding) []Group {
	same := func(a, b Finding) bool { return a.Text == b.Text && a.Mend == b.Mend && (a.LUN == "") == (b.LUN == "") }
	var byHost, all []Group
	for _, f := range found {
		i := slices.IndexFunc(byHost, func(g Group) bool { return g.Host == f.Host && same(g.Finding, f) })
		if i < 0 {
			i = len(byHost)
			byHost = append(byHost, Group{Finding: f})
		}
		if f.LUN != "" {
			byHost[i].LUNs = append(byHost[i].LUNs, f.LUN)
		}
	}
	for _, g := range byHost {
		i := slices.IndexFunc(all, func(o Group) bool { return same(o.Finding, g.Finding) && slices.Equal(o.LUNs, g.LUNs) })
		if i < 0 {
			i = len(all)
			all = append(all, g)
		}
		all[i].Hosts = append(all[i].Hosts, g.Host)
	}
	return all
}

// Which names the LUNs of the difference; "" if it is not of a LUN of the design.
func (g Group) Which(d *design.Design) string {
	switch len(g.LUNs) {
	case 0:
		return ""
	case 1:
		return "LUN " + g.LUN
	}
	for i := range d.Arrays {
		a := &d.Arrays[i]
		if len(a.LUNs) == len(g.LUNs) && !slices.ContainsFunc(a.LUNs, func(l design.LUN) bool { return !slices.Contains(g.LUNs, l.Name) }) {
			return fmt.Sprintf("each of the %d LUNs of array %s", len(a.LUNs), a.Name)
		}
	}
	return "each of the LUNs " + health.List(g.LUNs)
}

// Sentence tells the difference once for all of its LUNs.
func (g Group) Sentence(d *design.Design) string { return strings.TrimSpace(g.Which(d) + " " + g.Text) }

package array

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/lists"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/spec"
)

// Text prints a result for a person.
func (r Result) Text(w io.Writer, d *design.Design) error {
	var b strings.Builder
	for _, m := range r.Matches {
		fmt.Fprintf(&b, "%-12s %-18s LUN %-3d %10s  %-24s %s\n", m.Host, m.LUN, m.Seen.Number, m.Seen.Size.Binary(), m.paths(d), m.Seen.WWN)
	}
	for _, g := range Grouped(r.Findings) {
		fmt.Fprintf(&b, "! %s: %s\n    mend: %s\n", strings.Join(g.Hosts, ", "), g.Sentence(d), g.Mend)
	}
	for _, u := range r.Unproven {
		fmt.Fprintf(&b, "not compared: %s\n", u)
	}
	if len(r.Identities) > 0 {
		b.WriteString("WWNs for the spec (arrays.wwns); mortar array verify --write puts them there:\n")
	}
	for _, id := range r.Identities {
		fmt.Fprintf(&b, "  - name: %s\n    wwns: [\"%s\"]\n", id.Array, strings.Join(id.WWNs, `", "`))
	}
	fmt.Fprintf(&b, "%d of %d LUNs found, %s.\n", len(r.Matches), r.Expected, spec.Plural(len(r.Findings), "difference"))
	_, err := io.WriteString(w, b.String())
	return err
}

// paths formats the paths to a LUN: "4 paths (A 2, B 2), owner A".
func (m Match) paths(d *design.Design) string {
	a := lists.Find(d.Arrays, func(a *design.Array) bool {
		return slices.ContainsFunc(a.LUNs, func(l design.LUN) bool { return l.Name == m.LUN })
	})
	text := spec.Plural(m.Seen.Paths, "path")
	var each []string
	for c, n := range m.Seen.Controllers {
		each = append(each, fmt.Sprintf("%s %d", controllerName(a, c), n))
	}
	if len(each) > 0 {
		text += " (" + strings.Join(each, ", ") + ")"
	}
	if m.Seen.Owner != nil {
		text += ", owner " + controllerName(a, *m.Seen.Owner)
	}
	return text
}

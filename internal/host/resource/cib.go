package resource

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/base/lists"
)

// ServiceID is the ID of a service's primitive in the CIB.
func ServiceID(service string) string { return "service-" + service }

// GroupID is that of the group which makes up a service of profile stock.
func GroupID(service string) string { return ServiceID(service) + "-group" }

// Element is an XML element of the CIB: attributes and children, no text.
type Element struct {
	Name     string
	Attrs    map[string]string
	Children []*Element
}

// El makes an element; attributes come in pairs.
func El(name string, attrs ...string) *Element {
	e := &Element{Name: name, Attrs: map[string]string{}}
	for i := 0; i+1 < len(attrs); i += 2 {
		e.Attrs[attrs[i]] = attrs[i+1]
	}
	return e
}

// Add appends children and returns the element.
func (e *Element) Add(c ...*Element) *Element {
	e.Children = append(e.Children, c...)
	return e
}

// String writes the element with its secrets, for the wire.
func (e *Element) String() string { return e.text("", nil) }

// child finds the first child of a name.
func (e *Element) child(name string) *Element {
	c, _ := lists.First(e.Children, func(c *Element) bool { return c.Name == name })
	return c
}

// byID finds a child by its id.
func (e *Element) byID(id string) *Element {
	c, _ := lists.First(e.Children, func(c *Element) bool { return c.Attrs["id"] == id })
	return c
}

// text writes the element with sorted attributes; hide replaces the values
// of those nvpairs.
func (e *Element) text(indent string, hide []string) string {
	var b strings.Builder
	e.write(&b, indent, hide)
	return b.String()
}

func (e *Element) write(b *strings.Builder, indent string, hide []string) {
	b.WriteString(indent + "<" + e.Name)
	keys := make([]string, 0, len(e.Attrs))
	for k := range e.Attrs {
		keys = append(keys, k)
	}
	sort.Slice(keys, func(i, j int) bool { // id first, as people write it
		if (keys[i] == "id") != (keys[j] == "id") {
			return keys[i] == "id"
		}
		return keys[i] < keys[j]
	})
	for _, k := range keys {
		v := e.Attrs[k]
		if k == "value" && e.Name == "nvpair" && slices.Contains(hide, e.Attrs["name"]) {
			v = "(secret)"
		}
		b.WriteString(" " + k + `="` + escapeXML(v) + `"`)
	}
	if len(e.Children) == 0 {
		b.WriteString("/>\n")
		return
	}
	b.WriteString(">\n")
	for _, c := range e.Children {
		c.write(b, indent+"  ", hide)
	}
	b.WriteString(indent + "</" + e.Name + ">\n")
}

func escapeXML(s string) string {
	var b bytes.Buffer
	_ = xml.EscapeText(&b, []byte(s)) // a bytes.Buffer does not fail
	return b.String()
}

// parseXML reads one element.
func parseXML(text []byte) (*Element, error) {
	d := xml.NewDecoder(bytes.NewReader(text))
	var stack []*Element
	var root *Element
	for {
		t, err := d.Token()
		if t == nil || err != nil {
			if root != nil && len(stack) == 0 {
				return root, nil
			}
			return nil, fmt.Errorf("XML of the CIB: %w", err)
		}
		switch t := t.(type) {
		case xml.StartElement:
			if root != nil && len(stack) == 0 {
				return nil, fmt.Errorf("XML of the CIB: two roots")
			}
			e := El(t.Name.Local)
			for _, a := range t.Attr {
				e.Attrs[a.Name.Local] = a.Value
			}
			if len(stack) > 0 {
				stack[len(stack)-1].Add(e)
			} else {
				root = e
			}
			stack = append(stack, e)
		case xml.EndElement:
			stack = stack[:len(stack)-1]
		}
	}
}

// same compares two elements; the order of children counts only where the
// CIB's does (members of a set), which Mortar does not write.
func (e *Element) same(o *Element) bool {
	if e.Name != o.Name || len(e.Attrs) != len(o.Attrs) || len(e.Children) != len(o.Children) {
		return false
	}
	for k, v := range e.Attrs {
		if w, ok := o.Attrs[k]; !ok || w != v {
			return false
		}
	}
	used := make([]bool, len(o.Children))
next:
	for _, c := range e.Children {
		for i, d := range o.Children {
			if !used[i] && c.same(d) {
				used[i] = true
				continue next
			}
		}
		return false
	}
	return true
}

// CIB is the part of the cluster's configuration that Mortar owns, built
// offline. What others added (a move constraint, a node in standby, a
// resource of their own) is left alone, except for elements whose id begins
// with one of Owned: those are Mortar's and go when they are no longer wanted.
type CIB struct {
	// Configuration is the <configuration> element with the sections and
	// elements that must be there.
	Configuration string
	// Owned are prefixes of ids.
	Owned []string
	// Secret are names of nvpairs whose value is never shown.
	Secret []string
}

func (c *CIB) Identity() (kind, id string) { return "cib", "configuration" }

// change is one step of a patch.
type change struct {
	op, path string
	pos      int
	el       *Element
}

// Diff reads the running CIB and makes a patch. The patch carries the
// version it was made for: cibadmin refuses it if the CIB changed meanwhile.
func (c *CIB) Diff(sys Look) ([]Action, error) {
	want, err := parseXML([]byte(c.Configuration))
	if err != nil {
		return nil, err
	}
	cib := presentCIB(sys)
	have := cib.child("configuration")
	if have == nil {
		return nil, fmt.Errorf("the CIB has no configuration")
	}
	ch := c.changes(have, want)
	if len(ch) == 0 {
		return nil, nil
	}
	return []Action{c.action(cib, ch)}, nil
}

// presentCIB is the CIB of the cluster. While Pacemaker does not run, or is
// starting, a plan is made against that on disk; a cluster that has none is
// going to start with an empty one.
func presentCIB(sys Look) *Element {
	parsed := func(text string) *Element {
		e, err := parseXML([]byte(text))
		sys.Check(err)
		return e
	}
	if clusterRuns(sys) {
		if out, installed := sys.Command("cibadmin", "--query"); installed && out.Code == 0 {
			return parsed(out.Stdout)
		}
	}
	text, there := sys.File(linux.CIBFile)
	if !there {
		return El("cib", "admin_epoch", "0", "epoch", "0", "num_updates", "0").Add(
			El("configuration").Add(El("crm_config"), El("nodes"), El("resources"), El("constraints")))
	}
	return parsed(text)
}

// changes compares section by section. Deletions come first, so that
// nothing refers to what is gone, and then creations in the order wanted:
// resources before the constraints that name them.
func (c *CIB) changes(have, want *Element) []change {
	const root = "/cib/configuration"
	var del, mod []change
	// A section that exists is patched inside; one that does not is created.
	n := len(have.Children)
	for _, ws := range want.Children {
		hs := have.child(ws.Name)
		path := root + "/" + ws.Name
		if hs == nil {
			mod = append(mod, change{op: "create", path: root, pos: n, el: ws})
			n++
			continue
		}
		var gone, made []*Element
		for _, h := range hs.Children {
			if ws.byID(h.Attrs["id"]) == nil && c.owns(h.Attrs["id"]) {
				gone = append(gone, h)
			}
		}
		for _, w := range ws.Children {
			h := hs.byID(w.Attrs["id"])
			switch {
			case h == nil:
				made = append(made, w)
			case w.Name == "cluster_property_set":
				// The cluster keeps its own version and name in this set.
				d, m := propertyChanges(path, h, w)
				del, mod = append(del, d...), append(mod, m...)
			case !w.same(h):
				gone, made = append(gone, h), append(made, w)
			}
		}
		d, m := replace(path, hs, gone, made)
		del, mod = append(del, d...), append(mod, m...)
	}
	return append(del, mod...)
}

// replace takes children of an element out and puts others at its end.
func replace(path string, of *Element, gone, made []*Element) (del, mod []change) {
	for _, e := range gone {
		del = append(del, change{op: "delete", path: elementPath(path, e), el: e})
	}
	for i, e := range made {
		mod = append(mod, change{op: "create", path: path, pos: len(of.Children) - len(gone) + i, el: e})
	}
	return del, mod
}

// propertyChanges sets the wanted nvpairs of a set by name, whatever their
// ids, and leaves the others.
func propertyChanges(path string, h, w *Element) (del, mod []change) {
	var gone, made []*Element
	for _, p := range w.Children {
		i := slices.IndexFunc(h.Children, func(e *Element) bool { return e.Attrs["name"] == p.Attrs["name"] })
		if i >= 0 && h.Children[i].Attrs["value"] == p.Attrs["value"] {
			continue
		}
		if i >= 0 {
			gone = append(gone, h.Children[i])
		}
		made = append(made, p)
	}
	return replace(elementPath(path, h), h, gone, made)
}

func elementPath(parent string, e *Element) string {
	return parent + "/" + e.Name + "[@id='" + e.Attrs["id"] + "']"
}

func (c *CIB) owns(id string) bool {
	return slices.ContainsFunc(c.Owned, func(p string) bool { return strings.HasPrefix(id, p) })
}

// action wraps the changes in a patch of format 2, as crm_diff(8) writes it.
func (c *CIB) action(cib *Element, ch []change) Action {
	version := func(name string, bump int) *Element {
		return El(name, "admin_epoch", cib.Attrs["admin_epoch"], "epoch", added(cib.Attrs["epoch"], bump),
			"num_updates", func() string {
				if bump > 0 {
					return "0"
				}
				return cib.Attrs["num_updates"]
			}())
	}
	diff := El("diff", "format", "2").Add(El("version").Add(version("source", 0), version("target", 1)))
	for _, x := range ch {
		e := El("change", "operation", x.op, "path", x.path)
		if x.op == "create" {
			e.Attrs["position"] = fmt.Sprint(x.pos)
			e.Add(x.el)
		}
		diff.Add(e)
	}
	return Action{
		Title: fmt.Sprintf("patch the cluster's configuration (%d changes)", len(ch)),
		Why:   c.shown(ch),
		Cmd:   []string{"cibadmin", "--patch", "--xml-pipe"},
		Stdin: []byte(diff.text("", nil)),
		// The patch may hold an SNMP community.
		Secret: len(c.Secret) > 0,
	}
}

// shown tells the changes to a person, without secrets: an element that is
// replaced by the lines in which it differs.
func (c *CIB) shown(ch []change) string {
	lines := func(e *Element) []string {
		return strings.Split(strings.TrimSuffix(e.text("", c.Secret), "\n"), "\n")
	}
	key := func(e *Element) string { return e.Name + " " + e.Attrs["id"] }
	deleted := map[string]*Element{}
	created := map[string]bool{}
	for _, x := range ch {
		if x.op == "delete" {
			deleted[key(x.el)] = x.el
		} else {
			created[key(x.el)] = true
		}
	}
	var b strings.Builder
	for _, x := range ch {
		old := deleted[key(x.el)]
		switch {
		case x.op == "delete" && created[key(x.el)]:
			continue // shown with its successor
		case x.op == "delete":
			for _, l := range lines(x.el) {
				b.WriteString("- " + l + "\n")
			}
		case old == nil:
			for _, l := range lines(x.el) {
				b.WriteString("+ " + l + "\n")
			}
		default:
			was, is := lines(old), lines(x.el)
			if was[0] == is[0] {
				b.WriteString("  " + was[0] + "\n")
			}
			differs := false
			for _, l := range was {
				if !slices.Contains(is, l) {
					b.WriteString("- " + l + "\n")
					differs = true
				}
			}
			for _, l := range is {
				if !slices.Contains(was, l) {
					b.WriteString("+ " + l + "\n")
					differs = true
				}
			}
			if !differs {
				b.WriteString("  (a secret in it changes)\n")
			}
		}
	}
	return strings.TrimSuffix(b.String(), "\n")
}

func added(s string, n int) string { return fmt.Sprint(max(0, atoi(s)) + n) }

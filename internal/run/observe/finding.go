package observe

import (
	"cmp"
	"maps"

	"github.com/mortarhpc/mortar/internal/base/health"
	"github.com/mortarhpc/mortar/internal/base/lists"
	"github.com/mortarhpc/mortar/internal/brick/design"
)

// Code names a kind of finding. Programs recognise a finding by its code and its arguments:
// its text may change with any release.
type Code string

// with are the arguments of a finding, by the names that the texts of its kind use. A disk of
// the design is its serial, to which the text adds enclosure and bay.
type with = map[string]any

type kindOfFinding health.Kind

// find adds a part that is a finding. Without a name it has that of the subject.
func (p *Part) find(name string, code Code, args with) *Part {
	c := (&Part{}).is(code, args)
	c.Name = cmp.Or(name, c.Subject)
	p.Parts = append(p.Parts, c)
	return c
}

// is makes a part a finding.
func (p *Part) is(code Code, args with) *Part {
	k, known := findings[code]
	if !known {
		panic("no finding has the code " + code)
	}
	words := maps.Clone(args)
	p.Code, p.Level, p.Args = code, k.Level, with{}
	for name, a := range args {
		switch a := a.(type) {
		case *design.Disk:
			words[name], p.Args[name] = diskName(a), a.Serial
		case []*design.Disk:
			names := lists.Map(a, diskName)
			words[name], p.Args[name] = names, serialsOf(a)
		default:
			if a != "" {
				p.Args[name] = a
			}
		}
	}
	p.Text, p.Mend, p.Subject = health.Kind(k).Say(p.Args, words)
	return p
}

func serialsOf(ds []*design.Disk) []string {
	return lists.Map(ds, func(d *design.Disk) string { return d.Serial })
}

// condition is when a part is a finding.
type condition struct {
	holds bool
	code  Code
}

// first makes a part the finding of the first condition that holds, if one does.
func (p *Part) first(args with, all []condition) *Part {
	for _, c := range all {
		if c.holds {
			return p.is(c.code, args)
		}
	}
	return p
}

// Has reports whether a part is a finding of a code with these arguments: pairs of a name
// and a value, or one of the values; "" is any.
func (p *Part) Has(code Code, args ...string) bool {
	return health.Identity{Code: string(p.Code), Args: p.Args}.Has(string(code), args...)
}

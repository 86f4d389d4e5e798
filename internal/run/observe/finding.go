package observe

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"

	"github.com/mortarhpc/mortar/internal/brick/design"
)

// Code names a kind of finding. Programs recognise a finding by its code and its arguments:
// its text may change with any release.
type Code string

// with are the arguments of a finding, by the names that the texts of its kind use. A disk of
// the design is its serial, to which the text adds enclosure and bay.
type with = map[string]any

// kindOfFinding is what all findings of a code have in common.
type kindOfFinding struct {
	subject string // argument that names what the finding is about; "": the brick
	level   Level  // OK: the check sets it, by what a device reports
	// text and mend have arguments in braces, which may have a verb of fmt; %are is that of
	// a list. Text in brackets is left out if an argument in it is empty or 0.
	text, mend string
}

// placeholder is an argument in braces, or what is in brackets.
var placeholder = regexp.MustCompile(`\{(\w+)(%[^}]*)?\}|\[[^][]*\]`)

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
	p.Code, p.Level, p.Args = code, k.level, with{}
	for name, a := range args {
		switch a := a.(type) {
		case *design.Disk:
			words[name], p.Args[name] = diskName(a), a.Serial
		case []*design.Disk:
			var names []string
			for _, d := range a {
				names = append(names, diskName(d))
			}
			words[name], p.Args[name] = names, serialsOf(a)
		default:
			if a != "" {
				p.Args[name] = a
			}
		}
	}
	if s, has := p.Args[k.subject]; has {
		p.Subject = fmt.Sprint(s)
	}
	p.Text, _ = fill(k.text, words)
	p.Mend, _ = fill(k.mend, p.Args)
	return p
}

func serialsOf(ds []*design.Disk) (out []string) {
	for _, d := range ds {
		out = append(out, d.Serial)
	}
	return out
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

// fill puts arguments into a text. It reports whether one of them is empty.
func fill(text string, args with) (out string, empty bool) {
	out = placeholder.ReplaceAllStringFunc(text, func(s string) string {
		if s[0] == '[' {
			part, none := fill(s[1:len(s)-1], args)
			if none {
				return ""
			}
			return part
		}
		m := placeholder.FindStringSubmatch(s)
		said := ""
		switch a := args[m[1]].(type) {
		case nil:
			if m[1] == specFile {
				return s
			}
		case []string:
			switch {
			case len(a) > 0 && m[2] == "%are":
				said = areList(a)
			case len(a) > 0:
				said = list(a)
			}
		default:
			said = fmt.Sprintf(cmp.Or(m[2], "%v"), a)
		}
		empty = empty || said == "" || said == "0"
		return said
	})
	return out, empty
}

// specFile is the argument that finish puts into remedies.
const specFile = "spec"

// Has reports whether a part is a finding of a code with these arguments: pairs of a name
// and a value, or one of the values.
func (p *Part) Has(code Code, args ...string) bool {
	for i := 0; i+1 < len(args); i += 2 {
		all, several := p.Args[args[i]].([]string)
		if several && !slices.Contains(all, args[i+1]) || !several && fmt.Sprint(p.Args[args[i]]) != args[i+1] {
			return false
		}
	}
	return p.Code == code
}

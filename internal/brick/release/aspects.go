package release

import (
	_ "embed"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"text/template"

	"github.com/mortarhpc/mortar/internal/base/lists"
	"github.com/mortarhpc/mortar/internal/brick/array"
	"github.com/mortarhpc/mortar/internal/brick/design"
)

// Aspect is what a design has of something that papers describe.
type Aspect struct {
	Key   string // of Says of paper.System
	Part  string // components, layout, capacity or tuning
	What  string // for people
	How   string // the command that shows it
	Value string // what the design has, "" if it has no such thing
}

// parts of a comparison, in their order.
var parts = []string{"components", "layout", "capacity", tuning}

const tuning = "tuning"

//go:embed aspects.tmpl
var text string

var templates = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("aspects").Funcs(template.FuncMap{"join": strings.Join,
		"spread": spread, "spares": spares, "paths": paths, "policy": policy, "ssds": ssds, "fencing": fencing}).Parse(text))
})

var definition = regexp.MustCompile(`(?m)^\{\{define "(\w+)"\}\}`)

// Aspects lists all of them, in the order of aspects.tmpl.
func Aspects(d *design.Design) []Aspect {
	var out []Aspect
	for _, m := range definition.FindAllStringSubmatch(text, -1) {
		var b strings.Builder
		if err := templates().ExecuteTemplate(&b, m[1], d); err != nil {
			panic("aspects.tmpl: " + err.Error()) // the examples execute every aspect
		}
		head, value, _ := strings.Cut(b.String(), "\n")
		f := strings.Split(head, " | ")
		if list, ok := strings.CutSuffix(value, ";\n"); ok {
			value = counted(strings.Split(list, ";\n"))
		}
		out = append(out, Aspect{m[1], f[0], f[1], f[2], value})
	}
	return out
}

// counted joins texts, equal ones once with their number.
func counted(texts []string) string {
	var order []string
	n := map[string]int{}
	for _, s := range texts {
		if n[s]++; n[s] == 1 {
			order = append(order, s)
		}
	}
	for i, s := range order {
		order[i] = fmt.Sprintf("%d x %s", n[s], s)
	}
	return strings.Join(order, "; ")
}

func spread(d *design.Design) string {
	most := 0
	g := d.Groups[len(d.Groups)-1]
	for _, e := range d.Spec.Enclosures {
		n := 0
		for _, m := range g.Members {
			if m.Enclosure == e.Name {
				n++
			}
		}
		most = max(most, n)
	}
	return fmt.Sprint(most)
}

func spares(d *design.Design) string {
	n := 0
	for _, a := range d.Arrays {
		n += len(a.Spares)
	}
	for _, g := range d.Groups {
		n += len(g.Spares)
	}
	return fmt.Sprint(n)
}

// paths are those from a server to a LUN of the last array.
func paths(d *design.Design) int {
	a := &d.Arrays[len(d.Arrays)-1]
	return d.PathsTo(a, a.Servers[0])
}

func ssds(c *design.Cache) string {
	all := lists.Map(c.SSDs, func(s design.Disk) string { return s.Size.String() })
	return counted(all)
}

// cacheWords are what an array's script has of the cache, each with its name here.
var cacheWords = []struct {
	re   *regexp.Regexp
	name string
}{
	{regexp.MustCompile(`\bwriteCacheEnabled=true| wb | write-policy write-back`), "write-back"},
	{regexp.MustCompile(`\bmirrorEnabled=true`), "mirrored"},
	{regexp.MustCompile(`\bmirrorEnabled=false`), "not mirrored"},
	{regexp.MustCompile(`\breadCacheEnabled=true`), "reads cached"},
	{regexp.MustCompile(`\bcacheReadPrefetch=true| ra | read-ahead-size adaptive`), "read ahead"},
	{regexp.MustCompile(`\bcacheBlockSize=32;`), "blocks of 32 KiB"},
	{regexp.MustCompile(`\bpdcache=off`), "that of the disks off"},
}

// policy is of the last array.
func policy(d *design.Design) string {
	if len(d.Arrays) == 0 {
		return ""
	}
	text, err := array.Script(d, d.Arrays[len(d.Arrays)-1].Name, "", 0)
	if err != nil { // the spec does not have all that a script takes, such as sas_ports
		return ""
	}
	var all []string
	for _, w := range cacheWords {
		if w.re.MatchString(text) {
			all = append(all, w.name)
		}
	}
	return strings.Join(all, ", ")
}

func fencing(d *design.Design) string {
	var all []string
	for _, l := range d.Fencing() {
		if l.Node != d.Servers()[0] {
			continue
		}
		agents := lists.Map(l.Devices, func(x design.FenceDevice) string { return x.Agent })
		all = append(all, fmt.Sprintf("%d. %s", l.Level, counted(agents)))
	}
	return strings.Join(all, ", ")
}

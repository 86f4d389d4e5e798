package observe

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mortarhpc/mortar/internal/base/health"
	"github.com/mortarhpc/mortar/internal/base/linux"
	lunarray "github.com/mortarhpc/mortar/internal/brick/array"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/converge/prepared"
	"github.com/mortarhpc/mortar/internal/host/gather"
	"github.com/mortarhpc/mortar/internal/serve/cache"
	"github.com/mortarhpc/mortar/internal/serve/refusal"
)

// FindingsReference compares docs/findings.md: `go test ./internal/run/observe -update` makes it.
func FindingsReference(t *testing.T, refusals string) {
	const file = "../../../docs/findings.md"
	var b strings.Builder
	b.WriteString("# Findings\n\n<!-- Made of the tables of findings and refusals by `go test ./internal/run/observe -update`; do not edit. -->\n\n" +
		"Each finding of `mortar status` has a code, which stays as it is when its text changes. `status --json`, the messages, the page and the metrics of `mortar watch` carry it.\n" +
		"Words in capitals are arguments of the finding; `args` in the JSON has each that is known. Text in brackets is left out if an argument in it is not. The subject is what the finding is about.\n\n" +
		reference() +
		"\n## Refusals of the resource agent\n\nThe reason of a failed action begins with a code in brackets, for example `[in-doubt] a crash has left blocks in doubt …`. `crm_mon` shows it, and `mortar events` carries it.\n\n" +
		"| code | text | subject | what to do |\n|---|---|---|---|\n")
	for _, code := range slices.Sorted(maps.Keys(refusal.Kinds)) {
		k := refusal.Kinds[code]
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", code, Capitals(k.Text), cmp.Or(k.Subject, "service"), Capitals(k.Mend))
	}
	b.WriteString("\nWhat fails at a part of the service has the code of the part:\n\n| code | what it means | what to do |\n|---|---|---|\n")
	for _, code := range slices.Sorted(maps.Keys(refusal.Parts)) {
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", code, refusal.Parts[code][0], refusal.Parts[code][1])
	}
	b.WriteString(refusals)
	if *update {
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != b.String() {
		t.Errorf("docs/findings.md is not what the tables say (%v): go test ./internal/run/observe -run TestFindingsReference -update", err)
	}
}

// Each call that makes a finding has a code of the table and the arguments that its text needs
// and no others, and each kind of finding is made somewhere.
func TestFindingsHaveTheirArguments(t *testing.T) {
	files, _ := filepath.Glob("*.go") // the pattern is right
	var parsed []*ast.File
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		parsed = append(parsed, f)
	}
	names := map[string]Code{} // of constants
	said := map[Code]bool{Code(prepared.Differs): true, Code(prepared.Untold): true, Code(prepared.Bad): true}
	for code := range lunarray.Kinds {
		said[Code(code)] = true
	}
	each := func(visit func(ast.Node) bool) {
		for _, f := range parsed {
			ast.Inspect(f, visit)
		}
	}
	each(func(n ast.Node) bool {
		if v, ok := n.(*ast.ValueSpec); ok && len(v.Values) == 1 {
			if l, ok := v.Values[0].(*ast.BasicLit); ok && l.Kind == token.STRING {
				names[v.Names[0].Name] = Code(unquote(t, l))
			}
		}
		return true
	})
	calls := 0
	each(func(n ast.Node) bool {
		if v, ok := n.(*ast.ValueSpec); ok && len(v.Values) == 1 {
			if _, constant := v.Values[0].(*ast.BasicLit); constant {
				return false
			}
		}
		if kv, ok := n.(*ast.KeyValueExpr); ok {
			if c, ok := kv.Value.(*ast.CompositeLit); ok && c.Type == nil {
				return false // the table
			}
		}
		if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
			code := Code(unquote(t, l))
			said[code] = true
			for _, which := range []string{"-unknown", "-missing", "-twice"} { // only
				said[code+Code(which)] = true
			}
			return true
		}
		if id, ok := n.(*ast.Ident); ok {
			said[names[id.Name]] = true
		}
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) < 2 {
			return true
		}
		f, ok := call.Fun.(*ast.SelectorExpr)
		args, isMap := call.Args[len(call.Args)-1].(*ast.CompositeLit)
		if !ok || !isMap || f.Sel.Name != "find" && f.Sel.Name != "is" {
			return true
		}
		var code Code
		switch x := call.Args[len(call.Args)-2].(type) {
		case *ast.BasicLit:
			code = Code(unquote(t, x))
		case *ast.Ident:
			code = names[x.Name]
		}
		if code == "" {
			return true // a variable
		}
		calls++
		k := findings[code]
		if k.Text == "" {
			t.Errorf("%s is no code", code)
			return true
		}
		var have []string
		for _, e := range args.Elts {
			have = append(have, unquote(t, e.(*ast.KeyValueExpr).Key.(*ast.BasicLit)))
		}
		always := regexp.MustCompile(`\[[^][]*\]`).ReplaceAllString(k.Text+k.Mend, "")
		for _, m := range regexp.MustCompile(`\{(\w+)`).FindAllStringSubmatch(always, -1) {
			if m[1] != health.SpecFile && !slices.Contains(have, m[1]) {
				t.Errorf("%s needs %q, and has %q", code, m[1], have)
			}
		}
		if k.Subject != "" && !slices.Contains(have, k.Subject) {
			t.Errorf("%s is about %q, and has %q", code, k.Subject, have)
		}
		return true
	})
	if calls < 80 {
		t.Errorf("only %d calls were looked at", calls)
	}
	for code := range findings {
		if !said[code] && !strings.HasPrefix(string(code), "group-") { // which are md's states
			t.Errorf("nothing finds %s", code)
		}
	}
}

func unquote(t *testing.T, l *ast.BasicLit) string {
	s, err := strconv.Unquote(l.Value)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Drills recognise faults by these codes and arguments.
func TestSignsOfDrills(t *testing.T) {
	d := theDesign(t)
	judged := func(change func(f Facts)) []*Part {
		f := healthy(t, d)
		change(f)
		var all []*Part
		Judge(d, f).Each(func(p *Part) { all = append(all, p) })
		return all
	}
	made := func(add func(p *Part)) []*Part {
		p := &Part{}
		add(p)
		return p.Parts
	}
	off := func(port, dev string, err string) []*Part {
		return judged(func(f Facts) {
			outletsOf(f, func(_ string, o *gather.Outlet) {
				if o.Device == dev && (port == "" || o.Port == port) {
					o.On, o.Err = false, err
				}
			})
		})
	}
	clock := judged(func(f Facts) { f.Hosts["nfs2"].Host.NowNS -= int64(90 * time.Second) })
	for _, c := range []struct {
		all  []*Part
		code Code
		args []string
	}{
		{judged(func(f Facts) {
			r := f.Hosts["nfs2"].Host.Run[gather.CmdDM]
			r.Stdout = strings.Replace(r.Stdout, "8:16 A 0 0 1", "8:16 F 3 0 1", 1)
			f.Hosts["nfs2"].Host.Run[gather.CmdDM] = r
		}), PathLost, []string{"host", "nfs2", "disks", "MA01"}},
		{clock, ClockSkewed, []string{"host", "nfs2"}},
		{clock, ClockSkewed, []string{"reference", "nfs1"}},
		{judged(func(f Facts) { cluster(t, f, "standby") }), InStandby, []string{"host", "nfs1"}},
		{judged(func(f Facts) { move(d, f, "nfs1", "nfs2"); cluster(t, f, "fencing-failing") }), MemberLost, []string{"host", "nfs1"}},
		{judged(func(f Facts) { move(d, f, "nfs1", "nfs2"); cluster(t, f, "cold-start-alone") }), QuorumWaits, []string{"missing", "nfs1"}},
		{off("2", "fence-pdu-b", ""), FeedLost, []string{"host", "nfs2", "pdus", "pdu-b"}},
		{off("", "fence-pdu-a", "no route"), PDUSilent, []string{"pdu", "pdu-a"}},
		{made(func(p *Part) { fullness(p, "small-OST0001", "oss02", "space", 99) }), Full, []string{"fs", "small-OST0001"}},
		{made(func(p *Part) {
			(&server{name: "nfs1", host: &gather.Host{}}).judgeSystem(p, &array{Array: gather.Array{MDArray: linux.MDArray{Dev: "md0", RaidDisks: 2, Degraded: 1}}}, "system mirror md0")
		}), SystemArrayDegraded, []string{"host", "nfs1"}},
		{made(func(p *Part) {
			a := &array{}
			for _, serial := range []string{"MA01", "MA02", "MA03"} {
				a.members = append(a.members, member{linux.MDMember{Dev: serial, States: []string{"in_sync"}}, &design.Disk{Serial: serial, Enclosure: "A"}})
			}
			mdStorage{&view{pair: &design.Pair{}}}.slowMembers(p, &design.Group{Name: "g"}, a, map[string]gather.Pace{"MA01": {Done: 4, MS: 2400}, "MA02": {Done: 4, MS: 9}, "MA03": {Done: 4, MS: 9}})
		}), DiskSlow, []string{"disk", "MA01"}},
		{made(func(p *Part) {
			slowLUNs(p, "nss1", map[string]string{"dm-1": "l0", "dm-2": "l1", "dm-3": "l2"}, map[string]gather.Pace{"dm-1": {Done: 3, MS: 1502}, "dm-2": {Done: 9, MS: 4}, "dm-3": {Done: 9, MS: 5}})
		}), LUNSlow, []string{"lun", "l0"}},
		{made(func(p *Part) {
			var found []lunarray.Finding
			for _, lun := range []string{"l0", "l1"} {
				found = append(found, lunarray.Found("nss1", lun, lunarray.Impaired, with{"paths": 2, "want": 4}))
			}
			grouped(p, d, found)
		}), lunarray.Impaired, []string{"luns", "l1", "hosts", "nss1", "paths", "2"}},
		{made(func(p *Part) { judgeCache(p, &design.Cache{}, "nfs1", cache.Stats{SSDs: []cache.Life{{Serial: "S1"}}}) }), SSDMissing, []string{"ssd", "S1"}},
	} {
		if !slices.ContainsFunc(c.all, func(p *Part) bool { return p.Has(c.code, c.args...) && p.Level >= Warning }) {
			t.Errorf("no finding %s of %q", c.code, c.args)
		}
		if slices.ContainsFunc(c.all, func(p *Part) bool { return p.Has(c.code, c.args[0], "another") }) {
			t.Errorf("%s is one of another %s", c.code, c.args[0])
		}
	}
}

// Argument is one in a text.
var Argument = regexp.MustCompile(`\{(\w+)(?:%[^}]*)?\}`)

// Capitals is a text in a table of Markdown.
func Capitals(s string) string {
	s = Argument.ReplaceAllStringFunc(s, func(s string) string { return strings.ToUpper(Argument.FindStringSubmatch(s)[1]) })
	return strings.NewReplacer("|", "\\|", "\n", " ").Replace(s)
}

// Taken reports whether a finding has a code, or a refusal of the resource agent.
func Taken(code string) bool {
	return findings[Code(code)].Text != "" || refusal.Kinds[refusal.Code(code)].Text != "" || refusal.Parts[refusal.Code(code)] != [2]string{}
}

// reference is the table of all findings, in Markdown. Arguments are in capitals.
func reference() string {
	var b strings.Builder
	b.WriteString("| code | level | text | subject | what to do |\n|---|---|---|---|---|\n")
	for _, code := range slices.Sorted(maps.Keys(findings)) {
		k := findings[code]
		level := k.Level.String()
		if k.Level == OK {
			level = "as reported"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", code, level, Capitals(k.Text), cmp.Or(k.Subject, "brick"), Capitals(k.Mend))
	}
	return b.String()
}

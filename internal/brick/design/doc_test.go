package design

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mortarhpc/mortar/examples"
)

// The table of docs/systems.md, and the pictures, are what the examples give.
func TestSystemsDoc(t *testing.T) {
	files, err := fs.Glob(examples.FS, "*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	b.WriteString("\n| system | flavour | disks | groups | raw | RAID | stripe | warnings |\n|---|---|---|---|---|---|---|---|\n")
	for _, f := range files {
		name := strings.TrimSuffix(f, ".yaml")
		d := example(t, name)
		shapes, times := []string{}, map[string]int{}
		for _, set := range d.Spec.Sets() {
			r := set.Storage.RAID
			n := len(d.GroupsOf(set.Name))
			s := fmt.Sprintf("%d x RAID %d %d+%d", n, r.Level, r.Data, r.Parity)
			if r.Level == 60 {
				s = fmt.Sprintf("%d spans %d+%d of RAID 60", n, r.Data, r.Parity)
			}
			times[s]++
			if times[s] == 1 {
				shapes = append(shapes, s)
			}
		}
		for i, s := range shapes {
			if n := times[s]; n > 1 {
				shapes[i] = fmt.Sprintf("%d x (%s)", n, s)
			}
		}
		stripe := ""
		if d.Lustre == nil {
			stripe = fmt.Sprintf("%s x %d", d.Services()[0].SU, d.Services()[0].SW)
		} else {
			g := d.Groups[len(d.Groups)-1]
			stripe = fmt.Sprintf("%s x %d", g.Chunk, g.Data)
		}
		var rules []string
		count := map[string]int{}
		for _, w := range d.Warnings {
			if count[w.Rule] == 0 {
				rules = append(rules, w.Rule)
			}
			count[w.Rule]++
		}
		for i, r := range rules {
			if count[r] > 1 {
				rules[i] = fmt.Sprintf("%s (%d)", r, count[r])
			}
		}
		if len(rules) == 0 {
			rules = []string{"none"}
		}
		c := d.Capacity
		link := fmt.Sprintf("[%s](../examples/%s)", name, f)
		if _, err := os.Stat("../../../docs/systems/" + name + ".md"); err == nil {
			link = fmt.Sprintf("[%s](systems/%s.md)", name, name)
		}
		fmt.Fprintf(&b, "| %s | %s | %d | %s | %s | %s = %s | %s | %s |\n", link, d.Flavour, len(d.Disks),
			strings.Join(shapes, ", "), c.Raw.Decimal(), c.RAID.Decimal(), c.RAID.Binary(), stripe, strings.Join(rules, ", "))
	}
	b.WriteString("\n")
	const file = "../../../docs/systems.md"
	doc, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(doc), " -update -->\n")
	_, tail, ok2 := strings.Cut(rest, "<!-- end of table -->")
	if !ok || !ok2 {
		t.Fatal("docs/systems.md has lost the marks of its table")
	}
	check(t, file, []byte(head+" -update -->\n"+b.String()+"<!-- end of table -->"+tail))
	for _, name := range []string{"nss7.4-ha", "lustre-rack"} {
		var svg bytes.Buffer
		if err := SVG(&svg, example(t, name)); err != nil {
			t.Fatal(err)
		}
		check(t, "../../../docs/img/"+name+".svg", svg.Bytes())
	}
}

func check(t *testing.T, file string, got []byte) {
	t.Helper()
	if *update {
		if err := os.MkdirAll("../../../docs/img", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got), -update rewrites it:\n%.3000s", file, diff)
	}
}

package nfs

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// A table that is compared with itself has no difference.
func FuzzExports(f *testing.F) {
	f.Add("/srv/a\\040b\t10.0.0.0/24(rw,sync,anonuid=010,sec=sys,rw,sec=krb5,ro,fsid=1)\n", "rw,sec=sys:krb5")
	f.Fuzz(func(t *testing.T, text, options string) {
		table := ParseETab(text)
		var same []Export
		for _, e := range table {
			fsid := strings.TrimPrefix(exportProperties(e.Options)["fsid"], "fsid=")
			same = append(same, Export{e.Dir, e.Clients, fsid, e.Options})
			CompareExports(table, []Export{{e.Dir, e.Clients, fsid, strings.Split(options, ",")}})
		}
		for _, e := range table {
			if h, w := differing(e.Options, e.Options); len(h)+len(w) > 0 {
				t.Errorf("%q differs from itself: %v %v", e.Options, h, w)
			}
		}
		CompareExports(table, same)
	})
}

// Each list of options is what the real exportfs made of it, and nothing else.
func TestExportOptionsInTable(t *testing.T) {
	b, err := os.ReadFile("testdata/etab.txt")
	if err != nil {
		t.Fatal(err)
	}
	made := map[string]string{} // options to what they mean
	for line := range strings.Lines(string(b)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		options, rest, _ := strings.Cut(line, "\t")
		table := ParseETab("/srv/home/d\t" + rest)
		e := Export{Dir: "/srv/home/d", Clients: "10.0.0.0/24", FSID: "5d1f7f66-63a4-4f5c-9d25-5f9d3b6f8a01", Options: strings.Split(options, ",")}
		if d := CompareExports(table, []Export{e}); len(table) != 1 || len(d) > 0 {
			t.Errorf("%s: %v", options, d)
		}
		for other, has := range made {
			same := has == rest || strings.ReplaceAll(has, ",secure,no_root", ",no_root") == strings.ReplaceAll(rest, ",secure,no_root", ",no_root")
			e.Options = strings.Split(other, ",")
			if d := CompareExports(table, []Export{e}); (len(d) == 0) != same {
				t.Errorf("%s beside %s: %v", options, other, d)
			}
		}
		made[options] = rest
	}
	if len(made) < 20 {
		t.Errorf("%d lines", len(made))
	}
}

func TestCompareExports(t *testing.T) {
	table := ParseETab("/srv/home/a\\040b\t10.0.0.0/24(rw,sync,insecure,fsid=1)\n/srv/old\t*(rw,async,fsid=2)\nno line\n/srv/home/c\t@grp(ro,fsid=3,anonuid=7)\n")
	want := []Export{
		{"/srv/home/a b", "10.0.0.0/24", "1", []string{"rw", "no_root_squash", "security_label"}},
		{"/srv/home/a b", "10.0.1.0/24", "1", []string{"rw"}},
		{"/srv/home/c", "@grp", "4", []string{"anonuid=8"}},
	}
	var got []string
	for _, d := range CompareExports(table, want) {
		got = append(got, d.String())
	}
	if want := []string{
		"/srv/home/a b is exported to 10.0.0.0/24 with root_squash,insecure instead of no_root_squash,secure,security_label",
		"/srv/home/a b is not exported to 10.0.1.0/24",
		"/srv/home/c is exported to @grp with anonuid=7,fsid=3 instead of anonuid=8,fsid=4",
		"/srv/old is exported to *, which is not configured",
	}; !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

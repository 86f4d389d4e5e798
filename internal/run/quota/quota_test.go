package quota

import (
	"context"
	"flag"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/test/field"
)

// server answers with recorded text.
type server struct{ mounts, report string }

func (s server) Query(context.Context, ...string) (resource.Output, error) {
	return resource.Output{Stdout: s.report}, nil
}
func (s server) Read(context.Context, string) (string, error) { return s.mounts, nil }

func service() *design.Service {
	return &design.Service{Name: "home", NFS: &design.NFS{MountPoint: "/srv/home", StateDir: "/srv/home/.mortar/nfs"}}
}

// The report is an output of xfs_quota 6.13.
func TestReport(t *testing.T) {
	h := server{
		mounts: "/dev/dm-3 /srv/home xfs rw,noatime,attr2,usrquota,prjquota 0 0\n",
		report: `root                  0          0          0     00 [--------]          3          0          0     00 [--------]
#1001             12288      10240      20480     00 [6 days]              1          0        100     00 [--------]

`}
	kinds, mounted, err := Mounted(t.Context(), h, "/srv/home/")
	if err != nil || !mounted || strings.Join(kinds, " ") != "user project" {
		t.Errorf("%v %v %v", kinds, mounted, err)
	}
	if _, mounted, _ := Mounted(t.Context(), h, "/srv/work"); mounted {
		t.Error("mounted where it is not")
	}
	got, err := Report(t.Context(), h, service(), "user")
	want := []Entry{
		{Service: "home", Kind: "user", ID: "root", Files: Limit{Used: 3}},
		{Service: "home", Kind: "user", ID: "1001", Space: Limit{12288 << 10, 10240 << 10, 20480 << 10, "6 days"}, Files: Limit{Used: 1, Hard: 100}},
	}
	if err != nil || !cmp.Equal(got, want) {
		t.Errorf("%v\n%s", err, cmp.Diff(want, got))
	}
	h.report = "xfs_quota: something else\n"
	if _, err := Report(t.Context(), h, service(), "user"); err == nil {
		t.Error("a line that is no report is taken for one")
	}
}

// A spec that has the option already needs a new mount, not the option.
func TestOff(t *testing.T) {
	s := service()
	if got := Off(s, "user").Error(); !strings.Contains(got, "uquota") {
		t.Error(got)
	}
	s.MountOpts = []string{"noatime", "usrquota"}
	if got := Off(s, "user").Error(); strings.Contains(got, "uquota") {
		t.Error(got)
	}
}

func TestSet(t *testing.T) {
	n := func(v int64) *int64 { return &v }
	a, err := (&Wanted{Kind: "group", ID: "chem", SpaceHard: n(1<<40 + 1), FilesSoft: n(0)}).Set(service())
	if want := "xfs_quota -x -c limit -g bhard=1073741825k isoft=0 chem /srv/home"; err != nil || strings.Join(a.Cmd, " ") != want {
		t.Errorf("%v %v", a.Cmd, err)
	}
	for _, w := range []Wanted{
		{Kind: "group", ID: "chem"}, {Kind: "cluster", ID: "chem", SpaceHard: n(1)}, {Kind: "user", ID: "a b", SpaceHard: n(1)},
		{Kind: "user", ID: "-u", SpaceHard: n(1)}, {Kind: "project", ID: "chem", SpaceHard: n(1)},
	} {
		if a, err := w.Set(service()); err == nil {
			t.Errorf("%+v: %v", w, a.Cmd)
		}
	}
	if a, err = Project(service(), "42", "/srv/home/data/chem/"); err != nil || a.Cmd[3] != "project -s -p /srv/home/data/chem 42" {
		t.Errorf("%v %v", a.Cmd, err)
	}
	for _, dir := range []string{"/srv/home", "/srv/homely/x", "/srv/home/../x", "/srv/home/.mortar/nfs", "/srv/home/a b"} {
		if a, err := Project(service(), "42", dir); err == nil {
			t.Errorf("%s: %v", dir, a.Cmd)
		}
	}
}

var update = flag.Bool("update", false, "rewrite testdata/field")

func said(text string) string {
	all, err := parse(text)
	if err != nil {
		return "error: " + err.Error()
	}
	out := ""
	for _, e := range all {
		if e.Unread != "" {
			out += "unknown: " + e.Unread + "\n"
			continue
		}
		out += fmt.Sprintf("%q space %v files %v\n", e.ID, e.Space, e.Files)
	}
	return out
}

func TestField(t *testing.T) { field.Check(t, "quota", *update, said) }

// Each line of a report is an entry, and costs no other; text before it changes nothing.
func FuzzParse(f *testing.F) {
	for _, c := range field.Cases(f, "quota") {
		f.Add(c.Input, "domain users 1 2 3 00 [--------] 4 5 6 00 [--------]")
	}
	f.Fuzz(func(t *testing.T, text, odd string) {
		all, err := parse(text)
		if err != nil {
			return
		}
		if again, err := parse(field.Banner + text); len(all) > 0 && (err != nil || !cmp.Equal(all, again)) {
			t.Errorf("under a banner %v, %v", again, err)
		}
		odd = strings.TrimSpace(odd)
		if strings.ContainsAny(odd, "\n") || odd == "" || odd == "\ufeff" || len(all) == 0 {
			return
		}
		if with, err := parse(text + "\n" + odd); err != nil || len(with) != len(all)+1 || !cmp.Equal(with[:len(all)], all) {
			t.Errorf("with %q %v, %v, else %v", odd, with, err, all)
		}
	})
}

package distro

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/internal/base/linux"
)

// TestEveryFieldIsNamed shows what a value needs: each field that a Debian
// value fills is filled by every other, or the value says why it is not.
func TestEveryFieldIsNamed(t *testing.T) {
	want := filled("", reflect.ValueOf(Default()))
	for _, d := range All() {
		have := filled("", reflect.ValueOf(d))
		for _, f := range want {
			named := slices.Contains(have, f)
			if _, lacks := d.Lacks[f]; named == lacks {
				t.Errorf("%s: field %s is filled: %v, and its absence has a reason: %v", d.Name, f, named, lacks)
			}
		}
		for f, why := range d.Lacks {
			if !slices.Contains(want, f) || why == "" {
				t.Errorf("%s lacks %q for reason %q: no field of Debian's, or no reason", d.Name, f, why)
			}
		}
		if d.Manager.Status == "" && len(d.Manager.Query) == 0 {
			t.Errorf("%s: nothing lists the packages", d.Name)
		}
		programs := slices.Sorted(maps.Keys(d.Programs))
		if !slices.Equal(programs, slices.Sorted(maps.Keys(Default().Programs))) {
			t.Errorf("%s: packages of the programs %v", d.Name, programs)
		}
		if strings.Count(d.Initrd.Images, "*") != 1 || !strings.HasSuffix(d.MDConf.Dir, "/") {
			t.Errorf("%s: images %s, directory %s", d.Name, d.Initrd.Images, d.MDConf.Dir)
		}
	}
}

// filled are the names of all fields that have a value.
func filled(at string, v reflect.Value) []string {
	var out []string
	for i := range v.NumField() {
		name, f := at+v.Type().Field(i).Name, v.Field(i)
		switch {
		case name == "NotRun" || name == "Lacks":
		case f.Kind() == reflect.Struct:
			out = append(out, filled(name+".", f)...)
		case !f.IsZero() && (f.Kind() != reflect.Slice || f.Len() > 0):
			out = append(out, name)
		}
	}
	return out
}

func TestOf(t *testing.T) {
	for _, c := range []struct {
		os        linux.OSRelease
		name, err string
	}{
		{linux.OSRelease{ID: "debian", Version: "12"}, "Debian 12", ""},
		{linux.OSRelease{ID: "debian", Version: "13.2"}, "Debian 13", ""},
		{linux.OSRelease{ID: "debian", Version: "11", Name: "Debian GNU/Linux 11 (bullseye)"}, "", "runs Debian GNU/Linux 11 (bullseye), which is not supported"},
		{linux.OSRelease{ID: "ubuntu", Version: "24.04", Name: "Ubuntu 24.04"}, "", "runs Ubuntu 24.04, which is not supported"},
		{linux.OSRelease{ID: "rhel", Version: "9.4", Name: "Red Hat Enterprise Linux 9.4 (Plow)"}, "",
			"runs Red Hat Enterprise Linux 9.4 (Plow): mortar has not been run on Red Hat Enterprise Linux 9 yet, and changes nothing there"},
		{linux.OSRelease{ID: "rhel", Version: "9"}, "", "runs rhel 9: mortar has not been run on Red Hat Enterprise Linux 9 yet, and changes nothing there"},
		{linux.OSRelease{ID: "rhel", Version: "90"}, "", "runs rhel 90, which is not supported"},
		{linux.OSRelease{}, "", "runs a system without a readable /etc/os-release, which is not supported"},
	} {
		d, err := Of(c.os)
		got := ""
		if err != nil {
			got = err.Error()
		}
		if d.Name != c.name || got != c.err {
			t.Errorf("%+v: %q, %q", c.os, d.Name, got)
		}
		if near := Nearest(c.os); err == nil && near.Name != d.Name || err != nil && near.Name != "Debian 13" {
			t.Errorf("%+v: nearest %s", c.os, near.Name)
		}
	}
	if Supported() != "Debian 12 or Debian 13" || !slices.Equal(Suites(), []string{"trixie", "bookworm"}) {
		t.Errorf("supported %s, suites %v", Supported(), Suites())
	}
	if d, ok := OfSuite("bookworm"); !ok || d.Version != "12" {
		t.Errorf("bookworm: %s", d.Name)
	}
	if d, ok := OfSuite(""); ok {
		t.Errorf("no suite: %s", d.Name)
	}
}

func TestInstalled(t *testing.T) {
	for list, of := range map[string]func(string) map[string]bool{
		"Package: a\nStatus: install ok installed\n\nPackage: b\nStatus: deinstall ok config-files\n\nPackage: c\nStatus: hold ok installed\n": dpkgInstalled,
		"a\nc\n": lines,
	} {
		have := of(list)
		if !have["a"] || have["b"] || !have["c"] {
			t.Errorf("%q: %v", list, have)
		}
	}
}

// As dpkg writes them; the values are those of Lustre's Debian packages.
func TestInstalledProvides(t *testing.T) {
	have := dpkgInstalled(`Package: lustre-server-modules-6.12.107+deb13-cloud-amd64
Status: install ok installed
Provides: lustre-server-modules, lustre-client-modules
Description: Lustre kernel modules
 Provides: nothing

Package: lustre-server-utils
Status: install ok installed
Provides: lustre-server-utils, lustre-client-utils (= 2.17.57-1)

Package: gone
Status: deinstall ok config-files
Provides: old
`)
	for name, want := range map[string]bool{"lustre-server-modules": true, "lustre-client-modules": true, "lustre-client-utils": true, "old": false, "nothing": false} {
		if have[name] != want {
			t.Errorf("%s: %v, want %v", name, have[name], want)
		}
	}
}

func TestDracutConf(t *testing.T) {
	if got := dracutConf("# h\n", MDConf{}, []string{"u"}, []string{"/etc/a", "/etc/b"}); got != "# h\nmdadmconf=\"yes\"\ninstall_items+=\" /etc/a /etc/b \"\n" {
		t.Error(got)
	}
	if got := dracutConf("", MDConf{}, nil, nil); got != "mdadmconf=\"yes\"\n" {
		t.Error(got)
	}
}

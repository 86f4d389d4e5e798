package distro

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/internal/base/linux"
)

// TestEveryFieldIsNamed shows what a value needs: each field that one value fills is filled
// by every other.
func TestEveryFieldIsNamed(t *testing.T) {
	want := filled("", reflect.ValueOf(Default()))
	for _, d := range All() {
		if have := filled("", reflect.ValueOf(d)); !slices.Equal(have, want) {
			t.Errorf("%s fills %v, and %s %v", d.Name, have, Default().Name, want)
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
		{linux.OSRelease{ID: "rhel", Version: "9"}, "", "runs rhel 9, which is not supported"},
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
	have := dpkgInstalled("Package: a\nStatus: install ok installed\n\nPackage: b\nStatus: deinstall ok config-files\n\nPackage: c\nStatus: hold ok installed\n")
	if !have["a"] || have["b"] || !have["c"] {
		t.Errorf("%v", have)
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

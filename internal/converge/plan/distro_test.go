package plan

import (
	"errors"
	"slices"
	"testing"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

func TestOtherDistributionsAreRefused(t *testing.T) {
	d := testDesign(t, "nfs-ha")
	f := Facts{OS: map[string]linux.OSRelease{
		"nfs1": {ID: "debian", Version: "12"},
		"nfs2": {ID: "rhel", Version: "9.4", Name: "Red Hat Enterprise Linux 9.4 (Plow)"},
		"c1":   {ID: "ubuntu", Version: "24.04", Name: "Ubuntu 24.04"},
	}}
	_, err := Desired(d, f, testSecrets)
	var all Refusals
	if !errors.As(err, &all) || len(all) != 2 {
		t.Fatalf("%v", err)
	}
	for i, want := range [][2]string{
		{"nfs2", "runs Red Hat Enterprise Linux 9.4 (Plow), which is not supported"},
		{"c1", "runs Ubuntu 24.04, which is not supported"},
	} {
		if !all[i].Has("distribution-unsupported", "host", want[0], "error", want[1], "supported", "Debian 12 or Debian 13") || all[i].Host != want[0] {
			t.Errorf("%+v", all[i])
		}
	}
}

// Each server gets the packages of its own release.
func TestPackagesByRelease(t *testing.T) {
	d := testDesign(t, "nfs-ha")
	steps, err := Desired(d, Facts{OS: map[string]linux.OSRelease{
		"nfs1": {ID: "debian", Version: "12"}, "nfs2": {ID: "debian", Version: "13"},
	}}, testSecrets)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][]string{}
	for _, s := range steps {
		if p, ok := s.Resource.(*resource.Packages); ok {
			got[s.Host] = p.Fence
		}
	}
	if !slices.Equal(got["nfs1"], []string{"fence-agents"}) || !slices.Equal(got["nfs2"], []string{"fence-agents-ipmilan", "fence-agents-apc-snmp"}) || got["c1"] != nil {
		t.Errorf("%v", got)
	}
}

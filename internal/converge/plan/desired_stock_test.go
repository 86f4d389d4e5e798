package plan

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

func stockDesign(t *testing.T) *design.Design {
	t.Helper()
	src, err := os.ReadFile("../../../examples/nfs-ha.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return designOf(t, []byte(strings.Replace(string(src), "flavour: nfs-ha\n", "flavour: nfs-ha\nprofile: stock\n", 1)))
}

// designOf makes the design of a spec's text.
func designOf(t *testing.T, text []byte) *design.Design {
	t.Helper()
	s, err := spec.Parse("brick.yaml", text)
	if err != nil {
		t.Fatal(err)
	}
	d, err := design.New(s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestStock(t *testing.T) {
	steps, err := Desired(stockDesign(t), Facts{}, testSecrets)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "steps-stock.txt", list(steps))
	// The nfsserver agent of Debian 13 leaves fsidd running, whose open database
	// keeps the mount of the NFS state busy: every stop would end in fencing.
	for _, st := range steps {
		u, ok := st.Resource.(*resource.Units)
		if !ok || u.Name != "nfs" || !strings.HasPrefix(st.Host, "nfs") {
			continue
		}
		if i := slices.IndexFunc(u.List, func(u resource.Unit) bool { return u.Name == "fsidd.service" }); i < 0 || u.List[i].Enabled || u.List[i].Active || !u.List[i].Optional {
			t.Errorf("%s: fsidd.service is not switched off: %+v", st.Host, u.List)
		}
	}
	golden(t, "cib-stock.xml", findStep(t, steps, "cib", "").Resource.(*resource.CIB).Configuration)
}

// A brick of one profile is not turned into one of the other.
func TestOtherProfile(t *testing.T) {
	for _, tt := range []struct {
		agent   string
		d       *design.Design
		refused bool
	}{
		{"ocf:mortar:service", testDesign(t, "nfs-ha"), false},
		{"ocf::mortar:service", testDesign(t, "nfs-ha"), false},
		{"ocf:mortar:service", stockDesign(t), true},
		{"ocf:heartbeat:IPaddr2", stockDesign(t), false},
		{"ocf::heartbeat:IPaddr2", testDesign(t, "nfs-ha"), true},
		{"", stockDesign(t), false}, // a cluster that is starting does not say
	} {
		f := clusterWith("nfs1", "Started")
		f.Hosts["nfs1"].Cluster.Resources[0].Agent = tt.agent
		// And while the cluster is stopped, by its CIB on disk.
		stopped := Facts{Hosts: map[string]resource.HostFacts{"nfs2": {Configured: []linux.CRMResource{{ID: "service-home", Agent: tt.agent}}}}}
		for _, f := range []Facts{f, stopped} {
			_, err := Desired(tt.d, f, testSecrets)
			var r *resource.Refusal
			if errors.As(err, &r) != tt.refused || tt.refused && !r.Has("profile-other") || !tt.refused && err != nil {
				t.Errorf("%s with profile %s: %v", tt.agent, tt.d.Spec.Profile, err)
			}
		}
	}
}

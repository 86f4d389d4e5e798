package plan

import (
	"slices"
	"testing"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

// The server that serves gets another build of mortar after its partner, and only if it
// works there.
func TestActiveServerGetsTheBinaryLast(t *testing.T) {
	binaries := map[string]string{"nfs1": "/l/mortar-1", "nfs2": "/l/mortar-1"}
	d := testDesign(t, "nfs-ha")
	for active, want := range map[string][]string{"": {"nfs1 mortar", "nfs2 mortar"}, "nfs1": {"nfs2 mortar", "nfs1 mortar on active servers"}, "nfs2": {"nfs1 mortar", "nfs2 mortar on active servers"}} {
		facts := Facts{}
		if active != "" {
			facts = clusterWith(active, "Started")
		}
		var got []string
		for _, s := range binaryLinks(d, facts, binaries, PrepareOptions{}) {
			got = append(got, s.Host+" "+s.Stage)
			if s.Stage != stageActiveBinary {
				continue
			}
			if len(s.Guards) != 1 || s.Guards[0].Host == active || s.Guards[0].Kind() != "agent-works" {
				t.Errorf("%s: guards %+v", active, s.Guards)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("active on %q: %q, want %q", active, got, want)
		}
	}
	// Both serve: one after the other all the same.
	d = testDesign(t, "nfs-ha-xl")
	c := clusterOf(true, linux.CRMResource{ID: "service-home", Role: "Started", Nodes: onNode(d.Pairs[0].Servers[0])}, linux.CRMResource{ID: "service-scratch", Role: "Started", Nodes: onNode(d.Pairs[0].Servers[1])})
	facts := Facts{Hosts: map[string]resource.HostFacts{}}
	for _, h := range d.Pairs[0].Servers {
		facts.Hosts[h] = resource.HostFacts{Cluster: c}
	}
	if steps := binaryLinks(d, facts, binaries, PrepareOptions{}); len(steps) != 2 || steps[0].Stage != stageBinary || steps[1].Stage != stageActiveBinary || len(steps[1].Guards) != 1 {
		t.Errorf("%+v", steps)
	}
	// One server waits for no partner.
	for _, s := range binaryLinks(testDesign(t, "nfs"), Facts{}, map[string]string{"nfs1": "/l/mortar-1"}, PrepareOptions{}) {
		if s.Stage != stageBinary {
			t.Errorf("%+v", s)
		}
	}
}

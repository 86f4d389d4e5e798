package plan

import (
	"errors"
	"testing"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

// builderOf makes a builder of an example with facts of its hosts.
func builderOf(t *testing.T, example string) *builder {
	d := testDesign(t, example)
	return newBuilder(d, &d.Pairs[0], Facts{}, testSecrets)
}

// arrays of a service, in a state of md's.
func arraysIn(b *builder, s *design.Service, state string) []linux.MDArray {
	var out []linux.MDArray
	for _, g := range b.d.GroupsIn(&s.Storage) {
		out = append(out, linux.MDArray{UUID: g.UUID, State: state})
	}
	return out
}

// TestPlaceOf is the table of the decision where the storage of a service is
// dealt with, and who may bring it up: row by row what hosts may say of arrays,
// of the cluster, and of what an earlier apply has built.
func TestPlaceOf(t *testing.T) {
	b := builderOf(t, "nfs-ha")
	svc := b.services()[0]
	id, vg, digest := resource.ServiceID(svc.Name), svc.Storage.VG, b.digest(svc)
	runs := resource.HostFacts{Arrays: arraysIn(b, svc, "clean")}
	lies := resource.HostFacts{Arrays: arraysIn(b, svc, "inactive")}
	on := func(role, node string, ready bool) resource.HostFacts {
		return resource.HostFacts{Cluster: clusterOf(ready, linux.CRMResource{ID: id, Role: role, Nodes: onNode(node)})}
	}
	built := func(digest string) resource.HostFacts {
		return resource.HostFacts{Built: map[string]string{vg: digest}}
	}
	disk := resource.HostFacts{Configured: []linux.CRMResource{{ID: id}}}
	none := resource.HostFacts{}
	with := func(f, cluster resource.HostFacts) resource.HostFacts {
		f.Cluster, f.Configured = cluster.Cluster, cluster.Configured
		return f
	}
	for _, c := range []struct {
		name       string
		nfs1, nfs2 resource.HostFacts
		want       place
	}{
		{"nothing anywhere", none, none, place{host: "nfs1"}},
		{"arrays run on the first", runs, none, place{host: "nfs1"}},
		{"arrays run on the second", none, runs, place{host: "nfs2"}},
		{"arrays lie inactive on the second", none, lies, place{host: "nfs2"}},
		{"arrays run on the first, and lie inactive on the second", runs, lies, place{host: "nfs1"}},
		{"arrays lie inactive on the first, and run on the second", lies, runs, place{host: "nfs2"}},
		{"another volume is built on the second", none, resource.HostFacts{Built: map[string]string{"other": digest}}, place{host: "nfs1"}},

		{"started on the first", on("Started", "nfs1", true), on("Started", "nfs1", true), place{host: "nfs1", managed: true, running: true}},
		{"started on the second", on("Started", "nfs2", true), on("Started", "nfs2", true), place{host: "nfs2", managed: true, running: true}},
		{"started on the second, of which the first knows nothing yet", none, on("Started", "nfs2", true), place{host: "nfs2", managed: true, running: true}},
		{"started, says a node without a coordinator", on("Started", "nfs2", false), none, place{host: "nfs1", managed: true}},
		{"started, but nowhere", on("Started", "", true), none, place{host: "nfs1", managed: true}},
		{"stopping on the second", on("Stopping", "nfs2", true), with(runs, on("Stopping", "nfs2", true)), place{host: "nfs2", managed: true}},
		{"starting on the second", on("Starting", "nfs2", true), on("Starting", "nfs2", true), place{host: "nfs1", managed: true}},
		{"stopped, arrays left on the second", on("Stopped", "", true), with(runs, on("Stopped", "", true)), place{host: "nfs2", managed: true}},
		{"the first node says stopped, the second started", on("Stopped", "", true), on("Started", "nfs2", true), place{host: "nfs2", managed: true, running: true}},
		{"started on the first, while arrays run on the second", on("Started", "nfs1", true), with(runs, on("Started", "nfs1", true)), place{host: "nfs1", managed: true, running: true}},

		{"Pacemaker is stopped, and one disk knows the service", none, disk, place{host: "nfs1", managed: true}},
		{"Pacemaker is stopped, arrays run on the second", disk, runs, place{host: "nfs2", managed: true}},
		{"Pacemaker runs without the service, one disk knows it", resource.HostFacts{Cluster: clusterOf(true)}, disk, place{host: "nfs1", managed: true}},

		{"built on the second", none, built(digest), place{host: "nfs2", built: true}},
		{"built on the first, arrays still up", resource.HostFacts{Arrays: runs.Arrays, Built: built(digest).Built}, none, place{host: "nfs1", built: true}},
		{"built of an older design", none, built("0"), place{host: "nfs1"}},
		{"built of an older design, arrays up on it", none, resource.HostFacts{Arrays: runs.Arrays, Built: built("0").Built}, place{host: "nfs2"}},
		{"built on the second once, arrays run on the first now", runs, built(digest), place{host: "nfs1"}},
		{"built on the first once, arrays run on the second now", built(digest), runs, place{host: "nfs2"}},
		{"built on both, arrays on the first", resource.HostFacts{Arrays: runs.Arrays, Built: built(digest).Built}, built(digest), place{host: "nfs1", built: true}},
		{"built, and the cluster has it since", on("Stopped", "", true), resource.HostFacts{Built: built(digest).Built, Cluster: on("Stopped", "", true).Cluster}, place{host: "nfs1", managed: true}},
	} {
		b.facts = Facts{Hosts: map[string]resource.HostFacts{"nfs1": c.nfs1, "nfs2": c.nfs2}}
		if got := b.placeOf(svc); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

// Of two services each is built where it is to run, unless
// storage that is there already decides otherwise.
func TestPlaceOfTwoServices(t *testing.T) {
	b := builderOf(t, "nfs-ha-xl")
	first, second := b.services()[0], b.services()[1]
	for _, c := range []struct {
		name  string
		hosts map[string]resource.HostFacts
		want  [2]string
	}{
		{"nothing", nil, [2]string{first.Preferred, second.Preferred}},
		{"both are on the first", map[string]resource.HostFacts{"nfs1": {Arrays: append(arraysIn(b, first, "clean"), arraysIn(b, second, "active")...)}}, [2]string{"nfs1", "nfs1"}},
		{"each is on the other's", map[string]resource.HostFacts{first.Preferred: {Arrays: arraysIn(b, second, "clean")}, second.Preferred: {Arrays: arraysIn(b, first, "clean")}}, [2]string{second.Preferred, first.Preferred}},
	} {
		b.facts = Facts{Hosts: c.hosts}
		if got := [2]string{b.placeOf(first).host, b.placeOf(second).host}; got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
		if err := b.oneOwner(); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// A single server is alone, whatever a note says that only pairs write.
func TestPlaceOfSingleServer(t *testing.T) {
	b := builderOf(t, "nfs")
	svc, host := b.services()[0], b.servers[0]
	b.facts = Facts{Hosts: map[string]resource.HostFacts{host: {Built: map[string]string{svc.Storage.VG: b.digest(svc)}}}}
	if got := b.placeOf(svc); got != (place{host: host}) || !got.alone() {
		t.Errorf("%+v", got)
	}
}

// The arrays of one volume that run on different servers stop everything: no
// server can use it, and apply would bring up the rest beside them.
func TestSplitVolume(t *testing.T) {
	b := builderOf(t, "jbod-ha")
	svc := b.services()[0]
	all := arraysIn(b, svc, "clean")
	if len(all) < 2 {
		t.Fatal("the example has a volume of one array")
	}
	b.facts = Facts{Hosts: map[string]resource.HostFacts{b.servers[0]: {Arrays: all[:1]}, b.servers[1]: {Arrays: all[1:]}}}
	err := b.oneOwner()
	var r Refusals
	if !errors.As(err, &r) || len(r) != 1 || !r[0].Has("arrays-split", "service", svc.Name, "servers", b.servers[0], "servers", b.servers[1]) {
		t.Errorf("%v", err)
	}
	b.facts.Hosts[b.servers[1]] = resource.HostFacts{Arrays: arraysIn(b, svc, "inactive")[1:]}
	if err := b.oneOwner(); err != nil {
		t.Errorf("an array that lies inactive: %v", err)
	}
}

// clusterOf is a cluster with these resources, and with a coordinator if it is ready.
func clusterOf(ready bool, rs ...linux.CRMResource) *linux.CRM {
	return &linux.CRM{DC: linux.CRMCoordinator{Present: ready}, Resources: rs}
}

func onNode(name string) []linux.CRMOn {
	if name == "" {
		return nil
	}
	return []linux.CRMOn{{Name: name}}
}

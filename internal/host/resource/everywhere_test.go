package resource

import "testing"

// A clone runs on each server that can have it; Pacemaker is asked to look again
// where it does not.
func TestEverywhere(t *testing.T) {
	e := &Everywhere{Resource: "mortar-watch", Servers: []string{"nfs1", "nfs2"}, Seconds: 60}
	// As crm_mon of Pacemaker 3.0 shows a clone.
	const end = "</resources>"
	clone := func(instances string) string {
		return `<clone id="mortar-watch-clone" multi_state="false" unique="false" managed="true" disabled="false" failed="false">` + instances + "</clone>" + end
	}
	on := func(node, role string) string {
		return `<resource id="mortar-watch" resource_agent="ocf:mortar:watch" role="` + role + `" active="true"><node name="` + node + `" id="1" cached="true"/></resource>`
	}
	wantShow(t, diff(t, e, clusterSys(t, end, clone(on("nfs1", "Started")+on("nfs2", "Started")))), "")
	wantShow(t, diff(t, e, clusterSys(t, end, clone(on("nfs2", "Started")))), "crm_resource --refresh --resource mortar-watch --node nfs1")
	wantShow(t, diff(t, e, clusterSys(t, end, clone(on("nfs2", "Started")), `name="nfs1" id="1" online="true" standby="false"`, `name="nfs1" id="1" online="true" standby="true"`)), "")
	wantShow(t, diff(t, e, clusterSys(t, end, clone(on("nfs1", "Starting")+on("nfs2", "Started")))), "crm_resource --locate --resource mortar-watch")
	if as := diff(t, e, &fakeSys{}); len(as) != 1 {
		t.Errorf("a cluster that does not run yet: %v", as)
	}
}

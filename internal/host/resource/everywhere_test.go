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
	// remembers is crm_mon with what it knows of a probe on nfs1, if it is of a resource.
	remembers := func(resource string, change ...string) *Paper {
		if resource != "" {
			change = append(change, `<node name="nfs1">`, `<node name="nfs1"><resource_history id="`+resource+`"><operation_history call="196" task="probe" rc="5" rc_text="Not installed"/></resource_history>`)
		}
		return clusterSys(t, change...)
	}
	standby := []string{`name="nfs1" id="1" online="true" standby="false"`, `name="nfs1" id="1" online="true" standby="true"`}
	one := []string{end, clone(on("nfs2", "Started"))}
	const refresh = "crm_resource --refresh --resource mortar-watch --node nfs1"
	both := []string{end, clone(on("nfs1", "Started") + on("nfs2", "Started"))}
	wantShow(t, diff(t, e, remembers("", both...)), "")
	wantShow(t, diff(t, e, remembers("mortar-watch", one...)), refresh)
	wantShow(t, diff(t, e, remembers("mortar-watch", append(one, standby...)...)), refresh)
	wantShow(t, diff(t, e, remembers("", append(one, standby...)...)), "")
	// A service that Pacemaker takes for impossible on a server that is well otherwise.
	e.Able = []string{"service-home"}
	wantShow(t, diff(t, e, remembers("service-home", both...)), "crm_resource --refresh --resource service-home --node nfs1")
	wantShow(t, diff(t, e, remembers("", end, clone(on("nfs1", "Starting")+on("nfs2", "Started")))), "crm_resource --locate --resource mortar-watch")
	if as := diff(t, e, &Paper{}); len(as) != 1 {
		t.Errorf("a cluster that does not run yet: %v", as)
	}
}

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
	// remembers adds what cibadmin says of a probe on a server.
	remembers := func(sys *fakeSys, server string) *fakeSys {
		sys.outputs["cibadmin --query --xpath"] = Output{Code: 105}
		sys.outputs["cibadmin --query --xpath //node_state[@uname='"+server+"']//lrm_resource[starts-with(@id,'mortar-watch')]/lrm_rsc_op[@rc-code='5']"] =
			Output{Stdout: `<lrm_rsc_op id="mortar-watch_last_0" operation="monitor" rc-code="5"/>`}
		return sys
	}
	standby := []string{`name="nfs1" id="1" online="true" standby="false"`, `name="nfs1" id="1" online="true" standby="true"`}
	one := []string{end, clone(on("nfs2", "Started"))}
	const refresh = "crm_resource --refresh --resource mortar-watch --node nfs1"
	both := []string{end, clone(on("nfs1", "Started") + on("nfs2", "Started"))}
	wantShow(t, diff(t, e, remembers(clusterSys(t, both...), "")), "")
	// A service that Pacemaker takes for impossible on a server that is well otherwise.
	e.Able = []string{"service-home"}
	sys := remembers(clusterSys(t, both...), "")
	sys.outputs["cibadmin --query --xpath //node_state[@uname='nfs1']//lrm_resource[starts-with(@id,'service-home')]/lrm_rsc_op[@rc-code='5']"] = Output{Stdout: "<lrm_rsc_op/>"}
	wantShow(t, diff(t, e, sys), "crm_resource --refresh --resource service-home --node nfs1")
	wantShow(t, diff(t, e, remembers(clusterSys(t, one...), "nfs1")), refresh)
	wantShow(t, diff(t, e, remembers(clusterSys(t, append(one, standby...)...), "nfs1")), refresh)
	wantShow(t, diff(t, e, remembers(clusterSys(t, append(one, standby...)...), "")), "")
	wantShow(t, diff(t, e, remembers(clusterSys(t, end, clone(on("nfs1", "Starting")+on("nfs2", "Started"))), "")), "crm_resource --locate --resource mortar-watch")
	if as := diff(t, e, &fakeSys{}); len(as) != 1 {
		t.Errorf("a cluster that does not run yet: %v", as)
	}
}

package resource

import (
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/internal/base/linux"
)

// crm_mon-starting.xml was recorded on a virtual rack while the service
// started on nfs1.
func clusterSys(t *testing.T, change ...string) *Paper {
	x := testdata(t, "crm_mon-starting.xml")
	for i := 0; i+1 < len(change); i += 2 {
		if !strings.Contains(x, change[i]) {
			t.Fatalf("%s is not in the recorded output", change[i])
		}
		x = strings.Replace(x, change[i], change[i+1], 1)
	}
	return &Paper{
		Files:   map[string]string{pacemakerProcs: "1\n2\n", "/proc/self/mounts": ""},
		Outputs: map[string]Output{"crm_mon": {Stdout: x}},
	}
}

func TestClusterMembers(t *testing.T) {
	c := &Cluster{Name: "brick1", Nodes: []string{"nfs1", "nfs2"}, Seconds: 60}
	wantShow(t, diff(t, c, clusterSys(t)), "")
	as := diff(t, c, clusterSys(t, `name="nfs2" id="2" online="true"`, `name="nfs2" id="2" online="false"`))
	if len(as) != 1 || !strings.Contains(as[0].Why, "nfs2 has not joined") {
		t.Errorf("a missing node is not waited for: %v", as)
	}
	as = diff(t, c, clusterSys(t, `<current_dc present="true"`, `<current_dc present="false"`))
	if len(as) != 1 || !strings.Contains(as[0].Why, "no coordinator") {
		t.Errorf("a missing coordinator is not waited for: %v", as)
	}
	if as = diff(t, c, &Paper{}); len(as) != 1 {
		t.Errorf("a cluster that is not started is not waited for: %v", as)
	}
	notConnected := clusterSys(t)
	notConnected.Outputs["crm_mon"] = Output{Code: 102}
	if as = diff(t, c, notConnected); len(as) != 1 {
		t.Errorf("a cluster that does not answer is not waited for: %v", as)
	}
}

func TestRunning(t *testing.T) {
	s := &Running{Name: "service home", Resources: []string{"service-home", "fence-nfs1-bmc"}, Seconds: 60}
	as := diff(t, s, clusterSys(t))
	if len(as) != 1 || !strings.HasPrefix(as[0].Why, "service-home is still starting on nfs1 (") {
		t.Errorf("a starting service is not waited for: %v", as)
	}
	wantShow(t, diff(t, s, clusterSys(t, `role="Starting"`, `role="Started"`)), "")
	// A fence device that only a server in standby may run is not waited for.
	stopped := []string{`role="Starting"`, `role="Started"`, `<resource id="fence-nfs1-bmc" resource_agent="stonith:fence_ipmilan" role="Started" active="true"`,
		`<resource id="fence-nfs1-bmc" resource_agent="stonith:fence_ipmilan" role="Stopped" active="false"`}
	if as = diff(t, s, clusterSys(t, stopped...)); len(as) != 1 {
		t.Errorf("a stopped fence device is not waited for: %v", as)
	}
	wantShow(t, diff(t, s, clusterSys(t, append(stopped, `name="nfs2" id="2" online="true" standby="false"`, `name="nfs2" id="2" online="true" standby="true"`)...)), "")
	as = diff(t, s, clusterSys(t, `role="Starting" active="true"`, `role="Stopped" active="false"`,
		`<status code="0"`, `<failures><failure op_key="service-home_start_0" node="nfs1" exitstatus="error" exitreason="no disks"/></failures><status code="0"`))
	if len(as) != 1 || !strings.Contains(as[0].Why, "service-home_start_0 on nfs1: no disks") {
		t.Errorf("the reason of a failure is not given: %v", as)
	}
}

// A fence device whose first try failed, on a busy network for example, is tried
// again at once: until then the server could not be fenced by it.
func TestFailedFenceDeviceIsTriedAgain(t *testing.T) {
	s := &Running{Name: "fencing", Resources: []string{"fence-nfs1-bmc"}, Seconds: 60}
	failed := func(when, role string) []Action {
		return diff(t, s, clusterSys(t, `<resource id="fence-nfs1-bmc" resource_agent="stonith:fence_ipmilan" role="Started" active="true"`,
			`<resource id="fence-nfs1-bmc" resource_agent="stonith:fence_ipmilan" role="`+role+`" active="false"`,
			`<status code="0"`, `<failures><failure op_key="fence-nfs1-bmc_start_0" node="nfs2" exitstatus="error" exitreason="timed out" last-rc-change="`+when+`"/></failures><status code="0"`))
	}
	as := failed("2026-11-25 19:14:27Z", "Stopped")
	wantShow(t, as, "crm_resource --cleanup --resource fence-nfs1-bmc\ncrm_resource --locate --resource fence-nfs1-bmc")
	// A second failure is another occasion for the same command.
	if again := failed("2026-11-25 19:15:32Z", "Stopped"); again[0].Occasion == as[0].Occasion || as[0].Occasion == "" || again[1].Occasion != as[1].Occasion {
		t.Errorf("%+v and %+v", as, again)
	}
	// Pacemaker tries the other server: nothing is cleaned up beneath that.
	wantShow(t, failed("2026-11-25 19:14:27Z", "Starting"), "crm_resource --locate --resource fence-nfs1-bmc")
}

func TestFactsOfAClusterNode(t *testing.T) {
	sys := clusterSys(t, `role="Starting"`, `role="Started"`)
	f, err := ObserveFacts(t.Context(), sys)
	if err != nil {
		t.Fatal(err)
	}
	r := f.Cluster.Resource("service-home")
	if r.Node() != "nfs1" || r.Role != "Started" || !f.Cluster.DC.Present || !f.Cluster.DC.Quorum || !f.Cluster.Node("nfs2").Member() {
		t.Errorf("%+v", f.Cluster)
	}
	if len(sys.Asked) != 1 {
		t.Errorf("%d commands: %v", len(sys.Asked), sys.Asked)
	}
	// Without a coordinator: what the CIB on disk says.
	sys = clusterSys(t, `<current_dc present="true"`, `<current_dc present="false"`)
	sys.Files[linux.CIBFile] = testdata(t, "cib-converged.xml")
	if f, err = ObserveFacts(t.Context(), sys); err != nil || f.Cluster.DC.Present {
		t.Fatalf("%+v %v", f.Cluster, err)
	}
	if r = f.Cluster.Resource("service-home"); r == nil || r.Role != "" {
		t.Errorf("%+v", f.Cluster)
	}
	// And while Pacemaker does not run.
	f, err = ObserveFacts(t.Context(), &Paper{Files: map[string]string{"/proc/self/mounts": "", linux.CIBFile: testdata(t, "cib-converged.xml")}})
	if r = f.Manages("service-home"); err != nil || f.Cluster != nil || r == nil || r.Agent != "ocf:mortar:service" {
		t.Errorf("%+v, %+v, %v", f, r, err)
	}
	if f, err = ObserveFacts(t.Context(), &Paper{Files: map[string]string{"/proc/self/mounts": ""}}); err != nil || f.Cluster != nil {
		t.Errorf("a cluster where there is none: %+v %v", f.Cluster, err)
	}
}

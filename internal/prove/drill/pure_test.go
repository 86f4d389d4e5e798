package drill

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/host/gather"
	"github.com/mortarhpc/mortar/internal/prove/fault"
	"github.com/mortarhpc/mortar/internal/prove/judge"
	"github.com/mortarhpc/mortar/internal/prove/workload"
)

// crmMon is an output of crm_mon, with edits that put one thing wrong.
func crmMon(active string, edit ...string) string {
	s := `<?xml version="1.0"?>
<pacemaker-result api-version="2.38" request="crm_mon --one-shot --output-as=xml --inactive">
  <summary><stack type="corosync" pacemakerd-state="running"/></summary>
  <nodes>
    <node name="nfs1" id="1" online="true" standby="false" maintenance="false" pending="false" unclean="false" health="green" is_dc="false" resources_running="2" type="member"/>
    <node name="nfs2" id="2" online="true" standby="false" maintenance="false" pending="false" unclean="false" health="green" is_dc="true" resources_running="1" type="member"/>
  </nodes>
  <resources>
    <resource id="fence-nfs1-bmc" resource_agent="stonith:fence_ipmilan" role="Started" active="true" orphaned="false" blocked="false" maintenance="false" managed="true" failed="false" failure_ignored="false" nodes_running_on="1"><node name="nfs2" id="2" cached="true"/></resource>
    <resource id="fence-nfs2-bmc" resource_agent="stonith:fence_ipmilan" role="Started" active="true" orphaned="false" blocked="false" maintenance="false" managed="true" failed="false" failure_ignored="false" nodes_running_on="1"><node name="nfs1" id="1" cached="true"/></resource>
    <resource id="service-home" resource_agent="ocf:mortar:service" role="Started" active="true" orphaned="false" blocked="false" maintenance="false" managed="true" failed="false" failure_ignored="false" nodes_running_on="1"><node name="ACTIVE" id="1" cached="true"/></resource>
  </resources>
  <failures></failures>
  <status code="0" message="OK"/>
</pacemaker-result>`
	s = strings.ReplaceAll(s, "ACTIVE", active)
	return strings.NewReplacer(edit...).Replace(s)
}

// The load goes on while a server is to be fenced, or a service does not run.
func TestUnderWay(t *testing.T) {
	for want, edit := range map[string][]string{
		"":                         {`name="nfs1" id="1" online="true"`, `name="nfs1" id="1" online="false"`},
		"nfs1 is to be fenced":     {`pending="false" unclean="false" health="green" is_dc="false"`, `pending="false" unclean="true" health="green" is_dc="false"`},
		"service-home is starting": {`resource_agent="ocf:mortar:service" role="Started"`, `resource_agent="ocf:mortar:service" role="Starting"`},
	} {
		c, err := linux.ParseCRM(crmMon("nfs1", edit...))
		if got := fault.ClusterUnderWay(c, []design.Service{{Name: "home"}}); err != nil || got != want {
			t.Errorf("%q, %v; want %q", got, err, want)
		}
	}
}

func TestParseCrmMon(t *testing.T) {
	nodes := []string{"nfs1", "nfs2"}
	for name, c := range map[string]struct {
		edit []string
		want []string
	}{
		"healthy":   {nil, nil},
		"offline":   {[]string{`name="nfs2" id="2" online="true"`, `name="nfs2" id="2" online="false"`}, []string{"nfs2 is offline"}},
		"unclean":   {[]string{`unclean="false" health="green" is_dc="false"`, `unclean="true" health="green" is_dc="false"`}, []string{"nfs1 is unclean (waiting to be fenced)"}},
		"standby":   {[]string{`standby="false" maintenance="false" pending="false" unclean="false" health="green" is_dc="true"`, `standby="true" maintenance="false" pending="false" unclean="false"`}, []string{"nfs2 is in standby"}},
		"missing":   {[]string{`<node name="nfs2" id="2" online`, `<node name="other" id="2" online`}, []string{"nfs2 is no member of the cluster"}},
		"stopped":   {[]string{`<node name="nfs2" id="2" cached="true"/>`, ""}, []string{"fence-nfs1-bmc is not running"}},
		"twice":     {[]string{`<node name="nfs1" id="1" cached="true"/></resource>` + "\n  </res", `<node name="nfs1"/><node name="nfs2"/></resource>` + "\n  </res"}, []string{"service-home runs on nfs1 and nfs2"}},
		"unmanaged": {[]string{`managed="true"`, `managed="false"`}, []string{"fence-nfs1-bmc is not managed", "fence-nfs2-bmc is not managed", "service-home is not managed"}},
		"failure": {[]string{"<failures></failures>", `<failures><failure op_key="home_monitor_10000" node="nfs1" exitstatus="not running" exitreason="no nfsd" exitcode="7" call="33" status="complete"/></failures>`},
			[]string{"failed action: home_monitor_10000 on nfs1: not running (no nfsd)"}},
		"no fencing": {[]string{"stonith:fence_ipmilan", "ocf:pacemaker:Dummy"}, []string{"no fence device is registered"}},
	} {
		cl, err := linux.ParseCRM(crmMon("nfs1", c.edit...))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if d := cmp.Diff(c.want, fault.ClusterProblems(cl, nodes)); d != "" {
			t.Errorf("%s:\n%s", name, d)
		}
	}
	real, err := os.ReadFile(filepath.Join("testdata", "crm_mon-3.0-starting.xml"))
	if err != nil {
		t.Fatal(err)
	}
	cl, err := linux.ParseCRM(string(real))
	if err != nil || len(cl.Nodes) != 2 || len(cl.Resources)+len(cl.Cloned) != 7 {
		t.Errorf("a real one: %+v %v", cl, err)
	}
	if d := cmp.Diff([]string{"service-home is starting on nfs1"}, fault.ClusterProblems(cl, nodes)); d != "" {
		t.Error(d)
	}
	cl, _ = linux.ParseCRM(crmMon("nfs2"))
	if r := gather.ServiceIn(cl, "home"); r == nil || r.ID != "service-home" || !slices.Equal(r.NodeNames(), []string{"nfs2"}) {
		t.Errorf("service: %+v", r)
	}
	if r := gather.ServiceIn(&linux.CRM{}, "home"); r != nil {
		t.Errorf("a cluster without the resource has service %+v", r)
	}
	for _, bad := range []string{"", "<", "<html/>", "crm_mon: Connection to cluster failed"} {
		if _, err := linux.ParseCRM(bad); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
}

func testDesign(mounts ...design.ClientMount) *design.Design { return &design.Design{Mounts: mounts} }

func TestJobs(t *testing.T) {
	m := func(client, p, v string) design.ClientMount {
		return design.ClientMount{Client: client, Service: "home", Source: "10.0.0.9:/srv/home", Path: p, Version: v}
	}
	t.Run("one client, both protocols", func(t *testing.T) {
		js, err := jobs(testDesign(m("c1", "/mnt/v41", "4.1"), m("c1", "/mnt/v3", "3")), "home", "r1", "/run/mortar", 8)
		if err != nil || len(js) != 1 {
			t.Fatal(js, err)
		}
		roles := map[string]string{}
		for _, l := range js[0].job.Locks {
			roles[l.Name] = string(l.Role) + " " + l.Dir + " " + l.File
		}
		want := map[string]string{
			"v4.1-c1-lock": "probe /mnt/v41/.mortar ", "v3-c1-lock": "probe /mnt/v3/.mortar ",
			"v4.1-c1-held": "hold /mnt/v41/.mortar ", "v3-c1-held": "hold /mnt/v3/.mortar ",
			// A challenger tries each held lock through the other protocol.
			"v4.1-c1-tried": "challenge /mnt/v3/.mortar v4.1-c1-held", "v3-c1-tried": "challenge /mnt/v41/.mortar v3-c1-held",
		}
		if d := cmp.Diff(want, roles); d != "" {
			t.Error(d)
		}
		if len(js[0].job.Writers) != 4 {
			t.Errorf("%d writers", len(js[0].job.Writers))
		}
	})
	t.Run("two clients", func(t *testing.T) {
		js, err := jobs(testDesign(m("c1", "/mnt/v41", "4.1"), m("c1", "/mnt/v3", "3"), m("c2", "/mnt/v41", "4.1"), m("c2", "/mnt/v3", "3")), "home", "r1", "/run/mortar", 8)
		if err != nil || len(js) != 2 {
			t.Fatal(js, err)
		}
		names := map[string]bool{}
		streams := map[uint32]bool{}
		for _, j := range js {
			streams[j.job.StreamBase] = true
			for _, w := range j.job.Writers {
				if names[w.Name] {
					t.Errorf("two writers share the file of %s", w.Name)
				}
				names[w.Name] = true
			}
		}
		if len(streams) != 2 {
			t.Error("clients share stream numbers")
		}
		var tried []string
		for _, l := range js[1].job.Locks {
			if l.Role == workload.Challenge {
				tried = append(tried, l.Dir+" "+l.File)
			}
		}
		if d := cmp.Diff([]string{"/mnt/v41/.mortar v4.1-c1-held", "/mnt/v3/.mortar v3-c1-held"}, tried); d != "" {
			t.Error(d)
		}
	})
	t.Run("same protocol twice", func(t *testing.T) {
		js, _ := jobs(testDesign(m("c1", "/mnt/a", "3"), m("c1", "/mnt/b", "3")), "home", "r1", "/run/mortar", 8)
		names := map[string]bool{}
		for _, w := range js[0].job.Writers {
			names[w.Name] = true
		}
		if len(names) != 4 {
			t.Errorf("names clash: %v", names)
		}
	})
	t.Run("one mount", func(t *testing.T) {
		js, err := jobs(testDesign(m("c1", "/mnt/v3", "3")), "home", "r1", "/run/mortar", 8)
		if err != nil || len(js[0].aside) != 1 || js[0].aside[0].Path != "/run/mortar/r1/locks-0" {
			t.Fatalf("%+v %v", js, err)
		}
		var tried []string
		for _, l := range js[0].job.Locks {
			if l.Role == workload.Challenge {
				tried = append(tried, l.Name+" "+l.Dir+" "+l.File)
			}
		}
		if d := cmp.Diff([]string{"v3-c1-tried /run/mortar/r1/locks-0/.mortar v3-c1-held"}, tried); d != "" {
			t.Error(d)
		}
	})
	js, err := jobs(testDesign(m("c1", "/small", "lustre")), "home", "r1", "/run/mortar", 8)
	if err != nil || js[0].job.Workers() != 6 || len(js[0].job.Names) != 1 || js[0].mounts["lustre-c1-names"].Path != "/small" {
		t.Errorf("Lustre: %+v %v", js, err)
	}
	if _, err := jobs(testDesign(), "home", "r1", "/run/mortar", 8); err == nil {
		t.Error("no mount, no error")
	}
}

func TestFind(t *testing.T) {
	if _, v, err := Find("server-crash", ""); err != nil || v.How != "freeze" {
		t.Errorf("default: %v %v", v, err)
	}
	for _, c := range [][2]string{{"server-crush", ""}, {"server-crash", "magic"}} {
		if _, _, err := Find(c[0], c[1]); err == nil {
			t.Errorf("%v is found", c)
		}
	}
	seen := map[string]bool{}
	for _, d := range Table {
		if seen[d.Name] || len(d.Variants) == 0 || d.Title == "" {
			t.Errorf("drill %q: twice, or empty", d.Name)
		}
		seen[d.Name] = true
	}
}

func FuzzJournal(f *testing.F) {
	f.Add([]byte(`{"__REALTIME_TIMESTAMP":"1","SYSLOG_IDENTIFIER":"corosync","MESSAGE":"x"}`))
	f.Add([]byte(`{"t_ns":1,"action":"start","step":"end"}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		if e, ok := judge.JournalEvent(line, "h"); ok && e.Kind == "" {
			t.Error("an event without a kind")
		}
		_, _ = judge.AgentEvent(line, "h")
		_, _ = linux.ParseCRM(string(line))
	})
}

func TestStallTarget(t *testing.T) {
	for _, c := range []struct {
		e    judge.Expect
		f    spec.Flavour
		want float64
	}{
		{judge.Expect{Where: judge.Moves, Stall: 10}, spec.NFSHA, 10},
		{judge.Expect{Where: judge.Moves, Stall: 10}, spec.Lustre, 45},
		{judge.Expect{Where: judge.Stays, Stall: 5}, spec.Lustre, 5},
	} {
		if got := stallTarget(c.e, c.f); got != c.want {
			t.Errorf("%+v, %s: %g s, want %g s", c.e, c.f, got, c.want)
		}
	}
}

package resource

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mortarhpc/mortar/internal/base/linux"
)

const pacemakerProcs = "/sys/fs/cgroup/system.slice/pacemaker.service/cgroup.procs"

func testdata(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func testCIB(t *testing.T) *CIB {
	return &CIB{
		Configuration: testdata(t, "cib-wanted.xml"),
		Owned:         []string{"service-", "fence-", "fencing-", "locate-", "mortar-"},
		Secret:        []string{"community"},
	}
}

func runningCIB(xml string) *Paper {
	return &Paper{
		Files:   map[string]string{pacemakerProcs: "1\n"},
		Outputs: map[string]Output{"cibadmin --query": {Stdout: xml}},
	}
}

// cib-empty.xml is what `cibadmin --empty` of Pacemaker 3.0 gives.
func TestCIBOfANewCluster(t *testing.T) {
	as := diff(t, testCIB(t), runningCIB(testdata(t, "cib-empty.xml")))
	if len(as) != 1 || as[0].Cmd[0] != "cibadmin" || !as[0].Secret {
		t.Fatalf("not one secret patch: %v", as)
	}
	patch := string(as[0].Stdin)
	for _, p := range []string{`<source admin_epoch="0" epoch="1" num_updates="0"/>`, `<target admin_epoch="0" epoch="2" num_updates="0"/>`,
		`operation="create" path="/cib/configuration" position="4"`, "secret of pdu-a"} {
		if !strings.Contains(patch, p) {
			t.Errorf("the patch lacks %s", p)
		}
	}
	if strings.Contains(as[0].Why+as[0].Title, "secret of") {
		t.Error("the community is shown")
	}
}

// cib-converged.xml is what Pacemaker 3.0's own tools made of a CIB that had
// others' elements and wrong values, given the patches of this package.
func TestCIBIsUnchanged(t *testing.T) {
	if as := diff(t, testCIB(t), runningCIB(testdata(t, "cib-converged.xml"))); len(as) != 0 {
		t.Errorf("a second apply would change:\n%s", as[0].Why)
	}
}

func TestCIBDrift(t *testing.T) {
	x := testdata(t, "cib-converged.xml")
	for _, c := range []struct{ name, old, new, want string }{
		{"property", `name="stonith-enabled" value="true"`, `name="stonith-enabled" value="false"`, `
  <nvpair id="cib-bootstrap-options-stonith-enabled" name="stonith-enabled" value="false"/>
+ <nvpair id="cib-bootstrap-options-stonith-enabled" name="stonith-enabled" value="true"/>`},
		{"secret", `value="secret of pdu-a"`, `value="old"`, `
  <primitive id="fence-nfs2-pdu-a" class="stonith" type="fence_apc_snmp">
  (a secret in it changes)`},
		{"time", `name="start" timeout="180s"`, `name="start" timeout="20s"`, `
  <primitive id="service-home" class="ocf" provider="mortar" type="service">
-     <op id="service-home-start-0s" interval="0s" name="start" timeout="20s"/>
+     <op id="service-home-start-0s" interval="0s" name="start" timeout="180s"/>`},
		{"left over", `<fencing-topology>`, `<fencing-topology><fencing-level id="fencing-nfs9-1" target="nfs9" index="1" devices="x"/>`, `
- <fencing-level id="fencing-nfs9-1" devices="x" index="1" target="nfs9"/>`},
		{"foreign", `</constraints>`, `<rsc_location id="cli-ban-x" rsc="service-home" node="nfs1" score="-INFINITY"/></constraints>`, ``},
	} {
		t.Run(c.name, func(t *testing.T) {
			if !strings.Contains(x, c.old) {
				t.Fatalf("%s is not in the recorded CIB", c.old)
			}
			got := ""
			if as := diff(t, testCIB(t), runningCIB(strings.Replace(x, c.old, c.new, 1))); len(as) > 0 {
				got = as[0].Why
			}
			want := strings.TrimPrefix(c.want, "\n")
			if c.name == "property" { // the ids are the same, so is the first line but for the value
				want = "- " + want[2:]
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("shown (-want +got):\n%s", d)
			}
		})
	}
}

func TestCIBWhilePacemakerIsDown(t *testing.T) {
	as := diff(t, testCIB(t), &Paper{})
	if len(as) != 1 || !strings.Contains(as[0].Why, "+ <primitive") {
		t.Errorf("the whole configuration is not shown: %v", show(as))
	}
	// A cluster that is stopped is going to start with the CIB on its disk.
	stopped := &Paper{Files: map[string]string{linux.CIBFile: testdata(t, "cib-converged.xml")}}
	if as := diff(t, testCIB(t), stopped); len(as) != 0 {
		t.Errorf("a stopped cluster that is configured would be changed:\n%s", as[0].Why)
	}
}

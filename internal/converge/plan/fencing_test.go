package plan

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mortarhpc/mortar/examples"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

// Agents that Mortar does not know by itself take the place of a BMC and of outlets: levels,
// parameters, secrets, and the question for their options.
func TestAnyFenceAgent(t *testing.T) {
	text, err := examples.FS.ReadFile("nfs-ha.yaml")
	if err != nil {
		t.Fatal(err)
	}
	bmc := regexp.MustCompile(`(?m)^    bmc:.*\n(      .*\n)+`).FindAllString(string(text), -1)
	outlets := regexp.MustCompile(`(?m)^    outlets:.*\n(      .*\n)+`).FindAllString(string(text), -1)
	if len(bmc) != 2 || len(outlets) != 2 {
		t.Fatalf("%q %q", bmc, outlets)
	}
	s, err := spec.Parse("brick.yaml", []byte(strings.NewReplacer(
		bmc[0], "    fencing:\n      - {agent: fence_redfish, options: {ip: 10.77.3.21, username: mortar, ssl_insecure: \"1\"}, secrets: {password: secrets/redfish-nfs1}}\n",
		outlets[1], "    fencing:\n      - {agent: fence_eaton_snmp, options: {ip: 10.77.3.41, plug: 2}, secrets: {community: secrets/eaton}, feed: A}\n      - {agent: fence_eaton_snmp, options: {ip: 10.77.3.42, plug: 2}, secrets: {community: secrets/eaton}, feed: B}\n",
	).Replace(string(text))))
	if err != nil {
		t.Fatal(err)
	}
	d, err := design.New(s)
	if err != nil {
		t.Fatal(err)
	}
	steps, err := Desired(d, Facts{}, testSecrets)
	if err != nil {
		t.Fatal(err)
	}
	var levels, files, options []string
	cib := ""
	for _, st := range steps {
		switch r := st.Resource.(type) {
		case *resource.CIB:
			cib = r.Configuration
			if diff := cmp.Diff([]string{"community"}, r.Secret); diff != "" {
				t.Error(diff)
			}
		case *resource.TextFile:
			if st.Host == "nfs2" && strings.Contains(r.Path, "redfish") {
				files = append(files, r.Path+": "+strings.TrimSpace(string(r.Content[strings.LastIndex(strings.TrimSpace(string(r.Content)), "\n")+1:])))
			}
		case *resource.FenceAgent:
			if st.Host == "nfs2" {
				options = append(options, r.Agent+": "+strings.Join(r.Options, " "))
			}
		}
	}
	for _, m := range regexp.MustCompile(`name="levels" value="([^"]*)"`).FindAllStringSubmatch(cib, -1) {
		levels = append(levels, m[1])
	}
	for what, x := range map[string][2][]string{
		"levels":  {{"fence-nfs1-redfish;fence-pdu-a=1,fence-pdu-b=1", "fence-nfs2-bmc;fence-nfs2-eaton_snmp,fence-nfs2-eaton_snmp-2"}, levels},
		"files":   {{"/etc/mortar/secrets/fence-nfs1-redfish.password: secret of redfish-nfs1", "/etc/mortar/secrets/fence-nfs1-redfish.password.sh: exec cat /etc/mortar/secrets/fence-nfs1-redfish.password"}, files},
		"options": {{"fence_redfish: ip password password_script ssl_insecure username", "fence_eaton_snmp: community ip plug", "fence_eaton_snmp: community ip plug"}, options},
	} {
		slices.Sort(x[0])
		slices.Sort(x[1])
		if diff := cmp.Diff(x[0], x[1]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	for _, want := range []string{`name="password_script" value="/etc/mortar/secrets/fence-nfs1-redfish.password.sh"`, `name="community" value="secret of eaton"`, `name="pcmk_host_argument" value="none"`} {
		if !strings.Contains(cib, want) {
			t.Errorf("the cluster's configuration lacks %s", want)
		}
	}
	if strings.Contains(cib, "secret of redfish") {
		t.Error("a password is in the cluster's configuration")
	}
}

package failover

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mortarhpc/mortar/internal/host/gather"
	"github.com/mortarhpc/mortar/internal/host/hosttest"
	"github.com/mortarhpc/mortar/test/example"
)

func TestOutletsOn(t *testing.T) {
	d := example.Design(t, "nfs-ha.yaml")
	secret := func(file string) ([]byte, error) { return []byte("of " + file + "\n"), nil }
	outlet := func(dev, port string, on bool, err string) gather.Outlet {
		return gather.Outlet{OutletAsk: gather.OutletAsk{Device: dev, Port: port}, On: on, Err: err}
	}
	// The parameters that Pacemaker gives the agent too: SNMPv3 with pass phrases
	// in a file.
	on := func(pdu string) string {
		env := "/usr/bin/env SNMPCONFPATH=/etc/mortar/secrets/fence-pdu-" + pdu + " /usr/bin/"
		return "nfs2 fence_apc_snmp: ip=10.77.3.3" + map[string]string{"a": "1", "b": "2"}[pdu] + " port=1 power_wait=0 snmp_sec_level=authPriv snmp_version=3" +
			" snmpget_path=" + env + "snmpget snmpset_path=" + env + "snmpset snmpwalk_path=" + env + "snmpwalk username=mortar action=on"
	}
	for _, tt := range []struct {
		name, situation, node string
		outlets               []gather.Outlet // as nfs2 has them
		want                  []string        // input of the fence agent
		nothing, refused      string
	}{
		{"one off", "healthy", "nfs1", []gather.Outlet{outlet("fence-pdu-a", "1", true, ""), outlet("fence-pdu-b", "1", false, "")},
			[]string{on("b")}, "", ""},
		{"both off, after a fencing", "fenced", "nfs1", []gather.Outlet{outlet("fence-pdu-a", "1", false, ""), outlet("fence-pdu-b", "1", false, "")}, []string{
			on("a"), on("b")}, "", ""},
		{"all on", "healthy", "nfs1", []gather.Outlet{outlet("fence-pdu-a", "1", true, ""), outlet("fence-pdu-b", "1", true, "")}, nil, "every outlet of nfs1 is on", ""},
		{"being fenced", "fencing-failing", "nfs1", []gather.Outlet{outlet("fence-pdu-a", "1", false, "")}, nil, "", "power-fencing node=nfs1"},
		{"a PDU is dead", "healthy", "nfs1", []gather.Outlet{outlet("fence-pdu-a", "1", true, ""), outlet("fence-pdu-b", "1", false, "timed out")}, nil, "", "power-not-known note=nothing is known of outlet 1 of pdu-b: timed out"},
		{"not asked", "healthy", "nfs1", nil, nil, "", "power-no-pdu node=nfs1"},
		{"a stranger", "healthy", "c1", nil, nil, "", "server-no-such server=c1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := facts(t, tt.situation, nil)
			f.Hosts["nfs2"].Host.Outlets = tt.outlets
			p, err := OutletsOn(d, f, tt.node, secret)
			switch {
			case tt.refused != "":
				if !hosttest.Refuses(err, tt.refused) {
					t.Errorf("%v, want %q", err, tt.refused)
				}
				return
			case err != nil:
				t.Fatal(err)
			case p.Nothing != tt.nothing:
				t.Errorf("%q, want %q", p.Nothing, tt.nothing)
			}
			var got []string
			for _, s := range p.Steps {
				if !s.Action.Secret {
					t.Errorf("%s: the secret may be shown", s.Title)
				}
				got = append(got, p.Via+" "+strings.Join(s.Action.Cmd, " ")+": "+strings.TrimSpace(strings.ReplaceAll(string(s.Action.Stdin), "\n", " ")))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// A community goes to the agent's standard input, never into its arguments.
func TestOutletsOnByCommunity(t *testing.T) {
	d := example.Design(t, "nfs-ha.yaml", "snmp: {user: mortar, auth_file: secrets/pdu-a-auth, privacy_file: secrets/pdu-a-privacy}", "community_file: secrets/pdu-a")
	f := facts(t, "healthy", nil)
	f.Hosts["nfs2"].Host.Outlets = []gather.Outlet{{OutletAsk: gather.OutletAsk{Device: "fence-pdu-a", Port: "1"}}}
	p, err := OutletsOn(d, f, "nfs1", func(file string) ([]byte, error) { return []byte("of " + file + "\n"), nil })
	if err != nil || len(p.Steps) != 1 {
		t.Fatal(p, err)
	}
	a := p.Steps[0].Action
	if want := "community=of secrets/pdu-a\nip=10.77.3.31\nport=1\npower_wait=0\nsnmp_version=1\naction=on\n"; string(a.Stdin) != want || len(a.Cmd) != 1 || !a.Secret {
		t.Errorf("%q < %q", a.Cmd, a.Stdin)
	}
}

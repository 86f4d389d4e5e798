package failover

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/host/agent"
	"github.com/mortarhpc/mortar/internal/host/gather"
	"github.com/mortarhpc/mortar/internal/host/hosttest"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/run/observe"
	"github.com/mortarhpc/mortar/internal/serve/ocf"
	"github.com/mortarhpc/mortar/test/example"
)

// Look for signs of life of nfs1: nfs2 has no service, c1 is a client.
func TestLook(t *testing.T) {
	d := example.Design(t, "nfs-ha.yaml")
	d.Spec.Servers[0].Address = "nfs1.example.org" // not pinged: DNS may fail with the server
	const silent2, silent1 = "nfs1 does not answer ping from nfs2 at 10.77.1.11, 10.77.2.11", "nfs1 does not answer ping from c1 at 10.77.1.11"
	const unserved2, unserved1 = "no host answers ping from nfs2 at the service address 10.77.1.100", "no host answers ping from c1 at the service address 10.77.1.100"
	const deaf = "the BMC of nfs1 does not answer nfs2: it cannot say whether the power is off"
	bmc := func(code int) map[string]int { return map[string]int{"nfs2 fence_ipmilan": code} }
	for _, tt := range []struct {
		name    string
		answers map[string]int // exit codes by host, command and last argument; else 1
		up      string         // a server that answers
		holds   string         // an address that nfs2 has
		dead    string         // a host whose agent cannot be reached
		traces  ocf.Traces     // what nfs2 finds on disks and by ARP
		want    Signs
	}{
		{"off, BMC dead", nil, "nfs2", "", "", ocf.Traces{}, Signs{Off: []string{silent2, unserved2, silent1, unserved1}, Unknown: []string{deaf}}},
		{"off, BMC says so", bmc(2), "nfs2", "", "", ocf.Traces{}, Signs{Off: []string{silent2, unserved2, silent1, unserved1, "the BMC of nfs1 says that its power is off"}}},
		{"has power", bmc(0), "nfs2", "", "", ocf.Traces{}, Signs{Off: []string{silent2, unserved2, silent1, unserved1}, Life: []string{"its BMC says that its power is on"}}},
		{"only a client reaches it", map[string]int{"c1 ping 10.77.1.11": 0, "nfs2 fence_ipmilan": 2}, "nfs2", "", "", ocf.Traces{},
			Signs{Life: []string{"it answers ping from c1 at 10.77.1.11"}, Off: []string{silent2, unserved2, unserved1, "the BMC of nfs1 says that its power is off"}}},
		{"the service answers a client", map[string]int{"c1 ping 10.77.1.100": 0, "nfs2 fence_ipmilan": 2}, "nfs2", "", "", ocf.Traces{},
			Signs{Life: []string{"the service address 10.77.1.100 answers ping from c1, and its partner does not have it"}, Off: []string{silent2, unserved2, silent1, "the BMC of nfs1 says that its power is off"}}},
		{"the partner serves already", bmc(2), "nfs2", "10.77.1.100/24", "", ocf.Traces{}, Signs{Off: []string{silent2, silent1, "the BMC of nfs1 says that its power is off"}}},
		{"client away", bmc(2), "nfs2", "", "c1", ocf.Traces{}, Signs{Off: []string{silent2, unserved2, "the BMC of nfs1 says that its power is off"},
			Unknown: []string{"c1 could not be asked to ping 10.77.1.11: no route to host"}}},
		{"its ping is filtered, and it writes", bmc(2), "nfs2", "", "", ocf.Traces{Life: []string{"something writes"}, Off: []string{"no ARP"}, Unknown: []string{"a disk"}},
			Signs{Life: []string{"something writes"}, Off: []string{silent2, unserved2, silent1, unserved1, "no ARP", "the BMC of nfs1 says that its power is off"}, Unknown: []string{"a disk"}}},
		{"the disks cannot be asked", bmc(2), "nfs2", "", "nfs2 traces", ocf.Traces{}, Signs{Off: []string{silent2, unserved2, silent1, unserved1, "the BMC of nfs1 says that its power is off"},
			Unknown: []string{"nfs2 could not look whether a server writes to the shared disks, nor ask by ARP: no op"}}},
		{"nobody to ask", nil, "", "", "", ocf.Traces{}, Signs{Unknown: []string{"no other server answers that could ask for it"}}},
		{"it answers itself", nil, "nfs1", "", "", ocf.Traces{}, Signs{Life: []string{"it answers over SSH"}, Unknown: []string{"no other server answers that could ask for it"}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := observe.Facts{Hosts: map[string]observe.Answer{"nfs1": {Err: "timeout"}, "nfs2": {Err: "timeout"}}}
			if tt.up != "" {
				f.Hosts[tt.up] = observe.Answer{Host: &gather.Host{Addresses: []string{tt.holds}}}
			}
			call := func(_ context.Context, host, op string, params, result any) error {
				if p, ok := params.(TracesParams); ok {
					if host != "nfs2" || p.Node != "nfs1" || len(p.Configs) != 1 || p.Configs[0] != "/etc/mortar/service-home.json" {
						t.Errorf("%s: %+v", host, p)
					}
					if tt.dead == "nfs2 traces" {
						return errors.New("no op")
					}
					return hosttest.Answer(result, &tt.traces)
				}
				argv := params.(agent.QueryParams).Argv
				if op != "query" {
					t.Errorf("%s asked for %s", host, op)
				}
				if host == tt.dead {
					return errors.New("no route to host")
				}
				key := host + " " + argv[0]
				if argv[0] == "ping" {
					key += " " + argv[len(argv)-1]
				}
				code, ok := tt.answers[key]
				if !ok {
					code = 1
				}
				return hosttest.Answer(result, resource.Output{Code: code})
			}
			if diff := cmp.Diff(tt.want, Look(t.Context(), d, f, hosttest.Play(call).Session, "nfs1")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if got := Look(t.Context(), example.Design(t, "nfs-ha.yaml"), observe.Facts{}, nil, "nfs1"); len(got.Life) > 0 {
		t.Errorf("%+v", got)
	}
}

// later fakes the hosts after a person has looked at the server: no host answers,
// and the facts have changed.
type later struct {
	Hosts
	t    *testing.T
	then observe.Facts
}

func (l *later) Collect(context.Context) observe.Facts { return l.then }

func (l *later) Session(name string) *host.Session {
	return hosttest.Play(func(_ context.Context, _, _ string, _, result any) error {
		return hosttest.Answer(result, resource.Output{Code: 1})
	}).Session(name)
}

// Confirm looks again after a person has confirmed.
func TestConfirm(t *testing.T) {
	d := example.Design(t, "nfs-ha.yaml")
	failing, healthy := facts(t, "fencing-failing", nil), facts(t, "healthy", nil)
	for name, c := range map[string]struct {
		then  observe.Facts
		ask   func(*Plan) (bool, error)
		steps bool
		say   string
	}{
		"dry run":            {healthy, nil, true, ""},
		"given by a flag":    {healthy, func(*Plan) (bool, error) { return false, nil }, true, ""},
		"still off":          {failing, func(*Plan) (bool, error) { return true, nil }, true, ""},
		"switched on since":  {healthy, func(*Plan) (bool, error) { return true, nil }, false, "nfs1 is a member of the cluster"},
		"not what was asked": {failing, func(*Plan) (bool, error) { return true, errors.New("not the name") }, true, "not the name"},
	} {
		p, err := Confirm(t.Context(), d, failing, &later{t: t, then: c.then}, "nfs1", c.ask)
		if (c.say == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.say) || c.steps != (p != nil && len(p.Steps) > 0) {
			t.Errorf("%s: %+v, %v", name, p, err)
		}
	}
}

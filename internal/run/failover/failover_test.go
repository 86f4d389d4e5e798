package failover

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/host/agent"
	"github.com/mortarhpc/mortar/internal/host/gather"
	"github.com/mortarhpc/mortar/internal/host/hosttest"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/run/observe"
	"github.com/mortarhpc/mortar/internal/run/procedure"
	"github.com/mortarhpc/mortar/test/example"
)

// facts returns the facts of both servers, from the recordings of a real cluster
// in package observe.
func facts(t *testing.T, situation string, cib *linux.CIB) observe.Facts {
	t.Helper()
	f := observe.Facts{Time: time.Unix(0, 0), Hosts: map[string]observe.Answer{}}
	for _, name := range []string{"nfs1", "nfs2"} {
		b, err := os.ReadFile(filepath.Join("../observe/testdata", situation+"."+name+".crm"))
		if errors.Is(err, os.ErrNotExist) {
			f.Hosts[name] = observe.Answer{Err: "i/o timeout"}
			continue
		} else if err != nil {
			t.Fatal(err)
		}
		f.Hosts[name] = observe.Answer{Host: &gather.Host{CIB: cib, Run: map[string]gather.RunResult{
			"crm_mon --one-shot --output-as=xml": {Output: resource.Output{Stdout: string(b)}}}}}
		if waits, err := os.ReadFile(filepath.Join("../observe/testdata", situation+"."+name+".waits")); err == nil {
			f.Hosts[name].Host.Run["corosync-cmapctl -g runtime.votequorum.wait_for_all_status"] = gather.RunResult{Output: resource.Output{Stdout: string(waits)}}
		}
	}
	return f
}

func commands(p *Plan) []string {
	out := []string{}
	for _, s := range p.Steps {
		if s.Action != nil && s.Action.File != nil {
			out = append(out, p.HostOf(&s)+": write "+s.Action.File.Path)
		} else if s.Action != nil {
			out = append(out, p.Via+": "+strings.Join(s.Action.Cmd, " "))
		}
	}
	return out
}

var leftover = &linux.CIB{Constraints: []linux.CIBLocation{{ID: "cli-prefer-home", Resource: "home", Node: "nfs2", Score: "INFINITY"}}}

func confirm(d *design.Design, node string, signs Signs) func(observe.Facts) (*Plan, error) {
	return func(f observe.Facts) (*Plan, error) { return ConfirmOff(d, f, node, signs) }
}

func doubt(d *design.Design, service string, r *Refused) func(observe.Facts) (*Plan, error) {
	return func(f observe.Facts) (*Plan, error) { return ConfirmDoubt(d, f, service, r) }
}

func TestPlans(t *testing.T) {
	d := example.Design(t, "nfs-ha.yaml")
	auto := example.Design(t, "nfs-ha.yaml", "failback: manual", "failback: auto")
	move := []string{"nfs2: crm_resource --resource home --move --node nfs2", "nfs2: crm_resource --resource home --clear"}
	back := []string{"nfs1: crm_resource --resource home --move --node nfs1", "nfs1: crm_resource --resource home --clear"}
	type result struct {
		Commands []string
		Nothing  string
		Refused  string // code of the refusal, names and values of arguments
	}
	service := func(d *design.Design, name, to string) func(observe.Facts) (*Plan, error) {
		return func(f observe.Facts) (*Plan, error) { return Service(d, f, name, to) }
	}
	tests := []struct {
		name      string
		situation string
		cib       *linux.CIB
		plan      func(observe.Facts) (*Plan, error)
		want      result
	}{
		{"to the other", "healthy", nil, service(d, "", ""), result{Commands: move}},
		{"by name", "healthy", nil, service(d, "home", "nfs2"), result{Commands: move}},
		{"is there", "healthy", nil, service(d, "", "nfs1"), result{Commands: []string{}, Nothing: "service home runs on nfs1 already"}},
		{"is there, with a leftover", "moved-uncleared", leftover, service(d, "", "nfs2"), result{Commands: move[1:]}},
		{"leftover first", "moved-uncleared", leftover, service(d, "", "nfs1"), result{Commands: append([]string{back[1]}, back...)}},
		{"no such service", "healthy", nil, service(d, "scratch", ""), result{Refused: "service-no-such brick=brick1 service=scratch"}},
		{"no such server", "healthy", nil, service(d, "", "nfs3"), result{Refused: "server-no-such server=nfs3"}},
		{"standby", "standby", nil, service(d, "", ""), result{Refused: "takeover-not-ready server=nfs1 codes=standby"}},
		{"failed there", "start-failed", nil, service(d, "", ""), result{Refused: "takeover-not-ready server=nfs2 codes=start-failed"}},
		{"partner dead", "fenced", nil, service(d, "", ""), result{Refused: "takeover-not-ready server=nfs1 codes=host-silent"}},
		{"nobody answers", "none", nil, service(d, "", ""), result{Refused: "cluster-no-answer"}},
		{"cannot be fenced", "device-failed", nil, service(d, "", "nfs1"), result{Commands: back}}, // nfs1's devices fail, not nfs2's
		{"would go back at once", "healthy", nil, service(auto, "", "nfs2"), result{Refused: "failback-auto preferred=nfs1"}},
		{"failback", "moved", nil, func(f observe.Facts) (*Plan, error) { return Failback(d, f, "") }, result{Commands: back}},
		{"failback at home", "healthy", nil, func(f observe.Facts) (*Plan, error) { return Failback(d, f, "") }, result{Commands: []string{}, Nothing: "service home runs on nfs1 already"}},
		{"standby of the active", "healthy", nil, func(f observe.Facts) (*Plan, error) { return Standby(d, f, "nfs1") },
			result{Commands: []string{"nfs2: crm_attribute --node nfs1 --name standby --update on --lifetime forever"}}},
		{"standby of the passive", "healthy", nil, func(f observe.Facts) (*Plan, error) { return Standby(d, f, "nfs2") },
			result{Commands: []string{"nfs1: crm_attribute --node nfs2 --name standby --update on --lifetime forever"}}},
		{"standby of both", "standby", nil, func(f observe.Facts) (*Plan, error) { return Standby(d, f, "nfs2") }, result{Refused: "takeover-not-ready server=nfs1 from=nfs2 codes=standby"}},
		{"standby twice", "standby", nil, func(f observe.Facts) (*Plan, error) { return Standby(d, f, "nfs1") }, result{Commands: []string{}, Nothing: "nfs1 is in standby already"}},
		{"standby of a stranger", "healthy", nil, func(f observe.Facts) (*Plan, error) { return Standby(d, f, "c1") }, result{Refused: "server-no-such server=c1"}},
		{"confirm off", "fencing-failing", nil, confirm(d, "nfs1", Signs{Unknown: []string{"its BMC does not answer"}}), result{Commands: []string{"nfs2: stonith_admin --confirm nfs1"}}},
		{"confirm off while it lives", "fencing-failing", nil, confirm(d, "nfs1", Signs{Life: []string{"its BMC says that its power is on"}}), result{Refused: "confirm-lives node=nfs1 signs=its BMC says that its power is on"}},
		{"confirm off of a member", "healthy", nil, confirm(d, "nfs1", Signs{}), result{Refused: "confirm-member node=nfs1"}},
		{"confirm off of one that was fenced", "fenced", nil, confirm(d, "nfs1", Signs{}), result{Commands: []string{}, Nothing: "the cluster knows that nfs1 is off"}},
		{"confirm off after a cold start alone", "cold-start-alone", nil, confirm(d, "nfs1", Signs{}), result{Commands: []string{
			"nfs2: stonith_admin --confirm nfs1", "nfs2: corosync-cmapctl -s quorum.cancel_wait_for_all u8 1"}}},
		{"confirm off after a cold start, of one that lives", "cold-start-alone", nil, confirm(d, "nfs1", Signs{Life: []string{"it answers ping at 10.77.1.11"}}), result{Refused: "confirm-lives node=nfs1 signs=it answers ping at 10.77.1.11"}},
		{"confirm off once more, still no quorum", "cold-start-confirmed", nil, confirm(d, "nfs1", Signs{}), result{Commands: []string{"nfs2: corosync-cmapctl -s quorum.cancel_wait_for_all u8 1"}}},
		{"confirm off after a cold start, of the one that is up", "cold-start-alone", nil, confirm(d, "nfs2", Signs{}), result{Refused: "confirm-member node=nfs2"}},
		{"confirm off of a stranger", "healthy", nil, confirm(d, "c1", Signs{}), result{Refused: "server-no-such server=c1"}},
		{"confirm doubt of one that runs", "healthy", nil, doubt(d, "", nil), result{Commands: []string{}, Nothing: "service home runs on nfs1"}},
		{"confirm doubt, and nobody has one", "cold-start-alone", nil, doubt(d, "home", nil), result{Refused: "doubt-none service=home"}},
		{"confirm doubt", "cold-start-alone", nil, doubt(d, "home", &Refused{Node: "nfs2", raw: []byte("{}")}), result{Commands: []string{"nfs2: write /run/mortar/accepted-home.json"}}},
		{"confirm an old doubt", "healthy", nil, doubt(d, "home", &Refused{Node: "nfs2", raw: []byte("{}")}), result{Commands: []string{}, Nothing: "service home runs on nfs1"}},
		{"confirm doubt of a stranger", "cold-start-alone", nil, doubt(d, "scratch", nil), result{Refused: "service-no-such brick=brick1 service=scratch"}},
		{"unstandby", "standby", nil, func(f observe.Facts) (*Plan, error) { return Unstandby(d, f, "nfs1") },
			result{Commands: []string{"nfs1: crm_attribute --node nfs1 --name standby --delete --lifetime forever"}}},
		{"unstandby of one that is not", "healthy", nil, func(f observe.Facts) (*Plan, error) { return Unstandby(d, f, "nfs1") }, result{Commands: []string{}, Nothing: "nfs1 is not in standby"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p, err := tt.plan(facts(t, tt.situation, tt.cib))
			var got result
			if err != nil {
				if got.Refused = tt.want.Refused; !hosttest.Refuses(err, tt.want.Refused) {
					got.Refused = err.Error()
				}
			} else {
				got = result{Commands: commands(p), Nothing: p.Nothing}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// fake is a cluster that goes to the next of its states with each look.
type fake struct {
	states []observe.ServiceState
	node   linux.CRMNode
	cmds   []string
	fail   string // command that fails
	onLook func()

	glances int
}

func (f *fake) Session(name string) *host.Session { return hosttest.Play(f.call).Session(name) }

func (f *fake) Collect(context.Context) observe.Facts { panic("only a fence test collects") }

func (f *fake) call(ctx context.Context, _, op string, params, _ any) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	cmd := op + " " + strings.Join(params.(agent.RunParams).Action.Cmd, " ")
	f.cmds = append(f.cmds, cmd)
	if f.fail != "" && strings.Contains(cmd, f.fail) {
		return errors.New("crm_resource: exit code 105")
	}
	return nil
}

func (f *fake) Cluster(ctx context.Context, _ string) (*observe.Snapshot, error) {
	if f.onLook != nil {
		f.onLook()
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s := f.states[0]
	if len(f.states) > 1 {
		f.states = f.states[1:]
	}
	return &observe.Snapshot{Services: []observe.ServiceState{s}, Cluster: gather.Cluster{CRM: &linux.CRM{Nodes: []linux.CRMNode{f.node}}}}, nil
}

func (f *fake) HasAddress(ctx context.Context, _, _ string) (bool, error) {
	f.glances++
	return f.glances > 3, ctx.Err()
}

func on(server, role string, failures ...observe.Failure) observe.ServiceState {
	return observe.ServiceState{Name: "home", Resource: "home", Server: server, Role: role, Failures: failures}
}

func TestRun(t *testing.T) {
	const move, clear = "run crm_resource --resource home --move --node nfs2", "run crm_resource --resource home --clear"
	tests := []struct {
		name string
		f    fake
		wait time.Duration
		cmds []string
		err  string
	}{
		{"moves", fake{states: []observe.ServiceState{on("nfs1", "Started"), on("nfs1", "Stopping"), on("", "Stopped"), on("nfs2", "Starting"), on("nfs2", "Started")}}, time.Hour,
			[]string{move, clear}, ""},
		{"the command fails", fake{states: []observe.ServiceState{on("nfs1", "Started")}, fail: "--move"}, time.Hour,
			[]string{move, clear}, "nfs2: crm_resource: exit code 105"},
		{"the start fails", fake{states: []observe.ServiceState{on("nfs1", "Started"), on("nfs1", "Started", observe.Failure{Task: "start", Node: "nfs2", Text: "error"})}}, time.Hour,
			[]string{move, clear}, "service home failed: start on nfs2: error"},
		{"it goes back", fake{states: []observe.ServiceState{on("nfs2", "Started"), on("nfs2", "Started"), on("nfs1", "Started", observe.Failure{Task: "monitor", Node: "nfs2", Text: "not running"})}}, time.Hour,
			[]string{move, clear}, "service home failed: monitor on nfs2: not running"},
		{"it takes too long", fake{states: []observe.ServiceState{on("nfs1", "Stopping")}}, time.Millisecond,
			[]string{move, clear}, "not done within 1ms; last seen: home is stopping on nfs1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p, err := Service(example.Design(t, "nfs-ha.yaml"), facts(t, "healthy", nil), "", "")
			if err != nil {
				t.Fatal(err)
			}
			err = procedure.Run(t.Context(), &tt.f, p, procedure.Options{Wait: tt.wait, Poll: time.Microsecond})
			if got := ""; err != nil || tt.err != "" {
				if err != nil {
					got = err.Error()
				}
				if got != tt.err {
					t.Errorf("error %q, want %q", got, tt.err)
				}
			}
			if diff := cmp.Diff(tt.cmds, tt.f.cmds); diff != "" {
				t.Errorf("commands (-want +got):\n%s", diff)
			}
		})
	}
}

// Interrupted during its wait, Run still removes the constraint. Interrupted
// before the move, it runs nothing.
func TestRunInterrupted(t *testing.T) {
	p, err := Service(example.Design(t, "nfs-ha.yaml"), facts(t, "healthy", nil), "", "")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	f := &fake{states: []observe.ServiceState{on("nfs1", "Stopping")}, onLook: cancel}
	if err := procedure.Run(ctx, f, p, procedure.Options{Wait: time.Hour, Poll: time.Microsecond}); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if len(f.cmds) != 2 || !strings.Contains(f.cmds[1], "--clear") {
		t.Errorf("commands %q", f.cmds)
	}
	f = &fake{states: f.states}
	if err := procedure.Run(ctx, f, p, procedure.Options{Wait: time.Hour, Poll: time.Microsecond}); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if len(f.cmds) != 0 {
		t.Errorf("commands %q", f.cmds)
	}
}

// Run asks the cluster as soon as the address appears.
func TestRunGlances(t *testing.T) {
	p, err := Service(example.Design(t, "nfs-ha.yaml"), facts(t, "healthy", nil), "", "")
	if err != nil {
		t.Fatal(err)
	}
	p.Steps = p.Steps[:2] // without the later waits, which would sleep for Poll
	f := &fake{states: []observe.ServiceState{on("nfs1", "Started"), on("nfs2", "Started")}}
	if err := procedure.Run(t.Context(), f, p, procedure.Options{Wait: time.Hour, Poll: time.Hour, Glance: time.Microsecond}); err != nil {
		t.Fatal(err)
	}
	if f.glances != 4 {
		t.Errorf("%d glances, want 4", f.glances)
	}
}

func TestRunStandby(t *testing.T) {
	d := example.Design(t, "nfs-ha.yaml")
	p, err := Standby(d, facts(t, "healthy", nil), "nfs1")
	if err != nil {
		t.Fatal(err)
	}
	f := &fake{states: []observe.ServiceState{on("nfs1", "Started"), on("nfs2", "Started")}, node: linux.CRMNode{Name: "nfs1", Online: true, Standby: true}}
	var events []procedure.Event
	if err := procedure.Run(t.Context(), f, p, procedure.Options{Wait: time.Hour, Poll: time.Microsecond, On: func(e procedure.Event) { events = append(events, e) }}); err != nil {
		t.Fatal(err)
	}
	if last := events[len(events)-1]; last.State != "done" || last.Detail != "nfs1 is in standby" {
		t.Errorf("last event %+v", last)
	}
}

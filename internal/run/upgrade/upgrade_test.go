package upgrade

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/host/agent"
	"github.com/mortarhpc/mortar/internal/host/gather"
	"github.com/mortarhpc/mortar/internal/host/hosttest"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/run/failover"
	"github.com/mortarhpc/mortar/internal/run/observe"
	"github.com/mortarhpc/mortar/test/example"
)

// pair is a fake of two servers and their cluster; test/rack has real ones.
type pair struct {
	t       *testing.T
	facts   []byte // of a real brick that serves on nfs1
	serves  string
	standby map[string]bool
	boot    map[string]int
	log     []string
	killAt  int // the program dies before this action, from 1; 0: never
}

func newPair(t *testing.T) (*pair, *design.Design) {
	t.Helper()
	facts, err := os.ReadFile("../observe/testdata/rack/applied.json")
	if err != nil {
		t.Fatal(err)
	}
	d := example.Design(t, "nfs-ha.yaml")
	return &pair{t: t, facts: facts, serves: "nfs1", standby: map[string]bool{}, boot: map[string]int{}}, d
}

var errKilled = errors.New("killed")

func (p *pair) Session(name string) *host.Session { return hosttest.Play(p.call).Session(name) }

func (p *pair) call(ctx context.Context, name, op string, params, result any) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	switch q := params.(type) {
	case agent.RunParams:
		if p.killAt > 0 && len(p.log)+1 >= p.killAt {
			return errKilled
		}
		p.log = append(p.log, name+": "+strings.Join(q.Action.Cmd, " "))
		p.run(name, q.Action.Cmd)
		return hosttest.Answer(result, resource.Output{})
	case agent.QueryParams:
		return hosttest.Answer(result, resource.Output{Stdout: "<cib><configuration><nodes></nodes></configuration></cib>"})
	}
	if op == string(agent.OpHello) {
		return hosttest.Answer(result, agent.Hello{BootID: fmt.Sprint(name, p.boot[name]), Kernel: "6.12"})
	}
	return fmt.Errorf("unexpected op %s", op)
}

// run does what the cluster does with a command.
func (p *pair) run(name string, argv []string) {
	after := func(flag string) string {
		if i := slices.Index(argv, flag); i >= 0 {
			return argv[i+1]
		}
		return ""
	}
	switch argv[0] {
	case "crm_attribute":
		node := after("--node")
		p.standby[node] = !slices.Contains(argv, "--delete")
		if other := map[string]string{"nfs1": "nfs2", "nfs2": "nfs1"}[node]; p.standby[node] && p.serves == node {
			if p.standby[other] {
				p.t.Error("both servers are in standby: the service stops")
			}
			p.serves = other
		}
	case "crm_resource":
		if to := after("--node"); to != "" {
			p.serves = to
		}
	case "systemctl":
		if p.serves == name || !p.standby[name] {
			p.t.Errorf("%s is rebooted while it serves %s, or not in standby", name, p.serves)
		}
		p.boot[name]++
	default:
		p.t.Errorf("unexpected command %q", argv)
	}
}

func (p *pair) HasAddress(context.Context, string, string) (bool, error) { return false, nil }

func (p *pair) Cluster(context.Context, string) (*observe.Snapshot, error) {
	s := &observe.Snapshot{Cluster: gather.Cluster{CRM: &linux.CRM{}}, Services: []observe.ServiceState{{Name: "home", Resource: "service-home", Server: p.serves, Role: "Started"}}}
	for _, n := range []string{"nfs1", "nfs2"} {
		s.Nodes = append(s.Nodes, linux.CRMNode{Name: n, Online: true, Standby: p.standby[n]})
	}
	return s, nil
}

// Collect returns the recorded facts, with the servers' roles exchanged while nfs2 serves.
func (p *pair) Collect(context.Context) observe.Facts {
	text := string(p.facts)
	if p.serves == "nfs2" {
		swap := []string{"nfs1", "nfs2", "nfs2", "nfs1"}
		for _, net := range []string{"10.77.1.1", "10.77.2.1", "10.77.3.1"} {
			for _, end := range []string{"/", ":", `"`, " ", `\`} {
				swap = append(swap, net+"1"+end, net+"2"+end, net+"2"+end, net+"1"+end)
			}
		}
		text = strings.NewReplacer(swap...).Replace(text)
	}
	for n, on := range p.standby {
		if on {
			for id := range 3 {
				was := fmt.Sprintf(`<node name=\"%s\" id=\"%d\" online=\"true\" standby=\"`, n, id)
				text = strings.ReplaceAll(text, was+`false`, was+`true`)
			}
		}
	}
	var f, recorded observe.Facts
	if err := errors.Join(json.Unmarshal([]byte(text), &f), json.Unmarshal(p.facts, &recorded)); err != nil {
		p.t.Fatal(err)
	}
	const rings = "corosync-cfgtool -s" // numbers of nodes, not names
	for _, n := range []string{"nfs1", "nfs2"} {
		f.Hosts[n].Host.Run[rings] = recorded.Hosts[n].Host.Run[rings]
	}
	return f
}

// upgrade looks and upgrades every server, as the command does.
func (p *pair) upgrade(ctx context.Context, d *design.Design, on func(Event)) (order []string, err error) {
	u := New(d, p, Options{RebootOnly: true, NoFenceTest: true, On: on, Apply: func(context.Context) error { return nil }})
	servers, err := u.Look(ctx, "")
	for _, s := range servers {
		order = append(order, s.Name)
		if err == nil {
			_, err = u.Run(ctx, s)
		}
	}
	return order, err
}

func (p *pair) whole() bool { return p.serves == "nfs1" && !p.standby["nfs1"] && !p.standby["nfs2"] }

var _ failover.Hosts = (*pair)(nil)

// Each server is rebooted without a service, the one that serves last; each step is told of.
func TestUpgrade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, d := newPair(t)
		var told []string
		order, err := p.upgrade(t.Context(), d, func(e Event) {
			if e.Text == "" {
				told = append(told, e.Server+" "+e.Step)
			}
		})
		if err != nil || !slices.Equal(order, []string{"nfs2", "nfs1"}) || !p.whole() || p.boot["nfs1"] != 1 || p.boot["nfs2"] != 1 {
			t.Fatal(err, order, p.serves, p.boot)
		}
		var want []string
		for _, s := range order {
			for _, step := range []string{"standby", "packages", "apply", "reboot", "apply", "unstandby", "wait", "fence test", "failback", "health"} {
				want = append(want, s+" "+step)
			}
		}
		if !slices.Equal(told, want) {
			t.Errorf("told %q", told)
		}
	})
}

// An upgrade that was killed before any of its actions, and is run again, reboots every server
// that was left and puts the service back where it ran. Only between the end of a standby and
// the move back nothing on the hosts says where that was: the service stays, for mortar failback.
func TestKilledUpgrade(t *testing.T) {
	actions := 0
	synctest.Test(t, func(t *testing.T) {
		p, d := newPair(t)
		if _, err := p.upgrade(t.Context(), d, nil); err != nil {
			t.Fatal(err)
		}
		actions = len(p.log)
	})
	if actions < 6 {
		t.Fatal("only", actions, "actions")
	}
	for n := 1; n <= actions; n++ {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, d := newPair(t)
				p.killAt = n
				_, err := p.upgrade(t.Context(), d, nil)
				var stopped *Stopped
				if !errors.As(err, &stopped) {
					t.Fatal(err)
				}
				p.killAt = 0
				order, err := p.upgrade(t.Context(), d, nil)
				if n == actions-1 && p.serves == "nfs2" {
					p.serves = "nfs1"
				}
				if err != nil || !p.whole() || p.boot["nfs1"] == 0 || p.boot["nfs2"] == 0 {
					t.Errorf("%v, %v, on %s, standby %v, boots %v\n%s", order, err, p.serves, p.standby, p.boot, strings.Join(p.log, "\n"))
				}
			})
		})
	}
}

// A server whose own file system is full is not upgraded, nor its partner rebooted.
func TestFullServer(t *testing.T) {
	p, d := newPair(t)
	var f observe.Facts
	if err := json.Unmarshal(p.facts, &f); err != nil {
		t.Fatal(err)
	}
	f.Hosts["nfs2"].Host.FS["/"] = gather.FS{Size: 20 << 30, Files: 1000, FilesFree: 900}
	p.facts, _ = json.Marshal(f)
	_, err := New(d, p, Options{}).Look(t.Context(), "")
	if err == nil || !strings.Contains(err.Error(), "/ of nfs2") {
		t.Errorf("%v", err)
	}
}

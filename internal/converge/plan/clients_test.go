package plan

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/host/agent"
	"github.com/mortarhpc/mortar/internal/host/gather"
	"github.com/mortarhpc/mortar/internal/host/hosttest"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

// crowd is the nfs brick with clients c001 … c400.
func crowd(t *testing.T) *design.Design {
	t.Helper()
	b, err := os.ReadFile("../../../examples/nfs.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text, _, _ := strings.Cut(string(b), "\nclients:")
	text = strings.NewReplacer("10.77.1.0/24", "10.77.16.0/20", "10.77.1.", "10.77.31.").Replace(text)
	d := designOf(t, []byte(text+"\nclients:\n  - {name: \"c[001-400]\", address: 10.77.16.1, public: 10.77.16.1}\n"))
	d.Spec.File = filepath.Join(t.TempDir(), "brick.yaml")
	return d
}

// crowdHosts answers for the hosts of a crowd, on which one file of each is missing. Those that
// are off do not answer at all; the others go away at the op that dies has for them.
type crowdHosts struct {
	off  map[string]bool
	dies map[string]string
	mu   sync.Mutex
	done map[string]bool
}

func (f *crowdHosts) dial(_ context.Context, name string) (*host.Session, error) {
	if f.off[name] {
		return nil, &host.Error{Host: name, What: "unreachable", Err: host.ErrUnreachable}
	}
	return hosttest.Play(f.play).Session(name), nil
}

func (f *crowdHosts) play(_ context.Context, name, op string, params, result any) error {
	if f.dies[name] == op {
		return &host.Error{Host: name, What: "op " + op, Err: agent.ErrLost}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	debian := agent.Hello{OSRelease: linux.OSRelease{ID: "debian", Version: "13"}}
	switch op {
	case "hello":
		return hosttest.Answer(result, debian)
	case "diffs":
		all := agent.DiffsResult{Results: make([]agent.DiffResult, len(params.(agent.DiffsParams).Resources))}
		for i, w := range params.(agent.DiffsParams).Resources {
			if w.Kind == "sysctl" && !f.done[name] {
				all.Results[i].Actions = []resource.Action{{Title: "set", Cmd: []string{"true"}}}
			}
		}
		return hosttest.Answer(result, all)
	case string(gather.Op):
		return hosttest.Answer(result, gather.Host{Plan: gather.Plan{OSRelease: debian.OSRelease}})
	case "run":
		f.done[name] = true
		return hosttest.Answer(result, resource.Output{})
	}
	return fmt.Errorf("unknown op %s", op)
}

func namesOf[V any](m map[string]V) string { return strings.Join(slices.Sorted(maps.Keys(m)), " ") }

// Of 400 clients some are off, one goes away when its facts are read, one at the comparison and
// one in the middle of the apply. Each is left out, and everything else is done.
func TestClientsThatDoNotAnswerAreLeftOut(t *testing.T) {
	d := crowd(t)
	hosts := &crowdHosts{off: map[string]bool{}, dies: map[string]string{"c100": string(gather.Op), "c200": "diffs", "c300": "run"}, done: map[string]bool{}}
	for i := 10; i <= 400; i += 20 {
		hosts.off[fmt.Sprintf("c%03d", i)] = true
	}
	names := append(d.Servers(), d.Spec.ClientNames()...)
	start := time.Now()
	p, err := prepare(t.Context(), d, names, hosts.dial, PrepareOptions{Progress: func(string, string) {}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	want := maps.Clone(hosts.off)
	want["c100"], want["c200"] = true, true
	if namesOf(p.Plan.Left) != namesOf(want) || len(p.Hosts) != 401-22 || p.Plan.Hosts() != 401-22 {
		t.Fatalf("left out %s; %d hosts, %d of them with steps", namesOf(p.Plan.Left), len(p.Hosts), p.Plan.Hosts())
	}
	if doc := p.Plan.Doc(); strings.Join(doc.LeftOut, " ") != namesOf(want) || doc.Pending != 379 {
		t.Errorf("%d pending, left out %s", doc.Pending, doc.LeftOut)
	}
	r, err := p.Plan.Apply(t.Context(), p.Hosts, ApplyOptions{Spared: func(n string) bool { return IsClient(d, n) }})
	if err != nil || r.Changed != 378 || namesOf(r.Left) != "c300" {
		t.Errorf("%d changed, left out %s: %v", r.Changed, namesOf(r.Left), err)
	}
	t.Logf("plan and apply of 401 hosts: %v", time.Since(start))

	// Without the word of its caller an apply halts, as for a server.
	delete(hosts.done, "c300")
	if _, err := p.Plan.Apply(t.Context(), p.Hosts, ApplyOptions{}); err == nil || !errors.Is(err, agent.ErrLost) {
		t.Errorf("a host that is not spared: %v", err)
	}
}

// A server that does not answer, and a client that answers with a fault, are reasons to stop.
func TestServersAreMandatory(t *testing.T) {
	d := crowd(t)
	names := append(d.Servers(), d.Spec.ClientNames()...)
	for name, hosts := range map[string]*crowdHosts{
		"off":  {off: map[string]bool{d.Servers()[0]: true}, done: map[string]bool{}},
		"dies": {dies: map[string]string{d.Servers()[0]: "diffs"}, done: map[string]bool{}},
	} {
		p, err := prepare(t.Context(), d, names, hosts.dial, PrepareOptions{Progress: func(string, string) {}})
		if err == nil || !strings.Contains(err.Error(), d.Servers()[0]) {
			t.Errorf("%s: %v, %v", name, p, err)
		}
	}
	hosts := &crowdHosts{done: map[string]bool{}}
	wrongKey := func(ctx context.Context, name string) (*host.Session, error) {
		if name == "c007" {
			return nil, &host.Error{Host: name, What: "wrong host key", Err: host.ErrHostKey}
		}
		return hosts.dial(ctx, name)
	}
	if _, err := prepare(t.Context(), d, names, wrongKey, PrepareOptions{Progress: func(string, string) {}}); !errors.Is(err, host.ErrHostKey) {
		t.Errorf("a client with another host key: %v", err)
	}
}

// A limit connects to the servers and the hosts it names, and has the steps of these alone.
func TestLimit(t *testing.T) {
	d := crowd(t)
	names := append(d.Servers(), d.Spec.ClientNames()...)
	limit, err := d.Spec.Select([]string{"c[001-003]"})
	if err != nil {
		t.Fatal(err)
	}
	hosts := &crowdHosts{off: map[string]bool{"c002": true, "c004": true}, done: map[string]bool{}}
	p, err := prepare(t.Context(), d, names, hosts.dial, PrepareOptions{Progress: func(string, string) {}, Limit: limit})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	on := map[string]bool{}
	for _, s := range p.Plan.Steps {
		on[s.Host] = true
	}
	if namesOf(on) != "c001 c003" || namesOf(p.Plan.Left) != "c002" || len(p.Hosts) != 3 {
		t.Errorf("steps on %s, left out %s, %d hosts", namesOf(on), namesOf(p.Plan.Left), len(p.Hosts))
	}
}

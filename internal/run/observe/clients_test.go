package observe

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/host/gather"
)

// crowd is a brick with clients c001 … c400, and the facts of one of them.
func crowd(t *testing.T) (*design.Design, func(name string) *gather.Host) {
	t.Helper()
	d := designOf(t, "nfs-ha", "10.77.3.0/24", "10.77.48.0/20", "10.77.1.0/24", "10.77.16.0/20", "10.77.3.51", "10.77.48.1", "10.77.1.51", "10.77.16.1",
		"10.77.3.", "10.77.63.", "10.77.1.", "10.77.31.", "name: c1\n", "name: \"c[001-400]\"\n")
	text, err := json.Marshal(healthy(t, theDesign(t)).Hosts["c1"].Host)
	if err != nil {
		t.Fatal(err)
	}
	return d, func(name string) *gather.Host {
		var h gather.Host
		if err := json.Unmarshal([]byte(strings.ReplaceAll(string(text), "10.77.1.100:", "10.77.31.100:")), &h); err != nil {
			t.Fatal(err)
		}
		h.Hostname = name
		return &h
	}
}

// line answers at once with the facts of a host.
type line struct{ h *gather.Host }

func (l line) Call(_ context.Context, _ string, _, result any, _ func(json.RawMessage)) error {
	text, err := json.Marshal(l.h)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, result)
}

func (line) Close() {}

// Of 400 clients 22 are off. Each is a row with a warning, which is no fault, and the
// others are judged.
func TestStatusOfManyClients(t *testing.T) {
	d, facts := crowd(t)
	down := map[string]bool{"c100": true, "c200": true}
	for i := 10; i <= 400; i += 20 {
		down[fmt.Sprintf("c%03d", i)] = true
	}
	dial := func(_ context.Context, name string) (*host.Session, error) {
		if down[name] {
			return nil, &host.Error{Host: name, What: "unreachable", Err: host.ErrUnreachable}
		}
		return host.New(name, line{facts(name)}), nil
	}
	c := NewCollector(d, dial, time.Minute, d.Spec.ClientNames()...)
	defer c.Close()
	s := Judge(d, c.Collect(t.Context()))
	var silent []string
	for _, p := range s.Parts {
		p.each(func(p *Part) {
			if p.Code == ClientSilent {
				silent = append(silent, p.Subject)
			}
			if p.Level == Fault && strings.HasPrefix(p.Subject, "c") {
				t.Errorf("%s: %s", p.Name, p.Text)
			}
		})
		if p.Name == "client" && p.Text != "756 of 800 mounts answer; 22 of 400 clients do not" {
			t.Errorf("client: %s", p.Text)
		}
	}
	slices.Sort(silent)
	if len(silent) != 22 || silent[0] != "c010" || !slices.Contains(silent, "c200") {
		t.Errorf("silent: %v", silent)
	}
}

// Two clients whose NFSv4 client names are one are a fault that names both; a text of its own, of
// the module or of the network namespace, tells one of them from the other.
func TestClientsOfOneName(t *testing.T) {
	d, facts := crowd(t)
	for what, change := range map[string]struct {
		on   func(f map[string]*gather.Host)
		want string
	}{
		"all differ": {func(map[string]*gather.Host) {}, ""},
		"copies of one image": {func(f map[string]*gather.Host) { f["c002"].Hostname, f["c003"].Hostname = "node", "node" },
			`c[002-003] have one NFSv4 client name, node:`},
		"a text of its own": {func(f map[string]*gather.Host) {
			f["c002"].Hostname, f["c003"].Hostname = "node", "node"
			f["c003"].Files[uniqueID] = "5f0c\n"
		}, ""},
		"one text for both": {func(f map[string]*gather.Host) {
			f["c002"].Hostname, f["c003"].Hostname = "node", "node"
			f["c002"].Files[uniqueID], f["c003"].Files[uniqueID] = "5f0c\n", "5f0c\n"
		}, "client name, 5f0c/node:"},
		"a namespace's before the module's": {func(f map[string]*gather.Host) {
			f["c002"].Hostname, f["c003"].Hostname = "node", "node"
			f["c002"].Files[uniqueID], f["c003"].Files[uniqueID] = "5f0c\n", "5f0c\n"
			f["c002"].Files[netnsID], f["c003"].Files[netnsID] = "one\n", "(null)\n"
		}, ""},
	} {
		hosts := map[string]*gather.Host{}
		for _, n := range []string{"c001", "c002", "c003"} {
			hosts[n] = facts(n)
		}
		change.on(hosts)
		f := Facts{Time: noon, Hosts: map[string]Answer{}}
		for n, h := range hosts {
			f.Hosts[n] = Answer{Host: h, Asked: noon, Answered: noon}
		}
		got := ""
		for _, p := range Judge(d, f).Parts {
			p.each(func(p *Part) {
				if p.Code == "client-name-twice" {
					got += p.Text
				}
			})
		}
		if change.want == "" && got != "" || !strings.Contains(got, change.want) {
			t.Errorf("%s: %q", what, got)
		}
	}
}

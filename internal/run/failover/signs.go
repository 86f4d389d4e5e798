package failover

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/converge/plan"
	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/host/agent"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/run/observe"
	"github.com/mortarhpc/mortar/internal/serve/ocf"
)

// Signs are the findings about whether a server is off, before Mortar asks a
// person.
type Signs struct {
	// Life has every sign of life as text: the server answers ping or SSH, or its
	// BMC reports power.
	Life []string
	// Off has the signs that the server is off.
	Off []string
	// Unknown has the checks that failed.
	Unknown []string
}

func (s *Signs) add(life, off, unknown []string) {
	s.Life, s.Off, s.Unknown = append(s.Life, life...), append(s.Off, off...), append(s.Unknown, unknown...)
}

// lookTime bounds each query of Look.
const lookTime = 15 * time.Second

// OpTraces has a server look for another one of its pair, see ocf.Trace.
const OpTraces agent.Op[TracesParams, *ocf.Traces] = "failover.traces"

// TracesParams are the parameters of OpTraces.
type TracesParams struct {
	Node    string   `json:"node"`    // the server to look for
	Configs []string `json:"configs"` // files that describe the pair's services to the resource agent
}

// Handlers answer it.
func Handlers() agent.Mux {
	m := agent.Mux{}
	OpTraces.Answer(m, func(ctx context.Context, p TracesParams) (*ocf.Traces, error) {
		return ocf.Trace(ctx, p.Configs, p.Node)
	})
	return m
}

// tracesTime bounds OpTraces: two looks at all disks, and the time between them.
const tracesTime = 40 * time.Second

// Look looks for signs of life of a server. Its partner pings each of its addresses,
// asks for them by ARP, looks whether a server writes to the shared disks,
// and asks its BMC. Every client of the spec pings its public address, because the
// partner's own network may have failed. All of them also ping the service
// addresses that the partner does not have.
func Look(ctx context.Context, d *design.Design, f observe.Facts, hosts host.ByName, node string) Signs {
	var s Signs
	pair := d.PairWith(node)
	if pair == nil || pair.HA == nil {
		return s
	}
	if f.Hosts[node].Host != nil {
		s.Life = append(s.Life, "it answers over SSH")
	}
	partner := pair.Other(node)
	if f.Hosts[partner].Host == nil {
		s.Unknown = append(s.Unknown, "no other server answers that could ask for it")
		return s
	}
	l := looker{ctx: ctx, hosts: hosts, node: node}
	held := f.Hosts[partner].Host
	for _, svc := range pair.Services {
		if a := svc.Floating(); a != "" && !held.HasAddress(a) {
			l.services = append(l.services, a)
		}
	}
	var found []*Signs // in the order of the queries, not of the answers
	var wg sync.WaitGroup
	ask := func(look func(*Signs)) {
		part := &Signs{}
		found = append(found, part)
		wg.Go(func() { look(part) })
	}
	ask(func(s *Signs) { l.ping(s, partner, d.Spec.IPs(node)...) })
	for _, c := range d.Spec.Clients {
		ask(func(s *Signs) { l.ping(s, c.Name, d.PublicOf(node)) })
	}
	ask(func(s *Signs) { l.traces(s, partner, pair) })
	for _, lv := range pair.HA.Fencing {
		for _, dev := range lv.Devices {
			if argv := plan.PowerStatus(dev); lv.Node == node && argv != nil {
				ask(func(s *Signs) { l.power(s, partner, argv) })
			}
		}
	}
	wg.Wait()
	for _, part := range found {
		s.add(part.Life, part.Off, part.Unknown)
	}
	return s
}

// looker asks hosts about a server.
type looker struct {
	ctx      context.Context
	hosts    host.ByName
	node     string
	services []string // service addresses that no server may have if the server is off
}

func (l *looker) query(host string, argv ...string) (resource.Output, error) {
	ctx, cancel := context.WithTimeout(l.ctx, lookTime)
	defer cancel()
	return l.hosts(host).Query(ctx, argv...)
}

// ping makes a witness ping addresses of the server and the service addresses.
func (l *looker) ping(s *Signs, witness string, addresses ...string) {
	var silent, unserved []string
	for _, a := range slices.Concat(addresses, l.services) {
		service := slices.Contains(l.services, a)
		// Source: ping(8): 0 if an answer came, 1 if none did
		out, err := l.query(witness, "ping", "-n", "-q", "-c", "2", "-W", "2", a)
		switch {
		case err != nil:
			s.Unknown = append(s.Unknown, fmt.Sprintf("%s could not be asked to ping %s: %v", witness, a, err))
			return // do not ask a silent host again
		case out.Code > 1:
			s.Unknown = append(s.Unknown, fmt.Sprintf("%s could not ping %s: %s", witness, a, strings.TrimSpace(out.Stderr)))
		case out.Code == 0 && service:
			s.Life = append(s.Life, fmt.Sprintf("the service address %s answers ping from %s, and its partner does not have it", a, witness))
		case out.Code == 0:
			s.Life = append(s.Life, fmt.Sprintf("it answers ping from %s at %s", witness, a))
		case service:
			unserved = append(unserved, a)
		default:
			silent = append(silent, a)
		}
	}
	if len(silent) > 0 {
		s.Off = append(s.Off, fmt.Sprintf("%s does not answer ping from %s at %s", l.node, witness, strings.Join(silent, ", ")))
	}
	if len(unserved) > 0 {
		s.Off = append(s.Off, fmt.Sprintf("no host answers ping from %s at the service address %s", witness, strings.Join(unserved, ", ")))
	}
}

// traces makes the partner look for the server by ARP and on the shared disks.
func (l *looker) traces(s *Signs, partner string, pair *design.Pair) {
	p := TracesParams{Node: l.node}
	for i := range pair.Services {
		p.Configs = append(p.Configs, ocf.ConfigPath(pair.Services[i].Name))
	}
	ctx, cancel := context.WithTimeout(l.ctx, tracesTime)
	defer cancel()
	t, err := host.Ask(ctx, l.hosts(partner), OpTraces, p)
	if err != nil {
		s.Unknown = append(s.Unknown, fmt.Sprintf("%s could not look whether a server writes to the shared disks, nor ask by ARP: %v", partner, err))
		return
	}
	s.add(t.Life, t.Off, t.Unknown)
}

// power makes the partner ask the server's BMC.
func (l *looker) power(s *Signs, partner string, argv []string) {
	out, err := l.query(partner, argv...)
	switch {
	// Source: the fence agents' API: status is 0 for on, 2 for off
	case err == nil && out.Code == 0:
		s.Life = append(s.Life, "its BMC says that its power is on")
	case err == nil && out.Code == 2:
		s.Off = append(s.Off, fmt.Sprintf("the BMC of %s says that its power is off", l.node))
	default:
		s.Unknown = append(s.Unknown, fmt.Sprintf("the BMC of %s does not answer %s: it cannot say whether the power is off", l.node, partner))
	}
}

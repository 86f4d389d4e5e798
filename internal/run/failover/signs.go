package failover

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/build/plan"
	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/run/observe"
)

// Signs are what was found out about whether a server is off, before a person
// is asked.
type Signs struct {
	// Life is every sign of life, in words: it answers ping, SSH, or its BMC
	// says that it has power.
	Life []string
	// Off is what says that it has none.
	Off []string
	// Unknown is what could not be found out.
	Unknown []string
}

// lookTime bounds each question that Look asks of a host.
const lookTime = 15 * time.Second

// Look looks for life in a server. The witnesses are its partner, which pings
// each of its addresses and asks its BMC, and every client of the spec, which
// pings its public address: the partner's own network may be what has failed.
// All of them ping the service addresses that the partner does not have.
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
	var found []*Signs // in the order of the questions, whoever answers first
	var wg sync.WaitGroup
	ask := func(look func(*Signs)) {
		part := &Signs{}
		found = append(found, part)
		wg.Go(func() { look(part) })
	}
	for _, v := range d.Spec.Servers {
		if v.Name == node {
			ask(func(s *Signs) { l.ping(s, partner, v.Address, v.Public, v.Private) })
			for _, c := range d.Spec.Clients {
				ask(func(s *Signs) { l.ping(s, c.Name, v.Public) })
			}
		}
	}
	for _, lv := range pair.HA.Fencing {
		for _, dev := range lv.Devices {
			if argv := plan.PowerStatus(dev); lv.Node == node && argv != nil {
				ask(func(s *Signs) { l.power(s, partner, argv) })
			}
		}
	}
	wg.Wait()
	for _, part := range found {
		s.Life, s.Off, s.Unknown = append(s.Life, part.Life...), append(s.Off, part.Off...), append(s.Unknown, part.Unknown...)
	}
	return s
}

// looker asks hosts about a server.
type looker struct {
	ctx      context.Context
	hosts    host.ByName
	node     string
	services []string // service addresses that nobody should have
}

func (l *looker) query(host string, argv ...string) (resource.Output, error) {
	ctx, cancel := context.WithTimeout(l.ctx, lookTime)
	defer cancel()
	return l.hosts(host).Query(ctx, argv...)
}

// ping has a witness ping addresses of the server, and the services'.
func (l *looker) ping(s *Signs, witness string, addresses ...string) {
	var silent, unserved []string
	for _, a := range slices.Concat(addresses, l.services) {
		if a == "" {
			continue
		}
		service := slices.Contains(l.services, a)
		// Source: ping(8): 0 if an answer came, 1 if none did
		out, err := l.query(witness, "ping", "-n", "-q", "-c", "2", "-W", "2", a)
		switch {
		case err != nil:
			s.Unknown = append(s.Unknown, fmt.Sprintf("%s could not be asked to ping %s: %v", witness, a, err))
			return // a host that does not answer is not asked again
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
		s.Off = append(s.Off, fmt.Sprintf("nobody answers ping from %s at the service address %s", witness, strings.Join(unserved, ", ")))
	}
}

// power has the partner ask the server's BMC.
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

package ocf

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/mortarhpc/mortar/internal/serve/kernel"
)

// Traces are what a server finds of another server of its pair, of which a person says that
// it is off.
type Traces struct {
	Life    []string `json:"life,omitempty"`    // it lives
	Off     []string `json:"off,omitempty"`     // it shows no life
	Unknown []string `json:"unknown,omitempty"` // what could not be found out
}

const (
	// tracesTime lies between two looks at the shared disks. md clears bits of its bitmap
	// each 5 s. Source: md(4), BITMAP; mdadm(8), --delay
	tracesTime = 6 * time.Second
	arpTime    = 2 * time.Second // for an address
)

// Trace looks for another server: whether it answers ARP on the cluster's networks, which
// no filter of ICMP keeps it from, and whether the shared disks of the services, of these
// config files, change although this server does not have them.
func Trace(ctx context.Context, files []string, node string) (*Traces, error) {
	k := kernel.New()
	w, err := newWatcher(k, files, func(string, ...any) {})
	if err != nil {
		return nil, err
	}
	return trace(ctx, w.services, node)
}

func trace(ctx context.Context, services []*service, node string) (*Traces, error) {
	t := &Traces{}
	before := make([]map[string]string, len(services))
	for i, s := range services {
		if !s.up() {
			before[i] = s.storage.Marks(ctx)
		}
	}
	began := services[0].K.Now()
	askARP(ctx, services[0], t, node)
	if err := services[0].K.Sleep(ctx, tracesTime-services[0].K.Now().Sub(began)); err != nil {
		return nil, err
	}
	for i, s := range services {
		switch {
		case before[i] == nil || s.up():
			t.Unknown = append(t.Unknown, fmt.Sprintf("%s has the disks of service %s itself, and sees no other server write to them", s.Node, s.cfg.Service))
		default:
			compareMarks(s, t, before[i], s.storage.Marks(ctx))
		}
	}
	return t, nil
}

// askARP asks for the server's addresses on the networks that both have an address on.
func askARP(ctx context.Context, s *service, t *Traces, node string) {
	pairs := map[string]string{s.cfg.Nodes[node]: s.cfg.Nodes[s.Node]} // its address → this server's on that network
	own := s.cfg.Rings[s.Node]
	for i, a := range s.cfg.Rings[node] {
		if i < len(own) {
			pairs[a] = own[i]
		}
	}
	var silent []string
	for _, a := range slices.Sorted(maps.Keys(pairs)) {
		its, err := netip.ParseAddr(a)
		here, herr := netip.ParseAddr(pairs[a])
		if err != nil || herr != nil || !its.Is4() {
			continue
		}
		ifc, err := s.K.Interface(here)
		who := ""
		if err == nil {
			who, err = s.K.ProbeARP(ctx, ifc, its, arpTime)
		}
		switch {
		case err != nil:
			t.Unknown = append(t.Unknown, fmt.Sprintf("%s could not ask by ARP for %s: %v", s.Node, a, err))
		case who != "":
			t.Life = append(t.Life, fmt.Sprintf("it answers ARP from %s at %s (%s)", s.Node, a, who))
		default:
			silent = append(silent, a)
		}
	}
	if len(silent) > 0 {
		t.Off = append(t.Off, fmt.Sprintf("%s does not answer ARP from %s at %s", node, s.Node, strings.Join(silent, ", ")))
	}
}

// compareMarks says whether a service's disks have changed between two looks.
func compareMarks(s *service, t *Traces, before, after map[string]string) {
	var changed []string
	same := 0
	for _, name := range slices.Sorted(maps.Keys(before)) {
		switch was, now := before[name], after[name]; {
		case was == "" || now == "":
		case now != was:
			changed = append(changed, name)
		default:
			same++
		}
	}
	if len(before) == 0 {
		t.Unknown = append(t.Unknown, fmt.Sprintf("nothing on the disks of service %s tells whether a server writes to them", s.cfg.Service))
	}
	if missing := len(before) - same - len(changed); missing > 0 {
		t.Unknown = append(t.Unknown, fmt.Sprintf("%d of the %d shared disks of service %s could not be read twice from %s", missing, missing+same+len(changed), s.cfg.Service, s.Node))
	}
	switch {
	case len(changed) > 0:
		t.Life = append(t.Life, fmt.Sprintf("something writes to the disks of service %s, and %s does not: %s changed within %.0f s", s.cfg.Service, s.Node, strings.Join(changed, ", "), tracesTime.Seconds()))
	case same > 0:
		t.Off = append(t.Off, fmt.Sprintf("the disks of service %s have not changed for %.0f s", s.cfg.Service, tracesTime.Seconds()))
	}
}

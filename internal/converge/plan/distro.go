package plan

import (
	"errors"
	"slices"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/distro"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/converge/prepared"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

// distro is what a host's distribution calls things; without facts of the
// host, that of the default.
func (b *builder) distro(host string) distro.Distro { return distro.Nearest(b.facts.OS[host]) }

// distributions refuses hosts whose distribution has not been run, or lacks
// what the design needs.
func (b *builder) distributions() error {
	var all Refusals
	for _, h := range append(slices.Clone(b.servers), b.d.Spec.ClientNames()...) {
		os, seen := b.facts.OS[h]
		if !seen {
			continue
		}
		_, err := distro.Of(os)
		if no := (*distro.Unsupported)(nil); errors.As(err, &no) {
			all = append(all, refuse(h, "host", "distribution-unsupported", resource.With{"host": h, "error": no, "supported": distro.Supported()}))
		}
	}
	return all.orNil()
}

// fencePackages are known and those of the agents that the spec names, where each agent has a
// package of its own. Other names of fence_ipmilan are in its package.
func fencePackages(p *design.Pair, known []string) []string {
	out := slices.Clone(known)
	for _, f := range fenceDevices(p) {
		name := "fence-agents-" + strings.ReplaceAll(strings.TrimPrefix(f.Agent, "fence_"), "_", "-")
		if slices.Contains([]string{"fence_idrac", "fence_ilo3", "fence_ilo4", "fence_ilo5", "fence_imm", "fence_ipmilanplus"}, f.Agent) {
			name = "fence-agents-ipmilan"
		}
		if f.Agent != design.HedgeAgent && len(known) > 1 && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

// serverPackages are those of a server, in the order of installation.
func (b *builder) serverPackages(host string) *resource.Packages {
	d := b.distro(host).Packages
	p := &resource.Packages{Names: slices.Concat(b.storage().packages(d), b.kind().serverPackages(d), d.Bench, prepared.Firewall(b.d, host).Packages())}
	if b.pair.HA != nil {
		p.Names = slices.Concat(p.Names, d.Cluster, d.FenceTest)
		p.Fence = fencePackages(b.pair, d.FenceAgents)
	}
	if b.cached() != nil {
		for _, more := range slices.Concat(d.Cache, d.MD) { // its mirrors are md arrays
			if !slices.Contains(p.Names, more) {
				p.Names = append(p.Names, more)
			}
		}
	}
	return p
}

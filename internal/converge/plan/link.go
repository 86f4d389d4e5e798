package plan

import (
	"slices"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/serve/ocf"
)

// BinaryName is how the binary is found on a server. Pacemaker's agent is
// started by it.
const BinaryName = "/usr/local/sbin/mortar"

// binaryLinks are the steps that make BinaryName lead to the binary that
// answers on each server (host to path). Only apply changes which version runs
// there; other commands push their version beside it. Of a pair the server that
// serves less comes first; one that serves gets the binary only if it works there.
func binaryLinks(d *design.Design, facts Facts, binaries map[string]string, o PrepareOptions) []Step {
	var steps, active []Step
	for i := range d.Pairs {
		b := newBuilder(d, &d.Pairs[i], facts, nil)
		serves := map[string]int{}
		var configs []string
		for _, s := range b.services() {
			configs = append(configs, ocf.ConfigPath(s.Name))
			if p := b.placeOf(s); p.running {
				serves[p.host]++
			}
		}
		order := slices.Clone(b.servers)
		slices.SortStableFunc(order, func(x, y string) int { return serves[x] - serves[y] })
		for n, h := range order {
			s := Step{Stage: stageBinary, Title: "this version of mortar", Host: h, Resource: &resource.Binary{
				Path: BinaryName, Target: binaries[h], Build: o.Build, Configs: configs, AllowDowngrade: o.AllowDowngrade}}
			if n == 0 || serves[h] == 0 {
				steps = append(steps, s)
				continue
			}
			s.Stage = stageActiveBinary
			for _, first := range order[:n] {
				s.Guards = append(s.Guards, Step{Title: "mortar works here", Host: first, Resource: &resource.AgentWorks{Path: BinaryName, Configs: configs}})
			}
			active = append(active, s)
		}
	}
	return append(steps, active...)
}

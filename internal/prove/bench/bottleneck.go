package bench

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/mortarhpc/mortar/internal/prove/report"
)

// levers are what would move a layer: settings of the spec, or parts.
var levers = map[string]string{
	"disks":      "more or faster disks (enclosures), or SSDs in front of them (cache)",
	"raid":       "md's stripe_cache_size and group_thread_cnt, the chunk (storage.raid.chunk), or more groups (storage.raid.groups)",
	"volume":     "LVM's striping over the groups and its read-ahead (both in mortar check --explain)",
	"filesystem": "XFS's alignment and log (su, sw, logbsize in mortar check --explain), or a faster server processor",
	"network":    "a faster public network (networks.public.speed), a larger MTU, or more links",
	"nfs":        "more nfsd threads (nfs.threads), nconnect and rsize/wsize of the clients' mounts, or faster processors in server and clients",
	"osts":       "more OSTs, ldiskfs's alignment (mkfs_args in mortar check --explain), or a faster server processor",
	"lnet":       "LNet's peer credits, more clients, or a faster processor in server and clients",
	"lustre":     "stripe_count, the clients' osc settings (max_rpcs_in_flight, max_dirty_mb in lustre.params), or faster processors in server and clients",

	"nfs client":    "more clients, or nconnect and a faster link on the one there is",
	"lustre client": "more clients, or a faster link on the one there is",
}

// kindTitles name what clients mount, for people.
var kindTitles = map[string]string{"nfs": "NFS", "lustre": "Lustre"}

// Bottleneck says for each kind of load which layer bounds it and what would
// move that, in a sentence for each such layer. A layer bounds what is above it
// if the mounts reach most of it; if they stay well below all layers, the bottleneck is
// NFS or Lustre itself. Of several layers nearly as slow, the lowest is the cause.
func Bottleneck(layers []report.Layer) string {
	var found []verdict
	for _, load := range []string{loadRead, loadWrite, loadRandom} {
		v, ok := bottleneck(layers, load)
		if !ok {
			continue
		}
		if i := slices.IndexFunc(found, func(o verdict) bool { return o.what == v.what && o.lever == v.lever }); i >= 0 {
			found[i].loads = append(found[i].loads, v.loads...)
			continue
		}
		found = append(found, v)
	}
	var out []string
	for _, v := range found {
		out = append(out, fmt.Sprintf("The bottleneck of %s is %s. What would move it: %s.", strings.Join(v.loads, "; of "), v.what, v.lever))
	}
	return strings.Join(out, "\n")
}

// verdict is what bounds loads.
type verdict struct {
	what  string
	loads []string // with their figures
	lever string
}

// Shares from which on a layer counts as used up, and within which layers
// count as equally slow.
const (
	saturated   = 0.7
	equallySlow = 1.15
)

// layerChains are the layers below a mount, each from the bottom: what went through a layer
// of a chain went through those below it.
var layerChains = [][]string{{"disks", "raid", "volume", "filesystem", "osts"}, {"network", "lnet"}}

// capacityOf returns what each layer below the mounts can do with a load: the best of
// what was measured on it, on those above it in its chain, and on the mounts (top).
// A layer may have been measured at a worse moment than those above it.
func capacityOf(layers []report.Layer, load string, top float64) (names []string, can map[string]float64) {
	can = map[string]float64{}
	for _, chain := range layerChains {
		for i, n := range chain {
			if best(layers, n, load) <= 0 {
				continue
			}
			names, can[n] = append(names, n), top
			for _, from := range chain[i:] {
				can[n] = max(can[n], best(layers, from, load))
			}
		}
	}
	return names, can
}

// mountsOf returns what the mounts did with a load: of all clients together, or of the one
// there is.
func mountsOf(layers []report.Layer, load string) (kind string, top float64, many bool) {
	for _, k := range []string{"nfs", "lustre"} {
		if b := best(layers, k+"-many", load); b > 0 {
			return k, b, true
		}
		if b := best(layers, k+"-one", load); b > 0 {
			return k, b, false
		}
	}
	return "", 0, false
}

func bottleneck(layers []report.Layer, load string) (verdict, bool) {
	kind, top, many := mountsOf(layers, load)
	who := "one client gets"
	if many {
		who = "the clients together get"
	}
	unit := unitOf(load)
	title := func(n string) string {
		i := slices.IndexFunc(layers, func(l report.Layer) bool { return l.Name == n })
		return layers[i].Title
	}
	names, can := capacityOf(layers, load, top)
	if top <= 0 || len(names) == 0 {
		return verdict{}, false
	}
	slowest := slices.MinFunc(names, func(a, b string) int { return cmp.Compare(can[a], can[b]) })
	least := can[slowest]
	figure := fmt.Sprintf("%s (%s %s", load, who, report.Rate(top, unit))
	if top < saturated*least {
		v := verdict{what: kindTitles[kind] + " itself", lever: levers[kind]}
		if load == loadRead && kind == "nfs" {
			v.lever = "the clients' read-ahead (nfsrahead in mortar check --explain), " + v.lever
		}
		if !many {
			v.what, v.lever = v.what+", or this one client", v.lever+"; "+levers[kind+" client"]
		}
		v.loads = []string{fmt.Sprintf("%s, %.0f %% of the %s that the slowest layer below it can: %s)", figure, 100*top/least, report.Rate(least, unit), title(slowest))}
		return v, true
	}
	for _, n := range names {
		if b := can[n]; b <= equallySlow*least {
			return verdict{what: title(n), lever: levers[n], loads: []string{fmt.Sprintf("%s, of the %s there)", figure, report.Rate(b, unit))}}, true
		}
	}
	return verdict{}, false
}

package plan

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/lists"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/serve/ocf"
)

// cib is the <configuration> of the cluster, built offline. Ids are stable,
// so that a second build gives the same.
// Source: Pacemaker Explained, of Pacemaker 2.1 and 3.0.
func (b clusterPart) cib() (*resource.Element, error) {
	el := resource.El
	resources := el("resources")
	constraints := el("constraints")
	levels := el("fencing-topology")

	for _, s := range b.services() {
		r := b.service(s)
		if b.stock() {
			r = b.stockService(s)
		}
		resources.Add(r)
		constraints.Add(el("rsc_location", "id", "locate-"+resource.ServiceID(s.Name),
			"rsc", r.Attrs["id"], "node", s.Preferred, "score", "100"))
		if !b.stock() {
			constraints.Add(hasAttribute(resource.ServiceID(s.Name), "link", "mortar-link"))
			constraints.Add(hasAttribute(resource.ServiceID(s.Name), "storage", "mortar-storage-"+s.Name))
		}
	}
	b.kind().constraints(constraints)
	if len(b.services()) > 0 && !b.stock() {
		resources.Add(b.watch())
	}
	made := map[string]bool{}
	for _, l := range topology(b.pair.HA) {
		for _, f := range l.Devices {
			if made[f.ID] {
				continue // a PDU, in the levels of both servers
			}
			made[f.ID] = true
			r, err := b.fence(f)
			if err != nil {
				return nil, err
			}
			if len(b.services()) == 1 && f.Params["pcmk_host_list"] == b.services()[0].Preferred && !b.stock() {
				// It runs on the other server. While the service runs nowhere, this
				// decides who wins a race: two that fence each other at the same
				// moment would both stay off.
				r.Add(pairs("meta_attributes", f.ID+"-meta", map[string]string{"priority": "1"}))
			}
			resources.Add(r)
			if f.Params["pcmk_host_list"] == l.Node {
				// A server is not asked to fence itself.
				constraints.Add(el("rsc_location", "id", "locate-"+f.ID, "rsc", f.ID, "node", l.Node, "score", "-INFINITY"))
			} else if s := b.services(); len(s) == 1 && !b.stock() {
				// Watched from the passive server, a PDU's device need not move when
				// the active one is lost.
				for _, n := range b.pair.HA.Nodes {
					if n.Name != s[0].Preferred {
						constraints.Add(el("rsc_location", "id", "locate-"+f.ID, "rsc", f.ID, "node", n.Name, "score", "10"))
					}
				}
			}
			// Pacemaker fences with a device that is not started, too: started means
			// monitored. Clients need the service.
			for _, s := range b.services() {
				if b.stock() {
					break
				}
				id := resource.ServiceID(s.Name)
				constraints.Add(el("rsc_order", "id", "order-"+f.ID+"-"+id, "first", id, "then", f.ID, "kind", "Optional"))
			}
		}
		levels.Add(FencingLevel(l))
	}
	options := map[string]string{
		"stonith-enabled":  b.value("pacemaker", "stonith-enabled", "true"),
		"stonith-timeout":  b.value("pacemaker", "stonith-timeout", "60s"),
		"no-quorum-policy": b.value("pacemaker", "no-quorum-policy", "stop"),
		// Pacemaker does one thing at a time where the load average is high. nfsd
		// threads that wait for disks count in it: a takeover of a busy service
		// would be slowed down for its own clients' sake.
		"load-threshold": b.value("pacemaker", "load-threshold", "0%"),
	}
	for _, name := range []string{"priority-fencing-delay", "fence-reaction"} {
		if v := b.value("pacemaker", name, ""); v != "" {
			options[name] = v
		}
	}
	memory := map[string]string{
		"resource-stickiness": b.value("pacemaker", "resource-stickiness", "1000"),
		// A failure is forgotten after ten minutes: a fence device that was away
		// is used again, and a service may come back to where it failed.
		"failure-timeout": "600s",
	}
	if b.stock() {
		delete(options, "load-threshold")
		delete(memory, "failure-timeout")
	}
	props := pairs("cluster_property_set", "cib-bootstrap-options", options)
	defaults := pairs("meta_attributes", "mortar-rsc-defaults", memory)
	return el("configuration").Add(
		el("crm_config").Add(props),
		resources,
		constraints,
		levels,
		el("rsc_defaults").Add(defaults),
	), nil
}

// servicePriority is negative, so that priority-fencing-delay, made to save
// the server with most to lose, saves the passive one instead: the active one
// may be the one whose network or disks are gone.
const servicePriority = "-10"

// attributeScore outweighs stickiness and preference together.
const attributeScore = "10000"

// hasAttribute has a service go to a server on which an attribute, as
// ocf:mortar:watch tells it, is 1. One that has not told yet counts as well;
// and where no server is well the service stays, because none is better.
func hasAttribute(rsc, name, attribute string) *resource.Element {
	el := resource.El
	id := "locate-" + rsc + "-" + name
	return el("rsc_location", "id", id, "rsc", rsc).Add(
		el("rule", "id", id+"-rule", "score", attributeScore, "boolean-op", "or").Add(
			el("expression", "id", id+"-unknown", "attribute", attribute, "operation", "not_defined"),
			el("expression", "id", id+"-well", "attribute", attribute, "operation", "eq", "value", "1")))
}

// watchID is the resource of ocf:mortar:watch.
const watchID = "mortar-watch"

// watch is the clone of ocf:mortar:watch.
func (b clusterPart) watch() *resource.Element {
	el := resource.El
	const id = watchID
	configs := lists.Map(b.services(), func(s *design.Service) string { return ocf.ConfigPath(s.Name) })
	// By default a server whose stop fails is fenced. The watcher holds nothing
	// that another server needs. Source: Pacemaker Explained, on-fail.
	stop := op(id, "stop", "0s", "30s")
	stop.Attrs["on-fail"] = "ignore"
	return el("clone", "id", id+"-clone").Add(
		el("primitive", "id", id, "class", "ocf", "provider", "mortar", "type", "watch").Add(
			pairs("instance_attributes", id+"-params", map[string]string{"configs": strings.Join(configs, " ")}),
			el("operations").Add(op(id, "start", "0s", "30s"), stop, op(id, "monitor", "30s", "30s"))),
		pairs("meta_attributes", id+"-clone-meta", map[string]string{"interleave": "true"}))
}

// pairs is a set of nvpairs, by name.
func pairs(element, id string, values map[string]string) *resource.Element {
	set := resource.El(element, "id", id)
	for _, n := range slices.Sorted(maps.Keys(values)) {
		set.Add(resource.El("nvpair", "id", id+"-"+n, "name", n, "value", values[n]))
	}
	return set
}

func op(id, name, interval, timeout string) *resource.Element {
	return resource.El("op", "id", id+"-"+name+"-"+interval, "name", name, "interval", interval, "timeout", timeout)
}

// PowerStatus is the command that asks a node's BMC, from the other server,
// whether the node has power; nil for other devices, whose outlets say nothing
// about what is plugged in.
//
// Source: fence_ipmilan(8)
func PowerStatus(f design.FenceDevice) []string {
	if !f.BMC() {
		return nil
	}
	argv := []string{f.Agent, "--ip=" + f.Params["ip"], "--username=" + f.Params["username"],
		"--password-script=" + SecretPath(f) + ".sh", "--cipher=" + f.Params["cipher"], "--privlvl=" + f.Params["privlvl"], "--action=status"}
	if f.Params["lanplus"] == "1" {
		argv = append(argv, "--lanplus")
	}
	return argv
}

// IPMIAccess are the options of ipmitool(1) that reach a BMC from a server.
func IPMIAccess(f *design.FenceDevice) []string {
	return []string{"-H", f.Params["ip"], "-U", f.Params["username"], "-f", SecretPath(*f), "-C", f.Params["cipher"], "-L", f.Params["privlvl"]}
}

// FenceParams are all parameters of a fence device, with what reads the
// spec's secrets.
func FenceParams(f design.FenceDevice, read func(file string) ([]byte, error)) (map[string]string, error) {
	params := maps.Clone(f.Params)
	switch {
	case f.SNMP != nil:
		maps.Copy(params, snmpCommands(f))
	case f.SecretParam == "community":
		// The agent takes it no other way. The CIB's files are readable by the
		// cluster's own user only.
		s, err := secretLine(f.SecretFile, read)
		if err != nil {
			return nil, err
		}
		params[f.SecretParam] = s
	case f.SecretFile != "":
		params["password_script"] = SecretPath(f) + ".sh"
	}
	for name, file := range f.Secrets {
		if scripted(name) {
			params[name+"_script"] = secretPathOf(f, name) + ".sh"
			continue
		}
		s, err := secretLine(file, read)
		if err != nil {
			return nil, err
		}
		params[name] = s
	}
	return params, nil
}

func (b clusterPart) fence(f design.FenceDevice) (*resource.Element, error) {
	params, err := FenceParams(f, b.secrets)
	if err != nil {
		return nil, err
	}
	r := resource.El("primitive", "id", f.ID, "class", "stonith", "type", f.Agent)
	ops := resource.El("operations").Add(
		// A dead fence device is found before it is needed; more often would
		// only load a BMC. One is not dead because the server is busy: agents are
		// Python, and on a rack of thirteen emulated machines they took a minute.
		op(f.ID, "monitor", "900s", "120s"),
		op(f.ID, "start", "0s", "120s"),
	)
	return r.Add(pairs("instance_attributes", f.ID+"-params", params), ops), nil
}

func (b clusterPart) service(s *design.Service) *resource.Element {
	id := resource.ServiceID(s.Name)
	start, stop := cmp.Or(b.value("pacemaker", "start-limit", ""), b.value("pacemaker", "start-timeout", "180s")), b.value("pacemaker", "stop-timeout", "180s")
	every := b.value("pacemaker", "monitor-interval", "10s")
	deep := op(id, "monitor", "63s", "60s")
	// Writes and reads back on the volume: storage that hangs shows here.
	deep.Add(pairs("instance_attributes", id+"-monitor-63s-params", map[string]string{"OCF_CHECK_LEVEL": "10"}))
	stopOp := op(id, "stop", "0s", stop)
	stopOp.Attrs["on-fail"] = "fence" // a volume that cannot be let go of
	return resource.El("primitive", "id", id, "class", "ocf", "provider", "mortar", "type", "service").Add(
		pairs("instance_attributes", id+"-params", map[string]string{"config": ocf.ConfigPath(s.Name)}),
		resource.El("operations").Add(
			op(id, "start", "0s", start), stopOp,
			op(id, "monitor", every, "60s"), deep,
		),
		pairs("meta_attributes", id+"-meta", map[string]string{
			// One failure moves the service: the other server is more likely to be
			// well than this one after a restart.
			"migration-threshold": "1",
			// If Pacemaker finds the service on both servers, it stops the one that it did
			// not expect.
			"multiple-active": "stop_unexpected",
			// Makes the server that has the service the lesser one in a race of
			// two that fence each other: priority-fencing-delay is the other's.
			"priority": servicePriority,
		}),
	)
}

// FencingLevel is a level in the cluster's fencing topology.
func FencingLevel(l *design.FenceLevel) *resource.Element {
	return resource.El("fencing-level", "id", "fencing-"+l.Node+"-"+strconv.Itoa(l.Index),
		"target", l.Node, "index", strconv.Itoa(l.Index), "devices", strings.Join(l.IDs(), ","))
}

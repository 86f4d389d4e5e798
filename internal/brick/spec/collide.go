package spec

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// HedgeDevice names the device that runs the real fence devices of a server.
func (v *Server) HedgeDevice() string { return "fence-" + v.Name }

// BMCDevice names the fence device that is a server's BMC.
func (v *Server) BMCDevice() string { return "fence-" + v.Name + "-bmc" }

// OutletDevices names the fence device of each outlet of a server. A PDU is one
// device for all servers. A second outlet of a server on the same PDU is on
// a device of its own: fence_apc_snmp switches only the first of several.
func (v *Server) OutletDevices() []string {
	var ids []string
	used := map[string]int{}
	for _, o := range v.Outlets {
		id := "fence-pdu-" + strings.TrimPrefix(o.PDU, "pdu-")
		if used[o.PDU]++; used[o.PDU] > 1 {
			id += fmt.Sprintf("-%d", used[o.PDU])
		}
		ids = append(ids, id)
	}
	return ids
}

// taken is a resource of the cluster, and what in the spec it is named after.
type taken struct{ id, what, at string }

// parts matches what the cluster's configuration appends to the name of a resource.
// Source: internal/converge/plan/desired_cib.go; a test holds that no other ID is doubled
var parts = regexp.MustCompile(`^-(params|meta|monitor|start|stop|link|storage|clone)(-|$)`)

// collisions refuses names from which one name would be derived for two things of a
// cluster: Pacemaker takes no configuration in which an ID is there twice, and a secret
// has the name of its device.
func collisions(c *checker) {
	var all []taken
	add := func(id, what, at string) {
		for _, x := range all {
			short, long := x.id, id
			if len(short) > len(long) {
				short, long = long, short
			}
			rest, within := strings.CutPrefix(long, short)
			if within && (rest == "" || parts.MatchString(rest)) {
				c.errorf(at, "give one of them another name", "%s would have the resource %s, and %s (%s) the resource %s: their names in the cluster collide", what, id, x.what, c.at(x.at), x.id)
				return
			}
		}
		all = append(all, taken{id, what, at})
	}
	pdus := map[string]string{}
	for i, p := range c.s.PDUs {
		pdus[p.Name] = fmt.Sprintf("pdus[%d].name", i)
	}
	for i, s := range c.s.Services {
		add("service-"+s.Name, "service "+s.Name, fmt.Sprintf("services[%d].name", i))
	}
	for i := range c.s.Servers {
		v := &c.s.Servers[i]
		at := fmt.Sprintf("servers[%d].name", i)
		add(v.HedgeDevice(), "server "+v.Name, at)
		add(v.BMCDevice(), "server "+v.Name, at)
		for _, id := range v.AgentDevices() {
			add(id, "server "+v.Name, at)
		}
		for j, id := range v.OutletDevices() {
			t := taken{id, "PDU " + v.Outlets[j].PDU, pdus[v.Outlets[j].PDU]}
			if t.at != "" && !slices.Contains(all, t) { // a PDU is one device for all servers
				add(t.id, t.what, t.at)
			}
		}
	}
}

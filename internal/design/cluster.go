package design

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/mortarhpc/mortar/internal/spec"
)

// fenceDelay is how much longer it takes to fence the preferred server, so
// that of two servers that see each other no more, and fence each other,
// the one with the service wins. It adds to each takeover from it.
const fenceDelay = "2s"

// cluster is that of two servers of a spec.
func cluster(s *spec.Spec, servers []spec.Server) *HA {
	ha := &HA{Cluster: s.Name, TokenMS: s.HA.Token, Failback: s.HA.Failback}
	for i, v := range servers {
		ha.Nodes = append(ha.Nodes, Node{ID: i + 1, Name: v.Name, Rings: []string{v.Private, v.Public}})
	}
	pdus := map[string]spec.PDU{}
	for _, p := range s.PDUs {
		pdus[p.Name] = p
	}
	for _, v := range servers {
		bmc := FenceDevice{
			ID: "fence-" + v.Name + "-bmc", Agent: "fence_ipmilan",
			Params: map[string]string{
				"ip": v.BMC.Address, "username": v.BMC.User, "lanplus": "1",
				"cipher": strconv.Itoa(v.BMC.Cipher),
				// onoff: off, seen to be off, on. A power cycle is over before anybody
				// could see that the server was off.
				"method": "onoff", "power_wait": "0",
				"pcmk_host_list": v.Name, "pcmk_host_check": "static-list",
			},
			SecretParam: "password_script", SecretFile: v.BMC.PasswordFile,
			Feeds: v.Feeds,
		}
		if len(s.Services) == 1 && v.Name == s.Services[0].Server {
			// Written as a map: a plain value works, but Pacemaker 3.0 logs an
			// error for it at each fencing.
			bmc.Params["pcmk_delay_base"] = v.Name + ":" + fenceDelay
		}
		second := FenceLevel{Node: v.Name, Level: 2}
		used := map[string]bool{}
		for _, o := range v.Outlets {
			p := pdus[o.PDU]
			id := "fence-" + v.Name + "-pdu-" + strings.TrimPrefix(p.Name, "pdu-")
			if used[id] {
				id += fmt.Sprintf("-%d", o.Outlet)
			}
			used[id] = true
			second.Devices = append(second.Devices, FenceDevice{
				ID: id, Agent: "fence_apc_snmp",
				Params: map[string]string{
					"ip": p.Address, "snmp_version": "1",
					"pcmk_host_map": fmt.Sprintf("%s:%d", v.Name, o.Outlet), "pcmk_host_check": "static-list",
					"power_wait": "0",
				},
				SecretParam: "community", SecretFile: p.CommunityFile,
				Feeds: []string{p.Feed},
			})
		}
		ha.Fencing = append(ha.Fencing, FenceLevel{Node: v.Name, Level: 1, Devices: []FenceDevice{bmc}}, second)
	}
	return ha
}

package design

import (
	"fmt"
	"maps"
	"strconv"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/lists"
	"github.com/mortarhpc/mortar/internal/base/pr"
	"github.com/mortarhpc/mortar/internal/brick/spec"
)

// raceDelay delays the fencing of the server without the service. Two servers that
// have lost sight of each other both fence; the passive one wins. A dead active
// server is fenced without delay.
const raceDelay = "10s"

// tieDelay is the same between two servers that serve one service each, where
// neither is the passive one: the first is shot so much later.
const tieDelay = "2s"

// bmcTimeout is how long a BMC may take to switch a server off, to see that
// it is off, and on again: some 3 to 8 s. After it the PDUs do it.
const bmcTimeout = "12s"

// bmcAnswer is how many seconds a BMC may take to answer one command, and how
// often, a second apart, it is asked whether its server is off by now. A BMC
// that is dead costs clients no more than this.
// Source: fence_ipmilan(8), power_timeout; fencing.py, run_command
const bmcAnswer = "5"

func (d builder) cluster(servers []spec.Server) *HA {
	s := d.Spec
	ha := &HA{Cluster: s.Name, TokenMS: s.HA.Token, Failback: s.HA.Failback, FenceTestDays: s.HA.FenceTestDays}
	reserved := d.Reservable() && s.HA.Reservations == "on"
	for i, v := range servers {
		if reserved {
			if ha.Reservations == nil {
				ha.Reservations = map[string]string{}
			}
			ha.Reservations[v.Name] = pr.KeyOf(s.Name+"/"+s.ID, v.Name).String()
		}
		ha.Nodes = append(ha.Nodes, Node{ID: i + 1, Name: v.Name, Rings: []string{v.Private, v.Public}})
	}
	pdus := pduDevices(s, servers)
	for i, v := range servers {
		mine := levels(v, pdus)
		first := []map[string]string{mine[0].Devices[0].Params} // the hedge may fail on both servers
		if s.Profile != spec.Stock {
			h := hedgeLevel(v, mine)
			ha.Hedge = append(ha.Hedge, h)
			first = append(first, h.Devices[0].Params)
		}
		if len(s.Services) != 1 && i == 0 {
			for _, params := range first {
				// Written as a map: a plain value works, but Pacemaker 3.0 logs an
				// error for it at each fencing.
				params["pcmk_delay_base"] = v.Name + ":" + tieDelay
			}
		}
		ha.Fencing = append(ha.Fencing, mine...)
	}
	return ha
}

// levels are those of a server: its BMC, each agent that switches the whole server, and at
// last all that switch a feed.
func levels(v spec.Server, pdus map[string]FenceDevice) (all []FenceLevel) {
	add := func(devices ...FenceDevice) {
		n := len(all) + 1
		all = append(all, FenceLevel{Node: v.Name, Level: n, Index: n, Devices: devices})
	}
	if v.BMC != nil {
		add(bmcDevice(v))
	}
	outlets := lists.Map(v.OutletDevices(), func(id string) FenceDevice { return pdus[id] })
	for i, id := range v.AgentDevices() {
		e := v.Fencing[i]
		f := FenceDevice{ID: id, Agent: e.Agent, Params: maps.Clone(e.Options), Secrets: e.Secrets, Feeds: v.Feeds}
		if f.Params == nil {
			f.Params = map[string]string{}
		}
		// The spec names the plug, if there is one: Pacemaker gives none.
		// Source: pacemaker-fenced(7)
		f.Params["pcmk_host_list"], f.Params["pcmk_host_check"], f.Params["pcmk_host_argument"] = v.Name, "static-list", "none"
		if e.Feed == "" {
			add(f)
			continue
		}
		f.Feeds = []string{e.Feed}
		outlets = append(outlets, f)
	}
	add(outlets...)
	return all
}

func bmcDevice(v spec.Server) FenceDevice {
	return FenceDevice{
		ID: v.BMCDevice(), Agent: "fence_ipmilan",
		Params: map[string]string{
			"ip": v.BMC.Address, "username": v.BMC.User, "lanplus": "1",
			"cipher": strconv.Itoa(v.BMC.Cipher), "privlvl": v.BMC.Privilege,
			// onoff: off, seen to be off, on. A power cycle is over before anybody
			// could see that the server was off.
			"method": "onoff", "power_wait": "0",
			// Without disable_timeout=0 the agent heeds no timeout when Pacemaker calls it.
			"power_timeout": bmcAnswer, "disable_timeout": "0",
			// ipmitool asks a BMC that is dead for 20 s, Pacemaker calls the agent
			// twice, and meanwhile clients wait for the second level.
			"pcmk_reboot_timeout": bmcTimeout, "pcmk_reboot_retries": "1",
			"pcmk_host_list": v.Name, "pcmk_host_check": "static-list",
		},
		SecretParam: "password_script", SecretFile: v.BMC.PasswordFile,
		Feeds: v.Feeds,
	}
}

// HedgeAgent is Mortar's own fence agent.
const HedgeAgent = "fence_mortar"

// hedgeTimeout is how long Pacemaker lets HedgeAgent run. The agent ends its
// action after 30 s by itself.
const hedgeTimeout = "40s"

// hedgeLevel is the level before those of a server: one device that uses them all, and does not
// wait for one that is late. They stay in the topology behind it: they are proven alone,
// they fence if the hedge cannot run, and a cluster is converted by one more level.
func hedgeLevel(v spec.Server, levels []FenceLevel) FenceLevel {
	var all []string
	for i := range levels {
		levels[i].Index++
		var ids []string
		for _, f := range levels[i].Devices {
			id := f.ID
			if o := f.Outlet(v.Name); o != "" {
				id += "=" + o
			}
			ids = append(ids, id)
		}
		all = append(all, strings.Join(ids, ","))
	}
	return FenceLevel{Node: v.Name, Index: 1, Devices: []FenceDevice{{
		ID: v.HedgeDevice(), Agent: HedgeAgent, Feeds: v.Feeds,
		Params: map[string]string{
			"server": v.Name, "levels": strings.Join(all, ";"),
			"pcmk_reboot_timeout": hedgeTimeout, "pcmk_off_timeout": hedgeTimeout, "pcmk_on_timeout": hedgeTimeout,
			"pcmk_reboot_retries": "1", "pcmk_off_retries": "1",
			"pcmk_host_list": v.Name, "pcmk_host_check": "static-list",
		},
	}}}
}

// Reservable says whether LUNs and disks can be reserved for a server: if it is Mortar's agent
// that has them, and not by NVMe, whose commands the agent does not know.
func (d *Design) Reservable() bool { return d.Spec.Profile != spec.Stock && !AllNVMe(d) }

// pduDevices are the devices of the PDUs by ID, each with the outlets of all
// servers.
func pduDevices(s *spec.Spec, servers []spec.Server) map[string]FenceDevice {
	pdus := map[string]spec.PDU{}
	for _, p := range s.PDUs {
		pdus[p.Name] = p
	}
	out := map[string]FenceDevice{}
	for _, v := range servers {
		for i, id := range v.OutletDevices() {
			o := v.Outlets[i]
			p := pdus[o.PDU]
			f, ok := out[id]
			if !ok {
				f = FenceDevice{
					ID: id, Agent: "fence_apc_snmp",
					Params:      map[string]string{"ip": p.Address, "snmp_version": "1", "pcmk_host_check": "static-list", "power_wait": "0"},
					SecretParam: "community", SecretFile: p.CommunityFile,
					Feeds: []string{p.Feed},
				}
				if p.SNMP != nil {
					// authPriv: nothing that is not encrypted is sent or taken.
					f.Params["snmp_version"], f.Params["username"], f.Params["snmp_sec_level"] = "3", p.SNMP.User, "authPriv"
					f.SecretParam, f.SecretFile, f.SNMP = "", "", p.SNMP
				}
			}
			if was := f.Params["pcmk_host_map"]; was != "" {
				f.Params["pcmk_host_map"] = was + ";"
			}
			f.Params["pcmk_host_map"] += fmt.Sprintf("%s:%d", v.Name, o.Outlet)
			out[id] = f
		}
	}
	return out
}

// BMC says whether the device is the bmc of the spec, which Mortar asks by itself too.
func (f *FenceDevice) BMC() bool { return f.Agent == "fence_ipmilan" && f.SecretFile != "" }

// Outlet is the outlet of a PDU that a device switches for a server; "" for a
// device that switches none.
func (f *FenceDevice) Outlet(node string) string {
	for m := range strings.SplitSeq(f.Params["pcmk_host_map"], ";") {
		if name, outlet, ok := strings.Cut(m, ":"); ok && name == node {
			return outlet
		}
	}
	return ""
}

package spec

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// FenceAgent is a device that switches a server's power by any agent of fence-agents.
type FenceAgent struct {
	Agent   string            `yaml:"agent" json:"agent" doc:"the agent, e.g. fence_redfish; its options are listed by fence_redfish -o metadata"`
	Options map[string]string `yaml:"options,omitempty" json:"options,omitempty" doc:"options of the agent by their long names, e.g. {ip: 10.0.0.1, username: mortar}"`
	Secrets map[string]string `yaml:"secrets,omitempty" json:"secrets,omitempty" doc:"options that are secret, e.g. {password: secrets/redfish-nfs1}: each names a file, relative to the spec; mode 0600"`
	Feed    string            `yaml:"feed,omitempty" json:"feed,omitempty" doc:"of a device that switches the supply of one power feed, as an outlet of a PDU: that feed; without it the device switches the whole server, as a BMC"`
}

// noPower are agents that confirm nothing about a server's power: they cut it off from storage or
// network, wait for it, or ask a person.
// Source: the manual pages of Debian's fence-agents
var noPower = []string{"fence_ack_manual", "fence_aws_vpc_net", "fence_azure_net", "fence_brocade", "fence_cisco_mds", "fence_compute", "fence_crosslink",
	"fence_dummy", "fence_evacuate", "fence_heuristics_ping",
	"fence_ifmib", "fence_kdump", "fence_mortar", "fence_mpath", "fence_sanbox2", "fence_sbd", "fence_scsi"}

var (
	fenceAgent  = regexp.MustCompile(`^fence_[a-z0-9_]+$`)
	fenceOption = regexp.MustCompile(`^[a-z][a-z0-9_]*$`)
	// Source: the metadata of Debian's fence-agents 4.12 and 4.16
	fenceSecret = regexp.MustCompile(`passw|community|token|secret|api_?key|access_key|key_value|hexadecimal_kg|^key$`)
)

// AgentDevices names the fence device of each entry of a server's fencing.
func (v *Server) AgentDevices() []string {
	var ids []string
	used := map[string]int{}
	for _, f := range v.Fencing {
		id := "fence-" + v.Name + "-" + strings.TrimPrefix(f.Agent, "fence_")
		if used[id]++; used[id] > 1 {
			id += fmt.Sprintf("-%d", used[id])
		}
		ids = append(ids, id)
	}
	return ids
}

// Controlled says whether something switches the whole server: a BMC, or an agent without a feed.
func (v *Server) Controlled() bool {
	return v.BMC != nil || slices.ContainsFunc(v.Fencing, func(f FenceAgent) bool { return f.Feed == "" })
}

// fenceAgents checks a server's own fence devices; covered gets the feeds of those that switch one.
// Which options an agent has, its host says: see FenceAgent of internal/host/resource.
func fenceAgents(c *checker, at string, v *Server, feeds map[string]string, covered map[string]bool, devices map[string]string) {
	for i, f := range v.Fencing {
		fat := fmt.Sprintf("%s.fencing[%d]", at, i)
		device := fmt.Sprint(f.Agent, f.Options)
		if other := devices[device]; other != "" {
			c.errorf(fat, "give each its own address or plug", "%s has the same options as a device of server %s: both would switch one and the same thing", f.Agent, other)
		}
		devices[device] = v.Name
		c.refuse(!fenceAgent.MatchString(f.Agent), fat+".agent", "write the name of an agent of fence-agents, e.g. fence_redfish", "%q is no fence agent", f.Agent)
		c.refuse(slices.Contains(noPower, f.Agent), fat+".agent", "use one that switches the server's power and says whether it is off", "%s does not say that a server has no power", f.Agent)
		for _, name := range slices.Sorted(maps.Keys(f.Options)) {
			oat := fat + ".options." + name
			switch {
			case !fenceOption.MatchString(name):
				c.errorf(oat, "write it as the agent's metadata has it", "%q is no option of a fence agent", name)
			case strings.HasSuffix(name, "_script"), slices.Contains([]string{"action", "option", "nodename"}, name), strings.HasPrefix(name, "pcmk_"), strings.HasSuffix(name, "_path"):
				c.errorf(oat, "remove it", "%s is not for the spec: Mortar or the cluster gives it", name)
			case fenceSecret.MatchString(name) && !strings.HasSuffix(name, "_file"):
				c.errorf(oat, "name a file with it under secrets", "%s is a secret, which is never in the spec", name)
			case name == "method" && f.Options[name] != "onoff":
				c.errorf(oat, "use onoff", "method %s never shows that the server is off", shortened([]any{f.Options[name]})...)
			case name == "missing_as_off" && f.Options[name] != "0":
				c.errorf(oat, "remove it", "with missing_as_off a server that the device does not know counts as off")
			}
			c.refuse(strings.ContainsFunc(f.Options[name], func(r rune) bool { return r < ' ' }), oat, "write it on one line", "the value of %s has control characters", name)
		}
		for _, name := range slices.Sorted(maps.Keys(f.Secrets)) {
			sat := fat + ".secrets." + name
			c.refuse(!fenceOption.MatchString(name) || strings.HasSuffix(name, "_script"), sat, "write it as the agent's metadata has it, e.g. password", "%q is no option of a fence agent", name)
			c.secretFile(sat, f.Secrets[name])
		}
		if f.Feed != "" {
			c.refuse(!re().word.MatchString(f.Feed), fat+".feed", "name the power feed, e.g. A", "%q cannot name a power feed", f.Feed)
			oneCase(c, fat+".feed", f.Feed, feeds)
			covered[f.Feed] = true
		}
	}
}

package resource

import (
	"encoding/xml"
	"slices"
	"strings"
)

// FenceAgent is an agent of fence-agents that a host must have, with what it must be able
// to do. The agent's own metadata say what that is.
type FenceAgent struct {
	Agent   string
	Options []string // names of options
}

func (f *FenceAgent) Identity() (kind, id string) {
	return "fence-agent", f.Agent + " with " + strings.Join(f.Options, ", ")
}

// Diff refuses an option that the agent does not know, and an agent that cannot tell whether
// the power is off. While the agent is not installed, the action is the same question.
//
// Source: fence-agents, doc/FenceAgentAPI.md
func (f *FenceAgent) Diff(sys Look) ([]Action, error) {
	argv := []string{f.Agent, "-o", "metadata"}
	if _, there := sys.Info("/usr/sbin/" + f.Agent); !there {
		return []Action{{Title: "ask " + f.Agent + " for its options", Cmd: argv, Why: "the options of the spec are compared with them"}}, nil
	}
	out, err := sys.Query(sys.Ctx, argv...)
	sys.Check(err)
	return nil, f.compare(out.Stdout)
}

func (f *FenceAgent) compare(text string) error {
	var m struct {
		Parameters []struct {
			Name    string `xml:"name,attr"`
			Content struct {
				Default string `xml:"default,attr"`
			} `xml:"content"`
		} `xml:"parameters>parameter"`
		Actions []struct {
			Name string `xml:"name,attr"`
		} `xml:"actions>action"`
	}
	if err := xml.Unmarshal([]byte(text), &m); err != nil || len(m.Parameters) == 0 {
		return Refuse("fence-agent-unread", With{"agent": f.Agent, "error": err})
	}
	var names, actions []string
	for _, p := range m.Parameters {
		names = append(names, p.Name)
		if p.Name == "method" && p.Content.Default == "cycle" && !slices.Contains(f.Options, p.Name) {
			return Refuse("fence-agent-cycles", With{"agent": f.Agent})
		}
	}
	for _, a := range m.Actions {
		actions = append(actions, a.Name)
	}
	for _, o := range f.Options {
		if !slices.Contains(names, o) {
			return Refuse("fence-agent-option", With{"agent": f.Agent, "option": o, "options": names})
		}
	}
	// Agents of storage and network switches have no reboot.
	for _, a := range []string{"on", "off", "reboot", "status"} {
		if !slices.Contains(actions, a) {
			return Refuse("fence-agent-action", With{"agent": f.Agent, "action": a})
		}
	}
	return nil
}

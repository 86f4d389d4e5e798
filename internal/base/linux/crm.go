package linux

import (
	"encoding/xml"
	"fmt"
	"strings"
	"time"
)

// CRM is the XML of crm_mon(8): a cluster as one of its nodes sees it. Resources
// has those of groups too; Cloned has one for each instance of a clone.
type CRM struct {
	XMLName xml.Name
	Stack   struct {
		Daemon string `xml:"pacemakerd-state,attr"`
	} `xml:"summary>stack"`
	DC struct {
		Present bool   `xml:"present,attr"`
		Name    string `xml:"name,attr"`
		Version string `xml:"version,attr"`
		Quorum  bool   `xml:"with_quorum,attr"`
	} `xml:"summary>current_dc"`
	Options struct {
		Stonith     bool `xml:"stonith-enabled,attr"`
		Maintenance bool `xml:"maintenance-mode,attr"`
		StopAll     bool `xml:"stop-all-resources,attr"`
	} `xml:"summary>cluster_options"`
	Nodes     []CRMNode     `xml:"nodes>node"`
	Resources []CRMResource `xml:"resources>resource"`
	Grouped   []CRMResource `xml:"resources>group>resource"` // of profile stock; ParseCRM puts them with the others
	Cloned    []CRMResource `xml:"resources>clone>resource"` // one for each instance
	History   []struct {
		Node      string       `xml:"name,attr"`
		Resources []CRMHistory `xml:"resource_history"`
	} `xml:"node_history>node"`
	Failures []CRMFailure `xml:"failures>failure"`
	Fences   []CRMFence   `xml:"fence_history>fence_event"`
	Bans     []CRMBan     `xml:"bans>ban"`
	Status   struct {
		Code    int      `xml:"code,attr"`
		Message string   `xml:"message,attr"`
		Errors  []string `xml:"errors>error"`
	} `xml:"status"`
}

// CRMNode is a node of the cluster.
type CRMNode struct {
	Name        string `xml:"name,attr"`
	ID          int    `xml:"id,attr"`
	Online      bool   `xml:"online,attr"`
	Standby     bool   `xml:"standby,attr"`
	StandbyFail bool   `xml:"standby_onfail,attr"`
	Maintenance bool   `xml:"maintenance,attr"`
	Pending     bool   `xml:"pending,attr"`
	Unclean     bool   `xml:"unclean,attr"`
	Health      string `xml:"health,attr"`
	Shutdown    bool   `xml:"shutdown,attr"`
}

// CRMResource is a primitive and where it is active.
type CRMResource struct {
	ID      string  `xml:"id,attr"`
	Agent   string  `xml:"resource_agent,attr"`
	Role    string  `xml:"role,attr"`
	Active  bool    `xml:"active,attr"`
	Blocked bool    `xml:"blocked,attr"`
	Managed bool    `xml:"managed,attr"`
	Failed  bool    `xml:"failed,attr"`
	Pending string  `xml:"pending,attr"`
	Nodes   []CRMOn `xml:"node"`
}

// CRMOn is a node that a resource is active on.
type CRMOn struct {
	Name string `xml:"name,attr"`
}

// Node is where a resource is active, the first of several; "" for nowhere.
func (r *CRMResource) Node() string {
	if r == nil || len(r.Nodes) == 0 {
		return ""
	}
	return r.Nodes[0].Name
}

// NodeNames are all nodes where a resource is active.
func (r *CRMResource) NodeNames() []string {
	var names []string
	for _, n := range r.Nodes {
		names = append(names, n.Name)
	}
	return names
}

// CRMHistory is what a node has done with a resource.
type CRMHistory struct {
	ID          string `xml:"id,attr"`
	FailCount   int    `xml:"fail-count,attr"`
	LastFailure string `xml:"last-failure,attr"`
	Ops         []struct {
		Call int    `xml:"call,attr"`
		Task string `xml:"task,attr"`
		RC   int    `xml:"rc,attr"`
		When string `xml:"last-rc-change,attr"`
	} `xml:"operation_history"`
}

// Lacking are the resources whose agent a node did not have when the cluster
// looked ("not installed"). It never looks again by itself, and starts them there
// no more. crm_mon counts that among no failures.
//
// Source: Pacemaker Explained, OCF return codes, 5.
func (c *CRM) Lacking(node string) []string {
	const notInstalled = 5
	var ids []string
	for _, n := range c.History {
		for _, r := range n.Resources {
			last, rc := -1, 0
			for _, op := range r.Ops {
				if op.Call > last {
					last, rc = op.Call, op.RC
				}
			}
			if n.Node == node && rc == notInstalled {
				ids = append(ids, r.ID)
			}
		}
	}
	return ids
}

// CRMFailure is an operation that failed.
type CRMFailure struct {
	Op     string `xml:"op_key,attr"`
	Node   string `xml:"node,attr"`
	Status string `xml:"exitstatus,attr"`
	Reason string `xml:"exitreason,attr"`
	When   string `xml:"last-rc-change,attr"`
	Task   string `xml:"task,attr"`
	State  string `xml:"status,attr"`
}

// CRMFence is an entry of the fencing history.
type CRMFence struct {
	Action    string `xml:"action,attr"`
	Target    string `xml:"target,attr"`
	Origin    string `xml:"origin,attr"`
	Delegate  string `xml:"delegate,attr"`
	Status    string `xml:"status,attr"`
	Completed string `xml:"completed,attr"`
	Reason    string `xml:"exit-reason,attr"`
}

// CRMBan is a constraint that keeps a resource off a node.
type CRMBan struct {
	ID       string `xml:"id,attr"`
	Resource string `xml:"resource,attr"`
	Node     string `xml:"node,attr"`
}

// ParseCRM reads the output of crm_mon --output-as=xml, of Pacemaker 2.1 and 3.0. It
// gives an error with Pacemaker's own words where the cluster cannot be asked.
func ParseCRM(text string) (*CRM, error) {
	var c CRM
	if err := xml.Unmarshal([]byte(text), &c); err != nil {
		return nil, fmt.Errorf("crm_mon's output cannot be read: %w", err)
	}
	if c.XMLName.Local != "pacemaker-result" {
		return nil, fmt.Errorf("crm_mon: answer is <%s>, want <pacemaker-result>", c.XMLName.Local)
	}
	if c.Status.Code != 0 {
		msg := c.Status.Message
		if len(c.Status.Errors) > 0 {
			msg = strings.TrimPrefix(c.Status.Errors[0], "crm_mon: ")
		}
		return nil, fmt.Errorf("%s", msg)
	}
	c.Resources, c.Grouped = append(c.Resources, c.Grouped...), nil
	return &c, nil
}

// crmTimes are the forms Pacemaker 2.1 and 3.0 print times in. The first is
// in the host's local time and does not say so.
var crmTimes = []string{
	"Mon Jan _2 15:04:05 2006",
	"2006-01-02 15:04:05.999999Z07:00",
	"2006-01-02 15:04:05Z07:00",
	"2006-01-02 15:04:05 -07:00",
	"2006-01-02 15:04:05.999999 -07:00",
}

// ParseCRMTime reads a time that Pacemaker printed on a host whose local time is
// utcOffset seconds ahead of UTC.
func ParseCRMTime(s string, utcOffset int) (time.Time, bool) {
	for _, layout := range crmTimes {
		if t, err := time.ParseInLocation(layout, s, time.FixedZone("", utcOffset)); err == nil {
			return t, true
		}
	}
	return time.Time{}, false
}

package linux

import (
	"encoding/xml"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mortarhpc/mortar/internal/base/health"
	"github.com/mortarhpc/mortar/internal/base/lists"
)

// CRMCommand prints Pacemaker's state once, for ParseCRM.
const CRMCommand = "crm_mon --one-shot --output-as=xml"

// CRM is the XML of crm_mon(8): a cluster as one of its nodes sees it. Plans, status, metrics
// and drills all use it.
type CRM struct {
	// Resources has the primitives, those of groups too. Cloned has those of clones and
	// bundles, one for each instance.
	Resources, Cloned []CRMResource `xml:"-"`
	// Unread are elements and values that are not understood.
	Unread health.Unread `xml:"-"`

	XMLName xml.Name
	Stack   struct {
		Daemon string `xml:"pacemakerd-state,attr"`
	} `xml:"summary>stack"`
	DC      CRMCoordinator `xml:"summary>current_dc"`
	Options struct {
		Stonith     bool `xml:"stonith-enabled,attr"`
		Maintenance bool `xml:"maintenance-mode,attr"`
		StopAll     bool `xml:"stop-all-resources,attr"`
	} `xml:"summary>cluster_options"`
	Nodes   []CRMNode `xml:"nodes>node"`
	Holding crmHolder `xml:"resources"`
	History []struct {
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

// crmHolder is the element resources, or a group, clone, bundle or replica in it: what
// holds primitives. Groups are in clones too, and bundles hold replicas.
//
// Source: Pacemaker, xml/api/resources-2.24.rng, and the outputs of cts/cli
type crmHolder struct {
	XMLName   xml.Name
	ID        string        `xml:"id,attr"`
	Resources []CRMResource `xml:"resource"`
	Inner     []crmHolder   `xml:",any"`
}

// holders are the elements that hold primitives; true: each of them has instances.
var holders = map[string]bool{"group": false, "clone": true, "bundle": true, "replica": true}

// collect puts the primitives of a holder where they belong.
func (c *CRM) collect(h crmHolder, cloned bool) {
	if cloned {
		c.Cloned = append(c.Cloned, h.Resources...)
	} else {
		c.Resources = append(c.Resources, h.Resources...)
	}
	for _, inner := range h.Inner {
		instances, known := holders[inner.XMLName.Local]
		if !known {
			c.Unread.Add(fmt.Sprintf("<%s id=%q> among the resources", inner.XMLName.Local, inner.ID))
		}
		c.collect(inner, cloned || instances || !known)
	}
}

// CRMCoordinator is the designated controller (DC) of the part of the cluster that was asked.
type CRMCoordinator struct {
	Present bool   `xml:"present,attr"`
	Name    string `xml:"name,attr"`
	Quorum  bool   `xml:"with_quorum,attr"`
}

// CRMNode is a node of the cluster.
type CRMNode struct {
	Name        string `xml:"name,attr"`
	ID          string `xml:"id,attr"` // a number, or the name of a remote node
	Online      bool   `xml:"online,attr"`
	Standby     bool   `xml:"standby,attr"`
	StandbyFail bool   `xml:"standby_onfail,attr"`
	Maintenance bool   `xml:"maintenance,attr"`
	Pending     bool   `xml:"pending,attr"`
	Unclean     bool   `xml:"unclean,attr"`
	Health      string `xml:"health,attr"`
}

// Member says whether a node is a full member of the cluster; false for a nil node.
func (n *CRMNode) Member() bool { return n != nil && n.Online && !n.Pending && !n.Unclean }

// Node is what the cluster knows of a node, nil if it does not know the node. c may be nil.
func (c *CRM) Node(name string) *CRMNode {
	if c == nil {
		return nil
	}
	return lists.Find(c.Nodes, func(n *CRMNode) bool { return n.Name == name })
}

// Online says whether a node is in the cluster, perhaps not fully.
func (c *CRM) Online(name string) bool {
	n := c.Node(name)
	return n != nil && n.Online
}

// Resource finds a primitive by its ID, nil if there is none. c may be nil.
func (c *CRM) Resource(id string) *CRMResource {
	if c == nil {
		return nil
	}
	return lists.Find(c.Resources, func(r *CRMResource) bool { return r.ID == id })
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
	return lists.Map(r.Nodes, func(n CRMOn) string { return n.Name })
}

// CRMHistory is what a node has done with a resource.
type CRMHistory struct {
	ID        string `xml:"id,attr"`
	FailCount int    `xml:"fail-count,attr"`
	Ops       []struct {
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

// LeftByMove says whether a constraint has the ID that crm_resource --move and --ban give it:
// cli-prefer-RESOURCE, cli-ban-RESOURCE-on-NODE.
func LeftByMove(id string) bool { return strings.HasPrefix(id, "cli-") }

// Barred says whether a resource failed so often on a node (INFINITY) that Pacemaker does not
// start it there again.
func (c *CRM) Barred(resource, node string) bool {
	const infinity = 1000000
	for _, n := range c.History {
		if n.Node == node && slices.ContainsFunc(n.Resources, func(h CRMHistory) bool { return h.ID == resource && h.FailCount >= infinity }) {
			return true
		}
	}
	return false
}

// Started is when a resource was last started on a node. utcOffset is that of the host whose
// view this is, see ParseCRMTime.
func (c *CRM) Started(resource, node string, utcOffset int) (t time.Time, ok bool) {
	call := -1
	for _, n := range c.History {
		for _, r := range n.Resources {
			for _, op := range r.Ops {
				if n.Node != node || r.ID != resource || op.Task != "start" || op.RC != 0 || op.Call < call {
					continue
				}
				if at, known := ParseCRMTime(op.When, utcOffset); known {
					t, call = at, op.Call
				}
			}
		}
	}
	return t, call >= 0
}

func (c *CRM) Fencing() (nodes []string) {
	for _, e := range c.Fences {
		if e.Status == "pending" {
			nodes = append(nodes, e.Target)
		}
	}
	return nodes
}

// Down are the services and fence devices that the cluster should run and has not started.
func (c *CRM) Down() (ids []string) {
	for _, r := range c.Resources {
		if r.Managed && (r.Node() == "" || r.Role != "Started") {
			ids = append(ids, r.ID)
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

// Resource is what failed: the key of an operation is nfs_monitor_10000, which is resource,
// operation, interval.
func (f CRMFailure) Resource() string {
	if i := strings.LastIndexByte(f.Op, '_'); i > 0 {
		if j := strings.LastIndexByte(f.Op[:i], '_'); j > 0 {
			return f.Op[:j]
		}
	}
	return f.Op
}

// String says how it failed, and why.
func (f CRMFailure) String() string {
	s := strings.ToLower(f.Status)
	if f.Reason != "" {
		s += ": " + f.Reason
	}
	if f.State != "" && f.State != "Done" && f.State != "complete" {
		s += " (" + strings.ToLower(f.State) + ")"
	}
	return s
}

// CRMFence is an entry of the fencing history.
type CRMFence struct {
	Action    string `xml:"action,attr"`
	Target    string `xml:"target,attr"`
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

// crmFlags are the attributes that are true or false, and crmNumbers those that are
// numbers. Pacemaker writes INFINITY for a million.
var (
	crmFlags = map[string]bool{"present": true, "with_quorum": true, "stonith-enabled": true, "maintenance-mode": true, "stop-all-resources": true,
		"online": true, "standby": true, "standby_onfail": true, "maintenance": true, "pending": true, "unclean": true, "shutdown": true,
		"active": true, "blocked": true, "managed": true, "failed": true}
	crmNumbers = map[string]bool{"fail-count": true, "call": true, "rc": true, "code": true}
	// crmCounts are elements whose attributes of those names are counts, which CRM does not have.
	crmCounts = map[string]bool{"resources_configured": true, "nodes_configured": true}
)

// crmTokens are the tokens of crm_mon's XML without attributes that have another form
// than they should: one of them costs that attribute, and is counted.
type crmTokens struct {
	*xml.Decoder
	unread *health.Unread
}

// Token implements xml.TokenReader.
func (t crmTokens) Token() (xml.Token, error) {
	token, err := t.Decoder.Token()
	e, begins := token.(xml.StartElement)
	if err != nil || !begins || crmCounts[e.Name.Local] {
		return token, err
	}
	e.Attr = slices.Clone(e.Attr)
	for i, a := range e.Attr {
		if crmNumbers[a.Name.Local] && a.Value == "INFINITY" {
			e.Attr[i].Value = "1000000"
		}
	}
	e.Attr = slices.DeleteFunc(e.Attr, func(a xml.Attr) bool {
		var err error
		switch {
		case a.Name.Local == "pending" && e.Name.Local == "resource": // what is under way, in words
		case crmFlags[a.Name.Local]:
			_, err = strconv.ParseBool(a.Value)
		case crmNumbers[a.Name.Local]:
			_, err = strconv.Atoi(a.Value)
		}
		if err != nil {
			t.unread.Add(fmt.Sprintf("<%s … %s=%q>", e.Name.Local, a.Name.Local, a.Value))
		}
		return err != nil
	})
	return e, nil
}

// crmBad matches character references that XML has none for: Pacemaker 3 writes control
// characters of an agent's output so.
var crmBad = regexp.MustCompile(`(?i)&#(?:x0*(?:[0-8bcef]|1[0-9a-f])|0*(?:[0-8]|1[1245-9]|2[0-9]|3[01]));`)

// ParseCRM reads the output of crm_mon --output-as=xml, of Pacemaker 2.1 and 3.0. It
// gives an error with Pacemaker's own words where the cluster cannot be asked. Text before
// the XML does not matter.
func ParseCRM(text string) (*CRM, error) {
	var c CRM
	clean := strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' && r != '\t' && r != '\r' || r == 0xfffe || r == 0xffff {
			return '?'
		}
		return r
	}, crmBad.ReplaceAllString(strings.ToValidUTF8(health.Body(text, "<pacemaker-result"), "?"), "?"))
	if err := xml.NewTokenDecoder(crmTokens{xml.NewDecoder(strings.NewReader(clean)), &c.Unread}).Decode(&c); err != nil {
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
	c.collect(c.Holding, false)
	c.Holding = crmHolder{}
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

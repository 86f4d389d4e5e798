package linux

import (
	"encoding/xml"
	"fmt"
	"slices"
	"strings"
)

// CIBFile is where Pacemaker keeps its configuration on disk. It rewrites the
// file on every change. Reading it saves a fork of cibadmin.
const CIBFile = "/var/lib/pacemaker/cib/cib.xml"

// CIB is the cluster's configuration, as far as Mortar reads it. Its JSON
// holds no parameters of resources: those of fence devices may be secret.
type CIB struct {
	Levels      []CIBLevel    `xml:"configuration>fencing-topology>fencing-level" json:"levels,omitempty"`
	Constraints []CIBLocation `xml:"configuration>constraints>rsc_location" json:"constraints,omitempty"`
	Nodes       []CIBNode     `xml:"configuration>nodes>node" json:"nodes,omitempty"`
	// Primitives has those of groups, clones and bundles too.
	Primitives []CIBPrimitive `xml:"-" json:"-"`
	Holding    cibHolder      `xml:"configuration>resources" json:"-"`
}

// cibHolder is the element resources, or what holds primitives in it, however deep.
type cibHolder struct {
	Primitives []CIBPrimitive `xml:"primitive"`
	Inner      []cibHolder    `xml:",any"`
}

func (h cibHolder) all() []CIBPrimitive {
	out := h.Primitives
	for _, i := range h.Inner {
		out = append(out, i.all()...)
	}
	return out
}

// CIBNode is a node with its permanent attributes.
type CIBNode struct {
	Name  string    `xml:"uname,attr" json:"name"`
	Attrs []CIBPair `xml:"instance_attributes>nvpair" json:"attrs,omitempty"`
}

// CIBPair is an attribute of a node, or a parameter of a resource.
type CIBPair struct {
	Name  string `xml:"name,attr" json:"name"`
	Value string `xml:"value,attr" json:"value"`
}

// CIBLevel is a level of fencing for a node.
type CIBLevel struct {
	Target  string `xml:"target,attr" json:"target"`
	Index   int    `xml:"index,attr" json:"index"`
	Devices string `xml:"devices,attr" json:"devices"` // comma-separated
}

// CIBLocation is a location constraint.
type CIBLocation struct {
	ID       string `xml:"id,attr" json:"id"`
	Resource string `xml:"rsc,attr" json:"rsc"`
	Node     string `xml:"node,attr" json:"node"`
	Score    string `xml:"score,attr" json:"score"`
}

// CIBPrimitive is a resource.
type CIBPrimitive struct {
	ID       string    `xml:"id,attr"`
	Class    string    `xml:"class,attr"`
	Provider string    `xml:"provider,attr"`
	Type     string    `xml:"type,attr"`
	Params   []CIBPair `xml:"instance_attributes>nvpair"`
}

// Agent names the resource's agent: ocf:mortar:service, stonith:fence_ipmilan.
func (p CIBPrimitive) Agent() string {
	return strings.Join(slices.DeleteFunc([]string{p.Class, p.Provider, p.Type}, func(s string) bool { return s == "" }), ":")
}

// ParseCIB reads the cluster's configuration.
func ParseCIB(text []byte) (*CIB, error) {
	var c CIB
	if err := xml.Unmarshal(text, &c); err != nil {
		return nil, fmt.Errorf("CIB: %w", err)
	}
	c.Primitives, c.Holding = c.Holding.all(), cibHolder{}
	return &c, nil
}

// Moves are the constraints that moves have left. c may be nil.
func (c *CIB) Moves() (left []CIBLocation) {
	if c == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(c.Constraints), func(l CIBLocation) bool { return !LeftByMove(l.ID) })
}

// ReadCIB reads the cluster's configuration on disk.
func ReadCIB(read func(string) ([]byte, error)) (*CIB, error) {
	text, err := read(CIBFile)
	if err != nil {
		return nil, err
	}
	c, err := ParseCIB(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", CIBFile, err)
	}
	return c, nil
}

// Attr is an attribute of a node, "" if it is not set. c may be nil.
func (c *CIB) Attr(node, name string) string {
	if c == nil {
		return ""
	}
	for _, n := range c.Nodes {
		for _, a := range n.Attrs {
			if n.Name == node && a.Name == name {
				return a.Value
			}
		}
	}
	return ""
}

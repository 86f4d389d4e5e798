package fault

import (
	"slices"
	"strconv"

	"github.com/mortarhpc/mortar/internal/base/lists"
	"github.com/mortarhpc/mortar/internal/prove/kind"
)

// What the parts of a schedule stand for.
const (
	OnActive  = "active"
	OnPassive = "passive"
	MoveArg   = "service" // stands for the service's name
	DiskArg   = "disk "   // with a number: stands for a member of the RAID group
	SSDArg    = "ssd "    // with a number: stands for an SSD of the cache
)

var eitherServer = []string{OnActive, OnPassive}

func noArguments(Scene) [][]string { return [][]string{nil} }

func words(ws ...string) func(Scene) [][]string {
	out := lists.Map(ws, func(w string) []string { return []string{w} })
	return func(Scene) [][]string { return out }
}

// killable are the daemons of the kind of service, and those of the cluster.
func killable(s Scene) [][]string {
	return lists.Map(append(slices.Clone(kind.Of(s.Design).Is().Daemons), OfCluster...), func(name string) []string { return []string{name} })
}

// ofLustre is for faults without arguments that only a Lustre brick has.
func ofLustre(s Scene) [][]string {
	if kind.Of(s.Design).LNet(s.Design) == "" {
		return nil
	}
	return noArguments(s)
}

func pdus(s Scene) (out [][]string) {
	for _, p := range s.Design.Spec.PDUs {
		out = append(out, []string{p.Name})
	}
	return out
}

// ofStorage returns the arguments of a fault that the kind of storage has.
func ofStorage(k Kind) func(Scene) [][]string {
	return func(s Scene) [][]string { return s.Storage().Parts()[k] }
}

// members are the disks of the RAID group, by number: Draw does not know yet which
// disks are in the group.
func (s Scene) members() [][]string { return numbered(DiskArg, len(s.Members)) }

// ssds are the SSDs of the cache, by number.
func (s Scene) ssds() [][]string {
	if s.Service.Storage.Cache == nil {
		return nil
	}
	return numbered(SSDArg, len(s.Service.Storage.Cache.SSDs))
}

func numbered(prefix string, n int) (out [][]string) {
	for i := range n {
		out = append(out, []string{prefix + strconv.Itoa(i)})
	}
	return out
}

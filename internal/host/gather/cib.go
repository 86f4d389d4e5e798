package gather

import (
	"slices"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/linux"
)

// ownAttribute is the prefix of the names of Mortar's attributes.
const ownAttribute = "mortar-"

// onlyOwn removes all attributes of nodes except Mortar's, which hold no secrets.
func onlyOwn(c *linux.CIB) *linux.CIB {
	for i := range c.Nodes {
		c.Nodes[i].Attrs = slices.DeleteFunc(c.Nodes[i].Attrs, func(a linux.CIBPair) bool { return !strings.HasPrefix(a.Name, ownAttribute) })
	}
	return c
}

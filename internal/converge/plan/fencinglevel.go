package plan

import (
	"strconv"
	"strings"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

// FencingLevel is a level in the cluster's fencing topology.
func FencingLevel(l *design.FenceLevel) *resource.Element {
	return resource.El("fencing-level", "id", "fencing-"+l.Node+"-"+strconv.Itoa(l.Level),
		"target", l.Node, "index", strconv.Itoa(l.Level), "devices", strings.Join(l.IDs(), ","))
}

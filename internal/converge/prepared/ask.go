package prepared

import (
	"cmp"
	"context"
	"slices"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/host/gather"
)

// Ask asks the servers how they are set up below the brick. It returns what no step of a plan
// mends, by host.
func Ask(ctx context.Context, d *design.Design, hosts map[string]*host.Session) (map[string][]Finding, error) {
	got, failed := host.All(ctx, d.Servers(), func(ctx context.Context, name string) ([]Finding, error) {
		h, err := host.Ask(ctx, hosts[name], gather.Op, Request(d, name))
		return slices.DeleteFunc(Judge(d, name, &h), func(f Finding) bool { return f.ByApply }), err
	})
	return got, cmp.Or(ctx.Err(), failed.Join())
}

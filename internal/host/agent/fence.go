package agent

import (
	"context"

	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/serve/fence"
)

// FenceStatus asks a fence agent for the state of what its parameters name: an
// outlet, or the power of a server. The exit code is 0 for on, 2 for off.
func FenceStatus(ctx context.Context, name string, params map[string]string) (resource.Output, error) {
	c, err := fence.Command(name, "status", params)
	if err != nil {
		return resource.Output{Code: -1}, err
	}
	return query(ctx, c)
}

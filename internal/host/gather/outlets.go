package gather

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/host/agent"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/serve/fence"
)

// OutletAsk names an outlet: the fence device that switches it, and the outlet's
// number on that device.
type OutletAsk struct {
	Device string `json:"device"`
	Port   string `json:"port"`
}

// Outlet is a PDU's answer about an outlet.
type Outlet struct {
	OutletAsk
	On       bool   `json:"on"`
	Err      string `json:"err,omitempty"` // why the state is unknown
	TimedOut bool   `json:"timed_out,omitempty"`
}

// askOutlets queries the state of outlets with the parameters and the secret that
// Pacemaker uses for fencing.
func askOutlets(ctx context.Context, sys resource.Sys, asks []OutletAsk, timeout time.Duration) []Outlet {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no answer within %v", timeout))
	defer cancel()
	cib, cibErr := linux.ReadCIB(sys.ReadFile)
	out := make([]Outlet, len(asks))
	var wg sync.WaitGroup
	for i, a := range asks {
		out[i].OutletAsk = a
		wg.Go(func() {
			on, err := false, cibErr
			if err == nil {
				on, err = outletOn(ctx, cib, a)
			}
			out[i].On = on
			if err != nil {
				out[i].Err, out[i].TimedOut = err.Error(), ctx.Err() != nil
			}
		})
	}
	wg.Wait()
	return out
}

func outletOn(ctx context.Context, cib *linux.CIB, a OutletAsk) (bool, error) {
	name, params, err := fence.Params(cib, a.Device)
	if err != nil {
		return false, err
	}
	if a.Port != "" { // else the device has one, or switches the whole server
		params["port"] = a.Port
	}
	out, err := agent.FenceStatus(ctx, name, params)
	switch {
	case ctx.Err() != nil:
		return false, context.Cause(ctx)
	case err != nil:
		return false, err
	case out.Code == 0 || out.Code == 2:
		return out.Code == 0, nil
	}
	return false, errors.New(fence.Said(out.Stderr, out.Code, params))
}

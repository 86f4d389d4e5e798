package gather

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/host/agent"
	"github.com/mortarhpc/mortar/internal/host/resource"
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
	cib, cibErr := sys.ReadFile(linux.CIBFile)
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

func outletOn(ctx context.Context, cib []byte, a OutletAsk) (bool, error) {
	name, params, err := fenceParams(cib, a.Device)
	if err != nil {
		return false, err
	}
	params["port"] = a.Port
	out, err := agent.FenceStatus(ctx, name, params)
	switch {
	case ctx.Err() != nil:
		return false, context.Cause(ctx)
	case err != nil:
		return false, err
	case out.Code == 0 || out.Code == 2:
		return out.Code == 0, nil
	}
	return false, errors.New(fenceError(out, params))
}

// fenceParams finds a fence device in the cluster's configuration.
func fenceParams(cib []byte, id string) (name string, params map[string]string, err error) {
	c, err := linux.ParseCIB(cib)
	if err != nil {
		return "", nil, fmt.Errorf("%s: %w", linux.CIBFile, err)
	}
	for _, p := range c.Primitives {
		if p.ID != id || p.Class != "stonith" {
			continue
		}
		params = map[string]string{}
		for _, a := range p.Params {
			params[a.Name] = a.Value
		}
		return p.Type, params, nil
	}
	return "", nil, fmt.Errorf("fence device %s is not in the cluster's configuration", id)
}

// fenceError is the first error that a fence agent reports, without parameters that
// may be secret.
func fenceError(out resource.Output, params map[string]string) string {
	text := strings.Join(strings.Fields(out.Stderr), " ")
	for line := range strings.Lines(out.Stderr) {
		if _, said, ok := strings.Cut(line, "ERROR: "); ok {
			text = strings.TrimSpace(said)
			break
		}
	}
	for _, secret := range []string{"community", "password", "passwd", "snmp_priv_passwd"} {
		if v := params[secret]; v != "" {
			text = strings.ReplaceAll(text, v, "…")
		}
	}
	if text == "" {
		text = fmt.Sprintf("exit code %d", out.Code)
	}
	return text
}

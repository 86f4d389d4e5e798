package agent

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/command"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

// FenceStatus asks a fence agent for the state of what its parameters name: an
// outlet, or the power of a server. The exit code is 0 for on, 2 for off. The
// parameters go to its standard input: a secret among its arguments could be
// read by every user of the host.
//
// Source: fence-agents, lib/fencing.py, process_input and main
func FenceStatus(ctx context.Context, name string, params map[string]string) (resource.Output, error) {
	stdin, err := FenceInput("status", params)
	if err == nil && (!strings.HasPrefix(name, "fence_") || strings.Contains(name, "/")) {
		err = fmt.Errorf("%q is no fence agent", name)
	}
	if err != nil {
		return resource.Output{Code: -1}, err
	}
	return query(ctx, command.Cmd{Argv: []string{name}, Stdin: stdin})
}

// FenceInput is what a fence agent reads: one parameter in a line, without
// those that are for Pacemaker.
func FenceInput(action string, params map[string]string) ([]byte, error) {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(params)) {
		value := params[name]
		switch {
		case strings.HasPrefix(name, "pcmk_"):
			continue
		case name == "action" || name == "option" || strings.ContainsAny(name+value, "\n\r"):
			return nil, fmt.Errorf("parameter %s of a fence device cannot be passed to its agent", name)
		}
		fmt.Fprintf(&b, "%s=%s\n", name, value)
	}
	fmt.Fprintf(&b, "action=%s\n", action)
	return []byte(b.String()), nil
}

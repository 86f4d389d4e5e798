// Package hosttest plays hosts in tests of what calls them.
package hosttest

import (
	"context"
	"encoding/json"

	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

// Play answers the calls of sessions with hosts in place of their agents. It
// gets what agent.Client.Call does.
type Play func(ctx context.Context, host, op string, params, result any) error

// Session is the one with a host.
func (p Play) Session(name string) *host.Session { return host.New(name, line{p, name}) }

// Answer puts v into result, by way of JSON as over a real session.
func Answer(result, v any) error {
	b, err := json.Marshal(v)
	if err != nil || result == nil {
		return err
	}
	return json.Unmarshal(b, result)
}

type line struct {
	play Play
	name string
}

func (l line) Call(ctx context.Context, op string, params, result any, _ func(json.RawMessage)) error {
	MustRead(params)
	return l.play(ctx, l.name, op, params, result)
}

// MustRead panics for a call with a command that a real agent refuses, since it is not known
// to only read. An error could be one that the code under test expects of a host.
func MustRead(params any) {
	b, err := json.Marshal(params)
	if err != nil {
		panic(err)
	}
	var asks struct {
		Argv []string   `json:"argv"` // of a query
		Run  [][]string `json:"run"`  // of observe.gather
	}
	if json.Unmarshal(b, &asks) != nil {
		return // parameters of another shape have no commands
	}
	if asks.Argv != nil {
		asks.Run = append(asks.Run, asks.Argv)
	}
	for _, argv := range asks.Run {
		if err := resource.ReadOnly(argv); err != nil {
			panic(err)
		}
	}
}

func (line) Close() {}

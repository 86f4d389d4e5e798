// Package hosttest plays hosts in tests of what calls them.
package hosttest

import (
	"context"
	"encoding/json"

	"github.com/mortarhpc/mortar/internal/host"
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
	return l.play(ctx, l.name, op, params, result)
}

func (line) Close() {}

package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/strictjson"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/host/resource/storage"
)

// The core ops. Programs call them by the methods of host.Session.
const (
	OpHello    Op[None, Hello]                                   = "hello"
	OpTime     Op[None, TimeResult]                              = "time"
	OpHardware Op[None, storage.Hardware]                        = "hardware"
	OpQuery    Op[QueryParams, resource.Output]                  = "query"
	OpRead     Op[ReadParams, ReadResult]                        = "read"
	OpDiffs    Stream[DiffsParams, DiffsEvent, DiffsResult]      = "diffs"
	OpFollow   Stream[QueryParams, FollowEvent, resource.Output] = "follow"
	// OpRun is the only one that changes the host; host.Session.Run is the only
	// one that calls it.
	OpRun Stream[RunParams, RunEvent, resource.Output] = "run"
)

// OpGather is the name of the op by which a host is looked at: package gather answers it.
const OpGather = "observe.gather"

// WatchCore are the core ops of an agent that may only watch: who the host is, its
// clock, and its journal.
func WatchCore() Mux {
	core := Core("")
	m := Mux{}
	for _, op := range []string{string(OpHello), string(OpTime)} {
		m[op] = core[op]
	}
	OpQuery.Answer(m, func(ctx context.Context, p QueryParams) (resource.Output, error) {
		if err := journalOnly(p.Argv); err != nil {
			return resource.Output{}, err
		}
		return HostSys{}.Query(ctx, p.Argv...)
	})
	follow := core[string(OpFollow)]
	m[string(OpFollow)] = func(ctx context.Context, raw json.RawMessage, emit func(any)) (any, error) {
		var p QueryParams
		if err := strictjson.Decode(raw, &p); err != nil {
			return nil, &Error{Message: string(OpFollow) + ": parameters: " + err.Error()}
		}
		if err := journalOnly(p.Argv); err != nil {
			return nil, err
		}
		return follow(ctx, raw, emit)
	}
	for op := range core {
		if m[op] == nil {
			m[op] = func(context.Context, json.RawMessage, func(any)) (any, error) {
				return nil, &Error{Message: fmt.Sprintf("this key may only watch, and %q is more than that: log in with another one", op)}
			}
		}
	}
	return m
}

// journalOnly refuses a command that reads anything but the journal.
func journalOnly(argv []string) error {
	if len(argv) > 0 && argv[0] == "journalctl" || slices.Equal(argv, []string{"ls", "-d", "/var/log/journal"}) {
		return nil // what is allowed of journalctl, ReadOnly knows
	}
	return resource.Refuse("watch-only-command", resource.With{"command": strings.Join(argv, " ")})
}

// Acts says that an op carries out an action. It must not be sent twice.
func Acts(op string) bool { return op == string(OpRun) }

// Op is the name of an op, with the types of its parameters and its result:
// both ends take them from here.
type Op[P, R any] string

// Stream is an Op that emits events before its result.
type Stream[P, E, R any] string

// None are the parameters of an op that has none, and the result of one that
// answers nothing.
type None struct{}

// Answer has m answer the op by f.
func (o Op[P, R]) Answer(m Mux, f func(context.Context, P) (R, error)) {
	Stream[P, None, R](o).Answer(m, func(ctx context.Context, p P, _ func(None)) (R, error) { return f(ctx, p) })
}

// Answer has m answer the op by f.
func (o Stream[P, E, R]) Answer(m Mux, f func(context.Context, P, func(E)) (R, error)) {
	m[string(o)] = func(ctx context.Context, raw json.RawMessage, emit func(any)) (any, error) {
		var p P
		if _, none := any(p).(None); !none {
			if err := strictjson.Decode(raw, &p); err != nil {
				return nil, &Error{Message: string(o) + ": parameters: " + err.Error()}
			}
		}
		return f(ctx, p, func(e E) { emit(e) })
	}
}

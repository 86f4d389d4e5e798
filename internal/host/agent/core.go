package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/mortarhpc/mortar/internal/base/command"
	"github.com/mortarhpc/mortar/internal/host/claim"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/host/resource/storage"
)

// WireResource is a resource on its way to a host.
type WireResource struct {
	Kind     string          `json:"kind"`
	Resource json.RawMessage `json:"resource"`
}

// Wire makes a resource ready for the wire.
func Wire(r resource.Resource) (WireResource, error) {
	raw, err := json.Marshal(r)
	return WireResource{Kind: resource.KindOf(r), Resource: raw}, err
}

// DiffResult is what one resource would change. Before has the present content of each file
// that a (not secret) action would write, so that a plan can show what
// changes in it.
type DiffResult struct {
	Actions []resource.Action `json:"actions,omitempty"`
	Before  map[string][]byte `json:"before,omitempty"`
	Error   *Error            `json:"error,omitempty"`
}

// DiffsParams asks for many diffs in one request: a round trip to a slow
// host costs more than most diffs.
type DiffsParams struct {
	Resources []WireResource `json:"resources"`
}

// DiffsEvent tells which resource is compared next, by its index.
type DiffsEvent struct {
	Comparing int `json:"comparing"`
}

// DiffsResult has one result for each resource, in order.
type DiffsResult struct {
	Results []DiffResult `json:"results"`
}

// RunParams is an action to be run.
type RunParams struct {
	Action resource.Action `json:"action"`
	// Permitted are the serial numbers of the disks that the user allows to
	// be wiped. The agent refuses an action that destroys any other.
	Permitted []string `json:"permitted,omitempty"`
	// By says who has it done and by which command, for the host's log.
	By string `json:"by,omitempty"`
}

// RunEvent tells that an action has to wait for that of another session.
type RunEvent struct {
	Waiting bool `json:"waiting"`
}

// QueryParams is a command that only reads.
type QueryParams struct {
	Argv []string `json:"argv"`
}

// FollowEvent is one line of a followed command's stdout.
type FollowEvent struct {
	Line string `json:"line"`
	TNS  int64  `json:"t_ns"` // wall clock when it was read, ns since 1970
}

// ReadParams names a file.
type ReadParams struct {
	Path string `json:"path"`
}

// ReadResult is a file's content.
type ReadResult struct {
	Content []byte `json:"content"`
}

// TimeResult is the host's wall clock.
type TimeResult struct {
	NowNS int64 `json:"now_ns"`
}

// beforeLimit is the size, in bytes, of the largest file shown in a plan.
const beforeLimit = 256 << 10

// NewCore returns the core ops, with these kinds of resources. Only run changes the host. It
// is shared by all sessions of a process. holder is that of their commands; see claim.Claim.
func NewCore(sys HostSys, kinds []resource.Resource, holder string) Mux {
	r := &runner{lock: &hostLock{path: lockPath}, log: journal, sys: sys, holder: holder, brick: claim.File()}
	m := Mux{}
	OpHello.Answer(m, func(context.Context, None) (Hello, error) { return sys.Hello() })
	OpHardware.Answer(m, func(ctx context.Context, _ None) (storage.Hardware, error) {
		return storage.ObserveHardware(ctx, sys)
	})
	OpTime.Answer(m, func(context.Context, None) (TimeResult, error) { return TimeResult{time.Now().UnixNano()}, nil })
	OpDiffs.Answer(m, func(ctx context.Context, p DiffsParams, emit func(DiffsEvent)) (DiffsResult, error) {
		var all DiffsResult
		once := &resource.Once{Sys: sys}
		for i, w := range p.Resources {
			if err := ctx.Err(); err != nil {
				return all, err
			}
			emit(DiffsEvent{i})
			all.Results = append(all.Results, diff(ctx, once, kinds, w))
		}
		return all, nil
	})
	OpRun.Answer(m, r.run)
	OpQuery.Answer(m, func(ctx context.Context, p QueryParams) (resource.Output, error) { return sys.Query(ctx, p.Argv...) })
	OpFollow.Answer(m, follow)
	OpRead.Answer(m, func(_ context.Context, p ReadParams) (ReadResult, error) {
		b, err := sys.ReadFile(p.Path)
		return ReadResult{b}, err
	})
	return m
}

func diff(ctx context.Context, sys resource.Sys, kinds []resource.Resource, w WireResource) (res DiffResult) {
	defer func() {
		// One resource that panics must not take the others' diffs with it.
		if p := recover(); p != nil {
			res = DiffResult{Error: &Error{Message: fmt.Sprintf("diff of %s: panic: %v", w.Kind, p)}}
		}
	}()
	r, err := resource.Decode(kinds, w.Kind, w.Resource)
	if err != nil {
		return DiffResult{Error: ToError(err)}
	}
	actions, err := resource.Diff(ctx, sys, r)
	if err != nil {
		return DiffResult{Error: ToError(err)}
	}
	res.Actions = actions
	for _, a := range actions {
		if a.File == nil || a.Secret || a.File.Mkdir {
			continue
		}
		b, err := sys.ReadFile(a.File.Path)
		if err != nil || len(b) > beforeLimit {
			continue // new, no plain file, or too long to show
		}
		if res.Before == nil {
			res.Before = map[string][]byte{}
		}
		res.Before[a.File.Path] = b
	}
	return res
}

// follow runs a command and sends each line it prints as it comes, until it
// ends or the request is cancelled.
func follow(ctx context.Context, p QueryParams, emit func(FollowEvent)) (out resource.Output, err error) {
	if err := resource.ReadOnly(p.Argv); err != nil {
		return out, err
	}
	res, err := command.Cmd{Argv: p.Argv, Limit: actionOutput}.Lines(ctx, func(line string) {
		emit(FollowEvent{Line: line, TNS: time.Now().UnixNano()})
	})
	return resource.Output(res), err
}

// Core returns the core ops on this host, with every kind of resource.
func Core(holder string) Mux {
	return NewCore(HostSys{}, slices.Concat(resource.Kinds, storage.Kinds), holder)
}

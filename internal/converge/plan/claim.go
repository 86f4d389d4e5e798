package plan

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/google/renameio/v2"
	"github.com/rogpeppe/go-internal/diff"

	"github.com/mortarhpc/mortar/internal/base/flock"
	"github.com/mortarhpc/mortar/internal/base/lists"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/host/claim"
	"github.com/mortarhpc/mortar/internal/host/gather"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

// ErrLocked says that another command of this machine changes the brick.
var ErrLocked = errors.New("another mortar command is changing this brick")

// Lock keeps other commands of this machine from changing the brick of a spec until release
// is called, or the process ends. Claim does the same for all machines.
func Lock(s *spec.Spec) (release func(), err error) {
	p := host.LockFile(s)
	if err := os.MkdirAll(filepath.Dir(p), 0o700); err != nil {
		return nil, fmt.Errorf("%w; what belongs to the brick is kept beside the spec: put the spec where you may write", err)
	}
	f, err := os.OpenFile(p, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if ok, err := flock.Try(f); !ok {
		_ = f.Close()
		return nil, cmp.Or(err, fmt.Errorf("%w (%s); wait for it to end", ErrLocked, p))
	}
	if fi, err := f.Stat(); err != nil || fi.Size() > 0 {
		return func() { _ = f.Close() }, err
	}
	// By its content hosts know the commands of this directory: see host.LockFile.
	if _, err := f.WriteString(rand.Text() + "\n"); err != nil {
		_ = f.Close()
		return nil, err
	}
	return func() { _ = f.Close() }, nil
}

// claimTime bounds what is done on all servers to claim a brick, or to give it back. One
// that does not answer is left out: the command itself says what it needs of it.
const claimTime = 15 * time.Second

// Claim keeps commands of all machines from changing the brick of a spec until release is
// called. A claim outlives a command that is killed: other commands of this machine take it
// over, those of other machines are refused. The error names the server and the holder if
// another machine has the brick.
func Claim(ctx context.Context, s *spec.Spec, opts host.Options) (release func(), err error) {
	targets, err := host.Inventory(s)
	if err != nil {
		return nil, err
	}
	unlock, err := Lock(s)
	if err != nil {
		return nil, err
	}
	mine, err := host.Holder(host.LockFile(s))
	if err != nil {
		unlock()
		return nil, err
	}
	opts.Timeout = claimTime
	hosts, _ := host.All(ctx, serverNames(s), func(ctx context.Context, n string) (*host.Session, error) { return host.Connect(ctx, targets[n], opts) })
	var taken []string
	release = func() {
		defer unlock()
		defer host.CloseAll(hosts)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*claimTime)
		defer cancel()
		_ = host.Each(ctx, taken, func(ctx context.Context, n string) error {
			err := change(ctx, hosts[n], mine, "give", nil)
			if err == nil {
				return nil
			}
			h, err := host.Connect(ctx, targets[n], opts) // it was rebooted meanwhile
			if err != nil {
				return err
			}
			defer h.Close()
			return change(ctx, h, mine, "give", nil)
		})
	}
	// In one order, so that of two machines that come at once one gets all servers.
	for _, n := range serverNames(s) {
		if hosts[n] == nil {
			continue
		}
		if err := change(ctx, hosts[n], mine, "take", claim.Claim{By: host.By(), Since: time.Now()}); err != nil {
			release()
			return nil, fmt.Errorf("%s: %w", n, err)
		}
		taken = append(taken, n)
	}
	return release, nil
}

// Unlock gives back what a command of another machine has claimed, if by names it. It returns
// what it ended, by server; nothing, if no machine claims the brick.
func Unlock(ctx context.Context, s *spec.Spec, opts host.Options, by string) (ended map[string]claim.Claim, err error) {
	targets, err := host.Inventory(s)
	if err != nil {
		return nil, err
	}
	ended = map[string]claim.Claim{}
	for _, n := range serverNames(s) {
		h, err := host.Connect(ctx, targets[n], opts)
		if err != nil {
			return ended, err
		}
		f, err := host.Ask(ctx, h, gather.Op, gather.Request{Plan: true})
		h.Close()
		if err != nil {
			return ended, err
		}
		c := f.Plan.Brick.Claim
		if c == nil {
			continue
		}
		if person(c.By) != by {
			return ended, resource.Refuse("claim-held", resource.With{"server": n, "claim": c, "holder": person(c.By)})
		}
		t := targets[n]
		t.Holder = c.Holder
		if h, err = host.Connect(ctx, t, opts); err != nil {
			return ended, err
		}
		err = change(ctx, h, c.Holder, "give", nil)
		h.Close()
		if err != nil {
			return ended, fmt.Errorf("%s: %w", n, err)
		}
		ended[n] = *c
	}
	return ended, nil
}

// person is who holds a claim, without the command.
func person(by string) string {
	who, _, _ := bytes.Cut([]byte(by), []byte(" ("))
	return string(who)
}

// change has a server do a request of claim.Change.
func change(ctx context.Context, h *host.Session, holder, what string, v any) error {
	hello, err := h.Hello(ctx)
	if err != nil {
		return err
	}
	a := resource.Action{Title: what + " the claim of the brick", Cmd: []string{hello.Binary, "host-brick", what, "--holder", holder}}
	if v != nil {
		if a.Stdin, err = json.Marshal(v); err != nil {
			return err
		}
	}
	_, err = h.Run(ctx, a)
	return err
}

func serverNames(s *spec.Spec) []string {
	all := lists.Map(s.Servers, func(v spec.Server) string { return v.Name })
	return slices.Sorted(slices.Values(all))
}

// known is what this machine knows of the specs of a brick.
type known struct {
	Generation int    `json:"generation"`
	Source     []byte `json:"source"`
}

func knownFile(s *spec.Spec) string { return filepath.Join(StateDir(s), "applied.json") }

func readKnown(s *spec.Spec) (k known, err error) {
	b, err := os.ReadFile(knownFile(s))
	if errors.Is(err, fs.ErrNotExist) {
		return k, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &k)
	}
	return k, err
}

// descends refuses a spec that was not made from the one applied last: it would undo what
// another administrator has done. onto is the generation whose difference a person accepts.
func descends(s *spec.Spec, applied *claim.Applied, onto int) error {
	if applied == nil || bytes.Equal(applied.Source, s.Source) || onto == applied.Generation {
		return nil
	}
	k, err := readKnown(s)
	if err != nil {
		return err
	}
	// A number that is higher here: the servers were restored from an earlier time.
	if k.Generation > applied.Generation || k.Generation == applied.Generation && bytes.Equal(k.Source, applied.Source) {
		return nil
	}
	return resource.Refuse("spec-not-descended", resource.With{
		"file": s.File, "generation": applied.Generation, "by": applied.By, "at": applied.At.Local().Format(time.DateTime),
		"diff": resource.Named{Words: string(diff.Diff("the brick's spec", applied.Source, s.File, s.Source))},
	})
}

// Record writes on the servers which spec is applied, or was: begin, before the first change,
// and done, after the last. It writes nothing that is there already.
func (p *Prepared) Record(ctx context.Context, s *spec.Spec, done bool) error {
	k, err := readKnown(s)
	if err != nil {
		return err
	}
	now := claim.Applied{Generation: k.Generation + 1, Source: s.Source, By: host.By(), At: time.Now(), Done: done}
	if a := p.Applied; a != nil {
		now.Generation = a.Generation + 1
		if bytes.Equal(a.Source, s.Source) {
			now.Generation, now.Done = a.Generation, a.Done || done
		}
	}
	b, err := json.Marshal(known{now.Generation, now.Source})
	if err == nil {
		err = renameio.WriteFile(knownFile(s), b, 0o600) // first: a record that is cut short is this machine's
	}
	if err != nil || p.Applied != nil && now.Generation == p.Applied.Generation && now.Done == p.Applied.Done {
		return err
	}
	mine, err := host.Holder(host.LockFile(s))
	if err != nil {
		return err
	}
	err = host.Each(ctx, serverNames(s), func(ctx context.Context, n string) error { return change(ctx, p.Hosts[n], mine, "record", now) })
	if err == nil {
		p.Applied = &now
	}
	return err
}

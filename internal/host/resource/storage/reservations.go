package storage

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/mortarhpc/mortar/internal/base/lists"
	"github.com/mortarhpc/mortar/internal/base/pr"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

// Reservations are the LUNs, or the disks, of a brick on a server: no other host has registered
// with one, or reserved it. A host that has uses it, whatever is on it. A disk that knows no
// reservations, or does not answer, is no reason to refuse: the resource agent goes without.
type Reservations struct {
	Host string
	LUNs []DiskRef
	Keys []string `json:",omitempty"` // of the brick's own servers
}

func (r *Reservations) Identity() (kind, id string) { return "reservations", r.Host }

// Diff refuses, or has nothing to do: the resource agent reserves.
func (r *Reservations) Diff(sys resource.Look) ([]resource.Action, error) {
	fs := resolve(sys, r.LUNs)
	var own []pr.Key
	for _, text := range r.Keys {
		k, err := pr.ParseKey(text)
		if err != nil {
			return nil, err
		}
		own = append(own, k)
	}
	ctx, cancel := context.WithTimeout(sys.Ctx, diskTime)
	defer cancel()
	var side errgroup.Group
	side.SetLimit(askedAtOnce)
	errs := make([]error, len(fs))
	for i, f := range fs {
		side.Go(func() error { errs[i] = r.mine(ctx, sys, f, own); return nil })
	}
	_ = side.Wait()
	for _, err := range errs {
		sys.Check(err)
	}
	return nil, nil
}

// askedAtOnce is how many disks are asked side by side, because each may hang: all of the largest
// brick.
const askedAtOnce = 256

// diskTime is how long disks may take to answer: that of serve/kernel, AskLimit.
const diskTime = 10 * time.Second

// mine asks a disk as long as ctx lasts; a LUN has as long as the comparison.
func (r *Reservations) mine(ctx context.Context, sys resource.Look, f foundDisk, own []pr.Key) error {
	var errs []error
	if f.Ref.LUN != "" {
		ctx = sys.Ctx
	}
	for _, p := range f.Paths {
		st, err := sys.Reservation(ctx, p)
		if errors.Is(err, pr.ErrPath) {
			errs = append(errs, err)
			continue
		}
		if err != nil && (len(own) == 0 || f.Ref.LUN == "") {
			return nil // there can be none
		}
		if err != nil {
			return resource.Refuse("disk-no-reservations", resource.With{"disk": f.Ref.named(), "error": err})
		}
		keys := lists.Map(st.Others(own...), pr.Key.String)
		if len(keys) == 0 {
			return nil
		}
		slices.Sort(keys)
		return resource.Refuse("disk-reserved", resource.With{"disk": f.Ref.named(), "keys": keys, "mend": pr.Mend("/dev/" + strings.TrimPrefix(p, "/dev/"))})
	}
	if f.Ref.LUN == "" {
		return nil // it may hang
	}
	return errors.Join(errs...)
}

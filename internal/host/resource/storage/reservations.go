package storage

import (
	"errors"
	"slices"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/pr"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

// Reservations are the LUNs of a brick on a server: no other host has registered
// with one, or reserved it. A host that has uses the LUN, whatever is on it.
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
	for _, f := range fs {
		sys.Check(r.mine(sys, f, own))
	}
	return nil, nil
}

func (r *Reservations) mine(sys resource.Look, f found, own []pr.Key) error {
	var errs []error
	for _, p := range f.Paths {
		st, err := sys.Reservation(sys.Ctx, p)
		if errors.Is(err, pr.ErrPath) {
			errs = append(errs, err)
			continue
		}
		if err != nil && len(own) == 0 {
			return nil // there can be none
		}
		if err != nil {
			return resource.Refuse("see that the array's firmware allows persistent reservations for these hosts", "%s: %v", f.Ref, err)
		}
		var keys []string
		for _, k := range st.Others(own...) {
			keys = append(keys, k.String())
		}
		if len(keys) == 0 {
			return nil
		}
		slices.Sort(keys)
		return resource.Refuse("see that the array presents it to the servers of this brick only. "+pr.Mend("/dev/"+strings.TrimPrefix(p, "/dev/")),
			"%s: another host uses it: the reservation keys %s are registered, of no server of this brick", f.Ref, strings.Join(keys, ", "))
	}
	return errors.Join(errs...)
}

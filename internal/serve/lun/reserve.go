package lun

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/mortarhpc/mortar/internal/base/lists"
	"github.com/mortarhpc/mortar/internal/base/pr"
	"github.com/mortarhpc/mortar/internal/serve/kernel"
	"github.com/mortarhpc/mortar/internal/serve/refusal"
	"github.com/mortarhpc/mortar/internal/serve/unit"
)

// ErrForgot says that a LUN alone has forgotten the reservation: it is another LUN by now,
// or its array has lost a part of its state.
var ErrForgot = errors.New("it alone has forgotten its reservation")

// reservedLUNs keep every server but one from writing to the LUNs of a service: SCSI-3
// persistent reservations. docs/reservations.md has the reasons.
type reservedLUNs struct {
	*Kind
	keys pr.Servers
}

// claim is a LUN as this server reserves it.
type claim struct {
	LUN
	pr.Claim
}

// look asks all LUNs, at once: one whose paths have just died answers late.
func (r *reservedLUNs) look() []*claim {
	all := make([]*claim, len(r.cfg.LUNs))
	var wg sync.WaitGroup
	for i, l := range r.cfg.LUNs {
		all[i] = &claim{LUN: l}
		wg.Go(func() { r.readClaim(all[i]) })
	}
	wg.Wait()
	return all
}

// readClaim asks over the first path that answers.
func (r *reservedLUNs) readClaim(c *claim) {
	if r.findPaths(c); c.Err == nil {
		_ = c.Read()
	}
}

// findPaths finds the paths of a LUN that work.
func (r *reservedLUNs) findPaths(c *claim) {
	c.Claim = pr.Claim{What: "LUN " + c.Name, Device: "/dev/mapper/" + c.Name, Node: r.Node, Servers: r.keys, Note: r.Log.Note}
	dev, gone, err := r.find(c.LUN)
	if c.Err = errors.Join(err, gone); c.Err != nil {
		return
	}
	for _, p := range r.PathsOf(dev) {
		c.Claim.Paths = append(c.Claim.Paths, r.K.Path(p))
	}
}

// Holder is the server that the LUNs are reserved for; "" for none. Of LUNs
// that several have it is another server than this one.
func (r *reservedLUNs) Holder() (string, error) {
	holder, seen := "", false
	for _, c := range r.look() {
		if c.Err != nil {
			continue
		}
		if by := c.By(); !seen || by != r.Node {
			holder = by
		}
		seen = true
	}
	if !seen {
		return "", errors.New("no LUN answers who it is reserved for")
	}
	return holder, nil
}

// Take reserves all LUNs for this server, whichever server of the cluster has
// them: a partner that wakes up later can write no more. It refuses, before
// it changes anything, if a stranger is registered.
func (r *reservedLUNs) Take(ctx context.Context) error {
	all := r.look()
	for _, c := range all {
		if c.Err != nil {
			return refusal.Because("reservations", c.Err)
		}
		if err := c.Ours(); err != nil {
			return refusal.Because(refusal.Stranger, err)
		}
	}
	for _, c := range all {
		if err := c.Take(); err != nil {
			return err
		}
	}
	r.tellMultipath(ctx)
	return r.note(wwidsOf(all))
}

// reservedNote is there while this server has all LUNs reserved for the service, and has their
// WWIDs. Without it the service was started by a configuration without reservations.
func (r *reservedLUNs) reservedNote() unit.Note { return r.RunNote("reserved", "") }

// noted are the WWIDs of the LUNs that this server has reserved. A LUN by which the service
// has grown since is not among them.
func (r *reservedLUNs) noted() []string {
	text, _ := r.reservedNote().Read()
	return strings.Fields(text)
}

// note writes them down if that is not done.
func (r *reservedLUNs) note(wwids []string) error {
	slices.Sort(wwids)
	if wwids = slices.Compact(wwids); r.reservedNote().There() && slices.Equal(wwids, r.noted()) {
		return nil
	}
	return r.reservedNote().Write(strings.Join(wwids, "\n") + "\n")
}

func wwidsOf(claims []*claim) []string {
	return lists.Map(claims, func(c *claim) string { return c.WWID })
}

// forgotten looks for LUNs that have forgotten their reservation. An array that was off has
// forgotten those of all its LUNs: they are taken off the note before the first is
// reserved again, so that a monitor that is cut short leaves nothing that looks like a LUN
// which alone forgot. One alone is refused.
func (r *reservedLUNs) forgotten(all []*claim) error {
	was := r.noted()
	knew := func(c *claim) bool { return c.Err == nil && slices.Contains(was, c.WWID) }
	left := was
	for _, c := range all {
		if !knew(c) || !c.Blank() {
			continue
		}
		same := func(o *claim) bool { return o == c || o.beside(c.LUN) }
		together := true
		for _, o := range all {
			if !same(o) || !knew(o) {
				continue
			}
			together = together && o.Blank()
			if o.Count(o.Own()) > 0 {
				return fmt.Errorf("LUN %s (WWID %s): %w, and LUN %s of array %s has not: it is another LUN by now, or the array has lost a part of its state. See what the array says of it before the service starts again", c.Name, c.WWID, ErrForgot, o.Name, c.Array)
			}
		}
		left = slices.DeleteFunc(slices.Clone(left), func(w string) bool {
			return together && slices.ContainsFunc(all, func(o *claim) bool { return same(o) && o.WWID == w })
		})
	}
	if len(left) == len(was) {
		return nil
	}
	return r.note(left)
}

// tellMultipath has multipathd register each path that comes back. It finds out
// by itself, but only when a path is new to it.
func (r *reservedLUNs) tellMultipath(ctx context.Context) {
	for _, l := range r.cfg.LUNs {
		r.Log.NoteErr(r.K.Start(kernel.Command{Argv: []string{"multipathd", "setprstatus", "map", l.Name}}), "")
	}
}

// Keep looks after the reservation of LUNs that are in use here, and gives
// their holder. It reserves the LUNs of an array again if all of them have
// forgotten it, and registers a path that is not. It fails with pr.ErrTaken if this
// server has lost the LUNs, and with ErrForgot if one alone has forgotten.
func (r *reservedLUNs) Keep(ctx context.Context) (string, error) {
	// A LUN that does not answer is no reason to move the service: its I/O waits
	// as long as the design says. Nor is it anybody else's.
	all := r.look()
	if err := r.forgotten(all); err != nil {
		return r.Node, err
	}
	kept, there := r.noted(), r.reservedNote().There()
	was := func(c *claim) bool { return c.Err == nil && slices.Contains(kept, c.WWID) }
	held := slices.ContainsFunc(all, func(c *claim) bool { return was(c) && c.Holder == c.Own() })
	for _, c := range all {
		if c.Err != nil {
			continue
		}
		// By one that is not noted the service has grown, as long as this server holds another.
		if err := c.Keep(!there || held && !was(c)); err != nil {
			return c.By(), err
		}
		kept = append(kept, c.WWID)
	}
	return r.Node, r.note(kept)
}

// Alone asks all LUNs.
func (r *reservedLUNs) Alone(context.Context) bool {
	return !slices.ContainsFunc(r.look(), func(c *claim) bool { return c.Err != nil || !c.Whole() })
}

// Reserved are WWIDs.
func (r *reservedLUNs) Reserved() []string { return r.noted() }

func (r *reservedLUNs) Claim(wwid string) *pr.Claim {
	i := slices.IndexFunc(r.cfg.LUNs, func(l LUN) bool { return l.WWID == wwid })
	if i < 0 {
		return nil
	}
	c := &claim{LUN: r.cfg.LUNs[i]}
	r.findPaths(c)
	return &c.Claim
}

// Give gives up what this server has; what others have stays.
func (r *reservedLUNs) Give(context.Context) error {
	var errs []error
	for _, c := range r.look() {
		switch {
		case c.Err != nil:
			// Nothing of the service runs here any more, and a host that takes the LUN
			// does not ask for it.
			r.Log.Note("the reservation stays: %v", c.Err)
		case c.Count(c.Own()) > 0:
			errs = append(errs, c.Give())
		}
	}
	return errors.Join(append(errs, r.reservedNote().Remove())...)
}

func (s *Kind) reserveState() (unit.State, error) {
	switch holder, err := s.Reserve.Holder(); {
	case err != nil:
		return unit.Running, nil // the holder is not known; Keep says the same
	case holder == "" && s.Queues() > 0 && !s.Reachable():
		// An array that was off returns LUN by LUN, without reservations. Keep makes
		// them again when every LUN has a path.
		return unit.Running, nil
	case holder != s.Node:
		return unit.Stopped, nil
	}
	return unit.Running, nil
}

// Marks are the registrations: a server that lives changes them when a path comes back, or
// when its LUNs are taken.
func (s *Kind) Marks(ctx context.Context) map[string]string {
	all := map[string]string{}
	if s.Reserve == nil {
		return all
	}
	r := s.Reserve
	claims := make(chan *claim, len(s.cfg.LUNs))
	for _, l := range s.cfg.LUNs {
		all["LUN "+l.Name] = ""
		go func() {
			c := &claim{LUN: l}
			r.readClaim(c)
			claims <- c
		}()
	}
	limited, cancel := context.WithTimeout(ctx, kernel.AskLimit)
	defer cancel()
	for range all {
		select {
		case c := <-claims:
			if c.Err == nil {
				all["LUN "+c.LUN.Name] = fmt.Sprintf("%d %v", c.Generation, c.State)
			}
		case <-limited.Done():
			return all
		}
	}
	return all
}

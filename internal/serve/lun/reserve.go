package lun

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/mortarhpc/mortar/internal/base/pr"
	"github.com/mortarhpc/mortar/internal/serve/kernel"
	"github.com/mortarhpc/mortar/internal/serve/unit"
)

// ErrTaken says that the LUNs were taken from this server while it used them.
var ErrTaken = errors.New("the reservation of this server was taken away")

// ErrForgot says that a LUN alone has forgotten the reservation: it is another LUN by now,
// or its array has lost a part of its state.
var ErrForgot = errors.New("it alone has forgotten its reservation")

// reservedLUNs keep every server but one from writing to the LUNs of a service: SCSI-3
// persistent reservations. docs/reservations.md has the reasons.
type reservedLUNs struct {
	*Kind
	keys map[string]pr.Key // of each server
}

// newReservedLUNs is nil if a key cannot be read, which Config.check refuses.
func newReservedLUNs(l *Kind) *reservedLUNs {
	r := &reservedLUNs{l, map[string]pr.Key{}}
	for node, text := range l.cfg.Reservations {
		r.keys[node], _ = pr.ParseKey(text)
	}
	return r
}

func (r *reservedLUNs) own() pr.Key { return r.keys[r.Node] }

// node is the server of a key; a stranger's is "key 0x…", and 0 is "".
func (r *reservedLUNs) node(k pr.Key) string {
	if k == 0 {
		return ""
	}
	for n, key := range r.keys {
		if key == k {
			return n
		}
	}
	return "key " + k.String()
}

// claim is a LUN, the paths that it answers over, and what it says.
type claim struct {
	LUN
	paths []pr.Path
	pr.State
	err error // why no path answers
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

// readClaim finds the paths of a LUN that work, and asks over the first that answers.
func (r *reservedLUNs) readClaim(c *claim) {
	dev, gone, err := r.find(c.LUN)
	if c.err = errors.Join(err, gone); c.err != nil {
		return
	}
	slaves, _ := r.K.ReadDir("/sys/block/" + dev + "/slaves")
	for _, p := range slaves {
		if r.HasPath(p) {
			c.paths = append(c.paths, r.K.Path("/dev/"+p))
		}
	}
	c.err = c.read()
}

// read asks a LUN again.
func (c *claim) read() error {
	errs := []error{fmt.Errorf("LUN %s: no path answers", c.Name)}
	for _, p := range c.paths {
		st, err := p.Read()
		if err == nil {
			c.State = st
			return nil
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// register registers every path that works. One that fails is no matter: the
// kernel uses it no more, and multipathd registers it before it does again.
func (r *reservedLUNs) register(c *claim) error {
	done := 0
	for _, p := range c.paths {
		switch err := p.Register(r.own()); {
		case err == nil:
			done++
		case errors.Is(err, pr.ErrPath):
			r.Log.Note("LUN %s: %v", c.Name, err)
		default:
			return fmt.Errorf("LUN %s: %w", c.Name, err)
		}
	}
	if done == 0 {
		return fmt.Errorf("LUN %s: no path could be registered", c.Name)
	}
	return c.read()
}

// over does a command over the first path that takes it.
func (c *claim) over(do func(pr.Path) error) error {
	var errs []error
	for _, p := range c.paths {
		err := do(p)
		if err == nil {
			return nil
		}
		errs = append(errs, err)
		if !errors.Is(err, pr.ErrPath) {
			break
		}
	}
	return fmt.Errorf("LUN %s: %w", c.Name, errors.Join(errs...))
}

// ousts takes the registrations of the cluster's other servers away, and the
// reservation with them.
func (r *reservedLUNs) ousts(c *claim) error {
	for _, k := range c.Others(r.own()) {
		if r.strange(k) {
			continue
		}
		r.Log.Note("LUN %s: taking it from %s", c.Name, r.node(k))
		if err := c.over(func(p pr.Path) error { return p.Preempt(r.own(), k) }); err != nil {
			return err
		}
	}
	return nil
}

func (r *reservedLUNs) strange(k pr.Key) bool { return r.cfg.Reservations[r.node(k)] == "" }

// Holder is the server that the LUNs are reserved for; "" for none. Of LUNs
// that several have it is another server than this one.
func (r *reservedLUNs) Holder() (string, error) {
	holder, seen := "", false
	for _, c := range r.look() {
		if c.err != nil {
			continue
		}
		if by := r.node(c.Holder); !seen || by != r.Node {
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
		if c.err != nil {
			return unit.Refuse(c.err)
		}
		if err := r.ours(c); err != nil {
			return unit.Refuse(err)
		}
	}
	for _, c := range all {
		if err := r.take(c); err != nil {
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
	var out []string
	for _, c := range claims {
		out = append(out, c.WWID)
	}
	return out
}

// blank says whether a LUN has no key, and none was registered since its array was
// switched on.
func (c *claim) blank() bool { return c.err == nil && len(c.Keys) == 0 && c.Generation == 0 }

// forgotten looks for LUNs that have forgotten their reservation. An array that was off has
// forgotten those of all its LUNs: they are taken off the note before the first is
// reserved again, so that a monitor that is cut short leaves nothing that looks like a LUN
// which alone forgot. One alone is refused.
func (r *reservedLUNs) forgotten(all []*claim) error {
	was := r.noted()
	knew := func(c *claim) bool { return c.err == nil && slices.Contains(was, c.WWID) }
	left := was
	for _, c := range all {
		if !knew(c) || !c.blank() {
			continue
		}
		same := func(o *claim) bool { return o == c || o.beside(c.LUN) }
		together := true
		for _, o := range all {
			if !same(o) || !knew(o) {
				continue
			}
			together = together && o.blank()
			if o.Count(r.own()) > 0 {
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

// ours refuses a LUN that a stranger uses.
func (r *reservedLUNs) ours(c *claim) error {
	var strangers []string
	for _, k := range c.Others() {
		if r.strange(k) {
			strangers = append(strangers, k.String())
		}
	}
	what := ""
	switch {
	case len(strangers) > 0:
		what = fmt.Sprintf("keys of no server of this cluster are registered: %s", strings.Join(strangers, ", "))
	case c.Holder != 0 && c.Type != pr.WriteExclusiveRegistrantsOnly:
		what = fmt.Sprintf("it has a reservation of type %d, which is not Mortar's", c.Type)
	default:
		return nil
	}
	return fmt.Errorf("LUN %s (WWID %s): %s: another host uses it; see that the array presents it to the servers of this cluster only. %s", c.Name, c.WWID, what, pr.Mend("/dev/mapper/"+c.Name))
}

// take reserves one LUN. If another host takes it meanwhile, a command fails.
func (r *reservedLUNs) take(c *claim) error {
	if err := r.register(c); err != nil {
		return err
	}
	if err := r.ousts(c); err != nil {
		return err
	}
	if err := c.read(); err != nil {
		return err
	}
	if c.Holder == 0 {
		if err := c.over(func(p pr.Path) error { return p.Reserve(r.own()) }); err != nil {
			return err
		}
		if err := c.read(); err != nil {
			return err
		}
	}
	if c.Holder != r.own() || c.Count(r.own()) == 0 || len(c.Others(r.own())) > 0 {
		return fmt.Errorf("LUN %s: %s holds it although this server took it; registered are %v", c.Name, r.node(c.Holder), c.Keys)
	}
	return nil
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
// forgotten it, and registers a path that is not. It fails with ErrTaken if this
// server has lost the LUNs, and with ErrForgot if one alone has forgotten.
func (r *reservedLUNs) Keep(ctx context.Context) (string, error) {
	// A LUN that does not answer is no reason to move the service: its I/O waits
	// as long as the design says. Nor is it anybody else's.
	all := r.look()
	if err := r.forgotten(all); err != nil {
		return r.Node, err
	}
	kept := r.noted()
	for _, c := range all {
		if c.err != nil {
			continue
		}
		if err := r.keep(c); err != nil {
			return r.node(c.Holder), err
		}
		kept = append(kept, c.WWID)
	}
	return r.Node, r.note(kept)
}

// keep looks after one LUN that is in use here.
func (r *reservedLUNs) keep(c *claim) error {
	switch {
	case c.Holder == r.own():
	case c.Holder != 0:
		return fmt.Errorf("LUN %s: %w: %s holds it", c.Name, ErrTaken, r.node(c.Holder))
	case c.Count(r.own()) > 0:
		// A host that takes the LUN takes the registration away first: none has.
	case c.blank() || len(c.Keys) == 0 && !r.reservedNote().There():
		// The array was switched off and has forgotten all, and no host has
		// registered since. A partner that had taken the LUN before that has the
		// volume group, which was looked at before this. Or the service never had a
		// reservation.
		r.Log.Note("LUN %s has no reservation: reserving it", c.Name)
	default:
		return fmt.Errorf("LUN %s: %w: no server holds it", c.Name, ErrTaken)
	}
	if c.Holder == r.own() && c.Count(r.own()) >= len(c.paths) && len(c.Others(r.own())) == 0 {
		return nil
	}
	if c.Count(r.own()) < len(c.paths) {
		r.Log.Note("LUN %s: %d of %d paths are registered: registering all", c.Name, c.Count(r.own()), len(c.paths))
		if err := r.register(c); err != nil {
			return err
		}
	}
	if c.Holder == 0 {
		err := c.over(func(p pr.Path) error { return p.Reserve(r.own()) })
		if err != nil && !errors.Is(err, pr.ErrConflict) {
			return err
		}
		if err := c.read(); err != nil {
			return err
		}
	}
	if c.Holder != r.own() {
		// Another host took it between the look and the registration, which may not
		// stay: a registered path can write.
		for _, p := range c.paths {
			_ = p.Unregister()
		}
		return fmt.Errorf("LUN %s: %w: %s holds it", c.Name, ErrTaken, r.node(c.Holder))
	}
	// A partner that multipathd has registered again at the moment of the take-over.
	return r.ousts(c)
}

// Give gives up what this server has; what others have stays.
func (r *reservedLUNs) Give(context.Context) error {
	var errs []error
	for _, c := range r.look() {
		switch {
		case c.err != nil:
			// Nothing of the service runs here any more, and a host that takes the LUN
			// does not ask for it.
			r.Log.Note("the reservation stays: %v", c.err)
		case c.Count(r.own()) > 0:
			errs = append(errs, r.give(c))
		}
	}
	return errors.Join(append(errs, r.reservedNote().Remove())...)
}

// give takes all registrations of this server away over one path, which has to
// hold the reservation for that: the path that does may be dead.
func (r *reservedLUNs) give(c *claim) error {
	return c.over(func(p pr.Path) error {
		if err := p.Register(r.own()); err != nil {
			return err
		}
		if err := p.Preempt(r.own(), r.own()); err != nil {
			return err
		}
		return p.Unregister()
	})
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
			if c.err == nil {
				all["LUN "+c.LUN.Name] = fmt.Sprintf("%d %v", c.Generation, c.State)
			}
		case <-limited.Done():
			return all
		}
	}
	return all
}

func (c *LUNStorage) checkReservations(group bool, nodes map[string]string, f *unit.Faults) {
	if !group && len(c.Reservations) == 0 {
		f.Add("luns without a volume group need \"reservations\": nothing else keeps the partner from writing to them")
	}
	var seen []string
	for n, text := range c.Reservations {
		if _, err := pr.ParseKey(text); err != nil {
			f.Add("reservations.%s: %w", n, err)
		}
		if _, ok := nodes[n]; !ok || slices.Contains(seen, text) {
			f.Add("reservations.%s %s: each of nodes needs a key of its own", n, text)
		}
		seen = append(seen, text)
	}
	if len(c.Reservations) > 0 && len(c.Reservations) != len(nodes) {
		f.Add("reservations has %d keys: each of nodes needs a key of its own", len(c.Reservations))
	}
}

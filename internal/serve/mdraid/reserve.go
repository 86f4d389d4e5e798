package mdraid

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/mortarhpc/mortar/internal/base/lists"
	"github.com/mortarhpc/mortar/internal/base/pr"
	"github.com/mortarhpc/mortar/internal/serve/kernel"
	"github.com/mortarhpc/mortar/internal/serve/refusal"
	"github.com/mortarhpc/mortar/internal/serve/unit"
)

// reservedDisks keep every server but one from writing to the disks of a service. A disk may
// hang, so a process speaks with all of them, side by side, and is given up after
// kernel.AskLimit. docs/reservations.md has the reasons.
type reservedDisks struct {
	*disks
	keys pr.Servers
	// seen are the disks that this start has spoken with, by their names in the config: why a
	// start goes without one, nil: it does not.
	seen map[string]error
}

func (s *Kind) ReserveWith(keys pr.Servers) { s.Reserve = &reservedDisks{disks: s.disks, keys: keys} }

// readLimit is how long a monitor waits for disks: the next one asks again.
const readLimit = 3 * time.Second

// part reserves before the first superblock is read, and gives up after the arrays have stopped.
// Keep looks after the reservation meanwhile.
func (r *reservedDisks) part() unit.Part {
	return unit.Part{Name: "reservations", State: func() (unit.State, error) { return unit.Running, nil }, Shared: true,
		Start: func(ctx context.Context) error { r.seen = nil; return r.take(ctx) }, Stop: r.Give}
}

func (s *disks) members() []string {
	all := lists.Flat(s.Cfg.Arrays, func(a Array) []string { return a.Members })
	slices.Sort(all)
	return slices.Compact(all)
}

// asked is a disk and how an order about it went.
type asked struct {
	*pr.Claim
	name string
	err  error
}

// order has all disks do something that have a path. never are those that this server has not
// reserved yet.
func (r *reservedDisks) order(ctx context.Context, do string, names []string, never bool) (out []asked) {
	limit := kernel.AskLimit
	if do == pr.DoRead {
		limit = readLimit
	}
	var all []kernel.Question
	for _, name := range names {
		real, err := r.K.Realpath(name)
		if err != nil {
			continue
		}
		o := &pr.Order{Do: do, What: "disk " + path.Base(name), Device: name, Node: r.Node, Servers: r.keys, Never: never, Paths: r.PathsOf(path.Base(real))}
		if len(o.Paths) > 0 {
			all = append(all, kernel.Question{Dev: real, Order: o})
			out = append(out, asked{Claim: o.Claim(r.K.Path), name: name})
		}
	}
	for i, a := range r.K.Ask(ctx, limit, all) {
		done := pr.Done{}
		if out[i].err = a.Err; a.Err == nil {
			out[i].err = json.Unmarshal(a.Data, &done)
		}
		for _, n := range done.Notes {
			r.Log.Note("%s", n)
		}
		out[i].State = done.State
		if out[i].err == nil {
			out[i].err = done.Err()
		}
	}
	return out
}

// take reserves the disks that are there and that this start has not spoken with. It takes them
// from the partner, whose commands they abort. A disk that does not answer, or does not obey,
// is left out: the arrays then decide whether they can spare it. A disk that knows no
// reservations is used without.
func (r *reservedDisks) take(ctx context.Context) error {
	kept := r.Reserved()
	if r.seen == nil { // what a stop that failed has left may be the partner's by now
		kept, r.seen = nil, map[string]error{}
	}
	new := slices.DeleteFunc(r.members(), func(name string) bool { _, seen := r.seen[name]; return seen })
	var strange []error
	for _, a := range r.order(ctx, pr.DoTake, new, false) {
		switch {
		case errors.Is(a.err, pr.ErrStrange):
			strange = append(strange, a.err)
			continue
		case errors.Is(a.err, pr.ErrUnable):
			r.Log.Note("%s is not reserved: %v", a.What, a.err)
		case a.err == nil:
			kept = append(kept, a.name)
		case errors.Is(a.err, kernel.ErrSilent):
			r.seen[a.name] = a.err
			continue
		default:
			r.seen[a.name] = fmt.Errorf("%w the command that reserves it: %w", kernel.ErrSilent, a.err)
			continue
		}
		r.seen[a.name] = nil
	}
	if err := r.note(kept); err != nil || len(strange) == 0 {
		return err
	}
	return refusal.Because(refusal.Stranger, errors.Join(strange...))
}

// beforeJudging reserves disks that have come since the start began. A disk that is left out
// counts as a member that does not answer.
func (r *reservedDisks) beforeJudging(ctx context.Context, read Superblocks) error {
	if r == nil || r.seen == nil {
		return nil // no start
	}
	err := r.take(ctx)
	for name, why := range r.seen {
		if why != nil {
			read[name] = Member{Dev: name, Err: why}
		}
	}
	return err
}

// reservedNote has the disks that this server has reserved, by their names in the config.
func (r *reservedDisks) reservedNote() unit.Note { return r.RunNote("reserved", "") }

func (r *reservedDisks) noted() []string {
	text, _ := r.reservedNote().Read()
	return strings.Fields(text)
}

// Reserved leaves out disks that have left the service: another service or brick may have them.
func (r *reservedDisks) Reserved() []string {
	members := r.members()
	return slices.DeleteFunc(r.noted(), func(name string) bool { return !slices.Contains(members, name) })
}

func (r *reservedDisks) note(names []string) error {
	slices.Sort(names)
	if names = slices.Compact(names); slices.Equal(names, r.noted()) {
		return nil
	}
	return r.reservedNote().Write(strings.Join(names, "\n") + "\n")
}

// Keep looks after the reservations of disks that are in use here, and gives their holder. It
// fails with pr.ErrTaken if another server of the cluster has a disk that this one had
// reserved, or has had it. A disk that was without power has forgotten its reservation, and gets
// it again; so does one that came late, whose partner may be dead, and one that
// is new. A disk that a stranger has taken is left to md, whose writes it refuses.
func (r *reservedDisks) Keep(ctx context.Context) (string, error) {
	was := r.Reserved()
	var again, late []string
	held := false // this server still has a disk that it had reserved
	for _, a := range r.order(ctx, pr.DoRead, r.members(), false) {
		mine := a.err == nil && slices.Contains(was, a.name)
		switch {
		case a.err != nil:
			// A disk that does not answer is no reason to move the service.
		case !mine:
			if by := a.By(); len(was) == 0 && by != r.Node && r.keys[by] != 0 {
				return by, fmt.Errorf("%s: %w: %s holds it", a.What, pr.ErrTaken, by)
			}
			late = append(late, a.name)
		case a.Whole():
			held = true
		case a.Holder != a.Own() && r.keys[a.By()] == 0 && a.Holder != 0:
			r.Log.Note("%v", a.Ours())
		default:
			again = append(again, a.name)
			held = held || a.Holder == a.Own()
		}
	}
	for _, a := range r.order(ctx, pr.DoKeep, again, false) {
		if errors.Is(a.err, pr.ErrTaken) {
			return a.By(), a.err
		}
		r.Log.NoteErr(a.err, "")
		held = held || a.err == nil
	}
	do := pr.DoTake
	switch {
	case len(was) == 0: // the service was started without reservations
		do = pr.DoKeep
	case !held: // it is not known whose the others are
		late = nil
	}
	for _, a := range r.order(ctx, do, late, true) {
		if a.err == nil {
			was = append(was, a.name)
		} else if !errors.Is(a.err, pr.ErrUnable) {
			r.Log.NoteErr(a.err, "")
		}
	}
	return r.Node, r.note(was)
}

// Give gives up what this server has; what others have stays. A disk that does not answer keeps
// its reservation, which keeps no start from taking it.
func (r *reservedDisks) Give(ctx context.Context) error {
	for _, a := range r.order(ctx, pr.DoGive, r.members(), false) {
		if a.err != nil && !errors.Is(a.err, pr.ErrUnable) {
			r.Log.NoteErr(a.err, "the reservation stays")
		}
	}
	return r.reservedNote().Remove()
}

// Holder is a server of the cluster that has a disk reserved, another one than this if one has;
// "" for none.
func (r *reservedDisks) Holder() (holder string, _ error) {
	for _, a := range r.order(context.Background(), pr.DoRead, r.members(), false) {
		if by := a.By(); a.err == nil && r.keys[by] != 0 && (holder == "" || by != r.Node) {
			holder = by
		}
	}
	return holder, nil
}

// Alone asks the disks that the arrays work with here, which may be others than the config's: an
// administrator can add one. What another server writes to any other disk is not read here.
func (r *reservedDisks) Alone(ctx context.Context) bool {
	all, err := r.Arrays()
	if err != nil {
		return false
	}
	in, err := r.membersOf(all)
	if err != nil || len(in) == 0 {
		return false
	}
	var names []string
	for _, name := range r.members() {
		if real, err := r.K.Realpath(name); err == nil && in[path.Base(real)] {
			names = append(names, name)
		}
	}
	whole := 0
	for _, a := range r.order(ctx, pr.DoRead, names, false) {
		if a.err == nil && a.Whole() {
			whole++
		}
	}
	return whole == len(in)
}

func (r *reservedDisks) Claim(name string) *pr.Claim {
	real, err := r.K.Realpath(name)
	if err != nil {
		return nil
	}
	return pr.Order{Node: r.Node, Servers: r.keys, Paths: r.PathsOf(path.Base(real))}.Claim(r.K.Path)
}

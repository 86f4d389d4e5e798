package drill

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/prove/kind"
	"github.com/mortarhpc/mortar/internal/run/observe"
)

// ost is the service's first OST.
func (s Scene) ost() (design.Target, error) {
	if kind.Of(s.Design).LNet(s.Design) == "" {
		return design.Target{}, errNoLustre
	}
	i := slices.IndexFunc(s.Service.Targets, func(t design.Target) bool { return t.Kind == "ost" })
	if i < 0 {
		return design.Target{}, fmt.Errorf("service %s has no OST: give --service of one that has", s.Service.Name)
	}
	if s.Design.Lustre.OSTs < 2 {
		return design.Target{}, errors.New("the file system has one OST: there is no other one for new files")
	}
	return s.Service.Targets[i], nil
}

// spaceLimit bounds the time until the MDS knows that an OST is full, or has room again: it asks
// the OSTs every 5 s, and the blocks of removed files are free once the MDS has told the OST.
// By hand: 10 s.
const spaceLimit = 2 * time.Minute

// ostFull fills one OST. The directory of the load's files has a stripe on every OST, so
// its writers need the full one too.
func ostFull(s Scene) ([]Step, error) {
	t, err := s.ost()
	if err != nil {
		return nil, err
	}
	f := Fault{Kind: FillOST, Args: []string{strconv.Itoa(t.Index), t.Name}}
	wait := func(what string, look func(context.Context, *View) (bool, string)) *Condition {
		return &Condition{What: what, Limit: spaceLimit, Look: look}
	}
	return []Step{
		{Fault: f, Until: wait("writers on it are told", func(ctx context.Context, v *View) (bool, string) {
			said, room := v.probeOST(ctx, t.Index)
			return len(said) > 0 && room == 0, "a new file on OST " + f.Args[0] + ": " + strings.Join(said, ", ")
		})},
		{Until: wait("new files go to other OSTs", func(ctx context.Context, v *View) (bool, string) {
			return v.placed(ctx, t.Index)
		})},
		{Until: shows(spaceLimit, signOf(observe.Full, "fs", t.Name)), Wait: fullHold, Look: true},
		{Fault: f, Mend: true, Until: wait("there is room again", func(ctx context.Context, v *View) (bool, string) {
			said, room := v.probeOST(ctx, t.Index)
			return room > 0 && room == len(said), "a new file on OST " + f.Args[0] + ": " + strings.Join(said, ", ")
		})},
	}, nil
}

// onOST makes an empty file with its only stripe on an OST, and fails if that is full: with
// --stripe-index the MDS would take another one.
func onOST(file string, index int) resource.Action {
	return resource.Action{Title: "a file on OST " + strconv.Itoa(index), Seconds: 120,
		Cmd: []string{"lfs", "setstripe", "-o", strconv.Itoa(index), file}}
}

// writeNew writes 1 MiB into a file, and has it on the disks.
func writeNew(file string) resource.Action {
	return resource.Action{Title: "write a new file", Seconds: 60,
		Cmd: []string{"dd", "if=/dev/zero", "of=" + file, "bs=64k", "count=16", "conv=fsync", "status=none"}}
}

const noSpace = "No space left on device"

// probeOST writes a small new file on an OST from each mount of each client. It returns
// the outcomes, and how many writes succeeded.
func (v *View) probeOST(ctx context.Context, index int) (said []string, room int) {
	for _, m := range v.Design.Mounts {
		file := path.Join(m.Path, loadDir, "space-"+m.Client)
		_ = v.e.do(ctx, m.Client, removed(file))
		err := v.e.do(ctx, m.Client, onOST(file, index))
		if err == nil {
			err = v.e.do(ctx, m.Client, writeNew(file))
		}
		switch {
		case err == nil:
			room++
			said = append(said, m.Client+" had room")
		case strings.Contains(err.Error(), noSpace):
			said = append(said, m.Client+" '"+noSpace+"'")
		default:
			room = -len(v.Design.Mounts) // neither full nor free
			said = append(said, m.Client+" "+err.Error())
		}
		_ = v.e.do(ctx, m.Client, removed(file))
	}
	return said, room
}

func removed(file string) resource.Action {
	return resource.Action{Title: "remove " + path.Base(file), Seconds: 60, Cmd: []string{"rm", "-rf", "--", file}}
}

// newFiles is how many files each mount makes to see where they go: in turns, half of them
// would be on the full OST of two.
const newFiles = 4

// placed writes new files with one stripe, which Lustre places, on each mount of each
// client. It reports whether all are written, and none is on the OST.
func (v *View) placed(ctx context.Context, full int) (ok bool, detail string) {
	var on []string
	for _, m := range v.Design.Mounts {
		dir := path.Join(m.Path, loadDir, "new-"+m.Client)
		got, err := v.place(ctx, m.Client, dir)
		_ = v.e.do(ctx, m.Client, removed(dir))
		if err != nil {
			return false, m.Client + ": " + err.Error()
		}
		on = append(on, got...)
	}
	return elsewhere(on, full)
}

// elsewhere reports whether no new file is on the full OST; on has the index of each.
func elsewhere(on []string, full int) (bool, string) {
	detail := fmt.Sprintf("%d new files are on OST %s", len(on), strings.Join(on, ", "))
	return len(on) > 0 && !slices.Contains(on, strconv.Itoa(full)), detail
}

// place returns the index of the OST of each new file in a directory.
func (v *View) place(ctx context.Context, client, dir string) (on []string, err error) {
	for _, a := range []resource.Action{
		{Title: "a directory for new files", Cmd: []string{"mkdir", "-p", dir}},
		{Title: "one stripe for each of its files", Cmd: []string{"lfs", "setstripe", "--stripe-count", "1", dir}},
	} {
		if err := v.e.do(ctx, client, a); err != nil {
			return nil, err
		}
	}
	for i := range newFiles {
		file := path.Join(dir, strconv.Itoa(i))
		if err := v.e.do(ctx, client, writeNew(file)); err != nil {
			return nil, err
		}
		out, err := v.e.query(ctx, client, "lfs", "getstripe", "--stripe-index", file)
		if err == nil && out.Code != 0 {
			err = errors.New(strings.TrimSpace(out.Stderr))
		}
		if err != nil {
			return nil, fmt.Errorf("lfs getstripe: %w", err)
		}
		on = append(on, strings.TrimSpace(out.Stdout))
	}
	return on, nil
}

const (
	// ostRest is what fillOST leaves for writing: less than clients may hold as grants.
	ostRest = 64 << 20
	// largestObject is below the largest file of ldiskfs, 16 TiB of blocks of 4 KiB.
	largestObject = 8 << 40
)

// fillers are the files on an OST that fill it, in a directory of a mount.
func fillers(m design.ClientMount, index string) string {
	return path.Join(m.Path, loadDir, "fill-"+index)
}

// fillOST takes the space of an OST: most of it by allocation, which costs nothing, the
// rest by writing on each client until there is no room. What a client holds as a grant,
// only this client can use up.
func (e *engine) fillOST(ctx context.Context, f Fault) error {
	index, err := strconv.Atoi(f.Args[0])
	if err != nil {
		return err
	}
	avail, err := e.availOn(ctx, f.Args[1])
	if err != nil {
		return err
	}
	first := e.env.Design.Mounts[0]
	dir := fillers(first, f.Args[0])
	if err := e.do(ctx, first.Client, resource.Action{Title: "a directory for what fills the OST", Cmd: []string{"mkdir", "-p", dir}}); err != nil {
		return err
	}
	// Before the OST is full: it makes no more files then.
	for _, m := range e.env.Design.Mounts {
		if err := e.do(ctx, first.Client, onOST(path.Join(dir, "rest-"+m.Client), index)); err != nil {
			return err
		}
	}
	for i, n := range sizes(avail-ostRest, largestObject) {
		file := path.Join(dir, strconv.Itoa(i))
		if err := e.do(ctx, first.Client, onOST(file, index)); err != nil {
			return err
		}
		a := resource.Action{Title: "take the free blocks", Seconds: 600, Cmd: []string{"fallocate", "-l", strconv.FormatInt(n, 10), file}}
		if err := e.do(ctx, first.Client, a); err != nil && !strings.Contains(err.Error(), noSpace) {
			return err
		}
	}
	for _, m := range e.env.Design.Mounts {
		file := path.Join(fillers(m, f.Args[0]), "rest-"+m.Client)
		for _, bs := range []string{"1M", "4k"} {
			a := resource.Action{Title: "take the last blocks", OKCodes: []int{1}, Seconds: 600,
				Cmd: []string{"dd", "if=/dev/zero", "of=" + file, "bs=" + bs, "oflag=append", "conv=nocreat,notrunc,fsync", "status=none"}}
			if err := e.do(ctx, m.Client, a); err != nil {
				return err
			}
		}
	}
	return nil
}

// sizes splits n bytes into parts of at most largest.
func sizes(n, largest int64) (out []int64) {
	for ; n > 0; n -= largest {
		out = append(out, min(n, largest))
	}
	return out
}

// availOn is the free space of a target, in bytes.
//
// Source: Lustre Operations Manual, parameters of osd-ldiskfs
func (e *engine) availOn(ctx context.Context, target string) (int64, error) {
	name := "osd-ldiskfs." + target + ".kbytesavail"
	out, err := e.query(ctx, e.active, "lctl", "get_param", name)
	if err != nil {
		return 0, err
	}
	kb, err := strconv.ParseInt(linux.ParseParams(out.Stdout)[name], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s: lctl get_param %s said %q %q", e.active, name, out.Stdout, out.Stderr)
	}
	return kb << 10, nil
}

// emptyOST removes what fills the OST, by the first client that answers.
func (e *engine) emptyOST(ctx context.Context, f Fault) error {
	var errs []error
	for _, m := range e.env.Design.Mounts {
		err := e.do(ctx, m.Client, removed(fillers(m, f.Args[0])))
		if err == nil {
			return nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", m.Client, err))
	}
	return errors.Join(errs...)
}

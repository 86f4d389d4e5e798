package change

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/run/cli"
	"github.com/mortarhpc/mortar/internal/run/disk"
	"github.com/mortarhpc/mortar/internal/run/observe"
)

// withDisk finds a disk's place in the design, connects to the servers, and calls do.
func withDisk(c *cli.Console, file, serial string, do func(*disk.Place, *observe.Collector) error) error {
	d, err := cli.Load(file)
	if err != nil {
		return err
	}
	p, err := disk.Find(d, serial)
	if err != nil {
		return cli.Fail(cli.BadInput, err)
	}
	hosts, err := c.Collector(d, cli.HostTimeout, d.Servers()...)
	if err != nil {
		return err
	}
	defer hosts.Close()
	return do(p, hosts)
}

// LocateDisk prints where a disk is, and switches the light of its bay on or off.
func LocateDisk(ctx context.Context, c *cli.Console, file, serial string, off bool) error {
	return withDisk(c, file, serial, func(p *disk.Place, hosts *observe.Collector) error {
		fmt.Fprintln(c.Out, p)
		seen, err := p.Found(ctx, hosts.Session, p.Disk.Serial)
		if len(seen) == 0 {
			return cli.Fail(cli.BadInput, err)
		}
		state := "locate"
		if off {
			state += "_off"
		}
		dev := path.Base(seen[0].Paths[0]) // every path leads to the same bay
		a := resource.Action{Title: "light of disk " + p.Disk.Serial, Cmd: []string{"ledctl", state + "=/dev/" + dev}}
		if _, err := hosts.Session(seen[0].Server).Run(ctx, a); err != nil {
			return fmt.Errorf("%s: %w; ledctl is in the package ledmon, and needs an enclosure with SES or SGPIO", seen[0].Server, err)
		}
		return nil
	})
}

// FailDisk takes a disk out of service; md copies it to a spare first, if it can. bare allows
// that its group loses the last redundancy.
func FailDisk(ctx context.Context, c *cli.Console, file, serial string, bare bool) error {
	s, err := cli.ReadSpec(file)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(s.Failed, func(x string) bool { return strings.EqualFold(x, serial) }) {
		if err := withDisk(c, file, serial, func(p *disk.Place, hosts *observe.Collector) error {
			st, err := p.Look(ctx, hosts.Session)
			if err == nil {
				err = p.MayFail(st, bare)
			}
			if err != nil {
				return cli.Refuse(err)
			}
			return nil
		}); err != nil {
			return err
		}
	}
	text, err := s.FailDisk(serial)
	if err != nil {
		return cli.Refuse(err)
	}
	next, err := spec.Parse(file, text)
	if err != nil {
		return cli.Refuse(err)
	}
	shown := fmt.Sprintf("%s: failed: [%s]\n", file, strings.Join(next.Failed, ", "))
	if done, err := (specChange{was: s, next: next, shown: shown}).run(ctx, c); err != nil || !done {
		return err
	}
	return untilOut(ctx, c, file, serial)
}

// untilOut waits until a disk whose data is being copied has left its group.
func untilOut(ctx context.Context, c *cli.Console, file, serial string) error {
	return withDisk(c, file, serial, func(p *disk.Place, hosts *observe.Collector) error {
		st, err := p.Look(ctx, hosts.Session)
		if err != nil {
			return err
		}
		if st.Member(serial) != nil {
			if _, err := rebuilt(ctx, c, p, hosts); err != nil {
				return err
			}
			d, err := cli.Load(file)
			if err != nil {
				return err
			}
			if err := apply(ctx, c, d); err != nil {
				return err
			}
			if st, err = p.Look(ctx, hosts.Session); err != nil {
				return err
			}
		}
		if st.Member(serial) != nil {
			return cli.Fail(cli.Failed, fmt.Errorf("%s is still in its group: the copy did not end; run the command again", p))
		}
		return diskDone(c, p, st, false,
			fmt.Sprintf("%s is out of service: pull it, push another one in, and run mortar disk replace %s %s --with SERIAL", p, file, p.Disk.Serial))
	})
}

// ReplaceDisk puts the disk `with` in the place of one that is out of service; wipe destroys what
// it carries.
func ReplaceDisk(ctx context.Context, c *cli.Console, file, serial, with string, wipe bool) error {
	s, err := cli.ReadSpec(file)
	if err != nil {
		return err
	}
	d, err := cli.Load(file)
	if err != nil {
		return err
	}
	if strings.EqualFold(serial, with) {
		return cli.Refuse(errors.New("the new disk has the serial number of the old one; look at its label"))
	}
	change := specChange{was: s, next: s}
	if _, gone := disk.Find(d, serial); gone == nil {
		if change.next, change.shown, err = swapped(ctx, c, s, serial, with); err != nil {
			return err
		}
	} else if _, err := disk.Find(d, with); err != nil {
		return cli.Refuse(gone) // an earlier run did not replace it either
	} else {
		change.shown = fmt.Sprintf("%s has disk %s, and no disk %s: it was replaced before\n", file, with, serial)
	}
	if l, ok := change.next.DiskNamed(with); ok && wipe {
		change.wipe = []string{l} // as the spec spells it
	}
	if done, err := change.run(ctx, c); err != nil || !done {
		return err
	}
	return withDisk(c, file, with, func(p *disk.Place, hosts *observe.Collector) error {
		st, err := rebuilt(ctx, c, p, hosts)
		if err != nil {
			return err
		}
		if n := p.Lacks(st); n > 0 {
			return cli.Fail(cli.Failed, fmt.Errorf("group %s still lacks %d of %d members on %s, and nothing is being rebuilt: see `mortar status`", st.Group.Name, n, st.Array.RaidDisks, st.Server))
		}
		m := st.Member(with)
		if m == nil {
			return cli.Fail(cli.Failed, fmt.Errorf("%s is not in its group: run the command again", p))
		}
		as := "a member"
		if m.Slot < 0 {
			as = "a spare"
		}
		whole := "the group is whole"
		if n := st.Array.Degraded; n > 0 {
			whole = fmt.Sprintf("the group still lacks %d of %d members, which are out of service", n, st.Array.RaidDisks)
		}
		return diskDone(c, p, st, m.Slot < 0, fmt.Sprintf("%s is %s; %s", p, as, whole))
	})
}

// swapped returns the spec with the disk `with` in the place of `serial`. It refuses if the
// group still needs the old disk, or if the new disk is not in its bay.
func swapped(ctx context.Context, c *cli.Console, s *spec.Spec, serial, with string) (next *spec.Spec, shown string, err error) {
	err = withDisk(c, s.File, serial, func(p *disk.Place, hosts *observe.Collector) error {
		st, err := p.Look(ctx, hosts.Session)
		if err == nil {
			err = p.MayReplace(st, s.File)
		}
		if err != nil {
			return cli.Refuse(err)
		}
		seen, err := p.Found(ctx, hosts.Session, with)
		if err != nil {
			return cli.Refuse(err)
		}
		text, err := s.ReplaceDisk(serial, seen[0].Serial, seen[0].WWN)
		if err != nil {
			return cli.Refuse(err)
		}
		shown = fmt.Sprintf("%s: enclosure %s, bay %d: disk %s in the place of %s\n", s.File, p.Disk.Enclosure, p.Disk.Bay, seen[0].Serial, p.Disk.Serial)
		next, err = spec.Parse(s.File, text)
		return err
	})
	return next, shown, err
}

// diskDone prints the last line of a command that changed a disk.
func diskDone(c *cli.Console, p *disk.Place, st *disk.State, spare bool, text string) error {
	return c.Line(struct {
		Disk      string `json:"disk"`
		Group     string `json:"group"`
		Enclosure string `json:"enclosure"`
		Bay       int    `json:"bay"`
		Spare     bool   `json:"spare,omitempty"`
		Degraded  int    `json:"degraded"` // members that the group lacks
	}{p.Disk.Serial, st.Group.Name, p.Disk.Enclosure, p.Disk.Bay, spare, st.Array.Degraded}, func(w io.Writer) error {
		_, err := fmt.Fprintln(w, text)
		return err
	})
}

// rebuilt prints md's progress until the group is idle.
func rebuilt(ctx context.Context, c *cli.Console, p *disk.Place, hosts *observe.Collector) (*disk.State, error) {
	t, last := *c, time.Time{}
	t.Start = time.Now()
	st, err := p.Wait(ctx, hosts.Session, func(g disk.Progress) {
		const every = 10 * time.Second
		if time.Since(last) < every {
			return
		}
		last = time.Now()
		left := ""
		if g.Left > 0 {
			left = fmt.Sprintf(", %s left", (time.Duration(g.Left) * time.Second).Round(time.Second))
		}
		t.Event(g, g.Server, fmt.Sprintf("%s: %s %.1f %%%s", g.Group, g.Action, g.Percent, left))
	})
	if ctx.Err() != nil {
		return nil, cli.Fail(cli.Interrupted, errors.New("interrupted; md goes on, and the same command shows it"))
	}
	return st, err
}

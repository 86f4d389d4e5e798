package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/run/disk"
	"github.com/mortarhpc/mortar/internal/run/observe"
)

func newDiskLocateCmd() *cobra.Command {
	var off bool
	cmd := command("locate", func(cmd *cobra.Command, args []string) error {
		return withDisk(args[0], args[1], func(p *disk.Place, c *observe.Collector) error {
			ctx := cmd.Context()
			fmt.Fprintln(cmd.OutOrStdout(), p)
			seen, err := p.Found(ctx, c.Session, p.Disk.Serial)
			if len(seen) == 0 {
				return fail(exitBadInput, err)
			}
			state := "locate"
			if off {
				state += "_off"
			}
			// Every path leads to the same bay.
			dev := "/dev/" + seen[0].Paths[0][strings.LastIndexByte(seen[0].Paths[0], '/')+1:]
			a := resource.Action{Title: "light of disk " + p.Disk.Serial, Cmd: []string{"ledctl", state + "=" + dev}}
			if _, err := c.Session(seen[0].Server).Run(ctx, a); err != nil {
				return fail(exitFailed, fmt.Errorf("%s: %w; ledctl is in the package ledmon, and needs an enclosure with SES or SGPIO", seen[0].Server, err))
			}
			return nil
		})
	})
	cmd.Flags().BoolVar(&off, "off", false, "switch it off")
	return cmd
}

func newDiskFailCmd() *cobra.Command {
	var f specChange
	var bare bool
	cmd := command("fail", func(cmd *cobra.Command, args []string) error { return f.failDisk(cmd, args[0], args[1], bare) })
	f.add(cmd)
	cmd.Flags().BoolVar(&bare, "without-redundancy", false, "also if the next failure would lose data")
	return cmd
}

func newDiskReplaceCmd() *cobra.Command {
	var f specChange
	var with, wipe string
	cmd := command("replace", func(cmd *cobra.Command, args []string) error {
		if wipe != "" && !strings.EqualFold(wipe, with) {
			return refuseChange(fmt.Errorf("--wipe %s is not the new disk %s", wipe, with))
		}
		return f.replaceDisk(cmd, args[0], args[1], with, wipe != "")
	})
	f.add(cmd)
	cmd.Flags().StringVar(&with, "with", "", "serial number of the new disk")
	cmd.Flags().StringVar(&wipe, "wipe", "", "serial number of the new disk once more: destroy what it carries")
	_ = cmd.MarkFlagRequired("with")
	return cmd
}

// withDisk finds a disk's place in the design, connects to the servers, and calls do.
func withDisk(file, serial string, do func(*disk.Place, *observe.Collector) error) error {
	d, err := loadDesign(file)
	if err != nil {
		return err
	}
	p, err := disk.Find(d, serial)
	if err != nil {
		return fail(exitBadInput, err)
	}
	c, err := newCollector(d, hostTimeout, d.Servers()...)
	if err != nil {
		return err
	}
	defer c.Close()
	return do(p, c)
}

// refuseChange returns a refusal that says that nothing was changed.
func refuseChange(err error) error {
	return fail(exitBadInput, fmt.Errorf("%w; nothing was changed", err))
}

func (f *specChange) failDisk(cmd *cobra.Command, file, serial string, bare bool) error {
	s, err := readSpec(file)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(s.Failed, func(x string) bool { return strings.EqualFold(x, serial) }) {
		if err := withDisk(file, serial, func(p *disk.Place, c *observe.Collector) error {
			st, err := p.Look(cmd.Context(), c.Session)
			if err == nil {
				err = p.MayFail(st, bare)
			}
			if err != nil {
				return refuseChange(err)
			}
			return nil
		}); err != nil {
			return err
		}
	}
	text, err := s.FailDisk(serial)
	if err != nil {
		return refuseChange(err)
	}
	next, err := spec.Parse(file, text)
	if err != nil {
		return refuseChange(err)
	}
	shown := fmt.Sprintf("%s: failed: [%s]\n", file, strings.Join(next.Failed, ", "))
	if done, err := f.run(cmd, s, next, shown, nil); err != nil || !done {
		return err
	}
	return f.untilOut(cmd, file, serial)
}

// untilOut waits until a disk whose data is being copied has left its group.
func (f *specChange) untilOut(cmd *cobra.Command, file, serial string) error {
	ctx, out := cmd.Context(), cmd.OutOrStdout()
	return withDisk(file, serial, func(p *disk.Place, c *observe.Collector) error {
		st, err := p.Look(ctx, c.Session)
		if err != nil {
			return err
		}
		if st.Member(serial) != nil {
			if _, err := f.wait(ctx, out, p, c); err != nil {
				return err
			}
			d, err := loadDesign(file)
			if err != nil {
				return err
			}
			if err := runApply(ctx, d, cmd.InOrStdin(), out, applyFlags{yes: true, asJSON: f.asJSON, skipFenceTest: true}); err != nil {
				return err
			}
			if st, err = p.Look(ctx, c.Session); err != nil {
				return err
			}
		}
		if st.Member(serial) != nil {
			return fail(exitFailed, fmt.Errorf("%s is still in its group: the copy did not end; run the command again", p))
		}
		return f.say(out, p, st, false,
			fmt.Sprintf("%s is out of service: pull it, push another one in, and run mortar disk replace %s %s --with SERIAL", p, file, p.Disk.Serial))
	})
}

func (f *specChange) replaceDisk(cmd *cobra.Command, file, serial, with string, wipe bool) error {
	s, err := readSpec(file)
	if err != nil {
		return err
	}
	d, err := loadDesign(file)
	if err != nil {
		return err
	}
	if strings.EqualFold(serial, with) {
		return refuseChange(errors.New("the new disk has the serial number of the old one; look at its label"))
	}
	next, shown := s, ""
	if _, gone := disk.Find(d, serial); gone == nil {
		if next, shown, err = swapped(cmd.Context(), s, serial, with); err != nil {
			return err
		}
	} else if _, err := disk.Find(d, with); err != nil {
		return refuseChange(gone) // an earlier run did not replace it either
	} else {
		shown = fmt.Sprintf("%s has disk %s, and no disk %s: it was replaced before\n", file, with, serial)
	}
	if l, ok := next.DiskNamed(with); ok && wipe {
		f.wipe = []string{l} // as the spec spells it
	}
	if done, err := f.run(cmd, s, next, shown, nil); err != nil || !done {
		return err
	}
	return withDisk(file, with, func(p *disk.Place, c *observe.Collector) error {
		st, err := f.wait(cmd.Context(), cmd.OutOrStdout(), p, c)
		if err != nil {
			return err
		}
		if n := p.Lacks(st); n > 0 {
			return fail(exitFailed, fmt.Errorf("group %s still lacks %d of %d members on %s, and nothing is being rebuilt: see `mortar status`", st.Group.Name, n, st.Array.RaidDisks, st.Server))
		}
		m := st.Member(with)
		if m == nil {
			return fail(exitFailed, fmt.Errorf("%s is not in its group: run the command again", p))
		}
		as := "a member"
		if m.Slot < 0 {
			as = "a spare"
		}
		whole := "the group is whole"
		if n := st.Array.Degraded; n > 0 {
			whole = fmt.Sprintf("the group still lacks %d of %d members, which are out of service", n, st.Array.RaidDisks)
		}
		return f.say(cmd.OutOrStdout(), p, st, m.Slot < 0,
			fmt.Sprintf("%s is %s; %s", p, as, whole))
	})
}

// swapped returns the spec with the disk `with` in the place of `serial`. It refuses if the
// group still needs the old disk, or if the new disk is not in its bay.
func swapped(ctx context.Context, s *spec.Spec, serial, with string) (next *spec.Spec, shown string, err error) {
	err = withDisk(s.File, serial, func(p *disk.Place, c *observe.Collector) error {
		st, err := p.Look(ctx, c.Session)
		if err == nil {
			err = p.MayReplace(st, s.File)
		}
		if err != nil {
			return refuseChange(err)
		}
		seen, err := p.Found(ctx, c.Session, with)
		if err != nil {
			return refuseChange(err)
		}
		text, err := s.ReplaceDisk(serial, seen[0].Serial, seen[0].WWN)
		if err != nil {
			return refuseChange(err)
		}
		shown = fmt.Sprintf("%s: enclosure %s, bay %d: disk %s in the place of %s\n", s.File, p.Disk.Enclosure, p.Disk.Bay, seen[0].Serial, p.Disk.Serial)
		next, err = spec.Parse(s.File, text)
		return err
	})
	return next, shown, err
}

// diskDone is the last line of mortar disk --json.
type diskDone struct {
	Disk      string `json:"disk"`
	Group     string `json:"group"`
	Enclosure string `json:"enclosure"`
	Bay       int    `json:"bay"`
	Spare     bool   `json:"spare,omitempty"`
	Degraded  int    `json:"degraded"` // members that the group lacks
}

func (f *specChange) say(w io.Writer, p *disk.Place, st *disk.State, spare bool, text string) error {
	if f.asJSON {
		return jsonLines(w).Encode(diskDone{p.Disk.Serial, st.Group.Name, p.Disk.Enclosure, p.Disk.Bay, spare, st.Array.Degraded})
	}
	_, err := fmt.Fprintln(w, text)
	return err
}

// wait prints md's progress until the group is idle.
func (f *specChange) wait(ctx context.Context, w io.Writer, p *disk.Place, c *observe.Collector) (*disk.State, error) {
	t, last := &teller{w, f.asJSON, time.Now()}, time.Time{}
	st, err := p.Wait(ctx, c.Session, func(g disk.Progress) {
		const every = 10 * time.Second
		if time.Since(last) < every {
			return
		}
		last = time.Now()
		left := ""
		if g.Left > 0 {
			left = fmt.Sprintf(", %s left", (time.Duration(g.Left) * time.Second).Round(time.Second))
		}
		t.event(g, g.Server, fmt.Sprintf("%s: %s %.1f %%%s", g.Group, g.Action, g.Percent, left))
	})
	switch {
	case ctx.Err() != nil:
		return nil, fail(exitInterrupted, errors.New("interrupted; md goes on, and the same command shows it"))
	case err != nil:
		return nil, err
	}
	return st, nil
}

package change

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/lists"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/run/cli"
)

// Grow adds disks to a brick. With scripts it changes nothing, and writes what makes the LUNs on
// RAID arrays into that directory.
func Grow(ctx context.Context, c *cli.Console, file string, added []spec.Added, scripts string) error {
	s, err := cli.ReadSpec(file)
	if err != nil {
		return err
	}
	next := s
	if !s.HasGrown(added) {
		text, err := s.Grow(added)
		if err == nil {
			next, err = spec.Parse(file, text)
		}
		if err != nil {
			return cli.Refuse(err)
		}
	}
	was, d, err := designs(s, next)
	if err != nil {
		return err
	}
	shown := growth(was, d)
	if scripts != "" {
		return growthScripts(c.Out, d, shown, scripts)
	}
	_, err = specChange{was: s, next: next, shown: shown}.run(ctx, c)
	return err
}

// designs are those of a spec before and after a change.
func designs(s, next *spec.Spec) (was, d *design.Design, err error) {
	if was, err = design.New(s); err == nil {
		d, err = design.New(next)
	}
	if err != nil {
		return nil, nil, cli.Refuse(err)
	}
	return was, d, nil
}

// growthScripts writes what makes the last growth's LUNs on each array that grows.
func growthScripts(w io.Writer, d *design.Design, shown, dir string) error {
	x := Scripts{Dir: dir, Growth: d.Spec.Growth()}
	grown := lists.Only(d.LUNs(), func(l design.LUN) bool { return l.Growth == x.Growth })
	names := lists.Distinct(lists.Map(grown, func(l design.LUN) string { return l.Array }))
	if len(names) == 0 {
		return cli.Refuse(errors.New("this brick has no array: its disks are JBODs (storage.kind), and nothing has to be made on them before"))
	}
	scripts, err := x.of(d, names)
	if err != nil {
		return cli.Refuse(err)
	}
	fmt.Fprint(w, shown)
	return x.write(w, d, names, scripts)
}

// growth describes what grow adds.
func growth(was, d *design.Design) string {
	number := d.Spec.Growth()
	text := fmt.Sprintf("%s: growth %d\n", was.Spec.File, number)
	for _, g := range d.Groups {
		if g.Growth == number {
			text += fmt.Sprintf("  %s  RAID %d %d+%d, %s each, %s usable", g.Name, g.Level, g.Data, g.Parity, g.Members[0].Size.Decimal(), g.Usable.Decimal())
			if g.Array == "" {
				text += fmt.Sprintf(", spares %d", len(g.Spares))
			}
			text += "\n"
		}
	}
	for _, l := range d.LUNs() {
		if l.Growth == number {
			text += fmt.Sprintf("  LUN %d of array %s: %s on %s, %s\n", l.Number, l.Array, l.Name, strings.Join(l.Groups, " "), l.Size.Binary())
		}
	}
	return text + usable(was, d)
}

func usable(was, d *design.Design) string {
	return fmt.Sprintf("  usable  %s → %s\n", was.Capacity.Usable.Decimal(), d.Capacity.Usable.Decimal())
}

// GrowTo adds the pairs of servers that the spec `to` has and the spec `file` lacks.
func GrowTo(ctx context.Context, c *cli.Console, file, to string) error {
	s, err := cli.ReadSpec(file)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(to)
	if err != nil {
		return cli.Fail(cli.BadInput, err)
	}
	// Check the new spec under its own name first, so that an error names a line of that file.
	if _, err := spec.Parse(to, text); err != nil {
		return cli.Refuse(err)
	}
	next, err := spec.Parse(file, text)
	if err != nil {
		return cli.Refuse(err)
	}
	was, d, err := designs(s, next)
	if err != nil {
		return err
	}
	pairs, err := d.Extends(was)
	if err != nil {
		return cli.Refuse(err)
	}
	// An earlier run may have written the spec and then failed on the hosts.
	if len(pairs) == 0 && !bytes.Equal(s.Source, next.Source) {
		return cli.Refuse(fmt.Errorf("%s has no module that %s lacks; use 'mortar apply' for other changes", to, file))
	}
	shown := fmt.Sprintf("%s: %d new modules\n", file, len(pairs))
	for _, p := range pairs {
		shown += fmt.Sprintf("  %s  servers %s\n", p.Name, strings.Join(p.Servers, ", "))
		for _, t := range p.Targets() {
			shown += fmt.Sprintf("    %s  on %s, %s usable\n", t.Name, t.Server, t.Usable.Decimal())
		}
	}
	_, err = specChange{was: s, next: next, shown: shown + usable(was, d)}.run(ctx, c)
	return err
}

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mortarhpc/mortar/internal/brick/array"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/spec"
)

func newGrowCmd() *cobra.Command {
	var f specChange
	var disks []string
	var size, service, to, scripts string
	cmd := command("grow", func(cmd *cobra.Command, args []string) error {
		if to != "" {
			return f.growTo(cmd, args[0], to)
		}
		added, err := addedDisks(disks, size, service)
		if err != nil {
			return refuseChange(err)
		}
		return f.grow(cmd, args[0], added, scripts)
	})
	f.add(cmd)
	cmd.Flags().StringArrayVar(&disks, "disks", nil, "enclosure, and the serial numbers of its new disks: A=ZA11, A=ZA[11-14]; again for each enclosure or range")
	cmd.Flags().StringVar(&size, "size", "", "size of the new disks as sold, e.g. 20TB")
	cmd.Flags().StringVar(&service, "service", "", "the service whose volume grows, for new enclosures of a brick with two")
	cmd.Flags().StringVar(&scripts, "script", "", "on RAID arrays: write what makes the new LUNs into this directory, and change nothing")
	cmd.Flags().StringVar(&to, "to", "", "of Lustre: the spec with the new pairs of servers")
	cmd.MarkFlagsOneRequired("disks", "to")
	cmd.MarkFlagsMutuallyExclusive("disks", "to")
	cmd.MarkFlagsMutuallyExclusive("size", "to")
	cmd.MarkFlagsMutuallyExclusive("script", "to")
	cmd.MarkFlagsMutuallyExclusive("service", "to")
	return cmd
}

// addedDisks parses the flags of grow.
func addedDisks(disks []string, size, service string) ([]spec.Added, error) {
	var each spec.Bytes
	if size != "" {
		var err error
		if each, err = spec.ParseBytes(size); err != nil {
			return nil, fmt.Errorf("--size: %w", err)
		}
	}
	var out []spec.Added
	for _, d := range disks {
		enclosure, serial, ok := strings.Cut(d, "=")
		if !ok || enclosure == "" || serial == "" {
			return nil, fmt.Errorf("--disks %s: write ENCLOSURE=SERIALS, e.g. A=ZA[11-14]", d)
		}
		out = append(out, spec.Added{Enclosure: enclosure, Serial: serial, Size: each, Service: service})
	}
	return out, nil
}

func (f *specChange) grow(cmd *cobra.Command, file string, added []spec.Added, scripts string) error {
	s, err := readSpec(file)
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
			return refuseChange(err)
		}
	}
	shown, err := growthText(s, next)
	if err != nil {
		return refuseChange(err)
	}
	if scripts != "" {
		return growthScripts(cmd.OutOrStdout(), next, shown, scripts)
	}
	_, err = f.run(cmd, s, next, shown, nil)
	return err
}

// growthScripts writes what makes the last growth's LUNs on each array that grows.
func growthScripts(w io.Writer, next *spec.Spec, shown, dir string) error {
	d, err := design.New(next)
	if err != nil {
		return refuseChange(err)
	}
	var names []string
	all := map[string]string{}
	for _, l := range d.LUNs() {
		if l.Growth != next.Growth() || all[l.Array] != "" {
			continue
		}
		if all[l.Array], err = array.Script(d, l.Array, "", next.Growth()); err != nil {
			return refuseChange(err)
		}
		names = append(names, l.Array)
	}
	if len(names) == 0 {
		return refuseChange(errors.New("this brick has no array: its disks are JBODs (storage.kind), and nothing has to be made on them before"))
	}
	fmt.Fprint(w, shown)
	return writeScripts(w, d, dir, "", names, all)
}

// growthText describes what grow adds.
func growthText(s, next *spec.Spec) (string, error) {
	was, err := design.New(s)
	if err != nil {
		return "", err
	}
	d, err := design.New(next)
	if err != nil {
		return "", err
	}
	text := fmt.Sprintf("%s: growth %d\n", s.File, next.Growth())
	for _, g := range d.Groups {
		if g.Growth == next.Growth() {
			text += fmt.Sprintf("  %s  RAID %d %d+%d, %s each, %s usable", g.Name, g.Level, g.Data, g.Parity, g.Members[0].Size.Decimal(), g.Usable.Decimal())
			if g.Array == "" {
				text += fmt.Sprintf(", spares %d", len(g.Spares))
			}
			text += "\n"
		}
	}
	for _, l := range d.LUNs() {
		if l.Growth == next.Growth() {
			text += fmt.Sprintf("  LUN %d of array %s: %s on %s, %s\n", l.Number, l.Array, l.Name, strings.Join(l.Groups, " "), l.Size.Binary())
		}
	}
	return text + fmt.Sprintf("  usable  %s → %s\n", was.Capacity.Usable.Decimal(), d.Capacity.Usable.Decimal()), nil
}

// growTo adds the pairs of servers that the spec `to` has and the spec `file` lacks.
func (f *specChange) growTo(cmd *cobra.Command, file, to string) error {
	s, err := readSpec(file)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(to)
	if err != nil {
		return fail(exitBadInput, err)
	}
	// Check the new spec under its own name first, so that an error names a line of that file.
	if _, err := spec.Parse(to, text); err != nil {
		return refuseChange(err)
	}
	next, err := spec.Parse(file, text)
	if err != nil {
		return refuseChange(err)
	}
	was, err := design.New(s)
	if err != nil {
		return refuseChange(err)
	}
	d, err := design.New(next)
	if err != nil {
		return refuseChange(err)
	}
	pairs, err := d.Extends(was)
	if err != nil {
		return refuseChange(err)
	}
	// An earlier run may have written the spec and then failed on the hosts.
	if len(pairs) == 0 && !bytes.Equal(s.Source, next.Source) {
		return refuseChange(fmt.Errorf("%s has no module that %s lacks; use 'mortar apply' for other changes", to, file))
	}
	_, err = f.run(cmd, s, next, pairsText(was, d, pairs), nil)
	return err
}

// pairsText describes the servers that grow adds to a Lustre file system.
func pairsText(was, d *design.Design, pairs []design.Pair) string {
	text := fmt.Sprintf("%s: %d new modules\n", was.Spec.File, len(pairs))
	for _, p := range pairs {
		text += fmt.Sprintf("  %s  servers %s\n", p.Name, strings.Join(p.Servers, ", "))
		for _, s := range p.Services {
			for _, t := range s.Targets {
				text += fmt.Sprintf("    %s  on %s, %s usable\n", t.Name, t.Server, t.Usable.Decimal())
			}
		}
	}
	return text + fmt.Sprintf("  usable  %s → %s\n", was.Capacity.Usable.Decimal(), d.Capacity.Usable.Decimal())
}

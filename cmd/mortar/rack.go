package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/mortarhpc/mortar/internal/brick/array"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/rack"
	"github.com/mortarhpc/mortar/internal/rack/configure"
	"github.com/mortarhpc/mortar/internal/rack/hw"
	"github.com/mortarhpc/mortar/internal/run/cli"
)

// rackFlags choose the rack of a command.
type rackFlags struct {
	dir                 string
	scale, lustre, boot string // of rack up and image
	empty               bool   // rack up: leave the arrays as they come from their makers
}

func (f *rackFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.dir, "dir", "", "directory of the rack (default: .mortar/BRICK/rack next to the spec)")
}

// find returns the rack's directory for a command whose first argument may be a spec.
func (f *rackFlags) find(specFile string) (string, error) {
	if f.dir != "" {
		return f.dir, nil
	}
	if specFile == "" {
		return "", badUsage("name the brick's file, or the rack's directory with --dir")
	}
	s, err := cli.ReadSpec(specFile)
	if err != nil {
		return "", err
	}
	return rackDir(specFile, s.Name)
}

// rackDir returns the directory of a brick's rack, next to its spec.
func rackDir(file, brick string) (string, error) {
	return filepath.Abs(filepath.Join(filepath.Dir(file), ".mortar", brick, "rack"))
}

func badUsage(message string) error { return fail(exitBadInput, errors.New(message)) }

// rackError gives an error of the rack its exit code.
func rackError(err error) error {
	var refused *rack.RefusedError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &refused):
		return fail(exitBadInput, err)
	case errors.Is(err, context.Canceled):
		return fail(exitInterrupted, errors.New("interrupted"))
	}
	return fail(exitFailed, err)
}

func newRackUpCmd() *cobra.Command {
	var f rackFlags
	var mirror, suite, accel, memory string
	var sparse bool
	cmd := command("up", func(ctx context.Context, c *cli.Console, args []string) (err error) {
		cfg, dir, err := f.describe(args[0])
		if err != nil {
			return err
		}
		cfg.Mirror, cfg.Suite, cfg.Accel = cmp.Or(mirror, cfg.Mirror), cmp.Or(suite, cfg.Suite), cmp.Or(accel, cfg.Accel)
		cfg.Sparse = cfg.Sparse || sparse
		if memory != "" {
			m, err := spec.ParseBytes(memory)
			if err != nil {
				return fail(exitBadInput, fmt.Errorf("--memory: %w", err))
			}
			for i := range cfg.Nodes {
				cfg.Nodes[i].MemoryMiB = int(m / spec.MiB)
			}
		}
		if c.DryRun {
			lines, err := rack.DryRun(cfg, dir)
			if err != nil {
				return rackError(err)
			}
			_, err = io.WriteString(c.Out, strings.Join(append(lines, ""), "\n"))
			return err
		}
		inv, err := rack.Up(ctx, cfg, dir, rackProgress(c.Err))
		if err != nil {
			return rackError(err)
		}
		if inv.Scale > 1 {
			c.Printf("disks have 1/%d of their size, and nodes only the memory that they need here; while the rack is up, commands for this brick use these sizes\n", inv.Scale)
		}
		return c.Show(inv, func(w io.Writer) error {
			for _, h := range inv.Hosts {
				fmt.Fprintf(w, "%-12s %-8s %s\n", h.Name, h.Role, h.Address)
			}
			return nil
		})
	})
	f.add(cmd)
	cmd.Flags().StringVar(&mirror, "mirror", "", "Debian archive for the node image (default: the one this host's apt uses)")
	cmd.Flags().StringVar(&suite, "suite", "", "Debian release of the nodes: trixie or bookworm")
	f.addNodes(cmd)
	cmd.Flags().StringVar(&accel, "accel", "", "kvm or tcg (default: try KVM by booting with it, else tcg)")
	cmd.Flags().StringVar(&memory, "memory", "", "memory of every node, e.g. 1280MiB, instead of the spec's")
	cmd.Flags().BoolVar(&f.empty, "empty-arrays", false, "leave RAID arrays without groups and LUNs (mortar rack array configures them)")
	cmd.Flags().BoolVar(&sparse, "sparse", false, "allow disks that could not be filled, for want of room on this machine")
	cmd.Flags().Bool("json", false, "print the inventory as JSON")
	cmd.Flags().Bool("dry-run", false, "show the commands and files, and do nothing")
	return cmd
}

// addNodes adds the flags of what a rack's nodes are.
func (f *rackFlags) addNodes(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.boot, "boot", "", "distribution, or distribution=SERVER,...: these servers boot Debian's kernel and initial RAM disk by GRUB from a system disk (default: the rack's fast way)")
	cmd.Flags().StringVar(&f.scale, "scale", "1/1", "size of the disks against the spec's, e.g. 1/1000; memory is then what the rack's nodes need, and all else as in the spec")
	cmd.Flags().StringVar(&f.lustre, "lustre", "", "directory of Lustre's Debian packages, which are installed on every node; they must fit the nodes' kernel")
}

// describe returns the hardware for a spec, and the rack's directory.
func (f *rackFlags) describe(file string) (cfg hw.Config, dir string, err error) {
	s, err := cli.ReadSpec(file)
	if err != nil {
		return cfg, "", err
	}
	scale, err := hw.ParseScale(f.scale)
	if err == nil {
		err = s.Scale(scale)
	}
	if err != nil {
		return cfg, "", fail(exitBadInput, err)
	}
	hw.GiveSASPorts(s)
	d, err := design.Derive(s)
	if err != nil {
		return cfg, "", fail(exitBadInput, err)
	}
	arrays, err := rackArrays(d, f.empty)
	if err != nil {
		return cfg, "", fail(exitBadInput, err)
	}
	if cfg, err = hw.FromSpec(s, arrays...); err != nil {
		return cfg, "", rackError(err)
	}
	if scale > 1 {
		// At a scale of a thousand the groups still add up to a terabyte, which no test fills.
		cfg.Scale, cfg.Sparse = scale, true
	}
	if f.lustre != "" {
		if cfg.Lustre, err = filepath.Abs(f.lustre); err != nil {
			return cfg, "", err
		}
	}
	if err := cfg.SetBoot(f.boot); err != nil {
		return cfg, "", rackError(err)
	}
	dir, err = f.find(file)
	return cfg, dir, err
}

// rackArrays returns the rack's arrays for those of a design, configured by the scripts
// that mortar array script prints. A RAID card has its LUNs in any case.
func rackArrays(d *design.Design, empty bool) ([]hw.Storage, error) {
	var out []hw.Storage
	for i := range d.Arrays {
		a := &d.Arrays[i]
		var scripts []string
		if !empty || a.Family == "perc" {
			text, err := array.Script(d, a.Name, "", 0)
			if err != nil {
				return nil, err
			}
			scripts = append(scripts, text)
		}
		made, _, err := configure.Array(context.Background(), d.Spec, hw.Storage{Name: a.Name, Servers: a.Servers, Paths: d.PathsTo(a, a.Servers[0])}, scripts...)
		if err != nil {
			return nil, err
		}
		out = append(out, made)
	}
	return out, nil
}

func newRackArrayCmd() *cobra.Command {
	var f rackFlags
	cmd := command("array", func(ctx context.Context, c *cli.Console, args []string) error {
		dir, err := f.find(args[0])
		if err != nil {
			return err
		}
		d, err := cli.LoadAny(args[0])
		if err != nil {
			return err
		}
		hw.GiveSASPorts(d.Spec)
		script, err := io.ReadAll(c.In)
		if err != nil {
			return err
		}
		said, err := rack.Configure(ctx, dir, d.Spec, args[1], string(script))
		_, printed := io.WriteString(c.Out, said)
		return errors.Join(rackError(err), printed)
	})
	f.add(cmd)
	return cmd
}

// rackProgress prints each step of an operation when it ends.
func rackProgress(w io.Writer) rack.Progress {
	return func(e rack.Event) {
		switch {
		case !e.Done:
			fmt.Fprintf(w, "      %s: %s\n", e.Step, e.Detail)
		case e.Err != nil:
			fmt.Fprintf(w, "%5.1fs %s failed\n", e.Elapsed.Seconds(), e.Step)
		default:
			fmt.Fprintf(w, "%5.1fs %s\n", e.Elapsed.Seconds(), e.Step)
		}
	}
}

func newRackImageCmd() *cobra.Command {
	var f rackFlags
	cmd := command("image", func(ctx context.Context, c *cli.Console, args []string) error {
		cfg, dir, err := f.describe(args[0])
		if err != nil {
			return err
		}
		return rackError(rack.BuildImage(ctx, cfg, dir, rackProgress(c.Err)))
	})
	f.addNodes(cmd)
	return cmd
}

func newRackDownCmd() *cobra.Command {
	var f rackFlags
	var keep bool
	cmd := command("down", func(ctx context.Context, c *cli.Console, args []string) error {
		dir, err := f.find(optional(args))
		if err != nil {
			return err
		}
		return rackError(rack.Down(ctx, dir, keep))
	})
	f.add(cmd)
	cmd.Flags().BoolVar(&keep, "keep-disks", false, "only switch everything off: the next up powers the same machines on")
	return cmd
}

func optional(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return args[0]
}

func newRackStatusCmd() *cobra.Command {
	var f rackFlags
	cmd := command("status", func(ctx context.Context, c *cli.Console, args []string) error {
		dir, err := f.find(optional(args))
		if err != nil {
			return err
		}
		s, err := rack.Status(ctx, dir)
		if err != nil {
			return rackError(err)
		}
		return c.Show(s, func(w io.Writer) error { return printRackStatus(w, s) })
	})
	f.add(cmd)
	cmd.Flags().Bool("json", false, "print JSON")
	return cmd
}

func printRackStatus(w io.Writer, s *rack.RackStatus) error {
	scale := ""
	if s.Scale > 1 {
		scale = fmt.Sprintf(", disks of 1/%d", s.Scale)
	}
	fmt.Fprintf(w, "rack %s: %s, %s, network namespace %s%s\n\n", s.Name, s.Phase, s.Accel, s.Netns, scale)
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "NODE\tROLE\tADDRESS\tPOWER\tMACHINE\tBOOT\tSSH\tBMC\tFEEDS\tLINKS")
	for _, n := range s.Nodes {
		feeds, links := []string{}, []string{}
		for _, f := range n.Feeds {
			feeds = append(feeds, fmt.Sprintf("%s/%d:%s", f.PDU, f.Outlet, onOff(f.On)))
		}
		for _, l := range n.Links {
			up := "up"
			if !l.Up {
				up = "DOWN"
			}
			links = append(links, l.Network+":"+up)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", n.Name, n.Role, n.Address, n.Power, n.Machine, n.Boot,
			yesNo(n.SSH), n.BMC, strings.Join(feeds, " "), strings.Join(links, " "))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, n := range s.Nodes {
		for _, d := range n.SystemDisks {
			if !d.Present {
				fmt.Fprintf(w, "system disk %d (%s) of %s is out\n", d.Disk, d.Serial, n.Name)
			}
		}
	}
	if len(s.PDUs) > 0 {
		fmt.Fprintln(t, "\nPDU\tADDRESS\tALIVE\tOUTLETS OFF")
		for _, p := range s.PDUs {
			fmt.Fprintf(t, "%s\t%s\t%s\t%v\n", p.Name, p.Address, yesNo(p.Alive), p.Off)
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	for _, a := range s.Arrays {
		if err := printArray(w, t, a); err != nil {
			return err
		}
	}
	if len(s.Disks) > 0 {
		fmt.Fprintln(t, "\nDISK\tENCLOSURE\tSERIAL\tWWN\tMIB\tPRESENT\tPATHS OUT")
		for _, d := range s.Disks {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d\t%s\t%s\n", d.Name, d.Enclosure, d.Serial, d.WWN, d.Bytes>>20, yesNo(d.Present),
				strings.Join(d.PathsOut, " "))
		}
	}
	return t.Flush()
}

func printArray(w io.Writer, t *tabwriter.Writer, a rack.ArrayStatus) error {
	fmt.Fprintf(w, "\narray %s: power %s, boot %s", a.Name, a.Power, a.Boot)
	for _, c := range a.ControllersOut {
		fmt.Fprintf(w, ", controller %d is out", c)
	}
	if len(a.DisksOut) > 0 {
		fmt.Fprintf(w, ", disks out: %s", strings.Join(a.DisksOut, " "))
	}
	fmt.Fprintln(w)
	fmt.Fprintln(t, "LUN\tNUMBER\tGROUP\tGROUP'S STATE\tOWNER\tSLOW")
	for _, l := range a.LUNs {
		state, owner, slow := "", fmt.Sprint(l.Owner), ""
		for _, g := range a.Groups {
			if g.Name != l.Group {
				continue
			}
			if state = g.State; g.State == "rebuilding" {
				state += fmt.Sprintf(" %.0f %%", g.Percent)
			}
		}
		if l.Owner != l.Preferred {
			owner += fmt.Sprintf(" (else %d)", l.Preferred)
		}
		if l.SlowMS > 0 {
			slow = fmt.Sprintf("%d ms", l.SlowMS)
		}
		fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%s\t%s\n", l.Name, l.Number, l.Group, state, owner, slow)
	}
	return t.Flush()
}

func onOff(b bool) string {
	if b {
		return "on"
	}
	return "OFF"
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func newRackSSHCmd() *cobra.Command {
	var f rackFlags
	var cmd *cobra.Command
	cmd = command("ssh", func(_ context.Context, _ *cli.Console, args []string) error {
		command := []string{}
		if dash := cmd.ArgsLenAtDash(); dash >= 0 {
			args, command = args[:dash], args[dash:]
		}
		spec := ""
		if f.dir == "" && len(args) > 0 {
			spec, args = args[0], args[1:]
		}
		if len(args) != 1 {
			return badUsage("name one node")
		}
		dir, err := f.find(spec)
		if err != nil {
			return err
		}
		return rackError(rack.SSH(dir, args[0], command))
	})
	cmd.Args = cobra.ArbitraryArgs
	f.add(cmd)
	return cmd
}

func newRackFaultCmd() *cobra.Command {
	var f rackFlags
	var help strings.Builder
	help.WriteString("\n")
	t := tabwriter.NewWriter(&help, 0, 8, 2, ' ', 0)
	for _, k := range rack.Faults() {
		fmt.Fprintf(t, "  %s\t%s\n", k, k.Help)
	}
	_ = t.Flush() // a strings.Builder never fails
	cmd := command("fault", func(ctx context.Context, _ *cli.Console, args []string) error {
		spec := ""
		if f.dir == "" {
			spec, args = args[0], args[1:]
		}
		if len(args) == 0 {
			return badUsage("name the kind of fault")
		}
		dir, err := f.find(spec)
		if err != nil {
			return err
		}
		return rackError(rack.Fault(ctx, dir, args[0], args[1:]...))
	})
	cmd.Long, cmd.Args = help.String(), cobra.MinimumNArgs(1)
	f.add(cmd)
	return cmd
}

// rackParts are the commands that the parts of a rack run: a virtual BMC, the SNMP agent of a
// virtual PDU, the disks of a node, the fabric of an array.
func rackParts() []*cobra.Command {
	part := func(name string, run func(context.Context, *cli.Console, []string) error) *cobra.Command {
		return hidden(name, func(ctx context.Context, c *cli.Console, args []string) error { return rackError(run(ctx, c, args)) })
	}
	chassis := part("_chassis", func(ctx context.Context, c *cli.Console, args []string) error {
		return rack.Chassis(ctx, args[0], args[1], args[2:], c.Out)
	})
	chassis.DisableFlagParsing = true
	return []*cobra.Command{
		chassis,
		part("_pdu", func(ctx context.Context, c *cli.Console, args []string) error {
			return rack.ServePDU(ctx, args[0], args[1], c.In, c.Out)
		}),
		part("_disks", func(ctx context.Context, _ *cli.Console, args []string) error {
			return rack.ServeDisks(ctx, args[0], args[1])
		}),
		part("_fabric", func(ctx context.Context, _ *cli.Console, args []string) error {
			return rack.ServeFabric(ctx, args[0], args[1])
		}),
	}
}

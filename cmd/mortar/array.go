package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mortarhpc/mortar/internal/brick/array"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/host"
)

func newArrayCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "array",
		Short: "RAID arrays: write their configuration script, compare their LUNs with the design",
	}
	cmd.AddCommand(newArrayScriptCmd(), newArrayVerifyCmd())
	return cmd
}

func newArrayScriptCmd() *cobra.Command {
	var tool, dir string
	cmd := &cobra.Command{
		Use:   "script SPEC [ARRAY]",
		Short: "Print what to type into an array: groups, virtual disks, hosts, mappings, cache",
		Long: `Print the configuration script of an array, in its own language: SMcli for
MD3200 and MD3220, the CLI of an ME4084, perccli or omconfig for a PERC. It is
for an array that has nothing on it. Nothing is reached and nothing changed:
running the script is yours.`,
		Example: `  mortar array script examples/nss4-ha-288.yaml > nss4.smcli
  mortar array script examples/nss5.5.yaml perc1 --tool omconfig
  mortar array script examples/lustre-rack.yaml --dir scripts`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := loadAnyDesign(args[0])
			if err != nil {
				return err
			}
			var names []string
			for _, a := range d.Arrays {
				names = append(names, a.Name)
			}
			switch {
			case len(args) == 2:
				names = args[1:]
			case len(names) == 0:
				return fail(exitBadInput, fmt.Errorf("%s: this brick has no array: its disks are JBODs (storage.kind)", args[0]))
			case len(names) > 1 && dir == "":
				return fail(exitBadInput, fmt.Errorf("which array? Name one of %s, or write all into a directory with --dir", strings.Join(names, ", ")))
			}
			scripts := map[string]string{}
			for _, n := range names {
				s, err := array.Script(d, n, tool)
				if err != nil {
					return fail(exitBadInput, err)
				}
				scripts[n] = s
			}
			if dir == "" {
				_, err := io.WriteString(cmd.OutOrStdout(), scripts[names[0]])
				return err
			}
			return writeScripts(cmd.OutOrStdout(), d, dir, tool, names, scripts)
		},
	}
	cmd.Flags().StringVar(&tool, "tool", "", "for a PERC: perccli (default) or omconfig")
	cmd.Flags().StringVar(&dir, "dir", "", "write a file for each array into this directory")
	return cmd
}

// writeScripts puts each script into a file of its own; none is overwritten.
func writeScripts(w io.Writer, d *design.Design, dir, tool string, names []string, scripts map[string]string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fail(exitFailed, err)
	}
	for _, n := range names {
		ext := tool
		for _, a := range d.Arrays {
			if a.Name == n && ext == "" {
				ext = array.Tools(a.Family)[0]
			}
		}
		file := filepath.Join(dir, n+"."+strings.ToLower(ext))
		f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if errors.Is(err, os.ErrExist) {
			return fail(exitBadInput, fmt.Errorf("%s is there already; remove it or choose another --dir", file))
		}
		if err != nil {
			return fail(exitFailed, err)
		}
		_, err = f.WriteString(scripts[n])
		if err = errors.Join(err, f.Close()); err != nil {
			return fail(exitFailed, errors.Join(err, os.Remove(file)))
		}
		fmt.Fprintln(w, file)
	}
	return nil
}

func newArrayVerifyCmd() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "verify SPEC",
		Short: "Compare the LUNs that the servers see with the design",
		Long: `Reaches the servers and compares the LUNs they see with the design: number,
size, WWN (where the spec has it), number of paths, and chunk and full stripe
where the array tells them. Nothing is changed, except that the mortar binary
is copied to servers that do not have it yet.

Exit codes: 0 as designed, 1 differences, 2 refused (bad spec, unreachable
server …).`,
		Example: `  mortar array verify brick.yaml
  mortar array verify brick.yaml --json | jq '.'`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := loadAnyDesign(args[0])
			if err != nil {
				return err
			}
			if len(d.Arrays) == 0 {
				return fail(exitBadInput, fmt.Errorf("%s: this brick has no array: its disks are JBODs (storage.kind)", args[0]))
			}
			seen, err := seenLUNs(cmd.Context(), d, !asJSON && isTerminal(os.Stderr))
			if err != nil {
				return err
			}
			r := array.Verify(d, seen)
			if asJSON {
				enc := json.NewEncoder(cmd.OutOrStdout())
				enc.SetIndent("", "  ")
				err = enc.Encode(r)
			} else {
				err = showVerify(cmd.OutOrStdout(), r)
			}
			if err != nil {
				return fail(exitFailed, err)
			}
			if len(r.Findings) > 0 {
				return fail(exitFailed, nil)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func showVerify(w io.Writer, r array.Result) error {
	var b strings.Builder
	for _, m := range r.Matches {
		paths := "1 path "
		if n := m.Seen.Paths; n != 1 {
			paths = fmt.Sprintf("%d paths", n)
		}
		fmt.Fprintf(&b, "%-12s %-18s %10s  %s  %s\n", m.Host, m.LUN, m.Seen.Size.Binary(), paths, m.Seen.WWN)
	}
	for _, f := range r.Findings {
		what := f.Text
		if f.LUN != "" {
			what = f.LUN + ": " + what
		}
		fmt.Fprintf(&b, "! %s: %s\n", f.Host, what)
	}
	for _, u := range r.Unproven {
		fmt.Fprintf(&b, "not compared: %s\n", u)
	}
	differences := "1 difference"
	if n := len(r.Findings); n != 1 {
		differences = fmt.Sprintf("%d differences", n)
	}
	fmt.Fprintf(&b, "%d of %d LUNs found, %s.\n", len(r.Matches), r.Expected, differences)
	_, err := io.WriteString(w, b.String())
	return err
}

// seenLUNs asks every server that is cabled to an array for its disks.
func seenLUNs(ctx context.Context, d *design.Design, live bool) (map[string][]array.Seen, error) {
	all, err := host.Inventory(d.Spec)
	if err != nil {
		return nil, fail(exitBadInput, err)
	}
	targets := map[string]host.Target{}
	for _, a := range d.Arrays {
		for _, s := range a.Servers {
			targets[s] = all[s]
		}
	}
	progress, done := connectProgress(os.Stderr, live)
	defer done()
	opts := connectOptions
	opts.Progress = progress
	hosts, err := host.ConnectAll(ctx, targets, opts)
	if err != nil {
		return nil, refused(ctx, d.Spec, err)
	}
	defer host.CloseAll(hosts)
	seen, failed := host.All(ctx, slices.Sorted(maps.Keys(hosts)), func(ctx context.Context, name string) ([]array.Seen, error) {
		progress(name, "looking at its LUNs")
		out, err := disksOf(ctx, hosts[name])
		if err != nil {
			err = fmt.Errorf("%s: %w", name, err)
		}
		return out, err
	})
	if err := failed.Join(); err != nil {
		return nil, refused(ctx, d.Spec, err)
	}
	return seen, nil
}

// disksOf reads a host's disks, with what sysfs knows of their make and
// geometry.
func disksOf(ctx context.Context, h *host.Session) ([]array.Seen, error) {
	f, err := h.Facts(ctx)
	if err != nil {
		return nil, err
	}
	var out []array.Seen
	for _, k := range f.Disks {
		s := array.Seen{Device: k.Device, WWN: k.WWN, Serial: k.Serial, Size: spec.Bytes(k.Size), Paths: len(k.Paths)}
		if len(k.Paths) > 0 {
			dir := "/sys/block/" + path.Base(k.Paths[0])
			s.Model = readSys(ctx, h, dir+"/device/vendor") + " " + readSys(ctx, h, dir+"/device/model")
			s.Chunk = bytesOf(readSys(ctx, h, dir+"/queue/minimum_io_size"))
			s.FullStripe = bytesOf(readSys(ctx, h, dir+"/queue/optimal_io_size"))
		}
		out = append(out, s)
	}
	return out, nil
}

// readSys reads a file of sysfs; what a device does not have is empty.
func readSys(ctx context.Context, h *host.Session, file string) string {
	text, _ := h.Read(ctx, file)
	return strings.TrimSpace(text)
}

func bytesOf(s string) spec.Bytes {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0
	}
	return spec.Bytes(n)
}

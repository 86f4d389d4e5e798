package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"

	"github.com/mortarhpc/mortar/internal/base/lists"
	"github.com/mortarhpc/mortar/internal/brick/array"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/converge/plan"
	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/prove/report"
	"github.com/mortarhpc/mortar/internal/run/change"
	"github.com/mortarhpc/mortar/internal/run/cli"
	"github.com/mortarhpc/mortar/internal/run/discover"
)

func newArrayScriptCmd() *cobra.Command {
	var tool, dir string
	var growth int
	cmd := command("script", func(ctx context.Context, c *cli.Console, args []string) error {
		d, err := cli.LoadAny(args[0])
		if err != nil {
			return err
		}
		names := lists.Map(d.Arrays, func(a design.Array) string { return a.Name })
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
			s, err := array.Script(d, n, tool, growth)
			if err != nil {
				return fail(exitBadInput, err)
			}
			scripts[n] = s
		}
		if dir == "" {
			_, err := io.WriteString(c.Out, scripts[names[0]])
			return err
		}
		return change.WriteScripts(c.Out, d, dir, tool, names, scripts)
	})
	cmd.Flags().StringVar(&tool, "tool", "", "for a PERC: perccli (default) or omconfig")
	cmd.Flags().IntVar(&growth, "growth", 0, "only what this growth adds (see mortar grow)")
	cmd.Flags().StringVar(&dir, "dir", "", "write a file for each array into this directory")
	return cmd
}

func newArrayVerifyCmd() *cobra.Command {
	var write bool
	cmd := command("verify", func(ctx context.Context, c *cli.Console, args []string) error {
		d, err := cli.LoadAny(args[0])
		if err != nil {
			return err
		}
		if len(d.Arrays) == 0 {
			return fail(exitBadInput, fmt.Errorf("%s: this brick has no array: its disks are JBODs (storage.kind)", args[0]))
		}
		r, err := luns(ctx, c, d)
		if err != nil {
			return err
		}
		if err := c.Show(r, func(w io.Writer) error { return showVerify(w, d, r) }); err != nil {
			return err
		}
		if len(r.Findings) > 0 {
			return fail(exitFailed, nil)
		}
		if !write {
			return nil
		}
		for _, id := range r.Identities {
			s, err := spec.Load(args[0]) // the previous array changed the file
			if err != nil {
				return fail(exitBadInput, err)
			}
			text, err := s.SetWWNs(id.Array, id.WWNs)
			if err != nil {
				return fail(exitBadInput, err)
			}
			if err := renameio.WriteFile(args[0], text, 0o644, renameio.WithExistingPermissions()); err != nil {
				return err
			}
			fmt.Fprintf(c.Err, "%s: array %s has its WWNs now\n", args[0], id.Array)
		}
		return nil
	})
	cmd.Flags().Bool("json", false, "print JSON")
	cmd.Flags().BoolVar(&write, "write", false, "put the WWNs that were found into the spec, if there is no difference and it has none")
	return cmd
}

// luns compares what the servers that are cabled to an array see with the design.
func luns(ctx context.Context, c *cli.Console, d *design.Design) (r array.Result, err error) {
	all, err := host.Inventory(d.Spec)
	if err != nil {
		return r, fail(exitBadInput, err)
	}
	targets := map[string]host.Target{}
	for _, a := range d.Arrays {
		for _, s := range a.Servers {
			targets[s] = all[s]
		}
	}
	progress, done := cli.Connecting(c.Err, !c.JSON && cli.IsTerminal(c.Err))
	defer done()
	opts := env.Connect
	opts.Progress = progress
	hosts, err := host.ConnectAll(ctx, targets, opts)
	if err != nil {
		return r, cli.Refused(ctx, d.Spec, err)
	}
	defer host.CloseAll(hosts)
	progress("", "looking at the LUNs")
	if r, err = plan.VerifyLUNs(ctx, d, hosts); err != nil {
		err = cli.Refused(ctx, d.Spec, err)
	}
	return r, err
}

func showVerify(w io.Writer, d *design.Design, r array.Result) error {
	var b strings.Builder
	for _, m := range r.Matches {
		fmt.Fprintf(&b, "%-12s %-18s LUN %-3d %10s  %-24s %s\n", m.Host, m.LUN, m.Seen.Number, m.Seen.Size.Binary(), pathsText(d, m), m.Seen.WWN)
	}
	for _, g := range array.Grouped(r.Findings) {
		fmt.Fprintf(&b, "! %s: %s\n    mend: %s\n", strings.Join(g.Hosts, ", "), g.Sentence(d), g.Mend)
	}
	for _, u := range r.Unproven {
		fmt.Fprintf(&b, "not compared: %s\n", u)
	}
	if len(r.Identities) > 0 {
		b.WriteString("WWNs for the spec (arrays.wwns); mortar array verify --write puts them there:\n")
	}
	for _, id := range r.Identities {
		fmt.Fprintf(&b, "  - name: %s\n    wwns: [\"%s\"]\n", id.Array, strings.Join(id.WWNs, `", "`))
	}
	fmt.Fprintf(&b, "%d of %d LUNs found, %s.\n", len(r.Matches), r.Expected, report.Plural(len(r.Findings), "difference"))
	_, err := io.WriteString(w, b.String())
	return err
}

// pathsText formats the paths to a LUN: "4 paths (A 2, B 2), owner A".
func pathsText(d *design.Design, m array.Match) string {
	text := report.Plural(m.Seen.Paths, "path")
	name := func(c int) string {
		for i := range d.Arrays {
			if slices.ContainsFunc(d.Arrays[i].LUNs, func(l design.LUN) bool { return l.Name == m.LUN }) {
				return array.ControllerName(&d.Arrays[i], c)
			}
		}
		return strconv.Itoa(c)
	}
	var each []string
	for c, n := range m.Seen.Controllers {
		each = append(each, fmt.Sprintf("%s %d", name(c), n))
	}
	if len(each) > 0 {
		text += " (" + strings.Join(each, ", ") + ")"
	}
	if m.Seen.Owner != nil {
		text += ", owner " + name(*m.Seen.Owner)
	}
	return text
}

func newDiscoverCmd() *cobra.Command {
	var clients []string
	var name, inventory string
	to := host.Target{}
	cmd := command("discover", func(ctx context.Context, c *cli.Console, args []string) error {
		targets, err := discoverTargets(append(args, clients...), to, inventory)
		if err != nil {
			return fail(exitBadInput, err)
		}
		seen, err := lookAtHosts(ctx, targets, c.Err)
		if err != nil {
			return err
		}
		if c.JSON {
			return cli.JSONLines(c.Out).Encode(seen)
		}
		d, err := discover.New(name, seen[:len(args)], seen[len(args):])
		if no := (*resource.Refusal)(nil); errors.As(err, &no) {
			return fail(exitBadInput, err)
		}
		if err != nil {
			return err
		}
		text, err := d.Text()
		if err != nil {
			return err
		}
		if _, err := io.WriteString(c.Out, text); err != nil {
			return err
		}
		return checkDraft(text, c.Err)
	})
	f := cmd.Flags()
	f.StringSliceVar(&clients, "clients", nil, "hosts that will mount the exports")
	f.StringVar(&name, "name", "brick1", "name of the brick")
	f.StringVar(&to.User, "user", "", "login name; another than root needs sudo without a password (default as ~/.ssh/config says, else root)")
	f.IntVar(&to.Port, "port", 0, "TCP port of SSH (default as ~/.ssh/config says, else 22)")
	f.StringVar(&to.Identity, "identity", "", "private key file (default as ~/.ssh/config says, else the agent and ~/.ssh/id_*)")
	f.StringVar(&to.KnownHosts, "known-hosts", "", "file of pinned host keys (default as ~/.ssh/config says, else ~/.ssh/known_hosts)")
	f.StringVar(&inventory, "inventory", "", "file that says how to reach the hosts, as a virtual rack writes it")
	f.Bool("json", false, "print what was seen of each host as JSON, and no spec")
	return cmd
}

// discoverTargets returns how to reach each host, in the order of the arguments.
func discoverTargets(names []string, like host.Target, inventory string) ([]host.Target, error) {
	known := map[string]host.Target{}
	if inventory != "" {
		var err error
		if known, err = host.ReadTargets(inventory); err != nil {
			return nil, err
		}
	}
	var all []host.Target
	twice := map[string]bool{}
	for _, n := range names {
		if twice[n] {
			return nil, fmt.Errorf("%s is named twice", n)
		}
		twice[n] = true
		t, ok := known[n]
		if !ok && inventory != "" {
			return nil, fmt.Errorf("%s has no host %s", inventory, n)
		}
		if !ok {
			t = like
			t.Name, t.Address = n, n
		}
		all = append(all, t)
	}
	return all, nil
}

// lookAtHosts reads all hosts at the same time.
func lookAtHosts(ctx context.Context, targets []host.Target, progress io.Writer) ([]discover.Host, error) {
	byName := map[string]host.Target{}
	var names []string
	for _, t := range targets {
		byName[t.Name], names = t, append(names, t.Name)
	}
	sessions, err := host.ConnectAll(ctx, byName, host.Options{LibDir: env.Connect.LibDir, Link: env.Connect.Link, AnyUser: env.Connect.AnyUser,
		Progress: func(h, what string) { fmt.Fprintf(progress, "%s: %s\n", h, what) }})
	if err != nil {
		return nil, fail(exitBadInput, err)
	}
	defer host.CloseAll(sessions)
	seen, errs := host.All(ctx, names, func(ctx context.Context, n string) (discover.Host, error) {
		return lookAt(ctx, sessions[n], byName[n])
	})
	if err := errs.Join(); err != nil {
		return nil, err
	}
	all := lists.Map(names, func(n string) discover.Host { return seen[n] })
	return all, nil
}

func lookAt(ctx context.Context, s *host.Session, t host.Target) (discover.Host, error) {
	hello, err := s.Hello(ctx)
	if err != nil {
		return discover.Host{}, err
	}
	hw, err := s.Hardware(ctx)
	if err != nil {
		return discover.Host{}, err
	}
	address, err := netip.ParseAddr(t.Address)
	if err != nil {
		found, lookupErr := net.DefaultResolver.LookupNetIP(ctx, "ip4", t.Address)
		if lookupErr != nil {
			return discover.Host{}, lookupErr
		}
		address = found[0].Unmap()
	}
	return discover.Host{Name: hello.Hostname, Address: address, Memory: hello.MemBytes, Hardware: hw}, nil
}

// checkDraft checks a draft by the rules for a user's file.
func checkDraft(text string, w io.Writer) error {
	s, err := spec.Parse("brick.yaml", []byte(text))
	if err == nil {
		_, err = design.New(s)
	}
	if err != nil {
		fmt.Fprintln(w, "mortar: the draft does not pass mortar check yet:")
		return err
	}
	return nil
}

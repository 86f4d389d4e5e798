package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"

	"github.com/spf13/cobra"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/run/cli"
	"github.com/mortarhpc/mortar/internal/run/discover"
)

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
		var no *resource.Refusal
		if errors.As(err, &no) {
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
	var all []discover.Host
	for _, n := range names {
		all = append(all, seen[n])
	}
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

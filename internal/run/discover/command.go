package discover

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"

	"github.com/mortarhpc/mortar/internal/base/lists"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/run/cli"
)

// Command is mortar discover.
type Command struct {
	Name      string // the brick's
	Clients   []string
	Inventory string      // file of how to reach the hosts; "": as To says
	To        host.Target // without name and address
}

// Run prints the draft of a spec for servers and the clients.
func (x Command) Run(ctx context.Context, c *cli.Console, servers []string) error {
	names := slices.Concat(servers, x.Clients)
	targets, err := x.targets(names)
	if err != nil {
		return cli.Fail(cli.BadInput, err)
	}
	sessions, err := host.ConnectAll(ctx, targets, host.Options{LibDir: c.Connect.LibDir, Link: c.Connect.Link, AnyUser: c.Connect.AnyUser,
		Progress: func(h, what string) { fmt.Fprintf(c.Err, "%s: %s\n", h, what) }})
	if err != nil {
		return cli.Fail(cli.BadInput, err)
	}
	defer host.CloseAll(sessions)
	by, errs := host.All(ctx, names, func(ctx context.Context, n string) (Host, error) {
		return look(ctx, sessions[n], targets[n].Address)
	})
	if err := errs.Join(); err != nil {
		return err
	}
	seen := lists.Map(names, func(n string) Host { return by[n] })
	if c.JSON {
		return cli.JSONLines(c.Out).Encode(seen)
	}
	d, err := New(x.Name, seen[:len(servers)], seen[len(servers):])
	if no := (*resource.Refusal)(nil); errors.As(err, &no) {
		return cli.Fail(cli.BadInput, err)
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
	s, err := spec.Parse("brick.yaml", []byte(text))
	if err == nil {
		_, err = design.New(s)
	}
	if err != nil {
		fmt.Fprintln(c.Err, "mortar: the draft does not pass mortar check yet:")
	}
	return err
}

// targets returns how to reach each host.
func (x Command) targets(names []string) (map[string]host.Target, error) {
	known := map[string]host.Target{}
	if x.Inventory != "" {
		var err error
		if known, err = host.ReadTargets(x.Inventory); err != nil {
			return nil, err
		}
	}
	all := map[string]host.Target{}
	for _, n := range names {
		if _, twice := all[n]; twice {
			return nil, fmt.Errorf("%s is named twice", n)
		}
		t, ok := known[n]
		if !ok && x.Inventory != "" {
			return nil, fmt.Errorf("%s has no host %s", x.Inventory, n)
		}
		if !ok {
			t = x.To
			t.Name, t.Address = n, n
		}
		all[n] = t
	}
	return all, nil
}

func look(ctx context.Context, s *host.Session, at string) (Host, error) {
	hello, err := s.Hello(ctx)
	if err != nil {
		return Host{}, err
	}
	hw, err := s.Hardware(ctx)
	if err != nil {
		return Host{}, err
	}
	address, err := netip.ParseAddr(at)
	if err != nil {
		found, lookupErr := net.DefaultResolver.LookupNetIP(ctx, "ip4", at)
		if lookupErr != nil {
			return Host{}, lookupErr
		}
		address = found[0].Unmap()
	}
	return Host{Name: hello.Hostname, Address: address, Memory: hello.MemBytes, Hardware: hw}, nil
}

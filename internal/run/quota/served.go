package quota

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/host/agent"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/run/procedure"
)

// Served is a service and the server that has its volume mounted.
type Served struct {
	*design.Service
	Server string
	Host   *host.Session
	Kinds  []string // the kinds of quota that its volume counts
}

// On finds the server of each service of a brick, or of the one that is named. It refuses a
// service that the brick does not have.
func On(ctx context.Context, d *design.Design, service string, hosts host.ByName) ([]Served, error) {
	all := d.Services()
	if service != "" {
		s, err := procedure.Service(d, service)
		if err != nil {
			return nil, err
		}
		all = []*design.Service{s}
	}
	var on []Served
	for _, s := range all {
		x, err := servedOn(ctx, s, d.Servers(), hosts)
		if err != nil {
			return nil, err
		}
		on = append(on, *x)
	}
	return on, nil
}

func servedOn(ctx context.Context, s *design.Service, servers []string, hosts host.ByName) (*Served, error) {
	var errs []error
	for _, v := range servers {
		h := hosts(v)
		kinds, mounted, err := Mounted(ctx, h, s.MountPoint)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", v, err))
		}
		if mounted {
			return &Served{s, v, h, kinds}, nil
		}
	}
	return nil, errors.Join(append(errs, fmt.Errorf("no server that answers has %s mounted", s.MountPoint))...)
}

// Run runs an action on the server of the service.
func (s *Served) Run(ctx context.Context, a resource.Action) error {
	_, err := s.Host.Run(ctx, a)
	if ae := (*agent.Error)(nil); errors.As(err, &ae) {
		err = fmt.Errorf("%w: %s", err, strings.TrimSpace(ae.Stderr))
	}
	if err != nil {
		return fmt.Errorf("%s: %w", s.Server, err)
	}
	return nil
}

// Table writes a line for each entry; nothing, if there is none.
func Table(w io.Writer, all []Entry) error {
	if len(all) == 0 {
		return nil
	}
	size := func(n int64) string { return spec.Bytes(n).Binary() }
	count := func(n int64) string { return fmt.Sprint(n) }
	limit := func(n int64, text func(int64) string) string {
		if n == 0 {
			return "-"
		}
		return text(n)
	}
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "SERVICE\tKIND\tID\tSPACE\tSOFT\tHARD\tFILES\tSOFT\tHARD\t")
	for _, e := range all {
		if e.Unread != "" {
			fmt.Fprintf(t, "%s\t%s\tnot understood: %s\n", e.Service, e.Kind, e.Unread)
			continue
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%d\t%s\t%s\t%s\n", e.Service, e.Kind, e.ID, size(e.Space.Used), limit(e.Space.Soft, size), limit(e.Space.Hard, size),
			e.Files.Used, limit(e.Files.Soft, count), limit(e.Files.Hard, count), e.over())
	}
	return t.Flush()
}

// over describes what exceeds a limit.
func (e *Entry) over() string {
	for _, l := range []struct {
		of string
		Limit
	}{{"space", e.Space}, {"files", e.Files}} {
		switch {
		case l.Hard > 0 && l.Used >= l.Hard:
			return "no more " + l.of
		case l.Grace != "":
			return l.of + " above soft limit: " + l.Grace + " left"
		}
	}
	return ""
}

package plan

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/distro"
	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/base/lists"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/host/agent"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

// Software is what the servers of a pair must have alike, by name of a package or
// "kernel": the version that a server has, or that it would get.
type Software map[string]string

// member says whether a server is in a cluster: the resources that it is to run are on its
// disk. A new server has none.
func (f *Facts) member(server string) bool { return len(f.Hosts[server].Configured) > 0 }

// seeSoftware asks the servers of each pair with a new one what they have. Nothing is installed.
func seeSoftware(ctx context.Context, d *design.Design, hosts map[string]*host.Session, f *Facts) (map[string]Software, error) {
	var servers []string
	for i := range d.Pairs {
		if p := &d.Pairs[i]; p.HA != nil && slices.ContainsFunc(p.Servers, func(s string) bool { return !f.member(s) }) {
			servers = append(servers, p.Servers...)
		}
	}
	seen, failed := host.All(ctx, servers, func(ctx context.Context, name string) (Software, error) {
		s, err := softwareOf(ctx, hosts[name], distro.Nearest(f.OS[name]))
		if err != nil {
			err = fmt.Errorf("%s: versions of packages: %w", name, err)
		}
		return s, err
	})
	return seen, cmp.Or(ctx.Err(), failed.Join())
}

// asker is what softwareOf needs of a session.
type asker interface {
	Hello(ctx context.Context) (agent.Hello, error)
	Query(ctx context.Context, argv ...string) (resource.Output, error)
}

func softwareOf(ctx context.Context, h asker, d distro.Distro) (Software, error) {
	s := Software{}
	hello, err := h.Hello(ctx)
	if err != nil {
		return s, err
	}
	s["kernel"] = hello.Kernel
	add := func(line string) {
		if f := strings.Fields(line); len(f) == 2 && slices.Contains(d.Packages.Alike, f[0]) {
			s[f[0]] = f[1]
		}
	}
	out, err := h.Query(ctx, slices.Concat(d.Manager.Versions, d.Packages.Alike)...)
	if err != nil {
		return s, err
	}
	for line := range strings.Lines(out.Stdout) { // the exit code tells that one is missing
		add(line)
	}
	missing := lists.Only(d.Packages.Alike, func(p string) bool { return s[p] == "" })
	if len(missing) == 0 || len(d.Manager.Candidate) == 0 {
		return s, nil
	}
	// A server whose lists of packages are empty cannot say; its distribution is compared.
	if out, err = h.Query(ctx, slices.Concat(d.Manager.Candidate, missing)...); err == nil && out.Code == 0 {
		for _, p := range d.Manager.Newer(out.Stdout) {
			add(p)
		}
	}
	return s, err
}

// series is the part of a version that two servers must have in common: 2.1 of
// 1:2.1.5-1+deb12u1. Corrections within it come to one server before the other.
var series = regexp.MustCompile(`^(?:[0-9]+:)?([0-9]+(?:\.[0-9]+)?)`)

func seriesOf(version string) string {
	if m := series.FindStringSubmatch(version); m != nil {
		return m[1]
	}
	return version
}

// alike refuses a new server whose software is of another release than its partner's. Of
// two that are in the cluster one may be ahead: an upgrade goes from server to server.
func (b *builder) alike() error {
	if b.pair.HA == nil || len(b.servers) != 2 {
		return nil
	}
	x, y := b.servers[0], b.servers[1]
	one, other := b.facts.Software[x], b.facts.Software[y]
	if b.facts.member(x) && b.facts.member(y) || one == nil || other == nil {
		return nil
	}
	if b.facts.member(x) { // y is the new one, or both are
		x, y, one, other = y, x, other, one
	}
	wanted := b.serverPackages(x).Names
	var differ []string
	if p, q := b.facts.OS[x], b.facts.OS[y]; p.ID != q.ID || seriesOf(p.Version) != seriesOf(q.Version) {
		differ = append(differ, fmt.Sprintf("%s, not %s", name(p), name(q)))
	}
	for _, p := range slices.Sorted(maps.Keys(one)) {
		v, w := one[p], other[p]
		if w == "" || seriesOf(v) == seriesOf(w) || p == "kernel" && b.facts.Lustre.newestKernel() != "" || p != "kernel" && !slices.Contains(wanted, p) {
			continue // Lustre's packages bring their kernel
		}
		differ = append(differ, fmt.Sprintf("%s %s, not %s", p, v, w))
	}
	if len(differ) == 0 {
		return nil
	}
	return Refusals{refuse(x, "host", "partner-differs", resource.With{"host": x, "partner": y, "differs": differ})}
}

func name(os linux.OSRelease) string {
	return cmp.Or(os.Name, strings.TrimSpace(os.ID+" "+os.Version))
}

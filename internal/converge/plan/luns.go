package plan

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/base/lists"
	"github.com/mortarhpc/mortar/internal/brick/array"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/host/gather"
)

// seeLUNs asks the servers of arrays for their SCSI disks; nil without arrays.
func seeLUNs(ctx context.Context, d *design.Design, hosts map[string]*host.Session) (map[string][]linux.SCSIDisk, error) {
	servers := lists.Flat(d.Arrays, func(a design.Array) []string { return a.Servers })
	if len(servers) == 0 {
		return nil, nil
	}
	seen, failed := host.All(ctx, slices.Compact(slices.Sorted(slices.Values(servers))), func(ctx context.Context, name string) ([]linux.SCSIDisk, error) {
		h, err := host.Ask(ctx, hosts[name], gather.Op, gather.Request{SCSI: true})
		if err != nil {
			err = fmt.Errorf("%s: LUNs: %w", name, err)
		}
		return h.SCSI, err
	})
	return seen, failed.Join()
}

// VerifyLUNs compares the LUNs that the servers of arrays see with the design,
// and looks at what those carry that are as designed. It changes nothing.
func VerifyLUNs(ctx context.Context, d *design.Design, hosts map[string]*host.Session) (array.Result, error) {
	seen, err := seeLUNs(ctx, d, hosts)
	if err != nil {
		return array.Result{}, err
	}
	r := array.Verify(d, seen)
	if d, err = identified(d, r.Identities); err != nil {
		return r, err
	}
	facts, err := Observe(ctx, hosts)
	if err != nil {
		return r, err
	}
	found := func(host, lun string) bool {
		return slices.ContainsFunc(r.Matches, func(m array.Match) bool { return m.Host == host && m.LUN == lun && m.Seen.Paths > 0 }) &&
			!slices.ContainsFunc(r.Findings, func(f array.Finding) bool { return f.LUN == lun && !f.Passing })
	}
	var steps []Step
	for i := range d.Pairs {
		if l, ok := newBuilder(d, &d.Pairs[i], facts, nil).storage().(lunStorage); ok {
			steps = append(steps, l.foreign(found)...)
		}
	}
	_, err = Build(ctx, steps, hosts)
	var refused Refusals
	if errors.As(err, &refused) {
		for _, x := range refused {
			r.Findings = append(r.Findings, array.Found(x.Host, "", "lun-refused", map[string]any{"what": x.What, "mend": x.Mend}))
		}
		err = nil
	}
	return r, err
}

// identified is the design with WWNs that were found.
func identified(d *design.Design, ids []array.Identity) (*design.Design, error) {
	if len(ids) == 0 {
		return d, nil
	}
	s := *d.Spec
	s.Arrays = slices.Clone(s.Arrays)
	for _, id := range ids {
		i := slices.IndexFunc(s.Arrays, func(a spec.Array) bool { return a.Name == id.Array })
		if i < 0 {
			return nil, fmt.Errorf("there is no array %s", id.Array)
		}
		s.Arrays[i].WWNs = id.WWNs
	}
	return design.Derive(&s)
}

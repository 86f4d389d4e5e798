package lustre

import (
	"context"
	"slices"
	"strings"

	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

// Pool is a named set of OSTs.
type Pool struct {
	Name string   `json:"name"`
	OSTs []string `json:"osts"` // small-OST0000
	// Spec: the pool is in lustre.pools of the spec, and apply maintains it.
	Spec bool `json:"in_spec"`
}

// Pools returns the pools that the MGS knows.
//
// Source: lctl-pool_list(8); recorded with Lustre 2.17.57
func (f *FS) Pools(ctx context.Context) ([]Pool, error) {
	text, server, err := f.askMDS(ctx, "lctl", "pool_list", f.d.Lustre.FSName)
	if err != nil {
		return nil, err
	}
	var out []Pool
	for _, name := range poolNames(text, f.d.Lustre.FSName) {
		text, err := f.query(ctx, server, "lctl", "pool_list", f.pool(name))
		if err != nil {
			return nil, err
		}
		osts := poolMembers(text)
		slices.Sort(osts) // lctl lists them in the order of their addition
		out = append(out, Pool{Name: name, OSTs: osts, Spec: f.inSpec(name)})
	}
	return out, nil
}

// mdt is the name of the first MDT, whose server knows the pools.
func (f *FS) mdt() string { return f.d.Lustre.FSName + "-MDT0000" }

// pool is a pool's full name for lctl.
func (f *FS) pool(name string) string { return f.d.Lustre.FSName + "." + name }

func (f *FS) inSpec(pool string) bool {
	return slices.ContainsFunc(f.d.Lustre.Pools, func(p spec.OSTPool) bool { return p.Name == pool })
}

// poolNames reads `lctl pool_list FSNAME`: a headline, then FSNAME.POOL a line.
func poolNames(text, fsname string) []string {
	var out []string
	for line := range strings.Lines(text) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), fsname+"."); ok {
			out = append(out, name)
		}
	}
	return out
}

// poolMembers reads `lctl pool_list FSNAME.POOL`: a headline, then the UUIDs of
// OSTs.
func poolMembers(text string) []string {
	out := []string{}
	for line := range strings.Lines(text) {
		if ost, ok := strings.CutSuffix(strings.TrimSpace(line), "_UUID"); ok {
			out = append(out, ost)
		}
	}
	return out
}

// PoolCreate plans a new pool of some OSTs.
func (f *FS) PoolCreate(ctx context.Context, name string, osts []string) (*Plan, error) {
	all, server, err := f.poolToChange(ctx, name)
	switch {
	case err != nil:
		return nil, err
	case !spec.NamesPool(name) || name == "none":
		return nil, resource.Refuse("pool-name", resource.With{"pool": name})
	case slices.ContainsFunc(all, func(p Pool) bool { return p.Name == name }):
		return nil, resource.Refuse("pool-exists", resource.With{"pool": name})
	case len(osts) == 0:
		return nil, resource.Refuse("pool-no-osts", nil)
	}
	names, err := f.ostNames(osts)
	if err != nil {
		return nil, err
	}
	full := f.pool(name)
	return &Plan{What: "create pool " + name, Steps: []Step{
		command(server, "make pool "+full, 0, "lctl", "pool_new", full),
		command(server, "add "+strings.Join(names, ", ")+" to it", 0, append([]string{"lctl", "pool_add", full}, names...)...),
	}, Notes: []string{"the pool is not of the spec: apply leaves it alone"}}, nil
}

// PoolAdd plans to add OSTs to a pool.
func (f *FS) PoolAdd(ctx context.Context, name string, osts []string) (*Plan, error) {
	return f.poolChange(ctx, name, osts, "add", "to", func(p *Pool, o string) bool { return !slices.Contains(p.OSTs, o) })
}

// PoolRemove plans to take OSTs out of a pool.
func (f *FS) PoolRemove(ctx context.Context, name string, osts []string) (*Plan, error) {
	p, err := f.poolChange(ctx, name, osts, "remove", "out of", func(p *Pool, o string) bool { return slices.Contains(p.OSTs, o) })
	if p != nil {
		p.Notes = append(p.Notes, "files that are on them stay there")
	}
	return p, err
}

func (f *FS) poolChange(ctx context.Context, name string, osts []string, what, where string, wanted func(*Pool, string) bool) (*Plan, error) {
	pool, server, err := f.poolThere(ctx, name)
	if err != nil {
		return nil, err
	}
	names, err := f.ostNames(osts)
	if err != nil {
		return nil, err
	}
	p := &Plan{What: what + " OSTs " + where + " pool " + name}
	if names = slices.DeleteFunc(names, func(o string) bool { return !wanted(pool, o) }); len(names) == 0 {
		p.Nothing = "pool " + name + " is like that already"
		return p, nil
	}
	full := f.pool(name)
	p.Steps = []Step{command(server, what+" "+strings.Join(names, ", ")+" "+where+" pool "+full, 0, append([]string{"lctl", "pool_" + what, full}, names...)...)}
	return p, nil
}

// PoolDestroy plans to empty and destroy a pool. Lustre destroys only empty pools.
func (f *FS) PoolDestroy(ctx context.Context, name string, _ []string) (*Plan, error) {
	pool, server, err := f.poolThere(ctx, name)
	if err != nil {
		return nil, err
	}
	full := f.pool(name)
	p := &Plan{What: "destroy pool " + name, Notes: []string{"files of the pool stay where they are; directories whose default layout names it get files on any OST"}}
	if len(pool.OSTs) > 0 {
		p.Steps = append(p.Steps, command(server, "take all OSTs out of pool "+full, 0, append([]string{"lctl", "pool_remove", full}, pool.OSTs...)...))
	}
	p.Steps = append(p.Steps, command(server, "destroy pool "+full, 0, "lctl", "pool_destroy", full))
	return p, nil
}

// poolToChange returns all pools and the MGS's server. It refuses to change a pool
// of the spec, because the next apply would undo the change.
func (f *FS) poolToChange(ctx context.Context, name string) ([]Pool, string, error) {
	if f.inSpec(name) {
		return nil, "", resource.Refuse("pool-in-spec", resource.With{"pool": name})
	}
	server, err := f.server("MGS")
	if err != nil {
		return nil, "", err
	}
	all, err := f.Pools(ctx)
	return all, server, err
}

// poolThere is poolToChange for a pool that must exist.
func (f *FS) poolThere(ctx context.Context, name string) (pool *Pool, server string, err error) {
	all, server, err := f.poolToChange(ctx, name)
	if err != nil {
		return nil, "", err
	}
	pool, err = find(all, name)
	return pool, server, err
}

// find finds a pool by its name; its error lists the existing pools.
func find(all []Pool, name string) (*Pool, error) {
	var names []string
	for i := range all {
		if all[i].Name == name {
			return &all[i], nil
		}
		names = append(names, all[i].Name)
	}
	return nil, resource.Refuse("pool-no-such", resource.With{"pool": name, "pools": names})
}

func (f *FS) ostNames(words []string) ([]string, error) {
	var out []string
	for _, w := range words {
		t, err := f.ost(w)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(out, t.Name) {
			out = append(out, t.Name)
		}
	}
	return out, nil
}

package lustre

import (
	"context"
	"regexp"
	"slices"
	"strings"
)

// Pool is a named set of OSTs.
type Pool struct {
	Name string   `json:"name"`
	OSTs []string `json:"osts"` // small-OST0000
	// Spec: lustre.pools has it, and apply sees to it.
	Spec bool `json:"in_spec"`
}

// Pools are those that the MGS knows.
//
// Source: lctl-pool_list(8); recorded with Lustre 2.17.57
func (f *FS) Pools(ctx context.Context) ([]Pool, error) {
	server, err := f.server(f.mdt())
	if err != nil {
		return nil, err
	}
	text, err := f.query(ctx, server, "lctl", "pool_list", f.d.Lustre.FSName)
	if err != nil {
		return nil, err
	}
	var out []Pool
	for _, name := range poolNames(text, f.d.Lustre.FSName) {
		text, err := f.query(ctx, server, "lctl", "pool_list", f.d.Lustre.FSName+"."+name)
		if err != nil {
			return nil, err
		}
		out = append(out, Pool{Name: name, OSTs: poolMembers(text), Spec: f.inSpec(name)})
	}
	return out, nil
}

// mdt is the name of the first MDT, whose server knows the pools.
func (f *FS) mdt() string { return f.d.Lustre.FSName + "-MDT0000" }

func (f *FS) inSpec(pool string) bool {
	for _, p := range f.d.Lustre.Pools {
		if p.Name == pool {
			return true
		}
	}
	return false
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

// poolName is what Lustre takes.
// Source: lctl-pool_new(8)
var poolName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,15}$`)

// PoolCreate plans a new pool of some OSTs.
func (f *FS) PoolCreate(ctx context.Context, name string, osts []string) (*Plan, error) {
	all, server, err := f.poolToChange(ctx, name)
	switch {
	case err != nil:
		return nil, err
	case !poolName.MatchString(name) || name == "none":
		return nil, refuse("use at most 15 letters, digits, - and _", "%q cannot name a pool", name)
	case find(all, name) != nil:
		return nil, refuse("`mortar lustre pool add` adds OSTs to it", "there is a pool %s already", name)
	case len(osts) == 0:
		return nil, refuse("name OSTs, e.g. OST0000 OST0001", "a pool without OSTs serves nobody")
	}
	names, err := f.ostNames(osts)
	if err != nil {
		return nil, err
	}
	full := f.d.Lustre.FSName + "." + name
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
	all, server, err := f.poolToChange(ctx, name)
	if err != nil {
		return nil, err
	}
	pool := find(all, name)
	if pool == nil {
		return nil, noPool(all, name)
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
	full := f.d.Lustre.FSName + "." + name
	p.Steps = []Step{command(server, what+" "+strings.Join(names, ", ")+" "+where+" pool "+full, 0, append([]string{"lctl", "pool_" + what, full}, names...)...)}
	return p, nil
}

// PoolDestroy plans the end of a pool. Lustre destroys only an empty one.
func (f *FS) PoolDestroy(ctx context.Context, name string) (*Plan, error) {
	all, server, err := f.poolToChange(ctx, name)
	if err != nil {
		return nil, err
	}
	pool := find(all, name)
	if pool == nil {
		return nil, noPool(all, name)
	}
	full := f.d.Lustre.FSName + "." + name
	p := &Plan{What: "destroy pool " + name, Notes: []string{"files of the pool stay where they are; directories whose default layout names it get files on any OST"}}
	if len(pool.OSTs) > 0 {
		p.Steps = append(p.Steps, command(server, "take all OSTs out of pool "+full, 0, append([]string{"lctl", "pool_remove", full}, pool.OSTs...)...))
	}
	p.Steps = append(p.Steps, command(server, "destroy pool "+full, 0, "lctl", "pool_destroy", full))
	return p, nil
}

// poolToChange gives all pools and the MGS's server, and refuses to change a
// pool of the spec: the next apply would change it back.
func (f *FS) poolToChange(ctx context.Context, name string) ([]Pool, string, error) {
	if f.inSpec(name) {
		return nil, "", refuse("change lustre.pools in the spec and run `mortar apply`; to destroy the pool, take it out of the spec first", "pool %s is of the spec", name)
	}
	server, err := f.server("MGS")
	if err != nil {
		return nil, "", err
	}
	all, err := f.Pools(ctx)
	return all, server, err
}

func find(all []Pool, name string) *Pool {
	for i := range all {
		if all[i].Name == name {
			return &all[i]
		}
	}
	return nil
}

func noPool(all []Pool, name string) error {
	var names []string
	for _, p := range all {
		names = append(names, p.Name)
	}
	return refuse("choose one of: "+strings.Join(names, ", "), "there is no pool %q", name)
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

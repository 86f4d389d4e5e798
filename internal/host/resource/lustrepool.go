package resource

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// LustrePool is a named set of OSTs, which directories and files can be put
// on.
type LustrePool struct {
	FSName, Name string
	OSTs         []int
	// Home: the MGS runs on this server as a rule.
	Home bool
}

// Kind is "lustre-pool".
func (p *LustrePool) Kind() string { return "lustre-pool" }

// ID is file system and pool, as lctl names it.
func (p *LustrePool) ID() string { return p.FSName + "." + p.Name }

// Diff compares what pool_list shows. An OST that the spec does not have in
// the pool is taken out: files that are on it stay there.
func (p *LustrePool) Diff(ctx context.Context, sys Sys) ([]Action, error) {
	here, mine, err := mgsHere(sys, p.Home)
	if err != nil || !mine {
		return nil, err
	}
	var have []string
	made := false
	if here {
		if have, made, err = p.list(ctx, sys); err != nil {
			return nil, err
		}
	}
	var want, add []string
	for _, i := range p.OSTs {
		ost := fmt.Sprintf("%s-OST%04x", p.FSName, i)
		want = append(want, ost)
		if !slices.Contains(have, ost) {
			add = append(add, ost)
		}
	}
	var as []Action
	if !made {
		as = append(as, Action{Title: "make pool " + p.ID(), Cmd: []string{"lctl", "pool_new", p.ID()}})
	}
	if len(add) > 0 {
		as = append(as, Action{Title: "add " + strings.Join(add, ", ") + " to pool " + p.ID(), Cmd: append([]string{"lctl", "pool_add", p.ID()}, add...)})
	}
	if extra := slices.DeleteFunc(have, func(o string) bool { return slices.Contains(want, o) }); len(extra) > 0 {
		as = append(as, Action{
			Title: "take " + strings.Join(extra, ", ") + " out of pool " + p.ID(), Why: "files that are on them stay there",
			Cmd: append([]string{"lctl", "pool_remove", p.ID()}, extra...),
		})
	}
	return as, nil
}

// noOSTs is the exit code of lctl pool_list while no OST has come to the MDT, as after
// an apply that was cut short before the OSS. Seen with Lustre 2.17.57.
const noOSTs = 12

// list gives the pool's OSTs, and whether there is such a pool.
func (p *LustrePool) list(ctx context.Context, sys Sys) (osts []string, made bool, err error) {
	argv := []string{"lctl", "pool_list", p.FSName}
	out, err := sys.Query(ctx, argv...)
	if err != nil {
		return nil, false, err
	}
	if out.Code == noOSTs {
		return nil, false, nil
	}
	if out.Code != 0 {
		return nil, false, failed(out, argv...)
	}
	if !slices.Contains(strings.Fields(out.Stdout), p.ID()) {
		return nil, false, nil
	}
	argv = []string{"lctl", "pool_list", p.ID()}
	if out, err = sys.Query(ctx, argv...); err != nil {
		return nil, false, err
	}
	if out.Code != 0 {
		return nil, false, failed(out, argv...)
	}
	for line := range strings.Lines(out.Stdout) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, p.FSName+"-OST") {
			osts = append(osts, strings.TrimSuffix(line, "_UUID"))
		}
	}
	return osts, true, nil
}

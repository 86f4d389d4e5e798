package resource

import (
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

func (p *LustrePool) Identity() (kind, id string) { return "lustre-pool", p.id() }

func (p *LustrePool) id() string { return p.FSName + "." + p.Name }

// Diff compares what pool_list shows. An OST that the spec does not have in
// the pool is taken out: files that are on it stay there.
func (p *LustrePool) Diff(sys Look) ([]Action, error) {
	here, mine := mgsHere(sys, p.Home)
	if !mine {
		return nil, nil
	}
	var have []string
	made := false
	if here {
		have, made = p.list(sys)
	}
	id := p.id()
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
		as = append(as, Action{Title: "make pool " + id, Cmd: []string{"lctl", "pool_new", id}})
	}
	if len(add) > 0 {
		as = append(as, Action{Title: "add " + strings.Join(add, ", ") + " to pool " + id, Cmd: append([]string{"lctl", "pool_add", id}, add...)})
	}
	if extra := slices.DeleteFunc(have, func(o string) bool { return slices.Contains(want, o) }); len(extra) > 0 {
		as = append(as, Action{
			Title: "take " + strings.Join(extra, ", ") + " out of pool " + id, Why: "files that are on them stay there",
			Cmd: append([]string{"lctl", "pool_remove", id}, extra...),
		})
	}
	return as, nil
}

// noOSTs is the exit code of lctl pool_list while no OST has come to the MDT, as after
// an apply that was cut short before the OSS. Seen with Lustre 2.17.57.
const noOSTs = 12

// list gives the pool's OSTs, and whether there is such a pool.
func (p *LustrePool) list(sys Look) (osts []string, made bool) {
	argv := []string{"lctl", "pool_list", p.FSName}
	out, err := sys.Query(sys.Ctx, argv...)
	sys.Check(err)
	if out.Code == noOSTs {
		return nil, false
	}
	sys.Succeeded(out, argv...)
	if !slices.Contains(strings.Fields(out.Stdout), p.id()) {
		return nil, false
	}
	for line := range strings.Lines(sys.Ask("lustre-server-utils", "lctl", "pool_list", p.id())) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, p.FSName+"-OST") {
			osts = append(osts, strings.TrimSuffix(line, "_UUID"))
		}
	}
	return osts, true
}

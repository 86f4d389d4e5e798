package design

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/mortarhpc/mortar/internal/brick/spec"
)

// Extends returns the pairs of servers that d has and was, the design of the same
// Lustre file system before, has not. It fails if anything that exists would change:
// a server, a RAID group, a target, or how clients mount the file system. Pools,
// parameters and clients may differ: apply changes those without a stop.
func (d *Design) Extends(was *Design) ([]Pair, error) {
	if was.Lustre == nil || d.Lustre == nil {
		return nil, fmt.Errorf("%s: only a Lustre file system grows by servers; others grow by disks", was.Name)
	}
	if what, of, is := fileSystemDiffers(was, d); what != "" {
		return nil, fmt.Errorf("%s: %s would change from %q to %q; a growth only adds", d.Name, what, of, is)
	}
	for _, s := range was.Spec.Servers {
		i := slices.IndexFunc(d.Spec.Servers, func(is spec.Server) bool { return is.Name == s.Name })
		if i < 0 || !reflect.DeepEqual(s, d.Spec.Servers[i]) {
			return nil, fmt.Errorf("%s: server %s would change or go; a growth only adds", d.Name, s.Name)
		}
	}
	for i, g := range was.Groups {
		if i >= len(d.Groups) || !reflect.DeepEqual(g, d.Groups[i]) {
			return nil, fmt.Errorf("%s: RAID group %s of module %s would change or go; put new modules behind the others", d.Name, g.Name, g.Module)
		}
	}
	for i, p := range was.Pairs {
		if i >= len(d.Pairs) || !reflect.DeepEqual(p, d.Pairs[i]) {
			return nil, fmt.Errorf("%s: module %s would change or go; put new modules behind the others", d.Name, p.Name)
		}
	}
	return d.Pairs[len(was.Pairs):], nil
}

// fileSystemDiffers names the first of what all clients and servers agree on that is
// not the same in both; "" if all is.
func fileSystemDiffers(was, is *Design) (what, of, becomes string) {
	for _, v := range []struct{ what, was, is string }{
		{"the brick's name", was.Name, is.Name},
		{"id", was.Spec.ID, is.Spec.ID},
		{"lustre.fsname", was.Lustre.FSName, is.Lustre.FSName},
		{"LNET", was.Lustre.LNET, is.Lustre.LNET},
		{"lustre.mount", was.Lustre.Mount, is.Lustre.Mount},
		{"the client's source", was.Lustre.Source, is.Lustre.Source},
	} {
		if v.was != v.is {
			return v.what, v.was, v.is
		}
	}
	return "", "", ""
}

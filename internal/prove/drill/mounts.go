package drill

import (
	"fmt"
	"slices"
)

// look is one query of a server's mounts. Failed queries are not recorded.
type look struct {
	ns      int64 // administrator's clock, when asked
	doneNS  int64 // when answered
	mounted bool
}

// doubleMount finds a time at which a volume was mounted on two servers at once:
// two looks, one at each server, both found the volume mounted, and no look in
// between found otherwise. A fenced server has no power, so it counts as not
// mounted from its fencing until the next look.
func doubleMount(looks map[string][]look, fenced map[string]int64) string {
	type span struct{ from, to int64 }
	spans := map[string][]span{}
	for host, ls := range looks {
		open := false
		for _, l := range ls {
			if !l.mounted {
				open = false
				continue
			}
			if f, ok := fenced[host]; ok && open && l.ns > f && spans[host][len(spans[host])-1].to < f {
				open = false // seen mounted after fencing: a new span, not one across the power cut
			}
			if !open {
				spans[host] = append(spans[host], span{l.ns, l.ns})
				open = true
			}
			spans[host][len(spans[host])-1].to = l.ns
		}
	}
	hosts := make([]string, 0, len(spans))
	for h := range spans {
		hosts = append(hosts, h)
	}
	slices.Sort(hosts)
	for i, a := range hosts {
		for _, b := range hosts[i+1:] {
			for _, sa := range spans[a] {
				for _, sb := range spans[b] {
					if sa.from <= sb.to && sb.from <= sa.to {
						return fmt.Sprintf("mounted on %s and %s at the same time", a, b)
					}
				}
			}
		}
	}
	return ""
}

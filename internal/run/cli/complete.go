package cli

import (
	"slices"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/spec"
)

// names are the words of a spec that an argument or flag of a usage takes.
var names = map[string]func(*design.Design) []string{
	"SERVICE": func(d *design.Design) []string {
		return each(d.Services(), func(s *design.Service) string { return s.Name })
	},
	"SERIAL": serials,
	"DISK":   serials, "LUN": func(d *design.Design) []string {
		return each(d.LUNs(), func(l design.LUN) string { return l.Name })
	},
	"HOST":    func(d *design.Design) []string { return slices.Concat(d.Servers(), d.Spec.ClientNames()) },
	"NETWORK": func(*design.Design) []string { return []string{"public", "private", "management"} },
	"PDU": func(d *design.Design) []string {
		return each(d.Spec.PDUs, func(p spec.PDU) string { return p.Name })
	},
	"ENCLOSURE": func(d *design.Design) []string {
		return each(d.Spec.Enclosures, func(e spec.Enclosure) string { return e.Name })
	},
	"NODE":   (*design.Design).Servers,
	"SERVER": (*design.Design).Servers,
	"ARRAY": func(d *design.Design) []string {
		return each(d.Spec.Arrays, func(a spec.Array) string { return a.Name })
	},
	"OST": func(d *design.Design) []string {
		osts := slices.DeleteFunc(slices.Clone(d.Targets()), func(t design.Target) bool { return t.Kind != "ost" })
		return each(osts, func(t design.Target) string { return t.Name })
	},
	"CLIENT": func(d *design.Design) []string {
		return d.Spec.ClientNames()
	},
}

func serials(d *design.Design) []string {
	all := slices.Clone(d.Disks)
	for _, s := range d.Services() {
		if s.Storage.Cache != nil {
			all = append(all, s.Storage.Cache.SSDs...)
		}
	}
	return each(all, func(x design.Disk) string { return x.Serial })
}

func each[T any](list []T, name func(T) string) []string {
	out := make([]string, len(list))
	for i := range list {
		out[i] = name(list[i])
	}
	return out
}

// Names lists what a shell may complete: the words of a spec for a word of a usage, such as
// SERIAL. A wrong spec gives an empty list. ok is false if no spec has names for the word.
func Names(file, word string) (list []string, ok bool) {
	of, ok := names[word]
	if !ok {
		return nil, false
	}
	if d, err := LoadAny(file); err == nil {
		list = of(d)
	}
	return list, true
}

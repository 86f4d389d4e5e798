package spec

import (
	"fmt"
	"slices"
)

// ArrayModel is what a RAID array or controller can do, as far as a spec may
// ask for it.
type ArrayModel struct {
	Name      string
	Family    string  // md3, perc or me4: which tool configures it
	Bays      int     // in the enclosure with the controllers; 0: a card in a server
	Shelves   int     // enclosures it drives, its own included
	Expansion string  // model of the other enclosures
	Levels    []int   // RAID levels
	Chunks    []Bytes // chunk sizes
	Widest    int     // disks in a RAID 6 group or span
	Spans     int     // spans of RAID 60; 0: none
}

// arrayModels are the models of the source papers.
// Sources: Dell PowerVault MD3200 and MD3220 Owner's Manual; PERC H810 User's
// Guide; Dell EMC PowerVault ME4 Series Administrator's Guide, RAID levels
// and linear disk groups.
var arrayModels = []ArrayModel{
	{Name: "MD3200", Family: "md3", Bays: 12, Shelves: 8, Expansion: "MD1200", Levels: []int{6, 10}, Chunks: powers(8*KiB, 512*KiB), Widest: 30},
	{Name: "MD3220", Family: "md3", Bays: 24, Shelves: 8, Expansion: "MD1220", Levels: []int{6, 10}, Chunks: powers(8*KiB, 512*KiB), Widest: 30},
	{Name: "PERC-H810", Family: "perc", Shelves: 8, Expansion: "MD1200", Levels: []int{6, 10, 60}, Chunks: powers(64*KiB, 1*MiB), Widest: 32, Spans: 8},
	{Name: "ME4084", Family: "me4", Bays: 84, Shelves: 4, Expansion: "ME484", Levels: []int{6, 10}, Chunks: powers(64*KiB, 512*KiB), Widest: 16},
}

func powers(from, to Bytes) []Bytes {
	var out []Bytes
	for b := from; b <= to; b *= 2 {
		out = append(out, b)
	}
	return out
}

// ModelOf looks an array model up by name.
func ModelOf(name string) (ArrayModel, bool) {
	i := slices.IndexFunc(arrayModels, func(m ArrayModel) bool { return m.Name == name })
	if i < 0 {
		return ArrayModel{}, false
	}
	return arrayModels[i], true
}

// ModelNames lists the array models.
func ModelNames() []string {
	var out []string
	for _, m := range arrayModels {
		out = append(out, m.Name)
	}
	return out
}

// Set is disks that share a geometry and are used together: those of a
// service, or of a Lustre module.
type Set struct {
	Name    string
	Storage *Storage
	Path    string // of Storage in the file
	Share   int    // sets that share out the numbers of groups and spares in Storage
	Servers []string
}

// Sets lists the sets of a spec: its services, or the modules of Lustre.
func (s *Spec) Sets() []Set {
	var out []Set
	if s.Flavour == Lustre {
		if s.Lustre != nil {
			for i := range s.Lustre.Modules {
				m := &s.Lustre.Modules[i]
				out = append(out, Set{m.Name, &m.Storage, pathOf("lustre.modules", i, "storage"), 1, m.Servers})
			}
		}
		return out
	}
	all := s.serverNames()
	for i := range s.Services {
		out = append(out, Set{s.Services[i].Name, &s.Storage, "storage", len(s.Services), all})
	}
	return out
}

// Set is the service or module the enclosure's disks belong to.
func (e *Enclosure) Set() string {
	if e.Module != "" {
		return e.Module
	}
	return e.Service
}

// ArraysOf lists the arrays that hold disks of a set, in the order of the
// enclosures; none for JBODs.
func (s *Spec) ArraysOf(set string) []*Array {
	var out []*Array
	for i := range s.Enclosures {
		e := &s.Enclosures[i]
		if e.Set() != set || e.Array == "" {
			continue
		}
		for j := range s.Arrays {
			if a := &s.Arrays[j]; a.Name == e.Array && !slices.Contains(out, a) {
				out = append(out, a)
			}
		}
	}
	return out
}

func pathOf(list string, i int, key string) string { return fmt.Sprintf("%s[%d].%s", list, i, key) }

package spec

import (
	"fmt"
	"slices"

	"github.com/mortarhpc/mortar/internal/base/lists"
)

// ArrayModel is what a RAID array or controller can do, as far as a spec may
// ask for it.
type ArrayModel struct {
	Name    string
	Family  string   // md3, perc, me4, me5 or eseries: one language, and one way to be asked
	Tools   []string // that configure it; the first is the default
	Bays    int      // in the enclosure with the controllers; 0: a card in a server
	Shelves int      // enclosures it drives, its own included
	Levels  []int    // RAID levels
	Chunks  []Bytes  // chunk sizes
	Widest  int      // disks in a RAID 6 group or span
	Spans   int      // spans of RAID 60; 0: none
	// NotRun names what stands on public text alone, for a model with which no brick has
	// run, on a virtual rack neither. Empty: one has.
	NotRun []string
}

// Public text on the models that have not run.
var (
	// Dell's ME5 Administrator's Guide has pages on linear volumes and on their groups, as
	// that of the ME4 has; its CLI guide was not at hand. Numbers of enclosures are the ME4's.
	notRunME5 = []string{
		"linear disk groups are in Dell's ME5 Series Administrator's Guide (Linear volumes; Creating volumes), and the CLI's words for them are those of the ME4 guide, but for create volume pool",
		"a system has linear or virtual groups, never both: remove a virtual pool first",
		"what it keeps of a disk is not published: a thousandth is left to it",
	}
	// storcli2's words are those that github.com/scality/raidmgmt sends to a MegaRAID 9660
	// and recorded of it; perccli2 is the same program.
	notRunPERC11 = []string{"the words of perccli64 are those of a PERC H810", "what it keeps of a disk is not published: what an H810 keeps is left to it"}
	notRunPERC12 = []string{
		"perccli2 is storcli2, whose words were taken from another project's recordings of a MegaRAID 9660: add vd has the level without type=, and no direct",
		"what it keeps of a disk is not published: what an H810 keeps is left to it",
	}
	// docs.netapp.com/us-en/e-series-cli: create volumegroup, create volume, create mapping,
	// create host, create hostport, set volume, set drive.
	notRunESeries = []string{
		"the commands are those of NetApp's SANtricity CLI reference; host type 28 is Linux DM-MP by NetApp's Ansible collection",
		"tray 99 is the controller's and the others count from 0, as they come from the maker; compare with show storageArray profile",
		"status does not ask it: SMcli takes the password among its arguments, where each user of the machine reads it",
	}
)

// arrayModels are the models of the source papers, and those made today.
// Sources: Dell PowerVault MD3200 and MD3220 Owner's Manual; PERC H810 User's
// Guide; Dell EMC PowerVault ME4 Series Administrator's Guide, RAID levels
// and linear disk groups.
var arrayModels = []ArrayModel{
	{Name: "MD3200", Family: "md3", Bays: 12, Shelves: 8, Levels: []int{6, 10}, Chunks: powers(8*KiB, 512*KiB), Widest: 30, Tools: []string{"SMcli"}},
	{Name: "MD3220", Family: "md3", Bays: 24, Shelves: 8, Levels: []int{6, 10}, Chunks: powers(8*KiB, 512*KiB), Widest: 30, Tools: []string{"SMcli"}},
	{Name: "PERC-H810", Family: "perc", Shelves: 8, Levels: []int{6, 10, 60}, Chunks: powers(64*KiB, 1*MiB), Widest: 32, Spans: 8, Tools: []string{"perccli", "omconfig"}},
	{Name: "ME4084", Family: "me4", Bays: 84, Shelves: 4, Levels: []int{6, 10}, Chunks: powers(64*KiB, 512*KiB), Widest: 16, Tools: []string{"me4"}},
	me5("ME5012", 12, 10),
	me5("ME5024", 24, 10),
	me5("ME5084", 84, 4),
	{Name: "PERC-H755", Family: "perc", Shelves: 2, Levels: []int{6, 10, 60}, Chunks: powers(64*KiB, 1*MiB), Widest: 32, Spans: 8, Tools: []string{"perccli"}, NotRun: notRunPERC11},
	{Name: "PERC-H965i", Family: "perc", Shelves: 2, Levels: []int{6, 10, 60}, Chunks: powers(64*KiB, 256*KiB), Widest: 32, Spans: 8, Tools: []string{"perccli2"}, NotRun: notRunPERC12},
	{Name: "PERC-H965e", Family: "perc", Shelves: 8, Levels: []int{6, 10, 60}, Chunks: powers(64*KiB, 256*KiB), Widest: 32, Spans: 8, Tools: []string{"perccli2"}, NotRun: notRunPERC12},
	eSeries("E2812", 12),
	eSeries("E2824", 24),
	eSeries("E2860", 60),
	eSeries("E5760", 60),
	eSeries("E4012", 12),
	eSeries("E4060", 60),
}

func me5(name string, bays, shelves int) ArrayModel {
	return ArrayModel{Name: name, Family: "me5", Bays: bays, Shelves: shelves, Levels: []int{6, 10},
		Chunks: powers(64*KiB, 512*KiB), Widest: 16, Tools: []string{"me5"}, NotRun: notRunME5}
}

func eSeries(name string, bays int) ArrayModel {
	return ArrayModel{Name: name, Family: "eseries", Bays: bays, Shelves: 4, Levels: []int{6, 10},
		Chunks: powers(32*KiB, 512*KiB), Widest: 30, Tools: []string{"SANtricity"}, NotRun: notRunESeries}
}

// DiskBytes is what a disk sold as size has: makers agreed on the number of
// sectors for each size, a little more than the name says.
// Source: IDEMA LBA1-03, 512-byte sectors.
func DiskBytes(size Bytes) Bytes {
	if size < 160*GB || size%GB != 0 {
		return size
	}
	return (97_696_368 + 1_953_504*(size/GB-50)) * 512
}

// OfDisk is what an array of a model uses of a disk for data.
//
// PERC keeps 512 MiB for its configuration and rounds down to whole GiB
// (coercion): of a 3 TB disk it uses 2,794 GiB, which is where the 111,760 GB of
// 40 such disks come from that omreport prints. MD3200 keeps 512 MiB for its
// database, and so does its successor, the E-Series. For ME4 nothing is published: a thousandth is left to it.
// Sources: paper NFS+DFC, A.4; Dell PowerVault MD3200 Owner's Manual.
func (m ArrayModel) OfDisk(size Bytes) Bytes {
	b := DiskBytes(size)
	switch m.Family {
	case "perc":
		return (b - 512*MiB) / GiB * GiB
	case "md3", "eseries":
		return b - 512*MiB
	}
	return b - b/1000
}

// A tray of an E-Series with 60 bays has drawers.
const (
	DrawerTray  = 60
	DrawerSlots = 12
)

func powers(from, to Bytes) []Bytes {
	var out []Bytes
	for b := from; b <= to; b *= 2 {
		out = append(out, b)
	}
	return out
}

// ModelOf looks an array model up by name.
func ModelOf(name string) (ArrayModel, bool) {
	return lists.First(arrayModels, func(m ArrayModel) bool { return m.Name == name })
}

// ModelNames lists the array models.
func ModelNames() []string {
	return lists.Map(arrayModels, func(m ArrayModel) string { return m.Name })
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

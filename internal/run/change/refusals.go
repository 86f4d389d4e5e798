package change

import "github.com/mortarhpc/mortar/internal/host/resource"

var _ = resource.Register(resource.Codes{
	"server-unprepared":  {"server", "{server} sees {disks} disks of the brick and was not prepared for it: its kernel may have assembled arrays that its partner writes to, and be repairing them", "power it off now; boot it without its cables to the enclosures, and run this again; check the arrays later (mortar scrub)"},
	"server-lacks-disks": {"server", "{server} sees {seen} of {disks} disks; it lacks {missing%,}", "check its cables to the enclosures"},
})

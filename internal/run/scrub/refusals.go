package scrub

import "github.com/mortarhpc/mortar/internal/host/resource"

var _ = resource.Register(resource.Codes{
	"scrub-in-array": {"group", "group {group} is inside of array {array}", "let the array scrub it (its own scrub or media scan)"},
	"scrub-level":    {"group", "group {group} is RAID {level}, where nothing says which copy is right", "only RAID 6 is scrubbed"},
})

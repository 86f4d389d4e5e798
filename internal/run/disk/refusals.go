package disk

import "github.com/mortarhpc/mortar/internal/host/resource"

var _ = resource.Register(resource.Codes{
	"disk-in-no-array": {"disk", "disk {disk} is in no md array", "a RAID array looks after its disks by itself: swap it in its bay, and the array rebuilds"},
	"disk-no-such":     {"disk", "no RAID group has a disk {disk}", "`mortar check` lists the disks of the brick"},
	"disk-needed":      {"disk", "{group} cannot do without {disk}: {missing} of its {members} members are missing already", "replace the missing disk first; see `mortar status`"},
	"disk-last-copy":   {"disk", "without {disk}, another failure in {group} would lose data, and no spare can take its place first", "put in another disk first (mortar disk replace), or give --without-redundancy"},
	"disk-copied":      {"disk", "{disk} is being copied to a spare", "wait for it: `mortar disk fail {file} {disk}`"},
	"disk-works":       {"disk", "{disk} still works", "take it out of service first: `mortar disk fail {file} {disk}`"},
	"disk-unseen":      {"disk", "disk {disk} is not seen by {servers%and}", "see that it is in its bay, and compare the serial number with its label"},
})

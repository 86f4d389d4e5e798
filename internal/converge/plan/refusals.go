package plan

import "github.com/mortarhpc/mortar/internal/host/resource"

var _ = resource.Register(resource.Codes{
	"claim-held":               {"server", "{server}: the brick is claimed by {claim}", "see that this command is dead, then give --holder {holder}"},
	"spec-not-descended":       {"file", "{file} does not descend from the spec that the brick has, which is generation {generation} ({by}, {at}). An apply would undo the lines with -, and add those with +:\n{diff}", "take the lines with - over, except those that are to go, and run mortar apply {file} --onto {generation}"},
	"profile-other":            {"", "the brick is built with profile {is}; its service and its file system are made otherwise than profile {want} has them, and the cluster could run both services at once while one takes the other's place", "go on with profile: {is}, or build another brick with profile {want}"},
	"storage-used-twice":       {"storage", "{storage} is assembled on {servers%and}: both may write to its disks", "power off the server that does not serve it, now; then check the array (mortar scrub) and the file system (xfs_repair -n)"},
	"arrays-split":             {"service", "arrays of service {service} run on {servers%and on}: no server has the whole volume", "find out which server uses it (mount, crm_mon), and stop the arrays on the other with `mdadm --stop`"},
	"partner-differs":          {"host", "{host} is no like of its partner {partner}: it has, or would get, {differs%;}; a takeover between the two was never tried", "install the release of {partner} on {host}, or upgrade {partner} first"},
	"distribution-unsupported": {"host", "{host} {error}", "install {supported}"},
})

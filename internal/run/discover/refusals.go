package discover

import "github.com/mortarhpc/mortar/internal/host/resource"

var _ = resource.Register(resource.Codes{
	"discover-servers":    {"", "{count} servers", "a brick of NFS has one or two; for Lustre begin with `mortar init lustre-small`"},
	"discover-disks":      {"", "{error}[ (not counted: {not_counted%;})]", "see that both servers reach the disks, and that these are blank"},
	"discover-luns":       {"", "{count} of the disks are LUNs of {maker}, whose RAID groups no host can see", "begin with the example of a like system (`mortar init`), and take the WWNs from `mortar array verify --write`"},
	"discover-no-network": {"", "there is no network that all these hosts are on", "look at their addresses with `ip address`; clients reach the service over one network"},
	"discover-no-private": {"", "{server} and {partner} share no network besides {public}", "give them a private one for the cluster's heartbeat: a cable between the two serves"},
})

package repair

import "github.com/mortarhpc/mortar/internal/host/resource"

var _ = resource.Register(resource.Codes{
	"repair-not-there":   {"server", "{server} cannot work on service {service}", "choose one of {servers%,}"},
	"repair-lustre":      {"service", "service {service} has targets of Lustre, which are ldiskfs and no XFS", "`mortar lustre fsck SPEC {target}` stops it, runs e2fsck and starts it"},
	"repair-stock":       {"service", "with profile stock the cluster's own agents have the storage of service {service}", "do it by hand: crm_resource, then xfs_repair(8)"},
	"repair-no-quorum":   {"service", "the cluster has no coordinator with quorum: it would not stop service {service}", "see `mortar status`"},
	"repair-maintenance": {"service", "the cluster is in maintenance mode: it would not stop service {service}", "end it, see `mortar status`"},
	"repair-mounted":     {"host", "{path} is mounted on {host}, and not by the cluster", "unmount it there"},
	"repair-not-fenced":  {"host", "{host} does not answer ({error}), and the cluster has not fenced it: it could mount the volume", "see `mortar status`; if it is off and nothing can fence it: `mortar confirm-off SPEC {host}`"},
	"repair-not-member":  {"host", "{host} is up and not in the cluster: nothing keeps it from mounting the volume", "`systemctl start pacemaker` there"},
	"repair-no-dump":     {"", "xfs_metadump needs the first superblock, which is damaged: no dump of the metadata can be kept", "--no-dump mends it without"},
	"repair-no-room":     {"host", "a dump of the metadata may take {need}, and {host} has {free} free below {path}", "make room there, or --no-dump mends it without"},
})

package refusal

import "github.com/mortarhpc/mortar/internal/base/health"

// Codes that other packages know.
const (
	BadConfig Code = "config"
	Unable    Code = "unable"
	Busy      Code = "busy"
	Late      Code = "late"
	Taken     Code = "taken"
	InDoubt   Code = "in-doubt"
	Comparing Code = "comparing"
	Damaged   Code = "damaged"
	Stranger  Code = "stranger"
	Failed    Code = "failed"
)

// What to do about more than one refusal.
const (
	mendApply   = "`mortar apply`"
	mendStop    = "stop the service there"
	mendDisks   = "connect the disks; see `mortar status`"
	mendSSDs    = "connect the SSDs; see [cache](cache.md)"
	mendVolume  = "see which volume that is; nothing was written to it"
	mendUnmount = "see what mounted it (`findmnt`), and unmount it"
	mendArray   = "see what the array says, and its paths (`multipath -ll`)"
)

// Kinds are the refusals.
var Kinds = map[Code]health.Kind{
	// Of more than one part.
	Taken:        {Subject: "owner", Text: "[volume group {vg}][storage of service {service}] was taken by {owner%q} while it is active here[: {host} counts as fenced, and resets itself]", Mend: "this server resets itself; see why fencing did not end it"},
	"not-a-node": {Subject: "host", Text: "host {host} is not in the config's nodes ({nodes})", Mend: mendApply},

	// Of md arrays.
	InDoubt:       {Subject: "arrays", Text: "a crash has left blocks in doubt, see `mortar confirm-doubt`: {why}. {doubt}", Mend: "`mortar confirm-doubt`"},
	Comparing:     {Subject: "arrays", Text: "parities are still compared, up to {mib} MiB of a disk are left, and the next start goes on: {why}. {doubt}", Mend: "wait: each start goes on"},
	"no-member":   {Subject: "array", Text: "array {array}: none of its {members} members was found[ ({notes})]", Mend: mendDisks},
	"too-few":     {Subject: "array", Text: "array {array}: {missing} of {members} members are missing, more than RAID {level} can lose[ ({notes})]; see that its disks are connected and powered", Mend: mendDisks},
	"same-slot":   {Subject: "array", Text: "array {array}: two devices claim its slot {slot}, one of them {device}: is a disk a copy of another?", Mend: "take the copy out"},
	"has-journal": {Subject: "array", Text: "array {array} has a write journal, which this version of mortar does not know how to replay: take it off first, as docs/operations.md says (A write journal of an earlier version)", Mend: "see [the way off](operations.md#a-write-journal-of-an-earlier-version)"},

	// Of LUNs.
	"lun-missing":   {Subject: "lun", Text: "LUN {lun}: no multipath map has WWID {wwid}; see that the array is on, that it presents the LUN to this server, and multipath -ll", Mend: mendArray},
	"lun-name":      {Subject: "lun", Text: "LUN {lun}: the map of that name is {map%q}, not that of WWID {wwid}", Mend: mendApply},
	"lun-size":      {Subject: "lun", Text: "LUN {lun} (WWID {wwid}) has {bytes} bytes, not {want} as designed", Mend: "see what the array presents by that WWID"},
	"lun-suspended": {Subject: "lun", Text: "LUN {lun}: its map {device} is suspended", Mend: "see who suspended it; `dmsetup resume` ends it"},
	"lun-paths":     {Subject: "lun", Text: "LUN {lun} has {paths} paths that work, fewer than {want}", Mend: mendArray},

	// Of the volume group.
	"other-vg":      {Subject: "device", Text: "{device} carries volume group {vg}, not {want}", Mend: mendVolume},
	"building":      {Subject: "vg", Text: "volume group {vg} is under construction: mortar apply builds it on some server, or was cut short; run it again", Mend: mendApply},
	"foreign-owner": {Subject: "vg", Text: "volume group {vg} is owned by {owner%q}, which is no node of this cluster (nodes: {nodes})", Mend: "see which machine has the storage"},

	// Of the cache.
	"never-cached": {Subject: "volume", Text: "volume {volume} was never given its cache: run mortar apply", Mend: mendApply},
	"cache-left":   {Subject: "volume", Text: "volume {volume} has a cache that was not turned off: data on its SSDs would be passed by (mortar cache off)", Mend: "`mortar cache off`"},
	"no-label":     {Subject: "volume", Text: "volume {volume} has no label of a cache, and bcache's superblock says that data is on SSDs alone", Mend: mendSSDs},
	"ssds-missing": {Subject: "ssds", Text: "{why}; data that was acknowledged is on them and not on the disks. Bring them back", Mend: mendSSDs},
	"ssds-refused": {Subject: "device", Text: "the SSDs hold data that is not on the disks, and bcache does not take them (see the kernel's log)", Mend: "see the kernel's log"},
	"ssd-left":     {Subject: "ssds", Text: "SSD {ssds} left the cache before all dirty data was on the disks: the rest is on them alone. Bring them back, and start the service", Mend: mendSSDs},
	"only-copy":    {Subject: "ssds", Text: "SSD {ssds} holds the only copy of {bytes} bytes that are not on the disks; first mortar cache mode write-through, with it, which writes them there", Mend: "`mortar cache mode write-through`, with that SSD"},
	"ssd-absent":   {Subject: "ssds", Text: "SSD {ssds} is not there: check slot, power and the serial on the label, or take it out of the cache (mortar cache remove)", Mend: mendSSDs},
	"same-serial":  {Subject: "ssd", Text: "{devices} all have the serial {ssd}: which of them is meant cannot be told", Mend: "take all but one of them out"},
	"ssd-in-use":   {Subject: "ssd", Text: "SSD {ssd} is in use: {holder} has its partition {partition}", Mend: "see what uses it (`lsblk`)"},
	"ssd-small":    {Subject: "ssd", Text: "SSD {ssd} has {bytes} bytes, too few for {dirty} of dirty data and as much for reads", Mend: "take a larger SSD"},

	// Of what is mounted.
	Damaged:        {Subject: "volume", Text: "[no XFS superblock on {volume}][mount {at}: the file system is damaged: {why}]", Mend: "`mortar repair`"},
	"mounted":      {Subject: "volume", Text: "{volume} is mounted on {at} already", Mend: mendUnmount},
	"mount-taken":  {Subject: "at", Text: "{device} ({type}) is mounted on {at} already", Mend: mendUnmount},
	"other-fs":     {Subject: "volume", Text: "the file system on {volume} has UUID {uuid}, not {want}", Mend: mendVolume},
	"no-ldiskfs":   {Subject: "volume", Text: "{volume}: no ldiskfs", Mend: mendVolume},
	"other-target": {Subject: "volume", Text: "{volume}: its target is {label%q}, not {want}", Mend: mendVolume},
	"no-mmp":       {Subject: "volume", Text: "{volume}: {target} has no multiple mount protection: switch it on while the target is off, with tune2fs -O mmp", Mend: "`tune2fs -O mmp` while the target is off"},

	// Of the address.
	"elsewhere": {Subject: "address", Text: "service address {address} is answered by {mac}: the service seems to run elsewhere", Mend: "see who has the address (`ip neighbour`), and stop the service there"},

	// Of work on the volume of a stopped service.
	"no-volume":   {Subject: "volume", Text: "service {service} has no {volume}", Mend: "see the name in the spec"},
	"not-stopped": {Text: "service {service} is not stopped here[ ({why})]: a volume that is mounted is not touched", Mend: "stop the service"},
	"reserved":    {Subject: "owner", Text: "the storage of service {service} is reserved for {owner%q}[ ({why})]: stop the service there", Mend: mendStop},
	"owned":       {Subject: "owner", Text: "volume group {vg} is of {owner%q}[ ({why})]: stop the service there", Mend: mendStop},
}

// Parts are the codes whose text is that of an error: what they mean, and what to do. A failure at
// a part of the service has that one's name.
var Parts = map[Code][2]string{
	BadConfig:      {"the configuration of the service is not there, or is wrong", mendApply},
	Unable:         {"the server lacks what the agent needs: a program, a kernel module, root's rights", mendApply},
	Busy:           {"another action of the service did not end in time", "wait; `journalctl -t mortar` says which one"},
	Late:           {"the action took longer than Pacemaker grants", "see what held it up: `mortar status`, and the kernel's log"},
	Stranger:       {"a host outside the cluster uses a LUN or a disk", "keep that host away from it (mapping, zoning, cables); see [reservations](reservations.md)"},
	Failed:         {"something else", "the text says it"},
	"probe":        {"the start was refused before it began: this server cannot run the service", "the text says it"},
	"check":        {"the service does not run after its start, or runs after its stop", "the service's log on the server, `/run/mortar/ocf-SERVICE.log`"},
	"exports":      {"a file system is not exported as configured, or an export was refused", mendApply},
	"arrays":       {"md arrays do not assemble, or lack members while they run", mendDisks},
	"luns":         {"LUNs do not answer, or cannot be looked at", "see what the array says, and its paths"},
	"reservations": {"LUNs or disks could not be reserved", "see `mortar status`, and [reservations](reservations.md)"},
	"volume":       {"the logical volume is not active, or its metadata cannot be read", mendApply},
	"cache":        {"the cache is not up, or does not start", mendSSDs},
	"mount":        {"the file system is not mounted, or does not answer", "see the kernel's log"},
	"state-disk":   {"the state of NFS is not mounted", "see the kernel's log"},
	"namespace":    {"the network namespace of the service is not there", "see `ip netns` on the server"},
	"nfs-state":    {"the state of NFS is not where its daemons look for it", "see the mounts on the server"},
	"nfsd":         {"nfsd or one of its daemons does not run", "their logs (journalctl) say why"},
	"address":      {"the service address is not on the server", "see who has the address (`ip neighbour`)"},
	"target":       {"a target of Lustre is not mounted", "see the kernel's log"},
}

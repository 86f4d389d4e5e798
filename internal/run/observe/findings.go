package observe

import lunarray "github.com/mortarhpc/mortar/internal/brick/array"

// Codes that drills and commands ask for.
const (
	CacheDegraded        Code = "cache-degraded"
	ClockSkewed          Code = "clock-skewed"
	Degraded             Code = "group-degraded"
	DiskDropped          Code = "disk-dropped"
	DiskFailed           Code = "disk-failed"
	DiskGone             Code = "disk-gone"
	DiskSlow             Code = "disk-slow"
	FeedLost             Code = "feed-lost"
	Full                 Code = "full"
	HostSilent           Code = "host-silent"
	ClientSilent         Code = "client-silent"
	InStandby            Code = "standby"
	LUNSlow              Code = "lun-slow"
	MemberLost           Code = "member-lost"
	MoveLeftover         Code = "move-leftover"
	PathLost             Code = "path-lost"
	PDUSilent            Code = "pdu-silent"
	QuorumWaits          Code = "quorum-waits"
	ServiceAwaitsFencing Code = "service-awaits-fencing"
	ServiceDamaged       Code = "service-damaged"
	ServiceInDoubt       Code = "service-in-doubt"
	SSDMissing           Code = "ssd-missing"
	SystemArrayDegraded  Code = "system-array-degraded"

	noAnswer Code = "servers-silent"
)

// Remedies of several findings.
const (
	mendApply     = "`mortar apply {spec}`"
	mendMissing   = "see the cluster below: the service that has it does not run"
	mendTwice     = "stop the service on one of them now, and find out why fencing did not"
	mendProve     = "`mortar fence-test {spec} --node {host}` proves it"
	mendReplace   = "`mortar disk replace {spec} {disk} --with SERIAL`"
	mendConfirm   = "cut its power by hand, and then `mortar confirm-off {spec} {host}`"
	mendPacemaker = "`systemctl start pacemaker` on {host}"
)

// Texts of findings and of parts that are ok.
const (
	arrayBusy  = "{action} of {array}: {progress}"
	cacheDirty = "{dirty} of {room} dirty ({used} %)[, written to the disks at up to {rate}/s]"
)

// findings are all kinds of findings, with those of package array about LUNs. Keep codes: other
// programs know them.
var findings = map[Code]kindOfFinding{
	noAnswer: {"", Unknown, "no server answers", ""},

	// hosts
	HostSilent:            {"host", Fault, "{host}[ does not answer: {error}][ {says}]", ""},
	ClientSilent:          {"host", Warning, "{host}[ does not answer: {error}][ {says}]", "a client that is off harms no other; plan and apply leave it out"},
	"host-unknown":        {"host", Unknown, "{host} does not answer", ""},
	ClockSkewed:           {"host", Warning, "clock of {host} is {by} {how} that of {reference}", "see why the host's time service does not follow its servers (`chronyc sources`); `mortar apply` starts one where none runs"},
	"releases-differ":     {"host", Warning, "{other} runs {others}, and {host} {release}: a takeover between the two is not what was proven", "upgrade the older one as well"},
	"mtu-wrong":           {"host", Warning, "{link} of {host} ({address}, network {network}) has MTU {mtu}, not {want}", "`ip link set {link} mtu {want}`, and the same in the host's network configuration"},
	"link-slow":           {"host", Warning, "{link} of {host} ({address}, network {network}) has {mbits} Mbit/s, not {want%.0f}", "look at its cable, its transceiver and the switch's port; or write the speed that is right into the spec"},
	"link-errors":         {"host", Warning, "{link} of {host} has damaged or lost {errors} frames on the wire since the host has started", "replace its cable or its transceiver; the count starts again when the host does"},
	"answer-unread":       {"from", Unknown, "{from}: {records}", "look at these parts by hand, and report the lines"},
	"system-array-broken": {"host", Fault, "{array} of {host} is broken: more disks are gone than it can lose", ""},
	SystemArrayDegraded:   {"host", Warning, "{array} of {host} is degraded: {left} of {disks} disks left[, {good}][; {bad}]", "replace the disk, then `mdadm --manage /dev/{device} --add DISK` on {host}"},
	"checks-by-itself":    {"host", Warning, "{what} of {host} has the kernel check the brick's arrays[ ({file})], degraded ones too", "`mortar apply {spec}` ends that"},
	"upgrades-by-itself":  {"host", Warning, "{host} upgrades the packages of the cluster by itself ({file})", "`mortar apply {spec}` ends that"},
	"restarts-by-itself":  {"host", Warning, "{host} may restart Corosync and Pacemaker by itself (needrestart)", "`mortar apply {spec}` ends that"},
	"system-hangs":        {"host", Fault, "{dir} of {host} does not answer", "look at the kernel's log and at the disk of the system"},
	"system-readonly":     {"host", Fault, "{dir} of {host} is mounted read-only", "the kernel's log says why, if it was not a person: an error of the disk, or of the file system; check it at the next boot (`fsck.mode=force`)"},
	"system-full":         {"host", Fault, "{dir} of {host} is full: {why}", "make room there"},
	"system-nearly-full":  {"host", Warning, "{dir} of {host} is nearly full: {used%.0f} % of its {of} used, {free} MiB are free", "make room there"},
	"system-errors":       {"host", Warning, "the file system on {device} of {host}[ ({dirs})] has met {errors} errors", "look at its disk (`smartctl -a`) and at the kernel's log; e2fsck(8) mends the file system, and sets the number back"},
	"memory-short":        {"host", Warning, "{host} is short of memory: {free} MiB of {memory} MiB are available", "see what takes it (`ps -e -o rss,comm --sort=-rss | head`); a server of a brick runs nothing else"},
	"memory-waited-for":   {"host", Warning, "{host} is short of memory: for {stalled%.0f} % of the last five minutes all its processes waited for some", "see what takes it (`ps -e -o rss,comm --sort=-rss | head`); a server of a brick runs nothing else"},
	"host-differs":        {"host", Warning, "{what} of {host} is {have}, not {want}: {why} ({source})", "{mend}"},
	"host-untold":         {"host", Unknown, "{host} does not tell {what}, which is to be {want}: {why}", ""},
	"version-bad":         {"host", Warning, "{what} {have} of {host} is known to harm: {why} ({source})", "{mend}"},
	"memory-killed":       {"host", Warning, "the kernel of {host} has killed {processes} processes for want of memory since it started", "`journalctl -k -g oom` names them; the count starts again when the server does"},

	// disks, paths, RAID groups
	"disk-out-of-service": {"disk", Warning, "disk {disk} is out of service: the spec lists it under failed", "put another disk into the bay: " + mendReplace},
	DiskGone:              {"disk", Fault, "disk {disk}, {use}, is gone: {reasons}", "look at the bay; a disk that stays gone is to be replaced: " + mendReplace},
	"enclosure-gone":      {"enclosure", Fault, "enclosure {enclosure} is gone: none of its {disks} disks is seen by {hosts}", "see that the enclosure has power and that its cables are in"},
	"disk-stranger":       {"disk", Fault, "disk {disk} is used by another machine: reservation key {key} is registered", "see that only the servers of this brick reach it. {mend}"},
	"disk-unreserved":     {"host", Warning, "{host} has not reserved {disks}, which it serves: a server that was wrongly taken for dead could write to them", "the next monitor of the service, within seconds, reserves them; if it does not: `journalctl -t mortar` says why"},
	"disk-unreservable":   {"", Warning, "{disks} know no reservations: nothing but fencing keeps a server that was wrongly taken for dead from writing to them", "use disks without an interposer, or leave it at fencing"},
	"disks-unseen":        {"host", Unknown, "{host} has no path to any disk", "see the disks above"},
	"path-single":         {"host", Warning, "{host} has one path only to every disk: a cable, port or HBA that fails takes the service off it", "cable a second HBA"},
	PathLost:              {"host", Fault, "{host} lost {paths} to {to}[ ({why})]", "look at the cable, the HBA port and the enclosure's I/O module"},
	"group-unknown":       {"group", Unknown, "{group} is assembled on no server that answers; {hosts} may have it", ""},
	"group-missing":       {"group", Fault, "{group} is not assembled on any server", "look at the cluster below: the service that carries it does not run"},
	"group-twice":         {"group", Fault, "{group} is assembled on {hosts} at once: writing from both destroys it", "power off the one that does not serve, now; then check the array (mortar scrub) and the file system (xfs_repair -n). A new server sees the disks only after mortar server replace"},
	"disk-rebuilding":     {"disk", Warning, "{disk} is being rebuilt into {group}", ""},
	"disk-unnoticed":      {"disk", Warning, "{group} still counts disk {disk} in, which is gone: md finds out at the next write to it", ""},
	DiskFailed:            {"disk", Fault, "disk {disk} has failed in {group}", "swap it in its bay, then " + mendReplace},
	"spare-missing":       {"disk", Warning, "spare {disk} is not in {group}: it would not stand in", ""},
	Degraded:              {"group", Fault, "{group} is degraded on {host}: {working} of {disks} disks work, {then}[; missing: {missing}]", "no spare is left: replace the disk"},
	"members-other":       {"group", Warning, "{group} is whole, but not with the disks it was designed with: {disks%are} not in it", "a spare stands in; replace the failed disk"},
	"members-foreign":     {"group", Warning, "{group} holds a disk the design does not know: {disks}", ""},
	"enclosure-crowded":   {"group", Warning, "{group} would not survive the loss of enclosure {enclosure}: {members} of its members are there, since spares stood in", "put a spare into another enclosure"},
	"group-inactive":      {"group", Fault, "{group} is not running on {host} (inactive): too few disks, or assembly was cut short", ""},
	"group-readonly":      {"group", Fault, "{group} is read-only on {host}", ""},
	"group-broken":        {"group", Fault, "{group} is broken on {host}: more disks are gone than it can lose", ""},
	"group-suspended":     {"group", Warning, "I/O to {group} is suspended on {host}", ""},
	DiskSlow:              {"disk", Warning, "disk {disk} is slow and slows {group} down: it {pace}, its peers {usual%.0f} ms", "look at its SMART data and its path; if it stays slow, `mortar disk fail` copies it to a spare and takes it out"},
	DiskDropped:           {"disk", Fault, "disk {disk} was dropped from {group} by {host} at {time} because it was slow: {why}", "put another disk into its bay, then " + mendReplace},
	"parity-mismatch":     {"group", Warning, "the last check of {group} found {sectors} sectors whose parity did not match", "`mortar scrub {spec} --repair` finds the disk that lies and mends it; `echo repair` to sync_action would not: it takes data for right"},
	"array-busy":          {"array", Warning, arrayBusy, ""},

	// LUNs and RAID arrays
	LUNSlow:         {"lun", Warning, "LUN {lun} is slow on {host}: it {pace}, the others {usual%.0f} ms", "see what the array says of its disks and controllers"},
	"array-unasked": {"array", Unknown, "array {array} was not asked how it is, because {why}", "{mend}"},
	"array-silent":  {"array", Fault, "the management of array {array} does not answer: {error}", "see that the management ports of its controllers have a link, and that the password is right"},
	"array-part":    {"array", OK, "{finding}", "{mend}"},
	"array-spares":  {"array", Warning, "{spares} of {want} spares wait", "replace the disks that failed or are out; the array takes new ones as spares once they are named so (mortar array script)"},
	"array-level":   {"array", Fault, "{group} has RAID level {level}, and the design {want}", "make it anew with mortar array script, or correct the spec"},

	// volumes, cache
	"volume-unknown":  {"volume", Unknown, "{volume} is active on no server that answers; {hosts} may have it", ""},
	"volume-missing":  {"volume", Fault, "{volume} is not active on any server", mendMissing},
	"volume-twice":    {"volume", Fault, "{volume} is active on {hosts} at once: writing from both destroys it", mendTwice},
	"cache-unknown":   {"cache", Unknown, "the cache of {cache} is up on no server that answers; {hosts} may have it", ""},
	"cache-missing":   {"cache", Fault, "the cache of {cache} is not up on any server", mendMissing},
	"cache-past":      {"service", Warning, "{size} of {service} go past the cache until the service starts the next time", "mortar failover {service} at a quiet moment (a single server: reboot it), then mortar apply"},
	"cache-broken":    {"host", Fault, "{error}", ""},
	"ssd-writes-none": {"", Warning, "no SSD takes writes: they go at the disks' speed", "mortar apply, once the SSDs are there"},
	CacheDegraded:     {"", Warning, "dirty data is on {in_sync} of {members} SSDs ({ssds}): {dirty} would be lost with it", "replace the SSD and run mortar apply; until then: mortar cache remove it, with --mode write-through"},
	"cache-stuck":     {"", Warning, cacheDirty + ", and not less for {minutes} min", "see whether the disks take it (mortar cache stats --watch, mortar cache events)"},
	"cache-full":      {"", Warning, cacheDirty, "more is written than the disks take; at 70 % writes go past the SSDs, at the disks' speed"},
	"ssd-reads-none":  {"", Warning, "no SSD keeps what is read", "mortar apply, once the SSDs are there"},
	"ssd-slow":        {"ssd", Warning, "SSD {ssd} is slow: it {pace}, the others {usual%.0f} ms", "look at its SMART data; if it stays slow, `mortar cache add` another one and `mortar cache remove` it"},
	SSDMissing:        {"ssd", Warning, "SSD {ssd} is not there", ""},
	"ssd-failing":     {"ssd", Warning, "SSD {ssd} predicts its failure: {warning}", "replace it: mortar cache add the new one, then mortar cache remove {ssd}"},
	"ssd-warns":       {"ssd", Warning, "SSD {ssd} warns: {warning}", "look at the server's cooling, and at `smartctl --all` of the SSD"},
	"ssd-worn":        {"ssd", Warning, "SSD {ssd} has {left} % of its life left", "order another one"},
	"ssd-silent":      {"ssd", Unknown, "the health of SSD {ssd} cannot be read: {why}", "{mend}"},
	"ssd-unread":      {"ssd", Unknown, "SMART data of SSD {ssd}: {records}", "see `smartctl --all` of the SSD"},

	// NFS
	"fs-unknown":        {"fs", Unknown, "{fs} is mounted on no server that answers; {hosts} may have it", ""},
	"fs-missing":        {"fs", Fault, "{fs} is not mounted on any server", mendMissing},
	"fs-twice":          {"fs", Fault, "{fs} is mounted on {hosts} at once: XFS does not survive this", mendTwice},
	"fs-source":         {"fs", Fault, "{fs} on {host} is mounted from {source}, not from {want}", ""},
	"fs-readonly":       {"fs", Fault, "{fs} is mounted read-only on {host}", ""},
	"fs-hangs":          {"fs", Fault, "{fs} on {host} does not answer: I/O to it hangs", ""},
	"fs-error":          {"fs", Fault, "{fs} on {host} gives an error: {error} (XFS shuts down after an I/O error; see the kernel log)", ""},
	Full:                {"fs", Fault, "{fs} on {host} is full: {used%.0f} % of its {of} used", ""},
	"nearly-full":       {"fs", Warning, "{fs} on {host} is nearly full: {used%.0f} % of its {of} used", ""},
	"service-unknown":   {"service", Unknown, "service {service} runs on no server that answers; {hosts} may have it", ""},
	"service-missing":   {"service", Fault, "service {service} runs on no server", "see the cluster below"},
	"service-unseen":    {"service", Unknown, "service {service} is on {host}, which does not answer", ""},
	"nfsd-missing":      {"host", Fault, "no nfsd runs on {host}", ""},
	"nfsd-threads":      {"host", Warning, "{threads} nfsd threads run on {host}, not {want}", ""},
	"nfs-version":       {"host", Fault, "{host} does not serve NFSv{version}", ""},
	"rdma-missing":      {"host", Fault, "{host} does not serve RDMA", ""},
	"daemon-missing":    {"host", Fault, "{daemon} does not run on {host}: {use}", "its log (journalctl) says why; the cluster restarts the service when its monitor sees it"},
	"address-missing":   {"address", Fault, "the service address {address} is not on {host}", ""},
	"address-twice":     {"address", Fault, "the service address {address} is on {host} too, where the service does not run", "take it off with `ip addr del`, and find out why fencing did not"},
	"export-unresolved": {"export", Fault, "{export} is not exported to {clients} on {host}, where that name did not resolve", "see that `getent hosts {clients}` answers on {host}; within 30 s the watcher exports to it. An address in the spec needs no name service"},
	"export-missing":    {"export", Fault, "{export} is not exported to {clients} on {host}", mendApply},
	"export-extra":      {"export", Warning, "{export} is exported to {clients} on {host}, which the spec does not say", mendApply},
	"export-async":      {"export", Fault, "{export} is exported async on {host}: acknowledged writes are lost if it fails", mendApply},
	"export-readonly":   {"export", Fault, "{export} is exported read-only on {host}", mendApply},
	"export-options":    {"export", Warning, "{difference} on {host}", mendApply},

	// Lustre
	"target-unknown":   {"target", Unknown, "target {target} is mounted on no server that answers; {hosts} may have it", ""},
	"target-missing":   {"target", Fault, "target {target} is not mounted on any server", mendMissing},
	"target-twice":     {"target", Fault, "target {target} is mounted on {hosts} at once: this destroys it", mendTwice},
	"target-away":      {"target", Warning, "on {host}; its home is {home}", "`mortar failback` takes it home"},
	"target-unseen":    {"target", Unknown, "no server that answers knows of it", ""},
	"lustre-unhealthy": {"host", Fault, "Lustre on {host} is not healthy: {text}", "look at its kernel log"},
	"recovery-unread":  {"target", Unknown, "recovery of {target} is not understood: clients {clients%q}", ""},
	"clients-evicted":  {"target", Warning, "{evicted} of {clients} clients did not come back after the last start, and were evicted", "look at the logs of the clients: what they had not written is lost"},
	"in-recovery":      {"target", Warning, "in recovery ({state}): {back} of {clients} clients are back[; it waits {left} s more for the others]", ""},
	"inodes-unread":    {"target", Unknown, "{used%.0f} % of its space used; how many inodes are used is not understood", ""},
	"osts-uneven":      {"target", Warning, "{target} is {used%.0f} % full and {other} {less%.0f} %: new files go to the emptier ones", "`mortar lustre ost drain {spec} {ost}` moves its files, then `mortar lustre ost fill {spec} {ost}` uses it again"},

	// clients
	"client-name-twice": {"host", Fault, "{hosts} have one NFSv4 client name, {name}: the server takes each for a restart of the other, and throws its locks and open files away", "give each host a name of its own (hostnamectl), or a value of its own to nfs.nfs4_unique_id (modprobe.d), and mount again"},
	"mount-missing":     {"host", Fault, "{mount} is not mounted on {host}", "`mortar apply`, or `mortar client-config` for the line in fstab"},
	"mount-hangs":       {"host", Fault, "{mount} on {host} hangs: the server did not answer within {within}", "nothing on the client: a hard mount goes on as soon as the service answers"},
	"mount-error":       {"host", Fault, "{mount} on {host} gives an error: {error}", "if it is stale, the export lost its identity (fsid): mount again, and look at the export"},
	"mount-source":      {"host", Warning, "{mount} on {host} is mounted from {source}, not from {want}", ""},
	"mount-soft":        {"host", Fault, "{mount} on {host} is mounted soft: a failover longer than its timeout gives programs I/O errors, and data may be lost", "mount it with hard"},
	"mount-version":     {"host", Warning, "{mount} on {host} uses NFSv{version}, not v{want}", ""},
	"mount-protocol":    {"host", Warning, "{mount} on {host} goes over {protocol}, which the spec does not say", ""},
	"mount-slow":        {"host", Warning, "{mount} on {host} took {took} to answer", ""},

	// hardware
	"pdu-unread":            {"pdu", Unknown, "the load of {pdu} was not read: {error}", "see that SNMP of the PDU gives {objects}"},
	"pdu-overloaded":        {"pdu", Fault, "load {load%.1f} A of {limit%.0f} A", "take something off it: its breaker may trip"},
	"pdu-nearly-overloaded": {"pdu", Warning, "load {load%.1f} A of {limit%.0f} A", "take something off it"},
	"pdu-cannot-stand-in":   {"pdu", Warning, "{pdu} carries {load%.1f} A of {limit%.0f} A, and all PDUs {total%.1f} A: if the other feed fails, it is overloaded, and its breaker takes the servers with it", "spread what hangs on the PDUs over more of them"},
	"bmc-unread":            {"host", Unknown, "BMC of {host} was not read: {error}", "see that ipmitool is installed on {asker}, and that the BMC answers there"},
	"bmc-event":             {"host", OK, "event log of {host}'s BMC: {log}", "look at what the event is about; then save the log (`ipmitool sel save FILE`) and empty it (`ipmitool sel clear`)"},
	"bmc-log-full":          {"host", Warning, "event log of {host}'s BMC is full ({log}): it loses new events", "save it (`ipmitool sel save FILE`), then empty it (`ipmitool sel clear`)"},
	"sensor":                {"host", OK, "{sensor} of {host}: {reading}", "look at the server and at its BMC's event log"},
	"sensor-lost":           {"host", Unknown, "{sensor} of {host} has no reading any more; the last: {reading}", "look at the server; if the part was taken out on purpose, start the command again"},
	"sensor-unread":         {"host", Unknown, "{sensor} of {host} is not understood: {reading}", "look at it in the BMC's own pages"},
	"smart-unread":          {"host", Unknown, "SMART data was not read: {error}", "install smartmontools there"},
	"disk-failing":          {"disk", Fault, "disk {disk} predicts its failure: {why}", "{replace}"},
	"disk-hot":              {"disk", Warning, "disk {disk} says that it is too hot[ ({celsius} °C)]", "look at the cooling: the enclosure's fans, its filters, the room; the disk itself is not at fault"},
	"disk-warns":            {"disk", Warning, "disk {disk} warns: {warnings}", "read what the disk's maker says of this; it predicts no failure"},
	"disk-defects":          {"disk", Warning, "disk {disk} has lost or doubtful data: {defects}", "`mortar scrub` reads all of it; if the count grows, {replace}"},
	"disk-worn":             {"disk", Warning, "disk {disk} has {left} % of its life left", "order another one"},
	"disk-nearly-tripped":   {"disk", Warning, "disk {disk} is at {celsius} °C; at {trip} °C it protects itself and fails requests", "look at the enclosure's fans"},
	"disk-silent":           {"disk", Unknown, "the health of disk {disk} cannot be read: {why}", "{mend}"},
	"disk-unread":           {"disk", Unknown, "SMART data of disk {disk}: {records}", "see `smartctl --all` of the disk"},
	"enclosures-unknown":    {"enclosures", Unknown, "no enclosure services of {enclosures}: nothing is known of power supplies, fans and temperatures there", ""},
	"enclosure-unread":      {"enclosure", Unknown, "{enclosure} was not read: {error}", "see that sg3-utils is installed on {host}"},
	"enclosure-part-lost":   {"enclosure", Unknown, "{enclosure}: {part} gives no status any more; the last: {last}", "look at the enclosure; if the part was taken out on purpose, start the command again"},
	"enclosure-part":        {"enclosure", OK, "{enclosure}: {part}: {finding}[; in it is disk {disk}]", "look at the enclosure[, and at the SMART data (above) of disk {disk}]"},

	// power
	PDUSilent:         {"pdu", Fault, "{pdu} ({address}) does not answer {host}: {error}; fencing by the PDUs does not work without it", "see that it has power and a link, and that its address and secrets are those of the spec"},
	"pdu-late":        {"pdu", Unknown, "{pdu} ({address}): {host} has no answer: {error}", ""},
	"outlets-unknown": {"host", Unknown, "{outlets}: nothing is known", ""},
	"power-lost":      {"host", Fault, "{host} has no power: {outlets%are} off", "`mortar outlets-on {spec} {host}`"},
	FeedLost:          {"host", Fault, "{host} has lost a power feed: {outlets%are} off; if the other one fails, {host} is off", "`mortar outlets-on {spec} {host}`"},

	// cluster
	"cluster-slow":          {"host", Fault, "the cluster on {host} did not answer in time", "look again: a server that has just booted is busy; if it stays so, `journalctl -u pacemaker` there"},
	"cluster-stopped":       {"host", Fault, "the cluster does not run on {host}: {error}", "`systemctl start pacemaker` there (it starts corosync), or `mortar apply`"},
	"cluster-maintenance":   {"", Warning, "maintenance mode is on: the cluster watches and does nothing", "`crm_attribute --type crm_config --name maintenance-mode --delete`"},
	"cluster-stops-all":     {"", Fault, "the cluster was told to stop everything", "`crm_attribute --type crm_config --name stop-all-resources --delete`"},
	"cluster-split":         {"host", Fault, "{host} and {other} each believe the other is gone: the cluster is split", "see the links below; fencing decides who goes on"},
	"views-differ":          {"host", Warning, "{host} believes that {other} is gone, {other} does not", ""},
	"watchdog-missing":      {"host", Warning, "no watchdog runs on {host}: if its kernel hangs and no fence device works, it stays so", "load the driver of its hardware watchdog (iTCO_wdt, ipmi_watchdog, …) at boot, then `mortar apply {spec}`"},
	"watcher-missing":       {"host", Warning, "{host} is online, but ocf:mortar:watch does not run there: a lost link or path is noticed late", "`mortar apply {spec}` has Pacemaker start it"},
	QuorumWaits:             {"host", Fault, "{host} waits for {missing}: after a cold start it has no quorum, fences no server and starts nothing before it has seen every server (wait_for_all)", "switch {off} on, and the cluster starts; if {off} is gone for good, cut its power by hand, and then `mortar confirm-off {spec} {off}`"},
	"quorum-missing":        {"host", Fault, "{host} has no quorum: nothing is started", "look at corosync's log there"},
	"coordinator-missing":   {"", Warning, "the cluster has elected no coordinator (DC): it does not act now", "normal for some seconds after a start; else see pacemaker.log"},
	"member-unknown":        {"host", Fault, "the cluster does not know {host}", "`mortar apply`"},
	"member-awaited":        {"host", Fault, "{host} is away since {asked} has started", "switch {host} on, and the cluster starts; if {host} is gone for good, " + mendConfirm},
	MemberLost:              {"host", Fault, "{host} is lost and must be fenced before its service may start elsewhere", "fencing is under way, or fails: see below; if nothing can fence it, " + mendConfirm},
	"member-unclean":        {"host", Fault, "{host} is unclean: the cluster is about to fence it", ""},
	"member-left":           {"host", Fault, "{host} is up, but not in the cluster", mendPacemaker + ", once it is known why it left"},
	"member-away":           {"host", Fault, "{host} is out of the cluster: no partner is left to take over", "bring it up again; it joins by itself"},
	"member-joins":          {"host", Warning, "{host} is joining", "wait; if it stays so, `stonith_admin --reboot {host}` on {asked} has it fenced, and the cluster goes on without it"},
	"member-maintenance":    {"host", Warning, "{host} is in maintenance mode: what runs there is not watched", ""},
	"member-health":         {"host", Warning, "{host} is online, its health is {health}", ""},
	"pacemaker-stopped":     {"host", Fault, "Corosync runs on {host}, but Pacemaker does not: the cluster waits for it, and starts nothing that does not run already", mendPacemaker + "; if it does not stay up, `systemctl stop corosync` there, and the cluster goes on without {host}"},
	InStandby:               {"host", Warning, "{host} is in standby: it takes over nothing", "`mortar unstandby {spec} {host}`"},
	"standby-after-failure": {"host", Fault, "{host} was put in standby after a failure", ""},
	"ring-broken":           {"ring", Fault, "{ring}: {failures}", "look at the link, switch and address of this network on both servers"},
	"ring-unread":           {"ring", Unknown, "{ring}: {states}", "see `corosync-cfgtool -s` on both servers"},
	"ring-unknown":          {"ring", Unknown, "corosync could not be asked", ""},
	"ring-alone":            {"ring", Unknown, "{hosts%are} away", ""},
	"action-failed":         {"resource", Warning, "{task} of {resource} failed on {host}[ at {time}]: {failure}[; it cannot run on {barred} until that is cleaned up]", "when the cause is mended: `crm_resource --cleanup --resource {resource}`"},
	"service-compares":      {"resource", Warning, "{task} of {resource} failed on {host}[ at {time}]: {failure}[; it cannot run on {barred} until that is cleaned up]", "wait: Pacemaker tries again by itself, and the next start goes on with the comparison"},
	ServiceInDoubt:          {"resource", Warning, "{task} of {resource} failed on {host}[ at {time}]: {failure}[; it cannot run on {barred} until that is cleaned up]", "connect the missing disk if it was there when the server died; else `mortar confirm-doubt {spec} {service}` lists what is in doubt and asks"},
	ServiceDamaged:          {"resource", Fault, "{task} of {resource} failed on {host}[ at {time}]: {failure}[; it cannot run on {barred} until that is cleaned up]", "`mortar repair {spec} {service}` keeps it stopped, looks at the volume, and asks before it mends the volume"},
	"agent-missing":         {"resource", Fault, "{resource} cannot run on {host}: its agent was not there when the cluster looked, and it does not look again by itself", "`mortar apply` has it look again"},
	MoveLeftover:            {"resource", Warning, "a left-over constraint of a move ({constraint}) ties {resource}: score {score} for {host}", "`crm_resource --resource {resource} --clear`"},
	"service-undefined":     {"service", Fault, "the cluster does not know service {service}", "`mortar apply`"},
	"service-blocked":       {"service", Fault, "service {service} is blocked: the cluster cannot stop or start it safely", ""},
	"service-twice":         {"service", Fault, "service {service} is active on more than one server", ""},
	"service-awaits-quorum": {"service", Fault, "service {service} runs nowhere ({role})", "see quorum above"},
	"service-stopped":       {"service", Fault, "service {service} runs nowhere ({role})", "see the failures and fencing below"},
	"service-left-alone":    {"service", Fault, "service {service} runs nowhere ({role}), and the cluster was told to leave it alone", "if `mortar repair {spec} {service}` was cut short, run it again; else `crm_resource --resource service-{service} --meta --delete-parameter is-managed`, and the same with target-role"},
	"service-failed":        {"service", Fault, "service {service} has failed on {host}", ""},
	"service-changing":      {"service", Warning, "service {service} is {role} on {host}[: {progress}]", ""},
	ServiceAwaitsFencing:    {"service", Fault, "service {service} was on {host}, which is lost: it waits for fencing", ""},
	"service-unmanaged":     {"service", Warning, "service {service} on {host} is not managed: nothing would restart it", ""},
	"service-away":          {"service", Warning, "service {service} on {host}[ since {since}], its preferred server is {preferred}", "[first `mortar unstandby {spec} {standby}`, then ]`mortar failback {spec}[ {which}]` when it suits"},

	// fencing
	"fencing-unknown":         {"", Unknown, "the cluster cannot be asked", ""},
	"fencing-off":             {"", Fault, "fencing is switched off: a failover can destroy data", "`crm_attribute --type crm_config --name stonith-enabled --update true`"},
	"fencing-waits":           {"host", Warning, "{host} is fenced by one level after the other: {devices}, which waits for none, is not in the cluster's configuration", "`mortar apply`"},
	"fencing-level-missing":   {"host", Fault, "level {level} of fencing {host} ({devices}) is not in the cluster's configuration", "`mortar apply`"},
	"fencing-impossible":      {"host", Fault, "{host} cannot be fenced: no level of it works; a failure of {host} would stop its service", "mend the devices named here first of all"},
	"fencing-now":             {"host", Warning, "{host} is being fenced", ""},
	"fencing-failed":          {"host", Fault, "fencing of {host} failed at {time}[: {why}]", "see pacemaker.log; a service waits until fencing works"},
	"fencing-failed-before":   {"host", Warning, "fencing of {host} failed at {time}[: {why}]", "see pacemaker.log; `mortar fence-test {spec} --node {host}` shows whether it works again"},
	"fencing-changed":         {"host", Warning, "level {level} of fencing {host} ({devices}) was proven {time} with another configuration", mendProve},
	"fencing-aged":            {"host", Warning, "level {level} of fencing {host} ({devices}) was proven {time}, more than {days} days ago (ha.fence_test_days)", mendProve},
	"fencing-unproven":        {"host", Warning, "fencing of {host} was never proven: no success since the cluster was started", mendProve},
	"fencing-levels-unproven": {"host", Warning, "fencing of {host} worked {time}, but each level of it was never proven", mendProve},
	"fencing-level-unproven":  {"host", Warning, "level {level} of fencing {host} ({devices}) was never proven", mendProve},
	"fence-test-unfinished":   {"host", Fault, "a fence test of {host} is under way, or was cut off", "if none is: `mortar apply` or `mortar fence-test` switches the server on again and puts every level back"},
	"fence-device-missing":    {"device", Fault, "fence device {device} ({agent}) is not registered", "`mortar apply`"},
	"fence-device-failed":     {"device", Fault, "fence device {device} ({agent}) does not work[: {failures}]", "see that it has power and answers, then `crm_resource --cleanup --resource {device}`"},
	"fence-device-unwatched":  {"device", Warning, "fence device {device} is not watched now: the cluster has not started it", "if it stays so: `crm_resource --cleanup --resource {device}`"},
	"fence-device-homeless":   {"device", Warning, "fence device {device} has no server to run on: the other one is away", ""},
}

func init() {
	for code, k := range lunarray.Kinds {
		if k.Subject == "lun" {
			k.Text = "{hosts}: {which} " + k.Text
			findings[Code(code)] = kindOfFinding(k)
		}
	}
}

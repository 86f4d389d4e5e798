package resource

// Remedies of several refusals.
const (
	mendWatchOnly = "log in with a key that may do more (docs/security.md)"
	mendSerial    = "correct serial or wwn in the spec"
)

// codes are the refusals of the agent. Register adds those of commands.
var codes = Codes{
	// the agent and the gate
	"watch-only-command": {"", "this agent may only watch, and runs no {command}", mendWatchOnly},
	"watch-only-request": {"", "this agent may only watch, and does not {request}", mendWatchOnly},
	"command-unknown":    {"program", "{command} is not known as a command that only reads", "run it as an action, or add this form of {program} to internal/host/resource/readonly.go if it changes nothing"},
	"wipe-not-permitted": {"serial", "this would destroy what is on the disk with serial {serial}", "list the serial under wipe: if that is meant"},
	"brick-claimed":      {"by", "the brick is being changed by {by} since {since}", "wait for that command to end. If it is dead, run mortar unlock SPEC --holder and the name before the parenthesis"},

	// hosts
	"host-other-name":        {"host", "the host that was reached as {host} calls itself {name}", "give it the name that `uname -n` prints in the spec, or rename the host with hostnamectl(1)"},
	"host-not-root":          {"host", "{host} was reached without root's rights", "set ssh.user to root"},
	"host-no-rdma":           {"host", "{host} has no RDMA device (nothing in /sys/class/infiniband), and the spec says nfs.transport: rdma", "see `lspci` and `rdma link show`: the card's driver is missing or RoCE is off; or remove nfs.transport"},
	"host-no-room":           {"host", "{found%;}", "{mend%;}"},
	"host-mtu":               {"host", "{found%;}", "set it with {commands%,} and, for the next boot, in the host's network configuration (mtu in interfaces(5), MTUBytes= in systemd.network(5)); or write the MTU that the network has into networks in the spec"},
	"path-is-directory":      {"path", "{path} is a directory, not a file", "move it away"},
	"path-is-file":           {"path", "{path} is a file, not a directory", "move it away"},
	"swap-file-system":       {"path", "{path} would be on {type}, which takes no swap file", "make swap on a partition of the host's own disks, or remove preparation.swap from the spec"},
	"swap-no-room":           {"path", "{path} needs {need}, and /var/lib has {free} free, of which {left} stay for the system", "make room there, make swap on a partition, or write a smaller preparation.swap"},
	"firewall-chain-gone":    {"chain", "nftables of this host has no chain {chain}", "name the chain that drops under firewall.chains, as `nft list ruleset` has it; where none drops, nothing has to be opened: remove firewall"},
	"firewalld-silent":       {"", "firewalld does not answer on this host: exit code {exit}: {stderr}", "`systemctl enable --now firewalld`; or name the firewall that runs, or remove firewall from the spec"},
	"corosync-other-key":     {"", "corosync runs with another key than this brick's", "if the cluster is this brick's, bring back .mortar/BRICK/secrets/corosync.key beside the spec, or copy /etc/corosync/authkey of a server there (mode 0600); else stop and remove the other cluster"},
	"fence-agent-unread":     {"agent", "{agent} does not say which options it has: {error}", "run it by hand on that host: `{agent} -o metadata`"},
	"fence-agent-cycles":     {"agent", "{agent} would switch the power off and on at once: nothing would show that the server is off", "write options: {method: onoff}"},
	"fence-agent-option":     {"agent", "{agent} has no option {option%q}", "use one of those: {options%,}"},
	"fence-agent-action":     {"agent", "{agent} has no action {action}: it could not confirm that a server is off", "use an agent that switches power and tells its state"},
	"mortar-too-old":         {"", "mortar {build} cannot serve what the servers' mortar, {servers}, serves: {error}", "use the newer one"},
	"mortar-downgrade":       {"", "the servers' mortar is {servers}, newer than this one, {build}", "use the newer one; `mortar apply --allow-downgrade` replaces it, and loses what the newer one has learned[, and these settings of the services, which this one does not know: {lost%,}]"},
	"mortar-not-valid":       {"config", "{program} ocf validate-all --config {config}: exit {exit}: {stderr}", "the server that serves keeps its mortar until this one's works"},
	"lnet-no-address":        {"address", "no interface has the address {address}, which Lustre speaks through (LNet network {network})", "configure the interface of the public network, or correct public: of this host in the spec"},
	"lnet-other-interface":   {"network", "LNet network {network} is up on {interfaces%,}, not on {want%,}", "correct lnet or the interface of the public network in the spec, or unmount all of Lustre on this host, run `lustre_rmmod`, and apply again"},
	"lustre-not-installed":   {"kernel", "kernel {kernel} lacks Lustre: {packages%,} is not installed[: its modules fit {fit%,}]", "name a directory or a repository with Lustre for this kernel (lustre.packages), or install it by hand"},
	"lustre-other-kernel":    {"kernel", "kernel {kernel} runs, and {directory} has no {packages%,}: its modules fit {fit%,}", "boot a kernel that they fit, or build Lustre for this one"},
	"lustre-no-modules":      {"kernel", "kernel {kernel} runs, and {directory} has no {packages%,}: no modules of Lustre are there", "boot a kernel that they fit, or build Lustre for this one"},
	"initramfs-no-tool":      {"image", "{image}: {lacks}, and there is no {tool} to build it anew", "install {package}, the only builder of initial RAM disks that mortar works with on {distribution}"},
	"multipath-conf-foreign": {"path", "{path} is not Mortar's", "see which disks need it; if none does, move it away: Mortar then writes one for the brick's disks"},
	"multipath-system-disk":  {"map", "{target} is on the multipath map {map}", "install the system on a disk that has one path, as a mirror in the server: Mortar's multipath.conf lets only the brick's disks through"},

	// disks and LUNs
	"disks-not-there":      {"", "{disks%,} {are} not there", "check cabling, power and the serial on the label, or correct the spec"},
	"disk-map-mixed":       {"disk", "{disk}: its multipath map {device} has path {path}, which is no path to it", "look at `multipath -ll {map}`: the map may be older than a disk that was replaced; `multipath -r` renews it"},
	"disk-too-small":       {"disk", "{disk} has {bytes} bytes, less than the {want} of the spec", "correct size in the spec, or replace the disk"},
	"lun-too-large":        {"disk", "{disk} has {bytes} bytes, more than the {want} of the design", "see that arrays.wwns lists the LUNs in the order of their numbers (`mortar array verify`), and that the array has the RAID geometry of the design (`mortar array script`)"},
	"disk-sector":          {"disk", "{disk} has logical blocks of {bytes} bytes, not the {want} of the spec", "correct sector in the spec, or format the disk anew (sg_format --format --size, nvme format --lbaf)"},
	"disk-sectors-mixed":   {"disk", "{disk} would join a volume or an array whose disks have {sizes}", "take disks of one kind, or format the others anew, which ends what is on them (sg_format --format --size, nvme format --lbaf); a LUN has the block size of its array's disks"},
	"lun-no-wwn":           {"disk", "{disk}: nothing says which device it is", "write the WWNs of the array's LUNs into arrays.wwns of the spec; `mortar array verify` prints them"},
	"disk-other-serial":    {"disk", "{disk}: the disk with WWN {wwn} has serial {serial}", mendSerial},
	"disk-other-wwn":       {"disk", "{disk} has WWN {wwn}, not {want}", mendSerial},
	"disk-serial-twice":    {"disk", "{disk}: {count} disks have this serial: {devices%,}", "give the wwn of the one that is meant in the spec; disks that only their serial names cannot be told apart"},
	"disk-wwn-twice":       {"disk", "{disk}: disks with other serials have its WWN {wwn}: {devices%,}", "multipath would take them for paths to one disk: disconnect the others, or have their WWNs corrected"},
	"disks-in-use":         {"", "{found%;}", "stop what uses it, if its data may go, and list the {typed} under wipe in the spec"},
	"disks-not-blank":      {"", "{found%;}", "if its data may go, list the {typed} under wipe in the spec"},
	"disks-in-other-group": {"", "{found%;}", "the disks carry this brick's data, and the spec deals them to other groups than they are in: put its disks and its RAID geometry back as they were, and add disks by mortar grow"},
	"disk-written-since":   {"device", "{device} carries {found}, which was not there when the plan was made", "if its data may go, list the serial of the disk under wipe in the spec"},
	"disk-no-reservations": {"disk", "{disk}: {error}", "see that the array's firmware allows persistent reservations for these hosts"},
	"disk-reserved":        {"disk", "{disk}: another machine uses it: the reservation keys {keys%,} are registered, of no server of this brick", "see that only the servers of this brick reach it. {mend}"},
	"cache-refused":        {"", "{error}", "nothing was changed"},

	// arrays and volumes
	"array-geometry":       {"array", "array {array} has {property} {have}, not {want}", "geometry is not changed in place: correct the spec, or build a new brick"},
	"array-journal":        {"array", "array {array} has a write journal, and this version has none", "nothing is changed; go on with the version that built it until you have taken the journal off: docs/operations.md, A write journal of an earlier version"},
	"array-members-gone":   {"array", "array {array} has only {members} of its {want} members", "find the missing disks; nothing is assembled or created over them"},
	"array-was-built":      {"array", "array {array} is on none of its disks, but its service was already set up", "if the array may be created anew: stop Pacemaker on all servers, and remove {notes} and {cib} there"},
	"array-member-failed":  {"array", "array {array} is to be created, and {disk} is marked as failed", "a new array begins whole: write the serial of a good disk in its place, and remove failed"},
	"array-superblock":     {"disk", "{disk} carries a superblock of array {array}, but `mdadm --examine` reads none of it: {error}", "look at the disk with `mdadm --examine {device}` and `wipefs {device}`; nothing is created over it"},
	"array-not-whole":      {"array", "array {array} cannot give {disk} up now: it lacks {lacks} of {members} members, or copies another one", "wait until it is whole (`mortar status`), or replace the missing disk first"},
	"array-used-here":      {"array", "array {array} is assembled here too (/dev/{device})", "find out which server uses it, and stop it on the other with `mdadm --stop /dev/{device}`"},
	"grow-inactive":        {"array", "array {array} is to make volume {volume} larger, which is not active", "a volume grows while its service runs: start the service (mortar status says why it does not run), then apply again"},
	"grow-array-lost":      {"array", "array {array} is on none of its disks, and volume group {vg} misses {missing} of its physical volumes", "find the disks on which the array was; nothing is created in its place"},
	"grow-old-cache":       {"path", "{path} is still on the layers of a cache that was turned off, and they do not grow", "have the service start anew (mortar failover; a single server: reboot it), then run the same command again"},
	"vg-other":             {"device", "{device} is a physical volume of volume group {vg}, not {want}", "remove that volume group if its data may go, or correct the brick's name in the spec"},
	"vg-owned":             {"vg", "volume group {vg} belongs to {owner%q}: a cluster has served it, but no server's cluster knows its service", "see that no server uses it; then hand it to apply: `vgchange --systemid {rest} --config 'local { system_id = {owner%q} }' {vg}` (lvmsystemid(7))"},
	"vg-full":              {"vg", "volume group {vg} has no room for the header of a cache: {need} extents are needed, {free} are free. An earlier version of mortar built this brick, and gave all of it to the volume", "grow the brick first: mortar grow leaves room on the new disks; or build another brick with a cache beside it"},
	"vg-used-here":         {"vg", "volume group {vg} is active here too", "find out which server uses it, and deactivate it on the other with `vgchange --activate n {vg}`"},
	"service-in-cluster":   {"service", "the cluster has {service} ({cib}): it alone brings up its storage", "start Corosync and Pacemaker on all servers; the cluster starts the service"},
	"service-loses":        {"config", "{config}: the service has {lost%,}, and the spec does not", "is the spec older than the brick? Take what is missing into it; only exports can be removed from a brick, each with --unexport and its directory"},
	"service-reservations": {"config", "{config}: the storage of this service is reserved, and the spec says ha.reservations: off", "leave them on: the other server could not take over what no server gives up. A brick for a demonstration is built without them from the start"},

	// file systems and targets
	"mount-other":       {"path", "{source} is mounted on {path}, where {want} belongs", "unmount it"},
	"fs-gone":           {"device", "{device} carries nothing, and /etc/fstab mounts {path}: the file system that was there has lost its superblock", "`mortar repair` looks for the file system; if the volume is new, take the line of {path} out of /etc/fstab"},
	"fs-unclear":        {"device", "{device} carries more than one signature, or cannot be read ({error})", "look at it with wipefs(8)"},
	"fs-foreign":        {"device", "{device} carries {type} {uuid}, which this brick has not made", "save its data and wipe it with wipefs(8), or correct the spec"},
	"target-other":      {"device", "{device} carries target {target} of Lustre file system {fs}, not {want}", "correct the spec, or, if its data may go, unmount it and wipe it with wipefs(8)"},
	"target-nids":       {"target", "target {target} on {device} knows {node} as {nids}, not as {want%,}", "correct the addresses in the spec, or change the target's with all targets and clients unmounted: lctl-replace_nids(8), tunefs.lustre(8)"},
	"target-not-lustre": {"device", "{device} has the label of target {target}, but no Lustre, and holds {files%,}", "look at it with debugfs(8); if its data may go, wipe it with wipefs(8)"},
}

package journal

import (
	"regexp"
	"strings"
	"sync"
)

// Kinds of what a line tells. They mark events on the timeline of a drill.
const (
	Detected   = "detected"
	Membership = "membership"
	Link       = "link"
	Fencing    = "fencing"
	Fenced     = "fenced"
	FenceFail  = "fence-failed"
	Starting   = "starting"
	Started    = "started"
	StartFail  = "start-failed"
	Stopped    = "stopped"
	Multipath  = "multipath"
	RAID       = "raid"
	FS         = "filesystem"
	Conflict   = "reservation-conflict" // a LUN that is reserved for another server refuses a command
	MMP        = "mmp"                  // multiple mount protection found a target in use on another server
	Note       = "note"
)

// Levels, in the words of `mortar status`.
const (
	OK      = "ok"
	Warning = "warning"
	Fault   = "fault"
)

type Meaning struct {
	Kind     string // one of those above; "": it is of no interest to a drill
	Node     string // server it is about, where the line names it
	Resource string // resource it is about, where the line names it

	Part  string // cluster, fencing, service, multipath, md, XFS, Lustre, NFS, network, cache, kernel or mortar
	Level string
	Text  string // in words
	// Detail: it says what another line says better, or what only a developer
	// asks.
	Detail bool
}

// rule maps messages to their meaning. The sub-expressions node and res of its
// pattern say what a message is about. {NAME} in words is sub-expression NAME;
// of node numbers, id, it is the servers' names.
type rule struct {
	ident  string // SYSLOG_IDENTIFIER
	re     *regexp.Regexp
	kind   string
	part   string
	level  string
	words  string // "": the message itself
	detail bool
}

func say(ident, re, kind, part, level, words string) rule {
	return rule{ident, regexp.MustCompile(`(?m)` + re), kind, part, level, words, false}
}

func detail(ident, re, kind, part, words string) rule {
	return rule{ident, regexp.MustCompile(`(?m)` + re), kind, part, OK, words, true}
}

const (
	corosync = "corosync"
	controld = "pacemaker-controld"
	fenced   = "pacemaker-fenced"
	sched    = "pacemaker-schedulerd"
	mpathd   = "multipathd"
	kernel   = "kernel"
)

// rules hold for corosync 3.1, Pacemaker 2.1 (Debian 12) and 3.0 (Debian 13),
// whose wording differs in places, multipath-tools 0.9 to 0.11 and Linux 6.1 to
// 6.12. The first that matches counts.
//
// They are compiled when the first log is read: of the processes of Mortar few
// read one.
//
// Sources: corosync exec/totemsrp.c, exec/totemknet.c, exec/vsf_quorum.c;
// Pacemaker daemons/controld, daemons/fenced, lib/pengine; multipath-tools
// multipathd/main.c; Linux drivers/md/md.c, raid5.c, raid1.c, dm-mpath.c,
// fs/xfs/xfs_log.c, xfs_fsops.c, fs/nfsd/nfs4state.c, net/sunrpc/clnt.c,
// kernel/hung_task.c, mm/oom_kill.c; systemd src/login/logind-dbus.c. Lines that
// racks logged are in the tests.
var rules = sync.OnceValue(func() []rule {
	return []rule{
		say(corosync, `A processor failed, forming new configuration`, Detected, "cluster", Warning, "a server gives the cluster no sign; who is left is being agreed upon"),
		say(corosync, `A new membership \(\S+\) was formed\. Members joined: (?P<joined>[\d ]+) left: (?P<id>[\d ]+)`, Membership, "cluster", Warning, "{id} left the cluster and joined it again"),
		say(corosync, `A new membership \(\S+\) was formed\. Members.* left: (?P<id>[\d ]+)`, Membership, "cluster", Warning, "{id} left the cluster"),
		say(corosync, `A new membership \(\S+\) was formed\. Members.* joined: (?P<id>[\d ]+)`, Membership, "cluster", OK, "{id} joined the cluster"),
		say(corosync, `link: host: (?P<id>\d+) link: (?P<ring>\d+) is down`, Link, "network", Warning, "ring {ring} to {id} is down"),
		say(corosync, `(?:link|rx): host: (?P<id>\d+) link: (?P<ring>\d+) is up`, Link, "network", OK, "ring {ring} to {id} is up"),
		say(corosync, `host: (?P<id>\d+) has no active links`, Link, "network", Warning, "no ring reaches {id}"),
		say(corosync, `Token has not been received in (?P<ms>\d+) ms`, Note, "cluster", Warning, "the cluster's token is late: none for {ms} ms"),
		say(corosync, `This node is within the primary component`, "", "cluster", OK, "this server's part of the cluster has quorum"),
		say(corosync, `This node is within the non-primary component`, "", "cluster", Fault, "this server's part of the cluster has no quorum: it serves nothing"),
		say(corosync, `Corosync Cluster Engine exiting`, "", "cluster", Warning, "corosync ends"),
		say(corosync, `Corosync Cluster Engine .*starting up`, "", "cluster", OK, "corosync starts"),

		say(controld, `^Peer (?P<node>\S+) was terminated \((?P<how>\S+)\) by (?P<by>.+) on behalf of `, Fenced, "fencing", Warning, "{node} was fenced ({how}) by {by}"),
		say(controld, `^Peer (?P<node>\S+) was not terminated `, FenceFail, "fencing", Fault, "fencing of {node} failed: {message}"),
		say(controld, `^Requesting fencing \((?P<how>\S+)\) (?:targeting|of) node (?P<node>\S+)`, Fencing, "fencing", Warning, "the cluster has {node} fenced ({how})"),
		say(controld, `^Our peer on the DC \((?P<who>\S+)\) is dead`, Note, "cluster", Warning, "{who}, which coordinated the cluster, is gone"),
		detail(controld, `^Initiating start operation (?P<res>\S+)_start_0 (?:locally )?on (?P<node>\S+)`, Starting, "service", "{res} is to start on {node}"),
		say(controld, `^Requesting local execution of start operation for (?P<res>service-\S+) on (?P<node>\S+)`, Starting, "service", OK, "{res} is starting on {node}"),
		detail(controld, `^Requesting local execution of start operation for (?P<res>\S+) on (?P<node>\S+)`, Starting, "cluster", "{res} is starting on {node}"),
		say(controld, `^Result of start operation for (?P<res>service-\S+) on (?P<node>[^\s:]+): (?:0 \()?(?i:ok)\b`, Started, "service", OK, "{res} runs on {node}"),
		detail(controld, `^Result of start operation for (?P<res>\S+) on (?P<node>[^\s:]+): (?:0 \()?(?i:ok)\b`, Started, "cluster", "{res} runs on {node}"),
		say(controld, `^Result of start operation for (?P<res>\S+) on (?P<node>[^\s:]+): (?P<why>.*)`, StartFail, "service", Fault, "{res} does not start on {node}: {why}"),
		say(controld, `^Result of stop operation for (?P<res>service-\S+) on (?P<node>[^\s:]+): (?:0 \()?(?i:ok)\b`, Stopped, "service", OK, "{res} is stopped on {node}"),
		detail(controld, `^Result of stop operation for (?P<res>\S+) on (?P<node>[^\s:]+): (?:0 \()?(?i:ok)\b`, Stopped, "cluster", "{res} is stopped on {node}"),
		detail(controld, `^Result of (?:monitor|probe) operation for (?P<res>\S+) on (?P<node>[^\s:]+): (?:\d \()?(?i:ok|not running|cancelled)\b`, Note, "cluster", ""),
		say(controld, `^Result of (?P<op>monitor|probe|stop) operation for (?P<res>\S+) on (?P<node>[^\s:]+): (?P<why>.*)`, Note, "service", Fault, "{op} of {res} failed on {node}: {why}"),

		detail(fenced, `^Operation '\w+' targeting (?P<node>\S+) by \S+ for \S+: OK\b`, Fenced, "fencing", ""),
		say(fenced, `^Operation '(?P<how>\w+)' targeting (?P<node>\S+) by .+ for \S+: (?P<why>.*)`, FenceFail, "fencing", Fault, "fencing of {node} ({how}) failed: {why}"),
		detail(fenced, `^Operation '\w+' \[\d+\].* targeting (?P<node>\S+) using \S+ returned 0\b`, Note, "fencing", ""),
		say(fenced, `^Operation '(?P<how>\w+)' \[\d+\].* targeting (?P<node>\S+) using (?P<dev>\S+) returned (?P<why>.*)`, Note, "fencing", Fault, "fence device {dev} failed at {node} ({how}): {why}"),
		detail(fenced, `^Client pacemaker-controld\S* wants to fence \(\S+\) (?P<node>\S+) using `, Fencing, "fencing", ""),
		say(fenced, `^Client (?P<who>[^\s.]+)\S* wants to fence \((?P<how>\S+)\) (?P<node>\S+) using `, Fencing, "fencing", Warning, "{who} has {node} fenced ({how})"),
		say(fenced, `^Requesting that (?P<by>\S+) perform '(?P<how>\w+)' action targeting (?P<node>[^\s']+) using (?P<dev>\S+)`, Fencing, "fencing", OK, "{by} is to fence {node} by {dev} ({how})"),
		detail(fenced, `^Requesting (?:that \S+ perform '\w+' action|peer fencing \(\S+\)) targeting (?P<node>[^\s']+)`, Fencing, "fencing", ""),
		detail(fenced, `^Delaying '\w+' action targeting (?P<node>\S+) using \S+ for `, Note, "fencing", ""),
		say(fenced, `^No (?:peers|remaining peers) .*capable of fencing \(\S+\) (?P<node>\S+) for `, FenceFail, "fencing", Fault, "no server is able to fence {node}"),
		say(sched, `^Actions: (?P<what>\w+)\s+(?P<res>service-\S+)\s+\(\s*(?P<how>.*?)\s*\)`, "", "service", OK, "the cluster decides: {what} {res} ({how})"),
		say("pacemakerd", `^(?:Shutting down Pacemaker|Shutdown complete)`, "", "cluster", OK, "Pacemaker ends"),
		say("pacemakerd", `^Starting Pacemaker (?P<v>\S+)`, "", "cluster", OK, "Pacemaker {v} starts"),

		say(mpathd, `^(?P<map>\S+): remaining active paths: 0$`, Multipath, "multipath", Fault, "{map} has no working path"),
		say(mpathd, `^(?P<map>\S+): remaining active paths: (?P<n>\d+)`, Multipath, "multipath", OK, "{map} has {n} working paths"),
		say(mpathd, `^(?P<map>\S+): (?P<path>\S+) - .*checker reports path is (?:down|ghost|timed out)`, Multipath, "multipath", Warning, "path {path} to {map} does not answer"),
		say(mpathd, `^(?P<map>\S+): (?P<path>\S+) - .*checker reports path is up`, Multipath, "multipath", OK, "path {path} to {map} answers again"),
		say(mpathd, `^(?P<map>\S+): Entering recovery mode`, Multipath, "multipath", Warning, "{map} has no path: its I/O waits"),
		say(mpathd, `^(?P<map>\S+): Recovered to normal mode`, Multipath, "multipath", OK, "{map} has a path again: its I/O goes on"),
		say(mpathd, `^(?P<map>\S+): switch to path group #(?P<n>\d+)`, Multipath, "multipath", OK, "{map} uses path group {n} now"),
		say(mpathd, `^(?P<map>\S+): Disable queueing`, Multipath, "multipath", Fault, "{map} has had no path for too long: its I/O fails now"),
		detail(mpathd, `remaining active paths: \d+`, Multipath, "multipath", ""),
		detail(mpathd, `(?i)\b(?:path (?:is )?(?:down|up)|mark as failed|reinstated|checker reports path is|path removed|path added|Entering recovery mode|Recovered to normal mode|queue_if_no_path|switch to path group|path priorities changed|disable queueing)`, Multipath, "multipath", ""),

		say(kernel, `\bmd/raid\S*:(?P<md>\w+): Disk failure on (?P<dev>[^\s,]+)`, RAID, "md", Fault, "array {md}: {dev} failed"),
		say(kernel, `\bmd/raid\S*:(?P<md>\w+): Operation continuing on (?P<n>\d+) devices`, RAID, "md", Warning, "array {md} goes on with {n} disks"),
		say(kernel, `\bmd/raid\S*:(?P<md>\w+): Cannot continue`, RAID, "md", Fault, "array {md} has lost more disks than it can bear"),
		say(kernel, `\bmd/raid\S*:(?P<md>\w+): read error corrected \((?P<n>\d+) sectors at \d+ on (?P<dev>[^\s)]+)`, RAID, "md", Warning, "array {md}: {n} sectors of {dev} could not be read, and were written anew"),
		say(kernel, `\bmd/raid\S*:(?P<md>\w+): .*not clean`, RAID, "md", Warning, "array {md} was not stopped cleanly: its parity is being checked"),
		say(kernel, `\bmd/raid\S*: ?(?:Disk failure|Operation continuing|Cannot continue|.*not clean)`, RAID, "md", Fault, ""),
		say(kernel, `^md: (?:recovery|recover) of RAID array (?P<md>\w+)`, RAID, "md", Warning, "array {md}: a rebuild begins"),
		say(kernel, `^md: (?:check|data-check) of RAID array (?P<md>\w+)`, RAID, "md", OK, "array {md}: a scrub begins"),
		say(kernel, `^md: (?P<what>resync|requested-resync|reshape) of RAID array (?P<md>\w+)`, RAID, "md", OK, "array {md}: a {what} begins"),
		say(kernel, `^md: (?P<md>\S+): (?:recovery|recover)\b.*done`, RAID, "md", OK, "array {md}: the rebuild is done"),
		say(kernel, `^md: (?P<md>\S+): (?:check|data-check)\b.*done`, RAID, "md", OK, "array {md}: the scrub is done"),
		say(kernel, `^md: (?P<md>\S+): (?P<what>resync|requested-resync)\b.*done`, RAID, "md", OK, "array {md}: the {what} is done"),
		say(kernel, `^md: (?P<md>\S+): (?P<what>recovery|resync|data-check|requested-resync|recover|check)\b.*interrupted`, RAID, "md", Warning, "array {md}: the {what} was interrupted"),

		detail(kernel, `^device-mapper: multipath: \S+: (?:Failing|Reinstating) path`, Multipath, "multipath", ""),
		detail(kernel, `^sd \S+: (?:\[\w+\] )?(?:Asymmetric access state changed|alua: )`, Multipath, "multipath", ""),
		say(kernel, `^sd (?P<dev>\S+): reservation conflict`, Conflict, "multipath", Fault, "LUN {dev} refuses a command: it is reserved for another server"),
		say(kernel, `^XFS \((?P<dev>\S+)\): .*[Ss]hut(?:ting)? ?down`, FS, "XFS", Fault, "the file system on {dev} was shut down: {message}"),
		say(kernel, `^XFS \((?P<dev>\S+)\): log I/O error(?P<why>.*)`, FS, "XFS", Fault, "the journal of the file system on {dev} cannot be written: {why}"),
		say(kernel, `^XFS \((?P<dev>\S+)\): Starting recovery`, FS, "XFS", OK, "the file system on {dev} was not unmounted: its journal is replayed"),
		detail(kernel, `^XFS \((?P<dev>\S+)\): Ending recovery`, FS, "XFS", ""),
		say(kernel, `^XFS \((?P<dev>\S+)\): Ending clean mount`, FS, "XFS", OK, "the file system on {dev} is mounted"),
		say(kernel, `^XFS \((?P<dev>\S+)\): Unmounting`, FS, "XFS", OK, "the file system on {dev} is unmounted"),
		say(kernel, `^Lustre: (?P<t>\S+): (?:Recovery over|Will be in recovery|Denying connection|Imperative Recovery|.*evict)`, FS, "Lustre", OK, ""),
		say(kernel, `^LustreError: .*(?:evict|LBUG|ASSERTION)`, FS, "Lustre", Fault, ""),
		// Source: fs/ext4/mmp.c of the kernel.
		say(kernel, `^LDISKFS-fs (?:error|warning) \(device (?P<dev>[^)]+)\): .*(?:already active on another node|fsck is running on the filesystem|multiply mounted|error reading MMP data)`, MMP, "Lustre", Fault, "the target on {dev} is in use elsewhere: {message}"),
		detail(kernel, `^LDISKFS-fs warning \(device (?P<dev>[^)]+)\): .*MMP interval \d+ higher than expected`, FS, "Lustre", "the mount of {dev} waits until no other server can have it"),
		say(kernel, `^LDISKFS-fs (?:error|warning) .*MMP`, FS, "Lustre", Fault, ""),
		say(kernel, `^NFSD: starting (?P<s>\d+)-second grace period`, Note, "NFS", OK, "clients may reclaim their locks, for {s} s"),
		say(kernel, `^NFSD: all clients done reclaiming`, Note, "NFS", OK, "all clients have reclaimed their locks"),
		detail(kernel, `^NFSD: no clients to reclaim`, Note, "NFS", "no client has locks to reclaim"),
		say(kernel, `^nfsd: last server has exited`, Note, "NFS", OK, "the NFS server is stopped"),
		say(kernel, `^nfs: server (?P<server>\S+) not responding`, Note, "NFS", Warning, "{server} does not answer this client: its I/O waits"),
		say(kernel, `^nfs: server (?P<server>\S+) OK`, Note, "NFS", OK, "{server} answers this client again"),
		// Drivers of network cards begin with their name, the card's address, its name
		// again (igb), or nothing; SATA links have no colon before the word.
		say(kernel, `(?i)(?:^|\s)(?P<dev>[\w.@-]+)(?:: \w+_watchdog\w*)?(?::(?: NIC)?| NIC) Link (?:is )?down\b`, Note, "network", Warning, "{dev} has no link"),
		say(kernel, `(?i)(?:^|\s)(?P<dev>[\w.@-]+)(?:: \w+_watchdog\w*)?(?::(?: NIC)?| NIC) Link (?:is )?up\b`, Note, "network", OK, "{dev} has a link"),
		say(kernel, `^\[qede?_\w+:\d+\((?P<dev>[^)]+)\)\] ?Link is down`, Note, "network", Warning, "{dev} has no link"),
		say(kernel, `^\[qede?_\w+:\d+\((?P<dev>[^)]+)\)\] ?Link is up`, Note, "network", OK, "{dev} has a link"),
		// Source: drivers/net/bonding/bond_main.c, before and since Linux 5.7
		say(kernel, `^(?P<bond>\S+): \(slave (?P<dev>\S+)\): link status (?:definitely )?down`, Note, "network", Warning, "{dev} of {bond} has no link"),
		say(kernel, `^(?P<bond>\S+): \(slave (?P<dev>\S+)\): link status (?:definitely )?up`, Note, "network", OK, "{dev} of {bond} has a link"),
		say(kernel, `^(?:bonding: )?(?P<bond>\S+): link status (?:definitely )?down for (?:\S+ )?interface (?P<dev>[^\s,]+)`, Note, "network", Warning, "{dev} of {bond} has no link"),
		say(kernel, `^(?:bonding: )?(?P<bond>\S+): link status (?:definitely )?up for (?:\S+ )?interface (?P<dev>[^\s,]+)`, Note, "network", OK, "{dev} of {bond} has a link"),
		say(kernel, `^(?:bonding: )?(?P<bond>\S+): now running without any active interface`, Note, "network", Fault, "{bond} has no link at all"),
		say(kernel, `(?i)^(?:nfsd?: .*(?:server|grace)|NFSD: .*grace|virtio_net .*link)`, Note, "NFS", OK, ""),

		say(kernel, `^Linux version (?P<v>\S+)`, "", "kernel", OK, "the host boots (Linux {v})"),
		say(kernel, `^INFO: task (?P<task>\S+):\d+ blocked for more than (?P<s>\d+) seconds`, "", "kernel", Fault, "process {task} hangs for more than {s} s"),
		say(kernel, `^Out of memory: Killed process \d+ \((?P<task>[^)]*)\)`, "", "kernel", Fault, "memory is exhausted: the kernel killed {task}"),
		say("systemd-logind", `(?i)system is rebooting`, "", "kernel", OK, "the host is rebooted"),
		say("systemd-logind", `(?i)system is (?:powering (?:off|down)|halting)`, "", "kernel", OK, "the host is switched off"),
		say("mortar-watch", `.`, Note, "service", Warning, "{message}"),
	}
})

// storageLines are the kernel's lines about what a brick is made of. Warnings of
// other parts, such as those of firmware at each boot, tell nothing of it.
var storageLines = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(?:md\b|md/|XFS\b|nfsd?\b|NFSD\b|RPC\b|rpcrdma|svcrdma|device-mapper|dm-|sd \d|scsi\b|blk_|Buffer I/O|I/O error|nvme\b|mpt[23]sas|mpi3mr|megaraid|ata\d|bcache|EDAC|mce\b|Lustre|LNet|LDISKFS|NETDEV WATCHDOG|Kernel panic|BUG\b|Oops|watchdog)`)
})

// cacheLines are the kernel's lines about a cache and its SSDs. The kernel's command line, which
// may set a parameter of nvme_core, is none.
var cacheLines = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^bcache:|^nvme\w* nvme\d`) })

// parts of those whose lines no rule knows.
var parts = map[string]string{
	corosync: "cluster", controld: "cluster", sched: "cluster", "pacemakerd": "cluster", "pacemaker-execd": "cluster", fenced: "fencing",
	mpathd: "multipath", kernel: "kernel", "rpc.mountd": "NFS", "rpc.statd": "NFS", "nfsdcld": "NFS", "mdadm": "md", "mortar-watch": "service",
}

// Idents are those whose lines tell the history of a host.
var Idents = []string{corosync, controld, fenced, sched, "pacemakerd", "pacemaker-execd", mpathd, kernel, "rpc.mountd", "rpc.statd", "nfsdcld", "mdadm", "systemd-logind", "mortar", "mortar-watch"}

// DrillIdents are those whose lines tell of a failover, and no more: following
// them costs an emulated server time.
var DrillIdents = []string{corosync, controld, fenced, mpathd, kernel, "mortar-watch"}

// Means says what a line means, and false if it is of no interest. It returns a
// warning or an error of a part of the brick literally if no rule matches. name
// gives the server with a number in the cluster; nil leaves numbers.
func Means(l Line, name func(id string) string) (Meaning, bool) {
	for _, r := range rules() {
		if r.ident != l.Ident {
			continue
		}
		if m := r.re.FindStringSubmatch(l.Message); m != nil {
			return r.meaning(m, l.Message, name), true
		}
	}
	part := parts[l.Ident]
	if l.Ident == kernel && l.Priority > 4 && cacheLines().MatchString(l.Message) {
		return Meaning{Part: "cache", Level: OK, Detail: true, Text: oneLine(l.Message)}, true
	}
	if part == "" || l.Priority > 4 || l.Ident == kernel && l.Priority > 3 && !storageLines().MatchString(l.Message) {
		return Meaning{}, false
	}
	level := Warning
	if l.Priority <= 3 {
		level = Fault
	}
	return Meaning{Part: part, Level: level, Text: oneLine(l.Message)}, true
}

func (r rule) meaning(match []string, message string, name func(string) string) Meaning {
	m := Meaning{Kind: r.kind, Part: r.part, Level: r.level, Detail: r.detail, Text: r.words}
	if m.Text == "" {
		m.Text = "{message}"
	}
	for i, n := range r.re.SubexpNames() {
		value := strings.TrimSpace(match[i])
		switch n {
		case "":
			continue
		case "node":
			m.Node = value
		case "res":
			m.Resource = value
		case "id":
			value = servers(value, name)
		}
		m.Text = strings.ReplaceAll(m.Text, "{"+n+"}", value)
	}
	m.Text = oneLine(strings.ReplaceAll(m.Text, "{message}", message))
	return m
}

// servers names those with numbers.
func servers(ids string, name func(string) string) string {
	var all []string
	for _, id := range strings.Fields(ids) {
		if name != nil && name(id) != "" {
			all = append(all, name(id))
		} else {
			all = append(all, "server "+id)
		}
	}
	return strings.Join(all, " and ")
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

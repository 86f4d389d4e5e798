package journal

import (
	_ "embed"
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
	Code     string // of a line of Mortar that begins with one in brackets

	Part  string // cluster, fencing, service, multipath, md, XFS, Lustre, NFS, network, cache, kernel or mortar
	Level string
	Text  string // in words
	// Detail: it says what another line says better, or what only a developer
	// asks.
	Detail bool
}

// rule maps messages to their meaning. The sub-expressions node, res and code of its
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
var rules = sync.OnceValue(func() (all []rule) {
	ident := ""
	for line := range strings.Lines(rulesText) {
		line = strings.TrimSuffix(line, "\n")
		f := strings.SplitN(line, " | ", 5)
		switch {
		case line == "" || line[0] == '#':
			continue
		case line[0] == '[':
			ident = strings.Trim(line, "[]")
			continue
		}
		for _, field := range []*string{&f[0], &f[3]} {
			if *field == "-" {
				*field = ""
			}
		}
		r := rule{ident, regexp.MustCompile(`(?m)` + f[4]), f[0], f[1], f[2], f[3], f[2] == "detail"}
		if r.detail {
			r.level = OK
		}
		all = append(all, r)
	}
	return all
})

//go:embed rules.txt
var rulesText string

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
	if l.Ident == kernel && cacheLines().MatchString(l.Message) {
		if l.Priority > 4 {
			return Meaning{Part: "cache", Level: OK, Detail: true, Text: oneLine(l.Message)}, true
		}
		if strings.HasPrefix(l.Message, "bcache") { // an NVMe SSD may be one of the RAID
			part = "cache"
		}
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
		case "code":
			m.Code = value
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

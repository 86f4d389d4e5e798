package resource

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/mortarhpc/mortar/internal/base/distro"
	"github.com/mortarhpc/mortar/internal/base/journal"
	"github.com/mortarhpc/mortar/internal/base/linux"
)

// forms are the commands that a query may run, each argument in full: programs take
// abbreviations of their options, joined ones, and options behind operands, so no list of
// what is forbidden is complete. A <class> stands for what differs (classes), an argument that
// ends in "..." for one or more of its kind, and what lies between "[" and "]" may be missing.
//
// That each only reads: the manual pages of the programs.
var forms = slices.Concat([][]string{
	{"blkid", "--probe", "--output", "export", "[", "--offset", "<number>", "--size", "<number>", "]", "<device>"},
	{"cibadmin", "--query"},
	{"corosync-cfgtool", "-s"},
	{"corosync-cmapctl", "-g", "runtime.votequorum.wait_for_all_status"},
	{"crm_mon", "--one-shot", "--output-as=xml"},
	{"debugfs", "-c", "-R", "ls -p /", "<device>"}, // without -w it opens the file system for reading
	{"df", "--output=avail", "-B1", "<path>"},
	{"df", "--block-size=1", "--output=target,size,avail,itotal,iavail", "/", "[", "<path>", "]..."},
	{"dmsetup", "status", "--target", "multipath"},
	{"dmsetup", "table", "<device>"},
	// A fence agent reboots without --action.
	{"fence_ipmilan", "--ip=<address>", "--username=<user>", "--password-script=<path>", "--cipher=<number>", "--privlvl=<name>", "--action=status", "[", "--lanplus", "]"},
	{"<fence>", "-o", "metadata"},
	{"/usr/bin/env", "SNMPCONFPATH=<path>", "/usr/bin/snmpget", "-Oqv", "<address>:161", "<oid>..."},
	{"firewall-cmd", "--policy=<name>", "--list-rich-rules"},
	{"ip", "-json", "address", "show", "[", "up", "]"},
	{"ip", "[", "-n", "<name>", "]", "-o", "addr", "show", "to", "<address>"},
	{"ipmitool", "lan", "print"},
	{"ipmitool", "-I", "lanplus", "-N", "2", "-R", "1", "-H", "<address>", "-U", "<user>", "-f", "<path>", "-C", "<number>", "-L", "<name>", "chassis", "power", "status"},
	{"journalctl", "--no-pager", "--output", "cat", "--identifier", "pacemaker-fenced", "--since", "@<time>"},
	{"journalctl", "--output=json", "--output-fields=MESSAGE", "--since=<text>", "--lines=2000", "--grep=<text>"},
	journal.Argv(nil, "-b", "-f", "-n", "<number>", "[", "-t", "<name>", "]..."),
	journal.Argv(nil, "-n", "1", "--until=@<time>"),
	journal.Argv(nil, "--priority=info", "-n", "<number>", "--since=@<time>", "[", "--until=@<time>", "]", "[", "-t", "<name>", "]..."),
	{"lctl", "--device", "MGS", "llog_print", "params"},
	{"lctl", "dl"},
	{"lctl", "get_param", "<parameter>..."},
	{"lctl", "pool_list", "<name>"},
	{"lfs", "df", "-N", "--output=<columns>", "<path>"},
	{"lfs", "fid2path", "--link", "0", "<path>", "<fid>"},
	{"lfs", "find", "<path>", "--ost", "<number>", "--type", "f", "--print0"},
	{"lfs", "getstripe", "--directory", "--yaml", "<path>"},
	{"lfs", "getstripe", "--stripe-index", "<path>"},
	{"lnetctl", "net", "show"},
	{"losetup", "--noheadings", "--output", "NAME", "--associated", "<path>"},
	{"ls", "<path>"},
	{"ls", "-d", "<path>"},
	{"ls", "-d", "<path>/"},
	{"ls", "-U", "-d", "<path>..."},
	{"mdadm", "--detail", "[", "--export", "]", "<device>"},
	{"mdadm", "--examine", "<device>..."},
	{MortarCommand, "host-cache", "needs", "{<text>}"},
	{MortarCommand, "host-cache", "on", "<path>"},
	{MortarCommand, "host-cache", "stats", "[", "--smart=<bool>", "]", "<path>"},
	{MortarCommand, "ocf", "validate-all", "--config", "<path>"},
	{MortarCommand, "version", "--json"},
	linux.NFTCommand,
	{"pgrep", "-x", "<name>"},
	{"pgrep", "--runstates", "T", "-x", "<name>"},
	{"ping", "-n", "-c", "1", "-W", "1", "<address>"},
	{"ping", "-n", "-q", "-c", "2", "-W", "2", "<address>"},
	{"readlink", "-e", "<path>"},
	linux.RPCCommand,
	{"sfdisk", "--json", "<device>"},
	{"sg_ses", "--readonly", "--page=<page>", "-HHH", "<device>"},
	{"smartctl", "--json", "--all", "<device>"},
	{"SMcli", "<address>...", "-S", "-c", "show storageArray healthStatus;"},
	{"systemctl", "is-active", "<unit>..."},
	{"systemctl", "is-enabled", "<unit>"},
	{"systemctl", "show", "--property=NeedDaemonReload", "--value", "<unit>"},
	{"systemctl", "show", "--property=Id,Names,LoadState,ActiveState,UnitFileState,Job", "<unit>..."},
	{"tail", "-n", "0", "-F", "<path>"},
	{"tail", "-n", "+1", "-F", "<path>"},
	{"tunefs.lustre", "--dryrun", "<device>"},
	{"wipefs", "--no-act", "--json", "<device>..."},
	{"xfs_db", "-r", "-c", "sb 0", "-c", "print inprogress", "<device>"},
	{"xfs_info", "<path>"},
	{"xfs_io", "-r", "-c", "fiemap -v", "<path>"},
	{"xfs_quota", "-x", "-c", "report -<quota> -N -b -i", "<path>"},
}, bmcForms(), raidForms(), lvmForms(), packageForms())

// bmcForms ask the sensors and the log of a BMC: of this host, or over the network.
func bmcForms() (out [][]string) {
	for _, q := range [][]string{{"sdr", "elist"}, {"sel", "info"}, {"sel", "elist", "last", "1"}} {
		out = append(out, slices.Concat([]string{"ipmitool", "-c", "[", "-I", "lanplus", "-H", "<address>", "-U", "<user>", "-f", "<path>", "-C", "<number>", "-L", "<name>", "]"}, q))
	}
	return out
}

// raidForms ask all controllers for everything, as JSON, without a log file. See package raid.
func raidForms() (out [][]string) {
	for _, p := range []string{"perccli64", "storcli64", "/opt/MegaRAID/perccli/perccli64", "/opt/MegaRAID/storcli/storcli64"} {
		out = append(out, []string{p, "/cALL", "show", "all", "J", "nolog"})
	}
	for _, p := range []string{"perccli2", "/opt/MegaRAID/perccli2/perccli2"} {
		out = append(out, []string{p, "/cALL", "show", "all", "J"})
	}
	return out
}

// lvmForms have no other configuration than that of lvmArgs: --config can name programs.
func lvmForms() (out [][]string) {
	for _, q := range [][]string{{"pvs", "pv_name,vg_name"}, {"pvs", "pv_name,vg_name,vg_systemid"}, {"vgs", "vg_name,vg_missing_pv_count"}, {"vgs", "vg_name,vg_free_count"}, {"vgs", "vg_name,vg_systemid"}, {"lvs", "lv_name,vg_name"}} {
		args := LVMArgs("<name>", []string{"<devices>"})
		out = append(out, slices.Concat([]string{"lvm", q[0], "--foreign", "--reportformat", "json", "-o", q[1], "["}, args[:2], []string{"]"}, args[2:]))
	}
	return out
}

// packageForms are what Mortar asks the package managers of all distributions.
func packageForms() (out [][]string) {
	for _, d := range distro.All() {
		m := d.Manager
		out = append(out, m.Pending, m.Held, slices.Concat(m.Versions, []string{"<package>..."}), slices.Concat(m.Candidate, []string{"<package>..."}))
	}
	return out
}

// A component of a path is neither empty, nor . or .. : a path names what it seems to.
const (
	component     = `(?:[^./\x00][^/\x00]*|\.[^./\x00][^/\x00]*|\.\.[^/\x00]+)`
	deviceSegment = `(?:[A-Za-z0-9_:+@#=~-][A-Za-z0-9_:+@#=~.\\-]*)`
	device        = `/dev(?:/` + deviceSegment + `)+`
)

// classes are the patterns of what differs in a form. None but text, which stands behind the =
// of an option or in braces, matches what a program would take for an option.
var classes = map[string]string{
	"address":   `[0-9A-Za-z:][0-9A-Za-z.:-]*`,
	"bool":      `(?:true|false)`,
	"columns":   `[a-z]+(?:,[a-z]+)*`,
	"device":    device,
	"devices":   device + `(?:,` + device + `)*`,
	"fence":     `fence_[a-z0-9_]+`,
	"fid":       `\[[0-9A-Fa-fx:]+\]`,
	"name":      `[A-Za-z0-9][A-Za-z0-9_.+-]*`,
	"number":    `[0-9]+`,
	"oid":       `[0-9]+(?:\.[0-9]+)*`,
	"package":   `[a-z0-9][A-Za-z0-9+._*-]*`,
	"page":      `[a-z]+`,
	"parameter": `[A-Za-z0-9_*][A-Za-z0-9_.*@:-]*`,
	"path":      `(?:/` + component + `)+`,
	"quota":     `[ugp]`,
	"text":      `[^\x00]*`,
	"time":      `-?[0-9]+`, // s since 1970, behind an @
	"unit":      `[A-Za-z0-9][A-Za-z0-9:_.@\\-]*`,
	"user":      `[A-Za-z0-9_.@][A-Za-z0-9_.@-]*`,
}

var class = regexp.MustCompile(`<([a-z]+)>`)

// patternOf is the form as a pattern of the arguments, each behind a NUL, which no argument has.
func patternOf(form []string) string {
	var b strings.Builder
	for _, a := range form {
		switch a {
		case "[":
			b.WriteString("(?:")
			continue
		case "]":
			b.WriteString(")?")
			continue
		case "]...":
			b.WriteString(")*")
			continue
		}
		one, many := strings.CutSuffix(a, "...")
		b.WriteString(`(?:\x00`)
		at := 0
		for _, m := range class.FindAllStringSubmatchIndex(one, -1) {
			b.WriteString(regexp.QuoteMeta(one[at:m[0]]) + classes[one[m[2]:m[3]]])
			at = m[1]
		}
		b.WriteString(regexp.QuoteMeta(one[at:]) + ")")
		if many {
			b.WriteByte('+')
		}
	}
	return b.String()
}

// reading matches the commands of the forms.
var reading = sync.OnceValue(func() *regexp.Regexp {
	all := make([]string, len(forms))
	for i, f := range forms {
		all[i] = patternOf(f)
	}
	return regexp.MustCompile(`\A(?:` + strings.Join(all, "|") + `)\z`)
})

// ReadOnly refuses a command that is not known to only read: what changes a
// host is an Action, and goes through the gate.
func ReadOnly(argv []string) error {
	if len(argv) == 0 || argv[0] == "" {
		return fmt.Errorf("no command given")
	}
	line := "\x00" + strings.Join(argv, "\x00")
	if strings.Count(line, "\x00") == len(argv) && reading().MatchString(line) {
		return nil
	}
	return Refuse("command-unknown", With{"command": fmt.Sprintf("%q", argv), "program": path.Base(argv[0])})
}

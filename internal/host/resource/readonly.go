package resource

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// readers are the programs that a query may start, with the condition under
// which each only reads; nil: always. Sources: their manual pages.
var readers = map[string]func(args []string) bool{
	"blkid":            nil,
	"cibadmin":         first("--query"),
	"corosync-cfgtool": first("-s"),
	"corosync-cmapctl": first("-g"),
	"crm_mon":          among("--one-shot", "--output-as=xml", "--inactive"), // --output-to would write a file
	"debugfs":          readingDebugfs,
	"df":               nil,
	"/usr/bin/env":     readingSNMP,
	"apt-get":          first("-s"), // simulates
	"dnf":              func(args []string) bool { return slices.Equal(args, []string{"-q", "list", "--upgrades"}) },
	"apt-mark":         func(args []string) bool { return slices.Equal(args, []string{"showhold"}) },
	"dmsetup":          first("table", "status", "info", "ls"),
	"dpkg-query":       nil,
	"fence_ipmilan":    askingFence,
	"fence_apc_snmp":   askingFence,
	"ip":               showing,
	"ipmitool": func(args []string) bool {
		return last(args, "chassis", "power", "status") || last(args, "sdr", "elist") || last(args, "sel", "info") || last(args, "sel", "elist", "last", "1") ||
			slices.Equal(args, []string{"lan", "print"})
	},
	"journalctl": readingJournal,
	"ls":         nil,
	"lctl":       readingLctl,
	"lfs":        first("getstripe", "find", "df", "check", "osts", "mdts", "pool_list", "fid2path"),
	"lnetctl":    showingLNet,
	"losetup": func(args []string) bool {
		return len(args) == 5 && slices.Equal(args[:4], []string{"--noheadings", "--output", "NAME", "--associated"})
	},
	"lvm":   first("pvs", "vgs", "lvs"),
	"mdadm": first("--detail", "--examine"),
	// What RAID controllers and arrays say of themselves; see package raid.
	"SMcli":                           func(args []string) bool { return last(args, "-S", "-c", "show storageArray healthStatus;") },
	"perccli64":                       showingRAID,
	"storcli64":                       showingRAID,
	"/opt/MegaRAID/perccli/perccli64": showingRAID,
	"/opt/MegaRAID/storcli/storcli64": showingRAID,
	"/usr/local/sbin/mortar": func(args []string) bool {
		return len(args) > 1 && args[0] == "host-cache" && slices.Contains([]string{"stats", "needs", "on"}, args[1])
	},
	"pgrep":         nil,
	"ping":          nil,
	"readlink":      nil,
	"rpm":           first("-q", "-qa"),
	"sfdisk":        first("--json"),
	"sg_ses":        readingSES,
	"smartctl":      func(args []string) bool { return len(args) == 3 && args[0] == "--json" && args[1] == "--all" },
	"systemctl":     first("show", "is-active", "is-enabled"),
	"tail":          nil,
	"tunefs.lustre": func(args []string) bool { return len(args) == 2 && args[0] == "--dryrun" },
	"wipefs":        first("--no-act"),
	"xfs_db":        first("-r"),
	"xfs_info":      nil,
	"xfs_io":        first("-r"),
	"xfs_quota":     reportingQuota,
}

// first wants the first argument to be one of words.
func first(words ...string) func([]string) bool {
	return func(args []string) bool { return len(args) > 0 && slices.Contains(words, args[0]) }
}

// among wants no argument but these.
func among(words ...string) func([]string) bool {
	return func(args []string) bool {
		return !slices.ContainsFunc(args, func(a string) bool { return !slices.Contains(words, a) })
	}
}

func last(args []string, words ...string) bool {
	return len(args) >= len(words) && slices.Equal(args[len(args)-len(words):], words)
}

// showingRAID: everything of all controllers, as JSON, without a log file.
func showingRAID(args []string) bool {
	return slices.Equal(args, []string{"/cALL", "show", "all", "J", "nolog"})
}

// askingFence: a fence agent acts by --action, and reboots without one.
func askingFence(args []string) bool {
	n := 0
	for _, a := range args {
		if strings.HasPrefix(a, "-o") || strings.HasPrefix(a, "--action") {
			n++
		}
	}
	return n == 1 && slices.Contains(args, "--action=status")
}

// readingSNMP: snmpget with the configuration of a fence device, as fencing calls it.
func readingSNMP(args []string) bool {
	return len(args) > 1 && strings.HasPrefix(args[0], "SNMPCONFPATH=/") && args[1] == "/usr/bin/snmpget"
}

// reportingQuota: xfs_quota(8) sets limits as well, and a report can go to a file.
func reportingQuota(args []string) bool {
	return len(args) == 4 && args[0] == "-x" && args[1] == "-c" &&
		slices.Contains([]string{"report -u -N -b -i", "report -g -N -b -i", "report -p -N -b -i"}, args[2])
}

// readingSES: sg_ses(8) changes an enclosure with --control, and by --set and --clear.
func readingSES(args []string) bool {
	return len(args) == 4 && args[0] == "--readonly" && slices.Contains([]string{"--page=cf", "--page=es", "--page=ed"}, args[1]) && args[2] == "-HHH"
}

// showing: ip(8) takes options, then an object, then what to do with it.
func showing(args []string) bool {
	words := slices.DeleteFunc(slices.Clone(args), func(a string) bool { return strings.HasPrefix(a, "-") })
	return len(words) > 1 && words[1] == "show" && !slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(a, "-b") || strings.HasPrefix(a, "-f") })
}

// readingLctl: lctl takes the device that a command is for as an option.
func readingLctl(args []string) bool {
	if len(args) > 2 && args[0] == "--device" {
		args = args[2:]
	}
	return first("get_param", "list_param", "dl", "pool_list", "ping", "llog_print", "llog_catlist")(args)
}

// showingLNet: lnetctl(8) takes an object, and what to do with it.
func showingLNet(args []string) bool {
	return len(args) > 1 && args[1] == "show" || first("export")(args)
}

// readingDebugfs: debugfs(8) opens the file system for writing with -w only,
// and -c not even reads its bitmaps. A command after -R is one of debugfs'
// own; of those that look, only ls is needed. -f would read commands from a
// file.
func readingDebugfs(args []string) bool {
	return len(args) == 4 && args[0] == "-c" && args[1] == "-R" && strings.HasPrefix(args[2], "ls ")
}

// readingJournal leaves out what rotates, flushes or deletes journals.
func readingJournal(args []string) bool {
	return !slices.ContainsFunc(args, func(a string) bool {
		for _, w := range []string{"--vacuum", "--rotate", "--flush", "--relinquish", "--smart-relinquish", "--sync", "--setup-keys", "--update-catalog", "--cursor-file"} {
			if strings.HasPrefix(a, w) {
				return true
			}
		}
		return false
	})
}

// ReadOnly refuses a command that is not known to only read: what changes a
// host is an Action, and goes through the gate.
func ReadOnly(argv []string) error {
	if len(argv) == 0 || argv[0] == "" {
		return fmt.Errorf("no command given")
	}
	reads, known := readers[argv[0]]
	if known && (reads == nil || reads(argv[1:])) {
		return nil
	}
	return &Refusal{
		What: fmt.Sprintf("%s is not known as a command that only reads", strings.Join(argv[:min(len(argv), 4)], " ")),
		Mend: fmt.Sprintf("run it as an action, or add %s to internal/host/resource/readonly.go if it changes nothing", path.Base(argv[0])),
	}
}

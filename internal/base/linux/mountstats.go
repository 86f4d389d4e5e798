package linux

import (
	"strconv"
	"strings"
)

// NFSCalls are the calls of an NFS mount to its server.
type NFSCalls struct {
	Ops, Transmissions int64 // more transmissions than operations: some were sent again
}

// ParseMountStats reads the NFS mounts of /proc/self/mountstats, by mount
// point. Source: fs/nfs/super.c nfs_show_stats
func ParseMountStats(text string) map[string]NFSCalls {
	out := map[string]NFSCalls{}
	mount, perOp := "", false
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		switch {
		case len(f) == 0:
		case f[0] == "device":
			mount, perOp = "", false
			if len(f) >= 8 && f[2] == "mounted" && strings.HasPrefix(f[7], "nfs") {
				mount = Unescape(f[4])
				out[mount] = NFSCalls{}
			}
		case f[0] == "per-op":
			perOp = true
		case mount != "" && perOp && strings.HasSuffix(f[0], ":") && len(f) >= 9:
			c := out[mount]
			ops, _ := strconv.ParseInt(f[1], 10, 64) // the kernel writes numbers
			sent, _ := strconv.ParseInt(f[2], 10, 64)
			out[mount] = NFSCalls{c.Ops + ops, c.Transmissions + max(ops, sent)}
		}
	}
	return out
}

package design

import (
	"strconv"
	"strings"
	"time"

	"github.com/mortarhpc/mortar/internal/brick/spec"
)

// How long a start and a stop of an NFS brick's services take follows from the size of the
// brick. docs/limits.md has the arithmetic, and where its figures are from.
const (
	leastStart = 180 // seconds, also of the smallest brick
	leastStop  = 180
	// startLimit is Pacemaker's own limit of a start, seconds. The agent gives up earlier a
	// start that does not get on. A quota check, which the kernel makes at a mount, reads
	// each inode: 10^9 of them at 10^5 in a second take three hours.
	startLimit = 6 * 3600

	leastDirty = 64 * spec.MiB // writers to few disks need as much to fill their stripes
	mostDirty  = 8 * spec.GiB
)

// allocationGroups is how many mkfs.xfs makes of a large volume: none is larger than 1 TiB.
// Source: xfsprogs, libxfs/topology.c, calc_default_ag_geometry
func allocationGroups(volume spec.Bytes) int {
	return max(32, int((volume+spec.TiB-1)/spec.TiB))
}

// xfsOf are the allocation groups and the log of the file systems of all services: one server
// may have to start them at the same time.
func xfsOf(t *Design) (groups int, log spec.Bytes) {
	for _, s := range t.Services() {
		groups += allocationGroups(t.lvSize(s.Name, len(s.Storage.Growths)))
		log += logSize(t.lvSize(s.Name, 0))
	}
	return groups, log
}

// cacheSize is what the SSDs of the cache hold.
func cacheSize(t *Design) (sum spec.Bytes) {
	if s := t.Cached(); s != nil {
		for _, k := range s.Storage.Cache.SSDs {
			sum += k.Size
		}
	}
	return sum
}

// startSeconds is how long a start may take that does not get on.
func startSeconds(t *Design) int {
	ags, log := xfsOf(t)
	n := 60 + len(t.Disks)/4 + ags*9/100 + int(log/spec.MiB)/5 + 60*int(cacheSize(t)/spec.TB)
	return max(leastStart, (n+9)/10*10)
}

// stopSeconds is how long a stop may take, before its server is fenced: half of it for dirty
// data, half for the log and the arrays.
func stopSeconds(t *Design) int {
	_, log := xfsOf(t)
	n := 2 * (30 + int(log/spec.MiB)/10 + len(t.Groups))
	n = max(leastStop, (n+9)/10*10)
	if len(t.Arrays) > 0 {
		n += QueueSeconds
	}
	return n
}

// dirtyBytes is what the disks write in half of the stop, if all of it is small random writes.
func dirtyBytes(t *Design) spec.Bytes {
	seconds := stopSeconds(t) / 2
	if len(t.Arrays) > 0 {
		seconds = (stopSeconds(t) - QueueSeconds) / 2
	}
	accesses, per := 200, 6 // of a hard disk that sorts its queue, each second; of a RAID 6 for a small write
	if t.Spec.Storage.RAID.Level == 10 {
		per = 2
	}
	if k := t.Disks[0].Type; k == "ssd" || k == "nvme" || t.Cached() != nil && t.Cached().Storage.Cache.Mode == "write-back" {
		accesses = 20000
	}
	dirty := spec.Bytes(len(t.Disks)*accesses*seconds/per) * 4 * spec.KiB
	if m := memory(t.Spec); m > 0 {
		dirty = min(dirty, m/5)
	}
	return min(max(dirty, leastDirty), mostDirty) / spec.MiB * spec.MiB
}

// timesOf are what tuning.tmpl shows of an NFS brick.
func timesOf(d *Design) map[string]any {
	if d.Lustre != nil {
		return nil
	}
	groups, log := xfsOf(d)
	dirty := int64(dirtyBytes(d))
	return map[string]any{"groups": groups, "log": int(log / spec.MiB), "start": startSeconds(d), "startLimit": startLimit, "stop": stopSeconds(d),
		"dirty": dirty, "dirtyEarly": dirty / 8}
}

// MoveTime is how long commands wait until a service has moved to the other server: a stop and
// a start at their longest, but for a start that gets on longer.
func MoveTime(d *Design) time.Duration {
	sum := time.Minute
	for _, name := range []string{"start-timeout", "stop-timeout"} {
		n, _ := strconv.Atoi(strings.TrimSuffix(d.Value("pacemaker", name), "s"))
		sum += time.Duration(n) * time.Second
	}
	return max(5*time.Minute, sum)
}

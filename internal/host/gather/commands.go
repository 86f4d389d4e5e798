package gather

import (
	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/serve/cache"
)

// Commands to run on a server, which are also the keys of their outputs in Host.Run.
const (
	CmdCRM   = linux.CRMCommand
	CmdLinks = "corosync-cfgtool -s"
	CmdWaits = "corosync-cmapctl -g runtime.votequorum.wait_for_all_status"
	CmdDM    = "dmsetup status --target multipath"
)

// MDFiles are what md shows of each array, and then the spares that none has: the watcher notes one
// before it takes it out.
var MDFiles = []string{"/sys/block/md*/md/array_state", "/sys/block/md*/md/degraded", "/sys/block/md*/md/sync_action", "/sys/block/md*/md/raid_disks",
	"/sys/block/md*/md/uuid", "/sys/block/md*/md/level", "/sys/block/md*/md/mismatch_cnt", "/sys/block/md*/md/last_sync_action",
	"/sys/block/md*/md/dev-*/state", "/sys/block/md*/md/dev-*/slot", linux.MDSparesFiles}

// CmdTargets asks a server's targets for the progress of their recovery and for
// their free space.
//
// Source: Lustre Operations Manual, recovery_status; the parameters of osd-ldiskfs
const CmdTargets = "lctl get_param obdfilter.*.recovery_status mdt.*.recovery_status osd-ldiskfs.*.kbytestotal osd-ldiskfs.*.kbytesavail osd-ldiskfs.*.filestotal osd-ldiskfs.*.filesfree"

// CacheCommand asks a server for its view of the cache. The health of each SSD takes
// a command of its own; the agent's time-out covers them.
func CacheCommand(service string) []string {
	return []string{"/usr/local/sbin/mortar", "host-cache", "stats", cache.ConfigPath(service)}
}

// SystemFiles tell of memory, and of errors that ext4 has met; a file system keeps the
// number until it is checked.
// Source: Linux, Documentation/ABI/testing/sysfs-fs-ext4 (errors_count: kernel 4.2)
var SystemFiles = []string{"/proc/meminfo", "/proc/pressure/memory", "/proc/vmstat", "/sys/fs/ext4/*/errors_count"}

// Room is a file system as package linux judges it.
func (f FS) Room() linux.Room {
	return linux.Room{Size: f.Size, Avail: f.Avail, Inodes: f.Files, InodesFree: f.FilesFree}
}

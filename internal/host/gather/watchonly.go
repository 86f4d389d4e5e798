package gather

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/distro"
	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/serve/cache"
)

// MayWatch refuses a request for more than status, watch and metrics need. So an
// agent that may only watch reads no other file and starts no other program,
// although it runs as root.
func (r Request) MayWatch() error {
	refuse := func(what string) error {
		return resource.Refuse("watch-only-request", resource.With{"request": what})
	}
	files, links := Background()
	for _, p := range slices.Concat(r.Files, r.Links) {
		if !slices.Contains(slices.Concat(files, links), p) && !watchedFile.MatchString(p) || path.Clean(p) != p {
			return refuse("read " + p)
		}
	}
	for _, argv := range r.Run {
		if !watchedCommand(argv) {
			return refuse("run " + strings.Join(argv, " "))
		}
	}
	if r.Plan {
		return refuse("tell what a plan needs")
	}
	if len(r.Outlets) > 0 {
		return refuse("ask PDUs, for which it would need their passwords")
	}
	return nil
}

// watchedFile matches the patterns of files and links in requests: the kernel's
// state of storage, mounts and NFS, the list of exports, and how far a start is.
var watchedFile = regexp.MustCompile(`^(/proc/(mdstat|diskstats|uptime|meminfo|vmstat|pressure/memory|self/mounts|self/mountstats|fs/nfsd/[a-z0-9_]+)` +
	`|/proc/swaps|/proc/sys/kernel/(osrelease|version)` +
	`|/sys/(block|fs/lustre|fs/ext4|class/dmi|class/watchdog|class/scsi_host|class/nvme|bus/pci|bus/virtio|devices/system)/[][A-Za-z0-9_.*/-]+` +
	`|/sys/devices/platform/ipmi_bmc\.\*/firmware_revision|/dev/md/\*` +
	`|/sys/module/(nfs/parameters/nfs4_unique_id|sunrpc/parameters/pool_mode|mpt3sas/version|megaraid_sas/version)|/sys/fs/nfs/net/nfs_client/identifier` +
	`|/etc/os-release` +
	`|/run/[A-Za-z0-9_./-]+/nfsd/[a-z0-9_]+` +
	`|/run/mortar/(progress-[A-Za-z0-9_.-]+|spares-\*)\.json` +
	`|/([A-Za-z0-9_.-]+/)+etab)$`)

func watchedCommand(argv []string) bool {
	if slices.Contains([]string{CmdCRM, CmdLinks, CmdWaits, CmdDM, CmdTargets, strings.Join(linux.NFTCommand, " "), strings.Join(linux.RPCCommand, " ")}, strings.Join(argv, " ")) {
		return true
	}
	for _, d := range distro.All() {
		if slices.Equal(argv, slices.Concat(d.Manager.Versions, d.Packages.Report)) {
			return true
		}
	}
	switch {
	case len(argv) == 3 && argv[0] == "firewall-cmd":
		return resource.ReadOnly(argv) == nil
	case len(argv) == 4 && slices.Equal(argv[:3], []string{"/usr/local/sbin/mortar", "host-cache", "stats"}):
		return path.Dir(argv[3]) == path.Dir(cache.ConfigPath("x")) && path.Clean(argv[3]) == argv[3]
	case len(argv) > 0 && argv[0] == "SMcli", len(argv) > 1 && argv[1] == "/cALL": // perccli and similar tools, see package raid
		return resource.ReadOnly(argv) == nil
	}
	return false
}

// mustWatch returns an error for a request that an agent which may only watch must
// refuse.
func mustWatch(r Request) error {
	if err := r.MayWatch(); err != nil {
		return fmt.Errorf("%s: %w", Op, err)
	}
	return nil
}

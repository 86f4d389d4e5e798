package resource

import (
	"encoding/json"
	"fmt"

	"github.com/mortarhpc/mortar/internal/base/strictjson"
)

// blank gives an empty resource of a kind, or nil.
func blank(kind string) Resource {
	switch kind {
	case "host":
		return &Host{}
	case "packages":
		return &Packages{}
	case "file":
		return &TextFile{}
	case "directory":
		return &Directory{}
	case "hosts":
		return &HostsEntry{}
	case "binary":
		return &Binary{}
	case "agent-works":
		return &AgentWorks{}
	case "symlink":
		return &Symlink{}
	case "units":
		return &Units{}
	case "sysctl":
		return &Sysctl{}
	case "time":
		return &TimeService{}
	case "watchdog":
		return &Watchdog{}
	case "modules":
		return &Modules{}
	case "block-queue":
		return &BlockQueue{}
	case "initramfs":
		return &Initramfs{}
	case "md-conf":
		return &MDConf{}
	case "disks":
		return &Disks{}
	case "multipath":
		return &Multipath{}
	case "reservations":
		return &Reservations{}
	case "md-array":
		return &Array{}
	case "unclaimed":
		return &Unclaimed{}
	case "volume-group":
		return &VolumeGroup{}
	case "logical-volume":
		return &LogicalVolume{}
	case "grown-volume":
		return &GrownVolume{}
	case "xfs":
		return &XFS{}
	case "mount":
		return &MountPoint{}
	case "lnet":
		return &LNet{}
	case "lustre-packages":
		return &LustrePackages{}
	case "lustre-param":
		return &LustreParam{}
	case "lustre-pool":
		return &LustrePool{}
	case "lustre-striping":
		return &LustreStriping{}
	case "lustre-target":
		return &LustreTarget{}
	case "cache-ssds":
		return &CacheSSDs{}
	case "cache":
		return &Cache{}
	case "no-cache":
		return &NoCache{}
	case "built":
		return &Built{}
	case "release-storage":
		return &ReleaseStorage{}
	case "exports":
		return &Exports{}
	case "service-exports":
		return &ServiceExports{}
	case "nfs-server":
		return &NFSServer{}
	case "corosync":
		return &Corosync{}
	case "ocf-config":
		return &OCFConfig{}
	case "cluster":
		return &Cluster{}
	case "cib":
		return &CIB{}
	case "everywhere":
		return &Everywhere{}
	case "running":
		return &Running{}
	}
	return nil
}

// Decode makes a resource of what travelled to the host: its kind, and its
// exported fields as JSON. A field this binary does not know is an error, so
// that two versions never disagree silently.
func Decode(kind string, raw json.RawMessage) (Resource, error) {
	r := blank(kind)
	if r == nil {
		return nil, fmt.Errorf("unknown kind of resource %q", kind)
	}
	if err := strictjson.Decode(raw, r); err != nil {
		return nil, fmt.Errorf("resource of kind %s: %w", kind, err)
	}
	return r, nil
}

// Package storage has the kinds of resource that a brick's storage is made of: disks and LUNs,
// multipath, md arrays, volume groups, caches, file systems, mounts, targets of Lustre, and
// the resource agent's configuration. Package resource has the kinds that every host has, and
// those of the cluster. Like all resources these change nothing themselves.
package storage

import "github.com/mortarhpc/mortar/internal/host/resource"

// Kinds has one of each kind of resource in this package.
var Kinds = []resource.Resource{
	&BlockQueue{}, &Initramfs{}, &MDConf{}, &Disks{}, &Multipath{}, &Reservations{}, &Array{}, &Unclaimed{}, &VolumeGroup{},
	&LogicalVolume{}, &GrownVolume{}, &XFS{}, &MountPoint{}, &LustreTarget{}, &CacheSSDs{}, &Cache{}, &CacheFront{}, &NoCache{}, &ReleaseStorage{},
	&OCFConfig{},
}

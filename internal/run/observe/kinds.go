package observe

import (
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/host/gather"
)

// storageKind judges the storage below the volumes of a pair's services: md arrays
// of disks, or LUNs.
type storageKind interface {
	// request adds the facts that parts needs to the request to a server.
	request(r *gather.Request)
	parts() []*Part
}

// serviceKind judges the services of a kind, on top of their volumes.
type serviceKind interface {
	// request adds the facts that parts needs to the request to a server.
	request(s *design.Service, r *gather.Request)
	parts() []*Part
	// clients judges the mounts of the clients of all pairs.
	clients() *Part
}

// storage is the kind of storage of the pair.
func (v *view) storage() storageKind {
	if len(v.pair.Services[0].Storage.LUNs) > 0 {
		return lunStorage{v}
	}
	return mdStorage{v}
}

// kind is the kind of the pair's services.
func (v *view) kind() serviceKind {
	if v.pair.Services[0].NFS != nil {
		return nfsKind{v}
	}
	return lustreKind{v}
}

package observe

import "github.com/mortarhpc/mortar/internal/brick/design"

// storageKind judges what a pair's services stand on, below their volumes: md
// arrays of disks, or LUNs.
type storageKind interface {
	// request asks a server for what parts needs.
	request(r *Request)
	parts() []*Part
}

// serviceKind judges what a kind of service makes of its volumes.
type serviceKind interface {
	// request asks a server for what parts needs.
	request(s *design.Service, r *Request)
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

// kind is that of the pair's services.
func (v *view) kind() serviceKind {
	if v.pair.Services[0].NFS != nil {
		return nfsKind{v}
	}
	return lustreKind{v}
}

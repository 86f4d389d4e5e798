package plan

import (
	"github.com/mortarhpc/mortar/internal/base/distro"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/serve/ocf"
)

// serviceKind is what a kind of service adds to a plan: an NFS export tree, or
// targets of Lustre. Storage below it, the cluster around it and the order of
// stages are the same for both.
type serviceKind interface {
	serverPackages(p distro.Packages) []string
	clientPackages(p distro.Packages) []string
	modules() []string // of the kernel, on servers
	// caches: the kind can stand on a cache, so one that was there may have to go.
	caches() bool
	// client prepares the kernel of a client, before anything is served.
	client(host string)
	// volumes are the logical volumes of a service, in the order of making.
	volumes(s *design.Service) []volume
	// content is made on the volumes of a service, on the server that builds.
	content(s *design.Service, p place, serials []string)
	// builtOn is the mount point that content mounts, "" if it mounts none.
	builtOn(s *design.Service) string
	// server configures what serves, on one server.
	server(host string) error
	// constraints are those of its services beyond the common ones.
	constraints(all *resource.Element)
	// agent tells the resource agent.
	agent(s *design.Service, c *ocf.Config) error
	// served is what needs the services of all pairs: settings of the whole, and
	// mounts of clients.
	served()
}

// kind is that of the pair's services.
func (b *builder) kind() serviceKind {
	if b.pair.Services[0].NFS != nil {
		return nfsKind{b}
	}
	return lustreKind{b}
}

// Package kind has what drills and benchmarks must know of a kind of service:
// how its clients mount it, how a second mount reads the files with a cache of
// its own, and how to empty the caches of its servers. It puts no load on
// anything, judges nothing and reaches no host.
package kind

import (
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/base/lists"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

// Kind is a kind of service as its clients see it.
type Kind interface {
	// Is returns what does not depend on a brick or a mount.
	Is() Traits
	// Label names the protocol of a mount in one word: v4.1, lustre. Name is the
	// same in the usual spelling: NFSv4.1, Lustre.
	Label(m design.ClientMount) string
	Name(m design.ClientMount) string
	// Uses reports whether I/O on a client's mount needs the service of this name.
	Uses(m design.ClientMount, service string) bool
	// Volumes returns what clients mount, each once, by the name that their mounts
	// have for it (ClientMount.Service).
	Volumes(d *design.Design) []string
	// LoadDir returns the path of a directory called name in the mounted file
	// system, and the action that makes it. If onServer, action and path are for
	// the server that has the service, otherwise for the client.
	LoadDir(m design.ClientMount, name string) (onServer bool, dir string, make resource.Action)
	// Spread returns the actions on a client that have each file of a directory wait
	// for every server of its data.
	Spread(dir string) []resource.Action
	// Files is the directory on a server that holds the service's files, "" if
	// servers see no files.
	Files(s *design.Service) string
	// Address is the address that a service has for itself on its server, with prefix
	// length; "" if clients know the servers.
	Address(s *design.Service) string
	// ReadBack is the command that mounts the same files at another directory,
	// with a cache of its own.
	ReadBack(m design.ClientMount, at string) []string
	// AsksForLocks reports whether the client asks the server for every lock. A
	// client with a delegation would lock without asking.
	AsksForLocks(m design.ClientMount) bool
	// FreesLocks reports whether the server gives up the locks of a client that died
	// before it is back.
	FreesLocks(m design.ClientMount) bool
	// LNet is the network of LNet that servers and clients use, as lnetctl names it; "" if
	// the kind has no LNet.
	LNet(d *design.Design) string
	// HoldsData reports whether a service has the data of files.
	HoldsData(s *design.Service) bool
	// Restart returns the actions that stop a single server's services and start
	// them again with empty caches. The caller runs again even if stop fails.
	Restart(services []*design.Service) (stop, again []resource.Action)
}

// Traits are the same for every brick of a kind.
type Traits struct {
	FSType     string   // begin of the file system type of its mounts (third field of /proc/self/mounts)
	Daemons    []string // of a server, which a drill may kill
	NamesApart bool     // one server holds the names of files and others their data: a writer of data does not notice that the server of names fails
	Graces     bool     // a server that takes over grants no new lock until the clients have reclaimed theirs, or a grace period is over
	Evicts     bool     // a server evicts a client that died, and logs it
	Restarts   bool     // a benchmark may restart the services to empty caches
	// Mount is what clients mount, in a word. Between are the layers of a profile between the
	// logical volumes and the mounts, the one that mounts are compared with first.
	Mount   string
	Between []string
}

// Of returns the kind of a brick's services, which are all of one kind.
func Of(d *design.Design) Kind {
	if d.Services()[0].NFS != nil {
		return nfs{}
	}
	return lustre{}
}

// For returns the kind of service that a client mounts.
func For(m design.ClientMount) Kind {
	if m.Version == "lustre" {
		return lustre{}
	}
	return nfs{}
}

// nfs are exports by kernel nfsd.
type nfs struct{}

func (nfs) Is() Traits {
	return Traits{FSType: "nfs", Daemons: []string{"nfsd", "rpc.mountd", "rpc.statd", "nfsdcld"}, Graces: true, Restarts: true, Mount: "nfs", Between: []string{"filesystem", "network"}}
}

func (nfs) Label(m design.ClientMount) string { return "v" + m.Version }
func (nfs) Name(m design.ClientMount) string  { return "NFSv" + m.Version }

func (nfs) Uses(m design.ClientMount, service string) bool { return m.Service == service }

// LoadDir: exports squash the clients' root to the user nobody, so the server makes the
// directory and gives it to the user nobody.
func (nfs) LoadDir(m design.ClientMount, name string) (onServer bool, dir string, make resource.Action) {
	_, dir, _ = strings.Cut(m.Source, ":")
	dir = path.Join(dir, name)
	return true, dir, command("directory for the load's files", "install", "-d", "-o", linux.Nobody, "-g", linux.Nobody, "-m", "0755", dir)
}

// Spread: a service is on one server.
func (nfs) Spread(string) []resource.Action { return nil }

// Volumes: each service has one, whether a client mounts it or not.
func (nfs) Volumes(d *design.Design) []string {
	return lists.Map(d.Services(), func(s *design.Service) string { return s.Name })
}

func (nfs) HoldsData(*design.Service) bool { return true }

func (nfs) Address(s *design.Service) string { return s.Address + "/" + strconv.Itoa(s.Prefix) }

func (nfs) Files(s *design.Service) string { return s.MountPoints()[0] }

func (nfs) ReadBack(m design.ClientMount, at string) []string {
	opts := own(m.Options, "sharecache")
	if !slices.ContainsFunc(opts, func(o string) bool { return strings.HasPrefix(o, "vers=") || strings.HasPrefix(o, "nfsvers=") }) {
		opts = append(opts, "vers="+m.Version)
	}
	return []string{"mount", "-t", "nfs", "-o", strings.Join(append(opts, "nosharecache"), ","), m.Source, at}
}

// AsksForLocks: NFSv3 has no delegations.
func (nfs) AsksForLocks(m design.ClientMount) bool { return strings.HasPrefix(m.Version, "3") }

// FreesLocks: the lease of an NFSv4 client ends. A server of NFSv3 hears only from a
// client that boots that it had died.
//
// Source: RFC 8881, 8.4.2.4; sm-notify(8)
func (nfs) FreesLocks(m design.ClientMount) bool { return !strings.HasPrefix(m.Version, "3") }

func (nfs) LNet(*design.Design) string { return "" }

func (nfs) Restart(services []*design.Service) (stop, again []resource.Action) {
	stop = append(stop, command("stop the NFS server", "systemctl", "stop", "nfs-server.service"))
	for _, s := range services {
		stop = append(stop, command("unmount "+s.MountPoint, "umount", s.MountPoint), command("mount "+s.MountPoint, "mount", s.MountPoint))
	}
	return stop, []resource.Action{command("start the NFS server", "systemctl", "start", "nfs-server.service")}
}

// lustre are targets of a Lustre file system. A brick of it always has pairs, so
// no single server is restarted.
type lustre struct{}

// Is: the MDS has the names, and a writer that has its file open needs only OSTs. Lustre has
// only kernel threads. Clients replay their locks in the recovery. Targets are in several
// clusters, and each waits for MMP when it starts.
func (lustre) Is() Traits {
	return Traits{FSType: "lustre", NamesApart: true, Evicts: true, Mount: "lustre", Between: []string{"osts", "network", "lnet"}}
}

func (lustre) Label(design.ClientMount) string { return "lustre" }
func (lustre) Name(design.ClientMount) string  { return "Lustre" }

// Uses: files have stripes on all OSTs, and the MDS has their names.
func (lustre) Uses(design.ClientMount, string) bool { return true }

func (lustre) LoadDir(m design.ClientMount, name string) (onServer bool, dir string, make resource.Action) {
	dir = path.Join(m.Path, name)
	return false, dir, command("directory for the load's files", "install", "-d", "-m", "0755", dir)
}

// Spread: files have a stripe on every OST.
func (lustre) Spread(dir string) []resource.Action {
	return []resource.Action{command("spread its files over all OSTs", "lfs", "setstripe", "--stripe-count", "-1", dir)}
}

// Volumes: one file system, whatever targets it has.
func (lustre) Volumes(d *design.Design) []string { return []string{d.Lustre.FSName} }

// HoldsData: those with an OST do.
func (lustre) HoldsData(s *design.Service) bool {
	return slices.ContainsFunc(s.Targets, func(t design.Target) bool { return t.Kind == "ost" })
}

// Address: a client knows both servers of a target.
func (lustre) Address(*design.Service) string { return "" }

// Files: the mount point of a target shows no files.
func (lustre) Files(*design.Service) string { return "" }

// ReadBack: each mount of Lustre has a client, and a cache, of its own.
func (lustre) ReadBack(m design.ClientMount, at string) []string {
	return []string{"mount", "-t", "lustre", "-o", strings.Join(own(m.Options), ","), m.Source, at}
}

// AsksForLocks: with -o flock the MDS grants every lock.
func (lustre) AsksForLocks(design.ClientMount) bool { return true }

// FreesLocks: the MDS evicts the client.
func (lustre) FreesLocks(design.ClientMount) bool { return true }

func (lustre) LNet(d *design.Design) string {
	network, _, _ := strings.Cut(d.Lustre.LNET, "(")
	return network
}

func (lustre) Restart([]*design.Service) (stop, again []resource.Action) { return nil, nil }

// own returns the options that mount(8) takes: it leaves out the options that
// only fstab has, and those in without.
func own(options []string, without ...string) []string {
	out := []string{}
	for _, o := range options {
		if !slices.Contains([]string{"_netdev", "auto", "noauto", "defaults", "bg"}, o) && !slices.Contains(without, o) && !strings.HasPrefix(o, "x-systemd.") {
			out = append(out, o)
		}
	}
	return out
}

func command(title string, argv ...string) resource.Action {
	return resource.Action{Title: title, Cmd: argv, Seconds: 300}
}

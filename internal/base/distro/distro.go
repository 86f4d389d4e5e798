// Package distro has what differs between distributions, as one value for
// each release: names of packages, paths, the package manager, the builder of
// initial RAM disks. One file holds one distribution; a new one needs a new
// file and a place in the table. What all distributions share does not belong
// here, and nothing here runs a command or reads a file.
package distro

import (
	"slices"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/base/lists"
)

// Distro is one release of a distribution.
type Distro struct {
	ID      string // ID of os-release(5)
	Version string // VERSION_ID of os-release(5), up to the first dot
	Name    string // for people
	Suite   string // name of the release in the distribution's archive

	Packages Packages
	Manager  Manager
	MDConf   MDConf
	Initrd   Initrd
	// Background is what the distribution does by itself.
	Background Background
	// Programs are those that the resource agent runs, each with its package.
	Programs map[string]string
	// OCF is the directory of the agents of a provider, without its name.
	OCF string
	// PipeFS is where the daemons of nfs-utils look for rpc_pipefs.
	PipeFS string
	// StatdUser is the user that rpc.statd runs as.
	StatdUser string
	// TimeUnit is the unit of Packages.Time.
	TimeUnit string
	// BcacheRules replaces the rules of udev that come with bcache-tools.
	BcacheRules string
}

// Packages are names of packages, by what a host needs them for.
type Packages struct {
	MD, LVM, Multipath, XFS []string
	NFSServer, NFSClient    []string
	RDMA                    []string // has udev load the drivers of cards that do RDMA
	Cluster                 []string // Corosync, Pacemaker with its tools, resource agents
	FenceAgents             []string // for IPMI, and for PDUs by SNMP
	Time                    []string // keeps the clock right
	FenceTest               []string // what a fence test witnesses with: ipmitool and ping
	Bench                   []string // what benchmarks make load with: on clients, and on servers for a profile of the layers below
	Cache                   []string // to make bcache's superblocks, to partition SSDs, to see their wear
	LustreServer            []string // KernelRelease in a name stands for the release of the kernel
	LustreClient            []string
	LustreE2fsprogs         string   // the one of LustreServer that must have Lustre's patches
	LustreHeld              []string // patterns of names: Lustre's and the kernel's packages, kept at their version
	KernelPrefix            string   // of the kernel's packages; a release follows, or a word for the newest
	Alike                   []string // whose releases the servers of a pair must have in common; the first is Pacemaker
	Report                  []string // whose versions the report of a run names
}

// KernelRelease stands for what uname -r prints.
const KernelRelease = "KERNEL"

// OtherKernel tells whether a package is a kernel of another release: one that was running before.
func (p Packages) OtherKernel(name, release string) bool {
	rest, ok := strings.CutPrefix(name, p.KernelPrefix)
	return ok && rest != release && rest != "" && rest[0] >= '0' && rest[0] <= '9'
}

// Manager is how packages are listed and installed. Commands are exact argv.
type Manager struct {
	Status    string // file that lists all packages
	Installed func(list string) map[string]bool
	// CutOff matches files that are there if the host lost power in the middle
	// of an installation; Mend finishes that.
	CutOff  string
	Mend    []string
	Refresh []string // reads the archive's lists anew
	Install []string // names follow
	// Upgrade installs the newest version of every package that is there. Pending
	// says which it would, and changes nothing; Newer reads that.
	Upgrade   []string
	Pending   []string
	Newer     func(pending string) []string
	Versions  []string // names follow; prints a line "name version" for each
	Candidate []string // names follow; says what their installation would install, as Newer reads it
	Held      []string // prints the names of the packages that are kept at their version
	Hold      []string // names follow
	HoldFile  string   // keeps daemons of new packages from starting, while it is there
	HoldLines string
}

// Background is what a distribution does by itself to storage and cluster, at night.
type Background struct {
	// CheckTimers are units of systemd that have the kernel check all md arrays, degraded
	// ones too. CheckCron is a file of cron that does, if it names CheckProgram.
	CheckTimers             []string
	CheckCron, CheckProgram string
	// Upgrader is a file that is there on a host that upgrades packages by itself. UpgradeConf with
	// UpgradeText keeps it from those of cluster, storage and kernel.
	Upgrader, UpgradeConf, UpgradeText string
	// Restarter is a file that is there on a host that restarts daemons whose libraries were upgraded.
	// RestartConf with RestartText keeps it from those of cluster and storage.
	Restarter, RestartConf, RestartText string
}

// MDConf is where mdadm looks for its configuration.
type MDConf struct {
	Main, Alt string // Alt is read where Main is missing
	Dir       string // of more files *.conf, with a slash at the end
}

// Initrd is how initial RAM disks are found and built.
type Initrd struct {
	// Images is a path with one *, which stands for the kernel's release.
	Images string
	// Hook is a file that has every image that is built leave arrays alone, and
	// take files along. HookText is its content, below a header; Mode its mode.
	Hook     string
	HookMode uint32
	HookText func(header string, md MDConf, arrays, files []string) string
	Tool     string // program that builds images, and
	Package  string // its package
	Rebuild  func(kernel string) []string
}

var all = debian

func All() []Distro { return slices.Clone(all) }

// Default is the release that a plan is made for without a host.
func Default() Distro { return debian[len(debian)-1] }

// Of finds the value for a host. The error says, in words that follow "host …
// runs …", why there is none that may be used.
func Of(os linux.OSRelease) (Distro, error) {
	major, _, _ := strings.Cut(os.Version, ".")
	if i := slices.IndexFunc(all, func(d Distro) bool { return d.ID == os.ID && d.Version == major }); i >= 0 {
		return all[i], nil
	}
	return Distro{}, &Unsupported{os}
}

// Nearest is the value for a host that a brick runs on already: it never
// fails, so that a service survives an upgrade to a release that Mortar does
// not know yet.
func Nearest(os linux.OSRelease) Distro {
	if d, err := Of(os); err == nil {
		return d
	}
	return Default()
}

// Unsupported says that no value may be used for a host.
type Unsupported struct{ OS linux.OSRelease }

func (u *Unsupported) Error() string {
	name := u.OS.Name
	if name == "" {
		name = strings.TrimSpace(u.OS.ID + " " + u.OS.Version)
	}
	if name == "" {
		name = "a system without a readable /etc/os-release"
	}
	return "runs " + name + ", which is not supported"
}

func (u *Unsupported) Mend() string { return "install " + Supported() }

// Supported names the releases that have been run.
func Supported() string {
	names := lists.Map(all, func(d Distro) string { return d.Name })
	return strings.Join(names, " or ")
}

// Suites are the names of the releases that a virtual rack can boot, the newest
// first.
func Suites() []string {
	var names []string
	for _, d := range slices.Backward(all) {
		names = append(names, d.Suite)
	}
	return names
}

// OfSuite finds a release by its name in the archive.
func OfSuite(suite string) (Distro, bool) {
	i := slices.IndexFunc(all, func(d Distro) bool { return d.Suite == suite })
	if i < 0 {
		return Distro{}, false
	}
	return all[i], true
}

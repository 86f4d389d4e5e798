// Package kernel is the access of the resource agent and the cache to the host: files, block
// devices, mounts, addresses and processes. No service, no kind of storage and no Pacemaker may live
// here, and no decision: a method does one thing, and says how it went.
package kernel

import (
	"context"
	"net/netip"
	"syscall"
	"time"

	"github.com/mortarhpc/mortar/internal/base/pr"
)

// Host is the agent's access to the host: all code but pure logic goes
// through it. Linux is the running kernel; the tests have a model of a
// host. While the agent starts NFS daemons or makes a table of exports, several goroutines
// call files, Run, Start, Kill and Sleep; and what the watcher does in the background, it calls beside
// its loop: Run to move a spare or drop a disk, files, Addresses, Ports and ReadBlocks to record
// locks, files, ReadBlocks, Mount and the network to make repairs, and files, Ports and Null,
// from several goroutines, to ask daemons, and files, Path, Addresses and DelAddress to guard the
// service's devices. Otherwise one goroutine calls everything.
type Host interface {
	// The clock by which agent and watcher live.

	Now() time.Time
	// Sleep returns early, with an error, when ctx ends.
	Sleep(ctx context.Context, d time.Duration) error

	// Files: those of the kernel (/proc, /sys) and the agent's own on the volume.

	// ReadFile and ReadDir (names, sorted) fail with fs.ErrNotExist if the path
	// does not exist.
	ReadFile(path string) ([]byte, error)
	ReadDir(path string) ([]string, error)
	// Readlink reads one link; Realpath follows all.
	Readlink(path string) (string, error)
	Realpath(path string) (string, error)
	// Access reads a path's metadata from its file system, so that it fails on
	// a file system that has shut down.
	Access(path string) error
	// Poke writes data to an existing file in one write(2), as the kernel's
	// files want it.
	Poke(path, data string) error
	// Empty makes a file empty, or makes an empty file; not durably.
	Empty(path string) error
	// Symlink makes a link to target, in place of whatever is there.
	Symlink(target, path string) error
	// Remove removes a file; it succeeds if there is none.
	Remove(path string) error
	// Rename renames a file within its file system and replaces a file that has
	// the new name.
	Rename(from, to string) error
	// Save replaces a file so that a crash leaves the old or the new content,
	// never half: temporary file, fsync, rename, fsync of the directory.
	Save(path string, data []byte) error
	// Free returns the free room of a file system in bytes.
	Free(path string) (int64, error)
	// Size returns the size of a file in bytes.
	Size(path string) (int64, error)
	// Reserve makes a file that takes up size bytes, or extends one that takes
	// up less.
	Reserve(path string, size int64) error
	// Fill makes a file of size zero bytes, all of them written to the disk.
	Fill(path string, size int64) error
	// SyncDir has the disk know which names are in a file's directory.
	SyncDir(path string) error
	// Mkdir makes a directory and its missing parents. A mode other than 0 is
	// always set; a uid other than -1 becomes the owner of the directory and of
	// the plain files in it.
	Mkdir(path string, mode uint32, uid, gid int) error
	// Own gives one file to a user.
	Own(path string, uid, gid int) error

	// Block devices and mounts.

	// ReadBlocks reads n bytes at off with O_DIRECT: this host's page cache may
	// be older than a disk that another host writes. off and n are multiples of
	// 4096.
	ReadBlocks(dev string, off int64, n int) ([]byte, error)
	// Claimed says whether a file system, or a program as e2fsck, has a device for itself.
	Claimed(dev string) bool
	// WriteBlocks returns when the data is on stable storage.
	WriteBlocks(dev string, off int64, data []byte) error
	// Ask reads ranges of devices as ReadBlocks does, all side by side, and gives an answer
	// for each. The answer of a device that takes longer than limit is ErrSilent.
	Ask(ctx context.Context, limit time.Duration, all []Question) []Answer
	// Path is one path to a LUN, for reservations.
	Path(dev string) pr.Path
	Mount(source, target, fstype string, flags uintptr, data string) error
	// MountImage mounts a file with a file system by a loop device, which goes with
	// the mount. The loop device reads and writes the file with O_DIRECT, and passes
	// no discard on.
	MountImage(image, target, fstype string, flags uintptr, data string) error
	Unmount(target string) error

	// Addresses.

	// Interface finds the interface that carries an address.
	Interface(a netip.Addr) (Iface, error)
	// Link finds an interface by its name.
	Link(name string) (Iface, error)
	// Addresses lists every address of the host by interface name.
	Addresses() (map[netip.Prefix]string, error)
	AddAddress(ifc Iface, p netip.Prefix) error
	DelAddress(name string, p netip.Prefix) error
	// ProbeARP asks who has a, for at most wait; an empty answer means no host.
	ProbeARP(ctx context.Context, ifc Iface, a netip.Addr, wait time.Duration) (string, error)
	// AnnounceARP tells the network that a is here now.
	AnnounceARP(ifc Iface, a netip.Addr) error
	// Ports asks rpcbind for the TCP port of each program; 0: it has none.
	Ports(ctx context.Context, programs []Program) ([]uint16, error)
	// Null calls a program's NULL procedure over TCP; an error means that it gave no
	// answer within a few seconds.
	Null(ctx context.Context, at netip.AddrPort, p Program) error
	// ResetConnections ends what is left of TCP connections to a local port.
	ResetConnections(a netip.Addr, port uint16) error

	// Processes.

	// Run runs a command to its end and returns its stdout. An exit code other
	// than 0 is an error that holds stderr. Run does not wait for daemons that
	// the command leaves behind.
	Run(ctx context.Context, c Command) (string, error)
	// Start runs a command and does not wait for its end.
	Start(c Command) error
	// Executable finds a program in the usual directories.
	Executable(name string) (string, error)
	Kill(pid int, sig syscall.Signal) error
	Hostname() (string, error)

	// Network namespaces.

	// Namespace returns the target of /proc/PID/ns/net of a process in the
	// network namespace; fs.ErrNotExist if no namespace has the name.
	Namespace(name string) (id string, err error)
	// AddNamespace makes a network namespace with an interface that is on
	// parent's network and up.
	AddNamespace(name, link string, parent Iface) error
	// CopyRoutes copies parent's routes that lead over a gateway to the
	// interface in the namespace.
	CopyRoutes(name, link string, parent Iface) error
	// DelNamespace removes the interface, and the namespace by its name.
	DelNamespace(name, link string) error
	// Within returns the same host seen from a namespace: network, Run and
	// Start act inside the namespace, and mounts are kept there. "" returns the
	// host itself.
	Within(name string) Host
}

// Iface is a network interface.
type Iface struct {
	Index int
	Name  string
}

// Command is a process to run, by its exact argv.
type Command struct {
	Argv  []string
	Stdin string
	Env   []string // besides PATH and LC_ALL
	// Nodename is the host name that uname(2) tells the process; "" for the
	// host's own.
	Nodename string
	// Binds are directories that the process sees at other places, each with
	// all mounts below it; in this order.
	Binds []Bind
	// Together: what kills the process group of this process kills the command too.
	Together bool
	// Limit is how many bytes of its output are kept, from both ends; 0: 64 KiB.
	Limit int
}

// WholeOutput is the Limit of a command that may tell of many files or blocks.
const WholeOutput = 64 << 20

// Bind is a directory and the place where the process sees it.
type Bind struct{ From, At string }

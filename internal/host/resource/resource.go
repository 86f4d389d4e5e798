// Package resource knows one kind of thing a host has per file (package,
// file, service, multipath, md array, volume group, file system, export,
// corosync, CIB …): how it is observed and which actions would bring it to
// what is wanted. It does not know order, other hosts or parallelism, and it
// changes nothing itself: every mutation is an Action that the agent runs.
package resource

import (
	"context"
	"errors"
	"io/fs"
	"os/exec"
	"slices"
	"time"

	"github.com/mortarhpc/mortar/internal/base/pr"
)

// Sys is the host as a resource may see it: read-only. Implementations run
// on the host itself.
type Sys interface {
	// ReadFile reads a file; a missing one gives an error that satisfies
	// errors.Is(err, fs.ErrNotExist).
	ReadFile(path string) ([]byte, error)
	// Stat describes a path (links followed); missing as for ReadFile.
	Stat(path string) (FileInfo, error)
	// Glob lists paths that match a pattern, sorted.
	Glob(pattern string) ([]string, error)
	// Readlink resolves a path fully, as realpath(1).
	Readlink(path string) (string, error)
	// Query runs a command that only reads; ReadOnly says which do. A command
	// that cannot be started gives an error; an exit code other than 0 is in
	// the Output.
	Query(ctx context.Context, argv ...string) (Output, error)
	// Initrd reads an initial RAM disk to its end and returns those of its files
	// whose paths match one of the patterns, by path.
	Initrd(ctx context.Context, image string, patterns []string) (map[string]string, error)
	// Disks lists the disks of the host, multipath maps resolved.
	Disks(ctx context.Context) (*DiskList, error)
	// Reservation asks a LUN over one path, sdX, who may write to it. It fails with
	// pr.ErrPath if the path does not answer.
	Reservation(ctx context.Context, path string) (pr.State, error)
}

// FileInfo is what a resource needs of a file's metadata.
type FileInfo struct {
	Mode   uint32 // permission bits
	UID    int
	GID    int
	IsDir  bool
	IsLink bool
	Size   int64
}

// Output of a command.
type Output struct {
	Stdout, Stderr string
	Code           int
}

// Cause is why a command gave no answer. It crosses the wire, and is in saved facts.
type Cause string

// Causes that callers ask for.
const (
	NotInstalled Cause = "not-installed"
	TimedOut     Cause = "timed-out"
)

// CauseOf is that of an error of a query; "": another one.
func CauseOf(err error) Cause {
	for target, cause := range map[error]Cause{exec.ErrNotFound: NotInstalled, fs.ErrNotExist: NotInstalled, context.DeadlineExceeded: TimedOut} {
		if errors.Is(err, target) {
			return cause
		}
	}
	return ""
}

// DiskFact is a disk as the host sees it.
type DiskFact struct {
	Serial string
	WWN    string // naa hex without prefix, lower case
	// Device is what to use: the multipath map where there is one, else the
	// block device, by a stable name where there is one.
	Device string
	Paths  []string // sdX of each path
	Size   int64    // bytes
	// Sector is the size of a logical block in bytes: 512, or 4096 of a disk that is "4Kn".
	// 0: not known.
	Sector int64 `json:",omitempty"`
	// PathState is the state of each path, by sdX; of NVMe with multipath of the kernel also by
	// controller. Only package gather reads it.
	PathState map[string]PathState `json:"path_state,omitempty"`
}

// PathState is one path to a disk.
type PathState struct {
	State string `json:"state"` // SCSI device state: running, offline, transport-offline, blocked …
	HBA   int    `json:"hba"`   // SCSI host number, -1 if it has none
}

// Action is one change, as it is shown and as it is run: either a command
// (an exact argv, which no shell takes apart) or a file written.
type Action struct {
	Title string   // what, in a few words
	Why   string   `json:",omitempty"` // reason, where it is not obvious
	Cmd   []string `json:",omitempty"`
	// Occasion tells apart two reasons for the same command, such as the times of two
	// failures. Of a resource that comes about by itself (Settler), an action runs once
	// for each.
	Occasion string `json:",omitempty"`
	Stdin    []byte `json:",omitempty"`
	// File is what is done instead of a command; with a command, a file that
	// is removed once the command has succeeded.
	File *File `json:",omitempty"`
	// Secret: Stdin or the file's content is never shown, logged or put in a
	// plan; a plan has a digest with a key.
	Secret bool `json:",omitempty"`
	// Destroys names serials of disks whose content this action ends. It runs
	// only if the user typed each of them under wipe, or if all devices are
	// in Blank.
	Destroys []string `json:",omitempty"`
	// Blank are devices that must carry nothing. The agent looks once more,
	// right before it runs the command, and refuses if one does.
	Blank []string `json:",omitempty"`
	// OKCodes are exit codes besides 0 that mean success.
	OKCodes []int `json:",omitempty"`
	// Seconds is a bound on the command; 0 means 120.
	Seconds int `json:",omitempty"`
	// Beside is of a command that takes hours and may run beside other sessions' actions: the
	// host's lock is let go once it begins. It names what only one such command works on at
	// a time; "" keeps the host's lock to the end.
	Beside string `json:",omitempty"`
}

// Permitted refuses an action that destroys what is on a disk whose serial
// number is not among those that the user allows to be wiped. Blank disks need
// no permission.
func (a Action) Permitted(serials []string) error {
	if len(a.Blank) > 0 {
		return nil
	}
	for _, s := range a.Destroys {
		if !slices.Contains(serials, s) {
			return Refuse("wipe-not-permitted", With{"serial": s})
		}
	}
	return nil
}

// File to be written, atomically (temporary file, fsync, rename).
type File struct {
	Path    string
	Content []byte
	// From is, instead of Content, a file on the administrator's machine, with its digest in
	// hexadecimal: the session reads it when the action is run.
	From, SHA256 string `json:",omitempty"`
	Mode         uint32
	Owner        string // user name or "" for root
	Group        string // group name or "" for root
	Remove       bool   // delete the file instead
	Mkdir        bool   // make a directory instead
	Symlink      string // make a symbolic link to this instead
}

// Resource is one thing wanted on one host. Its exported fields are its
// wanted state; they travel to the host as JSON.
type Resource interface {
	// Identity names the type, for the wire and for output ("file", "md-array"), and the
	// thing within it: a path, an array's name.
	Identity() (kind, id string)
	// Diff observes the host and returns the actions that would bring the
	// thing to the wanted state; none if it is there already. What it depends
	// on may not exist yet (a plan is made before anything is applied): then
	// it counts as absent. A *Refusal says that it may not be done. Callers go by
	// the function Diff.
	Diff(sys Look) ([]Action, error)
}

// Settler is a Resource whose wanted state comes about by itself some time
// after its actions were run: nodes join a cluster, a cluster starts a
// service. The engine repeats Diff about once a second, at most for the
// time Settle gives, before it says that the resource did not converge.
type Settler interface {
	Resource
	Settle() time.Duration
}

package ocf

import (
	"errors"
	"regexp"

	"github.com/mortarhpc/mortar/internal/base/pr"
	"github.com/mortarhpc/mortar/internal/serve/lun"
	"github.com/mortarhpc/mortar/internal/serve/mdraid"
	"github.com/mortarhpc/mortar/internal/serve/nfs"
)

// Code says in a word why an action was refused or failed. The reason that Pacemaker keeps
// begins with it in brackets, since Pacemaker keeps 128 bytes.
//
// Source: Pacemaker, EXIT_REASON_MAX_LEN
type Code string

// Codes that are no part of a service. An action that fails at a part has that one's name.
const (
	BadConfig Code = "config"
	Unable    Code = "unable"
	Busy      Code = "busy"
	Late      Code = "late"
	Taken     Code = "taken"
	InDoubt   Code = "in-doubt"
	Comparing Code = "comparing"
	Damaged   Code = "damaged"
	failed    Code = "failed"
)

// Codes are all codes, with what they mean and what to do.
var Codes = map[Code][2]string{
	BadConfig:      {"the configuration of the service is not there, or is wrong", "`mortar apply`"},
	Unable:         {"the server lacks what the agent needs: a program, a kernel module, root's rights", "`mortar apply`"},
	Busy:           {"another action of the service did not end in time", "wait; `journalctl -t mortar` says which one"},
	Late:           {"the action took longer than Pacemaker grants", "see what held it up: `mortar status`, and the kernel's log"},
	Taken:          {"another server has the storage that is in use here", "this server resets itself; see why fencing did not end it"},
	InDoubt:        {"a crash has left blocks in doubt, and a person is asked", "`mortar confirm-doubt`"},
	Damaged:        {"XFS does not mount the volume, because what is on it is damaged", "`mortar repair`"},
	Comparing:      {"the parities of an array are still compared", "wait: each start goes on"},
	failed:         {"something else", "the text says it"},
	"probe":        {"the start was refused before it began: the service seems to run elsewhere, or cannot run here", "the text says it"},
	"check":        {"the service does not run after its start, or runs after its stop", "the service's log on the server, `/run/mortar/ocf-SERVICE.log`"},
	"exports":      {"a file system is not exported as configured, or an export was refused", "`mortar apply`"},
	"arrays":       {"md arrays lack too many members, or do not assemble", "connect the disks; see `mortar status`"},
	"luns":         {"LUNs are missing, or have no path", "see what the array says, and its paths"},
	"reservations": {"LUNs or disks could not be reserved, or another machine uses one", "see `mortar status`, and [reservations](reservations.md)"},
	"volume":       {"the logical volume is not active, is under construction, or another server owns it", "`mortar apply`"},
	"cache":        {"the cache is not up, or its SSDs lack data that is nowhere else", "connect the SSDs; see [cache](cache.md)"},
	"mount":        {"the file system is not mounted, is another one, or is mounted elsewhere", "see the kernel's log"},
	"state-disk":   {"the state of NFS is not mounted", "see the kernel's log"},
	"namespace":    {"the network namespace of the service is not there", "see `ip netns` on the server"},
	"nfs-state":    {"the state of NFS is not where its daemons look for it", "see the mounts on the server"},
	"nfsd":         {"nfsd or one of its daemons does not run", "their logs (journalctl) say why"},
	"address":      {"the service address is not on the server, or another host answers for it", "see who has the address (`ip neighbour`)"},
	"target":       {"a target of Lustre is not mounted", "see the kernel's log"},
}

type coded struct {
	code Code
	error
}

func (c *coded) Unwrap() error { return c.error }

// giveCode gives an error a code, unless it has one.
func giveCode(code Code, err error) error {
	if c := (*coded)(nil); err == nil || errors.As(err, &c) {
		return err
	}
	return &coded{code, err}
}

func codeOf(err error) Code {
	c, d := (*coded)(nil), (*mdraid.InDoubt)(nil)
	switch {
	case errors.As(err, new(*nfs.Damaged)):
		return Damaged
	case errors.As(err, &d) && d.Remaining() > 0:
		return Comparing
	case errors.As(err, &d):
		return InDoubt
	case errors.Is(err, pr.ErrTaken), errors.Is(err, lun.ErrForgot):
		return Taken
	case errors.As(err, &c):
		return c.code
	}
	return failed
}

var codeAhead = regexp.MustCompile(`^\[([a-z-]+)\] `)

// RefusalOf is the code in a reason that Pacemaker shows; "": none, it is of another agent or
// release.
func RefusalOf(reason string) Code {
	if m := codeAhead.FindStringSubmatch(reason); m != nil {
		return Code(m[1])
	}
	return ""
}

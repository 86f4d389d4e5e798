// Package host reaches a host: by SSH with a pinned host key, from another
// network namespace where the inventory says so, over one long-lived
// connection. It pushes this very binary and starts `mortar agent` with it.
//
// Callers get a [Session]: typed calls of the agent's operations, and the gate that
// each action passes. All and Each run on many hosts at once; Wait polls until a
// condition holds. The package knows where to find a host of a spec. It may know
// neither what an action does nor what a design is.
package host

import (
	"errors"
	"fmt"
)

// Target is where and how a host is reached.
type Target struct {
	Name     string
	Address  string // IP address or name
	Port     int    // 0: 22
	User     string // "": root; another one needs sudo -n
	Identity string // private key file; "": SSH agent and ~/.ssh/id_*
	// HostKey is the pinned key, "ssh-ed25519 AAAA…"; where it is empty the
	// key must be in KnownHosts.
	HostKey    string
	KnownHosts string // "": as ssh's configuration says, else ~/.ssh/known_hosts
	// SSHConfig is ssh's configuration, which counts for what is not set here; "": that of
	// the user and the machine, "none": none.
	SSHConfig string
	NetNS     string // name of a network namespace to dial from; Address must be an IP address then
	// Holder is whose commands these are (see claim.Claim); "": as LockFile says when the
	// host is connected to.
	Holder, LockFile string
}

func (t Target) port() int {
	if t.Port == 0 {
		return 22
	}
	return t.Port
}

func (t Target) user() string {
	if t.User == "" {
		return "root"
	}
	return t.User
}

// Error says what failed with which host, and how to mend it. The mend
// is the user's: nothing was changed when Connect returns it.
type Error struct {
	Host    string
	Address string // host:port
	What    string // what failed
	Mend    string
	Err     error // may be nil
}

func (e *Error) Error() string {
	s := fmt.Sprintf("%s (%s): %s", e.Host, e.Address, e.What)
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	if e.Mend != "" {
		s += "; " + e.Mend
	}
	return s
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// Errors of the kinds a caller may want to tell apart; found by errors.Is.
var (
	ErrUnreachable = errors.New("unreachable")
	ErrHostKey     = errors.New("host key")
	ErrLogin       = errors.New("login refused")
	ErrNoAnswer    = errors.New("no answer")
)

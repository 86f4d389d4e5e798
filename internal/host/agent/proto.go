// Package agent is the other end: `mortar agent`, started over SSH, answers
// requests on stdin with lines of JSON on stdout: facts, diffs, actions, load
// workers, health. It keeps no state between sessions, opens no port, and
// does nothing it was not asked for.
package agent

import (
	"encoding/json"

	"golang.org/x/sys/unix"

	"github.com/mortarhpc/mortar/internal/base/health"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

// Protocol is the version both ends must share.
const Protocol = 1

// Begin is the line behind which an agent's answers begin: the login shell that starts it may
// print something before.
const Begin = "mortar-agent-begins"

// Request is one line from the administrator's machine.
type Request struct {
	ID     uint64          `json:"id"`
	Op     string          `json:"op"`
	Params json.RawMessage `json:"params,omitempty"`
}

// Response is one line back. A request is answered by any number of events
// and then exactly one result or error, all with its ID. Requests run
// concurrently; {op:"cancel", params:{id}} ends one.
type Response struct {
	ID     uint64          `json:"id"`
	Event  json.RawMessage `json:"event,omitempty"`
	Result json.RawMessage `json:"result,omitempty"`
	Error  *Error          `json:"error,omitempty"`
}

// Error crosses the wire whole, so that a failure is shown with its host,
// command, exit code and stderr.
type Error struct {
	Message string `json:"message"`
	Refusal bool   `json:"refusal,omitempty"` // see resource.Refusal
	// Refused is none if the agent is of an earlier release.
	Refused health.Identity `json:"refused,omitzero"`
	Mend    string          `json:"mend,omitempty"`
	Cmd     []string        `json:"cmd,omitempty"`
	Code    int             `json:"code,omitempty"`
	Stderr  string          `json:"stderr,omitempty"`
	Cause   resource.Cause  `json:"cause,omitempty"`
	Errno   unix.Errno      `json:"errno,omitempty"` // that the command named
}

// Is has errors.Is find the error number: errors.Is(err, unix.EBUSY).
func (e *Error) Is(target error) bool { return e.Errno != 0 && target == e.Errno }

func (e *Error) Error() string {
	if e.Mend != "" {
		return e.Message + "; " + e.Mend
	}
	return e.Message
}

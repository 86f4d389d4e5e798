// Package cli has what the commands that work on a brick share: how a command ends, one way to
// read a spec, to connect to its hosts and to claim it, and the Console by which a command tells
// how it goes on, prints its result and asks.
//
// Package cli knows no command, makes no plan and judges nothing.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/mortarhpc/mortar/internal/base/health"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/converge/plan"
	"github.com/mortarhpc/mortar/internal/host/agent"
)

// Exit codes. Source: docs/json.md.
const (
	Failed      = 1   // an action failed, or a verdict is "fail"
	BadInput    = 2   // refused; nothing was changed
	Pending     = 3   // plan --detailed-exitcode: changes are pending
	LeftOut     = 4   // done, but for clients that do not answer
	Interrupted = 130 // Ctrl-C
)

// Exit is an error with the exit code of the program.
type Exit struct {
	Code int
	Err  error
}

func (e *Exit) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit %d", e.Code)
	}
	return e.Err.Error()
}

// Unwrap returns what is printed; nil: nothing.
func (e *Exit) Unwrap() error { return e.Err }

// problem is a place in a file that is wrong. Source: docs/json.md.
type problem struct {
	File   string `json:"file"`
	Line   int    `json:"line"`
	Column int    `json:"column"`
	Text   string `json:"text"`
	Mend   string `json:"mend,omitempty"`
	health.Identity
}

// Print writes the error for a person, or as the object that every command with --json writes.
func (e *Exit) Print(w io.Writer, asJSON bool) {
	if e.Err == nil {
		return
	}
	if !asJSON {
		fmt.Fprintln(w, "mortar:", e.Err)
		return
	}
	line := struct {
		Error    string    `json:"error"`
		ExitCode int       `json:"exit_code"`
		Problems []problem `json:"problems,omitempty"`
		health.Identity
	}{Error: e.Err.Error(), ExitCode: e.Code, Identity: agent.Refused(e.Err)}
	var all spec.Errors
	var one *spec.Error
	if !errors.As(e.Err, &all) && errors.As(e.Err, &one) {
		all = spec.Errors{one}
	}
	for _, p := range all {
		line.Problems = append(line.Problems, problem{p.File, p.Line, p.Col, p.Msg, p.Mend, p.Identity})
	}
	_ = JSONLines(w).Encode(line) // there is no place for the error of stderr
}

// WantsJSON reports whether a command line has --json. It does not ask the command, which may not
// have understood its flags.
func WantsJSON(args []string) bool {
	if i := slices.Index(args, "--"); i >= 0 {
		args = args[:i]
	}
	return slices.Contains(args, "--json") || slices.Contains(args, "--json=true")
}

// Fail returns an error that ends the program with code. A nil err prints nothing.
func Fail(code int, err error) error { return &Exit{code, err} }

// Refuse returns a refusal that says that nothing was changed.
func Refuse(err error) error { return Fail(BadInput, fmt.Errorf("%w; nothing was changed", err)) }

// Refused ends a command that has changed nothing. An error about a host or disk gets its
// place in the spec.
func Refused(ctx context.Context, s *spec.Spec, err error) error {
	if ctx.Err() != nil {
		return Fail(Interrupted, errors.New("interrupted; nothing was changed"))
	}
	return Fail(BadInput, fmt.Errorf("%w\nNothing was changed", plan.Located(s, err)))
}

// ByInterrupt is the error of what an interrupt has ended: whole says so if nothing else
// went wrong.
func ByInterrupt(ctx context.Context, err error, whole string) error {
	if nothingBut(err, ctx.Err()) {
		return Fail(Interrupted, errors.New(whole))
	}
	return Fail(Interrupted, fmt.Errorf("interrupted: %w", err))
}

// nothingBut reports whether an error is another one and nothing else, joined or not.
func nothingBut(err, other error) bool {
	if err == nil || err == other { //nolint:errorlint // that and nothing else
		return true
	}
	all, ok := err.(interface{ Unwrap() []error }) //nolint:errorlint // the outermost one
	return ok && err.Error() == errors.Join(all.Unwrap()...).Error() &&
		!slices.ContainsFunc(all.Unwrap(), func(e error) bool { return !nothingBut(e, other) })
}

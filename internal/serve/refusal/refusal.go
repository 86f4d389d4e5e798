// Package refusal has what the resource agent refuses, in one table: a code, the argument that
// names the subject, the text, what to do. No check lives here, nor a decision of what follows
// from a refusal; the code may not know a part, a kind or Pacemaker's exit codes.
package refusal

import (
	"errors"
	"regexp"
)

// Code says in a word why an action was refused or failed. The reason that Pacemaker keeps
// begins with it in brackets, since Pacemaker keeps 128 bytes.
//
// Source: Pacemaker, EXIT_REASON_MAX_LEN
type Code string

// Args are the arguments of a refusal, by the names that its text uses. Why is an error.
type Args = map[string]any

// Why is the argument that has the cause of a refusal.
const Why = "why"

// Refusal is the error of an action that was refused before it changed what it speaks of, or
// would harm data: trying again here will not help without a human.
type Refusal struct {
	Code    Code
	Args    Args
	Subject string // "": the service
	Text    string
}

func (r *Refusal) Error() string { return r.Text }

func (r *Refusal) Unwrap() error {
	err, _ := r.Args[Why].(error)
	return err
}

func (r *Refusal) code() Code { return r.Code }

// New is a refusal of the table. Its texts are made here and nowhere else.
func New(code Code, args Args) error {
	r := &Refusal{Code: code, Args: args}
	r.Text, _, r.Subject = Kinds[code].Say(args, args)
	return r
}

// Because makes an error a refusal with its text, unless it is one.
func Because(code Code, err error) error {
	if errors.As(err, new(*Refusal)) {
		return err
	}
	return &Refusal{Code: code, Args: Args{Why: err}, Text: err.Error()}
}

// failure is the error of a tool or of a check, with a code.
type failure struct {
	is Code
	error
}

func (f *failure) Unwrap() error { return f.error }

func (f *failure) code() Code { return f.is }

type coded interface {
	error
	code() Code
}

// Give gives an error a code, unless it has one.
func Give(code Code, err error) error {
	if err == nil || errors.As(err, new(coded)) {
		return err
	}
	return &failure{code, err}
}

// CodeOf is the code of an error.
func CodeOf(err error) Code {
	if c := coded(nil); errors.As(err, &c) {
		return c.code()
	}
	return Failed
}

var ahead = regexp.MustCompile(`^\[([a-z-]+)\] `)

// CodeIn is the code in a reason that Pacemaker shows; "": none, it is of another agent or
// release.
func CodeIn(reason string) Code {
	if m := ahead.FindStringSubmatch(reason); m != nil {
		return Code(m[1])
	}
	return ""
}

// Known reports whether this release has a code.
func Known(code Code) bool {
	_, kind := Kinds[code]
	_, part := Parts[code]
	return kind || part
}

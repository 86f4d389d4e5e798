package ocf

import "context"

// state of a part of the service on this host.
type state int

const (
	stopped state = iota
	running
	broken // half there, or there and not working
)

// refusal is an error of a start that was refused before it changed what it
// speaks of: trying again here will not help without a human.
type refusal struct{ error }

func (r *refusal) Unwrap() error { return r.error }

// refuse makes a refusal of an error.
func refuse(err error) error { return &refusal{err} }

// part is one layer of the service. All functions are idempotent and cope
// with a layer below that is half there.
type part struct {
	name  string
	state func() (state, error)
	start func(context.Context) error
	stop  func(context.Context) error
	// shared: may also run without this service; says nothing of whether
	// the service runs.
	shared bool
}

// onlyFaults says whether check found faults, and each is of a kind.
func onlyFaults(err error, kind func(error) bool) bool {
	all, ok := err.(interface{ Unwrap() []error }) //nolint:errorlint // that of errors.Join in check
	if !ok {
		return false
	}
	for _, e := range all.Unwrap() {
		if !kind(e) {
			return false
		}
	}
	return true
}

// device is one of the devices of a storage kind.
type device struct {
	name string // in the config
	what string // how messages call it: the kind's word and the name
	path string // /dev/md127; "" if it is not here
	gone error  // why it is not here
}

// repair is one thing that a service needs above its file system, and that can be put back
// while all else serves on.
type repair struct {
	what string // in messages
	// part is the layer that it belongs to: all layers below must run. "": the server needs
	// it whether it serves or not, and it is no reason to move a service.
	part string
	// missing reads neither the volume nor the devices: they may not answer.
	missing func() bool
	put     func(context.Context) error
}

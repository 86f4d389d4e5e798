// Package unit has what the parts of a service share: a part with its start, stop and check,
// the server as the parts see it, their notes in /run, their log, and the rows of the
// watcher's table. No kind of storage or of service may live here, and no decision about one.
package unit

import (
	"context"
	"slices"
)

// State of a part of the service on this host.
type State int

const (
	Stopped State = iota
	Running
	Broken // half there, or there and not working
)

// Part is one layer of the service. All functions are idempotent and cope
// with a layer below that is half there.
type Part struct {
	Name  string
	State func() (State, error)
	Start func(context.Context) error
	Stop  func(context.Context) error
	// Shared: may also run without this service; says nothing of whether
	// the service runs.
	Shared bool
}

// OnlyFaults says whether check found faults, and each is of a kind.
func OnlyFaults(err error, kind func(error) bool) bool {
	all, ok := err.(interface{ Unwrap() []error }) //nolint:errorlint // that of errors.Join in check
	return ok && !slices.ContainsFunc(all.Unwrap(), func(e error) bool { return !kind(e) })
}

// Device is one of the devices of a storage kind.
type Device struct {
	Name string // in the config
	What string // how messages call it: the kind's word and the name
	Path string // /dev/md127; "" if it is not here
	Gone error  // why it is not here
}

// Names of repairs that drills ask for.
const TheAddress, TheName = "address", "name"

// PutBack is the code of the watcher's line of a repair. The line begins with it, in brackets.
func PutBack(name string) string { return "put-back-" + name }

// Repair is one thing that a service needs above its file system, and that can be put back
// while all else serves on.
type Repair struct {
	Name, What string // messages have What
	// Part is the layer that it belongs to: all layers below must run. "": the server needs
	// it whether it serves or not, and it is no reason to move a service.
	Part string
	// Missing reads neither the volume nor the devices: they may not answer.
	Missing func() bool
	Put     func(context.Context) error
}

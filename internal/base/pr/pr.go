// Package pr speaks SCSI-3 persistent reservations with a LUN or a disk: who is
// registered, who holds the reservation, and the commands that change that over one path
// (Path) or over all (Claim). It knows neither services nor multipath maps.
//
// Source: T10 SPC-4 (r37), 5.13, 6.15 and 6.16.
package pr

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/sg"
)

// Key is a reservation key: what a host registers its paths with.
type Key uint64

// mark is how each key of Mortar begins, in ASCII, for people who read them on an
// array.
const mark = "MORT"

// KeyOf is the key of a server, the same on all of its paths and for good. id is
// its brick's (spec.Spec, ID): two bricks may have servers of one name.
func KeyOf(id, server string) Key {
	sum := sha256.Sum256([]byte(id + "\x00" + server))
	return Key(binary.BigEndian.Uint64(append([]byte(mark), sum[:4]...)))
}

// String is the key as sg_persist(8) and multipath.conf(5) write it.
func (k Key) String() string { return fmt.Sprintf("0x%016x", uint64(k)) }

// MarshalText is String: JavaScript reads numbers as large as keys wrong.
func (k Key) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText reads it.
func (k *Key) UnmarshalText(b []byte) error {
	n, err := strconv.ParseUint(strings.TrimPrefix(string(b), "0x"), 16, 64)
	*k = Key(n)
	return err
}

// ParseKey parses the output of Key.String. It refuses 0, which is no key.
func ParseKey(s string) (Key, error) {
	n, err := strconv.ParseUint(strings.TrimPrefix(s, "0x"), 16, 64)
	if err != nil || n == 0 || Key(n).String() != s {
		return 0, fmt.Errorf("%q: a reservation key of 0x and 16 hex digits is needed", s)
	}
	return Key(n), nil
}

// WriteExclusiveRegistrantsOnly is the type of reservation with which one path
// holds it and all registered paths may write: those of one server, over all of
// its paths.
const WriteExclusiveRegistrantsOnly = 5

// State is the answer of a LUN about its registrations and its reservation.
type State struct {
	// Generation counts registrations and what removes them, since the array
	// was switched on.
	Generation uint32 `json:"generation"`
	// Keys has one for each path that is registered.
	Keys []Key `json:"keys"`
	// Holder is the key of the path that holds the reservation; 0: none.
	Holder Key `json:"holder"`
	// Type of the reservation, if there is one.
	Type byte `json:"type"`
}

// Count returns the number of paths that are registered with k.
func (s State) Count(k Key) int {
	n := 0
	for _, x := range s.Keys {
		if x == k {
			n++
		}
	}
	return n
}

// Others returns the registered keys that are not in own, each once.
func (s State) Others(own ...Key) []Key {
	all := slices.Clone(s.Keys)
	if s.Holder != 0 {
		all = append(all, s.Holder)
	}
	slices.Sort(all)
	return slices.DeleteFunc(slices.Compact(all), func(k Key) bool { return slices.Contains(own, k) })
}

// ErrConflict and ErrPath are the errors of package sg: the LUN refused the
// command because of a reservation, or the command did not reach the LUN.
var (
	ErrConflict = sg.ErrConflict
	ErrPath     = sg.ErrPath
)

// Mend says how a person takes the keys of a host away that uses a LUN or a disk no more. It takes
// all keys away: a server that serves would count as taken over.
func Mend(dev string) string {
	return fmt.Sprintf("If that machine uses it no more, take its keys away while the service runs on no server: `sg_persist --out --register-ignore --param-sark=0x1 %[1]s`, then `sg_persist --out --clear --param-rk=0x1 %[1]s`", dev)
}

// Path is one path to a LUN. A command fails with ErrConflict, ErrPath, or with
// what the LUN answers.
type Path interface {
	Read() (State, error)
	// Register registers this path with a key, in place of the one that it has.
	Register(own Key) error
	// Unregister takes this path's registration away, and the reservation if it
	// is this path that holds it. To a path without a registration it does
	// nothing.
	Unregister() error
	// Reserve reserves the LUN for all registered paths. It fails with ErrConflict
	// if another path holds a reservation.
	Reserve(own Key) error
	// Preempt removes every other path's registration with the victim's key, and
	// aborts its commands. If the victim holds the reservation, this path does
	// then. The victim may be own.
	Preempt(own, victim Key) error
}

// Service actions of PERSISTENT RESERVE IN and OUT.
const (
	readKeys        = 0x00
	readReservation = 0x01

	reserve        = 0x01
	preemptAbort   = 0x05
	registerIgnore = 0x06
)

const (
	opIn  = 0x5e
	opOut = 0x5f
	// parameters is the length of the parameter list of PERSISTENT RESERVE OUT.
	parameters = 24
	// inLength is room for the keys of a thousand paths.
	inLength = 8 + 8*1000
)

// in is the command block of PERSISTENT RESERVE IN.
func in(action byte, length int) []byte {
	b := make([]byte, 10)
	b[0], b[1] = opIn, action
	binary.BigEndian.PutUint16(b[7:], uint16(length))
	return b
}

// out is the command block of PERSISTENT RESERVE OUT and its parameters.
func out(action, kind byte, key, other Key) (block, list []byte) {
	block, list = make([]byte, 10), make([]byte, parameters)
	block[0], block[1], block[2] = opOut, action, kind
	binary.BigEndian.PutUint32(block[5:], parameters)
	binary.BigEndian.PutUint64(list, uint64(key))
	binary.BigEndian.PutUint64(list[8:], uint64(other))
	return block, list
}

// parse reads the answers to READ KEYS and READ RESERVATION.
func parse(keys, reservation []byte) (State, error) {
	var s State
	k, err := body(keys)
	if err != nil {
		return s, fmt.Errorf("READ KEYS: %w", err)
	}
	r, err := body(reservation)
	if err != nil {
		return s, fmt.Errorf("READ RESERVATION: %w", err)
	}
	s.Generation = binary.BigEndian.Uint32(keys)
	for ; len(k) >= 8; k = k[8:] {
		s.Keys = append(s.Keys, Key(binary.BigEndian.Uint64(k)))
	}
	if len(r) >= 14 {
		s.Holder, s.Type = Key(binary.BigEndian.Uint64(r)), r[13]&0xf
	}
	return s, nil
}

// body is what follows the header of an answer: generation and length.
func body(b []byte) ([]byte, error) {
	if len(b) < 8 {
		return nil, fmt.Errorf("an answer of %d bytes", len(b))
	}
	n := int64(binary.BigEndian.Uint32(b[4:]))
	if n > int64(len(b)-8) {
		return nil, fmt.Errorf("an answer of %d bytes that says %d more follow its header", len(b), n)
	}
	return b[8 : 8+n], nil
}

package pr

import (
	"errors"
	"fmt"
	"time"

	"github.com/mortarhpc/mortar/internal/base/sg"
)

// Device is the path that a block device of the kernel is, /dev/sdc.
func Device(dev string) Path { return device(dev) }

type device string

func (d device) Read() (State, error) {
	keys, err := d.in(readKeys)
	if err != nil {
		return State{}, err
	}
	reservation, err := d.in(readReservation)
	if err != nil {
		return State{}, err
	}
	s, err := parse(keys, reservation)
	if err != nil {
		err = fmt.Errorf("%s: %w", string(d), err)
	}
	return s, err
}

func (d device) Register(own Key) error { return d.out(registerIgnore, 0, 0, own) }
func (d device) Unregister() error      { return d.out(registerIgnore, 0, 0, 0) }
func (d device) Reserve(own Key) error {
	return d.out(reserve, WriteExclusiveRegistrantsOnly, own, 0)
}

func (d device) Preempt(own, victim Key) error {
	return d.out(preemptAbort, WriteExclusiveRegistrantsOnly, own, victim)
}

func (d device) in(action byte) ([]byte, error) {
	b := make([]byte, inLength)
	n, err := d.repeat(in(action, len(b)), b, false)
	return b[:n], unable(err)
}

func (d device) out(action, kind byte, key, other Key) error {
	block, list := out(action, kind, key, other)
	_, err := d.repeat(block, list, true)
	return unable(err)
}

// notReady is how long a command is repeated while the LUN is not ready. A switch
// of a controller takes a second on the rack, and several on real arrays.
const (
	notReady = 15 * time.Second
	pause    = 200 * time.Millisecond
	// A path has a unit attention for each thing that it has missed.
	attentions = 20
	// timeout is the kernel's own for commands to disks (SD_TIMEOUT): with less, its
	// error handling would begin earlier than for other commands.
	timeout = 30 * time.Second
)

// repeat does a command until the LUN takes it: a path that has just logged in
// answers first what it has missed, and a LUN that moves to the other
// controller answers nothing else (seen on a rack).
func (d device) repeat(block, data []byte, write bool) (int, error) {
	for begin, missed := time.Now(), 0; ; {
		n, err := sg.Do(string(d), block, data, write, timeout)
		said := sg.Answer{}
		if !errors.As(err, &said) {
			return n, err
		}
		switch {
		case said.Attention() && missed < attentions:
			missed++
		case said.Busy() && time.Since(begin) < notReady:
			time.Sleep(pause)
		default:
			return n, err
		}
	}
}

package pr

import (
	"errors"
	"fmt"
)

// Order is what a process is to do with one disk that may hang: see kernel.Ask.
type Order struct {
	// Do is DoRead, DoTake, DoKeep or DoGive.
	Do      string   `json:"do"`
	What    string   `json:"what"`
	Device  string   `json:"device"`
	Node    string   `json:"node"`
	Servers Servers  `json:"servers"`
	Paths   []string `json:"paths"` // /dev/sda
	Never   bool     `json:"never,omitempty"`
}

const (
	DoRead = "read"
	// DoTake is Ours and Take, DoKeep is Keep.
	DoTake = "take"
	DoKeep = "keep"
	// DoGive is Give, if this server is registered.
	DoGive = "give"
)

// Done is how an order went.
type Done struct {
	State
	Notes []string `json:"notes,omitempty"`
	Text  string   `json:"err,omitempty"`
	Kind  int      `json:"kind,omitempty"` // of the error, in kinds, from 1
}

// kinds are the errors that a Done keeps apart.
var kinds = []error{ErrTaken, ErrStrange, ErrUnable, ErrConflict, ErrPath}

// Err is the error with which the order ended.
func (d Done) Err() error {
	switch {
	case d.Text == "":
		return nil
	case d.Kind > 0 && d.Kind <= len(kinds):
		return said{d.Text, kinds[d.Kind-1]}
	}
	return errors.New(d.Text)
}

// said is an error of another process, of a kind that is known.
type said struct {
	text string
	kind error
}

func (s said) Error() string { return s.text }
func (s said) Unwrap() error { return s.kind }

// Claim is what the order is about, over its paths.
func (o Order) Claim(path func(dev string) Path) *Claim {
	c := &Claim{What: o.What, Device: o.Device, Node: o.Node, Servers: o.Servers}
	for _, p := range o.Paths {
		c.Paths = append(c.Paths, path(p))
	}
	return c
}

// Carry carries the order out.
func (o Order) Carry(path func(dev string) Path) (d Done) {
	c := o.Claim(path)
	c.Note = func(format string, a ...any) { d.Notes = append(d.Notes, fmt.Sprintf(format, a...)) }
	err := c.Read()
	if err == nil {
		switch o.Do {
		case DoTake:
			if err = c.Ours(); err == nil {
				err = c.Take()
			}
		case DoKeep:
			err = c.Keep(o.Never)
		case DoGive:
			if c.Count(c.Own()) > 0 {
				err = c.Give()
			}
		}
	}
	d.State = c.State
	if err != nil {
		d.Text = err.Error()
		for i, kind := range kinds {
			if errors.Is(err, kind) {
				d.Kind = i + 1
				break
			}
		}
	}
	return d
}

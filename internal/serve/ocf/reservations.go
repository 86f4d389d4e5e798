package ocf

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"sync"
	"time"

	"github.com/mortarhpc/mortar/internal/base/pr"
	"github.com/mortarhpc/mortar/internal/serve/kernel"
	"github.com/mortarhpc/mortar/internal/serve/unit"
)

// reservations keep every server but one from writing to the storage, see base/pr.
type reservations interface {
	// Keep looks after the reservation of storage that is in use here, and gives its holder.
	Keep(ctx context.Context) (holder string, err error)
	// Give gives up what this server has; what others have stays.
	Give(ctx context.Context) error
	// Holder is the server that the storage is reserved for; "" for none, or no server of the
	// cluster.
	Holder() (string, error)
	// Alone says whether no other server can write to the devices that are in use here.
	Alone(ctx context.Context) bool
	// Reserved are the devices of the service that this server has reserved. Claim is one of them,
	// to be read; nil: it is not here.
	Reserved() []string
	Claim(device string) *pr.Claim
}

// noReservations is what storage has whose devices know none.
type noReservations struct{}

func (noReservations) Keep(context.Context) (string, error) { return "", nil }
func (noReservations) Give(context.Context) error           { return nil }
func (noReservations) Holder() (string, error)              { return "", nil }
func (noReservations) Alone(context.Context) bool           { return false }
func (noReservations) Reserved() []string                   { return nil }
func (noReservations) Claim(string) *pr.Claim               { return nil }

// keys are those of Reservations, which check has read.
func (c *Config) keys() pr.Servers {
	all, _ := pr.ParseServers(c.Reservations)
	return all
}

func (c *Config) checkReservations(f *unit.Faults) {
	var seen []string
	for n, text := range c.Reservations {
		if _, err := pr.ParseKey(text); err != nil {
			f.Add("reservations.%s: %w", n, err)
		}
		if _, ok := c.Nodes[n]; !ok || slices.Contains(seen, text) {
			f.Add("reservations.%s %s: each of nodes needs a key of its own", n, text)
		}
		seen = append(seen, text)
	}
	if len(c.Reservations) > 0 && len(c.Reservations) != len(c.Nodes) {
		f.Add("reservations has %d keys: each of nodes needs a key of its own", len(c.Reservations))
	}
}

// guardTick is the pause between two looks at whose the devices are. Until the next one a server
// that was frozen, and goes on, answers to an address that its partner has.
const guardTick = 250 * time.Millisecond

// guard has a server whose devices the partner has taken give up the service's address and reset
// itself, as soon as it runs again: a reservation stops writes, and no answer to a client. It
// waits for no look of the watcher, which a server that has lost its arrays fills with other work,
// for no lock of the service's actions, and for no device that hangs.
type guard struct {
	w    *watcher
	s    *service
	last int // device asked

	mu    sync.Mutex
	asked map[string]bool // devices that have not answered yet
}

func (w *watcher) guardOf(s *service) *guard {
	return &guard{w: w, s: s, asked: map[string]bool{}}
}

func (g *guard) run(ctx context.Context) {
	for g.w.k.Sleep(ctx, guardTick) == nil {
		if device := g.pick(); device != "" {
			go g.glance(ctx, device) // not waited for at the end
		}
	}
}

// pick gives the device to be asked next; "": none. It does not look at what is in use, which
// costs several times as much as to ask a device.
func (g *guard) pick() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := g.s.reserve.Reserved()
	for range all {
		g.last = (g.last + 1) % len(all)
		if device := all[g.last]; !g.asked[device] {
			g.asked[device] = true
			return device
		}
	}
	return ""
}

// glance asks twice: between the two looks at what is in use a stop may have given the device up,
// and a start may have reserved it again.
func (g *guard) glance(ctx context.Context, device string) {
	defer func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.asked, device)
	}()
	var c *pr.Claim
	for range 2 {
		if c = g.s.reserve.Claim(device); c == nil || c.Read() != nil || !c.Gone() || !g.s.up() {
			return
		}
	}
	g.s.kind.Silence(ctx, g.w.log)
	g.w.log("%v", g.s.resetServer(c.By(), nil))
}

// HeedAction has the agent show, with a key, that disks that carry nothing heed reservations. A
// disk that knows none, or has one path here, is used as it is.
const HeedAction = "_heed"

func (a *agent) heed(text string, devices []string) int {
	key, err := pr.ParseKey(text)
	h := &unit.Host{K: kernel.New()}
	for _, dev := range devices {
		if err != nil {
			break
		}
		var paths []string
		if real, rerr := h.K.Realpath(dev); rerr == nil {
			paths = h.PathsOf(path.Base(real))
		}
		if len(paths) < 2 {
			fmt.Fprintf(a.stderr, "%s has %d paths: whether it heeds reservations is not shown\n", dev, len(paths))
			continue
		}
		switch herr := pr.Heeds(key, paths[0], paths[1]); {
		case errors.Is(herr, pr.ErrHeedless):
			err = fmt.Errorf("%s: %w. See its firmware or interposer; without it, or with `ha.reservations: off`, apply goes on", dev, herr)
		case herr != nil:
			fmt.Fprintf(a.stderr, "%s is not reserved: %v\n", dev, herr)
		}
	}
	if err != nil {
		a.reason(err)
		return ErrGeneric
	}
	return Success
}

package ocf

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
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
	// Glance says whether another server has taken a device that this one has reserved, and which
	// one. It asks one device, and may wait for that.
	Glance() (by string, taken bool)
}

// noReservations is what storage has whose devices know none.
type noReservations struct{}

func (noReservations) Keep(context.Context) (string, error) { return "", nil }
func (noReservations) Give(context.Context) error           { return nil }
func (noReservations) Holder() (string, error)              { return "", nil }
func (noReservations) Alone(context.Context) bool           { return false }
func (noReservations) Glance() (string, bool)               { return "", false }

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
// waits for no look of the watcher, which a server that has lost its arrays fills with other work.
func (w *watcher) guard(ctx context.Context, s *service) {
	for w.k.Sleep(ctx, guardTick) == nil {
		w.glance(ctx, s)
	}
}

func (w *watcher) glance(ctx context.Context, s *service) {
	// In this order: the look at all that is in use costs several times as much as the look at one device.
	by, taken := s.reserve.Glance()
	if !taken || !s.up() {
		return
	}
	s.kind.Silence(ctx, w.log)
	unlock, err := w.lock(s.cfg.Service)
	if err != nil {
		return // the start or stop sees it
	}
	defer unlock()
	if s.up() {
		w.log("%v", s.resetServer(by, nil))
	}
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

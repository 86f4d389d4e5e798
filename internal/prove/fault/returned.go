package fault

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/converge/plan"
	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/host/agent"
	"github.com/mortarhpc/mortar/internal/host/gather"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/prove/kind"
	"github.com/mortarhpc/mortar/internal/prove/report"
	"github.com/mortarhpc/mortar/internal/prove/testbed"
	"github.com/mortarhpc/mortar/internal/run/observe"
)

// What remains to be done once the hardware is whole again.

// returnSlow gives a disk back that was dropped because it was slow.
func returnSlow(ctx context.Context, b *Site, f Fault) error {
	if !b.Service.Storage.DropSlow {
		return nil
	}
	on, err := b.server(ctx, b.Service.Name)
	if err != nil {
		return fmt.Errorf("disk %s cannot be given back: %w", f.Args[0], err)
	}
	if err := untilSeen(ctx, func() error { return forgetDropped(ctx, b, on, f.Args[0]) }); err != nil {
		return err
	}
	return returnDisk(ctx, b, f)
}

// forgetDropped removes the record by which apply leaves a dropped disk out. Its error
// says that the record is still there.
func forgetDropped(ctx context.Context, b *Site, server, serial string) error {
	h, err := gathered(ctx, b, server, gather.Request{CIB: true})
	if err != nil {
		return err
	}
	if h.CIB == nil {
		return fmt.Errorf("%s: the cluster's configuration cannot be read", server)
	}
	for _, d := range h.CIB.Dropped() {
		if !strings.EqualFold(d.Serial, serial) {
			continue
		}
		if err := b.Do(ctx, server, resource.Action{Title: "forget that " + serial + " was slow", Cmd: d.Forget()}); err != nil {
			return err
		}
		return fmt.Errorf("the cluster's configuration still has disk %s as dropped", serial)
	}
	return nil
}

// returnDisk adds a disk that is in its slot again to its array, as a spare or in
// its old place, or an SSD to its cache, with the actions of `mortar apply`.
func returnDisk(ctx context.Context, b *Site, f Fault) error {
	if err := healAgain(ctx, b, f); err != nil {
		return err
	}
	serial, service := f.Args[0], b.Service.Name
	give := func(server string) error { return applyCache(ctx, b, Fault{On: server, Args: []string{service}}) }
	if cacheHas(b.Design, serial) {
		b.Say("giving SSD %s back to the cache", serial)
	} else {
		i := slices.IndexFunc(b.Design.Groups, func(g design.Group) bool {
			return slices.ContainsFunc(slices.Concat(g.Members, g.Spares), func(d design.Disk) bool { return d.Serial == serial })
		})
		if i < 0 {
			return fmt.Errorf("disk %s is of no group", serial)
		}
		g := b.Design.Groups[i]
		wire, err := agent.Wire(plan.ArrayOf(b.Design, g))
		if err != nil {
			return err
		}
		if on := b.Design.On(g.Name); on != nil {
			service = on.Name
		}
		b.Say("giving disk %s back to array %s", serial, g.Name)
		give = func(server string) error { return giveBack(ctx, b, server, g, wire) }
	}
	// The service may be on its way.
	err := untilSeen(ctx, func() error {
		on, err := b.server(ctx, service)
		if err != nil {
			return err
		}
		return give(on)
	})
	if err != nil {
		return fmt.Errorf("disk %s: %w", serial, err)
	}
	return nil
}

func giveBack(ctx context.Context, b *Site, server string, g design.Group, wire agent.WireResource) error {
	// A failed member stays in md's list until it is removed.
	for _, which := range []string{"failed", "detached"} {
		if err := b.Run(ctx, server, "take "+which+" members out of "+g.Name, "mdadm", "--manage", "/dev/md/"+g.Name, "--remove", which); err != nil {
			return err
		}
	}
	if err := applyResource(ctx, b, server, wire); err != nil {
		return fmt.Errorf("array %s: %w", g.Name, err)
	}
	return nil
}

// applyResource runs the actions of `mortar apply` for one resource of a server, until there are
// none.
func applyResource(ctx context.Context, b *Site, server string, wire agent.WireResource) error {
	for range 3 {
		ds, err := asked(ctx, b, server, func(s *host.Session, ctx context.Context) ([]agent.DiffResult, error) {
			return s.Diffs(ctx, []agent.WireResource{wire}, nil)
		})
		if err != nil {
			return err
		}
		if ds[0].Error != nil {
			return ds[0].Error
		}
		if len(ds[0].Actions) == 0 {
			return nil
		}
		for _, a := range ds[0].Actions {
			if err := b.Do(ctx, server, a); err != nil {
				return err
			}
		}
	}
	return errors.New("after three attempts mortar apply still has something to do")
}

// systemMirrors returns the mirrors of a server that are not part of the brick.
func systemMirrors(ctx context.Context, b *Site, server string) ([]observe.SystemArray, error) {
	h, err := gathered(ctx, b, server, gather.ArrayRequest())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", server, err)
	}
	return slices.DeleteFunc(observe.SystemArrays(b.Design, &h), func(a observe.SystemArray) bool { return a.Level != "raid1" }), nil
}

// mirrored returns why a server cannot lose a system disk, nil if it can.
func mirrored(ctx context.Context, b *Site, f Fault) error {
	server := f.On
	ms, err := systemMirrors(ctx, b, server)
	if err != nil {
		return err
	}
	if len(ms) == 0 {
		return &Refused{"the system of " + server + " is on no md RAID 1: it would not outlive the loss of a disk"}
	}
	for _, m := range ms {
		switch {
		case m.Degraded > 0:
			return &Unhealthy{[]string{fmt.Sprintf("system mirror %s of %s is degraded", m.Dev, server)}}
		case m.Busy:
			return &Unhealthy{[]string{fmt.Sprintf("system mirror %s of %s is being resynced or checked", m.Dev, server)}}
		}
	}
	return nil
}

// returnSystemDisk adds a system disk that is in its slot again to its mirrors,
// and waits until they are whole.
func returnSystemDisk(ctx context.Context, b *Site, f Fault) error {
	if err := healAgain(ctx, b, f); err != nil {
		return err
	}
	server := f.On
	b.Say("giving the system disk back to its mirror on %s", server)
	began := time.Now()
	added := map[string]bool{}
	err := host.Wait{Limit: b.Rejoin, Poll: 2 * time.Second}.Until(ctx, func(ctx context.Context) (string, error) {
		ms, err := systemMirrors(ctx, b, server)
		if err != nil {
			return err.Error(), nil
		}
		var left []string
		for _, m := range ms {
			if m.Degraded == 0 && !m.Busy {
				continue
			}
			left = append(left, fmt.Sprintf("%s lacks %d disks", m.Dev, m.Degraded))
			for _, dev := range m.Strays {
				if added[dev] {
					continue
				}
				// With a write-intent bitmap md copies only the data written meanwhile.
				// Source: mdadm(8), --add: a recent member is "re-added"
				if err := b.Run(ctx, server, "give "+dev+" back to "+m.Dev, "mdadm", "--manage", "/dev/"+m.Dev, "--add", "/dev/"+dev); err != nil {
					left = append(left, err.Error())
				} else {
					added[dev] = true
				}
			}
		}
		return strings.Join(left, "; "), nil
	})
	if err != nil {
		return fmt.Errorf("system mirror of %s not whole: %w", server, err)
	}
	b.Say("system mirror of %s whole again after %s", server, report.Seconds(time.Since(began).Seconds()))
	return nil
}

// Unmounted connects to a client that boots, and returns the mount points of the brick that
// are not mounted there.
func Unmounted(ctx context.Context, b *Site, client string) (missing []string, err error) {
	dctx, cancel := context.WithTimeout(ctx, DialTime)
	defer cancel()
	s, err := b.Hosts.Connect(dctx, b.Env.Dial, client)
	if err != nil {
		return nil, err
	}
	ms, err := testbed.Mounts(dctx, s)
	if err != nil {
		return nil, err
	}
	for _, want := range b.Design.Mounts {
		if m, ok := linux.MountAt(ms, want.Path); want.Client == client && (!ok || !strings.HasPrefix(m.Type, kind.For(want).Is().FSType)) {
			missing = append(missing, want.Path)
		}
	}
	return missing, nil
}

// clientBack waits until a client answers, and mounts what its boot has not mounted.
func clientBack(ctx context.Context, b *Site, f Fault) error {
	return host.Wait{Limit: ClientLimit, Poll: 2 * time.Second}.Until(ctx, func(ctx context.Context) (string, error) {
		missing, err := Unmounted(ctx, b, f.On)
		if err != nil {
			return err.Error(), nil
		}
		for _, at := range missing {
			if err := b.Run(ctx, f.On, "mount "+at, "mount", at); err != nil {
				return f.On + ": " + err.Error(), nil
			}
		}
		return "", nil
	})
}

// ClientLimit bounds the boot of a client, until it has its mounts.
const ClientLimit = 6 * time.Minute

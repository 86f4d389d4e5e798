package drill

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/host/gather"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/prove/report"
	"github.com/mortarhpc/mortar/internal/run/observe"
)

// localDisk pulls the first disk of the active server's system mirror.
func localDisk(s Scene) ([]Step, error) {
	f := Fault{Kind: LocalDisk, On: s.Active, Args: []string{"0"}}
	return []Step{{Fault: f, Wait: linkHold, Look: true, Until: mirrorDegraded(s.Active)}}, nil
}

// mirrorDegraded waits until `mortar status` reports that a server's system mirror is degraded.
func mirrorDegraded(server string) *Condition {
	return shows(time.Minute, signOf(observe.SystemArrayDegraded, "host", server))
}

// systemMirrors returns the mirrors of a server that are not part of the brick.
func (e *engine) systemMirrors(ctx context.Context, server string) ([]observe.SystemArray, error) {
	h, err := asked(ctx, e, server, func(s *host.Session, ctx context.Context) (gather.Host, error) {
		return host.Ask(ctx, s, gather.Op, observe.SystemRequest())
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", server, err)
	}
	return slices.DeleteFunc(observe.SystemArrays(e.env.Design, &h), func(a observe.SystemArray) bool { return a.Level != "raid1" }), nil
}

// mirrored returns why a server cannot lose a system disk, nil if it can.
func (e *engine) mirrored(ctx context.Context, f Fault) error {
	server := f.On
	ms, err := e.systemMirrors(ctx, server)
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
func (e *engine) returnSystemDisk(ctx context.Context, f Fault) error {
	if err := e.healAgain(ctx, f); err != nil {
		return err
	}
	server := f.On
	e.say("giving the system disk back to its mirror on %s", server)
	began := time.Now()
	added := map[string]bool{}
	err := host.Wait{Limit: e.opt.Rejoin, Poll: 2 * time.Second}.Until(ctx, func(ctx context.Context) (string, error) {
		ms, err := e.systemMirrors(ctx, server)
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
				a := resource.Action{Title: "give " + dev + " back to " + m.Dev, Cmd: []string{"mdadm", "--manage", "/dev/" + m.Dev, "--add", "/dev/" + dev}}
				if err := e.do(ctx, server, a); err != nil {
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
	e.say("system mirror of %s whole again after %s", server, report.Seconds(time.Since(began).Seconds()))
	return nil
}

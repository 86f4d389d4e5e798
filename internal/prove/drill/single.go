package drill

import (
	"slices"
	"time"
)

// A random schedule of one fault is judged as strictly as the drill of that fault, except
// where the outcome depends on how long the seed lets it last. So is one of several faults
// that do not touch the same.

// servers are those of the service's pair.
func (s Scene) servers() []string { return s.Design.PairOf(s.Service.Name).Servers }

// outcome is what a fault that comes alone does to the service and to the servers.
func (p Part) outcome(s Scene) (Place, Fencing) {
	// Where both servers serve, neither is passive.
	passive := p.On == onPassive && len(s.Design.PairOf(s.Service.Name).Services) == 1
	switch p.Kind {
	case PathOut, HBAOut, ModuleOut, DiskOut, DiskSlow, ClockJump, LocalDisk, FeedOff, BMCDead, PDUDead, ControllerOut, ControllerFailover, ArrayDisk, ArrayPower, LUNSlow:
		return Stays, Nobody
	case LinkDown, SwitchDown:
		if passive || p.Args[0] == "private" {
			return Stays, Nobody
		}
		return Anywhere, Nobody
	case Standby, LNetDown:
		if passive {
			return Stays, Nobody
		}
		return Anywhere, Nobody
	case Move:
		return Moves, Nobody
	case Kill:
		if slices.Contains(ofCluster, p.Args[0]) {
			return Anywhere, Allow
		}
		return Anywhere, Nobody
	case Panic, PowerOff:
		if p.On == onActive {
			return Moves, Victim
		}
	}
	if passive {
		return Stays, Allow
	}
	return Anywhere, Allow
}

// seen waits until a server has seen a fault after which the service stays. It is nil for
// other faults. It is nil, too, for a dead BMC, which is missed within minutes only, for LNet
// of a passive server, and for a slow disk below a write-back cache.
func (p Part) seen(s Scene) *Condition {
	if where, _ := p.outcome(s); where != Stays {
		return nil
	}
	if see := kinds[p.Kind].seen; see != nil {
		return see(s, p.fault(s))
	}
	return nil
}

// touches names the part of the brick that a fault harms after which the service stays; "":
// the fault may move the service beside another one. An array without power is one, and so
// are a slow disk and a slow LUN: they last until the others are seen, and no queue of a LUN
// and no monitor waits for long.
func (p Part) touches(s Scene) string {
	if where, fencing := p.outcome(s); where != Stays || fencing != Nobody {
		return ""
	}
	if p.Kind == LocalDisk {
		return "system disks of " + p.On
	}
	return kinds[p.Kind].harms
}

// alone says whether each fault is judged as if it came alone: there is one, or no two touch
// the same.
func (s Schedule) alone(scene Scene) bool {
	var touched []string
	for _, p := range s.Parts {
		what := p.touches(scene)
		if len(s.Parts) > 1 && (what == "" || slices.Contains(touched, what)) {
			return false
		}
		touched = append(touched, what)
	}
	return true
}

// expect is what must happen. Where one fault may harm the service beside another, any server
// may be fenced, and the service may be anywhere.
func (s Schedule) expect(disks bool, scene Scene) Expect {
	e := Expect{Where: Anywhere, Fencing: Allow, Stall: none, Disks: disks, Within: 10 * time.Minute}
	if s.alone(scene) {
		e.Where, e.Fencing = s.Parts[0].outcome(scene)
	}
	return e
}

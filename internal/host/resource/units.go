package resource

import (
	"context"
	"fmt"
	"strings"
)

// Unit is the wanted state of one systemd unit.
type Unit struct {
	Name string
	// Enabled: starts at boot. Active: runs now. Masked: cannot be started,
	// which leaves no room for the other two.
	Enabled, Active, Masked bool
	// Keep leaves alone whether it runs now.
	Keep bool `json:",omitempty"`
	// Optional: a unit that does not exist on this release is no fault.
	Optional bool   `json:",omitempty"`
	Why      string `json:",omitempty"`
}

// Units are the systemd units of one step, observed by a single systemctl.
type Units struct {
	Name string
	List []Unit
	// NoWait: a started unit comes up while other steps go on; a later step
	// waits for what it needs of it.
	NoWait bool `json:",omitempty"`
}

// Kind is "units".
func (u *Units) Kind() string { return "units" }

// ID is the name of the set.
func (u *Units) ID() string { return u.Name }

// Diff asks systemd once for all units.
func (u *Units) Diff(ctx context.Context, sys Sys) ([]Action, error) {
	state, err := unitStates(ctx, sys, u.List)
	if err != nil {
		return nil, err
	}
	var mask, unmask, enable, disable, start, stop []string
	var why []string
	for _, w := range u.List {
		s, known := state[w.Name]
		if (!known || s["LoadState"] == "not-found") && w.Optional {
			continue
		}
		active := s["ActiveState"] == "active" || s["ActiveState"] == "activating" || s["ActiveState"] == "reloading"
		if u.NoWait && s["Job"] != "" && s["Job"] != "0" {
			active = w.Active // it is on its way
		}
		masked := s["LoadState"] == "masked" || s["UnitFileState"] == "masked"
		enabled := s["UnitFileState"] == "enabled"
		n := len(mask) + len(unmask) + len(enable) + len(disable) + len(start) + len(stop)
		if w.Masked {
			if active && !w.Keep {
				stop = append(stop, w.Name)
			}
			if !masked {
				mask = append(mask, w.Name)
			}
		} else {
			if masked {
				unmask = append(unmask, w.Name)
				enabled = false
			}
			switch {
			case w.Enabled && !enabled && s["UnitFileState"] != "static":
				enable = append(enable, w.Name)
			case !w.Enabled && enabled:
				disable = append(disable, w.Name)
			}
			switch {
			case w.Keep:
			case w.Active && !active:
				start = append(start, w.Name)
			case !w.Active && active:
				stop = append(stop, w.Name)
			}
		}
		if w.Why != "" && n != len(mask)+len(unmask)+len(enable)+len(disable)+len(start)+len(stop) {
			why = append(why, w.Name+": "+w.Why)
		}
	}
	var as []Action
	for _, c := range []struct {
		verb  string
		units []string
	}{{"stop", stop}, {"unmask", unmask}, {"mask", mask}, {"disable", disable}, {"enable", enable}, {"start", start}} {
		if len(c.units) == 0 {
			continue
		}
		argv := []string{"systemctl", c.verb}
		if u.NoWait && c.verb == "start" {
			argv = append(argv, "--no-block")
		}
		as = append(as, Action{Title: c.verb + " " + strings.Join(c.units, " "), Cmd: append(argv, c.units...), Seconds: 180})
	}
	if len(as) > 0 {
		as[0].Why = strings.Join(why, "; ")
	}
	return as, nil
}

// unitStates maps unit names to their properties.
func unitStates(ctx context.Context, sys Sys, units []Unit) (map[string]map[string]string, error) {
	argv := []string{"systemctl", "show", "--property=Id,Names,LoadState,ActiveState,UnitFileState,Job"}
	for _, w := range units {
		argv = append(argv, w.Name)
	}
	out, installed, err := query(ctx, sys, argv...)
	if err != nil {
		return nil, err
	}
	if !installed {
		return nil, fmt.Errorf("systemctl is missing: the host does not run systemd")
	}
	if out.Code != 0 {
		return nil, failed(out, argv...)
	}
	return parseShow(out.Stdout), nil
}

// parseShow reads the blocks of `systemctl show`, by every name of a unit.
func parseShow(s string) map[string]map[string]string {
	m := map[string]map[string]string{}
	for block := range strings.SplitSeq(strings.TrimSpace(s), "\n\n") {
		p := map[string]string{}
		for line := range strings.Lines(block) {
			if k, v, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
				p[k] = v
			}
		}
		for _, n := range strings.Fields(p["Id"] + " " + p["Names"]) {
			m[n] = p
		}
	}
	return m
}

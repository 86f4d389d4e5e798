package drill

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/mortarhpc/mortar/internal/host/resource"
)

// settings are parameters of a server's kernel (sysctl) that a fault sets until the server
// boots.
var settings = map[Kind]map[string]string{
	// The kernel writes dirty data of this age to the disks, and looks for such data at this
	// interval, both in hundredths of a second; the defaults are 3000 and 500. A partner
	// that reaches the server resets it within seconds of its waking up. With these values
	// the server still writes its dirty data before the reset, as an unreachable server
	// does later.
	//
	// Source: Linux, Documentation/admin-guide/sysctl/vm.rst
	WriteSoon: {"vm.dirty_expire_centisecs": "100", "vm.dirty_writeback_centisecs": "50"},
	// KiB/s: a rebuild of the rack's small disks does not end before the drill does.
	//
	// Source: Linux, Documentation/admin-guide/md.rst
	HoldRebuild: {"dev.raid.speed_limit_max": "100", "dev.raid.speed_limit_min": "100"},
}

// set sets the parameters of a fault, and keeps what they were.
func (e *engine) set(ctx context.Context, f Fault) error {
	before := map[string]string{}
	for name := range settings[f.Kind] {
		text, err := e.read(ctx, f.On, "/proc/sys/"+strings.ReplaceAll(name, ".", "/"))
		if err != nil {
			return err
		}
		if before[name] = strings.TrimSpace(text); before[name] == settings[f.Kind][name] {
			return fmt.Errorf("%s of %s is %s already, left by a drill that was cut short: set it to what it was, or boot the server", name, f.On, before[name])
		}
	}
	if e.before == nil {
		e.before = map[Kind]map[string]string{}
	}
	e.before[f.Kind] = before
	return e.sysctl(ctx, f.On, settings[f.Kind])
}

// reset undoes set on a server that answers, and has not booted since.
func (e *engine) reset(ctx context.Context, f Fault) error {
	if err := e.undo(ctx, f); err != nil {
		e.say("parameters of %s are set back once it answers: %v", f.On, err)
	}
	return ctx.Err()
}

// resetBack undoes set once the server is back.
func (e *engine) resetBack(ctx context.Context, f Fault) error {
	return untilSeen(ctx, func() error { return e.undo(ctx, f) })
}

func (e *engine) undo(ctx context.Context, f Fault) error {
	to := map[string]string{}
	for name, value := range settings[f.Kind] {
		now, err := e.read(ctx, f.On, "/proc/sys/"+strings.ReplaceAll(name, ".", "/"))
		if err != nil {
			return err
		}
		if strings.TrimSpace(now) == value && e.before[f.Kind][name] != "" {
			to[name] = e.before[f.Kind][name]
		}
	}
	if len(to) == 0 {
		return nil
	}
	return e.sysctl(ctx, f.On, to)
}

func (e *engine) sysctl(ctx context.Context, server string, values map[string]string) error {
	cmd := []string{"sysctl", "--quiet", "--write"}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		cmd = append(cmd, name+"="+values[name])
	}
	return e.do(ctx, server, resource.Action{Title: "set parameters of the kernel", Cmd: cmd})
}

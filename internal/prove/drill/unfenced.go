package drill

import (
	"context"
	"fmt"
	"time"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/prove/kind"
	"github.com/mortarhpc/mortar/internal/prove/report"
)

// hangUnfenced makes the kernel panic on a server that no fence device reaches.
// The server's watchdog resets it.
func hangUnfenced(s Scene) ([]Step, error) {
	return append(unfenceable(s), Step{Fault: Fault{Kind: Panic, On: s.Active}, Until: resetItself(s.Active)}), nil
}

// stuckUnfenced makes the stop of the service fail on a server that no fence
// device reaches.
func stuckUnfenced(s Scene) ([]Step, error) {
	held := kind.Of(s.Design).Files(s.Service)
	if held == "" {
		// The targets are unmounted, and their volume group stays.
		if s.Service.Storage.VG == "" || len(s.Service.Targets) == 0 {
			return nil, errNoFiles
		}
		held = s.Service.Targets[0].Device
	}
	return append(unfenceable(s),
		Step{Fault: Fault{Kind: HoldFS, On: s.Active, Args: []string{held}}, Prepare: true},
		Step{Fault: Fault{Kind: LinkDown, On: s.Active, Args: []string{"public"}}, Until: resetItself(s.Active)},
	), nil
}

// resetItself waits until a server has booted after the fault.
func resetItself(server string) *Condition {
	return &Condition{What: "the server has reset itself", Limit: 10 * time.Minute, Look: func(ctx context.Context, v *View) (bool, string) {
		text, err := v.e.read(ctx, server, "/proc/uptime")
		if err != nil {
			return false, server + " does not answer"
		}
		up, ok := linux.Uptime(text)
		since := time.Since(time.Unix(0, v.fault))
		return ok && up < since, fmt.Sprintf("%s has run for %s, %s after the fault", server, report.Seconds(up.Seconds()), report.Seconds(since.Seconds()))
	}}
}

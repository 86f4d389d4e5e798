package drill

import (
	"fmt"
	"slices"

	"github.com/mortarhpc/mortar/internal/prove/report"
)

// judgeMMP checks that multiple mount protection never found a Lustre target in use on two
// servers. A server that wakes up after its partner has taken over must find that, and stop.
// Without a target that was mounted anew there is no check.
func judgeMMP(events []report.Event, fault int64, wakes bool) []report.Check {
	const name = "MMP found no second server"
	var mounted bool
	for _, e := range events {
		if e.NS < fault {
			continue
		}
		if e.Kind == report.EventMMP && !wakes {
			return []report.Check{{Name: name, Detail: fmt.Sprintf("%s, %s after the fault: %s", e.Host, report.Seconds(float64(e.NS-fault)/1e9), e.Text)}}
		}
		mounted = mounted || e.Source == "kernel" && recoveryOver().MatchString(e.Text)
	}
	if !mounted || wakes && slices.ContainsFunc(events, func(e report.Event) bool { return e.Kind == report.EventMMP }) {
		return nil
	}
	return []report.Check{{Name: name, OK: true, Detail: "no server's kernel found a target in use on another one"}}
}

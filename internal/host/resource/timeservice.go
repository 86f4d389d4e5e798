package resource

import (
	"slices"
	"strings"
)

// timeUnits keep a clock right, by the names that distributions have for them.
//
// Source: packages chrony, systemd-timesyncd, ntpsec, openntpd, linuxptp of Debian 13; chrony of RHEL 9
var timeUnits = []string{"chrony.service", "chronyd.service", "systemd-timesyncd.service", "ntpsec.service", "ntp.service", "ntpd.service",
	"openntpd.service", "phc2sys.service", "timemaster.service"}

// TimeService keeps a host's clock right. Mortar leaves any time service that runs
// already as it is. A host without one gets chrony with the distribution's
// configuration.
//
// Locks, leases, logs of several hosts and the check of acknowledged writes all
// compare times.
type TimeService struct{}

func (t *TimeService) Identity() (kind, id string) { return "time", "service" }

// Diff asks systemd which time services run.
func (t *TimeService) Diff(sys Look) ([]Action, error) {
	d := sys.Distro()
	out, err := sys.Query(sys.Ctx, append([]string{"systemctl", "is-active"}, timeUnits...)...) // its code says that one is not
	sys.Check(err)
	for state := range strings.FieldsSeq(out.Stdout) {
		if slices.Contains([]string{"active", "activating", "reloading"}, state) {
			return nil, nil
		}
	}
	have := installed(sys, d.Manager)
	missing := slices.DeleteFunc(slices.Clone(d.Packages.Time), func(n string) bool { return have[n] })
	return append(install(sys, d.Manager, missing), Action{Title: "enable and start " + d.TimeUnit, Why: "no time service runs here",
		Cmd: []string{"systemctl", "enable", "--now", d.TimeUnit}}), nil
}

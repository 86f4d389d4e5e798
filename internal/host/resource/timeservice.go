package resource

import (
	"context"
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

// Kind is "time".
func (t *TimeService) Kind() string { return "time" }

// ID is what it is about.
func (t *TimeService) ID() string { return "service" }

// Diff asks systemd which time services run.
func (t *TimeService) Diff(ctx context.Context, sys Sys) ([]Action, error) {
	d, err := distroOf(sys)
	if err != nil {
		return nil, err
	}
	out, err := sys.Query(ctx, append([]string{"systemctl", "is-active"}, timeUnits...)...)
	if err != nil {
		return nil, err
	}
	for state := range strings.FieldsSeq(out.Stdout) {
		if slices.Contains([]string{"active", "activating", "reloading"}, state) {
			return nil, nil
		}
	}
	have, err := installed(ctx, sys, d.Manager)
	if err != nil {
		return nil, err
	}
	missing := slices.DeleteFunc(slices.Clone(d.Packages.Time), func(n string) bool { return have[n] })
	as, err := install(sys, d.Manager, missing)
	if err != nil {
		return nil, err
	}
	return append(as, Action{Title: "enable and start " + d.TimeUnit, Why: "no time service runs here",
		Cmd: []string{"systemctl", "enable", "--now", d.TimeUnit}}), nil
}

package resource

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"
)

// Packages are Debian packages that must be installed.
type Packages struct {
	Names []string
	// ByRelease adds packages that only a release (VERSION_ID) has.
	ByRelease map[string][]string `json:",omitempty"`
}

// Kind is "packages".
func (p *Packages) Kind() string { return "packages" }

// ID is the list of names.
func (p *Packages) ID() string { return strings.Join(p.Names, " ") }

const policyRC = "/usr/sbin/policy-rc.d"

// Debian starts a daemon when its package is installed. A cluster stack that
// runs before it is configured forms a cluster of its own, and nfsd would
// serve outside Pacemaker: while Mortar installs, invoke-rc.d is told no.
var policyBody = []byte("#!/bin/sh\n" + Header + "exit 101\n")

// Diff reads dpkg's status file.
func (p *Packages) Diff(_ context.Context, sys Sys) ([]Action, error) {
	b, err := sys.ReadFile("/var/lib/dpkg/status")
	if err != nil {
		return nil, err
	}
	names := p.Names
	if len(p.ByRelease) > 0 {
		v, err := osRelease(sys)
		if err != nil {
			return nil, err
		}
		names = append(slices.Clone(names), p.ByRelease[v["VERSION_ID"]]...)
	}
	missing := missingPackages(string(b), names)
	policy, err := sys.ReadFile(policyRC)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	ours := slices.Equal(policy, policyBody)
	var as []Action
	if len(missing) > 0 {
		// apt looks for these, too, and refuses to go on: "dpkg was interrupted".
		cutOff, err := sys.Glob("/var/lib/dpkg/updates/[0-9]*")
		if err != nil {
			return nil, err
		}
		hold := len(policy) == 0 || ours // an administrator's own policy is left alone
		if hold && !ours {
			as = append(as, Action{
				Title: "keep new daemons from starting", Why: "they are started once they are configured",
				File: &File{Path: policyRC, Content: policyBody, Mode: 0o755},
			})
		}
		if len(cutOff) > 0 {
			as = append(as, Action{
				Title: "finish what dpkg was doing when it was cut off", Why: "the host lost power, or dpkg was killed, in the middle of an installation",
				Cmd: []string{"dpkg", "--force-confold", "--configure", "-a"}, Seconds: 1800,
			})
		}
		as = append(as, Action{Title: "update the package lists", Cmd: []string{"apt-get", "-q", "update"}, Seconds: 600})
		as = append(as, Action{
			Title: "install " + strings.Join(missing, " "),
			// A server that was just set up is often busy with upgrades of its own:
			// apt-get alone would fail at once. Source: apt.conf(5), DPkg::Lock.
			Cmd: append([]string{"apt-get", "-q", "-y", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=600",
				"-o", "Dpkg::Options::=--force-confold", "install"}, missing...),
			Seconds: 1800,
		})
		ours = hold
	}
	if ours {
		as = append(as, Action{Title: "let daemons start again", File: &File{Path: policyRC, Remove: true}})
	}
	return as, nil
}

// missingPackages returns the names that are not 'install ok installed'.
func missingPackages(status string, names []string) []string {
	want := map[string]bool{}
	for _, n := range names {
		want[n] = true
	}
	name := ""
	for line := range strings.Lines(status) {
		switch {
		case strings.HasPrefix(line, "Package: "):
			name = strings.TrimSpace(line[len("Package: "):])
		case strings.HasPrefix(line, "Status: "):
			if strings.HasSuffix(strings.TrimSpace(line), " ok installed") {
				delete(want, name)
			}
		}
	}
	var missing []string
	for _, n := range names {
		if want[n] {
			missing = append(missing, n)
		}
	}
	return missing
}

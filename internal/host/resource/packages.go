package resource

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/distro"
)

// Packages are packages that must be installed, by the names that the host's
// distribution has for them.
type Packages struct {
	Names []string
	// Fence are those of fence agents, installed after the others.
	Fence []string `json:",omitempty"`
}

// Kind is "packages".
func (p *Packages) Kind() string { return "packages" }

// ID is the list of names.
func (p *Packages) ID() string { return strings.Join(p.Names, " ") }

// Diff asks the host's package manager which of them are there.
func (p *Packages) Diff(ctx context.Context, sys Sys) ([]Action, error) {
	d, err := distroOf(sys)
	if err != nil {
		return nil, err
	}
	m := d.Manager
	have, err := installed(ctx, sys, m)
	if err != nil {
		return nil, err
	}
	missing := slices.DeleteFunc(slices.Concat(p.Names, p.Fence), func(n string) bool { return have[n] })
	as, err := install(sys, m, missing)
	if err != nil {
		return nil, err
	}
	return quietly(sys, m, as)
}

// quietly puts around an installation what keeps new daemons from starting. It also takes away what
// an installation left that was cut short.
func quietly(sys Sys, m distro.Manager, as []Action) ([]Action, error) {
	if m.HoldFile == "" {
		return as, nil
	}
	hold := []byte("#!/bin/sh\n" + Header + m.HoldLines)
	policy, err := sys.ReadFile(m.HoldFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	ours := slices.Equal(policy, hold)
	if len(as) > 0 && len(policy) == 0 { // an administrator's own policy is left alone
		as = append([]Action{{
			Title: "keep new daemons from starting", Why: "they are started once they are configured",
			File: &File{Path: m.HoldFile, Content: hold, Mode: 0o755},
		}}, as...)
		ours = true
	}
	if ours {
		as = append(as, Action{Title: "let daemons start again", File: &File{Path: m.HoldFile, Remove: true}})
	}
	return as, nil
}

// UpgradePackages are the actions that install the newest version of every
// package. Daemons of packages are not restarted meanwhile: they would be of
// several versions, and a reboot follows.
func UpgradePackages(m distro.Manager) []Action {
	var as []Action
	if len(m.Refresh) > 0 {
		as = append(as, Action{Title: "update the package lists", Cmd: m.Refresh, Seconds: 600})
	}
	upgrade := Action{Title: "upgrade the packages", Cmd: m.Upgrade, Seconds: 3600}
	if m.HoldFile == "" {
		return append(as, upgrade)
	}
	return append(as,
		Action{Title: "keep daemons from being restarted", Why: "the server is rebooted when all are upgraded",
			File: &File{Path: m.HoldFile, Content: []byte("#!/bin/sh\n" + Header + m.HoldLines), Mode: 0o755}},
		upgrade,
		Action{Title: "let daemons start again", File: &File{Path: m.HoldFile, Remove: true}})
}

// installed are the names of the packages that the host has.
func installed(ctx context.Context, sys Sys, m distro.Manager) (map[string]bool, error) {
	if m.Status != "" {
		b, err := sys.ReadFile(m.Status)
		if err != nil {
			return nil, err
		}
		return m.Installed(string(b)), nil
	}
	out, err := sys.Query(ctx, m.Query...)
	if err != nil {
		return nil, err
	}
	if out.Code != 0 {
		return nil, fmt.Errorf("%s: exit code %d: %s", strings.Join(m.Query, " "), out.Code, out.Stderr)
	}
	return m.Installed(out.Stdout), nil
}

// install are the actions that install what is missing.
func install(sys Sys, m distro.Manager, missing []string) ([]Action, error) {
	if len(missing) == 0 {
		return nil, nil
	}
	var as []Action
	if m.CutOff != "" {
		cutOff, err := sys.Glob(m.CutOff)
		if err != nil {
			return nil, err
		}
		if len(cutOff) > 0 {
			as = append(as, Action{
				Title: "finish what " + m.Mend[0] + " was doing when it was cut off",
				Why:   "the host lost power, or " + m.Mend[0] + " was killed, in the middle of an installation",
				Cmd:   m.Mend, Seconds: 1800,
			})
		}
	}
	if len(m.Refresh) > 0 {
		as = append(as, Action{Title: "update the package lists", Cmd: m.Refresh, Seconds: 600})
	}
	return append(as, Action{
		Title: "install " + strings.Join(missing, " "),
		Cmd:   slices.Concat(m.Install, missing), Seconds: 1800,
	}), nil
}

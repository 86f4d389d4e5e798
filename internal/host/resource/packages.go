package resource

import (
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

func (p *Packages) Identity() (kind, id string) { return "packages", strings.Join(p.Names, " ") }

// Diff asks the host's package manager which of them are there.
func (p *Packages) Diff(sys Look) ([]Action, error) {
	m := sys.Distro().Manager
	have := installed(sys, m)
	missing := slices.DeleteFunc(slices.Concat(p.Names, p.Fence), func(n string) bool { return have[n] })
	return quietly(sys, m, install(sys, m, missing)), nil
}

// quietly puts around an installation what keeps new daemons from starting. It also takes away what
// an installation left that was cut short.
func quietly(sys Look, m distro.Manager, as []Action) []Action {
	hold := "#!/bin/sh\n" + Header + m.HoldLines
	policy, _ := sys.File(m.HoldFile)
	ours := policy == hold
	if len(as) > 0 && len(policy) == 0 { // an administrator's own policy is left alone
		as = append([]Action{{
			Title: "keep new daemons from starting", Why: "they are started once they are configured",
			File: &File{Path: m.HoldFile, Content: []byte(hold), Mode: 0o755},
		}}, as...)
		ours = true
	}
	if ours {
		as = append(as, Action{Title: "let daemons start again", File: &File{Path: m.HoldFile, Remove: true}})
	}
	return as
}

// UpgradePackages are the actions that install the newest version of every
// package. Daemons of packages are not restarted meanwhile: they would be of
// several versions, and a reboot follows.
func UpgradePackages(m distro.Manager) []Action {
	return []Action{
		{Title: "update the package lists", Cmd: m.Refresh, Seconds: 600},
		{Title: "keep daemons from being restarted", Why: "the server is rebooted when all are upgraded",
			File: &File{Path: m.HoldFile, Content: []byte("#!/bin/sh\n" + Header + m.HoldLines), Mode: 0o755}},
		{Title: "upgrade the packages", Cmd: m.Upgrade, Seconds: 3600},
		{Title: "let daemons start again", File: &File{Path: m.HoldFile, Remove: true}},
	}
}

// installed are the names of the packages that the host has.
func installed(sys Look, m distro.Manager) map[string]bool {
	return m.Installed(sys.Must(m.Status))
}

// install are the actions that install what is missing.
func install(sys Look, m distro.Manager, missing []string) []Action {
	if len(missing) == 0 {
		return nil
	}
	var as []Action
	if len(sys.Files(m.CutOff)) > 0 {
		as = append(as, Action{
			Title: "finish what " + m.Mend[0] + " was doing when it was cut off",
			Why:   "the host lost power, or " + m.Mend[0] + " was killed, in the middle of an installation",
			Cmd:   m.Mend, Seconds: 1800,
		})
	}
	return append(as, Action{Title: "update the package lists", Cmd: m.Refresh, Seconds: 600}, Action{
		Title: "install " + strings.Join(missing, " "),
		Cmd:   slices.Concat(m.Install, missing), Seconds: 1800,
	})
}

package resource

import (
	"slices"
	"testing"

	"github.com/mortarhpc/mortar/internal/base/distro"
)

// A package manager without a status file is asked by a command, and one whose
// packages start no daemons needs nothing around an installation.
func TestManagerThatIsAsked(t *testing.T) {
	all := distro.All()
	m := all[slices.IndexFunc(all, func(d distro.Distro) bool { return d.ID == "rhel" })].Manager
	sys := &Paper{Outputs: map[string]Output{"rpm -qa --qf %{NAME}\\n": {Stdout: "mdadm\nlvm2\n"}}}
	look := Look{sys, t.Context()}
	if have := installed(look, m); !have["mdadm"] || have["pacemaker"] {
		t.Errorf("%v", have)
	}
	wantShow(t, install(look, m, []string{"corosync", "pacemaker"}), "dnf -q -y --setopt=install_weak_deps=False install corosync pacemaker")
	if as := install(look, m, nil); len(as) > 0 {
		t.Errorf("%v", as)
	}
	sys.Outputs["rpm -qa --qf %{NAME}\\n"] = Output{Code: 1, Stderr: "error: cannot open Packages database\n"}
	if have, err := Observe(t.Context(), sys, func(l Look) (map[string]bool, error) { return installed(l, m), nil }); err == nil {
		t.Errorf("a database that cannot be read has %v", have)
	}
}

// osRelease has a host on paper be Debian 13.
const osRelease = "ID=debian\nVERSION_ID=\"13\"\n"

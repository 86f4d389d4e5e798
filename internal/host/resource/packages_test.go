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
	sys := &fakeSys{outputs: map[string]Output{"rpm -qa --qf %{NAME}\\n": {Stdout: "mdadm\nlvm2\n"}}}
	have, err := installed(t.Context(), sys, m)
	if err != nil || !have["mdadm"] || have["pacemaker"] {
		t.Errorf("%v %v", have, err)
	}
	as, err := install(sys, m, []string{"corosync", "pacemaker"})
	if err != nil {
		t.Error(err)
	}
	wantShow(t, as, "dnf -q -y --setopt=install_weak_deps=False install corosync pacemaker")
	if as, err := install(sys, m, nil); err != nil || len(as) > 0 {
		t.Errorf("%v %v", as, err)
	}
	sys.outputs["rpm -qa --qf %{NAME}\\n"] = Output{Code: 1, Stderr: "error: cannot open Packages database\n"}
	if have, err := installed(t.Context(), sys, m); err == nil {
		t.Errorf("a database that cannot be read has %v", have)
	}
}

package ocf

import (
	"errors"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/internal/base/distro"
	"github.com/mortarhpc/mortar/internal/serve/kernel"
	"github.com/mortarhpc/mortar/internal/serve/lustre"
)

// Each program that a kind runs has a package in each distribution: the agent
// names it where the program is missing.
func TestProgramsHavePackages(t *testing.T) {
	c := testConfig()
	c.Namespace = "mortar-home"
	s := newShared(t).hosts["nfs1"].service(c)
	programs := append(s.storage.Programs(), s.kind.Programs()...)
	programs = append(append(programs, (&lustre.Kind{}).Programs()...), "lvm")
	for _, d := range distro.All() {
		for _, p := range programs {
			if d.Programs[p] == "" {
				t.Errorf("%s has no package for %s", d.Name, p)
			}
		}
	}
}

// A missing program is named with its package, by the host's own distribution.
func TestMissingProgram(t *testing.T) {
	s := newShared(t).hosts["nfs1"].service(testConfig())
	s.K = without{s.K, "lvm"}
	code, err := s.validate("start")
	if code != ErrInstalled || err == nil || !strings.Contains(err.Error(), "lvm is not installed (Debian 13 package lvm2)") {
		t.Errorf("%d %v", code, err)
	}
	if code, err := s.validate("stop"); code != Success || err != nil {
		t.Errorf("a stop is tried whatever is missing: %d %v", code, err)
	}
}

// without is a host on which a program is not installed.
type without struct {
	kernel.Host
	program string
}

func (w without) Executable(name string) (string, error) {
	if name == w.program {
		return "", errors.New("not found")
	}
	return w.Host.Executable(name)
}

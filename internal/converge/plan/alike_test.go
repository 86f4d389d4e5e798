package plan

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/internal/base/distro"
	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/host/agent"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

// A new server that is of another release than its partner is refused before anything is
// installed on it. Two servers in the cluster may differ: an upgrade goes from one to the other.
func TestAlike(t *testing.T) {
	d := testDesign(t, "nfs-ha")
	debian := func(v string) linux.OSRelease {
		return linux.OSRelease{ID: "debian", Version: v, Name: "Debian GNU/Linux " + v}
	}
	old := Software{"kernel": "6.1.0-28-amd64", "pacemaker": "2.1.5-1+deb12u1", "corosync": "3.1.7-1", "nfs-kernel-server": "1:2.6.2-4"}
	with := func(s Software, change ...string) Software {
		s = maps.Clone(s)
		for i := 0; i < len(change); i += 2 {
			s[change[i]] = change[i+1]
		}
		return s
	}
	for _, tc := range []struct {
		name       string
		os1, os2   string
		nfs1, nfs2 Software
		members    string // servers that are in the cluster
		refused    string // host
		want       []string
	}{
		{"alike", "12", "12", old, with(old), "nfs1", "", nil},
		{"corrections", "12", "12", old, with(old, "kernel", "6.1.0-31-amd64", "corosync", "3.1.9-2", "pacemaker", "2.1.9-1"), "nfs1", "", nil},
		{"a new server, with a newer system", "12", "13", old, with(old, "pacemaker", "3.0.0-5", "nfs-kernel-server", "1:2.8.3-1", "kernel", "6.12.1"), "nfs1", "nfs2",
			[]string{"Debian GNU/Linux 13, not Debian GNU/Linux 12", "pacemaker 3.0.0-5, not 2.1.5-1+deb12u1", "nfs-kernel-server 1:2.8.3-1, not 1:2.6.2-4", "kernel 6.12.1, not 6.1.0-28-amd64"}},
		{"the first is the new one", "12", "12", with(old, "kernel", "6.12.9"), old, "nfs2", "nfs1", []string{"kernel 6.12.9, not 6.1.0-28-amd64"}},
		{"both are new", "13", "12", old, old, "", "nfs1", []string{"Debian GNU/Linux 13, not Debian GNU/Linux 12"}},
		{"it cannot say", "12", "12", old, Software{"kernel": "6.1.0"}, "nfs1", "", nil},
		{"an upgrade half way", "13", "12", with(old, "pacemaker", "3.0.0-5", "kernel", "6.12.1"), old, "nfs1 nfs2", "", nil},
	} {
		facts := Facts{OS: map[string]linux.OSRelease{"nfs1": debian(tc.os1), "nfs2": debian(tc.os2)}, Software: map[string]Software{"nfs1": tc.nfs1, "nfs2": tc.nfs2}, Hosts: map[string]resource.HostFacts{}}
		for server := range strings.FieldsSeq(tc.members) {
			facts.Hosts[server] = resource.HostFacts{Configured: []linux.CRMResource{{ID: "service-home"}}}
		}
		_, err := Desired(d, facts, testSecrets)
		if tc.refused == "" {
			if err != nil {
				t.Errorf("%s: %v", tc.name, err)
			}
			continue
		}
		var r Refusals
		if !errors.As(err, &r) || len(r) != 1 || r[0].Host != tc.refused {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		for _, w := range tc.want {
			if !r[0].Has("partner-differs", "host", tc.refused, "differs", w) {
				t.Errorf("%s: %v lacks %q", tc.name, r, w)
			}
		}
	}
}

// told answers queries by their first word.
type told map[string]resource.Output

func (told) Hello(context.Context) (agent.Hello, error) { return agent.Hello{Kernel: "6.1.0"}, nil }

func (a told) Query(_ context.Context, argv ...string) (resource.Output, error) {
	if err := resource.ReadOnly(argv); err != nil {
		return resource.Output{}, err
	}
	return a[argv[0]], nil
}

func TestSoftwareOf(t *testing.T) {
	deb, _ := distro.OfSuite("bookworm")
	// A new server, with dpkg-query's answer for what it lacks and what apt-get would install.
	s, err := softwareOf(t.Context(), told{
		"dpkg-query": {Stdout: "nfs-kernel-server \ncorosync 3.1.7-1\n", Stderr: "dpkg-query: no packages found matching pacemaker\n", Code: 1},
		"apt-get":    {Stdout: "Inst libqb100 (2.0.6-2 Debian:12 [amd64])\nInst pacemaker (2.1.5-1+deb12u1 Debian:12.5/stable [amd64])\nInst nfs-kernel-server (1:2.6.2-4 Debian:12 [amd64])\nConf pacemaker (2.1.5-1+deb12u1 Debian:12.5/stable [amd64])\n"},
	}, deb)
	want := map[string]string{"kernel": "6.1.0", "corosync": "3.1.7-1", "pacemaker": "2.1.5-1+deb12u1", "nfs-kernel-server": "1:2.6.2-4"}
	if err != nil || !maps.Equal(s, want) {
		t.Errorf("%+v, %v", s, err)
	}
	// Without lists of packages.
	s, err = softwareOf(t.Context(), told{"dpkg-query": {Code: 1}, "apt-get": {Code: 100}}, deb)
	if err != nil || len(s) != 1 {
		t.Errorf("%+v, %v", s, err)
	}
	s, err = softwareOf(t.Context(), told{"dpkg-query": {Stdout: "corosync 3.1.7-1\npacemaker 2.1.5-1\nnfs-kernel-server 1:2.6.2-4\n"}}, deb)
	if err != nil || len(s) != 4 {
		t.Errorf("%+v, %v", s, err)
	}
}

package plan

import (
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

// What a distribution does to arrays and cluster at night ends, and the scrub is in its
// place: for arrays only where a brick has some, for the cluster only where there is one.
func TestBackground(t *testing.T) {
	for _, tc := range []struct {
		example, os      string
		checks, upgrades bool
	}{
		{"nfs-ha", "13", true, true}, {"nfs-ha", "12", true, true}, {"nfs", "12", true, false}, {"nss4-ha-144", "13", false, true},
	} {
		d := testDesign(t, tc.example)
		facts := Facts{OS: map[string]linux.OSRelease{}}
		for _, s := range d.Spec.Servers {
			facts.OS[s.Name] = linux.OSRelease{ID: "debian", Version: tc.os}
		}
		steps, err := Desired(d, facts, testSecrets)
		if err != nil {
			t.Fatal(err)
		}
		var masked, cron, upgrades, restarts, scrubs string
		for _, s := range steps {
			switch r := s.Resource.(type) {
			case *resource.Units:
				for _, u := range r.List {
					if u.Masked && strings.HasPrefix(u.Name, "mdcheck_") && u.Optional {
						masked += u.Name
					}
				}
			case *resource.TextFile:
				switch r.Path {
				case "/etc/cron.d/mdadm":
					if r.IfThere && !strings.Contains(string(r.Content), "checkarray") {
						cron += "gone "
					}
				case "/etc/apt/apt.conf.d/90mortar":
					upgrades = string(r.Content)
				case "/etc/needrestart/conf.d/mortar.conf":
					restarts = string(r.Content)
				case "/etc/mortar/scrub":
					scrubs = string(r.Content)
				}
			}
		}
		for what, has := range map[string]bool{
			"timers": strings.Contains(masked, "mdcheck_start.timer") && strings.Contains(masked, "mdcheck_continue.timer"), "cron": cron != "",
			"scrub": strings.HasPrefix(scrubs, "/dev/md/"),
		} {
			if has != tc.checks {
				t.Errorf("%s on Debian %s: %s: %v", tc.example, tc.os, what, has)
			}
		}
		if has := strings.Contains(upgrades, `"corosync"`) && strings.Contains(restarts, "corosync"); has != tc.upgrades {
			t.Errorf("%s on Debian %s: %q %q", tc.example, tc.os, upgrades, restarts)
		}
		for _, g := range d.Groups {
			if tc.checks && g.Level == 6 && !strings.Contains(scrubs, "/dev/md/"+g.Name+"\n") {
				t.Errorf("%s: %s is not scrubbed", tc.example, g.Name)
			}
		}
	}
}

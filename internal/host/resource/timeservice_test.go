package resource

import (
	"slices"
	"strings"
	"testing"
)

// A host without a time service gets chrony; one that has any keeps it.
func TestTimeService(t *testing.T) {
	const without, with = "Package: bash\nStatus: install ok installed\n", "Package: chrony\nStatus: install ok installed\n"
	for name, c := range map[string]struct {
		packages, states string
		want             []string
	}{
		"nothing there":     {without, "inactive\ninactive\n", []string{"apt-get -q update", "install chrony", "systemctl enable --now chrony.service"}},
		"chrony is off":     {with, "inactive\nfailed\n", []string{"systemctl enable --now chrony.service"}},
		"systemd-timesyncd": {without, "inactive\ninactive\nactive\ninactive\n", nil},
		"chrony starts":     {with, "activating\ninactive\n", nil},
	} {
		sys := &Paper{
			Files:   map[string]string{"/var/lib/dpkg/status": c.packages, "/etc/os-release": "ID=debian\nVERSION_ID=13\n"},
			Outputs: map[string]Output{"systemctl is-active " + strings.Join(timeUnits, " "): {Stdout: c.states, Code: 3}},
		}
		as, err := Diff(t.Context(), sys, &TimeService{})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, a := range as {
			got = append(got, strings.Join(a.Cmd, " "))
		}
		if !slices.EqualFunc(got, c.want, func(g, w string) bool { return strings.Contains(g, w) }) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

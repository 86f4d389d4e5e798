package resource

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// Host is what a host must be before anything is changed on it: a supported
// distribution, reached as root.
type Host struct {
	Name string
	// Releases are the supported VERSION_IDs of Debian.
	Releases []string
	// NodeName: the host must call itself by its name in the spec, because
	// Corosync, Pacemaker and LVM know it by that.
	NodeName bool `json:",omitempty"`
}

// Kind is "host".
func (h *Host) Kind() string { return "host" }

// ID is the host's name.
func (h *Host) ID() string { return h.Name }

// Diff never has actions; what is wrong is a Refusal.
func (h *Host) Diff(_ context.Context, sys Sys) ([]Action, error) {
	v, err := osRelease(sys)
	if err != nil {
		return nil, &Refusal{
			What: fmt.Sprintf("%s has no readable /etc/os-release", h.Name),
			Mend: "use a host with Debian " + strings.Join(h.Releases, " or "),
		}
	}
	if v["ID"] != "debian" || !slices.Contains(h.Releases, v["VERSION_ID"]) {
		return nil, &Refusal{
			What: fmt.Sprintf("%s runs %s, which is not supported", h.Name, v["PRETTY_NAME"]),
			Mend: "install Debian " + strings.Join(h.Releases, " or "),
		}
	}
	if h.NodeName {
		own, err := readTrim(sys, "/proc/sys/kernel/hostname")
		if err != nil {
			return nil, err
		}
		if own != h.Name {
			return nil, &Refusal{
				What: fmt.Sprintf("the host that was reached as %s calls itself %s", h.Name, own),
				Mend: "give it the name that `uname -n` prints in the spec, or rename the host with hostnamectl(1)",
			}
		}
	}
	st, err := sys.ReadFile("/proc/self/status")
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(st)) {
		f := strings.Fields(line)
		if len(f) > 2 && f[0] == "Uid:" && f[2] != "0" {
			return nil, &Refusal{What: h.Name + " was reached without root's rights", Mend: "set ssh.user to root"}
		}
	}
	return nil, nil
}

// osRelease reads os-release(5).
func osRelease(sys Sys) (map[string]string, error) {
	b, err := sys.ReadFile("/etc/os-release")
	if err != nil {
		return nil, err
	}
	v := map[string]string{}
	for line := range strings.Lines(string(b)) {
		if k, val, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			v[k] = strings.Trim(val, `"'`)
		}
	}
	return v, nil
}

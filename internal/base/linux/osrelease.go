package linux

import "strings"

// OSRelease says which distribution a host runs.
// Source: os-release(5).
type OSRelease struct {
	ID      string `json:"os_id"`      // ID: debian
	Version string `json:"os_version"` // VERSION_ID: 13
	Name    string `json:"os_name"`    // PRETTY_NAME, for people
}

// ParseOSRelease reads the text of /etc/os-release.
func ParseOSRelease(text string) OSRelease {
	var o OSRelease
	for line := range strings.Lines(text) {
		k, v, ok := strings.Cut(strings.TrimSpace(line), "=")
		if !ok {
			continue
		}
		v = strings.Trim(v, `"'`)
		switch k {
		case "ID":
			o.ID = v
		case "VERSION_ID":
			o.Version = v
		case "PRETTY_NAME":
			o.Name = v
		}
	}
	return o
}

package linux

import "strings"

// ParseOSRelease reads /etc/os-release, by variable: ID, VERSION_ID,
// PRETTY_NAME …
// Source: os-release(5)
func ParseOSRelease(text string) map[string]string {
	m := map[string]string{}
	for line := range strings.Lines(text) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(k, "#") {
			m[k] = strings.Trim(v, `"'`)
		}
	}
	return m
}

// ParseUdev reads the properties in a file of udev's database, /run/udev/data.
// Source: src/libsystemd/sd-device of systemd, device_update_db
func ParseUdev(text string) map[string]string {
	m := map[string]string{}
	for line := range strings.Lines(text) {
		if kv, ok := strings.CutPrefix(strings.TrimSpace(line), "E:"); ok {
			if k, v, ok := strings.Cut(kv, "="); ok {
				m[k] = v
			}
		}
	}
	return m
}

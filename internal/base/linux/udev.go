package linux

import "strings"

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

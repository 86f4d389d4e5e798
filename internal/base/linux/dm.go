package linux

import "strings"

// DMName is the device mapper's name of a logical volume: dashes are doubled.
// Source: lvm(8)
func DMName(vg, lv string) string {
	return strings.ReplaceAll(vg, "-", "--") + "-" + strings.ReplaceAll(lv, "-", "--")
}

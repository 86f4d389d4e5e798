package spec

import (
	"fmt"
	"strconv"
	"strings"
)

// maxRange bounds one range; no enclosure has that many bays.
const maxRange = 1000

// Serials lists the serial numbers of a disk list: one, or those of its range.
func (l DiskList) Serials() ([]string, error) { return expandSerial(l.Serial) }

// expandSerial turns MA[01-03] into MA01, MA02, MA03.
func expandSerial(s string) ([]string, error) {
	if re().dev.MatchString(s) {
		return nil, fmt.Errorf("%q is a device name, and those change from boot to boot; name the disk by its serial number (`lsblk -d -o NAME,SERIAL,WWN` lists them)", s)
	}
	m := re().ranges.FindStringSubmatch(s)
	if m == nil {
		if strings.Contains(s, "[") && strings.Contains(s, ",") {
			return nil, fmt.Errorf("%q lists numbers, and a range has two ends; write MA[01-03], or an entry for each disk", shorten(s))
		}
		if !re().serial.MatchString(s) {
			return nil, fmt.Errorf("%q is not a serial number; write it as `lsblk -d -o NAME,SERIAL` prints it, or a range as MA[01-12]", shorten(s))
		}
		return []string{s}, nil
	}
	from, _ := strconv.Atoi(m[2]) // digits by the pattern, at most nine
	to, _ := strconv.Atoi(m[3])
	if len(m[2]) != len(m[3]) {
		return nil, fmt.Errorf("the ends of range %q differ in length; write both with the same number of digits, as MA[01-12]", s)
	}
	if to < from {
		return nil, fmt.Errorf("range %q runs backwards; write the smaller number first", s)
	}
	if to-from >= maxRange {
		return nil, fmt.Errorf("range %q has %d disks; at most %d are possible", s, to-from+1, maxRange)
	}
	var out []string
	for i := from; i <= to; i++ {
		serial := fmt.Sprintf("%s%0*d%s", m[1], len(m[2]), i, m[4])
		if !re().serial.MatchString(serial) {
			return nil, fmt.Errorf("%q is not a serial number; use letters, digits and . _ : + -", serial)
		}
		out = append(out, serial)
	}
	return out, nil
}

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
	out, err := expand(m, maxRange, "disks")
	if err != nil {
		return nil, err
	}
	for _, serial := range out {
		if !re().serial.MatchString(serial) {
			return nil, fmt.Errorf("%q is not a serial number; use letters, digits and . _ : + -", serial)
		}
	}
	return out, nil
}

// expand lists the names of a range, which the pattern of ranges has matched: at most so many.
func expand(m []string, most int, what string) ([]string, error) {
	from, _ := strconv.Atoi(m[2]) // digits by the pattern, at most nine
	to, _ := strconv.Atoi(m[3])
	switch {
	case len(m[2]) != len(m[3]):
		return nil, fmt.Errorf("the ends of range %q differ in length; write both with the same number of digits, as %s[%0*d-%s]%s", m[0], m[1], len(m[3]), from, m[3], m[4])
	case to < from:
		return nil, fmt.Errorf("range %q runs backwards; write the smaller number first", m[0])
	case to-from >= most:
		return nil, fmt.Errorf("range %q has %d %s; at most %d are possible", m[0], to-from+1, what, most)
	}
	out := make([]string, 0, to-from+1)
	for i := from; i <= to; i++ {
		out = append(out, fmt.Sprintf("%s%0*d%s", m[1], len(m[2]), i, m[4]))
	}
	return out, nil
}

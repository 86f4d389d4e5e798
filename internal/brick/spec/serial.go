package spec

import (
	"fmt"
	"strconv"

	"github.com/mortarhpc/mortar/internal/base/lazyregexp"
)

var (
	rangeRE  = lazyregexp.New(`^([^\[\]]*)\[([0-9]{1,9})-([0-9]{1,9})\]([^\[\]]*)$`)
	serialRE = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9_.:+-]{0,63}$`)
	// devRE matches the names the kernel gives block devices in the order it finds them.
	devRE = lazyregexp.New(`^(/dev/.*|(sd|vd|xvd|hd)[a-z]{1,3}[0-9]*|nvme[0-9]+n[0-9]+(p[0-9]+)?|dm-[0-9]+|md[0-9]+|mpath[a-z]{1,3})$`)
	wwnRE = lazyregexp.New(`^(?:naa\.|0x)?([0-9A-Fa-f]{16}|[0-9A-Fa-f]{32})$`)
)

// maxRange bounds one range; no enclosure has that many bays.
const maxRange = 1000

// Serials lists the serial numbers of a disk list: one, or those of its range.
func (l DiskList) Serials() ([]string, error) { return expandSerial(l.Serial) }

// expandSerial turns MA[01-03] into MA01, MA02, MA03.
func expandSerial(s string) ([]string, error) {
	if devRE.MatchString(s) {
		return nil, fmt.Errorf("%q is a device name, and those change from boot to boot; name the disk by its serial number (`lsblk -d -o NAME,SERIAL,WWN` lists them)", s)
	}
	m := rangeRE.FindStringSubmatch(s)
	if m == nil {
		if !serialRE.MatchString(s) {
			return nil, fmt.Errorf("%q is not a serial number; write it as `lsblk -d -o NAME,SERIAL` prints it, or a range as MA[01-12]", s)
		}
		return []string{s}, nil
	}
	from, _ := strconv.Atoi(m[2]) // digits by rangeRE, at most nine
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
		if !serialRE.MatchString(serial) {
			return nil, fmt.Errorf("%q is not a serial number; use letters, digits and . _ : + -", serial)
		}
		out = append(out, serial)
	}
	return out, nil
}

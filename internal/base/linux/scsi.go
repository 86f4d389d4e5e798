package linux

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
)

// SCSIDisk is a SCSI logical unit as a host sees it, over all its paths.
type SCSIDisk struct {
	Device  string `json:"device"` // its multipath map, or a path
	WWN     string `json:"wwn"`    // NAA, hex digits
	Serial  string `json:"serial"`
	Vendor  string `json:"vendor"`
	Product string `json:"product"`
	Size    int64  `json:"size_bytes"`
	// Chunk and FullStripe are what it tells of its geometry, in bytes
	// (queue/minimum_io_size and optimal_io_size).
	Chunk      int64 `json:"chunk_bytes"`
	FullStripe int64 `json:"full_stripe_bytes"`
	// MaxTransfer is the longest command it takes, in bytes; 0 if it tells none.
	MaxTransfer int64      `json:"max_transfer_bytes,omitempty"`
	Paths       []SCSIPath `json:"paths"`
}

// SCSIPath is one way to a logical unit.
type SCSIPath struct {
	Name string `json:"name"` // the kernel's: sdb
	// Host is the number of the HBA; Target and LUN are the unit's address there.
	Host   int    `json:"host"`
	Target int    `json:"target"`
	LUN    int64  `json:"lun"`
	State  string `json:"state"` // of the kernel: running, offline, …
	// Group is the target port group of the path, 0 if it tells none. Access is
	// that group's state in the words of sysfs (active/optimized …), "" if unknown.
	Group  int    `json:"group"`
	Access string `json:"access"`
}

// Usable tells whether a path takes I/O.
func (p SCSIPath) Usable() bool {
	return p.State == "running" && (p.Access == "" || p.Access == "lba-dependent" || p.Access == "transitioning" || strings.HasPrefix(p.Access, "active/"))
}

// Optimized tells whether a path leads to the controller that owns the unit.
func (p SCSIPath) Optimized() bool { return p.Access == accessStates[0] }

// accessStates are the words for asymmetric access states, by their number.
//
// Source: SPC-4, 5.15.2.1; Linux, drivers/scsi/scsi_sysfs.c.
var accessStates = map[byte]string{
	0: "active/optimized", 1: "active/non-optimized", 2: "standby", 3: "unavailable",
	4: "lba-dependent", 14: "offline", 15: "transitioning",
}

// MaxTransferOf reads the longest command, in blocks, from vital product data
// page 0xb0; 0 if it is not there.
//
// Source: SBC-4, 6.6.4 (maximum transfer length).
func MaxTransferOf(page []byte) int64 {
	if len(page) < 12 || page[1] != 0xb0 {
		return 0
	}
	return int64(binary.BigEndian.Uint32(page[8:]))
}

// PortGroupOf finds the target port group of a path in vital product data
// page 0x83; 0 if it is not there.
//
// Source: SPC-4, 7.8.6.
func PortGroupOf(page []byte) int {
	for _, d := range designators(page) {
		if port, group := d[1]&0x30 == 0x10, d[1]&0x0f == 5; port && group && len(d) >= 8 {
			return int(binary.BigEndian.Uint16(d[6:]))
		}
	}
	return 0
}

// NAAOf finds the NAA designator of the logical unit in vital product data
// page 0x83, as bytes; nil if there is none.
//
// Source: SPC-4, 7.8.6.
func NAAOf(page []byte) []byte {
	for _, d := range designators(page) {
		if isBinary, unit, naa := d[0]&0x0f == 1, d[1]&0x30 == 0, d[1]&0x0f == 3; isBinary && unit && naa {
			return d[4:]
		}
	}
	return nil
}

// designators splits vital product data page 0x83.
func designators(page []byte) [][]byte {
	var out [][]byte
	for b := page[min(4, len(page)):]; len(b) >= 4; {
		n := 4 + int(b[3])
		if len(b) < n {
			break
		}
		out = append(out, b[:n])
		b = b[n:]
	}
	return out
}

// ParsePortGroups reads the answer to REPORT TARGET PORT GROUPS (without the
// extended header): the state of each group, in the words of sysfs.
//
// Source: SPC-4, 6.37.
func ParsePortGroups(b []byte) (map[int]string, error) {
	if len(b) < 4 {
		return nil, errors.New("REPORT TARGET PORT GROUPS: no answer")
	}
	n := int(binary.BigEndian.Uint32(b))
	if n > len(b)-4 {
		return nil, fmt.Errorf("REPORT TARGET PORT GROUPS: %d bytes of %d", len(b)-4, n)
	}
	out := map[int]string{}
	for b = b[4 : 4+n]; len(b) >= 8; {
		size := 8 + 4*int(b[7])
		if len(b) < size {
			return nil, errors.New("REPORT TARGET PORT GROUPS: the last group is cut off")
		}
		out[int(binary.BigEndian.Uint16(b[2:]))] = accessStates[b[0]&0x0f]
		b = b[size:]
	}
	return out, nil
}

// ParseSCSIAddress reads the name of a SCSI device in sysfs,
// host:channel:target:lun.
func ParseSCSIAddress(name string) (host, target int, lun int64, err error) {
	var channel int
	if _, err := fmt.Sscanf(name, "%d:%d:%d:%d", &host, &channel, &target, &lun); err != nil {
		return 0, 0, 0, fmt.Errorf("SCSI address %q: %w", name, err)
	}
	return host, target, lun, nil
}

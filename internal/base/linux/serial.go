package linux

import "strings"

// DiskSerial is the serial of a SCSI, NVMe or virtio disk, such as sda, as the kernel has it; ""
// if it has none.
func DiskSerial(t Tree, name string) string {
	dir := "/sys/block/" + name
	// SCSI vital product data page 0x80, unit serial number: 4 bytes of header, then the
	// serial. Source: SPC-4 7.8.18
	if b, err := t.ReadFile(dir + "/device/vpd_pg80"); err == nil && len(b) > 4 {
		n := min(int(b[2])<<8|int(b[3]), len(b)-4)
		if s := strings.Trim(string(b[4:4+n]), padding); s != "" {
			return s
		}
	}
	if s := Line(t, dir+"/device/serial"); s != "" { // NVMe
		return s
	}
	return Line(t, dir+"/serial") // virtio
}

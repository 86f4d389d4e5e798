package agent

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/mortarhpc/mortar/internal/base/linux"
)

// SCSI lists the SCSI disks with each of their paths, and the state of each
// path's target port group. No command is run.
func (h HostSys) SCSI(ctx context.Context) ([]linux.SCSIDisk, error) {
	disks, err := h.Disks(ctx)
	if err != nil {
		return nil, err
	}
	out := []linux.SCSIDisk{}
	for _, d := range disks {
		if len(d.Paths) == 0 || !strings.HasPrefix(d.Paths[0], "sd") {
			continue
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		s := linux.SCSIDisk{Device: d.Device, WWN: d.WWN, Serial: d.Serial, Size: d.Size}
		for _, name := range d.Paths {
			s.Paths = append(s.Paths, h.scsiPath(name))
			dir := "/sys/block/" + name
			if s.Vendor == "" {
				s.Vendor, s.Product = h.line(dir+"/device/vendor"), h.line(dir+"/device/model")
				s.Chunk, s.FullStripe = h.bytes(dir+"/queue/minimum_io_size"), h.bytes(dir+"/queue/optimal_io_size")
			}
		}
		h.portGroups(&s)
		out = append(out, s)
	}
	return out, nil
}

func (h HostSys) scsiPath(name string) linux.SCSIPath {
	dir := "/sys/block/" + name + "/device"
	p := linux.SCSIPath{Name: name, State: h.line(dir + "/state"), Access: h.line(dir + "/access_state")}
	if to, err := h.Readlink(dir); err == nil {
		// What has no such name is no SCSI device: its address stays 0.
		p.Host, p.Target, p.LUN, _ = linux.ParseSCSIAddress(filepath.Base(to))
	}
	if page, err := h.ReadFile(dir + "/vpd_pg83"); err == nil {
		p.Group = linux.PortGroupOf(page)
	}
	return p
}

// portGroups asks the disk itself for the states of its port groups: what sysfs
// says is as old as the kernel's last look, and not there without a device
// handler (a kernel for clouds has none).
func (h HostSys) portGroups(s *linux.SCSIDisk) {
	if h.root != "" { // a test's /sys
		return
	}
	for _, p := range s.Paths {
		if p.Group == 0 || p.State != "running" {
			continue
		}
		answer, err := reportPortGroups("/dev/" + p.Name)
		if err != nil {
			continue // the next path may answer
		}
		states, err := linux.ParsePortGroups(answer)
		if err != nil {
			continue
		}
		for i := range s.Paths {
			if state := states[s.Paths[i].Group]; state != "" {
				s.Paths[i].Access = state
			}
		}
		return
	}
}

func (h HostSys) bytes(file string) int64 {
	n, err := strconv.ParseInt(h.line(file), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// sgHeader is struct sg_io_hdr of <scsi/sg.h>.
type sgHeader struct {
	interfaceID  int32
	direction    int32
	cmdLen       uint8
	maxSense     uint8
	iovecs       uint16
	length       uint32
	data         unsafe.Pointer
	cmd          unsafe.Pointer
	sense        unsafe.Pointer
	timeout      uint32 // milliseconds
	flags        uint32
	packID       int32
	user         unsafe.Pointer
	status       uint8
	maskedStatus uint8
	msgStatus    uint8
	senseWritten uint8
	hostStatus   uint16
	driverStatus uint16
	residual     int32
	duration     uint32
	info         uint32
}

const (
	sgIO       = 0x2285
	sgFromDisk = -3
	// portGroupsTime bounds the question to one path, in milliseconds. An array
	// answers it from its memory.
	portGroupsTime = 5000
)

// reportPortGroups sends REPORT TARGET PORT GROUPS, which only reads, and
// returns the answer.
//
// Source: SPC-4, 6.37 (MAINTENANCE IN, service action 0Ah).
func reportPortGroups(device string) ([]byte, error) {
	f, err := os.OpenFile(device, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	answer, sense := make([]byte, 1024), make([]byte, 32)
	cmd := []byte{0xa3, 0x0a, 0, 0, 0, 0, 0, 0, byte(len(answer) >> 8), byte(len(answer) & 0xff), 0, 0}
	h := sgHeader{
		interfaceID: 'S', direction: sgFromDisk, cmdLen: uint8(len(cmd)), maxSense: uint8(len(sense)), length: uint32(len(answer)),
		data: unsafe.Pointer(&answer[0]), cmd: unsafe.Pointer(&cmd[0]), sense: unsafe.Pointer(&sense[0]), timeout: portGroupsTime,
	}
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), sgIO, uintptr(unsafe.Pointer(&h)))
	runtime.KeepAlive(answer)
	runtime.KeepAlive(cmd)
	runtime.KeepAlive(sense)
	switch {
	case errno != 0:
		return nil, os.NewSyscallError("SG_IO", errno)
	case h.status != 0 || h.hostStatus != 0 || h.driverStatus&0x0f != 0:
		return nil, os.NewSyscallError("SG_IO", syscall.EIO)
	}
	return answer[:max(0, len(answer)-int(h.residual))], nil
}

package agent

import (
	"context"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/base/sg"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

// SCSI lists the SCSI disks of a list with each of their paths, and the state of each path's
// target port group: all disks are asked for these at once. No command is run.
func (h HostSys) SCSI(ctx context.Context, disks []resource.DiskFact) ([]linux.SCSIDisk, error) {
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
				if page, err := h.ReadFile(dir + "/device/vpd_pgb0"); err == nil {
					s.MaxTransfer = linux.MaxTransferOf(page) * h.bytes(dir+"/queue/logical_block_size")
				}
			}
		}
		out = append(out, s)
	}
	var asked sync.WaitGroup
	for i := range out {
		asked.Go(func() { h.portGroups(&out[i]) })
	}
	asked.Wait()
	return out, nil
}

func (h HostSys) scsiPath(name string) linux.SCSIPath {
	dir := "/sys/block/" + name + "/device"
	p := linux.SCSIPath{Name: name, State: h.line(dir + "/state"), Access: h.line(dir + "/access_state")}
	if to, err := h.Readlink(dir); err == nil {
		// A device without such a name is no SCSI device: its address stays 0.
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
	ask := reportPortGroups
	if h.root != "" { // a test's /sys
		ask = h.askPortGroups
	}
	for _, p := range s.Paths {
		if p.Group == 0 || p.State != "running" || ask == nil {
			continue
		}
		answer, err := ask("/dev/" + p.Name)
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

// portGroupsTime bounds the question to one path. An array answers it from its
// memory.
const portGroupsTime = 5 * time.Second

// reportPortGroups sends REPORT TARGET PORT GROUPS, which only reads, and
// returns the answer.
//
// Source: SPC-4, 6.37 (MAINTENANCE IN, service action 0Ah).
func reportPortGroups(device string) ([]byte, error) {
	answer := make([]byte, 1024)
	cmd := []byte{0xa3, 0x0a, 0, 0, 0, 0, 0, 0, byte(len(answer) >> 8), byte(len(answer) & 0xff), 0, 0}
	n, err := sg.Do(device, cmd, answer, false, portGroupsTime)
	return answer[:n], err
}

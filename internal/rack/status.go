package rack

import (
	"context"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"sync"

	"github.com/mortarhpc/mortar/internal/rack/array"
	"github.com/mortarhpc/mortar/internal/rack/hw"
	"github.com/mortarhpc/mortar/internal/rack/nodeimage"
	"github.com/mortarhpc/mortar/internal/rack/power"
	"github.com/mortarhpc/mortar/internal/rack/qemu"
	"github.com/mortarhpc/mortar/internal/rack/tool"
)

// Stages of a node's boot, as its console reports them.
const (
	stageOff     = "off"
	stageStart   = "power-on"
	stageReset   = "reset"
	stageKernel  = "kernel"
	stageUp      = "multi-user"
	stageFailed  = "failed"
	stagePanic   = "panic" // the kernel has panicked, before or after the boot
	stageUnknown = "unknown"
)

// RackStatus is the rack as it is now.
type RackStatus struct {
	Name  string `json:"name"`
	Dir   string `json:"dir"`
	Netns string `json:"netns"`
	// Phase is "up", or "starting" during Up (or after its builder was killed).
	Phase string       `json:"phase"`
	Accel string       `json:"accel"`
	Image string       `json:"image"`
	Nodes []NodeStatus `json:"nodes"`
	PDUs  []PDUStatus  `json:"pdus"`
	Disks []DiskStatus `json:"disks"`
	// Arrays are the RAID arrays; their LUNs are among the disks.
	Arrays []ArrayStatus `json:"arrays,omitempty"`
	// Scale is the factor by which disks are smaller than the brick's: 1000 means
	// 1/1000.
	Scale int64 `json:"scale,omitempty"`
}

type ArrayStatus struct {
	Name string `json:"name"`
	// Power is "on" or "off"; Boot the stage of its boot, as for a node.
	Power       string  `json:"power"`
	Boot        string  `json:"boot"`
	BootSeconds float64 `json:"boot_seconds"`
	// ControllersOut lists the controllers that are out.
	ControllersOut []int               `json:"controllers_out"`
	Groups         []array.GroupStatus `json:"groups"`
	LUNs           []LUNStatus         `json:"luns"`
	// DisksOut are the serial numbers of disks that are out of their slots.
	DisksOut []string `json:"disks_out"`
}

// LUNStatus is one LUN of an array.
type LUNStatus struct {
	Name   string `json:"name"`
	Number int    `json:"number"`
	WWN    string `json:"wwn"`
	Group  string `json:"group"`
	// Owner is the controller that owns the LUN now, Preferred its preferred owner.
	Owner     int `json:"owner"`
	Preferred int `json:"preferred"`
	// SlowMS is the delay of its answers in milliseconds.
	SlowMS int `json:"slow_ms,omitempty"`
}

type NodeStatus struct {
	Name    string `json:"name"`
	Role    string `json:"role"`
	Address string `json:"address"`
	// Power is "on" or "off".
	Power string `json:"power"`
	// Machine is QEMU's run state: "running", "paused" (frozen), ... Empty
	// while the node is off.
	Machine string `json:"machine,omitempty"`
	// Boot is the stage of the node's boot: "power-on", "kernel", "mirror" (a server
	// has its system disks), "multi-user", "failed: ...", "panic" or "off".
	Boot string `json:"boot"`
	// BootSeconds is the node's uptime at that stage.
	BootSeconds float64 `json:"boot_seconds"`
	// SSH: an ssh server answers.
	SSH bool `json:"ssh"`
	// BMC is "alive", "dead" or "none"; "lies" if it switches something else.
	BMC   string       `json:"bmc"`
	Feeds []FeedStatus `json:"feeds"`
	Links []LinkStatus `json:"links"`
	// SystemDisks are a server's mirrored system disks.
	SystemDisks []SystemDiskStatus `json:"system_disks,omitempty"`
}

// SystemDiskStatus is one system disk of a server.
type SystemDiskStatus struct {
	Disk   int    `json:"disk"`
	Serial string `json:"serial"`
	// Present tells whether the disk is in its slot.
	Present bool `json:"present"`
}

// FeedStatus is one power cord of a node.
type FeedStatus struct {
	PDU    string `json:"pdu"`
	Outlet int    `json:"outlet"`
	On     bool   `json:"on"`
	// Astray: the cord is plugged in elsewhere, and the outlet feeds something else.
	Astray bool `json:"astray,omitempty"`
}

// LinkStatus is one network cable of a node.
type LinkStatus struct {
	Network   string `json:"network"`
	Interface string `json:"interface"`
	MAC       string `json:"mac"`
	Address   string `json:"address"`
	Up        bool   `json:"up"`
}

// PDUStatus is one power distribution unit.
type PDUStatus struct {
	Name    string `json:"name"`
	Address string `json:"address"`
	// Alive: the unit's controller answers.
	Alive bool `json:"alive"`
	// Off lists the outlets without power.
	Off []int `json:"off"`
}

// DiskStatus is one shared disk.
type DiskStatus struct {
	Name      string `json:"name"`
	Enclosure string `json:"enclosure,omitempty"`
	Serial    string `json:"serial"`
	WWN       string `json:"wwn,omitempty"`
	Bytes     int64  `json:"bytes"`
	// Present tells whether the disk is in its slot.
	Present bool `json:"present"`
	// PathsOut lists cut paths as "node/hba", or "node/hba/controller" if an HBA is
	// cabled to both controllers of an array.
	PathsOut []string `json:"paths_out,omitempty"`
	IOPS     int64    `json:"iops,omitempty"`
	// BytesPerSecond bounds the disk's speed; 0 is unbounded.
	BytesPerSecond int64 `json:"bytes_per_second,omitempty"`
}

type bootState struct {
	Stage   string
	Seconds float64
}

// boot returns the last stage in a node's console.
func (r *rack) boot(node string) bootState {
	if tool.Running(r.dir, node) == nil {
		return bootState{Stage: stageOff}
	}
	text, err := os.ReadFile(filepath.Join(tool.RunDir(r.dir), tool.ConsoleFile(node)))
	if err != nil {
		return bootState{Stage: stageUnknown}
	}
	return lastStage(string(text))
}

// panicked is what a kernel prints whatever its log level is.
// Source: Linux, kernel/panic.c, panic()
const panicked = "Kernel panic - not syncing"

// lastStage finds the last report in a console log: the prefix, the stage, and the
// node's uptime.
func lastStage(console string) bootState {
	i := strings.LastIndex(console, nodeimage.MarkPrefix)
	if i < 0 {
		return bootState{Stage: stageUnknown}
	}
	if strings.Contains(console[i:], panicked) {
		return bootState{Stage: stagePanic}
	}
	line, _, _ := strings.Cut(console[i+len(nodeimage.MarkPrefix):], "\n")
	line = strings.TrimSpace(line)
	cut := strings.LastIndexByte(line, ' ')
	if cut < 0 {
		return bootState{Stage: line}
	}
	seconds, err := strconv.ParseFloat(line[cut+1:], 64)
	if err != nil {
		return bootState{Stage: line}
	}
	return bootState{Stage: line[:cut], Seconds: seconds}
}

// Hangs reports whether a node with power will not answer by itself: its kernel has
// panicked, or the node has booted and a fault cuts it off from the management network.
func Hangs(ctx context.Context, dir, node string) (bool, error) {
	r, err := openRack(dir)
	if err != nil {
		return false, err
	}
	n, err := r.cfg.Node(node)
	if err != nil {
		return false, err
	}
	h, err := loadHardware(r.dir)
	if err != nil {
		return false, err
	}
	st := nodeStatus(ctx, r, n, h)
	return st.Power == "on" && (st.Boot == stagePanic || st.Boot == stageUp && !st.SSH), nil
}

// Status returns the state of the rack in dir. It changes nothing.
func Status(ctx context.Context, dir string) (*RackStatus, error) {
	r, err := openRack(dir)
	if err != nil {
		return nil, err
	}
	h, err := loadHardware(r.dir)
	if err != nil {
		return nil, err
	}
	s := &RackStatus{
		Name: r.cfg.Name, Dir: r.dir, Netns: r.cfg.Netns(), Phase: r.st.Phase, Accel: r.st.Accel,
		Image: filepath.Base(r.st.Image), Nodes: make([]NodeStatus, len(r.cfg.Nodes)),
		PDUs: []PDUStatus{}, Disks: []DiskStatus{}, Scale: r.cfg.Scale,
	}
	var wg sync.WaitGroup
	for i := range r.cfg.Nodes {
		wg.Go(func() { s.Nodes[i] = nodeStatus(ctx, r, &r.cfg.Nodes[i], h) })
	}
	wg.Wait()
	for _, e := range r.cfg.Arrays() {
		s.Arrays = append(s.Arrays, arrayStatus(ctx, r, e, h))
	}
	for _, p := range r.cfg.PDUs {
		ps := PDUStatus{Name: p.Name, Address: p.Address.String(), Alive: tool.Running(r.dir, pduName(p.Name)) != nil, Off: []int{}}
		for o := 1; o <= p.Outlets; o++ {
			if h.Off[hw.OutletKey(p.Name, o)] {
				ps.Off = append(ps.Off, o)
			}
		}
		s.PDUs = append(s.PDUs, ps)
	}
	for _, d := range r.cfg.SharedDisks() {
		ds := diskStatus(h, d.Disk)
		ds.Enclosure = d.Enclosure
		for _, n := range r.cfg.Nodes {
			for path := range d.Paths {
				if n.Role == hw.RoleServer && ds.Present && d.CabledTo(n.Name) && h.PathGone(n.Name, d, path) {
					out := n.Name + "/" + strconv.Itoa(d.HBA(path))
					if d.Paths > hw.HBAs {
						out += "/" + strconv.Itoa(d.Module(path))
					}
					ds.PathsOut = append(ds.PathsOut, out)
				}
			}
		}
		sort.Strings(ds.PathsOut)
		s.Disks = append(s.Disks, ds)
	}
	for _, d := range r.cfg.SSDs {
		s.Disks = append(s.Disks, diskStatus(h, d))
	}
	return s, nil
}

func diskStatus(h *hw.Hardware, d hw.Disk) DiskStatus {
	s := h.Speed(d)
	return DiskStatus{Name: d.Name, Serial: d.Serial, WWN: d.WWN, Bytes: d.Bytes, Present: !h.DisksOut[d.Name],
		IOPS: s.IOPS, BytesPerSecond: s.BytesPerSecond}
}

func nodeStatus(ctx context.Context, r *rack, n *hw.Node, h *hw.Hardware) NodeStatus {
	addr := r.cfg.AdminAddress(n)
	b := r.boot(n.Name)
	s := NodeStatus{Name: n.Name, Role: n.Role, Address: addr.String(), Power: "off", Boot: b.Stage, BootSeconds: b.Seconds,
		BMC: "none", Feeds: []FeedStatus{}, Links: []LinkStatus{}}
	if tool.Running(r.dir, n.Name) != nil {
		s.Power = "on"
		// Without an answer the state stays unknown.
		_ = r.withQMP(ctx, n.Name, func(q *qemu.Client) (err error) {
			s.Machine, err = q.Status()
			return err
		})
		s.SSH = s.Machine == "running" && r.sshAnswers(ctx, addr)
	}
	if n.BMC != nil {
		s.BMC = "dead"
		if tool.Running(r.dir, power.BMCName(n.Name)) != nil {
			s.BMC = "alive"
			if h.LyingBMCs[n.Name] != "" {
				s.BMC = "lies"
			}
		}
	}
	for _, f := range n.Feeds {
		s.Feeds = append(s.Feeds, FeedStatus{PDU: f.PDU, Outlet: f.Outlet, On: !h.Off[hw.OutletKey(f.PDU, f.Outlet)] || h.Astray[hw.OutletKey(f.PDU, f.Outlet)],
			Astray: h.Astray[hw.OutletKey(f.PDU, f.Outlet)]})
	}
	for i, nic := range n.NICs {
		s.Links = append(s.Links, LinkStatus{Network: nic.Network, Interface: hw.NICID(i), MAC: nic.MAC,
			Address: nic.Address.String(), Up: !h.LinkDown(n.Name, nic.Network)})
	}
	for _, d := range hw.SystemDisksOf(r.dir, n) {
		if d.Slot >= 0 {
			s.SystemDisks = append(s.SystemDisks, SystemDiskStatus{Disk: d.Slot, Serial: d.Serial, Present: !h.SystemDiskOut(n.Name, d)})
		}
	}
	return s
}

package resource

import (
	"fmt"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/linux"
)

// Host is what a host must be before anything is changed on it: reached as
// root, with the name and the MTUs of the spec. The plan has seen already
// whether its distribution is supported.
type Host struct {
	Name string
	// NodeName: the host must call itself by its name in the spec, because
	// Corosync, Pacemaker and LVM know it by that.
	NodeName bool `json:",omitempty"`
	// MTUs are those that the interfaces of some of its addresses must have.
	MTUs []WantedMTU `json:",omitempty"`
	// RDMA: the host must have a device for it.
	RDMA bool `json:",omitempty"`
	// Room: the file systems of the host's own system must have room, and take writes.
	Room bool `json:",omitempty"`
}

// WantedMTU is the MTU of the interface that has an address.
type WantedMTU struct {
	Network, Address string
	MTU              int
}

func (h *Host) Identity() (kind, id string) { return "host", h.Name }

// Diff never has actions; a fault is a Refusal.
func (h *Host) Diff(sys Look) ([]Action, error) {
	if h.NodeName {
		own := sys.Text("/proc/sys/kernel/hostname")
		if own != h.Name {
			return nil, Refuse("host-other-name", With{"host": h.Name, "name": own})
		}
	}
	for line := range strings.Lines(sys.Must("/proc/self/status")) {
		f := strings.Fields(line)
		if len(f) > 2 && f[0] == "Uid:" && f[2] != "0" {
			return nil, Refuse("host-not-root", With{"host": h.Name})
		}
	}
	if h.RDMA && len(sys.Files("/sys/class/infiniband/*")) == 0 {
		return nil, Refuse("host-no-rdma", With{"host": h.Name})
	}
	if h.Room {
		if err := h.checkRoom(sys); err != nil {
			return nil, err
		}
	}
	return nil, h.checkMTUs(sys)
}

// checkRoom refuses a host that has no room to write to. A change would end in the middle,
// and Pacemaker cannot save its configuration there.
func (h *Host) checkRoom(sys Look) error {
	// Of directories that are not there it says so in its exit code.
	out, installed := sys.Command(linux.DF(linux.SystemDirs...)...)
	if !installed {
		return nil
	}
	room, err := linux.ParseDF(out.Stdout)
	sys.Check(err)
	mounts, _ := sys.File("/proc/self/mounts")
	var what, mend, readOnly, full []string
	for _, dir := range linux.SystemDirs {
		if m, ok := linux.MountAt(linux.ParseMounts(mounts), dir); ok && m.ReadOnly() {
			readOnly = append(readOnly, dir)
			what = append(what, dir+" of "+h.Name+" is mounted read-only")
			mend = append(mend, "see in the kernel's log why "+dir+" is read-only")
		}
		if why := room[dir].Full(dir); why != "" {
			full = append(full, dir)
			what = append(what, dir+" of "+h.Name+" is full: "+why)
			mend = append(mend, linux.MakeRoom(dir))
		}
	}
	if len(what) == 0 {
		return nil
	}
	return Refuse("host-no-room", With{"host": h.Name, "read_only": readOnly, "full": full, "found": what, "mend": mend})
}

// checkMTUs refuses an interface whose MTU is not what the spec says of its
// network. It is not set here: distributions configure networks in several
// ways, and a host whose network is wrong cannot be reached any more.
func (h *Host) checkMTUs(sys Look) error {
	if len(h.MTUs) == 0 {
		return nil
	}
	links := sys.Links()
	var what, mend []string
	for _, w := range h.MTUs {
		l, ok := linux.LinkWith(links, w.Address)
		if !ok || l.MTU == w.MTU {
			continue
		}
		what = append(what, fmt.Sprintf("interface %s of %s (%s, network %s) has MTU %d, the spec says %d", l.Name, h.Name, w.Address, w.Network, l.MTU, w.MTU))
		mend = append(mend, fmt.Sprintf("`ip link set %s mtu %d`", l.Name, w.MTU))
	}
	if len(what) == 0 {
		return nil
	}
	return Refuse("host-mtu", With{"host": h.Name, "found": what, "commands": mend})
}

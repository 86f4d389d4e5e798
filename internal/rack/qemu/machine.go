package qemu

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	"github.com/mortarhpc/mortar/internal/rack/hw"
	"github.com/mortarhpc/mortar/internal/rack/nodeimage"
	"github.com/mortarhpc/mortar/internal/rack/tool"
)

func ArrayTap(index int) string { return "array" + strconv.Itoa(index) }

func ControlSocket(name string) string { return name + ".control" }

// ArrayArgs is the command line of an array's QEMU.
func ArrayArgs(c *hw.Config, dir string, e *hw.Enclosure, img *nodeimage.Image, accel string, state *hw.Hardware) ([]string, error) {
	a := e.Array
	in := 0
	for _, d := range a.Disks {
		if !state.DisksOut[d.Name] {
			in++
		}
	}
	m := newMachine(c.ProcessName(e.Name), dir, e.Name, hw.ArrayMemoryMiB,
		LoadArgs(img, fmt.Sprintf("%s%s mortar.array mortar.disks=%d", nodeimage.KernelArgs, clockArgs(accel), in)), AccelArgs(accel, 1))
	m.args = append(m.args, "-chardev", "socket,id=control,path="+ControlSocket(e.Name)+",server=on,wait=off", "-serial", "chardev:control")
	m.root(img)
	m.disk("state", hw.ArrayState(dir, e.Name), hw.Speed{})
	m.add("-device", Props{"driver": "virtio-blk-pci", "id": "state-dev", "drive": "state", "serial": "state"})
	m.args = append(m.args, "-netdev", "tap,id=net0,ifname="+ArrayTap(c.ArrayIndex(e.Name))+",script=no,downscript=no")
	m.add("-device", Props{"driver": "virtio-net-pci", "id": "eth0", "netdev": "net0", "romfile": ""})
	for i, d := range a.Disks {
		if i%hw.DisksPerHBA == 0 {
			m.add("-device", Props{"driver": "virtio-scsi-pci", "id": "shelf" + strconv.Itoa(i/hw.DisksPerHBA), "num_queues": 1})
		}
		m.disk(SlotID(i), hw.DiskImage(dir, d.Name), state.Speed(d))
		if !state.DisksOut[d.Name] {
			m.add("-device", SlotDevice(i, d))
		}
	}
	return m.args, m.err
}

func SlotID(i int) string { return "slot" + strconv.Itoa(i) }

func SlotDeviceID(i int) string { return "disk" + strconv.Itoa(i) }

// SlotDevice is disk i of an array in its slot.
func SlotDevice(i int, d hw.Disk) Props {
	return Props{"driver": "scsi-hd", "id": SlotDeviceID(i), "bus": "shelf" + strconv.Itoa(i/hw.DisksPerHBA) + ".0",
		"scsi-id": i % hw.DisksPerHBA, "drive": SlotID(i), "serial": d.Serial, "rotation_rate": 7200}
}

// plug adds the disk at the end of a path to a server, unplug removes it.
func PlugPath(q *Client, c *hw.Config, n *hw.Node, d hw.SharedDisk, path int) error {
	if !d.Session() {
		return q.Plug(PathDevice(d, path))
	}
	return q.plugLUN(PathBlock(d, c, n.Name, path), PathDevice(d, path))
}

func UnplugPath(q *Client, d hw.SharedDisk, path int) error {
	if err := q.Unplug(d.PathID(path)); err != nil || !d.Session() {
		return err
	}
	return q.dropSession(d.SessionID(path))
}

func SetLinks(q *Client, h *hw.Hardware, n *hw.Node) error {
	for i, nic := range n.NICs {
		if _, err := q.Call("set_link", Props{"name": hw.NICID(i), "up": !h.LinkDown(n.Name, nic.Network)}); err != nil {
			return err
		}
	}
	return nil
}

// Props are the properties of a QEMU device, block node or object: the same
// on the command line and over QMP.
type Props map[string]any

// port is the slot of a disk that can be pulled.
func systemPort(d hw.SystemDisk) Props {
	// After the slots of the SSDs.
	n := hw.MaxSSDs + 1 + d.Slot
	return Props{"driver": "pcie-root-port", "id": "sysslot" + strconv.Itoa(d.Slot), "chassis": n, "slot": n}
}

func SystemDevice(d hw.SystemDisk) Props {
	p := Props{"driver": "virtio-blk-pci", "id": d.DeviceID(), "drive": d.BlockID(), "serial": d.Serial}
	if d.Slot >= 0 {
		p["bus"] = "sysslot" + strconv.Itoa(d.Slot)
	}
	return p
}

// PathBlock is the session of a path to a LUN, or to a disk that a process of the rack serves.
func PathBlock(d hw.SharedDisk, c *hw.Config, server string, path int) Props {
	if d.Array == nil {
		return session(d.SessionID(path), hw.Portal(c, hw.Shelves), hw.DriveName(d, path), hw.ServerName(server, d.HBA(path)))
	}
	return Props{"driver": "iscsi", "node-name": d.SessionID(path), "transport": "tcp",
		"portal": fmt.Sprintf("%s:%d", hw.ArrayNet(d.Portal, hw.LinkHost), hw.ISCSIPort+d.Module(path)),
		"target": hw.TargetName(c, d.Array), "lun": d.LUN.Number, "initiator-name": hw.InitiatorName(server, d.HBA(path), d.LUN.Number),
		"cache": Props{"direct": true}}
}

// PathDevice is the disk at the end of one path. The server gets the LUN's or the disk's own
// answers, including errors, unchanged.
func PathDevice(d hw.SharedDisk, path int) Props {
	p := Props{"driver": "scsi-block", "id": d.PathID(path), "bus": fmt.Sprintf("hba%d.0", d.HBA(path)),
		"scsi-id": d.Target + path/hw.HBAs, "drive": d.SessionID(path), "share-rw": true, "rerror": "report", "werror": "report"}
	if d.Array != nil {
		p["lun"] = d.LUN.Number
	}
	if d.Session() {
		return p
	}
	p["driver"], p["drive"], p["serial"], p["wwn"] = "scsi-hd", d.BlockID(), d.Serial, d.Number()
	p["vendor"], p["product"] = d.Vendor, d.Product
	p["rotation_rate"], p["min_io_size"], p["opt_io_size"] = 7200, d.Chunk, d.FullStripe
	delete(p, "rerror")
	delete(p, "werror")
	return p
}

// machine builds the command line of a virtual machine.
type machine struct {
	args []string
	err  error
}

// newMachine returns a machine with its boot options, accelerator, memory, console and
// QEMU's sockets. QEMU starts in the rack's run directory. Names of files there are
// relative, because a socket's path must be shorter than 108 bytes.
func newMachine(process, dir, name string, memoryMiB int, boot, accel []string) *machine {
	return &machine{args: append(slices.Concat(BaseArgs(), boot, accel),
		"-name", process,
		"-m", strconv.Itoa(memoryMiB),
		"-chardev", "file,id=console,path="+tool.ConsoleFile(name)+",append=on",
		"-serial", "chardev:console",
		"-qmp", "unix:"+tool.QMPSocket(name)+",server=on,wait=off",
		"-pidfile", tool.PidFile(dir, name),
	)}
}

func (m *machine) add(option string, p Props) {
	text, err := json.Marshal(p)
	if err != nil && m.err == nil {
		m.err = err
	}
	m.args = append(m.args, option, string(text))
}

// disk adds a disk image: the file, and a throttle over it under the name that devices use.
//
// Flushes end in the host's page cache (no-flush). The rack cuts the power of nodes,
// never of the host, so QEMU's writes survive every fault of the rack, and a node's
// flush need not wait for the host's disk. hw.Disk serves the disks whose cache
// can be lost.
func (m *machine) disk(id, file string, s hw.Speed) {
	m.add("-object", Props{"qom-type": "throttle-group", "id": "limit-" + id, "limits": Limits(s)})
	for _, layer := range []Props{
		{"driver": "file", "node-name": "file-" + id, "filename": file, "locking": "off",
			"discard": "unmap", "cache": Props{"direct": false, "no-flush": true}},
		{"driver": "raw", "node-name": "raw-" + id, "file": "file-" + id, "discard": "unmap"},
		{"driver": "throttle", "node-name": id, "throttle-group": "limit-" + id, "file": "raw-" + id, "discard": "unmap"},
	} {
		m.add("-blockdev", layer)
	}
}

// session is a session with a disk that a process of the rack serves.
func session(node string, portal netip.AddrPort, target, initiator string) Props {
	return Props{"driver": "iscsi", "node-name": node, "transport": "tcp", "portal": portal.String(), "target": target, "lun": 0,
		"initiator-name": initiator, "cache": Props{"direct": true}}
}

// served adds a disk that a process of the rack serves, and that is one of QEMU's own.
func (m *machine) served(c *hw.Config, id, process, node string) {
	p := session(id, hw.Portal(c, process), hw.DiskTarget(id), hw.ServerName(node, 0))
	p["discard"] = "unmap"
	m.add("-blockdev", p)
}

// root adds the image's read-only root.
func (m *machine) root(img *nodeimage.Image) {
	m.add("-blockdev", Props{"driver": "file", "node-name": "root", "filename": img.File(nodeimage.ImageRoot), "read-only": true})
	m.add("-device", Props{"driver": "virtio-blk-pci", "id": "vda", "drive": "root", "serial": "root"})
}

// ssdPort is the slot of NVMe drive i, the nth of a node. Without the first port of a
// device, the node does not find the device's other ports.
func ssdPort(i, nth int) Props {
	const perDevice, first = 8, 0x10
	return Props{"driver": "pcie-root-port", "id": "slot" + strconv.Itoa(i), "chassis": i + 1, "slot": i + 1,
		"addr": fmt.Sprintf("%x.%x", first+nth/perDevice, nth%perDevice), "multifunction": true}
}

// SSDDevice is NVMe drive i in its slot.
func SSDDevice(i int, d hw.Disk) Props {
	return Props{
		"driver": "nvme", "id": hw.SSDDeviceID(i), "bus": "slot" + strconv.Itoa(i),
		"drive": hw.SSDID(i), "serial": d.Serial, "share-rw": true,
	}
}

// Limits is the setting of a new throttle group; zeros mean no limit. QEMU refuses a
// total together with a limit of reads or writes.
//
// Source: QEMU, util/throttle.c, throttle_is_valid
func Limits(s hw.Speed) Props {
	if s.Writes > 0 {
		return Props{"iops-total": 0, "iops-read": s.IOPS, "iops-write": s.Writes, "bps-total": s.BytesPerSecond}
	}
	return Props{"iops-total": s.IOPS, "bps-total": s.BytesPerSecond}
}

// AccelArgs are the options that choose the processor. An emulated machine has one: more
// are slower.
func AccelArgs(accel string, kvmCPUs int) []string {
	if accel == "kvm" {
		return []string{"-accel", "kvm", "-cpu", "host", "-smp", strconv.Itoa(kvmCPUs)}
	}
	// tb-size: the default translation buffer is a quarter of the guest's memory;
	// QEMU flushes a full buffer at great cost.
	// Without cx16: TCG of QEMU 7.2 computes the flags of cmpxchg16b from stale
	// operands. Sometimes a kernel that uses cmpxchg16b (SLUB) then dies of a double
	// fault with half a pointer in EFLAGS. Without erms the kernel clears and copies
	// eight bytes per step instead of one, and each step is one of the emulation too.
	// Without la57 page tables have four levels, which are walked faster.
	return []string{"-accel", "tcg,thread=multi,tb-size=512", "-cpu", "max,-cx16,-erms,-la57", "-smp", tcgProcessors}
}

// tcgProcessors lets an emulated machine have two processors, though it has one. TCG of QEMU before 8.1 omits the memory barriers of a machine with at most one
// processor, although its devices run concurrently. Then a virtio interrupt is lost
// every few hours, and with it all I/O of that device (seen: every disk of an array).
//
// Source: QEMU, commit c914d46d0a64, "tcg: Do not elide memory barriers for
// !CF_PARALLEL in system mode"; accel/tcg/tcg-accel-ops-mttcg.c, max_cpus
const tcgProcessors = "1,maxcpus=2"

// BaseArgs are the options that every machine has.
func BaseArgs() []string {
	return []string{
		"-nodefaults", "-no-user-config", "-display", "none",
		// SeaBIOS, QEMU's default firmware. qboot is two seconds faster, but it
		// assumes that memory is zeroed: after a reboot it may fail to load a kernel
		// and run the old one.
		"-M", "q35",
	}
}

// bootArgs are the options with which a node finds its kernel. post is the duration of
// its self test before, in seconds.
func bootArgs(n *hw.Node, img *nodeimage.Image, accel string, post int) []string {
	order := "strict=on"
	if hw.IsServer(n) && post > 0 {
		order += ",menu=on,splash-time=" + strconv.Itoa(1000*post)
	}
	if n.Distribution() {
		return []string{"-boot", order}
	}
	kernel := nodeimage.KernelArgs + clockArgs(accel)
	if hw.IsServer(n) {
		kernel += " mortar.mirror" // the initrd reads it
	}
	return loadArgs(img, order, kernel)
}

// LoadArgs makes QEMU load the image's kernel with these arguments. strict=on:
// SeaBIOS tries no other disk.
func LoadArgs(img *nodeimage.Image, kernel string) []string {
	return loadArgs(img, "strict=on", kernel)
}

func loadArgs(img *nodeimage.Image, order, kernel string) []string {
	return []string{"-boot", order, "-kernel", img.File(nodeimage.ImageKernel), "-initrd", img.File(nodeimage.ImageInitrd), "-append", kernel}
}

// NodeArgs is the command line of a node (without the program's name).
func NodeArgs(c *hw.Config, dir string, index int, img *nodeimage.Image, accel string, state *hw.Hardware, post int) ([]string, error) {
	n := &c.Nodes[index]
	m := newMachine(c.ProcessName(n.Name), dir, n.Name, n.MemoryMiB, bootArgs(n, img, accel, post), AccelArgs(accel, 2))
	if n.Role == hw.RoleServer && c.WithArray(n.Name) {
		// Start stopped until the LUNs are plugged: a server looks for them only once.
		m.args = append(m.args, "-S")
	}
	if !n.Distribution() {
		m.root(img)
	}
	for _, d := range hw.SystemDisksOf(dir, n) {
		if hw.IsServer(n) {
			m.served(c, d.BlockID(), hw.InsideName(n.Name), n.Name)
		} else {
			m.disk(d.BlockID(), d.Image, hw.Speed{})
		}
		if d.Slot >= 0 {
			m.add("-device", systemPort(d))
		}
		if !state.SystemDiskOut(n.Name, d) {
			p := SystemDevice(d)
			if n.Distribution() {
				p["bootindex"] = 1
			}
			m.add("-device", p)
		}
	}

	for i, nic := range n.NICs {
		m.args = append(m.args, "-netdev", fmt.Sprintf("tap,id=net%d,ifname=%s,script=no,downscript=no", i, hw.TapName(index, i)))
		m.add("-device", Props{"driver": "virtio-net-pci", "id": hw.NICID(i), "netdev": "net" + strconv.Itoa(i),
			"mac": nic.MAC, "romfile": ""})
	}
	if n.Role == hw.RoleServer {
		if len(c.Enclosures) > 0 {
			for h := range hw.HBAs {
				m.add("-device", Props{"driver": "virtio-scsi-pci", "id": fmt.Sprintf("hba%d", h), "num_queues": 1})
			}
		}
		for _, d := range c.SharedDisks() {
			if !d.CabledTo(n.Name) || d.Array != nil {
				continue
			}
			if !d.Session() {
				m.served(c, d.BlockID(), hw.Shelves, n.Name)
			}
			for h := range d.Paths {
				if state.PathGone(n.Name, d, h) {
					continue
				}
				if d.Session() {
					m.add("-blockdev", PathBlock(d, c, n.Name, h))
				}
				m.add("-device", PathDevice(d, h))
			}
		}
		ports := 0
		for i, d := range c.SSDs {
			if !d.In(n) {
				continue
			}
			m.served(c, hw.SSDID(i), d.Shelf(), n.Name)
			m.add("-device", ssdPort(i, ports))
			ports++
			if !state.DisksOut[d.Name] {
				m.add("-device", SSDDevice(i, d))
			}
		}
		m.add("-device", Props{"driver": "i6300esb", "id": "watchdog"}) // resets the machine
	}
	return m.args, m.err
}

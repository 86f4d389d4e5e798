package rack

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
)

// Limits of a node's hardware.
const (
	// virtio-scsi addresses targets 0 to 255.
	maxTargets = 200
	// maxNodes fit into the last byte of their MAC addresses.
	maxNodes = 99
	// Every NVMe drive needs a root port on the node's root bus. Eight ports are the
	// functions of one device: the bus has 32.
	maxSSDs = 32
	// maxMTU is that of IPoIB; taps, bridges and virtio-net support it too.
	maxMTU = 65520
	// hbas is the number of host bus adapters of a server, and of I/O
	// modules of an enclosure.
	hbas = 2
)

// props are the properties of a QEMU device, block node or object: the same
// on the command line and over QMP.
type props map[string]any

// sharedDisk is a disk of an enclosure with its place among all of them,
// from which its names inside QEMU follow.
type sharedDisk struct {
	Disk
	Enclosure string
	Index     int
	Servers   []string // cabled to it; empty: all
	Paths     int
	Target    int        // first of its targets on an HBA
	array     *Enclosure // the array of a LUN; nil for a disk
	portal    int        // the array's place among the arrays
}

// sharedDisks lists the disks of all enclosures.
func (c *Config) sharedDisks() []sharedDisk {
	var out []sharedDisk
	target := 1
	for i := range c.Enclosures {
		e := &c.Enclosures[i]
		for _, d := range e.Disks {
			s := sharedDisk{Disk: d, Enclosure: e.Name, Index: len(out), Servers: e.Servers, Paths: e.paths(), Target: target}
			if e.Array != nil {
				s.array, s.portal = e, c.arrayIndex(e.Name)
			} else {
				target += e.targets()
			}
			out = append(out, s)
		}
		if e.Array != nil {
			target += e.targets()
		}
	}
	return out
}

// cabledTo reports whether a server has cables to the enclosure.
func (e *Enclosure) cabledTo(server string) bool {
	return len(e.Servers) == 0 || slices.Contains(e.Servers, server)
}

// allTargets is the number of SCSI targets that an enclosure takes on an HBA. The LUNs
// of an array share its ports.
func (e *Enclosure) allTargets() int {
	if e.Array != nil {
		return e.targets()
	}
	return e.targets() * len(e.Disks)
}

func (e *Enclosure) paths() int {
	if e.Paths == 0 {
		return hbas
	}
	return e.Paths
}

// targets is the number of SCSI targets each disk takes on an HBA.
func (e *Enclosure) targets() int { return (e.paths() + hbas - 1) / hbas }

// hba and module are the two ends of a path. Paths after the first two lead from each
// HBA to the other module.
func (d sharedDisk) hba(path int) int    { return path % hbas }
func (d sharedDisk) module(path int) int { return (path + path/hbas) % hbas }

func (d sharedDisk) blockID() string           { return "sd" + strconv.Itoa(d.Index) }
func (d sharedDisk) throttleID() string        { return "limit-sd" + strconv.Itoa(d.Index) }
func (d sharedDisk) pathID(path int) string    { return fmt.Sprintf("path%d-sd%d", path, d.Index) }
func (d sharedDisk) sessionID(path int) string { return "session-" + d.pathID(path) }
func ssdID(i int) string                       { return "ssd" + strconv.Itoa(i) }
func ssdDeviceID(i int) string                 { return "nvme" + strconv.Itoa(i) }
func nicID(i int) string                       { return "eth" + strconv.Itoa(i) }
func tapName(node, nic int) string             { return fmt.Sprintf("n%de%d", node, nic) }
func bridgeName(network string) string         { return "br-" + network }

func diskImage(dir, name string) string       { return filepath.Join(dir, "disks", name+".raw") }
func (c *Config) processName(n string) string { return c.netns() + "." + n }

// systemDisks is the number of mirrored disks with a server's own layer.
const systemDisks = 2

// systemDisk is one of the disks with a node's own layer, or the boot disk of a node.
type systemDisk struct {
	Image  string
	Serial string
	Slot   int // 0 or 1: slot of a server's disk that can be pulled; -1: none
	Bytes  int64
}

// systemDisksOf lists the disks with a node's own layer: a server has a mirror; a
// client, and a node that boots the distribution's way, has a single disk.
func systemDisksOf(dir string, n *Node) []systemDisk {
	at := func(name string) string { return filepath.Join(dir, "nodes", n.Name, name) }
	if n.distribution() {
		return []systemDisk{{at("disk.raw"), "system", -1, diskBytes}}
	}
	if !isServer(n) {
		return []systemDisk{{at("state.ext4"), "state", -1, stateBytes}}
	}
	var out []systemDisk
	for i := range systemDisks {
		// A serial has at most 20 characters; the initrd looks for its prefix.
		serial := fmt.Sprintf("sys%d-%s", i, n.Name)
		out = append(out, systemDisk{at(fmt.Sprintf("system%d.raw", i)), serial[:min(len(serial), 20)], i, stateBytes})
	}
	return out
}

func (d systemDisk) blockID() string  { return "system" + strconv.Itoa(max(d.Slot, 0)) }
func (d systemDisk) deviceID() string { return d.blockID() + "-dev" }

// port is the slot of a disk that can be pulled.
func systemPort(d systemDisk) props {
	// After the slots of the SSDs.
	n := maxSSDs + 1 + d.Slot
	return props{"driver": "pcie-root-port", "id": "sysslot" + strconv.Itoa(d.Slot), "chassis": n, "slot": n}
}

func systemDevice(d systemDisk) props {
	p := props{"driver": "virtio-blk-pci", "id": d.deviceID(), "drive": d.blockID(), "serial": d.Serial}
	if d.Slot >= 0 {
		p["bus"] = "sysslot" + strconv.Itoa(d.Slot)
	}
	return p
}

// pathBlock is the session of a path to a LUN.
func pathBlock(d sharedDisk, c *Config, server string, path int) props {
	return props{"driver": "iscsi", "node-name": d.sessionID(path), "transport": "tcp",
		"portal": fmt.Sprintf("%s:%d", arrayNet(d.portal, linkHost), iscsiPort+d.module(path)),
		"target": targetName(c, d.array), "lun": d.LUN.Number, "initiator-name": initiatorName(server, d.hba(path), d.LUN.Number),
		"cache": props{"direct": true}}
}

// pathDevice is the disk at the end of one path.
func pathDevice(d sharedDisk, path int) (props, error) {
	if d.array != nil {
		// The server gets the LUN's own answers, including errors, unchanged.
		return props{"driver": "scsi-block", "id": d.pathID(path), "bus": fmt.Sprintf("hba%d.0", d.hba(path)),
			"scsi-id": d.Target + path/hbas, "lun": d.LUN.Number, "drive": d.sessionID(path), "share-rw": true,
			"rerror": "report", "werror": "report"}, nil
	}
	wwn, err := strconv.ParseUint(d.WWN, 16, 64)
	if err != nil {
		return nil, err
	}
	p := props{
		"driver": "scsi-hd", "id": d.pathID(path), "bus": fmt.Sprintf("hba%d.0", d.hba(path)),
		"scsi-id": d.Target + path/hbas, "drive": d.blockID(), "share-rw": true,
		"serial": d.Serial, "wwn": wwn,
		// Each path ends in a port of its own, as on a SAS disk.
		"port_wwn": wwn ^ uint64(path+1)<<48, "port_index": path,
		"rotation_rate": 7200,
	}
	if d.SSD {
		p["rotation_rate"] = 1
	}
	if d.Vendor != "" {
		p["vendor"] = d.Vendor
	}
	if d.Product != "" {
		p["product"] = d.Product
	}
	if d.Chunk != 0 {
		p["min_io_size"] = d.Chunk
	}
	if d.FullStripe != 0 {
		p["opt_io_size"] = d.FullStripe
	}
	return p, nil
}

// cabledTo reports whether a server has cables to the disk's enclosure.
func (d sharedDisk) cabledTo(server string) bool {
	return len(d.Servers) == 0 || slices.Contains(d.Servers, server)
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
	return &machine{args: append(slices.Concat(baseArgs(), boot, accel),
		"-name", process,
		"-m", strconv.Itoa(memoryMiB),
		"-chardev", "file,id=console,path="+consoleFile(name)+",append=on",
		"-serial", "chardev:console",
		"-qmp", "unix:"+qmpSocket(name)+",server=on,wait=off",
		"-pidfile", pidFile(dir, name),
	)}
}

func (m *machine) add(option string, p props) {
	text, err := json.Marshal(p)
	if err != nil && m.err == nil {
		m.err = err
	}
	m.args = append(m.args, option, string(text))
}

// disk adds a disk image under a block node's name.
func (m *machine) disk(id, file string, s speed) { m.blocks(s, blockNodes(id, file)) }

// served adds a disk that a process of the rack serves: see volatileDisk.
func (m *machine) served(id, process string, s speed) {
	m.blocks(s, []props{
		{"driver": "nbd", "node-name": "nbd-" + id, "export": id, "discard": "unmap",
			"server": props{"type": "unix", "path": nbdSocket(process)}},
		throttled(id, "nbd-"+id),
	})
}

// blocks adds the layers of a disk. The last layer has the disk's name and limit.
func (m *machine) blocks(s speed, layers []props) {
	m.add("-object", props{"qom-type": "throttle-group", "id": layers[len(layers)-1]["throttle-group"], "limits": limits(s)})
	for _, b := range layers {
		m.add("-blockdev", b)
	}
}

// root adds the image's read-only root.
func (m *machine) root(img *image) {
	m.add("-blockdev", props{"driver": "file", "node-name": "root", "filename": img.file(imageRoot), "read-only": true})
	m.add("-device", props{"driver": "virtio-blk-pci", "id": "vda", "drive": "root", "serial": "root"})
}

// ssdPort is the slot of NVMe drive i, the nth of a node. Without the first port of a
// device, the node does not find the device's other ports.
func ssdPort(i, nth int) props {
	const perDevice, first = 8, 0x10
	return props{"driver": "pcie-root-port", "id": "slot" + strconv.Itoa(i), "chassis": i + 1, "slot": i + 1,
		"addr": fmt.Sprintf("%x.%x", first+nth/perDevice, nth%perDevice), "multifunction": true}
}

// ssdDevice is NVMe drive i in its slot.
func ssdDevice(i int, d Disk) props {
	return props{
		"driver": "nvme", "id": ssdDeviceID(i), "bus": "slot" + strconv.Itoa(i),
		"drive": ssdID(i), "serial": d.Serial, "share-rw": true,
	}
}

// in reports whether a node reaches an SSD.
func (d Disk) in(n *Node) bool { return d.Node == "" || d.Node == n.Name }

// limits is the setting of a new throttle group; zeros mean no limit. QEMU refuses a
// total together with a limit of reads or writes.
//
// Source: QEMU, util/throttle.c, throttle_is_valid
func limits(s speed) props {
	if s.Writes > 0 {
		return props{"iops-total": 0, "iops-read": s.IOPS, "iops-write": s.Writes, "bps-total": s.BytesPerSecond}
	}
	return props{"iops-total": s.IOPS, "bps-total": s.BytesPerSecond}
}

// blockNodes are the layers of a disk image: the file, and a throttle over
// it under the name that devices use.
//
// Flushes end in the host's page cache (no-flush). The rack cuts the power of nodes,
// never of the host, so QEMU's writes survive every fault of the rack, and a node's
// flush need not wait for the host's disk. volatileDisk serves the disks whose cache
// can be lost.
func blockNodes(id, file string) []props {
	return []props{
		{"driver": "file", "node-name": "file-" + id, "filename": file, "locking": "off",
			"discard": "unmap", "cache": props{"direct": false, "no-flush": true}},
		{"driver": "raw", "node-name": "raw-" + id, "file": "file-" + id, "discard": "unmap"},
		throttled(id, "raw-"+id),
	}
}

// throttled is the layer that bounds a disk's speed, on top of the layer over.
func throttled(id, over string) props {
	return props{"driver": "throttle", "node-name": id, "throttle-group": "limit-" + id, "file": over, "discard": "unmap"}
}

// kernelArgs is the kernel command line of every node.
//
//   - norandmaps: TCG translates code again for each address at which a program is
//     mapped. A program at its previous address starts four times as fast (fork and
//     exec of /bin/true: 12 ms instead of 48).
//   - Also for speed in emulation: mitigations, nokaslr, audit, no_timer_check,
//     tsc=reliable, cryptomgr.notests, random.trust_cpu, no security modules that
//     only check (AppArmor, BPF), expedited RCU, no memory accounting by control
//     group.
//   - Stable names: net.ifnames=0 (eth0 is the first NIC), and each NVMe drive is a
//     device of its own (nvme_core.multipath).
//   - nvme_core.io_timeout: QEMU 7.2 sometimes misses a doorbell of an NVMe drive.
//     Then all of the drive's commands wait for twice this time, in seconds.
//   - unknown_nmi_panic: the panic fault is a non-maskable interrupt. A panicked node
//     stays down until it is fenced, as a real server does.
const kernelArgs = "console=ttyS0 quiet loglevel=4 mitigations=off nokaslr norandmaps audit=0 no_timer_check tsc=reliable " +
	"random.trust_cpu=on cryptomgr.notests nmi_watchdog=0 raid=noautodetect net.ifnames=0 systemd.show_status=0 " +
	"nvme_core.multipath=N nvme_core.io_timeout=2 unknown_nmi_panic=1 apparmor=0 lsm=landlock,yama rcupdate.rcu_expedited=1 cgroup_disable=memory"

// accelArgs are the options that choose the processor. An emulated machine has one: more
// are slower.
func accelArgs(accel string, kvmCPUs int) []string {
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

// baseArgs are the options that every machine has.
func baseArgs() []string {
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
func bootArgs(n *Node, img *image, accel string, post int) []string {
	if !isServer(n) {
		post = 0
	}
	if n.distribution() {
		if post == 0 {
			return []string{"-boot", "strict=on"}
		}
		return []string{"-boot", "strict=on,menu=on,splash-time=" + strconv.Itoa(1000*post)}
	}
	kernel := kernelArgs + clockArgs(accel)
	// The initrd reads these.
	if post > 0 {
		kernel += " mortar.post=" + strconv.Itoa(post)
	}
	if isServer(n) {
		kernel += " mortar.mirror"
	}
	return loadArgs(img, kernel)
}

// loadArgs makes QEMU load the image's kernel with these arguments. strict=on:
// SeaBIOS tries no other disk.
func loadArgs(img *image, kernel string) []string {
	return []string{"-boot", "strict=on", "-kernel", img.file(imageKernel), "-initrd", img.file(imageInitrd), "-append", kernel}
}

// nodeArgs is the command line of a node (without the program's name).
func nodeArgs(c *Config, dir string, index int, img *image, accel string, state *hardware, post int) ([]string, error) {
	n := &c.Nodes[index]
	m := newMachine(c.processName(n.Name), dir, n.Name, n.MemoryMiB, bootArgs(n, img, accel, post), accelArgs(accel, 2))
	if n.Role == RoleServer && c.withArray(n.Name) {
		// Start stopped until the LUNs are plugged: a server looks for them only once.
		m.args = append(m.args, "-S")
	}
	if !n.distribution() {
		m.root(img)
	}
	for _, d := range systemDisksOf(dir, n) {
		if isServer(n) {
			m.served(d.blockID(), insideName(n.Name), speed{})
		} else {
			m.disk(d.blockID(), d.Image, speed{})
		}
		if d.Slot >= 0 {
			m.add("-device", systemPort(d))
		}
		if !state.systemOut(n.Name, d) {
			p := systemDevice(d)
			if n.distribution() {
				p["bootindex"] = 1
			}
			m.add("-device", p)
		}
	}

	for i, nic := range n.NICs {
		m.args = append(m.args, "-netdev", fmt.Sprintf("tap,id=net%d,ifname=%s,script=no,downscript=no", i, tapName(index, i)))
		m.add("-device", props{"driver": "virtio-net-pci", "id": nicID(i), "netdev": "net" + strconv.Itoa(i),
			"mac": nic.MAC, "romfile": ""})
	}
	if n.Role == RoleServer {
		if len(c.Enclosures) > 0 {
			for h := range hbas {
				m.add("-device", props{"driver": "virtio-scsi-pci", "id": fmt.Sprintf("hba%d", h), "num_queues": 1})
			}
		}
		for _, d := range c.sharedDisks() {
			if !d.cabledTo(n.Name) || d.array != nil {
				continue
			}
			m.served(d.blockID(), shelves, state.speed(d.Disk))
			for h := range d.Paths {
				if state.pathGone(n.Name, d, h) {
					continue
				}
				p, e := pathDevice(d, h)
				if e != nil {
					return nil, e
				}
				m.add("-device", p)
			}
		}
		ports := 0
		for i, d := range c.SSDs {
			if !d.in(n) {
				continue
			}
			m.served(ssdID(i), d.shelf(), state.speed(d))
			m.add("-device", ssdPort(i, ports))
			ports++
			if !state.DisksOut[d.Name] {
				m.add("-device", ssdDevice(i, d))
			}
		}
		m.add("-device", props{"driver": "i6300esb", "id": "watchdog"}) // resets the machine
	}
	return m.args, m.err
}

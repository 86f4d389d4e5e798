package rack

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/mortarhpc/mortar/internal/brick/spec"
)

// FaultKind is one way to break the rack or to mend it.
type FaultKind struct {
	Name string
	// Args names the targets in order; those in brackets are optional.
	Args string
	Help string
	run  func(ctx context.Context, r *rack, args []string) error
}

// Faults lists every kind of fault.
func Faults() []FaultKind { return slices.Clone(faultKinds) }

var faultKinds = []FaultKind{
	{"freeze", "NODE", "stop the processor: the node neither answers nor dies", func(ctx context.Context, r *rack, a []string) error {
		return r.machine(ctx, a[0], "stop")
	}},
	{"unfreeze", "NODE", "let a frozen node run on", func(ctx context.Context, r *rack, a []string) error {
		return r.machine(ctx, a[0], "cont")
	}},
	{"panic", "NODE", "panic the kernel by a non-maskable interrupt; it stays so until it is fenced", func(ctx context.Context, r *rack, a []string) error {
		return r.machine(ctx, a[0], "inject-nmi")
	}},
	{"reset", "NODE", "press the reset button", func(ctx context.Context, r *rack, a []string) error {
		if _, err := r.cfg.node(a[0]); err != nil {
			return err
		}
		return r.resetNode(ctx, a[0])
	}},
	{"kill", "NODE", "cut the power inside the node; it stays off until poweron (or its cords are cycled)", powerOff},
	{"poweroff", "NODE", "hold the power button, as the BMC does; the same as kill", powerOff},
	{"poweron", "NODE", "press the power button", func(ctx context.Context, r *rack, a []string) error {
		n, err := r.cfg.node(a[0])
		if err != nil {
			return err
		}
		return withPower(ctx, r, func(h *hardware) error {
			if !h.powered(n) {
				return refuse("node %s has no power: both of its cords are off", n.Name)
			}
			return r.startNode(ctx, h, n.Name)
		})
	}},
	{"server-new", "NODE", "put another machine in the place of a server that is off: its system disks are as freshly installed; BMC, outlets and addresses stay", func(ctx context.Context, r *rack, a []string) error {
		return r.newServer(ctx, a[0])
	}},
	{"link-down", "NODE NETWORK", "pull a node's network cable", func(ctx context.Context, r *rack, a []string) error { return r.link(ctx, a[0], a[1], true) }},
	{"link-up", "NODE NETWORK", "plug the cable in", func(ctx context.Context, r *rack, a []string) error { return r.link(ctx, a[0], a[1], false) }},
	{"switch-down", "NETWORK", "switch a whole network off", func(ctx context.Context, r *rack, a []string) error { return r.networkSwitch(ctx, a[0], true) }},
	{"switch-up", "NETWORK", "switch it on", func(ctx context.Context, r *rack, a []string) error { return r.networkSwitch(ctx, a[0], false) }},
	{"path-out", "NODE DISK HBA", "cut one path (HBA 0 or 1) from a server to a disk", func(ctx context.Context, r *rack, a []string) error { return r.path(ctx, a, true) }},
	{"path-in", "NODE DISK HBA", "mend the path", func(ctx context.Context, r *rack, a []string) error { return r.path(ctx, a, false) }},
	{"paths-out", "NODE [ENCLOSURE]", "cut all paths of a server to all disks, or to one enclosure", func(ctx context.Context, r *rack, a []string) error { return r.paths(ctx, a, true) }},
	{"paths-in", "NODE [ENCLOSURE]", "mend them", func(ctx context.Context, r *rack, a []string) error { return r.paths(ctx, a, false) }},
	{"module-out", "ENCLOSURE MODULE", "let an enclosure's I/O module (0 or 1) die, or an array's controller: half the paths of every server to each of its disks; the other controller then owns the LUNs", func(ctx context.Context, r *rack, a []string) error { return r.module(ctx, a, true) }},
	{"module-in", "ENCLOSURE MODULE", "replace the module", func(ctx context.Context, r *rack, a []string) error { return r.module(ctx, a, false) }},
	{"disk-out", "DISK", "pull a disk or an SSD out of its slot; of an array: a spare takes its place", func(ctx context.Context, r *rack, a []string) error { return r.disk(ctx, a[0], true) }},
	{"disk-in", "DISK", "push it in again, with its data", func(ctx context.Context, r *rack, a []string) error { return r.disk(ctx, a[0], false) }},
	{"disk-blank", "DISK SERIAL", "push another disk into the slot of one that is out: blank, of the same size, with this serial number", func(ctx context.Context, r *rack, a []string) error {
		return r.blankDisk(ctx, a[0], a[1])
	}},
	{"system-disk-out", "NODE DISK", "pull one of a server's two mirrored system disks (0 or 1)", func(ctx context.Context, r *rack, a []string) error { return r.system(ctx, a, true) }},
	{"system-disk-in", "NODE DISK", "push it in again, with its data, which are old by then: mdadm adds it to the mirror", func(ctx context.Context, r *rack, a []string) error { return r.system(ctx, a, false) }},
	{"corrupt", "DISK OFFSET LENGTH", "overwrite bytes of a disk with random ones, without an error", func(ctx context.Context, r *rack, a []string) error {
		return r.corrupt(a)
	}},
	{"throttle", "DISK IOPS BYTES_PER_SECOND [WRITES]", "bound a disk's speed; 0 is unbounded. With WRITES a second, IOPS bounds reads only", func(ctx context.Context, r *rack, a []string) error {
		return r.throttle(ctx, a)
	}},
	{"controller-failover", "ARRAY CONTROLLER", "have the other controller (0 or 1) of an array own this one's LUNs; all paths stay", func(ctx context.Context, r *rack, a []string) error {
		return r.failover(ctx, a, true)
	}},
	{"controller-failback", "ARRAY CONTROLLER", "give them back", func(ctx context.Context, r *rack, a []string) error { return r.failover(ctx, a, false) }},
	{"lun-out", "NODE LUN", "hide a LUN from one server; while the server is off: it is missing when it boots", func(ctx context.Context, r *rack, a []string) error {
		return r.lun(ctx, a, true)
	}},
	{"lun-in", "NODE LUN", "show it again", func(ctx context.Context, r *rack, a []string) error { return r.lun(ctx, a, false) }},
	{"lun-slow", "LUN MILLISECONDS", "let every answer of an array's LUN be late by so much; 0 is not", func(ctx context.Context, r *rack, a []string) error {
		return r.slowLUN(ctx, a)
	}},
	{"array-off", "ARRAY", "take the power off an array: all of its paths go", func(ctx context.Context, r *rack, a []string) error { return r.arrayPower(ctx, a[0], true) }},
	{"array-on", "ARRAY", "give it back", func(ctx context.Context, r *rack, a []string) error { return r.arrayPower(ctx, a[0], false) }},
	{"bmc-dead", "NODE", "let a node's BMC die", func(ctx context.Context, r *rack, a []string) error { return r.bmc(ctx, a[0], true) }},
	{"bmc-alive", "NODE", "bring the BMC back", func(ctx context.Context, r *rack, a []string) error { return r.bmc(ctx, a[0], false) }},
	{"bmc-lies", "NODE", "let a node's BMC switch something else: it says that it is done, and the node runs on", func(ctx context.Context, r *rack, a []string) error { return r.bmcLies(ctx, a[0], true) }},
	{"bmc-honest", "NODE", "let it switch its node again", func(ctx context.Context, r *rack, a []string) error { return r.bmcLies(ctx, a[0], false) }},
	{"sensor", "NODE SENSOR VALUE", "set a sensor of a node's BMC: inlet (degrees Celsius; 24), fan1 or fan2 (hundreds of revolutions a minute; 54)", func(_ context.Context, r *rack, a []string) error {
		return r.sensorFault(a)
	}},
	{"pdu-load", "PDU TENTHS", "let other machines on a PDU take so many tenths of an ampere; 0 is none", func(ctx context.Context, r *rack, a []string) error {
		return r.pduLoad(ctx, a)
	}},
	{"outlets-astray", "NODE", "plug a node's cords where no PDU switches them, and something else into its outlets", func(ctx context.Context, r *rack, a []string) error {
		return r.astray(ctx, a[0], true)
	}},
	{"outlets-back", "NODE", "plug the cords into the node's own outlets", func(ctx context.Context, r *rack, a []string) error { return r.astray(ctx, a[0], false) }},
	{"pdu-dead", "PDU", "let a PDU's controller die; its outlets stay as they are", func(ctx context.Context, r *rack, a []string) error { return r.pduController(ctx, a[0], true) }},
	{"pdu-alive", "PDU", "bring the controller back", func(ctx context.Context, r *rack, a []string) error { return r.pduController(ctx, a[0], false) }},
	{"feed-off", "PDU [OUTLET]", "take the power off one outlet, or off the whole PDU", func(ctx context.Context, r *rack, a []string) error { return r.feed(ctx, a, false) }},
	{"feed-on", "PDU [OUTLET]", "give it back; nodes that were without power start", func(ctx context.Context, r *rack, a []string) error { return r.feed(ctx, a, true) }},
}

// Fault breaks or mends one part of the rack in dir. Breaking a broken part, or
// mending a whole one, is no error. All faults except those of a running processor
// (freeze, panic, reset, kill) persist while the node is off, as a pulled cable does.
func Fault(ctx context.Context, dir, kind string, targets ...string) error {
	i := slices.IndexFunc(faultKinds, func(k FaultKind) bool { return k.Name == kind })
	if i < 0 {
		names := make([]string, len(faultKinds))
		for i, k := range faultKinds {
			names[i] = k.Name
		}
		if near := spec.Nearest(kind, names); near != "" {
			return refuse("there is no fault %q: did you mean %s?", kind, near)
		}
		return refuse("there is no fault %q: want one of %s", kind, strings.Join(names, ", "))
	}
	k := faultKinds[i]
	all := strings.Fields(k.Args)
	least := slices.IndexFunc(all, func(a string) bool { return strings.HasPrefix(a, "[") })
	if least < 0 {
		least = len(all)
	}
	if len(targets) < least || len(targets) > len(all) {
		return refuse("fault %s wants %s", k.Name, k.Args)
	}
	r, err := openRack(dir)
	if err != nil {
		return err
	}
	named := slices.Clone(targets)
	for i := range named {
		switch strings.Trim(all[i], "[]") {
		case "DISK", "LUN":
			named[i] = r.cfg.diskName(named[i])
		case "ENCLOSURE", "ARRAY":
			named[i] = r.cfg.enclosureName(named[i])
		}
	}
	return k.run(ctx, r, named)
}

// diskName returns the rack's name of a disk, given that name or the serial number
// in the spec. It returns an unknown name unchanged.
func (c *Config) diskName(name string) string {
	for _, d := range c.sharedDisks() {
		if strings.EqualFold(d.Serial, name) {
			return d.Name
		}
	}
	for _, d := range c.images() {
		if d.Serial != "" && strings.EqualFold(d.Serial, name) {
			return d.Name
		}
	}
	return name
}

// enclosureName returns the rack's name of an enclosure, given that name or the name
// in the spec (see FromSpec).
func (c *Config) enclosureName(name string) string {
	for _, e := range c.Enclosures {
		if e.Name == enclosurePrefix+strings.ToLower(name) {
			return e.Name
		}
	}
	return name
}

func powerOff(ctx context.Context, r *rack, a []string) error {
	if _, err := r.cfg.node(a[0]); err != nil {
		return err
	}
	return withPower(ctx, r, func(*hardware) error { return r.stopNode(a[0]) })
}

// machine sends a command without arguments to a node's QEMU.
func (r *rack) machine(ctx context.Context, node, command string) error {
	if _, err := r.cfg.node(node); err != nil {
		return err
	}
	return withPower(ctx, r, func(*hardware) error {
		return r.withQMP(ctx, node, func(q *qmpClient) error {
			_, err := q.call(command, nil)
			return err
		})
	})
}

// each calls fn for every node that is on and chosen, and collects errors.
func (r *rack) each(ctx context.Context, chosen func(n *Node) bool, fn func(n *Node, q *qmpClient) error) error {
	var errs []error
	for i := range r.cfg.Nodes {
		n := &r.cfg.Nodes[i]
		if chosen(n) && running(r.dir, n.Name) != nil {
			errs = append(errs, r.withQMP(ctx, n.Name, func(q *qmpClient) error { return fn(n, q) }))
		}
	}
	return errors.Join(errs...)
}

func isServer(n *Node) bool { return n.Role == RoleServer }

func (r *rack) link(ctx context.Context, node, network string, down bool) error {
	n, err := r.cfg.node(node)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(n.NICs, func(c NIC) bool { return c.Network == network }) {
		if _, err := r.cfg.network(network); err != nil {
			return err
		}
		return refuse("node %s is not on network %s", node, network)
	}
	return changeHardware(ctx, r, func(h *hardware) { set(&h.LinksDown, node+"/"+network, down) }, func(h *hardware) error {
		return r.each(ctx, func(m *Node) bool { return m == n }, func(n *Node, q *qmpClient) error { return setLinks(q, h, n) })
	})
}

func (r *rack) networkSwitch(ctx context.Context, network string, down bool) error {
	if _, err := r.cfg.network(network); err != nil {
		return err
	}
	return changeHardware(ctx, r, func(h *hardware) { set(&h.SwitchesDown, network, down) }, func(h *hardware) error {
		on := "up"
		if down {
			on = "down"
		}
		// Switch the bridge too: BMCs, PDUs and the admin are connected to it.
		return errors.Join(r.ip(ctx, "link set "+bridgeName(network)+" "+on),
			r.each(ctx, func(*Node) bool { return true }, func(n *Node, q *qmpClient) error { return setLinks(q, h, n) }))
	})
}

// shared returns the shared disk of that name.
func (r *rack) shared(name string) (*sharedDisk, error) {
	disks := r.cfg.sharedDisks()
	for i := range disks {
		if disks[i].Name == name {
			return &disks[i], nil
		}
	}
	return nil, notThere("shared disk", name, disks, func(d sharedDisk) string { return d.Name })
}

func hbaNumber(s string) (int, error) {
	i, err := strconv.Atoi(s)
	if err != nil || i < 0 || i >= hbas {
		return 0, refuse("HBA or I/O module %q: want 0 or 1", s)
	}
	return i, nil
}

func (r *rack) path(ctx context.Context, a []string, out bool) error {
	n, err := r.server(a[0])
	if err != nil {
		return err
	}
	d, err := r.shared(a[1])
	if err != nil {
		return err
	}
	hba, err := hbaNumber(a[2])
	if err != nil {
		return err
	}
	return r.changePaths(ctx, func(h *hardware) { set(&h.PathsOut, pathKey(n.Name, d.Name, hba), out) })
}

func (r *rack) server(name string) (*Node, error) {
	n, err := r.cfg.node(name)
	if err == nil && !isServer(n) {
		err = refuse("node %s is not a server: it has no shared disks", name)
	}
	return n, err
}

func (r *rack) paths(ctx context.Context, a []string, out bool) error {
	n, err := r.server(a[0])
	if err != nil {
		return err
	}
	only := ""
	if len(a) > 1 {
		e, err := r.cfg.enclosure(a[1])
		if err != nil {
			return err
		}
		only = e.Name
	}
	return r.changePaths(ctx, func(h *hardware) {
		for _, d := range r.cfg.sharedDisks() {
			for hba := range hbas {
				if only == "" || d.Enclosure == only {
					set(&h.PathsOut, pathKey(n.Name, d.Name, hba), out)
				}
			}
		}
	})
}

func (r *rack) module(ctx context.Context, a []string, out bool) error {
	e, err := r.cfg.enclosure(a[0])
	if err != nil {
		return err
	}
	m, err := hbaNumber(a[1])
	if err != nil {
		return err
	}
	return r.changePaths(ctx, func(h *hardware) { set(&h.ModulesOut, e.Name+"/"+strconv.Itoa(m), out) })
}

func (r *rack) disk(ctx context.Context, name string, out bool) error {
	if e, i, ok := r.cfg.slot(name); ok {
		return r.slotChange(ctx, e, i, out)
	}
	if !slices.ContainsFunc(r.cfg.SSDs, func(d Disk) bool { return d.Name == name }) {
		if _, err := r.shared(name); err != nil {
			return err
		}
	}
	return r.changePaths(ctx, func(h *hardware) { set(&h.DisksOut, name, out) })
}

// Renewable returns why no other machine can take a node's place (server-new), nil if
// one can.
func Renewable(dir, node string) error {
	r, err := openRack(dir)
	if err != nil {
		return err
	}
	n, err := r.server(node)
	if err != nil {
		return err
	}
	return n.renewable()
}

func (n *Node) renewable() error {
	if n.distribution() {
		return refuse("server %s boots from a disk of its own (--boot distribution): such a one cannot be made anew", n.Name)
	}
	return nil
}

// newServer replaces a server's system disks by freshly installed ones.
func (r *rack) newServer(ctx context.Context, name string) error {
	n, err := r.server(name)
	if err != nil {
		return err
	}
	if err := n.renewable(); err != nil {
		return err
	}
	if running(r.dir, n.Name) != nil {
		return refuse("server %s is on: poweroff %s first", n.Name, n.Name)
	}
	for _, d := range systemDisksOf(r.dir, n) {
		if err := os.Remove(d.Image); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	key, err := ensureKey(identityFile(r.dir), "mortar rack "+r.cfg.Name)
	if err != nil {
		return err
	}
	return ensureStateImage(ctx, r, n, authorized(key))
}

// blankDisk puts a new blank disk into the slot of a pulled one.
func (r *rack) blankDisk(ctx context.Context, name, serial string) error {
	d, err := r.shared(name)
	if err != nil {
		// An interrupted call may have given the slot its new disk.
		if done := r.cfg.diskName(serial); done != serial {
			return r.disk(ctx, done, false)
		}
		return err
	}
	if d.array != nil {
		return refuse("%s is a LUN: name a disk that the servers see", name)
	}
	h, err := loadHardware(r.dir)
	if err != nil {
		return err
	}
	if !h.DisksOut[name] {
		return refuse("disk %s is in its slot: disk-out %s first", d.Serial, d.Serial)
	}
	for i := range r.cfg.Enclosures {
		for j := range r.cfg.Enclosures[i].Disks {
			if k := &r.cfg.Enclosures[i].Disks[j]; k.Name == name {
				k.Serial, k.WWN = serial, wwnOf(serial)
			}
		}
	}
	if err := r.cfg.check(); err != nil {
		return err
	}
	if err := r.zero(ctx, d); err != nil {
		return err
	}
	if err := saveJSON(filepath.Join(r.dir, "config.json"), r.cfg); err != nil {
		return err
	}
	return r.disk(ctx, name, false)
}

// zero overwrites a shared disk with zeroes: its image, and its write cache.
func (r *rack) zero(ctx context.Context, d *sharedDisk) error {
	if running(r.dir, shelves) == nil {
		return refuse("the shared disks have no power: give it back first (feed-on)")
	}
	var commands []string
	const most = 1 << 30 // qemu-io refuses more at once
	for at := int64(0); at < d.Bytes; at += most {
		commands = append(commands, fmt.Sprintf("write -z %d %d", at, min(most, d.Bytes-at)))
	}
	if err := r.qemuIO(ctx, shelves, []string{d.blockID()}, commands...); err != nil {
		return fmt.Errorf("zeroes for disk %s: %w", d.Name, err)
	}
	info, err := os.Stat(diskImage(r.dir, d.Name))
	if err != nil {
		return err
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Blocks > 0 {
		return fmt.Errorf("disk %s still holds %d bytes after it was written with zeroes", d.Name, st.Blocks*sectorBytes)
	}
	return nil
}

// system pulls a server's system disk, or pushes it in. It refuses to pull the last
// one, without which the server cannot run.
func (r *rack) system(ctx context.Context, a []string, out bool) error {
	n, err := r.cfg.node(a[0])
	if err != nil {
		return err
	}
	disks := systemDisksOf(r.dir, n)
	if len(disks) == 1 {
		return refuse("node %s has one system disk only", n.Name)
	}
	i, err := strconv.Atoi(a[1])
	if err != nil || i < 0 || i >= len(disks) {
		return refuse("system disk %q: want 0 or 1", a[1])
	}
	d, other := disks[i], disks[1-i]
	h, err := loadHardware(r.dir)
	if err != nil {
		return err
	}
	if out && h.systemOut(n.Name, other) {
		return refuse("node %s would have no system disk: %d is out already", n.Name, other.Slot)
	}
	return changeHardware(ctx, r, func(h *hardware) { set(&h.SystemOut, systemKey(n.Name, d), out) }, func(*hardware) error {
		return r.each(ctx, func(m *Node) bool { return m == n }, func(_ *Node, q *qmpClient) error {
			if out {
				return q.unplug(d.deviceID())
			}
			return q.plug(d.device())
		})
	})
}

// changePaths changes the disks that the servers reach, then plugs and unplugs
// devices of every running server accordingly.
func (r *rack) changePaths(ctx context.Context, change func(h *hardware)) error {
	var before, wasOff map[string]bool
	return changeHardware(ctx, r, func(h *hardware) {
		before, wasOff = r.present(h), maps.Clone(h.ArraysOff)
		change(h)
	}, func(h *hardware) error {
		after := r.present(h)
		// Unplug before the array refuses requests. The other way round, the session
		// of a busy path stayed in use until QEMU 7.2 ended (seen).
		err := r.replug(ctx, before, after, false)
		if err == nil {
			err = r.arrange(ctx, h, wasOff)
		}
		if err == nil {
			err = r.replug(ctx, before, after, true)
		}
		// Stop arrays last, when no server uses them: a session with a dead array
		// hangs QEMU.
		for _, e := range r.cfg.arrays() {
			if err == nil && h.ArraysOff[e.Name] {
				err = r.stopArray(ctx, e)
			}
		}
		return err
	})
}

// replug plugs what every running server reaches after a change and did not before,
// or unplugs what it reaches no more.
func (r *rack) replug(ctx context.Context, before, after map[string]bool, plug bool) error {
	changes := func(key string) bool { return before[key] != plug && after[key] == plug }
	return r.each(ctx, isServer, func(n *Node, q *qmpClient) error {
		var err error
		for _, d := range r.cfg.sharedDisks() {
			for path := range d.Paths {
				switch {
				case err != nil || !changes(pathKey(n.Name, d.Name, path)):
				case plug:
					err = r.plugPath(q, n, d, path)
				default:
					err = r.unplugPath(q, d, path)
				}
			}
		}
		for i, d := range r.cfg.SSDs {
			switch {
			case err != nil || !d.in(n) || !changes(d.Name):
			case plug:
				err = q.plug(ssdDevice(i, d))
			default:
				err = q.unplug(ssdDeviceID(i))
			}
		}
		return err
	})
}

// present lists the paths and SSDs that are plugged in.
func (r *rack) present(h *hardware) map[string]bool {
	out := map[string]bool{}
	for _, n := range r.cfg.Nodes {
		for _, d := range r.cfg.sharedDisks() {
			for path := range d.Paths {
				out[pathKey(n.Name, d.Name, path)] = !h.pathGone(n.Name, d, path)
			}
		}
	}
	for _, d := range r.cfg.SSDs {
		out[d.Name] = !h.DisksOut[d.Name]
	}
	return out
}

// corrupt overwrites bytes of a disk's image, without an error on any server.
func (r *rack) corrupt(a []string) error {
	size := int64(-1)
	for _, d := range r.cfg.images() {
		if d.Name == a[0] {
			size = d.Bytes
		}
	}
	if size < 0 {
		if _, err := r.shared(a[0]); err != nil {
			return err
		}
		return refuse("%s is a LUN: name a disk of the array", a[0])
	}
	offset, err1 := strconv.ParseInt(a[1], 10, 64)
	length, err2 := strconv.ParseInt(a[2], 10, 64)
	const most = 1 << 30
	if err1 != nil || err2 != nil || offset < 0 || length < 1 || length > most || offset > size-length {
		return refuse("offset %s and length %s: want bytes within the %d of disk %s, at most %d at once", a[1], a[2], size, a[0], most)
	}
	f, err := os.OpenFile(diskImage(r.dir, a[0]), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	buf := make([]byte, 1<<20)
	for length > 0 {
		b := buf[:min(length, int64(len(buf)))]
		if _, err := rand.Read(b); err != nil {
			f.Close()
			return err
		}
		if _, err := f.WriteAt(b, offset); err != nil {
			f.Close()
			return err
		}
		offset += int64(len(b))
		length -= int64(len(b))
	}
	return f.Close()
}

func (r *rack) throttle(ctx context.Context, a []string) error {
	var s speed
	for i, to := range []*int64{&s.IOPS, &s.BytesPerSecond, &s.Writes}[:len(a)-1] {
		n, err := strconv.ParseInt(a[1+i], 10, 64)
		if err != nil || n < 0 {
			return refuse("%s: want I/O operations and bytes per second, 0 for no limit", strings.Join(a[1:], " "))
		}
		*to = n
	}
	object := ""
	reaches := isServer
	var inside *Enclosure
	if i := slices.IndexFunc(r.cfg.SSDs, func(d Disk) bool { return d.Name == a[0] }); i >= 0 {
		object = "limit-" + ssdID(i)
		reaches = func(n *Node) bool { return isServer(n) && r.cfg.SSDs[i].in(n) }
	} else if e, i, ok := r.cfg.slot(a[0]); ok {
		inside, object = e, "limit-"+slotID(i)
	} else if d, err := r.shared(a[0]); err != nil {
		return err
	} else if d.array != nil {
		return refuse("%s is a LUN: lun-slow makes it slow, and throttle a disk of its array", a[0])
	} else {
		object = d.throttleID()
		reaches = func(n *Node) bool { return isServer(n) && d.cabledTo(n.Name) }
	}
	// QEMU keeps a limit that the command omits, so reset these two.
	value := props{"iops-read": 0, "iops-write": 0}
	maps.Copy(value, limits(s))
	limit := func(q *qmpClient) error {
		_, err := q.call("qom-set", props{"path": "/objects/" + object, "property": "limits", "value": value})
		return err
	}
	return changeHardware(ctx, r, func(h *hardware) {
		if h.Speeds == nil {
			h.Speeds = map[string]speed{}
		}
		h.Speeds[a[0]] = s
	}, func(h *hardware) error {
		if inside != nil {
			if running(r.dir, inside.Name) == nil {
				return nil
			}
			return r.withQMP(ctx, inside.Name, limit)
		}
		return r.each(ctx, reaches, func(_ *Node, q *qmpClient) error { return limit(q) })
	})
}

// arrayOf finds an array by name.
func (r *rack) arrayOf(name string) (*Enclosure, error) {
	e, err := r.cfg.enclosure(name)
	if err == nil && e.Array == nil {
		err = refuse("%s is no array", name)
	}
	return e, err
}

// failover moves the LUNs of a controller to the other one, or back.
func (r *rack) failover(ctx context.Context, a []string, moved bool) error {
	e, err := r.arrayOf(a[0])
	if err != nil {
		return err
	}
	m, err := hbaNumber(a[1])
	if err != nil {
		return err
	}
	h, err := loadHardware(r.dir)
	if err != nil {
		return err
	}
	if moved && h.ModulesOut[moduleKey(e.Name, 1-m)] {
		return refuse("controller %d of %s is out: it cannot take LUNs", 1-m, e.Name)
	}
	return r.changePaths(ctx, func(h *hardware) { set(&h.LUNsMoved, moduleKey(e.Name, m), moved) })
}

// lun hides a LUN, or a disk, from a server: all of its paths.
func (r *rack) lun(ctx context.Context, a []string, out bool) error {
	n, err := r.server(a[0])
	if err != nil {
		return err
	}
	d, err := r.shared(a[1])
	if err != nil {
		return err
	}
	return r.changePaths(ctx, func(h *hardware) {
		for hba := range hbas {
			set(&h.PathsOut, pathKey(n.Name, d.Name, hba), out)
		}
	})
}

func (r *rack) slowLUN(ctx context.Context, a []string) error {
	d, err := r.shared(a[0])
	if err != nil {
		return err
	}
	if d.array == nil {
		return refuse("%s is a disk: throttle makes it slow", d.Name)
	}
	// A server gives up a command after 30 s.
	const most = 60_000
	ms, err := strconv.Atoi(a[1])
	if err != nil || ms < 0 || ms > most {
		return refuse("%q: want milliseconds, 0 to %d", a[1], most)
	}
	return r.changePaths(ctx, func(h *hardware) {
		if h.Slow == nil {
			h.Slow = map[string]int{}
		}
		h.Slow[d.Name] = ms
	})
}

func (r *rack) arrayPower(ctx context.Context, name string, off bool) error {
	e, err := r.arrayOf(name)
	if err != nil {
		return err
	}
	return r.changePaths(ctx, func(h *hardware) { set(&h.ArraysOff, e.Name, off) })
}

// withBMC finds a node that has a BMC.
func (r *rack) withBMC(name string) (*Node, error) {
	n, err := r.cfg.node(name)
	if err == nil && n.BMC == nil {
		err = refuse("node %s has no BMC", name)
	}
	return n, err
}

func (r *rack) bmc(ctx context.Context, node string, dead bool) error {
	n, err := r.withBMC(node)
	if err != nil {
		return err
	}
	return changeHardware(ctx, r, func(h *hardware) { set(&h.DeadBMCs, node, dead) }, func(h *hardware) error {
		if dead {
			return r.stopBMC(ctx, n)
		}
		return r.ensureBMC(ctx, h, n)
	})
}

func (r *rack) bmcLies(ctx context.Context, node string, lies bool) error {
	if _, err := r.withBMC(node); err != nil {
		return err
	}
	return changeHardware(ctx, r, func(h *hardware) {
		if !lies {
			delete(h.LyingBMCs, node)
			return
		}
		if h.LyingBMCs == nil {
			h.LyingBMCs = map[string]string{}
		}
		if h.LyingBMCs[node] == "" {
			h.LyingBMCs[node] = powerWord(running(r.dir, node) != nil)
		}
	}, func(*hardware) error { return nil })
}

// astray moves a node's cords away from its outlets, or back. If its outlets are off
// when the cords come back, the node loses its power.
func (r *rack) astray(ctx context.Context, node string, away bool) error {
	n, err := r.cfg.node(node)
	if err != nil {
		return err
	}
	if len(n.Feeds) == 0 {
		return refuse("node %s is on no PDU", node)
	}
	return changeHardware(ctx, r, func(h *hardware) {
		for _, f := range n.Feeds {
			set(&h.Astray, outletKey(f.PDU, f.Outlet), away)
		}
	}, func(h *hardware) error {
		if h.powered(n) {
			return nil
		}
		return r.stopNode(node)
	})
}

func (r *rack) pduController(ctx context.Context, name string, dead bool) error {
	p, err := r.cfg.pdu(name)
	if err != nil {
		return err
	}
	return changeHardware(ctx, r, func(h *hardware) { set(&h.DeadPDUs, name, dead) }, func(h *hardware) error {
		if dead {
			return r.stopPDU(ctx, p)
		}
		return r.ensurePDU(ctx, h, p)
	})
}

func (r *rack) feed(ctx context.Context, a []string, on bool) error {
	outlet := 0
	if len(a) > 1 {
		o, err := strconv.Atoi(a[1])
		if err != nil || o < 1 {
			return refuse("outlet %q: want a number from 1", a[1])
		}
		outlet = o
	}
	return r.setOutlets(ctx, a[0], outlet, on)
}

// String is the fault with its targets, as on a command line.
func (k FaultKind) String() string { return fmt.Sprintf("%s %s", k.Name, k.Args) }

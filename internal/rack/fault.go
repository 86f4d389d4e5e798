package rack

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/rack/hw"
	"github.com/mortarhpc/mortar/internal/rack/power"
	"github.com/mortarhpc/mortar/internal/rack/qemu"
	"github.com/mortarhpc/mortar/internal/rack/tool"
)

// FaultKind is one way to break the rack or to mend it.
type FaultKind struct {
	Name string
	// Args names the targets in order; those in brackets are optional.
	Args string
	Help string
	// run breaks, or mends what a fault with the same run breaks.
	run    func(ctx context.Context, t *targets, broken bool) error
	broken bool
}

// String is the fault with its targets, as on a command line.
func (k FaultKind) String() string { return fmt.Sprintf("%s %s", k.Name, k.Args) }

func Faults() []FaultKind { return slices.Clone(faultKinds) }

// FaultWords are the kinds of faults, each with a tab and its help.
func FaultWords() []string {
	out := make([]string, len(faultKinds))
	for i, k := range faultKinds {
		out[i] = k.Name + "\t" + k.Help
	}
	return out
}

// FaultWord is the word for what follows a kind and some of its targets, such as DISK; HOST
// stands for a node. Without a kind it is KIND.
func FaultWord(args []string) string {
	if len(args) == 0 {
		return "KIND"
	}
	i := slices.IndexFunc(faultKinds, func(k FaultKind) bool { return k.Name == args[0] })
	if i < 0 {
		return ""
	}
	targets := append(strings.Fields(strings.ReplaceAll(faultKinds[i].Args, "NODE", "HOST")), make([]string, len(args))...)
	return strings.Trim(targets[len(args)-1], "[]")
}

var faultKinds = []FaultKind{
	{"freeze", "NODE", "stop the processor: the node neither answers nor dies", machineFault("stop"), false},
	{"unfreeze", "NODE", "let a frozen node run on", machineFault("cont"), false},
	{"panic", "NODE", "panic the kernel by a non-maskable interrupt; it stays so until it is fenced", machineFault("inject-nmi"), false},
	{"reset", "NODE", "press the reset button", resetFault, false},
	{"kill", "NODE", "cut the power inside the node; it stays off until poweron (or its cords are cycled)", powerOffFault, false},
	{"poweroff", "NODE", "hold the power button, as the BMC does; the same as kill", powerOffFault, false},
	{"poweron", "NODE", "press the power button", powerOnFault, false},
	{"server-new", "NODE", "put another machine in the place of a server that is off: its system disks are as freshly installed; BMC, outlets and addresses stay", newServerFault, false},
	{"link-down", "NODE NETWORK", "pull a node's network cable", linkFault, true},
	{"link-up", "NODE NETWORK", "plug the cable in", linkFault, false},
	{"switch-down", "NETWORK", "switch a whole network off", switchFault, true},
	{"switch-up", "NETWORK", "switch it on", switchFault, false},
	{"path-out", "NODE DISK HBA", "cut one path (HBA 0 or 1) from a server to a disk", pathFault, true},
	{"path-in", "NODE DISK HBA", "mend the path", pathFault, false},
	{"paths-out", "NODE [ENCLOSURE]", "cut all paths of a server to all disks, or to one enclosure", pathsFault, true},
	{"paths-in", "NODE [ENCLOSURE]", "mend them", pathsFault, false},
	{"module-out", "ENCLOSURE MODULE", "let an enclosure's I/O module (0 or 1) die, or an array's controller: half the paths of every server to each of its disks; the other controller then owns the LUNs", moduleFault, true},
	{"module-in", "ENCLOSURE MODULE", "replace the module", moduleFault, false},
	{"disk-out", "DISK", "pull a disk or an SSD out of its slot; of an array: a spare takes its place", diskFault, true},
	{"disk-in", "DISK", "push it in again, with its data", diskFault, false},
	{"disk-blank", "DISK SERIAL", "push another disk into the slot of one that is out: blank, of the same size, with this serial number", blankDiskFault, false},
	{"system-disk-out", "NODE DISK", "pull one of a server's two mirrored system disks (0 or 1)", systemDiskFault, true},
	{"system-disk-in", "NODE DISK", "push it in again, with its data, which are old by then: mdadm adds it to the mirror", systemDiskFault, false},
	{"corrupt", "DISK OFFSET LENGTH", "overwrite bytes of a disk with random ones, without an error", corruptFault, false},
	{"throttle", "DISK IOPS BYTES_PER_SECOND [WRITES]", "bound a disk's speed; 0 is unbounded. With WRITES a second, IOPS bounds reads only", throttleFault, false},
	{"controller-failover", "ARRAY CONTROLLER", "have the other controller (0 or 1) of an array own this one's LUNs; all paths stay", controllerFault, true},
	{"controller-failback", "ARRAY CONTROLLER", "give them back", controllerFault, false},
	{"lun-out", "NODE LUN", "hide a LUN from one server; while the server is off: it is missing when it boots", lunFault, true},
	{"lun-in", "NODE LUN", "show it again", lunFault, false},
	{"lun-slow", "LUN MILLISECONDS", "let every answer of an array's LUN be late by so much; 0 is not", slowFault, false},
	{"array-off", "ARRAY", "take the power off an array: all of its paths go", arrayPowerFault, true},
	{"array-on", "ARRAY", "give it back", arrayPowerFault, false},
	{"bmc-dead", "NODE", "let a node's BMC die", bmcFault, true},
	{"bmc-alive", "NODE", "bring the BMC back", bmcFault, false},
	{"bmc-lies", "NODE", "let a node's BMC switch something else: it says that it is done, and the node runs on", lyingBMCFault, true},
	{"bmc-honest", "NODE", "let it switch its node again", lyingBMCFault, false},
	{"sensor", "NODE SENSOR VALUE", "set a sensor of a node's BMC: inlet (degrees Celsius; 24), fan1 or fan2 (hundreds of revolutions a minute; 54)", sensorFault, false},
	{"pdu-load", "PDU TENTHS", "let other machines on a PDU take so many tenths of an ampere; 0 is none", loadFault, false},
	{"outlets-astray", "NODE", "plug a node's cords where no PDU switches them, and something else into its outlets", cordsFault, true},
	{"outlets-back", "NODE", "plug the cords into the node's own outlets", cordsFault, false},
	{"pdu-dead", "PDU", "let a PDU's controller die; its outlets stay as they are", pduFault, true},
	{"pdu-alive", "PDU", "bring the controller back", pduFault, false},
	{"feed-off", "PDU [OUTLET]", "take the power off one outlet, or off the whole PDU", feedFault, true},
	{"feed-on", "PDU [OUTLET]", "give it back; nodes that were without power start", feedFault, false},
}

// Fault breaks or mends one part of the rack in dir. Breaking a broken part, or
// mending a whole one, is no error. All faults except those of a running processor
// (freeze, panic, reset, kill) persist while the node is off, as a pulled cable does.
func Fault(ctx context.Context, dir, kind string, names ...string) (err error) {
	i := slices.IndexFunc(faultKinds, func(k FaultKind) bool { return k.Name == kind })
	if i < 0 {
		kinds := make([]string, len(faultKinds))
		for i, k := range faultKinds {
			kinds[i] = k.Name
		}
		if near := spec.Nearest(kind, kinds); near != "" {
			return tool.Refuse("there is no fault %q: did you mean %s?", kind, near)
		}
		return tool.Refuse("there is no fault %q: want one of %s", kind, strings.Join(kinds, ", "))
	}
	k := faultKinds[i]
	all := strings.Fields(k.Args)
	least := slices.IndexFunc(all, func(a string) bool { return strings.HasPrefix(a, "[") })
	if least < 0 {
		least = len(all)
	}
	if len(names) < least || len(names) > len(all) {
		return tool.Refuse("fault %s wants %s", k.Name, k.Args)
	}
	r, err := openRack(dir)
	if err != nil {
		return err
	}
	t := &targets{rack: r, args: slices.Clone(names)}
	defer t.refusal(&err)
	for i := range t.args {
		switch strings.Trim(all[i], "[]") {
		case "DISK", "LUN":
			t.args[i] = r.cfg.DiskName(t.args[i])
		case "ENCLOSURE", "ARRAY":
			t.args[i] = r.cfg.EnclosureName(t.args[i])
		}
	}
	return k.run(ctx, t, k.broken)
}

// targets are what a fault is about. A method that does not find one ends the fault with a
// refusal, before it changes anything.
type targets struct {
	*rack
	args []string
}

// refused is the panic by which a method of targets ends a fault.
type refused struct{ error }

// refusal turns such a panic into a fault's error.
func (t *targets) refusal(err *error) {
	switch p := recover().(type) {
	case nil:
	case refused:
		*err = p.error
	default:
		panic(p)
	}
}

func orRefuse[T any](v T, err error) T {
	if err != nil {
		panic(refused{err})
	}
	return v
}

// refuseUnless refuses unless a condition holds.
func refuseUnless(ok bool, format string, args ...any) {
	if !ok {
		panic(refused{tool.Refuse(format, args...)})
	}
}

func (t *targets) node(i int) *hw.Node           { return orRefuse(t.cfg.Node(t.args[i])) }
func (t *targets) server(i int) *hw.Node         { return orRefuse(t.rack.server(t.args[i])) }
func (t *targets) shared(i int) *hw.SharedDisk   { return orRefuse(t.rack.shared(t.args[i])) }
func (t *targets) enclosure(i int) *hw.Enclosure { return orRefuse(t.cfg.Enclosure(t.args[i])) }
func (t *targets) network(i int) string          { return orRefuse(t.cfg.Network(t.args[i])).Name }
func (t *targets) pdu(i int) *hw.PDU             { return orRefuse(t.cfg.PDU(t.args[i])) }
func (t *targets) hardware() *hw.Hardware        { return orRefuse(loadHardware(t.dir)) }

// managed is a node with a BMC.
func (t *targets) managed(i int) *hw.Node {
	n := t.node(i)
	refuseUnless(n.BMC != nil, "node %s has no BMC", n.Name)
	return n
}

func (t *targets) array(i int) *hw.Enclosure {
	e := t.enclosure(i)
	refuseUnless(e.Array != nil, "%s is no array", e.Name)
	return e
}

// unit is an HBA, an I/O module or a controller.
func (t *targets) unit(i int) int { return t.number(i, hw.HBAs-1, "HBA or I/O module %q: want 0 or 1") }

// number is a number from 0 to most; problem is the format of the refusal.
func (t *targets) number(i, most int, problem string) int {
	v, err := strconv.Atoi(t.args[i])
	refuseUnless(err == nil && v >= 0 && v <= most, problem, t.args[i])
	return v
}

// on calls fn for the QEMU of a node, if that runs.
func (t *targets) on(ctx context.Context, n *hw.Node, fn func(q *qemu.Client) error) error {
	return eachRunning(ctx, t.rack, func(m *hw.Node) bool { return m == n }, func(_ *hw.Node, q *qemu.Client) error { return fn(q) })
}

func noChange(*hw.Hardware) error { return nil }

// machineFault sends a command without arguments to a node's QEMU.
func machineFault(command string) func(ctx context.Context, t *targets, _ bool) error {
	return func(ctx context.Context, t *targets, _ bool) error {
		n := t.node(0)
		return withPower(ctx, t.rack, func(*hw.Hardware) error {
			return t.withQMP(ctx, n.Name, func(q *qemu.Client) error {
				_, err := q.Call(command, nil)
				return err
			})
		})
	}
}

func resetFault(ctx context.Context, t *targets, _ bool) error {
	return t.resetNode(ctx, t.node(0).Name)
}

func powerOffFault(ctx context.Context, t *targets, _ bool) error {
	n := t.node(0)
	return withPower(ctx, t.rack, func(*hw.Hardware) error { return t.stopNode(n.Name) })
}

func powerOnFault(ctx context.Context, t *targets, _ bool) error {
	n := t.node(0)
	return withPower(ctx, t.rack, func(h *hw.Hardware) error {
		if !h.Powered(n) {
			return tool.Refuse("node %s has no power: both of its cords are off", n.Name)
		}
		return t.startNode(ctx, h, n.Name)
	})
}

// eachRunning calls fn for every node that is on and chosen, and collects errors.
func eachRunning(ctx context.Context, r *rack, chosen func(n *hw.Node) bool, fn func(n *hw.Node, q *qemu.Client) error) error {
	var errs []error
	for i := range r.cfg.Nodes {
		n := &r.cfg.Nodes[i]
		if chosen(n) && tool.Running(r.dir, n.Name) != nil {
			errs = append(errs, r.withQMP(ctx, n.Name, func(q *qemu.Client) error { return fn(n, q) }))
		}
	}
	return errors.Join(errs...)
}

func linkFault(ctx context.Context, t *targets, down bool) error {
	n, network := t.node(0), t.network(1)
	refuseUnless(slices.ContainsFunc(n.NICs, func(c hw.NIC) bool { return c.Network == network }), "node %s is not on network %s", n.Name, network)
	return changeHardware(ctx, t.rack, func(h *hw.Hardware) { hw.Set(&h.LinksDown, n.Name+"/"+network, down) }, func(h *hw.Hardware) error {
		return t.on(ctx, n, func(q *qemu.Client) error { return qemu.SetLinks(q, h, n) })
	})
}

func switchFault(ctx context.Context, t *targets, down bool) error {
	network := t.network(0)
	return changeHardware(ctx, t.rack, func(h *hw.Hardware) { hw.Set(&h.SwitchesDown, network, down) }, func(h *hw.Hardware) error {
		on := "up"
		if down {
			on = "down"
		}
		// Switch the bridge too: BMCs, PDUs and the admin are connected to it.
		return errors.Join(t.ip(ctx, "link set "+hw.BridgeName(network)+" "+on),
			eachRunning(ctx, t.rack, func(*hw.Node) bool { return true }, func(n *hw.Node, q *qemu.Client) error { return qemu.SetLinks(q, h, n) }))
	})
}

func (r *rack) shared(name string) (*hw.SharedDisk, error) {
	return hw.Named("shared disk", name, r.cfg.SharedDisks(), func(d *hw.SharedDisk) string { return d.Name })
}

func (r *rack) server(name string) (*hw.Node, error) {
	n, err := r.cfg.Node(name)
	if err == nil && !hw.IsServer(n) {
		err = tool.Refuse("node %s is not a server: it has no shared disks", name)
	}
	return n, err
}

func pathFault(ctx context.Context, t *targets, out bool) error {
	n, d, hba := t.server(0), t.shared(1), t.unit(2)
	return changePaths(ctx, t.rack, func(h *hw.Hardware) { hw.Set(&h.PathsOut, hw.PathKey(n.Name, d.Name, hba), out) })
}

func pathsFault(ctx context.Context, t *targets, out bool) error {
	n, only := t.server(0), ""
	if len(t.args) > 1 {
		only = t.enclosure(1).Name
	}
	return changePaths(ctx, t.rack, func(h *hw.Hardware) {
		for _, d := range t.cfg.SharedDisks() {
			for hba := range hw.HBAs {
				if only == "" || d.Enclosure == only {
					hw.Set(&h.PathsOut, hw.PathKey(n.Name, d.Name, hba), out)
				}
			}
		}
	})
}

func moduleFault(ctx context.Context, t *targets, out bool) error {
	e, m := t.enclosure(0), t.unit(1)
	return changePaths(ctx, t.rack, func(h *hw.Hardware) { hw.Set(&h.ModulesOut, hw.ModuleKey(e.Name, m), out) })
}

func diskFault(ctx context.Context, t *targets, out bool) error {
	name := t.args[0]
	if e, i, ok := t.cfg.Slot(name); ok {
		return slotChange(ctx, t.rack, e, i, out)
	}
	if !slices.ContainsFunc(t.cfg.SSDs, func(d hw.Disk) bool { return d.Name == name }) {
		t.shared(0)
	}
	return changePaths(ctx, t.rack, func(h *hw.Hardware) { hw.Set(&h.DisksOut, name, out) })
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
	return n.Renewable()
}

// newServerFault replaces a server's system disks by freshly installed ones.
func newServerFault(ctx context.Context, t *targets, _ bool) error {
	n, r := t.server(0), t.rack
	if err := n.Renewable(); err != nil {
		return err
	}
	if tool.Running(r.dir, n.Name) != nil {
		return tool.Refuse("server %s is on: poweroff %s first", n.Name, n.Name)
	}
	for _, d := range hw.SystemDisksOf(r.dir, n) {
		if err := os.Remove(d.Image); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	key, err := tool.EnsureKey(identityFile(r.dir), "mortar rack "+r.cfg.Name)
	if err != nil {
		return err
	}
	return ensureStateImage(ctx, r, n, key)
}

// blankDiskFault puts a new blank disk into the slot of a pulled one.
func blankDiskFault(ctx context.Context, t *targets, _ bool) error {
	r, name, serial := t.rack, t.args[0], t.args[1]
	d, err := r.shared(name)
	if err != nil {
		// An interrupted call may have given the slot its new disk.
		if done := r.cfg.DiskName(serial); done != serial {
			return diskFault(ctx, &targets{r, []string{done}}, false)
		}
		return err
	}
	refuseUnless(d.Array == nil, "%s is a LUN: name a disk that the servers see", name)
	refuseUnless(t.hardware().DisksOut[name], "disk %s is in its slot: disk-out %s first", d.Serial, d.Serial)
	for i := range r.cfg.Enclosures {
		for j := range r.cfg.Enclosures[i].Disks {
			if k := &r.cfg.Enclosures[i].Disks[j]; k.Name == name {
				k.Serial, k.WWN = serial, hw.WWNOf(serial)
			}
		}
	}
	if err := r.cfg.Check(); err != nil {
		return err
	}
	if err := zero(ctx, r, d); err != nil {
		return err
	}
	if err := tool.SaveJSON(filepath.Join(r.dir, "config.json"), r.cfg); err != nil {
		return err
	}
	return diskFault(ctx, t, false)
}

// zero overwrites a shared disk with zeroes: its image, and its write cache.
func zero(ctx context.Context, r *rack, d *hw.SharedDisk) error {
	if tool.Running(r.dir, hw.Shelves) == nil {
		return tool.Refuse("the shared disks have no power: give it back first (feed-on)")
	}
	if err := r.order(ctx, hw.Shelves, "zero "+d.BlockID()); err != nil {
		return fmt.Errorf("zeroes for disk %s: %w", d.Name, err)
	}
	info, err := os.Stat(hw.DiskImage(r.dir, d.Name))
	if err != nil {
		return err
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Blocks > 0 {
		return fmt.Errorf("disk %s still holds %d bytes after it was written with zeroes", d.Name, st.Blocks*hw.SectorBytes)
	}
	return nil
}

// systemDiskFault pulls a server's system disk, or pushes it in. It refuses to pull the last
// one, without which the server cannot run.
func systemDiskFault(ctx context.Context, t *targets, out bool) error {
	n := t.node(0)
	disks := hw.SystemDisksOf(t.dir, n)
	refuseUnless(len(disks) > 1, "node %s has one system disk only", n.Name)
	i := t.number(1, hw.SystemDisks-1, "system disk %q: want 0 or 1")
	d, other := disks[i], disks[1-i]
	refuseUnless(!out || !t.hardware().SystemDiskOut(n.Name, other), "node %s would have no system disk: %d is out already", n.Name, other.Slot)
	return changeHardware(ctx, t.rack, func(h *hw.Hardware) { hw.Set(&h.SystemOut, hw.SystemKey(n.Name, d), out) }, func(*hw.Hardware) error {
		return t.on(ctx, n, func(q *qemu.Client) error {
			if out {
				return q.Unplug(d.DeviceID())
			}
			return q.Plug(qemu.SystemDevice(d))
		})
	})
}

// changePaths changes the disks that the servers reach, then plugs and unplugs
// devices of every running server accordingly.
func changePaths(ctx context.Context, r *rack, change func(h *hw.Hardware)) error {
	var before, wasOff map[string]bool
	return changeHardware(ctx, r, func(h *hw.Hardware) {
		before, wasOff = present(r, h), maps.Clone(h.ArraysOff)
		change(h)
	}, func(h *hw.Hardware) error {
		after := present(r, h)
		// Unplug before the array refuses requests. The other way round, the session
		// of a busy path stayed in use until QEMU 7.2 ended (seen).
		err := replug(ctx, r, before, after, false)
		if err == nil {
			err = arrangeArrays(ctx, r, h, wasOff)
		}
		if err == nil {
			err = replug(ctx, r, before, after, true)
		}
		// Stop arrays last, when no server uses them: a session with a dead array
		// hangs QEMU.
		for _, e := range r.cfg.Arrays() {
			if err == nil && h.ArraysOff[e.Name] {
				err = stopArray(ctx, r, e)
			}
		}
		return err
	})
}

// replug plugs what every running server reaches after a change and did not before,
// or unplugs what it reaches no more.
func replug(ctx context.Context, r *rack, before, after map[string]bool, plug bool) error {
	changes := func(key string) bool { return before[key] != plug && after[key] == plug }
	return eachRunning(ctx, r, hw.IsServer, func(n *hw.Node, q *qemu.Client) error {
		var err error
		for _, d := range r.cfg.SharedDisks() {
			for path := range d.Paths {
				switch {
				case err != nil || !changes(hw.PathKey(n.Name, d.Name, path)):
				case plug:
					err = qemu.PlugPath(q, r.cfg, n, d, path)
				default:
					err = qemu.UnplugPath(q, d, path)
				}
			}
		}
		for i, d := range r.cfg.SSDs {
			switch {
			case err != nil || !d.In(n) || !changes(d.Name):
			case plug:
				err = q.Plug(qemu.SSDDevice(i, d))
			default:
				err = q.Unplug(hw.SSDDeviceID(i))
			}
		}
		return err
	})
}

// present lists the paths and SSDs that are plugged in.
func present(r *rack, h *hw.Hardware) map[string]bool {
	out := map[string]bool{}
	for _, n := range r.cfg.Nodes {
		for _, d := range r.cfg.SharedDisks() {
			for path := range d.Paths {
				out[hw.PathKey(n.Name, d.Name, path)] = !h.PathGone(n.Name, d, path)
			}
		}
	}
	for _, d := range r.cfg.SSDs {
		out[d.Name] = !h.DisksOut[d.Name]
	}
	return out
}

// corruptFault overwrites bytes of a disk's image, without an error on any server.
func corruptFault(_ context.Context, t *targets, _ bool) error {
	r, a := t.rack, t.args
	size := int64(-1)
	for _, d := range r.cfg.Images() {
		if d.Name == a[0] {
			size = d.Bytes
		}
	}
	if size < 0 {
		t.shared(0)
		return tool.Refuse("%s is a LUN: name a disk of the array", a[0])
	}
	offset, err1 := strconv.ParseInt(a[1], 10, 64)
	length, err2 := strconv.ParseInt(a[2], 10, 64)
	const most = 1 << 30
	if err1 != nil || err2 != nil || offset < 0 || length < 1 || length > most || offset > size-length {
		return tool.Refuse("offset %s and length %s: want bytes within the %d of disk %s, at most %d at once", a[1], a[2], size, a[0], most)
	}
	return tool.Overwrite(hw.DiskImage(r.dir, a[0]), offset, io.LimitReader(rand.Reader, length))
}

func throttleFault(ctx context.Context, t *targets, _ bool) error {
	r, a := t.rack, t.args
	var s hw.Speed
	for i, to := range []*int64{&s.IOPS, &s.BytesPerSecond, &s.Writes}[:len(a)-1] {
		n, err := strconv.ParseInt(a[1+i], 10, 64)
		if err != nil || n < 0 {
			return tool.Refuse("%s: want I/O operations and bytes per second, 0 for no limit", strings.Join(a[1:], " "))
		}
		*to = n
	}
	inside, slot, ok := r.cfg.Slot(a[0])
	if !ok && !slices.ContainsFunc(r.cfg.SSDs, func(d hw.Disk) bool { return d.Name == a[0] }) {
		refuseUnless(t.shared(0).Array == nil, "%s is a LUN: lun-slow makes it slow, and throttle a disk of its array", a[0])
	}
	return changeHardware(ctx, r, func(h *hw.Hardware) {
		hw.SetValue(&h.Speeds, a[0], s)
	}, func(h *hw.Hardware) error {
		if !ok || tool.Running(r.dir, inside.Name) == nil { // the process that serves any other disk bounds it
			return nil
		}
		return r.withQMP(ctx, inside.Name, func(q *qemu.Client) error {
			// QEMU keeps a limit that the command omits, so reset these two.
			value := qemu.Props{"iops-read": 0, "iops-write": 0}
			maps.Copy(value, qemu.Limits(s))
			_, err := q.Call("qom-set", qemu.Props{"path": "/objects/limit-" + qemu.SlotID(slot), "property": "limits", "value": value})
			return err
		})
	})
}

// controllerFault moves the LUNs of a controller to the other one, or back.
func controllerFault(ctx context.Context, t *targets, moved bool) error {
	e, m := t.array(0), t.unit(1)
	refuseUnless(!moved || !t.hardware().ModulesOut[hw.ModuleKey(e.Name, 1-m)], "controller %d of %s is out: it cannot take LUNs", 1-m, e.Name)
	return changePaths(ctx, t.rack, func(h *hw.Hardware) { hw.Set(&h.LUNsMoved, hw.ModuleKey(e.Name, m), moved) })
}

// lunFault hides a LUN, or a disk, from a server: all of its paths.
func lunFault(ctx context.Context, t *targets, out bool) error {
	n, d := t.server(0), t.shared(1)
	return changePaths(ctx, t.rack, func(h *hw.Hardware) {
		for hba := range hw.HBAs {
			hw.Set(&h.PathsOut, hw.PathKey(n.Name, d.Name, hba), out)
		}
	})
}

func slowFault(ctx context.Context, t *targets, _ bool) error {
	d := t.shared(0)
	refuseUnless(d.Array != nil, "%s is a disk: throttle makes it slow", d.Name)
	ms := t.number(1, 60_000, "%q: want milliseconds, 0 to 60000") // a server gives up a command after 30 s
	return changePaths(ctx, t.rack, func(h *hw.Hardware) { hw.SetValue(&h.Slow, d.Name, ms) })
}

func arrayPowerFault(ctx context.Context, t *targets, off bool) error {
	e := t.array(0)
	return changePaths(ctx, t.rack, func(h *hw.Hardware) { hw.Set(&h.ArraysOff, e.Name, off) })
}

func bmcFault(ctx context.Context, t *targets, dead bool) error {
	n := t.managed(0)
	return changeHardware(ctx, t.rack, func(h *hw.Hardware) { hw.Set(&h.DeadBMCs, n.Name, dead) }, func(h *hw.Hardware) error {
		if dead {
			return stopBMC(ctx, t.rack, n)
		}
		return ensureBMC(ctx, t.rack, n, h)
	})
}

func lyingBMCFault(ctx context.Context, t *targets, lies bool) error {
	n := t.managed(0)
	return changeHardware(ctx, t.rack, func(h *hw.Hardware) {
		if !lies {
			delete(h.LyingBMCs, n.Name)
		} else if h.LyingBMCs[n.Name] == "" {
			hw.SetValue(&h.LyingBMCs, n.Name, power.PowerWord(tool.Running(t.dir, n.Name) != nil))
		}
	}, noChange)
}

// cordsFault moves a node's cords away from its outlets, or back. If its outlets are off
// when the cords come back, the node loses its power.
func cordsFault(ctx context.Context, t *targets, away bool) error {
	n := t.node(0)
	refuseUnless(len(n.Feeds) > 0, "node %s is on no PDU", n.Name)
	return changeHardware(ctx, t.rack, func(h *hw.Hardware) {
		for _, f := range n.Feeds {
			hw.Set(&h.Astray, hw.OutletKey(f.PDU, f.Outlet), away)
		}
	}, func(h *hw.Hardware) error {
		if h.Powered(n) {
			return nil
		}
		return t.stopNode(n.Name)
	})
}

// loadFault sets what other machines take from a PDU.
func loadFault(ctx context.Context, t *targets, _ bool) error {
	p := t.pdu(0)
	load := t.number(1, 1000, "load %q: want tenths of an ampere, 0 to 1000")
	return changeHardware(ctx, t.rack, func(h *hw.Hardware) { hw.SetValue(&h.Loads, p.Name, load) }, noChange)
}

func pduFault(ctx context.Context, t *targets, dead bool) error {
	p := t.pdu(0)
	return changeHardware(ctx, t.rack, func(h *hw.Hardware) { hw.Set(&h.DeadPDUs, p.Name, dead) }, func(h *hw.Hardware) error {
		if dead {
			return stopPDU(ctx, t.rack, p)
		}
		return ensurePDU(ctx, t.rack, p, h)
	})
}

func feedFault(ctx context.Context, t *targets, off bool) error {
	p, outlet := t.pdu(0), 0
	if len(t.args) > 1 {
		outlet = t.number(1, 1<<30, "outlet %q: want a number from 1")
		refuseUnless(outlet > 0, "outlet %q: want a number from 1", t.args[1])
	}
	return t.setOutlets(ctx, p.Name, outlet, !off)
}

package rack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Array is a RAID array with two controllers. It is a machine of its own in
// the rack: Linux, with RAID groups of md over its virtual disks, and its LUNs
// exported by LIO. See docs/rack.md for the reasons.
type Array struct {
	// Vendor, Product and Revision of the SCSI inquiry.
	Vendor   string `json:"vendor"`
	Product  string `json:"product"`
	Revision string `json:"revision"`
	// Disks in their slots. A disk in no group is a global spare.
	Disks  []Disk      `json:"disks"`
	Groups []RAIDGroup `json:"groups"`
	// Management is the array's management interface; nil: none.
	Management *Management `json:"management,omitempty"`
}

// RAIDGroup is a RAID group (disk group, virtual disk) of an array.
type RAIDGroup struct {
	Name string `json:"name"`
	// Level is 6 or 10.
	Level int `json:"level"`
	// Chunk is the part of a stripe on one disk, in bytes.
	Chunk int64 `json:"chunk"`
	// MemberBytes is how much of each disk the group uses.
	MemberBytes int64 `json:"member_bytes"`
	// Members are names of disks, in RAID order.
	Members []string `json:"members"`
}

// LUNPlace is the place of a LUN in an array, and the controller that owns the LUN.
type LUNPlace struct {
	Number int    `json:"number"`
	Group  string `json:"group"`
	// Offset in the group, in bytes.
	Offset int64 `json:"offset"`
	// Controller is the preferred owner: 0 or 1.
	Controller int `json:"controller"`
}

const (
	// controllers of an array. Each has one portal.
	controllers = 2
	// arrayMemoryMiB, the memory of an array's machine, is enough for 84 disks, 8 groups and 64 sessions, which
	// leave 150 MiB of it free.
	arrayMemoryMiB = 512
	// disksPerHBA is how many disks an array has on one HBA.
	disksPerHBA = 128
	// metadataBytes is md's space on each disk in addition to the group's data:
	// 1 MiB before the data, and losses by rounding.
	metadataBytes = 4 << 20
	// iscsiPort is the registered port of iSCSI.
	iscsiPort = 3260
	// arrayTime bounds a command to an array. A change of ALUA states takes less
	// than two seconds, adding a disk to a group three.
	arrayTime = time.Minute
)

// ALUA states, as LIO numbers them.
const (
	aluaOptimized    = 0
	aluaNonOptimized = 1
	aluaUnavailable  = 3
)

// arrays lists the enclosures that are arrays.
func (c *Config) arrays() []*Enclosure {
	var out []*Enclosure
	for i := range c.Enclosures {
		if c.Enclosures[i].Array != nil {
			out = append(out, &c.Enclosures[i])
		}
	}
	return out
}

// withArray reports whether a server has LUNs of arrays.
func (c *Config) withArray(server string) bool {
	return slices.ContainsFunc(c.arrays(), func(e *Enclosure) bool { return e.cabledTo(server) })
}

// data is the capacity of a group in disks.
func (g *RAIDGroup) data() int {
	if g.Level == 10 {
		return len(g.Members) / 2
	}
	return len(g.Members) - 2
}

// arrayNet is an address on an array's own link to the servers, which replaces its
// SAS cables. 198.18.0.0/15 is reserved for tests of devices (RFC 2544), so no brick
// uses these addresses.
func arrayNet(index, host int) netip.Addr {
	return netip.AddrFrom4([4]byte{198, 18, byte(index), byte(host)})
}

const (
	linkHost   = 1  // our end, on which the host ports listen
	linkPortal = 11 // controller 0; controller 1 has the next address
)

func arrayTap(index int) string { return "array" + strconv.Itoa(index) }

// fabricName is the process of an array's host ports.
func fabricName(array string) string { return "fabric-" + array }

// targetName is an array's iSCSI name. initiatorName is the name of the other end of
// a path: an HBA and one LUN. Each of QEMU's sessions has one LUN, so a name for each
// LUN gives each session its own nexus with the same ISID.
func targetName(c *Config, e *Enclosure) string { return "iqn.2026-11.rack:" + c.Name + "." + e.Name }
func initiatorName(server string, hba, lun int) string {
	return fmt.Sprintf("iqn.2026-11.rack:%s.hba%d.lun%d", server, hba, lun)
}

// arrayIndex is an array's place among the arrays.
func (c *Config) arrayIndex(name string) int {
	return slices.IndexFunc(c.arrays(), func(e *Enclosure) bool { return e.Name == name })
}

func arrayState(dir, name string) string { return filepath.Join(dir, "nodes", name, "state.ext4") }
func controlSocket(name string) string   { return name + ".control" }

// arrayArgs is the command line of an array's QEMU.
func arrayArgs(c *Config, dir string, e *Enclosure, img *image, accel string, state *hardware) ([]string, error) {
	a := e.Array
	in := 0
	for _, d := range a.Disks {
		if !state.DisksOut[d.Name] {
			in++
		}
	}
	m := newMachine(c.processName(e.Name), dir, e.Name, arrayMemoryMiB,
		loadArgs(img, fmt.Sprintf("%s%s mortar.array mortar.disks=%d", kernelArgs, clockArgs(accel), in)), accelArgs(accel, 1))
	m.args = append(m.args, "-chardev", "socket,id=control,path="+controlSocket(e.Name)+",server=on,wait=off", "-serial", "chardev:control")
	m.root(img)
	m.disk("state", arrayState(dir, e.Name), speed{})
	m.add("-device", props{"driver": "virtio-blk-pci", "id": "state-dev", "drive": "state", "serial": "state"})
	m.args = append(m.args, "-netdev", "tap,id=net0,ifname="+arrayTap(c.arrayIndex(e.Name))+",script=no,downscript=no")
	m.add("-device", props{"driver": "virtio-net-pci", "id": "eth0", "netdev": "net0", "romfile": ""})
	for i, d := range a.Disks {
		if i%disksPerHBA == 0 {
			m.add("-device", props{"driver": "virtio-scsi-pci", "id": "shelf" + strconv.Itoa(i/disksPerHBA), "num_queues": 1})
		}
		m.disk(slotID(i), diskImage(dir, d.Name), state.speed(d))
		if !state.DisksOut[d.Name] {
			m.add("-device", slotDevice(i, d))
		}
	}
	return m.args, m.err
}

func slotID(i int) string       { return "slot" + strconv.Itoa(i) }
func slotDeviceID(i int) string { return "disk" + strconv.Itoa(i) }

// slotDevice is disk i of an array in its slot.
func slotDevice(i int, d Disk) props {
	return props{"driver": "scsi-hd", "id": slotDeviceID(i), "bus": "shelf" + strconv.Itoa(i/disksPerHBA) + ".0",
		"scsi-id": i % disksPerHBA, "drive": slotID(i), "serial": d.Serial, "rotation_rate": 7200}
}

// ensureArrayState makes an array's own disk, with its firmware's settings. On that
// disk the array keeps the members of its groups, and reservations, over a loss of
// power.
func ensureArrayState(ctx context.Context, r *rack, e *Enclosure) error {
	img := arrayState(r.dir, e.Name)
	if there(img) {
		return nil
	}
	part, err := seededExt4(ctx, img, arrayStateBytes, arrayStateBytes, []seedFile{{"array", firmware(r.cfg, e), 0o644}}, "-J", "size=4")
	if err != nil {
		return err
	}
	return os.Rename(part, img)
}

// arrayStateBytes is the size of an array's own disk: some settings.
const arrayStateBytes = 64 << 20

// arrayLine is the command line of an array of this rack.
func arrayLine(r *rack, e *Enclosure, h *hardware) ([]string, error) {
	img, err := r.image()
	if err != nil {
		return nil, err
	}
	return arrayArgs(r.cfg, r.dir, e, img, r.st.Accel, h)
}

// startArray switches an array on, and its host ports. The caller holds the
// power lock.
func startArray(ctx context.Context, r *rack, e *Enclosure, h *hardware) error {
	if h.ArraysOff[e.Name] {
		return nil
	}
	if running(r.dir, e.Name) == nil {
		args, err := arrayLine(r, e, h)
		if err != nil {
			return err
		}
		if err := r.startMachine(ctx, e.Name, args); err != nil {
			return err
		}
	}
	if err := managementAddresses(ctx, r, e, true); err != nil {
		return err
	}
	return startFabric(ctx, r, e)
}

// stopArray cuts an array's power. Unplug its LUNs from all servers before.
func stopArray(ctx context.Context, r *rack, e *Enclosure) error {
	return errors.Join(stop(r.dir, fabricName(e.Name)), r.stopNode(e.Name), managementAddresses(ctx, r, e, false))
}

// waitArray waits until an array exports its LUNs.
func waitArray(ctx context.Context, r *rack, e *Enclosure) error {
	return r.waitUp(ctx, e.Name, func() bool { return true })
}

// steer sets the ALUA states of each LUN of an array from the hardware: optimized at
// the controller that owns the LUN, non-optimized at the other. The LUNs of a dead
// controller belong to the other one.
func steer(ctx context.Context, r *rack, e *Enclosure, h *hardware) error {
	var commands []string
	for i, d := range e.Disks {
		for c := range controllers {
			commands = append(commands, fmt.Sprintf("alua %d %d %d", i, c, h.alua(e, d.LUN, c)))
		}
		if ms := h.Slow[d.Name]; ms > 0 || h.wasSlow(d.Name) {
			commands = append(commands, fmt.Sprintf("slow %d %d", i, ms))
		}
	}
	_, err := arrayCommand(ctx, r, e, strings.Join(append(commands, "wait; alua_ok"), "; "))
	return err
}

// alua is the state of a LUN at a controller.
func (h *hardware) alua(e *Enclosure, l *LUNPlace, controller int) int {
	switch {
	case h.ModulesOut[moduleKey(e.Name, controller)]:
		return aluaUnavailable
	case h.owner(e, l) == controller:
		return aluaOptimized
	}
	return aluaNonOptimized
}

// owner is the controller that owns a LUN now.
func (h *hardware) owner(e *Enclosure, l *LUNPlace) int {
	c := l.Controller
	if h.LUNsMoved[moduleKey(e.Name, c)] {
		c = 1 - c
	}
	if h.ModulesOut[moduleKey(e.Name, c)] && !h.ModulesOut[moduleKey(e.Name, 1-c)] {
		c = 1 - c
	}
	return c
}

// wasSlow reports whether a LUN has ever been slowed down.
func (h *hardware) wasSlow(lun string) bool { _, ok := h.Slow[lun]; return ok }

func moduleKey(enclosure string, module int) string { return enclosure + "/" + strconv.Itoa(module) }

// arrangeArrays brings the arrays to the state of the hardware, before paths are plugged:
// it switches on those that were off until now, and sets all LUNs' ALUA states. The
// caller holds the power lock.
func arrangeArrays(ctx context.Context, r *rack, h *hardware, wasOff map[string]bool) error {
	var errs []error
	for _, e := range r.cfg.arrays() {
		on := running(r.dir, e.Name) != nil
		if h.ArraysOff[e.Name] || !on && !wasOff[e.Name] {
			continue
		}
		err := startArray(ctx, r, e, h)
		if err == nil {
			err = waitArray(ctx, r, e)
		}
		if err == nil {
			err = steer(ctx, r, e, h)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// arrayCommand makes an array's firmware run a line and returns its output. The
// firmware takes one line at a time, and ends its answer with the line's mark and
// exit code. QEMU serves one client at a time, so a second one waits.
func arrayCommand(ctx context.Context, r *rack, e *Enclosure, line string) (string, error) {
	if running(r.dir, e.Name) == nil {
		return "", fmt.Errorf("array %s is switched off", e.Name)
	}
	conn, err := dialSocket(ctx, runDir(r.dir), controlSocket(e.Name))
	if err != nil {
		return "", fmt.Errorf("array %s: %w", e.Name, err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(arrayTime)); err != nil {
		return "", err
	}
	out, code, err := exchange(conn, "done-"+strconv.FormatInt(time.Now().UnixNano(), 36), line)
	if err == nil && code != 0 {
		err = fmt.Errorf("exit %d", code)
	}
	if err != nil {
		return out, fmt.Errorf("array %s: %s: %w\n%s", e.Name, line, err, out)
	}
	return out, nil
}

// exchange sends a line under a mark and reads up to the mark.
func exchange(conn net.Conn, mark, line string) (out string, code int, err error) {
	if _, err := fmt.Fprintf(conn, "%s %s\n", mark, line); err != nil {
		return "", 0, err
	}
	var got []byte
	buf := make([]byte, 4096)
	for {
		n, err := conn.Read(buf)
		got = append(got, buf[:n]...)
		// Text before the mark may be the answer to an earlier client that has gone.
		if before, after, ok := strings.Cut(string(got), mark+" "); ok && strings.Contains(after, "\n") {
			rc, _, _ := strings.Cut(after, "\n")
			code, err := strconv.Atoi(strings.TrimSpace(rc))
			return strings.ReplaceAll(before, "\r", ""), code, err
		}
		if err != nil {
			return string(got), 0, err
		}
	}
}

// slot finds a disk of an array.
func (c *Config) slot(disk string) (*Enclosure, int, bool) {
	for _, e := range c.arrays() {
		if i := slices.IndexFunc(e.Array.Disks, func(d Disk) bool { return d.Name == disk }); i >= 0 {
			return e, i, true
		}
	}
	return nil, 0, false
}

// slotChange pulls a disk of an array, or pushes it in. The array then gives a spare
// to a group that lacks a disk.
func slotChange(ctx context.Context, r *rack, e *Enclosure, i int, out bool) error {
	d := e.Array.Disks[i]
	return changeHardware(ctx, r, func(h *hardware) { set(&h.DisksOut, d.Name, out) }, func(h *hardware) error {
		if running(r.dir, e.Name) == nil {
			return nil
		}
		if err := r.withQMP(ctx, e.Name, func(q *qmpClient) error {
			if out {
				return q.unplug(slotDeviceID(i))
			}
			return q.plug(slotDevice(i, d))
		}); err != nil {
			return err
		}
		command := "heal"
		if !out {
			command = fmt.Sprintf("arrived %d; heal", i)
		}
		_, err := arrayCommand(ctx, r, e, command)
		return err
	})
}

// arrayStatus returns the state of an array.
func arrayStatus(ctx context.Context, r *rack, e *Enclosure, h *hardware) ArrayStatus {
	b := r.boot(e.Name)
	s := ArrayStatus{Name: e.Name, Power: "off", Boot: b.Stage, BootSeconds: b.Seconds, ControllersOut: []int{}, DisksOut: []string{}}
	said := ""
	if running(r.dir, e.Name) != nil {
		s.Power = "on"
		if b.Stage == stageUp {
			// Without an answer the groups' state stays unknown.
			said, _ = arrayCommand(ctx, r, e, "state")
		}
	}
	s.Groups = groupsOf(e.Array, said)
	for c := range controllers {
		if h.ModulesOut[moduleKey(e.Name, c)] {
			s.ControllersOut = append(s.ControllersOut, c)
		}
	}
	for _, d := range e.Array.Disks {
		if h.DisksOut[d.Name] {
			s.DisksOut = append(s.DisksOut, d.Serial)
		}
	}
	for _, d := range e.Disks {
		s.LUNs = append(s.LUNs, LUNStatus{Name: d.Name, Number: d.LUN.Number, WWN: d.WWN, Group: d.LUN.Group,
			Owner: h.owner(e, d.LUN), Preferred: d.LUN.Controller, SlowMS: h.Slow[d.Name]})
	}
	return s
}

// groupsOf parses the output of the firmware's function state: a line for each group,
// "group NUMBER ARRAY_STATE DEGRADED SYNC_ACTION DONE [/ ALL]" with md's values in
// sysfs, "differ NUMBER SECTORS" with its mismatch_cnt, and "in NUMBER SLOT ..." with the
// slots of its disks.
func groupsOf(a *Array, said string) []GroupStatus {
	groups := a.Groups
	out := make([]GroupStatus, len(groups))
	for i, g := range groups {
		out[i] = GroupStatus{Name: g.Name, State: "unknown"}
	}
	for line := range strings.Lines(said) {
		f := strings.Fields(line)
		if len(f) > 2 && f[0] == "in" {
			inGroup(a, out, f[1], f[2:])
		}
		if len(f) == 3 && f[0] == "differ" {
			i, err1 := strconv.Atoi(f[1])
			n, err2 := strconv.ParseInt(f[2], 10, 64)
			if err1 == nil && err2 == nil && i >= 0 && i < len(out) {
				out[i].Mismatches = n
			}
		}
		if len(f) < 6 || f[0] != "group" {
			continue
		}
		i, err1 := strconv.Atoi(f[1])
		missing, err2 := strconv.Atoi(f[3])
		if err1 != nil || err2 != nil || i < 0 || i >= len(out) {
			continue
		}
		g := &out[i]
		g.Missing = missing
		switch {
		case missing > groups[i].survives() || f[2] == "inactive" || f[2] == "broken":
			g.State = "failed"
		case f[4] == "recover" && len(f) == 8:
			g.State = "rebuilding"
			g.Percent = percent(f[5], f[7])
		case missing > 0:
			g.State = "degraded"
		default:
			g.State = "optimal"
			if g.Comparing = f[4] == "check"; g.Comparing && len(f) == 8 {
				g.Percent = percent(f[5], f[7])
			}
		}
	}
	return out
}

// percent is 100 x done / all; 0 if either is no number.
func percent(done, all string) float64 {
	d, err1 := strconv.ParseFloat(done, 64)
	a, err2 := strconv.ParseFloat(all, 64)
	if err1 != nil || err2 != nil || a <= 0 {
		return 0
	}
	return 100 * d / a
}

// CompareGroup makes an array of the rack in dir compare the data of a RAID group with its
// parities, or stop. Status tells how far it is. A group that rebuilds is an error, and goes
// on with the speed of the disks.
//
// Source: Documentation/admin-guide/md.rst, sync_action
func CompareGroup(ctx context.Context, dir, group string, on bool) error {
	r, err := openRack(dir)
	if err != nil {
		return err
	}
	to := "off"
	if on {
		to = "on"
	}
	for _, e := range r.cfg.arrays() {
		if i := slices.IndexFunc(e.Array.Groups, func(g RAIDGroup) bool { return g.Name == group }); i >= 0 {
			_, err := arrayCommand(ctx, r, e, fmt.Sprintf("compare %d %s", i, to))
			return err
		}
	}
	return fmt.Errorf("no array of the rack has a RAID group %s", group)
}

// inGroup adds the disks of a group, by their slots.
func inGroup(a *Array, groups []GroupStatus, number string, slots []string) {
	g, err := strconv.Atoi(number)
	if err != nil || g < 0 || g >= len(groups) {
		return
	}
	for _, s := range slots {
		if i, err := strconv.Atoi(s); err == nil && i >= 0 && i < len(a.Disks) {
			groups[g].Members = append(groups[g].Members, a.Disks[i].Serial)
		}
	}
}

// survives is how many disks a group can lose without losing data.
func (g *RAIDGroup) survives() int {
	if g.Level == 10 {
		return len(g.Members) / 2 // one of each pair; md itself reports a lost pair
	}
	return 2
}

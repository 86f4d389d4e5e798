package rack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/rack/array"
	"github.com/mortarhpc/mortar/internal/rack/configure"
	"github.com/mortarhpc/mortar/internal/rack/hw"
	"github.com/mortarhpc/mortar/internal/rack/qemu"
	"github.com/mortarhpc/mortar/internal/rack/tool"
)

// fabricName is the process of an array's host ports.
func fabricName(array string) string { return "fabric-" + array }

// ensureArrayState makes an array's own disk, with its firmware's settings. On that
// disk the array keeps the members of its groups, and reservations, over a loss of
// power.
func ensureArrayState(ctx context.Context, r *rack, e *hw.Enclosure) error {
	img := hw.ArrayState(r.dir, e.Name)
	if tool.Exists(img) {
		return nil
	}
	part, err := seededExt4(ctx, img, hw.ArrayStateBytes, hw.ArrayStateBytes, []seedFile{{"array", array.Firmware(r.cfg, e), 0o644}}, "-J", "size=4")
	if err != nil {
		return err
	}
	return os.Rename(part, img)
}

func arrayLine(r *rack, e *hw.Enclosure, h *hw.Hardware) ([]string, error) {
	img, err := r.image()
	if err != nil {
		return nil, err
	}
	return qemu.ArrayArgs(r.cfg, r.dir, e, img, r.st.Accel, h)
}

// startArray switches an array on, and its host ports. The caller holds the
// power lock.
func startArray(ctx context.Context, r *rack, e *hw.Enclosure, h *hw.Hardware) error {
	if h.ArraysOff[e.Name] {
		return nil
	}
	if tool.Running(r.dir, e.Name) == nil {
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

// stopArray cuts an array's power. Unplug its LUNs from all servers before. Batteries keep
// what caches have until it is written.
func stopArray(ctx context.Context, r *rack, e *hw.Enclosure) error {
	flush := "flushed"
	for i, d := range e.Disks {
		if d.LUN.Unmirrored {
			flush += " " + strconv.Itoa(i)
		}
	}
	var err error
	if flush != "flushed" && tool.Running(r.dir, e.Name) != nil {
		_, err = arrayCommand(ctx, r, e, flush)
	}
	return errors.Join(err, tool.Stop(r.dir, fabricName(e.Name)), r.stopNode(e.Name), managementAddresses(ctx, r, e, false))
}

// waitArray waits until an array exports its LUNs.
func waitArray(ctx context.Context, r *rack, e *hw.Enclosure) error {
	return r.waitUp(ctx, e.Name, func() bool { return true })
}

// setALUA sets the ALUA states of each LUN of an array from the hardware: optimized at
// the controller that owns the LUN, non-optimized at the other. The LUNs of a dead
// controller belong to the other one.
func setALUA(ctx context.Context, r *rack, e *hw.Enclosure, h *hw.Hardware) error {
	var commands []string
	for i, d := range e.Disks {
		if owner := h.Owner(e, d.LUN); d.LUN.Unmirrored {
			how := "flush"
			if h.ModulesOut[hw.ModuleKey(e.Name, 1-owner)] {
				how = "lose"
			}
			commands = append(commands, fmt.Sprintf("own %d %d %s || echo failed > /run-alua", i, owner, how))
		}
		for c := range hw.Controllers {
			commands = append(commands, fmt.Sprintf("alua %d %d %d", i, c, h.ALUA(e, d.LUN, c)))
		}
		if ms := h.Slow[d.Name]; ms > 0 || h.WasSlow(d.Name) {
			commands = append(commands, fmt.Sprintf("slow %d %d", i, ms))
		}
	}
	_, err := arrayCommand(ctx, r, e, strings.Join(append(commands, "wait; alua_ok"), "; "))
	return err
}

// arrangeArrays brings the arrays to the state of the hardware, before paths are plugged:
// it switches on those that were off until now, and sets all LUNs' ALUA states. The
// caller holds the power lock.
func arrangeArrays(ctx context.Context, r *rack, h *hw.Hardware, wasOff map[string]bool) error {
	var errs []error
	for _, e := range r.cfg.Arrays() {
		on := tool.Running(r.dir, e.Name) != nil
		if h.ArraysOff[e.Name] || !on && !wasOff[e.Name] {
			continue
		}
		err := startArray(ctx, r, e, h)
		if err == nil {
			err = waitArray(ctx, r, e)
		}
		if err == nil {
			err = setALUA(ctx, r, e, h)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// arrayCommand makes an array's firmware run a line and returns its output. The
// firmware takes one line at a time, and ends its answer with the line's mark and
// exit code. QEMU serves one client at a time, so a second one waits.
func arrayCommand(ctx context.Context, r *rack, e *hw.Enclosure, line string) (string, error) {
	if tool.Running(r.dir, e.Name) == nil {
		return "", fmt.Errorf("array %s is switched off", e.Name)
	}
	conn, err := qemu.DialSocket(ctx, tool.RunDir(r.dir), qemu.ControlSocket(e.Name))
	if err != nil {
		return "", fmt.Errorf("array %s: %w", e.Name, err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(hw.ArrayTime)); err != nil {
		return "", err
	}
	out, code, err := exchange(conn, "done-"+strconv.FormatInt(time.Now().UnixNano(), 36), line)
	if err == nil && code != 0 {
		if err = fmt.Errorf("exit %d", code); linux.ErrnoIn(out) != 0 {
			err = fmt.Errorf("%w (%w)", err, linux.ErrnoIn(out))
		}
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

// Configure executes a script on an array of the rack in dir, in the language of the array's
// tools, and returns what the tool printed. The groups and LUNs are there at once: running
// servers see the LUNs. A script that the array refuses changes nothing.
func Configure(ctx context.Context, dir string, s *spec.Spec, name, script string) (string, error) {
	r, err := openRack(dir)
	if err != nil {
		return "", err
	}
	e, err := r.cfg.Enclosure(r.cfg.EnclosureName(name))
	switch {
	case err != nil:
		return "", err
	case e.Array == nil:
		return "", tool.Refuse("%s has no array of its own in the rack: of a RAID card inside a server it has the LUNs, which rack up makes", name)
	case tool.Running(r.dir, e.Name) == nil:
		return "", tool.Refuse("array %s is off: mortar rack fault array-on %s", name, name)
	}
	now, said, err := configure.Array(ctx, s, hw.Storage{Name: name, Servers: e.Servers, Paths: e.Paths}, append(slices.Clone(e.Array.Scripts), script)...)
	if err != nil {
		return said, tool.Refuse("%v. Nothing was changed", err)
	}
	groups, luns := len(e.Array.Groups), len(e.Disks)
	return said, withPower(ctx, r, func(h *hw.Hardware) error {
		before := present(r, h)
		if err := r.cfg.SetArray(s, now); err != nil {
			return err
		}
		for _, line := range array.Configuration(r.cfg, e, groups, luns) {
			if _, err := arrayCommand(ctx, r, e, `configure "`+line+`"`); err != nil {
				return fmt.Errorf("%w\nThe array is configured in part: mortar rack down, then up, gives another one", err)
			}
		}
		if err := tool.SaveJSON(filepath.Join(r.dir, "config.json"), r.cfg); err != nil {
			return err
		}
		inv, err := LoadInventory(r.dir)
		if err != nil {
			return err
		}
		inv.WWNs = r.cfg.WWNs
		if err := tool.SaveJSON(inventoryFile(r.dir), inv); err != nil {
			return err
		}
		if err := setALUA(ctx, r, e, h); err != nil {
			return err
		}
		return replug(ctx, r, before, present(r, h), true)
	})
}

// slotChange pulls a disk of an array, or pushes it in. The array then gives a spare
// to a group that lacks a disk.
func slotChange(ctx context.Context, r *rack, e *hw.Enclosure, i int, out bool) error {
	d := e.Array.Disks[i]
	return changeHardware(ctx, r, func(h *hw.Hardware) { hw.Set(&h.DisksOut, d.Name, out) }, func(h *hw.Hardware) error {
		if tool.Running(r.dir, e.Name) == nil {
			return nil
		}
		if err := r.withQMP(ctx, e.Name, func(q *qemu.Client) error {
			if out {
				return q.Unplug(qemu.SlotDeviceID(i))
			}
			return q.Plug(qemu.SlotDevice(i, d))
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
func arrayStatus(ctx context.Context, r *rack, e *hw.Enclosure, h *hw.Hardware) ArrayStatus {
	b := r.boot(e.Name)
	s := ArrayStatus{Name: e.Name, Power: "off", Boot: b.Stage, BootSeconds: b.Seconds, ControllersOut: []int{}, DisksOut: []string{}}
	said := ""
	if tool.Running(r.dir, e.Name) != nil {
		s.Power = "on"
		if b.Stage == stageUp {
			// Without an answer the groups' state stays unknown.
			said, _ = arrayCommand(ctx, r, e, "state")
		}
	}
	s.Groups = array.Groups(e.Array, said)
	for c := range hw.Controllers {
		if h.ModulesOut[hw.ModuleKey(e.Name, c)] {
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
			Owner: h.Owner(e, d.LUN), Preferred: d.LUN.Controller, SlowMS: h.Slow[d.Name]})
	}
	return s
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
	for _, e := range r.cfg.Arrays() {
		if i := slices.IndexFunc(e.Array.Groups, func(g hw.RAIDGroup) bool { return g.Name == group }); i >= 0 {
			_, err := arrayCommand(ctx, r, e, fmt.Sprintf("compare %d %s", i, to))
			return err
		}
	}
	return fmt.Errorf("no array of the rack has a RAID group %s", group)
}

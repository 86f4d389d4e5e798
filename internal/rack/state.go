package rack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/google/renameio/v2"
)

// Content of a rack's directory:
//
//	config.json     the rack's Config
//	state.json      the progress of Up, with image and accelerator
//	hardware.json   what is unplugged, switched off or broken
//	inventory.json  how to reach the nodes
//	ssh/            the administrator's key and the pinned host keys
//	disks/          images of the shared and local disks
//	nodes/NAME/     the node's own layer over the root: its system disks; an array's own disk
//	run/            process files, sockets, consoles, logs
//
// Saved racks are elsewhere: see save.go.

// Phases of a rack.
const (
	phaseStarting = "starting"
	phaseUp       = "up"
)

// state is the progress of Up. Up records every step before it takes it, so that Down
// finds everything after a crash at any point.
type state struct {
	Phase string `json:"phase"`
	// Netns, Image and Accel are the namespace, image and accelerator of the rack.
	Netns string `json:"netns"`
	Image string `json:"image,omitempty"`
	Accel string `json:"accel,omitempty"`
	// Stopped are machines that a Save under way has stopped.
	Stopped []string `json:"stopped,omitempty"`
}

func (s *state) save(dir string) error { return saveJSON(filepath.Join(dir, "state.json"), s) }

func loadState(dir string) (*state, error) { return loadPart[state](dir, "state.json") }

func loadConfig(dir string) (*Config, error) { return loadPart[Config](dir, "config.json") }

// loadPart reads a file of a rack.
func loadPart[T any](dir, name string) (*T, error) {
	v := new(T)
	err := loadJSON(filepath.Join(dir, name), v)
	if errors.Is(err, fs.ErrNotExist) {
		err = refuse("there is no rack in %s: start one with mortar rack up", dir)
	}
	if err != nil {
		return nil, err
	}
	return v, nil
}

func saveJSON(path string, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return renameio.WriteFile(path, append(text, '\n'), 0o600)
}

func loadJSON(path string, v any) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, v); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// hardware is the set of differences from the Config: pulled cords, cables and disks,
// dead devices. It persists while a node is off.
type hardware struct {
	// Off are the outlets that give no power, as "pdu/outlet".
	Off map[string]bool `json:"off,omitempty"`
	// DeadBMCs and DeadPDUs do not answer, by node and by name.
	DeadBMCs map[string]bool `json:"dead_bmcs,omitempty"`
	DeadPDUs map[string]bool `json:"dead_pdus,omitempty"`
	// LyingBMCs switch something else instead of their node. The value, by node, is
	// the power that the BMC reports: on or off.
	LyingBMCs map[string]string `json:"lying_bmcs,omitempty"`
	// Astray are outlets with something else than their node, as "pdu/outlet".
	Astray map[string]bool `json:"astray,omitempty"`
	// LinksDown are cables that are out, as "node/network".
	LinksDown map[string]bool `json:"links_down,omitempty"`
	// SwitchesDown are networks that carry nothing.
	SwitchesDown map[string]bool `json:"switches_down,omitempty"`
	// PathsOut are cut paths, as "node/disk/hba".
	PathsOut map[string]bool `json:"paths_out,omitempty"`
	// ModulesOut are dead I/O modules, as "enclosure/module".
	ModulesOut map[string]bool `json:"modules_out,omitempty"`
	// DisksOut are disks that are out of their slots.
	DisksOut map[string]bool `json:"disks_out,omitempty"`
	// SystemOut are servers' system disks that are out, as "node/disk".
	SystemOut map[string]bool `json:"system_out,omitempty"`
	// Speeds are limits other than the Config's, by disk.
	Speeds map[string]speed `json:"speeds,omitempty"`
	// ArraysOff are arrays without power.
	ArraysOff map[string]bool `json:"arrays_off,omitempty"`
	// LUNsMoved are controllers whose LUNs the other controller owns, as
	// "enclosure/module".
	LUNsMoved map[string]bool `json:"luns_moved,omitempty"`
	// Loads are what others take from a PDU, in tenths of an ampere.
	Loads map[string]int `json:"loads,omitempty"`
	// Slow is the delay of a LUN's answers in milliseconds.
	Slow map[string]int `json:"slow,omitempty"`
}

// speed bounds a disk; 0 is unbounded.
type speed struct {
	IOPS           int64 `json:"iops"`
	BytesPerSecond int64 `json:"bytes_per_second"`
	// Writes bounds writes; IOPS then bounds reads only. 0: IOPS bounds both.
	Writes int64 `json:"writes,omitempty"`
}

// set adds a key to a set of the hardware or removes it.
func set(m *map[string]bool, key string, on bool) {
	if on {
		setValue(m, key, true)
	} else {
		delete(*m, key)
	}
}

// setValue sets a value of the hardware.
func setValue[V any](m *map[string]V, key string, v V) {
	if *m == nil {
		*m = map[string]V{}
	}
	(*m)[key] = v
}

func outletKey(pdu string, outlet int) string { return pdu + "/" + strconv.Itoa(outlet) }

func pathKey(node, disk string, hba int) string {
	return node + "/" + disk + "/" + strconv.Itoa(hba)
}

// powered reports whether any of the node's cords has power.
func (h *hardware) powered(n *Node) bool {
	return len(n.Feeds) == 0 || slices.ContainsFunc(n.Feeds, func(f Feed) bool {
		key := outletKey(f.PDU, f.Outlet)
		return !h.Off[key] || h.Astray[key]
	})
}

func systemKey(node string, d systemDisk) string { return node + "/" + strconv.Itoa(d.Slot) }

// systemOut reports whether a node's system disk is out of its slot.
func (h *hardware) systemOut(node string, d systemDisk) bool { return h.SystemOut[systemKey(node, d)] }

// pathGone reports whether a node cannot reach a disk over a path.
func (h *hardware) pathGone(node string, d sharedDisk, path int) bool {
	return !d.cabledTo(node) || h.DisksOut[d.Name] || h.ArraysOff[d.Enclosure] || h.PathsOut[pathKey(node, d.Name, d.hba(path))] ||
		h.ModulesOut[moduleKey(d.Enclosure, d.module(path))]
}

// linkDown reports whether a node's cable to a network is pulled or the switch is off.
func (h *hardware) linkDown(node, network string) bool {
	return h.LinksDown[node+"/"+network] || h.SwitchesDown[network]
}

// speed is a disk's present limits.
func (h *hardware) speed(d Disk) speed {
	if s, ok := h.Speeds[d.Name]; ok {
		return s
	}
	return d.speed()
}

// speed is the speed that the Config gives.
func (d Disk) speed() speed { return speed{IOPS: d.IOPS, BytesPerSecond: d.BytesPerSecond} }

func loadHardware(dir string) (*hardware, error) {
	h := &hardware{}
	err := loadJSON(filepath.Join(dir, "hardware.json"), h)
	if errors.Is(err, fs.ErrNotExist) {
		return h, nil
	}
	return h, err
}

// withPower calls fn under the rack's power lock, so that no other process switches
// parts of the rack meanwhile.
func withPower(ctx context.Context, r *rack, fn func(h *hardware) error) error {
	unlock, err := lockFile(ctx, filepath.Join(r.dir, "power.lock"))
	if err != nil {
		return err
	}
	defer unlock()
	h, err := loadHardware(r.dir)
	if err != nil {
		return err
	}
	return fn(h)
}

// changeHardware records a change of the hardware, then calls makeSo to apply it.
func changeHardware(ctx context.Context, r *rack, change func(h *hardware), makeSo func(h *hardware) error) error {
	return withPower(ctx, r, func(h *hardware) error {
		change(h)
		if err := saveJSON(filepath.Join(r.dir, "hardware.json"), h); err != nil {
			return err
		}
		return makeSo(h)
	})
}

package rack

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/mortarhpc/mortar/internal/rack/hw"
	"github.com/mortarhpc/mortar/internal/rack/tool"
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

func (s *state) save(dir string) error { return tool.SaveJSON(filepath.Join(dir, "state.json"), s) }

func loadState(dir string) (*state, error) { return loadPart[state](dir, "state.json") }

func loadConfig(dir string) (*hw.Config, error) { return loadPart[hw.Config](dir, "config.json") }

func loadHardware(dir string) (*hw.Hardware, error) {
	h := &hw.Hardware{}
	err := tool.LoadJSON(filepath.Join(dir, "hardware.json"), h)
	if errors.Is(err, fs.ErrNotExist) {
		return h, nil
	}
	return h, err
}

// withPower calls fn under the rack's power lock, so that no other process switches
// parts of the rack meanwhile.
func withPower(ctx context.Context, r *rack, fn func(h *hw.Hardware) error) error {
	unlock, err := tool.LockFile(ctx, filepath.Join(r.dir, "power.lock"))
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
func changeHardware(ctx context.Context, r *rack, change func(h *hw.Hardware), makeSo func(h *hw.Hardware) error) error {
	return withPower(ctx, r, func(h *hw.Hardware) error {
		change(h)
		if err := tool.SaveJSON(filepath.Join(r.dir, "hardware.json"), h); err != nil {
			return err
		}
		// They know which disks are out of their slots, and how slow each is.
		for _, process := range r.diskProcesses() {
			if err := tool.Reread(r.dir, process); err != nil {
				return err
			}
		}
		return makeSo(h)
	})
}

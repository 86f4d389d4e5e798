package rack

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/renameio/v2"

	"github.com/mortarhpc/mortar/internal/rack/hw"
	"github.com/mortarhpc/mortar/internal/rack/power"
	"github.com/mortarhpc/mortar/internal/rack/tool"
)

// ensureSensors writes the values of a node's sensors: those of a new machine where
// none are, and the states of its power supplies.
func ensureSensors(r *rack, n *hw.Node, h *hw.Hardware) error {
	dir := filepath.Join(tool.RunDir(r.dir), power.SensorDir(n.Name))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for _, s := range power.SensorsOf(n) {
		if _, err := os.Stat(filepath.Join(dir, s.Name)); s.Analog() && err != nil {
			if err := setSensor(r, n, s.Name, s.Start); err != nil {
				return err
			}
		}
	}
	for i, f := range n.Feeds {
		state := power.SupplyPresent
		if h.Off[hw.OutletKey(f.PDU, f.Outlet)] {
			state |= power.SupplyInputLost
		}
		if err := setSensor(r, n, fmt.Sprintf("ps%d", i+1), state); err != nil {
			return err
		}
	}
	return nil
}

func setSensor(r *rack, n *hw.Node, name string, value int) error {
	return renameio.WriteFile(filepath.Join(tool.RunDir(r.dir), power.SensorDir(n.Name), name), fmt.Appendln(nil, value), 0o600)
}

// sensorFault sets the value of one sensor of a node's BMC.
func sensorFault(_ context.Context, t *targets, _ bool) error {
	n := t.managed(0)
	var names []string
	for _, s := range power.SensorsOf(n) {
		if !s.Analog() {
			continue
		}
		if s.Name == t.args[1] {
			v := t.number(2, 255, "sensor "+s.Name+" %q: want "+s.Description)
			return setSensor(t.rack, n, s.Name, v)
		}
		names = append(names, s.Name)
	}
	return tool.Refuse("the BMC of %s has no sensor %q that can be set: want one of %s; its power supplies follow its cords (feed-off)", n.Name, t.args[1], strings.Join(names, ", "))
}

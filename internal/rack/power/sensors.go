package power

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/mortarhpc/mortar/internal/rack/hw"
)

func BMCName(node string) string { return "bmc-" + node }

// sensor is one sensor of a BMC. ipmi_sim reads its value from a file.
type sensor struct {
	Name  string // of the file, and in faults
	title string // as the BMC shows it
	kind  byte   // of the sensor. Source: IPMI 2.0, table 42-3
	// entity that has the sensor, and which one of its kind. Source: table 43-13
	entity, instance byte
	// Of an analog sensor: its unit (table 43-15), what one step means, and the raw
	// values of its thresholds, 0 for none.
	unit, step  byte
	upper       [3]byte // non-critical, critical, non-recoverable
	lower       [2]byte // non-critical, critical
	Start       int     // raw value of a new machine
	Description string  // of the value, for an error
}

const (
	kindTemperature, kindFan, kindSupply = 0x01, 0x04, 0x08
	entityInlet, entityFan, entitySupply = 0x37, 0x1d, 0x0a
	unitCelsius, unitRPM                 = 1, 18
	// States of a power supply. Source: IPMI 2.0, table 42-3, sensor type 08h
	SupplyPresent, SupplyInputLost = 1 << 0, 1 << 3
)

// SensorsOf lists the sensors of a node's BMC: the inlet's temperature, two fans, and a
// power supply for each cord.
func SensorsOf(n *hw.Node) []sensor {
	out := []sensor{{Name: "inlet", title: "Inlet Temp", kind: kindTemperature, entity: entityInlet, instance: 1, unit: unitCelsius, step: 1,
		upper: [3]byte{38, 42, 47}, Start: 24, Description: "degrees Celsius, 0 to 255"}}
	for i := range 2 {
		out = append(out, sensor{Name: fmt.Sprintf("fan%d", i+1), title: fmt.Sprintf("Fan%d RPM", i+1), kind: kindFan, entity: entityFan, instance: byte(i + 1),
			unit: unitRPM, step: 100, lower: [2]byte{12, 6}, Start: 54, Description: "revolutions a minute in hundreds, 0 to 255"})
	}
	for i := range n.Feeds {
		out = append(out, sensor{Name: fmt.Sprintf("ps%d", i+1), title: fmt.Sprintf("PS%d Status", i+1), kind: kindSupply, entity: entitySupply, instance: byte(i + 1)})
	}
	return out
}

// Analog reports whether the sensor measures something; others have states.
func (s *sensor) Analog() bool { return s.step > 0 }

// record is the sensor's data record. Source: IPMI 2.0, tables 43-1 (full) and 43-2
// (compact).
func (s *sensor) record(number int) []byte {
	kind, body := byte(0x02), []byte{0x20, 0, byte(number), s.entity, s.instance, 0x67, 0x40, s.kind, 0x6f,
		0x0f, 0, 0x0f, 0, 0x0f, 0, 0xc0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
	if s.Analog() {
		mask := byte(0)
		if s.upper[0] > 0 {
			mask |= 0x38
		}
		if s.lower[0] > 0 {
			mask |= 0x03
		}
		kind, body = 0x01, []byte{0x20, 0, byte(number), s.entity, s.instance, 0x7f, 0x68, s.kind, 0x01,
			0x95, 0x0a, 0, 0, mask, mask, 0, s.unit, 0, 0, s.step, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0,
			s.upper[2], s.upper[1], s.upper[0], 0, s.lower[1], s.lower[0], 0, 0, 0, 0, 0}
	}
	body = append(body, 0xc0|byte(len(s.title)))
	body = append(body, s.title...)
	return append([]byte{0, 0, 0x51, kind, byte(len(body))}, body...)
}

// commands set the sensor up in ipmi_sim. Source: ipmi_sim_cmd(5)
func (s *sensor) commands(node string, number int) string {
	var b strings.Builder
	reading, events := "0x6f", "000000000001111"
	if s.Analog() {
		reading, events = "1", "000111111111111"
	}
	fmt.Fprintf(&b, "sensor_add 0x20 0 %d %d %s poll 2000 file %q\n", number, s.kind, reading, filepath.Join(SensorDir(node), s.Name))
	if s.Analog() {
		which := []byte("000000")
		if s.upper[0] > 0 {
			copy(which, "111")
		}
		if s.lower[0] > 0 {
			copy(which[4:], "11")
		}
		fmt.Fprintf(&b, "sensor_set_threshold 0x20 0 %d readable %s %d %d %d 0 %d %d\n", number, which, s.upper[2], s.upper[1], s.upper[0], s.lower[1], s.lower[0])
	}
	fmt.Fprintf(&b, "sensor_set_event_support 0x20 0 %d enable scanning per-state %[2]s %[2]s %[2]s %[2]s\n", number, events)
	b.WriteString("main_sdr_add 0x20")
	for _, v := range s.record(number) {
		fmt.Fprintf(&b, " 0x%02x", v)
	}
	b.WriteByte('\n')
	return b.String()
}

// SensorDir is the directory of a node's sensors, relative to the run directory.
func SensorDir(node string) string { return BMCName(node) + ".sensors" }

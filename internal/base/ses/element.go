package ses

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/health"
)

// Types of elements. Source: SES-3, table 72.
const (
	typeDevice  = 0x01
	typePower   = 0x02
	typeFan     = 0x03
	typeTemp    = 0x04
	typeControl = 0x07
	typeBox     = 0x0e
	typeVoltage = 0x12
	typeCurrent = 0x13
	typeSlot    = 0x17
	typeExpand  = 0x18
)

var kinds = map[byte]string{
	typeDevice: "slot", typePower: "power supply", typeFan: "fan", typeTemp: "temperature", 0x05: "door", 0x06: "alarm", typeControl: "controller",
	0x09: "cache", 0x0b: "UPS", 0x0c: "display", typeBox: "enclosure", 0x0f: "port", 0x11: "communication port", typeVoltage: "voltage", typeCurrent: "current",
	0x14: "target port", 0x15: "initiator port", 0x16: "subenclosure", typeSlot: "slot", typeExpand: "expander", 0x19: "connector",
}

// Status codes of an element. Source: SES-3, table 74.
const (
	statusOK = iota + 1
	statusCritical
	statusNoncritical
	statusUnrecoverable
	statusNotInstalled
)

// statusUnsupported is the code of an element that has no status.
const statusUnsupported = 0

// unknownStatus are the codes of elements that are there and whose status the enclosure
// does not know.
var unknownStatus = map[byte]string{6: "the enclosure does not know its status", 7: "it is installed, and not available", 8: "the enclosure gives no access to it"}

// bit is a bit of a status element that reports a problem.
type bit struct {
	at    int // byte
	mask  byte
	level health.Level
	words string
}

// bits are those of the types that report more than a status code.
//
// Source: SES-3, 7.3
var bits = map[byte][]bit{
	typePower: {{3, 0x40, health.Fault, "it has failed"}, {3, 0x02, health.Fault, "no power comes in (AC fail)"}, {3, 0x01, health.Fault, "no power goes out (DC fail)"},
		{3, 0x08, health.Fault, "it is off because of its temperature"}, {3, 0x04, health.Warning, "it is too hot"},
		{2, 0x08, health.Fault, "its voltage is too high"}, {2, 0x04, health.Fault, "its voltage is too low"}, {2, 0x02, health.Fault, "its current is too high"}},
	typeFan: {{3, 0x40, health.Fault, "it has failed"}},
	typeTemp: {{3, 0x08, health.Fault, "critically hot"}, {3, 0x04, health.Warning, "too hot"}, {3, 0x02, health.Fault, "critically cold"}, {3, 0x01, health.Warning, "too cold"},
		{1, 0x40, health.Warning, "the sensor has failed"}},
	typeVoltage: {{1, 0x02, health.Fault, "critically high"}, {1, 0x01, health.Fault, "critically low"}, {1, 0x08, health.Warning, "too high"}, {1, 0x04, health.Warning, "too low"},
		{1, 0x40, health.Warning, "the sensor has failed"}},
	typeCurrent: {{1, 0x02, health.Fault, "critically high"}, {1, 0x08, health.Warning, "too high"}, {1, 0x40, health.Warning, "the sensor has failed"}},
	typeControl: {{1, 0x40, health.Fault, "it has failed"}},
	typeExpand:  {{1, 0x40, health.Fault, "it has failed"}},
	typeBox:     {{2, 0x02, health.Fault, "it indicates a failure"}, {2, 0x01, health.Warning, "it indicates a warning"}},
	typeDevice:  slotBits,
	typeSlot:    slotBits,
}

var slotBits = []bit{{3, 0x40, health.Fault, "the enclosure senses a fault of its disk"}, {3, 0x20, health.Warning, "a program has switched its fault light on"},
	{3, 0x10, health.Warning, "it is switched off"}}

// predicted is set in the first byte by an element that is about to fail.
const predicted = 0x40

// element reads the status of one element, which is number n of its type, from 1.
func element(t elementType, n int, names []string, s [4]byte) Element {
	e := Element{Kind: kinds[t.code]}
	if e.Kind == "" {
		e.Kind = fmt.Sprintf("element of type %#x", t.code)
	}
	e.Name = fmt.Sprintf("%s %d", e.Kind, n)
	if n <= len(names) && names[n-1] != "" {
		e.Name = names[n-1]
		if slices.Contains(slices.Delete(slices.Clone(names), n-1, n), e.Name) {
			e.Name += fmt.Sprintf(" (%d)", n) // several are called so
		}
	}
	var said []string
	if reading := e.read(t.code, s); reading != "" {
		said = append(said, reading)
	}
	switch s[0] & 0x0f {
	case statusUnsupported, statusNotInstalled:
		return Element{Kind: e.Kind, Name: e.Name, Silent: true}
	case statusOK:
	case statusCritical, statusUnrecoverable:
		e.Level = health.Fault
	case statusNoncritical:
		e.Level = health.Warning
	default:
		e.Level, e.Text = health.Unknown, cmp.Or(unknownStatus[s[0]&0x0f], fmt.Sprintf("status code %d", s[0]&0x0f))
		return e
	}
	coded := e.Level > health.OK
	if s[0]&predicted != 0 {
		e.Level = max(e.Level, health.Warning)
		said = append(said, "it predicts its failure")
	}
	why := false
	for _, b := range bits[t.code] {
		if s[b.at]&b.mask != 0 {
			e.Level = max(e.Level, b.level)
			said, why = append(said, b.words), true
		}
	}
	if coded && !why {
		said = append(said, map[byte]string{statusCritical: "critical", statusNoncritical: "not as it should be", statusUnrecoverable: "failed for good"}[s[0]&0x0f])
	}
	e.Text = strings.Join(said, ", ")
	return e
}

// read is the reading of a sensor or fan with its unit; "" for none.
func (e *Element) read(code byte, s [4]byte) string {
	value := float64(int(s[2])<<8|int(s[3])) / 100
	switch code {
	case typeFan:
		speed := (int(s[1]&7)<<8 | int(s[2])) * 10 // rpm
		switch s[1] >> 3 & 3 {                     // of SES-4: another range
		case 1:
			speed += 20480
		case 2:
			speed *= 10
		}
		return fmt.Sprintf("%d rpm", speed)
	case typeTemp:
		if s[2] == 0 {
			return ""
		}
		e.Celsius = int(s[2]) - 20
		return fmt.Sprintf("%d °C", e.Celsius)
	case typeVoltage:
		return fmt.Sprintf("%.2f V", value)
	case typeCurrent:
		return fmt.Sprintf("%.2f A", value)
	}
	return ""
}

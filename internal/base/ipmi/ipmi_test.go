package ipmi

import (
	"reflect"
	"testing"
)

// Recorded from ipmitool 1.8.19 and OpenIPMI's ipmi_sim, except Vcore and Fan9, which
// stand for a part that is not there.
const elist = `Inlet Temp,43,degrees C,ucr
Fan1,5400,RPM,ok
Fan9,,,ns
Vcore,,,ns
PS1 Status,03h,ok,10.1,Presence detected, Failure detected, Power Supply AC lost
PS2 Status,04h,ok,10.2,Presence detected
`

func TestSensors(t *testing.T) {
	want := []Sensor{
		{Name: "Inlet Temp", Level: Critical, Text: "43 degrees C"},
		{Name: "Fan1", Text: "5400 RPM"},
		{Name: "Fan9", Silent: true},
		{Name: "Vcore", Silent: true},
		{Name: "PS1 Status", Level: Critical, Text: "Presence detected, Failure detected, Power Supply AC lost"},
		{Name: "PS2 Status", Text: "Presence detected"},
	}
	if got := Sensors(elist); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if got := Sensors("Could not open device at /dev/ipmi0\n"); got != nil {
		t.Errorf("an error message has sensors: %+v", got)
	}
}

func TestLog(t *testing.T) {
	// Recorded as above; the overflow is from a BMC whose log is full.
	l, ok := ParseLog("SEL Information\nVersion          : 1.5 (v1.5, v2 compliant)\nEntries          : 2\nFree Space       : 15968 bytes \nPercent Used     : 0%\nOverflow         : false\n")
	if !ok || l != (Log{Entries: 2}) {
		t.Errorf("got %+v, %v", l, ok)
	}
	l, ok = ParseLog("Entries          : 512\nPercent Used     : 100%\nOverflow         : true\n")
	if !ok || l != (Log{Entries: 512, Used: 100, Overflow: true}) {
		t.Errorf("got %+v, %v", l, ok)
	}
	if _, ok := ParseLog("Error: Unable to establish IPMI v2 / RMCP+ session\n"); ok {
		t.Error("an error message is a log")
	}
	text := "4, Pre-Init ,0000001486,Power Supply PS1 Status,Presence detected,Asserted\n7, 11/24/2026,10:11:12,Power Supply PS1 Status,Power Supply AC lost,Asserted\n"
	if got, want := LastEvent(text), "11/24/2026 10:11:12: Power Supply PS1 Status, Power Supply AC lost, Asserted"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := LastEvent("SEL has no entries\n"); got != "" {
		t.Errorf("got %q", got)
	}
}

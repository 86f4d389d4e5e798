package ipmi

import (
	"flag"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/internal/base/health"
	"github.com/mortarhpc/mortar/test/field"
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
		{Name: "Inlet Temp", Level: health.Fault, Text: "43 degrees C"},
		{Name: "Fan1", Text: "5400 RPM"},
		{Name: "Fan9", Silent: true},
		{Name: "Vcore", Silent: true},
		{Name: "PS1 Status", Level: health.Fault, Text: "Presence detected, Failure detected, Power Supply AC lost"},
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
	if !ok || !reflect.DeepEqual(l, Log{Entries: 2}) {
		t.Errorf("got %+v, %v", l, ok)
	}
	l, ok = ParseLog("Entries          : 512\nPercent Used     : 100%\nOverflow         : true\n")
	if !ok || !reflect.DeepEqual(l, Log{Entries: 512, Used: 100, Overflow: true}) {
		t.Errorf("got %+v, %v", l, ok)
	}
	if _, ok := ParseLog("Error: Unable to establish IPMI v2 / RMCP+ session\n"); ok {
		t.Error("an error message is a log")
	}
	text := "4, Pre-Init ,0000001486,Power Supply PS1 Status,Presence detected,Asserted\n7, 11/24/2026,10:11:12,Power Supply PS1 Status,Power Supply AC lost,Asserted\n"
	want := Event{"11/24/2026 10:11:12: Power Supply PS1 Status, Power Supply AC lost, Asserted", health.Fault}
	if got, ok := LastEvent(text); !ok || got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got, ok := LastEvent("SEL has no entries\n"); ok {
		t.Errorf("got %+v", got)
	}
}

var update = flag.Bool("update", false, "rewrite testdata/field")

func TestField(t *testing.T) {
	field.Check(t, "sensors", *update, func(text string) string {
		out := ""
		for _, s := range Sensors(text) {
			out += fmt.Sprintf("%s | %s | %s%s\n", s.Level, s.Name, s.Text, map[bool]string{true: "(silent)"}[s.Silent])
		}
		return out
	})
	field.Check(t, "event", *update, func(text string) string {
		if e, ok := LastEvent(text); ok {
			return fmt.Sprintf("%s | %s", e.Level, e.Text)
		}
		return "no event"
	})
	field.Check(t, "log", *update, func(text string) string {
		l, ok := ParseLog(text)
		return fmt.Sprintf("%v: %d entries, %d %%, overflow %v %s", ok, l.Entries, l.Used, l.Overflow, l.Unread)
	})
}

// The event states of which earlier versions took ten for good, and words that no table
// knows.
func TestStates(t *testing.T) {
	for word, want := range map[string]health.Level{
		"AC lost": health.Fault, "In Failed Array": health.Fault, "In Critical Array": health.Fault, "Rebuild Aborted": health.Fault,
		"Uncorrectable machine check exception": health.Fault, "Critical Overtemperature": health.Fault, "Bus Fatal Error": health.Fault,
		"Transition to Non-recoverable": health.Fault, "Non-Redundant: Sufficient from Insufficient": health.Warning, "Log full": health.Warning,
		"Lower Non-critical going low ": health.Warning, "Firmware or software change detected, BIOS/EFI change": health.OK, "Uncorrectable ECC (DIMM_A1)": health.Fault,
		"State Asserted": health.Unknown, "Quantum flux": health.Unknown, "": health.Unknown,
	} {
		if got := State(word); got != want {
			t.Errorf("%q is %v, want %v", word, got, want)
		}
	}
	for word := range states() {
		if word != strings.ToLower(strings.TrimSpace(word)) {
			t.Errorf("%q is never found", word)
		}
	}
	for word := range missed {
		if states()[word] != health.OK {
			t.Errorf("%q is bad news when it begins and when it ends", word)
		}
	}
}

// Each line with fields is a sensor, under a banner too. A line of unknown words is never
// good, and costs no other line.
func FuzzSensors(f *testing.F) {
	for _, c := range field.Cases(f, "sensors") {
		f.Add(c.Input, "Drive 0,0Ah,ok,4.1,Fine, In Critical Array")
	}
	f.Add(elist, "x,y,z,w")
	f.Fuzz(func(t *testing.T, text, odd string) {
		all := Sensors(text)
		lines := 0
		for line := range strings.Lines(text) {
			if line = strings.TrimSpace(line); line != "" && (lines > 0 || strings.Count(line, ",") >= 2) {
				lines++
			}
		}
		if len(all) != lines {
			t.Errorf("%d sensors of %d lines", len(all), lines)
		}
		if again := Sensors(field.Banner + text); !reflect.DeepEqual(again, all) {
			t.Errorf("under a banner %+v", again)
		}
		named := map[string]bool{}
		for _, s := range all {
			if named[s.Name] {
				t.Errorf("two sensors are called %q", s.Name)
			}
			named[s.Name] = true
			if s.Level == health.OK && !s.Silent && s.Text != "" && !slices.ContainsFunc(strings.Split(text, "\n"), func(l string) bool { return strings.Contains(l, "ok") }) {
				t.Errorf("%+v is good, and no line says so", s)
			}
		}
		if strings.ContainsAny(odd, "\n\r") {
			return
		}
		with := Sensors(text + "\n" + odd)
		sameState := func(a, b Sensor) bool { // one more of a name changes the names
			return a.Level == b.Level && a.Text == b.Text && a.Silent == b.Silent
		}
		if len(with) < len(all) || !slices.EqualFunc(with[:len(all)], all, sameState) {
			t.Errorf("the line %q costs others", odd)
		}
		if e, ok := LastEvent(odd); ok && e.Text == "" {
			t.Errorf("%q is an event without words", odd)
		}
	})
}

// Package ipmi reads the output of ipmitool: a BMC's sensors and its event log. It
// runs nothing and reaches no BMC.
package ipmi

import (
	"regexp"
	"strconv"
	"strings"
)

// Level is how serious the state of a sensor is.
type Level int

// Levels, the mildest first.
const (
	Good     Level = iota
	Warning        // somebody should look
	Critical       // a part has failed, or a limit is passed
)

// Sensor is a sensor of a BMC and its state.
type Sensor struct {
	Name  string
	Level Level
	Text  string // reading with unit, or the states of a discrete sensor
	// Silent: the sensor has no reading, as for a part that is not there.
	Silent bool
}

// thresholds are ipmitool's words for a reading beyond a threshold. Source:
// ipmitool(1), sdr.
var thresholds = map[string]Level{"nc": Warning, "unc": Warning, "lnc": Warning, "cr": Critical, "ucr": Critical, "lcr": Critical,
	"nr": Critical, "unr": Critical, "lnr": Critical}

// states are ipmitool's words for states of discrete sensors that are no good news,
// in lower case. Source: IPMI 2.0, table 42-3; ipmitool, ipmi_sel.h.
var states = map[string]Level{
	"failure detected": Critical, "power supply ac lost": Critical, "ac lost or out-of-range": Critical,
	"ac out-of-range, but present": Warning, "config error": Critical, "predictive failure": Warning, "drive fault": Critical,
	"uncorrectable ecc": Critical, "correctable ecc logging limit reached": Warning, "memory device disabled": Critical,
	"redundancy lost": Critical, "redundancy degraded": Warning, "non-redundant: sufficient from redundant": Warning,
	"non-redundant: insufficient resources": Critical, "redundancy degraded from fully redundant": Warning,
	"predictive failure asserted": Warning, "limit exceeded": Warning, "transition to critical from less severe": Critical,
	"transition to non-critical from ok": Warning, "transition to non-recoverable from less severe": Critical,
	"thermal trip": Critical, "ierr": Critical, "failed": Critical, "low": Warning,
}

var number = regexp.MustCompile(`^[0-9A-F]{2}h$`)

// Sensors reads the output of `ipmitool -c sdr elist`. A line is NAME,VALUE,UNIT,STATUS
// for an analog sensor, and NAME,NUMBER,STATUS,ENTITY,STATE, STATE… for a discrete one.
func Sensors(text string) []Sensor {
	var out []Sensor
	for line := range strings.Lines(text) {
		f := strings.Split(strings.TrimSpace(line), ",")
		switch {
		case len(f) >= 4 && number.MatchString(f[1]):
			s := Sensor{Name: f[0], Silent: f[2] == "ns"}
			var said []string
			for _, state := range f[4:] {
				if state = strings.TrimSpace(state); state != "" {
					said = append(said, state)
					s.Level = max(s.Level, states[strings.ToLower(state)])
				}
			}
			s.Text = strings.Join(said, ", ")
			out = append(out, s)
		case len(f) == 4:
			out = append(out, Sensor{Name: f[0], Level: thresholds[f[3]], Text: strings.TrimSpace(f[1] + " " + f[2]), Silent: f[3] == "ns"})
		}
	}
	return out
}

// Log is the state of a BMC's event log.
type Log struct {
	Entries int
	// Used is how full it is in percent; -1 if the BMC does not say.
	Used int
	// Overflow: the BMC has dropped events.
	Overflow bool
}

// ParseLog reads the output of `ipmitool sel info`; ok is false if that is none.
func ParseLog(text string) (l Log, ok bool) {
	l.Used = -1
	for line := range strings.Lines(text) {
		k, v, _ := strings.Cut(line, ":")
		v = strings.TrimSpace(v)
		switch strings.TrimSpace(k) {
		case "Entries":
			n, err := strconv.Atoi(v)
			l.Entries, ok = n, err == nil
		case "Percent Used":
			if n, err := strconv.Atoi(strings.TrimSuffix(v, "%")); err == nil {
				l.Used = n
			}
		case "Overflow":
			l.Overflow = v == "true"
		}
	}
	return l, ok
}

// LastEvent is the last line of `ipmitool -c sel elist` in words: time, sensor, event.
func LastEvent(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	f := strings.Split(strings.TrimSpace(lines[len(lines)-1]), ",")
	if len(f) < 4 {
		return ""
	}
	for i := range f {
		f[i] = strings.TrimSpace(f[i])
	}
	return strings.Join(f[1:3], " ") + ": " + strings.Join(f[3:], ", ")
}

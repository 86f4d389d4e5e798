// Package ipmi reads the output of ipmitool: a BMC's sensors and its event log. It
// runs nothing and reaches no BMC.
package ipmi

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/health"
)

// Sensor is a sensor of a BMC and its state.
type Sensor struct {
	Name  string
	Level health.Level
	// Text is the reading with its unit, or the states of a discrete sensor; the whole
	// line if it is not understood.
	Text string
	// Silent: the sensor has no reading, as for a part that is not there.
	Silent bool
	// Lost: the sensor had the reading in Text, and has none any more.
	Lost bool `json:",omitempty"`
}

// thresholds are ipmitool's words for the status of a sensor. Source: ipmitool,
// lib/ipmi_sdr.c, ipmi_sdr_get_thresh_status
var thresholds = map[string]health.Level{"ok": health.OK, "ns": health.OK, "nc": health.Warning, "unc": health.Warning, "lnc": health.Warning,
	"cr": health.Fault, "ucr": health.Fault, "lcr": health.Fault, "nr": health.Fault, "unr": health.Fault, "lnr": health.Fault}

var (
	number = regexp.MustCompile(`^[0-9A-Fa-f]{2}h$`)
	// reading is a value with its unit behind an entity, as old versions of ipmitool print it.
	reading = regexp.MustCompile(`^[-+]?[0-9.]+ [A-Za-z%][A-Za-z% ]*$`)
	// entity is a part of the server, and which of them.
	entity = regexp.MustCompile(`^\d+\.\d+$`)
	// figure matches a field that holds a number, such as an entity or a limit, and no state.
	figure = regexp.MustCompile(`^(?:0x[0-9A-Fa-f]+|[0-9.+-]*)$`)
)

// Sensors reads the output of `ipmitool -c sdr elist`. A line has a name, a value with
// its unit or the sensor's number, a status, and then the entity and states, which
// ipmitool prints for some sensors with a value too. A name may have commas. A line of
// another form is a sensor that is Unknown; those before the first one are a banner.
//
// Source: ipmitool, lib/ipmi_sdr.c, ipmi_sdr_print_sensor_fc and print_csv_discrete
func Sensors(text string) []Sensor {
	var out []Sensor
	var parts []string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		f := strings.Split(line, ",")
		if line == "" || len(f) < 3 && len(out) == 0 {
			continue // a banner: no sensor has fewer fields
		}
		for i := range f {
			f[i] = strings.TrimSpace(f[i])
		}
		s, part := sensor(f, line)
		out, parts = append(out, s), append(parts, part)
	}
	apart(out, parts)
	return out
}

// entities are a BMC's words for parts of a server. Source: IPMI 2.0, table 43-13
var entities = map[string]string{"3": "processor", "4": "disk", "7": "system board", "8": "memory module", "9": "processor module", "10": "power supply",
	"11": "add-in card", "15": "drive backplane", "19": "power unit", "20": "power module", "23": "chassis", "26": "drive bay", "29": "fan", "30": "cooling unit",
	"32": "memory device", "55": "air inlet"}

// apart tells sensors of one name apart, by the part that each belongs to, such as 10.2, or by
// their order. Dell calls those of all power supplies Status.
func apart(all []Sensor, parts []string) {
	same := map[string][]int{}
	taken := map[string]bool{}
	for i, s := range all {
		same[s.Name], taken[s.Name] = append(same[s.Name], i), true
	}
	for name, at := range same {
		if len(at) < 2 {
			continue
		}
		for n, i := range at {
			unique := name
			if id, number, ok := strings.Cut(parts[i], "."); ok {
				unique = fmt.Sprintf("%s (%s %s)", name, cmp.Or(entities[id], "entity "+id), number)
			}
			for k := n + 1; taken[unique] && (n > 0 || unique != name); k++ {
				unique = fmt.Sprintf("%s (%d)", name, k)
			}
			all[i].Name, taken[unique] = unique, true
		}
	}
}

// sensor reads the fields of a line. part is the entity of the sensor; "" if the line has none.
func sensor(f []string, line string) (s Sensor, part string) {
	for i := 2; i < len(f); i++ {
		level, known := thresholds[f[i]]
		if !known {
			continue
		}
		discrete := number.MatchString(f[i-1])
		if !discrete && i < 3 {
			break // no room for a name before value and unit
		}
		s := Sensor{Level: level, Silent: f[i] == "ns"}
		if i+1 < len(f) && entity.MatchString(f[i+1]) {
			part = f[i+1]
		}
		var said []string
		if discrete {
			s.Name = strings.Join(f[:i-1], ", ")
		} else {
			s.Name = strings.Join(f[:i-2], ", ")
			if value := strings.TrimSpace(f[i-2] + " " + f[i-1]); value != "" {
				said = append(said, value)
			}
		}
		if s.Silent {
			return s, part
		}
		if !discrete && (len(said) == 0 || f[i-1] == "discrete") {
			break // neither a reading nor "no reading"; or bits whose meaning is not known
		}
		level, told := stateLevel(f[min(i+2, len(f)):])
		s.Level, s.Text = max(s.Level, level), strings.Join(append(said, told...), ", ")
		return s, part
	}
	return Sensor{Name: f[0], Level: health.Unknown, Text: line}, ""
}

// stateLevel is the worst level of the fields behind an entity, and those that are states.
func stateLevel(fields []string) (level health.Level, said []string) {
	for i := 0; i < len(fields); i++ {
		s := fields[i]
		if figure.MatchString(s) {
			continue
		}
		if reading.MatchString(s) {
			said = append(said, s)
			continue
		}
		// A few of ipmitool's states have a comma.
		if i+1 < len(fields) {
			if l, known := states()[strings.ToLower(s+", "+fields[i+1])]; known {
				level, said = max(level, l), append(said, s+", "+fields[i+1])
				i++
				continue
			}
		}
		level, said = max(level, State(s)), append(said, s)
	}
	return level, said
}

// Log is the state of a BMC's event log.
type Log struct {
	Entries int
	// Used is how full it is in percent; -1 if the BMC does not say.
	Used int
	// Overflow: the BMC has dropped events.
	Overflow bool
	// Unread are lines whose value is not understood.
	Unread health.Unread `json:",omitempty"`
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
			if err != nil || n < 0 {
				l.Unread.Add(line)
				continue
			}
			l.Entries, ok = n, true
		case "Percent Used":
			n, err := strconv.Atoi(strings.TrimSuffix(v, "%"))
			switch {
			case v == "unknown": // ipmitool's word for a BMC that does not say
			case err != nil || n < 0 || n > 100:
				l.Unread.Add(line)
			default:
				l.Used = n
			}
		case "Overflow":
			if v != "true" && v != "false" {
				l.Unread.Add(line)
			}
			l.Overflow = v == "true"
		}
	}
	return l, ok
}

// Event is an entry of a BMC's event log in words: time, sensor, event.
type Event struct {
	Text string
	// Level of what the event tells, while it lasts: OK for one that is over.
	Level health.Level
}

// LastEvent reads the last entry of `ipmitool -c sel elist`: number, date, time, sensor,
// event, direction, and what ipmitool has besides. There is none in an empty log.
//
// Source: ipmitool, lib/ipmi_sel.c, ipmi_sel_print_std_entry
func LastEvent(text string) (e Event, ok bool) {
	line := ""
	for l := range strings.Lines(text) {
		if l = strings.TrimSpace(l); l != "" {
			line = l
		}
	}
	f := strings.Split(line, ",")
	for i := range f {
		f[i] = strings.TrimSpace(f[i])
	}
	switch {
	case strings.Contains(line, "Linux kernel panic"):
		return Event{strings.Join(f[1:], " "), health.Fault}, true
	case len(f) < 4:
		return Event{}, false
	}
	e.Text = strings.TrimSpace(strings.Join(f[1:3], " ")) + ": " + strings.Join(f[3:], ", ")
	// Old versions of ipmitool print no direction for some events.
	end := slices.IndexFunc(f, func(w string) bool { return w == "Asserted" || w == "Deasserted" })
	switch {
	case len(f) < 5:
		e.Level = health.Unknown
	case end > 4 && f[end] == "Deasserted":
		e.Level = over(strings.Join(f[4:end], ", "))
	case end > 4:
		e.Level = State(strings.Join(f[4:end], ", "))
	default:
		e.Level = State(strings.Join(f[4:], ", "))
	}
	return e, true
}

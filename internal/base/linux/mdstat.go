package linux

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// MDStat is what /proc/mdstat tells of an array.
type MDStat struct {
	Dev            string // md127
	Disks, Working int    // 0: the level has no redundancy
	// Action is resync, recovery, reshape, check or repair; "" when the array is idle.
	Action  string
	Percent float64       // done; 0 while it waits
	Left    time.Duration // as the kernel estimates; 0 unknown
	Waiting string        // DELAYED, PENDING or REMOTE: it does not run now
}

// ParseMDStat reads /proc/mdstat.
// Source: md(4), drivers/md/md.c md_seq_show and status_resync
func ParseMDStat(text string) []MDStat {
	var all []MDStat
	for line := range strings.Lines(text) {
		if name, _, ok := strings.Cut(line, " : "); ok && strings.HasPrefix(name, "md") {
			all = append(all, MDStat{Dev: name})
			continue
		}
		if len(all) > 0 {
			all[len(all)-1].read(strings.Fields(strings.ReplaceAll(line, "=", " = ")))
		}
	}
	return all
}

// read takes the words of one line of an array, "=" being a word.
func (m *MDStat) read(words []string) {
	for i, w := range words {
		if i+1 < len(words) && strings.HasPrefix(w, "[") && strings.Trim(words[i+1], "[U_]") == "" {
			_, _ = fmt.Sscanf(w, "[%d/%d]", &m.Disks, &m.Working) // else another pair of brackets
		}
		if i+2 >= len(words) || words[i+1] != "=" {
			continue
		}
		value := words[i+2]
		switch {
		case w == "finish":
			left, _ := strconv.ParseFloat(strings.TrimSuffix(value, "min"), 64)
			m.Left = time.Duration(left * float64(time.Minute))
		case !slices.Contains([]string{"resync", "recovery", "reshape", "check", "repair"}, w):
		case strings.HasSuffix(value, "%"):
			m.Action = w
			m.Percent, _ = strconv.ParseFloat(strings.TrimSuffix(value, "%"), 64)
		case slices.Contains([]string{"DELAYED", "PENDING", "REMOTE"}, value):
			m.Action, m.Waiting = w, value
		}
	}
}

package linux

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mortarhpc/mortar/internal/base/health"
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
	Unread  health.Unread // lines of the array that are not understood
}

// ParseMDStat reads /proc/mdstat.
// Source: md(4), drivers/md/md.c md_seq_show and status_resync
func ParseMDStat(text string) []MDStat {
	var all []MDStat
	for line := range strings.Lines(text) {
		name, rest, ok := strings.Cut(line, " : ")
		state, _, _ := strings.Cut(rest, " ")
		switch {
		case ok && strings.HasPrefix(name, "md") && (strings.TrimSpace(state) == "active" || strings.TrimSpace(state) == "inactive"):
			all = append(all, MDStat{Dev: name})
		case len(all) > 0 && strings.TrimSpace(line) != "" && !strings.HasPrefix(line, "unused devices:"):
			all[len(all)-1].read(line)
		}
	}
	return all
}

var (
	mdSize     = regexp.MustCompile(`^\d+ blocks\b`)
	mdWorking  = regexp.MustCompile(`\[(\d+)/(\d+)\] \[[U_]+\]`)
	mdProgress = regexp.MustCompile(`^\[[=>.]+\]\s+(\w+)\s*=\s*([\d.]+)% \(\d+/\d+\)(?: finish=([\d.]+)min)?`)
	mdWaiting  = regexp.MustCompile(`^(\w+)=(\w+)$`)
)

// mdActions are the actions of an array, and mdWaits why one does not run now.
var (
	mdActions = []string{"resync", "recovery", "recover", "reshape", "check", "repair"}
	mdWaits   = []string{"DELAYED", "PENDING", "REMOTE"}
)

func (m *MDStat) read(line string) {
	line = strings.TrimSpace(line)
	if mdSize.MatchString(line) {
		w := mdWorking.FindStringSubmatch(line)
		switch {
		case w != nil:
			m.Disks, _ = strconv.Atoi(w[1])
			m.Working, _ = strconv.Atoi(w[2])
		case strings.Contains(line, "] ["):
			m.Unread.Add(line)
		}
		return
	}
	if strings.HasPrefix(line, "bitmap: ") {
		return
	}
	if p := mdProgress.FindStringSubmatch(line); p != nil && slices.Contains(mdActions, p[1]) {
		m.Action = p[1]
		m.Percent, _ = strconv.ParseFloat(p[2], 64)
		left, _ := strconv.ParseFloat(p[3], 64)
		m.Left = time.Duration(left * float64(time.Minute))
		return
	}
	if w := mdWaiting.FindStringSubmatch(line); w != nil && slices.Contains(mdActions, w[1]) && slices.Contains(mdWaits, w[2]) {
		m.Action, m.Waiting = w[1], w[2]
		return
	}
	m.Unread.Add(line)
}

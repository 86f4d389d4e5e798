package agent

import (
	"log/syslog"
	"strings"

	"github.com/mortarhpc/mortar/internal/host/resource"
)

// journal writes a line to the host's log, as "mortar". A host without a log
// is no reason to leave a change undone.
func journal(line string) {
	w, err := syslog.New(syslog.LOG_DAEMON|syslog.LOG_NOTICE, "mortar")
	if err != nil {
		return
	}
	_ = w.Notice(line)
	_ = w.Close()
}

// logLine describes an action. Arguments hold no secret; standard input and
// a file's content may, and are left out.
func logLine(a resource.Action) string {
	s := a.Title
	if len(a.Cmd) > 0 {
		s += ": " + strings.Join(strings.Fields(strings.Join(a.Cmd, " ")), " ") // in one line
	}
	if a.File != nil {
		s += ": file " + a.File.Path
	}
	if len(a.Destroys) > 0 {
		s += "; destroys the data on " + strings.Join(a.Destroys, ", ")
	}
	return s
}

// FailedLog begins the line of an action that failed.
const FailedLog = "failed: "

// signed puts who has something done in front of a line of the log. Package
// events reads it there.
func signed(by, line string) string {
	if by = strings.Join(strings.Fields(by), " "); by == "" {
		return line
	}
	return by + ": " + line
}

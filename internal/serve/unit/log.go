package unit

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

// Step is one line of /run/mortar/ocf-<service>.log. The drill reads it to
// tell the phases of a failover apart.
type Step struct {
	TNS     int64   `json:"t_ns"`   // wall clock at the step's begin, ns since 1970
	Action  string  `json:"action"` // start, stop, monitor
	Step    string  `json:"step"`   // a part's name; "begin" and "end" frame an action; "note" is a remark
	Seconds float64 `json:"seconds"`
	Err     string  `json:"err,omitempty"`
	Note    string  `json:"note,omitempty"`
	// Code and Subject of a note that drills ask for: one of Noted..., and an array.
	Code    string `json:"code,omitempty"`
	Subject string `json:"subject,omitempty"`
}

// Codes of notes.
const (
	NotedDegraded = "array-degraded"       // an array runs without members
	NotedDirty    = "array-dirty-degraded" // an array is started dirty and degraded
	NotedWhole    = "stripes-whole"        // its parities agree: nothing is in doubt
)

// LogFile is the path of the log of a service's actions.
func LogFile(service string) string { return RunDir + "/ocf-" + service + ".log" }

// Steps logs what an action does: one line per step on stderr, which Pacemaker
// logs, and one in the service's log.
type Steps struct {
	Action string
	Stderr io.Writer
	File   io.Writer // nil: none
	Now    func() time.Time
	mu     sync.Mutex
}

func (l *Steps) write(st Step) {
	l.mu.Lock()
	defer l.mu.Unlock()
	st.Action = l.Action
	msg := fmt.Sprintf("%s %s: %.3f s", st.Action, st.Step, st.Seconds)
	if st.Note != "" {
		msg = fmt.Sprintf("%s: %s", st.Action, st.Note)
	}
	if st.Err != "" {
		msg += ": " + st.Err
	}
	fmt.Fprintln(l.Stderr, strings.ReplaceAll(msg, "\n", "; "))
	if l.File != nil {
		if b, err := json.Marshal(st); err == nil {
			l.File.Write(append(b, '\n')) // one write: lines of two actions do not mix
		}
	}
}

// Step runs f and logs how long it took.
func (l *Steps) Step(name string, f func() error) error {
	t := l.Now()
	err := f()
	l.mark(t, name, t, err)
	return err
}

func (l *Steps) Mark(name string, since time.Time, err error) { l.mark(l.Now(), name, since, err) }

func (l *Steps) mark(at time.Time, name string, since time.Time, err error) {
	st := Step{TNS: at.UnixNano(), Step: name, Seconds: l.Now().Sub(since).Seconds()}
	if err != nil {
		st.Err = err.Error()
	}
	l.write(st)
}

func (l *Steps) Note(format string, a ...any) {
	l.write(Step{TNS: l.Now().UnixNano(), Step: "note", Note: fmt.Sprintf(format, a...)})
}

func (l *Steps) Found(code, subject, format string, a ...any) {
	l.write(Step{TNS: l.Now().UnixNano(), Step: "note", Code: code, Subject: subject, Note: fmt.Sprintf(format, a...)})
}

// NoteErr notes an error, if it is one, with what the error is about before it; "" adds nothing.
func (l *Steps) NoteErr(err error, about string, a ...any) {
	switch {
	case err == nil:
	case about == "":
		l.Note("%v", err)
	default:
		l.Note(about+": %v", append(a, err)...)
	}
}

// maxLog is the size in bytes at which OpenLog begins a new log; it keeps one
// former log.
const maxLog = 1 << 20

// OpenLog opens a service's log for appending.
func OpenLog(service string) (*os.File, error) {
	if err := os.MkdirAll(RunDir, 0o755); err != nil {
		return nil, err
	}
	name := LogFile(service)
	if st, err := os.Stat(name); err == nil && st.Size() > maxLog {
		if err := os.Rename(name, name+".1"); err != nil {
			return nil, err
		}
	}
	return os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
}

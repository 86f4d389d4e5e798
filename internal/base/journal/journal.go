// Package journal reads lines of a host's journal and knows, by a table, what
// messages of the cluster, the storage and the kernel mean. It is pure: it runs
// no command and knows no brick.
package journal

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Argv is journalctl(1) for the lines of identifiers, one JSON object a line
// with the fields that Parse reads; more are further arguments.
func Argv(idents []string, more ...string) []string {
	argv := append([]string{"journalctl", "-o", "json", "--no-pager", "--quiet",
		"--output-fields=MESSAGE,SYSLOG_IDENTIFIER,PRIORITY,_SOURCE_REALTIME_TIMESTAMP"}, more...)
	for _, i := range idents {
		argv = append(argv, "-t", i)
	}
	return argv
}

// Line is one entry of a journal.
type Line struct {
	NS      int64  // wall clock of the host, ns since 1970
	Ident   string // who logged it
	Message string // without Pacemaker's level
	// Priority is that of syslog(3): 3 and less are errors, 4 is a warning; 6 if
	// the line has none.
	Priority int
}

// Parse reads one line of `journalctl -o json`.
//
// Source: systemd.journal-fields(7), journalctl(1)
func Parse(line []byte) (Line, error) {
	var e struct {
		Message  json.RawMessage `json:"MESSAGE"`
		Ident    string          `json:"SYSLOG_IDENTIFIER"`
		Priority string          `json:"PRIORITY"`
		Source   string          `json:"_SOURCE_REALTIME_TIMESTAMP"`
		Realtime string          `json:"__REALTIME_TIMESTAMP"`
	}
	if err := json.Unmarshal(line, &e); err != nil {
		return Line{}, fmt.Errorf("journal line: %w", err)
	}
	if e.Source == "" {
		e.Source = e.Realtime
	}
	us, err := strconv.ParseInt(e.Source, 10, 64)
	if err != nil {
		return Line{}, fmt.Errorf("journal line without a time: %.100s", line)
	}
	l := Line{NS: us * 1000, Ident: e.Ident, Priority: 6}
	if p, err := strconv.Atoi(e.Priority); err == nil {
		l.Priority = p
	}
	msg, ok := text(e.Message)
	if !ok {
		return Line{}, fmt.Errorf("journal line without a message: %.100s", line)
	}
	l.Message = Clean(msg)
	return l, nil
}

// text decodes a message. journalctl prints a message that is not plain text as an
// array of bytes.
func text(raw json.RawMessage) (string, bool) {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s, true
	}
	var ints []int
	if json.Unmarshal(raw, &ints) != nil {
		return "", false
	}
	var b []byte
	for _, n := range ints {
		b = append(b, byte(n))
	}
	return strings.ToValidUTF8(string(b), "?"), true
}

// Clean takes Pacemaker's level off a message.
func Clean(s string) string {
	s = strings.TrimSpace(s)
	level, rest, ok := strings.Cut(s, ": ")
	if ok && slices.Contains([]string{"crit", "alert", "emerg", "error", "warning", "notice", "info", "debug"}, level) {
		return strings.TrimSpace(rest)
	}
	return s
}

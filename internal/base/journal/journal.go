// Package journal reads lines of a host's journal and knows, by a table, what
// messages of the cluster, the storage and the kernel mean. It is pure: it runs
// no command and knows no brick.
package journal

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/lists"
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

// Parse reads one line of `journalctl -o json`. A field that an entry has several times
// is an array there: its values are lines of the message, the first one is who logged it,
// and the most serious one is the priority.
//
// Source: systemd.journal-fields(7), journalctl(1)
func Parse(line []byte) (Line, error) {
	var e map[string]json.RawMessage
	if err := json.Unmarshal(bytes.TrimPrefix(bytes.TrimSpace(line), []byte("\ufeff")), &e); err != nil {
		return Line{}, fmt.Errorf("journal line: %w: %.100q", err, line)
	}
	l := Line{Ident: first(e["SYSLOG_IDENTIFIER"]), Priority: 6}
	us, err := strconv.ParseInt(first(e["_SOURCE_REALTIME_TIMESTAMP"]), 10, 64)
	if err != nil {
		us, err = strconv.ParseInt(first(e["__REALTIME_TIMESTAMP"]), 10, 64)
	}
	if err != nil || us < 0 || us > math.MaxInt64/1000 {
		return Line{}, fmt.Errorf("journal line without a time: %.100q", line)
	}
	l.NS = us * 1000
	levels, known := []int{}, true
	for _, v := range values(e["PRIORITY"]) {
		p, err := strconv.Atoi(v)
		known = known && err == nil && p >= 0 && p <= 7
		levels = append(levels, p)
	}
	switch {
	case !known:
		l.Priority = unknownPriority
	case len(levels) > 0:
		l.Priority = slices.Min(levels)
	}
	raw, has := e["MESSAGE"]
	msgs := values(raw)
	if !has || len(msgs) == 0 {
		return Line{}, fmt.Errorf("journal line without a message: %.100q", line)
	}
	for i := range msgs {
		msgs[i] = Clean(msgs[i])
	}
	l.Message = strings.Join(msgs, "\n")
	return l, nil
}

// unknownPriority is that of a line whose priority is not understood: Means shows a
// warning, as it shows no notice.
const unknownPriority = 4

// tooLong is the message of an entry whose message journalctl leaves out. Source:
// journalctl(1), --all
const tooLong = "(a message of more than 4096 bytes, which journalctl leaves out)"

func first(raw json.RawMessage) string {
	if all := values(raw); len(all) > 0 {
		return all[0]
	}
	return ""
}

// values decodes a field: a string; an array of bytes, for what is not plain text; null,
// for what is too long; an array of these, for a field that is there several times. A
// number or another value stands for itself.
func values(raw json.RawMessage) []string {
	var s string
	var numbers []uint16
	var several []json.RawMessage
	switch {
	case len(raw) == 0:
		return nil
	case string(raw) == "null":
		return []string{tooLong}
	case json.Unmarshal(raw, &s) == nil:
		return []string{s}
	case json.Unmarshal(raw, &numbers) == nil:
		if len(numbers) == 0 {
			return nil
		}
		return []string{strings.ToValidUTF8(text(numbers), "?")}
	case json.Unmarshal(raw, &several) == nil:
		return lists.Flat(several, values)
	}
	return []string{string(raw)}
}

// text makes a string of bytes, which encoding/json would take for base64 if they were
// of their own type.
func text(numbers []uint16) string {
	b := lists.Map(numbers, func(n uint16) byte { return byte(n) })
	return string(b)
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

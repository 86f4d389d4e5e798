package main

import (
	"errors"
	"fmt"
	"io"
	"time"
)

// teller tells how a command goes on: lines with the time since its start, or JSON lines.
type teller struct {
	w      io.Writer
	asJSON bool
	start  time.Time
}

// say prints a line for a person.
func (t *teller) say(format string, args ...any) {
	if !t.asJSON {
		fmt.Fprintf(t.w, "%s %s\n", stamp(t.start), fmt.Sprintf(format, args...))
	}
}

// event prints an event of a host: as JSON, or as a text.
func (t *teller) event(e any, host, text string) {
	if t.asJSON {
		_ = jsonLines(t.w).Encode(e) // a closed stdout shows in the result's own write
		return
	}
	t.say("  %-10s %s", host, text)
}

// end prints, with --json, the result of a command whose error is *err.
func (t *teller) end(err *error, result func(seconds float64, failed string) any) {
	if !t.asJSON {
		return
	}
	failed := ""
	if *err != nil {
		failed = (*err).Error()
	}
	*err = errors.Join(*err, jsonLines(t.w).Encode(result(time.Since(t.start).Seconds(), failed)))
}

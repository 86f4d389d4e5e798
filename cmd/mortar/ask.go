package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// errNobodyToAsk refuses a change that no terminal can confirm.
var errNobodyToAsk = errors.New("nobody can be asked here: give --yes, or --dry-run to see what would be done; nothing was changed")

// isTerminalReader reports whether the program can ask a question on r.
func isTerminalReader(r io.Reader) bool {
	f, ok := r.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// mayAsk refuses a change that needs a written yes where no person can be asked.
func mayAsk(in io.Reader, yes, asJSON bool) error {
	if !yes && (asJSON || !isTerminalReader(in)) {
		return fail(exitBadInput, errNobodyToAsk)
	}
	return nil
}

// confirm asks for a written yes. Ctrl-C ends the question too.
func confirm(ctx context.Context, in io.Reader, w io.Writer, question string) error {
	fmt.Fprint(w, question+" Type yes: ")
	answer := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(in).ReadString('\n') // end of input counts as no answer
		answer <- strings.TrimSpace(line)
	}()
	select {
	case <-ctx.Done():
		fmt.Fprintln(w)
		return fail(exitInterrupted, errors.New("interrupted; nothing was changed"))
	case a := <-answer:
		if a != "yes" {
			return fail(exitBadInput, errors.New("not confirmed; nothing was changed"))
		}
	}
	return nil
}

// typed has the user type what is wanted, unless --confirm gave it. why says why the person
// may not be passed over, undone what was left as it was.
func typed(in io.Reader, w io.Writer, want, given, question, why, undone string) error {
	if given == "" && isTerminalReader(in) {
		fmt.Fprint(w, question)
		line, err := bufio.NewReader(in).ReadString('\n')
		if err != nil {
			return fail(exitBadInput, fmt.Errorf("nothing was typed; %s: %w", undone, err))
		}
		given = strings.TrimSpace(line)
	}
	switch given {
	case want:
		return nil
	case "":
		return fail(exitBadInput, fmt.Errorf("%s and nobody can be asked here: give --confirm %s; %s", why, want, undone))
	}
	return fail(exitBadInput, fmt.Errorf("%q is not %q; %s", given, want, undone))
}

// confirmBrick has the user type the brick's name before a change to real hardware that its
// users notice.
func confirmBrick(in io.Reader, w io.Writer, warning, undone, brick, given string) error {
	return typed(in, w, brick, given, fmt.Sprintf("This is real hardware. %s\nType the brick's name to go on: ", warning), "this is real hardware", undone)
}

package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/mortarhpc/mortar/internal/base/screen"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/host"
)

// Console is what a command says to the person or program that runs it, and asks. JSON, Yes and
// DryRun are the flags of those names.
type Console struct {
	*Env
	In                io.Reader
	Out, Err          io.Writer
	JSON, Yes, DryRun bool
	Start             time.Time
	// Left are clients that a plan or an apply has left out.
	Left host.Errors
}

// LeaveOut tells which clients a plan or an apply leaves out, and why.
func (c *Console) LeaveOut(left host.Errors) {
	for _, n := range slices.Sorted(maps.Keys(left)) {
		if c.Left[n] == nil {
			c.Printf("Left out: %v\n", left[n])
		}
		c.Left[n] = left[n]
	}
}

// Ended is the error of a command that has ended with err: without one, that it left clients out.
func (c *Console) Ended(err error) error {
	if err != nil || len(c.Left) == 0 {
		return err
	}
	names := spec.Ranges(slices.Sorted(maps.Keys(c.Left)))
	return Fail(LeftOut, fmt.Errorf("left out for want of an answer: %s; run it again once they are up", strings.Join(names, ", ")))
}

// JSONLines writes one JSON value a line, as docs/json.md has them.
func JSONLines(w io.Writer) *json.Encoder {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc
}

// PrintJSON writes one value on several lines.
func PrintJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// Show prints a result: on several lines of JSON, or as a text.
func (c *Console) Show(v any, text func(io.Writer) error) error {
	if c.JSON {
		return PrintJSON(c.Out, v)
	}
	return text(c.Out)
}

// Line prints a result: as a line of JSON, or as a text.
func (c *Console) Line(v any, text func(io.Writer) error) error {
	if c.JSON {
		return JSONLines(c.Out).Encode(v)
	}
	return text(c.Out)
}

// Printf prints for a person.
func (c *Console) Printf(format string, args ...any) {
	if !c.JSON {
		fmt.Fprintf(c.Out, format, args...)
	}
}

// Say prints a line for a person, with the time since the start.
func (c *Console) Say(format string, args ...any) {
	c.Printf("%s %s\n", Stamp(c.Start), fmt.Sprintf(format, args...))
}

// Event prints an event of a host: as JSON, or as a text.
func (c *Console) Event(e any, host, text string) {
	if c.JSON {
		_ = JSONLines(c.Out).Encode(e) // a closed stdout shows in the result's own write
		return
	}
	c.Say("  %-10s %s", host, text)
}

// End prints, with JSON, the result of a command whose error is *err.
func (c *Console) End(err *error, result func(seconds float64, failed string) any) {
	if !c.JSON {
		return
	}
	failed := ""
	if *err != nil {
		failed = (*err).Error()
	}
	*err = errors.Join(*err, JSONLines(c.Out).Encode(result(time.Since(c.Start).Seconds(), failed)))
}

// Aside returns the writer for progress: standard output, or standard error if a program reads
// the output.
func (c *Console) Aside() io.Writer {
	if c.JSON {
		return c.Err
	}
	return c.Out
}

// Connecting shows on the terminal w what happens before a plan. Each line replaces the one
// before it, and done removes the last.
func Connecting(w io.Writer, live bool) (progress func(host, what string), done func()) {
	if !live {
		return func(string, string) {}, func() {}
	}
	start := time.Now()
	var mu sync.Mutex
	return func(host, what string) {
			mu.Lock()
			defer mu.Unlock()
			if host != "" {
				what = host + ": " + what
			}
			fmt.Fprintf(w, "%s%s %s", screen.ClearLine, Stamp(start), what)
		}, func() {
			mu.Lock()
			defer mu.Unlock()
			fmt.Fprint(w, screen.ClearLine)
		}
}

// Counting shows on the terminal w how far a calculation is, if it takes more than two seconds.
func Counting(w io.Writer, what string, total int) (progress func(done int), end func()) {
	start, last := time.Now(), time.Now()
	shown := false
	return func(done int) {
			if time.Since(start) < 2*time.Second || !IsTerminal(w) || time.Since(last) < 200*time.Millisecond {
				return
			}
			last, shown = time.Now(), true
			left := time.Duration(float64(time.Since(start)) / float64(max(done, 1)) * float64(total-done))
			fmt.Fprintf(w, "%s%s: %d %%, about %s left   ", screen.LineStart, what, 100*done/total, left.Round(time.Second))
		}, func() {
			if shown {
				fmt.Fprint(w, screen.ClearLine)
			}
		}
}

// Stamp formats the time since start as [minutes:seconds].
func Stamp(start time.Time) string {
	s := int(time.Since(start).Seconds())
	return fmt.Sprintf("[%02d:%02d]", s/60, s%60)
}

// IsTerminal reports whether w is a terminal that may show colour and live progress. A dumb one
// (terminfo(5)) does not move its cursor.
func IsTerminal(w io.Writer) bool {
	s, ok := w.(*screen.Writer)
	return ok && s.Terminal() && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// Width is the number of columns of the terminal w; 0 for anything else.
func Width(w io.Writer) int {
	s, ok := w.(*screen.Writer)
	if !ok || s.File() == nil {
		return 0
	}
	width, _, err := term.GetSize(int(s.File().Fd()))
	if err != nil {
		return 0
	}
	return width
}

// Painter wraps text in attributes of the terminal w; nil if w is none.
func Painter(w io.Writer) func(code, text string) string {
	if !IsTerminal(w) {
		return nil
	}
	return screen.Paint
}

// Bold marks text on a terminal.
func (c *Console) Bold(text string) string { return c.paint("1", text) }

// Faint marks text of less weight on a terminal.
func (c *Console) Faint(text string) string { return c.paint("2", text) }

func (c *Console) paint(code, text string) string {
	if !IsTerminal(c.Out) {
		return text
	}
	return screen.Paint(code, text)
}

// errNoTerminal refuses a change that no terminal can confirm.
var errNoTerminal = errors.New("no terminal is here to ask at: give --yes, or --dry-run to see what would be done; nothing was changed")

// Asks reports whether a person can be asked on r.
func Asks(r io.Reader) bool {
	f, ok := r.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// MayAsk refuses a change that needs a written yes where no person can be asked.
func (c *Console) MayAsk() error {
	if !c.Yes && (c.JSON || !Asks(c.In)) {
		return Fail(BadInput, errNoTerminal)
	}
	return nil
}

// Confirm asks for a written yes, unless --yes was given. Ctrl-C ends the question too.
func (c *Console) Confirm(ctx context.Context, question string) error {
	if err := c.MayAsk(); err != nil || c.Yes {
		return err
	}
	fmt.Fprint(c.Out, question+" Type yes: ")
	answer := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(c.In).ReadString('\n') // end of input counts as no answer
		answer <- strings.TrimSpace(line)
	}()
	select {
	case <-ctx.Done():
		fmt.Fprintln(c.Out)
		return Fail(Interrupted, errors.New("interrupted; nothing was changed"))
	case a := <-answer:
		if a != "yes" {
			return Fail(BadInput, errors.New("not confirmed; nothing was changed"))
		}
	}
	return nil
}

// Typed has the user type what is wanted, unless --confirm gave it. why says why the person
// may not be passed over, undone what was left as it was.
func (c *Console) Typed(want, given, question, why, undone string) error {
	if given == "" && Asks(c.In) {
		fmt.Fprint(c.Aside(), question)
		line, err := bufio.NewReader(c.In).ReadString('\n')
		if err != nil {
			return Fail(BadInput, fmt.Errorf("nothing was typed; %s: %w", undone, err))
		}
		given = strings.TrimSpace(line)
	}
	switch given {
	case want:
		return nil
	case "":
		return Fail(BadInput, fmt.Errorf("%s and no terminal is here to ask at: give --confirm %s; %s", why, want, undone))
	}
	return Fail(BadInput, fmt.Errorf("%q is not %q; %s", given, want, undone))
}

// ConfirmBrick has the user type the brick's name before a change to real hardware that its
// users notice.
func (c *Console) ConfirmBrick(warning, undone, brick, given string) error {
	return c.Typed(brick, given, fmt.Sprintf("This is real hardware. %s\nType the brick's name to go on: ", warning), "this is real hardware", undone)
}

// Command mortar turns commodity servers and disks into HPC storage and proves that it holds.
// This package has flags, help, exit codes and output. Everything else lives in internal/.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/mortarhpc/mortar/internal/base/screen"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/serve/ocf"
)

// Exit codes. Source: docs/json.md.
const (
	exitFailed      = 1   // an action failed, or a verdict is "fail"
	exitBadInput    = 2   // refused; nothing was changed
	exitPending     = 3   // plan --detailed-exitcode: changes are pending
	exitInterrupted = 130 // Ctrl-C
)

// exitError carries an exit code to main.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit %d", e.code)
	}
	return e.err.Error()
}
func (e *exitError) Unwrap() error { return e.err }

// fail returns an error that ends the program with code. A nil err prints nothing.
func fail(code int, err error) error { return &exitError{code, err} }

// loadSpec reads a spec. If its virtual rack is up, the disks get the rack's sizes and WWNs.
// Errors end the program with exitBadInput.
func loadSpec(path string) (*spec.Spec, error) {
	s, err := readSpec(path)
	if err != nil {
		return nil, err
	}
	if err := host.Hardware(s); err != nil {
		return nil, fail(exitBadInput, err)
	}
	return s, nil
}

// readSpec reads a spec from its file alone. Errors end the program with exitBadInput.
func readSpec(path string) (*spec.Spec, error) {
	s, err := spec.Load(path)
	if errors.Is(err, fs.ErrNotExist) && slices.Contains(exampleNames(), path) {
		err = fmt.Errorf("%s is an example, and no file here has its name; write it into one with `mortar init %s > brick.yaml`", path, path)
	}
	if err != nil {
		return nil, fail(exitBadInput, err)
	}
	return s, nil
}

// profileFlag adds --profile to a command.
func profileFlag(cmd *cobra.Command, profile *string) {
	cmd.Flags().StringVar(profile, "profile", "", "tuned or stock, in place of the spec's profile")
}

// loadDesign reads a spec and derives its design. The profile of a flag is one; "" keeps the
// spec's.
func loadDesign(path string, profile ...string) (*design.Design, error) {
	return designOf(path, design.New, profile...)
}

// loadAnyDesign is loadDesign for a brick that this version may not be able to build.
func loadAnyDesign(path string, profile ...string) (*design.Design, error) {
	return designOf(path, design.Derive, profile...)
}

func designOf(path string, derive func(*spec.Spec) (*design.Design, error), profile ...string) (*design.Design, error) {
	s, err := loadSpec(path)
	if err != nil {
		return nil, err
	}
	if p := first(profile); p != "" {
		if !slices.Contains(spec.Profiles, p) {
			return nil, fail(exitBadInput, fmt.Errorf("--profile %q: give %s", p, strings.Join(spec.Profiles, " or ")))
		}
		s.Profile = spec.Profile(p)
	}
	d, err := derive(s)
	if err != nil {
		return nil, fail(exitBadInput, err)
	}
	return d, nil
}

// Everything that a command prints goes through these, JSON too: they show what a terminal would
// obey as an escape.
var stdout, stderr = screen.To(os.Stdout), screen.To(os.Stderr)

// jsonLines writes one JSON value a line, as docs/json.md has them.
func jsonLines(w io.Writer) *json.Encoder {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc
}

// isTerminal reports whether w is a terminal that may show colour and live progress.
func isTerminal(w io.Writer) bool {
	s, ok := w.(*screen.Writer)
	return ok && s.Terminal() && os.Getenv("NO_COLOR") == ""
}

// widthOf is the number of columns of a terminal, 0 for anything else.
func widthOf(w io.Writer) int {
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

func main() { os.Exit(run()) }

func run() int {
	switch filepath.Base(os.Args[0]) { // names in /usr/lib/ocf/resource.d/mortar
	case "service":
		return ocfMain(os.Args[1:], ocf.Main)
	case "watch":
		return ocfMain(os.Args[1:], ocf.WatchMain)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	root := newRootCmd()
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := execute(ctx, root, os.Args[1:])
	if err == nil {
		return 0
	}
	var ee *exitError
	if !errors.As(err, &ee) {
		ee = &exitError{exitFailed, err} // execute returns only exitErrors
	}
	if ee.err != nil {
		fmt.Fprintln(stderr, "mortar:", ee.err)
	}
	return ee.code
}

// extraCommands are the commands of a build tag. Source: man.go.
var extraCommands []*cobra.Command

func newRootCmd() *cobra.Command {
	root := &cobra.Command{
		Use:           "mortar",
		Short:         "Turn commodity servers and disks into HPC storage, and prove that it holds",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(commands()...)
	root.AddCommand(extraCommands...)
	root.InitDefaultCompletionCmd() // counts as a command of a group
	root.InitDefaultHelpCmd()
	describe(root)
	plainUsage(root)
	return root
}

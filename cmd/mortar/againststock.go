package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/prove/report"
)

// builtTwice measures a brick with each profile, and gives the directory of
// each one's run. With both, the error is that of a measurement that ended
// badly and left a result, as a drill that fails does. A brick of one profile
// cannot be turned into one of the other, so each is built on a virtual rack of
// its own, one after the other. It has no logic of its own: the commands are
// those a user could type.
func builtTwice(ctx context.Context, w io.Writer, start time.Time, specFile, dir string, measure func(file, run string) []string) (map[spec.Profile]string, error) {
	if err := writable(dir); err != nil {
		return nil, fail(exitBadInput, fmt.Errorf("--out: %w", err))
	}
	src, err := os.ReadFile(specFile)
	if err != nil {
		return nil, fail(exitBadInput, err)
	}
	profiles := []spec.Profile{spec.Stock, spec.Tuned}
	fileOf := func(p spec.Profile) string { return filepath.Join(dir, string(p), "brick.yaml") }
	// Both must be buildable before the first is built.
	for _, p := range profiles {
		if err := os.MkdirAll(filepath.Dir(fileOf(p)), 0o755); err != nil {
			return nil, fail(exitFailed, err)
		}
		if err := os.WriteFile(fileOf(p), withProfile(src, p), 0o644); err != nil {
			return nil, fail(exitFailed, err)
		}
		if _, err := loadDesign(fileOf(p)); err != nil {
			return nil, err
		}
	}
	runs := map[spec.Profile]string{}
	var failed error
	for _, p := range profiles {
		runs[p] = filepath.Join(dir, string(p), "run")
		err := oneProfile(ctx, w, start, fileOf(p), measure(fileOf(p), runs[p]))
		// A run that was there before is not this one's.
		if fi, serr := os.Stat(filepath.Join(runs[p], report.SummaryFile)); err != nil && (ctx.Err() != nil || serr != nil || fi.ModTime().Before(start)) {
			return nil, err
		}
		failed = errors.Join(failed, err)
	}
	return runs, failed
}

// step says which command comes now, and runs it.
func step(ctx context.Context, out, progress io.Writer, start time.Time, args []string) error {
	self, err := os.Executable()
	if err != nil {
		return fail(exitFailed, err)
	}
	fmt.Fprintf(progress, "\n%s %s\n", stamp(start), bold("$ mortar "+strings.Join(args, " ")))
	return childFailed(ctx, args[0], runSelf(ctx, out, self, args))
}

// oneProfile brings a rack up, builds the brick, measures it and takes the
// rack down again, whatever happens.
func oneProfile(ctx context.Context, w io.Writer, start time.Time, file string, measure []string) (err error) {
	self, err := os.Executable()
	if err != nil {
		return fail(exitFailed, err)
	}
	defer func() {
		fmt.Fprintf(w, "\n%s %s\n", stamp(start), bold("$ mortar rack down "+file))
		down := exec.Command(self, "rack", "down", file)
		down.Stdout, down.Stderr = w, os.Stderr
		down.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a second Ctrl-C must not stop the clean-up
		if derr := down.Run(); derr != nil && err == nil {
			err = fail(exitFailed, fmt.Errorf("mortar rack down: %w", derr))
		}
	}()
	for _, args := range [][]string{{"rack", "up", file}, {"apply", file, "--yes", "--skip-fence-test"}, measure} {
		if err := step(ctx, w, w, start, args); err != nil {
			return err
		}
	}
	return nil
}

// childFailed gives a command's failure its own exit code; it has told why.
func childFailed(ctx context.Context, name string, err error) error {
	switch ee := (*exec.ExitError)(nil); {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fail(exitInterrupted, fmt.Errorf("interrupted during mortar %s", name))
	case errors.As(err, &ee) && ee.ExitCode() > 0:
		return fail(ee.ExitCode(), nil)
	}
	return fail(exitFailed, fmt.Errorf("mortar %s: %w", name, err))
}

var profileRE = regexp.MustCompile(`(?m)^profile:.*$`)

// withProfile is a spec's text with another profile.
func withProfile(src []byte, p spec.Profile) []byte {
	line := "profile: " + string(p)
	if profileRE.Match(src) {
		return profileRE.ReplaceAll(src, []byte(line))
	}
	return append([]byte(strings.TrimRight(string(src), "\n")+"\n"), line+"\n"...)
}

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
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/mortarhpc/mortar/internal/bench"
	"github.com/mortarhpc/mortar/internal/spec"
)

// runAgainstStock compares a brick with itself as the distribution would have
// it. A brick of one profile cannot be turned into one of the other, so each
// is built on a virtual rack of its own, one after the other. It has no logic
// of its own: the commands are those a user could type.
func runAgainstStock(ctx context.Context, out, errOut io.Writer, specFile string, f benchFlags) error {
	if f.out == "" {
		f.out = filepath.Join("out", "bench-against-stock")
	}
	opt, err := f.options()
	if err != nil {
		return err
	}
	des, err := loadDesign(specFile)
	if err != nil {
		return err
	}
	// What is wrong with the suite is better told before two bricks are built.
	suite, err := bench.Load(f.suite, des.Flavour)
	if err != nil {
		return fail(exitBadInput, err)
	}
	if _, err := bench.Plan(suite, opt, 1, 1); err != nil {
		return fail(exitBadInput, err)
	}
	if err := writable(f.out); err != nil {
		return fail(exitBadInput, fmt.Errorf("--out: %w", err))
	}
	src, err := os.ReadFile(specFile)
	if err != nil {
		return fail(exitBadInput, err)
	}
	self, err := os.Executable()
	if err != nil {
		return fail(exitFailed, err)
	}
	progress := out
	if f.asJSON {
		progress = errOut
	}
	start := time.Now()
	profiles := []spec.Profile{spec.Stock, spec.Tuned}
	dirOf := func(p spec.Profile) string { return filepath.Join(f.out, string(p)) }
	fileOf := func(p spec.Profile) string { return filepath.Join(dirOf(p), "brick.yaml") }
	// Both must be buildable before the first is built.
	for _, p := range profiles {
		if err := os.MkdirAll(dirOf(p), 0o755); err != nil {
			return fail(exitFailed, err)
		}
		if err := os.WriteFile(fileOf(p), withProfile(src, p), 0o644); err != nil {
			return fail(exitFailed, err)
		}
		if _, err := loadDesign(fileOf(p)); err != nil {
			return err
		}
	}
	var runs []string
	for _, p := range profiles {
		file, run := fileOf(p), filepath.Join(dirOf(p), "run")
		if err := oneProfile(ctx, progress, self, start, file, append([]string{"bench", file, "--out", run}, f.forward()...)); err != nil {
			return err
		}
		runs = append(runs, run)
	}
	html := filepath.Join(f.out, "compare.html")
	args := []string{"compare", runs[0], runs[1], "--html", html}
	if f.asJSON {
		args = append(args, "--json")
	}
	fmt.Fprintf(progress, "\n%s %s\n", stamp(start), bold("$ mortar "+strings.Join(args, " ")))
	return childFailed(ctx, "compare", runSelf(ctx, out, self, args))
}

// oneProfile brings a rack up, builds the brick, measures it and takes the
// rack down again, whatever happens.
func oneProfile(ctx context.Context, w io.Writer, self string, start time.Time, file string, measure []string) (err error) {
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
		fmt.Fprintf(w, "\n%s %s\n", stamp(start), bold("$ mortar "+strings.Join(args, " ")))
		if err := childFailed(ctx, args[0], runSelf(ctx, w, self, args)); err != nil {
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

// forward gives the flags that say what is measured.
func (f *benchFlags) forward() []string {
	out := []string{"--scale", f.scale, "--engine", f.engine}
	for _, x := range [][2]string{{"--suite", f.suite}, {"--clients", f.clients}, {"--cold", f.cold}, {"--nfs", f.nfs}, {"--tests", strings.Join(f.tests, ",")}} {
		if x[1] != "" {
			out = append(out, x[0], x[1])
		}
	}
	if f.repeat > 0 {
		out = append(out, "--repeat", strconv.Itoa(f.repeat))
	}
	if f.profile {
		out = append(out, "--profile")
	}
	return out
}

// Package versus builds a brick twice on virtual racks, one after the other:
// first with the values of the distribution, then with Mortar's. It measures both
// bricks and returns the directories of the runs. It does so with Mortar's own
// commands, which a user could type.
package versus

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/prove/report"
)

// profiles lists the profiles in the order of the builds. A brick cannot change
// its profile, so each profile gets a new build.
var profiles = []spec.Profile{spec.Stock, spec.Tuned}

// Comparison describes what to compare: one brick, built with each profile.
type Comparison struct {
	Spec string // the brick's file
	Dir  string // directory for both bricks' files and their runs
	// Measure returns the command that measures the brick of file and leaves the
	// run in the directory run.
	Measure func(file, run string) []string
	// Mortar runs one of Mortar's commands. If ctx can never end, the command
	// cleans up and nothing may stop it.
	Mortar func(ctx context.Context, args ...string) error
}

// Run builds and measures both bricks and returns the directory of each profile's
// run. If it returns both runs and an error, the error is of a measurement that
// failed and still left a result, such as a failed drill. Without runs, the
// error is of a command, or says why Run built nothing.
func (c *Comparison) Run(ctx context.Context) (map[spec.Profile]string, error) {
	start := time.Now()
	files, err := c.files()
	if err != nil {
		return nil, err
	}
	runs := map[spec.Profile]string{}
	var failed error
	for _, p := range profiles {
		runs[p] = filepath.Join(c.Dir, string(p), "run")
		err := c.one(ctx, files[p], runs[p])
		// A summary from before start is of an earlier run.
		if fi, serr := os.Stat(filepath.Join(runs[p], report.SummaryFile)); err != nil && (ctx.Err() != nil || serr != nil || fi.ModTime().Before(start)) {
			return nil, err
		}
		failed = errors.Join(failed, err)
	}
	return runs, failed
}

// files writes a spec for each profile. It checks both before Run builds the
// first.
func (c *Comparison) files() (map[spec.Profile]string, error) {
	src, err := os.ReadFile(c.Spec)
	if err != nil {
		return nil, err
	}
	files := map[spec.Profile]string{}
	for _, p := range profiles {
		files[p] = filepath.Join(c.Dir, string(p), "brick.yaml")
		if err := os.MkdirAll(filepath.Dir(files[p]), 0o755); err != nil {
			return nil, err
		}
		if err := os.WriteFile(files[p], withProfile(src, p), 0o644); err != nil {
			return nil, err
		}
		s, err := spec.Load(files[p])
		if err != nil {
			return nil, err
		}
		if _, err := design.New(s); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// one brings a rack up, builds the brick and measures it. It takes the rack down
// even after an error.
func (c *Comparison) one(ctx context.Context, file, run string) (err error) {
	defer func() {
		if derr := c.Mortar(context.WithoutCancel(ctx), "rack", "down", file); derr != nil && err == nil {
			err = derr
		}
	}()
	for _, args := range [][]string{{"rack", "up", file}, {"apply", file, "--yes", "--skip-fence-test"}, c.Measure(file, run)} {
		if err := c.Mortar(ctx, args...); err != nil {
			return err
		}
	}
	return nil
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

// DrillRuns loads the runs of all drills in the directories that Run returned.
func DrillRuns(dirs map[spec.Profile]string) (all []*report.Run, err error) {
	for _, p := range profiles {
		_, runs, err := report.LoadEntries(dirs[p])
		if err != nil {
			return nil, err
		}
		all = append(all, runs...)
	}
	return all, nil
}

package workload

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/host/agent"
)

// benchMarker is a file in a run's directory that holds the run's id. No op
// writes to, or removes from, a directory without it.
const benchMarker = ".mortar-bench"

// patiently runs f in a goroutine, since a call on a file system may hang. If
// ctx ends first, it returns and leaves the goroutine behind.
func patiently[T any](ctx context.Context, f func() (T, error)) (T, error) {
	type answer struct {
		v   T
		err error
	}
	c := make(chan answer, 1)
	go func() {
		v, err := f()
		c <- answer{v, err}
	}()
	select {
	case a := <-c:
		return a.v, a.err
	case <-ctx.Done():
		var none T
		return none, context.Cause(ctx)
	}
}

// check refuses parameters that could touch files that are not the run's.
func (p *BenchParams) check() error {
	switch {
	case !isName(p.RunID) || p.Set != "" && !isName(p.Set):
		return fmt.Errorf("run_id %q, set %q: use letters, digits, '.', '_' and '-'", p.RunID, p.Set)
	case !filepath.IsAbs(p.Dir):
		return fmt.Errorf("dir %q is not an absolute path", p.Dir)
	}
	return nil
}

// BenchPrepare carries out OpBenchPrepare; see [BenchParams].
func BenchPrepare(ctx context.Context, p BenchParams) (*BenchFacts, error) {
	if err := p.check(); err != nil {
		return nil, err
	}
	version, err := fioVersion(ctx)
	if err != nil {
		return nil, err
	}
	f := &BenchFacts{CPUs: runtime.NumCPU(), Fio: version, Others: []string{}}
	var si unix.Sysinfo_t
	if err := unix.Sysinfo(&si); err == nil {
		f.MemBytes = int64(si.Totalram) * int64(si.Unit)
	}
	// Not by a call to the file system itself, which could hang.
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	m, _ := linux.MountOf(linux.ParseMountInfo(string(mounts)), p.Dir)
	f.FSType, f.Source, f.MountOptions = m.Type, m.Source, strings.Join(slices.Concat(m.Options, m.Super), ",")
	if _, err := patiently(ctx, func() (struct{}, error) { return struct{}{}, f.prepare(p) }); err != nil {
		return nil, errors.New(explain(err))
	}
	return f, nil
}

func (f *BenchFacts) prepare(p BenchParams) error {
	var st unix.Statfs_t
	if _, err := retryInterrupted(func() (int, error) { return 0, unix.Statfs(p.Dir, &st) }); err != nil {
		return pathError("statfs", p.Dir, err)
	}
	f.FreeBytes = int64(st.Bavail) * st.Bsize
	marks, _ := filepath.Glob(filepath.Join(p.Dir, "*", benchMarker))
	for _, m := range marks {
		if other := filepath.Base(filepath.Dir(m)); other != p.RunID {
			f.Others = append(f.Others, other)
		}
	}
	dir := filepath.Join(p.Dir, p.RunID)
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	} else if err != nil {
		// Another client of the run has made it, and may not have written the
		// marker yet. Or it is left from a run with the same id.
		for range 20 {
			if err = checkMarker(dir, p.RunID); err == nil {
				return nil
			}
			time.Sleep(100 * time.Millisecond)
		}
		return err
	}
	return os.WriteFile(filepath.Join(dir, benchMarker), []byte(p.RunID+"\n"), 0o644)
}

// checkMarker returns an error unless OpBenchPrepare made the directory for the
// run.
func checkMarker(dir, runID string) error {
	b, err := os.ReadFile(filepath.Join(dir, benchMarker))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if _, err := os.Lstat(dir); err != nil {
			return err
		}
		return fmt.Errorf("%s exists and is no directory of this benchmark: nothing in it is touched; use another run id", dir)
	case err != nil:
		return err
	case strings.TrimSpace(string(b)) != runID:
		return fmt.Errorf("%s belongs to benchmark %q: nothing in it is touched; use another run id", dir, strings.TrimSpace(string(b)))
	}
	return nil
}

// setDir makes the directory of a set, and the directories of trees in it.
func setDir(job *BenchJob, dir string, trees []string) error {
	if err := checkMarker(filepath.Dir(dir), job.RunID); err != nil {
		return err
	}
	for _, d := range append([]string{dir}, trees...) {
		if err := os.Mkdir(d, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}

// BenchCleanup carries out OpBenchCleanup; see [BenchParams].
func BenchCleanup(ctx context.Context, p BenchParams) (none agent.None, err error) {
	if err := p.check(); err != nil {
		return none, err
	}
	return patiently(ctx, func() (agent.None, error) {
		dir := filepath.Join(p.Dir, p.RunID)
		if err := checkMarker(dir, p.RunID); errors.Is(err, fs.ErrNotExist) {
			return none, nil
		} else if err != nil {
			return none, err
		}
		if p.Set != "" {
			return none, removeAll(ctx, filepath.Join(dir, p.Set))
		}
		sets, err := os.ReadDir(dir)
		if err != nil {
			return none, err
		}
		for _, s := range sets {
			// The marker goes last, so that an interrupted cleanup can be repeated.
			if s.Name() != benchMarker {
				if err := removeAll(ctx, filepath.Join(dir, s.Name())); err != nil {
					return none, err
				}
			}
		}
		return none, os.RemoveAll(dir)
	})
}

// removeAll removes a set, the trees and files in it in parallel: on NFS each
// removal is a round trip.
func removeAll(ctx context.Context, set string) error {
	entries, err := os.ReadDir(set)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(16)
	for _, e := range entries {
		g.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			return os.RemoveAll(filepath.Join(set, e.Name()))
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return os.RemoveAll(set)
}

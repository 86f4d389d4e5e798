package workload

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
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

// BenchPrepare carries out OpBenchPrepare; see [BenchPrepareParams].
func BenchPrepare(ctx context.Context, p BenchPrepareParams) (*BenchFacts, error) {
	if !isName(p.RunID) {
		return nil, fmt.Errorf("run_id %q: use letters, digits, '.', '_' and '-'", p.RunID)
	}
	if !filepath.IsAbs(p.Dir) {
		return nil, fmt.Errorf("dir %q is not an absolute path", p.Dir)
	}
	f := &BenchFacts{CPUs: runtime.NumCPU(), Engines: installedEngines(ctx), Others: []string{}}
	var si unix.Sysinfo_t
	if err := unix.Sysinfo(&si); err == nil {
		f.MemBytes = int64(si.Totalram) * int64(si.Unit)
	}
	m := mountOf(p.Dir)
	f.FSType, f.Source, f.MountOptions = m.Type, m.Source, allOptions(m)
	_, err := patiently(ctx, func() (struct{}, error) { return struct{}{}, f.prepare(p) })
	if err != nil {
		return nil, errors.New(explain(err))
	}
	f.NowNs = time.Now().UnixNano()
	return f, nil
}

func (f *BenchFacts) prepare(p BenchPrepareParams) error {
	var st unix.Statfs_t
	if _, err := again(func() (int, error) { return 0, unix.Statfs(p.Dir, &st) }); err != nil {
		return pathError("statfs", p.Dir, err)
	}
	f.FreeBytes, f.FreeFiles = int64(st.Bavail)*st.Bsize, int64(st.Ffree)
	if st.Files == 0 {
		f.FreeFiles = 0
	}
	switch {
	case p.NeedBytes > f.FreeBytes:
		return fmt.Errorf("%s: %d bytes are free and %d needed: %w", p.Dir, f.FreeBytes, p.NeedBytes, unix.ENOSPC)
	case st.Files > 0 && p.NeedFiles > f.FreeFiles:
		return fmt.Errorf("%s: %d more files can be made and %d are needed: %w", p.Dir, f.FreeFiles, p.NeedFiles, unix.ENOSPC)
	}
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

// BenchCleanup carries out OpBenchCleanup; see [BenchCleanupParams].
func BenchCleanup(ctx context.Context, p BenchCleanupParams, progress func(BenchCleanupProgress)) (*BenchCleanupResult, error) {
	if !isName(p.RunID) || p.Set != "" && !isName(p.Set) {
		return nil, fmt.Errorf("run_id %q, set %q: use letters, digits, '.', '_' and '-'", p.RunID, p.Set)
	}
	if !filepath.IsAbs(p.Dir) {
		return nil, fmt.Errorf("dir %q is not an absolute path", p.Dir)
	}
	var removed atomic.Int64
	quit, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-quit.Done():
				return
			case <-tick.C:
				if progress != nil {
					progress(BenchCleanupProgress{Removed: removed.Load()})
				}
			}
		}
	}()
	return patiently(ctx, func() (*BenchCleanupResult, error) {
		dir := filepath.Join(p.Dir, p.RunID)
		if err := checkMarker(dir, p.RunID); errors.Is(err, fs.ErrNotExist) {
			return &BenchCleanupResult{}, nil
		} else if err != nil {
			return nil, err
		}
		target := dir
		if p.Set != "" {
			target = filepath.Join(dir, p.Set)
		}
		g := &errgroup.Group{}
		g.SetLimit(16) // on NFS each removal is a round trip
		err := removeAll(quit, target, &removed, g)
		// Remove the marker last, so that an interrupted cleanup can be repeated.
		if err == nil && p.Set == "" {
			if err = os.Remove(filepath.Join(dir, benchMarker)); err == nil {
				removed.Add(1)
				err = os.Remove(dir)
			}
			if err == nil {
				removed.Add(1)
			}
		}
		return &BenchCleanupResult{Removed: removed.Load()}, err
	})
}

// removeAll removes the contents of dir, its directories in parallel, and dir
// itself unless it holds the marker.
func removeAll(ctx context.Context, dir string, removed *atomic.Int64, g *errgroup.Group) error {
	f, err := os.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	names, err := f.ReadDir(-1)
	f.Close()
	if err != nil {
		return err
	}
	marked := false
	subs := &errgroup.Group{}
	for _, e := range names {
		if err := ctx.Err(); err != nil {
			return err
		}
		path := filepath.Join(dir, e.Name())
		switch {
		case e.Name() == benchMarker:
			marked = true
		case e.IsDir():
			// In a goroutine if the group has room, else here.
			if done := make(chan error, 1); g.TryGo(func() error { done <- removeAll(ctx, path, removed, g); return nil }) {
				subs.Go(func() error { return <-done })
			} else if err := removeAll(ctx, path, removed, g); err != nil {
				return err
			}
		default:
			if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			removed.Add(1)
		}
	}
	if err := subs.Wait(); err != nil || marked {
		return err
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	removed.Add(1)
	return nil
}

package workload

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mortarhpc/mortar/internal/prove/stream"
)

// Verify reads back all data that a run's ledgers name and compares it with
// them. A file that cannot be opened counts as unreadable, and its acknowledged
// bytes as lost.
func Verify(ctx context.Context, p VerifyParams, progress func(VerifyProgress)) (*VerifyResult, error) {
	if p.MaxExtents <= 0 {
		p.MaxExtents = 1000
	}
	paths, err := ledgerPaths(p.Ledger)
	if err != nil {
		return nil, err
	}
	type item struct {
		x   *stream.Index
		dir string
	}
	var items []item
	names := map[uint32]string{}
	var total int64
	for _, path := range paths {
		x, err := stream.ReadLedger(path)
		if err != nil {
			return nil, err
		}
		if !filepath.IsLocal(x.Header.File) {
			return nil, fmt.Errorf("%s: its data file %q lies outside its directory", path, x.Header.File)
		}
		dir := mapDir(x.Header.Dir, p.Dirs)
		items = append(items, item{x, dir})
		names[x.Header.Stream] = filepath.Join(dir, x.Header.File)
		total += int64(x.Blocks()) * stream.BlockSize
	}
	start := time.Now()
	var done atomic.Int64
	opt := stream.Options{MaxExtents: p.MaxExtents, BeforeNs: p.BeforeNs, Names: names, Progress: func(n int64) { done.Add(n) }}
	// In a goroutine, since a read may hang: then Verify returns without it.
	type answer struct {
		rep *stream.Report
		err error
	}
	answers := make(chan answer, 1)
	go func() {
		rep := &stream.Report{ByClass: map[stream.Class]int64{}, Files: []stream.FileReport{}, Extents: []stream.Extent{}}
		for _, it := range items {
			one, err := verifyFile(ctx, it.x, it.dir, p.Direct, opt)
			if err != nil {
				answers <- answer{nil, err}
				return
			}
			rep.Merge(one, p.MaxExtents)
		}
		answers <- answer{rep, nil}
	}()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-tick.C:
			if progress != nil {
				progress(VerifyProgress{ReadBytes: min(done.Load(), total), TotalBytes: total})
			}
		case a := <-answers:
			if a.err != nil {
				return nil, a.err
			}
			a.rep.Seconds = time.Since(start).Seconds()
			return &VerifyResult{Pass: a.rep.Pass(), Report: *a.rep}, nil
		}
	}
}

// ledgerPaths lists the ledgers at path, a file or a directory.
func ledgerPaths(path string) ([]string, error) {
	if path == "" {
		return nil, errors.New("no ledger is named")
	}
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !st.IsDir() {
		return []string{path}, nil
	}
	all, err := filepath.Glob(filepath.Join(escapeGlob(path), "*"+ledgerSuffix))
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s: no ledger is there", path)
	}
	slices.Sort(all)
	return all, nil
}

func escapeGlob(s string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(s)
}

// mapDir returns the directory to read dir from: the entry of dirs with the
// longest key that is dir or a parent of it decides.
func mapDir(dir string, dirs map[string]string) string {
	best, to := -1, dir
	for from, t := range dirs {
		from = filepath.Clean(from)
		if len(from) > best && (dir == from || strings.HasPrefix(dir, strings.TrimSuffix(from, "/")+"/")) {
			best, to = len(from), filepath.Join(t, strings.TrimPrefix(dir, from))
		}
	}
	return to
}

func verifyFile(ctx context.Context, x *stream.Index, dir string, direct bool, opt stream.Options) (*stream.Report, error) {
	path := filepath.Join(dir, x.Header.File)
	opt.Path = path
	flags := unix.O_RDONLY
	if direct {
		flags |= unix.O_DIRECT
	}
	fd, err := open(path, flags)
	if errors.Is(err, unix.ENOENT) && isDir(dir) {
		// The directory exists but the file is gone: verify it as an empty file.
		return stream.Verify(ctx, nothing{}, 0, x, opt)
	}
	var st unix.Stat_t
	if err == nil {
		defer unix.Close(fd)
		err = unix.Fstat(fd, &st)
	}
	if err != nil {
		if rep, verr := stream.Verify(ctx, broken{err}, int64(x.Blocks())*stream.BlockSize, x, opt); verr != nil {
			return nil, verr
		} else {
			rep.Errors = append(rep.Errors, err.Error())
			return rep, nil
		}
	}
	if !direct {
		_ = unix.Fadvise(fd, 0, 0, unix.FADV_DONTNEED)
	}
	opt.NextData = func(off int64) (start, end int64, err error) {
		start, err = unix.Seek(fd, off, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return st.Size, st.Size, nil
		}
		if err != nil {
			return 0, 0, err
		}
		end, err = unix.Seek(fd, start, unix.SEEK_HOLE)
		return start, end, err
	}
	return stream.Verify(ctx, file{fd, st.Size}, st.Size, x, opt)
}

func isDir(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.IsDir()
}

// file reads from a descriptor. os.File would read on after a short read, at an
// offset that O_DIRECT refuses.
type file struct {
	fd   int
	size int64
}

func (f file) ReadAt(b []byte, off int64) (int, error) {
	n, err := again(func() (int, error) { return unix.Pread(f.fd, b, off) })
	if err != nil {
		return 0, err
	}
	if n < len(b) && (n == 0 || off+int64(n) >= f.size) {
		return n, io.EOF
	}
	return n, nil
}

type nothing struct{}

func (nothing) ReadAt([]byte, int64) (int, error) { return 0, io.EOF }

type broken struct{ err error }

func (b broken) ReadAt([]byte, int64) (int, error) { return 0, b.err }

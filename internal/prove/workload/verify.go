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
	"time"

	"golang.org/x/sys/unix"

	"github.com/mortarhpc/mortar/internal/prove/stream"
)

// maxExtents bounds the findings of a verification that are kept.
const maxExtents = 1000

// Verify reads back all data that a run's ledgers name and compares it with
// them. A file that cannot be opened counts as unreadable, and its acknowledged
// bytes as lost.
func Verify(ctx context.Context, p VerifyParams) (*stream.Report, error) {
	paths, err := ledgerPaths(p.Ledger)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	var all []*stream.Index
	opt := stream.Options{MaxExtents: maxExtents, BeforeNs: p.BeforeNs, Names: map[uint32]string{}}
	for _, path := range paths {
		x, err := stream.ReadLedger(path)
		if err != nil {
			return nil, err
		}
		if !filepath.IsLocal(x.Header.File) {
			return nil, fmt.Errorf("%s: its data file %q lies outside its directory", path, x.Header.File)
		}
		opt.Names[x.Header.Stream] = filepath.Join(mapDir(x.Header.Dir, p.Dirs), x.Header.File)
		all = append(all, x)
	}
	// A read may hang.
	return patiently(ctx, func() (*stream.Report, error) {
		rep := stream.Report{ByClass: map[stream.Class]int64{}, Files: []stream.FileReport{}, Extents: []stream.Extent{}}
		for _, x := range all {
			one, err := verifyFile(ctx, x, mapDir(x.Header.Dir, p.Dirs), opt)
			if err != nil {
				return nil, err
			}
			rep.Merge(one)
			rep.Cap(maxExtents)
		}
		rep.Seconds = time.Since(start).Seconds()
		return &rep, nil
	})
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

func verifyFile(ctx context.Context, x *stream.Index, dir string, opt stream.Options) (*stream.Report, error) {
	path := filepath.Join(dir, x.Header.File)
	opt.Path = path
	fd, err := open(path, unix.O_RDONLY|unix.O_DIRECT)
	if errors.Is(err, unix.ENOENT) && isDir(dir) {
		// The directory exists but the file is gone: verify it as an empty file.
		return stream.Verify(ctx, emptyFile{}, 0, x, opt)
	}
	var st unix.Stat_t
	if err == nil {
		defer unix.Close(fd)
		err = unix.Fstat(fd, &st)
	}
	if err != nil {
		rep, verr := stream.Verify(ctx, failedFile{err}, int64(x.Blocks())*stream.BlockSize, x, opt)
		if verr == nil {
			rep.Errors = append(rep.Errors, err.Error())
		}
		return rep, verr
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
	n, err := retryInterrupted(func() (int, error) { return unix.Pread(f.fd, b, off) })
	if err != nil {
		return 0, err
	}
	if n < len(b) && (n == 0 || off+int64(n) >= f.size) {
		return n, io.EOF
	}
	return n, nil
}

type emptyFile struct{}

func (emptyFile) ReadAt([]byte, int64) (int, error) { return 0, io.EOF }

type failedFile struct{ err error }

func (b failedFile) ReadAt([]byte, int64) (int, error) { return 0, b.err }

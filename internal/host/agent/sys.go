package agent

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mortarhpc/mortar/internal/base/command"
	"github.com/mortarhpc/mortar/internal/base/initrd"
	"github.com/mortarhpc/mortar/internal/base/quick"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

const (
	querySeconds = 60
	readLimit    = 8 << 20 // bytes of the largest file read whole
)

// HostSys is the host this process runs on, as a resource may see it.
type HostSys struct {
	root string // "" in earnest; a directory in tests of what is parsed from /sys and /run
	// askPortGroups is what asks a path in tests; nil in earnest.
	askPortGroups func(device string) ([]byte, error)
}

var _ resource.Sys = HostSys{}

func (h HostSys) path(p string) string { return filepath.Join(h.root, "/", p) }

// ReadFile reads a file of at most 8 MiB.
func (h HostSys) ReadFile(path string) ([]byte, error) {
	return quick.ReadFile(h.path(path), readLimit)
}

// Stat describes a path; IsLink is of the path itself, the rest of what it
// leads to.
func (h HostSys) Stat(path string) (resource.FileInfo, error) {
	fi, err := os.Stat(h.path(path))
	if err != nil {
		return resource.FileInfo{}, err
	}
	info := resource.FileInfo{Mode: permissions(fi.Mode()), IsDir: fi.IsDir(), Size: fi.Size()}
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		info.UID, info.GID = int(st.Uid), int(st.Gid)
	}
	if l, err := os.Lstat(h.path(path)); err == nil {
		info.IsLink = l.Mode()&fs.ModeSymlink != 0
	}
	return info, nil
}

// Glob lists paths that match, sorted; none is no error.
func (h HostSys) Glob(pattern string) ([]string, error) {
	m, err := quick.Glob(h.path(pattern))
	if err != nil {
		return nil, err
	}
	for i := range m {
		m[i] = "/" + strings.TrimPrefix(strings.TrimPrefix(m[i], h.root), "/")
	}
	return m, nil
}

// Readlink resolves a path fully.
func (h HostSys) Readlink(path string) (string, error) {
	p, err := quick.Resolve(h.path(path))
	if err != nil {
		return "", err
	}
	return "/" + strings.TrimPrefix(strings.TrimPrefix(p, h.root), "/"), nil
}

// Initrd reads an initial RAM disk to its end, for at most a minute.
func (h HostSys) Initrd(ctx context.Context, image string, patterns []string) (map[string]string, error) {
	f, err := os.Open(h.path(image))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	ctx, cancel := context.WithTimeout(ctx, querySeconds*time.Second)
	defer cancel()
	files, err := initrd.Files(ctx, f, func(name string) bool {
		return slices.ContainsFunc(patterns, func(p string) bool {
			ok, _ := filepath.Match(p, "/"+name) // a pattern that is none matches nothing
			return ok
		})
	})
	if err != nil {
		return nil, &fs.PathError{Op: "read", Path: image, Err: err}
	}
	out := map[string]string{}
	for name, text := range files {
		out["/"+name] = string(text)
	}
	return out, nil
}

// Query runs a command that only reads, for at most a minute and a second for each argument. It
// refuses any other; see resource.ReadOnly.
func (h HostSys) Query(ctx context.Context, argv ...string) (resource.Output, error) {
	if err := resource.ReadOnly(argv); err != nil {
		return resource.Output{Code: -1}, err
	}
	return query(ctx, command.Cmd{Argv: argv})
}

// permissions are the bits chmod(2) takes.
func permissions(m fs.FileMode) uint32 {
	p := uint32(m.Perm())
	if m&fs.ModeSetuid != 0 {
		p |= unix.S_ISUID
	}
	if m&fs.ModeSetgid != 0 {
		p |= unix.S_ISGID
	}
	if m&fs.ModeSticky != 0 {
		p |= unix.S_ISVTX
	}
	return p
}

// longQuery is for a command about as many disks as one may have.
const longQuery = (querySeconds + resource.QueryDisks) * time.Second

// query runs a command that only reads.
func query(ctx context.Context, c command.Cmd) (resource.Output, error) {
	// wipefs looks at one disk after the other, each for a third of a second.
	c.Timeout = min(time.Duration(querySeconds+len(c.Argv))*time.Second, longQuery)
	out, err := c.Run(ctx)
	return resource.Output(out), err
}

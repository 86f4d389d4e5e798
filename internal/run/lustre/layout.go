package lustre

import (
	"context"
	"path"
	"strconv"
	"strings"

	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

// Layout is the default striping of new files in a directory. Zero values are
// inherited.
type Layout struct {
	Count int        // OSTs; -1: all
	Size  spec.Bytes // stripe size
	Pool  string
}

// minStripe is the granularity of stripe sizes.
// Source: lfs-setstripe(1)
const minStripe = 64 * spec.KiB

// LayoutOf returns a directory's default layout, as lfs getstripe prints it.
func (f *FS) LayoutOf(ctx context.Context, dir string) (string, error) {
	client, at, err := f.directory(ctx, dir)
	if err != nil {
		return "", err
	}
	return f.query(ctx, client, "lfs", "getstripe", "--directory", "--yaml", at)
}

// SetLayout plans the default layout of a directory.
func (f *FS) SetLayout(ctx context.Context, dir string, l Layout) (*Plan, error) {
	client, at, err := f.directory(ctx, dir)
	if err != nil {
		return nil, err
	}
	argv := []string{"lfs", "setstripe"}
	switch n := f.d.Lustre.OSTs; {
	case l.Count < -1 || l.Count > n:
		return nil, resource.Refuse("stripe-count", resource.With{"count": l.Count, "osts": n})
	case l.Count != 0:
		argv = append(argv, "--stripe-count", strconv.Itoa(l.Count))
	}
	switch {
	case l.Size < 0 || l.Size%minStripe != 0:
		return nil, resource.Refuse("stripe-size", resource.With{"size": l.Size})
	case l.Size != 0:
		argv = append(argv, "--stripe-size", strconv.FormatInt(int64(l.Size), 10))
	}
	if l.Pool != "" {
		all, err := f.Pools(ctx)
		if err != nil {
			return nil, err
		}
		if _, err := find(all, l.Pool); err != nil {
			return nil, err
		}
		argv = append(argv, "--pool", l.Pool)
	}
	if len(argv) == 2 {
		return nil, resource.Refuse("layout-empty", nil)
	}
	p := &Plan{What: "default layout of " + at, Steps: []Step{command(client, "set the default layout of "+at, 0, append(argv, at)...)},
		Notes: []string{"new files get it; files that are there keep theirs"}}
	if at == f.d.Lustre.Mount {
		return nil, resource.Refuse("layout-in-spec", resource.With{"path": at})
	}
	return p, nil
}

// directory finds a directory of the file system on a client that mounts it. A relative path begins at the mount point.
func (f *FS) directory(ctx context.Context, dir string) (client, at string, err error) {
	client, mount, err := f.client(ctx)
	if err != nil {
		return "", "", err
	}
	at = dir
	if !path.IsAbs(at) {
		at = path.Join(mount, at)
	}
	if at = path.Clean(at); at != mount && !strings.HasPrefix(at, mount+"/") {
		return "", "", resource.Refuse("path-outside", resource.With{"path": dir, "mount": mount})
	}
	if _, err := f.query(ctx, client, "ls", "-d", at+"/"); err != nil {
		return "", "", resource.Refuse("path-unseen", resource.With{"path": at, "error": err})
	}
	return client, at, nil
}

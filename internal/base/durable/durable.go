// Package durable replaces files on a host's own disks so that readers, and a
// crash at any moment, find the old content or the new one, never a part. It
// does not know what the files are for.
package durable

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"
)

// File is the content and the metadata of the file to write.
type File struct {
	Content []byte
	Mode    uint32 // permission bits, set whatever the umask
	UID     int
	GID     int
}

// Write creates or replaces the file at path. Its directory must exist. When
// Write returns nil, the content and the name are on the disk.
func Write(path string, f File) error {
	dir := filepath.Dir(path)
	p, err := renameio.NewPendingFile(path, renameio.WithTempDir(dir), renameio.WithStaticPermissions(0o600))
	if err != nil {
		return err
	}
	defer p.Cleanup()
	if _, err := p.Write(f.Content); err != nil {
		return err
	}
	if err := p.Chown(f.UID, f.GID); err != nil {
		return err
	}
	if err := unix.Fchmod(int(p.Fd()), f.Mode); err != nil {
		return &fs.PathError{Op: "chmod", Path: path, Err: err}
	}
	if err := p.CloseAtomicallyReplace(); err != nil {
		return err
	}
	return SyncDir(dir)
}

// Symlink creates a symbolic link at path, or replaces the file there with one.
// When it returns nil, the link is on the disk.
func Symlink(target, path string) error {
	if err := renameio.Symlink(target, path); err != nil {
		return err
	}
	return SyncDir(filepath.Dir(path))
}

// SyncDir writes the names in a directory to the disk. It returns no error for
// a file system that cannot do so, such as those at /proc and /run.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Sync(); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOTSUP) {
		return err
	}
	return nil
}

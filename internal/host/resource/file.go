package resource

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"path"
	"strings"
)

// TextFile is a file with content, mode and owner. With Secret set its
// content is never shown.
type TextFile struct {
	Path    string
	Content []byte
	Mode    uint32 // 0: 0644, or 0600 for a secret
	Owner   string // "" for root
	Group   string // "" for root
	Secret  bool   `json:",omitempty"`
	Absent  bool   `json:",omitempty"` // the file must not exist
	IfThere bool   `json:",omitempty"` // a file that does not exist stays so
	Why     string `json:",omitempty"`
}

// Kind is "file".
func (f *TextFile) Kind() string { return "file" }

// ID is the path.
func (f *TextFile) ID() string { return f.Path }

func (f *TextFile) mode() uint32 {
	switch {
	case f.Mode != 0:
		return f.Mode
	case f.Secret:
		return 0o600
	}
	return 0o644
}

// Diff compares content, mode and owner.
func (f *TextFile) Diff(_ context.Context, sys Sys) ([]Action, error) {
	same, err := f.same(sys)
	if err != nil || same {
		return nil, err
	}
	if f.Absent {
		return []Action{{Title: "remove " + f.Path, Why: f.Why, File: &File{Path: f.Path, Remove: true}}}, nil
	}
	return []Action{f.action()}, nil
}

func (f *TextFile) action() Action {
	return Action{
		Title: "write " + f.Path, Why: f.Why, Secret: f.Secret,
		File: &File{Path: f.Path, Content: f.Content, Mode: f.mode(), Owner: f.Owner, Group: f.Group},
	}
}

// same tells whether the file is as wanted.
func (f *TextFile) same(sys Sys) (bool, error) {
	st, err := sys.Stat(f.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return f.Absent || f.IfThere, nil
	}
	if err != nil {
		return false, err
	}
	if f.Absent {
		return false, nil
	}
	if st.IsDir {
		return false, &Refusal{What: f.Path + " is a directory, not a file", Mend: "move it away"}
	}
	if st.IsLink || st.Mode != f.mode() || st.Size != int64(len(f.Content)) {
		return false, nil
	}
	for _, o := range []struct {
		name string
		id   int
		db   string
	}{{f.Owner, st.UID, "/etc/passwd"}, {f.Group, st.GID, "/etc/group"}} {
		id, err := lookupID(sys, o.db, o.name)
		if err != nil {
			return false, err
		}
		if id != o.id {
			return false, nil
		}
	}
	b, err := sys.ReadFile(f.Path)
	if err != nil {
		return false, err
	}
	return bytes.Equal(b, f.Content), nil
}

// lookupID finds the number of a user or group; -1 while it does not exist
// (its package is not installed yet).
func lookupID(sys Sys, db, name string) (int, error) {
	if name == "" || name == "root" {
		return 0, nil
	}
	b, err := sys.ReadFile(db)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		f := strings.Split(strings.TrimSpace(line), ":")
		if len(f) > 2 && f[0] == name {
			return atoi(f[2]), nil
		}
	}
	return -1, nil
}

// Directory is a directory with mode and owner.
type Directory struct {
	Path  string
	Mode  uint32 // 0: 0755
	Owner string
	Group string
	// Keep: mode and owner are given only when it is made; afterwards they
	// are the administrator's.
	Keep bool `json:",omitempty"`
}

// Kind is "directory".
func (d *Directory) Kind() string { return "directory" }

// ID is the path.
func (d *Directory) ID() string { return d.Path }

// Diff compares existence, mode and owner.
func (d *Directory) Diff(_ context.Context, sys Sys) ([]Action, error) {
	mode := d.Mode
	if mode == 0 {
		mode = 0o755
	}
	act := []Action{{
		Title: "make directory " + d.Path,
		File:  &File{Path: d.Path, Mkdir: true, Mode: mode, Owner: d.Owner, Group: d.Group},
	}}
	st, err := sys.Stat(d.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return act, nil
	}
	if err != nil {
		return nil, err
	}
	if !st.IsDir {
		return nil, &Refusal{What: d.Path + " is a file, not a directory", Mend: "move it away"}
	}
	if d.Keep {
		return nil, nil
	}
	uid, err := lookupID(sys, "/etc/passwd", d.Owner)
	if err != nil {
		return nil, err
	}
	gid, err := lookupID(sys, "/etc/group", d.Group)
	if err != nil {
		return nil, err
	}
	if st.Mode != mode || st.UID != uid || st.GID != gid {
		return act, nil
	}
	return nil, nil
}

// Symlink is a symbolic link; links are compared by where they lead.
type Symlink struct {
	Path, Target string
}

// Kind is "symlink".
func (s *Symlink) Kind() string { return "symlink" }

// ID is the path.
func (s *Symlink) ID() string { return s.Path }

// Diff resolves both ends.
func (s *Symlink) Diff(_ context.Context, sys Sys) ([]Action, error) {
	act := []Action{{Title: "link " + s.Path + " to " + s.Target, File: &File{Path: s.Path, Symlink: s.Target}}}
	target := s.Target
	if !path.IsAbs(target) {
		target = path.Join(path.Dir(s.Path), target)
	}
	want, err := sys.Readlink(target)
	if errors.Is(err, fs.ErrNotExist) {
		return act, nil
	}
	if err != nil {
		return nil, err
	}
	got, err := sys.Readlink(s.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return act, nil
	}
	if err != nil {
		return nil, err
	}
	st, err := sys.Stat(s.Path)
	if err != nil {
		return nil, err
	}
	if got != want || !st.IsLink {
		return act, nil
	}
	return nil, nil
}

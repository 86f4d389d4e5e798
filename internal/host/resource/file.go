package resource

import (
	"path"
	"path/filepath"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/linux"
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

func (f *TextFile) Identity() (kind, id string) { return "file", f.Path }

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
func (f *TextFile) Diff(sys Look) ([]Action, error) {
	if f.same(sys) {
		return nil, nil
	}
	if f.Absent {
		return []Action{{Title: "remove " + f.Path, Why: f.Why, File: &File{Path: f.Path, Remove: true}}}, nil
	}
	return []Action{{
		Title: "write " + f.Path, Why: f.Why, Secret: f.Secret,
		File: &File{Path: f.Path, Content: f.Content, Mode: f.mode(), Owner: f.Owner, Group: f.Group},
	}}, nil
}

// same tells whether the file is as wanted.
func (f *TextFile) same(sys Look) bool {
	st, there := sys.Info(f.Path)
	if !there {
		return f.Absent || f.IfThere
	}
	if f.Absent {
		return false
	}
	if st.IsDir {
		sys.Check(Refuse("path-is-directory", With{"path": f.Path}))
	}
	return !st.IsLink && st.Mode == f.mode() && st.Size == int64(len(f.Content)) && sys.owned(st, f.Owner, f.Group) && sys.Must(f.Path) == string(f.Content)
}

// owned tells whether a file has these owners.
func (l Look) owned(st FileInfo, owner, group string) bool {
	return st.UID == lookupID(l, "/etc/passwd", owner) && st.GID == lookupID(l, "/etc/group", group)
}

// lookupID finds the number of a user or group; -1 while it does not exist
// (its package is not installed yet).
func lookupID(sys Look, db, name string) int {
	if name == "" || name == "root" {
		return 0
	}
	for line := range strings.Lines(sys.Must(db)) {
		f := strings.Split(strings.TrimSpace(line), ":")
		if len(f) > 2 && f[0] == name {
			return atoi(f[2])
		}
	}
	return -1
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

func (d *Directory) Identity() (kind, id string) { return "directory", d.Path }

// Diff compares existence, mode and owner.
func (d *Directory) Diff(sys Look) ([]Action, error) {
	mode := d.Mode
	if mode == 0 {
		mode = 0o755
	}
	act := []Action{{
		Title: "make directory " + d.Path,
		File:  &File{Path: d.Path, Mkdir: true, Mode: mode, Owner: d.Owner, Group: d.Group},
	}}
	st, there := sys.Info(d.Path)
	switch {
	case !there:
		return act, nil
	case !st.IsDir:
		return nil, Refuse("path-is-file", With{"path": d.Path})
	case d.Keep || st.Mode == mode && sys.owned(st, d.Owner, d.Group):
		return nil, nil
	}
	return act, nil
}

// Symlink is a symbolic link; links are compared by where they lead.
type Symlink struct {
	Path, Target string
}

func (s *Symlink) Identity() (kind, id string) { return "symlink", s.Path }

// Diff resolves both ends.
func (s *Symlink) Diff(sys Look) ([]Action, error) {
	act := []Action{{Title: "link " + s.Path + " to " + s.Target, File: &File{Path: s.Path, Symlink: s.Target}}}
	target := s.Target
	if !path.IsAbs(target) {
		target = path.Join(path.Dir(s.Path), target)
	}
	want, got := sys.Leads(target), sys.Leads(s.Path)
	if st, _ := sys.Info(s.Path); want == "" || got != want || !st.IsLink {
		return act, nil
	}
	return nil, nil
}

// HostsEntry is one line of /etc/hosts; the other lines stay as they are.
// Source: hosts(5).
type HostsEntry struct {
	Address string
	Names   []string // the first is what a look-up of the address answers
	Why     string   `json:",omitempty"`
}

func (h *HostsEntry) Identity() (kind, id string) { return "hosts", h.Address }

// Diff compares the line of the address.
func (h *HostsEntry) Diff(sys Look) ([]Action, error) {
	old, _ := sys.File(linux.HostsFile)
	text := linux.SetHostNames(old, h.Address, h.Names, "written by mortar apply")
	if text == old {
		return nil, nil
	}
	return sys.Want(&TextFile{Path: linux.HostsFile, Content: []byte(text), Why: h.Why}), nil
}

// BuiltDir is where a host of an HA pair notes that it has built all storage
// of a volume, before it is released; it is gone with a reboot.
const BuiltDir = "/run/mortar/built"

// Built is the note that a volume's storage is built as a digest says. An
// apply that is killed while storage is released goes on from there, and does
// not bring it up again to look at it.
type Built struct {
	VG     string
	Digest string // of what was built
}

func (b *Built) Identity() (kind, id string) { return "built", b.VG }

// Diff compares the note.
func (b *Built) Diff(sys Look) ([]Action, error) {
	return sys.Want(&Directory{Path: BuiltDir, Keep: true}, &TextFile{
		Path: filepath.Join(BuiltDir, b.VG), Content: []byte(b.Digest + "\n"), Why: "an apply that is killed from here on need not look into the storage again",
	}), nil
}

// builtNotes reads the notes of the host: volume group → digest.
func builtNotes(sys Sys) (map[string]string, error) {
	ps, err := sys.Glob(BuiltDir + "/*")
	if err != nil || len(ps) == 0 {
		return nil, err
	}
	m := map[string]string{}
	for _, p := range ps {
		if m[filepath.Base(p)], err = readTrim(sys, p); err != nil {
			return nil, err
		}
	}
	return m, nil
}

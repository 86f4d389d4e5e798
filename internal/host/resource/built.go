package resource

import "path/filepath"

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

// built reads the notes of the host: volume group → digest.
func built(sys Sys) (map[string]string, error) {
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

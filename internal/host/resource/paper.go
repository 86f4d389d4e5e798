package resource

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os/exec"
	"path"
	"slices"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/pr"
)

// Paper is a host on paper: what a resource is compared with where no host is reached, in a
// plan for blank hosts and in tests of what is compared and which actions follow.
type Paper struct {
	Files map[string]string   // by path; each folder above one exists too
	Info  map[string]FileInfo // where it differs from a root file 0644
	Links map[string]string
	// Outputs by argv joined with spaces; a prefix matches too. A program without is not
	// installed. Answer stands in their place, with no look at whether a command only reads:
	// its devices may not have their names yet.
	Outputs  map[string]Output
	Answer   func(argv []string) (Output, error)
	Drives   []DiskFact
	Reserved map[string]pr.State // by path, /dev/sda; others do not answer. nil: none is reserved
	Asked    []string            // the commands, in order
}

// leads follows links.
func (f *Paper) leads(p string) string {
	p = path.Clean(p)
	for range 20 {
		t, ok := f.Links[p]
		if !ok {
			return p
		}
		if !path.IsAbs(t) {
			t = path.Join(path.Dir(p), t)
		}
		p = t
	}
	return p
}

// ReadFile reads one of Files.
func (f *Paper) ReadFile(p string) ([]byte, error) {
	c, ok := f.Files[f.leads(p)]
	if !ok {
		return nil, &fs.PathError{Op: "open", Path: p, Err: fs.ErrNotExist}
	}
	return []byte(c), nil
}

// Stat describes one of Files, or a directory above one.
func (f *Paper) Stat(p string) (FileInfo, error) {
	r := f.leads(p)
	st, ok := f.Info[r]
	if c, isFile := f.Files[r]; isFile {
		if !ok {
			st = FileInfo{Mode: 0o644}
		}
		st.Size = int64(len(c))
	} else if !ok {
		if !f.above(r + "/") {
			return st, &fs.PathError{Op: "stat", Path: p, Err: fs.ErrNotExist}
		}
		st = FileInfo{Mode: 0o755, IsDir: true}
	}
	_, st.IsLink = f.Links[path.Clean(p)]
	return st, nil
}

// above tells whether a file is below a directory.
func (f *Paper) above(dir string) bool {
	for k := range f.Files {
		if strings.HasPrefix(k, dir) {
			return true
		}
	}
	return false
}

// Glob matches files, links, and the directories above them.
func (f *Paper) Glob(pattern string) ([]string, error) {
	constant := pattern
	if i := strings.IndexAny(pattern, "*?["); i >= 0 {
		constant = pattern[:i]
	}
	constant = constant[:strings.LastIndex(constant, "/")+1]
	var below []string // most patterns match nothing
	for _, of := range []map[string]string{f.Files, f.Links} {
		for k := range of {
			if strings.HasPrefix(k, constant) {
				below = append(below, k)
			}
		}
	}
	if len(below) == 0 {
		return nil, nil
	}
	found := map[string]bool{}
	for _, k := range below {
		for p := k; p != "/" && p != "."; p = path.Dir(p) {
			if ok, err := path.Match(pattern, p); err != nil {
				return nil, err
			} else if ok {
				found[p] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(found)), nil
}

// Readlink follows links to something that is there.
func (f *Paper) Readlink(p string) (string, error) {
	r := f.leads(p)
	_, err := f.Stat(r)
	return r, err
}

// Query gives the output whose command is most like argv.
func (f *Paper) Query(_ context.Context, argv ...string) (Output, error) {
	line := strings.Join(argv, " ")
	f.Asked = append(f.Asked, line)
	if f.Answer != nil {
		return f.Answer(argv)
	}
	if err := ReadOnly(argv); err != nil {
		return Output{}, err
	}
	best := ""
	for k := range f.Outputs {
		if strings.HasPrefix(line, k) && len(k) > len(best) {
			best = k
		}
	}
	if best != "" {
		return f.Outputs[best], nil
	}
	return Output{}, fmt.Errorf("%s: %w", argv[0], exec.ErrNotFound)
}

// Initrd takes the files below an image's path for those in it; an image
// whose own content is "damaged" cannot be read.
func (f *Paper) Initrd(_ context.Context, image string, patterns []string) (map[string]string, error) {
	if f.Files[image] == "damaged" {
		return nil, errors.New("the archive is cut short")
	}
	out := map[string]string{}
	for name, text := range f.Files {
		inside, ok := strings.CutPrefix(name, image+":")
		if ok && slices.ContainsFunc(patterns, func(p string) bool { match, _ := path.Match(p, inside); return match }) {
			out[inside] = text
		}
	}
	return out, nil
}

// Reservation is one of Reserved.
func (f *Paper) Reservation(_ context.Context, path string) (pr.State, error) {
	st, ok := f.Reserved[path]
	if !ok && f.Reserved != nil {
		return pr.State{}, pr.ErrPath
	}
	return st, nil
}

// Disks are Drives.
func (f *Paper) Disks(context.Context) (*DiskList, error) { return ListDisks(f.Drives), nil }

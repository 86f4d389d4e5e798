package resource

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"path"
	"sort"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mortarhpc/mortar/internal/base/pr"
)

// fakeSys is a host made of maps: for the pure logic of what is compared and
// which actions follow. Outputs in it are recorded from the real tools.
type fakeSys struct {
	files   map[string]string
	info    map[string]FileInfo // where it differs from a root file 0644
	links   map[string]string
	outputs map[string]Output // by argv joined with spaces; a prefix matches too
	disks   []DiskFact
	asked   []string
	// reservations by path, /dev/sda; others do not answer
	reservations map[string]pr.State
}

func (f *fakeSys) resolve(p string) string {
	p = path.Clean(p)
	for range 20 {
		t, ok := f.links[p]
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

func (f *fakeSys) ReadFile(p string) ([]byte, error) {
	c, ok := f.files[f.resolve(p)]
	if !ok {
		return nil, &fs.PathError{Op: "open", Path: p, Err: fs.ErrNotExist}
	}
	return []byte(c), nil
}

func (f *fakeSys) Stat(p string) (FileInfo, error) {
	r := f.resolve(p)
	st, ok := f.info[r]
	if c, isFile := f.files[r]; isFile {
		if !ok {
			st = FileInfo{Mode: 0o644}
		}
		st.Size = int64(len(c))
		ok = true
	} else if !ok {
		for k := range f.files {
			if strings.HasPrefix(k, r+"/") {
				st, ok = FileInfo{Mode: 0o755, IsDir: true}, true
			}
		}
	}
	if !ok {
		return st, &fs.PathError{Op: "stat", Path: p, Err: fs.ErrNotExist}
	}
	_, st.IsLink = f.links[path.Clean(p)]
	return st, nil
}

func (f *fakeSys) Glob(pattern string) ([]string, error) {
	found := map[string]bool{}
	all := []string{}
	for k := range f.files {
		all = append(all, k)
	}
	for k := range f.links {
		all = append(all, k)
	}
	for _, k := range all {
		for p := k; p != "/" && p != "."; p = path.Dir(p) {
			if ok, err := path.Match(pattern, p); err != nil {
				return nil, err
			} else if ok {
				found[p] = true
			}
		}
	}
	var out []string
	for p := range found {
		out = append(out, p)
	}
	sort.Strings(out)
	return out, nil
}

func (f *fakeSys) Readlink(p string) (string, error) {
	r := f.resolve(p)
	if _, err := f.Stat(r); err != nil {
		return "", err
	}
	return r, nil
}

func (f *fakeSys) Query(_ context.Context, argv ...string) (Output, error) {
	line := strings.Join(argv, " ")
	f.asked = append(f.asked, line)
	if err := ReadOnly(argv); err != nil {
		return Output{}, err
	}
	if o, ok := f.outputs[line]; ok {
		return o, nil
	}
	best := ""
	for k := range f.outputs {
		if strings.HasPrefix(line, k) && len(k) > len(best) {
			best = k
		}
	}
	if best == "" {
		return Output{}, &exec.Error{Name: argv[0], Err: exec.ErrNotFound}
	}
	return f.outputs[best], nil
}

// Initrd takes the files below an image's path for those in it; an image
// whose own content is "damaged" cannot be read.
func (f *fakeSys) Initrd(_ context.Context, image string, patterns []string) (map[string]string, error) {
	if f.files[image] == "damaged" {
		return nil, errors.New("the archive is cut short")
	}
	out := map[string]string{}
	for name, text := range f.files {
		inside, ok := strings.CutPrefix(name, image+":")
		for _, p := range patterns {
			if match, _ := path.Match(p, inside); ok && match {
				out[inside] = text
			}
		}
	}
	return out, nil
}

func (f *fakeSys) Reservation(_ context.Context, path string) (pr.State, error) {
	st, ok := f.reservations[path]
	if !ok {
		return pr.State{}, pr.ErrPath
	}
	return st, nil
}

func (f *fakeSys) Disks(context.Context) ([]DiskFact, error) { return f.disks, nil }

// diff runs Diff on a resource that went over the wire.
func diff(t *testing.T, r Resource, sys Sys) []Action {
	t.Helper()
	as, err := Diff(t.Context(), sys, wire(t, r))
	if err != nil {
		t.Fatalf("%s: %v", KindOf(r), err)
	}
	return as
}

func wire(t *testing.T, r Resource) Resource {
	t.Helper()
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	d, err := Decode(Kinds, KindOf(r), b)
	if err != nil {
		t.Fatal(err)
	}
	if x := cmp.Diff(r, d); x != "" {
		t.Fatalf("%s is not the same after the wire:\n%s", KindOf(r), x)
	}
	return d
}

// refused runs Diff and wants a Refusal whose text has all parts.
func refused(t *testing.T, r Resource, sys Sys, parts ...string) {
	t.Helper()
	as, err := Diff(t.Context(), sys, r)
	ref, ok := err.(*Refusal)
	if !ok {
		t.Fatalf("%s: not refused: %v %v", KindOf(r), as, err)
	}
	for _, p := range parts {
		if !strings.Contains(ref.Error(), p) {
			t.Errorf("refusal %q lacks %q", ref.Error(), p)
		}
	}
}

// show writes actions one a line: the command, or what is done to a file.
func show(as []Action) string {
	var b strings.Builder
	for _, a := range as {
		switch {
		case a.File == nil:
			b.WriteString(strings.Join(a.Cmd, " "))
			if len(a.Stdin) > 0 && !a.Secret {
				fmt.Fprintf(&b, " <<< %q", a.Stdin)
			}
		case len(a.Cmd) > 0:
			b.WriteString(strings.Join(a.Cmd, " ") + " && remove " + a.File.Path)
		case a.File.Remove:
			b.WriteString("remove " + a.File.Path)
		case a.File.Mkdir:
			fmt.Fprintf(&b, "mkdir %s %04o", a.File.Path, a.File.Mode)
		case a.File.Symlink != "":
			b.WriteString("link " + a.File.Path + " " + a.File.Symlink)
		default:
			fmt.Fprintf(&b, "write %s %04o", a.File.Path, a.File.Mode)
		}
		if len(a.Destroys) > 0 {
			b.WriteString(" DESTROYS " + strings.Join(a.Destroys, " "))
		}
		b.WriteString("\n")
	}
	return b.String()
}

func wantShow(t *testing.T, as []Action, want string) {
	t.Helper()
	if d := cmp.Diff(strings.TrimSpace(want), strings.TrimSpace(show(as))); d != "" {
		t.Errorf("actions (-want +got):\n%s", d)
	}
}

package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/google/renameio/v2"
)

// Files of a run, inside its directory.
const (
	SummaryFile  = "summary.json"
	TimelineFile = "timeline.json"
	EventsFile   = "events.json"
	VerifyFile   = "verify.json"
	ConfigFile   = "design.json"
	HTMLFile     = "report.html"
)

// file of a run.
type file struct {
	name string
	v    any
}

// files are those of a run, summary.json first.
func (r *Run) files() []file {
	if r.Bench != nil {
		return []file{{SummaryFile, &r.Bench.BenchSummary}, {EventsFile, &r.Events}, {ConfigFile, &r.Config}, {BenchFile, r.Bench}}
	}
	return []file{{SummaryFile, &r.Summary}, {EventsFile, &r.Events}, {ConfigFile, &r.Config}, {TimelineFile, &r.Timeline}, {VerifyFile, &r.Verify}}
}

// Save writes the run into r.Dir, and makes the directory if it is missing. It
// replaces each file atomically and writes summary.json last, so a directory with
// that file is complete.
func (r *Run) Save() error {
	if err := os.MkdirAll(r.Dir, 0o755); err != nil {
		return fmt.Errorf("run directory: %w", err)
	}
	r.Summary.Schema, r.Timeline.Schema, r.Verify.Schema, r.Config.Schema = Schema, Schema, Schema, Schema
	r.Summary.Kind = KindDrill
	fillEmpty(r)
	for _, f := range slices.Backward(r.files()) {
		b, err := marshal(f.v)
		if err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
		if err := writeFile(filepath.Join(r.Dir, f.name), b); err != nil {
			return err
		}
	}
	return nil
}

// Aside moves the run in dir away, if there is one: it appends a number to the
// directory's name. It returns the new name, or "" if dir has no run.
func Aside(dir string) (string, error) {
	if _, err := os.Stat(filepath.Join(dir, SummaryFile)); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return "", nil
		}
		return "", err
	}
	dir = filepath.Clean(dir)
	for n := 1; ; n++ {
		old := fmt.Sprintf("%s.%d", dir, n)
		if _, err := os.Lstat(old); err == nil {
			continue
		}
		return old, os.Rename(dir, old)
	}
}

// fillEmpty turns nil lists into empty ones, so that JSON has [] and not null.
func fillEmpty(r *Run) {
	for _, v := range []any{&r.Summary, &r.Events, &r.Timeline, &r.Verify, &r.Config} {
		notNil(reflect.ValueOf(v).Elem())
	}
}

// notNil makes the lists and maps of a value empty that are nil, unless an empty one is
// left out.
func notNil(v reflect.Value) {
	switch v.Kind() {
	case reflect.Slice:
		if v.IsNil() {
			v.Set(reflect.MakeSlice(v.Type(), 0, 0))
		}
		if v.Type().Elem().Kind() == reflect.Struct {
			for i := range v.Len() {
				notNil(v.Index(i))
			}
		}
	case reflect.Map:
		if v.IsNil() {
			v.Set(reflect.MakeMap(v.Type()))
		}
	case reflect.Struct:
		for f, x := range v.Fields() {
			if f.IsExported() && !strings.HasSuffix(f.Tag.Get("json"), ",omitempty") {
				notNil(x)
			}
		}
	}
}

// Load reads a run: dir is its directory, or the path of its summary.json.
func Load(dir string) (*Run, error) {
	if fi, err := os.Stat(dir); err == nil && !fi.IsDir() {
		if filepath.Base(dir) != SummaryFile {
			return nil, fmt.Errorf("%s: no run; give the directory a drill or benchmark wrote, e.g. out/demo", dir)
		}
		dir = filepath.Dir(dir)
	}
	r := &Run{Dir: dir}
	files := r.files()
	for i := 0; i < len(files); i++ {
		f := files[i]
		path := filepath.Join(dir, f.name)
		b, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%s: no run there (%s is missing); give the directory a drill or benchmark wrote, e.g. out/demo", dir, f.name)
		}
		if err != nil {
			return nil, err
		}
		if f.name == SummaryFile && bytes.HasPrefix(bytes.TrimSpace(b), []byte("[")) {
			return nil, fmt.Errorf("%s is the list of several drills; name them: mortar report %s/*/", path, dir)
		}
		if err := json.Unmarshal(b, f.v); err != nil {
			return nil, fmt.Errorf("%s: not what a drill or benchmark wrote, or cut off: %w", path, err)
		}
		if f.name == SummaryFile && r.Summary.Kind == KindBench {
			r.Bench = &Bench{}
			files = r.files()
		}
	}
	if r.Summary.Schema != Schema {
		return nil, fmt.Errorf("%s: schema %q; this binary reads %q", filepath.Join(dir, SummaryFile), r.Summary.Schema, Schema)
	}
	if r.Timeline.BucketMS < 0 {
		return nil, fmt.Errorf("%s: bucket_ms is %d; it must be positive", filepath.Join(dir, TimelineFile), r.Timeline.BucketMS)
	}
	return r, nil
}

// WriteHTML renders runs into one file.
func WriteHTML(path string, runs []*Run) error {
	var b bytes.Buffer
	if err := HTML(&b, runs); err != nil {
		return err
	}
	return writeFile(path, b.Bytes())
}

func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", " ")
	switch v.(type) {
	case *Timeline, *Bench:
		enc.SetIndent("", "") // one line, since these have thousands of numbers
	}
	err := enc.Encode(v)
	return b.Bytes(), err
}

// writeFile replaces a file atomically.
func writeFile(path string, b []byte) error { return renameio.WriteFile(path, b, 0o644) }

// Package conffile reads the configs that apply writes for the programs on a server. The
// program and the file may be of different releases: a program ignores keys that it does
// not know, and the file says itself what must not be ignored (see package ocf). What a
// person writes is read strictly, by package strictjson. This package knows nothing of
// what it reads.
package conffile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/durable"
	"github.com/mortarhpc/mortar/internal/base/strictjson"
)

// dir has the copies of configs. They need not outlive a boot: nothing that a config
// describes does.
const dir = "/run/mortar"

// Parse reads src, the content of file, which must be one JSON value, and checks it.
func Parse[T any](file string, src []byte, check func(*T) error) (*T, error) {
	v := new(T)
	d := json.NewDecoder(bytes.NewReader(src))
	err := d.Decode(v)
	if err == nil {
		if _, more := d.Token(); more != io.EOF {
			err = errors.New("more than one JSON value")
		}
	}
	if err == nil {
		err = check(v)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return v, nil
}

func Load[T any](file string, check func(*T) error) (*T, error) {
	src, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return Parse(file, src, check)
}

// LoadKept is Load, and keeps a copy of a file that is good. If the file is missing or
// faulty, LoadKept returns the copy of the last good one since the server booted, and the
// fault; without a copy v is nil.
func LoadKept[T any](file string, check func(*T) error) (v *T, fault error) {
	src, fault := os.ReadFile(file)
	if fault == nil {
		if v, fault = Parse(file, src, check); fault == nil {
			keep(file, src)
			return v, nil
		}
	}
	src, err := os.ReadFile(copyOf(file))
	if err != nil {
		return nil, fault
	}
	v, err = Parse(copyOf(file), src, check)
	return v, errors.Join(fault, err)
}

func copyOf(file string) string {
	return filepath.Join(dir, "good"+strings.ReplaceAll(filepath.Clean(file), "/", "-"))
}

// keep writes a copy. An error is ignored: a service starts and stops without the copy as long
// as its config is good.
func keep(file string, src []byte) {
	to := copyOf(file)
	if was, err := os.ReadFile(to); err == nil && bytes.Equal(was, src) {
		return
	}
	if os.MkdirAll(dir, 0o755) == nil {
		_ = durable.Write(to, durable.File{Content: src, Mode: 0o600, UID: os.Geteuid(), GID: os.Getegid()})
	}
}

// Unknown returns the keys of src, one JSON object, that T does not have, sorted. A key
// that is unknown in one place counts everywhere.
func Unknown[T any](src []byte) ([]string, error) {
	var all any
	if err := json.Unmarshal(src, &all); err != nil {
		return nil, err
	}
	var out []string
	for {
		text, err := json.Marshal(all)
		if err != nil {
			return nil, err
		}
		err = strictjson.Decode(text, new(T))
		if err == nil {
			slices.Sort(out)
			return out, nil
		}
		_, quoted, ok := strings.Cut(err.Error(), "unknown field ")
		if !ok {
			return nil, err
		}
		key := strings.Trim(quoted, `"`)
		remove(all, key)
		out = append(out, key)
	}
}

// remove removes a key from every object of a JSON value.
func remove(v any, key string) {
	switch x := v.(type) {
	case map[string]any:
		delete(x, key)
		for _, e := range x {
			remove(e, key)
		}
	case []any:
		for _, e := range x {
			remove(e, key)
		}
	}
}

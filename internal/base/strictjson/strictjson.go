// Package strictjson reads JSON that this program wrote or documents: exactly
// one value, and no key that nobody knows, so that two versions never disagree
// silently and a misspelt key is not a setting that does nothing. It knows
// nothing of what it reads.
package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
)

// Decode reads src, which must be one JSON value, into v.
func Decode(src []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(src))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("more than one JSON value")
	}
	return nil
}

// Load reads a file and checks it. Errors begin with the file's name.
func Load[T any](file string, check func(*T) error) (*T, error) {
	src, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return Parse(file, src, check)
}

// Parse is Load for src, the content of file.
func Parse[T any](file string, src []byte, check func(*T) error) (*T, error) {
	v := new(T)
	err := Decode(src, v)
	if err == nil {
		err = check(v)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return v, nil
}

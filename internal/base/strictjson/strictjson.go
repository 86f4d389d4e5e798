// Package strictjson reads JSON that a person writes, or the same binary at the other end:
// exactly one value, and no key that the type does not have, so that a misspelt key is not a setting
// that does nothing. It knows nothing of what it reads. What another release may have
// written is read by package conffile.
package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
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

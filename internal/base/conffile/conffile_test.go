package conffile

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

type inner struct {
	B int `json:"b,omitempty"`
}

type config struct {
	A  int     `json:"a"`
	In []inner `json:"in,omitempty"`
}

func positive(c *config) error {
	if c.A < 1 {
		return errors.New("a is too small")
	}
	return nil
}

func TestParse(t *testing.T) {
	for src, good := range map[string]bool{
		`{"a":1}`: true,
		`{"a":1,"new":{"x":[1]},"in":[{"b":1,"newer":2}]}`: true,
		`{"a":1}{"a":2}`: false,
		`{"a":1} x`:      false,
		`{"a":"1"}`:      false,
		`{"a":0}`:        false,
		``:               false,
	} {
		v, err := Parse("c.json", []byte(src), positive)
		if (err == nil) != good || err != nil && !strings.HasPrefix(err.Error(), "c.json: ") || err == nil && v.A != 1 {
			t.Errorf("%q: %v, %v", src, v, err)
		}
	}
}

// What becomes of the file does not matter to a program that has read a good one since the
// boot.
func TestLoadKept(t *testing.T) {
	file := filepath.Join(t.TempDir(), "c.json")
	t.Cleanup(func() { os.Remove(copyOf(file)) })
	write := func(src string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(src), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(`{"a":`)
	if v, err := LoadKept(file, positive); v != nil || err == nil {
		t.Fatalf("never good: %v, %v", v, err)
	}
	for _, a := range []string{`{"a":1}`, `{"a":2}`} {
		write(a)
		if _, err := LoadKept(file, positive); err != nil {
			t.Fatal(err)
		}
	}
	for _, src := range []string{``, `{"a":0}`, "\x00\x00"} {
		write(src)
		v, err := LoadKept(file, positive)
		if v == nil || v.A != 2 || err == nil || !strings.HasPrefix(err.Error(), file+": ") {
			t.Errorf("%q: %v, %v", src, v, err)
		}
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if v, err := LoadKept(file, positive); v == nil || v.A != 2 || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing: %v, %v", v, err)
	}
}

func TestUnknown(t *testing.T) {
	got, err := Unknown[config]([]byte(`{"a":1,"z":null,"in":[{"b":0},{"y":{"z":1}}]}`))
	if err != nil || !slices.Equal(got, []string{"y", "z"}) {
		t.Error(got, err)
	}
	if _, err := Unknown[config]([]byte(`{"a":"x"}`)); err == nil {
		t.Error("no error")
	}
}

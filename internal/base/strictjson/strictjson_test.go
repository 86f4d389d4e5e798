package strictjson

import (
	"strings"
	"testing"
)

func TestDecode(t *testing.T) {
	for src, want := range map[string]string{
		`{"a":1}`:        "",
		" {\"a\":1}\n\n": "",
		`{"a":1,"b":2}`:  `unknown field "b"`,
		`{"a":1}{"a":2}`: "more than one JSON value",
		`{"a":1} x`:      "more than one JSON value",
		`{"a":"1"}`:      "cannot unmarshal",
		``:               "EOF",
		`{"a":1,"a":`:    "unexpected EOF",
	} {
		var v struct {
			A int `json:"a"`
		}
		err := Decode([]byte(src), &v)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", src, err, want)
		}
	}
}

package strictjson

import "testing"

func TestDecode(t *testing.T) {
	for src, good := range map[string]bool{
		`{"a":1}`:        true,
		" {\"a\":1}\n\n": true,
		`{"a":1,"b":2}`:  false,
		`{"a":1}{"a":2}`: false,
		`{"a":1} x`:      false,
		`{"a":"1"}`:      false,
		``:               false,
		`{"a":1,"a":`:    false,
	} {
		var v struct {
			A int `json:"a"`
		}
		if err := Decode([]byte(src), &v); (err == nil) != good {
			t.Errorf("%q: %v", src, err)
		}
	}
}

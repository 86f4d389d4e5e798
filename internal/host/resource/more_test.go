package resource

import (
	"testing"
)

func TestDecodeRefusesWhatItDoesNotKnow(t *testing.T) {
	if _, err := Decode(Kinds, "teapot", []byte("{}")); err == nil {
		t.Error("an unknown kind is accepted")
	}
	if _, err := Decode(Kinds, "file", []byte(`{"Path":"/x","Colour":"red"}`)); err == nil {
		t.Error("an unknown field is accepted")
	}
}

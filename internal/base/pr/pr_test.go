package pr

import (
	"encoding/hex"
	"errors"
	"io/fs"
	"reflect"
	"strings"
	"testing"
)

func TestKeys(t *testing.T) {
	a, b := KeyOf("nss7/56l42cuoheei5rxb", "nss1"), KeyOf("nss7/56l42cuoheei5rxb", "nss2")
	if a == b || a == KeyOf("nss7/other", "nss1") || !strings.HasPrefix(a.String(), "0x4d4f5254") {
		t.Errorf("%s and %s", a, b)
	}
	// For good: LUNs in the field carry it.
	if a.String() != "0x4d4f525405a051f4" {
		t.Errorf("the key of a server has changed: %s", a)
	}
	if k, err := ParseKey(a.String()); k != a || err != nil {
		t.Errorf("%s, %v", k, err)
	}
	for _, bad := range []string{"", "0x0", "0x0000000000000000", "4d4f525400000001", "0x4D4F525400000001", "0x4d4f52540000000100"} {
		if k, err := ParseKey(bad); err == nil {
			t.Errorf("%q is %s", bad, k)
		}
	}
}

// Bytes as an array of the rack got and gave them. Source: SPC-4, 6.15 and 6.16.
func TestBytes(t *testing.T) {
	block, list := out(preemptAbort, WriteExclusiveRegistrantsOnly, 0x4d4f525422222222, 0x4d4f525411111111)
	if got := hex.EncodeToString(block) + " " + hex.EncodeToString(list); got != "5f050500000000001800 4d4f5254222222224d4f5254111111110000000000000000" {
		t.Error(got)
	}
	if got := hex.EncodeToString(in(readReservation, inLength)); got != "5e010000000000"+"1f4800" {
		t.Error(got)
	}
	bytes := func(s string) []byte {
		b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	keys := bytes("00000006 00000010 4d4f525411111111 4d4f525411111111")
	s, err := parse(keys, bytes("00000006 00000010 4d4f525411111111 00000000 00 05 0000"))
	want := State{6, []Key{0x4d4f525411111111, 0x4d4f525411111111}, 0x4d4f525411111111, 5}
	if err != nil || !reflect.DeepEqual(s, want) {
		t.Errorf("%+v, %v", s, err)
	}
	if s.Count(0x4d4f525411111111) != 2 || len(s.Others()) != 1 || len(s.Others(s.Holder)) != 0 {
		t.Errorf("%d, %v", s.Count(s.Holder), s.Others())
	}
	if s, err := parse(bytes("00000000 00000000"), bytes("00000000 00000000")); err != nil || s.Holder != 0 || s.Keys != nil {
		t.Errorf("nobody: %+v, %v", s, err)
	}
	if _, err := parse(keys[:20], keys); err == nil {
		t.Error("an answer that was cut off is taken")
	}
}

func TestPathsThatAreGone(t *testing.T) {
	if _, err := Device(t.TempDir() + "/sdx").Read(); !errors.Is(err, ErrPath) || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a path that is gone: %v", err)
	}
	if _, err := Device("/dev/null").Read(); !errors.Is(err, ErrPath) {
		t.Errorf("no SCSI device: %v", err)
	}
}

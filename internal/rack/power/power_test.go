package power

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mortarhpc/mortar/internal/rack/hw"
)

func TestPDUWalk(t *testing.T) {
	table := Objects(&hw.PDU{Outlets: 2}, 25, func(o int) string { return fmt.Sprint("s", o) }, func(o int) bool { return o == 2 })
	var walk []string
	at, err := parseOID(".1.3.6.1.4.1.318")
	if err != nil {
		t.Fatal(err)
	}
	for v := find(table, at, true); v != nil; v = find(table, at, true) {
		if slices.Compare(v.OID, at) <= 0 {
			t.Fatalf("the walk goes back from %v to %v", at, v.OID)
		}
		at = v.OID
		walk = append(walk, formatOID(v.OID)+" "+v.Type+" "+v.Value)
	}
	if d := cmp.Diff([]string{
		".1.3.6.1.4.1.318.1.1.12.2.2.1.1.3.1 integer 12",
		".1.3.6.1.4.1.318.1.1.12.2.2.1.1.4.1 integer 16",
		".1.3.6.1.4.1.318.1.1.12.2.3.1.1.2.1 gauge 25",
		".1.3.6.1.4.1.318.1.1.12.3.3.1.1.2.1 string s1",
		".1.3.6.1.4.1.318.1.1.12.3.3.1.1.2.2 string s2",
		".1.3.6.1.4.1.318.1.1.12.3.3.1.1.4.1 integer 2",
		".1.3.6.1.4.1.318.1.1.12.3.3.1.1.4.2 integer 1",
		".1.3.6.1.4.1.318.1.1.12.3.5.1.1.2.1 string s1",
		".1.3.6.1.4.1.318.1.1.12.3.5.1.1.2.2 string s2",
		".1.3.6.1.4.1.318.1.1.12.3.5.1.1.4.1 integer 2",
		".1.3.6.1.4.1.318.1.1.12.3.5.1.1.4.2 integer 1",
	}, walk); d != "" {
		t.Error(d)
	}
}

func TestServePass(t *testing.T) {
	p := &hw.PDU{Outlets: 2}
	off := map[int]bool{}
	var turned []string
	var out bytes.Buffer
	in := strings.Join([]string{
		"PING",
		"get", ".1.3.6.1.4.1.318.1.1.12.3.5.1.1.4.1",
		"get", ".1.3.6.1.4.1.318.1.1.12.3.5.1.1.4.9",
		"getnext", ".1.3.6.1.4.1.318.1.1.12.3.3.1.1.2",
		"getnext", ".1.3.6.1.4.1.318.1.1.12.3.5.1.1.4.2",
		"set", ".1.3.6.1.4.1.318.1.1.12.3.3.1.1.4.1", "integer 2",
		"get", ".1.3.6.1.4.1.318.1.1.12.3.5.1.1.4.1",
		"set", ".1.3.6.1.4.1.318.1.1.12.3.3.1.1.4.1", "integer 3",
		"set", ".1.3.6.1.4.1.318.1.1.12.3.3.1.1.4.1", "integer 7",
		"set", ".1.3.6.1.4.1.318.1.1.12.3.3.1.1.4.1", "string 1",
		"set", ".1.3.6.1.4.1.318.1.1.12.3.5.1.1.4.1", "integer 1",
		"set", ".1.3.6.1.4.1.318.1.1.12.3.3.1.1.4.3", "integer 1",
		"get", "nonsense",
	}, "\n") + "\n"
	err := ServePass(strings.NewReader(in), &out, func() ([]Object, error) {
		return Objects(p, 25, func(int) string { return "x" }, func(o int) bool { return !off[o] }), nil
	}, func(o int, on bool) error {
		off[o] = !on
		turned = append(turned, fmt.Sprint(o, on))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	want := `PONG
.1.3.6.1.4.1.318.1.1.12.3.5.1.1.4.1
integer
1
NONE
.1.3.6.1.4.1.318.1.1.12.3.3.1.1.2.1
string
x
NONE
DONE
.1.3.6.1.4.1.318.1.1.12.3.5.1.1.4.1
integer
2
DONE
wrong-value
wrong-type
not-writable
not-writable
NONE
`
	if d := cmp.Diff(want, out.String()); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{"1 false", "1 false", "1 true"}, turned); d != "" {
		t.Error(d)
	}
}

func TestChassisRequest(t *testing.T) {
	for _, tc := range []struct {
		args string
		op   string
		list []chassisParam
	}{
		{"get power", "get", []chassisParam{{"power", ""}}},
		{"0x20 get power boot", "get", []chassisParam{{"power", ""}, {"boot", ""}}},
		{"32 set power 0", "set", []chassisParam{{"power", "0"}}},
		{"set power 1 reset 1", "set", []chassisParam{{"power", "1"}, {"reset", "1"}}},
	} {
		op, list, err := ChassisRequest(strings.Fields(tc.args))
		if err != nil || op != tc.op || !slices.Equal(list, tc.list) {
			t.Errorf("%q: %s %v %v", tc.args, op, list, err)
		}
	}
	for _, bad := range []string{"", "power 1", "set power"} {
		if _, _, err := ChassisRequest(strings.Fields(bad)); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

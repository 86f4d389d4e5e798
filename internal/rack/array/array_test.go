package array

import (
	"bytes"
	"encoding/binary"
	"io"
	"testing"

	"github.com/mortarhpc/mortar/internal/rack/hw"
)

// login changes only the ISID of a login request, and no later data.
func TestLogin(t *testing.T) {
	pdu := func(transit byte, ahs, text string) []byte {
		b := make([]byte, pduHeader, 200)
		b[0], b[1], b[4] = opLogin|opImmediate, transit, byte(len(ahs)/4)
		binary.BigEndian.PutUint32(b[4:], binary.BigEndian.Uint32(b[4:])|uint32(len(text)))
		copy(b[8:], "random")
		b = append(b, ahs+text...)
		return append(b, make([]byte, -len(text)&3)...)
	}
	first, last := pdu(0x81, "", "InitiatorName=a\x00"), pdu(loginTransit|4|fullFeature, "ahs1", "HeaderDigest=None\x00")
	in := append(append(bytes.Clone(first), last...), "commands"...)
	from, out := bytes.NewReader(in), &bytes.Buffer{}
	if err := login(out, from); err != nil {
		t.Fatal(err)
	}
	want := append(bytes.Clone(first), last...)
	copy(want[8:14], fabricISID[:])
	copy(want[len(first)+8:], fabricISID[:])
	if rest, _ := io.ReadAll(from); !bytes.Equal(out.Bytes(), want) || string(rest) != "commands" {
		t.Errorf("%q, then %q", out.Bytes(), rest)
	}
	for _, bad := range [][]byte{{}, first[:20], make([]byte, pduHeader), first[:50]} {
		if err := login(io.Discard, bytes.NewReader(bad)); err == nil {
			t.Errorf("%q is a login", bad)
		}
	}
}

func TestSlotName(t *testing.T) {
	e := &hw.Enclosure{Array: &hw.Array{Disks: []hw.Disk{{Name: "a1-01"}, {Name: "a1-02"}, {Name: "a2-01"}, {Name: "a2-02"}}}}
	for i, want := range []string{"0.0", "0.1", "1.0", "1.1"} {
		if got := slotName(e, i); got != want {
			t.Errorf("%d: %s, want %s", i, got, want)
		}
	}
}

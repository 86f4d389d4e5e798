package linux

import (
	"encoding/hex"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// page83 is that of a LUN of LIO: NAA, T10 vendor ID, relative target port,
// target port group 2.
const page83 = "0083002c" +
	"01030010" + "600c0ff0123456789abcdef012345678" +
	"02010008" + "44656c6c454d4320" +
	"61140004" + "00000003" +
	"61150004" + "00000002"

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestPage83(t *testing.T) {
	page := unhex(t, page83)
	if got := PortGroupOf(page); got != 2 {
		t.Errorf("group %d", got)
	}
	if got := hex.EncodeToString(NAAOf(page)); got != "600c0ff0123456789abcdef012345678" {
		t.Errorf("NAA %s", got)
	}
	for n := range page {
		PortGroupOf(page[:n])
		NAAOf(page[:n])
	}
	if PortGroupOf(page[:40]) != 0 || NAAOf(page[:20]) != nil {
		t.Error("found in a page that is cut off before it")
	}
}

func TestPortGroups(t *testing.T) {
	// Two groups: 1 optimized with one port, 2 transitioning with two.
	answer := "0000001c" + "008f0001" + "00020001" + "00000001" + "0f8f0002" + "00020002" + "00000002" + "00000003"
	got, err := ParsePortGroups(unhex(t, answer+"0000"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[int]string{1: "active/optimized", 2: "transitioning"}, got); diff != "" {
		t.Error(diff)
	}
	for _, bad := range []string{"", "0000001c008f0001", "00000008008f000100020001"} {
		if _, err := ParsePortGroups(unhex(t, bad)); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
}

func FuzzSCSIPages(f *testing.F) {
	f.Add([]byte{0, 0x83, 0, 4, 0x61, 0x15, 0, 4})
	f.Add([]byte{0, 0, 0, 8, 0, 0x8f, 0, 1, 0, 2, 0, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		PortGroupOf(b)
		NAAOf(b)
		_, _ = ParsePortGroups(b)
	})
}

func TestUsable(t *testing.T) {
	for access, want := range map[string]bool{
		"": true, "active/optimized": true, "active/non-optimized": true, "transitioning": true,
		"standby": false, "unavailable": false, "offline": false,
	} {
		if got := (SCSIPath{State: "running", Access: access}).Usable(); got != want {
			t.Errorf("%q: %v", access, got)
		}
	}
	if (SCSIPath{State: "offline"}).Usable() {
		t.Error("an offline path")
	}
}

func TestSCSIAddress(t *testing.T) {
	h, target, lun, err := ParseSCSIAddress("3:0:12:7")
	if h != 3 || target != 12 || lun != 7 || err != nil {
		t.Error(h, target, lun, err)
	}
	if _, _, _, err := ParseSCSIAddress("target3:0:12"); err == nil {
		t.Error("no error")
	}
}

func TestNAA(t *testing.T) {
	for in, want := range map[string]string{
		// T10 vendor designator, then the logical unit's NAA, then a target port's.
		"00830020" + "02010004" + "41424344" + "01030008" + "5000c500a0000001" + "61930008" + "5000c500a0000fff": "5000c500a0000001",
		"": "", "0083": "", "00830000": "",
		"00830008" + "01930004" + "00000001": "",
		"0083000c" + "010300ff" + "5000c500": "", // longer than the page
	} {
		b, err := hex.DecodeString(in)
		if err != nil {
			t.Fatal(err)
		}
		if got := hex.EncodeToString(NAAOf(b)); got != want {
			t.Errorf("%s: got %q, want %q", in, got, want)
		}
	}
}

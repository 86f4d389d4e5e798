package spec

import (
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mortarhpc/mortar/examples"
)

func TestParseBytes(t *testing.T) {
	good := map[string]Bytes{
		"4TB": 4_000_000_000_000, "4TiB": 4 << 40, "4 TB": 4_000_000_000_000,
		"1.5TB": 1_500_000_000_000, "0.5KiB": 512, "128KiB": 131072, "128kB": 128000, "128KB": 128000,
		"0B": 0, "12TB": 12_000_000_000_000, "1280MiB": 1280 << 20, "8PiB": 8 << 50,
	}
	for in, want := range good {
		if got, err := ParseBytes(in); err != nil || got != want {
			t.Errorf("%s: %d, %v; want %d", in, got, err, want)
		}
	}
	for _, in := range []string{"", "4", "TB", "4T", "4tb", "4Tb", "-4TB", "4,5TB", "4e3GB", "0.3B", "1.0000000001TB", "99999999PB", "4 T B", "٤TB"} {
		if got, err := ParseBytes(in); err == nil {
			t.Errorf("%q: accepted as %d", in, got)
		}
	}
}

func TestBytesString(t *testing.T) {
	for b, want := range map[Bytes]string{
		0: "0B", 1: "1B", 512: "512B", 4 * TB: "4TB", 4 * TiB: "4TiB", 1280 * MiB: "1280MiB", 128 * KiB: "128KiB",
		1500 * GB: "1500GB", 2 * GB: "2GB", -3 * TB: "-3TB", 1<<63 - 1: "9223372036854775807B",
	} {
		if got := b.String(); got != want {
			t.Errorf("%d: %s, want %s", int64(b), got, want)
		}
		if b > 0 {
			if back, err := ParseBytes(b.String()); err != nil || back != b {
				t.Errorf("%s read back as %d, %v", b, back, err)
			}
		}
	}
	if got := (120 * TB).Decimal() + " " + (120 * TB).Binary(); got != "120.00 TB 109.14 TiB" {
		t.Error(got)
	}
}

func TestSerials(t *testing.T) {
	got, err := DiskList{Serial: "Z[08-11]-X"}.Serials()
	if diff := cmp.Diff([]string{"Z08-X", "Z09-X", "Z10-X", "Z11-X"}, got); err != nil || diff != "" {
		t.Error(err, diff)
	}
}

// A serial number of digits only keeps its leading zeros, quoted or not.
func TestSerialOfDigits(t *testing.T) {
	base, err := os.ReadFile("testdata/base.yaml")
	if err != nil {
		t.Fatal(err)
	}
	s, err := Parse("brick.yaml", []byte(strings.Replace(string(base), "serial: MB12", "serial: 00420017", 1)))
	if err != nil {
		t.Fatal(err)
	}
	if got := s.Enclosures[1].Disks[1].Serial; got != "00420017" {
		t.Error(got)
	}
}

func TestSNMPv3(t *testing.T) {
	base, err := os.ReadFile("testdata/base.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(string(base), "community_file: secrets/p2", "snmp: {user: fencer, auth: SHA-256, auth_file: secrets/a, privacy: AES-256, privacy_file: secrets/p}", 1)
	text = strings.Replace(text, "community_file: secrets/p1", "snmp: {user: fencer, auth_file: secrets/a, privacy_file: secrets/p}", 1)
	s, err := Parse("brick.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	want := []*SNMP{{"fencer", "SHA", "secrets/a", "AES", "secrets/p"}, {"fencer", "SHA-256", "secrets/a", "AES-256", "secrets/p"}}
	if got := []*SNMP{s.PDUs[0].SNMP, s.PDUs[1].SNMP}; !reflect.DeepEqual(got, want) {
		t.Errorf("%+v %+v", got[0], got[1])
	}
}

func TestDefaults(t *testing.T) {
	base, err := os.ReadFile("testdata/base.yaml")
	if err != nil {
		t.Fatal(err)
	}
	s, err := Parse("brick.yaml", base)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ got, want any }{
		{s.SSH.User, "root"}, {s.SSH.Port, 22}, {s.SSH.KnownHosts, "~/.ssh/known_hosts"},
		{s.Networks.Private.MTU, 1500}, {s.Servers[0].BMC.Cipher, 3},
		{s.Servers[1].Feeds, []string{"A", "B"}},
		{s.Enclosures[0].Service, "home"}, {s.Enclosures[1].Bays, 12}, {s.Enclosures[0].Disks[0].Type, "nl-sas"},
		{s.Storage.Kind, "jbod"}, {s.Storage.RAID.Parity, 2}, {s.Storage.RAID.Groups, 2},
		{s.Filesystem.Type, "xfs"}, {s.NFS.Versions, []string{"3", "4.1", "4.2"}}, {s.NFS.Grace, 30},
		{s.Services[0].Server, "s1"}, {s.Services[0].Path, "/srv/home"}, {s.Services[0].Exports[0].Path, "/data"},
		{s.HA.Failback, "manual"}, {s.Clients[0].Mounts[0].Export, "/data"}, {s.Clients[0].Mounts[0].Version, "4.1"},
		{s.Rack.Suite, "trixie"}, {s.Enclosures[1].Disks[1].WWN, "5000c500a1b2c3d4"},
	} {
		if !reflect.DeepEqual(c.got, c.want) {
			t.Errorf("%v, want %v", c.got, c.want)
		}
	}
	if line, col := s.Pos("servers[1].bmc.address"); line != 29 || col != 16 {
		t.Errorf("position %d:%d", line, col)
	}
	if line, _ := s.Pos("servers[1].bmc.cipher"); line != 29 { // left out: where the BMC stands
		t.Errorf("line %d", line)
	}
}

// An option has no character that exportfs, exports(5) or the
// server's table take for the end of an option or of a list.
func FuzzExportOption(f *testing.F) {
	for name := range exportOptions {
		f.Add(name)
		for _, v := range []string{"", "1", "sys", "tls", "/a", "sys) *(rw", "1,rw", "1 2", "a\tb", "-1", "krb5:sys"} {
			f.Add(name + "=" + v)
		}
	}
	base, err := os.ReadFile("testdata/base.yaml")
	if err != nil {
		f.Fatal(err)
	}
	s, err := Parse("base.yaml", base)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, option string) {
		c := &checker{s: s}
		if ok := c.exportOption("services[0].exports[0].options[0]", option); ok != (len(c.errs) == 0) {
			t.Errorf("%q: %v, but %v", option, ok, c.errs)
		} else if ok && strings.ContainsAny(option, " \t\r\n\v\f\x00,()[]{}\"'\\#*") {
			t.Errorf("%q is taken", option)
		}
	})
}

// Whatever the bytes: an answer, with positions, and no panic; an
// accepted spec can be used.
func FuzzParse(f *testing.F) {
	base, err := os.ReadFile("testdata/base.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(base)
	for _, c := range bad {
		src := string(base)
		for i := 0; i < len(c.edits); i += 2 {
			if c.edits[i] == "*" {
				src = c.edits[i+1]
			} else {
				src = strings.Replace(src, c.edits[i], c.edits[i+1], 1)
			}
		}
		f.Add([]byte(src))
	}
	for _, c := range badSystems {
		src, err := fs.ReadFile(examples.FS, c.example+".yaml")
		if err != nil {
			f.Fatal(err)
		}
		text := string(src)
		for i := 0; i < len(c.edits); i += 2 {
			text = strings.Replace(text, c.edits[i], c.edits[i+1], 1)
		}
		f.Add(src)
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		s, err := Parse("fuzz.yaml", src)
		if err == nil {
			for _, e := range s.Enclosures {
				for _, l := range e.Disks {
					if _, err := l.Serials(); err != nil {
						t.Error(err)
					}
				}
			}
			return
		}
		errs, ok := err.(Errors)
		if !ok || len(errs) == 0 {
			t.Fatalf("%T %v", err, err)
		}
		for _, e := range errs {
			if e.Line < 1 || e.Col < 1 || e.Msg == "" {
				t.Errorf("no position or message: %#v", e)
			}
		}
	})
}

// TestLoadAdvice: `mortar init > FILE` is advised only where it would help.
func TestLoadAdvice(t *testing.T) {
	dir := t.TempDir()
	none := filepath.Join(dir, "none.yaml")
	for _, path := range []string{"-", dir, none} {
		if _, err := Load(path); err == nil || strings.Contains(err.Error(), "`mortar init nfs-ha > "+path+"`") != (path == none) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

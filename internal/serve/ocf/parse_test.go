package ocf

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/base/md"
	"github.com/mortarhpc/mortar/internal/serve/mdraid"
	"github.com/mortarhpc/mortar/internal/serve/unit"
)

func TestJudge(t *testing.T) {
	six := func(level int32, disks int, events ...uint64) []testSuperblock {
		var out []testSuperblock
		roles := make([]uint16, disks)
		for i := range roles {
			roles[i] = uint16(i)
		}
		for i, e := range events {
			if e > 0 {
				out = append(out, testSuperblock{uuid: arrayUUID, level: level, disks: uint32(disks), dev: uint32(i), events: e, roles: roles})
			}
		}
		return out
	}
	edit := func(in []testSuperblock, f func(i int, s *testSuperblock)) []testSuperblock {
		for i := range in {
			f(i, &in[i])
		}
		return in
	}
	for _, tc := range []struct {
		name    string
		in      []testSuperblock
		policy  string
		missing int
		members int
		anew    int
		dirty   bool
		doubt   bool
		err     string
	}{
		{name: "whole", in: six(6, 6, 9, 9, 9, 9, 9, 9), members: 6},
		{name: "one event apart is in date", in: six(6, 6, 9, 8, 9, 9, 9, 9), members: 6},
		{name: "one stale", in: six(6, 6, 9, 7, 9, 9, 9, 9), members: 5, missing: 1},
		{name: "two missing", in: six(6, 6, 0, 0, 9, 9, 9, 9), members: 4, missing: 2},
		{name: "three missing", in: six(6, 6, 0, 0, 0, 9, 9, 9), err: "3 of 6 members are missing"},
		{name: "raid5, one", in: six(5, 4, 0, 9, 9, 9), members: 3, missing: 1},
		{name: "raid5, two", in: six(5, 4, 0, 0, 9, 9), err: "more than RAID 5 can lose"},
		{name: "raid0, one", in: six(0, 2, 0, 9), err: "more than RAID 0 can lose"},
		{name: "raid1, one of two", in: six(1, 2, 9, 0), members: 1, missing: 1},
		{name: "raid10 near, one of each pair", in: edit(six(10, 4, 0, 9, 9, 0), func(_ int, s *testSuperblock) { s.layout = 0x102 }), members: 2, missing: 2},
		{name: "raid10 near, a whole pair", in: edit(six(10, 4, 0, 0, 9, 9), func(_ int, s *testSuperblock) { s.layout = 0x102 }), err: "more than RAID 10 can lose"},
		{name: "raid10 far, two", in: edit(six(10, 4, 0, 9, 9, 0), func(_ int, s *testSuperblock) { s.layout = 0x201 }), err: "more than RAID 10 can lose"},
		{name: "raid10 far, one", in: edit(six(10, 4, 0, 9, 9, 9), func(_ int, s *testSuperblock) { s.layout = 0x201 }), members: 3, missing: 1},
		{name: "being rebuilt does not count", in: edit(six(6, 6, 9, 9, 9, 9, 9, 9), func(i int, s *testSuperblock) {
			if i == 2 {
				s.features = md.FeatureRecovery
			}
		}), members: 6, missing: 1},
		{name: "being rebuilt when its server died", in: edit(six(10, 4, 9, 9, 9, 9), func(i int, s *testSuperblock) {
			s.layout, s.dirty = 0x102, true
			if i == 2 {
				s.features = md.FeatureRecovery
			}
		}), members: 3, missing: 1, anew: 1},
		{name: "parities, being rebuilt when its server died", in: edit(six(6, 6, 9, 9, 9, 9, 9, 9), func(i int, s *testSuperblock) {
			s.dirty = true
			if i == 2 {
				s.features = md.FeatureRecovery
			}
		}), members: 6, missing: 1, dirty: true, doubt: true},
		{name: "spare", in: append(six(6, 6, 9, 9, 9, 9, 9, 9), testSuperblock{uuid: arrayUUID, level: 6, disks: 6, dev: 6, events: 9, roles: []uint16{0, 1, 2, 3, 4, 5, md.RoleSpare}}), members: 6},
		{name: "a spare whose number another disk has got since", in: append(edit(six(6, 6, 99, 99, 99, 99, 99, 99), func(i int, s *testSuperblock) {
			s.roles = []uint16{0, 1, md.RoleSpare, 3, 4, 5, 2}
			if i == 2 {
				s.dev = 6
			}
		}), testSuperblock{uuid: arrayUUID, level: 6, disks: 6, dev: 6, events: 98, roles: []uint16{0, 1, 2, 3, 4, 5, md.RoleSpare}}), members: 6},
		{name: "thrown out, one event ago", in: edit(six(6, 6, 9, 9, 8, 9, 9, 9), func(i int, s *testSuperblock) {
			if i != 2 {
				s.roles = []uint16{0, 1, md.RoleFaulty, 3, 4, 5}
			}
		}), members: 5, missing: 1},
		{name: "thrown out, and assembled without it since", in: edit(six(6, 6, 99, 99, 8, 99, 99, 99), func(i int, s *testSuperblock) {
			if i != 2 {
				s.roles = []uint16{0, 1, md.RoleSpare, 3, 4, 5}
			}
		}), members: 5, missing: 1},
		{name: "thrown out, a spare has taken its place", in: append(edit(six(6, 6, 99, 99, 8, 99, 99, 99), func(i int, s *testSuperblock) {
			if i != 2 {
				s.roles = []uint16{0, 1, md.RoleSpare, 3, 4, 5, 2}
			}
		}), testSuperblock{uuid: arrayUUID, level: 6, disks: 6, dev: 6, events: 99, roles: []uint16{0, 1, md.RoleSpare, 3, 4, 5, 2}}), members: 6},
		{name: "dirty, whole", in: edit(six(6, 6, 9, 9, 9, 9, 9, 9), func(_ int, s *testSuperblock) { s.dirty = true }), members: 6},
		{name: "dirty and degraded", in: edit(six(6, 6, 0, 9, 9, 9, 9, 9), func(_ int, s *testSuperblock) { s.dirty = true }), members: 5, missing: 1, dirty: true, doubt: true},
		{name: "dirty and degraded, start", policy: "start", in: edit(six(6, 6, 0, 9, 9, 9, 9, 9), func(_ int, s *testSuperblock) { s.dirty = true }), members: 5, missing: 1, dirty: true},
		{name: "dirty and degraded, partial parity log", in: edit(six(6, 6, 0, 9, 9, 9, 9, 9), func(_ int, s *testSuperblock) { s.dirty, s.features = true, md.FeaturePPL }), members: 5, missing: 1},
		{name: "a journal of an earlier version", in: edit(six(6, 6, 9, 9, 9, 9, 9, 9), func(_ int, s *testSuperblock) { s.features = md.FeatureJournal }), err: "[has-journal] array=r0"},
		{name: "dirty mirror", in: edit(six(1, 2, 9, 0), func(_ int, s *testSuperblock) { s.dirty = true }), members: 1, missing: 1},
		{name: "copy of a disk", in: edit(six(6, 6, 9, 9, 9, 9, 9, 9), func(i int, s *testSuperblock) {
			if i == 2 {
				s.dev = 1
			}
		}), err: "[same-slot] array=r0 slot=1"},
		{name: "another array's", in: edit(six(6, 6, 9, 9, 9, 9, 9, 9), func(_ int, s *testSuperblock) { s.uuid = strings.Repeat("11", 16) }), err: "[no-member] array=r0 members=6"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var ms []mdraid.Member
			for i, s := range tc.in {
				sb, err := md.ParseSuperblock(s.bytes())
				if err != nil {
					t.Fatal(err)
				}
				ms = append(ms, mdraid.Member{Dev: fmt.Sprintf("/dev/d%d", i), SB: sb})
			}
			v, err := mdraid.Judge(mdraid.Array{Name: "r0", UUID: md.UUID(arrayUUID)}, ms, tc.policy)
			if tc.err != "" {
				if !says(err, tc.err) {
					t.Fatalf("error %v, want %q", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if v.Missing != tc.missing || len(v.Members) != tc.members || len(v.Anew) != tc.anew || v.DirtyDegraded != tc.dirty || (v.Doubt != nil) != tc.doubt {
				t.Errorf("%+v", v)
			}
		})
	}
}

func TestSuperblockDamaged(t *testing.T) {
	good := testSuperblock{uuid: arrayUUID, level: 6, disks: 6, roles: make([]uint16, 6)}.bytes()
	for i := range 268 {
		b := bytes.Clone(good)
		b[i] ^= 0x40
		if _, err := md.ParseSuperblock(b); err == nil {
			t.Fatalf("byte %d flipped and not noticed", i)
		}
	}
}

func reader(img []byte) metaReader {
	return func(off int64, n int) ([]byte, error) {
		if off%4096 != 0 || n%4096 != 0 {
			return nil, fmt.Errorf("read of %d at %d is not aligned", n, off)
		}
		if off < 0 || off+int64(n) > int64(len(img)) {
			return nil, io.ErrUnexpectedEOF
		}
		return img[off:][:n], nil
	}
}

// The head of a physical volume that vgcreate and lvcreate of lvm2 2.03.31
// have written.
func TestReadVGMetaReal(t *testing.T) {
	f, err := os.Open("testdata/pv-head.img.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	img, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	m, err := readVGMeta(reader(img))
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(*m, vgMeta{VG: "mortar-vg", Seqno: 6, SystemID: "nfs1"}) {
		t.Errorf("%+v", m)
	}
}

func TestReadVGMeta(t *testing.T) {
	text := "vg {\nseqno = 12\nsystem_id = \"b\"\nlogical_volumes {\nlv {\nsystem_id = \"no\"\nseqno = 3\n}\n}\n}\n# x\nsystem_id = \"no\"\n"
	for _, at := range []int{512, 4090, 8190, 8192 - len(text)} {
		m, err := readVGMeta(reader(pvImage(text, at)))
		if err != nil || !reflect.DeepEqual(*m, vgMeta{"vg", 12, "b"}) {
			t.Errorf("text at %d: %+v, %v", at, m, err)
		}
	}
	if _, err := readVGMeta(reader(make([]byte, 64<<10))); err == nil {
		t.Error("zeros taken for a physical volume")
	}
}

func FuzzReadVGMeta(f *testing.F) {
	f.Add(pvImage("vg {\nseqno = 1\n}\n", 512)[:16<<10])
	f.Fuzz(func(_ *testing.T, img []byte) { readVGMeta(reader(img)) })
}

func FuzzParseSuperblock(f *testing.F) {
	f.Add(testSuperblock{uuid: arrayUUID, level: 6, disks: 6, roles: make([]uint16, 6)}.bytes())
	f.Fuzz(func(t *testing.T, b []byte) {
		if sb, err := md.ParseSuperblock(b); err == nil {
			mdraid.Judge(mdraid.Array{Name: "r0", UUID: sb.UUID}, []mdraid.Member{{Dev: "/dev/x", SB: sb}}, "")
		}
	})
}

func TestDMName(t *testing.T) {
	if got := linux.DMName("brick-a", "data-1"); got != "brick--a-data--1" {
		t.Error(got)
	}
}

func TestConfig(t *testing.T) {
	good, err := json.Marshal(testConfig())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Parse("c.json", good); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		edit func(*Config)
		want string
	}{
		"async":            {func(c *Config) { c.Exports[0].Options = []string{"rw", "async"} }, "async loses acknowledged writes"},
		"no fsid":          {func(c *Config) { c.Exports[0].FSID = "" }, "file handles change"},
		"two options":      {func(c *Config) { c.Exports[0].Options = []string{"rw,async"} }, "is not one option"},
		"rights in sec":    {func(c *Config) { c.Exports[0].Options = []string{"rw", "sec=sys) *(rw,no_root_squash"} }, "is not one option"},
		"flavour":          {func(c *Config) { c.Exports[0].Options = []string{"rw", "sec=sys:krb6"} }, "each security flavour is one of"},
		"no flavour":       {func(c *Config) { c.Exports[0].Options = []string{"rw", "sec="} }, "each security flavour is one of"},
		"rights in an ID":  {func(c *Config) { c.Exports[0].Options = []string{"rw", "anongid=1)\t*(rw"} }, "is not one option"},
		"rights in fsid":   {func(c *Config) { c.Exports[0].FSID = "0) *(rw" }, "file handles change"},
		"list of clients":  {func(c *Config) { c.Exports[0].Clients = "10.0.0.0/24(rw) *" }, "one host or network"},
		"path in clients":  {func(c *Config) { c.Exports[0].Clients = "*:/etc" }, "one host or network"},
		"export elsewhere": {func(c *Config) { c.Exports[0].Dir = "/srv/homes" }, "is not on mount_point"},
		"state elsewhere":  {func(c *Config) { c.StateDir = "/var/lib/mortar" }, "lock recovery would not move"},
		"no prefix":        {func(c *Config) { c.Address = "10.0.0.9" }, "prefix length"},
		"nouuid":           {func(c *Config) { c.MountOpts = []string{"nouuid"} }, "take away a guard"},
		"bad version":      {func(c *Config) { c.NFS.Versions = []string{"2"} }, "is none of"},
		"bad uuid":         {func(c *Config) { c.Arrays[0].UUID = "xyz" }, "32 hex digits"},
		"option as name":   {func(c *Config) { c.VG = "--force" }, "a name without"},
		"no members":       {func(c *Config) { c.Arrays[0].Members = nil }, "members is empty"},
		"policy":           {func(c *Config) { c.DirtyDegraded = "force" }, "refuse or start"},
		"threads":          {func(c *Config) { c.NFS.Threads = 0 }, "1 to 8192"},
		"root":             {func(c *Config) { c.MountPoint = "/" }, "below /"},
	} {
		c := testConfig()
		tc.edit(c)
		src, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Parse("c.json", src); err == nil || !strings.Contains(err.Error(), tc.want) || !strings.HasPrefix(err.Error(), "c.json: ") {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
	if _, err := Parse("c.json", []byte(`{"servise":"x"}`)); err == nil || !strings.Contains(err.Error(), "service is empty") {
		t.Errorf("misspelt key: %v", err)
	}
	if _, err := Parse("c.json", append(good, '1')); err == nil {
		t.Error("content after the config is taken")
	}
}

func FuzzConfig(f *testing.F) {
	good, err := json.Marshal(testConfig())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Fuzz(func(_ *testing.T, b []byte) { Parse("c.json", b) })
}

func TestMetadata(t *testing.T) {
	var doc struct {
		XMLName xml.Name `xml:"resource-agent"`
		Version string   `xml:"version"`
		Params  []struct {
			Name     string `xml:"name,attr"`
			Required string `xml:"required,attr"`
			Long     string `xml:"longdesc"`
			Short    string `xml:"shortdesc"`
		} `xml:"parameters>parameter"`
		Actions []struct {
			Name    string `xml:"name,attr"`
			Timeout string `xml:"timeout,attr"`
		} `xml:"actions>action"`
	}
	if err := xml.Unmarshal([]byte(metadata), &doc); err != nil {
		t.Fatal(err)
	}
	if doc.Version == "" || len(doc.Params) != 1 || doc.Params[0].Name != "config" || doc.Params[0].Required != "1" || doc.Params[0].Long == "" || doc.Params[0].Short == "" {
		t.Errorf("%+v", doc)
	}
	var names []string
	for _, a := range doc.Actions {
		names = append(names, a.Name)
		if a.Timeout == "" {
			t.Errorf("action %s without timeout", a.Name)
		}
	}
	for _, want := range []string{"start", "stop", "monitor", "validate-all", "meta-data", "status"} {
		if !slices.Contains(names, want) {
			t.Errorf("no action %s", want)
		}
	}
}

func TestExitCodes(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string) string {
		p := filepath.Join(dir, name)
		if err := os.WriteFile(p, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return p
	}
	good, err := json.Marshal(testConfig())
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name string
		args []string
		env  map[string]string
		code int
		want string
	}{
		{"meta-data", []string{"meta-data"}, nil, Success, ""},
		{"no action", nil, nil, ErrArgs, "usage"},
		{"unknown action", []string{"promote"}, nil, ErrUnimplement, "usage"},
		{"no parameter", []string{"monitor"}, nil, ErrConfigured, "ocf-exit-reason:[config] parameter config is not set"},
		{"relative", []string{"start"}, map[string]string{"OCF_RESKEY_config": "a.json"}, ErrConfigured, "absolute path"},
		{"missing file", []string{"monitor"}, map[string]string{"OCF_RESKEY_config": dir + "/none"}, ErrInstalled, "run mortar apply"},
		{"missing file, stop", []string{"stop"}, map[string]string{"OCF_RESKEY_config": dir + "/none"}, ErrInstalled, "ocf-exit-reason:"},
		{"bad file", []string{"validate-all"}, map[string]string{"OCF_RESKEY_config": file("bad.json", "{")}, ErrArgs, "bad.json"},
		{"clone", []string{"start"}, map[string]string{"OCF_RESKEY_config": file("good.json", string(good)), "OCF_RESKEY_CRM_meta_clone": "0"}, ErrConfigured, "must not be cloned"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var out, errs bytes.Buffer
			code := Main(t.Context(), tc.args, func(k string) string { return tc.env[k] }, &out, &errs)
			if code != tc.code || !strings.Contains(errs.String(), tc.want) {
				t.Errorf("code %d, want %d; stderr %q, want %q", code, tc.code, errs.String(), tc.want)
			}
		})
	}
}

func TestStepsLog(t *testing.T) {
	var file bytes.Buffer
	h := newShared(t).hosts["nfs1"]
	s := h.service(testConfig())
	s.Log.File = &file
	s.Log.Action = "start"
	if err := s.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	var names []string
	for line := range strings.Lines(file.String()) {
		var st unit.Step
		if err := json.Unmarshal([]byte(line), &st); err != nil {
			t.Fatal(err)
		}
		if st.Action != "start" || st.TNS == 0 {
			t.Errorf("%+v", st)
		}
		// What runs side by side within nfsd comes in any order.
		if !slices.Contains([]string{"note", "rpc.statd", "rpc.mountd", "nfsdcld", "threads"}, st.Step) {
			names = append(names, st.Step)
		}
	}
	want := []string{"probe", "arrays", "volume", "mount", "nfs-state", "nfsd", "exports", "address", "notify", "tickle", "more-threads", "check"}
	if !slices.Equal(names, want) {
		t.Errorf("%q, want %q", names, want)
	}
}

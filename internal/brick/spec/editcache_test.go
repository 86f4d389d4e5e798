package spec

import (
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/examples"
)

func TestSetCache(t *testing.T) {
	c := &Cache{Mode: "write-back", Bypass: MiB, SSDs: []DiskList{{Serial: "S1", Size: 400 * GB, Type: "nvme"}, {Serial: "S2", Size: 400 * GB, Type: "nvme", Server: "nfs1"}}}
	block := "cache:\n  ssds:\n    - {serial: \"S1\", size: 400GB, type: nvme}\n    - {serial: \"S2\", size: 400GB, type: nvme, server: nfs1}\n  mode: write-back\n  sequential_bypass: 1MiB\n"
	for _, x := range []struct{ name, src, want, off string }{
		{"in the middle", "name: a\ncache:\n  ssds: [{serial: X}] # old\n\n  mode: write-through\n\n# what follows\nnfs: {}\n", "name: a\n" + block + "\n# what follows\nnfs: {}\n", "name: a\n\n# what follows\nnfs: {}\n"},
		{"on one line", "cache: {ssds: [{serial: X}]}\nnfs: {}\n", block + "nfs: {}\n", "nfs: {}\n"},
		{"at the end", "nfs: {}\ncache:\n  mode: write-back", "nfs: {}\n" + block, "nfs: {}\n"},
		{"none yet", "nfs: {}", "nfs: {}\n\n" + block, "nfs: {}"},
	} {
		got := SetCache([]byte(x.src), c)
		if string(got) != x.want {
			t.Errorf("%s:\n%s", x.name, got)
		}
		if got = SetCache([]byte(x.src), nil); string(got) != x.off {
			t.Errorf("%s, off:\n%s", x.name, got)
		}
		again := SetCache([]byte(x.want), c)
		if string(again) != x.want {
			t.Errorf("%s: not the same the second time\n%s", x.name, again)
		}
	}
	if l, err := (&Cache{SSDs: []DiskList{{Serial: "S[1-3]", Size: GB}}}).Single(); err != nil || len(l) != 3 || l[0].Serial != "S1" || l[2].Serial != "S3" {
		t.Errorf("%v, %v", l, err)
	}
}

// A change of the cache that a rule of the spec or of the cache forbids leaves
// everything as it was.
func TestChangeCache(t *testing.T) {
	src, err := examples.FS.ReadFile("nfs-ha.yaml")
	if err != nil {
		t.Fatal(err)
	}
	src = append(src, "\ncache:\n  ssds: [{serial: S1, size: 1.6TB, type: nvme}, {serial: S2, size: 1.6TB, type: nvme}]\n  mode: write-back\n"...)
	s, err := Parse("x.yaml", src)
	if err != nil {
		t.Fatal(err)
	}
	size, _ := ParseBytes("1.6TB")
	like := DiskList{Size: size, Type: "nvme"}
	for name, tc := range map[string]struct {
		change func(*Cache) (*Cache, error)
		want   []string // the SSDs afterwards
		say    string
	}{
		"add":                   {func(c *Cache) (*Cache, error) { return c, c.Add(like, "S3", "S4") }, []string{"S1", "S2", "S3", "S4"}, ""},
		"add one that is there": {func(c *Cache) (*Cache, error) { return c, c.Add(like, "s2") }, nil, "s2"},
		"add it twice":          {func(c *Cache) (*Cache, error) { return c, c.Add(like, "S3", "S3") }, nil, "S3"},
		"remove": {func(c *Cache) (*Cache, error) {
			c.Mode = "write-through"
			return c, c.Remove("s1")
		}, []string{"S2"}, ""},
		"remove a stranger":          {func(c *Cache) (*Cache, error) { return c, c.Remove("S9") }, nil, "S9"},
		"remove all":                 {func(c *Cache) (*Cache, error) { return c, c.Remove("S1", "S2") }, nil, "mortar cache off"},
		"remove one of a write-back": {func(c *Cache) (*Cache, error) { return c, c.Remove("S1") }, nil, " x.yaml:"},
		"a mode that there is not":   {func(c *Cache) (*Cache, error) { c.Mode = "write-around"; return c, nil }, nil, " x.yaml:"},
		"off":                        {func(*Cache) (*Cache, error) { return nil, nil }, nil, ""},
	} {
		next, want, err := s.ChangeCache(tc.change)
		if tc.say == "" && err != nil || tc.say != "" && (err == nil || !strings.Contains(err.Error(), tc.say)) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if len(s.Cache.SSDs) != 2 || s.Cache.Mode != "write-back" || string(s.Source) != string(src) {
			t.Fatalf("%s: the spec was changed", name)
		}
		if err != nil {
			continue
		}
		var got []string
		if want != nil {
			for _, l := range next.Cache.SSDs {
				got = append(got, l.Serial)
			}
		}
		if (next.Cache == nil) != (want == nil) || strings.Join(got, " ") != strings.Join(tc.want, " ") {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

// A brick without a cache gets one from its first SSDs on, with the keys' defaults, and refuses
// what a cache refuses. The command that gives it back after a time without it is one line.
func TestFirstCache(t *testing.T) {
	src, err := examples.FS.ReadFile("nfs-ha.yaml")
	if err != nil {
		t.Fatal(err)
	}
	s, err := Parse("x.yaml", src)
	if err != nil {
		t.Fatal(err)
	}
	add := func(mode string, serials ...string) (*Spec, *Cache, error) {
		return s.ChangeCache(func(c *Cache) (*Cache, error) {
			if mode != "" {
				c.Mode = mode
			}
			return c, c.Add(DiskList{Size: 1600 * GB, Type: "nvme"}, serials...)
		})
	}
	next, want, err := add("", "S1")
	if err != nil || next.Cache == nil || next.Cache.Mode != "write-through" || next.Cache.Bypass != MiB || len(want.SSDs) != 1 || s.Cache != nil {
		t.Fatalf("%+v, %v", want, err)
	}
	if !strings.HasPrefix(string(next.Source), string(src)) {
		t.Error("other lines of the spec changed")
	}
	if _, want, err = add("write-back", "S1", "S2"); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(want.AddArgs(), " "); got != "S1 S2 --size 1600GB --type nvme --mode write-back" {
		t.Errorf("%q", got)
	}
	want.SSDs[1].Size = 800 * GB
	if got := want.AddArgs(); got != nil {
		t.Errorf("two sizes: %q", got)
	}
	for _, mode := range []string{"write-back", "write-around"} {
		if _, _, err := add(mode, "S1"); err == nil {
			t.Errorf("%s with one SSD is taken", mode)
		}
	}
	if _, _, err := s.ChangeCache(func(c *Cache) (*Cache, error) { return c, c.Remove("S1") }); err == nil {
		t.Error(err)
	}
}

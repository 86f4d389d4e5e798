package design

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/mortarhpc/mortar/examples"
	"github.com/mortarhpc/mortar/internal/brick/spec"
)

var update = flag.Bool("update", false, "rewrite golden files")

func example(t *testing.T, name string) *Design {
	t.Helper()
	src, err := fs.ReadFile(examples.FS, name+".yaml")
	if err != nil {
		t.Fatal(err)
	}
	return build(t, string(src))
}

func build(t *testing.T, src string) *Design {
	t.Helper()
	s, err := spec.Parse("brick.yaml", []byte(src))
	if err != nil {
		t.Fatalf("%v\n%s", err, src)
	}
	d, err := Derive(s) // New would refuse flavours that can be designed but not built yet
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// brick is the hardware of a table's row.
type brick struct {
	name       string
	enclosures []int // disks in each
	size       string
	raid       string
	services   int // 1 if 0
	memory     string
}

func (b brick) yaml() string {
	var s strings.Builder
	flavour := "nfs-ha"
	services := max(1, b.services)
	if services == 2 {
		flavour = "nfs-ha-xl"
	}
	memory := "256GiB"
	if b.memory != "" {
		memory = b.memory
	}
	fmt.Fprintf(&s, "apiVersion: mortar/v1\nflavour: %s\nname: t\nnetworks:\n  public: {cidr: 10.1.0.0/16, speed: 100Gb/s}\n  private: {cidr: 10.2.0.0/24}\n  management: {cidr: 10.3.0.0/24}\nservers:\n", flavour)
	for i := 1; i <= 2; i++ {
		fmt.Fprintf(&s, "  - {name: s%d, address: 10.3.0.1%d, public: 10.1.0.1%d, private: 10.2.0.1%d, memory: %s, bmc: {address: 10.3.0.2%d, user: u, password_file: f}, outlets: [{pdu: a, outlet: %d}, {pdu: b, outlet: %d}]}\n", i, i, i, i, memory, i, i, i)
	}
	s.WriteString("pdus:\n  - {name: a, address: 10.3.0.31, feed: A, community_file: f}\n  - {name: b, address: 10.3.0.32, feed: B, community_file: f}\nenclosures:\n")
	for i, n := range b.enclosures {
		fmt.Fprintf(&s, "  - {name: E%d, service: v%d, disks: [{serial: 'D%dX[001-%03d]', size: %s}]}\n", i+1, i*services/len(b.enclosures)+1, i+1, n, b.size)
	}
	fmt.Fprintf(&s, "storage: {raid: %s}\nservices:\n", b.raid)
	for i := 1; i <= services; i++ {
		fmt.Fprintf(&s, "  - {name: v%d, address: 10.1.0.10%d, exports: [{clients: 10.1.0.0/16}]}\n", i, i)
	}
	return s.String()
}

// The systems of the source papers: their geometry and the capacity each was
// published with. The papers write TB for the usable capacity but count in
// powers of two: 40 x 3 TB are 120 TB or 109 TiB.
// Source: FACTS, "Storage layouts and the capacity each yields".
var published = []struct {
	brick
	groups, perEnclosure int        // most disks of a group in one enclosure
	raw                  spec.Bytes // as published, TB
	usableTiB            float64
	spreadWarning        bool
}{
	{brick{name: "NSS4-HA, 48 disks", enclosures: []int{12, 12, 12, 12}, size: "3TB", raid: "{level: 6, data: 10, chunk: 512KiB}"}, 4, 3, 144 * spec.TB, 109, true},
	{brick{name: "NSS4-HA, 96 disks", enclosures: []int{12, 12, 12, 12, 12, 12, 12, 12}, size: "3TB", raid: "{level: 6, data: 10, chunk: 512KiB}"}, 8, 2, 288 * spec.TB, 218, false},
	{brick{name: "NSS5.5", enclosures: []int{12, 12, 12, 12}, size: "3TB", raid: "{level: 60, data: 10, chunk: 512KiB}"}, 4, 3, 144 * spec.TB, 109, true},
	{brick{name: "NSS7.4-HA", enclosures: []int{84}, size: "12TB", raid: "{level: 6, data: 8, spares: 4, chunk: 128KiB}"}, 8, 10, 1008 * spec.TB, 698, true},
	{brick{name: "Lustre HA-OSS", enclosures: []int{12, 12, 12, 12, 12}, size: "2TB", raid: "{level: 6, data: 8, chunk: 128KiB}"}, 6, 2, 120 * spec.TB, 87, false},
	{brick{name: "Lustre HA-MDS", enclosures: []int{24}, size: "136GB", raid: "{level: 10, data: 12, chunk: 64KiB}"}, 1, 24, 3264 * spec.GB, 1.48, true},
	{brick{name: "NSS-HA XL", enclosures: []int{12, 12, 12, 12, 12, 12, 12, 12}, size: "3TB", raid: "{level: 6, data: 10, chunk: 512KiB}", services: 2}, 8, 3, 288 * spec.TB, 218, true},
}

func TestPublishedSystems(t *testing.T) {
	for _, c := range published {
		t.Run(c.name, func(t *testing.T) {
			d := build(t, c.yaml())
			if len(d.Groups) != c.groups {
				t.Errorf("%d groups, want %d", len(d.Groups), c.groups)
			}
			if d.Capacity.Raw != c.raw {
				t.Errorf("raw %s, want %s", d.Capacity.Raw, c.raw)
			}
			tib := float64(d.Capacity.RAID) / float64(spec.TiB)
			if tib < c.usableTiB || tib > c.usableTiB+1 {
				t.Errorf("RAID %.1f TiB, published %.1f", tib, c.usableTiB)
			}
			// Metadata of md, LVM and XFS takes little, but takes something.
			if d.Capacity.Usable >= d.Capacity.RAID || float64(d.Capacity.Usable) < 0.995*float64(d.Capacity.RAID) {
				t.Errorf("usable %s of %s", d.Capacity.Usable.Binary(), d.Capacity.RAID.Binary())
			}
			worst := 0
			for _, g := range d.Groups {
				n, _ := worstEnclosure(g)
				worst = max(worst, n)
			}
			if worst != c.perEnclosure {
				t.Errorf("up to %d disks of a group in an enclosure, want %d", worst, c.perEnclosure)
			}
			warned := false
			for _, w := range d.Warnings {
				if w.Rule == "enclosure-spread" {
					warned = true
					if w.Line == 0 {
						t.Error("warning without line")
					}
				}
			}
			if warned != c.spreadWarning {
				t.Errorf("spread warning %v, want %v", warned, c.spreadWarning)
			}
		})
	}
}

// Whatever the hardware: every disk has exactly one place, groups have their
// width, and no enclosure holds more of a group than it must.
func TestLayoutInvariants(t *testing.T) {
	for _, b := range []brick{
		{name: "uneven", enclosures: []int{7, 5, 12}, size: "4TB", raid: "{level: 6, data: 4}"},
		{name: "uneven with spares", enclosures: []int{14, 5, 4}, size: "4TB", raid: "{level: 6, data: 4, spares: 5}"},
		{name: "one group, six enclosures", enclosures: []int{2, 2, 2, 2, 2, 2}, size: "4TB", raid: "{level: 6, data: 9, spares: 1}"},
		{name: "mirrors", enclosures: []int{6, 6}, size: "4TB", raid: "{level: 10, data: 2}"},
		{name: "mirrors over three", enclosures: []int{4, 4, 4}, size: "4TB", raid: "{level: 10, data: 3}"},
		{name: "mirrors, uneven", enclosures: []int{2, 6}, size: "4TB", raid: "{level: 10, data: 4}"},
		{name: "two services", enclosures: []int{6, 6, 6, 6}, size: "4TB", raid: "{level: 6, data: 2, spares: 8}", services: 2},
	} {
		t.Run(b.name, func(t *testing.T) {
			d := build(t, b.yaml())
			r := d.Spec.Storage.RAID
			seen := map[string]int{}
			spares := 0
			for _, g := range d.Groups {
				if len(g.Members) != r.Width() {
					t.Errorf("group %s has %d members", g.Name, len(g.Members))
				}
				count := map[string]int{}
				for _, m := range g.Members {
					seen[m.Serial]++
					count[m.Enclosure]++
					if m.Service != g.Service || m.Group != g.Name {
						t.Errorf("%+v in group %s of service %s", m, g.Name, g.Service)
					}
				}
				for _, m := range g.Spares {
					seen[m.Serial]++
					spares++
					if m.Service != g.Service || !m.Spare {
						t.Errorf("spare %+v of %s", m, g.Name)
					}
				}
			}
			if spares != r.Spares || len(seen) != len(d.Disks) {
				t.Errorf("%d spares, %d of %d disks placed", spares, len(seen), len(d.Disks))
			}
			for serial, n := range seen {
				if n != 1 {
					t.Errorf("disk %s has %d places", serial, n)
				}
			}
			for _, sv := range d.Services() {
				groups := d.GroupsOf(sv.Name)
				in := map[string]int{}
				for _, g := range groups {
					for _, m := range g.Members {
						in[m.Enclosure]++
					}
				}
				for _, g := range groups {
					count := map[string]int{}
					for _, m := range g.Members {
						count[m.Enclosure]++
					}
					for e, n := range in {
						if most := (n + len(groups) - 1) / len(groups); count[e] > most {
							t.Errorf("group %s has %d disks in %s, %d would do", g.Name, count[e], e, most)
						}
					}
				}
			}
		})
	}
}

func TestMirrorsSurviveEnclosure(t *testing.T) {
	for _, n := range [][]int{{6, 6}, {4, 4, 4}} {
		d := build(t, brick{enclosures: n, size: "4TB", raid: fmt.Sprintf("{level: 10, data: %d}", n[0]/2)}.yaml())
		for _, g := range d.Groups {
			if !SurvivesEnclosure(g) {
				t.Errorf("%v: group %s: mirrors in one enclosure", n, g.Name)
			}
		}
	}
}

// LVM takes powers of two; XFS is told the whole geometry either way.
func TestAlignment(t *testing.T) {
	for _, c := range []struct {
		raid   string
		disks  int
		stripe spec.Bytes
		sw     int
		mkfs   string
	}{
		{"{level: 6, data: 8, chunk: 128KiB}", 20, spec.MiB, 16, "su=128k,sw=16"},
		{"{level: 6, data: 10, chunk: 512KiB}", 48, 512 * spec.KiB, 40, "su=512k,sw=40"}, // the papers' own: FACTS, "Server tuning"
		{"{level: 6, data: 8, chunk: 1MiB}", 20, spec.MiB, 16, "su=1024k,sw=16"},         // a full stripe is larger than an extent
		{"{level: 6, data: 2, chunk: 16MiB}", 8, 4 * spec.MiB, 4, "su=16384k,sw=4"},
	} {
		d := build(t, brick{enclosures: []int{c.disks}, size: "3TB", raid: c.raid}.yaml())
		v := d.Services()[0]
		if v.Storage.StripeSize != c.stripe || v.SW != c.sw || !slices.Contains(v.MkfsArgs, c.mkfs) {
			t.Errorf("%s: stripe %s, sw %d, %v", c.raid, v.Storage.StripeSize, v.SW, v.MkfsArgs)
		}
	}
}

// Source: mdadm, super1.c: the room kept before the data, by hand.
func TestMdData(t *testing.T) {
	for _, c := range []struct {
		size, chunk, offset spec.Bytes
	}{
		{2 * spec.GB, 128 * spec.KiB, 2 * spec.MiB},     // small: little room kept
		{12 * spec.TB, 128 * spec.KiB, 129 * spec.MiB},  // 128 MiB, superblock and bitmap, rounded up to 1 MiB
		{600 * spec.GB, 512 * spec.KiB, 129 * spec.MiB}, // from 128 GiB on
	} {
		got := mdData(c.size, c.chunk)
		want := (c.size - c.offset) / c.chunk * c.chunk
		if got != want {
			t.Errorf("%s: offset about %s, want %s", c.size, c.size-got, c.offset)
		}
	}
}

func TestPure(t *testing.T) {
	a, b := example(t, "nfs-ha"), example(t, "nfs-ha")
	if diff := cmp.Diff(a, b, cmpopts.IgnoreUnexported(spec.Spec{}, spec.Client{})); diff != "" {
		t.Error(diff)
	}
}

// Identities are on disks in the field: they may never change.
func TestIdentities(t *testing.T) {
	d := example(t, "nfs-ha")
	for _, c := range []struct{ got, want string }{
		{d.Groups[0].UUID, "61895a1c:8ef95281:b729df68:2a2baed2"},
		{d.Services()[0].FSUUID, "5e9da5af-8b07-5329-983e-010a1d100d11"},
		{d.Services()[0].Exports[0].FSID, "0f0e99a0-20e8-50ea-b2eb-32dd0fa1fd59"},
		{d.Services()[0].Storage.VG, "brick1_home"},
		{d.Services()[0].Storage.SystemID, "mortar-brick1"},
	} {
		if c.got != c.want {
			t.Errorf("%s, want %s", c.got, c.want)
		}
	}
}

func TestFencing(t *testing.T) {
	d := example(t, "nfs-ha")
	var got []string
	for _, l := range d.Pairs[0].HA.Fencing {
		for _, f := range l.Devices {
			got = append(got, fmt.Sprintf("%s %d %s %s", l.Node, l.Level, f.ID, f.Params["pcmk_host_map"]+f.Params["pcmk_host_list"]))
		}
	}
	want := []string{
		"nfs1 1 fence-nfs1-bmc nfs1", "nfs1 2 fence-pdu-a nfs1:1;nfs2:2", "nfs1 2 fence-pdu-b nfs1:1;nfs2:2",
		"nfs2 1 fence-nfs2-bmc nfs2", "nfs2 2 fence-pdu-a nfs1:1;nfs2:2", "nfs2 2 fence-pdu-b nfs1:1;nfs2:2",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestClientMounts(t *testing.T) {
	d := example(t, "nfs-ha")
	if len(d.Mounts) != 2 || d.Mounts[0].Path != "/mnt/home" || d.Mounts[0].Version != "4.1" ||
		d.Mounts[1].Path != "/mnt/home-v3" || d.Mounts[1].Version != "3" || d.Mounts[0].Source != "10.77.1.100:/srv/home/data" {
		t.Errorf("%+v", d.Mounts)
	}
	for _, m := range d.Mounts {
		if !slices.Contains(m.Options, "hard") {
			t.Errorf("not hard: %v", m.Options)
		}
	}
	s := d.Spec
	if got := nfsMountOptions(s, spec.Mount{Version: "4.1", Options: []string{"timeo=600", "ro"}}); strings.Count(strings.Join(got, ","), "timeo") != 1 {
		t.Errorf("timeo twice: %v", got)
	}
}

// Over RDMA: the servers' transport is the default of mounts, and any of them may
// go over TCP. Bricks on which it could not be tried are refused.
func TestRDMA(t *testing.T) {
	rdma := func(src string) string { return src + "nfs: {transport: rdma}\n" }
	d := build(t, rdma(published[0].yaml()))
	if v := d.Value("nfsd", "rdma"); v != "20049" {
		t.Errorf("port %q", v)
	}
	for want, m := range map[string]spec.Mount{
		"vers=4.1,proto=rdma,port=20049,hard":              {Version: "4.1"},
		"vers=3,proto=rdma,port=20049,mountproto=tcp,hard": {Version: "3"},
		"vers=4.1,proto=tcp,hard":                          {Version: "4.1", Transport: "tcp"},
	} {
		got := strings.Join(nfsMountOptions(d.Spec, m), ",")
		if !strings.HasPrefix(got, want) || strings.Contains(got, "rdma") == strings.Contains(got, "nconnect") {
			t.Errorf("%+v: %s", m, got)
		}
	}
	for why, src := range map[string]string{
		"two services":  rdma(published[6].yaml()),
		"profile stock": "profile: stock\n" + rdma(published[0].yaml()),
	} {
		s, err := spec.Parse("brick.yaml", []byte(src))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := New(s); !refusedAt(s, err, "nfs.transport") {
			t.Errorf("%s: %v", why, err)
		}
	}
}

// refusedAt says whether err refuses the value of that key of the spec.
func refusedAt(s *spec.Spec, err error, key string) bool {
	line, col := s.Pos(key)
	var errs spec.Errors
	return errors.As(err, &errs) && len(errs) == 1 && errs[0].Line == line && errs[0].Col == col
}

// A value has a reason and a source, and is there once.
func TestSettings(t *testing.T) {
	for _, d := range []*Design{example(t, "nfs-ha"), example(t, "nfs"), build(t, published[0].yaml())} {
		seen := map[string]bool{}
		for _, s := range d.Settings {
			if s.Value == "" || s.Reason == "" || s.Source == "" || s.Role == "" {
				t.Errorf("incomplete: %+v", s)
			}
			if k := s.Role + s.Kind + s.Name; seen[k] {
				t.Errorf("twice: %s %s", s.Kind, s.Name)
			} else {
				seen[k] = true
			}
		}
	}
}

// Each server caches its own reads: SSDs inside two servers
// do not add up.
func TestCacheInsideServers(t *testing.T) {
	for _, c := range []struct {
		ssds, mode  string
		clean       spec.Bytes
		mirror, two spec.Bytes
	}{
		{"{serial: S1, size: 400GB}, {serial: S2, size: 800GB}", "write-through", 1200 * spec.GB, 0, 0},
		{"{serial: S1, size: 400GB, server: nfs1}, {serial: S2, size: 800GB, server: nfs2}", "write-through", 400 * spec.GB, 0, 0},
		{"{serial: S1, size: 400GB, server: nfs1}", "write-through", 400 * spec.GB, 0, 0},
		{"{serial: S1, size: 400GiB}, {serial: S2, size: 400GiB}", "write-back", 600 * spec.GiB, 100 * spec.GiB, 100 * spec.GiB},
	} {
		src, err := fs.ReadFile(examples.FS, "nfs-ha.yaml")
		if err != nil {
			t.Fatal(err)
		}
		s, err := spec.Parse("x.yaml", append(src, "\ncache: {ssds: ["+c.ssds+"], mode: "+c.mode+"}\n"...))
		if err != nil {
			t.Fatal(err)
		}
		d, err := New(s)
		if err != nil {
			t.Fatal(err)
		}
		if k := d.Cached().Storage.Cache; k.Clean != c.clean || k.Mirror != c.mirror || k.Dirty != c.two {
			t.Errorf("%s: clean %s, mirror %s, dirty %s", c.ssds, k.Clean, k.Mirror, k.Dirty)
		}
	}
}

// The stripe cache takes its share of memory, and no more.
func TestStripeCache(t *testing.T) {
	for _, c := range []struct {
		memory string
		want   string
	}{{"1280MiB", "256"}, {"16GiB", "1024"}, {"256GiB", "16384"}} {
		d := build(t, brick{enclosures: []int{12, 12, 12, 12}, size: "3TB", raid: "{level: 6, data: 10}", memory: c.memory}.yaml())
		if got := d.Value("md", "stripe_cache_size"); got != c.want {
			t.Errorf("%s: %s, want %s", c.memory, got, c.want)
		}
	}
}

func TestShow(t *testing.T) {
	for _, c := range []struct {
		file string
		d    *Design
		o    ShowOptions
	}{
		{"nfs-ha", example(t, "nfs-ha"), ShowOptions{}},
		{"nfs-ha-explain", example(t, "nfs-ha"), ShowOptions{Explain: true, Width: 120}},
		{"stock-explain", stockExample(t), ShowOptions{Explain: true, Width: 120}},
		{"nfs", example(t, "nfs"), ShowOptions{}},
		{"nfs-colour", example(t, "nfs"), ShowOptions{Paint: func(code, s string) string { return "\x1b[" + code + "m" + s + "\x1b[0m" }}},
		{"nss4-ha", build(t, published[0].yaml()), ShowOptions{}},
		{"nss7.4-ha", build(t, published[3].yaml()), ShowOptions{}},
		{"nss-ha-xl", build(t, published[6].yaml()), ShowOptions{}},
		{"example-nss5.5", example(t, "nss5.5"), ShowOptions{}},
		{"example-nfs-dfc-explain", example(t, "nfs-dfc"), ShowOptions{Explain: true, Width: 120}},
		{"example-nss7.4-ha", example(t, "nss7.4-ha"), ShowOptions{}},
		{"example-nss-ha-xl", example(t, "nss-ha-xl"), ShowOptions{}},
		{"example-lustre-brick-explain", example(t, "lustre-brick"), ShowOptions{Explain: true, Width: 120}},
		{"example-lustre-small", example(t, "lustre-small"), ShowOptions{}},
	} {
		var b bytes.Buffer
		if err := Show(&b, c.d, c.o); err != nil {
			t.Fatal(err)
		}
		file := "testdata/" + c.file + ".txt"
		if *update {
			if err := os.MkdirAll("testdata", 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), b.String()); diff != "" {
			t.Errorf("%s (-want +got), -update rewrites it:\n%s", file, diff)
		}
	}
}

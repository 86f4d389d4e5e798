package design

import (
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mortarhpc/mortar/examples"
	"github.com/mortarhpc/mortar/internal/brick/spec"
)

// deserved are the warnings of each example, and no others.
var deserved = map[string][]string{
	"nfs":          nil,
	"nfs-ha-xl":    nil,
	"nfs-ha":       nil,
	"nvme-ha":      {"reservations"},
	"lustre-small": nil,
	"jbod-ha":      {"enclosure-spread", "no-spare"},
	"nss2-ha":      {"enclosure-spread", "no-spare"},
	"nss3-ha":      {"no-spare"},
	"nss4-ha-144":  {"enclosure-spread", "no-spare"},
	"nss4-ha-288":  {"no-spare"},
	"nss-ha-xl":    {"no-spare"},
	"nss5.5":       {"enclosure-spread", "no-spare", "pcie"},
	"nfs-dfc":      {"enclosure-spread", "no-spare", "obsolete", "obsolete", "allocsize"},
	"nss7.3-ha":    {"enclosure-spread"},
	"nss7.4-ha":    {"enclosure-spread"},
	"lustre-brick": {"enclosure-spread", "no-spare", "no-spare"},
	"lustre-rack":  {"enclosure-spread", "no-spare", "no-spare", "no-spare", "no-spare"},
}

func TestExampleWarnings(t *testing.T) {
	files, err := fs.Glob(examples.FS, "*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		name := strings.TrimSuffix(f, ".yaml")
		want, known := deserved[name]
		if !known {
			t.Errorf("%s: which warnings does it deserve?", f)
			continue
		}
		var got []string
		for _, w := range example(t, name).Warnings {
			got = append(got, w.Rule)
			if w.Line == 0 {
				t.Errorf("%s: %s has no line", f, w.Rule)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", f, diff)
		}
	}
}

// The capacity each system was published with, and what its own geometry
// gives, to the byte. Raw and data count disks as sold; luns is what hosts
// see. In a figure that was published "in TB" and counted in powers of two,
// the unit here is TiB.
func TestPublishedCapacities(t *testing.T) {
	const tb, tib = spec.TB, spec.TiB
	for _, c := range []struct {
		name      string
		raw, data spec.Bytes // as sold
		luns      spec.Bytes // 0: JBOD, or not published
		published string
		holds     func(d *Design) bool // the published figure follows
	}{
		{"nss2-ha", 96 * tb, 80 * tb, 0, "96 TB raw", func(d *Design) bool { return d.Capacity.Raw == 96*tb }},
		{"nss3-ha", 288 * tb, 240 * tb, 0, "218 TB usable", whole(218, tib)},
		{"nss4-ha-144", 144 * tb, 120 * tb, 0, "109 TB usable", whole(109, tib)},
		{"nss4-ha-288", 288 * tb, 240 * tb, 0, "218 TB usable", whole(218, tib)},
		{"nss-ha-xl", 576 * tb, 480 * tb, 0, "2 x 288 TB raw", func(d *Design) bool { return d.Capacity.Raw == 2*288*tb }},
		// df -h rounds up: 109.1 TiB are shown as 110T.
		{"nss5.5", 144 * tb, 120 * tb, 120_001_386_250_240, "110 TB usable", func(d *Design) bool { return (d.Capacity.Usable+tib-1)/tib == 110 }},
		{"nfs-dfc", 144 * tb, 120 * tb, 120_001_386_250_240, "111,760 GB (omreport)", func(d *Design) bool { return d.Capacity.LUNs == 111_760*spec.GiB }},
		{"nss7.4-ha", 1008 * tb, 768 * tb, 0, "1008 TB raw", func(d *Design) bool { return d.Capacity.Raw == 1008*tb }},
		{"nss7.3-ha", 1008 * tb, 768 * tb, 0, "1008 TB raw", func(d *Design) bool { return d.Capacity.Raw == 1008*tb }},
		{"lustre-brick", 120 * tb, 96 * tb, 0, "87 TB usable", whole(87, tib)},
		{"lustre-rack", 360 * tb, 288 * tb, 0, "", nil},
		{"jbod-ha", 144 * tb, 120 * tb, 0, "109 TB usable", whole(109, tib)},
	} {
		d := example(t, c.name)
		if d.Capacity.Raw != c.raw || d.Capacity.RAID != c.data {
			t.Errorf("%s: raw %s, data %s; want %s, %s", c.name, d.Capacity.Raw, d.Capacity.RAID, c.raw, c.data)
		}
		if c.luns != 0 && d.Capacity.LUNs != c.luns {
			t.Errorf("%s: LUNs of %d bytes, want %d", c.name, d.Capacity.LUNs, c.luns)
		}
		if c.holds != nil && !c.holds(d) {
			t.Errorf("%s: %s does not follow: %+v", c.name, c.published, d.Capacity)
		}
	}
}

// whole: the data capacity, in whole units, is n.
func whole(n, unit spec.Bytes) func(*Design) bool {
	return func(d *Design) bool { return d.Capacity.RAID/unit == n && d.Capacity.Usable/unit == n }
}

// Figures of the Lustre paper: the MDS', and two that do not follow from its
// own geometry.
func TestLustreFigures(t *testing.T) {
	d := example(t, "lustre-brick")
	mds := d.Capacity.Sets[0]
	// 3.2 TB raw and 1.6 TB usable, decimal and cut off.
	if mds.Raw != 3264*spec.GB || mds.RAID != 1632*spec.GB {
		t.Errorf("MDS %+v", mds)
	}
	// 108.75 TB raw: 60 disks of 2 TB are 120 TB, or 109.14 TiB. The figure is
	// the usable one, cut off to 87, times 10/8.
	if d.Capacity.Raw != 120*spec.TB || float64(d.Capacity.RAID/spec.TiB)*10/8 != 108.75 {
		t.Errorf("raw %s, data %s", d.Capacity.Raw, d.Capacity.RAID)
	}
	// 280 TB for three bricks: neither 288 TB nor 261.9 TiB; three times the
	// brick's 87 would be 261.
	rack := example(t, "lustre-rack")
	if rack.Capacity.RAID != 288*spec.TB || rack.Capacity.RAID/spec.TiB != 261 {
		t.Errorf("rack %s", rack.Capacity.RAID)
	}
	// 420 TB with disks of 3 TB: 280 x 3/2. By geometry 432 TB, 392.9 TiB.
	if got := rack.Capacity.RAID * 3 / 2; got != 432*spec.TB || got/spec.TiB != 392 {
		t.Errorf("rack of 3 TB disks %s", got)
	}
}

// The Lustre brick: each group over all five enclosures with at most two
// disks in each; the numbers of the paper in mkfs; half of the OSTs on each
// server; either server can mount each target.
func TestLustreBrick(t *testing.T) {
	d := example(t, "lustre-brick")
	if n := len(d.GroupsOf("oss1")); n != 6 {
		t.Fatalf("%d groups", n)
	}
	for _, g := range d.GroupsOf("oss1") {
		in := map[string]int{}
		for _, m := range g.Members {
			in[m.Enclosure]++
		}
		if len(in) != 5 {
			t.Errorf("%s is in %d enclosures", g.Name, len(in))
		}
		for e, n := range in {
			if n > 2 {
				t.Errorf("%s has %d disks in %s", g.Name, n, e)
			}
		}
	}
	var kinds, osts []string
	per := map[string]int{}
	for _, x := range d.Targets() {
		kinds = append(kinds, x.Kind)
		args := strings.Join(x.MkfsArgs, " ")
		if strings.Count(args, "--servicenode=") != 2 {
			t.Errorf("%s: %s", x.Name, args)
		}
		switch x.Kind {
		case "mdt":
			if !strings.Contains(args, "stride=16,stripe-width=64") || !strings.Contains(args, "--index=0") {
				t.Errorf("MDT: %s", args)
			}
		case "ost":
			osts = append(osts, x.Name)
			per[x.Server]++
			if !strings.Contains(args, "stride=32,stripe-width=256") {
				t.Errorf("OST: %s", args)
			}
		}
	}
	if !slices.Equal(kinds[:2], []string{"mgs", "mdt"}) || len(osts) != 6 || per["oss01"] != 3 || per["oss02"] != 3 {
		t.Errorf("%v %v %v", kinds, osts, per)
	}
	// The MGS is at home beside the MDT, not with it.
	if want := "10.20.0.12@o2ib:10.20.0.11@o2ib:/testfs"; d.Lustre.Source != want {
		t.Errorf("source %s, want %s", d.Lustre.Source, want)
	}
	if d.Lustre.LNET != "o2ib(ib0)" {
		t.Errorf("lnet %s", d.Lustre.LNET)
	}
	for _, m := range d.Pairs {
		if len(m.HA.Nodes) != 2 || len(m.HA.Fencing) != 4 {
			t.Errorf("%s: %+v", m.Name, m.HA)
		}
	}
}

// A LUN of an array belongs to one of its two controllers; each server of an
// OSS has LUNs of both.
func TestLUNs(t *testing.T) {
	d := example(t, "lustre-brick")
	seen := map[string]map[int]int{}
	numbers := map[string]map[int]bool{}
	for _, l := range d.LUNs() {
		if l.Use == "ost" {
			if seen[l.Server] == nil {
				seen[l.Server] = map[int]int{}
			}
			seen[l.Server][l.Controller]++
		}
		if numbers[l.Array] == nil {
			numbers[l.Array] = map[int]bool{}
		}
		if numbers[l.Array][l.Number] {
			t.Errorf("LUN %d of %s twice", l.Number, l.Array)
		}
		numbers[l.Array][l.Number] = true
	}
	for s, c := range seen {
		if c[0] == 0 || c[1] == 0 {
			t.Errorf("%s uses one controller: %v", s, c)
		}
	}
	// RAID 60: one LUN for each controller, over all its spans.
	nss := example(t, "nss5.5")
	if len(nss.LUNs()) != 2 || len(nss.LUNs()[0].Groups) != 2 || nss.Services()[0].SW != 40 || nss.Services()[0].SU != 512*spec.KiB {
		t.Errorf("%+v", nss.LUNs())
	}
	// Global spares are no group's.
	me := example(t, "nss7.4-ha")
	if len(me.Arrays[0].Spares) != 4 || len(me.LUNs()) != 8 {
		t.Errorf("%+v", me.Arrays[0])
	}
	for _, g := range me.Groups {
		if len(g.Spares) != 0 {
			t.Errorf("%s has spares of its own", g.Name)
		}
	}
}

func TestObsolete(t *testing.T) {
	d := example(t, "nfs-dfc")
	opts := d.Services()[0].MountOpts
	if slices.Contains(opts, "nobarrier") || slices.Contains(opts, "attr2") || !slices.Contains(opts, "inode64") {
		t.Errorf("mounted with %s", opts)
	}
	if all := strings.Join(opts, ","); strings.Count(all, "logbsize") != 1 || strings.Count(all, "noatime") != 1 {
		t.Errorf("mounted with %s", opts)
	}
	for _, c := range []struct {
		in, out string
		old     bool
	}{
		{"testfs.osc.max_dirty_mb=256", "osc.testfs-*.max_dirty_mb=256", true},
		{"testfs-OST0003.osc.active=0", "osc.testfs-OST0003-*.active=0", true},
		{"testfs.sys.timeout=40", "timeout=40", true},
		{"osc.*.max_dirty_mb=256", "osc.*.max_dirty_mb=256", false},
	} {
		if got, old := modernParam(c.in); got != c.out || old != c.old {
			t.Errorf("%s: %s %v", c.in, got, old)
		}
	}
	for _, name := range []string{"nfs", "nfs-ha"} {
		if n := len(example(t, name).Translations); n != 0 {
			t.Errorf("%s has %d translations", name, n)
		}
	}
	said := ""
	for _, x := range example(t, "lustre-brick").Translations {
		said += x.Old + " → " + x.New + "\n"
	}
	for _, w := range []string{"elevator=", "conf_param", "Heartbeat v1", "--servicenode", "lfs migrate", "lfsck_start"} {
		if !strings.Contains(said, w) {
			t.Errorf("%s is not translated", w)
		}
	}
}

// Every example can be built.
func TestBuildable(t *testing.T) {
	files, err := fs.Glob(examples.FS, "*.yaml")
	if err != nil || len(files) < 17 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		if _, err := New(example(t, strings.TrimSuffix(f, ".yaml")).Spec); err != nil {
			t.Errorf("%s: %v", f, err)
		}
	}
}

// What LVM or XFS does not take is refused before a host is changed.
func TestTooLarge(t *testing.T) {
	for _, c := range []struct {
		data, groups int
		size, chunk  spec.Bytes
		refused      bool
	}{
		{8, 24, 24 * spec.TB, 128 * spec.KiB, false},
		{8, 100, 20 * spec.TB, 128 * spec.KiB, false}, // 1,008 disks with 8 spares
		{8, 128, 2 * spec.TB, 128 * spec.KiB, false},
		{8, 129, 2 * spec.TB, 128 * spec.KiB, true},
		{8, 100, 100 * spec.TB, 128 * spec.KiB, true},
		{8, 64, 4 * spec.TB, 2 * spec.MiB, false},
		{8, 64, 4 * spec.TB, 4 * spec.MiB, true},
	} {
		d := groups(c.groups, c.data, c.size)
		d.Pairs[0].Services[0].SU, d.Pairs[0].Services[0].SW = c.chunk, c.data*c.groups
		d.Pairs[0].Services[0].Storage.Stripes = c.groups
		if err := Buildable(d); (err != nil) != c.refused || err != nil && !refusedAt(d.Spec, err, "storage.raid") {
			t.Errorf("%d groups of %d+2 disks of %s, chunks of %s: %v", c.groups, c.data, c.size, c.chunk, err)
		}
	}
	// check warns.
	d := example(t, "nvme-ha")
	d.Spec.Cache, d.Spec.Services = &spec.Cache{}, append(d.Spec.Services, d.Spec.Services[0])
	d.Warnings = nil
	builder{d}.warn()
	if !slices.ContainsFunc(d.Warnings, func(w Warning) bool { return w.Rule == "buildable" }) {
		t.Errorf("%+v", d.Warnings)
	}
}

// A layout that the spec rules out is refused with the line that does.
func TestPerEnclosure(t *testing.T) {
	src, err := fs.ReadFile(examples.FS, "lustre-brick.yaml")
	if err != nil {
		t.Fatal(err)
	}
	s, err := spec.Parse("brick.yaml", []byte(strings.Replace(string(src), "per_enclosure: 2", "per_enclosure: 1", 1)))
	if err != nil {
		t.Fatal(err)
	}
	_, err = Derive(s)
	if !refusedAt(s, err, "lustre.modules[1].storage.raid.per_enclosure") {
		t.Error(err)
	}
}

// NSS-HA XL: each service has an array of its own, whose LUNs its own server
// uses, half over either controller; the partner is cabled to it as well.
func TestXL(t *testing.T) {
	d := example(t, "nss-ha-xl")
	at := map[string]string{"array-a": "home nss1", "array-b": "scratch nss2"}
	for _, a := range d.Arrays {
		if !slices.Equal(a.Servers, []string{"nss1", "nss2"}) || len(a.LUNs) != 8 {
			t.Errorf("%+v", a)
		}
		for i, l := range a.LUNs {
			if l.Set+" "+l.Server != at[a.Name] || l.Controller != i%2 {
				t.Errorf("%+v", l)
			}
		}
	}
	for _, v := range d.Services() {
		if len(v.Storage.LUNs) != 8 || v.Name == "home" != (v.Preferred == "nss1") {
			t.Errorf("%+v", v)
		}
	}
	if said := d.Value("nfsd", "interface"); said != "ipoib" {
		t.Errorf("interface %q", said)
	}
}

// Two services on one array: each has its own enclosures, and LUN numbers
// are the array's.
func TestSharedArray(t *testing.T) {
	src, err := fs.ReadFile(examples.FS, "nss-ha-xl.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.NewReplacer("  - {name: array-b, model: MD3200, management: [10.22.0.43, 10.22.0.44]}\n", "", "array: array-b", "array: array-a").Replace(string(src))
	for i := 5; i <= 8; i++ { // eight enclosures are what one array drives
		for _, n := range []string{"A", "B"} {
			name := n + string(rune('0'+i))
			at := strings.Index(text, "  - {name: "+name+",")
			end := at + strings.Index(text[at:], "\n") + 1
			text = text[:at] + text[end:]
		}
	}
	d := build(t, text)
	if len(d.Arrays) != 1 || len(d.LUNs()) != 8 {
		t.Fatalf("%+v", d.Arrays)
	}
	for i, l := range d.LUNs() {
		if l.Number != i || (l.Set == "home") != (i < 4) || (l.Server == "nss1") != (i < 4) {
			t.Errorf("%+v", l)
		}
	}
	for _, v := range d.Services() {
		if len(v.Storage.LUNs) != 4 {
			t.Errorf("%+v", v)
		}
	}
}

// Placement: the papers' own choice is no warning, the other way round is.
func TestCards(t *testing.T) {
	src, err := fs.ReadFile(examples.FS, "nss4-ha-144.yaml")
	if err != nil {
		t.Fatal(err)
	}
	rules := func(old, now string) string {
		text := string(src)
		if old != "" {
			text = strings.ReplaceAll(text, old, now)
		}
		if text == string(src) && old != now {
			t.Fatalf("the example has no %q", old)
		}
		var out []string
		for _, w := range build(t, text).Warnings {
			if w.Rule == "pcie" || w.Rule == "numa" {
				out = append(out, w.Rule)
			}
		}
		return strings.Join(out, " ")
	}
	if got := rules("", ""); got != "" {
		t.Errorf("as the paper has it: %s", got)
	}
	// Option 2 of the paper: both HBAs in slots of 16 lanes, 3.3 GB/s.
	if got := rules("{slot: 1, kind: sas-hba, lanes: 8, node: 1}, {slot: 2, kind: hca, lanes: 16, node: 0}", "{slot: 1, kind: hca, lanes: 8, node: 1}, {slot: 2, kind: sas-hba, lanes: 16, node: 0}"); got != "pcie pcie" {
		t.Errorf("option 2: %q", got)
	}
	if got := rules("node: 1}", "node: 0}"); got != "numa numa" {
		t.Errorf("all on one node: %q", got)
	}
	found := 0
	for _, a := range example(t, "nss4-ha-144").Advice {
		if strings.HasPrefix(a.Source, "paper NSS4-HA") {
			found++
		}
		if a.Source == "" {
			t.Errorf("no source: %+v", a)
		}
	}
	if found != 5 { // cards and cables of two servers, and the ring of enclosures
		t.Errorf("%d pieces of advice", found)
	}
}

// A file system directly on the one LUN, as the Fluid Cache paper had it.
func TestDeviceVolume(t *testing.T) {
	src, err := fs.ReadFile(examples.FS, "nfs-dfc.yaml")
	if err != nil {
		t.Fatal(err)
	}
	i, j := strings.Index(string(src), "cache:\n"), strings.Index(string(src), "filesystem:\n")
	text := string(src[:i]) + string(src[j:])
	d := build(t, strings.Replace(text, "storage:\n", "storage:\n  volume: device\n", 1))
	v := d.Services()[0]
	if v.Storage.VG != "" || v.Storage.Device != d.LUNs()[0].Device || v.SU != 512*spec.KiB || v.SW != 40 {
		t.Errorf("%+v", v)
	}
	if d.LUNs()[0].Use != "xfs" {
		t.Errorf("%+v", d.LUNs()[0])
	}
}

// A Lustre whose MDS has JBODs and whose OSS has an array.
func TestMixedLustre(t *testing.T) {
	src, err := fs.ReadFile(examples.FS, "lustre-small.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.NewReplacer("raid: {level: 6, data: 2, spares: 2", "kind: array\n        model: ME4084\n        raid: {level: 6, data: 2, spares: 2").Replace(string(src))
	d := build(t, text)
	if len(d.Arrays) != 1 || d.Arrays[0].Set != "oss" || len(d.LUNs()) != 2 {
		t.Fatalf("%+v", d.Arrays)
	}
	for _, x := range d.Targets() {
		st := d.PairWith(x.Server).Services[0].Storage
		if onLUN := len(st.LUNs) > 0; onLUN != (x.Kind == "ost") || !strings.HasSuffix(x.Device, "/"+x.Volume) {
			t.Errorf("%s on %s: %+v", x.Name, x.Device, st)
		}
	}
}

// Disks of which an array leaves nothing are refused, not designed with LUNs
// of no size.
func TestDisksTooSmallForArray(t *testing.T) {
	src, err := fs.ReadFile(examples.FS, "nss5.5.yaml")
	if err != nil {
		t.Fatal(err)
	}
	s, err := spec.Parse("brick.yaml", []byte(strings.ReplaceAll(string(src), "size: 3TB", "size: 1GB")))
	if err != nil {
		t.Fatal(err)
	}
	if _, err = Derive(s); !refusedAt(s, err, "enclosures[0].disks[0].size") {
		t.Errorf("%v", err)
	}
}

// What LUNs do when paths are gone: they wait for a controller that restarts,
// and a stop of the service outlasts that. Values that do nothing on SAS are not
// set, and those for which multipath.conf(5) has no place in its section.
func TestPathsOfLUNs(t *testing.T) {
	for name, failback := range map[string]string{"nss2-ha": "followover", "nss7.4-ha": "immediate", "nss5.5": ""} {
		d := example(t, name)
		got := map[string]string{}
		for _, s := range d.SettingsOf("multipath") {
			got[s.Name] = s.Value
		}
		if got["failback"] != failback {
			t.Errorf("%s: failback %q, want %q", name, got["failback"], failback)
		}
		if failback == "" {
			if len(got) > 0 {
				t.Errorf("%s: one path, and yet %v", name, got)
			}
			continue
		}
		checks, err := strconv.Atoi(got["no_path_retry"])
		if err != nil || checks*5 != 150 {
			t.Errorf("%s: no_path_retry %q", name, got["no_path_retry"])
		}
		stop, err := time.ParseDuration(d.Value("pacemaker", "stop-timeout"))
		if err != nil || stop < 151*time.Second+120*time.Second {
			t.Errorf("%s: a stop of the service has %s", name, stop)
		}
		for _, k := range []string{"fast_io_fail_tmo", "dev_loss_tmo", "hardware_handler", "polling_interval", "features"} {
			if got[k] != "" {
				t.Errorf("%s: %s %s", name, k, got[k])
			}
		}
	}
}

// An MDT has an inode for each that its OSTs have. On a scaled rack, where
// mkfs.lustre chooses other proportions, it need not.
func TestMDTHasRoomForFiles(t *testing.T) {
	src, err := fs.ReadFile(examples.FS, "lustre-small.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(strings.Replace(string(src), "size: 1920GB", "size: 60GB", 1), "size: 1920GB", "size: 60GB", 1)
	s, err := spec.Parse("brick.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := New(s); !refusedAt(s, err, "lustre.modules[0].storage") {
		t.Errorf("%v", err)
	}
	if err := s.Scale(1000); err != nil {
		t.Fatal(err)
	}
	if _, err := New(s); err != nil {
		t.Error(err)
	}
}

// The group below the MGT and the MDT is of one service, as is each OST's.
func TestServiceOnGroup(t *testing.T) {
	d := example(t, "lustre-small")
	got := map[string]string{}
	for _, g := range d.Groups {
		if s := d.On(g.Name); s != nil {
			got[g.Name] = s.Name
		}
	}
	want := map[string]string{"small-r0": "mdt0000", "small-r1": "ost0000", "small-r2": "ost0001"}
	if !maps.Equal(got, want) || d.On("none") != nil {
		t.Errorf("%v, want %v", got, want)
	}
}

// check warns of exports that ask a name service.
func TestExportNameWarnings(t *testing.T) {
	src, err := fs.ReadFile(examples.FS, "nfs-ha.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for clients, want := range map[string]bool{"10.77.1.0/24": false, "build7.example.org": true, "'@nodes'": true, "'*.example.org'": true} {
		text := strings.NewReplacer("clients: 10.77.1.0/24", "clients: "+clients, ", no_root_squash", "").Replace(string(src))
		if got := slices.ContainsFunc(build(t, text).Warnings, func(w Warning) bool { return w.Rule == "export-name" }); got != want {
			t.Errorf("%s: warned %v", clients, got)
		}
	}
}

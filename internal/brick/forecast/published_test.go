package forecast

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/internal/brick/paper"
)

// The systems of the five documents, as hardware. Where a document does not
// say something, the comment says what was taken.

// nss4 is 96 disks of 3 TB behind one MD3200, R620 servers. Source: NSS4-HA, tables 3 to 6.
func nss4() Hardware {
	return Hardware{Name: "NSS4-HA", Protocol: "nfs", Servers: 1, Bricks: 1, Cores: 16, Memory: 64 << 30,
		HBAs: 2, HBAPorts: 2, SASGbps: 6, HBAGen: 3, HBALanes: 8,
		Links: 1, LinkGbps: 56, Fabric: IPoIB, NICGen: 3, NICLanes: 8,
		RAID: "md3200-hpt", Mirrored: true, Arrays: 1, Level: 6, Groups: 8, Data: 10, Parity: 2, DiskType: "nl-sas", DiskBytes: 3e12,
		Clients: 64, Threads: 512, ClientGbps: 40, FileBytes: 2 << 30}
}

// nss3 is the same storage behind R710 servers: PCIe 2, QDR, one HBA, 48 GB in the test. Source: tables 3 and 5, section 5.1.
func nss3() Hardware {
	h := nss4()
	h.Name, h.Cores, h.Memory = "NSS3-HA", 8, 48<<30
	h.HBAs, h.HBAGen, h.LinkGbps, h.NICGen = 1, 2, 40, 2
	return h
}

// nss2 is NSS3's servers with 48 disks of 2 TB (96 TB raw).
func nss2() Hardware {
	h := nss3()
	h.Name, h.HBAs, h.Groups, h.DiskBytes = "NSS2-HA", 2, 4, 2e12
	return h
}

// nss55 has two H810 in a R620 (8 cores, as its table says), 48 disks, async.
func nss55() Hardware {
	return Hardware{Name: "NSS5.5", Protocol: "nfs", Async: true, Servers: 1, Bricks: 1, Cores: 16, Memory: 128 << 30,
		HBAs: 2, HBAPorts: 2, SASGbps: 6, HBAGen: 3, HBALanes: 8,
		Links: 1, LinkGbps: 56, Fabric: IPoIB, NICGen: 3, NICLanes: 8,
		RAID: "h810", Arrays: 2, Level: 6, Groups: 4, Data: 10, Parity: 2, DiskType: "nl-sas", DiskBytes: 3e12,
		Clients: 64, Threads: 512, ClientGbps: 40, FileBytes: 4 << 30}
}

// dfc is the baseline of the Fluid Cache paper: one H810, sync.
func dfc() Hardware {
	h := nss55()
	h.Name, h.Async, h.HBAs, h.Arrays = "DFC baseline", false, 1, 1
	return h
}

func dfcCache(mode string, cold bool) Hardware {
	h := dfc()
	h.Name, h.CacheSSDs, h.CacheMode, h.CacheCold = "DFC "+mode, 2, mode, cold
	if cold {
		h.Name = "DFC cold cache"
	}
	return h
}

// nss73 is an ME4084 with 84 disks of 10 TB. Source: NSS7.4-HA, tables 1 and 2.
func nss73() Hardware {
	return Hardware{Name: "NSS7.3-HA", Protocol: "nfs", Servers: 1, Bricks: 1, Cores: 24, Memory: 192 << 30,
		HBAs: 2, HBAPorts: 2, SASGbps: 12, HBAGen: 3, HBALanes: 8,
		Links: 1, LinkGbps: 100, Fabric: IPoIB, NICGen: 3, NICLanes: 16,
		RAID: "me4084", Arrays: 1, Level: 6, Groups: 8, Data: 8, Parity: 2, DiskType: "nl-sas", DiskBytes: 10e12,
		Clients: 64, Threads: 512, ClientGbps: 100, FileBytes: 4 << 30}
}

// nss74 was measured with 2 x 8 cores.
func nss74() Hardware {
	h := nss73()
	h.Name, h.Cores = "NSS7.4-HA", 16
	return h
}

// lustre is n HA-OSS modules of two R710 and 60 disks of 2 TB.
func lustre(n int) Hardware {
	return Hardware{Name: map[int]string{1: "Lustre brick", 3: "Lustre rack of three"}[n], Protocol: "lustre", Servers: 2, Bricks: n, MDS: 1, Cores: 12, Memory: 24 << 30,
		HBAs: 1, HBAPorts: 2, SASGbps: 6, HBAGen: 2, HBALanes: 8,
		Links: 1, LinkGbps: 40, Fabric: RDMA, NICGen: 2, NICLanes: 8,
		RAID: "md3200", Arrays: 1, Level: 6, Groups: 6, Data: 8, Parity: 2, DiskType: "nl-sas", DiskBytes: 2e12,
		Clients: 64, Threads: 512, ClientGbps: 40, FileBytes: 8 << 30}
}

// small is the brick with small sequential operations, which its clients gather: the paper counts them.
func small() Hardware {
	h := lustre(1)
	h.Name = "Lustre brick, 500,000 operations/s of 4 KiB"
	return h
}

func farSlot() Hardware {
	h := nss4()
	h.Name, h.FarSlot = "NSS4-HA, card in the far slot", true
	return h
}

const mib = 1.048576 // MB in a MiB

// published is one figure of the documents, and what it is here for.
type published struct {
	hw      Hardware
	pattern Pattern
	value   float64 // MB/s, or 1/s
	use     string  // "calibrated": a coefficient was made from it; "tested": none was
	miss    string  // why the forecast may be off by more than the bound; "" if it may not
}

// phases are those of suite paper that measure a pattern.
var phases = map[Pattern]string{SeqWrite: "seq-write", SeqRead: "seq-read", RandomWrite: "rand-write", RandomRead: "rand-read",
	Create: "md-create", Stat: "md-stat", Remove: "md-remove"}

// paperPeak is the peak that a system was published with; 0: none was.
func paperPeak(system string, p Pattern) float64 {
	y, _ := paper.Find(system)
	for _, f := range y.Figures {
		if f.Phase == phases[p] && f.Peak > 0 {
			return f.Value()
		}
	}
	return 0
}

// figures is the table of docs/forecast.md. Which are calibrated on and which
// are tested is fixed here: moving one is a change to be argued.
func figures() []published {
	return []published{
		{nss4(), SeqRead, paperPeak("nss4-ha-288", SeqRead), "calibrated", ""},
		{nss4(), SeqWrite, paperPeak("nss4-ha-288", SeqWrite), "calibrated", ""},
		{nss3(), SeqWrite, paperPeak("nss3-ha", SeqWrite), "calibrated", ""},
		{farSlot(), SeqRead, 3300, "calibrated", ""},
		{nss55(), SeqWrite, paperPeak("nss5.5", SeqWrite), "calibrated", ""},
		{nss55(), SeqRead, paperPeak("nss5.5", SeqRead), "calibrated", ""},
		{dfc(), SeqWrite, 2000 * mib, "calibrated", ""},
		{dfc(), RandomRead, 9300, "calibrated", ""},
		{dfc(), RandomWrite, 1600, "calibrated", ""},
		{dfcCache("write-through", false), SeqWrite, 1000 * mib, "calibrated", ""},
		{dfcCache("write-back", false), RandomRead, paperPeak("nfs-dfc", RandomRead), "calibrated", ""},
		{dfcCache("write-back", false), RandomWrite, paperPeak("nfs-dfc", RandomWrite), "calibrated", ""},
		{nss73(), SeqWrite, paperPeak("nss7.3-ha", SeqWrite), "calibrated", ""},
		{nss73(), RandomWrite, paperPeak("nss7.3-ha", RandomWrite), "calibrated", ""},
		{nss73(), Create, paperPeak("nss7.3-ha", Create), "calibrated", ""},
		{nss73(), Stat, paperPeak("nss7.3-ha", Stat), "calibrated", ""},
		{nss73(), Remove, paperPeak("nss7.3-ha", Remove), "calibrated", ""},
		{small(), SeqWrite, 500000 * 4096 / 1e6, "calibrated", ""},
		{small(), SeqRead, 500000 * 4096 / 1e6, "calibrated", ""},
		{lustre(1), Create, paperPeak("lustre-brick", Create), "calibrated", ""},

		{nss2(), SeqWrite, paperPeak("nss2-ha", SeqWrite), "tested", ""},
		{nss2(), SeqRead, paperPeak("nss2-ha", SeqRead), "tested", ""},
		{nss3(), SeqRead, paperPeak("nss3-ha", SeqRead), "tested", ""},
		{nss73(), SeqRead, paperPeak("nss7.3-ha", SeqRead), "tested", ""},
		{nss74(), SeqWrite, paperPeak("nss7.4-ha", SeqWrite), "tested", ""},
		{nss74(), SeqRead, paperPeak("nss7.4-ha", SeqRead), "tested", ""},
		{dfcCache("write-back", false), SeqWrite, paperPeak("nfs-dfc", SeqWrite), "tested", ""},
		{dfcCache("write-back", false), SeqRead, paperPeak("nfs-dfc", SeqRead), "tested", ""},
		{dfcCache("write-through", false), SeqRead, 3050 * mib, "tested", ""},
		{dfcCache("write-through", true), SeqRead, 1050 * mib, "tested", ""},
		{lustre(1), SeqWrite, paperPeak("lustre-brick", SeqWrite), "tested", ""},
		{lustre(1), SeqRead, paperPeak("lustre-brick", SeqRead), "tested", ""},
		{lustre(3), SeqWrite, paperPeak("lustre-rack", SeqWrite), "tested", ""},
		{lustre(3), SeqRead, paperPeak("lustre-rack", SeqRead), "tested", ""},
		{nss55(), RandomRead, paperPeak("nss5.5", RandomRead), "tested", ""},
		{nss55(), RandomWrite, paperPeak("nss5.5", RandomWrite), "tested", ""},
		{nss74(), RandomWrite, paperPeak("nss7.4-ha", RandomWrite), "tested", ""},
		{nss74(), RandomRead, paperPeak("nss7.4-ha", RandomRead), "tested", ""},
		{nss73(), RandomRead, paperPeak("nss7.3-ha", RandomRead), "tested",
			"NSS7.3 and NSS7.4 have the same array, disks and memory, and differ by a factor of 1.73 themselves; their authors suspect the cores, and could not say. 28,811/s from 32 clients with one request each is 1.1 ms a read, a quarter of a turn of these disks: it came from memory more than the model believes"},
		{dfcCache("write-through", false), RandomWrite, 1600, "tested", ""},
		{dfcCache("write-through", false), RandomRead, 123000, "tested", ""},
		{dfcCache("write-through", true), RandomRead, 80000, "tested", ""},
		{nss74(), Create, paperPeak("nss7.4-ha", Create), "tested", ""},
		{nss74(), Stat, paperPeak("nss7.4-ha", Stat), "tested", ""},
		{nss74(), Remove, paperPeak("nss7.4-ha", Remove), "tested", ""},
	}
}

// within says whether a forecast is inside the bound: 20 % for streams, a
// factor of 1.5 for the rest.
func within(p Pattern, got, want float64) bool {
	if p == SeqWrite || p == SeqRead {
		return math.Abs(got-want) <= 0.2*want
	}
	return got <= 1.5*want && want <= 1.5*got
}

func TestPublished(t *testing.T) {
	for _, f := range figures() {
		fc, err := New(f.hw, Defaults())
		if err != nil {
			t.Fatalf("%s: %v", f.hw.Name, err)
		}
		l, ok := fc.Line(f.pattern)
		if !ok {
			t.Errorf("%s, %s: no forecast", f.hw.Name, f.pattern)
			continue
		}
		in := within(f.pattern, l.Peak, f.value)
		t.Logf("| %s | %s | %.0f | %.0f | %+.0f %% | %s | %s |", f.hw.Name, f.pattern, f.value, l.Peak, 100*(l.Peak/f.value-1), l.Bottleneck, f.use)
		switch {
		case !in && f.miss == "":
			t.Errorf("%s, %s: forecast %.0f, published %.0f", f.hw.Name, f.pattern, l.Peak, f.value)
		case in && f.miss != "":
			t.Errorf("%s, %s: explained as a miss, but it is none", f.hw.Name, f.pattern)
		}
		if f.use == "calibrated" && math.Abs(l.Peak/f.value-1) > 0.02 {
			t.Errorf("%s, %s: calibrated on, and yet %.0f instead of %.0f", f.hw.Name, f.pattern, l.Peak, f.value)
		}
	}
}

// ratio is one system over another, as the documents have it.
type ratio struct {
	what          string
	this, over    Hardware
	patterns      []Pattern
	average       int     // over 1, 2, 4 … so many clients; 0: of the peaks
	want          float64 // published
	atLeast       bool    // the document says more than want
	where, missed string  // missed: the mechanism that the model does not have; "" if none is lacking
}

// What the model does not know of NSS3-HA and NSS4-HA.
const (
	oneHBA  = "NSS3-HA reads less than NSS2-HA, whose servers are the same. Table 5 gives it one SAS card, table 10 two to all releases. Whatever the reason is, the model does not have it: an HBA is as good as its PCI Express lanes, and kernel and drivers do not count"
	perOp   = "The model has one latency for all servers (`nfs.latency_ms`), and memory answers only for reads of what this run has read before. What a faster processor, PCI Express 3 and FDR save of each request is not modelled; the paper lays all of it to memory (48 and 64 GB)"
	warm    = "What the memory of NSS7.3-HA answered is not modelled: its 32 clients read 128 GiB and its server has 192; see miss 1 above"
	fiveOld = "Kernel and XFS of RHEL 5.5, five years before, are not modelled; the array is the same"
	cached  = "What SSDs do to metadata is not modelled"
	filling = "How much one miss brings into the cache is assumed (`cache.block_kib`); the paper does not say it"
)

// ratios are what the documents say of one change.
func ratios() []ratio {
	wb, cold := dfcCache("write-back", false), dfcCache("write-through", true)
	one := func(p Pattern) []Pattern { return []Pattern{p} }
	over := func(a, b string, p Pattern) float64 { return paperPeak(a, p) / paperPeak(b, p) }
	list := []ratio{
		{"NSS3-HA over NSS2-HA, sequential write", nss3(), nss2(), one(SeqWrite), 0, over("nss3-ha", "nss2-ha", SeqWrite), false, "table 2", fiveOld},
		{"NSS3-HA over NSS2-HA, sequential read", nss3(), nss2(), one(SeqRead), 0, over("nss3-ha", "nss2-ha", SeqRead), false, "table 2", oneHBA},
		{"NSS4-HA over NSS3-HA, sequential write", nss4(), nss3(), one(SeqWrite), 0, over("nss4-ha-288", "nss3-ha", SeqWrite), false, "table 2", ""},
		{"NSS4-HA over NSS3-HA, sequential read", nss4(), nss3(), one(SeqRead), 0, over("nss4-ha-288", "nss3-ha", SeqRead), false, "table 2", oneHBA},
		{"NSS4-HA over NSS3-HA, sequential read, on average", nss4(), nss3(), one(SeqRead), 64, 1.75, false, "5.1", oneHBA},
		{"NSS4-HA over NSS3-HA, random write, on average", nss4(), nss3(), one(RandomWrite), 64, 1.17, false, "5.2", perOp},
		{"NSS4-HA over NSS3-HA, random read, on average", nss4(), nss3(), one(RandomRead), 64, 1.23, false, "5.2", perOp},
		{"NSS4-HA over NSS3-HA, create, stat and remove, on average", nss4(), nss3(), []Pattern{Create, Stat, Remove}, 512, 1.20, true, "5.3", ""},
		{"NSS4-HA, card in the far slot", farSlot(), nss4(), one(SeqRead), 0, 3300.0 / 4058, false, "3.2", ""},
		{"Fluid Cache, write-back over none, sequential write", wb, dfc(), one(SeqWrite), 0, 600.0 / 2000, false, "3.1", ""},
		{"Fluid Cache, write-back over none, random write", wb, dfc(), one(RandomWrite), 0, 6.4, false, "3.2", ""},
		{"Fluid Cache, write-back over none, random read", wb, dfc(), one(RandomRead), 0, 123000.0 / 9300, false, "3.2", ""},
		{"Fluid Cache, write-back over none, file stat", wb, dfc(), one(Stat), 0, 1.8, false, "3.3", cached},
		{"Fluid Cache, cold over warm, sequential read", cold, wb, one(SeqRead), 0, 1050.0 / 3050, false, "3.4", ""},
		{"Fluid Cache, cold over warm, random read", cold, wb, one(RandomRead), 0, 80000.0 / 123000, false, "3.4", filling},
		{"three Lustre bricks over one, sequential write", lustre(3), lustre(1), one(SeqWrite), 0, 3, false, "11", ""},
	}
	for _, p := range []Pattern{SeqWrite, SeqRead, RandomWrite, RandomRead, Create, Stat, Remove} {
		why := ""
		if p == RandomRead {
			why = warm
		}
		list = append(list, ratio{"NSS7.4-HA over NSS7.3-HA, " + string(p), nss74(), nss73(), one(p), 0, over("nss7.4-ha", "nss7.3-ha", p), false, "closing table", why})
	}
	return list
}

// got is the ratio that the model gives.
func (r ratio) got(t *testing.T) float64 {
	var sum float64
	n := 0
	for _, p := range r.patterns {
		var lines [2]Line
		for i, h := range []Hardware{r.this, r.over} {
			f, err := New(h, Defaults())
			if err != nil {
				t.Fatal(err)
			}
			lines[i], _ = f.Line(p)
		}
		if r.average == 0 {
			sum, n = sum+lines[0].Peak/lines[1].Peak, n+1
		}
		for c := 1; c <= r.average; c *= 2 {
			sum, n = sum+lines[0].At(c)/lines[1].At(c), n+1
		}
	}
	return sum / float64(n)
}

// holds says whether a ratio is within 5 points of the published one: 1.20 of 1.23 is 3 points off.
// Of one above 2 it is 5 per cent: 13.3 of 13.2. What a document gives as a lower bound it need only reach.
func (r ratio) holds(got float64) bool {
	if r.atLeast && got >= r.want {
		return true
	}
	return math.Abs(got-r.want) <= 0.05*math.Max(1, r.want/2)
}

// TestRatios: what the documents say of one change, the model says too, or the page says which
// mechanism it does not have.
func TestRatios(t *testing.T) {
	for _, r := range ratios() {
		switch got := r.got(t); {
		case !r.holds(got) && r.missed == "":
			t.Errorf("%s: forecast %+.1f %%, published %+.1f %%", r.what, 100*(got-1), 100*(r.want-1))
		case r.holds(got) && r.missed != "":
			t.Errorf("%s: explained as a miss, but it is none: forecast %+.1f %%, published %+.1f %%", r.what, 100*(got-1), 100*(r.want-1))
		}
	}
}

// TestBottlenecks: who is named, and that buying it is what helps.
func TestBottlenecks(t *testing.T) {
	for _, c := range []struct {
		hw   Hardware
		p    Pattern
		want string
		buy  string
	}{
		{nss4(), SeqRead, "network", "network link"},
		{nss4(), SeqWrite, "RAID", "array"},
		{nss55(), SeqRead, "disks", "RAID group"},
		{dfcCache("write-back", false), SeqWrite, "cache", "cache SSD"},
		{dfcCache("write-back", false), RandomRead, "CPU and memory", "processor"},
		{dfc(), RandomRead, "disks", "RAID group"},
		{nss73(), Stat, "CPU and memory", "processor"},
		{lustre(1), Create, "MDS", "metadata server"},
		{lustre(1), SeqWrite, "RAID", "brick"},
	} {
		f, err := New(c.hw, Defaults())
		if err != nil {
			t.Fatal(err)
		}
		l, _ := f.Line(c.p)
		if l.Bottleneck != c.want {
			t.Errorf("%s, %s: bottleneck %s, want %s", c.hw.Name, c.p, l.Bottleneck, c.want)
		}
		i := slices.IndexFunc(l.Buys, func(b Buy) bool { return strings.HasPrefix(b.Part, c.buy) })
		if i < 0 || l.Buys[i].Gain <= 0 {
			t.Errorf("%s, %s: one more %s gains nothing: %v", c.hw.Name, c.p, c.buy, l.Buys)
		}
		for _, b := range l.Buys {
			if b.Gain < -1e-9 && b.Part != "client" {
				t.Errorf("%s, %s: one more %s costs %.1f %%", c.hw.Name, c.p, b.Part, -100*b.Gain)
			}
		}
	}
}

// TestCurves: throughput never falls with more clients in this model, unless
// their files outgrow memory, and begins with one client's share.
func TestCurves(t *testing.T) {
	f, err := New(nss73(), Defaults())
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range f.Lines[:4] {
		if len(l.Curve) != 64 || l.Curve[0].Clients != 1 {
			t.Errorf("%s: %d points", l.Pattern, len(l.Curve))
		}
		for i := 1; i < len(l.Curve); i++ {
			if l.Curve[i].Value < l.Curve[i-1].Value*0.97 {
				t.Errorf("%s: falls from %v to %v", l.Pattern, l.Curve[i-1], l.Curve[i])
			}
		}
	}
}

// TestShapes: what the documents say in words of curves whose points they
// only draw.
func TestShapes(t *testing.T) {
	line := func(h Hardware, p Pattern) Line {
		f, err := New(h, Defaults())
		if err != nil {
			t.Fatal(err)
		}
		l, _ := f.Line(p)
		return l
	}
	at := func(l Line, clients int) float64 { return l.Curve[clients-1].Value }
	if l := line(nss55(), RandomRead); l.Clients != 64 || at(l, 64) < 1.1*at(l, 32) {
		t.Errorf("NSS5.5 random read does not rise any more: %.0f, %.0f", at(l, 32), at(l, 64))
	}
	if l := line(dfcCache("write-back", false), RandomRead); l.Clients < 24 || l.Clients > 40 {
		t.Errorf("cached random read peaks at %d clients, not 32", l.Clients)
	}
	if l := line(nss74(), RandomRead); l.Clients != 64 {
		t.Errorf("NSS7.4 random read peaks at %d clients, not 64", l.Clients)
	}
	if l := line(lustre(1), SeqRead); at(l, 1) < 1900 {
		t.Errorf("one Lustre client reads %.0f MB/s, not 2,000", at(l, 1))
	}
	if l := line(lustre(3), SeqRead); math.Abs(at(l, 2)-2*at(l, 1)) > 1 {
		t.Errorf("two Lustre clients read %.0f MB/s, not twice %.0f", at(l, 2), at(l, 1))
	}
}

// TestEveryCoefficient: each has a source, and each matters to something.
func TestEveryCoefficient(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range Defaults().All() {
		if seen[c.Name] {
			t.Errorf("%s is there twice", c.Name)
		}
		seen[c.Name] = true
		if c.Source == "" || c.Unit == "" || !(c.Value > 0) {
			t.Errorf("%s: value %g, unit %q, source %q", c.Name, c.Value, c.Unit, c.Source)
		}
	}
}

func TestAssignments(t *testing.T) {
	h := nss4()
	c := Defaults()
	file, err := parseFile("mine.yaml", []byte("# measured here\nnfs.client_mbps: 1200\nhw.cores: 32\n"))
	if err != nil {
		t.Fatal(err)
	}
	if err := Apply(file, c, &h); err != nil {
		t.Fatal(err)
	}
	k, _ := c.Find("nfs.client_mbps")
	if k.Value != 1200 || !k.Changed || k.Source != "given by mine.yaml:2" || h.Cores != 32 {
		t.Errorf("%+v, %d cores", k, h.Cores)
	}
	for _, bad := range []string{"nfs.client_mbps", "=3", "nfs.client=3", "hw.cores=-1", "hw.cores=many", "hw.raid=raidz", "net.ipoib_efficiency=1.5", "disk.sas.mbps=-1", "disk.sas.mbps=0", "disk.sas.mbps=NaN", "hw.nothing=1", "hw.cache_mode=fast"} {
		a, err := parseAssignment(bad)
		if err == nil {
			err = Apply([]Assignment{a}, Defaults(), &h)
		}
		if err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("--set %s: %v", bad, err)
		}
	}
	for _, bad := range []string{"a: [1]", "- 1", "x", "a: {b: 1}", "a: 1\na: 2"} {
		list, err := parseFile("f", []byte(bad))
		if err == nil {
			err = Apply(list, Defaults(), &h)
		}
		if err == nil {
			t.Errorf("%q: accepted as %v", bad, list)
		}
	}
	one := dfcCache("write-back", false)
	one.CacheSSDs = 1
	if _, err := New(one, Defaults()); err == nil {
		t.Error("write-back on one SSD: accepted")
	}
}

// TestBeside: each figure of a system stands beside the forecast, in the paper's unit, with the per cent
// between them; a drawing has both in one unit.
func TestBeside(t *testing.T) {
	for _, y := range paper.Systems() {
		_, h := example(t, y.Name)
		f, err := New(h, Defaults())
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Beside(y, Defaults()); err != nil {
			t.Fatal(err)
		}
		if len(f.Published) != len(y.Figures) {
			t.Fatalf("%s: %d figures, want %d", y.Name, len(f.Published), len(y.Figures))
		}
		var text strings.Builder
		if err := f.Text(&text, Defaults(), false); err != nil {
			t.Fatal(err)
		}
		for i, p := range f.Published {
			g := y.Figures[i]
			both := g.Peak > 0 && PatternOf(g.Phase) != "" // the model has nothing for a file that is written again
			if both != (p.Percent != nil) || both != (p.MeasuredPercent != nil) || p.Unit != g.Unit {
				t.Errorf("%s, %s: %+v", y.Name, p.Test, p)
			}
			if p.Percent != nil && math.Abs(p.Paper*(1+*p.Percent/100)-p.Forecast) > 1e-6*p.Forecast {
				t.Errorf("%s, %s: %g and %+.1f %% are not %g", y.Name, p.Test, p.Paper, *p.Percent, p.Forecast)
			}
			if g.Peak > 0 && !strings.Contains(text.String(), p.Test+" ") {
				t.Errorf("%s: the text lacks %s", y.Name, p.Test)
			}
		}
		svg := f.SVG()
		if strings.Contains(svg, "MiB/s") {
			t.Errorf("%s: MB/s and MiB/s in one drawing", y.Name)
		}
		for _, p := range []Pattern{SeqWrite, SeqRead, RandomWrite, RandomRead, Create, Stat, Remove} {
			if l, _ := f.Line(p); len(l.Curve) == 0 { // an MDS
				continue
			}
			if v := f.PublishedPeak(p); v > 0 && !strings.Contains(svg, "paper (dots) "+number(v)+": ") {
				t.Errorf("%s: the drawing lacks the paper's %s, %g", y.Name, p, v)
			}
		}
	}
}

// TestMeasuredBesidePaper: a measurement stands beside forecast and paper.
func TestMeasuredBesidePaper(t *testing.T) {
	_, h := example(t, "nss5.5")
	f, err := New(h, Defaults())
	if err != nil {
		t.Fatal(err)
	}
	y, _ := paper.Find("nss5.5")
	if err := f.Beside(y, Defaults()); err != nil {
		t.Fatal(err)
	}
	all := f.Against([]Measured{{SeqRead, "sequential", 64, 1477}, {SeqRead, "other", 64, 1477}})
	if len(all) != 2 || math.Abs(all[0].Paper-2818*mib) > 1 || all[0].PaperPercent == nil || math.Abs(*all[0].PaperPercent+50) > 0.1 || all[1].PaperPercent != nil {
		t.Errorf("%+v", all)
	}
	var b strings.Builder
	if err := ComparedText(&b, all); err != nil || !strings.Contains(b.String(), "2,955   -50.0 %  MB/s") {
		t.Errorf("%v\n%s", err, b.String())
	}
}

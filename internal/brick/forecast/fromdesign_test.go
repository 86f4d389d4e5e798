package forecast

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/paper"
	"github.com/mortarhpc/mortar/internal/brick/spec"
)

func derive(t *testing.T, text string) *design.Design {
	t.Helper()
	s, err := spec.Parse("brick.yaml", []byte(text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	d, err := design.Derive(s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// serverYAML is one server of an HA pair, with further lines.
func serverYAML(n int, name, more string) string {
	return fmt.Sprintf(`  - name: %[2]s
    address: 10.22.0.%[1]d
    public: 10.20.0.%[1]d
    private: 10.21.0.%[1]d
    feeds: [A, B]
    bmc: {address: 10.22.1.%[1]d, user: m, password_file: secrets/bmc-%[2]s}
    outlets: [{pdu: pdu-a, outlet: %[1]d}, {pdu: pdu-b, outlet: %[1]d}]
%[3]s`, n, name, more)
}

const pdus = `pdus:
  - {name: pdu-a, address: 10.22.2.1, feed: A, community_file: secrets/pdu-a}
  - {name: pdu-b, address: 10.22.2.2, feed: B, community_file: secrets/pdu-b}
`

// lustreYAML is the Lustre brick, or a rack of n.
func lustreYAML(n int) string {
	var b strings.Builder
	b.WriteString(`apiVersion: mortar/v1
flavour: lustre
name: rack
networks:
  public: {cidr: 10.20.0.0/16, speed: 40Gb/s, link: infiniband, interface: ib0}
  private: {cidr: 10.21.0.0/24}
  management: {cidr: 10.22.0.0/16}
servers:
`)
	r710 := `    memory: 24GiB
    cpu: {cores: 6, mhz: 2660}
    pci:
      - {slot: 1, kind: sas-hba, lanes: 8, generation: 2}
      - {slot: 2, kind: hca, lanes: 8, generation: 2}
`
	b.WriteString(serverYAML(11, "mds1", r710) + serverYAML(12, "mds2", r710))
	for i := range n {
		b.WriteString(serverYAML(21+2*i, fmt.Sprintf("oss%da", i), r710) + serverYAML(22+2*i, fmt.Sprintf("oss%db", i), r710))
	}
	b.WriteString(pdus + "arrays:\n  - {name: md, model: MD3220}\n")
	for i := range n {
		fmt.Fprintf(&b, "  - {name: a%d, model: MD3200}\n", i)
	}
	b.WriteString("enclosures:\n  - {name: M, bays: 24, module: mds, array: md, disks: [{serial: \"M[01-24]\", size: 136GB, type: sas, rpm: 15000}]}\n")
	for i := range n {
		for e := range 5 {
			fmt.Fprintf(&b, "  - {name: O%[1]dE%[2]d, bays: 12, module: oss%[1]d, array: a%[1]d, disks: [{serial: \"O%[1]dE%[2]dN[01-12]\", size: 2TB, type: nl-sas, rpm: 7200}]}\n", i, e)
		}
	}
	b.WriteString(`lustre:
  fsname: scratch
  lnet: o2ib
  modules:
    - {name: mds, role: mds, servers: [mds1, mds2], storage: {kind: array, model: MD3220, raid: {level: 10, data: 12, chunk: 64KiB}}}
`)
	for i := range n {
		fmt.Fprintf(&b, "    - {name: oss%[1]d, role: oss, servers: [oss%[1]da, oss%[1]db], storage: {kind: array, model: MD3200, write_cache_mirroring: off, raid: {level: 6, data: 8, chunk: 128KiB}}}\n", i)
	}
	return b.String()
}

// nss5YAML is the single server with RAID cards of the NSS5.5 and DFC papers.
func nss5YAML(cards int, exports, more string) string {
	var b strings.Builder
	b.WriteString(`apiVersion: mortar/v1
flavour: nfs
name: nss5
networks:
  public: {cidr: 10.20.0.0/16, speed: 56Gb/s, link: infiniband}
servers:
  - name: nss1
    address: 10.20.0.11
    public: 10.20.0.11
    memory: 128GiB
    cpu: {cores: 8}
    pci:
      - {slot: 1, kind: hca, lanes: 8}
`)
	for i := range cards {
		fmt.Fprintf(&b, "      - {slot: %d, kind: raid, lanes: 8}\n", 2+i)
	}
	b.WriteString("arrays:\n")
	for i := range cards {
		fmt.Fprintf(&b, "  - {name: perc%[1]d, model: PERC-H810, controller: %[1]d}\n", i)
	}
	b.WriteString("enclosures:\n")
	for e := range 4 {
		fmt.Fprintf(&b, "  - {name: E%[1]d, bays: 12, array: perc%[2]d, disks: [{serial: \"E%[1]dN[01-12]\", size: 3TB, type: nl-sas, rpm: 7200}]}\n", e, e*cards/4)
	}
	fmt.Fprintf(&b, `storage: {kind: array, model: PERC-H810, raid: {level: 60, data: 10, chunk: 512KiB}}
%sservices:
  - name: scratch
    exports: [{clients: 10.20.0.0/16, options: [%s]}]
`, more, exports)
	return b.String()
}

// TestFromDesign: a spec gives the values that the published tests take
// for the same system.
func TestFromDesign(t *testing.T) {
	norm := func(h Hardware) Hardware {
		h.Name, h.Assumed, h.FileBytes, h.ClientGbps = "", nil, 0, 0
		return h
	}
	// The paper's cache has no bypass; ours always has one.
	wb := dfcCache("write-back", false)
	wb.CacheBypass = true
	ssd := `cache: {mode: write-back, ssds: [{serial: S1, size: 350GB, type: nvme}, {serial: S2, size: 350GB, type: nvme}]}
`
	for _, c := range []struct {
		name, yaml string
		want       Hardware
	}{
		{"NSS5.5", nss5YAML(2, "rw, async", ""), nss55()},
		{"DFC baseline", nss5YAML(1, "rw, sync", ""), dfc()},
		{"DFC write-back", nss5YAML(1, "rw, sync", ssd), wb},
		{"Lustre", lustreYAML(1), lustre(1)},
		{"three bricks", lustreYAML(3), lustre(3)},
	} {
		got, err := FromDesign(derive(t, c.yaml))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if a, b := fmt.Sprintf("%+v", norm(got)), fmt.Sprintf("%+v", norm(c.want)); a != b {
			t.Errorf("%s:\n got %s\nwant %s", c.name, a, b)
		}
		for _, a := range got.Assumed {
			if _, ok := facts()[a.Name]; !ok || a.Why == "" {
				t.Errorf("%s: assumed %+v", c.name, a)
			}
		}
	}
}

// TestExamples: the examples, as they are, reach the peaks that were published
// for their systems, or there is a reason why they should not.
func TestExamples(t *testing.T) {
	for _, y := range paper.Systems() {
		_, h := example(t, y.Name)
		f, err := New(h, Defaults())
		if err != nil {
			t.Fatal(err)
		}
		for p, phase := range phases {
			for _, g := range y.Figures {
				l, ok := f.Line(p)
				if g.Phase != phase || g.Peak == 0 {
					continue
				}
				if in := ok && within(p, l.Peak, g.Value()); in != (g.Example == "") {
					t.Errorf("%s, %s: forecast %.0f (%s: %s), published %.0f, explained by %q", y.Name, p, l.Peak, l.Bottleneck, l.Why, g.Value(), g.Example)
				}
			}
		}
	}
}

// TestFarSlot: cards at different processors are only held to matter where
// that was measured.
func TestFarSlot(t *testing.T) {
	for model, want := range map[string]bool{"E5-2680": true, "E5-2680 v2": true, "E5-2680 v3": false, "Gold 6240": false} {
		y := strings.Replace(nss5YAML(2, "rw", ""), "cpu: {cores: 8}", "cpu: {model: "+model+", cores: 8}", 1)
		y = strings.Replace(y, "kind: hca, lanes: 8}", "kind: hca, lanes: 8, node: 1}", 1)
		h, err := FromDesign(derive(t, y))
		if err != nil || h.FarSlot != want {
			t.Errorf("%s: far slot %v, %v", model, h.FarSlot, err)
		}
	}
}

func TestModules(t *testing.T) {
	ms, err := Modules(derive(t, lustreYAML(3)), Defaults())
	if err != nil {
		t.Fatal(err)
	}
	if len(ms) != 2 || ms[0].Role != "mds" || ms[0].Count != 1 || ms[1].Role != "oss" || ms[1].Count != 3 {
		t.Fatalf("%+v", ms)
	}
	m := ms[0].Fleet // RAID 10 of 24 disks: 12 mirrors
	if m.Groups != 12 || m.Disks != 2 || m.Parity != 1 || m.Enclosures != 1 || m.PerEnclosure != 2 || m.ActiveActive {
		t.Errorf("MDS: %+v", m)
	}
	o := ms[1].Fleet
	if o.Groups != 6 || o.Disks != 10 || o.Parity != 2 || o.Enclosures != 5 || o.PerEnclosure != 2 || o.Arrays != 1 || o.Controllers != 2 || !o.ActiveActive || ms[1].Raw != 60*2e12 {
		t.Errorf("OSS: %+v", ms[1])
	}
	if h := 2e12 / 50e6 / 3600; math.Abs(o.RebuildHours-h) > 1e-9 {
		t.Errorf("rebuild %g h, want %g", o.RebuildHours, h)
	}
	ms, err = Modules(derive(t, nss5YAML(2, "rw", "")), Defaults())
	if err != nil {
		t.Fatal(err)
	}
	if f := ms[0].Fleet; len(ms) != 1 || f.Arrays != 2 || f.Controllers != 1 || f.Servers != 1 {
		t.Errorf("two RAID cards: %+v", ms)
	}
}

// TestScaling: with small files the MDS is the limit, with large ones it is
// not; a dead MDS takes all bricks with it.
func TestScaling(t *testing.T) {
	c := Defaults()
	brick := Result{Unavailability: Estimate{0.001, 0.001, 0.001}, LossProbability: Estimate{0.01, 0.005, 0.02}}
	mds := Result{Unavailability: Estimate{0.002, 0.002, 0.002}}
	s, err := Scaling(lustre(1), c, brick, &mds, ScaleCounts)
	if err != nil {
		t.Fatal(err)
	}
	first, last := s[0], s[len(s)-1]
	if first.Bricks != 1 || last.Bricks != 1000 || first.Limit != "bricks" || last.Limit != "MDS" {
		t.Errorf("%+v\n%+v", first, last)
	}
	if want := 2048 * 0.999 * 0.998; math.Abs(first.StorageWrite-want) > 1 || math.Abs(last.StorageWrite-1000*want) > 1000 {
		t.Errorf("one brick %.0f MB/s, 1,000 %.0f", first.StorageWrite, last.StorageWrite)
	}
	if want := 15000 * 16 * 1.048576 * 0.998; math.Abs(last.FilesWrite-want) > 1 {
		t.Errorf("behind one MDS %.0f MB/s of files, want %.0f", last.FilesWrite, want)
	}
	if p := 1 - math.Pow(0.99, 1000); math.Abs(last.AnyLoss.Mean-p) > 1e-9 || last.AnyLoss.Low >= p || last.AnyLoss.High <= p {
		t.Errorf("any loss %+v, want %g", last.AnyLoss, p)
	}
	if err := c.Set("fleet.file_mib", 1000, "test"); err != nil {
		t.Fatal(err)
	}
	if s, _ = Scaling(lustre(1), c, brick, &mds, ScaleCounts); s[len(s)-1].Limit != "bricks" {
		t.Errorf("large files: %+v", s[len(s)-1])
	}
	// Power is common to a site: a hundred bricks are dark no longer than one.
	dark := Result{Unavailability: Estimate{0.01, 0.01, 0.01}}
	dark.DownHours[CausePower].Mean = 0.01 * HoursPerYear
	if s, _ = Scaling(nss4(), c, dark, nil, []int{100}); math.Abs(s[0].PartDown.Mean-0.01) > 1e-9 {
		t.Errorf("dark for %g", s[0].PartDown.Mean)
	}
}

// TestCambridge: with the default rates the Lustre rack stays under what
// Cambridge reports.
func TestCambridge(t *testing.T) {
	d := derive(t, lustreYAML(3))
	h, err := FromDesign(d)
	if err != nil {
		t.Fatal(err)
	}
	ms, err := Modules(d, Defaults())
	if err != nil {
		t.Fatal(err)
	}
	var sims []Simulated
	for _, m := range ms {
		m.Fleet.Bricks = 2000
		r, err := simulate(m.Fleet)
		if err != nil {
			t.Fatal(err)
		}
		sims = append(sims, Simulated{m, r, m.Fleet.Markov()})
	}
	s, err := Summarize(d.Name, h, Defaults(), sims)
	if err != nil {
		t.Fatal(err)
	}
	if u := s.Unavailability; u.High >= Cambridge || u.Low < 1e-5 {
		t.Errorf("down %v of the time", u)
	}
	var b strings.Builder
	if err := s.Text(&b, Defaults(), true); err != nil || !strings.Contains(b.String(), "behind 1 MDS") || !strings.Contains(b.String(), "oss0 and 2 like it") {
		t.Errorf("%v\n%s", err, b.String())
	}
}

// TestRandomFiles: the random tests have the files of the paper. Sources: NSS4-HA, 5 and A.1 (2 GB
// for each client, `iozone -s 2G`); DFC, B.1 (`-s 4G`); NSS5.5, table 1; NSS7.4-HA, performance
// summary.
func TestRandomFiles(t *testing.T) {
	for name, gib := range map[string]float64{"nss2-ha": 2, "nss3-ha": 2, "nss4-ha-144": 2, "nss4-ha-288": 2, "nss-ha-xl": 2, "nss5.5": 4, "nfs-dfc": 4, "nss7.3-ha": 4, "nss7.4-ha": 4, "jbod-ha": 4} {
		if _, h := example(t, name); h.FileBytes != gib*(1<<30) {
			t.Errorf("%s: random files of %g GiB, published with %g", name, h.FileBytes/(1<<30), gib)
		}
	}
}

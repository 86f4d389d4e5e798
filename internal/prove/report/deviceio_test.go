package report

import (
	"strings"
	"testing"
)

// sampledIO is a cached volume's I/O per second: the SSDs take 100 writes of 4 KiB,
// the disks 8 from the second second on.
func sampledIO(start int64) BenchIO {
	b := BenchIO{Service: "scratch", Server: "nss1", Devices: []BenchDevice{{Name: IOVolume}, {Name: IODisks}, {Name: IOSSDs}}}
	for i := range 6 {
		b.Times = append(b.Times, start+int64(i-1)*1e9)
		b.Dirty = append(b.Dirty, int64(i)<<20)
		if i == 0 {
			continue
		}
		for k, n := range []int64{50, 8, 100} {
			if k == 1 && i < 3 {
				n = 0
			}
			d := &b.Devices[k]
			d.Reads, d.ReadBytes = append(d.Reads, 0), append(d.ReadBytes, 0)
			d.Writes, d.WriteBytes = append(d.Writes, n), append(d.WriteBytes, n<<12)
		}
	}
	return b
}

// The page shows the I/O of a volume's devices with the throughput.
func TestDeviceIOPage(t *testing.T) {
	r := syntheticBench(1)
	ph := &r.Bench.Phases[0]
	run := &ph.Points[len(ph.Points)-1].Runs[1]
	ph.Unit = "ops/s"
	page := func() string {
		var b strings.Builder
		if err := benchHTML(&b, []*Run{r}, nil); err != nil {
			t.Fatal(err)
		}
		wellFormed(t, b.String())
		return b.String()
	}
	if strings.Contains(page(), "scratch on nss1") {
		t.Error("a run without samples shows some")
	}
	run.IO = []BenchIO{sampledIO(run.Timeline.StartNS)}
	got := page()
	// The disks' curve is grey: beside the orange of the latency another orange looks the same.
	for _, want := range []string{"scratch on nss1", "dirty 5.0 MiB", "SSDs 400.0 KiB/s", "disks 32.0 KiB/s",
		`class="key line s5"`, `class="curve s5 thin"`} {
		if !strings.Contains(got, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if strings.Contains(got, "volume 2") {
		t.Error("the volume is drawn too")
	}
	plain := &run.IO[0]
	plain.Devices, plain.Dirty = plain.Devices[:2], nil
	if got = page(); !strings.Contains(got, "disks 32.0 KiB/s") || strings.Contains(got, "dirty 5") || strings.Contains(got, "SSDs 4") {
		t.Error("the page lacks what the disks did without a cache")
	}
}

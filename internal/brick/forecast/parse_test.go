package forecast

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
)

// FuzzParseFile: whatever the file holds, it is read or refused, and what is
// applied leaves a table that can be calculated with.
func FuzzParseFile(f *testing.F) {
	f.Add([]byte("nfs.client_mbps: 1200\nhw.cores: 32\n"))
	f.Add([]byte("sim.disk_afr: .inf\n"))
	f.Add([]byte("a: [1]\n"))
	f.Add([]byte("? x\n: y"))
	f.Fuzz(func(t *testing.T, src []byte) {
		list, err := parseFile("f.yaml", src)
		if err != nil {
			return
		}
		h, c := nss4(), Defaults()
		if Apply(list, c, &h) != nil {
			return
		}
		fc, err := New(h, c)
		if err != nil {
			return
		}
		for _, l := range fc.Lines {
			if math.IsNaN(l.Peak) || l.Peak < 0 {
				t.Errorf("%s: %g from %q", l.Pattern, l.Peak, src)
			}
		}
	})
}

// TestAbsurd: what would keep the simulation busy for ever, or overflow, is refused.
func TestAbsurd(t *testing.T) {
	for name, values := range map[string][]float64{"sim.disk_afr": {1000, 1e6}, "sim.enclosure_afr": {11}, "sim.rebuild_mbps": {1e-300}, "nfs.client_mbps": {1e-300, 1e308},
		"sim.power_per_year": {1e12}, "sim.replace_hours": {1e300}, "sim.batch_factor": {1e9}} {
		c, known := Defaults().Find(name)
		for _, v := range values {
			if err := Defaults().Set(name, v, "test"); err == nil || !known {
				t.Errorf("%s = %g %s is taken", name, v, c.Unit)
			}
		}
	}
	for name, v := range map[string]float64{"sim.disk_afr": 10, "sim.server_afr": 365, "sim.rebuild_mbps": 0.1, "sim.disk_afr ": 0} {
		if err := Defaults().Set(strings.TrimSpace(name), v, "test"); err != nil {
			t.Errorf("%s = %g: %v", name, v, err)
		}
	}
	for _, c := range Defaults().All() {
		if c.Value > largestOf(c.Unit) || c.Value < lowest(c.Name) {
			t.Errorf("%s: the default %g %s would be refused", c.Name, c.Value, c.Unit)
		}
	}
}

// TestLogs: two servers that serve have a file system each, and so two logs.
func TestLogs(t *testing.T) {
	one, two := nss4(), nss4()
	two.Servers = 2
	var peak [2]float64
	for i, h := range []Hardware{one, two} {
		f, err := New(h, Defaults())
		if err != nil {
			t.Fatal(err)
		}
		l, _ := f.Line(Create)
		peak[i] = l.Peak
	}
	if peak[1] != 2*peak[0] {
		t.Errorf("file create: %g of one server, %g of two", peak[0], peak[1])
	}
}

// TestSimulateStopsSoon: not only after 1,024 bricks, each of which may take long.
func TestSimulateStopsSoon(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	seen := 0
	f := typical(1000)
	_, err := Simulate(ctx, f, func(int) { seen++; cancel() })
	if !errors.Is(err, context.Canceled) || seen != 1 {
		t.Errorf("%v after %d reports", err, seen)
	}
}

package forecast

import (
	"math"
	"testing"
)

func TestSpeed(t *testing.T) {
	for s, want := range map[string]float64{"10Gb/s": 10, "100Gb/s": 100, "1Gb/s": 1, "2.5Gb/s": 2.5, "100Mb/s": 0.1, "": 0, "fast": 0, "10": 0, "Gb/s": 0, "b/s": 0, "10Gb/sx": 0} {
		if got := speed(s); math.Abs(got-want) > 1e-12 {
			t.Errorf("speed(%q) = %g, want %g", s, got, want)
		}
	}
}

// FuzzParseFile: whatever the file holds, it is read or refused, and what is
// applied leaves a table that can be calculated with.
func FuzzParseFile(f *testing.F) {
	f.Add([]byte("nfs.client_mbps: 1200\nhw.cores: 32\n"))
	f.Add([]byte("sim.disk_afr: .inf\n"))
	f.Add([]byte("a: [1]\n"))
	f.Add([]byte("? x\n: y"))
	f.Fuzz(func(t *testing.T, src []byte) {
		list, err := ParseFile("f.yaml", src)
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

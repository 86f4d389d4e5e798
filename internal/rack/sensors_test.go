package rack

import (
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/mortarhpc/mortar/internal/base/health"
	"github.com/mortarhpc/mortar/internal/base/ipmi"
	"github.com/mortarhpc/mortar/internal/rack/hw"
	"github.com/mortarhpc/mortar/internal/rack/power"
	"github.com/mortarhpc/mortar/internal/rack/tool"
)

// A real ipmi_sim serves the sensors, and a real ipmitool reads them: those of a new
// machine, then with a cord without power, a hot inlet and a slow fan.
func TestSensors(t *testing.T) {
	r := &rack{dir: t.TempDir(), cfg: &hw.Config{}}
	n := &hw.Node{Name: "nfs1", BMC: &hw.BMC{Address: netip.MustParseAddr("127.62.3.1"), User: "mortar", Privilege: "operator"}, Feeds: []hw.Feed{{PDU: "pdu-a", Outlet: 1}, {PDU: "pdu-b", Outlet: 1}}}
	run := tool.RunDir(r.dir)
	if err := os.MkdirAll(filepath.Join(run, "state"), 0o700); err != nil {
		t.Fatal(err)
	}
	r.cfg.Nodes = []hw.Node{*n}
	h := &hw.Hardware{}
	if err := ensureSensors(r, n, h); err != nil {
		t.Fatal(err)
	}
	for file, text := range map[string]string{"conf": power.BMCConfig(n, "s3cret"), "emu": power.BMCCommands(n), "password": "s3cret"} {
		if err := os.WriteFile(filepath.Join(run, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	start := func() func() {
		sim := exec.Command("ipmi_sim", "-c", "conf", "-f", "emu", "-s", "state", "-n")
		sim.Dir = run
		if err := sim.Start(); err != nil {
			t.Fatal(err)
		}
		return func() { _ = sim.Process.Kill(); _ = sim.Wait() }
	}
	stop := start()
	defer func() { stop() }()
	// reads waits until the sensors are as wanted: ipmi_sim reads the files every 2 s.
	reads := func(want ...ipmi.Sensor) {
		t.Helper()
		var got []ipmi.Sensor
		for range 50 {
			out, _ := exec.Command("ipmitool", "-I", "lanplus", "-H", n.BMC.Address.String(), "-U", "mortar", "-f", filepath.Join(run, "password"), "-C", "3", "-L", "operator", "-c", "sdr", "elist").Output()
			if got = ipmi.Sensors(string(out)); reflect.DeepEqual(got, want) {
				return
			}
			time.Sleep(300 * time.Millisecond)
		}
		t.Fatalf("got  %+v\nwant %+v", got, want)
	}
	inlet := ipmi.Sensor{Name: "Inlet Temp", Text: "24 degrees C"}
	fan1, fan2 := ipmi.Sensor{Name: "Fan1 RPM", Text: "5400 RPM"}, ipmi.Sensor{Name: "Fan2 RPM", Text: "5400 RPM"}
	ps1, ps2 := ipmi.Sensor{Name: "PS1 Status", Text: "Presence detected"}, ipmi.Sensor{Name: "PS2 Status", Text: "Presence detected"}
	reads(inlet, fan1, fan2, ps1, ps2)

	h.Off = map[string]bool{hw.OutletKey("pdu-b", 1): true}
	if err := ensureSensors(r, n, h); err != nil {
		t.Fatal(err)
	}
	for _, f := range []string{"nfs1 inlet 43", "nfs1 fan2 3"} {
		if err := faultOf(t, r, f); err != nil {
			t.Fatal(err)
		}
	}
	hot := ipmi.Sensor{Name: "Inlet Temp", Level: health.Fault, Text: "43 degrees C"}
	slow := ipmi.Sensor{Name: "Fan2 RPM", Level: health.Fault, Text: "300 RPM"}
	dark := ipmi.Sensor{Name: "PS2 Status", Level: health.Fault, Text: "Presence detected, Power Supply AC lost"}
	reads(hot, fan1, slow, ps1, dark)

	stop() // a BMC that died and came back has each sensor once
	stop = start()
	reads(hot, fan1, slow, ps1, dark)

	for _, f := range []string{"nfs1 fan3 3", "nfs1 inlet 300", "nfs1 ps1 0", "nfs9 inlet 3"} {
		if err := faultOf(t, r, f); err == nil {
			t.Errorf("%s: no refusal", f)
		}
	}
}

// A node takes 2 A over the cords that have power; other machines come on top.
func TestPDULoad(t *testing.T) {
	r := &rack{cfg: &hw.Config{Nodes: []hw.Node{{Name: "s1", Feeds: []hw.Feed{{PDU: "a", Outlet: 1}, {PDU: "b", Outlet: 1}}}, {Name: "s2", Feeds: []hw.Feed{{PDU: "a", Outlet: 2}, {PDU: "b", Outlet: 2}}}, {Name: "c1", Feeds: []hw.Feed{{PDU: "b", Outlet: 3}}}}}}
	h := &hw.Hardware{}
	for _, c := range []struct {
		off  string
		a, b int
	}{{"", 20, 40}, {"a/1", 10, 50}, {"b/3", 20, 20}} {
		h.Off = map[string]bool{c.off: true}
		if a, b := h.LoadOf(r.cfg, "a"), h.LoadOf(r.cfg, "b"); a != c.a || b != c.b {
			t.Errorf("without %q: %d and %d, want %d and %d", c.off, a, b, c.a, c.b)
		}
	}
	h.Off, h.Loads = nil, map[string]int{"a": 95}
	if got := h.LoadOf(r.cfg, "a"); got != 115 {
		t.Errorf("with others: %d", got)
	}
}

// faultOf sets a sensor as Fault does.
func faultOf(t *testing.T, r *rack, words string) (err error) {
	target := &targets{r, strings.Fields(words)}
	defer target.refusal(&err)
	return sensorFault(t.Context(), target, true)
}

package rack

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mortarhpc/mortar/internal/rack/hw"
	"github.com/mortarhpc/mortar/internal/rack/nodeimage"
	"github.com/mortarhpc/mortar/internal/rack/power"
	"github.com/mortarhpc/mortar/internal/rack/qemu"
	"github.com/mortarhpc/mortar/internal/rack/tool"
)

var update = flag.Bool("update", false, "write the golden files")

// testConfig is a small rack with one of everything.
func testConfig() hw.Config {
	c := hw.Config{
		Name: "t", Suite: "trixie",
		Networks: []hw.Network{{Name: "public", MTU: 9000}, {Name: "private", MTU: 1500}, {Name: "mgmt", MTU: 1500, Admin: netip.MustParsePrefix("10.9.3.254/24")}},
		Enclosures: []hw.Enclosure{
			{Name: "enc1", Disks: []hw.Disk{{Name: "e1d1", Serial: "NL0001", WWN: "5000c50000000101", Vendor: "SEAGATE", Product: "ST1", Bytes: 1 << 30, IOPS: 120, BytesPerSecond: 150e6}}},
			{Name: "enc2", Disks: []hw.Disk{{Name: "e2d1", Serial: "NL0002", WWN: "5000c50000000201", Bytes: 1 << 30, SSD: true}}},
		},
		SSDs: []hw.Disk{{Name: "nv1", Serial: "NV0001", Bytes: 1 << 30}},
		PDUs: []hw.PDU{{Name: "pdu1", Address: netip.MustParseAddr("10.9.3.111"), CommunityFile: "/secrets/pdu1", Outlets: 2},
			{Name: "pdu2", Address: netip.MustParseAddr("10.9.3.112"), CommunityFile: "/secrets/pdu2", Outlets: 2}},
	}
	for i, name := range []string{"s1", "s2"} {
		addr := func(network int) netip.Prefix {
			return netip.MustParsePrefix(fmt.Sprintf("10.9.%d.%d/24", network, i+1))
		}
		c.Nodes = append(c.Nodes, hw.Node{
			Name: name, Role: hw.RoleServer, MemoryMiB: 1280,
			NICs:  []hw.NIC{{Network: "public", Address: addr(1)}, {Network: "private", Address: addr(2)}, {Network: "mgmt", Address: addr(3)}},
			BMC:   &hw.BMC{Address: netip.MustParseAddr(fmt.Sprintf("10.9.3.10%d", i+1)), User: "admin", PasswordFile: "/secrets/" + name},
			Feeds: []hw.Feed{{PDU: "pdu1", Outlet: i + 1}, {PDU: "pdu2", Outlet: i + 1}},
		})
	}
	c.Nodes = append(c.Nodes, hw.Node{Name: "c1", Role: hw.RoleClient, MemoryMiB: 768, NICs: []hw.NIC{
		{Network: "public", Address: netip.MustParsePrefix("10.9.1.11/24")},
		{Network: "mgmt", Address: netip.MustParsePrefix("10.9.3.11/24")}}})
	c.SetMACs()
	return c
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("%s differs (go test -update writes it):\n%s", name, d)
	}
}

func TestCheck(t *testing.T) {
	whole := testConfig()
	if err := whole.Check(); err != nil {
		t.Fatal(err)
	}
	for i, change := range []func(c *hw.Config){
		func(c *hw.Config) { c.Name = "No" },
		func(c *hw.Config) { c.Suite = "buster" },
		func(c *hw.Config) { c.Accel = "xen" },
		func(c *hw.Config) { c.Enclosures[1].Disks[0].Serial = "NL0001" },
		func(c *hw.Config) { c.SSDs[0].Serial = "a,b" },
		func(c *hw.Config) { c.Enclosures[0].Disks[0].WWN = "600c0ff00053dc2a5000000001000000" },
		func(c *hw.Config) { c.Nodes[1].Name = "s1" },
		func(c *hw.Config) { c.Nodes[1].Name = "s1.example" },
		func(c *hw.Config) { c.SSDs[0].Name = "s1" },
		func(c *hw.Config) { c.PDUs[0].Name = "PDU_1" },
		func(c *hw.Config) { c.Nodes[0].MemoryMiB = 128 },
		func(c *hw.Config) { c.Nodes[0].Boot = "floppy" },
		func(c *hw.Config) { c.Enclosures[0].Paths, c.Enclosures[1].Paths = 400, 402 },
		func(c *hw.Config) {
			for i := range hw.MaxSSDs {
				c.SSDs = append(c.SSDs, hw.Disk{Name: fmt.Sprint("more", i), Serial: fmt.Sprint("MORE", i)})
			}
		},
		func(c *hw.Config) {
			for i := range 97 {
				c.Nodes = append(c.Nodes, hw.Node{Name: fmt.Sprint("more", i), MemoryMiB: 256})
			}
		},
	} {
		c := testConfig()
		change(&c)
		var refused *tool.RefusedError
		if err := c.Check(); !errors.As(err, &refused) || len(refused.Problems) != 1 {
			t.Errorf("change %d: %v", i, err)
		}
	}
	// A group of an array whose disk is too small.
	c := arrayConfig(t)
	if err := c.Check(); err != nil {
		t.Error(err)
	}
	e := c.Arrays()[0]
	e.Array.Disks[0].Bytes = e.Array.Groups[0].MemberBytes - 512
	if err := c.Check(); err == nil {
		t.Error("taken")
	}
}

func TestNodeArgs(t *testing.T) {
	c := testConfig()
	img := &nodeimage.Image{Dir: "/cache/0123"}
	state := &hw.Hardware{PathsOut: map[string]bool{"s1/e1d1/1": true}, Speeds: map[string]hw.Speed{"e2d1": {IOPS: 50}}}
	measured := qemu.TSCkHz
	t.Cleanup(func() { qemu.TSCkHz = measured })
	qemu.TSCkHz = func() int { return 2_600_000 }
	for i, accel := range []string{"tcg", "kvm", "tcg"} {
		args, err := qemu.NodeArgs(&c, "/rack", i, img, accel, state, 0)
		if err != nil {
			t.Fatal(err)
		}
		golden(t, "args-"+c.Nodes[i].Name+".txt", strings.Join(args, "\n")+"\n")
	}
	// A pulled disk has no path on any server, and a dead module costs each of its
	// disks one path.
	state = &hw.Hardware{DisksOut: map[string]bool{"e1d1": true, "nv1": true}, ModulesOut: map[string]bool{"enc2/0": true},
		SystemOut: map[string]bool{"s2/0": true}}
	args, err := qemu.NodeArgs(&c, "/rack", 1, img, "tcg", state, 0)
	if err != nil {
		t.Fatal(err)
	}
	all := strings.Join(args, "\n")
	for id, want := range map[string]bool{"path0-sd0": false, "path1-sd0": false, "path0-sd1": false, "path1-sd1": true, "nvme0": false,
		"system0-dev": false, "sysslot0": true, "system1-dev": true} {
		if got := strings.Contains(all, `"id":"`+id+`"`); got != want {
			t.Errorf("device %s: there is %v, want %v", id, got, want)
		}
	}
}

func TestNetworkCommands(t *testing.T) {
	c := testConfig()
	golden(t, "network.txt", strings.Join(networkCommands(&c, "/rack"), "\n")+"\n")
}

func TestNodeFiles(t *testing.T) {
	c := testConfig()
	golden(t, "hosts.txt", hostsFile(&c))
	golden(t, "addresses.txt", addressesFile(&c, &c.Nodes[2]))
	ids := map[string]bool{}
	for i := range c.Nodes {
		id := machineID(&c, &c.Nodes[i])
		if len(id) != 32 || ids[id] || id[12] != '4' {
			t.Errorf("machine-id %q of %s", id, c.Nodes[i].Name)
		}
		ids[id] = true
	}
}

// The two system disks of a server hold the same bytes, since the server assumes a
// mirror in sync.
func TestSystemDisksAreEqual(t *testing.T) {
	c := testConfig()
	r := &rack{dir: t.TempDir(), cfg: &c}
	if err := os.MkdirAll(filepath.Join(r.dir, "ssh"), 0o700); err != nil {
		t.Fatal(err)
	}
	for i := range c.Nodes {
		if err := os.MkdirAll(filepath.Join(r.dir, "nodes", c.Nodes[i].Name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := ensureSeeds(t.Context(), r, ""); err != nil {
		t.Fatal(err)
	}
	disks := hw.SystemDisksOf(r.dir, &c.Nodes[0])
	if len(disks) != 2 || len(hw.SystemDisksOf(r.dir, &c.Nodes[2])) != 1 {
		t.Fatalf("%+v", disks)
	}
	sums := map[string]bool{}
	for _, d := range disks {
		f, err := os.Open(d.Image)
		if err != nil {
			t.Fatal(err)
		}
		h := sha256.New()
		n, err := io.Copy(h, f)
		if err != nil || n != hw.StateBytes {
			t.Errorf("%s: %d bytes, %v", d.Image, n, err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		sums[string(h.Sum(nil))] = true
		if a := allocated(d.Image); a > hw.StateBytes/8 {
			t.Errorf("%s takes %d bytes", d.Image, a)
		}
	}
	if len(sums) != 1 {
		t.Error("they differ")
	}
	// ensureStateImage does not make one of two images again.
	if err := os.Remove(disks[1].Image); err != nil {
		t.Fatal(err)
	}
	if err := ensureSeeds(t.Context(), r, ""); err == nil {
		t.Error("no error without an image")
	}
}

func TestPowerConfigs(t *testing.T) {
	c := testConfig()
	golden(t, "bmc.conf", power.BMCConfig(&c.Nodes[0], "s3cret"))
	golden(t, "pdu.conf", power.SNMPConfig(&c.PDUs[0], []string{"s3cret"}))
	c.PDUs[0].SNMP = &hw.SNMP{User: "fencer", Auth: "SHA-256", Privacy: "AES"}
	golden(t, "pdu-v3.conf", power.SNMPConfig(&c.PDUs[0], []string{"s3cret-a", "s3cret-p"}))
}

func TestPowered(t *testing.T) {
	c := testConfig()
	n := &c.Nodes[0]
	h := &hw.Hardware{}
	hw.Set(&h.Off, hw.OutletKey("pdu1", 1), true)
	if !h.Powered(n) {
		t.Error("one of two cords is enough")
	}
	hw.Set(&h.Off, hw.OutletKey("pdu2", 1), true)
	if h.Powered(n) {
		t.Error("both cords are off")
	}
	if !h.Powered(&c.Nodes[2]) {
		t.Error("a node without cords always has power")
	}
	hw.Set(&h.Off, hw.OutletKey("pdu1", 1), false)
	if !h.Powered(n) || len(h.Off) != 1 {
		t.Error("one cord is on again")
	}
}

func TestLastStage(t *testing.T) {
	for console, want := range map[string]bootState{
		"":                         {Stage: stageUnknown},
		"MORTAR-RACK power-on 0\n": {Stage: "power-on"},
		"x\r\n\x1b[2JMORTAR-RACK kernel 2.04\r\n":                                  {Stage: "kernel", Seconds: 2.04},
		"MORTAR-RACK multi-user 14.7\nMORTAR-RACK reset 0\nMORTAR-RACK kernel 1.5": {Stage: "kernel", Seconds: 1.5},
		"MORTAR-RACK failed: no root disk 12.01\n":                                 {Stage: "failed: no root disk", Seconds: 12.01},
		"MORTAR-RACK power-on 0\n[ 12.9] Kernel panic - not syncing: NMI\n[ 13.0]": {Stage: "panic"},
		"Kernel panic - not syncing: NMI\nMORTAR-RACK reset 0\n":                   {Stage: "reset"},
	} {
		if got := lastStage(console); got != want {
			t.Errorf("%q: %v, want %v", console, got, want)
		}
	}
}

func TestFaultArguments(t *testing.T) {
	c := testConfig()
	dir := t.TempDir()
	if err := tool.SaveJSON(filepath.Join(dir, "config.json"), &c); err != nil {
		t.Fatal(err)
	}
	if err := (&state{Phase: phaseUp}).save(dir); err != nil {
		t.Fatal(err)
	}
	for _, fault := range []string{
		"melt s1", "freeze", "freeze s1 s2", "freeze s9", "path-out c1 e1d1 0", "path-out s1 e9d1 0", "path-out s1 e1d1 2", "module-out enc9 0", "link-down c1 private",
		"feed-off pdu1 9", "feed-off pdu1 x", "system-disk-out c1 0", "system-disk-out s1 2", "corrupt e1d1 -1 5", "corrupt e1d1 1073741823 5",
		"throttle e1d1 -1 0", "throttle e1d1 18 0 x", "bmc-dead c1", "pdu-dead pdu9",
	} {
		f := strings.Fields(fault)
		var refused *tool.RefusedError
		if err := Fault(context.Background(), dir, f[0], f[1:]...); !errors.As(err, &refused) {
			t.Errorf("%s: %v", fault, err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "hardware.json")); err == nil {
		t.Error("a refused fault changed the hardware")
	}
}

// A fault that puts a blank disk into a slot is no error the second time: the new disk is in.
func TestBlankDiskTwice(t *testing.T) {
	c := testConfig()
	dir := t.TempDir()
	if err := tool.SaveJSON(filepath.Join(dir, "config.json"), &c); err != nil {
		t.Fatal(err)
	}
	if err := (&state{Phase: phaseUp}).save(dir); err != nil {
		t.Fatal(err)
	}
	disk := c.Enclosures[0].Disks[0]
	for _, f := range [][]string{{"disk-out", disk.Serial}, {"disk-blank", "GONE", disk.Serial}} {
		if err := Fault(context.Background(), dir, f[0], f[1:]...); err != nil {
			t.Fatal(f, err)
		}
	}
	if h, err := loadHardware(dir); err != nil || h.DisksOut[disk.Name] {
		t.Errorf("%v: disk %s is still out", err, disk.Name)
	}
	if err := Fault(context.Background(), dir, "disk-blank", "GONE", "NEW"); err == nil {
		t.Error("there is no disk GONE")
	}
	if err := Renewable(dir, "s1"); err != nil {
		t.Error(err)
	}
	c.Nodes[0].Boot = hw.BootDistribution
	if err := tool.SaveJSON(filepath.Join(dir, "config.json"), &c); err != nil {
		t.Fatal(err)
	}
	if err := Renewable(dir, c.Nodes[0].Name); err == nil {
		t.Error("a server that boots as its distribution does is made anew")
	}
}

// The rack remembers faults of nodes that are off, for their start.
func TestFaultsAreRemembered(t *testing.T) {
	c := testConfig()
	dir := t.TempDir()
	if err := tool.SaveJSON(filepath.Join(dir, "config.json"), &c); err != nil {
		t.Fatal(err)
	}
	if err := (&state{Phase: phaseUp}).save(dir); err != nil {
		t.Fatal(err)
	}
	for _, f := range []string{"path-out s1 e1d1 1", "paths-out s2 enc2", "module-out enc1 0", "disk-out nv1", "link-down s1 private", "throttle e2d1 18 5000 3",
		"throttle e1d1 10 0", "path-out s1 e2d1 0", "path-in s1 e2d1 0", "system-disk-out s2 1", "system-disk-in s2 0"} {
		a := strings.Fields(f)
		for range 2 {
			if err := Fault(context.Background(), dir, a[0], a[1:]...); err != nil {
				t.Fatalf("%s: %v", f, err)
			}
		}
	}
	h, err := loadHardware(dir)
	if err != nil {
		t.Fatal(err)
	}
	want := &hw.Hardware{
		PathsOut:   map[string]bool{"s1/e1d1/1": true, "s2/e2d1/0": true, "s2/e2d1/1": true},
		ModulesOut: map[string]bool{"enc1/0": true},
		DisksOut:   map[string]bool{"nv1": true},
		LinksDown:  map[string]bool{"s1/private": true},
		SystemOut:  map[string]bool{"s2/1": true},
		Speeds:     map[string]hw.Speed{"e1d1": {IOPS: 10}, "e2d1": {IOPS: 18, BytesPerSecond: 5000, Writes: 3}},
	}
	if d := cmp.Diff(want, h); d != "" {
		t.Error(d)
	}
	if err := Fault(context.Background(), dir, "system-disk-out", "s2", "0"); err == nil {
		t.Error("the last system disk is pulled")
	}
	s, err := Status(context.Background(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"s1/0", "s1/1", "s2/0"}, s.Disks[0].PathsOut); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]SystemDiskStatus{{0, "sys0-s2", true}, {1, "sys1-s2", false}}, s.Nodes[1].SystemDisks); d != "" {
		t.Error(d)
	}
	if s.Disks[2].Present || s.Nodes[0].Links[1].Up || s.Nodes[0].Power != "off" || s.Nodes[0].BMC != "dead" {
		t.Errorf("%+v", s)
	}
}

func TestCorrupt(t *testing.T) {
	c := testConfig()
	dir := t.TempDir()
	if err := tool.SaveJSON(filepath.Join(dir, "config.json"), &c); err != nil {
		t.Fatal(err)
	}
	if err := (&state{Phase: phaseUp}).save(dir); err != nil {
		t.Fatal(err)
	}
	r, err := openRack(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := ensureDisks(r); err != nil {
		t.Fatal(err)
	}
	if err := Fault(context.Background(), dir, "corrupt", "e1d1", "4096", "64"); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(hw.DiskImage(dir, "e1d1"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, 192)
	if _, err := f.ReadAt(b, 4032); err != nil {
		t.Fatal(err)
	}
	zero := make([]byte, 64)
	if !bytes.Equal(b[:64], zero) || bytes.Equal(b[64:128], zero) || !bytes.Equal(b[128:], zero) {
		t.Errorf("% x", b)
	}
	if st, err := f.Stat(); err != nil || st.Size() != 1<<30 {
		t.Errorf("size %v, %v", st, err)
	}
}

// Down of a directory without a rack is no error, and leaves other files.
func TestDownOfNothing(t *testing.T) {
	dir := t.TempDir()
	for range 2 {
		if err := Down(context.Background(), filepath.Join(dir, "none"), false); err != nil {
			t.Error(err)
		}
	}
	if os.Geteuid() != 0 {
		return // the rest needs root
	}
	mine := filepath.Join(dir, "notes.txt")
	if err := os.WriteFile(mine, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "state.json"), []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := Down(context.Background(), dir, false); err != nil {
			t.Error(err)
		}
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 || left[0].Name() != "notes.txt" {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestProcNetAddress(t *testing.T) {
	if got := procNetAddress(netip.MustParseAddr("10.9.3.101"), 623); got != " 6503090A:026F " {
		t.Errorf("%q", got)
	}
}

package rack

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files")

// testConfig is a small rack with one of everything.
func testConfig() Config {
	c := Config{
		Name: "t", Suite: "trixie",
		Networks: []Network{{Name: "public", MTU: 9000}, {Name: "private", MTU: 1500}, {Name: "mgmt", MTU: 1500, Admin: netip.MustParsePrefix("10.9.3.254/24")}},
		Enclosures: []Enclosure{
			{Name: "enc1", Disks: []Disk{{Name: "e1d1", Serial: "NL0001", WWN: "5000c50000000101", Vendor: "SEAGATE", Product: "ST1", Bytes: 1 << 30, IOPS: 120, BytesPerSecond: 150e6}}},
			{Name: "enc2", Disks: []Disk{{Name: "e2d1", Serial: "NL0002", WWN: "5000c50000000201", Bytes: 1 << 30, SSD: true}}},
		},
		SSDs: []Disk{{Name: "nv1", Serial: "NV0001", Bytes: 1 << 30}},
		PDUs: []PDU{{Name: "pdu1", Address: netip.MustParseAddr("10.9.3.111"), CommunityFile: "/secrets/pdu1", Outlets: 2},
			{Name: "pdu2", Address: netip.MustParseAddr("10.9.3.112"), CommunityFile: "/secrets/pdu2", Outlets: 2}},
	}
	for i, name := range []string{"s1", "s2"} {
		addr := func(network int) netip.Prefix {
			return netip.MustParsePrefix(fmt.Sprintf("10.9.%d.%d/24", network, i+1))
		}
		c.Nodes = append(c.Nodes, Node{
			Name: name, Role: RoleServer, MemoryMiB: 1280,
			NICs:  []NIC{{Network: "public", Address: addr(1)}, {Network: "private", Address: addr(2)}, {Network: "mgmt", Address: addr(3)}},
			BMC:   &BMC{Address: netip.MustParseAddr(fmt.Sprintf("10.9.3.10%d", i+1)), User: "admin", PasswordFile: "/secrets/" + name},
			Feeds: []Feed{{"pdu1", i + 1}, {"pdu2", i + 1}},
		})
	}
	c.Nodes = append(c.Nodes, Node{Name: "c1", Role: RoleClient, MemoryMiB: 768, NICs: []NIC{
		{Network: "public", Address: netip.MustParsePrefix("10.9.1.11/24")},
		{Network: "mgmt", Address: netip.MustParsePrefix("10.9.3.11/24")}}})
	c.setMACs()
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
	if err := whole.check(); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		want   string
		change func(c *Config)
	}{
		{`rack name "No"`, func(c *Config) { c.Name = "No" }},
		{`suite "buster"`, func(c *Config) { c.Suite = "buster" }},
		{`accel "xen"`, func(c *Config) { c.Accel = "xen" }},
		{`disk e2d1: serial "NL0001"`, func(c *Config) { c.Enclosures[1].Disks[0].Serial = "NL0001" }},
		{`disk nv1: serial "a,b"`, func(c *Config) { c.SSDs[0].Serial = "a,b" }},
		{`WWN "600c0ff00053dc2a5000000001000000"`, func(c *Config) { c.Enclosures[0].Disks[0].WWN = "600c0ff00053dc2a5000000001000000" }},
		{"node name s1: something else", func(c *Config) { c.Nodes[1].Name = "s1" }},
		{`node name "s1.example"`, func(c *Config) { c.Nodes[1].Name = "s1.example" }},
		{"disk name s1: something else", func(c *Config) { c.SSDs[0].Name = "s1" }},
		{`pdu name "PDU_1"`, func(c *Config) { c.PDUs[0].Name = "PDU_1" }},
		{"node s1: 128 MiB", func(c *Config) { c.Nodes[0].MemoryMiB = 128 }},
		{`node s1: boot "floppy": want distribution or nothing`, func(c *Config) { c.Nodes[0].Boot = "floppy" }},
		{"401 targets", func(c *Config) { c.Enclosures[0].Paths, c.Enclosures[1].Paths = 400, 402 }},
		{"33 SSDs", func(c *Config) { c.SSDs = make([]Disk, 33) }},
		{"100 nodes", func(c *Config) { c.Nodes = make([]Node, 100) }},
	} {
		c := testConfig()
		tc.change(&c)
		err := c.check()
		var refused *RefusedError
		if !errors.As(err, &refused) || refused.ExitCode() != 2 || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("want an error with %q, got %v", tc.want, err)
		}
	}
	// A group of an array whose disk is too small.
	c := arrayConfig(t)
	e := c.arrays()[0]
	e.Array.Disks[0].Bytes = e.Array.Groups[0].MemberBytes - 512
	if err := c.check(); err == nil || !strings.Contains(err.Error(), "which has not that many") {
		t.Error(err)
	}
}

func TestNodeArgs(t *testing.T) {
	c := testConfig()
	img := &image{Dir: "/cache/0123"}
	state := &hardware{PathsOut: map[string]bool{"s1/e1d1/1": true}, Speeds: map[string]speed{"e2d1": {IOPS: 50}}}
	measured := tscKHz
	t.Cleanup(func() { tscKHz = measured })
	tscKHz = func() int { return 2_600_000 }
	for i, accel := range []string{"tcg", "kvm", "tcg"} {
		args, err := nodeArgs(&c, "/rack", i, img, accel, state, 0)
		if err != nil {
			t.Fatal(err)
		}
		golden(t, "args-"+c.Nodes[i].Name+".txt", strings.Join(args, "\n")+"\n")
	}
	// A pulled disk has no path on any server, and a dead module costs each of its
	// disks one path.
	state = &hardware{DisksOut: map[string]bool{"e1d1": true, "nv1": true}, ModulesOut: map[string]bool{"enc2/0": true},
		SystemOut: map[string]bool{"s2/0": true}}
	args, err := nodeArgs(&c, "/rack", 1, img, "tcg", state, 0)
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
	disks := systemDisksOf(r.dir, &c.Nodes[0])
	if len(disks) != 2 || len(systemDisksOf(r.dir, &c.Nodes[2])) != 1 {
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
		if err != nil || n != stateBytes {
			t.Errorf("%s: %d bytes, %v", d.Image, n, err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		sums[string(h.Sum(nil))] = true
		if a := allocated(d.Image); a > stateBytes/8 {
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
	golden(t, "bmc.conf", bmcConfig(&c.Nodes[0], "s3cret"))
	golden(t, "pdu.conf", pduSNMPConfig(&c.PDUs[0], []string{"s3cret"}))
	c.PDUs[0].SNMP = &SNMP{User: "fencer", Auth: "SHA-256", Privacy: "AES"}
	golden(t, "pdu-v3.conf", pduSNMPConfig(&c.PDUs[0], []string{"s3cret-a", "s3cret-p"}))
}

func TestParseAptSources(t *testing.T) {
	for name, tc := range map[string]struct {
		deb822 bool
		text   string
		want   []aptSource
	}{
		"deb822": {true, `Types: deb
# a comment
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: http://mirror.example/debian-security
Suites: bookworm-security
Components: main
`, []aptSource{{"http://mirror.example/debian", "/usr/share/keyrings/debian-archive-keyring.gpg"}}},
		"a key in the entry, continued lines": {true, `Types: deb deb-src
URIs:
 https://mirror.example/debian
Suites: trixie
Components: main contrib
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 xxx
`, []aptSource{{"https://mirror.example/debian", ""}}},
		"disabled, sources only, third parties": {true, `Enabled: no
Types: deb
URIs: http://a.example/debian
Suites: trixie
Components: main

Types: deb-src
URIs: http://b.example/debian
Suites: trixie
Components: main

Types: deb
URIs: https://packages.example/apt
Suites: cloud-sdk-bookworm
Components: main
`, nil},
		"one line": {false, `# deb http://old.example/debian bookworm main
deb [arch=amd64 signed-by=/etc/apt/keyrings/d.gpg] http://mirror.example/debian bookworm main contrib # mirror
deb-src http://mirror.example/debian bookworm main
deb http://security.example/debian-security bookworm-security main
`, []aptSource{{"http://mirror.example/debian", "/etc/apt/keyrings/d.gpg"}}},
		"options in one word": {false, "deb [trusted=yes] file:/srv/debian trixie main\n", []aptSource{{"file:/srv/debian", ""}}},
		"cdrom":               {false, "deb cdrom:[Debian]/ bookworm main\n", nil},
	} {
		t.Run(name, func(t *testing.T) {
			parse := parseOneLine
			if tc.deb822 {
				parse = parseDeb822
			}
			if d := cmp.Diff(tc.want, parse(tc.text)); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestHostAptSource(t *testing.T) {
	dir := t.TempDir()
	if _, err := hostAptSource(dir); err == nil || !strings.Contains(err.Error(), "--mirror") {
		t.Errorf("no sources: %v", err)
	}
	list := filepath.Join(dir, "debian.list")
	write := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("debian.list", "# first of:\nhttps://cloud.example/debian\tpriority:1\n")
	write("sources.list.d/debian.sources", "Types: deb\nURIs: mirror+file:"+list+"\nSuites: trixie\nComponents: main\n")
	if s, err := hostAptSource(dir); err != nil || s.URI != "https://cloud.example/debian" {
		t.Errorf("%v, %v", s, err)
	}
	write("sources.list", "deb http://first.example/debian bookworm main\n")
	if s, err := hostAptSource(dir); err != nil || s.URI != "http://first.example/debian" {
		t.Errorf("%v, %v", s, err)
	}
}

func TestPDUWalk(t *testing.T) {
	table := pduTable(&PDU{Outlets: 2}, 25, func(o int) string { return fmt.Sprint("s", o) }, func(o int) bool { return o == 2 })
	var walk []string
	at, err := parseOID(".1.3.6.1.4.1.318")
	if err != nil {
		t.Fatal(err)
	}
	for v := snmpNext(table, at); v != nil; v = snmpNext(table, at) {
		if slices.Compare(v.OID, at) <= 0 {
			t.Fatalf("the walk goes back from %v to %v", at, v.OID)
		}
		at = v.OID
		walk = append(walk, formatOID(v.OID)+" "+v.Type+" "+v.Value)
	}
	if d := cmp.Diff([]string{
		".1.3.6.1.4.1.318.1.1.12.2.2.1.1.3.1 integer 12",
		".1.3.6.1.4.1.318.1.1.12.2.2.1.1.4.1 integer 16",
		".1.3.6.1.4.1.318.1.1.12.2.3.1.1.2.1 gauge 25",
		".1.3.6.1.4.1.318.1.1.12.3.3.1.1.2.1 string s1",
		".1.3.6.1.4.1.318.1.1.12.3.3.1.1.2.2 string s2",
		".1.3.6.1.4.1.318.1.1.12.3.3.1.1.4.1 integer 2",
		".1.3.6.1.4.1.318.1.1.12.3.3.1.1.4.2 integer 1",
		".1.3.6.1.4.1.318.1.1.12.3.5.1.1.2.1 string s1",
		".1.3.6.1.4.1.318.1.1.12.3.5.1.1.2.2 string s2",
		".1.3.6.1.4.1.318.1.1.12.3.5.1.1.4.1 integer 2",
		".1.3.6.1.4.1.318.1.1.12.3.5.1.1.4.2 integer 1",
	}, walk); d != "" {
		t.Error(d)
	}
}

func TestServePass(t *testing.T) {
	p := &PDU{Outlets: 2}
	off := map[int]bool{}
	var turned []string
	var out bytes.Buffer
	in := strings.Join([]string{
		"PING",
		"get", ".1.3.6.1.4.1.318.1.1.12.3.5.1.1.4.1",
		"get", ".1.3.6.1.4.1.318.1.1.12.3.5.1.1.4.9",
		"getnext", ".1.3.6.1.4.1.318.1.1.12.3.3.1.1.2",
		"getnext", ".1.3.6.1.4.1.318.1.1.12.3.5.1.1.4.2",
		"set", ".1.3.6.1.4.1.318.1.1.12.3.3.1.1.4.1", "integer 2",
		"get", ".1.3.6.1.4.1.318.1.1.12.3.5.1.1.4.1",
		"set", ".1.3.6.1.4.1.318.1.1.12.3.3.1.1.4.1", "integer 3",
		"set", ".1.3.6.1.4.1.318.1.1.12.3.3.1.1.4.1", "integer 7",
		"set", ".1.3.6.1.4.1.318.1.1.12.3.3.1.1.4.1", "string 1",
		"set", ".1.3.6.1.4.1.318.1.1.12.3.5.1.1.4.1", "integer 1",
		"set", ".1.3.6.1.4.1.318.1.1.12.3.3.1.1.4.3", "integer 1",
		"get", "nonsense",
	}, "\n") + "\n"
	err := servePass(strings.NewReader(in), &out, func() ([]snmpValue, error) {
		return pduTable(p, 25, func(int) string { return "x" }, func(o int) bool { return !off[o] }), nil
	}, func(o int, on bool) error {
		off[o] = !on
		turned = append(turned, fmt.Sprint(o, on))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	want := `PONG
.1.3.6.1.4.1.318.1.1.12.3.5.1.1.4.1
integer
1
NONE
.1.3.6.1.4.1.318.1.1.12.3.3.1.1.2.1
string
x
NONE
DONE
.1.3.6.1.4.1.318.1.1.12.3.5.1.1.4.1
integer
2
DONE
wrong-value
wrong-type
not-writable
not-writable
NONE
`
	if d := cmp.Diff(want, out.String()); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{"1 false", "1 false", "1 true"}, turned); d != "" {
		t.Error(d)
	}
}

func TestChassisRequest(t *testing.T) {
	for _, tc := range []struct {
		args string
		op   string
		list []chassisParam
	}{
		{"get power", "get", []chassisParam{{"power", ""}}},
		{"0x20 get power boot", "get", []chassisParam{{"power", ""}, {"boot", ""}}},
		{"32 set power 0", "set", []chassisParam{{"power", "0"}}},
		{"set power 1 reset 1", "set", []chassisParam{{"power", "1"}, {"reset", "1"}}},
	} {
		op, list, err := chassisRequest(strings.Fields(tc.args))
		if err != nil || op != tc.op || !slices.Equal(list, tc.list) {
			t.Errorf("%q: %s %v %v", tc.args, op, list, err)
		}
	}
	for _, bad := range []string{"", "power 1", "set power"} {
		if _, _, err := chassisRequest(strings.Fields(bad)); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

func TestPowered(t *testing.T) {
	c := testConfig()
	n := &c.Nodes[0]
	h := &hardware{}
	set(&h.Off, outletKey("pdu1", 1), true)
	if !h.powered(n) {
		t.Error("one of two cords is enough")
	}
	set(&h.Off, outletKey("pdu2", 1), true)
	if h.powered(n) {
		t.Error("both cords are off")
	}
	if !h.powered(&c.Nodes[2]) {
		t.Error("a node without cords always has power")
	}
	set(&h.Off, outletKey("pdu1", 1), false)
	if !h.powered(n) || len(h.Off) != 1 {
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

func TestInitScriptParses(t *testing.T) {
	sh := exec.Command("busybox", "sh", "-n")
	sh.Stdin = strings.NewReader(strings.ReplaceAll(initScript, "@MODULES@", ""))
	if out, err := sh.CombinedOutput(); err != nil {
		t.Errorf("%v %s", err, out)
	}
}

func TestInsmodFiles(t *testing.T) {
	got := insmodFiles("builtin virtio_pci\ninsmod /lib/b/scsi_mod.ko \ninsmod /lib/a/virtio_scsi.ko \n" +
		"insmod /lib/b/scsi_mod.ko \ninsmod /lib/md-mod.ko start_ro=1 \n")
	if d := cmp.Diff([]string{"/lib/b/scsi_mod.ko", "/lib/a/virtio_scsi.ko", "/lib/md-mod.ko"}, got); d != "" {
		t.Error(d)
	}
}

func TestKernelPayload(t *testing.T) {
	bz := make([]byte, 4096)
	copy(bz[0x202:], "HdrS")
	binary.LittleEndian.PutUint16(bz[0x206:], 0x20f)
	bz[0x1f1] = 1                                 // protected-mode code at 1024
	binary.LittleEndian.PutUint32(bz[0x248:], 16) // payload 16 bytes in
	binary.LittleEndian.PutUint32(bz[0x24c:], 12) // 12 bytes long
	copy(bz[1040:], "payload12345")
	if p, err := kernelPayload(bz); err != nil || string(p) != "payload12345" {
		t.Errorf("%q, %v", p, err)
	}
	binary.LittleEndian.PutUint32(bz[0x24c:], 1<<20)
	if _, err := kernelPayload(bz); err == nil {
		t.Error("a truncated image is accepted")
	}
	if _, err := kernelPayload([]byte("no kernel")); err == nil {
		t.Error("something else is accepted")
	}
	if _, err := uncompressedKernel(context.Background(), bz[:0]); err == nil {
		t.Error("nothing is accepted")
	}
}

func TestImageKey(t *testing.T) {
	a := imageSpec{Suite: "trixie", Mirror: "http://a.example/debian"}
	b := imageSpec{Suite: "bookworm", Mirror: "http://a.example/debian"}
	if a.key() == b.key() || a.baseKey() == b.baseKey() || a.key() != (imageSpec{Suite: "trixie", Mirror: "http://a.example/debian"}).key() {
		t.Error("the key must follow the content")
	}
	r := a
	r.RDMA = true
	if r.key() == a.key() || r.diskKey() == a.diskKey() || !slices.Contains(r.packages(), standardKernel) || slices.Contains(r.packages(), cloudKernel) {
		t.Errorf("nodes with RDMA have another kernel: %q", r.packages())
	}
	dir := t.TempDir()
	if cachedImage(dir) != nil {
		t.Error("an empty directory is no image")
	}
	sizes := map[string]int64{}
	for _, n := range []string{imageKernel, imageInitrd, imageRoot} {
		if err := os.WriteFile(filepath.Join(dir, n), []byte("12345"), 0o644); err != nil {
			t.Fatal(err)
		}
		sizes[n] = 5
	}
	text, err := json.Marshal(image{Suite: "trixie", Sizes: sizes})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "manifest.json"), text, 0o644); err != nil {
		t.Fatal(err)
	}
	if cachedImage(dir) == nil {
		t.Error("a whole image is not found")
	}
	if err := os.Truncate(filepath.Join(dir, imageRoot), 3); err != nil {
		t.Fatal(err)
	}
	if cachedImage(dir) != nil {
		t.Error("a truncated image is used")
	}
}

func TestPrune(t *testing.T) {
	cache := t.TempDir()
	now := time.Now()
	for name, age := range map[string]time.Duration{"0123": time.Hour, "4567": 3 * time.Hour, "base-89.tar": 3 * time.Hour,
		".lock": 3 * time.Hour, "building-1": 3 * time.Hour} {
		p := filepath.Join(cache, name)
		if err := os.Mkdir(p, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(p, now.Add(-age), now.Add(-age)); err != nil {
			t.Fatal(err)
		}
	}
	if err := (&image{Dir: filepath.Join(cache, "4567")}).used(); err != nil {
		t.Fatal(err)
	}
	if err := prune(cache, now.Add(-2*time.Hour)); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(cache)
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, e := range entries {
		left = append(left, e.Name())
	}
	if d := cmp.Diff([]string{".lock", "0123", "4567", "building-1"}, left); d != "" {
		t.Error(d)
	}
}

func TestOfRack(t *testing.T) {
	for _, tc := range []struct {
		p    process
		want bool
	}{
		{process{exe: "/usr/bin/qemu-system-x86_64", args: []string{"qemu-system-x86_64", "-pidfile", "/a/rack/run/s1.pid"}}, true},
		{process{exe: "/usr/bin/qemu-system-x86_64", args: []string{"qemu-system-x86_64", "-pidfile", "/a/rack2/run/s1.pid"}}, false},
		{process{exe: "/usr/bin/vim", args: []string{"vim", "/a/rack/config.json"}}, false},
		{process{exe: "/a/rack/run/mortar", args: []string{"./mortar", "rack", "_pdu", "..", "pdu1"}}, true},
		{process{exe: "/usr/bin/mortar", args: []string{"mortar", "rack", "down", "--dir", "/a/rack/"}}, false},
		{process{exe: "/usr/sbin/snmpd", args: []string{"snmpd", "-c", "/a/rack/run/pdu-pdu1.conf"}}, true},
	} {
		if got := tc.p.ofRack("/a/rack"); got != tc.want {
			t.Errorf("%v: %v", tc.p.args, got)
		}
	}
	if readProcess(os.Getpid()) == nil {
		t.Error("we are a process")
	}
	if readProcess(1<<22+1) != nil {
		t.Error("a process number beyond the kernel's maximum")
	}
}

func TestSecrets(t *testing.T) {
	file := filepath.Join(t.TempDir(), "secrets", "bmc")
	a, err := ensureSecret(file)
	if err != nil || len(a) != 16 {
		t.Fatalf("%q, %v", a, err)
	}
	if b, err := ensureSecret(file); err != nil || a != b {
		t.Errorf("the second time: %q, %v", b, err)
	}
	if st, err := os.Stat(file); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
	for _, bad := range []string{"", "seventeen-letters", "two words", `quo"te`, "hash#"} {
		if err := os.WriteFile(file, []byte(bad+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ensureSecret(file); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
	if err := os.WriteFile(file, []byte("fine\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(file, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := ensureSecret(file); err == nil {
		t.Error("a secret that everybody may read is accepted")
	}
}

func TestFaultArguments(t *testing.T) {
	c := testConfig()
	dir := t.TempDir()
	if err := saveJSON(filepath.Join(dir, "config.json"), &c); err != nil {
		t.Fatal(err)
	}
	if err := (&state{Phase: phaseUp}).save(dir); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ fault, want string }{
		{"melt s1", `there is no fault "melt"`},
		{"freeze", "fault freeze wants NODE"},
		{"freeze s1 s2", "fault freeze wants NODE"},
		{"freeze s9", `there is no node "s9": the rack has s1, s2, c1`},
		{"path-out c1 e1d1 0", "node c1 is not a server"},
		{"path-out s1 e9d1 0", `there is no shared disk "e9d1"`},
		{"path-out s1 e1d1 2", `"2": want 0 or 1`},
		{"module-out enc9 0", `there is no enclosure "enc9"`},
		{"link-down c1 private", "node c1 is not on network private"},
		{"feed-off pdu1 9", "has no outlet 9"},
		{"feed-off pdu1 x", `outlet "x"`},
		{"system-disk-out c1 0", "node c1 has one system disk only"},
		{"system-disk-out s1 2", `system disk "2": want 0 or 1`},
		{"corrupt e1d1 -1 5", "want bytes within"},
		{"corrupt e1d1 1073741823 5", "want bytes within"},
		{"throttle e1d1 -1 0", "want I/O operations"},
		{"throttle e1d1 18 0 x", "want I/O operations"},
		{"bmc-dead c1", "node c1 has no BMC"},
		{"pdu-dead pdu9", `there is no pdu "pdu9"`},
	} {
		f := strings.Fields(tc.fault)
		err := Fault(context.Background(), dir, f[0], f[1:]...)
		var refused *RefusedError
		if !errors.As(err, &refused) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", tc.fault, err, tc.want)
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
	if err := saveJSON(filepath.Join(dir, "config.json"), &c); err != nil {
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
	c.Nodes[0].Boot = BootDistribution
	if err := saveJSON(filepath.Join(dir, "config.json"), &c); err != nil {
		t.Fatal(err)
	}
	if err := Renewable(dir, c.Nodes[0].Name); err == nil || !strings.Contains(err.Error(), "--boot distribution") {
		t.Error(err)
	}
}

// The rack remembers faults of nodes that are off, for their start.
func TestFaultsAreRemembered(t *testing.T) {
	c := testConfig()
	dir := t.TempDir()
	if err := saveJSON(filepath.Join(dir, "config.json"), &c); err != nil {
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
	want := &hardware{
		PathsOut:   map[string]bool{"s1/e1d1/1": true, "s2/e2d1/0": true, "s2/e2d1/1": true},
		ModulesOut: map[string]bool{"enc1/0": true},
		DisksOut:   map[string]bool{"nv1": true},
		LinksDown:  map[string]bool{"s1/private": true},
		SystemOut:  map[string]bool{"s2/1": true},
		Speeds:     map[string]speed{"e1d1": {IOPS: 10}, "e2d1": {IOPS: 18, BytesPerSecond: 5000, Writes: 3}},
	}
	if d := cmp.Diff(want, h); d != "" {
		t.Error(d)
	}
	if err := Fault(context.Background(), dir, "system-disk-out", "s2", "0"); err == nil || !strings.Contains(err.Error(), "would have no system disk") {
		t.Errorf("the last system disk is pulled: %v", err)
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
	if err := saveJSON(filepath.Join(dir, "config.json"), &c); err != nil {
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
	f, err := os.Open(diskImage(dir, "e1d1"))
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
		if err := Down(context.Background(), filepath.Join(dir, "none"), DownOptions{}); err != nil {
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
		if err := Down(context.Background(), dir, DownOptions{}); err != nil {
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

// Different paths of a directory mean the same rack.
func TestAbsDir(t *testing.T) {
	tmp, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(tmp, "real"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("real", filepath.Join(tmp, "link")); err != nil {
		t.Fatal(err)
	}
	for _, rest := range []string{"", "not/yet"} {
		got, err := absDir(filepath.Join(tmp, "link", rest))
		if want := filepath.Join(tmp, "real", rest); err != nil || got != want {
			t.Errorf("%s, %v, want %s", got, err, want)
		}
	}
}

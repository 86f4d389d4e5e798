package nodeimage

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

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
	if _, err := HostAptSource(dir); err == nil {
		t.Error("no sources")
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
	if s, err := HostAptSource(dir); err != nil || s.URI != "https://cloud.example/debian" {
		t.Errorf("%v, %v", s, err)
	}
	write("sources.list", "deb http://first.example/debian bookworm main\n")
	if s, err := HostAptSource(dir); err != nil || s.URI != "http://first.example/debian" {
		t.Errorf("%v, %v", s, err)
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
	a := Spec{Suite: "trixie", Mirror: "http://a.example/debian"}
	b := Spec{Suite: "bookworm", Mirror: "http://a.example/debian"}
	if a.Key() == b.Key() || a.baseKey() == b.baseKey() || a.Key() != (Spec{Suite: "trixie", Mirror: "http://a.example/debian"}).Key() {
		t.Error("the key must follow the content")
	}
	r := a
	r.RDMA = true
	if r.Key() == a.Key() || r.diskKey() == a.diskKey() || !slices.Contains(r.Packages(), standardKernel) || slices.Contains(r.Packages(), cloudKernel) {
		t.Errorf("nodes with RDMA have another kernel: %q", r.Packages())
	}
	dir := t.TempDir()
	if Cached(dir) != nil {
		t.Error("an empty directory is no image")
	}
	sizes := map[string]int64{}
	for _, n := range []string{ImageKernel, ImageInitrd, ImageRoot} {
		if err := os.WriteFile(filepath.Join(dir, n), []byte("12345"), 0o644); err != nil {
			t.Fatal(err)
		}
		sizes[n] = 5
	}
	text, err := json.Marshal(Image{Suite: "trixie", Sizes: sizes})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "manifest.json"), text, 0o644); err != nil {
		t.Fatal(err)
	}
	if Cached(dir) == nil {
		t.Error("a whole image is not found")
	}
	if err := os.Truncate(filepath.Join(dir, ImageRoot), 3); err != nil {
		t.Fatal(err)
	}
	if Cached(dir) != nil {
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
	if err := (&Image{Dir: filepath.Join(cache, "4567")}).Used(); err != nil {
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

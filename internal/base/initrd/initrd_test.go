package initrd

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// pack makes an archive by cpio(1), and runs it through a program.
func pack(t *testing.T, files map[string]string, compress ...string) []byte {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	script := "find . | cpio -o -H newc --quiet"
	if len(compress) > 0 {
		script += " | " + strings.Join(compress, " ")
	}
	cmd := exec.Command("sh", "-c", script)
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v", script, err)
	}
	return out
}

func all(string) bool { return true }

func TestFiles(t *testing.T) {
	early := pack(t, map[string]string{"kernel/x86/microcode/a.bin": "code", "etc/mdadm/mdadm.conf": "old"})
	late := map[string]string{"etc/mdadm/mdadm.conf": "new", "sbin/mdadm": strings.Repeat("x", 100_001), "etc/empty": ""}
	for _, c := range [][]string{nil, {"gzip"}, {"xz", "--check=crc32"}, {"zstd", "-q"}, {"xz", "--format=lzma"}} {
		image := append(append(bytes.Clone(early), make([]byte, 512)...), pack(t, late, c...)...)
		got, err := Files(t.Context(), bytes.NewReader(image), all)
		if err != nil {
			t.Errorf("%v: %v", c, err)
			continue
		}
		if len(got) != 4 || string(got["etc/mdadm/mdadm.conf"]) != "new" || len(got["sbin/mdadm"]) != 100_001 || string(got["kernel/x86/microcode/a.bin"]) != "code" {
			t.Errorf("%v: %d files, %.20q", c, len(got), got["etc/mdadm/mdadm.conf"])
		}
	}
	got, err := Files(t.Context(), bytes.NewReader(early), func(n string) bool { return strings.HasPrefix(n, "etc/") })
	if err != nil || len(got) != 1 {
		t.Errorf("%v %v", got, err)
	}
}

// An image that cannot be read to its end is no image without the files.
func TestDamaged(t *testing.T) {
	plain := pack(t, map[string]string{"etc/a": "1", "etc/b": strings.Repeat("2", 5000)})
	packed := pack(t, map[string]string{"etc/a": strings.Repeat("not so well compressed ", 3)}, "zstd", "-q")
	for name, image := range map[string][]byte{
		"empty": nil, "zeros": make([]byte, 4096), "cut": plain[:len(plain)/2], "cut zstd": packed[:len(packed)-9],
		"unknown": append(bytes.Clone(plain), "MZ what is this"...), "text in gzip": pack(t, nil, ">/dev/null; echo hello | gzip"),
	} {
		if got, err := Files(t.Context(), bytes.NewReader(image), all); err == nil {
			t.Errorf("%s: no error, %d files", name, len(got))
		}
	}
}

func FuzzFiles(f *testing.F) {
	f.Add([]byte("07070100000000000081a40000000000000000000000010000000000000001000000000000000000000000000000000000000200000000a\x00x\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, image []byte) {
		if len(image) > 6 && image[0] != '0' && image[0] != 0 {
			return // no programs
		}
		_, _ = Files(t.Context(), bytes.NewReader(image), all) // must not panic
	})
}

package backup

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mortarhpc/mortar/examples"
	"github.com/mortarhpc/mortar/internal/brick/spec"
)

// site is a directory with a spec, its secrets, and a key that Mortar made.
func site(t *testing.T) *spec.Spec {
	t.Helper()
	dir := t.TempDir()
	text, err := examples.FS.ReadFile("nfs-ha.yaml")
	if err != nil {
		t.Fatal(err)
	}
	outside := filepath.Join(t.TempDir(), "bmc2")
	text = bytes.Replace(text, []byte("secrets/bmc-nfs2"), []byte(outside), 1)
	write := func(file, text string) {
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(dir, "site.yaml"), string(text))
	for _, s := range []string{"bmc-nfs1", "pdu-a-auth", "pdu-a-privacy", "pdu-b-auth"} { // pdu-b-privacy is missing
		write(filepath.Join(dir, "secrets", s), "secret of "+s)
	}
	write(outside, "secret of bmc2")
	write(filepath.Join(dir, ".mortar", "brick1", "secrets", "corosync.key"), "key")
	s, err := spec.Load(filepath.Join(dir, "site.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Restore writes all existing files, readable by their owner only. Missing lists the
// others.
func TestThereAndBack(t *testing.T) {
	b := Local(site(t), "v0.2.0", time.Unix(1000, 0))
	if len(b.Missing) != 1 || !strings.Contains(b.Missing[0], "pdu-b-privacy") {
		t.Errorf("missing: %q", b.Missing)
	}
	var file bytes.Buffer
	if err := b.Write(&file); err != nil {
		t.Fatal(err)
	}
	again, err := Read(bytes.NewReader(file.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "new")
	at, err := again.Restore(dir)
	if err != nil {
		t.Fatal(err)
	}
	if s, err := spec.Load(at); err != nil || s.Name != "brick1" {
		t.Errorf("%v", err)
	}
	for name, want := range map[string]string{"secrets/bmc-nfs1": "secret of bmc-nfs1", ".mortar/brick1/secrets/corosync.key": "key"} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if text, _ := os.ReadFile(filepath.Join(dir, name)); string(text) != want {
			t.Errorf("%s: %s", name, text)
		}
	}
	if e := again.Elsewhere(); len(e) != 1 || !strings.HasSuffix(e[0], "/bmc2") {
		t.Errorf("%q", e)
	}
	if _, err := again.Restore(dir); err == nil {
		t.Error(err)
	}
}

// Read refuses a damaged or foreign archive.
func TestDamaged(t *testing.T) {
	var file bytes.Buffer
	if err := Local(site(t), "v0.2.0", time.Unix(1000, 0)).Write(&file); err != nil {
		t.Fatal(err)
	}
	whole := file.Bytes()
	for _, text := range [][]byte{whole[:len(whole)/2], []byte("hello")} {
		if _, err := Read(bytes.NewReader(text)); err == nil {
			t.Errorf("%d bytes are a backup", len(text))
		}
	}
	type files = map[string][]byte
	more := tar.Header{Name: "brick1/more"}
	for name, c := range map[string]struct {
		change func(files)
		more   tar.Header
		good   bool
	}{
		"as it was":    {func(files) {}, more, true},
		"a link":       {func(files) {}, tar.Header{Name: "brick1/more", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"}, false},
		"no directory": {func(files) {}, tar.Header{Name: "more"}, false},
		"another version": {func(f files) {
			f[manifestName] = bytes.Replace(f[manifestName], []byte(schema), []byte("mortar.backup/v9"), 1)
		}, more, false},
		"a missing file": {func(f files) { delete(f, specName) }, more, false},
		"a changed file": {func(f files) { f[specName] = append(f[specName], '\n') }, more, false},
	} {
		all, err := unpack(bytes.NewReader(whole))
		if err != nil {
			t.Fatal(err)
		}
		c.change(all)
		var out bytes.Buffer
		z := gzip.NewWriter(&out)
		w := tar.NewWriter(z)
		err = w.WriteHeader(&c.more)
		for path, text := range all {
			err = errors.Join(err, w.WriteHeader(&tar.Header{Name: "brick1/" + path, Size: int64(len(text))}))
			_, _ = w.Write(text) // Close tells if it failed
		}
		if err := errors.Join(err, w.Close(), z.Close()); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(&out); (err == nil) != c.good {
			t.Errorf("%s: %v", name, err)
		}
	}
}

package rack

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mortarhpc/mortar/internal/rack/hw"
	"github.com/mortarhpc/mortar/internal/rack/nodeimage"
	"github.com/mortarhpc/mortar/internal/rack/qemu"
	"github.com/mortarhpc/mortar/internal/rack/tool"
)

// fakeSaved writes a saved rack without machines, and returns its directory.
func fakeSaved(t *testing.T, name string, change func(s *saved)) (c hw.Config, dir string) {
	t.Helper()
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	c = testConfig()
	c.Name = "save-test"
	base := "/site"
	for _, f := range c.SecretFiles() {
		*f = filepath.Join(base, "secrets", filepath.Base(*f))
	}
	dir, err := savedPath(c.Name, name)
	if err != nil {
		t.Fatal(err)
	}
	image := filepath.Join(t.TempDir(), "image")
	for _, d := range []string{filepath.Join(dir, savedRack), filepath.Join(dir, savedSecrets), image} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	write := func(file, text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	sizes := map[string]int64{}
	for _, n := range []string{nodeimage.ImageKernel, nodeimage.ImageInitrd, nodeimage.ImageRoot} {
		write(filepath.Join(image, n), "x")
		sizes[n] = 1
	}
	st := state{Phase: phaseUp, Image: image, Accel: "tcg", Netns: c.Netns()}
	write(filepath.Join(dir, savedSecrets, "0"), "then\n")
	if err := errors.Join(tool.SaveJSON(filepath.Join(image, "manifest.json"), imageOf(sizes)), tool.SaveJSON(filepath.Join(dir, savedRack, "config.json"), c),
		st.save(filepath.Join(dir, savedRack))); err != nil {
		t.Fatal(err)
	}
	s := &saved{SavedRack: SavedRack{Name: name, Brick: c.Name, Version: "v1", Time: time.Unix(1_800_000_000, 0).UTC()}, Schema: savedSchema, Base: base, SpecSHA256: specDigest([]byte("spec")),
		Machines: map[string]string{}, Secrets: []string{"secrets/bmc"}, Files: map[string]int64{}, TSCkHz: qemu.TSCkHz()}
	if s.Build, err = build(); err != nil {
		t.Fatal(err)
	}
	if s.QEMU, err = qemuVersion(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.measure(dir); err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(s)
	}
	if err := tool.SaveJSON(filepath.Join(dir, savedManifest), s); err != nil {
		t.Fatal(err)
	}
	return c, dir
}

func imageOf(sizes map[string]int64) *nodeimage.Image {
	return &nodeimage.Image{Suite: "trixie", Sizes: sizes}
}

// Restore refuses what does not fit, in one sentence, before it changes anything.
func TestRestoreRefuses(t *testing.T) {
	site := t.TempDir()
	spec := []byte("spec")
	for _, x := range []struct {
		name    string
		change  func(s *saved)
		spoil   func(dir string)
		opt     RestoreOptions
		refused bool
	}{
		{name: "fits", opt: RestoreOptions{Spec: spec}},
		{name: "incomplete", spoil: func(dir string) { os.Remove(filepath.Join(dir, savedSecrets, "0")) }, opt: RestoreOptions{Spec: spec}, refused: true},
		{name: "truncated", spoil: func(dir string) { os.Truncate(filepath.Join(dir, savedSecrets, "0"), 1) }, opt: RestoreOptions{Spec: spec, Anyway: true}, refused: true},
		{name: "killed", spoil: func(dir string) { os.Remove(filepath.Join(dir, savedManifest)) }, opt: RestoreOptions{Spec: spec}, refused: true},
		{name: "damaged", spoil: func(dir string) { os.WriteFile(filepath.Join(dir, savedManifest), []byte("{"), 0o600) }, opt: RestoreOptions{Spec: spec}, refused: true},
		{name: "schema", change: func(s *saved) { s.Schema = 7 }, opt: RestoreOptions{Spec: spec}, refused: true},
		{name: "qemu", change: func(s *saved) { s.QEMU = "QEMU emulator version 1.0" }, opt: RestoreOptions{Spec: spec, Anyway: true}, refused: true},
		{name: "counter", change: func(s *saved) { s.TSCkHz = s.TSCkHz * 11 / 10 }, opt: RestoreOptions{Spec: spec, Anyway: true}, refused: true},
		{name: "build", change: func(s *saved) { s.Build = "00" }, opt: RestoreOptions{Spec: spec}, refused: true},
		{name: "build-anyway", change: func(s *saved) { s.Build = "00" }, opt: RestoreOptions{Spec: spec, Anyway: true}},
		{name: "spec", opt: RestoreOptions{Spec: []byte("other")}, refused: true},
		{name: "spec-anyway", opt: RestoreOptions{Spec: []byte("other"), Anyway: true}},
		{name: "secret", change: func(s *saved) { s.Secrets = []string{"secrets/other"} }, opt: RestoreOptions{Spec: spec}, refused: true},
	} {
		t.Run(x.name, func(t *testing.T) {
			c, dir := fakeSaved(t, x.name, x.change)
			if x.spoil != nil {
				x.spoil(dir)
			}
			if err := os.MkdirAll(filepath.Join(site, "secrets"), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(site, "secrets", "other"), []byte("now\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			x.opt.Base = site
			err := CheckSaved(t.Context(), c.Name, filepath.Join(site, "rack"), x.name, x.opt)
			var refused *tool.RefusedError
			if errors.As(err, &refused) != x.refused || !x.refused && err != nil || x.refused && strings.Contains(err.Error(), "\n") {
				t.Errorf("got %v, want one line: %v", err, x.refused)
			}
			if tool.Exists(filepath.Join(site, "rack")) {
				t.Error("the check has made a directory")
			}
		})
	}
}

// The secrets of a rack that is restored beside another file are looked for there.
func TestRelocate(t *testing.T) {
	_, dir := fakeSaved(t, "a", nil)
	s, c, problems := loadSaved("save-test", "a")
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	if err := s.relocate(c, RestoreOptions{Base: "/other"}); err != nil {
		t.Fatal(err)
	}
	for _, f := range c.SecretFiles() {
		if filepath.Dir(*f) != "/other/secrets" {
			t.Errorf("a secret is looked for at %s", *f)
		}
	}
	if err := s.relocate(c, RestoreOptions{}); err != nil {
		t.Error("paths elsewhere must stay:", err)
	}
	all, err := ListSaved(t.Context(), "save-test", []byte("spec"))
	if err != nil || len(all) != 1 || all[0].Name != "a" || len(all[0].Misfits) > 0 {
		t.Errorf("%+v %v", all, err)
	}
	// The directory of a killed save is no saved rack, and the next save removes it.
	left := filepath.Join(filepath.Dir(dir), unfinished+"1")
	if err := os.Rename(dir, left); err != nil {
		t.Fatal(err)
	}
	if all, err := ListSaved(t.Context(), "save-test", nil); err != nil || len(all) != 0 {
		t.Errorf("%+v %v", all, err)
	}
	if err := tool.RemoveAll(filepath.Join(filepath.Dir(dir), unfinished+"*")); err != nil || tool.Exists(left) {
		t.Errorf("%s is still there: %v", left, err)
	}
}

func TestSavedNames(t *testing.T) {
	for _, bad := range []string{"", "..", ".saving-1", "a/b", "-x", "ä", strings.Repeat("a", 65)} {
		if p, err := savedPath("b", bad); err == nil {
			t.Errorf("%q is a name: %s", bad, p)
		}
	}
	if err := Forget("save-test", "none"); err == nil {
		t.Error("a saved rack that is not there is removed")
	}
}

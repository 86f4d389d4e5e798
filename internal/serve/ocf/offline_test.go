package ocf

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/mortarhpc/mortar/internal/base/flock"
	"github.com/mortarhpc/mortar/internal/serve/refusal"
)

// A command gets the volume of a service that is stopped everywhere, and the storage is down
// after it. That goes for all kinds of storage and of service.
func TestOnVolume(t *testing.T) {
	for _, serve := range []serviceSpecimen{serviceSpecimens[0], serviceSpecimens[2]} {
		for i, on := range storageSpecimens {
			if serve.on != nil && !slices.Contains(serve.on, i) {
				continue
			}
			t.Run(serve.name+" on "+on.name, func(t *testing.T) {
				sh, c := brick(t, on, serve)
				name := "/srv/home"
				if c.NFSService == nil {
					name = map[string]string{"mgt": "MGS", "array-l0": "testfs-OST0000"}[c.Targets[0].Volume]
				}
				h, ran := sh.hosts["nfs1"], ""
				try := func(s *service, name, off string) error {
					return s.offline(t.Context(), name, off, func(dev string) error {
						ran = dev
						return nil
					})
				}
				other := sh.hosts["nfs2"].service(c)
				if err := other.start(t.Context()); err != nil {
					t.Fatal(err)
				}
				if err := try(other, name, ""); !says(err, "[not-stopped] service=home") {
					t.Error(err)
				}
				if err := try(h.service(c), name, ""); err == nil {
					t.Error("the other server has it")
				}
				if err := other.stop(t.Context()); err != nil {
					t.Fatal(err)
				}
				if err := try(h.service(c), "nothing", ""); !says(err, "[no-volume] volume=nothing") {
					t.Error(err)
				}
				if ran != "" {
					t.Errorf("ran on %s", ran)
				}
				for range 2 {
					if err := try(h.service(c), name, ""); err != nil || !strings.HasPrefix(ran, "/dev/mapper/") || h.left() != "" {
						t.Fatalf("%v, ran on %q, left %q", err, ran, h.left())
					}
				}
				if err := other.start(t.Context()); err != nil {
					t.Error("not startable after it:", err)
				}
			})
		}
	}
}

// Storage that an action left that was killed is taken up again; on the other server only if the
// caller knows that the first one is off.
func TestOnVolumeAfterAKill(t *testing.T) {
	sh, c := brick(t, storageSpecimens[onDisks], serviceSpecimens[0])
	h := sh.hosts["nfs1"]
	s, ran := h.service(c), 0
	do := func(string) error { ran++; return nil }
	for _, p := range s.parts()[:len(s.parts())-len(s.kind.Layers())] {
		if err := p.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := h.service(c).offline(t.Context(), "/srv/home", "", do); err != nil || ran != 1 || h.left() != "" {
		t.Fatalf("%v, ran %d times, left %q", err, ran, h.left())
	}
	sh.owner = "nfs1"
	h.crash()
	two := sh.hosts["nfs2"]
	if err := two.service(c).offline(t.Context(), "/srv/home", "", do); !says(err, "[owned] owner=nfs1") || ran != 1 {
		t.Fatal(err)
	}
	if err := two.service(c).offline(t.Context(), "/srv/home", "nfs1", do); err != nil || ran != 2 || two.left() != "" {
		t.Fatalf("%v, left %q", err, two.left())
	}
}

// Damage has a code of its own, and a mount that is tried leaves nothing.
func TestDamageHasACode(t *testing.T) {
	for name, c := range map[string]struct {
		blank bool
		mount error
		want  refusal.Code
	}{
		"whole":              {false, nil, ""},
		"no superblock":      {true, nil, refusal.Damaged},
		"corrupted":          {false, unix.EUCLEAN, refusal.Damaged},
		"a bad checksum":     {false, unix.EBADMSG, refusal.Damaged},
		"an error of a disk": {false, unix.EIO, "mount"},
	} {
		sh, cfg := brick(t, storageSpecimens[onDisks], serviceSpecimens[0])
		h := sh.hosts["nfs1"]
		h.blank, h.damage = c.blank, c.mount
		s := h.service(cfg)
		var once error
		if err := s.offline(t.Context(), "/srv/home", "", func(string) error {
			once = s.mountOnce(t.Context())
			return nil
		}); err != nil || h.left() != "" || (once == nil) != (c.want == "") {
			t.Errorf("%s: %v, mounted: %v, left %q", name, err, once, h.left())
		}
		err := h.service(cfg).start(t.Context())
		if (err == nil) != (c.want == "") || err != nil && codeOf(err) != c.want {
			t.Errorf("%s: %v, code %q", name, err, codeOf(err))
		}
	}
}

func TestRunTool(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if ok, err := flock.Try(f); !ok || err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	code, err := runTool(filled([]string{"sh", "-c", `echo "$1" "$2"; exit 3`, "sh", "{}", "of={}"}, "/dev/x"), f, &out, io.Discard)
	if code != 3 || err != nil || out.String() != "/dev/x of=/dev/x\n" {
		t.Errorf("%d, %v, %q", code, err, out.String())
	}
	if _, err := runTool([]string{"sh", "-c", "kill -9 $$"}, f, io.Discard, io.Discard); err == nil {
		t.Error("a command that was killed has no exit code")
	}
	if code, err := runTool([]string{"sh", "-c", "kill -PIPE $$; exit 4"}, f, io.Discard, io.Discard); code != 4 || err != nil {
		t.Errorf("it ends with what it prints to: %d, %v", code, err)
	}
	if _, err := runTool(nil, f, io.Discard, io.Discard); err == nil {
		t.Error("no command")
	}
	// A command that outlives the agent keeps the lock.
	if _, err := runTool([]string{"sh", "-c", "sleep 5 & kill -9 $$"}, f, os.Stderr, os.Stderr); err == nil {
		t.Error("it was killed")
	}
	f.Close()
	again, err := os.Open(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if ok, err := flock.Try(again); ok || err != nil {
		t.Errorf("the lock is free: %v", err)
	}
}

func TestSaid(t *testing.T) {
	if text, err := Said("device /dev/mapper/vg-lv\nPhase 1\n"); text != "Phase 1\n" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
	if _, err := Said("usage"); err == nil {
		t.Error("an earlier release")
	}
}

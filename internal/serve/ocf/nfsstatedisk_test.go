package ocf

import (
	"context"
	"slices"
	"strings"
	"testing"
)

func stateDiskConfig() *Config {
	c := testConfig()
	c.StateImage = stateImage
	return c
}

// ofStateDisk are the changes of a host that concern the state's file system.
func ofStateDisk(h *fakeHost) []string {
	var out []string
	for _, c := range h.changes {
		if strings.Contains(c, stateImage) || strings.HasPrefix(c, "cp ") || strings.Contains(c, "/run/mortar/state-home") || strings.HasSuffix(c, "mortar/reserve") {
			out = append(out, c)
		}
	}
	return out
}

func wantChanges(t *testing.T, h *fakeHost, want ...string) {
	t.Helper()
	if got := ofStateDisk(h); !slices.Equal(got, want) {
		t.Errorf("changes %q\nwant    %q", got, want)
	}
}

const mkfs = "mkfs.ext4 -q -F -b 4096 -m 0 -N 8192 -J size=4 -E nodiscard,lazy_itable_init=0,lazy_journal_init=0 " + stateImage + ".new"

// The first start makes the state's file system; the next ones mount it.
func TestStateDiskOfANewService(t *testing.T) {
	sh := newShared(t)
	h1, h2 := sh.hosts["nfs1"], sh.hosts["nfs2"]
	s := h1.service(stateDiskConfig())
	if err := s.start(context.Background()); err != nil {
		t.Fatal(err)
	}
	wantChanges(t, h1, "remove /srv/home/.nfs/mortar/reserve", "fill "+stateImage+".new", mkfs, "rename "+stateImage+".new "+stateImage,
		"sync the directory of "+stateImage, "mount "+stateImage+" /srv/home/.nfs ext4")
	if st, err := s.monitor(context.Background()); st != running || err != nil {
		t.Errorf("%v %v", st, err)
	}
	if err := s.stop(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := h2.service(stateDiskConfig()).start(context.Background()); err != nil {
		t.Fatal(err)
	}
	wantChanges(t, h2, "mount "+stateImage+" /srv/home/.nfs ext4")
}

// A service that an earlier release started runs on as it is, and has its state copied
// at its next start.
func TestStateDiskOfAnOldService(t *testing.T) {
	sh := newShared(t)
	h1, h2 := sh.hosts["nfs1"], sh.hosts["nfs2"]
	if err := h1.service(testConfig()).start(context.Background()); err != nil {
		t.Fatal(err)
	}
	sh.volume["/.nfs/sm/10.0.0.9"] = "x\n"
	s := h1.service(stateDiskConfig())
	if st, err := s.monitor(context.Background()); st != running || err != nil {
		t.Fatalf("%v %v", st, err)
	}
	if err := s.stop(context.Background()); err != nil {
		t.Fatal(err)
	}
	h2.changes = nil
	if err := h2.service(stateDiskConfig()).start(context.Background()); err != nil {
		t.Fatal(err)
	}
	wantChanges(t, h2, "remove /srv/home/.nfs/mortar/reserve", "fill "+stateImage+".new", mkfs, "mount "+stateImage+".new /run/mortar/state-home ext4",
		"cp --archive /srv/home/.nfs/. /run/mortar/state-home", "umount /run/mortar/state-home", "rename "+stateImage+".new "+stateImage,
		"sync the directory of "+stateImage, "mount "+stateImage+" /srv/home/.nfs ext4")
}

// Without room the service runs without, and makes it once there is room.
func TestStateDiskWithoutRoom(t *testing.T) {
	sh := newShared(t)
	h := sh.hosts["nfs1"]
	sh.room = 8 << 20
	s := h.service(stateDiskConfig())
	if err := s.start(context.Background()); err != nil {
		t.Fatal(err)
	}
	if st, err := s.monitor(context.Background()); st != running || err != nil || sh.kept != reserve {
		t.Errorf("%v %v, %d bytes kept", st, err, sh.kept)
	}
	if err := s.stop(context.Background()); err != nil {
		t.Fatal(err)
	}
	if _, ok := sh.volume["/.nfs.img.new"]; ok {
		t.Error("half an image is left")
	}
	sh.room = 1 << 30
	if err := s.start(context.Background()); err != nil {
		t.Fatal(err)
	}
	if m, err := nfs(s).stateMount(); err != nil || m == nil {
		t.Errorf("not mounted: %v", err)
	}
}

// A file system that does not mount is repaired; one that cannot be is an error.
func TestStateDiskTorn(t *testing.T) {
	for content, ok := range map[string]bool{"torn": true, "lost": false} {
		sh := newShared(t)
		h := sh.hosts["nfs1"]
		sh.volume["/.nfs.img"] = content
		err := h.service(stateDiskConfig()).start(context.Background())
		if (err == nil) != ok || !ok && !strings.Contains(err.Error(), stateImage) {
			t.Errorf("%s: %v", content, err)
		}
	}
}

// A read-only state is a fault.
func TestStateDiskReadOnly(t *testing.T) {
	h := newShared(t).hosts["nfs1"]
	s := h.service(stateDiskConfig())
	if err := s.start(context.Background()); err != nil {
		t.Fatal(err)
	}
	for i := range h.mounts {
		if h.mounts[i].Dev == imageNumber {
			h.mounts[i].Super = []string{"ro"}
		}
	}
	if st, err := s.monitor(context.Background()); st != broken || err == nil || !strings.Contains(err.Error(), "read-only") {
		t.Errorf("%v %v", st, err)
	}
}

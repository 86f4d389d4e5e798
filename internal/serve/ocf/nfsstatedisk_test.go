package ocf

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	cmd "github.com/mortarhpc/mortar/internal/base/command"
	"github.com/mortarhpc/mortar/internal/serve/doubt"
	"github.com/mortarhpc/mortar/internal/serve/nfs"
	"github.com/mortarhpc/mortar/internal/serve/unit"
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
		if strings.Contains(c, stateImage) || strings.HasPrefix(c, "cp ") || strings.Contains(c, "/run/mortar/state-home") || c == "umount /srv/home/.nfs" || strings.HasSuffix(c, "mortar/reserve") {
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

const mkfs = "mkfs.ext4 -q -F -b 4096 -g 2048 -m 0 -i 4096 -J size=4 -E nodiscard,lazy_itable_init=0,lazy_journal_init=0 " + stateImage + ".new"

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
	if st, err := s.monitor(context.Background()); st != unit.Running || err != nil {
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
	if st, err := s.monitor(context.Background()); st != unit.Running || err != nil {
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

// A brick that has grown to more clients has the state's file system made larger at its next
// start, with what it held; without room for that the service runs with the one that it has.
func TestStateDiskGrows(t *testing.T) {
	sh := newShared(t)
	h1, h2 := sh.hosts["nfs1"], sh.hosts["nfs2"]
	sh.room = 200 << 20
	s := h1.service(stateDiskConfig())
	if err := s.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	grown := stateDiskConfig()
	grown.NFS.Clients = nfs.FewClients + 1
	mount, fill := "mount "+stateImage+" /srv/home/.nfs ext4", "fill "+stateImage+".new"
	for _, x := range []struct {
		h    *fakeHost
		room int64
		want []string
	}{
		{h2, 100 << 20, []string{mount, "remove /srv/home/.nfs/mortar/reserve", fill, "remove " + stateImage + ".new"}},
		{h1, 200 << 20, []string{mount, "remove /srv/home/.nfs/mortar/reserve", fill, mkfs, "mount " + stateImage + ".new /run/mortar/state-home ext4",
			"cp --archive /srv/home/.nfs/. /run/mortar/state-home", "umount /run/mortar/state-home", "umount /srv/home/.nfs", "rename " + stateImage + ".new " + stateImage,
			"sync the directory of " + stateImage, mount}},
		{h2, 200 << 20, []string{mount}},
	} {
		if err := s.stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		sh.room, x.h.changes = x.room, nil
		s = x.h.service(grown)
		if err := s.start(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantChanges(t, x.h, x.want...)
		if st, err := s.monitor(t.Context()); st != unit.Running || err != nil {
			t.Errorf("%v %v", st, err)
		}
	}
}

// A start that was killed while it filled the larger one leaves that mounted. The stop unmounts
// it: the volume could not be unmounted, and a stop that fails has the server fenced.
func TestStateDiskGrowthKilled(t *testing.T) {
	sh := newShared(t)
	h := sh.hosts["nfs1"]
	s := h.service(stateDiskConfig())
	if err := s.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	sh.volume["/.nfs.img.new"] = "ext4"
	if err := h.MountImage(stateImage+".new", "/run/mortar/state-home", "ext4", 0, ""); err != nil {
		t.Fatal(err)
	}
	if err := s.stop(t.Context()); err != nil || h.mounted("/run/mortar/state-home") != nil {
		t.Errorf("%v, %v", err, h.mounts)
	}
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
	if st, err := s.monitor(context.Background()); st != unit.Running || err != nil || sh.kept != 4194304 {
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
	if m, err := nfsOf(s).StateMount(); err != nil || m == nil {
		t.Errorf("not mounted: %v", err)
	}
}

// A file system that does not mount is repaired, with a copy of the superblock if need be;
// one that cannot be is an error.
func TestStateDiskTorn(t *testing.T) {
	for content, ok := range map[string]bool{"torn": true, "superblock torn": true, "lost": false} {
		sh := newShared(t)
		h := sh.hosts["nfs1"]
		sh.volume["/.nfs.img"] = content
		err := h.service(stateDiskConfig()).start(context.Background())
		if (err == nil) != ok || !ok && !strings.Contains(err.Error(), stateImage+": e2fsck: exit code 1\nmount: ") {
			t.Errorf("%s: %v", content, err)
		}
	}
}

// A start with accepted blocks in doubt looks at the whole file system.
func TestStateDiskInDoubt(t *testing.T) {
	sh := newShared(t)
	h := sh.hosts["nfs1"]
	sh.volume["/.nfs.img"] = "ext4"
	b, err := json.Marshal(doubt.Doubt{Service: "home", Arrays: []doubt.ArrayInDoubt{{Name: "r0"}}})
	if err != nil {
		t.Fatal(err)
	}
	h.files[doubt.AcceptedFile("home")] = string(b)
	if err := h.service(stateDiskConfig()).start(context.Background()); err != nil {
		t.Fatal(err)
	}
	wantChanges(t, h, "e2fsck -f -y "+stateImage, "mount "+stateImage+" /srv/home/.nfs ext4")
}

// So does a start of an array that is dirty and degraded.
func TestStateDiskOfADirtyArray(t *testing.T) {
	sh := newShared(t)
	for _, d := range sh.disks {
		d.dirty = true
	}
	sh.disks["/dev/mapper/d0"].gone = true
	sh.volume["/.nfs.img"] = "ext4"
	cfg := stateDiskConfig()
	cfg.DirtyDegraded = "start"
	h := sh.hosts["nfs1"]
	if err := h.service(cfg).start(context.Background()); err != nil {
		t.Fatal(err)
	}
	wantChanges(t, h, "e2fsck -f -y "+stateImage, "mount "+stateImage+" /srv/home/.nfs ext4")
}

// The real tools mend a file system that lost its superblock and its group descriptors,
// and replay its journal.
func TestStateDiskWithoutSuperblock(t *testing.T) {
	dir := t.TempDir()
	image, block := filepath.Join(dir, "img"), filepath.Join(dir, "block")
	run := func(codes []int, argv ...string) string {
		t.Helper()
		program, err := cmd.LookPath(argv[0])
		if err != nil {
			t.Fatal(err)
		}
		c := exec.Command(program, argv[1:]...)
		out, err := c.CombinedOutput()
		if c.ProcessState == nil || !slices.Contains(codes, c.ProcessState.ExitCode()) {
			t.Fatalf("%q: %v\n%s", argv, err, out)
		}
		return string(out)
	}
	well := []int{0}
	write := func(name, content string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(image, strings.Repeat("\x00", 33554432))
	run(well, append(slices.Clone(nfs.MakeStateFS), image)...)
	write(block, "as it was")
	run(well, "debugfs", "-w", "-R", "write "+block+" note", image)
	at := strings.Fields(run(well, "debugfs", "-R", "blocks note", image))
	// What a crash leaves in the journal only.
	write(block, "as it is."+strings.Repeat("\x00", 4087))
	script := filepath.Join(dir, "script")
	write(script, fmt.Sprintf("jo\njw -b %s %s\njc\n", at[len(at)-1], block))
	run(well, "debugfs", "-w", "-f", script, image)

	f, err := os.OpenFile(image, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(bytes.Repeat([]byte{0xa5}, 8192), 0); err != nil {
		t.Fatal(err)
	}
	run([]int{8}, append(slices.Clone(nfs.RepairStateFS[0]), image)...)
	run([]int{1}, append(slices.Clone(nfs.RepairStateFS[1]), image)...)
	if got := run(well, "debugfs", "-R", "cat note", image); !strings.Contains(got, "as it is.") {
		t.Errorf("the file holds %q", got)
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
	if st, err := s.monitor(context.Background()); st != unit.Broken || err == nil || !strings.Contains(err.Error(), "read-only") {
		t.Errorf("%v %v", st, err)
	}
}

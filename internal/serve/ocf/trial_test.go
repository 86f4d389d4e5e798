package ocf

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/mortarhpc/mortar/internal/base/md"
	"github.com/mortarhpc/mortar/internal/serve/cache"
)

func TestPlaceInVolume(t *testing.T) {
	table, err := parseDMTable("0 8192 linear 9:127 2048\n8192 4096 striped 2 256 9:126 2048 9:125 4096\n")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		dev       string
		off, want int64 // sectors; -1: no part of the volume
	}{
		{"9:127", 2048, 0},
		{"9:127", 2048 + 8191, 8191},
		{"9:127", 2048 + 8192, -1},
		{"9:127", 2040, -1},
		{"9:126", 2048, 8192},
		{"9:126", 2048 + 255, 8192 + 255},
		{"9:125", 4096 + 3, 8192 + 256 + 3},
		{"9:126", 2048 + 256, 8192 + 512},
		{"9:125", 4096 + 2047, 12287},
		{"9:125", 4096 + 2048, -1},
		{"9:1", 2048, -1},
	} {
		got, ok := table.at(c.dev, c.off*512)
		if want := c.want * 512; ok != (c.want >= 0) || ok && got != want {
			t.Errorf("%s %d is at %d, %t", c.dev, c.off, got/512, ok)
		}
	}
	for _, bad := range []string{"", "0 8 snapshot 1:1 2:2 N 8", "0 8", "0 x linear 9:1 0", "0 8 striped 2 256 9:1 0", "0 8 striped 2 0 9:1 0 9:2 0"} {
		if _, err := parseDMTable(bad); err == nil {
			t.Errorf("%q is taken for a table", bad)
		}
	}
}

// What xfs_io of Debian 13 prints on a node of the rack, one question after another.
const fsmapOutput = `EXT,MAJOR,MINOR,PSTART,PEND,OWNER,OSTART,OEND,LENGTH
0,253,1,2560,4607,inode_263_data,0,2047,2048
EXT,MAJOR,MINOR,PSTART,PEND,OWNER,OSTART,OEND,LENGTH
0,253,1,512,2559,inode_262_data,0,2047,2048
1,253,1,2560,4607,inode_263_data,0,2047,2048
EXT,MAJOR,MINOR,PSTART,PEND,OWNER,OSTART,OEND,LENGTH
0,253,1,0,7,special_88:1,,,8
EXT,MAJOR,MINOR,PSTART,PEND,OWNER,OSTART,OEND,LENGTH
0,253,1,200000,200007,special_0:1,,,8
1,253,1,5000,5007,inode_262_attr,0,7,8
2,253,1,5008,5015,inode_263_data_bmbt,,,8
3,253,1,2560,2567,inode_300_data,16,23,8
`

func TestOwnersOfBlocks(t *testing.T) {
	var o Owners
	files := map[uint64]*FileInDoubt{}
	at := func(sectors ...int64) (out []int64) {
		for _, s := range sectors {
			out = append(out, s*512)
		}
		return out
	}
	if err := o.add(fsmapOutput, at(0, 2552, 2560, 2568, 5000, 5008, 200000), files); err != nil {
		t.Fatal(err)
	}
	want := map[uint64]*FileInDoubt{
		262: {Inode: 262, Offsets: at(2040)},
		263: {Inode: 263, Offsets: at(0, 8)},
		300: {Inode: 300, Offsets: at(16)}, // shares a block with 263
	}
	if diff := cmp.Diff(want, files); diff != "" {
		t.Error(diff)
	}
	if o.Metadata != 1 || o.Free != 1 {
		t.Errorf("%+v", o)
	}
	for out, say := range map[string]string{
		"0,253,1,0,7,special_0:2,,,8\n":                     "reverse map",
		"0,253,1,8,15,special_88:1,,,8\n":                   "does not say",
		"0,253,1,0,zz,special_88:1,,,8\n":                   "fsmap says",
		"xfs_io: ioctl(FS_IOC_GETFSMAP): not supported\n\n": "does not say",
	} {
		if err := new(Owners).add(out, at(0), files); err == nil || !strings.Contains(err.Error(), say) {
			t.Errorf("%q: %v", out, err)
		}
	}
}

func TestOnlyWhatWasSeenIsAccepted(t *testing.T) {
	seen := ArrayInDoubt{Name: "r0", UUID: arrayUUID, Events: 9, Blocks: []int64{4096, 8192}}
	for _, c := range []struct {
		name string
		seen ArrayInDoubt
		now  ArrayInDoubt
		want bool
	}{
		{"the same", seen, seen, true},
		{"fewer", seen, ArrayInDoubt{UUID: md.UUID(arrayUUID), Events: 9, Blocks: []int64{8192}}, true},
		{"one more", seen, ArrayInDoubt{UUID: arrayUUID, Events: 9, Blocks: []int64{0, 4096, 8192}}, false},
		{"after another start", seen, ArrayInDoubt{UUID: arrayUUID, Events: 10, Blocks: seen.Blocks}, false},
		{"another array", seen, ArrayInDoubt{UUID: strings.Repeat("a", 32), Events: 9, Blocks: seen.Blocks}, false},
		{"which is no longer known", seen, ArrayInDoubt{UUID: arrayUUID, Events: 9, Unknown: "no time"}, false},
		{"any block", ArrayInDoubt{UUID: arrayUUID, Events: 9, Unknown: "no time"}, seen, true},
	} {
		if got := c.seen.covers(c.now); got != c.want {
			t.Errorf("%s: %t", c.name, got)
		}
	}
}

// trialHost is a server whose array has torn stripes, and lacks a member. It knows what
// a trial has made, and fails the command number fail.
type trialHost struct {
	*members
	t                       *testing.T
	files                   map[string]string
	array, volume, snapshot bool
	cached                  bool // the volume has a cache
	mounted                 string
	ran                     []string
	fail                    int
	dead                    bool // the agent was killed: nothing works any more
	killed                  bool // the command that fails kills the agent
}

var errTrial = errors.New("no")

func (h *trialHost) sys() map[string]string {
	out := map[string]string{"/proc/uptime": "9999.0 1.0\n", "/sys/block/": ""}
	if h.array {
		dir := "/sys/block/md127"
		for name, v := range map[string]string{"array_state": "readonly", "uuid": md.UUID(arrayUUID), "level": "raid6", "layout": "2", "chunk_size": "8192",
			"raid_disks": "4", "degraded": "0", "component_size": "512", "sync_action": "idle", "last_sync_action": "none", "mismatch_cnt": "0"} {
			out[dir+"/md/"+name] = v + "\n"
		}
		out[dir+"/dev"], out[dir+"/slaves/"] = "9:127\n", ""
	}
	if h.volume {
		out["/sys/block/dm-0/dm/name"], out["/sys/block/dm-0/dev"], out["/sys/block/dm-0/size"] = "vg-data\n", "253:0\n", "2048\n"
		if h.cached {
			out["/sys/block/dm-2/dm/name"], out["/sys/block/dm-2/dev"] = "vg-cacheheader\n", "253:2\n"
		}
	}
	if h.snapshot {
		out["/sys/block/dm-1/dm/name"], out["/sys/block/dm-1/dev"] = "vg.trial\n", "253:1\n"
	}
	if h.mounted != "" {
		out["/proc/self/mountinfo"] = "30 1 253:1 / " + h.mounted + " ro - xfs /dev/dm-1 ro\n"
	}
	for name, v := range h.files {
		out[name] = v
	}
	return out
}

func (h *trialHost) ReadFile(p string) ([]byte, error) {
	if v, ok := h.sys()[p]; ok {
		return []byte(v), nil
	}
	if p == "/proc/self/mountinfo" {
		return nil, nil
	}
	return nil, fs.ErrNotExist
}

func (h *trialHost) ReadDir(dir string) ([]string, error) {
	var out []string
	found := false
	for name := range h.sys() {
		rest, ok := strings.CutPrefix(name, dir+"/")
		found = found || ok
		if first, _, _ := strings.Cut(rest, "/"); ok && first != "" && !slices.Contains(out, first) {
			out = append(out, first)
		}
	}
	if !found {
		return nil, fs.ErrNotExist
	}
	slices.Sort(out)
	return out, nil
}

func (h *trialHost) Ask(_ context.Context, all []question) []answer {
	return asked(all, h.ReadBlocks)
}

func (h *trialHost) ReadBlocks(dev string, off int64, n int) ([]byte, error) {
	if dev == "/dev/md127" && h.array {
		return pvImage("vg {\nid = \"x\"\nseqno = 3\nsystem_id = \"nfs1\"\n}\n", 512)[off : off+int64(n)], nil
	}
	return h.members.ReadBlocks(dev, off, n)
}

func (h *trialHost) does(what string) error {
	if h.dead {
		return errTrial
	}
	h.ran = append(h.ran, what)
	if len(h.ran) == h.fail {
		h.dead = h.killed
		return errTrial
	}
	return nil
}

func (h *trialHost) Save(p string, b []byte) error {
	if err := h.does("save " + p); err != nil {
		return err
	}
	h.files[p] = string(b)
	return nil
}

func (h *trialHost) Remove(p string) error {
	if h.dead {
		return errTrial
	}
	delete(h.files, p)
	return nil
}

func (h *trialHost) Mkdir(string, uint32, int, int) error       { return nil }
func (h *trialHost) Free(string) (int64, error)                 { return 1 << 32, nil }
func (h *trialHost) Poke(string, string) error                  { return nil }
func (h *trialHost) Sleep(context.Context, time.Duration) error { return nil }
func (h *trialHost) Mount(_, at, _ string, flags uintptr, _ string) error {
	if err := h.does("mount"); err != nil {
		return err
	}
	if flags&unix.MS_RDONLY == 0 || !h.snapshot {
		h.t.Error("the volume is mounted for writing, or without its snapshot")
	}
	h.mounted = at
	return nil
}

func (h *trialHost) Unmount(string) error {
	if h.dead {
		return errTrial
	}
	h.mounted = ""
	return nil
}

func (h *trialHost) Run(_ context.Context, c command) (string, error) {
	line := strings.Join(c.argv, " ")
	if err := h.does(line); err != nil {
		return "", err
	}
	switch {
	case strings.HasPrefix(line, "mdadm --assemble"):
		if !strings.Contains(line, "--readonly") {
			h.t.Error("the array is assembled for writing")
		}
		h.array = true
	case strings.HasPrefix(line, "mdadm --stop"):
		if h.volume {
			return "", errors.New("busy")
		}
		h.array = false
	case c.argv[0] == "lvm":
		if !strings.Contains(line, `read_only_volume_list = [ "vg" ]`) || !strings.Contains(line, `system_id = "nfs1"`) || c.argv[1] != "lvchange" {
			h.t.Errorf("LVM is not asked for a read-only volume of its owner: %s", line)
		}
		if strings.Contains(line, " vg/cacheheader") != h.cached {
			h.t.Errorf("the volumes are not those with data: %s", line)
		}
		h.volume = true
	case line == "dmsetup table vg-cacheheader":
		return "0 64 linear 9:127 64", nil
	case strings.HasPrefix(line, "dmsetup table"):
		return "0 2048 linear 9:127 128", nil
	case strings.HasPrefix(line, "truncate"):
		h.files[c.argv[3]] = ""
	case strings.HasPrefix(line, "losetup --find"):
		return "/dev/loop7\n", nil
	case strings.HasPrefix(line, "dmsetup --noudevsync create"):
		if !strings.Contains(line, "0 2048 snapshot 253:0 /dev/loop7 N 8") {
			h.t.Errorf("the snapshot is another: %s", line)
		}
		h.snapshot = true
	case strings.HasPrefix(line, "dmsetup --noudevsync remove"):
		switch name := c.argv[len(c.argv)-1]; {
		case name == "vg.trial" && h.mounted == "":
			h.snapshot = false
		case name == "vg-data" && !h.snapshot || name == "vg-cacheheader" && h.cached:
			h.volume = false
		default:
			return "", errors.New("busy")
		}
	case c.argv[0] == "xfs_io":
		return "0,253,1,0,159,inode_263_data,0,159,160", nil
	case c.argv[0] == "find":
		return "263 data/a name\x00", nil
	}
	return "", nil
}

// left is what is there after a trial.
func (h *trialHost) left() (out []string) {
	for what, there := range map[string]bool{"array": h.array, "volume": h.volume, "snapshot": h.snapshot, "mount": h.mounted != ""} {
		if there {
			out = append(out, what)
		}
	}
	for name := range h.files {
		if b := path.Base(name); b != "doubt-home.json" && b != "lvm.conf" && b != "held-home" && b != "compared-home.json" {
			out = append(out, name)
		}
	}
	return out
}

func (h *trialHost) service(t *testing.T) *mdKind {
	cfg := &Config{Service: "home", VolumeGroup: VolumeGroup{VG: "vg", LV: "data"}, NFSService: &NFSService{MountPoint: "/srv/home"}, Nodes: map[string]string{"nfs1": "", "nfs2": ""},
		MDStorage: &MDStorage{Arrays: []Array{{Name: "r0", UUID: md.UUID(arrayUUID)}}}}
	for slot := range 4 {
		cfg.Arrays[0].Members = append(cfg.Arrays[0].Members, slotDev(slot))
	}
	s := &service{cfg: cfg, k: h, host: "nfs2", now: time.Now, volumes: []string{"data"}, reserve: noReservations{},
		log: &steps{stderr: io.Discard, now: time.Now}}
	if h.cached {
		cfg.Cache, s.cache = "/etc/mortar/cache-home.json", copiedStack{h: h}
	}
	k := &mdKind{service: s}
	s.storage, s.kind = k, &nfsKind{service: s}
	return k
}

func newTrialHost(t *testing.T) *trialHost {
	h := &trialHost{members: newMembers(1), t: t, files: map[string]string{}}
	h.dev[slotDev(1)][at(5)+9] ^= 0x55
	delete(h.dev, slotDev(0))
	return h
}

// again is a server with the same disks that has just booted.
func (h *trialHost) again() *trialHost {
	return &trialHost{members: h.members, t: h.t, files: map[string]string{}, cached: h.cached}
}

// copiedStack is a cache without dirty data, whose stack is down.
type copiedStack struct {
	stack
	h *trialHost
}

func (c copiedStack) Copy(ctx context.Context, over cache.Overlay) (string, error) {
	if err := c.h.does("copy"); err != nil {
		return "", err
	}
	return over(ctx, "vg.trial", "dm-0")
}

func (c copiedStack) DropCopy(context.Context) error {
	if c.h.dead || c.h.mounted != "" {
		return errTrial
	}
	c.h.snapshot = false
	return nil
}

// A start that is refused names the file, changes nothing and leaves nothing. A person
// accepts it, and it goes on.
func TestFilesInDoubtAreNamed(t *testing.T) {
	for name, cached := range map[string]bool{"disks": false, "cache": true} {
		t.Run(name, func(t *testing.T) {
			h := newTrialHost(t)
			h.cached = cached
			filesInDoubtAreNamed(t, h)
		})
	}
}

func filesInDoubtAreNamed(t *testing.T, h *trialHost) {
	s := h.service(t)
	err := s.startArrays(t.Context())
	for _, want := range []string{"at 81920 (1 in all)", "of /srv/home/data/a name (files: 1)", "mortar confirm-doubt"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Fatalf("%v does not say %q", err, want)
		}
	}
	if !strings.Contains(err.Error()[:128], Confirmable) {
		t.Error("Pacemaker cuts off what to do")
	}
	if left := h.left(); len(left) > 0 {
		t.Errorf("left of the trial: %q", left)
	}
	d, perr := ParseDoubt([]byte(h.files[DoubtFile("home")]))
	if perr != nil {
		t.Fatal(perr)
	}
	// The volume begins at sector 128 of the array.
	want := []FileInDoubt{{Inode: 263, Path: "/srv/home/data/a name", Offsets: []int64{81920 - 128*512}}}
	if diff := cmp.Diff(want, d.Owners.Files); diff != "" {
		t.Error(diff)
	}
	if s.sound(t.Context()) == nil {
		t.Error("the watcher takes the storage for sound")
	}
	h.files[AcceptedFile("home")] = h.files[DoubtFile("home")]
	if err := s.sound(t.Context()); err != nil {
		t.Errorf("accepted, and the watcher does not let it start: %v", err)
	}
	if _, _, err := s.lookAll(t.Context()); err != nil {
		t.Errorf("accepted, and refused: %v", err)
	}
	h.dev[slotDev(1)][at(5)+4096] ^= 0x55
	delete(h.files, comparedFile("home")) // a server that compares all of it
	if _, _, err := s.lookAll(t.Context()); err == nil {
		t.Error("another block is in doubt, and it starts")
	}
}

// A bitmap that is an event behind tells where to look only until md assembles the array,
// read-only too: there is no trial.
func TestNoTrialWithABitmapBehind(t *testing.T) {
	h := newTrialHost(t)
	for slot := 1; slot < 4; slot++ {
		copy(h.dev[slotDev(slot)][bitmapAt:], testBitmap(8, stripeRows*stripeChunk, 1))
	}
	err := h.service(t).startArrays(t.Context())
	if err == nil || !strings.Contains(err.Error(), "at 81920 (1 in all)") || !strings.Contains(err.Error(), "its bitmap is an event behind") {
		t.Errorf("%v", err)
	}
	if i := slices.IndexFunc(h.ran, func(c string) bool { return strings.HasPrefix(c, "mdadm") }); i >= 0 {
		t.Errorf("%q", h.ran[i])
	}
}

// Whatever fails, and whenever the agent is killed, the next action leaves nothing.
func TestTrialLeavesNothing(t *testing.T) {
	first := newTrialHost(t)
	for i := range 4 {
		killed := i&1 > 0
		first.cached = i&2 > 0
		for n := 1; ; n++ {
			h := first.again()
			h.fail, h.killed = n, killed
			err := h.service(t).startArrays(t.Context())
			if err == nil || !strings.Contains(err.Error(), "at 81920 (1 in all)") {
				t.Fatalf("it is not refused with the block: %v", err)
			}
			if len(h.ran) < n {
				break
			}
			failed := h.ran[n-1]
			h.dead, h.fail = false, 0
			if err := h.service(t).dropTrial(t.Context()); err != nil {
				t.Errorf("%q failed: %v", failed, err)
			}
			if left := h.left(); len(left) > 0 {
				t.Errorf("%q failed (killed: %t): left is %q", failed, killed, left)
			}
		}
	}
}

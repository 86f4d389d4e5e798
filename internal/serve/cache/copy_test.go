package cache

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/internal/base/md"
)

// copyHost is a server with a cached volume whose stack is down. It makes and removes
// devices, and fails the step number fail.
type copyHost struct {
	*fakeTree
	t       *testing.T
	state   byte // of the dirty layer's superblock
	made    map[string]string
	fail, n int
}

const copySet = "set"

var errStep = errors.New("no")

func newCopyHost(t *testing.T, state byte, dirty *Layer) *copyHost {
	h := &copyHost{t: t, state: state, made: map[string]string{}}
	h.fakeTree = &fakeTree{links: map[string]string{}, blocks: map[int64][]byte{}, files: map[string]string{
		"/proc/uptime": "9999.0 1.0\n", "/sys/fs/bcache/register": "", "/sys/module/raid1/refcnt": "", "/sys/module/raid0/refcnt": "",
	}}
	h.device("dm-0", "b_home-"+HeaderLV, 2*8192)
	h.device("dm-1", "b_home-data", 1000)
	for i, serial := range []string{"A", "B"} {
		n := fmt.Sprintf("nvme%dn1", i)
		h.files["/sys/block/"+n+"/device/serial"] = serial + "\n"
		h.files["/sys/class/block/"+n+"/size"] = "2000000\n"
		h.files["/sys/block/"+n+"/"+n+"p2/partition"] = "2\n"
	}
	l := &Label{Sequence: 2, SSDs: []string{"A", "B"}, Dirty: dirty, Open: true}
	b, err := l.encode()
	if err != nil {
		t.Fatal(err)
	}
	h.blocks[labelOffsets[0]] = b
	sb := make([]byte, 4096)
	copy(sb[24:], bcacheMagic)
	sb[111] = state << 5
	h.blocks[half+4096] = sb
	h.poked = h.poke
	return h
}

func (h *copyHost) device(dev, name string, sectors int64) {
	minor := strings.TrimPrefix(dev, "dm-")
	h.files["/sys/block/"+dev+"/dm/name"] = name + "\n"
	h.files["/sys/class/block/"+dev+"/size"] = fmt.Sprintf("%d\n", sectors)
	h.files["/sys/class/block/"+dev+"/dev"] = "253:" + minor + "\n"
}

func (h *copyHost) gone(dev string) {
	for _, m := range []map[string]string{h.files, h.links} {
		maps.DeleteFunc(m, func(p, _ string) bool { return strings.Contains(p, "/"+dev+"/") })
	}
}

func (h *copyHost) step() error {
	if h.n++; h.n == h.fail {
		return errStep
	}
	return nil
}

func (h *copyHost) overlay(_ context.Context, name, over string) (string, error) {
	if err := h.step(); err != nil {
		return "", err
	}
	dev := fmt.Sprintf("dm-%d", 10+len(h.made))
	h.made[name] = over
	h.device(dev, name, 5000)
	return dev, nil
}

func (h *copyHost) poke(_ *fakeTree, p, data string) error {
	if err := h.step(); err != nil {
		return err
	}
	switch {
	case p == "/sys/fs/bcache/register":
		dev := strings.TrimSpace(strings.TrimPrefix(data, "/dev/"))
		name := strings.TrimSpace(h.files["/sys/block/"+dev+"/dm/name"])
		switch name {
		case "b_home.trial":
			h.files["/sys/class/block/"+dev+"/bcache/x"] = ""
		case "b_home.trial.ssds":
			h.links["/sys/block/"+dev+"/bcache/set"] = "/sys/fs/bcache/" + copySet
			h.files["/sys/block/"+dev+"/bcache/x"], h.files["/sys/fs/bcache/"+copySet+"/x"] = "", ""
			h.links["/sys/class/block/"+h.dmCalled("b_home.trial")+"/bcache/dev"] = "/sys/block/bcache7"
		default:
			h.t.Errorf("bcache gets %s (%s), which is no copy", dev, name)
		}
	case strings.HasSuffix(p, "/bcache/stop"):
		dev := strings.Split(p, "/")[4]
		delete(h.files, "/sys/class/block/"+dev+"/bcache/x")
		delete(h.links, "/sys/class/block/"+dev+"/bcache/dev")
	case p == "/sys/fs/bcache/"+copySet+"/stop":
		if h.links["/sys/class/block/"+h.dmCalled("b_home.trial")+"/bcache/dev"] != "" {
			h.t.Error("the set is stopped below its device: bcache writes what is dirty")
		}
		dev := h.dmCalled("b_home.trial.ssds")
		delete(h.files, "/sys/fs/bcache/"+copySet+"/x")
		delete(h.files, "/sys/block/"+dev+"/bcache/x")
		delete(h.links, "/sys/block/"+dev+"/bcache/set")
	case p == "/sys/block/bcache7/bcache/writeback_running" && data == "0\n", p == "/sys/block/bcache7/bcache/cache_mode" && data == "none\n":
		h.made["set "+p] = "bcache7"
	default:
		h.t.Errorf("written to %s: %q", p, data)
	}
	return nil
}

func (h *copyHost) dmCalled(name string) string { return (&Stack{sys: h}).dm(name) }

func (h *copyHost) Run(_ context.Context, stdin string, argv ...string) (string, error) {
	line := strings.Join(argv, " ")
	switch {
	case argv[0] == "partx":
		return "", nil
	case strings.HasPrefix(line, "mdadm --assemble"):
		if err := h.step(); err != nil {
			return "", err
		}
		if !strings.Contains(line, " --readonly ") || !strings.HasSuffix(line, " /dev/nvme0n1p2 /dev/nvme1n1p2") {
			h.t.Errorf("the mirror is assembled by %s", line)
		}
		h.files["/sys/block/md126/md/array_state"] = "readonly\n"
		h.files["/sys/block/md126/md/uuid"] = "d0000003-0000-0000-0000-000000000000\n"
	case strings.HasPrefix(line, "mdadm --stop"):
		if h.dmCalled("b_home.trial.ssds") != "" {
			return "", errors.New("busy")
		}
		h.gone("md126")
	case strings.HasPrefix(line, "dmsetup --noudevsync create"):
		if err := h.step(); err != nil {
			return "", err
		}
		if line != "dmsetup --noudevsync create --readonly b_home.trial.disks" || stdin != "0 8192 linear 253:0 8192\n8192 1000 linear 253:1 0\n" {
			h.t.Errorf("%s: %q", line, stdin)
		}
		h.device("dm-20", "b_home.trial.disks", 9192)
	case strings.HasPrefix(line, "dmsetup --noudevsync remove"):
		dev := h.dmCalled(argv[len(argv)-1])
		if h.files["/sys/class/block/"+dev+"/bcache/x"]+h.links["/sys/block/"+dev+"/bcache/set"] != "" {
			return "", errors.New("busy")
		}
		h.gone(dev)
	default:
		return "", fs.ErrNotExist
	}
	return "", nil
}

// left is what a copy has left.
func (h *copyHost) left() (out []string) {
	for p := range h.files {
		if strings.HasPrefix(p, "/sys/block/md") || strings.HasSuffix(p, "/dm/name") && strings.HasPrefix(h.files[p], "b_home.") || strings.HasPrefix(p, "/sys/fs/bcache/"+copySet) {
			out = append(out, p)
		}
	}
	return out
}

// Without dirty data on the SSDs the disks have everything.
func TestCopyOfTheDisksAlone(t *testing.T) {
	mirror := &Layer{Array: "d0000003:00000000:00000000:00000000", Set: copySet, Members: []string{"A", "B"}}
	for name, h := range map[string]*copyHost{"write-through": newCopyHost(t, stateNone, nil), "all flushed": newCopyHost(t, stateClean, mirror)} {
		s := &Stack{cfg: config(WriteBack, "A", "B"), sys: h, note: t.Logf}
		dev, err := s.Copy(t.Context(), h.overlay)
		if err != nil || dev != "dm-10" || h.made["b_home.trial"] != "dm-1" || len(h.made) != 1 {
			t.Errorf("%s: %q, %v, %v", name, dev, h.made, err)
		}
		if err := s.DropCopy(t.Context()); err != nil || len(h.left()) > 0 {
			t.Errorf("%s: %v, left %q", name, err, h.left())
		}
	}
}

// With dirty data bcache gets copies of the disks and of the mirror, and only these.
// Whatever fails, DropCopy leaves nothing.
func TestCopyWithDirtyData(t *testing.T) {
	mirror := &Layer{Array: "d0000003:00000000:00000000:00000000", Set: copySet, Members: []string{"A", "B"}}
	for fail := 0; ; fail++ {
		h := newCopyHost(t, stateDirty, mirror)
		h.fail = fail
		s := &Stack{cfg: config(WriteBack, "A", "B"), sys: h, note: t.Logf}
		dev, err := s.Copy(t.Context(), h.overlay)
		if fail > 0 && h.n < fail {
			break
		}
		if fail == 0 && (err != nil || dev != "bcache7" || h.made["b_home.trial"] != "dm-20" || h.made["b_home.trial.ssds"] != "md126" || len(h.made) != 4) {
			t.Errorf("%q, %v, %v", dev, h.made, err)
		}
		if fail > 0 && !errors.Is(err, errStep) {
			t.Errorf("step %d: %v", fail, err)
		}
		h.fail = 0
		if err := s.DropCopy(t.Context()); err != nil || len(h.left()) > 0 {
			t.Errorf("step %d: %v, left %q", fail, err, h.left())
		}
	}
}

// A copy that is left must not be taken for the mirror: its writes are lost.
func TestStartRefusesACopy(t *testing.T) {
	mirror := &Layer{Array: "d0000003:00000000:00000000:00000000", Set: copySet, Members: []string{"A", "B"}}
	h := newCopyHost(t, stateDirty, mirror)
	s := &Stack{cfg: config(WriteBack, "A", "B"), sys: h, note: t.Logf}
	if _, err := s.Copy(t.Context(), h.overlay); err != nil {
		t.Fatal(err)
	}
	if err := s.startDirty(t.Context(), stateDirty, true); err == nil || !strings.Contains(err.Error(), "not on the mirror") {
		t.Errorf("%v", err)
	}
	if _, err := s.Copy(t.Context(), h.overlay); err == nil {
		t.Error("a mirror in use is copied")
	}
}

// A mirror that a copy has left read-only, or that an mdadm that was killed has left without
// running, is assembled anew.
func TestStartWithALeftMirror(t *testing.T) {
	mirror := &Layer{Array: "d0000003:00000000:00000000:00000000", Set: copySet, Members: []string{"A", "B"}}
	for _, state := range []string{"readonly", "inactive"} {
		h := newCopyHost(t, stateDirty, mirror)
		h.files["/sys/block/md126/md/array_state"] = state + "\n"
		h.files["/sys/block/md126/md/uuid"] = "d0000003-0000-0000-0000-000000000000\n"
		stopped := false
		run := &ranHost{h, func(line string) { stopped = stopped || strings.HasPrefix(line, "mdadm --stop --quiet /dev/md126") }}
		s := &Stack{cfg: config(WriteBack, "A", "B"), sys: run, note: t.Logf}
		if err := s.readLabel(); err != nil {
			t.Fatal(err)
		}
		_ = s.startDirty(t.Context(), stateDirty, true) // the host assembles read-only mirrors alone
		if !stopped {
			t.Errorf("%s: the mirror is taken as it is", state)
		}
	}
}

// ranHost tells what commands are run, and assembles nothing.
type ranHost struct {
	*copyHost
	ran func(line string)
}

func (h *ranHost) Run(ctx context.Context, stdin string, argv ...string) (string, error) {
	h.ran(strings.Join(argv, " "))
	if argv[1] == "--assemble" {
		return "", errStep
	}
	return h.copyHost.Run(ctx, stdin, argv...)
}

// The real stack is not taken down in place of a copy.
func TestDropCopySparesTheStack(t *testing.T) {
	h := newCopyHost(t, stateDirty, nil)
	h.files["/sys/block/md126/md/array_state"] = "active\n"
	h.files["/sys/block/md126/md/uuid"] = "d0000003-0000-0000-0000-000000000000\n"
	h.links["/sys/block/md126/bcache/set"] = "/sys/fs/bcache/" + copySet
	s := &Stack{cfg: config(WriteBack, "A", "B"), sys: h, note: t.Logf}
	if err := s.DropCopy(t.Context()); err == nil || h.n > 0 {
		t.Errorf("%v", err)
	}
}

// An array that does not run has no UUID in sysfs: its members' superblocks tell.
func TestArrayThatDoesNotRun(t *testing.T) {
	sb := make([]byte, md.SuperblockSize)
	binary.LittleEndian.PutUint32(sb, md.SuperblockMagic)
	sb[4] = 1
	copy(sb[16:], []byte{0xd0, 0, 0, 3})
	binary.LittleEndian.PutUint32(sb[216:], md.SuperblockSum(sb[:256]))
	sys := &fakeTree{blocks: map[int64][]byte{md.SuperblockOffset: sb}, files: map[string]string{
		"/sys/block/md126/md/array_state": "inactive\n", "/sys/block/md126/md/uuid": "00000000-0000-0000-0000-000000000000\n", "/sys/block/md126/slaves/nvme0n1p2/x": "",
	}}
	if a := (&Stack{sys: sys}).array("d0000003:00000000:00000000:00000000"); a == nil || a.Dev != "md126" {
		t.Errorf("%+v", a)
	}
}

// A stack that is down is started only while the agent does nothing.
func TestStartOfAChangeHoldsTheAgent(t *testing.T) {
	h := newCopyHost(t, stateDirty, nil)
	s := &Stack{cfg: config(WriteBack, "A", "B"), sys: h, note: t.Logf, label: &Label{Sequence: 1}}
	busy := errors.New("a stop is under way")
	s.Hold = func(_ context.Context, service string) (func(), error) {
		return nil, fmt.Errorf("%s: %w", service, busy)
	}
	if err := s.change(t.Context(), need{Start: true}, func(string, int64, int64) {}); !errors.Is(err, busy) || h.n > 0 {
		t.Errorf("%v after %d steps", err, h.n)
	}
}

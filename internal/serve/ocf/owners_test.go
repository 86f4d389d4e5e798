package ocf

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mortarhpc/mortar/internal/base/md"
	"github.com/mortarhpc/mortar/internal/serve/kernel"
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

// tornHost is a server whose array has torn stripes, and lacks a member. It runs no command.
type tornHost struct {
	*members
	files map[string]string
	ran   []string
}

func (h *tornHost) ReadFile(p string) ([]byte, error) {
	if v, ok := h.files[p]; ok {
		return []byte(v), nil
	}
	if strings.HasPrefix(p, "/proc/") {
		return h.members.ReadFile(p)
	}
	return nil, fs.ErrNotExist
}

func (h *tornHost) ReadDir(string) ([]string, error)           { return nil, nil }
func (h *tornHost) Save(p string, b []byte) error              { h.files[p] = string(b); return nil }
func (h *tornHost) Sleep(context.Context, time.Duration) error { return nil }
func (h *tornHost) Ask(_ context.Context, _ time.Duration, all []kernel.Question) []kernel.Answer {
	return asked(all, h.ReadBlocks)
}
func (h *tornHost) Run(_ context.Context, c kernel.Command) (string, error) {
	h.ran = append(h.ran, strings.Join(c.Argv, " "))
	return "", errors.New("no")
}

// A start that is refused names the blocks, and changes nothing. A person accepts them, and
// it goes on; not if another block is in doubt.
func TestBlocksInDoubtAreNamed(t *testing.T) {
	h := &tornHost{members: newMembers(1), files: map[string]string{}}
	h.dev[slotDev(1)][at(5)+9] ^= 0x55
	delete(h.dev, slotDev(0))
	s := newSlowMembers(h.members).kind(groupR0())
	s.k = h
	err := s.startArrays(t.Context())
	if err == nil || !strings.Contains(err.Error(), "at 81920 (1 in all)") || codeOf(err) != InDoubt {
		t.Fatalf("%v does not name the block, or has another code", err)
	}
	if len(h.ran) > 0 {
		t.Errorf("ran %q", h.ran)
	}
	if d, err := ParseDoubt([]byte(h.files[DoubtFile("home")])); err != nil || len(d.Arrays) != 1 || len(d.Arrays[0].Blocks) != 1 {
		t.Errorf("%+v, %v", d, err)
	}
	if s.sound(t.Context()) == nil {
		t.Error("the watcher takes the storage for sound")
	}
	h.files[AcceptedFile("home")] = h.files[DoubtFile("home")]
	if err := s.sound(t.Context()); err != nil {
		t.Errorf("accepted, and the watcher does not let it start: %v", err)
	}
	if _, err := s.lookAll(t.Context()); err != nil {
		t.Errorf("accepted, and refused: %v", err)
	}
	h.dev[slotDev(1)][at(5)+4096] ^= 0x55
	delete(h.files, s.comparedNote().file) // a server that compares all of it
	if _, err := s.lookAll(t.Context()); err == nil {
		t.Error("another block is in doubt, and it starts")
	}
}

// lacking fails the runs of one program.
type lacking struct {
	kernel.Host
	program string
}

func (f lacking) Run(ctx context.Context, c kernel.Command) (string, error) {
	if c.Argv[0] == f.program {
		return "", errors.New("it fails")
	}
	return f.Host.Run(ctx, c)
}

// A start that a person has accepted names the files once it serves, and forgets what it was
// accepted for. If they cannot be named it starts all the same, and says why.
func TestStartNamesFilesInDoubt(t *testing.T) {
	accepted := Doubt{Service: "home", At: time.Date(2026, 11, 28, 9, 0, 0, 0, time.UTC),
		Arrays: []ArrayInDoubt{{Name: "r0", UUID: arrayUUID, Events: 5, Blocks: []int64{81920, 81920 + BlockBytes, 1 << 40}}}}
	for fails, unnamed := range map[string]string{"": "", "find": "", "xfs_io": "it fails", "dmsetup": "it fails"} {
		h := newShared(t).hosts["nfs1"]
		b, err := json.Marshal(accepted)
		if err != nil {
			t.Fatal(err)
		}
		h.files[AcceptedFile("home")] = string(b)
		s := h.service(testConfig())
		s.k = lacking{s.k, fails}
		if err := s.start(t.Context()); err != nil {
			t.Fatalf("%s fails: %v", fails, err)
		}
		d, err := ParseDoubt([]byte(h.files[NamedFile("home")]))
		if err != nil {
			t.Fatalf("%s fails: %v", fails, err)
		}
		if _, there := h.files[AcceptedFile("home")]; there || !d.At.Equal(accepted.At) || !strings.Contains(d.Unnamed, unnamed) {
			t.Errorf("%s fails: accepted is still there: %t, named: %+v", fails, there, d)
		}
		if unnamed != "" {
			continue
		}
		// The volume begins at sector 128 of the array.
		const first = 81920 - 128*512
		want := &Owners{Outside: 1, Files: []FileInDoubt{{Inode: 263, Path: "/srv/home/data/a name", Offsets: []int64{first, first + BlockBytes}}}}
		if fails == "find" {
			want.Files[0].Path, want.Unsearched = "", "the search for names was cut short"
		}
		if diff := cmp.Diff(want, d.Owners); diff != "" {
			t.Errorf("%s fails: %s", fails, diff)
		}
	}
}

// The agent looks for no files of blocks that are not known.
func TestNoFilesOfUnknownBlocks(t *testing.T) {
	h := newShared(t).hosts["nfs1"]
	h.files[AcceptedFile("home")] = `{"service": "home", "arrays": [{"name": "r0", "uuid": "` + arrayUUID + `", "events": 5, "unknown": "why"}]}`
	if err := h.service(testConfig()).start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if h.files[NamedFile("home")] != "" || h.files[AcceptedFile("home")] != "" {
		t.Errorf("%q", h.files)
	}
}

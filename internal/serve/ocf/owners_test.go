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

	"github.com/mortarhpc/mortar/internal/serve/doubt"
	"github.com/mortarhpc/mortar/internal/serve/kernel"
	"github.com/mortarhpc/mortar/internal/serve/refusal"
)

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
	return asked(all, nil, h.ReadBlocks)
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
	s.K = h
	err := s.StartArrays(t.Context())
	if err == nil || !strings.Contains(err.Error(), "at 81920 (1 in all)") || codeOf(err) != refusal.InDoubt {
		t.Fatalf("%v does not name the block, or has another code", err)
	}
	if len(h.ran) > 0 {
		t.Errorf("ran %q", h.ran)
	}
	if d, err := doubt.ParseDoubt([]byte(h.files[doubt.DoubtFile("home")])); err != nil || len(d.Arrays) != 1 || len(d.Arrays[0].Blocks) != 1 {
		t.Errorf("%+v, %v", d, err)
	}
	if s.Sound(t.Context()) == nil {
		t.Error("the watcher takes the storage for sound")
	}
	h.files[doubt.AcceptedFile("home")] = h.files[doubt.DoubtFile("home")]
	if err := s.Sound(t.Context()); err != nil {
		t.Errorf("accepted, and the watcher does not let it start: %v", err)
	}
	if _, err := s.LookAll(t.Context()); err != nil {
		t.Errorf("accepted, and refused: %v", err)
	}
	h.dev[slotDev(1)][at(5)+4096] ^= 0x55
	delete(h.files, s.Doubts.ComparedNote().File) // a server that compares all of it
	if _, err := s.LookAll(t.Context()); err == nil {
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
	accepted := doubt.Doubt{Service: "home", At: time.Date(2026, 11, 28, 9, 0, 0, 0, time.UTC),
		Arrays: []doubt.ArrayInDoubt{{Name: "r0", UUID: arrayUUID, Events: 5, Blocks: []int64{81920, 81920 + doubt.BlockBytes, 1 << 40}}}}
	for fails, unnamed := range map[string]string{"": "", "find": "", "xfs_io": "it fails", "dmsetup": "it fails"} {
		h := newShared(t).hosts["nfs1"]
		b, err := json.Marshal(accepted)
		if err != nil {
			t.Fatal(err)
		}
		h.files[doubt.AcceptedFile("home")] = string(b)
		s := h.service(testConfig())
		s.K = lacking{s.K, fails}
		if err := s.start(t.Context()); err != nil {
			t.Fatalf("%s fails: %v", fails, err)
		}
		d, err := doubt.ParseDoubt([]byte(h.files[NamedFile("home")]))
		if err != nil {
			t.Fatalf("%s fails: %v", fails, err)
		}
		if _, there := h.files[doubt.AcceptedFile("home")]; there || !d.At.Equal(accepted.At) || !strings.Contains(d.Unnamed, unnamed) {
			t.Errorf("%s fails: accepted is still there: %t, named: %+v", fails, there, d)
		}
		if unnamed != "" {
			continue
		}
		// The volume begins at sector 128 of the array.
		const first = 81920 - 128*512
		want := &doubt.Owners{Outside: 1, Files: []doubt.FileInDoubt{{Inode: 263, Path: "/srv/home/data/a name", Offsets: []int64{first, first + doubt.BlockBytes}}}}
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
	h.files[doubt.AcceptedFile("home")] = `{"service": "home", "arrays": [{"name": "r0", "uuid": "` + arrayUUID + `", "events": 5, "unknown": "why"}]}`
	if err := h.service(testConfig()).start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if h.files[NamedFile("home")] != "" || h.files[doubt.AcceptedFile("home")] != "" {
		t.Errorf("%q", h.files)
	}
}

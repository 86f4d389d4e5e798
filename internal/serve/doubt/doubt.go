// Package doubt has what a start tells of blocks that a crash may have torn: which blocks, of
// which files, and what a person has accepted. It may not compare parities, nor decide
// whether an array starts.
package doubt

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mortarhpc/mortar/internal/base/lists"
	"github.com/mortarhpc/mortar/internal/base/md"
	"github.com/mortarhpc/mortar/internal/base/raid6"
	"github.com/mortarhpc/mortar/internal/serve/refusal"
	"github.com/mortarhpc/mortar/internal/serve/unit"
)

// Doubt is what a start was refused for: blocks of arrays that may be torn, and
// whose they are. The agent writes it to DoubtFile on the server that refused. A
// person who accepts it writes it to AcceptedFile on both servers.
type Doubt struct {
	Service string         `json:"service"`
	At      time.Time      `json:"at"`
	Arrays  []ArrayInDoubt `json:"arrays"`
	Owners  *Owners        `json:"owners,omitempty"`
	// Unnamed is why the blocks' owners are not known; then Owners is nil.
	Unnamed string `json:"unnamed,omitempty"`
}

// ArrayInDoubt is an array as it was looked at: another event of it, and the doubt is
// another one.
type ArrayInDoubt struct {
	Name    string  `json:"name"`
	UUID    string  `json:"uuid"` // 32 hex digits
	Events  uint64  `json:"events"`
	Missing int     `json:"missing"`          // members that it lacked
	Blocks  []int64 `json:"blocks,omitempty"` // offsets in the array, bytes; each of BlockBytes
	// Unknown is why the blocks in doubt are not known; then Blocks is empty, and any
	// may be.
	Unknown string `json:"unknown,omitempty"`
	// Remaining is how much of each disk the next start compares; the watcher has
	// Pacemaker try again. 0: a person is asked.
	Remaining int64 `json:"remaining_bytes,omitempty"`
}

// Remaining is the most that is to be compared of a disk yet, bytes: then the next start
// goes on, and the list of blocks is not complete.
func (d *Doubt) Remaining() (n int64) {
	for _, a := range d.Arrays {
		n = max(n, a.Remaining)
	}
	return n
}

// Refusal is the error of a start whose arrays may be torn. Its text begins with what to do:
// Pacemaker keeps only the begin of it.
func (d *Doubt) Refusal(why error) error {
	code, n := refusal.InDoubt, d.Remaining()
	if n > 0 {
		code = refusal.Comparing
	}
	return refusal.New(code, refusal.Args{"arrays": lists.Map(d.Arrays, func(a ArrayInDoubt) string { return a.Name }), "mib": n >> 20, "doubt": d, refusal.Why: why})
}

// Of is the doubt for which a start was refused; nil: the error has another cause.
func Of(err error) *Doubt {
	r := (*refusal.Refusal)(nil)
	if !errors.As(err, &r) {
		return nil
	}
	d, _ := r.Args["doubt"].(*Doubt)
	return d
}

// BlockBytes is the size of a block in doubt.
const BlockBytes = raid6.Block

// Owners are whose blocks of a volume are.
type Owners struct {
	Files []FileInDoubt `json:"files"`
	// Metadata, Free, Cache and Outside count blocks of the file system's own, blocks of no
	// file, those that say which SSDs of a cache hold what, and those that are no part of
	// the volume.
	Metadata int `json:"metadata_blocks"`
	Free     int `json:"free_blocks"`
	Cache    int `json:"cache_blocks,omitempty"`
	Outside  int `json:"outside_blocks"`
	// Unsearched is why a file may have no path.
	Unsearched string `json:"unsearched,omitempty"`
}

// FileInDoubt is a file and where it is in doubt.
type FileInDoubt struct {
	Inode   uint64  `json:"inode"`
	Path    string  `json:"path,omitempty"` // where the service or its clients have it mounted; "": not found
	FID     string  `json:"fid,omitempty"`  // of Lustre: the file that the inode is an object of
	Offsets []int64 `json:"offsets"`        // in the file, bytes, BlockBytes each; empty: its extended attributes, or its map of extents
}

// DoubtFile is where a start that is refused writes its Doubt.
func DoubtFile(service string) string { return unit.RunDir + "/doubt-" + service + ".json" }

// AcceptedFile is the Doubt that a person accepts.
func AcceptedFile(service string) string { return unit.RunDir + "/accepted-" + service + ".json" }

// doubts are what is in doubt of a service, and accepted, on this server.
type Notes struct {
	*unit.Host
	// Unsure: this start has started an array that was being written and lacks members.
	Unsure bool
}

func (s *Notes) doubtNote() unit.Note    { return s.RunNote("doubt", ".json") }
func (s *Notes) acceptedNote() unit.Note { return s.RunNote("accepted", ".json") }

// ParseDoubt parses the content of either file.
func ParseDoubt(b []byte) (*Doubt, error) {
	var d Doubt
	if err := json.Unmarshal(b, &d); err != nil {
		return nil, err
	}
	if d.Service == "" || len(d.Arrays) == 0 {
		return nil, errors.New("no service, or no array, is named in it")
	}
	return &d, nil
}

func (d *Doubt) String() string {
	var out []string
	for _, a := range d.Arrays {
		if a.Unknown != "" {
			out = append(out, fmt.Sprintf("array %s: whether it is whole cannot be told: %s", a.Name, a.Unknown))
			continue
		}
		out = append(out, fmt.Sprintf("array %s: in doubt are the blocks of %d bytes at %s (%d in all); all else is whole", a.Name, BlockBytes, places(a.Blocks), len(a.Blocks)))
	}
	switch o := d.Owners; {
	case o != nil:
		out = append(out, "they are "+o.String())
	case d.Unnamed != "":
		out = append(out, "whose they are cannot be told: "+d.Unnamed)
	}
	return strings.Join(out, "; ")
}

// mostFiles is how many files a message names.
const mostFiles = 8

func (o *Owners) String() string {
	var out []string
	if n := len(o.Files); n > 0 {
		names := lists.Map(o.Files[:min(n, mostFiles)], FileInDoubt.String)
		if n > mostFiles {
			names = append(names, "...")
		}
		out = append(out, fmt.Sprintf("of %s (files: %d)", strings.Join(names, ", "), n))
	}
	for _, c := range []struct {
		n    int
		what string
	}{{o.Metadata, "of the file system's own data"}, {o.Free, "of no file"}, {o.Cache, "of the cache's label and superblocks"}, {o.Outside, "outside the volume"}} {
		if c.n > 0 {
			out = append(out, fmt.Sprintf("%s (blocks: %d)", c.what, c.n))
		}
	}
	if o.Unsearched != "" {
		out = append(out, o.Unsearched)
	}
	return strings.Join(out, "; ")
}

func (f FileInDoubt) String() string {
	return cmp.Or(f.Path, f.FID, fmt.Sprintf("inode %d", f.Inode))
}

// Doubted says whether a start would find an array in doubt, by what the last start that
// was refused on this server has found, and a person has not accepted: the array is as it
// was then. Or its partner has started it since, but with members that this server lacks.
func (s *Notes) Doubted(a ArrayInDoubt, awaited int) bool {
	b, there := s.doubtNote().Read()
	if !there {
		return false
	}
	d, err := ParseDoubt([]byte(b))
	if err != nil {
		s.Log.Note("%s: %v", DoubtFile(s.Service), err)
		return false
	}
	return !s.Accepted(a) && d.Remaining() == 0 && slices.ContainsFunc(d.Arrays, func(x ArrayInDoubt) bool {
		return md.Hex(x.UUID) == md.Hex(a.UUID) && (x.Events == a.Events && x.Missing == a.Missing || x.Events != a.Events && awaited > 0)
	})
}

// Accepted says whether a person has accepted that these blocks are in doubt: the array
// is as it was then, and no other block is.
func (s *Notes) Accepted(a ArrayInDoubt) bool {
	d := s.Acceptance()
	return d != nil && slices.ContainsFunc(d.Arrays, func(x ArrayInDoubt) bool { return x.covers(a) })
}

// Acceptance is what a person has accepted; nil: nothing.
func (s *Notes) Acceptance() *Doubt {
	b, there := s.acceptedNote().Read()
	if !there {
		return nil
	}
	d, err := ParseDoubt([]byte(b))
	if err != nil || d.Service != s.Service {
		s.Log.Note("%s: it accepts nothing: %v", AcceptedFile(s.Service), err)
		return nil
	}
	return d
}

// MayBeTorn says whether blocks of the volume may be torn: this start has started an
// array dirty and degraded, or a start before it that failed has, by what a person has
// accepted. The partner keeps that until it serves or boots, and looks once too often.
func (s *Notes) MayBeTorn() bool {
	return s.Unsure || s.Acceptance() != nil
}

func (x ArrayInDoubt) covers(a ArrayInDoubt) bool {
	if md.Hex(x.UUID) != md.Hex(a.UUID) || x.Events != a.Events {
		return false
	}
	return x.Unknown != "" || a.Unknown == "" && !slices.ContainsFunc(a.Blocks, func(b int64) bool {
		_, seen := slices.BinarySearch(x.Blocks, b)
		return !seen
	})
}

// SaveDoubt writes down what a start is refused for.
func (s *Notes) SaveDoubt(d *Doubt) error {
	b, err := json.MarshalIndent(d, "", "  ")
	if err != nil {
		return err
	}
	return s.doubtNote().Write(string(b) + "\n")
}

// ForgetDoubt removes what was compared, was in doubt, and was accepted, once the service
// runs.
func (s *Notes) ForgetDoubt() {
	for _, n := range []unit.Note{s.doubtNote(), s.acceptedNote(), s.ComparedNote()} {
		n.Forget()
	}
}

// ComparedNote says how far starts have got, a list of compared.
func (s *Notes) ComparedNote() unit.Note { return s.RunNote("compared", ".json") }

// mostDoubts is how many places a message names.
const mostDoubts = 16

func places(offsets []int64) string {
	out := lists.Map(offsets[:min(len(offsets), mostDoubts)], func(o int64) string { return fmt.Sprint(o) })
	if len(offsets) > mostDoubts {
		out = append(out, "...")
	}
	return strings.Join(out, ", ")
}

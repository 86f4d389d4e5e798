package stream

import (
	"fmt"
	"sort"
)

// Class is the class of a block on disk. The first three classes are allowed;
// the others are findings.
type Class string

// The classes. A class alone does not mean loss: Extent.Lost says whether
// acknowledged bytes are gone. A torn block, for example, is allowed if a write
// was undecided when the server died.
const (
	OK         Class = "ok"         // the last acknowledged generation
	InDoubt    Class = "in-doubt"   // a write was issued and never decided: old and new data are both allowed
	Unwritten  Class = "unwritten"  // never issued, reads as zeros or lies past the end
	Stale      Class = "stale"      // an older generation than the last acknowledged: a lost acknowledged write
	Zero       Class = "zero"       // allocated zeros where acknowledged data belongs
	Hole       Class = "hole"       // an unallocated range where acknowledged data belongs
	Short      Class = "short"      // past the end of the file, or the file is gone: truncated
	Misplaced  Class = "misplaced"  // whole and valid, but it belongs to another block or file
	Foreign    Class = "foreign"    // a valid block of another run
	Torn       Class = "torn"       // sectors of different generations
	Corrupt    Class = "corrupt"    // flipped bits or garbage
	Impossible Class = "impossible" // a newer generation than any issued
	Unreadable Class = "unreadable" // the read failed
)

// Totals are sums of bytes. AcknowledgedBytes = VerifiedBytes + LostBytes always holds.
type Totals struct {
	AcknowledgedBytes int64 `json:"acknowledged_bytes"` // of blocks with an acknowledged write; each place counts once, even after several writes
	VerifiedBytes     int64 `json:"verified_bytes"`     // acknowledged bytes read back as acknowledged or as a later issued write
	LostBytes         int64 `json:"lost_bytes"`         // the other acknowledged bytes
	InDoubtBytes      int64 `json:"in_doubt_bytes"`     // of blocks with an undecided write (allowed either way)
	// Bytes acknowledged before Options.BeforeNs, in a drill before the fault, and not written
	// since: only these prove that data from before that moment survived. The second are those of
	// them that were read back.
	AcknowledgedBeforeFaultBytes int64 `json:"acknowledged_before_fault_bytes"`
	VerifiedBeforeFaultBytes     int64 `json:"verified_before_fault_bytes"`
}

// Add adds other sums.
func (t *Totals) Add(o Totals) {
	t.AcknowledgedBytes += o.AcknowledgedBytes
	t.VerifiedBytes += o.VerifiedBytes
	t.LostBytes += o.LostBytes
	t.InDoubtBytes += o.InDoubtBytes
	t.AcknowledgedBeforeFaultBytes += o.AcknowledgedBeforeFaultBytes
	t.VerifiedBeforeFaultBytes += o.VerifiedBeforeFaultBytes
}

// Report is the verdict on one or more files.
type Report struct {
	Totals
	BadBytes       int64           `json:"bad_bytes"` // wrong bytes in blocks never acknowledged, so nothing is lost
	Seconds        float64         `json:"seconds"`   // wall time of the verification
	ByClass        map[Class]int64 `json:"by_class"`  // bytes per class
	Files          []FileReport    `json:"files"`
	Extents        []Extent        `json:"extents"`          // findings and in-doubt ranges, capped
	ExtentsOmitted int64           `json:"extents_omitted"`  // number of extents beyond the cap
	Errors         []string        `json:"errors,omitempty"` // why files could not be verified at all
}

// FileReport is the part of one file.
type FileReport struct {
	Worker      string `json:"worker"`
	Path        string `json:"path"`
	SizeBytes   int64  `json:"size_bytes"`                // as found
	BeforeBytes int64  `json:"acknowledged_before_bytes"` // as Totals.AcknowledgedBeforeFaultBytes
}

// Extent is a run of neighbouring blocks with the same finding. Generations
// are given as ranges over the run.
type Extent struct {
	Path     string `json:"path"`
	Class    Class  `json:"class"`
	Lost     bool   `json:"lost"` // acknowledged bytes are gone
	Bad      bool   `json:"bad"`  // not allowed, acknowledged or not
	Offset   int64  `json:"offset"`
	Bytes    int64  `json:"bytes"`
	AckedMin uint32 `json:"acked_min"` // last acknowledged generation (0: none)
	AckedMax uint32 `json:"acked_max"`
	Issued   uint32 `json:"issued"`    // newest generation issued
	FoundMin uint32 `json:"found_min"` // generation found (0: none readable)
	FoundMax uint32 `json:"found_max"`

	FromStream  uint32   `json:"from_stream,omitempty"`  // misplaced: whose data it is
	FromPath    string   `json:"from_path,omitempty"`    // misplaced: the file of that stream, where known
	FromOffset  int64    `json:"from_offset,omitempty"`  // misplaced: where the first block belongs
	Run         string   `json:"run,omitempty"`          // foreign: the other run
	FlippedBits int64    `json:"flipped_bits,omitempty"` // corrupt, torn: bits that differ from what was written, in the sectors that tell their generation
	Sectors     []Sector `json:"sectors,omitempty"`      // torn, corrupt: the first block's sectors
	Error       string   `json:"error,omitempty"`        // unreadable: why
}

// Sector is what was found in one 512-byte sector of a damaged block.
type Sector struct {
	State       string `json:"state"`                  // data, zero, other (a sector of another block), garbage
	Generation  uint32 `json:"generation,omitempty"`   // data, other: when it was written
	FromBlock   uint64 `json:"from_block,omitempty"`   // other: where it belongs
	FlippedBits int    `json:"flipped_bits,omitempty"` // data
}

// Pass reports whether no acknowledged byte is lost and no byte is wrong.
func (r *Report) Pass() bool {
	return r.LostBytes == 0 && r.BadBytes == 0 && len(r.Errors) == 0 && r.VerifiedBytes == r.AcknowledgedBytes
}

// Merge adds another report: of the file's next blocks, or of another file.
func (r *Report) Merge(o *Report) {
	r.Totals.Add(o.Totals)
	r.BadBytes += o.BadBytes
	if r.ByClass == nil {
		r.ByClass = map[Class]int64{}
	}
	for c, n := range o.ByClass {
		r.ByClass[c] += n
	}
	r.Files = append(r.Files, o.Files...)
	r.Errors = append(r.Errors, o.Errors...)
	for _, e := range o.Extents {
		r.add(e)
	}
	r.ExtentsOmitted += o.ExtentsOmitted
}

// add adds an extent. It extends the last extent if n continues that one.
func (r *Report) add(n Extent) {
	if len(r.Extents) > 0 {
		if l := &r.Extents[len(r.Extents)-1]; l.Path == n.Path && l.Offset+l.Bytes == n.Offset && l.Class == n.Class && l.Lost == n.Lost && l.Bad == n.Bad &&
			l.FromStream == n.FromStream && l.Run == n.Run && l.Error == n.Error &&
			(n.Class != Misplaced && n.Class != Foreign || l.FromOffset+l.Bytes == n.FromOffset) {
			l.Bytes += n.Bytes
			l.AckedMin, l.AckedMax = min(l.AckedMin, n.AckedMin), max(l.AckedMax, n.AckedMax)
			l.Issued = max(l.Issued, n.Issued)
			l.FoundMin, l.FoundMax = min(l.FoundMin, n.FoundMin), max(l.FoundMax, n.FoundMax)
			l.FlippedBits += n.FlippedBits
			return
		}
	}
	r.Extents = append(r.Extents, n)
}

// Cap keeps at most limit extents (0: all), the lost ones first, then the
// wrong ones, then those in doubt.
func (r *Report) Cap(limit int) {
	rank := func(e *Extent) int {
		switch {
		case e.Lost:
			return 0
		case e.Bad:
			return 1
		}
		return 2
	}
	sort.SliceStable(r.Extents, func(i, j int) bool { return rank(&r.Extents[i]) < rank(&r.Extents[j]) })
	if limit > 0 && len(r.Extents) > limit {
		r.ExtentsOmitted += int64(len(r.Extents) - limit)
		r.Extents = r.Extents[:limit:limit]
	}
}

// String describes the extent in one line.
func (e Extent) String() string {
	s := fmt.Sprintf("%s: %s, %d bytes at %d", e.Path, e.Class, e.Bytes, e.Offset)
	switch e.Class {
	case Stale:
		s += fmt.Sprintf(": generation %s found, %s acknowledged", gens(e.FoundMin, e.FoundMax), gens(e.AckedMin, e.AckedMax))
	case Impossible:
		s += fmt.Sprintf(": generation %s found, %d issued", gens(e.FoundMin, e.FoundMax), e.Issued)
	case Misplaced:
		from := e.FromPath
		if from == "" {
			from = fmt.Sprintf("stream %d", e.FromStream)
		}
		s += fmt.Sprintf(": belongs to %s at %d (generation %s)", from, e.FromOffset, gens(e.FoundMin, e.FoundMax))
	case Foreign:
		s += ": of run " + e.Run
	case Torn, Corrupt:
		if e.FlippedBits > 0 {
			s += fmt.Sprintf(": %d bits flipped", e.FlippedBits)
		}
		if len(e.Sectors) > 0 {
			s += ": sectors"
			for _, sec := range e.Sectors {
				switch sec.State {
				case "data":
					s += fmt.Sprintf(" %d", sec.Generation)
					if sec.FlippedBits > 0 {
						s += fmt.Sprintf("(%d bits)", sec.FlippedBits)
					}
				case "other":
					s += fmt.Sprintf(" block-%d/%d", sec.FromBlock, sec.Generation)
				default:
					s += " " + sec.State
				}
			}
		}
	case Unreadable:
		s += ": " + e.Error
	}
	if e.Lost {
		s += " [acknowledged data lost]"
	}
	return s
}

func gens(lo, hi uint32) string {
	if lo == hi {
		return fmt.Sprint(lo)
	}
	return fmt.Sprintf("%d-%d", lo, hi)
}

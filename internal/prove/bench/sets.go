package bench

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/prove/kind"
	"github.com/mortarhpc/mortar/internal/prove/report"
	"github.com/mortarhpc/mortar/internal/prove/workload"
)

// Sizing is what the sizes of a suite depend on.
type Sizing struct {
	// Memory of the serving servers in bytes. Sequential tests move at least
	// twice as much, so that caches do not hide the disks.
	Memory int64
	// Scale is a factor on every size of the suite; 0 is 1.
	Scale float64
	// Threads replaces the thread counts of every test; nil: the suite's.
	Threads []int
	// Lanes is the number of mounts to spread threads over.
	Lanes int
}

// Set is one data set or tree: one repetition of a test at one thread count.
type Set struct {
	Test    *Test
	Name    string // of the set's directory
	Threads int
	Repeat  int // from 1
	// Lanes that the threads run on, and threads per lane: as many lanes as
	// divide the threads evenly.
	Lanes, PerLane int

	FileBytes   int64 // of one thread's region
	RecordBytes int64
	TotalBytes  int64
	Dirs, Items int // metadata: of each thread
	Files       int64
}

// setPhase is a phase of a set. The first phase of a set may lay out the files
// for the others; it is not measured.
type setPhase struct {
	op       workload.BenchPhase
	measured bool
	cold     bool // works on existing files, so caches must be empty first
}

// lays reports whether the phase lays out the files for the others.
func (p setPhase) lays() bool { return !p.measured && p.op == workload.SeqWrite }

// The least records of a thread at any scale: with fewer, the start of the
// phase would dominate the figures.
const (
	minRecords       = 4
	minRandomRecords = 64
)

// Sets returns every data set of a suite, in their order. A test runs at all
// thread counts before its next repetition, so that a drift affects all thread
// counts alike.
func Sets(s *Suite, z Sizing) []Set {
	scale := z.Scale
	if scale == 0 {
		scale = 1
	}
	var out []Set
	for ti := range s.Tests {
		t := &s.Tests[ti]
		threads, _ := s.counts(t, z)
		times := s.Repeat
		if t.Repeat > 0 && scale >= 1 {
			times = t.Repeat
		}
		for rep := 1; rep <= times; rep++ {
			for _, n := range threads {
				// Data and random orders follow from the name. Each repetition has
				// its own name, so data left by an earlier one is an error.
				name := fmt.Sprintf("%s.%d", t.Name, n)
				if rep > 1 {
					name += fmt.Sprintf(".%d", rep)
				}
				set := Set{Test: t, Name: name, Threads: n, Repeat: rep, Lanes: lanes(n, z.Lanes), RecordBytes: int64(t.Record)}
				set.PerLane = n / set.Lanes
				if t.metadata() {
					set.tree(n, scale)
				} else {
					set.data(n, z.Memory, scale)
				}
				out = append(out, set)
			}
		}
	}
	return out
}

// counts returns the thread counts of a test, and those that the scale leaves
// out. It always keeps the smallest.
func (s *Suite) counts(t *Test, z Sizing) (threads, left []int) {
	if len(z.Threads) > 0 {
		return z.Threads, nil
	}
	if s.ScaledThreads == 0 || z.Scale == 0 || z.Scale >= 1 {
		return t.Threads, nil
	}
	most := max(s.ScaledThreads*max(z.Lanes, 1), slices.Min(t.Threads))
	for _, n := range t.Threads {
		if n <= most {
			threads = append(threads, n)
		} else {
			left = append(left, n)
		}
	}
	return threads, left
}

// leftOut returns all thread counts that the scale leaves out of any test,
// ascending.
func (s *Suite) leftOut(z Sizing) []int {
	var out []int
	for i := range s.Tests {
		_, left := s.counts(&s.Tests[i], z)
		out = append(out, left...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// round is the sets whose files exist at the same time: one set, or with an
// order in the suite the sets of all tests.
type round struct {
	sets  []*Set
	steps []step
}

// step is a phase of one of a round's sets.
type step struct {
	set *Set
	setPhase
}

// rounds groups sets into rounds with their phases in order.
func rounds(s *Suite, sets []Set) []round {
	var out []round
	if len(s.Order) == 0 {
		for i := range sets {
			r := round{sets: []*Set{&sets[i]}}
			for _, p := range sets[i].phases() {
				r.steps = append(r.steps, step{&sets[i], p})
			}
			out = append(out, r)
		}
		return out
	}
	for i := range sets {
		x := &sets[i]
		k := slices.IndexFunc(out, func(r round) bool { return r.sets[0].Repeat == x.Repeat && r.sets[0].Threads == x.Threads })
		if k < 0 {
			k = len(out)
			out = append(out, round{})
		}
		out[k].sets = append(out[k].sets, x)
	}
	for k := range out {
		r := &out[k]
		for _, o := range s.Order {
			name, phase, _ := strings.Cut(o, "/")
			for _, x := range r.sets {
				if x.Test.Name != name {
					continue
				}
				for _, p := range x.phases() {
					// The layout comes right before the test's first phase.
					if string(p.op) == phase && !p.lays() || p.lays() && x.Test.Phases[0] == phase {
						r.steps = append(r.steps, step{x, p})
					}
				}
			}
		}
	}
	return out
}

// lanes is the largest number of lanes that divides n threads evenly.
func lanes(n, have int) int {
	for l := min(n, max(have, 1)); l > 1; l-- {
		if n%l == 0 {
			return l
		}
	}
	return 1
}

// data sizes the regions of a data set.
func (s *Set) data(n int, memory int64, scale float64) {
	t := s.Test
	per := float64(t.File)
	if t.File == 0 {
		total := float64(t.Total)
		if t.Total == 0 {
			total = 2 * float64(memory)
		}
		per = total / float64(n)
	}
	least := int64(minRecords)
	if t.random() {
		least = minRandomRecords
	}
	records := max(int64(math.Ceil(per*scale/float64(s.RecordBytes))), least)
	if t.layOut() {
		// The layout uses records of 1 MiB, so the size must be a multiple of
		// both record sizes.
		step := lcm(s.RecordBytes, layRecord) / s.RecordBytes
		records = (records + step - 1) / step * step
	}
	s.FileBytes = records * s.RecordBytes
	s.TotalBytes = s.FileBytes * int64(n)
}

// tree sizes the trees. The scale applies evenly to the number of directories
// and of files in each, so that neither becomes 1.
func (s *Set) tree(n int, scale float64) {
	t := s.Test
	dirs := max(320/n, 4)
	if i := slices.Index(t.Threads, n); i >= 0 && len(t.Dirs) > 0 {
		dirs = t.Dirs[i]
	} else if len(t.Dirs) > 0 {
		// The suite lacks this thread count: use as many directories in total
		// as at its first.
		dirs = max(t.Dirs[0]*t.Threads[0]/n, 1)
	}
	files := float64(dirs) * float64(t.Items) * scale
	s.Dirs = max(int(math.Round(float64(dirs)*math.Sqrt(scale))), 1)
	s.Items = max(int(math.Round(files/float64(s.Dirs))), 1)
	s.Files = int64(n) * int64(s.Dirs) * int64(s.Items)
	s.TotalBytes = s.Files * int64(t.ItemBytes)
}

// layRecord is the record size of the layout for random phases.
const layRecord = int64(1) << 20

// layOut reports whether the files of the test must be laid out before its
// phases.
func (t *Test) layOut() bool { return !t.metadata() && t.Phases[0] != string(workload.SeqWrite) }

// phases returns the set's phases, with the layout before them.
func (s *Set) phases() []setPhase {
	var out []setPhase
	if s.Test.layOut() {
		out = append(out, setPhase{op: workload.SeqWrite})
	}
	for i, p := range s.Test.phases() {
		if p == workload.RandRead && s.Test.Reread > 0 {
			out = append(out, setPhase{op: p, cold: true})
		}
		out = append(out, setPhase{op: p, measured: true, cold: i > 0 || s.Test.layOut()})
	}
	return out
}

func lcm(a, b int64) int64 {
	x, y := a, b
	for y != 0 {
		x, y = y, x%y
	}
	return a / x * b
}

// ParseScale reads a scale: 1/256, 0.25, 1.
func ParseScale(s string) (float64, error) {
	num, den, fraction := strings.Cut(s, "/")
	f, err := strconv.ParseFloat(strings.TrimSpace(num), 64)
	if err == nil && fraction {
		var d float64
		if d, err = strconv.ParseFloat(strings.TrimSpace(den), 64); err == nil {
			f /= d
		}
	}
	if err != nil || math.IsNaN(f) || f < 1e-6 || f > 1000 {
		return 0, fmt.Errorf("%q is no scale; write e.g. 1/256 or 0.5 (a factor on the suite's sizes, 0.000001 to 1000)", s)
	}
	return f, nil
}

// title returns the title of a phase, and the unit of its figures.
func (t *Test) title(p workload.BenchPhase) (title, unit string) {
	unit = "ops/s"
	verb := map[workload.BenchPhase]string{
		workload.SeqWrite: "write", workload.SeqRead: "read", workload.RandWrite: "write", workload.RandRead: "read",
		workload.MDCreate: "create", workload.Find: "find", workload.MDStat: "stat", workload.MDRead: "read", workload.MDRemove: "remove",
		workload.MDMkdir: "mkdir", workload.MDDirStat: "stat", workload.MDRmdir: "rmdir",
	}[p]
	if p == workload.SeqWrite || p == workload.SeqRead {
		if t.Record >= 32<<10 {
			unit = "MiB/s"
		}
		unit = cmp.Or(t.Unit, unit)
	}
	return t.Title + ": " + verb, unit
}

// whose describes the files that a metadata phase works on; times is the phase's
// multiple of ReadShift.
func (t *Test) whose(times int) string { return "the files of " + t.client(times) }

func (t *Test) client(times int) string {
	if t.ReadShift == 0 {
		return "its own"
	}
	return fmt.Sprintf("the client %d further on", times*t.ReadShift)
}

// method describes a phase in a sentence.
func (t *Test) method(p workload.BenchPhase) string {
	const compared = "; each block is checked: it has its place and a checksum"
	where := map[string]string{string(workload.OwnFile): "a file of its own", string(workload.Segmented): "its own part of one file", string(workload.Strided): "every N-th record of one file (N: all threads)"}[t.Layout]
	record := report.Bytes(int64(t.Record))
	reads := "what it wrote"
	if t.ReadShift > 0 {
		reads = fmt.Sprintf("what the client %d further on wrote", t.ReadShift)
	}
	how := ""
	if t.IO == "direct" {
		how = ", past the client's cache (O_DIRECT)"
	}
	switch p {
	case workload.SeqWrite:
		return fmt.Sprintf("Each thread writes %s from start to end in records of %s%s; fsync is inside the timing.", where, record, how)
	case workload.SeqRead:
		return fmt.Sprintf("Each thread reads %s from start to end in records of %s%s%s.", reads, record, how, compared)
	case workload.RandWrite:
		return fmt.Sprintf("Each thread writes each record of %s of %s once, in random order%s.", record, where, how)
	case workload.RandRead:
		if t.Reread > 0 {
			return fmt.Sprintf("Each thread reads %d records of %s of %s, at random%s; all of them were read once before, unmeasured, and caches emptied since%s.", t.Reread, record, reads, how, compared)
		}
		return fmt.Sprintf("Each thread reads each record of %s of %s once, in random order%s%s.", record, reads, how, compared)
	case workload.MDCreate:
		body := "leaves them empty"
		if t.ItemBytes > 0 {
			body = "writes " + report.Bytes(int64(t.ItemBytes)) + " to each"
			if t.ItemSync == "fsync" {
				body += " and syncs it"
			}
		}
		if t.shared() {
			return "Each thread creates files in one directory that all share, and " + body + "."
		}
		return "Each thread creates files in a directory of its own and " + body + "."
	case workload.MDMkdir:
		return "Each thread makes directories in one of its own."
	case workload.MDDirStat:
		return "Each thread stats each of the directories of " + t.client(1) + " once, in random order."
	case workload.MDRmdir:
		return "Each thread removes the directories of " + t.client(3) + "."
	case workload.Find:
		return fmt.Sprintf("All threads together look at every entry of everything the run has made, stat those with 01 in their names and count those of %d bytes; how many there must be is known. An operation is an entry that is no directory.", t.ItemBytes)
	case workload.MDStat:
		return "Each thread stats each of " + t.whose(1) + " once, in random order."
	case workload.MDRead:
		return fmt.Sprintf("Each thread opens each of %s, reads its %d bytes%s, and closes it.", t.whose(2), t.ItemBytes, compared)
	case workload.MDRemove:
		return "Each thread removes " + t.whose(3) + "."
	}
	return ""
}

// Planned is the plan of a run.
type Planned struct {
	Suite  string       `json:"suite"`
	Title  string       `json:"title"`
	Cold   string       `json:"cold"`
	Repeat int          `json:"repeat"`
	Sets   []PlannedSet `json:"sets"`
	// LeftOut are the thread counts that the scale leaves out.
	LeftOut []int `json:"left_out"`
	// The number of measurements, the number of times that the run empties the
	// caches, and the most seconds that the measurements take; 0 if a phase has
	// no limit.
	Measurements int `json:"measurements"`
	ColdTimes    int `json:"cold_times"`
	MostSeconds  int `json:"most_seconds"`
	// Memory of the serving servers in bytes, by the spec; only PlanOf sets it.
	Memory int64 `json:"-"`
}

// PlannedSet is a test at one thread count.
type PlannedSet struct {
	Test       string   `json:"test"`
	Threads    int      `json:"threads"`
	Lanes      int      `json:"mounts"` // mounts that the threads are spread over
	Phases     []string `json:"phases"`
	FileBytes  int64    `json:"file_bytes"`
	TotalBytes int64    `json:"total_bytes"`
	Dirs       int      `json:"dirs"`  // of each thread
	Items      int      `json:"items"` // files in each directory
	Files      int64    `json:"files"`
	Seconds    int      `json:"limit_seconds"` // of each phase; 0: none
	Repeat     int      `json:"repeat"`
}

// PlanOf is Plan for the memory and the mounts of a brick's spec.
func PlanOf(d *design.Design, suite *Suite, opt Options) (Planned, error) {
	memory := int64(0)
	for i, s := range d.Spec.Servers {
		if i < len(d.Services()) {
			memory += int64(s.Memory)
		}
	}
	var clients []string
	for _, m := range d.Mounts {
		if !slices.Contains(clients, m.Client) {
			clients = append(clients, m.Client)
		}
	}
	cold, err := ColdOf(d, suite, opt.Cold)
	if err != nil {
		return Planned{}, err
	}
	opt.Cold = cold
	p, err := Plan(suite.on(d), opt, memory, len(clients)*len(kind.Of(d).Volumes(d)))
	p.Memory = memory
	return p, err
}

// Plan returns what Run measures on servers with that much memory (bytes) and
// that many mounts. It reaches no host.
func Plan(suite *Suite, opt Options, memory int64, mounts int) (Planned, error) {
	s, err := opt.of(suite)
	p := Planned{Suite: s.Name, Title: s.Title, Cold: s.Cold, Repeat: s.Repeat, Sets: []PlannedSet{}}
	if err != nil {
		return p, err
	}
	z := Sizing{Memory: memory, Scale: opt.Scale, Threads: opt.Threads, Lanes: mounts}
	p.LeftOut = append([]int{}, s.leftOut(z)...)
	endless := false
	for _, x := range Sets(&s, z) {
		for _, ph := range x.phases() {
			if ph.measured {
				p.Measurements++
				p.MostSeconds += x.Test.Seconds
				endless = endless || x.Test.Seconds == 0
			}
			if ph.cold && s.Cold != ColdNone {
				p.ColdTimes++
			}
		}
		if x.Repeat > 1 {
			i := slices.IndexFunc(p.Sets, func(o PlannedSet) bool { return o.Test == x.Test.Name && o.Threads == x.Threads })
			p.Sets[i].Repeat = x.Repeat
			continue
		}
		p.Sets = append(p.Sets, PlannedSet{Test: x.Test.Name, Threads: x.Threads, Lanes: x.Lanes, Phases: x.Test.Phases, FileBytes: x.FileBytes, TotalBytes: x.TotalBytes, Dirs: x.Dirs, Items: x.Items, Files: x.Files, Seconds: x.Test.Seconds, Repeat: 1})
	}
	if endless {
		p.MostSeconds = 0
	}
	return p, nil
}

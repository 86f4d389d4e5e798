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
	"github.com/mortarhpc/mortar/internal/prove/testbed"
	"github.com/mortarhpc/mortar/internal/prove/workload"
)

// Sizing is what the sizes of a suite depend on.
type Sizing struct {
	// Layers are those of a profile; only planOf sets them.
	Layers []PlannedLayer `json:"layers,omitempty"`
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
	Test    *Test  `json:"-"`
	Name    string `json:"-"` // of the set's directory
	Threads int    `json:"threads"`
	Repeat  int    `json:"repeat"` // from 1
	// Lanes that the threads run on, and threads per lane: as many lanes as
	// divide the threads evenly.
	Lanes   int `json:"mounts"`
	PerLane int `json:"-"`

	FileBytes   int64 `json:"file_bytes"` // of one thread's region
	RecordBytes int64 `json:"-"`
	TotalBytes  int64 `json:"total_bytes"`
	Dirs        int   `json:"dirs"`  // metadata: of each thread
	Items       int   `json:"items"` // files in each
	Files       int64 `json:"files"`
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
	scale := cmp.Or(z.Scale, 1)
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
				set := Set{Test: t, Name: name, Threads: n, Repeat: rep, Lanes: evenLanes(n, z.Lanes), RecordBytes: int64(t.Record)}
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

// evenLanes is the largest number of lanes that divides n threads evenly.
func evenLanes(n, have int) int {
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
	n *= len(t.names()) // a mixture has a file for each of both threads
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

// beside is the set as the figures of its small records have it.
func (s *Set) beside() *Set {
	t, out := *s.Test, *s
	t.Name, t.Title = t.names()[1], t.Title+", small records"
	t.Record, t.IO = t.Small, "direct"
	out.Test, out.RecordBytes = &t, int64(t.Small)
	return &out
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

// phaseWords have the verb of each phase, and its method: {where} are a thread's records, {whose}
// those that it reads, {record} their size, {how} is past the client's cache, {body} what is written
// to a new file, {in} where it is, and {1} to {3} are whose files the phase works on, at so many
// times ReadShift.
var phaseWords = map[workload.BenchPhase][2]string{
	workload.SeqWrite:   {"write", "Each thread writes {where} from start to end in records of {record}{how}; fsync is inside the timing."},
	workload.SeqRewrite: {"rewrite", "Each thread writes {where} again, which is there, from start to end in records of {record}{how}; fsync is inside the timing."},
	workload.SeqRead:    {"read", "Each thread reads {whose} from start to end in records of {record}{how}{compared}."},
	workload.RandWrite:  {"write", "Each thread writes each record of {record} of {where} once, in random order{how}."},
	workload.RandRead:   {"read", "Each thread reads each record of {record} of {whose} once, in random order{how}{compared}."},
	workload.MDCreate:   {"create", "Each thread creates files in {in}, and {body}."},
	workload.MDMkdir:    {"mkdir", "Each thread makes directories in one of its own."},
	workload.MDDirStat:  {"stat", "Each thread stats each of the directories of {1} once, in random order."},
	workload.MDRmdir:    {"rmdir", "Each thread removes the directories of {3}."},
	workload.Find:       {"find", "All threads together look at every entry of everything the run has made, stat those with 01 in their names and count those of {bytes} bytes; how many there must be is known. An operation is an entry that is no directory."},
	workload.MDStat:     {"stat", "Each thread stats each of the files of {1} once, in random order."},
	workload.MDRead:     {"read", "Each thread opens each of the files of {2}, reads its {bytes} bytes{compared}, and closes it."},
	workload.MDRemove:   {"remove", "Each thread removes the files of {3}."},
}

// rereads is the method of a second read.
const rereads = "Each thread reads {reread} records of {record} of {whose}, at random{how}; all of them were read once before, unmeasured, and caches emptied since{compared}."

// title returns the title of a phase, and the unit of its figures.
func (t *Test) title(p workload.BenchPhase) (title, unit string) {
	unit = "ops/s"
	if p.Sequential() {
		if t.Record >= 32<<10 {
			unit = "MiB/s"
		}
		unit = cmp.Or(t.Unit, unit)
	}
	return t.Title + ": " + phaseWords[p][0], unit
}

// method describes a phase in a sentence.
func (t *Test) method(p workload.BenchPhase) string {
	where := map[string]string{string(workload.OwnFile): "a file of its own", string(workload.Segmented): "its own part of one file", string(workload.Strided): "every N-th record of one file (N: all threads)"}[t.Layout]
	in, whose, how, body := "a directory of its own", "what it wrote", "", "leaves them empty"
	if t.shared() {
		in = "one directory that all share"
	}
	if t.ReadShift > 0 {
		whose = fmt.Sprintf("what the client %d further on wrote", t.ReadShift)
	}
	if t.IO == "direct" {
		how = ", past the client's cache (O_DIRECT)"
	}
	if t.ItemBytes > 0 {
		if body = "writes " + report.Bytes(int64(t.ItemBytes)) + " to each"; t.ItemSync == "fsync" {
			body += " and syncs it"
		}
	}
	words := []string{"{where}", where, "{whose}", whose, "{record}", report.Bytes(int64(t.Record)), "{how}", how, "{body}", body, "{in}", in, "{bytes}", fmt.Sprint(int64(t.ItemBytes)),
		"{reread}", strconv.Itoa(t.Reread), "{compared}", "; each block is checked: it has its place and a checksum"}
	for times := 1; times <= 3; times++ {
		of := "its own"
		if t.ReadShift > 0 {
			of = fmt.Sprintf("the client %d further on", times*t.ReadShift)
		}
		words = append(words, fmt.Sprintf("{%d}", times), of)
	}
	text := phaseWords[p][1]
	if p == workload.RandRead && t.Reread > 0 {
		text = rereads
	}
	switch {
	case t.Small == 0:
	case t.Small == t.Record:
		text += " It begins anew until the time is over, beside a thread that streams."
	default:
		text += " It begins anew until the time is over, beside a thread that has records of " + report.Bytes(int64(t.Small)) + " of another file in random order."
	}
	return strings.NewReplacer(words...).Replace(text)
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
	// Layers are those of a profile; only planOf sets them.
	Layers []PlannedLayer `json:"layers,omitempty"`
	// Memory of the serving servers in bytes, by the spec; only planOf sets it.
	Memory int64 `json:"-"`
}

// PlannedLayer is a layer of a profile.
type PlannedLayer struct {
	Layer        string `json:"layer"`
	Measurements int    `json:"measurements"`
	Seconds      int    `json:"seconds"` // of each
}

// PlannedSet is a test at one thread count; Repeat is how often it is done.
type PlannedSet struct {
	Set
	Name    string   `json:"test"`
	Phases  []string `json:"phases"`
	Seconds int      `json:"limit_seconds"` // of each phase; 0: none
}

// planOf is Plan for the memory and the mounts of a brick's spec.
func planOf(d *design.Design, suite *Suite, opt Options) (Planned, error) {
	memory := int64(0)
	for i, s := range d.Spec.Servers {
		if i < len(d.Services()) {
			memory += int64(s.Memory)
		}
	}
	cold, err := coldOf(d, suite, opt.Cold)
	if err != nil {
		return Planned{}, err
	}
	opt.Cold = cold
	clients := testbed.Clients(d)
	p, err := Plan(suite.on(d), opt, memory, len(clients)*len(kind.Of(d).Volumes(d)))
	p.Memory = memory
	if opt.Profile && err == nil {
		layers, err := opt.layersOf(d, len(clients), false)
		if err != nil {
			return p, err
		}
		for _, l := range layers {
			n := opt.cells(l, len(clients))
			p.Layers = append(p.Layers, PlannedLayer{l, n, opt.probe()})
			p.Measurements += n
		}
		p.MostSeconds = 0 // the work around a measurement takes longer than it
	}
	return p, err
}

// Plan returns what Run measures on servers with that much memory (bytes) and
// that many mounts. It reaches no host.
func Plan(suite *Suite, opt Options, memory int64, mounts int) (Planned, error) {
	s, err := opt.of(suite)
	p := Planned{Suite: s.Name, Title: s.Title, Cold: s.Cold, Repeat: s.Repeat, Sets: []PlannedSet{}}
	if s.Name == SuiteRaw {
		p.Measurements = 2 * len(opt.regions()) // writes and reads
		p.MostSeconds = p.Measurements * opt.probe()
	}
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
			i := slices.IndexFunc(p.Sets, func(o PlannedSet) bool { return o.Test == x.Test && o.Threads == x.Threads })
			p.Sets[i].Repeat = x.Repeat
			continue
		}
		p.Sets = append(p.Sets, PlannedSet{x, x.Test.Name, x.Test.Phases, x.Test.Seconds})
	}
	if endless {
		p.MostSeconds = 0
	}
	return p, nil
}

package bench

import (
	"cmp"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/paper"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/prove/workload"
)

// Suite is a list of tests. The doc tags are the source of its part of
// docs/bench.md.
type Suite struct {
	APIVersion string `yaml:"apiVersion" json:"apiVersion" doc:"always mortar/v1"`
	Kind       string `yaml:"kind" json:"kind" doc:"always suite"`
	Name       string `yaml:"name" json:"name" doc:"name of the suite: letters, digits and dashes"`
	Title      string `yaml:"title,omitempty" json:"title,omitempty" doc:"one line for people; default: the name"`
	Source     string `yaml:"source,omitempty" json:"source,omitempty" doc:"the paper, or whatever else the values are from"`
	Cold       string `yaml:"cold,omitempty" json:"cold,omitempty" doc:"how caches are emptied before a phase that works on what is there: restart (unmount the clients, stop the service, unmount XFS, start, mount), drop (mount the clients anew, drop the server's page cache) or none" default:"restart"`
	Repeat     int    `yaml:"repeat,omitempty" json:"repeat,omitempty" doc:"how often each test is done; significance needs at least 3" default:"1"`
	// Limits of a run at a smaller scale, so that it takes minutes, not hours.
	ScaledSeconds int    `yaml:"scaled_seconds,omitempty" json:"scaled_seconds,omitempty" doc:"with --scale below 1: end each phase after so long, done or not, in tests without seconds of their own; --seconds overrides it; 0: when it is done" default:"0"`
	ScaledThreads int    `yaml:"scaled_threads,omitempty" json:"scaled_threads,omitempty" doc:"with --scale below 1: leave out thread counts of more than so many on each mount; --clients overrides it; 0: leave none out" default:"0"`
	Tests         []Test `yaml:"tests" json:"tests" doc:"the tests, in order"`
	// Order lists every phase of every test, as test/phase.
	Order []string `yaml:"order,omitempty" json:"order,omitempty" doc:"all phases of all tests in one sequence, e.g. [easy/seq-write, hard/seq-write, easy/seq-read, hard/seq-read]: what one test writes is there while the others run; default: test after test, each removed before the next"`
}

// Test is a data set or tree, with the phases that make and use it.
type Test struct {
	Name    string   `yaml:"name" json:"name" doc:"name of the test, unique in the suite"`
	Title   string   `yaml:"title,omitempty" json:"title,omitempty" doc:"what the figures are called; default: the name"`
	Source  string   `yaml:"source,omitempty" json:"source,omitempty" doc:"where it is from, e.g. a section of a paper or the command it repeats"`
	Phases  []string `yaml:"phases" json:"phases" doc:"in order: seq-write, seq-rewrite, seq-read, rand-write, rand-read; or md-create, find, md-stat, md-read, md-remove; or md-mkdir, md-dirstat, md-rmdir"`
	Threads []int    `yaml:"threads" json:"threads" doc:"thread counts over all clients together, e.g. [1, 2, 4, 8]"`
	Repeat  int      `yaml:"repeat,omitempty" json:"repeat,omitempty" doc:"how often the test is done at full scale, as mdtest -i; --repeat overrides it; default: the suite's" default:"0"`
	Unit    string   `yaml:"unit,omitempty" json:"unit,omitempty" doc:"of sequential phases: MiB/s or ops/s; default: ops/s for records below 32KiB"`
	Seconds int      `yaml:"seconds,omitempty" json:"seconds,omitempty" doc:"end each phase after so long, done or not; 0: when it is done" default:"0"`

	Layout string     `yaml:"layout,omitempty" json:"layout,omitempty" doc:"own (a file for each thread, N-to-N), segmented or strided (one file for all, N-to-1)" default:"own"`
	Record spec.Bytes `yaml:"record,omitempty" json:"record,omitempty" doc:"size of one call; a multiple of 4KiB where a phase is random or io is direct; default: 1MiB, and 4KiB where a phase is random"`
	Total  spec.Bytes `yaml:"total,omitempty" json:"total,omitempty" doc:"data of all threads together; default: twice the memory of the servers that serve"`
	File   spec.Bytes `yaml:"file,omitempty" json:"file,omitempty" doc:"data of one thread, in place of total"`
	// FileOf is "" or paper, for suite paper: random files are 2 GiB in NSS4-HA and 4 in later papers, streams 256 GiB and 2 TiB in all.
	FileOf    string `yaml:"file_of,omitempty" json:"file_of,omitempty" doc:"paper: as much data as the paper of the brick's system has, of one thread in random tests and of all threads together in the others; file or total where no paper describes the brick"`
	ReadShift int    `yaml:"read_shift,omitempty" json:"read_shift,omitempty" doc:"read (stat, remove) what the client so many further on wrote, so that no client's cache helps (IOR -C: 1; mdtest -N: 1)" default:"0"`
	Reread    int    `yaml:"reread,omitempty" json:"reread,omitempty" doc:"rand-read: read so many records of each thread once, unmeasured, and measure reading these a second time; 0: each record, once" default:"0"`
	// Small makes a mixture of the test. Its figures are of a test of their own, called NAME-small.
	Small spec.Bytes `yaml:"small,omitempty" json:"small,omitempty" doc:"phases seq-rewrite and seq-read, with seconds: beside each thread a second one writes or reads records of this size in random order with O_DIRECT, in a file of its own; both go on until the time is over; 0: none" default:"0B"`
	IO    string     `yaml:"io,omitempty" json:"io,omitempty" doc:"buffered or direct (O_DIRECT); default: direct where a phase is random, else buffered"`

	DiskIOPS int        `yaml:"disk_iops,omitempty" json:"disk_iops,omitempty" doc:"on a virtual rack: operations a second that each disk of the volumes takes in measured phases (a LUN of a PERC: as a RAID 6 group of 4+2 such disks); 0: no limit. Nothing on real hardware" default:"0"`
	DiskRate spec.Bytes `yaml:"disk_rate,omitempty" json:"disk_rate,omitempty" doc:"likewise, bytes a second" default:"0B"`

	Dirs      []int      `yaml:"dirs,omitempty" json:"dirs,omitempty" doc:"a thread has dirs times items files, for each of threads: mdtest spreads them over so many directories (-b), fio has them in one; default: 320 shared out among the threads, at least 4"`
	Items     int        `yaml:"items,omitempty" json:"items,omitempty" doc:"see dirs (mdtest -I)" default:"3000"`
	ItemBytes spec.Bytes `yaml:"item_size,omitempty" json:"item_size,omitempty" doc:"written to each new file (mdtest -w)" default:"0B"`
	Tree      string     `yaml:"tree,omitempty" json:"tree,omitempty" doc:"metadata: own (directories of each thread's own, mdtest -u) or shared (one directory for the files of all threads)" default:"own"`
	ItemSync  string     `yaml:"item_sync,omitempty" json:"item_sync,omitempty" doc:"fsync (each new file is synced before it is closed, as mdtest -y) or none" default:"fsync"`
}

// Ways to empty the caches.
const (
	ColdRestart = "restart"
	ColdDrop    = "drop"
	ColdNone    = "none"
)

//go:embed suites/*.yaml
var suites embed.FS

// Names lists the built-in suites.
func Names() []string { return []string{"quick", "paper", "io500", "cache"} }

// builtin returns the file of a built-in suite. The file of paper depends on the
// flavour.
func builtin(name string, flavour spec.Flavour) (string, bool) {
	switch name {
	case "quick", "io500", "cache", "paper-nfs", "paper-nfs-ha", "paper-lustre":
		return name + ".yaml", true
	case "paper":
		switch flavour {
		case spec.NFSHA, spec.NFSHAXL:
			return "paper-nfs-ha.yaml", true
		case spec.Lustre:
			return "paper-lustre.yaml", true
		}
		return "paper-nfs.yaml", true
	}
	return "", false
}

// on returns a suite with the sizes that the paper of the brick's system has.
func (s *Suite) on(d *design.Design) *Suite {
	y, ok := paper.Of(d.Spec)
	if !ok {
		return s
	}
	out := *s
	out.Tests = slices.Clone(s.Tests)
	for i := range out.Tests {
		switch t := &out.Tests[i]; {
		case t.FileOf != "paper":
		case t.random():
			t.File = cmp.Or(y.RandomFile, t.File)
		default:
			t.Total = cmp.Or(y.Total, t.Total)
		}
	}
	return &out
}

// Source returns the name and the text of a suite, built-in or from a file.
func Source(name string, flavour spec.Flavour) (file string, src []byte, err error) {
	if f, ok := builtin(name, flavour); ok {
		b, err := suites.ReadFile(path.Join("suites", f))
		return f, b, err
	}
	b, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) && !strings.ContainsAny(name, "/.") {
		return "", nil, fmt.Errorf("no suite %q; use %s, or name a file (mortar bench --print-suite quick prints one to start from)", name, strings.Join(Names(), ", "))
	}
	return name, b, err
}

// Load reads a built-in suite by name, or a suite from a file.
func Load(name string, flavour spec.Flavour) (*Suite, error) {
	if name == SuiteRaw {
		return &Suite{Name: SuiteRaw, Title: "Bare devices", Cold: ColdNone, Repeat: 1}, nil
	}
	file, src, err := Source(name, flavour)
	if err != nil {
		return nil, err
	}
	return Parse(file, src)
}

// warning is what a person confirms on real hardware before a suite runs; "": nothing.
func (s *Suite) warning(brick, cold string) string {
	switch {
	case s.Name == SuiteRaw:
		return fmt.Sprintf("This writes to every LUN or disk of data of brick %q that carries nothing.", brick)
	case cold == ColdRestart:
		return fmt.Sprintf("To empty caches the benchmark stops and starts the service of brick %q before each phase: all of its clients will stall (--cold drop leaves it alone).", brick)
	}
	return ""
}

var nameRE = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9-]{0,39}$`)

// maxThreads of one test over all clients.
const maxThreads = 4096

// Parse reads a suite and checks it; its errors are a spec.Errors.
func Parse(file string, src []byte) (*Suite, error) {
	s := &Suite{}
	pos, err := spec.Decode(file, "suite", "mortar bench --print-suite quick", src, s)
	if err != nil {
		return nil, err
	}
	var errs spec.Errors
	bad := faults(func(at, mend, format string, a ...any) {
		line, col := pos(at)
		errs = append(errs, &spec.Error{File: file, Line: line, Col: col, Msg: fmt.Sprintf(format, a...), Mend: mend})
	})
	bad.oneOf("apiVersion", "apiVersion", s.APIVersion, spec.APIVersion)
	bad.oneOf("kind", "kind", s.Kind, "suite")
	bad.oneOf("cold", "cold", s.Cold, ColdRestart, ColdDrop, ColdNone)
	if !nameRE.MatchString(s.Name) {
		bad("name", "use letters, digits and dashes, at most 40", "name: %q", s.Name)
	}
	bad.within("repeat", "repeat", s.Repeat, 1, 100)
	bad.within("scaled_seconds", "scaled_seconds", s.ScaledSeconds, 0, 86400)
	bad.least("scaled_threads", "scaled_threads", s.ScaledThreads, 0)
	s.Title = cmp.Or(s.Title, s.Name)
	if len(s.Tests) == 0 {
		bad("tests", "add one", "the suite has no test")
	}
	seen := map[string]bool{}
	for i := range s.Tests {
		t := &s.Tests[i]
		at := func(key string) string { return fmt.Sprintf("tests[%d].%s", i, key) }
		if !nameRE.MatchString(t.Name) {
			bad(at("name"), "use letters, digits and dashes, at most 40", "name: %q", t.Name)
		}
		for _, name := range t.names() {
			if seen[name] {
				bad(at("name"), "give it another name", "a second test is called %q", name)
			}
			seen[name] = true
		}
		t.Title = cmp.Or(t.Title, t.Name)
		t.check(at, bad)
	}
	s.checkOrder(bad)
	if len(errs) > 0 {
		slices.SortStableFunc(errs, func(a, b *spec.Error) int { return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Col, b.Col)) })
		return nil, errs
	}
	return s, nil
}

// checkOrder reports mistakes in the order of phases.
func (s *Suite) checkOrder(bad faults) {
	if len(s.Order) == 0 {
		return
	}
	next := map[string]int{} // index of the next phase, by test
	for i, step := range s.Order {
		at := fmt.Sprintf("order[%d]", i)
		name, phase, _ := strings.Cut(step, "/")
		k := slices.IndexFunc(s.Tests, func(t Test) bool { return t.Name == name })
		if k < 0 {
			bad(at, "write test/phase, e.g. "+s.Tests[0].Name+"/"+s.Tests[0].Phases[0], "order: %q names no test", step)
			return
		}
		t := &s.Tests[k]
		if next[name] >= len(t.Phases) || t.Phases[next[name]] != phase {
			bad(at, "name each of the test's phases once, in its own order: "+strings.Join(t.Phases, ", "), "order: %q is not what comes next in that test", step)
			return
		}
		next[name]++
	}
	for i := range s.Tests {
		t := &s.Tests[i]
		if next[t.Name] < len(t.Phases) {
			bad("order", "add it", "order lacks %s/%s", t.Name, t.Phases[next[t.Name]])
		}
		if !slices.Equal(t.Threads, s.Tests[0].Threads) {
			bad(fmt.Sprintf("tests[%d].threads", i), "use the same in all tests, or leave order out", "with an order all tests run at the same thread counts")
		}
	}
}

// faults receives mistakes: where, how to mend it, and what.
type faults func(at, mend, format string, a ...any)

func (bad faults) oneOf(at, key, v string, allowed ...string) {
	if !slices.Contains(allowed, v) {
		bad(at, "use "+strings.Join(allowed, ", "), "%s: %q", key, v)
	}
}

// least reports a number below the one that is allowed.
func (bad faults) least(at, key string, n, least int) {
	if n < least {
		bad(at, fmt.Sprintf("use %d or more", least), "%s: %d", key, n)
	}
}

// within reports a number that is not between two.
func (bad faults) within(at, key string, n, least, most int) {
	if n < least || n > most {
		bad(at, fmt.Sprintf("use %d to %d", least, most), "%s: %d", key, n)
	}
}

// check reports mistakes in a test and sets defaults that depend on other keys.
func (t *Test) check(at func(string) string, bad faults) {
	if t.FileOf != "" {
		bad.oneOf(at("file_of"), "file_of", t.FileOf, "paper")
	}
	if !t.checkPhases(at, bad) {
		return
	}
	if len(t.Threads) == 0 {
		bad(at("threads"), "e.g. [1, 2, 4, 8]", "no thread count is given")
	}
	for k, n := range t.Threads {
		here := at(fmt.Sprintf("threads[%d]", k))
		if bad.within(here, "threads", n, 1, maxThreads); slices.Contains(t.Threads[:k], n) {
			bad(here, "remove one", "thread count %d is there twice", n)
		}
	}
	bad.within(at("seconds"), "seconds", t.Seconds, 0, 86400)
	bad.within(at("repeat"), "repeat", t.Repeat, 0, 100)
	if t.Unit != "" {
		bad.oneOf(at("unit"), "unit", t.Unit, "MiB/s", "ops/s")
	}
	if t.Small != 0 {
		t.checkMixture(at, bad)
	}
	bad.least(at("disk_iops"), "disk_iops", t.DiskIOPS, 0)
	if t.Reread < 0 || t.Reread > 0 && !t.has(workload.RandRead) {
		bad(at("reread"), "use 0 or more, in a test with phase rand-read", "reread: %d", t.Reread)
	}
	if t.metadata() {
		t.checkTree(at, bad)
	} else {
		t.checkData(at, bad)
	}
}

// checkMixture reports mistakes in a test of streams with small records beside them.
func (t *Test) checkMixture(at func(string) string, bad faults) {
	if t.Small < 4*spec.KiB || t.Small%(4*spec.KiB) != 0 || t.Small >= cmp.Or(t.Record, spec.MiB) {
		bad(at("small"), "use a multiple of 4KiB that is less than record", "small: %s", t.Small)
	}
	if t.Seconds == 0 {
		bad(at("small"), "add seconds, e.g. seconds: 60", "small records beside streams have no end of their own")
	}
	if t.Layout != string(workload.OwnFile) || slices.ContainsFunc(t.phases(), func(p workload.BenchPhase) bool { return p.Beside() == "" }) {
		bad(at("small"), "use phases seq-rewrite and seq-read, with layout own", "small records are beside streams in files of each thread's own")
	}
}

// names are those of the tests that the test's figures are of.
func (t *Test) names() []string {
	if t.Small > 0 {
		return []string{t.Name, t.Name + "-small"}
	}
	return []string{t.Name}
}

// has reports whether the test has a phase.
func (t *Test) has(p workload.BenchPhase) bool { return slices.Contains(t.Phases, string(p)) }

// random reports whether a phase of the test is random.
func (t *Test) random() bool { return t.has(workload.RandRead) || t.has(workload.RandWrite) }

// checkPhases reports mistakes in the phases; false: nothing else of the test can be judged.
func (t *Test) checkPhases(at func(string) string, bad faults) bool {
	metadata := 0
	for k, name := range t.Phases {
		p, before, here := workload.BenchPhase(name), t.Phases[:k], at(fmt.Sprintf("phases[%d]", k))
		if !slices.Contains(workload.BenchPhases, p) {
			bad(here, "use "+strings.Trim(strings.ReplaceAll(fmt.Sprint(workload.BenchPhases), " ", ", "), "[]"), "there is no phase %q", name)
			return false
		}
		if slices.Contains(before, name) {
			bad(here, "remove one; repeat: does everything again", "phase %s is there twice", p)
		}
		switch {
		case p.Metadata():
			metadata++
			maker := workload.MDCreate
			if p.Directories() {
				maker = workload.MDMkdir
			}
			if p != maker && !slices.Contains(before, string(maker)) {
				bad(here, "put "+string(maker)+" before it", "phase %s has nothing to work on", p)
			}
			if k > 0 && p.Directories() != workload.BenchPhase(t.Phases[0]).Directories() {
				bad(here, "make two tests of it", "files and directories are of two tests")
			}
		case p == workload.SeqWrite && k > 0:
			bad(here, "put it first, or make a test of its own", "phase seq-write makes the files, the phases before it would have none")
		}
	}
	switch n := len(t.Phases); {
	case n == 0:
		bad(at("phases"), "add one, e.g. [seq-write, seq-read]", "the test has no phase")
		return false
	case metadata > 0 && metadata < n:
		bad(at("phases"), "make two tests of it", "metadata phases and others share no files")
		return false
	case t.has(workload.MDRemove) && t.Phases[n-1] != string(workload.MDRemove), t.has(workload.MDRmdir) && t.Phases[n-1] != string(workload.MDRmdir):
		bad(at("phases"), "put it last", "after md-remove and md-rmdir there is nothing left")
	}
	return true
}

// checkTree reports mistakes in the keys of metadata tests.
func (t *Test) checkTree(at func(string) string, bad faults) {
	bad.least(at("items"), "items", t.Items, 1)
	if len(t.Dirs) > 0 && len(t.Dirs) != len(t.Threads) {
		bad(at("dirs"), "give one number for each of threads", "dirs has %d numbers, threads %d", len(t.Dirs), len(t.Threads))
	}
	for k, d := range t.Dirs {
		bad.least(at(fmt.Sprintf("dirs[%d]", k)), "dirs", d, 1)
	}
	bad.oneOf(at("item_sync"), "item_sync", t.ItemSync, "fsync", "none")
	bad.oneOf(at("tree"), "tree", t.Tree, "own", "shared")
	if t.has(workload.MDRead) && t.ItemBytes == 0 {
		bad(at("item_size"), "e.g. 3901B", "phase md-read has nothing to read in empty files")
	}
}

// checkData reports mistakes in the keys of tests of data, and sets their defaults.
func (t *Test) checkData(at func(string) string, bad faults) {
	if t.shared() {
		bad(at("tree"), "use layout for files of data", "tree is of metadata phases only")
	}
	bad.oneOf(at("layout"), "layout", t.Layout, string(workload.OwnFile), string(workload.Segmented), string(workload.Strided))
	if t.random() {
		t.IO, t.Record = cmp.Or(t.IO, "direct"), cmp.Or(t.Record, 4*spec.KiB)
	} else {
		t.IO, t.Record = cmp.Or(t.IO, "buffered"), cmp.Or(t.Record, spec.MiB)
	}
	bad.oneOf(at("io"), "io", t.IO, "buffered", "direct")
	if t.Record < 512 || t.Record > 64*spec.MiB {
		bad(at("record"), "use 512B to 64MiB", "record: %s", t.Record)
	} else if t.Record%(4*spec.KiB) != 0 && (t.random() || t.IO == "direct") {
		bad(at("record"), "use a multiple of 4KiB, or buffered sequential phases only", "record: %s", t.Record)
	}
	if t.Total != 0 && t.File != 0 {
		bad(at("file"), "keep one of them", "total and file are both given")
	}
	bad.least(at("read_shift"), "read_shift", t.ReadShift, 0)
}

// phases returns the test's phases as types of package workload.
func (t *Test) phases() []workload.BenchPhase {
	out := make([]workload.BenchPhase, len(t.Phases))
	for i, p := range t.Phases {
		out[i] = workload.BenchPhase(p)
	}
	return out
}

// shared reports whether the files of all threads are in one directory.
func (t *Test) shared() bool { return t.Tree == "shared" }

// metadata reports whether the test works on trees of files.
func (t *Test) metadata() bool { return workload.BenchPhase(t.Phases[0]).Metadata() }

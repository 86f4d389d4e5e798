package workload

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// BenchEngine is the name of the program that makes the load.
type BenchEngine string

// EngineFio is the default. apply installs it.
const EngineFio BenchEngine = "fio"

// engine describes one BenchEngine: the phases it can run, its command, and the
// parser of its output. Each engine has a file of its own and an entry in
// engines.
type engine struct {
	name       BenchEngine
	pack       string       // its Debian package; "": Debian 12 has none
	phases     []BenchPhase // phases that it can run
	layouts    []BenchLayout
	endsByTime bool // it can end a phase after a given time, finished or not
	mpi        bool // threads are processes under mpirun
	// perThread means that each thread is a process of its own; otherwise one
	// process makes the load of all threads. Only such an engine knows one
	// directory for all threads, and parts of the records.
	perThread bool
	command   func(j *BenchJob, w work) []string
	parse     func(j *BenchJob, w work, out output) (*outcome, error)
	version   string   // the argument that has the program print its version; "": there is none
	notes     []string // caveats for the reader of its figures
}

// engines has every engine, in the order in which messages list them.
var engines = []*engine{&fio, &iozone, &mdtest, &ior}

// work is the part of a phase that one process does. The process runs in a
// directory of its own, in which it may write files: reportFile, or the log of
// latencies.
type work struct {
	thread int    // on this client; 0 if the process makes the load of all threads
	rank   int    // of that thread
	owner  int    // whose files it uses: a rank, or a client if the process makes the load of all threads
	dir    string // of the set
	bytes  int64  // that the owner has in the set, or is to write
	files  int64  // likewise
}

// reportFile is the name of a program's report. A program that writes none is
// read from its standard output.
const reportFile = "report"

// output is what a program has left.
type output struct {
	report []byte
	said   string // standard error
	log    []byte // of latencies
}

// outcome is what a program reports of its phase.
type outcome struct {
	threads  []threadOutcome // one entry for all threads if the program tells only sums
	verified *BenchVerify
}

type threadOutcome struct {
	ops, bytes int64
	seconds    float64
	bins       []bin // latencies; nil: the program does not tell
	spells     []spell
	err        error
}

// engineOf returns the engine of that name, or nil.
func engineOf(name BenchEngine) *engine {
	if i := slices.IndexFunc(engines, func(e *engine) bool { return e.name == name }); i >= 0 {
		return engines[i]
	}
	return nil
}

// BenchEngineNames lists the engines as text: "a, b or c".
func BenchEngineNames() string {
	var names []string
	for _, e := range engines {
		names = append(names, string(e.name))
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

// Check refuses a name that no engine has.
func (e BenchEngine) Check() error {
	if engineOf(e) == nil {
		return fmt.Errorf("engine %q: use %s", e, BenchEngineNames())
	}
	return nil
}

// EndsByTime reports whether the engine can end a phase after a given time,
// finished or not.
func (e BenchEngine) EndsByTime() bool {
	x := engineOf(e)
	return x == nil || x.endsByTime
}

// Verifies reports whether the engine checks what it reads.
func (e BenchEngine) Verifies() bool { return e == EngineFio }

// Install tells how the engine comes to a client.
func (e BenchEngine) Install() string {
	if p := engineOf(e).pack; p != "" {
		return "mortar apply installs it, or apt-get install " + p
	}
	return "Debian 12 has no package: build it from source"
}

// Able returns why the job's engine cannot do the job, or nil if it can. It
// checks the kind of the job only, not its sizes.
func (j *BenchJob) Able() error {
	e := engineOf(j.Engine)
	switch {
	case e == nil:
		return j.Engine.Check()
	case !slices.Contains(e.phases, j.Phase), j.Shared && !e.perThread:
		return fmt.Errorf("engine %s cannot do phase %s", j.Engine, j.Phase)
	case j.DurationSeconds > 0 && !e.endsByTime:
		return fmt.Errorf("engine %s cannot end a phase after a time: leave duration_seconds out", j.Engine)
	case j.Layout != "" && !slices.Contains(e.layouts, j.Layout):
		return fmt.Errorf("engine %s cannot do layout %s", j.Engine, j.Layout)
	case j.Limit > 0 && !e.perThread:
		return fmt.Errorf("engine %s cannot do a part of the records: leave limit out", j.Engine)
	}
	return nil
}

// installedEngines returns the engines installed on this client, with their
// versions.
func installedEngines(ctx context.Context) map[string]string {
	found := map[string]string{}
	for _, e := range engines {
		path, err := exec.LookPath(string(e.name))
		if err != nil {
			continue
		}
		found[string(e.name)] = "installed"
		if e.version == "" {
			continue
		}
		vctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		out, _ := exec.CommandContext(vctx, path, e.version).Output()
		cancel()
		if line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n"); line != "" {
			found[string(e.name)] = line
		}
	}
	return found
}

package workload

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
)

// BenchEngine is the name of what makes the load: Mortar itself, or a program of
// that name that is installed on the client.
type BenchEngine string

// EngineMortar is Mortar's own engine, inside the agents.
const EngineMortar BenchEngine = "mortar"

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
	// command returns the command line. The program's files lie in dir, and it
	// writes its results to the file report. client is the index of the client
	// whose files it uses.
	command func(j *BenchJob, dir, report string, client int) []string
	// parse reads the report, or the standard output if the program writes no
	// report.
	parse func(j *BenchJob, out []byte) (*foreignResult, error)
	// version asks the program for its version; nil: only the output of a phase
	// has the version.
	version func(ctx context.Context, path string) string
	notes   []string // caveats for the reader of its figures
}

// engines has every engine, in the order in which messages list them.
var engines = []*engine{{name: EngineMortar, phases: BenchPhases, layouts: BenchLayouts, endsByTime: true}, &fio, &iozone, &mdtest, &ior}

// foreignResult is what a program reports of its phase.
type foreignResult struct {
	version     string
	threads     []foreignThread // a single entry for all threads if the program reports only sums
	makeSeconds float64         // for making the tree
	rmSeconds   float64
	all         *BenchLatency
}

type foreignThread struct {
	ops, bytes int64
	seconds    float64
	latency    BenchLatency
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

// Install returns a command, or a hint, for installing the engine on a client.
func (e BenchEngine) Install() string {
	if p := engineOf(e).pack; p != "" {
		return "apt-get install " + p
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
	case !slices.Contains(e.phases, j.Phase), j.Shared && e.name != EngineMortar:
		return fmt.Errorf("engine %s cannot do phase %s", j.Engine, j.Phase)
	case j.DurationSeconds > 0 && !e.endsByTime:
		return fmt.Errorf("engine %s cannot end a phase after a time: leave duration_seconds out", j.Engine)
	case j.Layout != "" && !slices.Contains(e.layouts, j.Layout):
		return fmt.Errorf("engine %s cannot do layout %s", j.Engine, j.Layout)
	case j.Limit > 0 && e.name != EngineMortar:
		return fmt.Errorf("engine %s cannot do a part of the records: leave limit out", j.Engine)
	}
	return nil
}

// installedEngines returns the engines installed on this client, with their
// versions.
func installedEngines(ctx context.Context) map[string]string {
	found := map[string]string{string(EngineMortar): "built in"}
	for _, e := range engines {
		path, err := exec.LookPath(string(e.name))
		if e.name == EngineMortar || err != nil {
			continue
		}
		v := ""
		if e.version != nil {
			v = e.version(ctx, path)
		}
		if v == "" {
			v = "installed"
		}
		found[string(e.name)] = v
	}
	return found
}

package workload

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
)

// BenchEngine is what makes the load: Mortar, or a program of that name, which
// must be installed on the client.
type BenchEngine string

// EngineMortar is Mortar's own engine, inside the agents.
const EngineMortar BenchEngine = "mortar"

// engine describes what makes the load: what it can do, how it is run, and how
// its output is read. Each has a file of its own, and its line in engines.
type engine struct {
	name       BenchEngine
	pack       string       // its Debian package; "": Debian 12 has none
	phases     []BenchPhase // those it can do
	layouts    []BenchLayout
	endsByTime bool // it can end a phase after a time, done or not
	mpi        bool // several threads are several processes under mpirun
	// command is what to run. Files lie in dir, report is a file for the
	// program to write its results to; client is whose files are to be read.
	command func(j *BenchJob, dir, report string, client int) []string
	// parse reads the report, or the standard output where there is none.
	parse func(j *BenchJob, out []byte) (*foreignResult, error)
	// version asks the program; nil: only the result of a phase tells.
	version func(ctx context.Context, path string) string
	notes   []string // what the reader of its figures must know
}

// engines has every engine, in the order in which they are named.
var engines = []*engine{{name: EngineMortar, phases: BenchPhases, layouts: BenchLayouts, endsByTime: true}, &fio, &iozone, &mdtest, &ior}

// foreignResult is what a program tells of its phase.
type foreignResult struct {
	version     string
	threads     []foreignThread // one for all where it tells no more
	makeSeconds float64         // of the tree
	rmSeconds   float64
	all         *BenchLatency
}

type foreignThread struct {
	ops, bytes int64
	seconds    float64
	latency    BenchLatency
	err        error
}

// engineOf gives an engine by name; nil: there is none.
func engineOf(name BenchEngine) *engine {
	if i := slices.IndexFunc(engines, func(e *engine) bool { return e.name == name }); i >= 0 {
		return engines[i]
	}
	return nil
}

// BenchEngineNames lists the engines for a reader: "a, b or c".
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

// EndsByTime says that the engine can end a phase after a time, done or not.
func (e BenchEngine) EndsByTime() bool {
	x := engineOf(e)
	return x == nil || x.endsByTime
}

// Install says how a client gets the engine.
func (e BenchEngine) Install() string {
	if p := engineOf(e).pack; p != "" {
		return "apt-get install " + p
	}
	return "Debian 12 has no package: build it from source"
}

// Able says why the job's engine cannot do the job; nil: it can. It looks at
// the kind of the job only, not at sizes.
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

// installedEngines are those that this client has, with what they say is their
// version.
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

package bench

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mortarhpc/mortar/internal/brick/paper"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/prove/report"
	"github.com/mortarhpc/mortar/internal/prove/testbed"
)

// save writes the results so far; unless finished, their verdict is partial.
func (r *runner) save(finished bool) (*report.Run, error) {
	b := r.bench
	d := r.env.Design
	b.BenchSummary = report.BenchSummary{
		Schema: report.Schema, Kind: report.KindBench, Verdict: report.Complete, Reasons: slices.Clone(r.reasons),
		Suite: r.suite.Name, Engine: "fio", Tuning: string(cmp.Or(d.Spec.Profile, spec.Tuned)), Scale: r.opt.Scale,
		Peaks: b.PeakList(), Bottleneck: Bottleneck(b.Layers),
		Started: r.began.UTC().Truncate(time.Millisecond), DurationSeconds: float64(time.Since(r.began).Milliseconds()) / 1e3,
		Brick: d.Name, Flavour: string(d.Flavour), Virtual: r.env.Virtual, SpecSHA256: d.SHA256, MortarVersion: r.env.Version, RunID: r.runID, System: r.system(),
	}
	s := &b.BenchSummary
	s.Cache = "none"
	if c := d.Spec.Cache; c != nil {
		s.Cache = string(c.Mode)
	}
	if r.suite.Name == "io500" {
		s.Score = Score(b.Phases)
	}
	for i := range b.Phases {
		for k := range b.Phases[i].Points {
			for _, run := range b.Phases[i].Points[k].Runs {
				s.VerifiedBytes += run.VerifiedBytes
				s.BadBytes += run.BadBytes
			}
		}
	}
	if !finished {
		s.Reasons = append(s.Reasons, "it had not ended when this was written")
	}
	if len(s.Reasons) > 0 {
		s.Verdict = report.Partial
	}
	if s.BadBytes > 0 {
		s.Verdict = report.Wrong
		s.Reasons = append(s.Reasons, fmt.Sprintf("%s were read back that no client had written", report.Bytes(s.BadBytes)))
	}
	b.ServerMemoryBytes, b.Clients = r.memory, slices.Clone(r.clients)
	run := &report.Run{Dir: r.opt.Dir, Bench: &b, Events: slices.Clone(r.events), Config: r.config()}
	return run, run.Save()
}

// config describes the system under test and the method.
func (r *runner) config() report.Config {
	c := testbed.Describe(r.env.Design)
	c.Software = r.software
	for _, name := range r.clients {
		if f, ok := r.facts[name]; ok {
			c.Hardware = append(c.Hardware, report.Row{Name: "client " + name + ", as found", Value: report.Plural(f.CPUs, "processor") + ", " + report.Bytes(f.MemBytes) + " memory"})
			c.Mounts = append(c.Mounts, report.Row{Name: name + ", as the load found it", Value: strings.TrimSpace(f.Source + " " + f.FSType + " " + f.MountOptions)})
		}
	}
	c.Hardware = append(c.Hardware, report.Row{Name: "memory of what serves, as found", Value: report.Bytes(r.memory)})
	c.Method = []string{
		fmt.Sprintf("Suite %q (%s)%s. fio makes the load, started by the agents; each thread count is spread evenly over as many clients as it can be.", r.suite.Name, r.suite.Title, sourceOf(r.suite)),
		"All threads begin at one agreed moment, fio's with their files set up; each client's clock is corrected by its offset to the administrator's.",
		"The headline figure is over the common window: from the moment the last thread began until the first was done (its stonewall). Writes that are flushed in the end count evenly over the thread's time with flush and close. Beside it stands everything over the whole time, from the first start to the last end.",
		coldTexts[r.suite.Cold],
	}
	for i := range r.suite.Tests {
		t := &r.suite.Tests[i]
		text := t.Title + ":"
		for _, p := range t.phases() {
			text += " " + t.method(p)
		}
		switch source := strings.TrimSuffix(t.Source, "."); {
		case strings.HasPrefix(source, "not "):
			text += " This is " + source + "."
		case source != "":
			text += " After " + source + "."
		}
		if t.Seconds > 0 {
			text += fmt.Sprintf(" Each phase ends after %d s.", t.Seconds)
		}
		c.Method = append(c.Method, text)
	}
	if r.suite.Repeat > 1 {
		c.Method = append(c.Method, fmt.Sprintf("Every test was done %d times; shown is the repetition with the median value, and all of them as dots.", r.suite.Repeat))
	}
	c.Caveats = r.caveats()
	return c
}

func sourceOf(s *Suite) string {
	if s.Source == "" {
		return ""
	}
	return ", after " + s.Source
}

// caveats returns what limits the meaning of the figures.
func (r *runner) caveats() []string {
	var out []string
	if r.env.Virtual {
		out = append(out, "Servers, disks and networks are virtual and may share a processor or two of one machine. Throughput and latency say nothing about real hardware; only ratios within one run, or between runs on the same idle machine, mean anything.")
	}
	if r.opt.Scale < 1 {
		out = append(out, fmt.Sprintf("Sizes are %s of the suite's (--scale %s): where the rule is twice the memory of the servers (%s), less was moved, and caches may have answered for the disks.", report.ScaleText(r.opt.Scale), report.ScaleText(r.opt.Scale), report.Bytes(2*r.memory)))
	}
	for i := range r.suite.Tests {
		t := &r.suite.Tests[i]
		if t.Seconds > 0 {
			out = append(out, "Phases are ended by time: less data than twice the memory of the servers was moved, so caches may have answered for the disks.")
			break
		}
	}
	if r.suite.Repeat < 3 {
		out = append(out, "Fewer than three repetitions: differences to another run cannot be told from chance.")
	}
	threads := 0
	for _, s := range r.sets() {
		threads = max(threads, s.Threads)
	}
	if n := len(r.clients); threads > n {
		out = append(out, fmt.Sprintf("There were no more than %s. At more threads several share one client, its connection and its processor: the curve is then the client's as much as the brick's.", report.Plural(n, "client host")))
		if slices.ContainsFunc(r.suite.Tests, func(t Test) bool { return t.ReadShift > 0 }) && n == 1 {
			out = append(out, "With one client nothing can be read back by another: where that was asked for, the client's own cache was emptied instead.")
		}
	}
	if r.suite.Name == "io500" {
		out = append(out, "This is no submission to IO500: its rules ask for its own programs, and for writing phases of 300 s or more on at least ten clients (or the list of production systems).")
	}
	return append(out, r.notes...)
}

// system is the example that the brick is built as, if the suite is paper and
// that example has a paper; otherwise "".
func (r *runner) system() string {
	if r.suite.Name != "paper" {
		return ""
	}
	y, _ := paper.Of(r.env.Design.Spec)
	return y.Name
}

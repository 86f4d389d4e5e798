package report

import (
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"maps"
	"slices"
	"sync"
)

//go:embed page.tmpl
var pageSource string

//go:embed page.css
var pageCSS string

// page is parsed at its first use, to keep the start of the agent, and of the
// resource agent that runs every ten seconds, fast.
var page = sync.OnceValue(parsePage)

func parsePage() *template.Template {
	return template.Must(template.New("page").Funcs(pageFuncs).Parse(pageSource))
}

var pageFuncs = template.FuncMap{
	"seconds":    Seconds,
	"secondsPtr": secondsPtr,
	"bytes":      Bytes,
	"count":      Count,
	"millis":     millis,
	"target":     target,
	"locks":      locks,
	"ratio":      ratio,
	"signed": func(s float64) string {
		if s > 0 {
			return "+" + Seconds(s)
		}
		return Seconds(s)
	},
}

// target is the text of a drill's stall target, and whether the drill met it.
func target(s Summary) string {
	if s.StallTargetSeconds == nil {
		return "–"
	}
	t := Seconds(*s.StallTargetSeconds)
	switch {
	case s.StallTargetMet == nil:
		return t
	case *s.StallTargetMet:
		return t + " ✓"
	}
	return t + " missed"
}

// locks is the text of the longest stall of locks, of when locks were back, and of its
// target; "" without any.
func locks(s Summary) string {
	t := ""
	if s.LongestLockStallSeconds > 0 {
		t = "; of locks " + Seconds(s.LongestLockStallSeconds)
	}
	if s.LocksTargetSeconds == nil {
		return t
	}
	target := "target " + Seconds(*s.LocksTargetSeconds)
	if !*s.LocksTargetMet {
		target += " missed"
	}
	return fmt.Sprintf("%s; all locks back %s after the start, %s", t, Seconds(*s.LocksBackSeconds), target)
}

// runPage is what the template sees of one run.
type runPage struct {
	*Run
	ID        string
	Title     string
	Timeline  template.HTML
	Phase     template.HTML
	Latency   template.HTML
	Latencies []latencyRow
	Marks     []mark
	Healing   []mark // after the load
	Phases    []phase
	Classes   []classRow
	Log       []Event
	LogMore   int
	// ShowConfig: show hardware, software and settings with this run, and not
	// with a later run of the same brick.
	ShowConfig bool
}

// classRow is a line of the verification table.
type classRow struct {
	Name, Meaning string
	Class
	Bad bool
}

// meanings has the meaning of each class of internal/prove/stream, and whether the
// class is a fault.
var meanings = map[string]struct {
	text string
	bad  bool
}{
	"ok":         {"the last acknowledged write, bit for bit", false},
	"in-doubt":   {"a write that was issued and never decided, for instance when the fault came: old or new, both allowed", false},
	"stale":      {"older than the last acknowledged write", true},
	"zero":       {"zeros where acknowledged data belongs", true},
	"hole":       {"a hole where acknowledged data belongs", true},
	"short":      {"the file ends before acknowledged data", true},
	"misplaced":  {"data of another block or file", true},
	"foreign":    {"data of another run", true},
	"torn":       {"sectors of different writes in one block", true},
	"corrupt":    {"flipped bits", true},
	"impossible": {"newer than anything that was issued", true},
	"unreadable": {"the read failed", true},
	"unwritten":  {"never written, and nothing was found there", false},
}

// byTime returns events in order of time.
func byTime(events []Event) []Event {
	out := slices.Clone(events)
	slices.SortStableFunc(out, func(a, b Event) int { return cmp.Compare(a.NS, b.NS) })
	return out
}

// maxLog bounds the event log shown for one run.
const maxLog = 200

func newRunPage(r *Run, i int) runPage {
	p := runPage{
		Run: r, ID: fmt.Sprintf("run%d", i+1), Title: r.Summary.Drill,
		Timeline: timelineSVG(r), Phase: phaseSVG(&r.Summary), Latency: latencySVG(&r.Timeline),
		Latencies: latencies(&r.Timeline), Marks: marksOf(r), Phases: phasesOf(&r.Summary),
	}
	if _, end, ok := bounds(&r.Timeline); ok {
		p.Marks, p.Healing = split(p.Marks, end)
	}
	if r.Summary.How != "" {
		p.Title += " (" + r.Summary.How + ")"
	}
	if r.Summary.Profile == stock {
		p.Title += ", stock"
	}
	names := slices.Sorted(maps.Keys(r.Verify.Classes))
	slices.SortStableFunc(names, func(a, b string) int {
		if bad := meanings[a].bad; bad != meanings[b].bad {
			return map[bool]int{false: -1, true: 1}[bad]
		}
		return cmp.Compare(r.Verify.Classes[b].Bytes, r.Verify.Classes[a].Bytes)
	})
	for _, n := range names {
		m := meanings[n]
		p.Classes = append(p.Classes, classRow{Name: n, Meaning: m.text, Class: r.Verify.Classes[n], Bad: m.bad})
	}
	p.Log = byTime(r.Events)
	if len(p.Log) > maxLog {
		p.LogMore = len(p.Log) - maxLog
		p.Log = p.Log[:maxLog]
	}
	return p
}

// HTML renders runs as one self-contained page: no script, no request.
func HTML(w io.Writer, runs []*Run) error {
	if len(runs) == 0 {
		return fmt.Errorf("report: no run given")
	}
	switch benches := len(slices.DeleteFunc(slices.Clone(runs), func(r *Run) bool { return r.Bench == nil })); benches {
	case 0:
	case len(runs):
		return benchHTML(w, runs, nil)
	default:
		return fmt.Errorf("report: some runs are drills and some are benchmarks: make a page of each kind")
	}
	data := struct {
		Title string
		CSS   template.CSS
		Runs  []runPage
		Many  bool
		Gains []Gain
		Paper *papersTable
	}{Gains: Gains(runs), CSS: template.CSS(pageCSS), Many: len(runs) > 1} //nolint:gosec // our own file
	for i, r := range runs {
		p := newRunPage(r, i)
		// Describe a brick built by the same version once.
		p.ShowConfig = true
		for _, o := range runs[:i] {
			if o.Summary.SpecSHA256 == r.Summary.SpecSHA256 && o.Summary.MortarVersion == r.Summary.MortarVersion {
				p.ShowConfig = false
			}
		}
		data.Runs = append(data.Runs, p)
	}
	data.Title = runs[0].Summary.Brick + ": " + data.Runs[0].Title
	if data.Many {
		data.Paper = papersTableOf(data.Runs)
		data.Title = fmt.Sprintf("%s: %d drills", runs[0].Summary.Brick, len(runs))
	}
	return page().Execute(w, data)
}

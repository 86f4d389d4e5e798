package report

import (
	"cmp"
	"encoding/json"
	"fmt"
	"html/template"
	"math"
	"slices"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/chart"
	"github.com/mortarhpc/mortar/internal/base/journal"
)

// drawing is a drawing of package chart as a part of a page.
func drawing(svg string) template.HTML {
	return template.HTML(svg) //nolint:gosec // package chart escapes every text
}

// mark is a numbered moment on the timeline.
type mark struct {
	N       int
	Seconds float64
	Kind    string
	Label   string
	Text    string
	Host    string
}

// marksOf picks the events that get a number on the timeline: the first of
// each kind after the fault, in order of time. A line of a journal has the words of
// package journal; its details, and a line that repeats, are in the log only.
func marksOf(r *Run) []mark {
	number := numbers(&r.Config)
	labels := map[string]string{
		EventFault: "fault injected", EventDetected: "fault detected", EventFenced: "fenced", EventStarting: "service starting",
		EventStarted: "service started", EventStopped: "service stopped", EventFirstIO: "first write acknowledged", EventAllIO: "every writer goes on", EventFirstLock: "first lock granted", EventAllLocks: "every lock worker goes on", EventMembership: "new membership",
		EventHealed: "health restored", EventFenceFail: "fencing failed", EventStartFail: "start failed", EventMended: "mended", EventLink: "cluster link", EventMultipath: "path",
		EventRAID: "RAID", EventFS: "file system", EventConflict: "LUN refuses", EventMMP: "target in use elsewhere", EventBooted: "server boots",
	}
	// Every event of these kinds gets a mark with its text: a drill may have
	// several steps, and events of links, paths, arrays and file systems differ
	// only in their text.
	told := map[string]bool{EventFault: true, EventMended: true, EventLink: true, EventMultipath: true, EventRAID: true, EventFS: true}
	seen, count, said := map[string]bool{}, map[string]int{}, map[string]bool{}
	var out []mark
	for _, e := range byTime(r.Events) {
		l, ok := labels[e.Kind]
		if !ok || (e.Kind != EventFault && e.Seconds < 0) {
			continue
		}
		if told[e.Kind] {
			text := e.Text
			if m, ok := journal.Means(journal.Line{Ident: e.Source, Message: e.Text, Priority: 6}, func(id string) string { return number[e.Host+" "+id] }); ok {
				if m.Detail {
					continue
				}
				text = m.Text
			}
			if key := e.Host + text; said[key] {
				continue
			} else {
				said[key] = true
			}
			if count[e.Kind]++; count[e.Kind] > maxMarks {
				continue
			}
			l += ": " + shorten(text, 90)
		} else if seen[e.Kind] {
			continue
		}
		seen[e.Kind] = true
		out = append(out, mark{N: len(out) + 1, Seconds: e.Seconds, Kind: e.Kind, Label: l, Text: e.Text, Host: e.Host})
	}
	return out
}

// numbers are the servers' names by a server of their cluster and their number in it.
func numbers(c *Config) map[string]string {
	var d struct {
		Pairs []struct {
			HA struct {
				Nodes []struct {
					ID   int
					Name string
				}
			}
		}
	}
	_ = json.Unmarshal(c.Design, &d) // an older run has numbers instead
	out := map[string]string{}
	for _, p := range d.Pairs {
		for _, on := range p.HA.Nodes {
			for _, n := range p.HA.Nodes {
				out[fmt.Sprint(on.Name, " ", n.ID)] = n.Name
			}
		}
	}
	return out
}

// maxMarks bounds the marks of one kind.
const maxMarks = 6

// shorten cuts a text at a number of characters.
func shorten(s string, n int) string {
	r := []rune(s)
	if len(r) <= n {
		return s
	}
	return string(r[:n-1]) + "…"
}

// bounds returns the ends of the timeline in seconds relative to the fault; ok is
// false if it has no bucket.
func bounds(t *Timeline) (from, to float64, ok bool) {
	n := 0
	for _, w := range t.Workers {
		n = max(n, len(w.Ops), len(w.Bytes))
	}
	if n == 0 || t.BucketMS <= 0 {
		return 0, 0, false
	}
	origin := t.FaultNS
	origin = cmp.Or(origin, t.StartNS)
	from = float64(t.StartNS-origin) / 1e9
	return from, from + float64(n*t.BucketMS)/1000, true
}

// rates sums buckets into columns and gives each column's rate per second.
func rates(vals []int64, bucketMS, perColumn int) []float64 {
	var out []float64
	for i := 0; i < len(vals); i += perColumn {
		end := min(i+perColumn, len(vals))
		var sum int64
		for _, v := range vals[i:end] {
			sum += v
		}
		out = append(out, float64(sum)*1000/float64((end-i)*bucketMS))
	}
	return out
}

// row is one strip of the timeline.
type row struct {
	label, unit string
	class       string
	values      []float64 // per column
	stalls      []Stall
	held        bool
}

func workerRows(t *Timeline, perColumn int) []row {
	var rows []row
	for i := range t.Workers {
		w := &t.Workers[i]
		r := row{label: workerLabel(w), stalls: w.Stalls, unit: "MiB/s", class: "c-v4"}
		switch w.Kind {
		case "lock-challenger", "lock-taker":
			continue // the checks show their result
		case "lock-prober":
			r.unit, r.class = "locks/s", "c-lock"
			r.values = rates(w.Ops, t.BucketMS, perColumn)
		case "lock-holder":
			r.class, r.held = "c-lock", true
		case "names":
			r.unit = "operations/s"
			r.values = rates(w.Ops, t.BucketMS, perColumn)
		default:
			if strings.HasPrefix(w.Version, "3") {
				r.class = "c-v3"
			}
			for _, v := range rates(w.Bytes, t.BucketMS, perColumn) {
				r.values = append(r.values, v/(1<<20))
			}
		}
		rows = append(rows, r)
	}
	return rows
}

// workerLabel names a worker in words.
func workerLabel(w *Worker) string {
	proto := ""
	switch {
	case w.Version == "lustre":
		proto = "Lustre "
	case w.Version != "":
		proto = "NFSv" + w.Version + " "
	}
	what, ok := workerKinds[w.Kind]
	if !ok {
		what = w.Mode
	}
	return w.Client + " " + proto + what
}

// workerKinds are kinds of workers in words; a writer has its mode.
var workerKinds = map[string]string{
	"names": "names", "lock-prober": "locks", "lock-holder": "lock held", "lock-challenger": "lock tried", "lock-taker": "lock taken", "reader": "reader",
}

// Heights of a strip of the timeline and of the gap below it, and of a lane of marks.
const (
	stripHeight = 30.0
	stripGap    = 8.0
	laneHeight  = 19.0
)

// timelineSVG draws a strip per worker over one time axis with the events as
// numbered marks and the stalls shaded.
func timelineSVG(r *Run) template.HTML {
	from, to, ok := bounds(&r.Timeline)
	if !ok {
		return ""
	}
	marks, _ := split(marksOf(r), to)
	return drawing(chart.Pair(func(c *chart.Canvas) string {
		rows := chart.NewRows(c, 190, 92)
		x := rows.Across(from, to)
		lanes, lane := lanesOf(marks, x)
		// Columns: at least half a second wide, so that the steady pace of a
		// rate-limited worker does not look like a comb, at most one per 1.5 px.
		n := 0
		for _, w := range r.Timeline.Workers {
			n = max(n, len(w.Ops), len(w.Bytes))
		}
		per := max(2, 500/r.Timeline.BucketMS, int(math.Ceil(float64(n)/((rows.Right-rows.Left)/1.5))))
		strips := workerRows(&r.Timeline, per)
		top := 12 + laneHeight*float64(max(lanes, 1))
		bottom := top + rows.Height(len(strips), stripHeight+stripGap)
		rows.Time(from, to, top, bottom, "seconds after the fault")
		for i, w := range strips {
			base := top + rows.Height(i+1, stripHeight+stripGap) - stripGap
			w.draw(c, x, base, &r.Timeline, from, to, float64(per*r.Timeline.BucketMS)/1000)
		}
		for i, m := range marks {
			c.Line("mark "+markClass(m.Kind), x(m.Seconds), 19+laneHeight*float64(lane[i]), x(m.Seconds), bottom)
		}
		// Labels cover the lines that cross them.
		rows.Y = top
		for _, w := range strips {
			w.labels(rows, x, &r.Timeline)
		}
		for i, m := range marks {
			mx, my := x(m.Seconds), 11+laneHeight*float64(lane[i])
			c.Circle("dot "+markClass(m.Kind), mx, my, 8.5, fmt.Sprintf("%s, %s", m.Label, Seconds(m.Seconds)))
			c.Text("dotlabel mid", mx, my+4, fmt.Sprint(m.N))
		}
		return "What each worker completed over time, with the stalls shaded and the cluster's events as numbered marks"
	}))
}

// split parts marks into those of the load, and those after its end, while the brick heals.
func split(marks []mark, end float64) (load, healing []mark) {
	i := slices.IndexFunc(marks, func(m mark) bool { return m.Seconds > end })
	if i < 0 {
		return marks, nil
	}
	return marks[:i], marks[i:]
}

// lanesOf puts marks that would touch others into further lanes. It returns the number of
// lanes, and that of each mark.
func lanesOf(marks []mark, x func(float64) float64) (lanes int, lane []int) {
	var last []float64 // x of each lane's last mark
	for _, m := range marks {
		l := 0
		for l < len(last) && x(m.Seconds)-last[l] < laneHeight {
			l++
		}
		if l == len(last) {
			last = append(last, 0)
		}
		last[l] = x(m.Seconds)
		lane = append(lane, l)
	}
	return len(last), lane
}

// draw draws a strip that stands on base; column is the width of a column in seconds. Each
// strip has its own scale: on a common one, small writes would vanish beside large ones.
func (w *row) draw(c *chart.Canvas, x func(float64) float64, base float64, t *Timeline, from, to, column float64) {
	y := base - stripHeight
	for _, st := range w.stalls {
		if a := float64(st.StartNS-t.FaultNS) / 1e9; a+st.Seconds >= from && a <= to {
			c.Rect("stall", x(a), y, x(a+st.Seconds)-x(a), stripHeight, fmt.Sprintf("%s: no operation completed for %s", w.label, Seconds(st.Seconds)))
		}
	}
	switch peak := w.peak(); {
	case w.held:
		c.Rect(w.class+" held", x(from), y+stripHeight/2-3, x(to)-x(from), 6, w.label+": held")
	case peak > 0:
		c.Path("area "+w.class, chart.Area(scaled(w.values, stripHeight/peak), base, func(i int) float64 { return x(from + float64(i)*column) }), "")
	}
	c.Line("axis", x(from), base, x(to), base)
}

func (w *row) peak() float64 {
	peak := 0.0
	for _, v := range w.values {
		peak = math.Max(peak, v)
	}
	return peak
}

// labels writes the next strip's name, its largest value and the length of long stalls.
func (w *row) labels(rows *chart.Rows, x func(float64) float64, t *Timeline) {
	y := rows.Next(w.label, stripHeight)
	if peak := w.peak(); peak > 0 {
		rows.Figures(y, chart.Num(round(peak, 2))+" "+w.unit)
	}
	middle := y + stripHeight/2 + 4
	if w.held {
		middle = y + 10 // above the bar
	}
	for _, st := range w.stalls {
		a := float64(st.StartNS-t.FaultNS) / 1e9
		if px := x(a+st.Seconds) - x(a); px > 42 {
			rows.Canvas.Text("stalllabel mid", x(a)+px/2, middle, Seconds(st.Seconds))
		}
	}
	rows.Y = y + stripHeight + stripGap
}

func scaled(values []float64, by float64) []float64 {
	out := make([]float64, len(values))
	for i, v := range values {
		out[i] = v * by
	}
	return out
}

func round(v float64, digits int) float64 {
	p := math.Pow(10, float64(digits))
	return math.Round(v*p) / p
}

func markClass(kind string) string {
	switch kind {
	case EventFault, EventFenceFail, EventStartFail:
		return "m-fault"
	case EventFirstIO, EventAllIO, EventFirstLock, EventAllLocks, EventHealed, EventMended:
		return "m-good"
	}
	return "m-cluster"
}

// phase is one segment of the phase bar.
type phase struct {
	Name, Class, Meaning string
	Seconds              *float64
	At                   *float64
}

// lower is the phase's name within a sentence.
func (p phase) lower() string { return strings.ToLower(p.Name[:1]) + p.Name[1:] }

func phasesOf(s *Summary) []phase {
	first := "from then until a client's write was acknowledged"
	if io, up := s.Marks.FirstIO, s.Marks.Started; io != nil && up != nil && *io < *up {
		first = fmt.Sprintf("a client's write was acknowledged %s before that: the service answers before the start's last steps", Seconds(*up-*io))
	}
	return []phase{
		{"Detection", "p-detect", "from the fault until the cluster noticed it", s.Phases.Detect, s.Marks.Detected},
		{"Fencing", "p-fence", "until the failed server was confirmed to be off", s.Phases.Fence, s.Marks.Fenced},
		{"Start", "p-start", "until the service had started on the other server", s.Phases.Start, s.Marks.Started},
		{"First I/O", "p-io", first, s.Phases.FirstIO, s.Marks.FirstIO},
		{"First lock", "p-lock", "from the start until a client was granted a lock", s.Phases.FirstLock, s.Marks.FirstLock},
	}
}

// phaseSVG draws detection, fencing, start and first I/O as one bar; the
// first lock, which overlaps first I/O, as a second one.
func phaseSVG(sum *Summary) template.HTML {
	ps := phasesOf(sum)
	end := 0.0
	for _, p := range ps {
		if p.At != nil {
			end = math.Max(end, *p.At)
		}
	}
	for _, m := range []*float64{sum.Marks.AllIO, sum.Marks.AllLocks} {
		if m != nil {
			end = math.Max(end, *m)
		}
	}
	if end <= 0 || sum.Phases.Detect == nil {
		return ""
	}
	return drawing(chart.Pair(func(s *chart.Canvas) string {
		s.Height = 84
		const edge = 8.0
		x := func(v float64) float64 { return edge + (s.Width-2*edge)*v/end }
		at := 0.0
		for _, p := range ps[:4] {
			if p.Seconds == nil {
				break
			}
			w := x(at+*p.Seconds) - x(at)
			s.Rect("seg "+p.Class, x(at), 6, w, 30, p.Name+": "+Seconds(*p.Seconds))
			switch label := p.Name + " " + Seconds(*p.Seconds); {
			case w > float64(len(label))*7.2+8:
				s.Text("seglabel mid "+p.Class, x(at)+w/2, 26, label)
			case w > float64(len(Seconds(*p.Seconds)))*7+6:
				s.Text("seglabel mid "+p.Class, x(at)+w/2, 26, Seconds(*p.Seconds))
			}
			at += *p.Seconds
		}
		if l := ps[4]; l.Seconds != nil && l.At != nil {
			start := *l.At - *l.Seconds
			s.Rect("seg "+l.Class, x(start), 40, math.Max(x(*l.At)-x(start), 2), 10, l.Name+": "+Seconds(*l.Seconds))
		}
		if a := sum.Marks.AllIO; a != nil {
			s.Line("mark m-good", x(*a), 2, x(*a), 54)
		}
		most := 12
		if s.Phone() {
			most = 5
		}
		step := chart.Step(end, most)
		s.Line("axis", edge, 54, s.Width-edge, 54)
		for v := 0.0; v <= end+1e-9; v += step {
			s.Line("axis", x(v), 54, x(v), 58)
			s.Tick(x(v), 70, chart.Num(round(v, 3))+" s")
		}
		return "Phases of the failover on one time axis"
	}))
}

// latencyRow is one distribution of the latency table.
type latencyRow struct {
	Label, Pattern, Version, Kind string
	Latency                       *Latency
}

// latencies lists the distributions to show: of writers, readers and probers, and
// for buffered writers those of fsync, in which they wait.
func latencies(t *Timeline) []latencyRow {
	var out []latencyRow
	for i := range t.Workers {
		w := &t.Workers[i]
		if w.Kind == "lock-holder" || w.Kind == "lock-challenger" || w.Kind == "lock-taker" {
			continue
		}
		add := func(label string, l *Latency) {
			if l != nil && l.Count > 0 {
				out = append(out, latencyRow{label, w.Pattern, w.Version, w.Kind, l})
			}
		}
		if w.FsyncLatency != nil {
			add(workerLabel(w)+": write", w.Latency)
			add(workerLabel(w)+": fsync", w.FsyncLatency)
			continue
		}
		add(workerLabel(w), w.Latency)
	}
	return out
}

// latencySVG draws the percentiles of each worker on a logarithmic axis.
func latencySVG(t *Timeline) template.HTML {
	type item struct {
		label string
		class string
		l     *Latency
	}
	var items []item
	lo, hi := math.Inf(1), 0.0
	for _, it := range latencies(t) {
		if it.Latency.P50 <= 0 {
			continue // a logarithmic axis has no zero
		}
		c := "c-v4"
		if strings.HasPrefix(it.Version, "3") {
			c = "c-v3"
		}
		if strings.HasPrefix(it.Kind, "lock") {
			c = "c-lock"
		}
		items = append(items, item{it.Label, c, it.Latency})
		lo, hi = math.Min(lo, it.Latency.P50), math.Max(hi, it.Latency.Max)
	}
	if len(items) == 0 {
		return ""
	}
	scale := chart.Decades(lo, hi)
	return drawing(chart.Pair(func(c *chart.Canvas) string {
		const height = 24.0
		rows := chart.NewRows(c, 190, 24)
		rows.Y = 6
		bottom := rows.Y + rows.Height(len(items), height)
		c.Height = bottom + 34
		x := func(ms float64) float64 { return rows.Left + (rows.Right-rows.Left)*scale.At(ms) }
		for _, v := range scale.Ticks {
			c.Line("grid", x(v), 2, x(v), bottom)
			c.Tick(x(v), bottom+14, axisMillis(v))
		}
		for _, it := range items {
			mid := rows.Next(it.label, height) + height/2
			c.Line("range "+it.class, x(it.l.P50), mid, x(it.l.P99), mid)
			c.Line("whisker "+it.class, x(it.l.P99), mid, x(it.l.Max), mid)
			c.Circle("pt "+it.class, x(it.l.P50), mid, 5, "p50 "+millis(it.l.P50))
			c.Rect("pt "+it.class, x(it.l.P90)-2, mid-7, 4, 14, "p90 "+millis(it.l.P90))
			c.Rect("pt "+it.class, x(it.l.P99)-2, mid-7, 4, 14, "p99 "+millis(it.l.P99))
			end := x(it.l.Max)
			c.Path("pt "+it.class, new(chart.Path).To(end, mid-5).To(end+5, mid).To(end, mid+5).To(end-5, mid).Close(), "max "+millis(it.l.Max))
			rows.Y += height
		}
		c.Text("tick mid", (rows.Left+rows.Right)/2, bottom+29, "● p50   ▮ p90, p99   ◆ longest; logarithmic")
		return "Latency percentiles of each worker"
	}))
}

func tickMillis(ms float64) string {
	switch {
	case ms >= 1000:
		return chart.Num(ms/1000) + " s"
	case ms >= 1:
		return chart.Num(ms) + " ms"
	}
	return chart.Num(ms*1000) + " µs"
}
